"""The asset graph says what each asset is made of, and its jobs and pools hold what the flow needs."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from trajectory_platform.defs.assets import corpus, training
from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.defs.jobs import TRAIN_ASSETS
from trajectory_platform.evaluation import child
from trajectory_platform.lake.publish import Lake
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.plain import DAILY_ASSETS, DAILY_STAGES, training_flow
from trajectory_platform.training.stage_recipes import STAGES
from trajectory_platform_tests.stages.arena_days import make_days, settings_for

DAY = "2026-05-02"
ROWS = (*corpus.rows(), *training.rows(2))
TABLE_OF = {asset: table for row in ROWS for asset, table in row.outputs.items()}
UPSTREAM = {asset: row.upstream for row in ROWS for asset in row.outputs}
# Published beside an asset's own table, and the ledgers, which people write to.
SIDE = {"verdicts": "judged_traces", "day_summaries": "axis_a_corpus", "leak_edges": "leak_clusters"}
SIDE |= {"leak_hints": "leak_clusters", "split_exclusions": "leak_guarded_splits", "rollouts": "eval_scores"}
SIDE |= {"checkpoint_traces": "checkpoints"}
LEDGERS = {"retractions", "ledger"}
EVERY_STAGE = (
    "stages: {sft: {select: {source: unfiltered}}, resft: {}, teacher_sft: {parent: base}, kto: {parent: base}, "
    "dr_grpo: {parent: base}}\n"
)


def tables_above(asset: str) -> set[str]:
    """Tables of all assets that an asset descends from."""
    found: set[str] = set()
    for name in UPSTREAM.get(asset, {}):
        found |= {TABLE_OF.get(name, name)} | tables_above(name)
    return found


def test_whatever_an_asset_is_made_of_is_upstream_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of its identity directly, so that it reads as stale when they change; what else it reads by descent."""
    monkeypatch.setattr(child, "plain_runner", lambda *_: pytest.fail("too few traces: nothing is to be trained"))
    read: set[str] = set()
    for method in ("read", "batches", "manifest", "manifests", "lookup"):
        real = getattr(Lake, method)

        def noted(self: Lake, table: Any, *rest: Any, _real: Any = real, **more: Any) -> Any:
            read.add(table if isinstance(table, str) else table.name)
            return _real(self, table, *rest, **more)

        monkeypatch.setattr(Lake, method, noted)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("min_traces: 1000\n" + EVERY_STAGE)
    ctx = StageContext(settings_for(make_days(tmp_path / "days", days=1), tmp_path / "lake", recipe=str(recipe)))
    for name, stage in (*DAILY_STAGES, *training_flow("dr_grpo")):
        read.clear()
        [*_, manifest] = stage(ctx, DAY).manifests.values()
        looked = {SIDE.get(table, table) for table in read} - LEDGERS
        direct = {TABLE_OF.get(one, one) for one in UPSTREAM[name]}
        made_of = {key.partition("/")[0] for key in manifest.inputs} & set(TABLE_OF.values())
        assert made_of - direct - {TABLE_OF[name]} == set(), name
        assert looked - tables_above(name) - {SIDE.get(TABLE_OF[name], TABLE_OF[name])} == set(), name


def test_the_catalogue_is_a_file_of_the_source_that_is_observed_and_never_missing(tmp_path: Path) -> None:
    """Dagster's pages warn of upstream assets that could have been materialised and never were."""
    settings = settings_for(make_days(tmp_path / "days", days=1), tmp_path / "lake")
    definitions = build_definitions(settings, date(2026, 5, 2))
    node = definitions.resolve_asset_graph().get(dg.AssetKey("product_catalogue"))
    assert node.is_observable and not node.is_materializable
    with dg.DagsterInstance.ephemeral() as instance:
        selection = dg.AssetSelection.assets("product_catalogue")
        look = dg.Definitions(
            assets=[corpus.product_catalogue()],
            resources=definitions.resources,
            jobs=[dg.define_asset_job("look", selection=selection)],
        )
        assert look.resolve_job_def("look").execute_in_process(instance=instance).success
        [event] = instance.fetch_observations(dg.AssetKey("product_catalogue"), limit=1).records
        assert event.asset_observation is not None and event.asset_observation.metadata["products"].value


def test_the_jobs_hold_every_asset_of_the_flow_and_heavy_ones_share_a_pool_of_one() -> None:
    assert set(DAILY_ASSETS) | set(TRAIN_ASSETS) == set(TABLE_OF)
    heavy = {asset for row in ROWS if row.own_process for asset in row.outputs}
    assert heavy == {asset for row in ROWS if row.pool == training.TRAINING_POOL for asset in row.outputs}
    assert {f"{stage}_checkpoint" for stage in STAGES} < heavy
    instance = yaml.safe_load((Path(__file__).parents[2] / "dagster.yaml").read_text("utf-8"))
    assert instance["concurrency"]["pools"] == {"default_limit": 1, "granularity": "op"}


def test_the_model_before_training_is_measured_when_all_checkpoints_are_there() -> None:
    """Without a folder it has the architecture of the first one, which need not be that of SFT."""
    order = [name for name, _ in training_flow("dr_grpo")]
    assert all(order.index("base_eval") > order.index(f"{stage}_checkpoint") for stage in STAGES)
    assert {f"{stage}_checkpoint" for stage in STAGES} < set(UPSTREAM["base_eval"])
