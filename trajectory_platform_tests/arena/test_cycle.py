"""A month of the arena: the rules hold in its files, and the history is one that could have been."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from trajectory_platform.arena import rules
from trajectory_platform.arena.catalogue import generate_products
from trajectory_platform.arena.cycle import ArenaState
from trajectory_platform.arena.day import DayWriter
from trajectory_platform.arena.knobs import Knobs
from trajectory_platform.arena.miners import Agent
from trajectory_platform.arena.plan import Entry, RaceRef
from trajectory_platform.arena.problems import ProblemMaker
from trajectory_platform.arena.races import Qualifier, Race, Standing, race_row
from trajectory_platform.arena.roster import new_agent
from trajectory_platform.arena.rows import iso
from trajectory_platform.arena.simulate import simulate
from trajectory_platform.arena.workers import InProcess
from trajectory_platform.identity import parse_utc
from trajectory_platform.sources.files import FileSource
from trajectory_platform_tests.arena.conftest import read_rows

Row = dict[str, Any]
DAYS = 30
TRACES = 75


class History:
    """The listing rows of all days; every day's rows are read once."""

    def __init__(self, root: Path, days: list[date]) -> None:
        self.root, self.days = root, days
        self.truth: list[Row] = read_rows(root / "truth.jsonl")

    def rows(self, name: str) -> Iterator[tuple[date, Row]]:
        for day in self.days:
            yield from ((day, row) for row in read_rows(self.root / day.isoformat() / name))

    def versions(self) -> dict[str, Row]:
        return {row["agent_version_id"]: row for _, row in self.rows("agent_versions.jsonl")}

    def completed(self) -> list[Row]:
        return [race for _, race in self.rows("races.jsonl") if race["status"] == "COMPLETED"]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    root = tmp_path_factory.mktemp("history")
    knobs = Knobs(days=DAYS, traces_per_day=TRACES, race_share=0.2)  # races large enough to look at
    report = simulate(root, seed=3, first_day=rules.LAUNCH, knobs=knobs)
    return History(root, report.days)


def moment(text: str) -> datetime:
    parsed = parse_utc(text)
    assert parsed is not None
    return parsed


def test_every_day_has_exactly_the_asked_pairs(history: History) -> None:
    pairs = Counter(day for day, row in history.rows("problems.jsonl") for _ in row["validator_results"])
    assert pairs == dict.fromkeys(history.days, TRACES)


def test_no_hotkey_submits_twice_within_twelve_hours(history: History) -> None:
    times: dict[str, list[datetime]] = {}
    for version in history.versions().values():
        times.setdefault(version["miner_hotkey"], []).append(moment(version["submitted_at"]))
    several = [sorted(own) for own in times.values() if len(own) > 1]
    assert len(several) > 20
    assert all(later - earlier >= timedelta(hours=12) for own in several for earlier, later in pairwise(own))


def test_version_numbers_grow_with_every_submission(history: History) -> None:
    by_agent: dict[str, list[tuple[datetime, int]]] = {}
    for version in history.versions().values():
        by_agent.setdefault(version["agent_id"], []).append(
            (moment(version["submitted_at"]), version["version_number"])
        )
    assert all(
        [number for _, number in sorted(own)] == sorted({number for _, number in own}) for own in by_agent.values()
    )


def test_two_to_three_validators_run_each_entry_and_their_rollouts_differ(history: History) -> None:
    runs: dict[str, set[str]] = {}
    texts: dict[tuple[str, str], set[str]] = {}
    for row in history.truth:
        if row["phase"] == "QUALIFYING":
            runs.setdefault(row["agent_version_id"], set()).add(row["validator_hotkey"])
        if row["kind"] in ("a_native", "a_xml") and row["subkind"] is None and row["artifact"]:
            texts.setdefault((row["agent_version_id"], row["problem_id"]), set()).add(dialogue_text(history, row))
    counts = Counter(len(keys) for keys in runs.values())
    assert counts[2] > 40 and counts[3] > 40 and counts[1] <= DAYS  # the last entry of a day may be cut short
    repeated = [found for found in texts.values() if len(found) > 1]
    assert len(repeated) > 100


def dialogue_text(history: History, row: Row) -> str:
    data = (history.root / row["artifact"]).read_bytes()
    lines = [json.loads(line) for line in gzip.decompress(data).splitlines()]
    steps = lines[0] if row["artifact_line"] is None else lines[row["artifact_line"]]["dialogue"]
    return json.dumps([step["completion"]["message"] for step in steps])


