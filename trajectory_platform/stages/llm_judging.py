"""Asking LLM judges about one day: which traces, at what price, and where the answers are kept.

Only traces that every other stage of the filter would accept and that have no gateable verdict of a validator are
asked about. Replies are journalled as they come and published in ``judge_calls``; a day that was cut short goes on
where it stopped. What the budget or a failure leaves open is null with a reason, and the day is not complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from trajectory_platform.errors import FailPartition
from trajectory_platform.identity import digest_json
from trajectory_platform.judging import judge_prompt
from trajectory_platform.judging.canaries import canaries
from trajectory_platform.judging.judge_asking import Asks, Closes
from trajectory_platform.judging.judge_budget import Forecast, forecast
from trajectory_platform.judging.judge_journal import Journal, call_key, spent_usd
from trajectory_platform.judging.judge_models import JudgeConfig, JudgeModel, load_judge
from trajectory_platform.judging.judge_router import RawReply
from trajectory_platform.judging.judge_run import (
    CANARY_FAILED,
    JUDGED_VERSION,
    RUN_VERSION,
    JudgeOutcome,
    JudgeRequest,
    JudgeRun,
    Progress,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.settings import Settings

Row = dict[str, Any]
Batches = Callable[[], Iterator["pa.RecordBatch"]]
JOURNAL_FOLDER = "_judge_journal"
TELL_EVERY_S = 10.0


@dataclass(frozen=True)
class LLMJudge:
    """How to ask: the configuration, who answers, and how to tell people about it.

    Attributes:
        endpoint: makes the calls; built on first use, so that a day with nothing to ask imports no client.
        tell: takes lines for people: the forecast before the first call, then progress.
    """

    config: JudgeConfig
    endpoint: Callable[[JudgeConfig], Asks]
    tell: Callable[[str], None] = lambda _: None

    def identity(self) -> str:
        """Digest of what may change a verdict: models, their parameters, rubric, prompt and the way of asking."""
        return digest_json([self.config.identity(), JUDGED_VERSION, RUN_VERSION])


class LLMVerdicts(NamedTuple):
    """What a day's asking gave.

    Attributes:
        verdicts: VERDICTS rows of kind ``llm``.
        calls: all JUDGE_CALLS rows of the day, earlier ones included.
        summary: counts and money for people.
    """

    verdicts: pa.Table
    calls: pa.Table
    summary: dict[str, Any]


def configured_judge(settings: Settings, tell: Callable[[str], None] = lambda _: None) -> LLMJudge:
    """The LLM judge the settings name, behind litellm."""
    from trajectory_platform.judging.judge_router import JudgeRouter

    config = load_judge(
        settings.judge,
        api_base=settings.judge_api_base,
        api_key_env=settings.judge_api_key_env,
        usd_per_million_input=settings.judge_usd_per_million_input,
        usd_per_million_output=settings.judge_usd_per_million_output,
        usd_per_day=settings.judge_usd_per_day,
    )
    return LLMJudge(config, JudgeRouter, tell)


def ask_day(
    judge: LLMJudge,
    journal: Journal,
    day: str,
    *,
    wanted: Sequence[str],
    raw_rows: pa.Table,
    trajectory_batches: Batches,
    judged: pa.Table,
    published_calls: pa.Table,
    earlier_calls: Callable[[Sequence[str]], pa.Table] | None = None,
) -> LLMVerdicts:
    """Judge the wanted traces of a day.

    Args:
        wanted: trace ids, from ``curation.filter.worth_judging``.
        journal: the day's open journal. Rows that are published already are cleared from it first.
        published_calls: JUDGE_CALLS rows of the day.
        earlier_calls: JUDGE_CALLS rows of any day for given call keys: equal traces are paid for once.
    """
    import pyarrow as pa

    from trajectory_platform.judging.verdicts import llm_verdict
    from trajectory_platform.lake.tables import JUDGE_CALLS, VERDICTS

    _forget_published(journal, published_calls)
    known = published_calls.to_pylist()
    sizes, keys = _sizes(wanted, trajectory_batches, judged)
    elsewhere = _rows_of_keys(judge.config, keys, earlier_calls)
    spent = spent_usd(known) + spent_usd(journal.stream())
    answered = {row["call_key"] for row in chain(known, elsewhere, journal.stream()) if row["status"] == "ok"}
    told = _forecast(judge.config, sizes, keys, answered, spent)
    if wanted:
        judge.tell(f"{day}: {told.text()}")
    endpoint = _Lazy(judge)
    if told.calls:
        judge.config.check_keys()
        endpoint.make()
    run = JudgeRun(
        judge.config,
        endpoint,
        journal,
        day=day,
        earlier=[*known, *elsewhere],
        spent_before_usd=spent,
        first_sequence=max((row["sequence"] + 1 for row in known), default=0),
        total=len(wanted),
        progress=_Teller(judge.tell, day),
    )
    outcomes = _outcomes(run, _requests(wanted, trajectory_batches, judged), wanted)
    for name, kind, count, words in run.failures:
        judge.tell(f"{day}: {name}: {count} calls without a reply: {kind}: {words}")
    if outcomes:
        valued = sum(outcome.quality is not None for outcome in outcomes)
        judge.tell(f"{day}: {valued} of {len(outcomes)} traces have a value" + _why_not(outcomes))
    raw = {row["trace_id"]: row for row in raw_rows.select(["trace_id", "day"]).to_pylist()}
    rows = [llm_verdict(raw[outcome.trace_id], outcome, JUDGED_VERSION) for outcome in outcomes]
    calls = [*known, *journal.stream()]
    return LLMVerdicts(
        pa.Table.from_pylist(rows, schema=VERDICTS.schema()),
        pa.Table.from_pylist(calls, schema=JUDGE_CALLS.schema()),
        _summary(outcomes, calls, run),
    )


def _summary(outcomes: Sequence[JudgeOutcome], calls: Sequence[Mapping[str, Any]], run: JudgeRun) -> dict[str, Any]:
    reasons = Counter(outcome.null_reason for outcome in outcomes if outcome.null_reason)
    return {
        "llm_wanted": len(outcomes),
        "llm_judged": sum(outcome.quality is not None for outcome in outcomes),
        "llm_cached": sum(outcome.cached for outcome in outcomes),
        "llm_null": dict(sorted(reasons.items())),
        "llm_calls": sum(row["status"] not in ("batch_passed", "batch_failed") for row in calls),
        "llm_usd": round(run.spending.usd, 6),
        "llm_usd_day": round(spent_usd(calls), 6),
        "llm_stopped": run.stopped or "",
    }


def _why_not(outcomes: Sequence[JudgeOutcome]) -> str:
    reasons = Counter(outcome.null_reason for outcome in outcomes if outcome.null_reason)
    listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    return f"; null and asked again next time: {listed}" if listed else ""


def _outcomes(run: JudgeRun, requests: Iterator[JudgeRequest], wanted: Sequence[str]) -> list[JudgeOutcome]:
    """One outcome per wanted trace. What a model said before its canaries failed in a later batch is withdrawn."""
    outcomes = list(run.judge(requests))
    missing = set(wanted) - {outcome.trace_id for outcome in outcomes}
    if missing:
        raise FailPartition(f"{len(missing)} traces to judge have no trajectory, the first is {min(missing)}")
    return [
        outcome._replace(quality=None, null_reason=CANARY_FAILED, explanation=None, cached=False)
        if outcome.model in run.obeyed and outcome.quality is not None
        else outcome
        for outcome in outcomes
    ]


class _Lazy:
    """The endpoint of a judge, made at the first call."""

    def __init__(self, judge: LLMJudge) -> None:
        self._judge = judge
        self._endpoint: Asks | None = None

    def make(self) -> Asks:
        """The endpoint; Abort where a key or a package is missing."""
        if self._endpoint is None:
            self._endpoint = self._judge.endpoint(self._judge.config)
        return self._endpoint

    async def ask(self, model: JudgeModel, messages: Sequence[dict[str, str]]) -> RawReply:
        return await self.make().ask(model, messages)

    async def close(self) -> None:
        endpoint: object = self._endpoint
        if isinstance(endpoint, Closes):
            await endpoint.close()


class _Teller:
    """Progress lines, not more often than people read them; the last one always."""

    def __init__(self, tell: Callable[[str], None], day: str) -> None:
        self._tell, self._day, self._next = tell, day, 0.0

    def __call__(self, progress: Progress) -> None:
        if progress.seconds >= self._next or progress.done >= progress.total:
            self._next = progress.seconds + TELL_EVERY_S
            self._tell(_progress_text(self._day, progress))


def open_journal(lake_root: Path, day: str) -> Journal:
    """The journal of a day of a lake; RetryLater where another process has it."""
    return Journal(journal_folder(lake_root), day)


def journal_folder(lake_root: Path) -> Path:
    """Where the journals of a lake lie."""
    return lake_root / JOURNAL_FOLDER


def _forget_published(journal: Journal, published: pa.Table) -> None:
    """A publish that went through leaves its rows in the journal; they are dropped when the day is opened again."""
    columns = ["sequence", "call_key", "batch", "status"]
    there = {tuple(row.values()) for row in published.select(columns).to_pylist()}
    if there and all(tuple(row[name] for name in columns) in there for row in journal.stream()):
        journal.clear()


def _requests(wanted: Sequence[str], batches: Batches, judged: pa.Table) -> Iterator[JudgeRequest]:
    """What the judge may see of each wanted trace, in the order of the trajectories."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = pa.array(sorted(set(wanted)), pa.string())
    known = judged.select(["trace_id", "query", "query_verified"])
    queries = {row["trace_id"]: row for row in known.filter(pc.is_in(known["trace_id"], ids)).to_pylist()}
    for batch in batches():
        part = batch.select(["trace_id", "messages", "evidence"])
        for row in part.filter(pc.is_in(part.column("trace_id"), ids)).to_pylist():
            bound = queries[row["trace_id"]]
            shown = judge_prompt.judge_input(
                orjson.loads(row["messages"]),
                orjson.loads(row["evidence"]),
                query=bound["query"],
                query_verified=bound["query_verified"],
            )
            yield JudgeRequest(row["trace_id"], shown)


