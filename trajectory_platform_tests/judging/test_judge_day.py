"""The stage that asks an LLM judge about a day: rows, forecast, resume, withdrawal, one line for a missing key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.judging.judge_models import JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_router import CallFailure, JudgeRouter, RawReply
from trajectory_platform.lake.tables import JUDGE_CALLS, RAW_TRACES, TRAJECTORIES
from trajectory_platform.stages.llm_judging import LLMJudge, LLMVerdicts, ask_day, open_journal
from trajectory_platform_tests.judging.dialogues import raw_row, table, trajectory_row

DAY = "2026-05-01"
MODEL = JudgeModel(name="m", model="openai/m", usd_per_million_input=2.0, usd_per_million_output=8.0)


class Endpoint:
    """Answers from a function of the user message."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.texts, self.closed = answer, list[str](), 0

    async def ask(self, model: JudgeModel, messages: Sequence[dict[str, str]]) -> RawReply:
        self.texts.append(messages[1]["content"])
        quality = self.answer(messages[1]["content"])
        return RawReply(json.dumps({"reasoning_quality": quality}), "stop", 1000, 100)

    async def close(self) -> None:
        self.closed += 1


def thoughts(number: int) -> str:
    """The messages of a trace that differs from all others."""
    return json.dumps(
        [
            {"role": "user", "content": "a pot"},
            {"role": "assistant", "content": "", "reasoning_content": f"trace number {number}: 12 beats 13"},
        ]
    )


def ask(
    root: Path,
    endpoint: Any,
    *,
    traces: int = 6,
    published: pa.Table | None = None,
    lines: list[str] | None = None,
    wanted: list[str] | None = None,
    **options: Any,
) -> LLMVerdicts:
    names = [f"t{number}" for number in range(traces)]
    raw = [raw_row(name, day=DAY) for name in names]
    rows = [trajectory_row(one, messages=thoughts(number)) for number, one in enumerate(raw)]
    judged = pa.table({"trace_id": names, "query": ["a pot"] * traces, "query_verified": [True] * traces})
    config = JudgeConfig(models=(MODEL,), entrance_canaries=2, canaries=1, **options)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table(rows, TRAJECTORIES).to_batches(max_chunksize=2)

    def made(_: JudgeConfig) -> Any:
        return endpoint(config) if isinstance(endpoint, type) else endpoint

    judge = LLMJudge(config, made, (lines if lines is not None else []).append)
    with open_journal(root, DAY) as journal:
        return ask_day(
            judge,
            journal,
            DAY,
            wanted=wanted if wanted is not None else names,
            raw_rows=table(raw, RAW_TRACES),
            trajectory_batches=batches,
            judged=judged,
            published_calls=published if published is not None else JUDGE_CALLS.schema().empty_table(),
        )


def test_a_day_gives_verdicts_calls_and_a_forecast_that_comes_first(tmp_path: Path) -> None:
    endpoint, lines = Endpoint(lambda _: 0.7), list[str]()
    told = ask(tmp_path, endpoint, lines=lines)
    assert told.verdicts.column("reasoning_quality").to_pylist() == [0.7] * 6
    assert told.verdicts.column("judge_kind").unique().to_pylist() == ["llm"]
    assert told.summary["llm_calls"] == len(endpoint.texts) == 6 + 4 and endpoint.closed == 1
    assert told.summary["llm_usd"] == told.summary["llm_usd_day"] == round(10 * (0.002 + 0.0008), 6)
    assert "6 traces to judge, 0 answered before, 10 calls" in lines[0] and "6 of 6 traces have a value" in lines[-1]


def test_a_published_day_is_not_asked_again_and_its_journal_is_cleared(tmp_path: Path) -> None:
    endpoint = Endpoint(lambda _: 0.7)
    first = ask(tmp_path, endpoint)
    with open_journal(tmp_path, DAY) as journal:
        assert len(journal.rows) == first.calls.num_rows
    lines: list[str] = []
    second = ask(tmp_path, endpoint, traces=8, published=first.calls, lines=lines)
    assert "8 traces to judge, 6 answered before" in lines[0]
    assert second.summary["llm_cached"] == 6 and second.summary["llm_judged"] == 8
    sequences = second.calls.column("sequence").to_pylist()
    assert sequences == list(range(len(sequences)))  # the published rows once, the new ones behind them
    assert sum("trace number 0:" in text for text in endpoint.texts) == 1


def test_a_journal_that_was_not_published_is_kept_and_used(tmp_path: Path) -> None:
    endpoint = Endpoint(lambda _: 0.7)
    first = ask(tmp_path, endpoint)
    before = len(endpoint.texts)
    second = ask(tmp_path, endpoint)
    assert len(endpoint.texts) == before and second.calls.equals(first.calls)
    assert second.summary["llm_usd"] == 0 and second.summary["llm_usd_day"] == first.summary["llm_usd_day"]


def test_what_a_model_said_before_it_obeyed_is_withdrawn(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(text: str) -> float:
        asked.append(text)
        return 0.9 if "0.9" in text and len(asked) > 8 else 0.3

    told = ask(tmp_path, Endpoint(answer), traces=12, batch=3)
    assert told.verdicts.column("reasoning_quality").to_pylist() == [None] * 12
    assert told.verdicts.column("null_reason").unique().to_pylist() == ["canary_failed"]
    assert told.verdicts.column("retryable").to_pylist() == [True] * 12


def test_people_are_told_why_nothing_was_judged(tmp_path: Path) -> None:
    class Down(Endpoint):
        async def ask(self, model: JudgeModel, messages: Sequence[dict[str, str]]) -> RawReply:
            raise CallFailure("unauthorised", "AuthenticationError: no such key")

    lines: list[str] = []
    told = ask(tmp_path, Down(None), lines=lines)
    assert told.summary["llm_null"] == {"unauthorised": 6} and told.summary["llm_stopped"] == "unauthorised"
    assert any("unauthorised: AuthenticationError: no such key" in line for line in lines)


def test_a_missing_key_stops_before_the_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_TEST_KEY", raising=False)
    monkeypatch.setattr(__name__ + ".MODEL", MODEL.model_copy(update={"api_key_env": "JUDGE_TEST_KEY"}))
    with pytest.raises(Abort, match="the environment variable JUDGE_TEST_KEY is not set"):
        ask(tmp_path, JudgeRouter)


def test_a_day_with_nothing_to_ask_makes_no_endpoint(tmp_path: Path) -> None:
    class Never:
        def __init__(self, _: JudgeConfig) -> None:
            raise AssertionError

    told = ask(tmp_path, Never, wanted=[])
    assert told.verdicts.num_rows == 0 and told.calls.num_rows == 0


def test_a_wanted_trace_without_a_trajectory_is_no_silence(tmp_path: Path) -> None:
    with pytest.raises(FailPartition, match="1 traces to judge have no trajectory, the first is nowhere"):
        ask(tmp_path, Endpoint(lambda _: 0.7), wanted=["t0", "nowhere"])
