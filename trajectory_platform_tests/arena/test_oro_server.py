"""The local server of the public API: what oro-sdk's own client reads from it at different moments (domain 1.10)."""

from __future__ import annotations

import gzip
import importlib
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("oro_sdk", reason="the local server answers with oro-sdk's models")

import httpx

from trajectory_platform.arena.oro_server import LocalServer, ServerClock
from trajectory_platform.arena.oro_server_faults import script_of
from trajectory_platform.arena.oro_server_history import load_history
from trajectory_platform.arena.simulate import simulate
from trajectory_platform.errors import Abort

FRIDAY = date(2026, 5, 1)
AFTER = datetime(2026, 5, 20, tzinfo=UTC)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    simulate(root, days=3, traces_per_day=100, first_day=FRIDAY, seed=4)
    return root


@pytest.fixture(scope="module")
def server(days: Path) -> Iterator[LocalServer]:
    with LocalServer(days, clock=ServerClock(AFTER), requests_per_minute=100_000) as running:
        yield running


def at(server: LocalServer, day: int, hour: int = 0, minute: int = 0) -> None:
    server.clock.set(datetime(2026, 5, day, hour, minute, tzinfo=UTC))


def ask(server: LocalServer, endpoint: str, **given: Any) -> Any:
    """What oro-sdk parses of one endpoint's answer; raises where it cannot."""
    from oro_sdk import Client

    module = importlib.import_module(f"oro_sdk.api.public.{endpoint}")
    return module.sync(client=Client(base_url=server.url, raise_on_unexpected_status=True), **given)


def link(
    server: LocalServer, run: dict[str, Any], problem_id: str | None, kind: str = "EVAL_PROBLEM_LOGS"
) -> httpx.Response:
    body = {"artifact_type": kind, "agent_version_id": run["agent_version_id"], "eval_run_id": run["eval_run_id"]}
    return httpx.post(f"{server.url}/v1/public/artifacts/download-url", json=body | {"problem_id": problem_id})


def rows(days: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(days.glob(f"2026-*/{name}")) for line in file.open(encoding="utf-8")]


def test_the_sdk_reads_every_endpoint(server: LocalServer) -> None:
    server.clock.set(AFTER)
    race = ask(server, "get_race_history").races[0]
    qualifier = ask(server, "get_race_detail", race_id=race.race_id).qualifiers[0]
    version = qualifier.agent_version_id
    suite = ask(server, "get_current_suite")
    run = ask(server, "get_agent_version_runs", agent_version_id=version)[0]
    for endpoint, given in (
        ("get_current_race", {}),
        ("get_agent_version", {"agent_version_id": version}),
        ("get_agent_version_status", {"agent_version_id": version}),
        ("get_agent_version_problems", {"agent_version_id": version, "phase": "RACE"}),
        ("get_evaluation_run", {"eval_run_id": run.eval_run_id}),
        ("get_running_evaluations", {}),
        ("get_pending_evaluations", {}),
        ("list_suites", {}),
        ("get_suite_problems", {"suite_id": suite.suite_id}),
        ("get_leaderboard", {"suite_id": suite.suite_id, "score_type": "race"}),
        ("get_top_agent", {}),
        ("get_validators", {}),
        ("get_trajectory_history", {}),
    ):
        assert ask(server, endpoint, **given) is not None, endpoint


def test_a_run_shows_its_verdicts_as_they_are_made(server: LocalServer, days: Path) -> None:
    finished = [row for row in rows(days, "runs.jsonl") if row["status"] == "SUCCESS" and row["race_id"] is None]
    run = max(finished, key=lambda row: (row["sandbox_metadata"]["duration_seconds"], row["eval_run_id"]))
    claimed, ended = (datetime.fromisoformat(run[name]) for name in ("claimed_at", "completed_at"))
    version = run["agent_version_id"]

    def seen() -> tuple[Any, list[Any]]:
        runs = ask(server, "get_agent_version_runs", agent_version_id=version)
        problems = ask(server, "get_agent_version_problems", agent_version_id=version).problems
        results = [
            one for entry in problems for one in entry.validator_results if str(one.eval_run_id) == run["eval_run_id"]
        ]
        return next((one for one in runs if str(one.eval_run_id) == run["eval_run_id"]), None), results

    server.clock.set(claimed - timedelta(seconds=1))
    assert seen() == (None, [])
    server.clock.set(ended - timedelta(seconds=1))
    found, results = seen()
    assert found.status == "RUNNING" and found.validator_score is None and results
    assert {one.updated_at is None for one in results if one.status == "RUNNING"} <= {True}
    server.clock.set(AFTER)
    found, results = seen()
    assert found.status == "SUCCESS"
    assert all(one.updated_at is not None for one in results)


