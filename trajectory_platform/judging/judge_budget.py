"""Money and tokens of paid models: the worst case is reserved before a call and settled after it (case E14).

Calls that run side by side can therefore never pass one limit together, as they would if each looked only at what was
booked already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trajectory_platform.judging.judge_models import JudgeBudget, JudgeModel

# English and JSON take 3 to 4 bytes a token, but no tokenizer takes more tokens than bytes: a trace can be written to
# come close. What a call does not need comes back when it settles, so the bound costs nothing but the last calls.
BYTES_PER_TOKEN = 1
MESSAGE_OVERHEAD_TOKENS = 16
SCHEMA_TOKENS = 250  # some providers write the schema of a structured output into the prompt
_CENT_FRACTION = 1e-12


class Reservation(NamedTuple):
    """What one call may cost at most."""

    usd: float
    tokens: int


@dataclass
class Spending:
    """Booked and reserved money and tokens of one run.

    Attributes:
        spent_before_usd: what earlier runs of the same subnet day paid.
    """

    budget: JudgeBudget
    spent_before_usd: float = 0.0
    usd: float = 0.0
    tokens: int = 0
    _reserved: list[Reservation] = field(default_factory=list)

    def reserve(self, model: JudgeModel, messages: Sequence[dict[str, str]]) -> Reservation | None:
        """Room for one call, or None when a limit would not cover its worst case."""
        return self.hold(worst_case(model, messages))

    def hold(self, wanted: Reservation) -> Reservation | None:
        """Room for a call of this worst case, or None when a limit would not cover it."""
        held_usd = sum(one.usd for one in self._reserved)
        held_tokens = sum(one.tokens for one in self._reserved)
        limit = self.budget
        if _above(self.usd + held_usd + wanted.usd, limit.usd_per_run):
            return None
        if _above(self.spent_before_usd + self.usd + held_usd + wanted.usd, limit.usd_per_day):
            return None
        if limit.tokens_per_run is not None and self.tokens + held_tokens + wanted.tokens > limit.tokens_per_run:
            return None
        self._reserved.append(wanted)
        return wanted

    def settle(self, reservation: Reservation, usd: float, tokens: int) -> None:
        """Replace a reservation by what the call took; 0 for one that cannot have been paid for."""
        self._reserved.remove(reservation)
        self.usd += usd
        self.tokens += tokens

    @property
    def in_flight(self) -> bool:
        """Whether calls hold reservations that may come back."""
        return bool(self._reserved)


def worst_case(model: JudgeModel, messages: Sequence[dict[str, str]]) -> Reservation:
    """Upper bound of one call: the prompt by its bytes, the reply by its token limit."""
    size = sum(len(message["content"].encode("utf-8", "replace")) for message in messages)
    return bound(model, size, len(messages), model.max_tokens)


def bound(model: JudgeModel, prompt_bytes: int, messages: int, reply_tokens: int) -> Reservation:
    """Upper bound of a call with so many bytes in so many messages and a reply of at most so many tokens."""
    prompt = prompt_bytes // BYTES_PER_TOKEN + MESSAGE_OVERHEAD_TOKENS * messages + SCHEMA_TOKENS
    return Reservation(model.cost(prompt, reply_tokens), prompt + reply_tokens)


class Forecast(NamedTuple):
    """What judging is expected to take, before the first call.

    Attributes:
        traces: judgments asked for; cached: of them answered by earlier calls.
        calls: new calls including canaries, if every first reply can be used.
        usd: expected cost; usd_worst: with the longest replies and prompts by bytes.
    """

    traces: int
    cached: int
    calls: int
    prompt_tokens: int
    usd: float
    usd_worst: float
    within_budget: bool

    def text(self) -> str:
        """One line for people."""
        fits = "within the budget" if self.within_budget else "more than the budget: the rest stays for later"
        return (
            f"{self.traces} traces to judge, {self.cached} answered before, {self.calls} calls with canaries, about "
            f"{self.prompt_tokens / 1e6:.2f} M prompt tokens, {self.usd:.2f} USD expected, at most "
            f"{self.usd_worst:.2f} USD; {fits}"
        )


EXPECTED_REPLY_TOKENS = 120
EXPECTED_BYTES_PER_TOKEN = 3.5


def forecast(
    model: JudgeModel, budget: JudgeBudget, prompt_bytes: Sequence[int], *, traces: int, spent_before_usd: float
) -> Forecast:
    """Expected and worst cost of the calls whose prompts have these sizes, all answered by the first model."""
    expected_tokens = sum(int(size / EXPECTED_BYTES_PER_TOKEN) for size in prompt_bytes)
    overhead = 2 * MESSAGE_OVERHEAD_TOKENS + SCHEMA_TOKENS
    worst_tokens = sum(size // BYTES_PER_TOKEN + overhead for size in prompt_bytes)
    calls = len(prompt_bytes)
    usd = model.cost(expected_tokens, EXPECTED_REPLY_TOKENS * calls)
    worst = model.cost(worst_tokens, model.max_tokens * calls)
    fits = not _above(usd, budget.usd_per_run) and not _above(spent_before_usd + usd, budget.usd_per_day)
    if budget.tokens_per_run is not None:
        fits = fits and expected_tokens + EXPECTED_REPLY_TOKENS * calls <= budget.tokens_per_run
    return Forecast(traces, 0, calls, expected_tokens, usd, worst, fits)


def _above(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit + _CENT_FRACTION
