"""One trace as a piece of a page, readable from top to bottom: what was asked, said, called and decided.

Everything in a view is third-party text: it is escaped, control characters are shown as their escapes, long texts are
folded. Nothing is loaded and no script is needed, so a fragment fits into any page (``reports.page``) that carries
:func:`trace_styles` once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.tables import Column, folded, table
from trajectory_platform.reports.trace_results import arguments_html, ids_html, result_html, text_html

View = Mapping[str, Any]
Turn = Mapping[str, Any]
Mark = tuple[str, str]  # class of the page, words (escaped)

_WHO = {True: ("model", "by the model"), False: ("code", "by the agent's code"), None: ("unknown", "maker not known")}
_KINDS = {"miner": "a miner's trace", "rollout": "an attempt of an evaluation", "generated": "generated for a stage"}
_TABLE_CHARS = 2_000


def trace_styles() -> str:
    """The style sheet of fragments, on top of the page's own."""
    return files("trajectory_platform.reports").joinpath("assets", "trace.css").read_text("utf-8")


def trace_fragment(view: View, *, compact: bool = False) -> str:
    """One trace as escaped HTML.

    Args:
        view: a view of ``stages.trace_views.trace_views``.
        compact: True folds every table of products and everything behind the conversation, for several in one page.
    """
    turns = "".join(turn_html(turn, view, folded_tables=compact) for turn in view["turns"])
    tail = tail_html(view)
    return (
        f'<article class="trace" aria-label="Trace {html_text(view["trace_id"], 120)}">{head_html(view)}'
        f'{query_html(view)}<div class="turns">{turns}{said_html(view["after"])}</div>'
        f"{folded('What was decided and why', tail) if compact and tail else tail}</article>"
    )


def head_html(view: View) -> str:
    """Id, outcome, decision, axis and where it belongs."""
    chips = [outcome_chip(view), _decision_chip(view), _axis_chip(view)]
    if view["retracted"]:
        chips.append(_chip("bad", f"retracted: {html_text(view['retracted']['reason'], 80)}"))
    if view["sealed"]:
        chips.append(_chip("odd", "sealed problem"))
    where = [_KINDS.get(view["kind"], html_text(view["kind"])), html_text(view["day"])]
    where += [f"by {html_text(view['by'], 80)}"] if view["by"] else []
    where += [f"for {html_text(view['stage'])}"] if view["stage"] else []
    where += [f"pool {html_text(view['pool'])}"] if view["pool"] else []
    named = f'<p class="id">{html_text(view["trace_id"], 300)}</p>'
    return (
        f'<div class="trace-head"><p class="chips">{"".join(chip for chip in chips if chip)}</p>'
        f'<p class="muted">{" · ".join(where)}</p>{named}{_facts(view)}</div>'
    )


def query_html(view: View) -> str:
    """What was asked, or why there is nothing to show."""
    if view["retracted"]:
        return '<p class="note">The trace was retracted: its text is not shown any more.</p>'
    if view["withheld"]:
        return (
            '<p class="note">The problem is sealed, or its day is in no leak clusters yet. Its text is shown with '
            "--sealed REASON only; the look is recorded.</p>"
        )
    if not view["readable"]:
        why = ": ".join(html_text(part, 300) for part in (view["malformed"], view["malformed_detail"]) if part)
        return f'<p class="note">There is no dialogue to show: {why or "the trace cannot be read"}.</p>'
    unsure = ' <span class="muted">(as the agent states it)</span>' if view["query_verified"] is False else ""
    return f'<div class="query"><span class="tag">asked</span>{unsure}{text_html(view["query"] or "")}</div>'


def turn_html(
    turn: Turn,
    view: View,
    *,
    folded_tables: bool = False,
    marks: Sequence[Mark] = (),
    absent: Sequence[str] = (),
    heading: str = "",
) -> str:
    """One turn with its calls; every call exactly once.

    Args:
        marks: per call what a comparison says of it; ``absent``: its words about calls that are missing here, escaped.
        heading: what stands before the number, escaped.
    """
    calls = "".join(
        _call(call, view, folded_tables, marks[number] if number < len(marks) else None)
        for number, call in enumerate(turn["calls"])
    )
    orphans = "".join(
        f'<div class="call odd"><p class="call-head">an answer to no call <b>{html_text(one["name"], 60)}</b></p>'
        f"{text_html(one['text'], 'code')}</div>"
        for one in turn["orphans"]
    )
    facts = [_seconds(turn), f"{turn['tokens']:,} tokens" if turn["tokens"] is not None else "", _reply(turn)]
    said = _labelled("thinks", turn["think"], "think") + _labelled("says", turn["content"], "")
    before = [one for one in turn["before"] if not (one["role"] == "user" and one["text"] == view["query"])]
    return (
        f'<div class="turn">{said_html(before)}<h4>{heading}Turn {turn["number"]} '
        f'<span class="muted">{" · ".join(fact for fact in facts if fact)}</span></h4>{said}{calls}{orphans}'
        f"{''.join(f'<p class=absent>{words}</p>' for words in absent)}</div>"
    )


