"""``evaluate`` and ``compare``: whoever acts, on suite files or on the problems of the lake; files come out.

The same selection, process, scoring and metrics as the assets'. Pools and clusters are those of ``split`` over the
given files, or those of the lake as of the day. Whoever opens the sealed pool says why; the lake's ledger keeps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, FailPartition, RejectRow
from trajectory_platform.lake import sealed_scores, tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.catalogue import day_catalogue
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.eval_pools import (
    CONTAMINATED,
    FRESH,
    WITHHELD,
    benchmark_of,
    check_pool,
    evaluable,
    index_folder,
    pool_line,
    record_sealed,
    references_for,
    what_was_there,
)
from trajectory_platform.stages.folder_lineage import trained_on
from trajectory_platform.stages.splits import days_up_to, place_files
from trajectory_platform.stages.text import shown

if TYPE_CHECKING:
    from trajectory_platform.evaluation.child import Runner
    from trajectory_platform.evaluation.eval_problems import EvalProblem, Selection
    from trajectory_platform.evaluation.plan import RolloutLimits, RolloutPlan
    from trajectory_platform.evaluation.rollout_launch import Place, Subject
    from trajectory_platform.evaluation.turn_rewards import Reference
    from trajectory_platform.sandbox.products import ProductCatalogue

Row = dict[str, Any]
LOG = "attempts.log"
STAGE = "files"  # what the stage column says of attempts that belong to no stage of training
RESAMPLES = 10_000
SAMPLED = 0.7  # temperature of several attempts where none is given: greedy ones would all be the same
_DECODED = ("messages", "tools", "source_steps", "evidence", "repairs", "score")


def evaluate_files(
    settings: Settings,
    *,
    out: Path,
    day: str,
    suites: Sequence[Path] = (),
    catalogue: Path | None = None,
    checkpoint: Path | None = None,
    policy: str | None = None,
    k: int = 1,
    problems: int | None = None,
    concurrency: int = 8,
    temperature: float | None = None,
    top_p: float = 1.0,
    pool: str = "dev",
    sealed_reason: str | None = None,
    limits: RolloutLimits | None = None,
    seed: int = 0,
    policy_options: Mapping[str, Any] | None = None,
    resume: bool = False,
    references: Path | None = None,
    runner: Runner | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> dict[str, Any]:
    """Attempt problems and score the attempts; a run that was cut short goes on with ``resume``.

    Args:
        suites: suite or benchmark files; without any, the problems are those of the lake as of ``day``.
        catalogue: the products; without it, those of ``day`` in the raw days.
        out: folder for ``rollouts.jsonl`` (canonical traces with their proxy log), ``scores.jsonl`` (rows of
            ``eval_scores``) and ``metrics.json``; the log of attempts stays in it.
        day: the UTC day that rows and times state, YYYY-MM-DD.
        checkpoint, policy: a checkpoint folder, or a policy in the words of ``policies.open_policy``: one of the two.
        k: attempts at each problem. ``problems``: at most so many, one of each leak cluster first.
        temperature: None = 0 for one attempt, ``SAMPLED`` for several.
        pool: ``dev``, ``sealed``, ``fresh``, ``benchmark:NAME`` (of the settings) or ``all`` (which also holds problems
            that the checkpoint may have been trained on).
        policy_options: of ``policies.open_policy`` as JSON values: ``form, key_variable, prices`` (model -> [prompt,
            completion]), ``body, device, context`` (of a model folder without a recipe).
        references: JSONL of strict successes (``problem_key, trace_id, messages``: accepted rows); the best of each
            problem grounds its process score. Without it those of the lake count for its own problems, and problems of
            files have none, which the metrics say and count.
        now: the time that a look at sealed problems is recorded with.

    Returns:
        ``{checkpoint_id, attempts, resumed, files, metrics, text}``.

    Raises:
        Abort: wrong use. FailPartition: a problem of the pool was trained on, or the process died.
    """
    from trajectory_platform.evaluation.eval_problems import select
    from trajectory_platform.evaluation.reference_files import grounded, read_references
    from trajectory_platform.evaluation.rollout_launch import roll_out

    plan = _plan(k, problems, concurrency, temperature, top_p, limits)
    teachers: Mapping[str, Reference] | None = read_references(references)
    subject, folder = _subject(checkpoint, policy, plan, seed, policy_options or {})
    _check_out(out, resume)
    ctx = StageContext(settings)
    name = None if folder is None else subject.name
    listed, unreadable = _listed(ctx, suites, day, pool, name, sealed_too=sealed_reason is not None)
    selection = select(listed, limit=problems, seed=seed)
    beside = what_was_there(listed, selection, unreadable, pool)
    beside |= _leaks(subject, folder, selection, pool)
    about = {"checkpoint_id": subject.name, "detail": f"{STAGE} {day}"}
    record_sealed(ctx.lake, problems=selection.chosen, reason=sealed_reason, at=now(), **about)
    place, products = _market(ctx, day, catalogue)
    chosen = selection.chosen
    if teachers is None and not suites and pool != "all":
        teachers = references_for(ctx, day, chosen)
    done = roll_out(subject, chosen, plan, seed, place, log=out / LOG, day=day, stage=STAGE, runner=runner)
    scores = _scored(settings, done.rollouts, selection, products, k, (subject.name, day), teachers)
    beside["process_references"] = grounded([one.problem.problem_key for one in chosen], teachers)
    beside["sampling"] = {"temperature": plan.temperature, "top_p": plan.top_p, "k": k, "seed": seed}
    beside |= _looks(ctx, scores)
    return {"checkpoint_id": subject.name, **done.counts, **_written(out, done.rollouts, scores, beside, seed)}


def compare_files(
    scores_a: Path,
    scores_b: Path,
    *,
    settings: Settings | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """The paired comparison of two ``scores.jsonl`` (``evaluation.comparison.compare``), with a text for people.

    Args:
        settings: name the lake whose ledger knows the looks behind sealed scores; without them none may be sealed.

    Raises:
        Abort: a file is missing or no score file, or they share no problem.
        FailPartition: a damaged line, or sealed scores that the ledger knows no look of.
    """
    from trajectory_platform.evaluation.comparison import compare
    from trajectory_platform.evaluation.metrics_text import comparison_text

    before, after = _read_scores(scores_a), _read_scores(scores_b)
    looked = _looks(None if settings is None else StageContext(settings), before, after)
    result = {**compare(before, after, seed=seed, resamples=resamples), **looked}
    return {**result, "text": _with_looks(comparison_text(result), looked)}


def _looks(ctx: StageContext | None, *sides: list[Row]) -> Row:
    """Per policy with sealed scores how often was looked; {} where nothing is sealed.

    Raises:
        Abort: no lake to ask. FailPartition: the ledger knows nothing of a look.
    """
    rows = [row for side in sides for row in side if row["pool"] == "sealed" and row["outcome"] != "no_reward"]
    if not rows:
        return {}
    if ctx is None:
        raise Abort("these are scores on sealed problems: say which lake's ledger knows of the looks at them")
    sealed_scores.assert_scores_looked(ctx.lake, rows)
    names = sorted({row["checkpoint_id"] for row in rows})
    return {"sealed_looks": {name: sealed_scores.looks(ctx.lake, name)._asdict() for name in names}}


def _with_looks(text: str, looked: Row) -> str:
    counted = {name: sealed_scores.Looks(**counts) for name, counts in looked.get("sealed_looks", {}).items()}
    return "\n".join([text, *(f"{shown(name)}: {sealed_scores.looks_text(one)}" for name, one in counted.items())])


def _plan(
    k: int,
    problems: int | None,
    concurrency: int,
    temperature: float | None,
    top_p: float,
    limits: RolloutLimits | None,
) -> RolloutPlan:
    from pydantic import ValidationError

    from trajectory_platform.evaluation.plan import RolloutLimits, RolloutPlan

    try:
        return RolloutPlan(
            problems=problems,
            samples=k,
            temperature=(SAMPLED if k > 1 else 0.0) if temperature is None else temperature,
            top_p=top_p,
            concurrency=concurrency,
            limits=limits or RolloutLimits(),
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise Abort(f"{place + ': ' if place else ''}{first['msg'].removeprefix('Value error, ')}") from None


def _subject(
    checkpoint: Path | None, policy: str | None, plan: RolloutPlan, seed: int, options: Mapping[str, Any]
) -> tuple[Subject, Path | None]:
    """Who is measured, and the checkpoint folder where it is one."""
    from trajectory_platform.evaluation import rollout_launch
    from trajectory_platform.evaluation.policies import parse_spec
    from trajectory_platform.evaluation.policy_transformers import checkpoint_name
    from trajectory_platform.evaluation.process import read_policy
    from trajectory_platform.training.checkpoints import MANIFEST, verify_checkpoint

    if (checkpoint is None) == (policy is None):
        raise Abort("name who is evaluated: either a checkpoint folder or a policy")
    if policy is not None:
        kind, rest = parse_spec(policy)
        if kind != "checkpoint":
            return rollout_launch.outsider(policy, plan, seed, options), None
        checkpoint = Path(rest)
    assert checkpoint is not None
    if not checkpoint.is_dir():
        raise Abort(f"checkpoint {str(checkpoint)!a} is no folder")
    place = checkpoint.resolve()  # the id is the folder's name, also behind a link
    if (place / MANIFEST).is_file():
        verify_checkpoint(place)
    threads = read_policy(place)[1] if options.get("context") is None else 2
    return rollout_launch.trained(checkpoint_name(place), place, threads, options), place


def _check_out(out: Path, resume: bool) -> None:
    if out.exists() and not out.is_dir():
        raise Abort(f"{out} is a file: name a folder for the results")
    if (out / LOG).exists() and not resume:
        raise Abort(f"{out} holds an evaluation: --resume goes on with it, or name another folder")
    out.mkdir(parents=True, exist_ok=True)


def _listed(
    ctx: StageContext, suites: Sequence[Path], day: str, pool: str, checkpoint_id: str | None, *, sealed_too: bool
) -> tuple[list[EvalProblem], dict[str, int]]:
    """The problems of the pool, one per key, and why what is left out is left out (``contaminated`` among it)."""
    check_pool(ctx, pool)
    if suites and pool == FRESH:
        raise Abort("the fresh pool is that of the lake's newest suite: leave the suite files away, or choose another")
    if suites and benchmark_of(pool) is not None:
        raise Abort("a registered benchmark is its own file: leave the suite files away")
    if suites:
        return _of_files(ctx, suites, pool)
    found = evaluable(ctx, day, days_up_to(ctx, tables.PROBLEM_SUITES, day), pool, checkpoint_id, sealed_too=sealed_too)
    counted = {CONTAMINATED: found.contaminated, WITHHELD: found.withheld}
    return found.problems, {reason: count for reason, count in counted.items() if count}


def _of_files(ctx: StageContext, suites: Sequence[Path], pool: str) -> tuple[list[EvalProblem], dict[str, int]]:
    """The problems of files. What the lake has sealed is sealed here too, with its whole cluster: the file may not
    hold the variants that sealed it.
    """
    from trajectory_platform.evaluation.eval_problems import EvalProblem
    from trajectory_platform.lake.sealing import sealed
    from trajectory_platform.splits.suite_files import read_suite_files

    for path in suites:
        if not path.is_file():
            raise Abort(
                f"cannot read suite file {path}: no such file; --suites takes the path of a file, as "
                "DAY_FOLDER/suite.json, and --pool benchmark:NAME a benchmark of the settings"
            )
    placed = place_files(ctx.settings, suites)
    seal = sealed(ctx.lake)
    keys = seal.keys if seal is not None else frozenset()
    closed = {place["cluster_id"] for place in placed if place["problem_key"] in keys}
    found: dict[str, EvalProblem] = {}
    unreadable: Counter[str] = Counter()
    for row, place in zip(read_suite_files(suites), placed, strict=True):
        if row.problem is None:
            unreadable[row.error or "unreadable"] += 1
            continue
        own = "sealed" if place["cluster_id"] in closed else place["pool"]
        if pool in ("all", own):
            problem = replace(row.problem, problem_id=row.problem_id, suite_id=row.suite)
            found.setdefault(problem.problem_key, EvalProblem(problem, place["cluster_id"], own))
    return list(found.values()), dict(sorted(unreadable.items()))


def _leaks(subject: Subject, folder: Path | None, selection: Selection, pool: str) -> Row:
    """How many of the problems it or its ancestors were trained on; only ``all`` may hold one."""
    trained, unknown = trained_on(folder, selection.chosen)
    if trained and pool != "all":
        raise FailPartition(f"leak: {subject.name} was trained on traces of {', '.join(trained[:5])} (pool {pool})")
    return {"trained_on_problems": len(trained), **({"unknown_ancestors": unknown} if unknown else {})}


def _market(ctx: StageContext, day: str, catalogue: Path | None) -> tuple[Place, ProductCatalogue]:
    from trajectory_platform.evaluation.rollout_launch import Place
    from trajectory_platform.sandbox.catalogue_index import build_index, open_world

    if catalogue is not None:
        folder = build_index(catalogue, ctx.settings.index_root).resolve()
    else:
        _, load = day_catalogue(ctx, day)
        found = load()
        if found is None:
            raise Abort(f"{day} has no product catalogue in {ctx.settings.data_root}: name one")
        folder = index_folder(ctx, day, found)
    products = open_world(folder).catalogue
    return Place(str(folder), products.digest), products


def _scored(
    settings: Settings,
    rollouts: Any,
    selection: Selection,
    products: ProductCatalogue,
    k: int,
    who: tuple[str, str],
    teachers: Mapping[str, Reference] | None,
) -> list[Row]:
    from trajectory_platform.evaluation import eval_rows

    rules = eval_rows.Rules(settings.title_regime, settings.title_encoder, settings.attribute_rule)
    measured = eval_rows.Measured(*who, STAGE)
    rows: list[Row] = eval_rows.score_table(
        rollouts, selection, products, rules, samples=k, measured=measured, references=teachers
    ).to_pylist()
    return rows


def _written(out: Path, rollouts: Any, scores: list[Row], beside: Row, seed: int) -> Row:
    from trajectory_platform.evaluation.metrics import task_metrics
    from trajectory_platform.evaluation.metrics_text import metrics_text

    metrics = {**task_metrics(scores, seed=seed, resamples=RESAMPLES), **beside}
    attempts = (row for batch in rollouts.to_batches(max_chunksize=64) for row in batch.to_pylist())
    files = {
        "rollouts": _write_lines(out / "rollouts.jsonl", map(_decoded, attempts)),
        "scores": _write_lines(out / "scores.jsonl", map(_decoded, scores)),
        "metrics": _write_lines(out / "metrics.json", [metrics]),
    }
    return {
        "files": files,
        "metrics": metrics,
        "text": _with_looks(f"{metrics_text(metrics)}\n{pool_line(beside)}", beside),
    }


def _decoded(row: Row) -> Row:
    """JSON text columns as JSON values: these files are read by people and by other programs."""
    return {
        name: jsontext.parse(value.encode()).value if name in _DECODED and isinstance(value, str) else value
        for name, value in row.items()
    }


def _write_lines(path: Path, rows: Iterable[Row]) -> str:
    """A file of JSON lines that appears whole or not at all."""
    waiting = path.with_name(f".{path.name}.part")
    with waiting.open("w", encoding="utf-8") as handle:
        for row in rows:
            handle.write(jsontext.dumps_line(row) + "\n")
    waiting.replace(path)
    return str(path)


def _read_scores(path: Path) -> list[Row]:
    from trajectory_platform.lake.tables import EVAL_SCORES

    rows: list[Row] = []
    for number, line in enumerate(_lines(path), 1):
        where = f"{shown(str(path))} line {number}"
        try:
            row, repairs = jsontext.parse(line)
        except RejectRow as error:
            raise FailPartition(f"{where} is damaged ({error.reason}); evaluate again") from error
        if jsontext.NON_FINITE in repairs:
            raise FailPartition(f"{where} is damaged (a number that is none); evaluate again")
        if not isinstance(row, dict) or any(name not in row for name in EVAL_SCORES.columns):
            raise Abort(f"{where} is no row of scores: give the scores.jsonl of an evaluation")
        rows.append(row)
    if not rows:
        raise Abort(f"{shown(str(path))} holds no scores: give the scores.jsonl of an evaluation")
    return rows


def _lines(path: Path) -> Iterator[bytes]:
    try:
        yield from (line for line in path.read_bytes().split(b"\n") if line.strip())
    except OSError as error:
        raise Abort(f"cannot read {path}: {error.strerror or error}") from error
