"""No limit is passed, however many calls look at it at once; the forecast holds what it promises."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.judging.judge_budget import Spending, forecast, worst_case
from trajectory_platform.judging.judge_models import JudgeBudget, JudgeModel

MODEL = JudgeModel(name="m", model="openai/m", usd_per_million_input=2.0, usd_per_million_output=8.0, max_tokens=100)
MESSAGES = [{"role": "user", "content": "x" * 1000}]


def test_e14_two_of_five_parallel_calls_start() -> None:
    worst = worst_case(MODEL, MESSAGES).usd
    spending = Spending(JudgeBudget(usd_per_run=2 * worst))
    held = [spending.reserve(MODEL, MESSAGES) for _ in range(5)]
    assert [one is not None for one in held] == [True, True, False, False, False]
    assert held[0] is not None
    spending.settle(held[0], 0.0, 0)  # it needed nothing: room for another
    assert spending.reserve(MODEL, MESSAGES) is not None


def test_no_tokenizer_takes_more_than_is_reserved() -> None:
    """Tokens are at most bytes; a trace may be written to come close."""
    for text in ("plain words", "\u202e\u200b" * 50, "\U0001f9d1\u200d" * 20, "zq#9~" * 99):
        reserved = worst_case(MODEL, [{"role": "user", "content": text}])
        assert reserved.tokens >= len(text.encode()) + MODEL.max_tokens


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3000), st.floats(0, 1)), max_size=60),
    st.floats(0, 0.05),
    st.integers(0, 20_000),
)
@settings(derandomize=True, deadline=None)
def test_any_order_of_calls_stays_within_every_limit(
    steps: list[tuple[bool, int, float]], usd: float, tokens: int
) -> None:
    spending = Spending(JudgeBudget(usd_per_run=usd, usd_per_day=usd * 1.5, tokens_per_run=tokens), usd)
    held = []
    for begins, size, share in steps:
        if begins:
            held.append(spending.reserve(MODEL, [{"role": "user", "content": "x" * size}]))
        elif held and (one := held.pop(0)) is not None:
            spending.settle(one, one.usd * share, int(one.tokens * share))
        assert spending.usd <= usd + 1e-9 and spending.tokens <= tokens
        assert spending.spent_before_usd + spending.usd <= usd * 1.5 + 1e-9


def test_the_forecast_names_calls_money_and_whether_it_fits() -> None:
    told = forecast(MODEL, JudgeBudget(usd_per_run=1.0), [3500] * 100, traces=90, spent_before_usd=0.0)
    assert told.calls == 100 and told.prompt_tokens == 100_000 and told.within_budget
    assert math.isclose(told.usd, 0.2 + 100 * 120 * 8 / 1e6) and told.usd_worst > told.usd
    assert not forecast(MODEL, JudgeBudget(usd_per_day=1.0), [3500], traces=1, spent_before_usd=1.0).within_budget
    assert "90 traces" in told.text() and "\n" not in told.text()
