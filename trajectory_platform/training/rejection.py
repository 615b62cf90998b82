"""Which generated attempts become training rows, and why the others do not (domain 5.2: rejection-sampled re-SFT).

Strict success comes first; then every fault that may not be copied by imitation: ids that no result showed, products
never opened, a broken protocol, calls that could not be read, text that speaks to a judge, careless conduct, thoughts
that are not grounded in what was seen. Of what is left the best few of each problem are kept, unlike ones first.

A decision depends on the attempts of the same problem and on the corpus, never on the order of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.curation import discipline, quality
from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.evaluation.eval_rows import CRASHES, TIMEOUTS
from trajectory_platform.judging import injection
from trajectory_platform.training.grounding import Verdict, evidence_of, rules_judge

if TYPE_CHECKING:
    from trajectory_platform.evaluation.eval_problems import EvalProblem
    from trajectory_platform.judging.outcome import OutcomeScore
    from trajectory_platform.training.stage_recipes import Acceptance

VERSION = "rejection-1"  # raise it when the same attempts would be decided otherwise

REASONS = {
    "budget": "the budget of the teacher was reached before it; a later run goes on",
    "no_attempt": "it was planned and left nothing; the detail says why",
    "not_success": "no strict success; the detail says how it ended",
    "malformed_call": "a reply named calls that could not be read, or only with a repair",
    "truncated": "a limit cut a reply: what was cut is never a target",
    "hallucinated_id": "it recommends an id that no result showed",
    "not_opened": "it recommends a product that was not opened before",
    "discipline": "it broke the protocol, e.g. recommended twice or did not terminate",
    "injection_suspected": "the request, a result or a thought speaks to a judge or gives orders",
    "duplicate_of_corpus": "the corpus holds the same text, or the same calls for the same problem",
    "low_conduct": "its conduct score is below the recipe's",
    "no_thought": "no turn has a thought, and the recipe has a reasoning gate",
    "not_judged": "the judge gave no value; the detail says why",
    "low_reasoning": "its reasoning quality is below the recipe's gate",
    "same_strategy": "another attempt at the problem made the same calls, and is better",
    "over_keep": "better or less similar attempts at the problem fill the recipe's number",
}
"""Why an attempt is no training row, in the order of the tests: the first that applies is the reason."""

# Repairs of the reader that are about how the model wrote a call; the others are about results and repeated ids.
_WRITTEN_WRONG = frozenset({"parameters_not_object", "product_ids_not_text", "tool_call_not_list", "repeated_key"})
_PLAIN = FilterConfig(viewed_required=False)  # opening is a reason of its own here


@dataclass(frozen=True)
class Attempt:
    """One attempt at a train problem, scored.

    Attributes:
        row: its ``rollouts`` row; messages: the canonical messages in it.
        found: the strict score; conduct: ``evaluation.conduct`` in [0, 1].
        signature: its calls (``curation.signatures``); outline: how it goes about it (``curation.strategy``).
    """

    trace_id: str
    one: EvalProblem
    sample: int
    row: Mapping[str, Any]
    messages: list[dict[str, Any]]
    found: OutcomeScore
    conduct: float
    signature: str
    outline: str

    @property
    def problem_key(self) -> str:
        return self.one.problem.problem_key

    @property
    def success(self) -> bool:
        """Strictly, and not cut off by a crash or a timeout."""
        return self.found.outcome == "success" and self.row["ending"] not in (*CRASHES, *TIMEOUTS)

    @property
    def evidence(self) -> dict[str, Any]:
        """What the log says, for a judge."""
        return evidence_of(self.row, self.messages)


class Decision(NamedTuple):
    """A reason of ``REASONS``, or None for a training row; ``detail`` is machine-readable where there is one."""

    reason: str | None
    detail: str | None = None


ACCEPTED = Decision(None)
Judge = Callable[[Sequence[Attempt]], Mapping[str, Verdict]]
"""A verdict, by trace id, for every attempt it is asked about: those that pass all other tests."""


class Decided(NamedTuple):
    """Decisions and verdicts by trace id; attempts that were not judged have no verdict."""

    decisions: dict[str, Decision]
    verdicts: dict[str, Verdict]


def decide(
    attempts: Sequence[Attempt],
    accept: Acceptance,
    *,
    corpus: Collection[Mapping[str, Any]] = (),
    judge: Judge | None = None,
) -> Decided:
    """A decision for every attempt.

    Args:
        corpus: rows with ``trace_id, problem_key, content_hash, strategy_signature``: what is trained on anyway.
        judge: of the reasoning; None for the rules.
    """
    ordered = sorted(attempts, key=lambda one: one.trace_id)
    held = _Held(corpus)
    decisions: dict[str, Decision] = {}
    for attempt in ordered:
        fault = held.copy_of(attempt) if (fault := _fault(attempt)) is None else fault
        if fault is None and attempt.conduct < accept.min_conduct - 1e-9:
            fault = Decision("low_conduct", f"{attempt.conduct:.3f}")
        if fault is None and accept.min_reasoning is not None and not _thinks(attempt.messages):
            fault = Decision("no_thought")
        if fault is not None:
            decisions[attempt.trace_id] = fault
    asked = [attempt for attempt in ordered if attempt.trace_id not in decisions]
    verdicts: dict[str, Verdict] = {}
    if accept.min_reasoning is not None:
        verdicts = dict((judge or rules_judge)(asked)) if asked else {}
        for attempt in asked:
            gated = _gated(verdicts[attempt.trace_id], accept.min_reasoning)
            if gated is not None:
                decisions[attempt.trace_id] = gated
    able = [attempt for attempt in asked if attempt.trace_id not in decisions]
    return Decided(decisions | _chosen(able, accept.keep), verdicts)


def _fault(attempt: Attempt) -> Decision | None:
    """The first fault that an attempt has by itself."""
    row, found = attempt.row, attempt.found
    if row["ending"] == "malformed_reply":
        return Decision("malformed_call", row["ending_detail"])
    if not attempt.success:
        told = found.reason or ("" if row["ending"] in (*CRASHES, *TIMEOUTS) else found.outcome)
        return Decision("not_success", ":".join(part for part in (row["ending"], row["ending_detail"] or told) if part))
    mended = sorted(_WRITTEN_WRONG & {repair["reason"] for repair in jsontext.parse(row["repairs"].encode()).value})
    if mended:
        return Decision("malformed_call", ",".join(mended))
    if row["truncated_replies"]:
        return Decision("truncated", row["ending"])
    if found.hallucinated_ids:
        return Decision("hallucinated_id", ",".join(found.hallucinated_ids)[:200])
    late = quality.opened_late(attempt.messages, found.recommended_ids)
    if found.unviewed_ids or late:
        return Decision("not_opened", ",".join(found.unviewed_ids)[:200] or "opened_late")
    broken = discipline.violations(
        {
            "discipline": found.discipline,
            "lenient_ids": found.lenient_ids,
            "recommended_ids": found.recommended_ids,
            "unviewed_ids": [],
            "format": found.format,
        },
        _PLAIN,
    )
    if broken:
        return Decision("discipline", ",".join(broken))
    planted = injection.scan_messages(attempt.messages)
    return Decision("injection_suspected", ",".join(planted)) if planted else None


def _thinks(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        message["role"] == "assistant" and (message.get("reasoning_content") or "").strip() for message in messages
    )


def _gated(verdict: Verdict, least: float) -> Decision | None:
    if verdict.quality is None:
        return Decision("not_judged", verdict.reason)
    if verdict.quality < least - 1e-9:  # 0.7 must pass a gate of 0.7 whatever binary floats make of it
        return Decision("low_reasoning", f"{verdict.quality:g}")
    return None


class _Held:
    """What the corpus holds: texts, and calls per problem."""

    def __init__(self, corpus: Collection[Mapping[str, Any]]) -> None:
        self._texts: dict[str, str] = {}
        self._calls: dict[tuple[str, str], str] = {}
        for row in sorted(corpus, key=lambda row: str(row["trace_id"])):
            if row["content_hash"]:
                self._texts.setdefault(row["content_hash"], row["trace_id"])
            if row["strategy_signature"] and row["problem_key"]:
                self._calls.setdefault((row["problem_key"], row["strategy_signature"]), row["trace_id"])

    def copy_of(self, attempt: Attempt) -> Decision | None:
        same = self._texts.get(attempt.row["content_hash"] or "")
        same = same or self._calls.get((attempt.problem_key, attempt.signature))
        return None if same is None else Decision("duplicate_of_corpus", same)


def _chosen(able: Sequence[Attempt], keep: int) -> dict[str, Decision]:
    """The best few of every problem: one of each outline before a second one of any, equal calls only once."""
    decisions: dict[str, Decision] = {}
    problems: dict[str, list[Attempt]] = {}
    for attempt in sorted(able, key=_merit):
        problems.setdefault(attempt.problem_key, []).append(attempt)
    for group in problems.values():
        first: dict[str, Attempt] = {}
        seen: dict[str, int] = {}
        rounds: list[tuple[int, int, Attempt]] = []
        for place, attempt in enumerate(group):
            better = first.setdefault(attempt.signature, attempt)
            if better is not attempt:
                decisions[attempt.trace_id] = Decision("same_strategy", better.trace_id)
                continue
            seen[attempt.outline] = seen.get(attempt.outline, 0) + 1
            rounds.append((seen[attempt.outline], place, attempt))
        for rank, (_, _, attempt) in enumerate(sorted(rounds, key=lambda entry: entry[:2])):
            decisions[attempt.trace_id] = ACCEPTED if rank < keep else Decision("over_keep", f"rank {rank + 1}")
    return decisions


def _merit(attempt: Attempt) -> tuple[float, int, int, str]:
    """Best first: conduct, then brevity (calls, then words of the model), then the id."""
    written = sum(
        len(message.get("reasoning_content") or "") + len(message.get("content") or "")
        for message in attempt.messages
        if message["role"] == "assistant"
    )
    return (-round(attempt.conduct, 9), int(attempt.row["tool_calls"]), written, attempt.trace_id)
