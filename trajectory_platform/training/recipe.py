"""A training recipe: a validated YAML file that says everything a run depends on besides its rows.

One recipe describes a whole run: the model it starts from, how a context is made, and the stages that follow one
another (``stage_recipes``). The resolved recipe is written into every checkpoint; what a stage depends on (its own
part, those of its ancestors through the parent's id, model, template, context) enters the checkpoint's identity.
Unknown keys are errors, because a misspelt option that is silently ignored is a wrong run.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.context import ContextPolicy
from trajectory_platform.evaluation.plan import ActionPlan
from trajectory_platform.strict_yaml import parse_yaml
from trajectory_platform.training.stage_recipes import (
    BASE,
    STAGES,
    AnyStage,
    GrpoStage,
    KtoStage,
    Part,
    ResftStage,
    SftStage,
    TeacherStage,
)


class ModelSpec(Part):
    """A new tiny Qwen3 from these sizes, or the weights in the local folder ``base``.

    With ``base`` the sizes only serve the estimates of a dry run where the folder is not there yet.
    """

    base: str | None = Field(None, description="local folder with weights and tokenizer")
    hidden: int = Field(128, ge=16)
    layers: int = Field(4, ge=1)
    heads: int = Field(4, ge=1)
    kv_heads: int = Field(2, ge=1)
    head_dim: int = Field(32, ge=8)
    mlp: int = Field(384, ge=16)
    rope_theta: float = Field(10_000.0, gt=1)

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelSpec:
        if self.heads % self.kv_heads:
            raise ValueError("heads must be a multiple of kv_heads")
        return self


class TokenizerSpec(Part):
    """The tokenizer trained on the corpus (ignored with ``model.base``).

    ``constant_text`` adds one token for each tool schema and for the fixed words of the system block: the rendered
    text stays the template's, byte for byte, but a constant of a thousand tokens costs a few.
    """

    vocab: int = Field(4096, ge=512)
    constant_text: bool = True


class Hardware(Part):
    """What the run is made on; of it little more than ``precision`` enters an identity (``Recipe.identity``).

    ``gpus`` with ``zero`` 2 or 3 shards optimiser and gradients (and weights) by DeepSpeed. One process per device;
    ``cpu`` takes several too.
    """

    profile: Literal["cpu", "gpu", "gpus"] = "cpu"
    processes: int = Field(1, ge=1)
    threads: int = Field(2, ge=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    zero: Literal[2, 3] | None = None
    gradient_checkpointing: bool = False
    vllm: Literal["off", "colocate", "server"] = Field("off", description="who generates in the dr_grpo stage")
    vllm_memory: float = Field(0.3, gt=0, lt=1, description="share of the device's memory that colocated vllm takes")

    @model_validator(mode="after")
    def _fits(self) -> Hardware:
        if self.profile == "gpu" and self.processes > 1:
            raise ValueError("several processes on GPUs need the profile gpus")
        if self.profile != "gpus" and self.zero is not None:
            raise ValueError("zero needs the profile gpus")
        if self.profile == "cpu" and self.vllm != "off":
            raise ValueError("vllm needs a GPU profile")
        return self


class StageParts(Part):
    """The stages of a run; one that is null is not trained."""

    sft: SftStage | None = SftStage()
    resft: ResftStage | None = None
    teacher_sft: TeacherStage | None = None
    kto: KtoStage | None = None
    dr_grpo: GrpoStage | None = None


class Recipe(Part):
    """One run.

    ``min_traces``: with fewer training traces a stage is skipped as ``too_few_traces``. ``max_lost_share``: share of
    rows that lost a turn above which it fails.
    """

    name: str = "unnamed"
    hardware: Hardware = Hardware()
    seed: int | None = Field(None, description="null = the seed of the settings")
    model: ModelSpec = ModelSpec()
    tokenizer: TokenizerSpec = TokenizerSpec()
    template: Literal["qwen3_training", "qwen3_instruct_2507_training"] = "qwen3_training"
    context: ContextPolicy = ContextPolicy()
    min_traces: int = Field(8, ge=1)
    max_lost_share: float = Field(0.05, ge=0, le=1)
    stages: StageParts = StageParts()
    evaluation: ActionPlan = ActionPlan()

    @model_validator(mode="after")
    def _shards_are_whole(self) -> Recipe:
        if self.hardware.zero == 3 and any(self.stage(name).adapter is not None for name in self.names()):
            raise ValueError("an adapter cannot be merged from weights that zero 3 shards: use zero 2 or full weights")
        return self

    @model_validator(mode="after")
    def _parents_come_first(self) -> Recipe:
        self._devices_fit()
        for name in self.names():
            parent = self.stage(name).parent
            if parent in (None, BASE):
                continue
            if parent not in self.names() or STAGES.index(str(parent)) >= STAGES.index(name):
                raise ValueError(f"stages.{name}.parent {parent!r} is not an earlier stage of this recipe")
        return self

    def _devices_fit(self) -> None:
        for name in self.names():
            part = self.stage(name)
            if part.optimiser.kind == "muon" and self.hardware.zero is not None:
                raise ValueError(f"stages.{name}: muon needs whole matrices, which zero {self.hardware.zero} cuts up")
            each, amount = part.amount.micro_batch, part.amount
            if amount.batch % (self.hardware.processes * (each or 1)):
                raise ValueError(
                    f"stages.{name}: amount.batch {amount.batch} does not divide among {self.hardware.processes} "
                    f"processes in micro batches of {each or 1}"
                )

    @property
    def threads(self) -> int:
        """Processor threads of one process."""
        return self.hardware.threads

    @property
    def fixed_seed(self) -> int:
        """The seed; 0 where none was filled in."""
        return self.seed if self.seed is not None else 0

    def names(self) -> tuple[str, ...]:
        """The stages of this run, in order."""
        return tuple(name for name in STAGES if getattr(self.stages, name) is not None)

    def stage(self, name: str) -> AnyStage:
        """The part of one stage.

        Raises:
            Abort: this recipe does not have it.
        """
        part: AnyStage | None = getattr(self.stages, name, None)
        if part is None:
            raise Abort(f"recipe {self.name!r} has no stage {name!r}; its stages are {', '.join(self.names())}")
        return part

    def parent_of(self, name: str) -> str:
        """Stage that this one starts from: as it says, else the nearest earlier one, else ``base``."""
        own = self.stage(name).parent
        earlier = [other for other in self.names() if STAGES.index(other) < STAGES.index(name)]
        return own if own is not None else (earlier[-1] if earlier else BASE)

    def resolved(self, seed: int) -> Recipe:
        """The same recipe with a seed filled in."""
        return self if self.seed is not None else self.model_copy(update={"seed": seed})

    def recorded(self) -> Recipe:
        """The same recipe as it is written into checkpoints and to MLflow: of an absolute path to the base model only
        the folder's name. A path of this machine is no lineage; the content is there by its digest."""
        base = self.model.base
        if base is None or not Path(base).is_absolute():
            return self
        return self.model_copy(update={"model": self.model.model_copy(update={"base": Path(base).name})})

    def identity(self, stage: str) -> dict[str, Any]:
        """What of it enters the identity of this stage's checkpoint: not the name, the devices or the evaluation.

        What changes rounding alone (rows of a pass, replies drawn together) does not, except where a loss looks at the
        rows of a pass together.

        Of the other stages nothing: what they made enters as the parent's id. Of ``model.base`` nothing: the folder's
        content enters as a digest (``launch.checkpoint_identity``), wherever it lies.
        """
        own = self.stage(stage)
        part = own.model_dump(mode="json", exclude={"save_every", "parent", "generation_batch"})
        part["amount"].pop("micro_batch")
        if isinstance(own, KtoStage):  # the KL term is estimated from the rows of one pass
            part["amount"]["rows_of_a_pass"] = own.amount.micro_batch or own.amount.batch // self.hardware.processes
        if isinstance(own, GrpoStage) and self.hardware.vllm != "off":  # it draws with its own random numbers
            part["vllm"] = True
        for place in (part, part.get("rollouts") or {}):
            place.pop("concurrency", None)
        common = self.model_dump(
            mode="json", exclude={"name", "hardware", "evaluation", "stages", "model", "tokenizer"}
        )
        made = {"precision": self.hardware.precision, "stage": {stage: part}}
        if self.model.base is None:  # the sizes of a folder's model are in the folder
            made |= self.model_dump(mode="json", include={"model", "tokenizer"})
        return {**common, **made}

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
        Abort: no such recipe, not YAML, an unknown or repeated key or a value out of range; one line that says which.
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
    value = parse_yaml(text, where)
    if not isinstance(value, dict):
        raise Abort(f"{where}: expected a mapping of options, got {type(value).__name__}")
    try:
        return Recipe.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "recipe"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise Abort(f"{where}: {place}: {first['msg']}{more}") from error
