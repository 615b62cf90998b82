"""The report of a day says what the lake says, adds up, and names nothing that is sealed or may become so."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.cli import main
from trajectory_platform.errors import Abort
from trajectory_platform.lake import ledger, sealing, tables
from trajectory_platform.reports.strategy_section import ALL
from trajectory_platform.reports.trace_links import trace_file
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.day_report import day_report, named_traces, write_day_report
from trajectory_platform.stages.day_rows import miner_rows, outcome_rows
from trajectory_platform.stages.fetch_facts import fetch_facts
from trajectory_platform.stages.report import report_data
from trajectory_platform.stages.strategy_facts import miner_tails, short_names
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, place, split

FIRST, DAY, LATE = DAYS[:3]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Three days, clusters as of the second."""
    root = tmp_path_factory.mktemp("days")
    chosen = place(make_days(root / "made", days=3, traces=90), root)
    ingest(chosen, [FIRST, DAY, LATE])
    split(chosen, DAY)
    return chosen


@pytest.fixture(scope="module")
def ctx(settings: Settings) -> StageContext:
    return StageContext(settings)


@pytest.fixture(scope="module")
def found(ctx: StageContext) -> Any:
    return day_report(ctx, DAY)


def rows(ctx: StageContext, table: tables.Table, day: str = DAY) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = ctx.lake.read(table, [day]).to_pylist()
    return listed


def test_every_pair_of_the_day_is_in_the_flow_once(ctx: StageContext, found: Any) -> None:
    accepted, rejected = rows(ctx, tables.AXIS_A_CORPUS), rows(ctx, tables.REJECTED_TRACES)
    assert found.flow.pairs == len(rows(ctx, tables.RAW_TRACES)) == len(accepted) + len(rejected)
    assert found.flow.difference == 0
    counts = Counter((row["stage"], row["reason"]) for row in rejected)
    assert {(stage, reason): count for stage, reason, count in found.flow.rejected} == counts
    assert dict(found.flow.uses) == Counter(tuple(row["uses"]) for row in accepted)


def test_axis_miners_and_strategies_are_those_of_the_lake(ctx: StageContext, found: Any) -> None:
    accepted, rejected = rows(ctx, tables.AXIS_A_CORPUS), rows(ctx, tables.REJECTED_TRACES)
    told = Counter(row["axis_label"] for row in rejected if row["axis_label"]) + Counter(A=len(accepted))
    assert {label: count for label, count in found.axis[DAY].items() if count} == told
    assert sorted(found.axis) == [FIRST, DAY]
    assert found.axis_share["a"] == pytest.approx(told["A"] / told.total())
    assert found.axis_share["a_low"] <= found.axis_share["a"] <= found.axis_share["a_high"]
    assert sum(row["pairs"] for row in found.miners) == found.flow.pairs
    assert all(row["pairs"] == row["accepted"] + row["not_a"] + row["other"] for row in found.miners)
    tail = found.strategies.tails[ALL]
    assert (tail.traces, tail.strategies) == (len(accepted), len({row["strategy_cluster"] for row in accepted}))
    assert sum(row["traces"] for row in found.situations) == len(accepted)


def test_verdicts_outcomes_and_costs_are_counted(ctx: StageContext, found: Any) -> None:
    judged = rows(ctx, tables.JUDGED_TRACES)
    total = found.outcomes[0]
    assert total["traces"] + total["unscorable"] == len(judged)
    assert sum(row["traces"] for row in found.outcomes[1:]) == total["traces"]
    assert sum(row["verdicts"] for row in found.verdicts) == len(rows(ctx, tables.VERDICTS))
    assert found.cost.rules_verdicts == sum(row["judge_kind"] == "rules" for row in rows(ctx, tables.VERDICTS))
    assert found.cost.judges == [] and found.cost.stored[0]["bytes"] > 0


def test_clusters_of_the_day_are_told_with_what_is_new(ctx: StageContext, found: Any) -> None:
    clusters = rows(ctx, tables.LEAK_CLUSTERS)
    leaks = found.leaks
    assert (leaks.day, leaks.as_of) == (DAY, DAY)
    counted = sum(size * count for sizes in leaks.sizes.values() for size, count in sizes.items())
    assert counted == len(clusters) == sum(row["problems"] for row in leaks.pools)
    assert sum(row["new_problems"] for row in leaks.pools) == sum(row["first_seen"] == DAY for row in clusters)


