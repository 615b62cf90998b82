"""Every knob has the effect it names, measured on the truth; wrong values are refused in one line."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.arena.knobs import Knobs, load_knobs
from trajectory_platform.arena.plan import ADVERSE, AXIS_B, NOISE, THEATRE, kind_weights
from trajectory_platform.arena.simulate import simulate
from trajectory_platform.errors import Abort
from trajectory_platform_tests.arena.conftest import read_rows

Rows = list[dict[str, Any]]
FEW = 0.05  # within 5 points of what was asked for


def truth_of(root: Path, *, days: int = 1, traces: int = 300, **knobs: Any) -> Rows:
    simulate(root, days=days, traces_per_day=traces, seed=2, knobs=Knobs(**knobs))
    return read_rows(root / "truth.jsonl")


def share(rows: Rows, **wanted: Any) -> float:
    return sum(all(row[name] == value for name, value in wanted.items()) for row in rows) / len(rows)


@pytest.mark.parametrize("asked", [0.0, 0.6])
def test_share_of_axis_b(tmp_path: Path, asked: float) -> None:
    rows = truth_of(tmp_path, days=2, axis_b=asked, adversaries=0.0, noise=0.0)
    assert abs(share(rows, axis_intent="B") - asked) <= FEW
    labelled = [row for row in rows if row["axis"] != "unknown"]
    shown = share(labelled, axis="B") + share(labelled, kind="b_echo")  # an echo looks like axis A without its prompt
    assert abs(shown - asked) <= FEW, "the artifacts show it too"


def test_strategy_copying_and_adversaries_and_noise(tmp_path: Path) -> None:
    rows = truth_of(tmp_path, traces=400, copying=0.3, adversaries=0.12, noise=0.3)
    quirks = Counter(row["subkind"] for row in rows)
    assert abs(share(rows, kind="copycat") - 0.3) <= FEW
    assert all(row["strategy_group"] for row in rows if row["kind"] == "copycat")
    theatre = sum(row["kind"] in THEATRE for row in rows)
    assert theatre and any(row["forged_log"] for row in rows) and any(row["injection_sources"] for row in rows)
    assert abs((theatre + sum(quirks[name] for name in ADVERSE)) / len(rows) - 0.12) <= FEW
    assert abs(sum(quirks[name] for name in NOISE) / len(rows) - 0.3) <= FEW


def test_a_clean_arena_has_no_oddities_at_all(tmp_path: Path) -> None:
    rows = truth_of(tmp_path, traces=120, adversaries=0.0, noise=0.0)
    assert {row["subkind"] for row in rows} == {None} and {row["malformed"] for row in rows} == {None}
    assert {row["execution_status"] for row in rows} == {"SUCCESS"}


def test_miners_per_day(tmp_path: Path) -> None:
    for asked in (8, 30):
        rows = truth_of(tmp_path / str(asked), traces=200, miners=asked, race_share=0.0)
        assert abs(len({row["miner_hotkey"] for row in rows}) - asked) <= asked * 0.1
    with pytest.raises(Abort, match="allow more miners"):
        truth_of(tmp_path / "few", miners=1)


def test_validators_per_entry(tmp_path: Path) -> None:
    for low, high in ((1, 1), (4, 5)):
        rows = truth_of(tmp_path / str(low), traces=200, validators_per_entry=(low, high), race_share=0.0)
        runs: dict[str, set[str]] = {}
        for row in rows:
            runs.setdefault(row["agent_version_id"], set()).add(row["validator_hotkey"])
        counts = Counter(len(keys) for keys in runs.values())
        short = sum(count for keys, count in counts.items() if keys < low)
        assert max(counts) <= high and short <= 1, "only the last entry of a day may be cut short"


def test_race_share_and_sealed_share(tmp_path: Path) -> None:
    for sealed in (0.0, 1.0):
        root = tmp_path / str(sealed)
        rows = truth_of(root, days=2, traces=180, race_share=0.2, sealed_share=sealed, cancelled_races=0.0)
        assert abs(share([row for row in rows if row["day"] > "2026-05-02"], phase="RACE") - 0.2) <= FEW
        clusters = read_rows(root / "problem_clusters.jsonl")
        public = {row["leak_cluster"] for row in clusters if row["in_suite_file"]}
        hidden = [row for row in clusters if not row["in_suite_file"]]
        assert hidden and sum(row["leak_cluster"] in public for row in hidden) / len(hidden) == 1.0 - sealed


def test_suite_rotation_and_problems_per_day(tmp_path: Path) -> None:
    rows = truth_of(tmp_path, days=6, traces=30, suite_days=3, problems_per_day=20)
    suites = [read_suite(tmp_path, f"2026-05-0{day}") for day in range(2, 8)]
    assert [len(problems) for _, problems in suites] == [18] * 6
    runs = Counter(number for number, _ in suites)
    assert max(runs.values()) == 3 and len(runs) <= 3
    assert {row["problem_id"] for row in rows if row["phase"] == "QUALIFYING"} <= {
        name for _, problems in suites for name in problems
    }


def read_suite(root: Path, day: str) -> tuple[int, set[str]]:
    import json

    suite = json.loads((root / day / "suite.json").read_text("utf-8"))
    return suite["suite"]["suite_id"], {item["problem_id"] for item in suite["problems"]}


def test_a_forced_era_applies_to_all_days(tmp_path: Path) -> None:
    rows = truth_of(tmp_path, days=2, traces=100, era=date(2026, 4, 28))
    assert {row["artifact_form"] for row in rows if row["artifact"]} == {"whole_file_gzip"}
    assert {row["reasoning_regime"] for row in rows} == {"continuous"}


def test_cancelled_races_leave_runs_that_count_for_nobody(tmp_path: Path) -> None:
    simulate(tmp_path, days=2, traces_per_day=100, seed=2, knobs=Knobs(cancelled_races=1.0))
    races = read_rows(tmp_path / "2026-05-03" / "races.jsonl")
    assert {race["status"] for race in races} == {"CANCELLED"}
    assert {one["race_score"] for race in races for one in race["qualifiers"]} == {None}
    runs = [run for run in read_rows(tmp_path / "2026-05-03" / "runs.jsonl") if run["phase"] == "RACE"]
    assert runs and not any(run["is_included"] for run in runs)


def test_kinds_share_what_is_left() -> None:
    weights = kind_weights(Knobs(axis_b=0.25, copying=0.1))
    assert sum(weights.values()) == pytest.approx(1.0)
    assert sum(weights[kind] for kind in AXIS_B | THEATRE) == pytest.approx(0.25)
    assert weights["copycat"] == pytest.approx(0.1)


def test_knobs_come_from_a_file_and_options_win(tmp_path: Path) -> None:
    file = tmp_path / "knobs.yaml"
    file.write_text("days: 5\naxis_b: 0.3\nvalidators_per_entry: 2-3\nera: 2026-04-20\n", "utf-8")
    knobs = load_knobs(file, {"axis_b": 0.5, "miners": None})
    assert (knobs.days, knobs.axis_b, knobs.validators_per_entry) == (5, 0.5, (2, 3))
    assert knobs.era == date(2026, 4, 20) and knobs.miners is None
    assert load_knobs(options={"validators_per_entry": 1}).validators_per_entry == (1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("axis_b: 1.5", "axis_b"),
        ("axes_b: 0.5", "axes_b"),
        ("axis_b: 0.7\ncopying: 0.6", "together at most 1"),
        ("validators_per_entry: 3-2", "smaller number first"),
        ("validators_per_entry: two", "validators_per_entry"),
        ("- 1", "mapping"),
        ("axis_b: [", "cannot read"),
        ("entries: [{policy: 'script:x'}]", "checkpoint_id"),
    ],
)
def test_wrong_knobs_are_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "knobs.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(Abort) as caught:
        load_knobs(file)
    assert said in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Abort, match="nowhere.yaml"):
        load_knobs(tmp_path / "nowhere.yaml")


def test_arguments_of_simulate_win_over_the_knobs(tmp_path: Path) -> None:
    report = simulate(tmp_path, days=1, traces_per_day=20, seed=1, knobs=Knobs(days=9, traces_per_day=999))
    assert (len(report.days), report.pairs) == (1, 20)
    alone = simulate(tmp_path / "knobs", seed=1, knobs=Knobs(days=1, traces_per_day=20))
    assert alone.pairs == 20
