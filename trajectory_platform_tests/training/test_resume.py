"""Killed trainings: they go on where they were, come out the same, and nobody trains beside them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trajectory_platform.errors import FailPartition, RetryLater
from trajectory_platform.evaluation.child import Runner, run_child
from trajectory_platform.training import process, resume
from trajectory_platform.training.arguments import resume_facts
from trajectory_platform.training.checkpoints import list_checkpoints
from trajectory_platform.training.recipe import Recipe, parse_recipe
from trajectory_platform.training.resume import claim, finished, mark_complete, resumable, sweep_progress
from trajectory_platform.training.trained import final_weights
from trajectory_platform_tests.training import shopping

NAME = "sft-2026-05-02-0123456789ab"
SAVING = """
hardware: {{threads: 1}}
model: {{hidden: 32, layers: 1, heads: 2, kv_heads: 1, head_dim: 16, mlp: 64}}
tokenizer: {{vocab: 600}}
context: {{max_length: 1024, reply_tokens: 96, max_result_chars: 200}}
min_traces: 4
stages:
  sft:
    optimiser: {{learning_rate: 0.01, kind: {kind}}}
    amount: {{epochs: 2, batch: 2, micro_batch: 1}}
    save_every: 3
"""


def saving(kind: str) -> Recipe:
    return parse_recipe(SAVING.format(kind=kind)).resolved(7)


def here(lines: list[str] | None = None) -> Runner:
    """A runner that does the child's work in this process."""

    def run(command: Sequence[str], env: Mapping[str, str]) -> None:
        run_child(command[-1], lambda job, report: process.work(job, lines.append if lines is not None else report))

    return run


