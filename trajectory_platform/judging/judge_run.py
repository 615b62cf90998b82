"""A run of LLM judgments over one subnet day: batches with canaries, cache, budget and progress.

Traces are judged in batches, so that memory is bounded by a batch and every value is backed by canaries of its own
batch and model. Equal inputs are asked once. The outcome of a batch is given out in the order of its requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from trajectory_platform.identity import digest_json, sha256_hex
from trajectory_platform.judging import judge_prompt, rubric
from trajectory_platform.judging.canaries import Canary, canaries, read_canaries
from trajectory_platform.judging.judge_asking import Answer, Asker, Asks
from trajectory_platform.judging.judge_budget import Spending
from trajectory_platform.judging.judge_journal import Journal, call_key
from trajectory_platform.judging.judge_models import JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_prompt import JudgeInput

RUN_VERSION = "llm-1"
CANARY_FAILED, CANARY_SILENT = "canary_failed", "canary_unanswered"
JUDGED_VERSION = f"{rubric.RUBRIC_VERSION}/{judge_prompt.PROMPT_VERSION}"


class JudgeRequest(NamedTuple):
    """A trace to judge and what the judge may see of it."""

    trace_id: str
    shown: JudgeInput


class JudgeOutcome(NamedTuple):
    """The verdict of one trace: a value, or null with a reason. Every null may be asked again later.

    Attributes:
        model: who gave the value; the first configured model where nobody did.
        usd: cost of the calls made for this trace in this run; 0 for a cached value.
    """

    trace_id: str
    quality: float | None
    null_reason: str | None
    model: str
    explanation: str | None
    usd: float
    cached: bool


class Progress(NamedTuple):
    """How far a run is; ``left_s`` is None until a rate is known."""

    done: int
    total: int
    per_second: float
    usd: float
    left_s: float | None


class _Found(NamedTuple):
    """An answer with where it comes from; ``batch`` is None where its canaries have passed already."""

    answer: Answer
    cached: bool
    batch: str | None


@dataclass
class Answered:
    """What earlier calls left: value by call key, and which (batch, model) passed or failed its canaries."""

    values: dict[str, Mapping[str, Any]]
    passed: set[tuple[str, str]]
    failed: set[tuple[str, str]]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Answered:
        """From rows of ``judge_calls``, journalled ones included."""
        found = cls({}, set(), set())
        for row in rows:
            place = (row["batch"], row["judge_model"])
            if row["status"] == "batch_passed":
                found.passed.add(place)
            elif row["status"] == "batch_failed":
                found.failed.add(place)
            elif row["status"] == "ok" and row.get("canary") is None:
                found.values[row["call_key"]] = row
        return found


class JudgeRun:
    """One run over one day. ``judge`` may be called once.

    Attributes:
        spending: money and tokens so far.
        stopped: why the run ended early (budget_exhausted, circuit_open, no_model_available), or None.
    """

    def __init__(
        self,
        config: JudgeConfig,
        endpoint: Asks,
        journal: Journal,
        *,
        day: str,
        earlier: Iterable[Mapping[str, Any]] = (),
        spent_before_usd: float = 0.0,
        first_sequence: int = 0,
        total: int = 0,
        progress: Callable[[Progress], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """
        Args:
            journal: the day's open journal; its rows count as earlier calls too.
            earlier: rows of ``judge_calls`` that may answer requests of this run.
            spent_before_usd: paid for this day in earlier runs.
            first_sequence: number of the first journal row, behind those that are published.
        """
        self.config, self.day, self.total = config, day, total
        self._journal, self._progress, self._clock = journal, progress, clock
        self._answered = Answered.from_rows([*earlier, *journal.rows])
        self._sequence = max([first_sequence, *(row["sequence"] + 1 for row in journal.rows)])
        self.spending = Spending(config.budget, spent_before_usd)
        self._asker = Asker(config, endpoint, self.spending, self._record, clock, sleep)
        self._done: dict[str, _Found] = {}  # by content key: equal inputs are one question

    @property
    def stopped(self) -> str | None:
        return self._asker.stopped

    def judge(self, requests: Iterable[JudgeRequest]) -> Iterator[JudgeOutcome]:
        """Outcomes in the order of the requests; consumes them batch by batch."""
        source, begun, done = iter(requests), self._clock(), 0
        with asyncio.Runner() as runner:
            number = 0
            while batch := list(islice(source, self.config.batch)):
                yield from runner.run(self._batch(batch, number))
                number += 1
                done += len(batch)
                self._progress(self._status(done, begun))

    def _status(self, done: int, begun: float) -> Progress:
        seconds = self._clock() - begun
        rate = done / seconds if seconds > 0 else 0.0
        left = (self.total - done) / rate if rate > 0 and self.total >= done else None
        return Progress(done, self.total, rate, self.spending.usd, left)

    async def _batch(self, requests: list[JudgeRequest], number: int) -> list[JudgeOutcome]:
        self._asker.open()
        keys = [judge_prompt.content_key(request.shown) for request in requests]
        batch = "b-" + sha256_hex(digest_json([self.day, number, keys]).encode())[:16]
        pairs = canaries(batch, self.config.canaries)
        slots = asyncio.Semaphore(self.config.concurrency)
        asked = {key: request.shown for key, request in zip(keys, requests, strict=True) if key not in self._done}
        verdict: dict[str, str | None] = {}
        first_model = self._asker.first_model()
        if first_model and any(self._earlier(key, batch) is None for key in asked):
            verdict[first_model] = await self._try_canaries(first_model, pairs, batch)

        async def one(key: str, shown: JudgeInput) -> tuple[str, _Found]:
            async with slots:
                return key, await self._question(key, shown, batch)

        for key, found in await asyncio.gather(*(one(key, shown) for key, shown in asked.items())):
            self._done[key] = found
        used = sorted(
            {found.answer.model for found in self._done.values() if found.batch == batch and found.answer.model}
        )
        for name in used:
            if verdict.get(name, CANARY_SILENT) == CANARY_SILENT:
                verdict[name] = await self._try_canaries(name, pairs, batch)
        outcomes, first = [], set[str]()
        for request, key in zip(requests, keys, strict=True):
            outcomes.append(self._outcome(request.trace_id, key, verdict, batch, first))
        for key in asked:  # values withheld here must be asked for again; proven ones need no batch any more
            found = self._done[key]
            reason = verdict.get(found.answer.model or "") if found.batch == batch else None
            if reason is not None or found.answer.quality is None:
                del self._done[key]
            else:
                self._done[key] = _Found(found.answer, True, None)
        return outcomes

    async def _question(self, key: str, shown: JudgeInput, batch: str) -> _Found:
        """An earlier value where one may be used, else a new one."""
        earlier = self._earlier(key, batch)
        if earlier is not None:
            return earlier
        nonce = judge_prompt.nonce_of(key)
        about = {"batch": batch, "canary": None, "content_key": key}
        answer = await self._asker.answer(judge_prompt.build(shown, nonce=nonce), nonce, about)
        self._asker.note(answer)
        return _Found(answer, False, batch)

    def _earlier(self, key: str, batch: str) -> _Found | None:
        """The value an earlier call gave, unless its batch failed the canaries."""
        for model in self.config.models:
            row = self._answered.values.get(self._key(key, model))
            if row is None:
                continue
            place = (row["batch"], row["judge_model"])
            if place in self._answered.failed:
                continue
            earlier = Answer(row["quality"], None, model.name, row.get("explanation"), 0.0, 0)
            # A value whose batch a crash ended before its canaries were read leans on this batch's canaries.
            return _Found(earlier, True, None if place in self._answered.passed else batch)
        return None

    async def _try_canaries(self, name: str, pairs: list[Canary], batch: str) -> str | None:
        """Ask one model the batch's canaries; None when it passed, else why its values are withheld."""

        async def value(number: int, attacked: bool) -> tuple[tuple[int, bool], float | None]:
            pair = pairs[number]
            shown = pair.attacked if attacked else pair.control
            key = judge_prompt.content_key(shown)
            nonce = judge_prompt.nonce_of(key, batch)
            label = f"{pair.name}:{'attacked' if attacked else 'control'}"
            about = {"batch": batch, "canary": label, "content_key": key}
            answer = await self._asker.answer(judge_prompt.build(shown, nonce=nonce), nonce, about, only=name)
            self._asker.note(answer)
            return (number, attacked), answer.quality

        values = dict(await asyncio.gather(*(value(n, side) for n in range(len(pairs)) for side in (False, True))))
        result = read_canaries(pairs, values)
        if result.obeyed:
            self._asker.disable(name, CANARY_FAILED)
            self._note_batch(batch, name, "batch_failed", ",".join(result.obeyed))
            return CANARY_FAILED
        if not result.answered:
            return CANARY_SILENT
        self._note_batch(batch, name, "batch_passed", f"{result.answered} pairs")
        return None

    def _outcome(
        self, trace_id: str, key: str, verdict: Mapping[str, str | None], batch: str, first: set[str]
    ) -> JudgeOutcome:
        found = self._done[key]
        answer = found.answer
        usd = 0.0 if found.cached or key in first else answer.usd  # one payment for equal traces
        cached = found.cached or key in first
        first.add(key)
        model = answer.model or self.config.models[0].name
        withheld = verdict.get(model) if found.batch == batch and answer.model else None
        if withheld is not None:
            return JudgeOutcome(trace_id, None, withheld, model, None, usd, False)
        if answer.quality is None:
            return JudgeOutcome(trace_id, None, answer.null_reason, model, None, usd, False)
        return JudgeOutcome(trace_id, answer.quality, None, model, answer.explanation, usd, cached)

    def _key(self, key: str, model: JudgeModel) -> str:
        return call_key(key, JUDGED_VERSION, model.name, model.parameters())

    def _record(self, row: dict[str, Any]) -> None:
        model = next(model for model in self.config.models if model.name == row["judge_model"])
        self._append({**row, "call_key": self._key(row["content_key"], model)})

    def _note_batch(self, batch: str, name: str, status: str, detail: str) -> None:
        place = (batch, name)
        (self._answered.passed if status == "batch_passed" else self._answered.failed).add(place)
        blank = dict.fromkeys(("quality", "prompt_tokens", "completion_tokens", "canary"))
        self._append(
            {
                **blank,
                "batch": batch,
                "judge_model": name,
                "status": status,
                "explanation": detail,
                "call_key": "",
                "content_key": "",
                "rubric_version": rubric.RUBRIC_VERSION,
                "attempt": 0,
                "cost_usd": 0.0,
                "cost_known": True,
                "raw_reply": "",
            }
        )

    def _append(self, row: dict[str, Any]) -> None:
        self._journal.append({"day": self.day, "sequence": self._sequence, **row})
        self._sequence += 1
