"""A day that was fetched: what is not here yet, or never comes, is a row that says so."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from trajectory_platform.sources.files import FileSource, RawDay
from trajectory_platform.traces.inventory import inventory_day
from trajectory_platform_tests.traces.test_inventory import DAY, LIMITS, TRACE, Days, by_id, entry, run


class Fetched(FileSource):
    """A source whose days know what of them was not fetched."""

    def __init__(self, root: Path, unfetched: dict[tuple[str, str], dict[str, Any]]) -> None:
        super().__init__(str(root))
        self.unfetched = unfetched

    def open_day(self, day: date) -> RawDay:
        raw = super().open_day(day)
        raw.unfetched = self.unfetched if day == DAY else {}
        return raw


def pair(state: str, reason: str | None = None, **values: Any) -> dict[str, Any]:
    return {"state": state, "reason": reason, "stratum": None, "probability": None} | values


def test_what_was_not_fetched_is_a_row_with_its_reason(tmp_path: Path) -> None:
    names = ("here", "embargoed", "queued", "gone", "left-out", "skipped", "unknown")
    problems = [entry(name) for name in names]
    Days(tmp_path).write(runs=[run()], problems=problems, artifacts={"r1/here.json": TRACE})
    source = Fetched(
        tmp_path,
        {
            ("r1", "here"): pair("later", "race_in_flight"),  # the file is there after all
            ("r1", "embargoed"): pair("later", "race_in_flight"),
            ("r1", "queued"): pair("wanted"),
            ("r1", "gone"): pair("gone", "artifact_not_found"),
            ("r1", "skipped"): pair("not_asked", "problem_skipped"),
            ("r1", "left-out"): pair("not_sampled", stratum="5xyz:usable", probability=0.25),
        },
    )
    found = inventory_day(source, DAY, LIMITS)
    rows = {
        row["problem_id"]: (row["state"], row["state_reason"], row["state_detail"]) for row in found.rows.to_pylist()
    }
    assert rows == {
        "here": ("trace", None, None),
        "embargoed": ("not_final", "artifact_race_in_flight", None),
        "queued": ("not_final", "artifact_wanted", None),
        "gone": ("no_trace", "artifact_not_found", None),
        "left-out": ("no_trace", "not_sampled", "stratum '5xyz:usable', chosen with probability 0.25"),
        "skipped": ("no_trace", "no_artifact", "problem_skipped"),
        "unknown": ("no_trace", "no_artifact", None),
    }
    assert (found.awaited, found.not_sampled) == (2, 1)
    assert found.summary["raw_rows"] == found.summary["found"] == len(names)


def test_an_unusable_run_stays_unusable_whatever_was_not_fetched_of_it(tmp_path: Path) -> None:
    Days(tmp_path).write(runs=[run(status="FAILED")], problems=[entry("p1")])
    found = inventory_day(Fetched(tmp_path, {("r1", "p1"): pair("not_sampled")}), DAY, LIMITS)
    assert by_id(found)["r1:p1"]["state_reason"] == "run_failed"
    assert (found.awaited, found.not_sampled) == (0, 0)
