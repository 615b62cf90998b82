"""What is shown of a trace is what the lake holds of it: every call once, every judge, and nothing that is sealed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.lake import ledger, sealing, tables
from trajectory_platform.lake.publish import Lake
from trajectory_platform.settings import Settings
from trajectory_platform.stages import daily
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.trace_choice import traces_of_checkpoint, traces_of_day, traces_of_problem
from trajectory_platform.stages.trace_pages import write_trace_pages
from trajectory_platform.stages.trace_seals import sealed_keys
from trajectory_platform.stages.trace_turns import time_ms, turns_of
from trajectory_platform.stages.trace_views import trace_views
from trajectory_platform.stages.traces import find_trace
from trajectory_platform_tests.conftest import shared_folder
from trajectory_platform_tests.lake.sealed_lake import CHECKPOINT, MARK, TRACES, sealed_lake
from trajectory_platform_tests.reports.trace_samples import view
from trajectory_platform_tests.stages.built_lake import context, publish
from trajectory_platform_tests.stages.built_lake import row as row_of

DAY = "2026-05-02"
NOW = datetime(2026, 5, 3, tzinfo=UTC)


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StageContext]:
    days = shared_folder() / "days"
    if not days.is_dir():
        pytest.skip(f"no shared days in {days}")
    root = tmp_path_factory.mktemp("views")
    made = StageContext(Settings(data_root=str(days), lake_uri=str(root / "lake")))
    for stage in (daily.raw_traces, daily.problem_suites, daily.trajectories, daily.judged_traces, daily.axis_a_corpus):
        stage(made, DAY)
    yield made


@pytest.fixture(scope="module")
def views(ctx: StageContext) -> dict[str, dict[str, Any]]:
    ids = ctx.lake.read(tables.RAW_TRACES, [DAY], columns=["trace_id"])["trace_id"].to_pylist()
    return {one["trace_id"]: one for one in trace_views(ctx, ids)}


def test_every_pair_of_the_day_has_a_view_of_the_documented_shape(
    ctx: StageContext, views: dict[str, dict[str, Any]]
) -> None:
    assert len(views) == ctx.lake.read(tables.RAW_TRACES, [DAY], columns=["trace_id"]).num_rows
    shape = view()
    for one in views.values():
        assert one.keys() == shape.keys()
        for turn in one["turns"]:
            assert turn.keys() == shape["turns"][0].keys()
            assert all(call.keys() == shape["turns"][0]["calls"][0].keys() for call in turn["calls"])
        assert json.loads(json.dumps(one)) == one


def test_every_message_and_call_is_in_the_turns_once(ctx: StageContext, views: dict[str, dict[str, Any]]) -> None:
    """Conservation: texts, calls and results of the stored messages and of the view are the same multisets."""
    for row in ctx.lake.read(tables.TRAJECTORIES, [DAY]).to_pylist():
        stored, shown = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for message in json.loads(row["messages"]):
            kind = {"assistant": "said", "tool": "result"}.get(message["role"], "other")
            stored[kind, message.get("content") or ""] += 1
            if message["role"] == "assistant":
                stored["think", message.get("reasoning_content") or ""] += 1
            for call in message.get("tool_calls") or ():
                stored["call", f"{call['function']['name']} {call['function']['arguments']}"] += 1
        one = views[row["trace_id"]]
        for turn in one["turns"]:
            shown["said", turn["content"]] += 1
            shown["think", turn["think"]] += 1
            shown.update(("other", said["text"]) for said in turn["before"])
            shown.update(("call", f"{call['name']} {call['arguments']}") for call in turn["calls"])
            shown.update(("result", call["result"]) for call in turn["calls"] if call["result"] is not None)
            shown.update(("result", orphan["text"]) for orphan in turn["orphans"])
        shown.update(("other", said["text"]) for said in one["after"])
        assert shown == stored
        assert [turn["number"] for turn in one["turns"]] == list(range(1, len(one["turns"]) + 1))


def test_many_traces_at_once_are_told_what_one_is_told(ctx: StageContext, views: dict[str, dict[str, Any]]) -> None:
    told = 0
    for name, one in sorted(views.items())[::7]:
        if not one["readable"]:
            continue
        row = find_trace(ctx.settings, name, at=NOW)
        decision = row["decision"]
        assert one["verdicts"] == decision["verdicts"] and one["path"] == decision["path"]
        assert one["axis"] == decision["axis"]
        state = "accepted" if row["accepted"] else "rejected"
        assert one["decision"]["state"] == state
        assert one["decision"]["reason"] == (None if row["accepted"] else row["rejected"][0]["reason"])
        told += 1
    assert told >= 8


def test_who_emitted_a_call_and_when_comes_from_the_log(views: dict[str, dict[str, Any]]) -> None:
    readable = [one for one in views.values() if one["turns"] and one["axis"]]
    made = Counter(
        (one["axis"]["label"], call["emitted"]) for one in readable for t in one["turns"] for call in t["calls"]
    )
    assert made["A", True] > 50 and made["B", False] > 50
    for one in readable:
        flags = [flag for turn in one["axis"]["emitted"] for flag in turn]
        assert flags == [call["emitted"] for turn in one["turns"] for call in turn["calls"]]
    timed = [
        call for one in readable for turn in one["turns"] for call in turn["calls"] if call["start_ms"] is not None
    ]
    assert len(timed) > 100
    assert all(call["start_ms"] <= call["end_ms"] and call["status"] is not None for call in timed)


def test_an_unreadable_pair_is_shown_with_its_reason(views: dict[str, dict[str, Any]]) -> None:
    told = {one["malformed"] for one in views.values() if not one["readable"]}
    assert {"no_trace", "run_unusable"} <= told
    assert all(one["turns"] == [] and one["malformed"] for one in views.values() if not one["readable"])


def test_an_unknown_trace_is_named(ctx: StageContext) -> None:
    with pytest.raises(Abort, match="no trace 'r1:x.1m' in .*and 1 more".replace(".1m", "")):
        trace_views(ctx, ["r1:x", "r2:y"])


def test_traces_of_a_problem_differ_as_far_as_they_can(ctx: StageContext, views: dict[str, dict[str, Any]]) -> None:
    by_problem: dict[str, set[bool | None]] = {}
    for one in views.values():
        if one["outcome"] is not None and one["facts"]["problem_key"]:
            by_problem.setdefault(one["facts"]["problem_key"], set()).add(one["outcome"]["success"])
    key = next(key for key, outcomes in sorted(by_problem.items()) if {True, False} <= outcomes)
    chosen = traces_of_problem(ctx, key, limit=2)
    assert {views[name]["outcome"]["success"] for name in chosen} == {True, False}
    problem = views[chosen[0]]["facts"]["problem_id"]
    assert traces_of_problem(ctx, problem, limit=2) == chosen
    assert len(traces_of_problem(ctx, key, limit=100)) == len(set(traces_of_problem(ctx, key, limit=100)))
    with pytest.raises(Abort, match="no trace of a problem 'nothing'"):
        traces_of_problem(ctx, "nothing", limit=2)


def test_traces_of_a_day_by_what_became_of_them(ctx: StageContext, views: dict[str, dict[str, Any]]) -> None:
    everything = traces_of_day(ctx, DAY)
    assert sorted(everything) == sorted(views) and everything == traces_of_day(ctx, DAY)
    accepted, rejected = (traces_of_day(ctx, DAY, only=word) for word in ("accepted", "rejected"))
    assert sorted((*accepted, *rejected)) == sorted(everything)
    assert {views[name]["decision"]["reason"] for name in traces_of_day(ctx, DAY, only="axis_b")} == {"axis_b"}
    assert all(views[name]["outcome"]["success"] for name in traces_of_day(ctx, DAY, only="success"))
    with pytest.raises(Abort, match="no trace of 2026-05-02 is 'brilliant': accepted, rejected"):
        traces_of_day(ctx, DAY, only="brilliant")
    with pytest.raises(Abort, match="curated"):
        traces_of_day(ctx, "2020-01-01")


def test_pages_are_written_whole_and_the_same_each_time(ctx: StageContext, tmp_path: Path) -> None:
    ids = traces_of_day(ctx, DAY)[:3]
    one = write_trace_pages(ctx.settings, tmp_path / "a.html", ids, at=NOW)
    again = write_trace_pages(ctx.settings, tmp_path / "b.html", ids, at=NOW)
    assert one["traces"] == again["traces"] == ids
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    each = write_trace_pages(ctx.settings, tmp_path / "pages", ids, at=NOW)
    assert sorted(each["files"]) == sorted(str(path) for path in (tmp_path / "pages").iterdir())
    assert len(each["files"]) == 3
    with pytest.raises(Abort, match="not both"):
        write_trace_pages(ctx.settings, tmp_path / "a.html", ids, problem="p", at=NOW)
    with pytest.raises(Abort, match="at most 8"):
        write_trace_pages(ctx.settings, tmp_path / "a.html", traces_of_day(ctx, DAY)[:9], at=NOW)


@pytest.fixture
def sealed(tmp_path: Path) -> StageContext:
    sealed_lake(tmp_path / "lake")
    return StageContext(Settings(lake_uri=str(tmp_path / "lake"), data_root=str(tmp_path / "days")))


def test_a_sealed_trace_shows_no_word_without_a_reason(sealed: StageContext) -> None:
    closed = [name for name in TRACES.values() if name != TRACES["open"]]
    told = trace_views(sealed, closed)
    assert all(one["withheld"] and one["sealed"] for one in told)
    assert MARK not in json.dumps(told)
    assert ledger.read_ledger(sealed.lake).looks == ()


def test_a_page_of_a_sealed_trace_is_refused_without_a_reason_and_nothing_is_written(
    sealed: StageContext, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    for problem, ids in ((None, [TRACES["sealed"]]), ("s", [])):
        with pytest.raises(Abort, match="--sealed REASON"):
            write_trace_pages(sealed.settings, out, ids, problem=problem, at=NOW)
    assert not out.exists()


def test_a_look_at_a_sealed_trace_is_recorded_before_it_is_shown(
    sealed: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def view(*_: Any, **__: Any) -> None:
        seen.append(ledger.read_ledger(sealed.lake).looks)

    monkeypatch.setattr("trajectory_platform.stages.trace_views._Rows.view", view)
    trace_views(sealed, [TRACES["sealed"], TRACES["race"]], sealed_reason="a dispute", at=NOW)
    looks = seen[0]
    assert [(look.what, look.reason, look.at) for look in looks] == [("traces page", "a dispute", NOW.isoformat())]
    assert set(looks[0].keys or ()) == {"ks", "kr"}
    assert TRACES["sealed"] in (looks[0].detail or "")


def test_open_traces_need_no_reason_and_leave_no_record(sealed: StageContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajectory_platform.stages.trace_views._Rows.view", lambda _, name, sealed: {name: sealed})
    assert trace_views(sealed, [TRACES["open"]], sealed_reason="why not", at=NOW) == [{TRACES["open"]: False}]
    assert ledger.read_ledger(sealed.lake).looks == ()


def test_one_trace_and_many_are_sealed_by_one_rule(tmp_path: Path) -> None:
    lake = sealed_lake(tmp_path / "lake")
    single = {name: sealing.sealed_problems_of(lake, name) for name in TRACES.values()}
    many = sealing.sealed_problems_of_many(lake, TRACES.values())
    assert many == {name: keys for name, keys in single.items() if keys is not None}
    assert set(many) == set(TRACES.values()) - {TRACES["open"]}


def test_attempts_are_sealed_by_their_problem_and_by_their_text(tmp_path: Path) -> None:
    lake: Lake = sealed_lake(tmp_path / "lake")
    rows = [
        {"trace_id": "rollout-1:x", "problem_key": "ks"},
        {"trace_id": "rollout-2:s", "problem_key": "ko"},
        {"trace_id": "rollout-3:o", "problem_key": "ko", "content_hash": "h-sealed"},
        {"trace_id": "rollout-4:o", "problem_key": "ko", "content_hash": "h-open"},
        {"trace_id": "rollout-5:o", "problem_key": "ko", "problem_id": "s"},
    ]
    found = sealed_keys(lake, rows)
    assert set(found) == {"rollout-1:x", "rollout-2:s", "rollout-3:o", "rollout-5:o"}


def test_what_a_checkpoint_did_and_what_it_was_fed(sealed: StageContext) -> None:
    assert set(traces_of_checkpoint(sealed, CHECKPOINT)) == set(TRACES.values()) - {TRACES["new"]}
    assert traces_of_checkpoint(sealed, CHECKPOINT, fed=True) == [TRACES["open"]]
    with pytest.raises(Abort, match="no trace fed to 'sft-none'"):
        traces_of_checkpoint(sealed, "sft-none", fed=True)


def test_a_sealed_score_that_nobody_looked_at_is_not_shown(tmp_path: Path) -> None:
    """Attempts at sealed problems with scores: the evaluation must be in the ledger, not only the person's look."""
    ctx = context(tmp_path)
    part = {"stage": "sft"}
    about = {
        "trace_id": "rollout-1:s",
        "checkpoint_id": "sft-1",
        "problem_id": "s",
        "problem_key": "ks",
        "stage": "sft",
    }
    attempt = {**about, "messages": '[{"role":"user","content":"q"}]', "evidence": "null", "source_steps": "[]"}
    publish(ctx, tables.LEAK_CLUSTERS, DAY, [row_of(tables.LEAK_CLUSTERS, day=DAY, problem_key="ks", pool="sealed")])
    publish(ctx, tables.ROLLOUTS, DAY, [row_of(tables.ROLLOUTS, day=DAY, repairs="[]", **attempt)], part=part)
    score = row_of(tables.EVAL_SCORES, day=DAY, pool="sealed", outcome="success", success=True, score="{}", **about)
    publish(ctx, tables.EVAL_SCORES, DAY, [score], part=part)
    (told,) = trace_views(ctx, ["rollout-1:s"])
    assert told["withheld"] and told["kind"] == "rollout"
    with pytest.raises(FailPartition, match="without a look"):
        trace_views(ctx, ["rollout-1:s"], sealed_reason="curious", at=NOW)
    ledger.record(ctx.lake, what=ledger.EVALUATION, checkpoint_id="sft-1", reason="claim", at=NOW, keys=["ks"])
    (told,) = trace_views(ctx, ["rollout-1:s"], sealed_reason="curious", at=NOW)
    assert told["query"] == "q" and told["outcome"]["success"] is True and told["sealed"]


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        *((1_777_745_170_123, 1_777_745_170_123.0), (1_777_745_170, 1_777_745_170_000.0)),
        *((None, None), (True, None), ("1777745170", None), (-5, None), (float("nan"), None), (10**20, None)),
    ],
    ids=["milliseconds", "seconds", "none", "bool", "text", "negative", "nan", "far"],
)
def test_only_a_time_is_a_time(stamp: Any, expected: float | None) -> None:
    assert time_ms(stamp) == expected