def test_an_invalidated_run_was_a_good_one_until_it_was_invalidated(server: LocalServer, days: Path) -> None:
    run = next(row for row in rows(days, "runs.jsonl") if row["invalidated_at"])
    moment = datetime.fromisoformat(run["invalidated_at"])

    def seen() -> Any:
        return ask(server, "get_evaluation_run", eval_run_id=run["eval_run_id"])

    server.clock.set(moment - timedelta(seconds=1))
    assert seen().is_included is True and seen().invalidated_at is None
    server.clock.set(moment)
    assert seen().is_included is False and seen().invalidated_at == moment


def test_a_race_hides_its_artifacts_and_scores_until_it_is_over(server: LocalServer, days: Path) -> None:
    race = next(row for row in rows(days, "races.jsonl") if row["status"] == "COMPLETED")
    over = datetime.fromisoformat(race["race_completed_at"])
    entry = next(
        (entry, result)
        for entry in rows(days, "problems.jsonl")
        for result in entry["validator_results"]
        if entry["race_id"] == race["race_id"]
        and list(days.glob(f"*/artifacts/{result['eval_run_id']}/{entry['problem_id']}.*"))
    )
    run = {"agent_version_id": entry[0]["agent_version_id"], "eval_run_id": entry[1]["eval_run_id"]}
    server.clock.set(over - timedelta(seconds=1))
    refused = link(server, run, entry[0]["problem_id"])
    assert (refused.status_code, refused.json()["error_code"]) == (403, "RACE_IN_FLIGHT")
    assert ask(server, "get_current_race").race.status == "RACE_RUNNING"
    assert {one.race_score for one in ask(server, "get_race_detail", race_id=race["race_id"]).qualifiers} == {None}
    assert race["race_id"] not in {str(one.race_id) for one in ask(server, "get_race_history").races}
    server.clock.set(over)
    answer = link(server, run, entry[0]["problem_id"]).json()
    data = httpx.get(answer["download_url"]).content
    assert isinstance(json.loads(gzip.decompress(data)), list)
    assert race["race_id"] in {str(one.race_id) for one in ask(server, "get_race_history").races}


def test_code_is_public_on_the_next_weekday_and_traces_at_once(server: LocalServer, days: Path) -> None:
    version = next(row for row in rows(days, "agent_versions.jsonl") if row["released_at"].startswith("2026-05-04"))
    name = version["agent_version_id"]
    at(server, 3, 12)
    unreleased = httpx.get(f"{server.url}/v1/public/agent-versions/{name}")
    assert (unreleased.status_code, unreleased.json()["error_code"]) == (404, "ARTIFACT_NOT_RELEASED")
    assert ask(server, "get_agent_version_status", agent_version_id=name).release_state == "HIDDEN"
    assert link(server, {"agent_version_id": name, "eval_run_id": None}, None, "AGENT_CODE").status_code == 404
    at(server, 4)
    assert str(ask(server, "get_agent_version", agent_version_id=name).agent_version_id) == name
    assert link(server, {"agent_version_id": name, "eval_run_id": None}, None, "AGENT_CODE").status_code == 200


def test_the_daily_counts_are_distinct_pairs_by_the_day_of_judgment(server: LocalServer, days: Path) -> None:
    server.clock.set(AFTER)
    counted = {run["eval_run_id"] for run in rows(days, "runs.jsonl") if run["status"] in ("SUCCESS", "FAILED")}
    expected: dict[str, set[tuple[str, str]]] = {}
    for entry in rows(days, "problems.jsonl"):
        for result in entry["validator_results"]:
            if result["eval_run_id"] in counted and result["status"] in ("SUCCESS", "FAILED", "TIMED_OUT"):
                pair = (entry["agent_version_id"], entry["problem_id"])
                expected.setdefault(result["updated_at"][:10], set()).add(pair)
    history = ask(server, "get_trajectory_history")
    assert {row.date: row.distinct for row in history.series} == {day: len(pairs) for day, pairs in expected.items()}
    assert history.total == len(set().union(*expected.values())) == history.series[-1].cumulative
    at(server, 1)
    assert ask(server, "get_trajectory_history").total == 0


def test_every_version_with_a_finished_run_is_on_the_leaderboard_of_its_suite(server: LocalServer, days: Path) -> None:
    server.clock.set(AFTER)
    listed = {
        str(entry.agent_version_id)
        for suite in ask(server, "list_suites")
        for entry in ask(server, "get_leaderboard", suite_id=suite.suite_id, limit=500).entries
    }
    finished = {run["agent_version_id"] for run in rows(days, "runs.jsonl") if run["status"] in ("SUCCESS", "FAILED")}
    # a run that failed before it was judged has no verdicts to be found
    judged = {entry["agent_version_id"] for entry in rows(days, "problems.jsonl")}
    assert finished & judged <= listed


