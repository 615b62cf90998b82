"""The one resource: settings in, stage context out; at the end of a run it notes the memory the run took."""

from __future__ import annotations

import resource
from functools import cached_property

import dagster as dg

from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext

PEAK_MEMORY = "trajectory_platform/peak_memory_mb"
"""Tag of a run that has ended: the most memory its process held, and any child it waited for."""


class Platform(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Where the lake, the raw days and the checkpoints are, as JSON of :class:`Settings`.

    The definitions carry the settings they were built with, so that a run executes exactly what its
    partitions and mappings were computed from.
    """

    settings_json: str

    @cached_property
    def context(self) -> StageContext:
        return StageContext(Settings.model_validate_json(self.settings_json))

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Tag the run with its peak memory; sensors and schedules have no run."""
        run, instance = context.run, context.instance
        if run is not None and instance is not None and instance.has_run(run.run_id):
            instance.add_run_tags(run.run_id, {PEAK_MEMORY: str(peak_memory_mb())})


def peak_memory_mb() -> int:
    """Peak resident set of this process, or of the largest child it has waited for, in MiB."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) >> 10