def test_an_earlier_day_shows_later_clusters_without_later_problems(ctx: StageContext) -> None:
    leaks = day_report(ctx, FIRST).leaks
    assert leaks is not None and (leaks.day, leaks.as_of) == (FIRST, DAY)
    early = [row for row in rows(ctx, tables.LEAK_CLUSTERS) if row["first_seen"] <= FIRST]
    assert sum(row["problems"] for row in leaks.pools) == len(early)


def test_no_example_is_of_a_sealed_problem(ctx: StageContext, found: Any) -> None:
    seal = sealing.sealed(ctx.lake)
    assert seal is not None and seal.problem_ids
    named = [example["trace_id"] for row in found.reasons for example in row["examples"]]
    assert named and not any(sealing.sealed_problems_of(ctx.lake, name) for name in named)
    assert not [row for row in found.leaks.changed if row["pool"] == "sealed"]
    page = write_day_report(ctx.settings, Path(ctx.settings.lake_uri).parent / "r.html", DAY).read_text("utf-8")
    assert not [one for one in seal.problem_ids if one in page]


def test_a_day_that_no_clusters_cover_names_no_trace(ctx: StageContext) -> None:
    late = day_report(ctx, LATE)
    assert late.leaks is None
    assert late.reasons and not any(row["examples"] for row in late.reasons)
    assert any("No leak clusters cover this day yet" in note for note in late.notes)
    ids = [row["trace_id"] for row in rows(ctx, tables.RAW_TRACES, LATE)]
    page = write_day_report(ctx.settings, Path(ctx.settings.lake_uri).parent / "late.html", LATE).read_text("utf-8")
    assert not [name for name in ids if name in page]


def test_named_traces_get_pages_of_their_own(ctx: StageContext, found: Any, tmp_path: Path) -> None:
    at = datetime(2026, 6, 1, tzinfo=UTC)
    page = write_day_report(ctx.settings, tmp_path / "r.html", DAY, traces_at=at).read_text("utf-8")
    named = named_traces(found)
    files = {path.name for path in (tmp_path / "traces").iterdir()}
    assert named and files == {trace_file(name) for name in named}
    assert all(f'href="traces/{file}"' in page for file in files)
    assert not (ctx.lake.root / ledger.LEDGER).exists(), "no sealed trace was looked at"


def test_file_names_of_traces_are_safe_and_their_own() -> None:
    names = ["run:p", "run:p#2", "run:@3", "../../etc/passwd:x", "run:p/../q", "a.b:c", "run:" + "x" * 500, "é:p"]
    files = [trace_file(name) for name in names]
    assert files[:3] == ["run.p.html", "run.p~2.html", "run.@3.html"]
    assert len(set(files)) == len(files)
    assert all("/" not in file and ".." not in file and len(file) < 180 for file in files)


def test_the_overview_adds_the_days_up(ctx: StageContext) -> None:
    summaries = {one.day: dict(one.summary) for one in ctx.lake.manifests(tables.AXIS_A_CORPUS)}
    data = report_data(ctx, summaries)
    assert data.flow.pairs == sum(summary["input"] for summary in summaries.values())
    assert data.flow.difference == 0
    assert set(data.strategies.days) == {day for day, summary in summaries.items() if summary["accepted"]}
    assert data.strategies.tails[ALL].traces == sum(summary["accepted"] for summary in summaries.values())
    assert data.cost.rules_verdicts > 0


def test_a_day_that_was_not_curated_is_named_with_what_to_do(ctx: StageContext) -> None:
    with pytest.raises(Abort, match="no report of 2026-06-01.*curated days: .* to .*ingest --day 2026-06-01"):
        day_report(ctx, "2026-06-01")


