"""The one configuration of the structural filter: order, switches, thresholds and the table of uses.

Everything here may be changed without a judge call and without reading a trace again: features, evidence and verdicts
are stored, decisions are applied afterwards. An unknown key is an error, so that no threshold can stand in a file and
never be read (case D10).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from trajectory_platform.curation.uses import DEFAULT_USES, USES
from trajectory_platform.errors import Abort
from trajectory_platform.judging.judge_models import is_llm
from trajectory_platform.judging.verdicts import CONTINUOUS, DISCRETE, LLM, RULES, STEP0_ONLY
from trajectory_platform.strict_yaml import no_bool_as_number, read_yaml

if TYPE_CHECKING:
    from trajectory_platform.settings import Settings

# Stages that look at one trace, in their default order; then those that look at the day's survivors.
ROW_STAGES = ("ingest", "read", "duplicate", "injection", "protocol", "format", "axis", "outcome", "judge")
DAY_STAGES = ("copies", "strategy", "caps")
STAGES = (*ROW_STAGES, *DAY_STAGES)
# Without them a row has no text, no axis, no outcome or no verdict, and conservation or the contract would break.
ALWAYS_ON = frozenset({"ingest", "read", "axis", "outcome", "judge"})
REGIMES = frozenset({STEP0_ONLY, CONTINUOUS, DISCRETE, RULES, LLM})


class FilterConfig(BaseModel):
    """Configuration of the structural filter; ``docs/filter.md`` is made from the descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    order: tuple[str, ...] = Field(
        ROW_STAGES,
        description="stages of one trace in the order in which they object; each once, ingest and read first",
    )
    skip: frozenset[str] = Field(frozenset(), description="stages that are skipped")
    judge: str = Field("rules", description="whose verdicts count where the validator's cannot be gated")

    a_min_share: float = Field(0.8, gt=0, le=1, description="matched share from which a trace can be axis A")
    b_max_share: float = Field(0.2, ge=0, lt=1, description="matched share up to which a trace can be axis B")
    accept_proven_agents: bool = Field(
        False, description="accept unknown traces of agent versions whose evidenced traces of the day are axis A"
    )
    proven_share: float = Field(0.95, gt=0, le=1, description="share of axis A among them from which a version counts")
    proven_traces: int = Field(20, ge=1, description="evidenced traces that a version needs at least")

    reasoning: Mapping[str, float] = Field(
        default_factory=lambda: {"discrete": 0.7, "rules": 0.7, "llm": 0.7},
        description="lowest passing quality per score regime; verdicts of a regime that is not named cannot be gated",
    )
    uses: Mapping[str, tuple[str, ...]] = Field(
        default_factory=lambda: dict(DEFAULT_USES), description="uses per situation, one or more each"
    )
    min_format: float = Field(0.0, ge=0, le=1, description="format score below which a success is no example for SFT")
    viewed_required: bool = Field(
        True, description="a success whose recommended products were never opened is a shortcut, not for SFT"
    )

    copy_similarity: float = Field(0.9, gt=0, le=1, description="of call sequences from which two agents are copies")
    max_per_agent_problem: int = Field(2, ge=0, description="traces of one agent version on one problem; 0 = no cap")
    max_per_miner_problem: int = Field(4, ge=0, description="traces of one miner on one problem; 0 = no cap")
    max_per_problem: int = Field(0, ge=0, description="traces on one problem; 0 = no cap")
    max_strategy_share: float = Field(0.1, gt=0, le=1, description="summed weight of one strategy")
    min_strategy_weight: int = Field(5, ge=1, description="below this many traces of a strategy nothing is lowered")

    @field_validator(
        "a_min_share", "b_max_share", "proven_share", "proven_traces", "reasoning", "min_format", "copy_similarity",
        "max_per_agent_problem", "max_per_miner_problem", "max_per_problem", "max_strategy_share",
        "min_strategy_weight", mode="before",
    )  # fmt: skip
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        return no_bool_as_number(value)

    @field_validator("order")
    @classmethod
    def _order_is_whole(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if sorted(value) != sorted(ROW_STAGES):
            raise ValueError(f"order must name each of {', '.join(ROW_STAGES)} once")
        if value.index("ingest") != 0 or value.index("read") != 1:
            raise ValueError("ingest and read come first: nothing else can be told about a row that has no text")
        return value

    @field_validator("skip")
    @classmethod
    def _may_be_off(cls, value: frozenset[str]) -> frozenset[str]:
        if unknown := sorted(value - set(STAGES)):
            raise ValueError(f"unknown stage {', '.join(unknown)}")
        if needed := sorted(value & ALWAYS_ON):
            raise ValueError(f"{', '.join(needed)} cannot be switched off")
        return value

    @field_validator("reasoning")
    @classmethod
    def _gates_of_known_regimes(cls, value: Mapping[str, float]) -> Mapping[str, float]:
        if unknown := sorted(value.keys() - REGIMES):
            raise ValueError(f"unknown score regime {', '.join(unknown)}; known are {', '.join(sorted(REGIMES))}")
        if wrong := sorted(regime for regime, gate in value.items() if not 0 <= gate <= 1):
            raise ValueError(f"the gate of {', '.join(wrong)} must be in [0, 1]")
        return value

    @field_validator("uses")
    @classmethod
    def _uses_are_whole(cls, value: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        table = {**DEFAULT_USES, **value}
        for situation, uses in table.items():
            if situation not in DEFAULT_USES or not uses or not set(uses) <= set(USES) or len(set(uses)) < len(uses):
                raise ValueError(
                    f"uses of {situation!r}: one or more of {', '.join(USES)}, each once, are needed, not {list(uses)}"
                )
        return table

    @model_validator(mode="after")
    def _bounds_apart(self) -> FilterConfig:
        if self.b_max_share >= self.a_min_share:
            raise ValueError("b_max_share must be below a_min_share")
        return self

    def active(self, stage: str) -> bool:
        """Whether a stage is applied."""
        return stage not in self.skip

    def identity(self) -> dict[str, Any]:
        """All of it as JSON values, for the identity of a partition."""
        dumped = self.model_dump(mode="json")
        return {**dumped, "skip": sorted(dumped["skip"])}


def filter_config(settings: Settings) -> FilterConfig:
    """The filter of a settings object: its file where one is named, with the judge and the axis bounds of the settings.

    Raises:
        Abort: a file that cannot be read, with the place of the fault.
    """
    gate = settings.reasoning_gate
    values: dict[str, Any] = {
        "judge": settings.judge,
        "a_min_share": settings.axis_a_min_share,
        "b_max_share": settings.axis_b_max_share,
        "reasoning": {"discrete": gate, "rules": gate, "llm": gate},
    }
    where = "filter"
    if settings.filter is not None:
        where = f"filter file {settings.filter}"
        values |= _read(Path(settings.filter), where)
        told = values["judge"]
        # Replies that nobody counts would be paid for, or verdicts counted that nobody asked for.
        if isinstance(told, str) and told != settings.judge and (is_llm(told) or is_llm(settings.judge)):
            raise Abort(f"{where}: judge is {told!a} here and {settings.judge!a} in the settings: an LLM judge in both")
    try:
        return FilterConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Abort(f"{where}: {place + ': ' if place else ''}{first['msg']}") from error


def _read(path: Path, where: str) -> dict[str, Any]:
    value = read_yaml(path, where)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Abort(f"{where}: expected a mapping of options")
    return {str(key): entry for key, entry in value.items()}
