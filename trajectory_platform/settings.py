"""One frozen settings object, built once at an entry point from ``TRAJECTORY_PLATFORM_*`` variables.

Core functions never read the environment: they take the values they need. ``Settings.used_by(stage)``
names the settings that enter the identity of a stage, so that changing a setting rebuilds exactly what
depends on it.
"""

from __future__ import annotations

import json
import os
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class HoldOut(BaseModel):
    """One dated entry of the hold-out list: from ``since`` (until ``until``) these problems are sealed or dev.

    Either whole suites (``suite_id``) or single problems (``problem_key`` / ``problem_id``) are named.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    pool: Literal["sealed", "dev"] = "sealed"
    since: date
    until: date | None = None
    suite_id: str | None = None
    problem_id: str | None = None
    problem_key: str | None = None

    @model_validator(mode="after")
    def _names_something(self) -> HoldOut:
        if not (self.suite_id or self.problem_id or self.problem_key):
            raise ValueError("a hold-out entry names a suite_id, a problem_id or a problem_key")
        return self


class Benchmark(BaseModel):
    """A registered external evaluation file. Its problems are never training data; what they overlap is marked.

    ``sealed`` also keeps every cluster they are in out of training, which can empty a corpus: ``leaks benchmark`` says
    how many traces a day that costs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    path: str
    sealed: bool = False


