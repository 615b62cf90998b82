"""A second run of a day writes nothing; a changed setting rebuilds exactly what depends on it (design 3)."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from trajectory_platform.arena.simulate import simulate
from trajectory_platform.lake.tables import TABLES
from trajectory_platform.settings import Settings
from trajectory_platform.stages import audits, splits
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.plain import DAILY_STAGES

FIRST = date(2026, 5, 2)
DAYS = ["2026-05-02", "2026-05-03"]
AS_OF = (("leak_clusters", splits.leak_clusters), ("leak_guarded_splits", splits.leak_guarded_splits))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("arena")
    simulate(root / "days", days=2, traces_per_day=60, seed=5, first_day=FIRST)
    settings = Settings(
        data_root=str(root / "days"), lake_uri=str(root / "lake"), checkpoint_root=str(root / "c"), first_day=FIRST
    )
    _run_all(settings)
    return settings


def _run_all(settings: Settings) -> dict[str, bool]:
    """Run every stage on both days; stage -> was anything written."""
    ctx = StageContext(settings)
    wrote: dict[str, bool] = {}
    for name, stage in DAILY_STAGES:
        for day in DAYS:
            wrote[name] = not stage(ctx, day).skipped or wrote.get(name, False)
    for name, stage in AS_OF:
        wrote[name] = not stage(ctx, DAYS[-1]).skipped
    return wrote


def _versions(settings: Settings) -> dict[str, int]:
    from deltalake import DeltaTable

    root = Path(settings.lake_uri)
    return {name: DeltaTable(str(root / name)).version() for name in TABLES if (root / name / "_delta_log").exists()}


def test_second_run_makes_no_commit(base: Settings) -> None:
    before = _versions(base)
    assert not any(_run_all(base).values())
    assert _versions(base) == before


def test_conservation_on_every_day(base: Settings) -> None:
    ctx = StageContext(base)
    for day in DAYS:
        facts = audits.conservation(ctx, day)
        assert facts["passed"], facts
        assert facts["found"] >= 60


@pytest.mark.parametrize(
    ("change", "rebuilt", "only_if_rows_changed"),
    [
        ({"reasoning_gate": 0.9}, {"axis_a_corpus"}, {"leak_guarded_splits"}),
        ({"axis_a_min_share": 0.95}, {"axis_a_corpus"}, {"leak_guarded_splits"}),
        ({"judge": "validator"}, {"judged_traces", "axis_a_corpus"}, {"leak_guarded_splits"}),
        ({"pool_key": "another key"}, {"leak_clusters", "leak_guarded_splits"}, set()),
        ({"window_days": 1}, {"leak_guarded_splits"}, set()),
        ({"batch_rows": 7}, set(), set()),
        ({"workers": 2}, set(), set()),
        ({"seed": 99}, set(), set()),
    ],
)
def test_changed_setting_rebuilds_exactly_what_depends_on_it(
    base: Settings, change: dict[str, object], rebuilt: set[str], only_if_rows_changed: set[str]
) -> None:
    wrote = {stage for stage, written in _run_all(base.model_copy(update=change)).items() if written}
    # a stage rebuilt to equal rows does not make what follows it stale: digests decide, not runs
    assert rebuilt <= wrote <= rebuilt | only_if_rows_changed
    _run_all(base)


def test_batch_size_and_workers_do_not_change_the_rows(base: Settings, tmp_path: Path) -> None:
    other = base.model_copy(update={"lake_uri": str(tmp_path / "lake"), "batch_rows": 7, "workers": 2})
    _run_all(other)
    here, there = StageContext(base).lake, StageContext(other).lake
    for table in ("trajectories", "judged_traces", "axis_a_corpus", "rejected_traces"):
        for day in DAYS:
            one, two = here.manifest(table, day), there.manifest(table, day)
            assert one is not None and two is not None
            assert one.content_digest == two.content_digest, (table, day)
