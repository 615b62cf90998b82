"""A poisoned day in a five-day range fails alone, three assets deep (design 4, cases F08)."""

from __future__ import annotations

import dataclasses
import logging
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from trajectory_platform.arena.simulate import simulate
from trajectory_platform.defs.day_runs import MAX_METADATA_BYTES, capped, contiguous, gpu_seconds, materialise_days
from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.defs.sensors import RANGE_END, RANGE_START, good_days_of_failed_run
from trajectory_platform.errors import FailPartition
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext, StageResult

FIRST, LAST, BAD = date(2026, 5, 2), date(2026, 5, 6), "2026-05-04"
GOOD = {"2026-05-02", "2026-05-03", "2026-05-05", "2026-05-06"}


@pytest.fixture(scope="module")
def five_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("five") / "days"
    simulate(root, days=5, traces_per_day=40, seed=3, first_day=FIRST)
    return root


def _settings(root: Path, lake: Path) -> Settings:
    return Settings(data_root=str(root), lake_uri=str(lake), checkpoint_root=str(lake / "checkpoints"), first_day=FIRST)


def _run(definitions: dg.Definitions, instance: dg.DagsterInstance, first: str, last: str) -> dg.ExecuteInProcessResult:
    return definitions.resolve_job_def("ingest_and_curate").execute_in_process(
        instance=instance, tags={RANGE_START: first, RANGE_END: last}, raise_on_error=False
    )


def _done(instance: dg.DagsterInstance, asset: str) -> set[str]:
    return set(instance.get_materialized_partitions(dg.AssetKey(asset)))


def test_day_broken_at_the_source_fails_alone(five_days: Path, tmp_path: Path) -> None:
    problems = five_days / BAD / "problems.jsonl"
    kept = problems.read_bytes()
    problems.write_bytes(b"\x00garbage\n" * 50)
    try:
        definitions = build_definitions(_settings(five_days, tmp_path / "lake"), LAST)
        with dg.DagsterInstance.ephemeral() as instance:
            run = _run(definitions, instance, FIRST.isoformat(), LAST.isoformat())
            assert not run.success
            assert _done(instance, "raw_traces") == GOOD
            assert BAD not in _done(instance, "axis_a_corpus")
            follow_up = good_days_of_failed_run(instance, run.run_id)
            assert set(follow_up) == GOOD
            for first, last in contiguous(follow_up):
                assert _run(definitions, instance, first, last).success
            assert _done(instance, "axis_a_corpus") == GOOD
            assert _done(instance, "rejected_traces") == GOOD
    finally:
        problems.write_bytes(kept)