def test_odd_messages_lose_nothing() -> None:
    """Calls of one id, results without a call or before any turn, contents that are no text, a call that is none."""
    messages: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": "x", "content": "early"},
        {"role": "assistant", "content": [{"type": "text"}], "tool_calls": [
            {"id": "c", "function": {"name": "find_product", "arguments": {"q": 1}}},
            {"id": "c", "function": {"name": "find_product", "arguments": "no json"}},
            "not a call",
        ]},
        {"role": "tool", "tool_call_id": "c", "content": "first"},
        {"role": "tool", "tool_call_id": "c", "content": {"error": "second"}},
        {"role": "tool", "tool_call_id": "c", "name": "ghost", "content": "third"},
        {"role": "user", "content": "late"},
    ]  # fmt: skip
    (turn,), after = turns_of(messages)
    assert turn["before"] == [{"role": "tool", "text": "early"}]
    assert [(call["name"], call["result"], call["error"]) for call in turn["calls"]] == [
        *(("find_product", "first", None), ("find_product", '{"error":"second"}', "second"), ("", None, None))
    ]
    assert turn["calls"][2]["arguments"] == "not a call"
    assert turn["orphans"] == [{"name": "ghost", "text": "third"}] and after == [{"role": "user", "text": "late"}]
    assert turn["content"] == '[{"type":"text"}]'
