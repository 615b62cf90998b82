"""What a checkpoint is asked and how often; part of a recipe, so that two checkpoints are asked the same way."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class RolloutLimits(BaseModel):
    """Where an attempt is cut: the fields and the defaults of ``evaluation.environment.Limits``."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    max_steps: int = Field(25, ge=1, description="replies of one attempt")
    reply_tokens: int = Field(8192, ge=1, description="tokens of one reply; a smaller context of a checkpoint counts")
    max_total_tokens: int | None = Field(None, ge=1, description="prompt and reply tokens of all replies; null = any")
    reply_timeout_s: float = Field(120.0, gt=0)
    rollout_timeout_s: float = Field(300.0, gt=0)
    max_calls_per_step: int = Field(16, ge=1)
    max_reply_chars: int = Field(200_000, ge=1)
    max_result_chars: int | None = Field(None, ge=1, description="for policies without a context of their own")


class RolloutPlan(BaseModel):
    """Which problems are attempted in the sandbox, how often, and how replies are drawn.

    ``problems`` problems of the pool are drawn by keyed hash, one of each leak cluster before a second of any: the same
    ones for every checkpoint of a day. The pool ``fresh`` rotates: the held-out problems of the newest suite alone, of
    which no checkpoint has ever seen a variant; those of them that are sealed only with a ``sealed_reason``. The pool
    ``benchmark:NAME`` is a registered file, less what the checkpoint has seen a variant of.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    problems: int | None = Field(100, ge=1, description="problems attempted; null = all of the pool")
    samples: int = Field(1, ge=1, description="attempts at each problem (the n of pass@k)")
    temperature: float = Field(0.0, ge=0, description="0 = greedy, where every attempt would be the same one")
    top_p: float = Field(1.0, gt=0, le=1)
    concurrency: int = Field(8, ge=1, description="attempts in flight")
    pool: str = Field("dev", pattern=r"^(dev|sealed|fresh|benchmark:[A-Za-z0-9_-]{1,64})$")
    sealed_reason: str | None = Field(None, description="why the sealed pool is opened; recorded in the lake's ledger")
    limits: RolloutLimits = RolloutLimits()

    @model_validator(mode="after")
    def _makes_sense(self) -> RolloutPlan:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError("samples above 1 need a temperature above 0: greedy attempts are all the same")
        if self.pool == "sealed" and not (self.sealed_reason or "").strip():
            raise ValueError("the sealed pool is opened only with a sealed_reason")
        return self

    def identity(self) -> dict[str, Any]:
        """What of it enters an identity: all but the concurrency, which only changes how long it takes."""
        return self.model_dump(mode="json", exclude={"concurrency"})


class ActionPlan(BaseModel):
    """Limits of teacher-forced scoring, and the plan of the rollouts beside it.

    ``max_turns`` turns are drawn by keyed hash of (trace, turn): the same turns for every checkpoint of a window.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    max_turns: int | None = Field(None, ge=1, description="turns scored per checkpoint; null = all")
    batch: int = Field(32, ge=1, description="prompts generated together; sorted by length")
    seed: int = Field(0, description="key of the samples of turns and problems, of the replies and of the bootstrap")
    bootstrap: int = Field(1000, ge=100, description="resamples of the cluster bootstrap")
    thin_below: int = Field(20, ge=2, description="clusters below which an interval is marked thin")
    rollouts: RolloutPlan = RolloutPlan()

    def of_actions(self) -> dict[str, Any]:
        """What the teacher-forced scores depend on: all but the rollouts."""
        return self.model_dump(mode="json", exclude={"rollouts"})
