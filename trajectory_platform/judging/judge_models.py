"""Which LLM judges are asked, in which order, at which price and within which limits: one validated file.

A short form exists for one model: ``--judge openai/NAME`` with the endpoint and the prices from the settings. Keys come
from environment variables that are named here; they are never part of a configuration, an identity or a log.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from trajectory_platform.errors import Abort
from trajectory_platform.identity import digest_json
from trajectory_platform.strict_yaml import no_bool_as_number, read_yaml

BUILT_IN = ("rules", "validator")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers(cls, value: Any, info: ValidationInfo) -> Any:
        is_number = info.field_name is not None and cls.model_fields[info.field_name].annotation is not bool
        return no_bool_as_number(value) if is_number and isinstance(value, bool) else value


class JudgeModel(_Part):
    """One model behind one endpoint.

    A model without a price is refused unless it is marked free: an unknown price would pass every budget (case E14).
    """

    name: str = Field(min_length=1, max_length=120, description="how verdicts name it")
    model: str = Field(min_length=1, description="litellm model, e.g. openai/NAME for any OpenAI-compatible endpoint")
    api_base: str | None = Field(None, description="base URL of the endpoint; null = the provider's own")
    api_key_env: str | None = Field(
        None, pattern=r"^[A-Z][A-Z0-9_]*$", description="NAME of the environment variable that holds the key"
    )
    usd_per_million_input: float | None = Field(None, ge=0)
    usd_per_million_output: float | None = Field(None, ge=0)
    free: bool = False
    temperature: float = Field(0.0, ge=0, le=2)
    max_tokens: int = Field(600, ge=16, description="limit of the reply; part of the worst-case cost")
    timeout_s: float = Field(90.0, gt=0)
    concurrency: int = Field(8, ge=1)
    requests_per_minute: int | None = Field(None, ge=1)
    structured_output: Literal["json_schema", "json_object", "none"] = "json_schema"

    @model_validator(mode="after")
    def _has_a_price(self) -> JudgeModel:
        priced = self.usd_per_million_input is not None and self.usd_per_million_output is not None
        if not priced and not self.free:
            raise ValueError(f"judge model {self.name!r} needs both prices, or free: true")
        return self

    @field_validator("api_base")
    @classmethod
    def _no_secret_in_the_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
        except ValueError:
            raise ValueError("api_base is no URL") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("api_base must be an http or https URL")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("api_base must not hold credentials or a query: name a variable in api_key_env")
        return value

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """USD of one call."""
        return (
            prompt_tokens * (self.usd_per_million_input or 0.0)
            + completion_tokens * (self.usd_per_million_output or 0.0)
        ) / 1e6

    def parameters(self) -> dict[str, Any]:
        """Everything of the request that may change the answer, besides the messages (case E11)."""
        fields = {"model", "api_base", "temperature", "max_tokens", "structured_output"}
        return self.model_dump(mode="json", include=fields)

    def api_key(self) -> str | None:
        """The key of the environment; Abort where the named variable is not set."""
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "")
        if not key:
            raise Abort(f"judge model {self.name!r}: the environment variable {self.api_key_env} is not set")
        return key


class JudgeBudget(_Part):
    """Limits of money and tokens; null is no limit. Reaching one ends the judging cleanly, it is no error."""

    usd_per_run: float | None = Field(None, ge=0)
    usd_per_day: float | None = Field(None, ge=0, description="over all runs of one subnet day")
    tokens_per_run: int | None = Field(None, ge=0)


class JudgeConfig(_Part):
    """Ordered models with the rules of asking them.

    Attributes:
        attempts: calls per trace over all models; domain 2.6 has 8.
        reasks: further calls of one model for a trace after a reply that could not be read.
        breaker: traces in a row that no endpoint answered after which the rest of the run is left for later.
        batch: traces judged together; each batch has its own canaries.
        canaries: canary pairs per batch and model.
        entrance_canaries: pairs before a run's first use of a model; 24 are every wording in every place.
    """

    models: tuple[JudgeModel, ...] = Field(min_length=1)
    budget: JudgeBudget = JudgeBudget()
    attempts: int = Field(8, ge=1)
    reasks: int = Field(1, ge=0)
    max_wait_s: float = Field(60.0, ge=0, description="longest Retry-After that is waited for")
    breaker: int = Field(3, ge=1)
    batch: int = Field(100, ge=1)
    concurrency: int = Field(16, ge=1)
    canaries: int = Field(2, ge=1, le=24)
    entrance_canaries: int = Field(8, ge=1, le=24)

    @model_validator(mode="after")
    def _names_differ(self) -> JudgeConfig:
        names = [model.name for model in self.models]
        if len(set(names)) != len(names):
            raise ValueError("two judge models have one name")
        return self

    def identity(self) -> str:
        """Digest of what may change a verdict: models and their parameters, in order. Budgets and limits do not."""
        return digest_json([[model.name, model.parameters()] for model in self.models])

    def check_keys(self) -> None:
        """Abort with one line if a variable that is named for a key is not set."""
        for model in self.models:
            model.api_key()


def is_llm(judge: str) -> bool:
    """Whether a ``judge`` setting names LLM judges rather than a built-in one."""
    return judge not in BUILT_IN


def load_judge(
    judge: str,
    *,
    api_base: str | None = None,
    api_key_env: str | None = None,
    usd_per_million_input: float | None = None,
    usd_per_million_output: float | None = None,
    usd_per_day: float | None = None,
) -> JudgeConfig:
    """A configuration from a YAML or JSON file, or the short form of one model with the other arguments.

    Raises:
        Abort: one line that says what is wrong and where.
    """
    path = Path(judge)
    if path.suffix in (".yaml", ".yml", ".json"):  # JSON is YAML
        return _read(path)
    if judge in BUILT_IN or not judge.strip():
        raise Abort(f"{judge!r} is no LLM judge")
    if "/" not in judge:
        raise Abort(
            f"judge {judge!r} is not available: use rules, validator, a model as PROVIDER/NAME (openai/NAME for any "
            "OpenAI-compatible endpoint) or a YAML file of models"
        )
    priced = usd_per_million_input is not None and usd_per_million_output is not None
    local = api_base is not None and not priced and usd_per_million_input is None and usd_per_million_output is None
    try:
        model = JudgeModel(
            name=judge.partition("/")[2],
            model=judge,
            api_base=api_base,
            api_key_env=api_key_env,
            usd_per_million_input=usd_per_million_input,
            usd_per_million_output=usd_per_million_output,
            free=local and _is_loopback(api_base),
        )
        return JudgeConfig(models=(model,), budget=JudgeBudget(usd_per_day=usd_per_day))
    except ValidationError as error:
        raise Abort(f"judge {judge}: {_first(error)}") from error


def _read(path: Path) -> JudgeConfig:
    value = read_yaml(path, f"judge file {path}")
    if not isinstance(value, dict):
        raise Abort(f"judge file {path}: expected a mapping with models")
    try:
        return JudgeConfig.model_validate(value)
    except ValidationError as error:
        raise Abort(f"judge file {path}: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    first = error.errors(include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def _is_loopback(api_base: str | None) -> bool:
    """A server on this machine costs nothing to ask."""
    return (urlsplit(api_base or "").hostname or "") in ("127.0.0.1", "localhost", "::1")