def _sizes(wanted: Sequence[str], batches: Batches, judged: pa.Table) -> tuple[list[int], list[str]]:
    """Bytes of every prompt and its content key, without keeping the prompts."""
    sizes, keys = [], []
    for request in _requests(wanted, batches, judged):
        key = judge_prompt.content_key(request.shown)
        prompt = judge_prompt.build(request.shown, nonce=judge_prompt.nonce_of(key))
        sizes.append(sum(len(message["content"].encode()) for message in prompt))
        keys.append(key)
    return sizes, keys


def _forecast(
    config: JudgeConfig, sizes: Sequence[int], keys: Sequence[str], answered: set[str], spent_before_usd: float
) -> Forecast:
    new: dict[str, int] = {}
    for size, key in zip(sizes, keys, strict=True):
        if not answered & set(_call_keys(config, key)):
            new.setdefault(key, size)
    asked = list(new.values())
    if new:
        batches = min(len(new), -(-len(keys) // config.batch))
        pairs = config.entrance_canaries + config.canaries * (batches - 1)
        asked += [_canary_bytes()] * (2 * pairs)
    told = forecast(config.models[0], config.budget, asked, traces=len(keys), spent_before_usd=spent_before_usd)
    return told._replace(cached=len(keys) - len(new))


def _canary_bytes() -> int:
    """Size of a canary's prompt."""
    shown = canaries("size", 1)[0].attacked
    return sum(len(message["content"].encode()) for message in judge_prompt.build(shown, nonce="0" * 20))


def _rows_of_keys(
    config: JudgeConfig, keys: Sequence[str], earlier_calls: Callable[[Sequence[str]], pa.Table] | None
) -> list[Mapping[str, Any]]:
    if earlier_calls is None or not keys:
        return []
    wanted = sorted({call for key in keys for call in _call_keys(config, key)})
    return list(earlier_calls(wanted).to_pylist())


def _call_keys(config: JudgeConfig, key: str) -> list[str]:
    return [call_key(key, JUDGED_VERSION, model.name, model.parameters()) for model in config.models]


def _progress_text(day: str, progress: Progress) -> str:
    left = "" if progress.left_s is None else f", {progress.left_s:.0f} s left"
    return f"{day}: judged {progress.done}/{progress.total}, {progress.per_second:.1f}/s, {progress.usd:.4f} USD{left}"
