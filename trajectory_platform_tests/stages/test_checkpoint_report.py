"""The report of a checkpoint over a real lake: true numbers, open examples, figures in MLflow, sealed text nowhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation import child, example_scripts, rollout_launch
from trajectory_platform.lake import tables
from trajectory_platform.reports import taxonomy
from trajectory_platform.settings import Settings
from trajectory_platform.stages import checkpoint_figures, checkpoint_report
from trajectory_platform.stages.checkpoint_evaluations import decoding
from trajectory_platform.stages.checkpoint_failures import evidence
from trajectory_platform.stages.checkpoints import current_checkpoint, folder_of
from trajectory_platform.stages.context import StageContext, StageResult
from trajectory_platform.stages.evaluation_files import evaluate_files
from trajectory_platform.stages.evaluations import EVALUATIONS, evaluate_stage, evaluated_rows
from trajectory_platform.stages.training_stages import train_stage, training_of
from trajectory_platform.training.tracking_store import Store
from trajectory_platform_tests.stages.arena_days import DAYS, here, ingest, make_days, settings_for, split
from trajectory_platform_tests.stages.recipes import write_recipe

DAY = DAYS[1]


def now_and_then(task: Any) -> Any:
    """Solves every other problem, and looks around at the rest."""
    script = example_scripts.search_and_check if int(task.problem_key[0], 16) % 2 else example_scripts.random_browser
    return script(task)


BASE, SFT = EVALUATIONS[:2]
REASON = "a test of the report"


@pytest.fixture(scope="module")
def monkeypatch_module() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch_module: pytest.MonkeyPatch) -> Settings:
    """Two days, a checkpoint of two steps, both evaluations by scripts, and MLflow in a SQLite file."""
    root = tmp_path_factory.mktemp("checkpoint-report")
    monkeypatch_module.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root / 'mlflow.db'}")
    monkeypatch_module.setattr(child, "plain_runner", lambda *_: here)

    def scripted(name: str, folder: Path, threads: int, options: Any = None) -> rollout_launch.Subject:
        return rollout_launch.Subject(name, {"kind": "spec", "spec": "script:now_and_then"})

    def browsing(*_: Any) -> rollout_launch.Subject:
        return rollout_launch.Subject(f"base-{DAY}-{'b' * 12}", {"kind": "spec", "spec": "script:random_browser"})

    scripts = {**example_scripts.SCRIPTS, "now_and_then": (now_and_then, "1")}
    monkeypatch_module.setattr(example_scripts, "SCRIPTS", scripts)
    monkeypatch_module.setattr(rollout_launch, "trained", scripted)
    monkeypatch_module.setattr(rollout_launch, "untrained", browsing)
    rollouts = {"problems": 6, "samples": 1, "concurrency": 6, "limits": {"max_steps": 8}}
    pools = {"pool_train": 50, "pool_dev": 30, "pool_sealed": 20}
    recipe = write_recipe(root, "recipe", evaluation__rollouts=rollouts)
    made = settings_for(make_days(root / "days", days=2), root / "lake", recipe=recipe, **pools)
    ingest(made, DAYS[:2])
    split(made, DAY)
    ctx = StageContext(made)
    checkpoint_figures.mirrored(train_stage)(ctx, DAY, row=training_of("sft"), run=here)
    for row in (BASE, SFT):
        checkpoint_figures.mirrored(evaluate_stage)(ctx, DAY, row=row, run=here)
    return made


@pytest.fixture(scope="module")
def folders(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two attempts at each of four dev problems, and one look at sealed ones."""
    root = tmp_path_factory.mktemp("evaluations")
    place = folder_of(StageContext(settings), checkpoint(settings))
    common: dict[str, Any] = {"day": DAY, "checkpoint": place, "problems": 4, "runner": here}
    evaluate_files(settings, out=root / "twice", k=2, temperature=1.0, **common)
    evaluate_files(settings, out=root / "sealed", pool="sealed", sealed_reason=REASON, **common)
    return [root / "twice", root / "sealed"]


def checkpoint(settings: Settings) -> dict[str, Any]:
    found = current_checkpoint(StageContext(settings), DAY)
    assert found is not None
    return found


def data_of(settings: Settings, folders: list[Path] = []) -> Any:  # noqa: B006 - never changed
    name = checkpoint(settings)["checkpoint_id"]
    return checkpoint_report.checkpoint_data(StageContext(settings), name, evaluations=folders)