def killed_at(words: str) -> Runner:
    """A runner whose process is killed when it prints a line that begins so."""

    def run(command: Sequence[str], env: Mapping[str, str]) -> None:
        child = subprocess.Popen(list(command), env={**os.environ, **env}, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith(words):
                child.send_signal(signal.SIGKILL)
        child.wait(60)

    return run


def killed_then_finished(window: Any, recipe: Recipe, root: Path, at: Sequence[str]) -> tuple[Any, list[str]]:
    for words in at:
        with pytest.raises(FailPartition, match="ended without a result"):
            shopping.train_stage(window, recipe, root, runner=killed_at(words))
        assert list_checkpoints(root) == [] and not list((root / ".scratch").iterdir())
    lines: list[str] = []
    return shopping.train_stage(window, recipe, root, runner=here(lines)), lines


def stopped_at(words: str) -> Runner:
    """A runner whose training ends with an error when it prints a line that begins so; cheaper than a kill."""

    def work(job: dict[str, Any], report: Callable[[str], None]) -> dict[str, Any]:
        def told(line: str) -> None:
            if line.startswith(words):
                raise FailPartition(f"stopped at {words}")

        return process.work(job, told)

    return lambda command, env: None if run_child(command[-1], work) else None


def compared(one: Any, other: Any) -> None:
    """Equal weights to the last bit, equal manifest and history but for what was measured."""
    made = [{**result.manifest["files"]} for result in (one, other)]
    for files in made:
        del files["rows_report.json"]  # holds seconds
    assert made[0] == made[1] and "model.safetensors" in made[0]
    assert {**one.manifest, "files": {}} == {**other.manifest, "files": {}}
    reports = [json.loads((result.path / "rows_report.json").read_text()) for result in (one, other)]
    assert reports[0]["history"] == reports[1]["history"]


@pytest.fixture(scope="module")
def whole(window: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Uninterrupted trainings by optimiser, each made once."""
    made: dict[str, Any] = {}

    def train(kind: str) -> Any:
        if kind not in made:
            root = tmp_path_factory.mktemp("whole")
            made[kind] = shopping.train_stage(window, saving(kind), root, runner=here())
            assert not list((root / ".progress").iterdir())
        return made[kind]

    return train


def test_a_training_killed_at_any_step_ends_with_the_same_weights(
    window: Any, whole: Callable[[str], Any], tmp_path: Path
) -> None:
    step = random.Random(41).randrange(4, 16)
    resumed, lines = killed_then_finished(window, saving("adamw"), tmp_path, [f"step {step}/"])
    assert f"going on from step {(step - 1) // 3 * 3} of an earlier process" in lines
    compared(resumed, whole("adamw"))
    assert not list((tmp_path / ".progress").iterdir())


@pytest.mark.parametrize("name", ["muon", "adapter", "packing", "bf16"])
def test_every_way_of_training_goes_on_bit_by_bit(window: Any, tmp_path: Path, name: str) -> None:
    text = SAVING.format(kind="muon" if name == "muon" else "adamw")
    edits = {
        "adapter": ("    save_every", "    adapter: {rank: 4, dropout: 0.1}\n    save_every"),
        "packing": ("micro_batch: 1", "packing: true"),
        "bf16": ("{threads: 1}", "{threads: 1, precision: bf16, gradient_checkpointing: true}"),
    }
    recipe = parse_recipe(text.replace(*edits.get(name, ("", "")))).resolved(7)
    whole = shopping.train_stage(window, recipe, tmp_path / "whole", runner=here())
    with pytest.raises(FailPartition, match="stopped at"):
        shopping.train_stage(window, recipe, tmp_path / "cut", runner=stopped_at("step 5/"))
    lines: list[str] = []
    resumed = shopping.train_stage(window, recipe, tmp_path / "cut", runner=here(lines))
    assert "going on from step 3 of an earlier process" in lines
    compared(resumed, whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_training_killed_twice_ends_with_the_same_weights(
    window: Any, whole: Callable[[str], Any], tmp_path: Path, kind: str
) -> None:
    resumed, lines = killed_then_finished(window, saving(kind), tmp_path, ["step 5/", "step 11/"])
    assert "going on from step 9 of an earlier process" in lines
    compared(resumed, whole(kind))


@pytest.mark.slow
def test_a_training_killed_after_its_last_step_only_publishes(
    window: Any, whole: Callable[[str], Any], tmp_path: Path
) -> None:
    resumed, lines = killed_then_finished(window, saving("adamw"), tmp_path, ["trained 16 steps"])
    assert not any(line.startswith("step ") for line in lines)
    compared(resumed, whole("adamw"))


def saved(folder: Path, step: int) -> Path:
    place = folder / f"checkpoint-{step}"
    place.mkdir(parents=True)
    (place / "model.safetensors").write_bytes(b"w" * step)
    (place / "optimizer.pt").write_bytes(b"o" * step)
    return place


def test_only_a_complete_trainer_checkpoint_is_resumed(tmp_path: Path) -> None:
    assert resumable(tmp_path / "nothing") is None
    for step in (9, 10, 100):
        mark_complete(saved(tmp_path, step))
    saved(tmp_path, 200)  # killed before the mark
    assert resumable(tmp_path) == tmp_path / "checkpoint-100"
    (tmp_path / "checkpoint-100" / "optimizer.pt").unlink()  # killed while it was removed
    assert resumable(tmp_path) == tmp_path / "checkpoint-10"
    (tmp_path / "checkpoint-10" / "model.safetensors").write_bytes(b"w")
    assert resumable(tmp_path) == tmp_path / "checkpoint-9"
    (tmp_path / "checkpoint-9" / resume.MARK).write_text("{")
    assert resumable(tmp_path) is None


def test_what_another_run_left_is_not_resumed(tmp_path: Path) -> None:
    assert not resume.agree(tmp_path, {"rows": "a"})
    mark_complete(saved(tmp_path / "trainer", 5))
    assert resume.agree(tmp_path, {"rows": "a"}) and resumable(tmp_path / "trainer")
    assert not resume.agree(tmp_path, {"rows": "b"})
    assert resumable(tmp_path / "trainer") is None


@pytest.mark.parametrize(
    ("devices", "same"),
    [
        ("{profile: cpu, threads: 7}", True),
        ("{profile: gpus, processes: 1, zero: 2}", False),
        ("{profile: gpus, processes: 1, zero: 3}", False),
        ("{profile: cpu, precision: bf16}", False),
    ],
)
def test_steps_saved_on_other_devices_are_not_gone_on_from(tmp_path: Path, devices: str, same: bool) -> None:
    """A sharded trainer checkpoint has no optimiser that a plain one could read; TRL would begin with a new one."""

    def facts(hardware: str) -> dict[str, Any]:
        return resume_facts(
            {"learning_rate": 0.1, "output_dir": hardware}, parse_recipe(f"hardware: {hardware}").hardware
        )

    resume.agree(tmp_path, facts("{profile: cpu, threads: 1}"))
    mark_complete(saved(tmp_path / "trainer", 5))
    assert resume.agree(tmp_path, facts(devices)) is same
    assert (resumable(tmp_path / "trainer") is not None) is same


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_never_published(value: float) -> None:
    import torch

    model = torch.nn.Linear(3, 2)
    accelerator = SimpleNamespace(unwrap_model=lambda one: one, state=SimpleNamespace())
    trainer = SimpleNamespace(model=model, accelerator=accelerator)
    assert final_weights(trainer, "fp32") == (model, None)
    with torch.no_grad():
        model.bias[1] = value
    with pytest.raises(FailPartition, match=r"not finite \(bias\)"):
        final_weights(trainer, "fp32")


def test_one_process_trains_a_checkpoint_at_a_time(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from trajectory_platform.training.resume import claim\n"
        f"with claim(Path(sys.argv[1]), {NAME!r}): print('has it', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "has it\n"
        with pytest.raises(RetryLater, match=f"training_in_progress.*process {other.pid} "), claim(tmp_path, NAME):
            pass
        (tmp_path / NAME).mkdir()
        (tmp_path / NAME / "manifest.json").write_text("{}")
        assert sweep_progress(tmp_path) == []  # finished, but somebody has it
        other.kill()
    with claim(tmp_path, NAME) as folder:  # its lock died with it
        assert folder.is_dir()
        finished(folder)
    assert not list((tmp_path / ".progress").iterdir())


def test_stale_left_overs_are_swept_and_fresh_ones_are_not(tmp_path: Path) -> None:
    long_ago = time.time() - 2 * resume.STALE_S
    for name in ("sft-a", "sft-b", "sft-c"):
        with claim(tmp_path, name) as folder:
            saved(folder / "trainer", 3)
    os.utime(tmp_path / ".progress" / "sft-a" / "trainer", (long_ago, long_ago))
    os.utime(tmp_path / ".progress" / "sft-a", (long_ago, long_ago))
    (tmp_path / "sft-b").mkdir()
    (tmp_path / "sft-b" / "manifest.json").write_text("{}")
    assert sweep_progress(tmp_path) == ["sft-a", "sft-b"]
    assert sorted(path.name for path in (tmp_path / ".progress").iterdir()) == ["sft-c", "sft-c.lock"]


def test_a_sweep_is_bounded(tmp_path: Path) -> None:
    for number in range(resume.SWEPT + 3):
        (tmp_path / f"sft-{number:02d}").mkdir()
        (tmp_path / f"sft-{number:02d}" / "manifest.json").write_text("{}")
        (tmp_path / ".progress" / f"sft-{number:02d}").mkdir(parents=True)
    assert len(sweep_progress(tmp_path)) == resume.SWEPT and len(sweep_progress(tmp_path)) == 3
