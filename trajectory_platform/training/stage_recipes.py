"""The parts of a recipe that belong to one stage of training each (domain 5.1, 5.2).

Everything here is what a run *depends on*; how fast it goes (threads, devices) is the hardware part of the recipe.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from trajectory_platform.evaluation.plan import RolloutLimits

STAGES = ("sft", "resft", "teacher_sft", "kto", "dr_grpo")
"""The stages in their order; a recipe may leave any of them out."""
BASE = "base"
"""As a parent: the model that the run starts from."""
GET_IT = (
    "models are read from disk only: fetch it first, for example hf download Qwen/Qwen3-4B --local-dir models/Qwen3-4B"
)
"""What to do where the folder of a base model is missing."""


class Part(BaseModel):
    """A part of a recipe: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Optimiser(Part):
    """``adamw``, or ``muon``: Muon for the matrices of the layers and AdamW for the rest (``training.muon``)."""

    kind: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = Field(2e-3, gt=0)
    muon_learning_rate: float | None = Field(None, gt=0, description="of the matrices under muon; null = learning_rate")
    weight_decay: float = Field(0.01, ge=0)
    beta2: float = Field(0.98, gt=0, lt=1)
    warmup_share: float = Field(0.05, ge=0, lt=1)
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    max_grad_norm: float = Field(1.0, gt=0)


