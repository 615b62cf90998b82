"""Which rows a stage of training gets, why a stage is left out, and what it starts from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation import child
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages import attempted_problems, generated, training_rows
from trajectory_platform.stages.base_model import base_subject
from trajectory_platform.stages.checkpoints import NO_PARENT, NOT_IN_RECIPE, parent_of
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.doctor import examine
from trajectory_platform.stages.dry_run import dry_run_text, rehearse
from trajectory_platform.stages.plain import train_days
from trajectory_platform.stages.result_words import told
from trajectory_platform.stages.training_rows import Feed
from trajectory_platform.training.recipe import Recipe, load_recipe
from trajectory_platform.training.stage_recipes import STAGES
from trajectory_platform_tests.stages.arena_days import DAYS, here, ingest, make_days, settings_for, split
from trajectory_platform_tests.stages.built_lake import context, row
from trajectory_platform_tests.stages.recipes import small_recipe, write_recipe

DAY = DAYS[1]
CONTROL = {"source": "unfiltered", "categories": None, "min_quality": 0.0}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("rows")
    made = settings_for(make_days(root / "days", days=2, traces=60), root / "lake", recipe=write_recipe(root))
    ingest(made, DAYS[:2])
    split(made, DAY)
    return made


def feed(settings: Settings, stage: str, **changes: Any) -> Feed:
    recipe = Recipe.model_validate(small_recipe(stages=STAGES, seed=0, **changes))
    return Feed(StageContext(settings), DAY, recipe, stage)


def test_the_control_takes_the_whole_stream_of_the_train_problems(settings: Settings, tmp_path: Path) -> None:
    ctx = StageContext(settings)
    filtered = training_rows.supervised(feed(settings, "sft"), tmp_path).rows
    of_all = feed(settings, "sft", stages__sft__select=CONTROL)
    everything = training_rows.supervised(of_all, tmp_path).rows
    names = {one["trace_id"] for one in everything}
    assert {one["trace_id"] for one in filtered} < names and len(names) == len(everything)
    rejected = ctx.lake.read(tables.REJECTED_TRACES, DAYS[:2]).to_pylist()
    reasons = {one["reason"] for one in rejected if one["trace_id"] in names}
    assert "axis_b" in reasons, "most of the stream is not the model's own acting"
    pools = {one["problem_key"]: one["pool"] for one in ctx.lake.read(tables.LEAK_CLUSTERS, [DAY]).to_pylist()}
    assert {pools[one["problem_key"]] for one in everything} == {"train"}
    assert of_all.counts["source"] == "unfiltered" and json.loads(everything[0]["extra"])["source"] == "unfiltered"
    kto = training_rows.preferred(feed(settings, "kto", stages__kto__select=CONTROL), tmp_path).rows
    assert {one["trace_id"] for one in kto} == names and {one["role"] for one in kto} == {"desirable", "undesirable"}


def test_a_preference_row_carries_its_verdicts(settings: Settings, tmp_path: Path) -> None:
    own = feed(settings, "kto")
    rows = training_rows.preferred(own, tmp_path).rows
    uses = {"desirable": "kto_desirable", "undesirable": "kto_undesirable"}
    assert {one["role"] for one in rows} == set(uses) and own.counts["desirable"] + own.counts["undesirable"] == len(
        rows
    )
    for one in rows:
        told = json.loads(one["extra"])
        assert uses[one["role"]] in told["uses"] and told["source"] == "corpus"
        assert {"situation", "flags", "outcome_success", "reasoning_quality", "recommended_ids"} <= set(told)
        assert {"hallucinated_ids", "unviewed_ids", "not_in_catalogue_ids", "discipline"} <= set(told)


def test_selection_by_category_and_quality(settings: Settings, tmp_path: Path) -> None:
    rows = training_rows.supervised(feed(settings, "sft"), tmp_path).rows
    some = {"source": "corpus", "categories": ["product"], "min_quality": 0.9}
    kept = training_rows.supervised(feed(settings, "sft", stages__sft__select=some), tmp_path).rows
    assert 0 < len(kept) < len(rows) and all(one["weight"] >= 0.9 for one in kept)


def test_problems_to_attempt_come_with_the_best_known_success(settings: Settings, tmp_path: Path) -> None:
    own = feed(settings, "dr_grpo")
    made = attempted_problems.attempted(own, tmp_path)
    prompts = [one for one in made.rows if one["role"] == "prompt"]
    references = [one for one in made.rows if one["role"] == "reference"]
    assert len(prompts) == own.counts["problems"] and len(references) == own.counts["problems_with_reference"] > 0
    lines = [json.loads(one["extra"]) for one in prompts]
    told = {line["problem_key"]: line["reference"] and line["reference"]["trace_id"] for line in lines}
    assert {one["problem_key"]: one["trace_id"] for one in references} == {k: v for k, v in told.items() if v}
    assert all(line["problem"]["reward"] for line in lines) and made.files["world"].is_dir()
    accepted = StageContext(settings).lake.read(tables.AXIS_A_CORPUS, DAYS[:2]).to_pylist()
    successes = {one["trace_id"] for one in accepted if one["outcome_success"] and one["outcome_source"] == "rule"}
    assert {one["trace_id"] for one in references} <= successes


def test_too_little_to_train_on_is_an_empty_slot_with_a_reason_all_the_way(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "plain_runner", lambda *_: pytest.fail("nothing is to be trained"))
    stages = ("sft", "resft", "kto", "dr_grpo")
    few = write_recipe(tmp_path, stages=stages, min_traces=10_000)
    facts = {one["stage"]: one for one in train_days(settings.model_copy(update={"recipe": few}), "all", DAY)}
    assert "failed" not in {one["state"] for one in facts.values()}
    reasons = {stage: facts[f"{stage}_checkpoint"]["summary"]["reason"] for stage in STAGES}
    expected = dict.fromkeys(STAGES, NO_PARENT) | {"sft": "too_few_traces", "teacher_sft": NOT_IN_RECIPE}
    assert reasons == expected
    assert facts["resft_rollouts"]["summary"]["state"] == NO_PARENT
    assert facts["teacher_traces"]["summary"]["state"] == NOT_IN_RECIPE
    assert {facts[f"{stage}_eval"]["summary"]["state"] for stage in ("base", *STAGES)} == {"no_checkpoint"}


def test_a_stage_that_is_none_or_not_in_the_recipe_is_one_line(settings: Settings) -> None:
    with pytest.raises(Abort, match="has no stage 'kto'"):
        list(train_days(settings, "kto", DAY))
    with pytest.raises(Abort, match="choose one of sft, resft, teacher_sft, kto, dr_grpo, or all"):
        list(train_days(settings, "dpo", DAY))


def slot(ctx: StageContext, stage: str, name: str) -> None:
    """What a stage published: a checkpoint, or with "" an empty slot."""
    part = {"stage": stage}
    rows = [row(tables.CHECKPOINTS, checkpoint_id=name, day=DAY, stage=stage, path=name)] if name else []
    import pyarrow as pa

    data = pa.Table.from_pylist(rows, schema=tables.CHECKPOINTS.schema())
    summary = {"checkpoint_id": name}
    ctx.lake.publish(
        tables.CHECKPOINTS,
        DAY,
        data,
        identity="x",
        inputs={},
        code_version="1",
        settings={},
        summary=summary,
        part=part,
    )


def test_a_stage_starts_from_the_nearest_trained_one(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    recipe = load_recipe("fast")

    def start(stage: str, of: Recipe = recipe) -> str:
        found, lacking = parent_of(ctx, DAY, of, stage)
        return str(lacking or (found["checkpoint_id"] if found else "base"))

    assert start("sft") == "base" and start("resft") == NO_PARENT
    slot(ctx, "sft", "sft-x")
    assert start("resft") == "sft-x"
    assert start("teacher_sft") == NO_PARENT, "re-SFT has not been run: it may still make a checkpoint"
    slot(ctx, "resft", "")
    assert start("teacher_sft") == "sft-x", "re-SFT was left out: nothing was accepted"
    named = Recipe.model_validate(
        small_recipe(stages=STAGES, stages__kto__parent="resft", stages__dr_grpo__parent="base")
    )
    assert start("kto", named) == NO_PARENT, "the recipe insists on a checkpoint that is not there"
    assert start("dr_grpo", named) == "base"


def test_a_base_folder_is_asked_under_the_template_of_the_recipe(tmp_path: Path) -> None:
    base = tmp_path / "model"
    base.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "manifest.json"):
        (base / name).write_text(name)
    ctx = context(tmp_path)
    recipe = Recipe.model_validate(small_recipe(model={"base": str(base)}))
    subject = base_subject(ctx, recipe)
    folder = Path(subject.policy["spec"].removeprefix("checkpoint:"))
    assert "generation" in (folder / "chat_template.jinja").read_text("utf-8"), "the training template, not its own"
    assert (folder / "model.safetensors").read_text("utf-8") == "model.safetensors"
    assert not (folder / "manifest.json").exists() and subject.policy["options"]["context"]["max_length"] == 1536
    assert base_subject(ctx, recipe).name == subject.name
    (base / "model.safetensors").write_text("other weights")
    assert base_subject(ctx, recipe).name != subject.name, "another content is another model"


def test_a_dry_run_counts_what_would_be_trained_and_trains_nothing(settings: Settings, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, stages=("sft", "kto", "dr_grpo"))
    chosen = settings.model_copy(update={"recipe": recipe, "checkpoint_root": str(tmp_path / "c")})
    facts = rehearse(chosen, "kto", None, runner=here)
    assert facts["day"] == DAY and set(facts["stages"]) == {"sft", "kto"}, "later stages are not asked about"
    assert facts["stages"]["sft"]["rows"] > 0 and "sft" in dry_run_text(facts)
    assert not (tmp_path / "c").exists()
    with pytest.raises(Abort, match="no device"):
        rehearse(chosen, "sft", None, device="abacus", runner=here)


def test_the_doctor_reads_the_recipe(settings: Settings, tmp_path: Path) -> None:
    def told(recipe: str) -> dict[str, dict[str, Any]]:
        return {one["area"]: one for one in examine(settings.model_copy(update={"recipe": recipe}))}

    good = told(write_recipe(tmp_path, stages=("sft", "kto")))
    assert good["recipe"]["text"] == "small: sft -> kto" and good["hardware"]["text"].startswith("cpu: 1 x 1 threads")
    assert told("no such recipe")["recipe"]["level"] == "error"
    away = told(write_recipe(tmp_path, "away", model={"base": str(tmp_path / "nowhere")}))
    assert away["model"]["level"] == "note"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"teacher": "gpt"}, "stages.teacher_sft.teacher 'gpt': write script:NAME"),
        ({"teacher": "script:nobody"}, "nobody"),
    ],
)
def test_a_teacher_that_cannot_be_asked_is_said_before_anything_is_trained(
    settings: Settings, tmp_path: Path, change: dict[str, str], words: str
) -> None:
    recipe = write_recipe(tmp_path, stages=("sft", "teacher_sft"), stages__teacher_sft__teacher=change["teacher"])
    with pytest.raises(Abort, match=words):
        next(iter(train_days(settings.model_copy(update={"recipe": recipe}), "all", None)))


def test_a_base_model_that_is_not_there_is_said_before_anything_is_done(settings: Settings, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, model__base=str(tmp_path / "nowhere"))
    with pytest.raises(Abort, match="is no folder"):
        next(iter(train_days(settings.model_copy(update={"recipe": recipe}), "sft", None)))


def test_a_recipe_without_any_stage_is_one_line(settings: Settings, tmp_path: Path) -> None:
    empty = settings.model_copy(update={"recipe": write_recipe(tmp_path, "empty", stages=())})
    with pytest.raises(Abort, match="'empty' has no stage: nothing to train"):
        next(iter(train_days(empty, "all", None)))
    with pytest.raises(Abort, match="has no stage: nothing to train"):
        rehearse(empty, "all", None)


def test_a_new_model_attempts_nothing_for_its_own_correction(settings: Settings, tmp_path: Path) -> None:
    """Re-SFT as the first stage without a base folder: an empty slot with the reason, no refusal of the whole run."""
    ctx = StageContext(settings.model_copy(update={"recipe": write_recipe(tmp_path, stages=("resft",))}))
    assert generated.resft_rollouts(ctx, DAY, run=None).summary["state"] == "no_parent"


def test_the_line_of_a_stage_leaves_out_what_is_empty() -> None:
    summary = {"reason": "", "loss": 1.23456789, "digest": "0123456789abcdef" * 4, "source": "sft-2026-05-02", "n": 0}
    assert told(summary | {"by": {"a": 1}}) == "loss 1.235, digest 0123456789ab, source sft-2026-05-02, n 0"
