"""Day folders that change, break, come late or go: no pair is lost, none is in two places, nothing stale stays."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.stages import audits, daily
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.status import lake_status
from trajectory_platform_tests.stages.arena_days import (
    DAYS,
    deliver_again,
    ingest,
    make_days,
    place,
    raw_rows,
    rewrite,
    split,
)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_days(tmp_path_factory.mktemp("arena") / "days")


@pytest.mark.parametrize("seed", range(2))
def test_every_pair_is_in_exactly_one_partition_whenever_it_was_judged(days: Path, tmp_path: Path, seed: int) -> None:
    settings = place(days, tmp_path).model_copy(update={"first_day": date(2026, 5, 1)})
    chance = random.Random(seed)
    for day in DAYS:

        def scattered(entry: dict, day: str = day) -> dict:  # type: ignore[type-arg]
            for result in entry["validator_results"]:
                moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
                moment += timedelta(days=chance.choice((-3, -1, -1, 0, 0, 1, 1, 2)), hours=chance.randrange(24))
                result["updated_at"] = moment.isoformat()
            return entry

        rewrite(Path(settings.data_root) / day / "problems.jsonl", scattered)
    span = ["2026-05-01", *DAYS, "2026-05-06"]  # pairs move to the days beside the folders too
    assert set(ingest(settings, span).values()) == {"published"}
    rows = raw_rows(settings, span)
    assert len({row["trace_id"] for row in rows}) == len(rows)
    counted = StageContext(settings).lake.read(tables.DAY_SUMMARIES, span).to_pylist()
    assert sum(day["found"] for day in counted) == len(rows) == 4 * 30
    assert sum(day["moved_in"] for day in counted) == sum(day["moved_out"] for day in counted) > 0
    assert all(audits.conservation(StageContext(settings), day)["passed"] for day in span)


def test_a_late_row_rebuilds_its_judged_day_only(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    ingest(settings)
    listing = Path(settings.data_root) / DAYS[2] / "problems.jsonl"
    lines = listing.read_text("utf-8").splitlines()
    entry = json.loads(lines[0])
    entry["problem_id"] = "late-arrival"
    for result in entry["validator_results"]:
        result["updated_at"] = f"{DAYS[1]}T23:59:59.999999Z"
    listing.write_text("\n".join([*lines, json.dumps(entry)]) + "\n", "utf-8")
    done = ingest(settings)
    assert any(row["trace_id"].endswith(":late-arrival") and row["day"] == DAYS[1] for row in raw_rows(settings))
    assert done[(DAYS[1], "axis_a_corpus")] == "published"
    assert done[(DAYS[3], "trajectories")] == done[(DAYS[0], "axis_a_corpus")] == "current"


def test_a_run_invalidated_later_leaves_the_corpus_and_the_splits(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    ingest(settings)
    split(settings, DAYS[3])
    lake = StageContext(settings).lake
    trained = lake.read(tables.LEAK_GUARDED_SPLITS, [DAYS[3]], columns=["trace_id", "trace_day"]).to_pylist()
    run = next(row["trace_id"].partition(":")[0] for row in trained if row["trace_day"] == DAYS[1])
    for day in DAYS:
        rewrite(
            Path(settings.data_root) / day / "runs.jsonl",
            lambda row: row | ({"invalidated_at": "2026-05-09T00:00:00Z"} if row["eval_run_id"] == run else {}),
        )
    ingest(settings)
    split(settings, DAYS[3])
    left = lake.read(tables.LEAK_GUARDED_SPLITS, [DAYS[3]], columns=["trace_id"]).column("trace_id").to_pylist()
    assert left and not any(name.startswith(run) for name in left)


@pytest.mark.parametrize("cut", [False, True])
def test_a_pair_judged_again_counts_once_by_its_latest_day(days: Path, tmp_path: Path, cut: bool) -> None:
    """Also where the dialogues differ, over three days, and where the latest judgment is no accepted trace."""
    settings = place(days, tmp_path)

    def other(data: bytes) -> bytes:
        plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return b"" if cut else gzip.compress(plain.replace(b"the ", b"that "), mtime=0)

    again = deliver_again(settings, DAYS[0], DAYS[2]) and deliver_again(settings, DAYS[0], DAYS[3], change=other)
    assert set(ingest(settings).values()) == {"published"}
    counted = Counter(row["trace_id"] for row in raw_rows(settings))
    assert sum(count == 3 for count in counted.values()) >= again // 2
    summary = split(settings, DAYS[3])
    assert summary["excluded_judged_again"] > 0
    lake = StageContext(settings).lake
    kept = lake.read(tables.LEAK_GUARDED_SPLITS, [DAYS[3]]).to_pylist()
    out = lake.read(tables.SPLIT_EXCLUSIONS, [DAYS[3]]).to_pylist()
    assert len(kept) + len(out) == lake.read(tables.AXIS_A_CORPUS, DAYS, columns=["trace_id"]).num_rows
    thrice = {name for name, count in counted.items() if count == 3}
    assert {row["trace_day"] for row in kept if row["trace_id"] in thrice} <= (set() if cut else {DAYS[3]})


def test_a_lost_day_folder_is_not_an_empty_day(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    ingest(settings)
    before = raw_rows(settings)
    shutil.move(Path(settings.data_root) / DAYS[1], tmp_path / "elsewhere")
    done = ingest(settings)
    for day in DAYS[:3]:
        assert "gone" in done[(day, "raw_traces")]
    assert done[(DAYS[3], "raw_traces")] == "current"
    assert raw_rows(settings) == before, "the published days stay"
    shutil.move(tmp_path / "elsewhere", Path(settings.data_root) / DAYS[1])
    assert set(ingest(settings).values()) == {"current"}


def test_a_day_beside_a_damaged_folder_is_incomplete_until_that_is_fetched(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    ingest(settings)
    before = raw_rows(settings)
    listing = Path(settings.data_root) / DAYS[1] / "problems.jsonl"
    whole = listing.read_bytes()
    listing.write_bytes(b"\x00garbage\n" * 50)
    done = ingest(settings)
    assert "fetch the day again" in done[(DAYS[1], "raw_traces")]
    assert done[(DAYS[0], "raw_traces")] == done[(DAYS[2], "raw_traces")] == "published"
    states = {day["day"]: day["state"] for day in lake_status(settings)["days"]}
    assert states == {DAYS[0]: "incomplete", DAYS[1]: "behind", DAYS[2]: "incomplete", DAYS[3]: "complete"}
    listing.write_bytes(whole)
    ingest(settings)
    assert raw_rows(settings) == before
    assert {day["state"] for day in lake_status(settings)["days"]} == {"complete"}


def test_an_artifact_that_changes_under_way_fails_the_day_and_heals(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    ctx = StageContext(settings)
    for day in DAYS:
        daily.raw_traces(ctx, day)
    artifact = next(iter(sorted((Path(settings.data_root) / DAYS[1] / "artifacts").rglob("*.gz"))))
    whole = artifact.read_bytes()
    for damage in (artifact.unlink, lambda: artifact.write_bytes(gzip.compress(b"[]", mtime=0))):
        damage()
        with pytest.raises(FailPartition, match="changed while it was read"):
            for day in DAYS:
                daily.trajectories(ctx, day)
    artifact.write_bytes(whole)
    assert set(ingest(settings).values()) == {"published", "current"}
    malformed = ctx.lake.read(tables.TRAJECTORIES, DAYS, columns=["malformed"]).column("malformed").to_pylist()
    assert not {"not_found", "artifact_changed"} & set(malformed)


def test_no_time_in_a_listing_stops_a_day(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    moments = [10**400, -(10**400), 1e308, "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", True, {"a": 1}]
    planted = iter(moments)

    def hostile(entry: dict) -> dict:  # type: ignore[type-arg]
        entry["validator_results"][0]["updated_at"] = next(planted, None)
        return entry

    rewrite(Path(settings.data_root) / DAYS[1] / "problems.jsonl", hostile)
    done = ingest(settings, DAYS[:3])
    assert set(done.values()) == {"published"}, done


def test_a_day_without_pairs_goes_through_every_stage(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    for day in DAYS:
        folder = Path(settings.data_root) / day
        shutil.rmtree(folder / "artifacts")
        (folder / "suite.json").unlink()
        for name in ("problems.jsonl", "runs.jsonl"):
            (folder / name).write_text("")
    assert set(ingest(settings).values()) == {"published"}
    assert set(ingest(settings).values()) == {"current"}
    assert split(settings, DAYS[3])["traces"] == 0


def test_an_unknown_fault_fails_its_day_only(days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trajectory_platform.judging import day as judging_day

    honest = judging_day.judge_day

    def broken(raw, *rest, **options):  # type: ignore[no-untyped-def]
        if raw.column("day").to_pylist()[0] == DAYS[1]:
            raise ZeroDivisionError("planted")
        return honest(raw, *rest, **options)

    monkeypatch.setattr(judging_day, "judge_day", broken)
    done = ingest(place(days, tmp_path))
    assert done[(DAYS[1], "judged_traces")] == "ZeroDivisionError: planted"
    assert (DAYS[1], "axis_a_corpus") not in done
    assert all(done[(day, "axis_a_corpus")] == "published" for day in DAYS if day != DAYS[1])