def test_day_that_fails_at_the_third_asset_leaves_the_first_two_green(
    five_days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trajectory_platform.judging import day as judging_day

    honest = judging_day.judge_day

    def poisoned(raw, batches, problems, catalogue, **options):  # type: ignore[no-untyped-def]
        if raw.column("day").to_pylist()[0] == BAD:
            raise FailPartition(f"{BAD}: planted")
        return honest(raw, batches, problems, catalogue, **options)

    settings = _settings(five_days, tmp_path / "lake")
    definitions = build_definitions(settings, LAST)
    with dg.DagsterInstance.ephemeral() as instance:
        with monkeypatch.context() as planted:
            planted.setattr(judging_day, "judge_day", poisoned)
            run = _run(definitions, instance, FIRST.isoformat(), LAST.isoformat())
            assert not run.success
            assert _done(instance, "trajectories") == GOOD | {BAD}
            assert _done(instance, "judged_traces") == GOOD
            assert _done(instance, "axis_a_corpus") == set()
            for first, last in contiguous(good_days_of_failed_run(instance, run.run_id)):
                assert _run(definitions, instance, first, last).success
            assert _done(instance, "axis_a_corpus") == GOOD
        # once the fault is gone, the bad day alone is run again; the others are skipped by identity
        lake = StageContext(settings).lake
        before = {day: lake.manifest("axis_a_corpus", day) for day in GOOD}
        assert _run(definitions, instance, BAD, BAD).success
        assert _done(instance, "axis_a_corpus") == GOOD | {BAD}
        assert {day: lake.manifest("axis_a_corpus", day) for day in GOOD} == before


def test_checks_re_read_and_hold(five_days: Path, tmp_path: Path) -> None:
    definitions = build_definitions(_settings(five_days, tmp_path / "lake"), LAST)
    with dg.DagsterInstance.ephemeral() as instance:
        run = _run(definitions, instance, FIRST.isoformat(), LAST.isoformat())
        assert run.success
        by_hand = definitions.resolve_implicit_global_asset_job_def().get_subset(
            asset_check_selection={dg.AssetCheckKey(dg.AssetKey("axis_a_corpus"), "conservation")},
            asset_selection=set(),
        )
        alone = by_hand.execute_in_process(instance=instance)
        assert [e.passed for e in alone.get_asset_check_evaluations()] == [True], "the newest day, without a partition"
        passed = {e.check_name: e.passed for e in run.get_asset_check_evaluations()}
        events = [event for event in run.get_asset_materialization_events() if event.partition == BAD]
        corpus = next(e for e in events if e.asset_key == dg.AssetKey("axis_a_corpus"))
        shown = corpus.materialization.metadata
        assert shown["funnel"].value.startswith("![") and "data:image/svg+xml" in shown["funnel"].value
        assert shown["content_digest"].value and shown["table_version"].value >= 0
        names = ("conservation", "accepted_rows_are_trainable", "content_digest", "corpus_digest")
        assert passed == dict.fromkeys((*names, "volume"), True)
        damaged = _settings(five_days, tmp_path / "lake")
        lake = StageContext(damaged).lake
        manifest = lake.manifest("rejected_traces", BAD)
        assert manifest is not None
        (lake.root / "rejected_traces" / next(iter(manifest.files))).write_bytes(b"PAR1")
        check = definitions.resolve_implicit_global_asset_job_def().get_subset(
            asset_check_selection={dg.AssetCheckKey(dg.AssetKey("axis_a_corpus"), name) for name in names[:2]}
            | {dg.AssetCheckKey(dg.AssetKey("axis_a_corpus"), "corpus_digest")},
            asset_selection=set(),
        )
        range_of = {RANGE_START: FIRST.isoformat(), RANGE_END: LAST.isoformat()}
        again = check.execute_in_process(instance=instance, tags=range_of, raise_on_error=False)
        verdicts = {e.check_name: (e.passed, e.description) for e in again.get_asset_check_evaluations()}
        passed, words = verdicts["corpus_digest"]
        assert not passed and words.startswith(f"failed on {BAD}: 'trajectory-platform lake verify --invalidate'")
        assert verdicts["conservation"] == (False, f"failed on {BAD}"), "unreadable is failed, not broken"


def test_what_a_day_took_stands_in_its_event_once_and_in_no_manifest(five_days: Path, tmp_path: Path) -> None:
    settings = _settings(five_days, tmp_path / "lake")
    day = FIRST.isoformat()
    with dg.DagsterInstance.ephemeral() as instance:
        assert _run(build_definitions(settings, LAST), instance, day, day).success
        for asset, told in (("judged_traces", True), ("axis_a_corpus", True), ("rejected_traces", False)):
            [event] = instance.fetch_materializations(dg.AssetKey(asset), limit=1).records
            assert event.asset_materialization is not None
            metadata = event.asset_materialization.metadata
            assert {"wall_s", "cpu_s"} & set(metadata) == ({"wall_s", "cpu_s"} if told else set())
            assert not told or all(float(metadata[name].value) > 0 for name in ("wall_s", "cpu_s"))  # type: ignore[arg-type]
    manifest = StageContext(settings).lake.manifest("judged_traces", day)
    assert manifest is not None and "cpu_s" not in manifest.summary


def test_seconds_of_a_gpu_are_those_of_all_its_devices(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("hardware: {profile: gpus, processes: 4, precision: bf16}\nstages: {sft: {}}\n")
    result = StageResult("sft_checkpoint", "2026-05-02", False, {}, {"run_seconds": 10.0})
    ctx = StageContext(_settings(tmp_path, tmp_path / "lake").model_copy(update={"recipe": str(recipe)}))
    result_skipped = dataclasses.replace(result, skipped=True)
    assert gpu_seconds(ctx, result, "checkpoints") == 40.0
    assert gpu_seconds(ctx, result_skipped, "checkpoints") == 0.0
    assert gpu_seconds(ctx, result, "eval_scores") is None
    assert gpu_seconds(StageContext(_settings(tmp_path, tmp_path / "lake")), result, "checkpoints") == 0.0


def test_metadata_is_cut_with_a_marker() -> None:
    facts = capped({"ids": "x" * 20_000, "rows": 1})
    assert "cut" in facts and "ids" not in facts


def test_a_long_range_of_bad_days_is_cut_too() -> None:
    """A year of bad days with long reasons: the failure event stays small."""
    days = [(FIRST + timedelta(days=number)).isoformat() for number in range(365)]
    context = SimpleNamespace(partition_keys=days, log=logging.getLogger("quiet"))

    def stage(_: StageContext, day: str) -> StageResult:
        raise FailPartition(f"{day}: " + "x" * 5000)

    with pytest.raises(dg.Failure) as failed:
        list(materialise_days(context, SimpleNamespace(context=None), stage, {}))  # type: ignore[arg-type]
    assert len(str(failed.value.metadata)) + len(str(failed.value.description)) < 2 * MAX_METADATA_BYTES


def test_contiguous_ranges_skip_the_hole() -> None:
    assert contiguous(sorted(GOOD)) == [("2026-05-02", "2026-05-03"), ("2026-05-05", "2026-05-06")]