def test_errors_have_the_codes_of_the_api(server: LocalServer, days: Path) -> None:
    server.clock.set(AFTER)
    run = next(row for row in rows(days, "runs.jsonl") if row["status"] == "SUCCESS" and row["race_id"] is None)
    absent = "00000000-0000-4000-8000-000000000000"
    base = f"{server.url}/v1/public"
    answers = [
        (link(server, run, None), 400, "MISSING_PARAMETER"),
        (link(server, run, absent, "NO_SUCH_TYPE"), 400, "INVALID_ARTIFACT_TYPE"),
        (link(server, run, absent), 404, "ARTIFACT_NOT_FOUND"),
        (link(server, run | {"eval_run_id": absent}, absent), 404, "EVAL_RUN_NOT_FOUND"),
        (link(server, run | {"agent_version_id": absent}, absent), 404, "AGENT_VERSION_NOT_FOUND"),
        (httpx.get(f"{base}/suites/999999/problems"), 404, "SUITE_NOT_FOUND"),
        (httpx.get(f"{base}/evaluation-runs/{absent}"), 404, "EVAL_RUN_NOT_FOUND"),
        (httpx.get(f"{base}/races/{absent}"), 404, "RACE_NOT_FOUND"),
    ]
    assert [(answer.status_code, answer.json()["error_code"]) for answer, _, _ in answers] == [
        (status, code) for _, status, code in answers
    ]
    assert httpx.get(f"{base}/races/history?limit=1000").status_code == 422
    assert httpx.get(f"{base}/races/not-an-id").status_code == 422


def test_links_expire_and_cannot_be_made_up(server: LocalServer, days: Path) -> None:
    server.clock.set(AFTER)
    run, problem = _with_artifact(days)
    url = link(server, run, problem).json()["download_url"]
    assert httpx.get(url).status_code == 200
    later = url.replace("Expires=1", "Expires=2")
    assert [httpx.get(bad).status_code for bad in (later, url + "0", url.partition("?")[0])] == [403, 403, 403]
    with LocalServer(days, clock=ServerClock(AFTER), link_seconds=0) as short:
        assert httpx.get(link(short, run, problem).json()["download_url"]).status_code == 403


def test_more_than_a_hundred_requests_a_minute_are_refused_and_counted(days: Path) -> None:
    moments = [0.0]
    with LocalServer(days, clock=ServerClock(AFTER), seconds=lambda: moments[0]) as server, httpx.Client() as client:
        statuses = [client.get(f"{server.url}/v1/public/suites/current").status_code for _ in range(103)]
        assert statuses == [200] * 100 + [429] * 3
        refused = client.get(f"{server.url}/v1/public/suites/current")
        assert refused.headers["retry-after"] == "60" and refused.json()["error_code"] == "RATE_LIMIT_EXCEEDED"
        moments[0] = 60.0
        assert client.get(f"{server.url}/v1/public/suites/current").status_code == 200
        assert server.log.busiest() == 104
        assert server.log.facts()["refused"] == 4


def test_faults_come_by_script_and_pass(days: Path) -> None:
    run, problem = _with_artifact(days)
    script = script_of(
        {
            "seed": 3,
            "rules": [
                {"fault": "server_error", "path": "suites/current", "times": 2, "status": 503},
                {"fault": "rate_limited", "path": "validators", "retry_after": 7},
                {"fault": "truncated", "path": "top"},
                {"fault": "reset", "path": "leaderboard"},
                {"fault": "cold_history", "times": None},
                {"fault": "expired_link"},
                {"fault": "truncated", "path": "storage/*", "declared": "short", "times": 2},
                {"fault": "redirect", "path": "evaluations/running", "to": "http://foreign.invalid/x"},
                {"fault": "date_skew", "path": "suites", "seconds": -7200},
            ],
        }
    )
    with LocalServer(days, clock=ServerClock(AFTER), script=script) as server:
        base = f"{server.url}/v1/public"
        assert [httpx.get(f"{base}/suites/current").status_code for _ in range(3)] == [503, 503, 200]
        first = httpx.get(f"{base}/validators")
        assert (first.status_code, first.headers["retry-after"]) == (429, "7")
        for path, error in (("top", httpx.RemoteProtocolError), ("leaderboard", httpx.ReadError)):
            with pytest.raises(error):
                httpx.get(f"{base}/{path}")
            assert httpx.get(f"{base}/{path}").status_code == 200
        assert [httpx.get(f"{base}/trajectories/history").json()["total"] for _ in range(2)] == [None, None]
        assert httpx.get(link(server, run, problem).json()["download_url"]).status_code == 403
        url = link(server, run, problem).json()["download_url"]
        cut, whole = httpx.get(url).content, httpx.get(url).content
        assert whole.startswith(cut) and len(cut) < len(whole)
        with pytest.raises(EOFError):
            gzip.decompress(cut)
        assert httpx.get(f"{base}/evaluations/running").headers["location"] == "http://foreign.invalid/x"
        told = parsedate_to_datetime(httpx.get(f"{base}/suites").headers["date"])
        assert abs((datetime.now(UTC) - told).total_seconds() - 7200) < 60
        assert server.script.hits["server_error"] == 2


