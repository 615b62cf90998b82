"""The inventory of a day: every pair has one row, one state and one day."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.lake.tables import RAW_TRACES
from trajectory_platform.sources.container import Limits
from trajectory_platform.sources.files import FileSource, RawDay
from trajectory_platform.traces.inventory import Inventory, inventory_day, inventory_folder

DAY = date(2026, 5, 1)
LIMITS = Limits()
STEP = {"completion": {"message": {"think": "t"}}, "extra_info": {"step": 1, "query": "q", "timestamp": 1}}
TRACE = json.dumps([STEP]).encode()


class Days:
    """Day folders in memory, written as the file source would list them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = FileSource(str(root))

    def write(
        self,
        day: date = DAY,
        *,
        runs: list[dict[str, Any]] | None = None,
        problems: list[dict[str, Any]] | None = None,
        artifacts: dict[str, bytes] | None = None,
        agents: list[dict[str, Any]] | None = None,
    ) -> Days:
        folder = self.root / day.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        listed = {"runs": runs or [], "problems": problems or [], "agent_versions": agents or []}
        for name, records in listed.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (folder / "suite.json").write_text('{"suite": {"suite_id": 1}, "problems": []}')
        for name, body in (artifacts or {}).items():
            path = folder / "artifacts" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        return self

    def rows(self, day: date = DAY, limits: Limits = LIMITS) -> dict[str, dict[str, Any]]:
        return by_id(inventory_folder(self.source, day, limits))


@pytest.fixture
def days(tmp_path: Path) -> Days:
    return Days(tmp_path)


def by_id(inventory: Inventory) -> dict[str, dict[str, Any]]:
    return {row["trace_id"]: row for row in inventory.rows.to_pylist()}


def run(run_id: str = "r1", status: str = "SUCCESS", **values: Any) -> dict[str, Any]:
    return {"eval_run_id": run_id, "status": status, "is_included": True, "invalidated_at": None} | values


def entry(problem_id: str | None, run_id: str = "r1", status: str = "SUCCESS", **values: Any) -> dict[str, Any]:
    result = {"eval_run_id": run_id, "status": status, "score": 1.0, "updated_at": "2026-05-01T10:00:00Z"} | values
    return {"problem_id": problem_id, "agent_version_id": "a1", "suite_id": 7, "validator_results": [result]}


def line(problem_id: str | None, **values: Any) -> bytes:
    return json.dumps({"problem_id": problem_id, "status": "SUCCESS", "dialogue": [STEP]} | values).encode() + b"\n"