def _run(words: list[str], settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    for name in ("data_root", "lake_uri", "checkpoint_root", "index_root"):
        monkeypatch.setenv(f"TRAJECTORY_PLATFORM_{name.upper()}", str(Path(getattr(settings, name)).absolute()))
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["trajectory-platform", "report", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.mark.parametrize(
    ("words", "code", "file"),
    [
        (["--day", DAY], 0, f"report-{DAY}.html"),
        ([], 0, "report.html"),
        (["--as-of", DAY, "--out", "x/y.html"], 0, "x/y.html"),
        (["--day", "2026-06-01"], 2, None),
        (["--day", "soon"], 2, None),
        (["--day", DAY, "--checkpoint", "sft-x"], 2, None),
        (["--as-of", DAY, "--day", DAY], 2, None),
        (["--traces"], 2, None),
        (["--day", DAY, "--evaluation", "x"], 2, None),
        (["--checkpoint", "nobody"], 2, None),
    ],
    ids=[
        "day",
        "overview",
        "as-of",
        "not-curated",
        "no-day",
        "two-pages",
        "two-days",
        "traces-of-nothing",
        "evaluation-of-a-day",
        "no-checkpoint",
    ],
)
def test_the_command_writes_one_page(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    file: str | None,
) -> None:
    assert _run(words, settings, tmp_path, monkeypatch) == code
    written = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert written == ([file] if file else [])
    printed = capsys.readouterr()
    assert (file or "") in printed.out and printed.err.count("\n") == (0 if code == 0 else 1)


RECORD = {
    "state": "open",
    "open_because": "artifacts are embargoed",
    "looks": 3,
    "last_look": "2026-05-03T04:00:00Z",
    "pairs": 1200,
    "fetched": 900,
    "later": {"embargo": 300},
    "expected": None,
    "distinct": 700,
    "reconciliation": "unknown",
    "clock_skew_s": -1.25,
    "warnings": ["the history is cold"],
}


def test_the_record_of_fetching_is_told_in_words(settings: Settings, tmp_path: Path) -> None:
    here = StageContext(settings.model_copy(update={"data_root": str(tmp_path)}))
    assert fetch_facts(here, DAY) == []
    (tmp_path / DAY).mkdir()
    record = tmp_path / DAY / "fetch.json"
    record.write_text(json.dumps(RECORD))
    facts = dict(fetch_facts(here, DAY))
    assert facts["state"] == "open" and facts["not there yet"] == "embargo 300"
    assert facts["the subnet's own count"] == "not told; 700 distinct pairs found: unknown"
    assert facts["artifacts fetched"] == "900" and facts["warning"] == "the history is cold"
    record.write_text('{"state": "op')
    assert "damaged" in dict(fetch_facts(here, DAY))["state"]
    record.write_text("[1]")
    assert "damaged" in dict(fetch_facts(here, DAY))["state"]


def test_hotkeys_that_look_alike_stay_two_miners() -> None:
    """A hotkey is chosen by its owner, and a figure stacks bars of one name."""
    alike = ["5CmadeUp" + middle + "wxyz" for middle in ("aaaaaaaa", "bbbbbbbb")]
    names = short_names([*alike, "(unknown)", None, "5D"])
    assert len(set(names.values())) == 5 and names["5D"] == "5D"
    told = [{"miner_hotkey": name, "strategy_cluster": "s"} for name in [*alike, alike[1], None, ""]]
    assert sorted(tail.traces for tail in miner_tails(told).values()) == [1, 2, 2]
    people = {str(place): {**row, "agent_version_id": "a"} for place, row in enumerate(told)}
    rejected = [{"trace_id": name, "stage": "axis"} for name in people]
    found = miner_rows(people, [], rejected)
    assert len({row["miner"] for row in found}) == 3 and sum(row["pairs"] for row in found) == 5


def test_what_cannot_be_scored_is_no_scored_trace() -> None:
    """The reasons of rejection count it as unscorable too: the two tables must not contradict each other."""
    outcomes = [("success", True)] * 3 + [("failure", False), ("unscorable", False), ("no_reward", None)]
    judged = [
        {"category": "product", "outcome": outcome, "outcome_success": success, "problem_key": str(place)}
        for place, (outcome, success) in enumerate(outcomes)
    ]
    for row in outcome_rows(judged, seed=1):
        assert (row["traces"], row["success"], row["unscorable"]) == (4, 0.75, 2)
