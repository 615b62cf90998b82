"""From a raw day to a scored checkpoint without an orchestrator; a second recipe never erases the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajectory_platform.evaluation import child
from trajectory_platform.lake import tables
from trajectory_platform.lineage import questions
from trajectory_platform.settings import Settings
from trajectory_platform.stages import audits, closing
from trajectory_platform.stages.checkpoints import current_checkpoint
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.plain import ingest_days, train_days
from trajectory_platform_tests.stages.arena_days import DAYS, here, make_days, settings_for
from trajectory_platform_tests.stages.recipes import write_recipe


def _recipe(folder: Path, name: str, learning_rate: float) -> str:
    return write_recipe(folder, name, stages__sft__optimiser__learning_rate=learning_rate, evaluation__max_turns=4)


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting a dozen processes would take most of the time; that they start is tested elsewhere."""
    monkeypatch.setattr(child, "plain_runner", lambda *_: here)


def _train(settings: Settings) -> dict[str, str]:
    return {fact["stage"]: fact["state"] for fact in train_days(settings, "sft", DAYS[1])}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = settings_for(make_days(tmp_path / "days", days=2), tmp_path / "lake")
    facts = list(ingest_days(made, None, None, None))
    assert {fact["state"] for fact in facts} == {"published"}
    return made


def test_a_second_recipe_keeps_the_first_checkpoint_its_traces_and_its_scores(
    settings: Settings, tmp_path: Path
) -> None:
    one = settings.model_copy(update={"recipe": _recipe(tmp_path, "one", 1e-3)})
    two = settings.model_copy(update={"recipe": _recipe(tmp_path, "two", 2e-3)})
    assert set(_train(one).values()) == {"published"}
    assert set(_train(one).values()) == {"current"}
    ctx = StageContext(one)
    first = current_checkpoint(ctx, DAYS[1])
    assert first is not None
    assert _train(two)["sft_checkpoint"] == "published"
    second = current_checkpoint(ctx, DAYS[1])
    assert second is not None and second["checkpoint_id"] != first["checkpoint_id"]
    for name in (first["checkpoint_id"], second["checkpoint_id"]):
        facts = questions.about_checkpoint(ctx.lake, name)
        assert facts is not None and facts["trace_list_holds"] and facts["traces"] > 0
        assert sum(facts["miners"].values()) == facts["traces"]
    scores = ctx.lake.read(tables.ACTION_SCORES, [DAYS[1]]).to_pylist()
    assert {row["checkpoint_id"] for row in scores} == {first["checkpoint_id"], second["checkpoint_id"]}
    attempted = ctx.lake.read(tables.EVAL_SCORES, [DAYS[1]]).to_pylist()
    of_sft = {row["checkpoint_id"] for row in attempted if row["stage"] == "sft"}
    assert of_sft == {first["checkpoint_id"], second["checkpoint_id"]}
    shown = closing.score_metrics(StageContext(two), DAYS[1])["categories"][0]["turns"]
    assert shown == sum(row["checkpoint_id"] == second["checkpoint_id"] for row in scores)
    assert audits.checkpoint_intact("sft")(ctx, DAYS[1])["passed"]
    # back to the first recipe: nothing is trained again, and it is the current one
    assert _train(one)["sft_checkpoint"] == "published"
    back = current_checkpoint(ctx, DAYS[1])
    assert back == first


def test_no_dev_trace_was_trained_on(settings: Settings, tmp_path: Path) -> None:
    chosen = settings.model_copy(update={"recipe": _recipe(tmp_path, "one", 1e-3)})
    _train(chosen)
    ctx = StageContext(chosen)
    pools = {row["trace_id"]: row["pool"] for row in ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [DAYS[1]]).to_pylist()}
    trained = ctx.lake.read(tables.CHECKPOINT_TRACES, [DAYS[1]]).to_pylist()
    scored = ctx.lake.read(tables.ACTION_SCORES, [DAYS[1]]).to_pylist()
    assert trained and scored
    assert {pools[row["trace_id"]] for row in trained} == {"train"}
    assert {pools[row["trace_id"]] for row in scored} == {"dev"}
