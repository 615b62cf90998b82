"""The three shared days, run once through the platform's own stages and kept for all tests of a process."""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.curation.filter import CurationResult, curate_day
from trajectory_platform.judging.day import judge_day
from trajectory_platform.sandbox.problems import problem_rows
from trajectory_platform.sandbox.products import load_products
from trajectory_platform.settings import Settings
from trajectory_platform.sources.container import Limits
from trajectory_platform.sources.files import FileSource
from trajectory_platform.traces.inventory import inventory_day
from trajectory_platform.traces.normalise import normalise_batches
from trajectory_platform_tests.conftest import shared_folder

DAYS_FOLDER = shared_folder() / "days"
DAYS = ("2026-04-20", "2026-04-29", "2026-05-02")


class Day(NamedTuple):
    """One day after judging: everything the filter needs."""

    raw: pa.Table
    batches: list[pa.RecordBatch]
    problems: pa.Table
    catalogue: Any
    judged: pa.Table
    verdicts: pa.Table


@lru_cache(maxsize=3)
def judged_day(name: str) -> Day:
    """Inventory, normalise and judge one shared day."""
    source = FileSource(str(DAYS_FOLDER))
    day = date.fromisoformat(name)
    limits = Limits(
        *(
            Settings.model_fields[field].default
            for field in ("max_artifact_bytes", "max_inflated_bytes", "max_record_bytes", "max_depth")
        )
    )
    raw = inventory_day(source, day, limits).rows
    traces = raw.filter(pc.equal(raw.column("state"), "trace"))
    batches = list(normalise_batches(traces, source, limits, 64, 1))
    listing = source.open_day(day)
    problems = problem_rows(listing)
    assert listing.catalogue_uri is not None
    catalogue = load_products(source.read(listing.catalogue_uri))
    judged, verdicts = judge_day(raw, iter(batches), problems, catalogue, judge="rules", title_regime="normalised")
    return Day(raw, batches, problems, catalogue, judged, verdicts)


def curated(day: Day, config: FilterConfig | None = None) -> tuple[CurationResult, list[dict[str, Any]]]:
    """The filter's result and its accepted rows."""
    result = curate_day(day.raw, lambda: iter(day.batches), day.judged, day.verdicts, config=config or FilterConfig())
    return result, [row for batch in result.accepted for row in batch.to_pylist()]


@lru_cache(maxsize=1)
def truth() -> dict[str, dict[str, Any]]:
    """Expected labels by trace_id."""
    lines = (DAYS_FOLDER / "truth.jsonl").read_bytes().splitlines()
    return {f"{row['eval_run_id']}:{row['problem_id']}": row for row in map(orjson.loads, lines)}
