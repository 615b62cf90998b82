"""How well the thoughts of a generated attempt are grounded: the reasoning axis of training rows we make ourselves.

The same judges as for miners' traces: the rules, or the configured LLM judge with its canaries, budget and journal. The
journal of generated attempts is one of its own, and it is kept: it is the cache by which nothing is paid for twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trajectory_platform import jsontext
from trajectory_platform.judging import judge_prompt, reasoning
from trajectory_platform.judging.judge_asking import Asks
from trajectory_platform.judging.judge_journal import Journal, spent_usd
from trajectory_platform.judging.judge_models import JudgeConfig
from trajectory_platform.judging.judge_run import CANARY_FAILED, JudgeRequest, JudgeRun

if TYPE_CHECKING:
    from trajectory_platform.evaluation.eval_problems import EvalProblem

VERSION = "grounding-1"  # raise it when the same attempts would be judged otherwise
# Letters, digits and signs never share a token with one another in the splitting that GPT and Qwen tokenizers do first,
# so a text has at least as many tokens as it has words in this sense.
_WORD = re.compile(r"\w+|[^\w\s]+")


class Verdict(NamedTuple):
    """The reasoning quality of one attempt, or null with a reason.

    Attributes:
        kind: ``rules`` or ``llm``.
        retryable: a null that a later run may fill.
    """

    quality: float | None
    kind: str
    reason: str | None = None
    retryable: bool = False


class Judgeable(Protocol):
    """What a judge needs of an attempt (``rejection.Attempt`` is one)."""

    @property
    def trace_id(self) -> str: ...
    @property
    def one(self) -> EvalProblem: ...
    @property
    def messages(self) -> list[dict[str, Any]]: ...
    @property
    def evidence(self) -> dict[str, Any]: ...


def evidence_of(row: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The evidence of a ``rollouts`` row, with a lower bound where nobody counted the tokens of its replies.

    A script and some servers report no counts. Here the replies themselves are known, so their words are counted.
    """
    evidence: dict[str, Any] = jsontext.parse(row["evidence"].encode()).value
    replies = [event for event in evidence.get("events") or () if event.get("kind") == "inference"]
    if any(event.get("completion_tokens") is not None for event in replies):
        return evidence
    spoken = [message for message in messages if message.get("role") == "assistant"]
    answered = [event for event in replies if event.get("state") != "failed"]
    for event, message in zip(answered, spoken, strict=False):
        event["completion_tokens"] = _words(message)
    return evidence


def rules_judge(attempts: Sequence[Judgeable]) -> dict[str, Verdict]:
    """The rules judge on every attempt: costs nothing and repeats exactly."""
    verdicts = {}
    for attempt in attempts:
        told = reasoning.judge(attempt.messages, attempt.evidence)
        verdicts[attempt.trace_id] = Verdict(told.quality, "rules", told.null_reason)
    return verdicts


def llm_judge(
    config: JudgeConfig,
    endpoint: Callable[[JudgeConfig], Asks],
    folder: Path,
    name: str,
    tell: Callable[[str], None] = lambda _: None,
) -> Callable[[Sequence[Judgeable]], dict[str, Verdict]]:
    """The configured LLM judge.

    Args:
        endpoint: makes the calls, built only when there is something to ask.
        folder: of the journals; ``name``: of this one, e.g. ``generated-resft-2026-05-02``.
        tell: takes lines for people.

    The returned function raises ``RetryLater`` where another process uses the journal, and ``Abort`` without a key.
    """

    def judge(attempts: Sequence[Judgeable]) -> dict[str, Verdict]:
        if not attempts:
            return {}
        config.check_keys()
        with Journal(folder, name) as journal:
            run = JudgeRun(
                config,
                endpoint(config),
                journal,
                day=name,
                spent_before_usd=spent_usd(journal.stream()),
                total=len(attempts),
            )
            outcomes = list(run.judge(_request(attempt) for attempt in attempts))
            obeyed, spent = run.obeyed, run.spending.usd
        verdicts = {}
        for outcome in outcomes:
            withdrawn = outcome.model in obeyed and outcome.quality is not None
            reason = CANARY_FAILED if withdrawn else outcome.null_reason
            value = None if withdrawn else outcome.quality
            verdicts[outcome.trace_id] = Verdict(value, "llm", reason, retryable=value is None)
        valued = sum(verdict.quality is not None for verdict in verdicts.values())
        tell(f"{name}: {valued} of {len(outcomes)} generated attempts judged, {spent:.4f} USD")
        return verdicts

    return judge


def _request(attempt: Judgeable) -> JudgeRequest:
    shown = judge_prompt.judge_input(
        attempt.messages, attempt.evidence, query=attempt.one.problem.query, query_verified=True
    )
    return JudgeRequest(attempt.trace_id, shown)


def _words(message: Mapping[str, Any]) -> int:
    texts = [message.get("reasoning_content"), message.get("content")]
    for call in message.get("tool_calls") or ():
        texts += [call["function"]["name"], call["function"]["arguments"]]
    return sum(len(_WORD.findall(text)) for text in texts if isinstance(text, str))
