"""How a stage's processes are started, and two of them that train one model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.child import plain_runner
from trajectory_platform.training import launching
from trajectory_platform.training.launching import start_of
from trajectory_platform.training.recipe import Hardware, Recipe
from trajectory_platform_tests.training import shopping


def on(**hardware: Any) -> Recipe:
    return Recipe.model_validate({"hardware": hardware})


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_one_process_is_a_plain_python(profile: str, tmp_path: Path) -> None:
    start = start_of(on(profile=profile), tmp_path)
    assert start.prefix == (sys.executable, "-m") and start.ranks == 1 and not list(tmp_path.iterdir())


def test_several_cpus_start_through_torchrun_and_never_again(tmp_path: Path) -> None:
    start = start_of(on(profile="cpu", processes=4), tmp_path)
    command = " ".join(start.prefix)
    assert "torch.distributed.run" in command and "--nproc-per-node 4 --max-restarts 0 --module" in command
    assert dict(start.env)["ACCELERATE_USE_CPU"] == "true" and start.ranks == 4


def accelerate_reads(path: Path) -> Any:
    """What Accelerate itself makes of the file."""
    from accelerate.commands.config.config_args import load_config_from_file

    return load_config_from_file(str(path))


def test_several_gpus_start_through_accelerate(tmp_path: Path) -> None:
    start = start_of(on(profile="gpus", processes=8, precision="bf16"), tmp_path)
    assert start.prefix[1:] == (
        *("-m", "accelerate.commands.launch", "--config_file", str(tmp_path / "accelerate.yaml"), "--module"),
    )
    read = accelerate_reads(tmp_path / "accelerate.yaml")
    assert (read.distributed_type.value, read.num_processes, read.mixed_precision) == ("MULTI_GPU", 8, "bf16")
    assert read.main_process_port == 0 and not (tmp_path / "deepspeed.json").exists()


@pytest.mark.parametrize("zero", [2, 3])
def test_zero_goes_through_deepspeed_with_what_the_trainer_fills_in(
    zero: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching.importlib.util, "find_spec", lambda name: object())
    start = start_of(on(profile="gpus", processes=2, precision="bf16", zero=zero), tmp_path)
    read = accelerate_reads(tmp_path / "accelerate.yaml")
    assert start.ranks == 2 and read.distributed_type.value == "DEEPSPEED"
    assert read.deepspeed_config["deepspeed_config_file"] == str(tmp_path / "deepspeed.json")
    config = json.loads((tmp_path / "deepspeed.json").read_text())
    assert config["zero_optimization"]["stage"] == zero and config["bf16"] == {"enabled": True}
    assert (config["zero_optimization"].get("stage3_gather_16bit_weights_on_model_save") is True) == (zero == 3)


# What transformers' HfTrainerDeepSpeedConfig fills from the trainer's arguments (batch, clipping) and the model's
# hidden size (the last three); DeepSpeed itself is not installed here, so its own reading of the file is not run.
FILLED = {
    "gradient_accumulation_steps",
    "gradient_clipping",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
}


@pytest.mark.parametrize("zero", [2, 3])
def test_nothing_is_left_auto_that_the_trainer_does_not_fill_in(zero: int) -> None:
    from accelerate.utils.deepspeed import HfDeepSpeedConfig

    from trajectory_platform.training.deepspeed_config import deepspeed_config

    config = deepspeed_config(2 if zero == 2 else 3, precision="bf16")
    read = HfDeepSpeedConfig(config)
    assert (read.is_zero2(), read.is_zero3()) == (zero == 2, zero == 3)
    flat = {**config, **{f"zero_optimization.{key}": value for key, value in config["zero_optimization"].items()}}
    auto = {key for key, value in flat.items() if value == "auto"}
    assert auto == (FILLED if zero == 3 else {key for key in FILLED if "." not in key})


def test_zero_without_deepspeed_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Abort, match=r"needs DeepSpeed.*\[gpu\]"):
        start_of(on(profile="gpus", processes=2, zero=2), tmp_path)


@pytest.mark.slow
def test_two_processes_train_what_one_trains(trained: Any, window: Any, recipe: Recipe, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    two = recipe.model_copy(update={"hardware": Hardware(processes=2, threads=1)})
    lines: list[str] = []
    made = shopping.train_stage(window, two, tmp_path, runner=plain_runner(lines.append))
    assert made.status == "trained" and made.checkpoint_id == trained.checkpoint_id  # devices are no identity
    assert sum(line.startswith("checkpoint ") for line in lines) == 1  # only the first rank reports
    assert made.traces.equals(trained.traces)
    alone, together = load_file(trained.path / "model.safetensors"), load_file(made.path / "model.safetensors")
    apart = max(float(abs(alone[name] - together[name]).max()) for name in alone)
    assert apart < 1e-3, apart  # sums of floats in another order, nothing else


@pytest.mark.slow
def test_a_rank_that_dies_leaves_no_checkpoint(
    window: Any, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "if os.environ.get('RANK') == '1':\n"
        "    from trajectory_platform.training import datasets\n"
        "    def dies(*_):\n"
        "        raise MemoryError('rank 1 is out of memory')\n"
        "    datasets.rows_of = dies\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    two = recipe.model_copy(update={"hardware": Hardware(processes=2, threads=1)})
    with pytest.raises(FailPartition, match="rank 1 of 2: MemoryError: rank 1 is out of memory"):
        shopping.train_stage(window, two, tmp_path / "root", runner=plain_runner(print))
    assert [path.name for path in (tmp_path / "root").iterdir() if not path.name.startswith(".")] == []


@pytest.mark.slow
def test_a_platform_process_that_trains_never_loads_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from trajectory_platform.training.recipe import parse_recipe\n"
        "from trajectory_platform_tests.training import shopping\n"
        "from trajectory_platform_tests.training.conftest import TINY, Window\n"
        "result = shopping.train_stage(Window(*shopping.window()), parse_recipe(TINY), Path(sys.argv[1]))\n"
        "heavy = ('torch', 'transformers', 'trl', 'peft', 'accelerate', 'datasets', 'mlflow')\n"
        "print(result.status, [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=280)
    assert done.stdout.strip().splitlines()[-1:] == ["trained []"], done.stderr[-2000:]