def said_html(messages: Sequence[Mapping[str, Any]]) -> str:
    """Messages of other roles (system, user) where they stand."""
    return "".join(_labelled(html_text(one["role"], 30), one["text"], "other", empty=True) for one in messages)


def tail_html(view: View) -> str:
    """What is known about a trace behind its conversation; empty where nothing is."""
    parts = (_recommended, _checks, _verdicts, _axis, _path, _checkpoints, _repairs)
    told = "".join(part(view) for part in parts)
    return f'<div class="trace-tail">{told}</div>' if told else ""


def outcome_chip(view: View) -> str:
    """Success, failure or neither, with who says so."""
    outcome = view["outcome"]
    if view["withheld"]:
        return ""
    if outcome is None:
        return _chip("", "not judged")
    source = {"rule": "by the reward", "validator": "by the validator"}.get(outcome["source"], "nobody can tell")
    kind = {True: "good", False: "bad", None: ""}[outcome["success"]]
    why = f": {html_text(outcome['reason'], 80)}" if outcome["reason"] else ""
    return _chip(kind, f"{html_text(outcome['outcome'])} {source}{why}")


def _chip(kind: str, words: str) -> str:
    return f'<span class="chip {kind}">{words}</span>'


def _decision_chip(view: View) -> str:
    told = view["decision"]
    why = ": ".join(html_text(part, 120) for part in (told["stage"], told["reason"]) if part)
    if told["state"] == "accepted":
        return _chip("good", f"accepted for {html_text(', '.join(told['uses'] or ()))}")
    if told["state"] == "rejected":
        return _chip("bad", f"rejected at {why}")
    return _chip("", f"ended by {why}" if told["state"] == "attempt" else "not curated yet")


def _axis_chip(view: View) -> str:
    axis = view["axis"]
    if axis is None or view["kind"] != "miner":
        return ""
    share = "" if axis["share"] is None else f", {axis['share']:.0%} of calls by the model"
    return _chip("good" if axis["label"] == "A" else "odd", f"axis {html_text(axis['label'])}{share}")


def _facts(view: View) -> str:
    told = {**view["facts"], "strategy_cluster": view["strategy_cluster"], "leak_cluster": view["leak_cluster"]}
    told |= {**view["usage"], "cost_usd": view["cost_usd"], "seconds": view["seconds"], **view["decision"]}
    rows = [
        {"fact": name.replace("_", " "), "value": value}
        for name, value in told.items()
        if value not in (None, "", []) and name != "state"
    ]
    return folded("About this trace", table([("fact", "fact", "word"), ("value", "value", "text")], rows))


def _call(call: Mapping[str, Any], view: View, folded_tables: bool, mark: Mark | None) -> str:
    kind, words = _WHO[call["emitted"]]
    compared = f'<span class="mark {mark[0]}">{mark[1]}</span>' if mark else ""
    error = f'<p class="error">error: {html_text(call["error"], _TABLE_CHARS)}</p>' if call["error"] else ""
    wanted = view["wanted"] or ()
    result = result_html(call["result"], chosen=view["recommended"], wanted=wanted, folded=folded_tables)
    when = _seconds(call)
    return (
        f'<div class="call{" " + mark[0] if mark else ""}"><p class="call-head"><b>{html_text(call["name"], 80)}</b> '
        f'<span class="who {kind}">{words}</span> {compared} <span class="muted">{when}</span></p>'
        f"{arguments_html(call['arguments'])}{error}{result}</div>"
    )


def _labelled(label: str, text: str, kind: str, *, empty: bool = False) -> str:
    if not text and not empty:
        return ""
    return f'<div class="part {kind}"><span class="tag">{label}</span>{text_html(text)}</div>'


