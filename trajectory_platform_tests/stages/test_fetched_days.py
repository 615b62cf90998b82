"""Days fetched from the local API server: complete, resumed after a kill, within the limit, conserved in the lake."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("oro_sdk", reason="the local server answers with oro-sdk's models")

from trajectory_platform.arena.oro_server import LocalServer, ServerClock
from trajectory_platform.arena.oro_server_faults import Script, script_of
from trajectory_platform.arena.simulate import simulate
from trajectory_platform.errors import Abort, RetryLater
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages import daily, fetching, plain
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.status import lake_status, render_status
from trajectory_platform_tests.stages.served_history import FAULTS, account, judged_pairs

FIRST = date(2026, 5, 2)
RATE = 3000  # a minute, as the client keeps it; the server admits a little more
DAYS = ("2026-05-02", "2026-05-03", "2026-05-04", "2026-05-05")
LAST = "2026-05-08"  # what was judged after midnight, or late, is on days of its own


def moment(day: int, hour: int = 3, minute: int = 30) -> datetime:
    return datetime(2026, 5, day, hour, minute, tzinfo=UTC)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("history")
    simulate(root, days=4, traces_per_day=40, first_day=FIRST, seed=12)
    return root


@pytest.fixture
def server(days: Path) -> Iterator[LocalServer]:
    with serving(days) as running:
        yield running


def serving(days: Path, script: Script | None = None) -> LocalServer:
    return LocalServer(days, clock=ServerClock(moment(28)), script=script, requests_per_minute=RATE * 10 // 9)


def settings_of(server: LocalServer, root: Path, **values: Any) -> Settings:
    given: dict[str, Any] = {
        "source": "oro_api",
        "api_base": server.url,
        "api_state": str(root / "state"),
        "api_artifact_hosts": ("127.0.0.1",),
        "api_requests_per_minute": RATE,
        "data_root": str(root / "raw"),
        "lake_uri": str(root / "lake"),
        "first_day": FIRST,
    }
    return Settings(**(given | values))


def fetcher(settings: Settings, *words: str) -> subprocess.Popen[str]:
    """``trajectory-platform fetch`` in a process of its own."""
    given = settings.model_dump(mode="json", include=_NAMES)
    variables = {
        f"TRAJECTORY_PLATFORM_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in given.items()
        if value is not None
    }
    command = [sys.executable, "-m", "trajectory_platform.cli", "fetch", *words, "--json"]
    return subprocess.Popen(
        command, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


_NAMES = {
    "source", "api_base", "api_state", "api_artifact_hosts", "api_requests_per_minute", "data_root", "lake_uri",
    "first_day",
}  # fmt: skip


def facts_of(process: subprocess.Popen[str], seconds: float = 280) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=seconds)
    assert process.returncode in (0, 1), err
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.timeout(600)  # half a minute where nothing else runs; it waits where the API says so
def test_two_processes_and_every_fault_end_complete_reconciled_and_conserved(days: Path, tmp_path: Path) -> None:
    with serving(days, script_of(FAULTS)) as server:
        settings = settings_of(server, tmp_path)
        found: list[dict[str, Any]] = []
        for morning, processes in ((6, 2), (8, 2), (12, 1), (24, 1)):
            server.clock.set(moment(morning))
            both = [fetcher(settings, "--open", "--at", moment(morning).isoformat()) for _ in range(processes)]
            found += [fact for one in both for fact in facts_of(one)]
        assert {fact["state"] for fact in found} <= {"open", "final", "busy"}
        assert server.log.busiest() <= RATE
        assert server.log.facts()["refused"] == 0
        counts = account(server.history, tmp_path / "raw")
        assert (counts["wrong"], counts["not_listed"], counts["listed_twice"]) == ([], [], 0)
        assert counts["fetched"] + counts["never_published"] > 0.95 * counts["judged"]  # the rest: see ``account``
        assert len(server.script.hits) > 12
        judged = {(f"{run}:{problem}", day) for run, problem, day, _ in judged_pairs(server.history)}
        ctx = StageContext(settings)
        later = sorted({day for _, day in judged})
        assert {fetching.reconciled(ctx, day)["passed"] for day in later} == {True}
    rows = []
    for day in later:
        result = daily.raw_traces(ctx, day)
        assert result.manifests["raw_traces"].complete
        assert result.summary["found"] == result.summary["raw_rows"] and "awaited" not in result.summary
        rows += ctx.lake.read(tables.RAW_TRACES, [day]).to_pylist()
    assert judged <= {(row["trace_id"], row["day"]) for row in rows}


def test_a_killed_fetch_goes_on_where_it_ended(days: Path, tmp_path: Path) -> None:
    slow = script_of({"rules": [{"fault": "slow", "path": "storage/*", "seconds": 0.1, "times": None}]})
    with serving(days, slow) as server:
        settings = settings_of(server, tmp_path)
        process = fetcher(settings, "--from", DAYS[0], "--to", LAST)
        try:
            wait_for(lambda: len(downloads(server)) >= 30)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        before = len(downloads(server))
        facts = list(fetching.fetch_days(settings, None, DAYS[0], LAST))
        assert {fact["state"] for fact in facts} <= {"final", "open"}
        asked = downloads(server)
        assert before < len(set(asked))  # it was killed in the middle
        # what was in flight when it was killed is asked for again, at most
        assert len(asked) - len(set(asked)) <= 2 * 4
        counts = account(server.history, tmp_path / "raw")
        assert counts["wrong"] == []
        links = [row for row in server.log.rows() if row.path.endswith("download-url") and row.status == 200]
        assert len(links) <= len(set(asked)) + 2 * 4


def downloads(server: LocalServer) -> list[str]:
    return [row.path for row in server.log.rows() if row.path.startswith("/storage/") and row.status == 200]


def wait_for(reached: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until, "not reached in time"
        time.sleep(0.02)


def test_an_embargo_leaves_a_day_incomplete_until_it_ends(server: LocalServer, tmp_path: Path) -> None:
    settings = settings_of(server, tmp_path)
    ctx = StageContext(settings)
    server.clock.set(moment(2, 23, 59))  # the race of the day is in flight
    report = fetching.fetch(ctx, DAYS[0], clock=lambda: moment(3, 0, 1))
    assert report.state == "open" and report.later.get("race_in_flight")
    first = daily.raw_traces(ctx, DAYS[0])
    assert not first.manifests["raw_traces"].complete
    assert first.summary["awaited"] == sum(report.later.values()) + report.wanted
    server.clock.set(moment(5))
    for at in (moment(5), moment(5, 6), moment(5, 9)):  # what was never published is asked for a few times
        fetching.fetch(ctx, DAYS[0], clock=lambda now=at: now)
    second = daily.raw_traces(ctx, DAYS[0])
    assert second.manifests["raw_traces"].complete and "awaited" not in second.summary
    assert daily.raw_traces(ctx, DAYS[0]).skipped


def test_a_day_that_waits_for_its_next_look_is_not_advised_to_be_ingested(server: LocalServer, tmp_path: Path) -> None:
    settings = settings_of(server, tmp_path)
    ctx = StageContext(settings)
    server.clock.set(moment(2, 23, 59))  # the race of the day is in flight
    now = moment(3, 0, 1)
    report = fetching.fetch(ctx, DAYS[0], clock=lambda: now)
    for _, stage in plain.DAILY_STAGES:
        stage(ctx, DAYS[0])
    assert report.next_look is not None and report.next_look > now
    facts = lake_status(settings, clock=lambda: now)
    (day,) = facts["days"]
    assert day["state"] == "incomplete" and day["waits_until"] in render_status(facts)
    assert "ingest --from" not in facts["next"]
    due = lake_status(settings, clock=lambda: moment(9))
    assert due["days"][0]["waits_until"] is None and f"ingest --from {DAYS[0]}" in due["next"]
    server.clock.set(moment(5))
    fetching.fetch(ctx, DAYS[0], clock=lambda: moment(5))  # by hand, and not read yet
    new = lake_status(settings, clock=lambda: moment(5))
    assert f"ingest --from {DAYS[0]}" in new["next"]


def test_what_the_budget_leaves_out_is_a_row_and_miners_of_axis_a_come_first(
    server: LocalServer, days: Path, tmp_path: Path
) -> None:
    server.clock.set(moment(20))
    settings = settings_of(server, tmp_path, judge="validator")
    shutil.copytree(days / "catalogue", tmp_path / "raw" / "catalogue")
    for fact in plain.ingest_days(settings, DAYS[0], None, None):
        assert fact["state"] == "published", fact
    sampled = settings.model_copy(update={"api_requests_per_day": 60})
    ctx = StageContext(sampled)
    history = fetching.axis_history(ctx, DAYS[1])
    assert history and all(0 <= share <= 1 for share in history.values())
    assert fetching.axis_history(ctx, DAYS[0]) == {}
    report = fetching.fetch(ctx, DAYS[1], clock=lambda: moment(20))
    assert report.not_sampled > 0 and report.sampling is not None
    asked = sum(row.path.endswith("download-url") for row in server.log.rows())
    assert asked <= 60 + len(downloads(server))
    result = daily.raw_traces(ctx, DAYS[1])
    assert result.summary["not_sampled"] == report.not_sampled
    rows = ctx.lake.read(tables.RAW_TRACES, [DAYS[1]]).to_pylist()
    assert len(rows) == result.summary["raw_rows"] >= report.pairs
    left_out = [row for row in rows if row["state_reason"] == "not_sampled"]
    assert {row["state"] for row in left_out} == {"no_trace"} and all(
        "probability" in row["state_detail"] for row in left_out
    )


def test_an_unknown_count_is_a_warning_and_not_zero(days: Path, tmp_path: Path) -> None:
    with serving(days, script_of({"rules": [{"fault": "cold_history", "times": None}]})) as server:
        ctx = StageContext(settings_of(server, tmp_path))
        assert fetching.reconciled(ctx, DAYS[0]) == {"passed": False, "broken": False, "words": "never fetched"}
        report = fetching.fetch(ctx, DAYS[0], clock=lambda: moment(28))
        found = fetching.reconciled(ctx, DAYS[0])
    assert report.expected is None and report.distinct > 0
    assert (found["passed"], found["broken"], found["expected"]) == (False, False, None)
    assert "not known yet" in found["words"]


def test_holes_are_named_and_pairs_that_are_lost_are_an_error(server: LocalServer, tmp_path: Path) -> None:
    ctx = StageContext(settings_of(server, tmp_path))
    report = fetching.fetch(ctx, DAYS[0], clock=lambda: moment(28))
    file = tmp_path / "raw" / DAYS[0] / "fetch.json"
    assert fetching.reconciled(ctx, DAYS[0])["passed"]

    def told(**values: Any) -> dict[str, Any]:
        file.write_text(json.dumps(replace(report, **values).to_dict()))
        return fetching.reconciled(ctx, DAYS[0])

    short = told(expected=report.distinct + 7, reconciliation="short")
    assert not short["passed"] and not short["broken"]
    assert f"{report.distinct} distinct pairs found, the subnet counts {report.distinct + 7}" in short["words"]
    waiting = told(fetched=report.fetched - 3, later=report.later | {"race_in_flight": 3})
    assert waiting["passed"] and "later:race_in_flight 3" in waiting["words"]
    lost = told(fetched=report.fetched - 2)
    assert not lost["passed"] and lost["broken"] and "are accounted for" in lost["words"]


@pytest.mark.slow
def test_an_api_that_is_down_fails_the_day_and_says_so(tmp_path: Path, server: LocalServer) -> None:
    settings = settings_of(server, tmp_path, api_base="http://127.0.0.1:9")
    (fact,) = fetching.fetch_days(settings, None, DAYS[0], DAYS[1])
    assert fact["state"] == "failed" and "tried http://127.0.0.1:9" in fact["text"], "the second day is not asked for"


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (RetryLater("connection", "ConnectError: Name or service not known"), True),
        (RetryLater("connection", "races: ConnectError: refused (5 tries)"), True),
        (RetryLater("timeout", "ConnectTimeout"), True),
        (RetryLater("connection", "RemoteProtocolError: peer closed connection"), False),
        (RetryLater("timeout", "ReadTimeout"), False),
    ],
    ids=["no_name", "refused", "no_route", "broken_off", "slow"],
)
def test_when_nobody_is_reached_the_other_days_are_left_and_the_address_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: RetryLater, left: bool
) -> None:
    def away(*_words: Any, **_named: Any) -> None:
        raise error

    monkeypatch.setattr(fetching, "fetch", away)
    settings = Settings(
        api_base="http://127.0.0.1:9", first_day=FIRST, api_state=str(tmp_path), data_root=str(tmp_path / "raw")
    )
    facts = list(fetching.fetch_days(settings, None, None, None, only_open=True, clock=lambda: moment(7)))
    assert {fact["state"] for fact in facts} == {"failed"} and len(facts) == (1 if left else 5)
    assert all(("http://127.0.0.1:9" in fact["text"] and "4 more days" in fact["text"]) == left for fact in facts)


def test_the_days_to_fetch_have_to_be_named(tmp_path: Path, server: LocalServer) -> None:
    settings = settings_of(server, tmp_path)
    with pytest.raises(Abort, match="--open"):
        list(fetching.fetch_days(settings, None, None, None))
    with pytest.raises(Abort, match="YYYY-MM-DD"):
        list(fetching.fetch_days(settings, "yesterday", None, None))
    with pytest.raises(Abort, match="empty range"):
        list(fetching.fetch_days(settings, None, DAYS[1], DAYS[0]))


def test_a_file_that_holds_a_whole_run_is_split_though_its_other_pairs_are_not_found(tmp_path: Path) -> None:
    simulate(tmp_path / "days", days=1, traces_per_day=60, first_day=date(2026, 4, 28), seed=12)
    with LocalServer(tmp_path / "days", clock=ServerClock(moment(28)), requests_per_minute=6000) as server:
        ctx = StageContext(settings_of(server, tmp_path, first_day=date(2026, 4, 28)))
        report = fetching.fetch(ctx, "2026-04-28", clock=lambda: moment(28))
        judged = {f"{run}:{problem}" for run, problem, day, _ in judged_pairs(server.history) if day == "2026-04-28"}
    assert sum(report.gone.values()) > report.fetched > 0
    daily.raw_traces(ctx, "2026-04-28")
    rows = {row["trace_id"]: row for row in ctx.lake.read(tables.RAW_TRACES, ["2026-04-28"]).to_pylist()}
    usable = [rows[name] for name in judged if rows[name]["state"] != "run_unusable"]
    assert sum(row["state"] == "trace" for row in usable) > 0.8 * len(usable) > report.fetched


@pytest.mark.slow
def test_two_processes_keep_the_limit_of_a_hundred_a_minute(days: Path, tmp_path: Path) -> None:
    with LocalServer(days, clock=ServerClock(moment(28))) as server:
        settings = settings_of(server, tmp_path, api_requests_per_minute=90)
        both = [fetcher(settings, "--from", day, "--to", day) for day in DAYS[:2]]
        facts = [fact for one in both for fact in facts_of(one, seconds=280)]
        assert {fact["state"] for fact in facts} <= {"final", "open"}
        assert server.log.facts()["counted"] > 100  # more than a minute admits
        assert server.log.busiest() <= 100 and server.log.facts()["refused"] == 0
