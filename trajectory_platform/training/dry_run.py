"""What a run would do, without its weights: rows, tokens, steps, memory per device and hours per stage.

Datasets are really built (in a process of its own, because tokenizers import torch); what cannot be known before the
stages have run, such as the traces a model will generate, is bounded and said to be.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trajectory_platform.evaluation.child import Runner, run_job
from trajectory_platform.training import launch
from trajectory_platform.training.estimate import (
    GIB,
    START_S,
    Device,
    Shape,
    Work,
    answering_hours,
    assumptions,
    device_of,
    hours,
    memory,
    shape_of,
)
from trajectory_platform.training.recipe import Recipe
from trajectory_platform.training.stage_recipes import AnyStage, GrpoStage, ResftStage, TeacherStage

MODULE = "trajectory_platform.training.dry_run_process"


def dry_run(
    recipe: Recipe,
    rows: Mapping[str, Iterable[Mapping[str, Any]]],
    *,
    problems: int,
    device: str,
    seed: int,
    evaluated: int | None = None,
    runner: Runner | None = None,
) -> dict[str, Any]:
    """Resolve a recipe, build the datasets of the stages that have rows, estimate all of its stages.

    Args:
        rows: stage -> records as for ``launch.train_checkpoint``; ``sft`` must be there, its rows also say how long a
            trace is. Stages without rows are bounded from it and from ``problems``.
        problems: train problems that can be attempted.
        evaluated: problems of the evaluation's pool that can be attempted; None is not known and taken to be as many
            as the plan asks for.
        device: name in ``estimate.DEVICES``.

    Returns:
        JSON object for :func:`text_of`: ``recipe`` (YAML), ``tokenizer``, ``parameters``, ``device``, ``stages``
        (counts, ``memory_gib``, ``hours``, ``notes`` each), ``evaluations`` (of every stage and of the untrained
        model), ``assumptions``, ``total_hours`` of both.

    Raises:
        FailPartition, Abort: rows that cannot be read, or an unknown device.
    """
    recipe = recipe.resolved(seed)
    target = device_of(device)
    with tempfile.TemporaryDirectory(prefix="dry-run-") as name:
        folder = Path(name)
        paths = {}
        for stage, records in rows.items():
            path = folder / f"{stage}.parquet"
            if launch.write_rows(records, [], path).roles:
                paths[stage] = str(path)
        job = {"recipe": recipe.model_dump(mode="json"), "rows": paths}
        counted = run_job(MODULE, job, folder, threads=recipe.threads, runner=runner)
    shape = shape_of(recipe.model, counted["tokenizer"]["vocab"])
    per_trace = counted["stages"].get("sft", {})
    stages = {
        name: _stage(name, recipe, counted["stages"].get(name), per_trace, problems, shape, target)
        for name in recipe.names()
    }
    evaluations = _evaluations(recipe, per_trace, evaluated, shape, target)
    spent = [*(entry.get("hours") or 0.0 for entry in stages.values()), evaluations.get("hours") or 0.0]
    return {
        "name": recipe.name,
        "recipe": recipe.to_yaml(),
        "tokenizer": counted["tokenizer"],
        "parameters": shape.parameters,
        "device": {"name": target.name, "count": recipe.hardware.processes, "memory_gib": target.memory_gib},
        "stages": stages,
        "evaluations": evaluations,
        "total_hours": round(sum(spent), 4),
        "assumptions": assumptions(target),
    }


def text_of(found: Mapping[str, Any], *, with_recipe: bool = False) -> list[str]:
    """The result as lines for a terminal: the numbers first; the resolved recipe only where it is asked for, last."""
    device = found["device"]
    room = f"{device['memory_gib']:g} GiB each" if device["memory_gib"] else "memory of the machine"
    lines = [
        f"recipe       {found['name']}",
        f"model        {found['parameters'] / 1e6:,.1f} M parameters",
        f"tokenizer    {found['tokenizer']['source']}",
        f"devices      {device['count']} x {device['name']}, {room}",
        "",
        f"{'stage':<12}{'rows':>9}{'contexts':>10}{'tokens':>15}{'trained':>14}{'steps':>8}{'GiB':>8}{'time':>10}",
    ]
    for name, entry in found["stages"].items():
        if "refused" in entry:
            lines.append(f"{name:<12}{entry['rows']:>9,}  refused: {entry['refused']}")
            continue
        lines.append(
            f"{name:<12}{_count(entry, 'rows')}{_count(entry, 'contexts', 10)}{_count(entry, 'run_tokens', 15)}"
            f"{_count(entry, 'run_trained_tokens', 14)}{_count(entry, 'steps', 8)}"
            f"{_number(entry.get('memory_gib'), 8, 2)}{_time(entry.get('hours')):>10}"
        )
        lines += [f"{'':<12}{note}" for note in entry["notes"]]
    told = found["evaluations"]
    lines.append(f"{'evaluations':<12}{_time(told['hours']):>73}")
    lines += [f"{'':<12}{note}" for note in told["notes"]]
    lines += ["", f"in all {_time(found['total_hours'])}; no weights were touched", ""]
    lines += ["assumptions", *(f"- {line}" for line in found["assumptions"])]
    return [*lines, "", "resolved recipe", *found["recipe"].splitlines()] if with_recipe else lines


def _stage(
    name: str,
    recipe: Recipe,
    counts: dict[str, Any] | None,
    per_trace: Mapping[str, Any],
    problems: int,
    shape: Shape,
    device: Device,
) -> dict[str, Any]:
    part = recipe.stage(name)
    if counts is not None and "refused" in counts:
        return {**counts, "notes": []}
    found: dict[str, Any] = {**(counts or {}), "notes": []}
    work = _work(part, found, per_trace, problems, recipe)
    if work is None:
        found["notes"].append("no rows: nothing can be said before its traces are there")
        return found
    longest = recipe.context.max_length if part.amount.packing or "longest" not in found else found["longest"]
    each = part.amount.batch // recipe.hardware.processes
    need = memory(shape, recipe, part, longest=longest, micro_batch=part.amount.micro_batch or each)
    found["memory_gib"] = round(need.total / GIB, 2)
    parts_gib = {key: round(value / GIB, 2) for key, value in need._asdict().items()}
    found["memory_parts_gib"] = {key: value for key, value in parts_gib.items() if value}
    found["hours"] = round(hours(shape, recipe, part, work, device) + START_S / 3600, 4)
    parts = ", ".join(f"{key} {value:g}" for key, value in found["memory_parts_gib"].items())
    found["notes"] += [f"GiB: {parts}"] if parts else []
    if device.memory_gib is not None and found["memory_gib"] > device.memory_gib:
        found["notes"].append(f"DOES NOT FIT into {device.memory_gib:g} GiB")
    if found.get("dropped"):
        found["notes"].append(
            "dropped: " + ", ".join(f"{reason} {count}" for reason, count in found["dropped"].items())
        )
    return found


def _evaluations(
    recipe: Recipe, per_trace: Mapping[str, Any], evaluated: int | None, shape: Shape, device: Device
) -> dict[str, Any]:
    """{attempts, measured, turns, hours, notes}: the rollouts of the untrained model and of every stage, and the
    teacher-forced turns of sft; ``hours`` is None where nothing says how long a trace is."""
    plan = recipe.evaluation.rollouts
    problems = (
        evaluated if plan.problems is None else min(plan.problems, plan.problems if evaluated is None else evaluated)
    )
    attempts = (problems or 0) * plan.samples
    measured = len(recipe.names()) + 1
    turns = recipe.evaluation.max_turns if "sft" in recipe.names() else 0
    found: dict[str, Any] = {"attempts": attempts, "measured": measured, "turns": turns, "hours": None, "notes": []}
    found["notes"].append(f"{measured} x {attempts:,} attempts (pool {plan.pool}), the untrained model is one of them")
    if "trace_tokens" not in per_trace:
        return found
    length = per_trace["trace_tokens"]
    rollouts = Work(
        0, length, round(attempts * per_trace["trace_generated"]), round(attempts * per_trace["trace_prompted"])
    )
    spent = measured * (answering_hours(shape, recipe, rollouts, device, together=plan.concurrency) + START_S / 3600)
    if turns is None:
        found["notes"].append("teacher-forced turns of sft: all of the dev pool, not counted")
    elif turns:
        share = turns / max(1.0, per_trace["trace_turns"])
        forced = Work(
            0, length, round(share * per_trace["trace_generated"]), round(share * per_trace["trace_prompted"])
        )
        spent += answering_hours(shape, recipe, forced, device, together=recipe.evaluation.batch) + START_S / 3600
        found["notes"].append(f"{turns:,} teacher-forced turns of sft")
    return {**found, "hours": round(spent, 4)}


def _work(
    part: AnyStage, found: dict[str, Any], per_trace: Mapping[str, Any], problems: int, recipe: Recipe
) -> Work | None:
    """Tokens of a stage, None when nothing is known; what is bounded is noted in ``found``."""
    if isinstance(part, GrpoStage):
        return _grpo_work(part, found, per_trace, problems)
    work: Work | None = None
    if "run_tokens" in found:
        contexts = found.get("drawn_contexts") or found["drawn_rows"]
        work = Work(found["padded_tokens"], found["run_tokens"] / max(1, contexts))
    elif isinstance(part, ResftStage | TeacherStage) and "trace_tokens" in per_trace:
        work = _bounded(part, found, per_trace, problems, recipe)
    if work is not None and isinstance(part, ResftStage) and "trace_tokens" in per_trace:
        attempts = _asked(part, problems) * part.rollouts.samples
        found["notes"].append(f"{attempts:,} attempts generated first, taken to be as long as the corpus's traces")
        work = _generating(work, attempts, per_trace)
    if isinstance(part, TeacherStage):
        found["notes"].append(f"the teacher's own time and cost are not in it ({part.teacher})")
    return work


def _asked(part: ResftStage | TeacherStage, problems: int) -> int:
    return problems if part.rollouts.problems is None else min(problems, part.rollouts.problems)


def _generating(work: Work, attempts: int, per_trace: Mapping[str, Any]) -> Work:
    return work._replace(
        generated=round(attempts * per_trace["trace_generated"]), prompted=round(attempts * per_trace["trace_prompted"])
    )


def _bounded(
    part: ResftStage | TeacherStage, found: dict[str, Any], per_trace: Mapping[str, Any], problems: int, recipe: Recipe
) -> Work:
    """Rows that a model is yet to generate: as many as could be accepted, mixed with the corpus as the recipe says."""
    asked = _asked(part, problems)
    kept = min(part.accept.keep, part.rollouts.samples)
    own, amount, each = asked * kept, part.amount, per_trace["trace_tokens"]
    rows = own + min(own * part.corpus_share / (1 - part.corpus_share), per_trace["rows_used"])
    drawn = rows * amount.epochs
    if amount.token_budget is not None:
        drawn = min(drawn, amount.token_budget / each)
    a_row = max(1.0, recipe.context.max_length / each) if amount.packing else 1.0  # traces in a row
    if amount.max_steps is not None:
        drawn = min(drawn, amount.max_steps * amount.batch * a_row)
    tokens = round(drawn * each)
    found |= {
        "rows": round(rows),
        "run_tokens": tokens,
        "run_trained_tokens": round(drawn * per_trace["trace_generated"]),
        "steps": max(1, -(-round(drawn / a_row) // amount.batch)),
    }
    found["notes"].append(f"at most: {kept} accepted for every one of {asked:,} problems")
    return Work(tokens, per_trace["trace_tokens"])


def _grpo_work(part: GrpoStage, found: dict[str, Any], per_trace: Mapping[str, Any], problems: int) -> Work | None:
    if "trace_tokens" not in per_trace:
        return None
    known = found.get("problems", problems if part.problems is None else min(problems, part.problems))
    wanted = (
        part.amount.max_steps or max(1, round(part.amount.epochs * known / part.problems_per_step)) * part.iterations
    )
    batches = max(1, wanted // part.iterations)
    steps, attempts = batches * part.iterations, batches * part.amount.batch
    found |= {
        "rows": known,
        "steps": steps,
        "run_tokens": round(attempts * per_trace["trace_tokens"] * part.iterations),
        "run_trained_tokens": round(attempts * per_trace["trace_generated"] * part.iterations),
    }
    found["notes"].append(f"{attempts:,} attempts, taken to be as long as the corpus's traces")
    return _generating(Work(found["run_tokens"], per_trace["trace_tokens"]), attempts, per_trace)


def _count(entry: Mapping[str, Any], key: str, width: int = 9) -> str:
    value = entry.get(key)
    return f"{'-' if value is None else format(value, ','):>{width}}"


def _number(value: float | None, width: int, digits: int) -> str:
    return f"{'-' if value is None else format(value, f',.{digits}f'):>{width}}"


def _time(hours: float | None) -> str:
    """Hours as people say them: seconds below a minute, minutes below an hour."""
    if hours is None:
        return "-"
    seconds = hours * 3600
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if hours < 1 else f"{hours:,.1f} h"