class Adapter(Part):
    """LoRA instead of full weights: the adapter is merged into the checkpoint, which is whole either way."""

    rank: int = Field(32, ge=1)
    alpha: float = Field(64.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")


class Amount(Part):
    """How much is trained and how often a trace is seen.

    ``epochs`` times on average, drawn in proportion to its ``quality`` (or equally), but no more than ``token_budget``
    tokens in sum, so that a run's time does not depend on the size of the corpus.
    """

    epochs: float = Field(1.0, gt=0)
    max_steps: int | None = Field(None, ge=1)
    token_budget: int | None = Field(None, ge=1)
    batch: int = Field(8, ge=1, description="rows per optimiser step, all devices together")
    micro_batch: int | None = Field(None, ge=1, description="rows per device and forward pass; null = all at once")
    packing: bool = Field(False, description="several contexts in one row of max_length, isolated from one another")
    sampling: Literal["quality", "uniform"] = "quality"

    @model_validator(mode="after")
    def _batches_divide(self) -> Amount:
        if self.micro_batch is not None and self.batch % self.micro_batch:
            raise ValueError(f"batch {self.batch} must be a multiple of micro_batch {self.micro_batch}")
        return self


class Stage(Part):
    """What every stage has.

    ``parent``: an earlier stage of the same recipe or ``base``; null is the nearest earlier stage of the recipe.
    ``save_every``: optimiser steps between two points at which a killed run goes on; null = about ten in a run.
    """

    parent: str | None = None
    optimiser: Optimiser = Optimiser()
    amount: Amount = Amount()
    adapter: Adapter | None = None
    save_every: int | None = Field(None, ge=1)

    @field_validator("parent")
    @classmethod
    def _known_parent(cls, value: str | None) -> str | None:
        if value is not None and value not in (*STAGES, BASE):
            raise ValueError(f"no such stage; stages are {', '.join(STAGES)}, and {BASE} is the model it starts from")
        return value


class Selection(Part):
    """Which rows of the train pool are used.

    ``unfiltered`` takes every readable trajectory of the train problems, axis B, rejected ones and all: the control
    that shows what the filter is worth, never a model to use.
    """

    source: Literal["corpus", "unfiltered"] = "corpus"
    categories: tuple[str, ...] | None = Field(None, description="null = all")
    min_quality: float = Field(0.0, ge=0)


class SftStage(Stage):
    """Supervised fine-tuning on the accepted axis-A traces."""

    select: Selection = Selection()


class Rollouts(Part):
    """Attempts at problems of the **train** pool, for the stages that generate their own rows."""

    problems: int | None = Field(64, ge=1, description="problems attempted; null = all of the train pool")
    samples: int = Field(4, ge=1, description="attempts at each problem")
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    concurrency: int = Field(16, ge=1)
    limits: RolloutLimits = RolloutLimits()

    @model_validator(mode="after")
    def _makes_sense(self) -> Rollouts:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError("samples above 1 need a temperature above 0: greedy attempts are all the same")
        return self


class Acceptance(Part):
    """Which attempts become training rows: strict successes without any of the named faults.

    ``min_conduct``: least conduct score (``evaluation.conduct``, 0 to 1). ``keep``: traces per problem at most, chosen
    for different strategies first, then for the better conduct, then for brevity.
    """

    min_conduct: float = Field(0.6, ge=0, le=1)
    min_reasoning: float | None = Field(
        None, ge=0, le=1, description="least reasoning quality by the judge; null: no gate"
    )
    keep: int = Field(2, ge=1)


class ResftStage(Stage):
    """Rejection-sampled SFT: the parent's own strict successes on train problems, mixed with the corpus."""

    rollouts: Rollouts = Rollouts()
    accept: Acceptance = Acceptance()
    corpus_share: float = Field(0.5, ge=0, lt=1, description="share of the trained rows that comes from the corpus")
    select: Selection = Selection()


class TeacherStage(Stage):
    """Continued SFT on a teacher's strict successes with grounded reasoning (instead of on-policy distillation).

    ``teacher``: ``script:NAME`` (offline) or a model name of litellm. ``budget_usd`` bounds what the asking may cost.
    """

    teacher: str = Field("script:search_and_check", min_length=1)
    budget_usd: float | None = Field(None, ge=0, description="null = no limit; asking stops when it is used up")
    rollouts: Rollouts = Rollouts(samples=1, temperature=0.0)
    accept: Acceptance = Acceptance(min_reasoning=0.7, keep=1)
    corpus_share: float = Field(0.25, ge=0, lt=1)
    select: Selection = Selection()


class KtoStage(Stage):
    """KTO on single turns: prompt = history, completion = one assistant turn (Ethayarajh et al. 2024).

    ``desirable_weight`` and ``undesirable_weight``: ``auto`` sets the weight of the rarer class so that the products of
    weight and count are equal, inside the paper's range of 1 to 4/3 (Eq. 8).
    ``blame``: of an undesirable trace ``faulty`` turns only (those the flags, the discipline or the verdict name, and
    the last decisive one where nothing is named), or ``all`` of them.
    """

    beta: float = Field(0.1, gt=0)
    loss: Literal["kto", "apo_zero_unpaired"] = "kto"
    desirable_weight: float | Literal["auto"] = "auto"
    undesirable_weight: float | Literal["auto"] = "auto"
    blame: Literal["faulty", "all"] = "faulty"
    max_rows: int | None = Field(None, ge=2, description="turn rows at most, drawn by keyed hash in both classes")
    select: Selection = Selection()

    @model_validator(mode="after")
    def _pairs_fit(self) -> KtoStage:
        if (self.amount.micro_batch or self.amount.batch) < 2:
            raise ValueError("kto pairs the rows of a micro batch: it needs 2 at least")
        return self


class GrpoStage(Stage):
    """Dr. GRPO (Liu et al. 2025): no division by length or by the deviation of a group.

    ``amount.batch``: rollouts per optimiser step, a multiple of ``group``; ``amount.max_steps`` of them are taken.
    ``advantage``: per turn, of the whole attempt, or both in sum. ``truncated``: what becomes of an attempt that a
    limit cut. A *limit* on zero-variance groups or clipped attempts is a share; reached in ``patience`` steps in a row,
    it ends the training (``stop``, with what was learned so far) or is reported (``warn``); cases C04, C07.
    """

    amount: Amount = Amount(max_steps=50, batch=64, micro_batch=8)
    problems: int | None = Field(None, ge=1, description="train problems to attempt; null = all of the train pool")
    group: int = Field(8, ge=2, description="attempts at one problem that are compared with one another")
    iterations: int = Field(1, ge=1, description="passes over the same attempts")
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    generation_batch: int = Field(64, ge=1, description="replies generated together")
    limits: RolloutLimits = RolloutLimits()
    loss_length: int | None = Field(None, ge=1, description="constant divisor, tokens; null = context.max_length")
    advantage: Literal["turn", "outcome", "both"] = "both"
    turn_weight: float = Field(1.0, ge=0)
    outcome_weight: float = Field(1.0, ge=0)
    discount: float = Field(
        1.0, ge=0, le=1, description="of the rewards of later turns: at 0 ending at once beats an attempt that stumbles"
    )
    truncated: Literal["mask", "penalty", "keep"] = "penalty"
    truncated_penalty: float = Field(0.5, ge=0)
    beta: float = Field(0.0, ge=0, description="weight of the KL term against the parent")
    kl_on_zero_variance: bool = False
    epsilon: float = Field(0.2, gt=0)
    epsilon_high: float | None = Field(None, gt=0)
    entropy_coef: float = Field(0.0, ge=0)
    extra_rows: float = Field(0.5, ge=0, description="rows that attempts in several contexts may add, share of a batch")
    zero_variance_limit: float = Field(1.0, gt=0, le=1)
    zero_variance_patience: int = Field(3, ge=1)
    zero_variance_action: Literal["stop", "warn"] = "stop"
    clipped_limit: float = Field(1.0, gt=0, le=1)
    clipped_patience: int = Field(1, ge=1)
    clipped_action: Literal["stop", "warn"] = "stop"

    @property
    def problems_per_step(self) -> int:
        """Different problems in one optimiser step."""
        return self.amount.batch // self.group

    @model_validator(mode="after")
    def _groups_fit(self) -> GrpoStage:
        if self.amount.batch % self.group:
            raise ValueError(f"amount.batch {self.amount.batch} must be a multiple of group {self.group}")
        return self


AnyStage = SftStage | ResftStage | TeacherStage | KtoStage | GrpoStage
