"""What the traces of failed attempts add to their scores, and which of them may be shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.lake import sealing, tables
from trajectory_platform.lake.arrays import text_array
from trajectory_platform.lineage import retractions
from trajectory_platform.reports import taxonomy
from trajectory_platform.reports.checkpoint_data import FailureReport
from trajectory_platform.stages.checkpoint_evaluations import ROLLOUTS, Measured, json_lines
from trajectory_platform.stages.context import StageContext

Row = dict[str, Any]
EXAMPLES = 3  # traces of a kind


def failure_report(ctx: StageContext, measured: Measured, *, with_examples: bool = True) -> FailureReport:
    """The failures of one evaluation by kind; with examples where its traces are in the lake and open.

    Args:
        with_examples: False only counts.
    """
    counted = measured.counted
    failed = [row for row in counted if taxonomy.is_failure(row)]
    found = taxonomy.failures(counted, evidence_of(ctx, measured, failed))
    examples: dict[str, list[Row]] = {}
    withheld = ""
    if found:
        withheld = _why_not(measured)
    if with_examples and found and not withheld:
        examples = _examples(ctx, found)
    return FailureReport(
        label=measured.label,
        attempts=len(counted),
        failed=len(found),
        counts=taxonomy.counted(found),
        signs=taxonomy.signs(found),
        examples=examples,
        withheld=withheld,
    )


def evidence_of(ctx: StageContext, measured: Measured, rows: Iterable[Row]) -> dict[str, taxonomy.Evidence]:
    """By trace id: did a wanted product come up in a result, and was a search refined?"""
    listed = [row for row in rows if row["trace_id"] is not None]
    wanted = _wanted(ctx, {row["problem_key"] for row in listed})
    messages = _messages(ctx, measured, {row["trace_id"] for row in listed})
    found = {}
    for row in listed:
        trace = messages.get(row["trace_id"])
        if trace is not None:
            found[row["trace_id"]] = evidence(trace, row["recommended_ids"], wanted.get(row["problem_key"]))
    return found


def evidence(messages: list[Row], recommended: list[str], wanted: list[str] | None) -> taxonomy.Evidence:
    """What one attempt shows.

    Args:
        messages: canonical OpenAI messages. wanted: ids of the reward; None or empty where they are not public.
    """
    from trajectory_platform.curation import quality
    from trajectory_platform.evaluation.conduct import calls_of
    from trajectory_platform.judging import dialogue

    calls, _ = calls_of(messages)
    seen = dialogue.seen_ids(calls, [])
    traits = quality.features(messages, recommended=recommended, not_opened=0)
    return taxonomy.Evidence(
        wanted_seen=any(map(seen.shows, wanted)) if wanted else None,
        refined=traits.refined,
    )


def _wanted(ctx: StageContext, keys: set[str]) -> dict[str, list[str]]:
    """Problem key -> ids of the products that its reward names, from any day that published it."""
    import pyarrow.compute as pc

    if not keys:
        return {}
    rows = ctx.lake.read(
        tables.PROBLEM_SUITES,
        columns=["problem_key", "reward_product_ids"],
        filter=pc.field("problem_key").isin(text_array(sorted(keys))),
    ).to_pylist()
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["problem_key"], set()).update(row["reward_product_ids"] or ())
    return {key: sorted(ids) for key, ids in found.items()}


def _messages(ctx: StageContext, measured: Measured, ids: set[str]) -> dict[str, list[Row]]:
    """Trace id -> messages of the attempts asked for."""
    import pyarrow.compute as pc

    if not ids:
        return {}
    if measured.folder is not None:
        rows = json_lines(measured.folder / ROLLOUTS)
        return {row["trace_id"]: row["messages"] for row in rows if row["trace_id"] in ids}
    days = sorted({row["day"] for row in measured.rows})
    chosen = pc.field("trace_id").isin(text_array(sorted(ids)))
    found = ctx.lake.read(tables.ROLLOUTS, days, columns=["trace_id", "messages"], filter=chosen).to_pylist()
    return {row["trace_id"]: jsontext.parse(row["messages"].encode()).value for row in found}


def _why_not(measured: Measured) -> str:
    if measured.pool == "sealed":
        return "the problems are sealed"
    if measured.folder is not None:
        return "its attempts are in a folder, not in the lake"
    return ""


def _examples(ctx: StageContext, found: list[taxonomy.Failure]) -> dict[str, list[Row]]:
    """Views of the chosen traces per kind; what is sealed or retracted by now is passed over."""
    from trajectory_platform.stages.trace_views import trace_views

    seal = sealing.sealed(ctx.lake)
    gone = retractions.tombstones(ctx.lake).among(ctx.lake, (str(one.row["trace_id"]) for one in found))
    open_ones = [one for one in found if _open(one.row, seal) and one.row["trace_id"] not in gone]
    chosen = taxonomy.examples(open_ones, most=EXAMPLES)
    views = {view["trace_id"]: view for view in trace_views(ctx, [name for names in chosen.values() for name in names])}
    return {kind: [views[name] for name in names if not views[name]["withheld"]] for kind, names in chosen.items()}


def _open(row: Mapping[str, Any], seal: sealing.Seal | None) -> bool:
    if row["pool"] == "sealed":
        return False
    return seal is None or (row["problem_key"] not in seal.keys and row["problem_id"] not in seal.problem_ids)
