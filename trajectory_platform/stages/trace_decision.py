"""What became of one trace and why: verdicts of every judge, the axis call by call, and its way through the filter.

The row stages are pure functions of stored facts, so they are asked again with the settings of the day; the stages
that look at a whole day (copies, strategy, caps) are told from what the day's partition says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trajectory_platform import jsontext
from trajectory_platform.lake import tables
from trajectory_platform.stages.text import shown

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.curation.agency import AxisDecision
    from trajectory_platform.curation.config import FilterConfig
    from trajectory_platform.lake.publish import Lake
    from trajectory_platform.settings import Settings

Row = dict[str, Any]
_VERDICT_COLUMNS = (
    "judge_kind", "judge_model", "reasoning_quality", "reasoning_coefficient", "null_reason", "retryable",
    "score_regime", "rubric_version", "gate_eligible", "cost_usd", "cached", "explanation",
)  # fmt: skip
_OUTCOME_COLUMNS = (
    "outcome", "reason", "outcome_success", "outcome_source", "validator_success", "validators_agree", "discipline",
    "hallucinated_ids", "unviewed_ids", "not_in_catalogue_ids", "injection_suspected", "injection_sources",
)  # fmt: skip
_ARGUMENT_CHARS = 100


def decision(lake: Lake, settings: Settings, row: Mapping[str, Any]) -> Row:
    """The decision about one trajectory as JSON values, read from its day (see ``decided``)."""
    raw, judged = _one(lake, tables.RAW_TRACES, row), _one(lake, tables.JUDGED_TRACES, row)
    return decided(settings, row, raw=raw, judged=judged, verdicts=_rows(lake, tables.VERDICTS, row))


def decided(
    settings: Settings, row: Mapping[str, Any], *, raw: Row | None, judged: Row | None, verdicts: pa.Table
) -> Row:
    """The decision about one trajectory as JSON values.

    Args:
        row: a TRAJECTORIES row with ``messages`` and ``evidence`` parsed, and ``accepted`` and ``rejected``, the rows
            that the day's filter published for it.
        raw, judged, verdicts: its rows of the same day.

    Returns:
        ``outcome`` (None before the day is judged), ``verdicts`` with one row per judge and whether the gate reads
        it (``counts``), ``axis`` with a reason per dispatch and, per assistant message and call, whether the model
        emitted it (None where the dialogue cannot be read), ``path``: one row per stage in the configured order:
        ``passed``, ``objects``, ``off``, ``asked_later`` (a stage that looks at the whole day, of a trace that never
        came so far) or ``unknown`` (the day was not curated yet).
    """
    from trajectory_platform.curation.agency import decide
    from trajectory_platform.curation.config import filter_config
    from trajectory_platform.judging.verdicts import effective_verdicts

    config = filter_config(settings)
    effective = effective_verdicts(verdicts, config.judge).get(row["trace_id"])
    told = [
        {name: one[name] for name in _VERDICT_COLUMNS} | {"counts": one == effective} for one in verdicts.to_pylist()
    ]
    axis = None
    if row["readable"] and not row["malformed"]:
        bounds = {"a_min_share": config.a_min_share, "b_max_share": config.b_max_share}
        axis = decide(row["messages"], row["evidence"], **bounds)
    return {
        "outcome": None if judged is None else {name: judged[name] for name in _OUTCOME_COLUMNS},
        "verdicts": sorted(told, key=lambda one: (one["judge_kind"], one["judge_model"])),
        "axis": None if axis is None else axis_told(axis, row["evidence"]),
        "path": _path(raw, row, axis, judged, effective, config),
    }


def _rows(lake: Lake, table: tables.Table, row: Mapping[str, Any]) -> Any:
    import pyarrow.compute as pc

    return lake.read(table, [row["day"]], filter=pc.field("trace_id") == row["trace_id"])


def _one(lake: Lake, table: tables.Table, row: Mapping[str, Any]) -> Row | None:
    found: list[Row] = _rows(lake, table, row).to_pylist()
    return found[0] if found else None


def axis_told(axis: AxisDecision, evidence: Mapping[str, Any]) -> Row:
    """The axis as JSON values, with every dispatch in time order."""
    from trajectory_platform.traces.arguments import CATALOGUE_TOOLS

    dispatches = [
        event for event in evidence["events"] if event["kind"] == "dispatch" and event["tool"] in CATALOGUE_TOOLS
    ]
    return {
        "label": axis.label,
        "share": axis.share,
        "reason": axis.reason,
        "final_emitted": axis.final_emitted,
        "theatre_suspected": axis.theatre_suspected,
        "replies": {
            "readable": axis.inference_readable,
            "truncated": axis.inference_truncated,
            "unreadable": axis.inference_unreadable,
            "failed": axis.inference_failed,
        },
        "log_problems": axis.log_problems,
        "notes": axis.notes,
        "emitted": axis.emitted,
        "dispatches": [
            {"tool": event["tool"], "arguments": event["arguments"], "reason": reason}
            for event, reason in zip(dispatches, axis.dispatch_reasons, strict=True)
        ],
    }


def _path(
    raw: Row | None,
    row: Mapping[str, Any],
    axis: AxisDecision | None,
    judged: Row | None,
    verdict: Row | None,
    config: FilterConfig,
) -> list[Row]:
    """Every stage in order with what it has against the trace."""
    from trajectory_platform.curation.config import DAY_STAGES
    from trajectory_platform.curation.filter_stages import Case, objections

    accepted, rejected = row["accepted"], row["rejected"]
    fate = "unknown" if not accepted and not rejected else "passed" if accepted else "asked_later"
    against: dict[str, tuple[str, str | None]] = {}
    if raw is not None:
        # what the agent version's other traces prove was told by the day
        proven = bool(accepted) and accepted[0].get("axis_source") == "agent"
        messages = row["messages"] if row["readable"] and not row["malformed"] else None
        stored = {**row, "messages": jsontext.dumps(row["messages"])}  # as the table holds them
        case = Case(raw, stored, messages, axis, judged, verdict, config, proven)
        against = {one.stage: (one.reason, one.detail) for one in objections(case)}
    path = [_step(stage, "passed" if raw is not None else "unknown", against, config) for stage in config.order]
    last = rejected[0] if rejected and rejected[0]["stage"] in DAY_STAGES else None
    for place, stage in enumerate(DAY_STAGES):
        state = fate
        if last is not None:
            where = DAY_STAGES.index(last["stage"])
            state = "passed" if place < where else "asked_later"
            if place == where:
                against[stage] = (last["reason"], last["detail"])
        path.append(_step(stage, state, against, config))
    return path


def _step(stage: str, state: str, against: Mapping[str, tuple[str, str | None]], config: FilterConfig) -> Row:
    if not config.active(stage):
        return {"stage": stage, "state": "off", "reason": None, "detail": None}
    if stage in against:
        reason, detail = against[stage]
        return {"stage": stage, "state": "objects", "reason": reason, "detail": detail}
    return {"stage": stage, "state": state, "reason": None, "detail": None}


def decision_lines(row: Mapping[str, Any]) -> list[str]:
    """The decision for people; third-party text with control characters escaped."""
    told = row["decision"]
    lines = [*_outcome_lines(told["outcome"]), *_verdict_lines(told["verdicts"]), *_axis_lines(told["axis"]), "filter:"]
    for step in told["path"]:
        words = ": ".join(shown(part, 160) for part in (step["reason"], step["detail"]) if part)
        state = step["state"].replace("_", " ")
        lines.append(f"  {step['stage']:<10} {state}{' ' + words if words else ''}")
    lines += [f"  kept instead: {shown(one['duplicate_of'])}" for one in row["rejected"] if one["duplicate_of"]]
    for one in row["accepted"]:
        flags = f"; flags {', '.join(map(shown, one['flags']))}" if one["flags"] else ""
        lines.append(
            f"uses: {', '.join(one['uses'])} ({one['situation']}); weight {one['quality']:.2f}, axis by "
            f"{one['axis_source']}{flags}"
        )
    return lines


def _outcome_lines(outcome: Mapping[str, Any] | None) -> list[str]:
    if outcome is None:
        return ["not judged yet"]
    oddities = [
        f"{name} {', '.join(shown(value, 60) for value in outcome[name])}"
        for name in ("discipline", "hallucinated_ids", "unviewed_ids", "not_in_catalogue_ids", "injection_sources")
        if outcome[name]
    ]
    why = f" ({shown(outcome['reason'], 100)})" if outcome["reason"] else ""
    source = f", counted {outcome['outcome_success']} by {outcome['outcome_source']}"
    return [f"outcome: {outcome['outcome']}{why}{source}", *(f"  {one}" for one in oddities)]


def _verdict_lines(verdicts: list[Row]) -> list[str]:
    lines = ["verdicts:"] if verdicts else []
    for one in verdicts:
        value = one["reasoning_quality"]
        said = f"null ({one['null_reason']})" if value is None else f"{value:g}"
        counts = ", the one that counts" if one["counts"] else ""
        words = f": {shown(one['explanation'], 160)}" if one["explanation"] else ""
        lines.append(
            f"  {one['judge_kind']:<9} {said} {shown(one['judge_model'], 60)}, regime {one['score_regime']}"
            f"{counts}{words}"
        )
    return lines


def _axis_lines(axis: Mapping[str, Any] | None) -> list[str]:
    if axis is None:
        return ["axis: the dialogue cannot be read"]
    share = "" if axis["share"] is None else f", share {axis['share']:.2f}"
    final = {True: "emitted", False: "not emitted", None: "none, or not known"}[axis["final_emitted"]]
    marks = [*axis["log_problems"], *axis["notes"], *(["theatre"] if axis["theatre_suspected"] else [])]
    odd = f"; {', '.join(marks)}" if marks else ""
    lines = [f"axis: {axis['label']} ({axis['reason']}{share}); final recommendation {final}{odd}"]
    for number, one in enumerate(axis["dispatches"], 1):
        asked = "(unreadable arguments)" if one["arguments"] is None else shown(one["arguments"], _ARGUMENT_CHARS)
        lines.append(f"  {number:>3} {one['reason']:<15} {shown(one['tool'], 40)} {asked}")
    return lines
