"""What a checkpoint is and what it cost, for its report: from its folder, its manifest and the lineage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.stages.checkpoint_evaluations import Measured, Member
from trajectory_platform.stages.context import StageContext

Row = dict[str, Any]
ROWS_REPORT = "rows_report.json"


def training_report(ctx: StageContext, member: Member) -> Row | None:
    """What the training of a checkpoint left in its folder: ``history`` (numbers by step) and ``run`` (measured).

    None where the folder is not here (another machine, removed).

    Raises:
        FailPartition: the file is not the one that the manifest digests.
    """
    if member.manifest is None:
        return None
    path = Path(ctx.settings.checkpoint_root) / member.checkpoint_id / ROWS_REPORT
    if not path.is_file():
        return None
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != member.manifest["files"].get(ROWS_REPORT):
        raise FailPartition(f"checkpoint {member.checkpoint_id}: {ROWS_REPORT} differs from the digest in its manifest")
    report: Row = json.loads(content)
    return report


def facts_of(answer: Mapping[str, Any], report: Row | None) -> list[tuple[str, Any]]:
    """(fact, value) for people.

    Args:
        answer: ``lineage.questions.about_checkpoint``. report: ``training_report``.
    """
    recipe, base = answer["recipe"], answer["base"]
    run = (report or {}).get("run") or {}
    facts: list[tuple[str, Any]] = [
        ("stage, as of", f"{answer['stage']}, {answer['day']}"),
        ("recipe", f"{recipe['name']}, {str(answer['recipe_digest'] or '')[:12]}, code {answer['code_version']}"),
        ("parents", " < ".join(answer["parents"]) or "none: it starts from the base model"),
        ("base model", f"folder {base['folder']}, content {base['digest'][:12]}" if base else "new weights"),
        ("rows", f"{answer['traces']:,} traces of {answer['problems']:,} problems in {answer['clusters']:,} clusters"),
        ("trained in one go", _resumed(run, report)),
        ("trace list", "holds" if answer["trace_list_holds"] else "DOES NOT HOLD: not what was trained on"),
        ("seed", answer["seeds"].get("training")),
        ("hardware", _hardware(recipe.get("hardware") or {})),
    ]
    if answer["control"]:
        facts.append(("CONTROL", "trained on the unfiltered stream, to show what the filter is worth; not to be used"))
    if answer["own_traces"]:
        back = ", ".join(f"{name} {count:,}" for name, count in answer["own_traces"].items())
        facts.append(("our own traces among its rows", f"back from the arena: {back}"))
    facts += [(f"{name}, since", value) for name, value in _since(answer)]
    return facts


def _resumed(run: Mapping[str, Any], report: Row | None) -> str:
    if report is None:
        return "unknown: its folder is not here"
    at = run.get("resumed_at")
    if at is None:
        return "not recorded"
    return f"no: a killed run went on at step {at:,}" if at else "yes"


def _hardware(hardware: Mapping[str, Any]) -> str:
    count = hardware.get("processes")
    processes = None if count is None else f"{count} {'process' if count == 1 else 'processes'}"
    told = [f"profile {hardware.get('profile')}", processes, hardware.get("precision")]
    return ", ".join(str(part) for part in told if part)


def _since(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What has changed since it was trained."""
    found = []
    if answer["changed_inputs"]:
        found.append(("inputs changed", ", ".join(change["input"] for change in answer["changed_inputs"])))
    if answer["held_out_since"]:
        pools = ", ".join(f"{count:,} traces are {pool} now" for pool, count in answer["held_out_since"].items())
        found.append(("problems held out", pools))
    if answer["retracted_rows"]:
        found.append(("rows retracted", f"{answer['retracted_rows']:,}, its ancestors' included: to be trained again"))
    flags = {name: count for name, count in (answer["flags"] or {}).items() if name != "as_of"}
    if flags:
        found.append(("flagged", ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in flags.items())))
    if answer["no_longer_in_corpus"]:
        found.append(("rows no longer in the corpus", f"{len(answer['no_longer_in_corpus']):,}"))
    return found