def test_qualifiers_are_within_95_percent_of_the_leader_one_per_hotkey(history: History) -> None:
    races = [race for _, race in history.rows("races.jsonl")]
    assert len({race["race_id"] for race in races}) == DAYS
    for race in races:
        scored = [one for one in race["qualifiers"] if one["qualification_type"] == "SCORED"]
        assert all(one["qualifying_score"] >= race["qualifying_threshold"] - 1e-4 for one in scored)
        if scored:
            best = max(one["qualifying_score"] for one in scored)
            assert race["qualifying_threshold"] <= rules.qualifying_threshold(best) + 1e-4 or len(scored) == 1
        hotkeys = [one["miner_hotkey"] for one in race["qualifiers"]]
        assert len(set(hotkeys)) == len(hotkeys) == race["qualifier_count"] >= 1
        assert sum(one["qualification_type"] == "INCUMBENT" for one in race["qualifiers"]) <= 1


def test_the_winner_is_the_next_incumbent_and_had_to_beat_the_margin(history: History) -> None:
    races = history.completed()
    assert len(races) > DAYS * 0.8
    incumbent, since = None, None
    changes = 0
    for race in races:
        held = next((one for one in race["qualifiers"] if one["qualification_type"] == "INCUMBENT"), None)
        assert (held["agent_version_id"] if held else None) == incumbent
        winner = race["winner_agent_version_id"]
        ended = moment(race["race_completed_at"])
        if winner == incumbent:
            continue
        if held is not None and since is not None:
            days_held = (ended - since).total_seconds() / 86_400
            needed = rules.challenge_threshold(held["race_score"] or 0.0, days_held)
            assert race["winner_score"] > needed - 1e-6
        incumbent, since, changes = winner, ended, changes + 1
    assert 3 <= changes < len(races), "the lead changes hands, but not every day"


def test_a_qualifier_that_did_not_finish_has_no_score_instead_of_zero(history: History) -> None:
    rng = Random(1)
    standings = [Standing(Entry(new_agent(rng, "a_xml", number, rules.LAUNCH), 0), 0.9, number) for number in range(3)]
    standings = [replace(one, entry=replace(one.entry, agent=renamed(one.agent))) for one in standings]
    field = [Qualifier(one, rules.SCORED) for one in standings]
    race = Race(RaceRef("r", 1), rules.LAUNCH, 10, 0.855, field)
    field[0].scores, field[2].scores = [0.0], [0.6, 0.8]
    assert race.conclude() is field[2]
    assert [(one.race_score, one.rank) for one in field] == [(0.0, 2), (None, None), (0.7, 1)]
    row = race_row(race, rules.midnight(rules.LAUNCH + timedelta(days=2)), iso)
    assert [one["race_score"] for one in row["qualifiers"]] == [0.0, None, 0.7]
    assert any(one["race_rank"] == 1 for done in history.completed() for one in done["qualifiers"])


def renamed(agent: Agent) -> Agent:
    return replace(agent, agent_version_id=f"version-{agent.name}")


def test_a_race_lies_in_two_folders_and_on_two_judged_days(history: History) -> None:
    folders: dict[str, set[date]] = {}
    for day, run in history.rows("runs.jsonl"):
        if run["race_id"]:
            folders.setdefault(run["race_id"], set()).add(day)
    crossing = [sorted(days) for days in folders.values() if len(days) == 2]
    assert len(crossing) > DAYS * 0.6
    assert all(later - earlier == timedelta(days=1) for earlier, later in crossing)
    race_pairs = [row for row in history.truth if row["phase"] == "RACE"]
    assert any(row["expected_utc_day"] > row["day"] for row in race_pairs), "a run straddles midnight"


def test_races_run_on_the_public_suite_until_the_hidden_bank_opens(history: History) -> None:
    for row in history.truth:
        if row["phase"] == "RACE":
            hidden = row["day"] > rules.HIDDEN_BANK.isoformat()
            public = row["day"] < rules.HIDDEN_BANK.isoformat()
            assert not (hidden and row["problem_in_suite_file"]) and (not public or row["problem_in_suite_file"])
    assert {row["problem_in_suite_file"] for row in history.truth if row["phase"] == "RACE"} == {True, False}