def _words(value: Any) -> Any:
    """``a, b`` and ``["a", "b"]`` alike: a list in a variable is written both ways."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError('write words with commas, or a JSON list: ["a", "b"]') from None
    return tuple(word for part in value.split(",") if (word := part.strip()))


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]


class Settings(BaseSettings):
    """Everything a user may set. Defaults are the ones of ``docs/architecture.md``."""

    model_config = SettingsConfigDict(env_prefix="TRAJECTORY_PLATFORM_", frozen=True, extra="ignore")

    # where things are
    data_root: str = Field("data/days", description="raw days: local folder or s3://bucket/prefix")
    lake_uri: str = Field("data/lake", description="Delta tables: local folder or s3://bucket/prefix")
    lake_local: str = Field(
        "data/lake_local",
        description="local folder of a lake on s3://: staged files, cached indexes, journals of paid replies",
    )
    checkpoint_root: str = Field("data/checkpoints", description="folder of the checkpoints")
    index_root: str = Field("data/index", description="folder of the search indexes, one per catalogue content")
    first_day: date = Field(date(2026, 3, 26), description="first partition (the subnet's launch)")

    # the subnet's API (domain 1.10); `fetch` writes what it finds into data_root
    source: Literal["files", "oro_api"] = Field("files", description="whether days are fetched from the subnet's API")
    api_base: str = Field("https://api.oroagents.com", description="the subnet's public API")
    api_state: str = Field("data/api", description="folder of the queue of wanted artifacts and the request limiter")
    api_requests_per_minute: int = Field(90, ge=1, description="of all processes that share api_state")
    api_requests_per_day: int | None = Field(
        None,
        ge=1,
        description="for a subnet day on a day of looks, listing included; above it a sample is fetched; null = all",
    )
    api_artifact_hosts: Words = Field(
        (".amazonaws.com", ".r2.cloudflarestorage.com"),
        description="hosts from which artifacts may be downloaded; a leading dot admits what ends so",
    )
    api_final_after_days: int = Field(14, ge=0, description="days after which what is still missing is given up")

    # reading raw artifacts
    max_artifact_bytes: int = Field(64 << 20, gt=0, description="stored size above which an artifact is too_large")
    max_inflated_bytes: int = Field(256 << 20, gt=0, description="inflated size above which an artifact is too_large")
    max_record_bytes: int = Field(16 << 20, gt=0, description="one trace (line or array) above this is too_large")
    max_depth: int = Field(100, gt=0, description="JSON nesting above which a record is too_deep")
    batch_rows: int = Field(256, gt=0, description="rows per record batch; bounds memory")
    workers: int = Field(1, ge=1, description="processes for per-trace work; never changes the result")

    # the axis (design 4)
    axis_a_min_share: float = Field(0.8, gt=0, le=1)
    axis_b_max_share: float = Field(0.2, ge=0, lt=1)

    # judging and gates
    judge: str = Field(
        "rules",
        description="whose verdict the reasoning gate reads: rules | validator | PROVIDER/MODEL | YAML file of models",
    )
    judge_api_base: str | None = Field(None, description="endpoint of a judge given as PROVIDER/MODEL")
    judge_api_key_env: str | None = Field(None, description="NAME of the variable that holds that endpoint's key")
    judge_usd_per_million_input: float | None = Field(None, ge=0)
    judge_usd_per_million_output: float | None = Field(None, ge=0)
    judge_usd_per_day: float | None = Field(None, ge=0, description="budget per subnet day; null = no limit")
    reasoning_gate: float = Field(0.7, ge=0, le=1)
    filter: str | None = Field(None, description="YAML file of the structural filter; null = its defaults")
    title_regime: str = Field("normalised", description="when two titles are similar: judging.titles names the regimes")
    title_encoder: str = Field(
        "none", description="none | stored | stored:FILE | sentence-transformers:FOLDER: read by the embedding regimes"
    )
    attribute_rule: str = Field("exact", description="exact (version 1 of the subnet) | folded (mid-2026)")

    # splits
    pool_key: str = Field("trajectory-platform", min_length=1)
    pool_train: int = Field(80, ge=0)
    pool_dev: int = Field(10, ge=0)
    pool_sealed: int = Field(10, ge=0)
    window_days: int = Field(40, ge=1)
    hold_outs: tuple[HoldOut, ...] = ()
    hold_new_suites_days: int = Field(0, ge=0, description="days for which a suite is sealed from its first day on")
    benchmarks: tuple[Benchmark, ...] = ()
    near_similarity: float = Field(
        0.6, gt=0, le=1, description="word similarity of queries from which a hint is listed"
    )
    max_cluster_share: float = Field(0.2, gt=0, le=1, description="a larger cluster stops the run")
    min_problems_for_share: int = Field(50, ge=1, description="below this many problems the share is not tested")

    # what happens by itself
    unattended: bool | None = Field(
        None, description="whether schedules and sensors start switched on; null = where source is oro_api"
    )
    ingest_at_utc: str = Field(
        "03:30", pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description="daily ingestion, HH:MM in UTC"
    )
    retrain_min_new_clusters: int = Field(
        200, ge=1, description="new clusters with axis-A traces that start a training"
    )
    retrain_cooldown_days: int = Field(1, ge=0, description="days between two trainings that start by themselves")
    volume_min_share: float = Field(
        0.5, ge=0, le=1, description="a day with fewer traces than this share of the median of the week before warns"
    )
    alert_cooldown_minutes: int = Field(360, ge=0, description="minutes in which an equal alert is not sent again")
    alert_webhook_env: str | None = Field(
        None, description="NAME of the variable that holds the URL alerts are sent to"
    )
    alert_smtp_host: str | None = None
    alert_smtp_port: int = Field(587, ge=1, le=65535)
    alert_smtp_user_env: str | None = Field(None, description="NAME of the variable that holds the mail user")
    alert_smtp_password_env: str | None = Field(None, description="NAME of the variable that holds the mail password")
    alert_mail_from: str | None = None
    alert_mail_to: Words = ()

    # training
    seed: int = 0
    recipe: str = Field("smoke", description="name of a shipped recipe or path of a YAML file")

    @field_validator("data_root", "lake_uri", "lake_local", "checkpoint_root", "index_root", "api_state")
    @classmethod
    def _home(cls, value: str) -> str:
        """``~`` as the shell would write it: a variable in a file or a Dagster environment is not expanded there."""
        return os.path.expanduser(value)

    @model_validator(mode="after")
    def _pools_add_up(self) -> Settings:
        if self.pool_train + self.pool_dev + self.pool_sealed != 100:
            raise ValueError("pool_train + pool_dev + pool_sealed must be 100")
        if self.axis_b_max_share >= self.axis_a_min_share:
            raise ValueError("axis_b_max_share must be below axis_a_min_share")
        return self

    def used_by(self, stage: str) -> dict[str, Any]:
        """The settings that enter the identity of one stage, as JSON values."""
        dumped = self.model_dump(mode="json", include=set(STAGE_SETTINGS[stage]))
        return {name: dumped[name] for name in sorted(dumped)}


_READING = ("max_artifact_bytes", "max_inflated_bytes", "max_record_bytes", "max_depth")
_SCORING = ("title_regime", "title_encoder", "attribute_rule")
STAGE_SETTINGS: dict[str, tuple[str, ...]] = {
    "raw_traces": _READING,
    "problem_suites": (),
    "trajectories": _READING,
    "judged_traces": ("judge", "title_regime", "title_encoder", "attribute_rule"),
    "axis_a_corpus": ("axis_a_min_share", "axis_b_max_share", "judge", "reasoning_gate"),
    "leak_clusters": (
        "pool_key",
        "pool_train",
        "pool_dev",
        "pool_sealed",
        "hold_outs",
        "hold_new_suites_days",
        "benchmarks",
        "near_similarity",
        "max_cluster_share",
        "min_problems_for_share",
    ),
    "leak_guarded_splits": ("window_days",),
    "resft_rollouts": ("judge", "seed", *_SCORING),
    "teacher_traces": ("judge", "seed", *_SCORING),
    **{f"{stage}_checkpoint": ("benchmarks", "seed") for stage in ("sft", "resft", "teacher_sft", "kto")},
    "dr_grpo_checkpoint": ("benchmarks", "seed", *_SCORING),
    # the plan of an evaluation has its own seed
    **{f"{stage}_eval": _SCORING for stage in ("sft", "resft", "teacher_sft", "kto", "dr_grpo")},
    "base_eval": (*_SCORING, "seed"),
    "sft_action_scores": (),
    "checkpoint_lineage": (),
    "contamination": ("benchmarks",),
}
