"""The ``rules`` judge: the four gates of ``rubric`` read deterministically from messages and log evidence.

It costs nothing and repeats exactly, so it stands in where a validator's verdict is missing, an infrastructure zero or
on a scale that cannot be compared. It sees the thinking, the tool results and the log; never the reward, the
outcome or the category, and not the answer text. Its values are comparable with one another only: regime ``rules``.

It reads signs, not meaning: a harness that writes a well-formed comparison of two products passes every gate. A
thought that speaks to the judge is not read at all, so that planted words never raise a value (domain 6: 28).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform.judging import injection, rubric
from trajectory_platform.judging.dialogue import tool_results
from trajectory_platform.judging.reasoning_signs import gives_reason, refers_to_results
from trajectory_platform.judging.result_data import ResultData, Thought

JUDGE_MODEL = "rules-2"
MIN_TOKENS = 30
_NOT_READ = "; a thought that speaks to the judge was not read"


class RulesVerdict(NamedTuple):
    """Quality on the five-value grid, or null with a reason; ``failed`` is the 0-based first failed gate."""

    quality: float | None
    failed: int | None
    null_reason: str | None
    explanation: str


class _Found(NamedTuple):
    """What the thinking of a trace shows; ``silenced``: a thought was left out because it speaks to the judge."""

    used: bool
    datum: bool
    compared: bool
    silenced: bool


def judge(
    messages: list[dict[str, Any]], evidence: Mapping[str, Any], results: Sequence[Any] | None = None
) -> RulesVerdict:
    """Read the four gates in order; the first that fails gives the value.

    Args:
        messages: canonical OpenAI messages.
        results: ``dialogue.tool_results(messages)`` where the caller already has it.
        evidence: ``traces.evidence`` of the same trace. Without a log the first gate cannot be read and the
            verdict is null (``no_log``), never a low value.
    """
    if not evidence.get("log_present"):
        return RulesVerdict(None, None, "no_log", "no request log: the first gate cannot be read")
    if not _inferred(evidence):
        return RulesVerdict(rubric.value(0), 0, None, rubric.explain(0))
    found = _read_thinking(messages, results)
    failed = None
    if not (found.datum and found.compared):
        failed = 3 if found.datum else 2 if found.used else 1
    explanation = rubric.explain(failed) + (_NOT_READ if found.silenced else "")
    return RulesVerdict(rubric.value(failed), failed, None, explanation)


def names_result_datum(messages: list[dict[str, Any]], results: Sequence[Any] | None = None) -> bool:
    """Whether a thought names a datum of a result it could see: the second and third gate, without the log.

    Args:
        messages: canonical OpenAI messages.
        results: ``dialogue.tool_results(messages)`` where the caller already has it.
    """
    return any(seen.named_in(thought) and not _spoken(text) for seen, thought, text in _thoughts(messages, results))


def _inferred(evidence: Mapping[str, Any]) -> bool:
    """Gate 1. A reply that the log cut is longer than 2,000 characters, so it holds more than 30 tokens."""
    for event in evidence.get("events") or ():
        if event.get("kind") != "inference" or event.get("state") == "failed":
            continue
        tokens = event.get("completion_tokens")
        if event.get("state") == "truncated" or (isinstance(tokens, int) and tokens >= MIN_TOKENS):
            return True
    return False


def _read_thinking(messages: list[dict[str, Any]], results: Sequence[Any] | None) -> _Found:
    """Gates 2 to 4, up to the first thought after which nothing is left to show."""
    used = datum = compared = silenced = False
    for seen, thought, text in _thoughts(messages, results):
        names = not datum and seen.named_in(thought)
        compares = not compared and _compares(seen, thought)
        refers = not (used or datum or names) and refers_to_results(thought.text)
        if not (names or compares or refers):
            continue
        if _spoken(text):
            silenced = True
            continue
        datum, compared, used = datum or names, compared or compares, used or refers
        if datum and compared:
            break
    return _Found(used, datum, compared, silenced)


def _thoughts(
    messages: list[dict[str, Any]], results: Sequence[Any] | None
) -> Iterator[tuple[ResultData, Thought, str]]:
    """Every thought that came after a result, with what the results had shown by then."""
    request = next((message["content"] for message in messages if message.get("role") == "user"), "")
    seen = ResultData(request if isinstance(request, str) else "")
    shown = iter(tool_results(messages) if results is None else results)
    for message in messages:
        if message.get("role") == "tool":
            seen.add(next(shown))
            continue
        if message.get("role") != "assistant":
            continue
        thought = message.get("reasoning_content")
        thought = thought if isinstance(thought, str) else ""
        if not seen.any:
            seen.exclude(thought)
            for call in message.get("tool_calls") or ():
                asked = (call.get("function") or {}).get("arguments")
                seen.exclude(asked if isinstance(asked, str) else "")
        elif thought:
            yield seen, Thought(thought), thought


def _compares(seen: ResultData, thought: Thought) -> bool:
    """Two or more products and a reason; what is cheap to know first."""
    if len(seen.ids_in(thought)) > 1:
        return gives_reason(thought.text)
    return gives_reason(thought.text) and seen.several_in(thought)


def _spoken(text: str) -> bool:
    return injection.suspicious(text)
