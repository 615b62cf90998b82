"""What a user may turn: one validated object, from a YAML file, from options or both.

Shares are of the executed (run, problem) pairs of scripted miners. They are targets that every day steers towards; a
day of few traces is off by the size of a run, what is left over is made up for on the next day.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from trajectory_platform.arena import rules
from trajectory_platform.errors import Abort

Share = Annotated[float, Field(ge=0.0, le=1.0)]


def _span(value: Any) -> Any:
    """``2``, ``"2"``, ``"2-3"`` and ``[2, 3]`` as a pair."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value, value)
    if isinstance(value, str) and 1 <= len(parts := value.split("-")) <= 2:
        return (parts[0], parts[-1])
    return value


class EntryKnobs(BaseModel):
    """One of our own policies that takes part as a miner.

    Attributes:
        policy: spec of who answers, as in ``evaluation.policies``: ``checkpoint:FOLDER``, ``endpoint:URL#MODEL`` ...
        checkpoint_id: identity that its traces carry as ``policy_checkpoint_id``.
        hotkey: hotkey to enter with; None makes one from the checkpoint id.
        pairs_per_day: qualifying pairs it runs a day, over all validators.
        concurrency: rollouts under way at a time.
        reply_tokens: token limit of one reply.
        key_variable: environment variable that holds an endpoint's key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: str = Field(min_length=1)
    checkpoint_id: str = Field(min_length=1, max_length=128)
    hotkey: str | None = Field(default=None, min_length=1, max_length=64)
    pairs_per_day: int = Field(default=60, ge=1)
    concurrency: int = Field(default=8, ge=1)
    reply_tokens: int = Field(default=8192, ge=1)
    key_variable: str | None = None


class Knobs(BaseModel):
    """The knobs of the arena.

    Attributes:
        days, traces_per_day: size of the simulation; ``simulate``'s own arguments win.
        problems_per_day: problems open on a day, hidden ones included. Default: a quarter of the traces, at least 30,
            and 30 for the public suites v1 to v3.
        miners: distinct hotkeys that submit on a day. Default: as many as the traces need.
        axis_b: share of pairs whose calls are made by code (kinds ``b_*``).
        copying: share of pairs by agents that copied released code.
        adversaries: share of pairs that inject text, forge a log, or let the model repeat calls that code decided.
        noise: share of pairs that are odd by accident: crashes, malformed steps, clocks, wrong verdicts.
        era: day whose formats and rules apply to all days; None: each day its own (domain 1.11).
        validators_per_entry: least and most validators that run one entry.
        race_share: share of pairs that are race pairs.
        suite_days: days until the public suite changes; None: as the subnet did (``rules.suite_started``).
        sealed_share: share of the hidden race problems that share nothing with a public one; the others are
            rewordings of public problems.
        cancelled_races: share of races that are cancelled while they run.
        entries: own checkpoints or endpoints that take part.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    days: int = Field(default=3, ge=1)
    traces_per_day: int = Field(default=400, ge=1)
    problems_per_day: int | None = Field(default=None, ge=3)
    miners: int | None = Field(default=None, ge=1)
    axis_b: Share = 0.15
    copying: Share = 0.08
    adversaries: Share = 0.05
    noise: Share = 0.19
    era: date | None = None
    validators_per_entry: Annotated[tuple[int, int], BeforeValidator(_span)] = rules.VALIDATORS_PER_ENTRY
    race_share: Annotated[float, Field(ge=0.0, le=0.5)] = 0.08
    suite_days: int | None = Field(default=None, ge=1)
    sealed_share: Share = 0.9
    cancelled_races: Share = 0.04
    entries: tuple[EntryKnobs, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.axis_b + self.copying > 1.0:
            raise ValueError("axis_b and copying are shares of the same pairs: together at most 1")
        if self.adversaries + self.noise > 1.0:
            raise ValueError("adversaries and noise are shares of the same pairs: together at most 1")
        low, high = self.validators_per_entry
        if not 1 <= low <= high <= 8:
            raise ValueError("validators_per_entry: 1 to 8, the smaller number first")
        if len({entry.checkpoint_id for entry in self.entries}) != len(self.entries):
            raise ValueError("entries: each needs a checkpoint_id of its own")
        return self

    def era_of_day(self, day: date) -> date:
        """The day whose formats and rules apply to ``day``."""
        return self.era or day


def load_knobs(path: Path | None = None, options: Mapping[str, Any] | None = None) -> Knobs:
    """Knobs from a YAML file and options; an option that is not None wins over the file.

    Raises:
        Abort: the file cannot be read or is no mapping, or a knob is unknown or out of range.
    """
    given: dict[str, Any] = {}
    if path is not None:
        import yaml

        try:
            given = yaml.safe_load(path.read_text("utf-8")) or {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise Abort(f"cannot read the arena's knobs from {path}: {error}") from error
        if not isinstance(given, dict):
            raise Abort(f"{path}: knobs are a mapping of names to values")
    given |= {name: value for name, value in (options or {}).items() if value is not None}
    try:
        return Knobs(**given)
    except (ValidationError, TypeError) as error:
        raise Abort(f"the arena's knobs are wrong: {_reasons(error)}") from error


def _reasons(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return str(error)
    parts = (
        (".".join(str(step) for step in item["loc"]), str(item["msg"]).removeprefix("Value error, "))
        for item in error.errors()
    )
    return "; ".join(f"{where}: {what}" if where else what for where, what in parts)
