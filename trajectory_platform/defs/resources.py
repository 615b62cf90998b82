"""The one resource: settings in, stage context out."""

from __future__ import annotations

from functools import cached_property

import dagster as dg

from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext


class Platform(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Where the lake, the raw days and the checkpoints are, as JSON of :class:`Settings`.

    The definitions carry the settings they were built with, so that a run executes exactly what its
    partitions and mappings were computed from.
    """

    settings_json: str

    @cached_property
    def context(self) -> StageContext:
        return StageContext(Settings.model_validate_json(self.settings_json))