def test_the_numbers_are_those_of_the_evaluation_and_the_stages_are_paired(settings: Settings) -> None:
    data = data_of(settings)
    rows = [row for row in evaluated_rows(StageContext(settings), DAY, SFT) if row["outcome"] != "no_reward"]
    base, sft = data.stages
    assert (base["stage"], sft["stage"], sft["own"]) == ("base", "sft", True)
    assert sft["success"] == pytest.approx(sum(row["success"] for row in rows) / len(rows))
    assert sft["clusters"] == len({row["cluster_id"] for row in rows})
    assert sft["against"] == "base" and sft["difference"] == pytest.approx(sft["success"] - base["success"])
    [[sentence]] = data.words.values()
    assert sentence.startswith("sft against base: ") and f"on {len(rows)} problems" in sentence
    [failed] = data.failures
    assert (
        failed.failed
        == sum(not row["success"] for row in rows)
        == sum(count for counts in failed.counts.values() for count in counts.values())
    )
    assert data.passes == [] and "--k 8" in data.passes_note


def test_it_tells_what_it_is_and_how_it_was_trained(settings: Settings) -> None:
    data = data_of(settings)
    facts = dict(data.facts)
    assert facts["trace list"] == "holds" and facts["trained in one go"] == "yes"
    assert facts["parents"].startswith("none") and dict(data.packages)["torch"]
    assert data.history and all("loss" in row for row in data.history)
    assert sum(count for _, count in data.fed["day"]) == checkpoint(settings)["traces"]
    assert any(row["what"] == "training of sft" and row["wall"] > 0 for row in data.costs)
    assert any("another day" in sentence for sentence in data.limits)


def test_several_attempts_and_sealed_problems_come_from_folders(
    settings: Settings, folders: list[Path], tmp_path: Path
) -> None:
    data = data_of(settings, folders)
    [curve] = data.passes
    assert [point["k"] for point in curve["points"]] == [1, 2] and curve["own"]
    assert sorted(row["pool"] for row in data.evaluations) == ["dev", "dev", "sealed"]
    sealed = next(row for row in data.evaluations if row["pool"] == "sealed")
    assert "looked at by 1 evaluation" in sealed["looks"]
    out = checkpoint_report.write_checkpoint_report(
        settings, tmp_path / "page.html", checkpoint(settings)["checkpoint_id"], evaluations=folders
    )
    page = out.read_text("utf-8")
    again = checkpoint_report.write_checkpoint_report(
        settings, tmp_path / "again.html", checkpoint(settings)["checkpoint_id"], evaluations=folders
    )
    assert again.read_bytes() == out.read_bytes()
    clusters = StageContext(settings).lake.read(tables.LEAK_CLUSTERS, [DAY]).to_pylist()
    keys = {row["problem_key"] for row in clusters if row["pool"] == "sealed"}
    suites = StageContext(settings).lake.read(tables.PROBLEM_SUITES).to_pylist()
    texts = {row["query"] for row in suites if row["problem_key"] in keys and row["query"]}
    own = {row["query"] for row in suites if row["problem_key"] not in keys}
    assert texts - own and not [text for text in texts - own if text in page]


def test_examples_are_of_the_kind_they_stand_for_and_of_open_problems(settings: Settings) -> None:
    [failed] = data_of(settings).failures
    assert failed.failed and failed.counts.keys() == failed.examples.keys()
    for kind, views in failed.examples.items():
        assert 1 <= len(views) <= 3 and kind in {one.name for one in taxonomy.KINDS}
        assert not any(view["sealed"] or view["withheld"] for view in views)


def test_a_folder_of_another_run_is_refused(settings: Settings, folders: list[Path], tmp_path: Path) -> None:
    copied = tmp_path / "strange"
    copied.mkdir()
    for path in folders[0].iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    name = checkpoint(settings)["checkpoint_id"].encode()
    scores = copied / "scores.jsonl"
    scores.write_bytes(scores.read_bytes().replace(name, b"sft-2026-01-01-000000000000"))
    with pytest.raises(Abort, match="not of the run"):
        data_of(settings, [copied])
    with pytest.raises(Abort, match="cannot read"):
        data_of(settings, [tmp_path / "nowhere"])
    with pytest.raises(Abort, match="no checkpoint"):
        checkpoint_report.find(StageContext(settings), "sft-2026-01-01-000000000000")


def test_a_training_report_that_was_changed_is_not_shown(settings: Settings) -> None:
    path = folder_of(StageContext(settings), checkpoint(settings)) / "rows_report.json"
    content = path.read_bytes()
    path.write_bytes(content + b" ")
    try:
        with pytest.raises(FailPartition, match=r"rows_report\.json differs"):
            data_of(settings)
    finally:
        path.write_bytes(content)


