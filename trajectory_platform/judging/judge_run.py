"""A run of LLM judgments over one subnet day: batches with canaries, cache, budget and progress.

Traces are judged in batches, so that memory is bounded by a batch and every value is backed by canaries of its own
batch and model. A model's first batch of a run waits for its canaries, later ones are asked beside them. Equal inputs
are asked once. The outcome of a batch is given out in the order of its requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any, NamedTuple

from trajectory_platform.identity import digest_json, sha256_hex
from trajectory_platform.judging import judge_prompt, rubric
from trajectory_platform.judging.canaries import Canary, CanaryResult, again, canaries, read_canaries
from trajectory_platform.judging.judge_asking import STOPS, Answer, Asker, Asks
from trajectory_platform.judging.judge_budget import Spending
from trajectory_platform.judging.judge_journal import Journal, call_key
from trajectory_platform.judging.judge_models import JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_prompt import JudgeInput
from trajectory_platform.judging.judge_router import INFRASTRUCTURE

RUN_VERSION = "llm-2"
CANARY_FAILED, CANARY_SILENT = "canary_failed", "canary_unanswered"
# Nulls of a batch, and what each means for people.
WITHHELD = {
    CANARY_FAILED: "the model did what a canary's words told it; nothing it said in this run is used",
    CANARY_SILENT: "the model gave no value for any canary pair, which proves nothing; it is asked no more",
}
_ANOTHER_DAY = 1 << 62  # behind every sequence of the day itself
_DECLINED = frozenset({"refused", "filtered", "forbidden", "request_refused"})
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
    seconds: float
    per_second: float
    usd: float
    left_s: float | None


class _Found(NamedTuple):
    """An answer with where it comes from; ``batch`` is None where its canaries have passed already."""

    answer: Answer
    cached: bool
    batch: str | None


class _Value(NamedTuple):
    """What is kept of an earlier reply."""

    quality: float
    explanation: str | None
    batch: str
    model: str


@dataclass
class Answered:
    """What earlier calls left: values by call key, canary values by (batch, call key), and which (batch, model)
    passed or failed its canaries.
    """

    values: dict[str, _Value]
    canary_values: dict[tuple[str, str], float]
    passed: set[tuple[str, str]]
    failed: set[tuple[str, str]]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]], day: str) -> Answered:
        """From rows of ``judge_calls``, journalled ones included.

        A model that failed a day's canaries has lost what it said about that day before: the canaries of one batch
        cannot hold every wording.
        """
        found = cls({}, {}, set(), set())
        last_failed: dict[str, int] = {}
        said: dict[str, tuple[int, str]] = {}
        for row in rows:
            place = (row["batch"], row["judge_model"])
            if row["status"] == "batch_passed":
                found.passed.add(place)
            elif row["status"] == "batch_failed":
                found.failed.add(place)
                if row["day"] == day:
                    last_failed[row["judge_model"]] = max(last_failed.get(row["judge_model"], -1), row["sequence"])
            elif row["status"] == "ok" and row.get("canary") is None:
                when = row["sequence"] if row["day"] == day else _ANOTHER_DAY
                if said.get(row["call_key"], (-1, ""))[0] <= when:
                    found.values[row["call_key"]] = _Value(row["quality"], row.get("explanation"), *place)
                    said[row["call_key"]] = (when, row["judge_model"])
            elif row["status"] == "ok":
                found.canary_values[row["batch"], row["call_key"]] = row["quality"]
        for key, (when, model) in said.items():
            if when < last_failed.get(model, -1):
                del found.values[key]
        return found


class JudgeRun:
    """One run over one day. ``judge`` may be called once.

    Attributes:
        spending: money and tokens so far.
        obeyed: models that failed their canaries; the caller withdraws what they said in earlier batches.
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
        self._answered = Answered.from_rows(chain(earlier, journal.stream()), day)
        self._sequence = max(chain([first_sequence], (row["sequence"] + 1 for row in journal.stream())))
        self.spending = Spending(config.budget, spent_before_usd)
        self._asker = Asker(config, endpoint, self.spending, self._record, clock, sleep)
        self._done: dict[str, _Found] = {}  # by content key: equal inputs are one question
        self._proven: set[str] = set()
        self.obeyed: set[str] = set()

    @property
    def stopped(self) -> str | None:
        """Why the run ended early: a reason of ``judge_asking.STOPS``, or why the last model went out; or None."""
        return self._asker.stopped

    @property
    def failures(self) -> list[tuple[str, str, int, str]]:
        """Calls without a reply: (model, kind, how many, the endpoint's first words about it)."""
        return [(*place, count, self._asker.details[place]) for place, count in sorted(self._asker.failed.items())]

    def judge(self, requests: Iterable[JudgeRequest]) -> Iterator[JudgeOutcome]:
        """Outcomes in the order of the requests; consumes them batch by batch."""
        source, begun, done = iter(requests), self._clock(), 0
        with asyncio.Runner() as runner:
            runner.run(self._open())
            try:
                number = 0
                while batch := list(islice(source, self.config.batch)):
                    outcomes = runner.run(self._batch(batch, number))
                    number += 1
                    done += len(batch)
                    self._progress(self._status(done, begun))
                    yield from outcomes
            finally:
                runner.run(self._asker.close())

    async def _open(self) -> None:
        self._asker.open()
        self._slots = asyncio.Semaphore(self.config.concurrency)

    def _status(self, done: int, begun: float) -> Progress:
        seconds = self._clock() - begun
        rate = done / seconds if seconds > 0 else 0.0
        left = (self.total - done) / rate if rate > 0 and self.total >= done else None
        return Progress(done, self.total, seconds, rate, self.spending.usd, left)

    async def _batch(self, requests: list[JudgeRequest], number: int) -> list[JudgeOutcome]:
        keys = [judge_prompt.content_key(request.shown) for request in requests]
        batch = self._batch_name(number, keys)
        asked = {key: request.shown for key, request in zip(keys, requests, strict=True) if key not in self._done}
        verdict: dict[str, str | None] = {}
        beside: asyncio.Task[str | None] | None = None
        if any(self._earlier(key, batch) is None for key in asked):
            while (first := self._asker.first_model()) is not None and first not in verdict:
                if first in self._proven:
                    beside = asyncio.create_task(self._try_canaries(first, batch))
                    break
                verdict[first] = await self._try_canaries(first, batch)
        answers = await asyncio.gather(*(self._question(key, shown, batch) for key, shown in asked.items()))
        for key, found in zip(asked, answers, strict=True):
            self._done[key] = found
        if beside is not None and first is not None:
            verdict[first] = await beside
        used = {found.answer.model for found in answers if found.batch == batch and found.answer.model}
        for name in sorted(used - set(verdict)):
            verdict[name] = await self._try_canaries(name, batch)
        paid = set[str]()
        outcomes = [
            self._outcome(request.trace_id, key, verdict, batch, paid)
            for request, key in zip(requests, keys, strict=True)
        ]
        self._settle_batch(asked, verdict, batch)
        return outcomes

    def _batch_name(self, number: int, keys: list[str]) -> str:
        """The same for the same traces, so that a run that was cut off goes on; another one after failed canaries."""
        failed = {batch for batch, _ in self._answered.failed}
        about = [self.day, number, keys, self.config.identity(), JUDGED_VERSION, RUN_VERSION]
        for again_number in count():
            name = "b-" + sha256_hex(digest_json([*about, again_number]).encode())[:16]
            if name not in failed:
                return name
        raise AssertionError("count() has no end")

    def _settle_batch(self, asked: Iterable[str], verdict: Mapping[str, str | None], batch: str) -> None:
        """Values withheld here must be asked for again; proven ones need no batch any more."""
        for key in asked:
            found = self._done[key]
            reason = verdict.get(found.answer.model or "") if found.batch == batch else None
            if reason is not None or found.answer.quality is None:
                del self._done[key]
            else:
                self._done[key] = _Found(found.answer, True, None)

    async def _question(self, key: str, shown: JudgeInput, batch: str) -> _Found:
        """An earlier value where one may be used, else a new one."""
        earlier = self._earlier(key, batch)
        if earlier is not None:
            return earlier
        nonce = judge_prompt.nonce_of(key)
        about = {"batch": batch, "canary": None, "content_key": key}
        async with self._slots:
            answer = await self._asker.answer(judge_prompt.build(shown, nonce=nonce), nonce, about)
        self._asker.note(answer)
        return _Found(answer, False, batch)

    def _earlier(self, key: str, batch: str) -> _Found | None:
        """The value an earlier call gave, unless its batch failed the canaries."""
        for model in self.config.models:
            value = self._answered.values.get(self._key(key, model))
            if value is None or model.name in self.obeyed:
                continue
            place = (value.batch, value.model)
            if place in self._answered.failed:
                continue
            earlier = Answer(value.quality, None, model.name, value.explanation, 0.0, 0)
            # A value whose batch a crash ended before its canaries were read leans on this batch's canaries.
            return _Found(earlier, True, None if place in self._answered.passed else batch)
        return None

    async def _try_canaries(self, name: str, batch: str) -> str | None:
        """Ask one model the batch's canaries; None when it passed, else why its values are withheld."""
        if (batch, name) in self._answered.passed:
            self._proven.add(name)
            return None
        pairs = canaries(batch, self.config.canaries if name in self._proven else self.config.entrance_canaries)
        answers = await self._ask_canaries(name, pairs, batch)
        result = _read(pairs, answers)
        if result.obeyed:  # a judge's noise may raise a value once, obedience does it again
            second = [again(pair, batch) for pair in pairs if pair.name in result.obeyed]
            repeated = _read(second, await self._ask_canaries(name, second, batch))
            if repeated.obeyed or repeated.answered < len(second):
                self.obeyed.add(name)
                self._asker.disable(name, CANARY_FAILED)
                self._note_batch(batch, name, "batch_failed", ",".join(repeated.obeyed or result.obeyed))
                return CANARY_FAILED
        if not result.answered:
            if self._asker.stopped in STOPS:
                return self._asker.stopped
            self._asker.disable(name, CANARY_SILENT)
            return self._asker.disabled(name)
        self._proven.add(name)
        self._note_batch(batch, name, "batch_passed", f"{result.answered} pairs")
        return None

    async def _ask_canaries(self, name: str, pairs: list[Canary], batch: str) -> dict[tuple[int, bool], Answer]:
        model = next(model for model in self.config.models if model.name == name)
        misses: list[str] = []

        async def answer(number: int, attacked: bool) -> Answer:
            pair = pairs[number]
            shown = pair.attacked if attacked else pair.control
            key = judge_prompt.content_key(shown)
            known = self._answered.canary_values.get((batch, self._key(key, model)))
            if known is not None:  # of a run that was cut off
                return Answer(known, None, name, None, 0.0, 0)
            nonce = judge_prompt.nonce_of(key, batch)
            label = f"{pair.name}:{'attacked' if attacked else 'control'}"
            about = {"batch": batch, "canary": label, "content_key": key}
            async with self._slots:
                told = await self._asker.answer(judge_prompt.build(shown, nonce=nonce), nonce, about, only=name)
            if told.null_reason in INFRASTRUCTURE:
                misses.append(told.null_reason)
                if len(misses) >= self.config.breaker:  # this model only: another one may answer
                    self._asker.disable(name, told.null_reason)
            return told

        places = [(number, attacked) for number in range(len(pairs)) for attacked in (False, True)]
        answers = await asyncio.gather(*(answer(*place) for place in places))
        return dict(zip(places, answers, strict=True))

    def _outcome(
        self, trace_id: str, key: str, verdict: Mapping[str, str | None], batch: str, paid: set[str]
    ) -> JudgeOutcome:
        found = self._done[key]
        answer = found.answer
        cached = found.cached or key in paid
        usd = 0.0 if cached else answer.usd  # one payment for equal traces
        paid.add(key)
        model = answer.model or self.config.models[0].name
        withheld = verdict.get(model) if found.batch == batch and answer.model else None
        if model in self.obeyed and answer.model:
            withheld = CANARY_FAILED
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


def _read(pairs: list[Canary], answers: Mapping[tuple[int, bool], Answer]) -> CanaryResult:
    values = {place: answer.quality for place, answer in answers.items()}
    return read_canaries(pairs, values, {place for place, answer in answers.items() if answer.null_reason in _DECLINED})
