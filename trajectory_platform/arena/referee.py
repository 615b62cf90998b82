"""What really happened in an episode, and what the validators report about it.

The outcome is known by construction: titles are unique, so exactly the wanted ids in the right order succeed.
The reported reasoning scores follow the regimes of the subnet's judge (domain 1.11, 2.6).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from trajectory_platform.arena.account import Account, Logged
from trajectory_platform.arena.catalogue import CONTROL_TOKENS, JUDGE_BAIT
from trajectory_platform.arena.quirks import FORGED, PARAM_BAIT, QUERY_BAIT, THINK_BAIT

EXECUTION = {  # quirk -> (execution status, malformed); all of them leave no dialogue behind
    "crash": ("FAILED", "execution_failed"),
    "timeout": ("TIMED_OUT", "execution_timed_out"),
    "non_list": ("SUCCESS", "non_list_result"),
    "empty_dialogue": ("SUCCESS", "empty_dialogue"),
    "no_line": ("NO_LINE", "no_output_line"),
}
UNSCORABLE = {  # the reference scorer raises on these (domain 2.5)
    "tool_call_object": "tool_call_not_list",
    "tool_call_text": "tool_call_text",
    "tool_call_strings": "tool_call_item_not_object",
    "completion_null_last": "completion_null",
    "think_number": "think_not_text",
    "think_null": "think_not_text",
    "call_without_name": "call_without_name",
}
ODD = {  # readable with a repair or a note
    "message_null": "message_null",
    "completion_null": "completion_null",
    "ids_list": "product_ids_not_text",
    "ids_int": "product_ids_not_text",
    "ids_singular": "product_ids_missing",
    "parameters_text": "parameters_not_object",
    "nan_result": "non_finite_number",
    "nan_parameter": "non_finite_number",
    "nan_timestamp": "non_finite_number",
}
DAMAGED = ("cut_line", "truncated_gzip")
_INTENT = {
    "b_regex": "none",
    "b_classifier": "partial",
    "b_narrator": "narrated",
    "b_echo": "scripted",
    "b_decoy": "none",
    "mixed_ab": "partial",
    "a_poor": "poor",
}
_ID = re.compile(r"\d{10}")
_REASON = re.compile(r"because|since|therefore|better|prefer|beats")


class Played(Logged, Protocol):
    """A finished attempt, whoever made it: ``playing.Played`` of a script, ``entry.Attempt`` of a policy.

    Steps have ``think`` and ``calls`` ({name, parameters, result}); ``log`` holds the proxy's entries before they are
    shaped.
    """

    @property
    def query(self) -> str: ...


@dataclass
class Outcome:
    """The truth about one executed pair."""

    execution_status: str = "SUCCESS"
    malformed: str | None = None
    outcome: str = "no_trace"
    axis: str = "unknown"
    axis_reason: str = "no_dialogue"
    axis_evidence: dict[str, Any] | None = None
    recommended_ids: list[str] = field(default_factory=list)
    hallucinated_ids: list[str] = field(default_factory=list)
    unviewed_ids: list[str] = field(default_factory=list)
    injection_sources: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    strategy_template: str | None = None
    length_score: float | None = None

    @property
    def success(self) -> bool:
        return self.outcome == "success"


def judge_outcome(episode: Played, target_ids: Sequence[str], account: Account) -> Outcome:
    """The truth of one episode: outcome, axis, ids and their provenance, injected text."""
    quirk = episode.quirk
    if quirk in EXECUTION:
        status, malformed = EXECUTION[quirk]
        return Outcome(execution_status=status, malformed=malformed)
    result = Outcome(malformed=UNSCORABLE.get(quirk or "") or ODD.get(quirk or ""))
    result.recommended_ids = recommended_ids(episode)
    seen, viewed = seen_ids(episode)
    result.hallucinated_ids = [item for item in result.recommended_ids if item not in seen]
    result.unviewed_ids = [item for item in result.recommended_ids if item in seen and item not in viewed]
    hit = bool(target_ids) and result.recommended_ids[: len(target_ids)] == list(target_ids)
    result.outcome = "unscorable" if quirk in UNSCORABLE else "success" if hit else "failure"
    result.axis, result.axis_reason = account.axis, account.reason
    result.axis_evidence = account.evidence()
    if quirk in DAMAGED:
        result.malformed, result.outcome, result.axis, result.axis_reason = quirk, "unscorable", "unknown", "unreadable"
    result.strategy_template = strategy_template(episode)
    last = episode.steps[-1].calls if episode.steps else []
    result.length_score = 1 / len(episode.steps) if any(call["name"] == "terminate" for call in last) else 0.0
    _note_texts(episode, result)
    return result


def recommended_ids(episode: Played) -> list[str]:
    """The ids of the last recommendation, read strictly (domain 2.1)."""
    found: list[str] = []
    for step in episode.steps:
        for call in step.calls:
            if call["name"] == "recommend_product" and isinstance(call["parameters"], dict):
                text = call["parameters"].get("product_ids")
                parts = [part.strip() for part in text.split(",")] if isinstance(text, str) else []
                found = list(dict.fromkeys(part for part in parts if part))
    return found


def seen_ids(episode: Played) -> tuple[set[str], set[str]]:
    """(ids in any tool result, ids returned by a view or a check)."""
    seen: set[str] = set()
    viewed: set[str] = set()
    for step in episode.steps:
        for call in step.calls:
            result = call["result"]
            rows = result if isinstance(result, list) else []
            if isinstance(result, dict):
                rows = [
                    *result.get("products", []),
                    *([result["product_summary"]] if "product_summary" in result else []),
                ]
            ids = {row["product_id"] for row in rows if isinstance(row, dict) and "product_id" in row}
            seen |= ids
            if call["name"] in ("view_product_information", "check_product_match"):
                viewed |= ids
    return seen, viewed


def strategy_template(episode: Played) -> str:
    """Tools and which arguments they were given, without any value."""
    return ">".join("+".join(_shape(call) for call in step.calls) or "-" for step in episode.steps)


def _shape(call: Mapping[str, Any]) -> str:
    name, parameters = str(call["name"]), call["parameters"]
    given = parameters if isinstance(parameters, dict) else {}
    if name == "find_product":
        return f"find({','.join(sorted(key for key in given if key not in ('q', 'query')))})"
    if name == "view_product_information":
        return f"view({str(given.get('product_ids')).count(',') + 1})"
    return "recommend" if name == "recommend_product" else name


def _note_texts(episode: Played, result: Outcome) -> None:
    """Injected text and control tokens that the trace really carries."""
    sources: set[str] = {"query"} if QUERY_BAIT in episode.query else set()
    nulled = {"message_null": 1 if len(episode.steps) > 2 else 0, "completion_null": 1}.get(episode.quirk or "")
    for number, step in enumerate(episode.steps):
        if number == nulled:
            continue  # not in the published dialogue
        if any(bait in step.think for bait in THINK_BAIT.values()):
            sources.add("think")
        for call in step.calls:
            if isinstance(call["parameters"], dict) and PARAM_BAIT in str(call["parameters"]):
                sources.add("param")
            rows = call["result"] if isinstance(call["result"], list) else []
            for row in rows:
                text = row.get("description") or ""
                if any(bait in text for bait in JUDGE_BAIT):
                    sources.add("product_text")
                if CONTROL_TOKENS in text and "control_tokens_in_result" not in result.flags:
                    result.flags.append("control_tokens_in_result")
    result.injection_sources = sorted(sources)


def intent_of(kind: str, quirk: str | None) -> str:
    """How well the thinking was meant to be: good, poor, partial, narrated, scripted, fabricated or none."""
    return "fabricated" if quirk in FORGED else _INTENT.get(kind, "good")


def true_quality(episode: Played, kind: str) -> float:
    """The grid value an ideal judge would give who believes the log (domain 2.6, gates 1 to 4)."""
    fixed = {"none": 0.1, "poor": 0.3, "partial": 0.5, "narrated": 0.5}.get(intent_of(kind, episode.quirk))
    if fixed is not None:
        return fixed
    compared = any(len(set(_ID.findall(step.think))) >= 2 and _REASON.search(step.think) for step in episode.steps)
    return 0.9 if compared else 0.7


def reported_reasoning(
    rng: Random, quality: float, regime: str, judged: bool
) -> tuple[Any, dict[str, str] | None, str]:
    """(reasoning_score, score_components, judge_state) as the API publishes them."""
    if not judged:
        return None, None, "not_judged"
    model = rng.choice(("zai-org/GLM-5.1-TEE", "google/gemma-4-31B-turbo-TEE", "zai-org/GLM-5-TEE"))
    draw = rng.random()
    if draw < 0.025:
        return 0.0, {"reasoning_explanation": "", "reasoning_model": ""}, "infrastructure_zero"
    if draw < 0.029:
        name = model if regime == "continuous_step0_only" else ""
        return 0.0, {"reasoning_explanation": "", "reasoning_model": name}, "unparseable_zero"
    note = {"reasoning_explanation": _EXPLANATIONS[round(quality * 10)], "reasoning_model": model}
    if regime == "discrete":
        if draw < 0.033:
            return rng.choice((0.65, 1.0, "0.9")), note, "off_grid"
        lower = rng.random() < 0.06 and quality > 0.1
        return round(quality - 0.2, 1) if lower else quality, note, "judged"
    value = quality * (0.58 if regime == "continuous_step0_only" else 1.0) + rng.gauss(0, 0.06)
    return round(min(0.98, max(0.02, value)), 2), note, "judged"


_EXPLANATIONS = {
    1: "Gate 1 failed: no substantive inference",
    3: "Gate 2 failed: thinking does not refer to any result",
    5: "Gate 3 failed: no specific datum named",
    7: "Gate 4 failed: single product justified, no alternative weighed",
    9: "All gates passed",
}


def coefficient(quality: float) -> float:
    """The run's reasoning coefficient (domain 2.6)."""
    return 1.0 if quality >= 0.8 else round(0.3 + quality * 0.7 / 0.8, 4)