# ------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("run_values", "problem_status", "artifact", "state", "reason"),
    [
        ({"status": "RUNNING", "invalidated_at": "2026-05-01"}, "SUCCESS", TRACE, "not_final", "run_running"),
        ({"status": "CLAIMED"}, "SUCCESS", None, "not_final", "run_claimed"),
        ({"status": "STALE", "is_included": False}, "PENDING", None, "not_final", "problem_pending"),
        ({}, "RUNNING", TRACE, "not_final", "problem_running"),
        ({"invalidated_at": "2026-05-03T00:00:00Z"}, "SUCCESS", TRACE, "run_unusable", "run_invalidated"),
        ({"status": "STALE", "is_included": False}, "SUCCESS", TRACE, "run_unusable", "run_stale"),
        ({"status": "CANCELLED", "is_included": False}, "SKIPPED", None, "run_unusable", "run_cancelled"),
        ({"status": "FAILED"}, "SUCCESS", None, "run_unusable", "run_failed"),
        ({"status": "TIMED_OUT"}, "SKIPPED", None, "run_unusable", "run_timed_out"),
        ({"is_included": False}, "SUCCESS", TRACE, "run_unusable", "run_not_included"),
        ({"is_included": False}, "SUCCESS", b"\x1f\x8b broken", "run_unusable", "run_not_included"),
        ({}, "SUCCESS", None, "no_trace", "no_artifact"),
        ({}, "FAILED", b"", "no_trace", "empty_artifact"),
        ({}, "TIMED_OUT", b"[]", "no_trace", "empty_dialogue"),
        ({}, "FAILED", gzip.compress(b" [ ]\n", mtime=0), "no_trace", "empty_dialogue"),
        ({}, "SKIPPED", None, "no_trace", "no_artifact"),
        ({}, "FAILED", TRACE, "trace", None),
        ({"status": "A_NEW_STATUS"}, "ANOTHER", gzip.compress(TRACE, mtime=0), "trace", None),
        ({}, "SUCCESS", gzip.compress(TRACE, mtime=0)[:-9], "unreadable", "truncated_gzip"),
        ({}, "SUCCESS", b"[{", "unreadable", "truncated_json"),
        ({}, "SUCCESS", b"<html>", "unreadable", "unknown_container"),
    ],
)
def test_states_in_the_order_of_the_contract(
    days: Days, run_values: dict[str, Any], problem_status: str, artifact: bytes | None, state: str, reason: str | None
) -> None:
    artifacts = {} if artifact is None else {"r1/p1.json.gz": artifact}
    rows = days.write(
        runs=[run(**run_values)], problems=[entry("p1", status=problem_status)], artifacts=artifacts
    ).rows()
    assert list(rows) == ["r1:p1"]
    assert (rows["r1:p1"]["state"], rows["r1:p1"]["state_reason"]) == (state, reason)
    assert rows["r1:p1"]["problem_status"] == problem_status
    assert rows["r1:p1"]["run_status"] == run_values.get("status", "SUCCESS")


def test_what_a_row_keeps_of_its_context(days: Days) -> None:
    components = {"reasoning_model": "glm", "reasoning_explanation": "because"}
    problem = entry("p1", validator_hotkey="v1", reasoning_score=0.7, score_components=components, inference_total=4)
    problem |= {"category": "Shop", "phase": "RACE", "race_id": 5}
    agent = {"agent_version_id": "a1", "miner_hotkey": "m1", "policy_checkpoint_id": "dr_grpo-2026-04-30-0123456789ab"}
    days.write(
        runs=[run(reasoning_quality=0.6)], problems=[problem], agents=[agent], artifacts={"r1/p1.json.gz": TRACE}
    )
    row = days.rows()["r1:p1"]
    kept = {
        name: row[name] for name in ("agent_version_id", "miner_hotkey", "validator_hotkey", "suite_id", "category")
    }
    assert kept == {
        "agent_version_id": "a1",
        "miner_hotkey": "m1",
        "validator_hotkey": "v1",
        "suite_id": "7",
        "category": "shop",
    }
    assert (row["phase"], row["race_id"], row["validator_score"], row["reasoning_score"]) == ("RACE", "5", 1.0, 0.7)
    assert (row["reasoning_model"], row["reasoning_explanation"]) == ("glm", "because")
    assert (row["inference_total"], row["run_reasoning_quality"]) == (4, 0.6)
    assert row["policy_checkpoint_id"] == "dr_grpo-2026-04-30-0123456789ab"
    assert (row["artifact_uri"], row["artifact_bytes"]) == ("2026-05-01/artifacts/r1/p1.json.gz", len(TRACE))
    assert (row["artifact_form"], row["artifact_gzip"], row["artifact_line"]) == ("array", False, None)


@pytest.mark.parametrize(
    ("token", "score", "text"),
    [
        ("NaN", None, "NaN"),
        ('"0.9"', None, '"0.9"'),
        ("true", None, "true"),
        ("null", None, None),
        ("0.65", 0.65, None),
    ],
)
def test_a_score_that_is_no_number_is_kept_as_text(
    days: Days, token: str, score: float | None, text: str | None
) -> None:
    days.write(runs=[run()], problems=[entry("p1", reasoning_score="HERE")])
    listing = days.root / "2026-05-01" / "problems.jsonl"
    listing.write_text(listing.read_text().replace('"HERE"', token))
    row = days.rows()["r1:p1"]
    assert (row["reasoning_score"], row["reasoning_score_text"]) == (score, text)