def test_without_its_folder_the_rest_is_shown_and_the_loss_is_said(settings: Settings) -> None:
    place = folder_of(StageContext(settings), checkpoint(settings))
    hidden = place.with_name(f"away-{place.name}")
    place.rename(hidden)
    try:
        data = data_of(settings)
    finally:
        hidden.rename(place)
    assert data.history == () and any("folder of this checkpoint is not here" in note for note in data.notes)
    assert data.stages and dict(data.facts)["trained in one go"].startswith("unknown")


def test_figures_of_training_and_evaluation_are_artifacts_of_one_mlflow_run(settings: Settings, tmp_path: Path) -> None:
    import os

    store = Store(os.environ["MLFLOW_TRACKING_URI"])
    run = store.run_of(checkpoint(settings)["checkpoint_id"])
    assert run is not None
    names = {path.name: path for path in artifacts(os.environ["MLFLOW_TRACKING_URI"]) if run in path.parts}
    assert {"loss.svg", "learning_rate.svg", "stages.svg", "training.html", "evaluation.html"} <= names.keys()
    assert names["loss.svg"].read_text("utf-8").startswith("<svg ")
    metrics = store._client.get_run(run).data.metrics
    summary = StageContext(settings).lake.manifest(tables.EVAL_SCORES, DAY, SFT.part)
    assert summary is not None and metrics["eval_success_share"] == pytest.approx(summary.summary["success_share"])


def artifacts(uri: str) -> list[Path]:
    folder = Path(uri.removeprefix("sqlite:///")).parent / "mlflow-artifacts"
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_store_that_does_not_answer_changes_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:s3cret@127.0.0.1:9")
    name = checkpoint(settings)["checkpoint_id"]
    result = StageResult("sft_checkpoint", DAY, False, {}, {"checkpoint_id": name})
    assert checkpoint_figures.log_figures(StageContext(settings), result) is False
    assert "nothing else depends on it" in caplog.text and "s3cret" not in caplog.text
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert checkpoint_figures.log_figures(StageContext(settings), result) is False


def test_other_stages_have_no_figures_and_dagster_gets_small_ones(settings: Settings) -> None:
    from trajectory_platform.defs.checkpoint_figures import checkpoint_figures as metadata

    ctx = StageContext(settings)
    assert checkpoint_figures.figures_of(ctx, StageResult("leak_clusters", DAY, False, {}, {})) == []
    assert checkpoint_figures.figures_of(ctx, StageResult("base_eval", DAY, False, {}, {})) == []
    assert checkpoint_figures.figures_of(ctx, StageResult("kto_checkpoint", DAY, False, {}, {})) == []
    trained = metadata(ctx, StageResult("sft_checkpoint", DAY, False, {}, {}), "checkpoints")
    scored = metadata(ctx, StageResult("sft_eval", DAY, False, {}, {}), "eval_scores")
    assert set(trained) == {"loss", "learning rate"} and set(scored) == {"stages", "failures"}
    for value in (*trained.values(), *scored.values()):
        assert re.match(r"!\[.*\]\(data:image/svg\+xml;base64,", value.value) and len(value.value) < 9_000
    assert metadata(ctx, StageResult("sft_eval", DAY, False, {}, {}), "rollouts") == {}


def test_evidence_is_what_the_calls_show() -> None:
    def call(number: int, name: str, arguments: str) -> dict[str, Any]:
        return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}

    def asked(*queries: str) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "a lamp"}]
        for number, query in enumerate(queries):
            found = call(number, "find_product", f'{{"q": "{query}"}}')
            messages.append({"role": "assistant", "content": "", "tool_calls": [found]})
            rows = f'[{{"product_id": "{number}1", "title": "lamp"}}]'
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": rows})
        return messages

    assert evidence(asked("lamp"), ["01"], ["01"]) == taxonomy.Evidence(wanted_seen=True, refined=False)
    assert evidence(asked("lamp", "blue lamp"), ["01"], ["99"]) == taxonomy.Evidence(wanted_seen=False, refined=True)
    assert evidence(asked("lamp"), ["01"], None).wanted_seen is None


def test_how_attempts_were_drawn_is_said_in_words() -> None:
    assert decoding(0.0, 1) == "greedy" and decoding(1.0, 8) == "temperature 1, 8 attempts"
    assert decoding(None, 1) == ""
