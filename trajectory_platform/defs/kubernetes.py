"""What a pod gets where Dagster's Kubernetes run launcher starts the runs; elsewhere these tags say nothing.

A run is one pod (``docker/kubernetes/values.yaml``), so the tags of the two jobs decide its size. Those of the assets
say the same for a deployment that starts a pod per step (``dagster_k8s.k8s_job_executor``), and for a selection of
assets that somebody launches with an executor of their own.
"""

from __future__ import annotations

from typing import Any

from trajectory_platform.errors import Abort
from trajectory_platform.settings import Settings

CONFIG_TAG = "dagster-k8s/config"
GPU_RESOURCE = "nvidia.com/gpu"
GPU_NODES = {"nvidia.com/gpu.present": "true"}
"""The label that NVIDIA's GPU feature discovery puts on nodes."""


def _pod(cpu: str, memory: str, limit: str, gpus: int = 0) -> dict[str, Any]:
    """One value of the tag: container resources, and for GPUs the nodes that have them."""
    limits = {"memory": limit, **({GPU_RESOURCE: str(gpus)} if gpus else {})}
    container = {"resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": limits}}
    if not gpus:
        return {CONFIG_TAG: {"container_config": container}}
    spec = {
        "node_selector": dict(GPU_NODES),
        "tolerations": [{"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
        # torch's loaders and NCCL share memory through /dev/shm, of which a pod has 64 MiB by default
        "volumes": [{"name": "shm", "empty_dir": {"medium": "Memory"}}],
    }
    container["volume_mounts"] = [{"name": "shm", "mount_path": "/dev/shm"}]  # type: ignore[assignment]
    return {CONFIG_TAG: {"container_config": container, "pod_spec_config": spec}}


DAILY = _pod("1", "2Gi", "4Gi")
"""A day of 60,000 traces peaks at about 0.5 GiB a step, and five days go through one process one after another."""

CLUSTERS = _pod("1", "4Gi", "8Gi")
"""Everything up to a day: problems and signatures of all days, which grow with the history."""


def training(settings: Settings) -> dict[str, Any]:
    """The pod of training and evaluation: as many GPUs as the recipe has processes, none for the profile ``cpu``.

    A recipe that cannot be read costs no definitions: the run that needs it says what is wrong.
    """
    from trajectory_platform.training.recipe import load_recipe

    try:
        hardware = load_recipe(settings.recipe).hardware
    except Abort:
        return _pod("2", "8Gi", "16Gi")
    if hardware.profile == "cpu":
        return _pod(str(hardware.threads), "8Gi", "16Gi")
    return _pod(
        str(4 * hardware.processes), f"{64 * hardware.processes}Gi", f"{96 * hardware.processes}Gi", hardware.processes
    )
