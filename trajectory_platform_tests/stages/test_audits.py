"""An audit that cannot fail is worth nothing: each table damaged in turn makes the audits of its asset fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajectory_platform.defs.checks import CHECKS
from trajectory_platform.lake import tables
from trajectory_platform.lake.publish import Lake
from trajectory_platform.settings import Settings
from trajectory_platform.stages.audits import audited
from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.stages.arena_days import ingest, make_days, settings_for, split

DAY = "2026-05-03"
NOT_TRAINED = {
    name for name in CHECKS if name.endswith(("checkpoint_intact", "_traces_accounted", "_rollouts_accounted"))
} | {"scores_digest"}
"""The checks of what only a training publishes: nothing of it is there."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("audits")
    settings = settings_for(make_days(root / "days", days=2), root / "lake")
    ingest(settings, ["2026-05-02", DAY])
    split(settings, DAY)
    return settings


def _failed(settings: Settings, day: str = DAY) -> set[str]:
    ctx = StageContext(settings)
    return {name for name, (_, audit, _) in CHECKS.items() if not audited(audit, ctx, day)["passed"]}


def test_sound_tables_pass(filled: Settings) -> None:
    assert _failed(filled) == NOT_TRAINED


def test_nothing_is_promised_about_what_was_never_published(filled: Settings) -> None:
    assert _failed(filled, "2026-05-04") == set(CHECKS)


@pytest.mark.parametrize(
    "table",
    [
        "day_summaries", "raw_traces", "trajectories", "judged_traces", "verdicts", "axis_a_corpus", "rejected_traces",
        "leak_clusters", "leak_edges", "leak_guarded_splits",
    ],
)  # fmt: skip
def test_damaged_bytes_fail_an_audit(filled: Settings, table: str) -> None:
    lake = Lake(filled.lake_uri)
    manifest = lake.manifest(table, DAY)
    assert manifest is not None
    path = lake.root / table / next(iter(manifest.files))
    whole = path.read_bytes()
    place = len(whole) // 8  # among the pages; the last two thirds of a small file are indexes and footer
    path.write_bytes(whole[:place] + bytes(64) + whole[place + 64 :])
    try:
        assert _failed(filled) > NOT_TRAINED
    finally:
        path.write_bytes(whole)


def test_rows_that_were_moved_by_hand_fail_an_audit(filled: Settings, tmp_path: Path) -> None:
    """Published with a good manifest, so that only the content can tell."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lake = Lake(filled.lake_uri)

    def put(table: tables.Table, rows: pa.Table) -> None:
        lake.publish(table, DAY, rows, identity="forged", inputs={}, code_version="0", settings={})

    for table, expected in (
        (tables.REJECTED_TRACES, {"conservation"}),
        (tables.RAW_TRACES, {"conservation"}),
        (tables.LEAK_GUARDED_SPLITS, {"pools_disjoint"}),
    ):
        rows = lake.read(table, [DAY])
        forged = rows.slice(1)
        if table is tables.LEAK_GUARDED_SPLITS:  # whole clusters declared train: disjoint, and still a leak
            pool = pc.if_else(pc.equal(rows["pool"], "train"), "dev", "train")
            forged = rows.set_column(rows.schema.get_field_index("pool"), rows.schema.field("pool"), pool)
        put(table, forged)
        assert expected <= _failed(filled), table.name
        put(table, rows)
    assert _failed(filled) == NOT_TRAINED