def test_answers_change_by_script(days: Path) -> None:
    rules = [
        {"fault": "unknown_enum", "path": "agent-versions/*/runs", "value": "REPLAYED"},
        {"fault": "extra_fields", "path": "suites"},
        {"fault": "missing_fields", "path": "validators", "fields": ["registered_at"]},
        {"fault": "times", "path": "agent-versions/*/problems", "form": "epoch_ms"},
        {"fault": "duplicate_ids", "path": "leaderboard"},
        {"fault": "paging_shift", "newest": 1},
    ]
    with LocalServer(days, clock=ServerClock(AFTER), script=script_of({"rules": rules})) as server:
        base = f"{server.url}/v1/public"
        run = next(row for row in rows(days, "runs.jsonl") if row["status"] == "SUCCESS")
        runs = httpx.get(f"{base}/agent-versions/{run['agent_version_id']}/runs").json()
        assert {one["status"] for one in runs} == {"REPLAYED"}
        assert all("x_later_field" in suite for suite in httpx.get(f"{base}/suites").json())
        assert "registered_at" not in httpx.get(f"{base}/validators").json()[0]
        problems = httpx.get(f"{base}/agent-versions/{run['agent_version_id']}/problems").json()["problems"]
        times = [one["updated_at"] for entry in problems for one in entry["validator_results"]]
        assert all(moment is None or isinstance(moment, int) for moment in times)
        names = [entry["agent_version_id"] for entry in httpx.get(f"{base}/leaderboard").json()["entries"]]
        assert len(set(names)) < len(names)
        first = httpx.get(f"{base}/races/history?limit=1").json()
        second = httpx.get(f"{base}/races/history?limit=1&offset=1").json()
        assert first["races"] == second["races"] and second["total"] == first["total"] + 1


def test_what_a_fault_hits_does_not_depend_on_who_asks_first(days: Path) -> None:
    rule = {"fault": "server_error", "path": "agent-versions/*", "share": 0.4}
    names = sorted({row["agent_version_id"] for row in rows(days, "agent_versions.jsonl")})

    def hit(order: list[str]) -> set[str]:
        script = script_of({"seed": 9, "rules": [rule]})
        return {name for name in order if script.pick(f"agent-versions/{name}", f"GET {name}")}

    assert hit(names) == hit(names[::-1]) and 0 < len(hit(names)) < len(names)


def test_late_judgments_and_late_invalidations(days: Path) -> None:
    twisted = load_history(days, script_of({"history": {"late_judgments": 0.2, "late_invalidations": 0.2}}).twists)
    plain = load_history(days)
    moved = sum(
        late.judged_at != one.judged_at
        for name, results in plain.results_of.items()
        for one, late in zip(results, twisted.results_of[name], strict=True)
    )
    taken = sum(run.invalidated_at is not None for run in twisted.runs.values())
    assert moved > 0 and taken > sum(run.invalidated_at is not None for run in plain.runs.values())


def test_wrong_scripts_and_empty_folders_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(Abort, match="rule 1: fault is one of"):
        script_of({"rules": [{"fault": "earthquake"}]})
    with pytest.raises(Abort, match="slow has no minutes"):
        script_of({"rules": [{"fault": "slow", "minutes": 3}]})
    with pytest.raises(Abort, match="arena simulate"):
        load_history(tmp_path)


def _with_artifact(days: Path) -> tuple[dict[str, Any], str]:
    """A finished qualifying run and a problem of it with an artifact."""
    runs = {row["eval_run_id"]: row for row in rows(days, "runs.jsonl") if row["race_id"] is None}
    file = next(file for file in sorted(days.glob("*/artifacts/*/*")) if file.parent.name in runs)
    return runs[file.parent.name], file.name.partition(".")[0]
