"""How the processes of a stage are started for a hardware profile.

One process (``cpu``, ``gpu``) is a plain ``python -m``. Several GPUs go through ``accelerate launch`` with a
configuration written here, with ZeRO through DeepSpeed. Several CPU processes (gloo) go through ``torchrun``, because
``accelerate launch`` has no launcher for them; the code inside is the same, which is what the tests run.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.child import Start
from trajectory_platform.training.deepspeed_config import deepspeed_config
from trajectory_platform.training.recipe import Hardware, Recipe


def start_of(recipe: Recipe, folder: Path) -> Start:
    """What :func:`~trajectory_platform.evaluation.child.run_job` needs to start a stage of this recipe.

    ``folder`` gets the launcher's configuration; it must live as long as the processes.

    Raises:
        Abort: ZeRO without DeepSpeed.
    """
    hardware = recipe.hardware
    if hardware.profile == "gpu":
        return Start(env=(("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),))
    if hardware.processes == 1 and hardware.zero is None:
        return Start(env=(("ACCELERATE_USE_CPU", "true"),) if hardware.profile == "cpu" else ())
    if hardware.profile == "cpu":
        return _several_cpus(hardware)
    return _several_gpus(hardware, folder)


def accelerate_config(hardware: Hardware, deepspeed_file: Path | None) -> dict[str, Any]:
    """The YAML of ``accelerate launch`` for one machine; port 0 lets it choose a free one."""
    found: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "DEEPSPEED" if deepspeed_file else "MULTI_GPU" if hardware.processes > 1 else "NO",
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": hardware.processes,
        "main_process_port": 0,
        "rdzv_backend": "static",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": False,
        "debug": False,
    }
    if deepspeed_file:
        # precision stands in DeepSpeed's own file; Accelerate refuses it in both places
        return {
            **found,
            "deepspeed_config": {
                "deepspeed_config_file": str(deepspeed_file),
                "zero3_init_flag": hardware.zero == 3,
            },
        }
    return {**found, "mixed_precision": "bf16" if hardware.precision == "bf16" else "no"}


def _several_cpus(hardware: Hardware) -> Start:
    prefix = (
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes", "1"),
        *("--nproc-per-node", str(hardware.processes), "--max-restarts", "0", "--module"),
    )
    return Start(prefix, (("ACCELERATE_USE_CPU", "true"),), hardware.processes)


def _several_gpus(hardware: Hardware, folder: Path) -> Start:
    import yaml

    deepspeed_file: Path | None = None
    if hardware.zero is not None:
        if importlib.util.find_spec("deepspeed") is None:
            raise Abort(
                f"hardware.zero {hardware.zero} needs DeepSpeed, which is not installed: "
                "pip install -c constraints.txt -e '.[gpu]' where the GPUs are"
            )
        deepspeed_file = (folder / "deepspeed.json").resolve()
        content = deepspeed_config(hardware.zero, precision=hardware.precision)
        deepspeed_file.write_text(json.dumps(content, indent=1, sort_keys=True), "utf-8")
    config = (folder / "accelerate.yaml").resolve()
    config.write_text(yaml.safe_dump(accelerate_config(hardware, deepspeed_file), sort_keys=True), "utf-8")
    prefix = (sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config), "--module")
    return Start(prefix, (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),), hardware.processes)
