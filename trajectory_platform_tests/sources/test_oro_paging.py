"""Lists that shift while they are read (case I03): every id that was there at the start is read, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.errors import RetryLater
from trajectory_platform.sources.oro_paging import Page, read_all


class Shifting:
    """A list, newest first, to which rows are added (or from which some are taken) after certain requests."""

    def __init__(self, items: list[str], events: dict[int, list[tuple[str, str]]], *, totals: bool = True) -> None:
        self.items, self.events, self.totals = list(items), events, totals
        self.requests = 0

    def page(self, offset: int, limit: int) -> Page:
        found = Page(self.items[offset : offset + limit], len(self.items) if self.totals else None)
        self.requests += 1
        for kind, name in self.events.get(self.requests, []):
            if kind == "insert":
                self.items.insert(0, name)
            elif name in self.items:
                self.items.remove(name)
        return found


def test_case_i03(shared: Path) -> None:
    case = json.loads((shared / "cases" / "I03.json").read_text())
    first, insert, *_ = case["input"]["script"]
    items = [*first["items"], "r3", "r2", "r1"]
    shifting = Shifting(items, {1: [("insert", insert["insert"])]})
    found = read_all(shifting.page, key=str, limit=case["input"]["limit"])
    assert sorted(found) == case["expect"]["ids"]
    assert len(found) - len(set(found)) == case["expect"]["duplicates"]


@given(
    size=st.integers(0, 30),
    limit=st.integers(2, 7),
    inserts=st.dictionaries(st.integers(1, 12), st.integers(1, 9), max_size=6),
    removals=st.dictionaries(st.integers(1, 12), st.integers(0, 29), max_size=3),
    totals=st.booleans(),
)
def test_what_was_there_at_the_start_and_stays_is_read_once(
    size: int, limit: int, inserts: dict[int, int], removals: dict[int, int], totals: bool
) -> None:
    start = [f"r{number}" for number in reversed(range(size))]
    events: dict[int, list[tuple[str, str]]] = {}
    for request, count in inserts.items():
        events.setdefault(request, []).extend(("insert", f"new-{request}-{number}") for number in range(count))
    for request, number in removals.items():
        events.setdefault(request, []).append(("remove", f"r{number}"))
    shifting = Shifting(start, events, totals=totals)
    found = read_all(shifting.page, key=str, limit=limit, max_passes=40)
    assert len(found) == len(set(found))
    stayed = set(start) - {name for at in events.values() for kind, name in at if kind == "remove"}
    assert stayed <= set(found)


def test_one_page_that_holds_everything_is_one_request() -> None:
    shifting = Shifting(["r2", "r1"], {})
    assert read_all(shifting.page, key=str, limit=50) == ["r2", "r1"]
    assert shifting.requests == 1


def test_a_server_that_ignores_the_offset_is_no_endless_loop() -> None:
    with pytest.raises(RetryLater, match="paging_unstable"):
        read_all(lambda offset, limit: Page(["a", "b"], 100), key=str, limit=2)


def test_the_record_read_last_counts_and_items_without_id_are_kept() -> None:
    pages = iter([Page([{"id": "a", "n": 1}], 3), Page([{"id": "a", "n": 2}, {"n": 3}, {"n": 3}], 3)] * 9)
    found = read_all(lambda offset, limit: next(pages), key=lambda item: item.get("id"), limit=2)
    assert {"id": "a", "n": 2} in found
    assert found.count({"n": 3}) == 1


@pytest.mark.parametrize("total", [0, 1, 2, 7])
def test_a_total_that_is_too_small_hides_no_row(total: int) -> None:
    rows = [f"r{number}" for number in range(23)]
    found = read_all(lambda offset, limit: Page(rows[offset : offset + limit], total), key=str, limit=5)
    assert found == rows


def test_a_server_that_gives_one_row_at_a_time_is_read_to_the_end() -> None:
    rows = [f"r{number}" for number in range(23)]
    assert read_all(lambda offset, limit: Page(rows[offset : offset + 1], 23), key=str, limit=50) == rows
