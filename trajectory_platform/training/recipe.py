"""A training recipe: a validated YAML file that says everything a run depends on besides its rows.

The resolved recipe is written into the checkpoint and enters its identity: another recipe gives another
``checkpoint_id``. Unknown keys are errors, because a misspelt option that is silently ignored is a wrong run.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.context import ContextPolicy
from trajectory_platform.evaluation.plan import ActionPlan


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelSpec(_Part):
    """A new tiny Qwen3 from these sizes, or the weights in the local folder ``base``."""

    base: str | None = Field(None, description="local folder with weights and tokenizer; sizes are then ignored")
    hidden: int = Field(128, ge=16)
    layers: int = Field(4, ge=1)
    heads: int = Field(4, ge=1)
    kv_heads: int = Field(2, ge=1)
    head_dim: int = Field(32, ge=8)
    mlp: int = Field(384, ge=16)

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelSpec:
        if self.heads % self.kv_heads:
            raise ValueError("heads must be a multiple of kv_heads")
        return self


class TokenizerSpec(_Part):
    """The tokenizer trained on the corpus (ignored with ``model.base``).

    ``constant_text`` adds one token for each tool schema and for the fixed words of the system block: the rendered
    text stays the template's, byte for byte, but a constant of a thousand tokens costs a few.
    """

    vocab: int = Field(4096, ge=512)
    constant_text: bool = True


class Optimiser(_Part):
    """AdamW and its schedule."""

    learning_rate: float = Field(2e-3, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    beta2: float = Field(0.98, gt=0, lt=1)
    warmup_share: float = Field(0.05, ge=0, lt=1)
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    max_grad_norm: float = Field(1.0, gt=0)


class Recipe(_Part):
    """One stage of training.

    How often a trace is seen: ``epochs`` times on average, drawn in proportion to its ``quality`` (or equally), but
    no more than ``token_budget`` tokens in sum, so that a run's time does not depend on the size of the corpus.
    """

    name: str = "unnamed"
    stage: Literal["sft"] = "sft"
    hardware: Literal["cpu"] = "cpu"
    threads: int = Field(2, ge=1)
    seed: int | None = Field(None, description="null = the seed of the settings")
    model: ModelSpec = ModelSpec()
    tokenizer: TokenizerSpec = TokenizerSpec()
    template: Literal["qwen3_training", "qwen3_instruct_2507_training"] = "qwen3_training"
    context: ContextPolicy = ContextPolicy()
    optimiser: Optimiser = Optimiser()
    epochs: float = Field(1.0, gt=0)
    max_steps: int | None = Field(None, ge=1)
    token_budget: int | None = Field(None, ge=1)
    batch: int = Field(8, ge=1, description="contexts per optimiser step")
    sampling: Literal["quality", "uniform"] = "quality"
    min_traces: int = Field(8, ge=1, description="fewer training traces: the stage is skipped as too_few_traces")
    max_lost_share: float = Field(0.05, ge=0, le=1, description="share of rows with a lost turn above which it fails")
    evaluation: ActionPlan = ActionPlan()

    def resolved(self, seed: int) -> Recipe:
        """The same recipe with a seed filled in."""
        return self if self.seed is not None else self.model_copy(update={"seed": seed})

    def identity(self) -> dict[str, Any]:
        """What of it enters the identity of a checkpoint: all but the name, the threads and the evaluation plan."""
        return self.model_dump(mode="json", exclude={"name", "threads", "evaluation"})

    def to_yaml(self) -> str:
        """The whole recipe as YAML; :func:`load_recipe` reads it back equal."""
        import yaml

        return str(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def shipped_recipes() -> list[str]:
    """Names of the recipes that come with the package."""
    folder = resources.files("trajectory_platform.training") / "recipes"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_recipe(name_or_path: str | Path) -> Recipe:
    """A shipped recipe by name (``smoke``) or a YAML file by path.

    Raises:
        Abort: no such recipe, not YAML, an unknown key or a value out of range; one line that says which.
    """
    text_of = str(name_or_path)
    if text_of in shipped_recipes():
        text = (resources.files("trajectory_platform.training") / "recipes" / f"{text_of}.yaml").read_text("utf-8")
    else:
        path = Path(name_or_path)
        if not path.is_file():
            raise Abort(f"recipe {text_of!r}: no such file, and the shipped ones are {', '.join(shipped_recipes())}")
        text = path.read_text("utf-8")
    return parse_recipe(text, where=text_of)


def parse_recipe(text: str, *, where: str = "recipe") -> Recipe:
    """A recipe from YAML text; raises ``Abort`` with the first fault and its place."""
    import yaml

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Abort(f"{where}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise Abort(f"{where}: expected a mapping of options, got {type(value).__name__}")
    try:
        return Recipe.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "recipe"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise Abort(f"{where}: {place}: {first['msg']}{more}") from error
