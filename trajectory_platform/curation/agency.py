"""Who acted: the model (axis A), the agent's code (axis B), both (mixed), or nobody can tell (unknown).

The rendered dialogue looks the same in all four cases, so only the proxy log counts (domain 1.4, 1.9). Numbers are
those of design 4: A when the matched share of catalogue dispatches is at least 0.8 and the final recommendation was
emitted by the model (or there is none); B when there is no inference at all, or the share is at most 0.2 and the final
one was not emitted; mixed between. Where a reply that precedes a dispatch or the final recommendation cannot be read
and nothing else shows the emission, where the log is absent or cannot be true, the answer is unknown.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trajectory_platform.curation.emissions import (
    COMPOSITE_CHILD,
    HARNESS_MADE,
    MATCHED,
    RETRY_CHILD,
    UNMATCHED,
    Matching,
    match,
)
from trajectory_platform.traces.arguments import CATALOGUE_TOOLS, normalise_arguments
from trajectory_platform.traces.calls import comparison_form
from trajectory_platform.traces.consistency import DURATIONS

AGENCY_VERSION = "3"
THEATRE_SHARE = 0.5  # echoed emissions above which a trace is suspected of theatre

# A reply that lists calls from which the agent's code takes its own: more were emitted and not made than made.
CALLS_NOT_MADE, MIN_NOT_MADE = "calls_not_made", 3

Label = Literal["A", "B", "mixed", "unknown"]
_Key = tuple[str, str]
_DISPATCHED = frozenset({"find_product", "view_product_information"})  # every build sends them to the proxy


@dataclass(frozen=True)
class AxisDecision:
    """The axis of one trace with everything it rests on.

    Attributes:
        label: A, B, mixed or unknown.
        share: share of catalogue dispatches the model asked for (directly, by a composite tool, or by the automatic
            retry of its search); None without dispatches.
        reason: machine-readable; ``log_inconsistent:`` is followed by the failed checks.
        dispatches: catalogue dispatches in the log; the five counts below add up to it.
        harness_made: no reply can have asked for them.
        unmatched: a reply that cannot be read stands directly before them.
        inference_readable, inference_truncated, inference_unreadable, inference_failed: replies by state.
        final_emitted: was the last recommendation emitted by the model; None without one, or when it cannot be known.
        emitted: per assistant message and call (message order): True, False, or None when the log cannot tell.
        dispatch_reasons: per dispatch in time order.
        theatre_suspected: most emissions stood verbatim in the prompt (domain 6, item 42); the label stays.
        log_problems, notes: failed consistency checks, and oddities that prove nothing.
    """

    label: Label
    share: float | None
    reason: str
    dispatches: int
    matched: int
    composite_child: int
    retry_child: int
    harness_made: int
    unmatched: int
    inference_readable: int
    inference_truncated: int
    inference_unreadable: int
    inference_failed: int
    final_emitted: bool | None
    emitted: list[list[bool | None]]
    dispatch_reasons: list[str]
    theatre_suspected: bool
    log_problems: list[str]
    notes: list[str]


def decide(
    messages: list[Any], evidence: Mapping[str, Any], *, a_min_share: float = 0.8, b_max_share: float = 0.2
) -> AxisDecision:
    """Decide the axis of one trace.

    Args:
        messages: canonical OpenAI messages (``arguments`` as JSON text); empty for a malformed trace, whose axis
            rests on the calls that could be read.
        evidence: what ``traces.evidence.extract`` found.
        a_min_share: share from which a trace can be axis A.
        b_max_share: share up to which a trace can be axis B.
    """
    turns = [_turn_calls(message) for message in messages if _is_assistant(message)]
    shown = turns or _shown_calls(evidence)
    matching = match(evidence)
    problems = list(evidence["log_problems"])
    if matching.overlaps and DURATIONS not in problems:
        problems.append(DURATIONS)
    final_key = next((key for turn in reversed(shown) for key in reversed(turn) if key[0] == "recommend_product"), None)
    final_emitted = _final_emitted(final_key, matching)
    counts = Counter(matching.reasons)
    dispatches = len(matching.reasons)
    asked = counts[MATCHED] + counts[COMPOSITE_CHILD] + counts[RETRY_CHILD]
    share = asked / dispatches if dispatches else None
    states = Counter(event["state"] for event in evidence["events"] if event["kind"] == "inference")

    label: Label = "unknown"
    reason = _unusable(messages, shown, evidence, problems)
    usable = reason is None
    if reason is None:
        if not states:
            label, reason = "B", "no_inference"
        elif counts[UNMATCHED] or (final_key is not None and final_emitted is None):
            reason = "replies_truncated"
        elif share is None:
            label, reason = _without_dispatches(shown, final_emitted)
        else:
            label, reason = _by_share(share, final_emitted, a_min_share, b_max_share)
        if evidence["unreadable_entries"] and label in ("B", "mixed"):
            label, reason = "unknown", "log_unreadable"  # a missing emission may stand in what cannot be read
    return AxisDecision(
        label=label,
        share=share,
        reason=reason,
        dispatches=dispatches,
        matched=counts[MATCHED],
        composite_child=counts[COMPOSITE_CHILD],
        retry_child=counts[RETRY_CHILD],
        harness_made=counts[HARNESS_MADE],
        unmatched=counts[UNMATCHED],
        inference_readable=states["readable"],
        inference_truncated=states["truncated"],
        inference_unreadable=states["unreadable"],
        inference_failed=states["failed"],
        final_emitted=final_emitted,
        emitted=_emitted(turns, matching) if usable else [[None] * len(turn) for turn in turns],
        dispatch_reasons=matching.reasons,
        theatre_suspected=_theatre(matching),
        log_problems=problems,
        notes=[*evidence["notes"], *([CALLS_NOT_MADE] if _is_menu(matching) else [])],
    )


def _unusable(
    messages: list[Any], shown: list[list[_Key]], evidence: Mapping[str, Any], problems: list[str]
) -> str | None:
    """Why the log can say nothing about this dialogue, or None."""
    if not shown:
        return "no_steps" if messages else "no_dialogue"
    if not evidence["log_present"]:
        return "log_absent"
    return "log_inconsistent:" + ",".join(problems) if problems else None


def _shown_calls(evidence: Mapping[str, Any]) -> list[list[_Key]]:
    """The calls of a dialogue that has no canonical messages because a part of it is malformed."""
    if not evidence["steps"]:
        return []
    return [[]] + [[(call["name"], call["arguments"])] for call in evidence["calls"]]


def _by_share(share: float, final_emitted: bool | None, a_min: float, b_max: float) -> tuple[Label, str]:
    """``final_emitted`` is None only when there is no recommendation."""
    if share >= a_min and final_emitted is not False:
        return "A", "dispatches_emitted_no_final" if final_emitted is None else "dispatches_and_final_emitted"
    if share <= b_max and final_emitted is not True:
        return "B", "no_matching_emission"
    return "mixed", "final_not_emitted" if share >= a_min else "partly_emitted"


def _without_dispatches(turns: list[list[_Key]], final_emitted: bool | None) -> tuple[Label, str]:
    """No catalogue request was logged: calls shown in the dialogue bypassed the log, or only the final one counts."""
    if any(key[0] in _DISPATCHED for turn in turns for key in turn):
        return "unknown", "dispatches_not_logged"
    if final_emitted is None:
        return "unknown", "no_calls"
    return ("A", "final_emitted_no_dispatch") if final_emitted else ("B", "no_matching_emission")


def _is_assistant(message: Any) -> bool:
    return isinstance(message, dict | Mapping) and message.get("role") == "assistant"


def _turn_calls(message: Mapping[str, Any]) -> list[_Key]:
    """Comparison keys of a message's calls, in order; arguments that are no object compare with nothing."""
    keys: list[_Key] = []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = function.get("arguments")
        name = str(function.get("name", ""))
        if isinstance(arguments, str):
            form = comparison_form(name, arguments) or ""
        else:
            form = normalise_arguments(name, arguments) if isinstance(arguments, Mapping) else ""
        keys.append((name, form))
    return keys


