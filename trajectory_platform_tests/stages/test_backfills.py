"""What a backfill asks for, what it joins, what it tells: over answers of a webserver that are given by hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.identity import days_between
from trajectory_platform.settings import Settings
from trajectory_platform.stages import backfills
from trajectory_platform.stages.backfills import (
    PEAK_MEMORY,
    TAG,
    Choice,
    backfill_text,
    chosen_days,
    graphql,
    run_backfill,
)
from trajectory_platform.stages.plain import daily_assets
from trajectory_platform.stages.run_causes import _LOG, causes
from trajectory_platform_tests.defs.ticks import utc
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, place

RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
NOW = utc("2026-05-10T12:00")


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_days(tmp_path_factory.mktemp("backfilled"), traces=8)


class Dagster:
    """A webserver with a memory: a backfill runs when it is asked about for the second time.

    Args:
        does: what a launched backfill of some days does to the lake.
        running: backfills in progress: id -> days.
        run_ends, ends: statuses of a run and of a backfill in the end.
    """

    def __init__(
        self,
        does: Any = None,
        running: dict[str, list[str]] | None = None,
        run_ends: str = "SUCCESS",
        ends: str = "COMPLETED_SUCCESS",
    ) -> None:
        self._run_ends, self._ends = run_ends, ends
        self.launched: list[dict[str, Any]] = []
        self._does = does or (lambda _: None)
        self._running = running or {}
        self._asked: dict[str, int] = {}
        self._of: dict[str, list[str]] = dict(self._running)

    def __call__(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        if query.startswith("query Open"):
            others = {"id": "other", "tags": [{"key": "owner", "value": "somebody"}]}
            return {"results": [others, *(_open(name, of) for name, of in self._running.items())]}
        if query.startswith("mutation"):
            self.launched.append(variables["params"])
            name = f"b{len(self.launched)}"
            self._of[name] = _days(variables["params"])
            return {"backfillId": name}
        if query.startswith("query Backfill"):
            name = variables["id"]
            self._asked[name] = self._asked.get(name, 0) + 1
            if self._asked[name] < 2:
                return {"status": "REQUESTED", "error": None}
            self._does(self._of[name])
            return {"status": self._ends, "error": None}
        tags = [{"key": PEAK_MEMORY, "value": "321"}]
        return {"results": [{"runId": "r", "status": self._run_ends, "startTime": 1.0, "endTime": 3.5, "tags": tags}]}


def _open(name: str, days: list[str]) -> dict[str, Any]:
    return {"id": name, "tags": [{"key": TAG, "value": f"{days[0]}..{days[-1]}"}]}


def _days(params: dict[str, Any]) -> list[str]:
    """The days that a backfill was launched for; the same for all of its assets."""
    [ranges] = {
        tuple((one["start"], one["end"]) for one in each["partitions"]["ranges"])
        for each in params["partitionsByAssets"]
    }
    return [
        day.isoformat()
        for first, last in ranges
        for day in days_between(date.fromisoformat(first), date.fromisoformat(last))
    ]


def _run(settings: Settings, dagster: Dagster, **options: Any) -> tuple[dict[str, Any], list[str]]:
    told: list[str] = []
    choice = chosen_days(settings, DAYS[0], DAYS[-1], NOW, again=False)
    facts = run_backfill(
        settings, choice, assets=daily_assets(settings), ask=dagster, tell=told.append, sleep=lambda _: None, **options
    )
    return facts, told


def test_only_days_that_are_not_current_are_chosen(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    assert chosen_days(settings, None, None, NOW, again=False) == Choice(
        [*DAYS, "2026-05-06"], [], ["2026-05-07", "2026-05-08", "2026-05-09"]
    )
    ingest(settings, DAYS[:2])
    first = chosen_days(settings, DAYS[0], DAYS[3], NOW, again=False)
    assert first.current == DAYS[:2] and first.wanted == DAYS[2:]
    assert chosen_days(settings, DAYS[0], DAYS[3], NOW, again=True).wanted == DAYS
    with pytest.raises(Abort, match="no day from 2026-06-01"):
        chosen_days(settings, "2026-06-01", "2026-06-03", NOW, again=False)
    with pytest.raises(Abort, match="empty range 2026-05-03 to 2026-05-02"):
        chosen_days(settings, DAYS[1], DAYS[0], NOW, again=False)
    with pytest.raises(Abort, match="YYYY-MM-DD"):
        chosen_days(settings, "yesterday", None, NOW, again=False)


def test_a_backfill_is_launched_watched_and_measured(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    facts, told = _run(settings, dagster := Dagster(lambda _: ingest(settings)))
    [params] = dagster.launched
    assert _days(params) == DAYS and {"key": "dagster/max_runtime", "value": "21600"} in params["tags"]
    assert [one["assetKey"]["path"] for one in params["partitionsByAssets"]][-1] == ["rejected_traces"]
    assert facts["complete"] == DAYS and facts["incomplete"] == {}
    assert (facts["runs"], facts["run_s"], facts["peak_memory_mb"]) == (1, 2.5, 321)
    assert told == [f"launched 4 day(s), {', '.join(DAYS)}", "runs: 1 success"]
    assert "4 complete of 4" in backfill_text(facts) and "321 MiB" in backfill_text(facts)
    again, _ = _run(settings, later := Dagster())
    assert later.launched == [] and again["current_before"] == DAYS and again["runs"] == 0


def test_a_day_that_a_new_neighbour_leaves_behind_is_run_too(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    ingest(settings, DAYS[:2])
    facts, _ = _run(settings, dagster := Dagster(lambda asked: ingest(settings, asked)))
    assert [_days(one) for one in dagster.launched] == [DAYS[2:], [DAYS[1]]]
    assert facts["incomplete"] == {} and facts["days"] == DAYS[2:]


def test_one_in_progress_is_joined_not_doubled(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    facts, told = _run(settings, dagster := Dagster(lambda _: ingest(settings), running={"old": DAYS}))
    assert dagster.launched == [] and told[0] == "joins backfill old, which is in progress"
    assert facts["backfills"] == ["old"] and facts["complete"] == DAYS


def test_days_that_a_bad_one_held_up_are_run_alone_once_more(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    shutil.rmtree(tmp_path / "days" / DAYS[2] / "artifacts")
    (tmp_path / "days" / DAYS[2] / "problems.jsonl").write_bytes(b"\x00garbage\n" * 50)

    def does(asked: list[str]) -> None:
        if len(asked) == 1:
            ingest(settings, asked)

    facts, told = _run(settings, dagster := Dagster(does, run_ends="FAILURE"))
    asked = [_days(one) for one in dagster.launched]
    assert asked[:5] == [DAYS, *([day] for day in DAYS)] and len(asked) < 13, "as long as it changes something"
    assert "each in a run of its own" in " ".join(told)
    assert list(facts["incomplete"]) == [DAYS[2]] and DAYS[0] in facts["complete"]
    assert DAYS[3] in facts["later"], "beside a damaged folder a day is published as incomplete"


def test_a_day_that_failed_is_named_with_its_reason_and_before_those_it_held_up(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    bad = "cannot read: problems.jsonl is damaged \x1b[31m; copy the folder again"

    class Logged(Dagster):
        def __call__(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
            if not query.startswith("query Log"):
                return super().__call__(query, variables)
            entries = [{"label": DAYS[2], "text": bad}, {"label": "cut", "text": "x"}]
            failed = {"stepKey": "raw_traces", "error": {"message": "1 of 4 days failed", "causes": []}}
            first = {"events": [{}, {}], "cursor": "c", "hasMore": True}
            last = {"events": [failed | {"failureMetadata": {"metadataEntries": entries}}], "hasMore": False}
            return last if variables["cursor"] else first

    def does(asked: list[str]) -> None:
        ingest(settings, DAYS[:2])

    facts, _ = _run(settings, Logged(does, run_ends="FAILURE"))
    assert facts["causes"] == {DAYS[2]: f"raw_traces: {bad}"}
    told = backfill_text(facts).splitlines()
    assert f"{DAYS[2]}  raw_traces: cannot read: problems.jsonl is damaged \\x1b[31m; copy the folder again" in told
    assert told.index(next(one for one in told if one.startswith(DAYS[2]))) < len(told) - 1, "the first of the days"


def test_what_is_asked_is_in_the_schema_of_the_webserver() -> None:
    from dagster_graphql.schema import create_schema
    from graphql import parse, validate

    schema = create_schema().graphql_schema
    for query in (backfills._LAUNCH, backfills._BACKFILL, backfills._OPEN, backfills._RUNS, _LOG):
        assert validate(schema, parse(query)) == []


def test_the_reason_of_a_run_that_names_no_day_is_that_of_its_days() -> None:
    failed = {"stepKey": "raw_traces", "error": {"message": "outer", "causes": [{"message": "disk full\n"}]}}
    tags = [{"key": key, "value": day} for key, day in zip(RANGE, (DAYS[0], DAYS[1]), strict=True)]
    runs = [
        {"runId": "new", "status": "FAILURE", "tags": tags},
        {"runId": "old", "status": "FAILURE", "tags": [{"key": "dagster/partition", "value": DAYS[1]}]},
        {"runId": "good", "status": "SUCCESS", "tags": tags},
    ]
    asked: list[str] = []

    def ask(_: str, variables: dict[str, Any]) -> dict[str, Any]:
        asked.append(variables["id"])
        return {"events": [failed], "cursor": "c", "hasMore": False}

    assert causes(ask, runs) == dict.fromkeys(DAYS[:2], "raw_traces: disk full") and asked == ["new", "old"]

    def away(*_: Any) -> dict[str, Any]:
        raise Abort("no webserver")

    assert causes(away, runs) == {}


def test_days_of_runs_that_were_cancelled_share_runs_again(days: Path, tmp_path: Path) -> None:
    """The daemon gives a backfill up when it starts while the code server is away: no day is to blame."""
    settings = place(days, tmp_path)

    def does(asked: list[str]) -> None:
        ingest(settings, asked[: 2 if len(asked) == 4 else None])

    facts, told = _run(settings, dagster := Dagster(does, run_ends="CANCELED", ends="FAILED"))
    assert [len(_days(one)) for one in dagster.launched][:2] == [4, 2]
    assert facts["incomplete"] == {} and "run of its own" not in " ".join(told)


def test_a_backfill_that_a_person_cancelled_is_not_launched_again(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    facts, told = _run(settings, dagster := Dagster(run_ends="CANCELED", ends="CANCELED"))
    assert len(dagster.launched) == 1 and list(facts["incomplete"]) == DAYS
    assert told[-1] == "the backfill was cancelled by somebody: give the command again to go on"


class _Web(BaseHTTPRequestHandler):
    answers: list[tuple[int, bytes]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        code, body = self.answers.pop(0)
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[tuple[str, list[tuple[int, bytes]]]]:
    answers: list[tuple[int, bytes]] = []
    server = HTTPServer(("127.0.0.1", 0), type("Web", (_Web,), {"answers": answers}))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()


def test_words_of_a_webserver_that_is_none(web: tuple[str, list[tuple[int, bytes]]]) -> None:
    url, answers = web
    ask = graphql(url + "/")
    answers.append((200, b'{"data": {"runsOrError": {"results": []}}}'))
    assert ask("query", {}) == {"results": []}
    for answer, words in [
        ((404, b""), "HTTP 404: is this a Dagster webserver"),
        ((200, b'{"errors": [{"message": "no such field"}]}'), "no such field"),
        ((200, b'{"data": {"launchPartitionBackfill": {"message": "no such partition"}}}'), "no such partition"),
        ((200, b"[]"), "no GraphQL answer"),
    ]:
        answers.append(answer)
        with pytest.raises(Abort, match=words):
            ask("mutation", {})
    with pytest.raises(Abort, match="no Dagster webserver at http://127.0.0.1:1 .*start 'make ui'"):
        graphql("http://127.0.0.1:1")("mutation", {})
    with pytest.raises(Abort, match="write http"):
        graphql("127.0.0.1:3000")


def test_a_restart_behind_the_webserver_is_waited_for(web: tuple[str, list[tuple[int, bytes]]]) -> None:
    """Postgres restarts: the webserver answers 500, or 200 with its error; what was launched is asked about again."""
    url, answers = web
    paused: list[float] = []
    ask = graphql(url, paused.append)
    found = (200, b'{"data": {"runsOrError": {"results": []}}}')
    down = [(500, b""), (503, b""), (200, b'{"errors": [{"message": "connection refused"}]}')]
    broken = (200, b'{"data": {"runsOrError": {"__typename": "PythonError", "message": "OperationalError"}}}')
    answers += [found, *down, broken, *([(500, b"")] * 8), found]
    assert ask("query", {}) == ask("query", {}) == {"results": []} and not answers
    assert len(paused) == 12 and sum(paused) > 60
    answers += [(500, b"")] * 20
    with pytest.raises(Abort, match=r"HTTP 500: see the webserver's log.*give the command again"):
        ask("query", {})


def test_a_launch_is_sent_once_and_a_first_question_not_for_long(web: tuple[str, list[tuple[int, bytes]]]) -> None:
    url, answers = web
    paused: list[float] = []
    ask = graphql(url, paused.append)
    answers += [(500, b"")] * 10
    with pytest.raises(Abort, match="HTTP 500"):
        ask("mutation", {})
    assert (len(answers), paused) == (9, [])
    with pytest.raises(Abort, match="HTTP 500"):
        ask("query", {})
    assert sum(paused) < 20


def test_days_with_holes_are_ranges(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    choice = Choice([DAYS[0], DAYS[1], DAYS[3]], [], [])
    dagster = Dagster()
    run_backfill(settings, choice, assets=("raw_traces",), ask=dagster, tell=lambda _: None, sleep=lambda _: None)
    [selected] = dagster.launched[0]["partitionsByAssets"]
    assert selected["partitions"]["ranges"] == [{"start": DAYS[0], "end": DAYS[1]}, {"start": DAYS[3], "end": DAYS[3]}]