def fed_of(answer: Mapping[str, Any]) -> dict[str, list[tuple[str, int]]]:
    """Heading -> (name, traces) of what it was fed itself; days by date, the others largest first."""
    counts = {
        "day": sorted(answer["days"].items()),
        "category": list(answer["categories"].items()),
        "verdict source": list(answer["verdict_sources"].items()),
        "miner": list(answer["miners"].items()),
        "strategy": list(answer["strategies"].items()),
    }
    return {heading: listed for heading, listed in counts.items() if listed}


def costs_of(
    ctx: StageContext, members: Sequence[Member], own: Sequence[Measured], metrics: Sequence[Row]
) -> list[Row]:
    """What the chain up to a checkpoint cost: generation, training and measuring.

    Args:
        members: of the chain, oldest first. own: the evaluations of the checkpoint; ``metrics``: of each,
            ``evaluation.metrics.task_metrics``.
    """
    rows: list[Row] = []
    for member in members:
        if member.manifest is not None:
            rows += _generated(ctx, member)
            rows.append(_trained(ctx, member))
    judged = _judged(ctx, members)
    rows += [judged] if judged else []
    for measured, one in zip(own, metrics, strict=True):
        usage = one["overall"].get("usage")
        if usage is not None:
            rows.append(
                {
                    "what": measured.label,
                    "tokens": _whole(usage["tokens"]["total"]),
                    "usd": usage["cost_usd"]["total"],
                    "remark": f"{usage['seconds']['total'] or 0:,.0f} s in sum over attempts that ran side by side",
                }
            )
    return rows


def _trained(ctx: StageContext, member: Member) -> Row:
    report = training_report(ctx, member)
    run = (report or {}).get("run") or {}
    history = (report or {}).get("history") or [{}]
    tokens = run.get("tokens") or _whole(history[-1].get("num_tokens"))  # the latter counts what moved the model
    return {
        "what": f"training of {member.stage}",
        "wall": run.get("seconds"),
        "cpu": run.get("cpu_seconds"),
        "tokens": tokens,
        "remark": "its folder is not here" if report is None else "",
    }


def _generated(ctx: StageContext, member: Member) -> list[Row]:
    """What was generated for a stage, by its parent or a teacher."""
    manifest = ctx.lake.manifest(tables.GENERATED_TRACES, member.day, {"stage": member.stage})
    if manifest is None or not manifest.rows:
        return []
    import pyarrow.compute as pc

    columns = ["prompt_tokens", "completion_tokens", "cost_usd", "source"]
    table = ctx.lake.read(
        tables.GENERATED_TRACES, [member.day], columns=columns, filter=pc.field("stage") == member.stage
    )
    tokens = sum(pc.sum(table[name]).as_py() or 0 for name in ("prompt_tokens", "completion_tokens"))
    makers = ", ".join(sorted(set(table["source"].to_pylist())))
    return [
        {
            "what": f"attempts generated for {member.stage}",
            "tokens": tokens or None,
            "usd": pc.sum(table["cost_usd"]).as_py(),
            "remark": f"{table.num_rows:,} attempts by {makers}",
        }
    ]


def _judged(ctx: StageContext, members: Sequence[Member]) -> Row | None:
    """What the LLM judge cost on the days whose traces the chain learnt from; None where it was never asked."""
    days = sorted(
        {
            name.partition("/")[2]
            for member in members
            if member.manifest is not None
            for name in member.manifest["inputs"]
            if name.startswith("axis_a_corpus/")
        }
    )
    known = [day for day in ctx.lake.days(tables.JUDGE_CALLS) if day in days]
    if not known:
        return None
    table = ctx.lake.read(tables.JUDGE_CALLS, known, columns=["cost_usd", "prompt_tokens", "completion_tokens"])
    import pyarrow.compute as pc

    tokens = sum(pc.sum(table[name]).as_py() or 0 for name in ("prompt_tokens", "completion_tokens"))
    return {
        "what": "LLM judge, days it learnt from",
        "tokens": tokens,
        "usd": pc.sum(table["cost_usd"]).as_py() or 0.0,
        "remark": "paid once per day, for every checkpoint that learns from it",
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