def test_a_run_that_is_not_listed_is_reported_and_its_pairs_go_on(days: Days) -> None:
    days.write(problems=[entry("p1")], artifacts={"r1/p1.json": TRACE, "r2/p9.json": TRACE})
    inventory = inventory_folder(days.source, DAY, LIMITS)
    assert {name: row["state"] for name, row in by_id(inventory).items()} == {"r1:p1": "trace", "r2:p9": "trace"}
    missing = [fault for fault in json.loads(inventory.summary["faults"]) if fault["reason"] == "run_missing"]
    assert [fault["detail"] for fault in missing] == ["r1", "r2"]


def test_runs_without_pairs_are_counted(days: Days) -> None:
    days.write(runs=[run("r1"), run("r2"), run("r3", "CANCELLED")], problems=[entry("p1")])
    summary = inventory_folder(days.source, DAY, LIMITS).summary
    assert (summary["runs"], summary["runs_without_problems"], summary["found"]) == (3, 2, 1)
    assert json.loads(summary["by_state"]) == {"no_trace": 1}


def test_a_result_given_twice_counts_with_its_latest_state(days: Days) -> None:
    late = entry("p1", status="SUCCESS", updated_at="2026-05-01T11:00:00Z")
    early = entry("p1", status="RUNNING", updated_at="2026-05-01T10:00:00Z")
    for order in ([late, early], [early, late]):
        rows = days.write(runs=[run()], problems=order, artifacts={"r1/p1.json": TRACE}).rows()
        assert [(row["state"], row["problem_status"]) for row in rows.values()] == [("trace", "SUCCESS")]


def test_entries_that_name_no_pair_are_faults(days: Days) -> None:
    broken = [{"problem_id": "x"}, {"problem_id": "y", "validator_results": [5, {"eval_run_id": None}]}]
    inventory = inventory_folder(days.write(runs=[run()], problems=broken).source, DAY, LIMITS)
    assert inventory.rows.num_rows == 0
    reasons = Counter(fault["reason"] for fault in json.loads(inventory.summary["faults"]))
    assert reasons == {"no_validator_results": 1, "result_without_run": 2}


def test_hostile_ids_are_never_composed(days: Days) -> None:
    days.write(runs=[run("../r")], problems=[entry("a/b\n", "../r"), entry("x" * 65, "../r")])
    assert all(name.startswith("sha256-") and name.count(":") == 1 for name in days.rows())


def test_sizes_are_capped(days: Days) -> None:
    days.write(
        runs=[run()],
        problems=[entry("p1"), entry("p2"), entry("p3")],
        artifacts={
            "r1/p1.json": TRACE,
            "r1/p2.json": gzip.compress(b" " * 5000 + TRACE, mtime=0),
            "r1/p3.json": b"x" * 600,
        },
    )
    rows = days.rows(limits=LIMITS._replace(max_artifact_bytes=500, max_inflated_bytes=1000))
    assert [(row["state"], row["state_reason"]) for row in rows.values()] == [
        ("trace", None),
        ("unreadable", "too_large"),
        ("unreadable", "too_large"),
    ]


# ------------------------------------------------------------------------------------------- whole files