def _final_emitted(key: _Key | None, matching: Matching) -> bool | None:
    """Did any reply emit the final recommendation? None without one, or when a hidden reply may hold it."""
    if key is None:
        return None
    if any(emission.key == key for emission in matching.emissions):
        return True
    return None if matching.hidden else False


def _emitted(turns: list[list[_Key]], matching: Matching) -> list[list[bool | None]]:
    """Per shown call, whether the model emitted it.

    A catalogue call that was dispatched under its own name follows its dispatch, in order; any other call needs an
    emission of its own. Where none is left, a hidden reply makes it unknown.
    """
    dispatched: dict[_Key, deque[str]] = {}
    for key, reason in zip(matching.keys, matching.reasons, strict=True):
        dispatched.setdefault(key, deque()).append(reason)
    free = Counter(emission.key for emission in matching.emissions)
    flags: list[list[bool | None]] = []
    for turn in turns:
        row: list[bool | None] = []
        for key in turn:
            outcomes = dispatched.get(key) if key[0] in CATALOGUE_TOOLS else None
            if outcomes:
                reason = outcomes.popleft()
                if reason == MATCHED:
                    free[key] -= 1
                row.append(None if reason == UNMATCHED else reason == MATCHED)
            elif free[key] > 0:
                free[key] -= 1
                row.append(True)
            else:
                row.append(None if matching.hidden else False)
        flags.append(row)
    return flags


def _is_menu(matching: Matching) -> bool:
    """Whether the model named many calls of which few were made, so that something else chose among them.

    Honest agents make what the model asks for; the other choices of a reply count as named, too.
    """
    named = sum(emission.key[0] in _DISPATCHED for emission in matching.emissions)
    pairs = zip(matching.keys, matching.reasons, strict=True)
    made = sum(reason == MATCHED and key[0] in _DISPATCHED for key, reason in pairs)
    return named - made >= MIN_NOT_MADE and named - made > made


def _theatre(matching: Matching) -> bool:
    told = [emission.echoed for emission in matching.emissions if emission.key[1] != "{}"]
    return bool(told) and sum(told) >= THEATRE_SHARE * len(told)
