"""Listing files that nobody meant: a value costs itself, an exclusion that cannot be read is an exclusion."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.traces.inventory import inventory_folder
from trajectory_platform_tests.traces.test_inventory import DAY, LIMITS, TRACE, Days, by_id, entry, run


@pytest.fixture
def days(tmp_path: Path) -> Days:
    return Days(tmp_path)


def _faults(days: Days) -> Counter[str]:
    summary = inventory_folder(days.source, DAY, LIMITS).summary
    return Counter(fault["reason"] for fault in json.loads(summary["faults"]))


def test_ids_given_as_numbers_are_the_ids_written_as_text(days: Days) -> None:
    pair = {**entry("7"), "agent_version_id": 31}
    pair["problem_id"], pair["validator_results"][0]["eval_run_id"] = 7, 5
    days.write(
        runs=[run(5, phase="RACE")],  # type: ignore[arg-type]
        problems=[pair],
        agents=[{"agent_version_id": 31, "miner_hotkey": "hot"}],
        artifacts={"5/7.json": TRACE},
    )
    (row,) = days.rows().values()
    assert (row["trace_id"], row["state"], row["phase"]) == ("5:7", "trace", "RACE")
    assert (row["agent_version_id"], row["miner_hotkey"]) == ("31", "hot")


@pytest.mark.parametrize("answer", [False, 0, "false", "no", [], {}])
def test_only_a_yes_includes_a_run(days: Days, answer: object) -> None:
    days.write(runs=[run(is_included=answer)], problems=[entry("p1")], artifacts={"r1/p1.json": TRACE})
    (row,) = days.rows().values()
    assert (row["state"], row["state_reason"]) == ("run_unusable", "run_not_included")


def test_a_run_whose_record_may_be_the_damaged_one_is_not_used(days: Days) -> None:
    days.write(runs=[run("r2")], problems=[entry("p1")], artifacts={"r1/p1.json": TRACE})
    assert [row["state"] for row in days.rows().values()] == ["trace"]  # the run is merely not listed
    with (days.root / DAY.isoformat() / "runs.jsonl").open("ab") as listing:
        listing.write(b'{"eval_run_id": "r1", "invalidated_at": "2026-05-01T1')
    (row,) = days.rows().values()
    assert (row["state"], row["state_reason"]) == ("run_unusable", "run_record_unreadable")


def test_unknown_status_words_are_kept_and_counted(days: Days) -> None:
    days.write(
        runs=[run(status="Sealed")],
        problems=[entry("p1", status="success"), entry("p2", status="PARTLY")],
        artifacts={"r1/p1.json": TRACE},
    )
    assert [(row["run_status"], row["problem_status"]) for row in days.rows().values()] == [
        ("Sealed", "success"),
        ("Sealed", "PARTLY"),
    ]
    assert _faults(days)["unknown_status"] == 2


_VALUE: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.just(10**400), st.floats(), st.text(max_size=8), st.just("\ud800")
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=4,
)


@given(
    st.lists(st.tuples(st.sampled_from(["run", "entry", "result"]), st.integers(0, 30), _VALUE), max_size=8),
    st.permutations(range(3)),
)
def test_any_value_anywhere_costs_no_pair_and_no_order_changes_a_row(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int, Any]], order: list[int]
) -> None:
    runs = [run(f"r{number}") for number in range(3)]
    problems = [entry("p1", run_id=f"r{number}") for number in range(3)]
    targets: dict[str, list[dict[str, Any]]] = {
        "run": runs,
        "entry": problems,
        "result": [problem["validator_results"][0] for problem in problems],
    }
    for where, place, value in changes:
        record = targets[where][place % 3]
        keys = [key for key in record if key not in ("eval_run_id", "problem_id", "validator_results")]
        record[keys[place % len(keys)]] = value
    artifacts = {f"r{number}/p1.json": TRACE for number in range(3)}
    days = Days(tmp_path_factory.mktemp("days"))
    rows = by_id(inventory_folder(days.write(runs=runs, problems=problems, artifacts=artifacts).source, DAY, LIMITS))
    assert set(rows) == {"r0:p1", "r1:p1", "r2:p1"}
    turned = days.write(runs=[runs[n] for n in order], problems=[problems[n] for n in order], artifacts=artifacts)
    assert by_id(inventory_folder(turned.source, DAY, LIMITS)) == rows


def test_two_entries_that_differ_beside_the_result_count_the_same_in_any_order(days: Days) -> None:
    pair = [{**entry("p1"), "category": word} for word in ("shop", "voucher", "product")]
    found = set()
    for order in (pair, pair[::-1], pair[1:] + pair[:1]):
        days.write(runs=[run()], problems=order, artifacts={"r1/p1.json": TRACE})
        found.add(days.rows()["r1:p1"]["category"])
    assert len(found) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_and_a_name_that_is_no_utf8_are_rows_with_a_reason(days: Days) -> None:
    days.write(runs=[run()], problems=[entry("p1")], artifacts={"r1/p2.json": TRACE})
    folder = days.root / DAY.isoformat() / "artifacts" / "r1"
    os.mkfifo(folder / "p1.json.gz")
    os.rename(folder / "p2.json", os.path.join(os.fsencode(folder), b"\xff\xfe.json"))
    reasons = Counter(row["state_reason"] for row in days.rows().values())
    assert reasons == {"unreadable_file": 1, "name_not_utf8": 1}