def test_a_whole_file_is_split_by_the_ids_inside_and_loses_its_own_binding(days: Days) -> None:
    """Domain 1.3 and 34: the run's output lies under the id of its first problem, which has no line of its own here."""
    body = line("p2") + line("p3", status="FAILED", dialogue=None) + line("p9") + b'{"problem_id": "p4", "dialogue": [{'
    problems = [entry(name) for name in ("p1", "p2", "p3", "p4")]
    days.write(runs=[run()], problems=problems, artifacts={"r1/p1.json.gz": gzip.compress(body, mtime=0)})
    rows = days.rows()
    assert {name: (row["state"], row["state_reason"], row["artifact_line"]) for name, row in rows.items()} == {
        "r1:p1": ("no_trace", "no_artifact", None),
        "r1:p2": ("trace", None, 0),
        "r1:p3": ("no_trace", "null_dialogue", 1),
        "r1:p4": ("unreadable", "cut_line", 3),
        "r1:p9": ("trace", None, 2),
    }
    assert (rows["r1:p3"]["execution_status"], rows["r1:p3"]["problem_status"]) == ("FAILED", "SUCCESS")
    assert rows["r1:p9"]["validator_score"] is None
    assert rows["r1:p2"]["artifact_form"] == "whole_file"


def test_a_file_name_without_entry_or_line_is_no_pair(days: Days) -> None:
    days.write(runs=[run()], artifacts={"r1/p1.json.gz": line("p2") + line("p3")})
    assert list(days.rows()) == ["r1:p2", "r1:p3"]


def test_a_result_that_is_no_list_is_an_outcome_without_a_trace(days: Days) -> None:
    days.write(runs=[run()], artifacts={"r1/p1.json": line("p1", dialogue="done") + line("p2")})
    row = days.rows()["r1:p1"]
    assert (row["state"], row["state_reason"], row["execution_status"]) == ("no_trace", "non_list_result", "SUCCESS")


def test_lines_without_an_id_are_named_by_their_line(days: Days) -> None:
    days.write(runs=[run()], problems=[entry("p1")], artifacts={"r1/p1.json": line(None) + line("p1") + line(None)})
    rows = days.rows()
    assert {name: row["artifact_line"] for name, row in rows.items()} == {"r1:@0": 0, "r1:@2": 2, "r1:p1": 1}
    assert rows["r1:@0"]["problem_id"] is None


def test_of_a_repeated_line_the_first_is_kept_and_the_others_have_rows_too(days: Days) -> None:
    same, other = line("p1"), line("p1", execution_time=1)
    days.write(
        runs=[run()], problems=[entry("p1"), entry("p2")], artifacts={"r1/p1.json": same + other + same + line("p2")}
    )
    rows = days.rows()
    assert list(rows) == ["r1:p1", "r1:p1#1", "r1:p1#2", "r1:p2"]
    assert [(row["state"], row["state_reason"], row["artifact_line"]) for row in rows.values()] == [
        ("trace", None, 0),
        ("unreadable", "duplicate_line", 1),
        ("unreadable", "duplicate_line", 2),
        ("trace", None, 3),
    ]
    assert [(row["duplicate_lines"], row["duplicates_differ"]) for row in rows.values()] == [
        (2, True),
        (0, False),
        (0, False),
        (0, False),
    ]
    days.write(runs=[run()], artifacts={"r1/p1.json": same + same + line("p2")})
    assert days.rows()["r1:p1"]["duplicates_differ"] is False


def test_a_damaged_first_line_stays_the_pair(days: Days) -> None:
    damaged = b'{"problem_id": "p1", "dialogue": [{"a": \n'
    days.write(runs=[run()], artifacts={"r1/p1.json": damaged + line("p1") + line("p2")})
    rows = days.rows()
    assert (rows["r1:p1"]["state"], rows["r1:p1"]["artifact_line"]) == ("unreadable", 0)
    assert rows["r1:p1#1"]["state_reason"] == "duplicate_line"


def test_a_pairs_own_file_goes_before_a_shared_one(days: Days) -> None:
    days.write(runs=[run()], artifacts={"r1/a.json": line("p1") + line("p2"), "r1/p1.json": TRACE})
    rows = days.rows()
    assert rows["r1:p1"]["artifact_uri"].endswith("p1.json")
    assert rows["r1:p1#1"]["artifact_uri"].endswith("a.json")


# ------------------------------------------------------------------------------------------- days