def _seconds(one: Mapping[str, Any]) -> str:
    if one["start_ms"] is None or one["end_ms"] is None:
        return ""
    return f"{(one['end_ms'] - one['start_ms']) / 1000:.1f} s"


def _reply(turn: Turn) -> str:
    return "" if turn["state"] in (None, "readable") else f"reply {html_text(turn['state'])} in the log"


def _recommended(view: View) -> str:
    if not view["readable"] or view["withheld"]:
        return ""
    chosen, wanted = view["recommended"], view["wanted"]
    told = f"<p>Recommended: {ids_html(chosen, wanted=wanted or ())}</p>"
    if wanted is not None:
        told += f"<p>Wanted by the reward: {ids_html(wanted, chosen=chosen)}</p>"
    odd = (view["outcome"] or {}).get("oddities", {})
    told += "".join(f"<p>{html_text(name.replace('_', ' '))}: {ids_html(odd[name])}</p>" for name in sorted(odd))
    return f"<h4>Recommendation</h4>{told}"


def _checks(view: View) -> str:
    if not view["checks"]:
        return ""
    chips = "".join(
        _chip(
            "right" if one["value"] in (1, True) else "",
            f"{html_text(one['name'], 40)} {html_text(_number(one['value']), 40)}",
        )
        for one in view["checks"]
    )
    return f'<h4>Checks against the reward</h4><p class="chips">{chips}</p>'


def _number(value: Any) -> Any:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else value


def _verdicts(view: View) -> str:
    if not view["verdicts"]:
        return ""
    rows = [
        {
            **one,
            "value": one["null_reason"] if one["reasoning_quality"] is None else f"{one['reasoning_quality']:g}",
            "counts": "counts" if one["counts"] else "",
        }
        for one in view["verdicts"]
    ]
    columns: list[Column] = [
        *(("judge_kind", "source", "word"), ("judge_model", "judge", "text"), ("value", "verdict", "word")),
        *(("score_regime", "regime", "word"), ("counts", "", "word")),
    ]
    words = "".join(
        f'<div class="part"><span class="tag">{html_text(one["judge_kind"])} explains</span>'
        f"{text_html(one['explanation'])}</div>"
        for one in view["verdicts"]
        if one["explanation"]
    )
    return f"<h4>Verdicts</h4>{table(columns, rows)}{words}"


def _axis(view: View) -> str:
    axis = view["axis"]
    if axis is None:
        return ""
    replies = ", ".join(f"{count} {html_text(state)}" for state, count in axis["replies"].items() if count) or "none"
    final = {True: "by the model", False: "not by the model", None: "none, or not known"}[axis["final_emitted"]]
    odd = [*axis["log_problems"], *axis["notes"], *(["theatre suspected"] if axis["theatre_suspected"] else [])]
    told = (
        f"<p>{html_text(axis['label'])}: {html_text(axis['reason'])}. Replies in the log: {replies}. Final "
        f"recommendation: {final}.{' ' + html_text(', '.join(odd), _TABLE_CHARS) if odd else ''}</p>"
    )
    columns: list[Column] = [("reason", "who asked", "word"), ("tool", "request", "word"), ("arguments", "", "text")]
    requests = table(columns, axis["dispatches"]) if axis["dispatches"] else ""
    return "<h4>Who made the calls</h4>" + told + (folded("Every request of the log", requests) if requests else "")


def _path(view: View) -> str:
    if not view["path"]:
        return ""
    columns: list[Column] = [
        *(("stage", "stage", "word"), ("state", "state", "word"), ("reason", "reason", "word")),
        ("detail", "detail", "text"),
    ]
    rows = [{**step, "state": step["state"].replace("_", " ")} for step in view["path"]]
    return f"<h4>Through the filter</h4>{folded('Every stage', table(columns, rows))}"


def _checkpoints(view: View) -> str:
    if not view["checkpoints"]:
        return ""
    columns: list[Column] = [
        *(("checkpoint_id", "checkpoint", "text"), ("stage", "stage", "word"), ("role", "role", "word")),
        ("weight", "weight", "number"),
    ]
    return f"<h4>Checkpoints it fed</h4>{table(columns, view['checkpoints'])}"


def _repairs(view: View) -> str:
    marks = [f"{one['reason']} x{one['count']}" for one in view["repairs"]] + list(view["flags"])
    return f"<h4>Repairs and oddities</h4><p>{html_text(', '.join(marks), _TABLE_CHARS)}</p>" if marks else ""
