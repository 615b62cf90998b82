"""Whether a judge can be trusted in place of the validators': from the lake, or from the files of one day folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.text import shown

if TYPE_CHECKING:
    from trajectory_platform.stages.folder import Folder

Facts = dict[str, Any]
_COLUMNS = [
    "trace_id", "judge_kind", "judge_model", "reasoning_quality", "null_reason", "rubric_version", "score_regime",
]  # fmt: skip
_STATISTICS = {
    "linear_kappa": "kappa, linear",
    "quadratic_kappa": "kappa, quadratic",
    "exact": "same value",
    "spearman": "Spearman",
    "kendall_tau_b": "Kendall tau-b",
}


def calibration_facts(ctx: StageContext, first_day: str | None = None, last_day: str | None = None) -> Facts:
    """Agreement of every judge with the validators over the judged days of the lake.

    Args:
        first_day, last_day: ISO days, both included; None = the first or last judged day.

    Returns:
        ``days``, ``gate``, ``comparisons`` (``judging.calibration.calibrate``) and ``text`` for a terminal.

    Raises:
        Abort: no judged day in the range, or a day that is none.
    """
    from trajectory_platform.judging.calibration import Calibration

    low, high = (None if day is None else _checked(day) for day in (first_day, last_day))
    judged = ctx.lake.days(tables.VERDICTS)
    days = [day for day in judged if (low is None or day >= low) and (high is None or day <= high)]
    if not days:
        where = f"between {low or 'the first'} and {high or 'the last day'}" if judged else "at all"
        raise Abort(f"no judged day {where} in {ctx.settings.lake_uri}: run 'trajectory-platform ingest' first")
    calibration = Calibration(gate=ctx.settings.reasoning_gate)
    for day in days:
        raw = ctx.lake.read(tables.RAW_TRACES, [day], columns=["trace_id", "agent_version_id"])
        verdicts = ctx.lake.read(tables.VERDICTS, [day], columns=_COLUMNS)
        calibration.add(verdicts.to_pylist(), _agents(raw))
    return _facts(days, ctx.settings.reasoning_gate, calibration.report())


def calibrate_folder(listed: Folder) -> Facts:
    """The same for one day folder, with the judges that cost nothing; facts as ``calibration_facts``."""
    from trajectory_platform.judging.calibration import calibrate
    from trajectory_platform.stages.folder_judging import judged_folder

    _, verdicts = judged_folder(listed, only_traces=True, judge="rules", suites=[])
    gate = listed.settings.reasoning_gate
    agents = _agents(listed.rows.select(["trace_id", "agent_version_id"]))
    found = calibrate(verdicts.select(_COLUMNS).to_pylist(), agents=agents, gate=gate)
    return _facts([listed.day.isoformat()], gate, found)


def calibration_text(facts: Mapping[str, Any]) -> str:
    """The facts for a terminal: per comparison the reading first, then every number with its count."""
    days = facts["days"]
    parts = [f"Judges against the validators, {days[0]} to {days[-1]} ({len(days)} days), gate {facts['gate']:g}"]
    parts += [_comparison(found) for found in facts["comparisons"]]
    if not facts["comparisons"]:
        parts.append("No trace has a verdict of a validator and of another judge.")
    return "\n\n".join(parts)


def _facts(days: Sequence[str], gate: float, comparisons: list[dict[str, Any]]) -> Facts:
    facts: Facts = {"days": list(days), "gate": gate, "comparisons": comparisons}
    return {**facts, "text": calibration_text(facts)}


def _checked(day: str) -> str:
    try:
        return date.fromisoformat(day).isoformat()
    except ValueError as error:
        raise Abort(f"{error}: write days as YYYY-MM-DD") from None


def _agents(raw: Any) -> dict[str, str | None]:
    return dict(zip(raw.column("trace_id").to_pylist(), raw.column("agent_version_id").to_pylist(), strict=True))


def _comparison(found: Mapping[str, Any]) -> str:
    judge = shown(f"{found['judge_kind']} judge {found['judge_model']}, rubric {found['rubric_version']}", 120)
    lines = [f"{judge}, against {found['regime']} scores: {found['reading'].upper()}"]
    lines += [f"  {shown(sentence)}" for sentence in found["why"]]
    lines.append(f"  traces {found['traces']}, with both values {found['pairs']}, agent versions {found['clusters']}")
    lines += [f"  without a value, {side}: {_nulls(found['nulls'][side])}" for side in ("judge", "validator")]
    lines += [f"  {_STATISTICS[name]}: {estimate_text(one)}" for name, one in found["agreement"].items()]
    lines.append(f"  judge minus validator: {estimate_text(found['bias'], signed=True)}")
    for row in found["validator_models"]:
        told = estimate_text(row["bias"], signed=True)
        counts = f"{row['pairs']} traces, {row['without_two_values']} without both values"
        lines.append(f"    {shown(row['model'], 60)}: {told} ({counts})")
    return "\n".join([*lines, *_gate_lines(found["gate"]), *_confusion_lines(found["confusion"])])


def _nulls(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{shown(reason)} {count}" for reason, count in reasons.items()) or "none"


def _gate_lines(gate: Mapping[str, Any] | None) -> list[str]:
    if gate is None:
        return []
    words = {"both": "both pass", "only_judge": "only judge", "only_validator": "only validator", "neither": "neither"}
    cells = [
        f"{word} {gate[name]}" + ("" if gate["rates"][name] is None else f" ({gate['rates'][name]:.1%})")
        for name, word in words.items()
    ]
    return [
        f"  at the gate of {gate['threshold']:g}: {', '.join(cells)}",
        f"  same decision: {estimate_text(gate['agreement'])}",
        f"  judge passes of what the validators fail: {estimate_text(gate['let_through'])}",
    ]


def _confusion_lines(confusion: Mapping[str, Any] | None) -> list[str]:
    if confusion is None:
        return []
    head = "  validator \\ judge" + "".join(f"{value:>7}" for value in confusion["values"])
    rows = zip(confusion["values"], confusion["counts"], strict=True)
    return [head, *(f"{value:>19}" + "".join(f"{count:>7}" for count in counts) for value, counts in rows)]


def estimate_text(estimate: Mapping[str, Any], *, signed: bool = False) -> str:
    """An ``agreement.Estimate`` in words: value and interval, or why there is none."""
    form = "+.3f" if signed else ".3f"
    if estimate["value"] is None:
        return f"undefined ({estimate['undefined']})"
    if estimate["low"] is None:
        return f"{estimate['value']:{form}} (no interval: {estimate['no_interval']})"
    return f"{estimate['value']:{form}} ({estimate['low']:{form}} to {estimate['high']:{form}})"