@pytest.mark.parametrize(
    ("updated_at", "judged"),
    [
        ("2026-05-01T23:59:59.9Z", "2026-05-01"),
        ("2026-05-02T00:00:00Z", "2026-05-02"),
        ("2026-05-02T00:30:00", "2026-05-02"),
        ("2026-05-02T00:30:00+02:00", "2026-05-01"),
        (1777680000, "2026-05-02"),
        (None, "2026-05-01"),
        ("not a time", "2026-05-01"),
        (True, "2026-05-01"),
    ],
)
def test_the_day_is_the_utc_day_of_judging(days: Days, updated_at: Any, judged: str) -> None:
    """Cases I07 and domain 52: half-open UTC days; without a time the folder's day."""
    rows = days.write(runs=[run()], problems=[entry("p1", updated_at=updated_at)]).rows()
    assert (rows["r1:p1"]["day"], rows["r1:p1"]["folder_day"]) == (judged, "2026-05-01")


def test_a_pair_is_in_the_partition_of_the_day_it_was_judged(days: Days) -> None:
    late = entry("late", updated_at="2026-05-02T00:00:00Z")
    days.write(runs=[run()], problems=[entry("on-time"), late], artifacts={"r1/late.json": TRACE})
    days.write(
        DAY + timedelta(days=1), runs=[run("r2")], problems=[entry("own", "r2", updated_at="2026-05-02T09:00:00Z")]
    )
    first, second = (inventory_day(days.source, DAY + timedelta(days=n), LIMITS) for n in (0, 1))
    assert list(by_id(first)) == ["r1:on-time"]
    assert list(by_id(second)) == ["r1:late", "r2:own"]
    assert {(row["day"], row["folder_day"]) for row in second.rows.to_pylist()} == {
        ("2026-05-02", "2026-05-01"),
        ("2026-05-02", "2026-05-02"),
    }
    assert by_id(second)["r1:late"]["state"] == "trace"
    counts = [[s.summary[name] for name in ("found", "moved_in", "moved_out", "raw_rows")] for s in (first, second)]
    assert counts == [[2, 0, 1, 1], [1, 1, 0, 2]]


def test_a_pair_judged_out_of_reach_is_not_lost(days: Days) -> None:
    far = entry("far", updated_at="2026-05-04T00:00:00Z")
    days.write(runs=[run()], problems=[far], artifacts={"r1/far.json": TRACE})
    row = by_id(inventory_day(days.source, DAY, LIMITS))["r1:far"]
    assert (row["day"], row["state"], row["state_reason"]) == ("2026-05-01", "unreadable", "judged_day_out_of_reach")
    assert inventory_day(days.source, date(2026, 5, 4), LIMITS).rows.num_rows == 0
    assert days.rows()["r1:far"]["day"] == "2026-05-04"


def test_a_pair_collected_on_two_days_has_one_id_and_two_rows(days: Days) -> None:
    pair = entry("p1", updated_at="2026-05-01T23:00:00Z")
    days.write(runs=[run()], problems=[pair])
    days.write(DAY + timedelta(days=1), runs=[run()], problems=[pair], artifacts={"r1/p1.json": TRACE})
    inventory = inventory_day(days.source, DAY, LIMITS)
    rows = by_id(inventory)
    assert (rows["r1:p1"]["state"], rows["r1:p1"]["folder_day"]) == ("trace", "2026-05-02")
    assert rows["r1:p1#1"]["state_reason"] == "duplicate_line"
    assert (inventory.summary["found"], inventory.summary["moved_in"], inventory.summary["raw_rows"]) == (1, 1, 2)


def test_a_missing_day_is_empty_with_the_declared_schema(days: Days) -> None:
    inventory = inventory_day(days.source, DAY, LIMITS)
    assert inventory.rows.schema.equals(RAW_TRACES.schema())
    assert (inventory.rows.num_rows, inventory.summary["found"]) == (0, 0)


