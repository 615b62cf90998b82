"""How many dev turns are scored and how; part of a recipe, so that two checkpoints are asked the same way."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ActionPlan(BaseModel):
    """Limits of teacher-forced scoring.

    ``max_turns`` turns are drawn by keyed hash of (trace, turn): the same turns for every checkpoint of a window.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    max_turns: int | None = Field(None, ge=1, description="turns scored per checkpoint; null = all")
    batch: int = Field(32, ge=1, description="prompts generated together; sorted by length")
    seed: int = Field(0, description="key of the turn sample and of the bootstrap")
    bootstrap: int = Field(1000, ge=100, description="resamples of the cluster bootstrap")
    thin_below: int = Field(20, ge=2, description="clusters below which an interval is marked thin")