def test_the_suites_are_the_ones_of_their_time(history: History) -> None:
    numbers = []
    for day in history.days:
        suite = json.loads((history.root / day.isoformat() / "suite.json").read_text("utf-8"))
        numbers.append(suite["suite"]["suite_id"])
        if day < rules.BACKEND_SUITES:
            assert len(suite["problems"]) == rules.EARLY_SUITE_PROBLEMS
    assert list(Counter(numbers).values())[:3] == [12, 6, 7] and numbers == sorted(numbers)


def test_source_is_copied_only_after_its_embargo(history: History) -> None:
    versions = history.versions()
    copies = {row["agent_version_id"]: row["copied_from"] for row in history.truth if row["copied_from"]}
    known = [(versions[copy], versions[source]) for copy, source in copies.items() if source in versions]
    assert len(known) > 10
    assert all(copy["submitted_at"] >= source["code_available_at"] for copy, source in known)
    assert all(copy["miner_hotkey"] != source["miner_hotkey"] for copy, source in known)
    first_release = min(row["code_available_at"] for row in versions.values())
    early = [source for copy, source in copies.items() if versions[copy]["submitted_at"] < first_release]
    assert set(early) <= {"starter"}, "before anything is released there is only the published reference agent"


def test_release_dates_are_weekdays_and_the_state_follows_the_day(history: History) -> None:
    for day, row in history.rows("agent_versions.jsonl"):
        public = moment(row["released_at"])
        assert public.weekday() < 5 and public.time().isoformat() == "00:00:00"
        assert row["released_at"] == row["code_available_at"] > row["submitted_at"]
        assert row["release_state"] == ("RELEASED" if public.date() <= day + timedelta(days=1) else "HIDDEN")
        assert (row["state"] == "ELIGIBLE") is (row["latest_final_score"] is not None)


def test_agents_improve_over_the_month(history: History) -> None:
    def success(first: int, last: int) -> float:
        days = {day.isoformat() for day in history.days[first:last]}
        rows = [
            row
            for row in history.truth
            if row["day"] in days and row["kind"].startswith("a_") and row["subkind"] is None
        ]
        return sum(row["success"] for row in rows) / len(rows)

    assert success(DAYS - 10, DAYS) > success(0, 8) + 0.03


def test_eras_follow_each_other_in_one_history(history: History) -> None:
    regimes = {row["day"]: row["reasoning_regime"] for row in history.truth}
    assert regimes["2026-04-11"] is None and regimes["2026-04-12"] == "continuous"
    assert regimes["2026-04-20"] == "continuous_step0_only"
    unknown = {row["axis"] for row in history.truth if row["day"] < "2026-04-19"}
    assert unknown == {"unknown"} and any(row["axis"] == "A" for row in history.truth)


def test_the_reader_of_days_ignores_the_races(history: History) -> None:
    raw = FileSource(str(history.root)).open_day(history.days[0])
    assert raw.runs and not raw.faults


def test_rows_are_what_the_public_client_reads(history: History) -> None:
    models = pytest.importorskip("oro_sdk.models")
    day = history.root / history.days[-1].isoformat()
    for name, model in (
        ("runs.jsonl", models.EvaluationRunPublic),
        ("agent_versions.jsonl", models.AgentVersionPublic),
        ("races.jsonl", models.RacePublic),
    ):
        for row in read_rows(day / name):
            model.from_dict(row)
    for race in read_rows(day / "races.jsonl"):
        for one in race["qualifiers"]:
            models.RaceQualifierPublic.from_dict(one)


def test_the_state_does_not_grow_with_the_days(tmp_path: Path) -> None:
    knobs = Knobs(days=20, traces_per_day=30)
    documents = list(generate_products(1, 3_000))
    (tmp_path / "products.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents), "utf-8")
    run = InProcess(tmp_path / "products.jsonl")
    state = ArenaState(knobs, ProblemMaker(documents, 1), 1)
    sizes = []
    for number in range(knobs.days):
        day = rules.LAUNCH + timedelta(days=number)
        (tmp_path / day.isoformat()).mkdir()
        DayWriter(state, run, tmp_path, day, None).write()
        codes = len(state.roster.public_codes(rules.midnight(day) + 30 * rules.DAY_MS))
        sizes.append(len(state.roster) + len(state.board) + len(state.standings) + codes)
    assert max(sizes[12:]) <= max(sizes[6:12]) * 1.5, sizes