class Listed:
    """A source of in-memory days without artifacts."""

    parallel_reads = 1

    def __init__(self, days: dict[date, RawDay]) -> None:
        self.days = days

    def open_day(self, day: date) -> RawDay:
        return self.days.get(day, RawDay(day))

    def read(self, uri: str) -> bytes:
        raise AssertionError(uri)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3), st.integers(0, 12)), max_size=30))
@settings(max_examples=80)
def test_no_pair_is_lost_and_none_is_in_two_partitions(pairs: list[tuple[int, int, int]]) -> None:
    """Over a run of days: sum of rows = sum of found, and each day's own identity holds."""
    folders: dict[date, RawDay] = {}
    for folder, offset, number in pairs:
        day = DAY + timedelta(days=folder)
        raw = folders.setdefault(day, RawDay(day, runs=[run()], exists=True))
        judged = f"{day + timedelta(days=offset)}T12:00:00Z"
        raw.problems.append(entry(f"p{number}-{folder}", updated_at=judged))
    source = Listed(folders)
    found = rows = 0
    for offset in range(-4, 10):
        inventory = inventory_day(source, DAY + timedelta(days=offset), LIMITS)
        summary = inventory.summary
        assert summary["raw_rows"] == inventory.rows.num_rows
        assert summary["raw_rows"] == summary["found"] + summary["moved_in"] - summary["moved_out"]
        assert sum(json.loads(summary["by_state"]).values()) == summary["raw_rows"]
        names = inventory.rows["trace_id"].to_pylist()
        assert names == sorted(set(names))
        found += summary["found"]
        rows += summary["raw_rows"]
    assert rows == found == len({(folder, number) for folder, _, number in pairs})


@pytest.mark.parametrize("beside", [-1, 1])
def test_a_file_of_a_whole_run_in_the_folder_beside_is_read_where_its_pairs_are_named(days: Days, beside: int) -> None:
    """One of three pairs was judged a day apart: the file lies there, with the other two inside."""
    other = DAY + timedelta(days=beside)
    days.write(runs=[run()], problems=[entry("p1"), entry("p2")])
    days.write(
        other,
        runs=[run()],
        problems=[entry("p3", updated_at=f"{other}T08:00:00Z")],
        artifacts={"r1/p3.json": line("p1") + line("p2") + line("p3")},
    )
    named, held = (inventory_day(days.source, one, LIMITS) for one in (DAY, other))
    assert {name: (row["state"], row["artifact_line"]) for name, row in by_id(named).items()} == {
        "r1:p1": ("trace", 0),
        "r1:p2": ("trace", 1),
    }
    assert [row["validator_score"] for row in named.rows.to_pylist()] == [1.0, 1.0], "the verdict is bound to its trace"
    assert list(by_id(held)) == ["r1:p3"], "no pair stands on two days"
    counts = [[one.summary[name] for name in ("found", "moved_in", "moved_out", "raw_rows")] for one in (named, held)]
    assert counts == [[2, 0, 0, 2], [1, 0, 0, 1]]


def test_an_empty_file_beside_is_no_file_of_a_pair_that_is_named_here(days: Days) -> None:
    days.write(runs=[run()], problems=[entry("p1")])
    days.write(DAY + timedelta(days=1), runs=[run()], artifacts={"r1/p1.json": b""})
    named, held = (inventory_day(days.source, DAY + timedelta(days=n), LIMITS) for n in (0, 1))
    assert [row["state_reason"] for row in named.rows.to_pylist()] == ["no_artifact"]
    assert [row["state_reason"] for row in held.rows.to_pylist()] == ["empty_artifact"]


_PLACED = st.tuples(st.integers(0, 3), st.integers(-1, 1), st.booleans(), st.sampled_from([-1, 0, 1, None]))


