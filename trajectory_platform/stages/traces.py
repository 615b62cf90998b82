"""``traces show`` and ``traces lint``: one trace of the lake as text, and what the readers find odd in a file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, RejectRow
from trajectory_platform.lake import ledger, sealing, tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.folder import limits_of
from trajectory_platform.stages.text import shown
from trajectory_platform.stages.trace_decision import decision, decision_lines

if TYPE_CHECKING:
    from trajectory_platform.traces.schema import Trajectory


_SHOWN_OF_ACCEPTED = ["trace_id", "uses", "situation", "flags", "quality", "axis_source", "strategy_cluster"]
_SHOWN_OF_SEALED = ("trace_id", "day", "category", "readable", "steps", "tool_calls")


def find_trace(
    settings: Settings, trace_id: str, *, sealed_reason: str | None = None, at: datetime | None = None
) -> dict[str, Any]:
    """The trajectory row of one trace with its JSON columns parsed, what became of it and why (``decision``).

    Of a trace of a sealed problem (``lake.sealing``) only ``sealed: True``, counts and the decision are told, unless a
    reason is given; the look is then recorded as of ``at`` first.

    Raises:
        Abort: when no published day holds it, or a reason comes without a time.
    """
    import pyarrow.compute as pc

    lake = StageContext(settings).lake
    wanted = pc.field("trace_id") == trace_id
    rows = lake.read(tables.TRAJECTORIES, filter=wanted).to_pylist()
    if not rows and (gone := lake.read(tables.REJECTED_TRACES, filter=wanted).to_pylist()):
        why = f"rejected at {gone[-1]['stage']}: {gone[-1]['reason']}"
        raise Abort(f"{trace_id!a} of {gone[-1]['day']} was {why}; there is no dialogue to show")
    if not rows:
        raise Abort(f"no trace {trace_id!a} in {settings.lake_uri}: ids are {{eval_run_id}}:{{problem_id}}")
    row: dict[str, Any] = rows[-1]
    keys = sealing.sealed_problems_of(lake, trace_id)
    row["sealed"] = keys is not None
    if keys is not None and sealed_reason is not None:
        ledger.record(lake, what="traces show", reason=sealed_reason, at=at, keys=keys, detail=trace_id)
    for name in ("messages", "tools", "source_steps", "evidence", "repairs"):
        row[name] = jsontext.parse(row[name].encode()).value
    # of a trace that was judged on two days, the latest says what became of it: text and fate are of one day
    days = [row["day"]]
    row["accepted"] = lake.read(tables.AXIS_A_CORPUS, days, columns=_SHOWN_OF_ACCEPTED, filter=wanted).to_pylist()
    row["rejected"] = lake.read(tables.REJECTED_TRACES, days, filter=wanted).to_pylist()
    if row["sealed"] and sealed_reason is None:
        return _without_text(row)
    row["decision"] = decision(lake, settings, row)
    return row


def _without_text(row: dict[str, Any]) -> dict[str, Any]:
    """A sealed trace as far as it is shown: no text of it, no product, no evidence."""
    kept = {name: row[name] for name in _SHOWN_OF_SEALED}
    rejected = [{name: one[name] for name in ("stage", "reason")} for one in row["rejected"]]
    accepted = [{name: one[name] for name in ("trace_id", "uses")} for one in row["accepted"]]
    return {**kept, "sealed": True, "withheld": True, "repairs": [], "accepted": accepted, "rejected": rejected}


def render_trace(row: dict[str, Any]) -> str:
    """A trace for people: where it stands and why, then the conversation."""
    from trajectory_platform.traces.rendering import plain_text

    place = f"{row['day']}  {shown(row['category'])}  {row['steps']} steps, {row['tool_calls']} calls"
    if row["accepted"]:
        fate = f"accepted for {', '.join(row['accepted'][0]['uses'])}"
    elif row["rejected"]:
        fate = f"rejected at {row['rejected'][0]['stage']}: {row['rejected'][0]['reason']}"
    else:
        fate = "not curated yet"
    repairs = ", ".join(f"{repair['reason']} x{repair.get('count', 1)}" for repair in row["repairs"])
    head = [shown(row["trace_id"]), f"{place}  {fate}"]
    if row.get("withheld"):
        return "\n".join(
            [*head, "sealed, or of a day that no leak clusters cover yet: shown with --sealed REASON only"]
        )
    if repairs:
        head.append(f"repairs: {repairs}")
    head += decision_lines(row)
    if not row["readable"]:
        return "\n".join([*head, f"not readable: {shown(row['malformed'])} {shown(row['malformed_detail'])}"])
    return "\n".join([*head, "", plain_text(row["messages"])])


def lint_file(settings: Settings, path: Path) -> Iterator[dict[str, Any]]:
    """One finding row per record of a raw artifact file: repairs, flags, axis, or why it is rejected.

    Raises:
        Abort: when the file cannot be opened.
    """
    from trajectory_platform.sources.container import open_artifact
    from trajectory_platform.traces.normalise import read_guarded

    try:
        data = path.read_bytes()
    except OSError as error:
        raise Abort(f"{path}: {error.strerror}") from None
    try:
        content = open_artifact(data, limits_of(settings))
    except RejectRow as error:
        yield _finding(path, None, rejected=error.reason, detail=error.detail)
        return
    for number, record in enumerate(content.records):
        line = record.line if record.line is not None else number
        yield _lint_trace(path, line, read_guarded(record, None))


def _lint_trace(path: Path, line: int, trace: Trajectory) -> dict[str, Any]:
    from trajectory_platform.curation import agency

    axis = agency.decide(trace.messages, trace.evidence)
    return _finding(
        path,
        line,
        rejected=trace.malformed,
        detail=trace.malformed_detail or "",
        repairs={repair["reason"]: repair.get("count", 1) for repair in trace.repairs},
        flags=trace.flags,
        axis={"label": axis.label, "share": axis.share, "reason": axis.reason},
    )


def _finding(path: Path, line: int | None, *, rejected: str | None, detail: str | None, **more: Any) -> dict[str, Any]:
    where = f"{path}" if line is None else f"{path}:{line}"
    facts = {"file": str(path), "line": line, "rejected": rejected, "detail": detail or "", **more}
    words = [f"rejected {rejected}: {shown(detail, 120)}" if rejected else "readable"]
    if more.get("axis"):
        words.append(f"axis {more['axis']['label']} ({more['axis']['reason']})")
    if more.get("repairs"):
        words.append("repairs " + ", ".join(f"{name} x{count}" for name, count in sorted(more["repairs"].items())))
    if more.get("flags"):
        words.append("flags " + ", ".join(more["flags"]))
    return {**facts, "text": f"{shown(where)}  " + "; ".join(words)}