@given(st.lists(_PLACED, max_size=12), st.booleans())
@settings(max_examples=60, deadline=None)
def test_wherever_a_file_of_a_pair_lies_in_reach_the_pair_is_one_trace_on_one_day(
    placed: list[tuple[int, int, bool, int | None]], whole: bool
) -> None:
    """Named in one folder, judged that day or one beside; its file in any folder that the judged day reads."""
    with TemporaryDirectory() as root:
        days = Days(Path(root))
        listed: dict[int, list[dict[str, Any]]] = {}
        files: dict[int, dict[str, bytes]] = {}
        wanted: dict[str, tuple[str, str]] = {}
        for number, (folder, offset, near_listing, lies) in enumerate(placed):
            judged = DAY + timedelta(days=folder + offset)
            listed.setdefault(folder, []).append(entry(f"p{number}", updated_at=f"{judged}T12:00:00Z"))
            place = None if lies is None else folder + (lies if offset == 0 else 0 if near_listing else offset)
            if place is not None:
                name = "r1/whole.json" if whole else f"r1/p{number}.json"
                held = files.setdefault(place, {})
                held[name] = held.get(name, b"") + (line(f"p{number}") if whole else TRACE)
            wanted[f"r1:p{number}"] = (judged.isoformat(), "no_trace" if place is None else "trace")
        for folder in {*listed, *files}:
            held = files.get(folder, {})
            days.write(DAY + timedelta(days=folder), runs=[run()], problems=listed.get(folder, []), artifacts=held)
        found: list[tuple[str, tuple[str, str]]] = []
        for offset in range(-3, 8):
            inventory = inventory_day(days.source, DAY + timedelta(days=offset), LIMITS)
            summary = inventory.summary
            assert summary["raw_rows"] == summary["found"] + summary["moved_in"] - summary["moved_out"]
            found += [(row["trace_id"], (row["day"], row["state"])) for row in inventory.rows.to_pylist()]
        assert sorted(found) == sorted(wanted.items())


# ------------------------------------------------------------------------------------------- the shared days


def test_the_shared_days_agree_with_their_labels(shared: Path) -> None:
    """184 pairs a day, 177 of them executed and labelled; judged day, place and use of the run are as labelled."""
    source = FileSource(str(shared / "days"))
    labels = [json.loads(row) for row in (shared / "days" / "truth.jsonl").read_bytes().splitlines()]
    truth = {(row["eval_run_id"], row["problem_id"]): row for row in labels}
    assert len(truth) == 531
    matched = 0
    for day in source.days():
        inventory = inventory_folder(source, day, LIMITS)
        assert (inventory.summary["found"], json.loads(inventory.summary["faults"])) == (184, [])
        for row in inventory.rows.to_pylist():
            label = truth.get((row["eval_run_id"], row["problem_id"]))
            if label is None:
                assert row["state"] in ("not_final", "run_unusable")
                continue
            matched += 1
            assert row["day"] == label["expected_utc_day"]
            assert (row["artifact_uri"], row["artifact_line"]) == (label["artifact"], label["artifact_line"])
            assert (row["state"] == "run_unusable") == (not label["usable_run"])
            if label["usable_run"]:
                damaged = label["malformed"] == "cut_line" or row["state_reason"] == "too_deep"
                assert row["state"] == (
                    "unreadable" if damaged else "no_trace" if label["outcome"] == "no_trace" else "trace"
                )
            assert (row["problem_status"], row["validator_score"]) == (
                label["reported_status"],
                label["reported_score"],
            )
            assert (row["run_status"], row["run_included"]) == (label["run_status"], label["run_included"])
    assert matched == 531


def test_the_partitions_of_the_shared_days_conserve_every_pair(shared: Path) -> None:
    source = FileSource(str(shared / "days"))
    for day in source.days():
        own, after = (inventory_day(source, day + timedelta(days=n), LIMITS) for n in (0, 1))
        assert [own.summary[name] for name in ("found", "moved_in", "moved_out", "raw_rows")] == [184, 0, 2, 182]
        assert [after.summary[name] for name in ("found", "moved_in", "raw_rows")] == [0, 2, 2]
        assert set(after.rows["state"].to_pylist()) == {"trace"}
