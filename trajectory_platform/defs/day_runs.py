"""How an asset runs several days in one run without letting one bad day hide the good ones.

Dagster marks all partitions of a run as done or none. Here each day is tried on its own: when all are good,
every partition gets its own metadata; when some are bad, the good days' materialisations are logged first
and then the step fails and names the bad ones. The ``resume_good_days`` sensor requests what lies downstream
of the good days (design 4).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any, NamedTuple, TypeVar

import dagster as dg

from trajectory_platform.defs.budget import cpu_seconds
from trajectory_platform.defs.checkpoint_figures import checkpoint_figures
from trajectory_platform.defs.day_figures import day_figures
from trajectory_platform.defs.resources import Platform
from trajectory_platform.errors import PlatformError
from trajectory_platform.stages.context import Stage, StageContext, StageResult
from trajectory_platform.stages.result_words import OUTSIDE, result_words

MAX_METADATA_BYTES = 18_000  # two pictures and the counts; an event row of megabytes stops the web server (cases F14)
_MAX_TEXT = 400
_Result = TypeVar("_Result")


def materialise_days(
    context: dg.AssetExecutionContext, platform: Platform, stage: Stage, outputs: Mapping[str, str]
) -> Iterator[dg.MaterializeResult[None]]:
    """Run one stage for every day of this run.

    Args:
        outputs: asset name -> table whose manifest describes it.

    Raises:
        dagster.Failure: naming every day that failed, after the good days were recorded.
    """
    good: dict[str, StageResult] = {}
    spent: dict[str, Spent] = {}
    bad: dict[str, str] = {}
    for day in context.partition_keys:
        try:
            good[day], spent[day] = measured(partial(stage, platform.context, day))
            words = result_words(platform.context, good[day])
            # the stages that a recipe does not have are no news, and a line for each hides what is
            say = context.log.debug if words == OUTSIDE else context.log.info
            say(f"{day}: {'already current: ' if good[day].skipped else ''}{words}")
        except PlatformError as error:
            bad[day] = str(error)
            context.log.error(f"{day}: {error}")
        except Exception as error:
            # the boundary of a day: an unknown fault fails this day and names itself, the others go on
            bad[day] = f"{type(error).__name__}: {error}"
            context.log.exception(f"{day} failed")
    first = next(iter(outputs), None)

    def metadata_of(day: str, asset: str) -> dict[str, Any]:
        """Of a step that makes several assets the first one carries what the step took: sums stay right."""
        took = spent[day] if asset == first else None
        return event_metadata(platform.context, good[day], outputs[asset], took)

    if bad:
        for day in good:
            for asset in outputs:
                metadata = metadata_of(day, asset)
                context.log_event(dg.AssetMaterialization(asset, partition=day, metadata=metadata))
        raise dg.Failure(
            f"{len(bad)} of {len(bad) + len(good)} days failed: {', '.join(sorted(bad))}"[:_MAX_TEXT],
            metadata=capped({day: dg.MetadataValue.text(reason[:_MAX_TEXT]) for day, reason in sorted(bad.items())}),
            allow_retries=False,
        )
    for asset in outputs:
        for day in good:
            metadata = metadata_of(day, asset)
            context.add_asset_metadata(metadata, asset_key=asset, partition_key=day)
        yield dg.MaterializeResult(asset_key=asset)


class Spent(NamedTuple):
    """What a stage took for one day. Measured, so it stands in events only and in no digest.

    Attributes:
        wall_s: seconds on the clock.
        cpu_s: processor seconds of this process and of the children it has waited for.
    """

    wall_s: float
    cpu_s: float


def measured(work: Callable[[], _Result]) -> tuple[_Result, Spent]:
    """The result of a day's work and what it took."""
    wall, cpu = time.monotonic(), cpu_seconds()
    result = work()
    return result, Spent(round(time.monotonic() - wall, 2), round(cpu_seconds() - cpu, 2))


def gpu_seconds(ctx: StageContext, result: StageResult, table: str) -> float | None:
    """Seconds of training times devices where a stage of training ran on GPUs, 0 where it trained nothing or on a CPU;
    None for what is no stage of training."""
    if table != "checkpoints":
        return None
    from trajectory_platform.training.recipe import load_recipe

    seconds = result.summary.get("run_seconds")
    try:
        hardware = load_recipe(ctx.settings.recipe).hardware
    except PlatformError:  # spoiled while the stage ran: no reason to lose the record of what was made
        return None
    if result.skipped or hardware.profile == "cpu" or not isinstance(seconds, int | float):
        return 0.0
    return round(float(seconds) * hardware.processes, 2)


def event_metadata(ctx: StageContext, result: StageResult, table: str, spent: Spent | None = None) -> dict[str, Any]:
    """How a day ended, its counts and pictures; then what it was made from, as what it is published and what it took.

    Args:
        spent: what the stage took; None beside another asset of the same step.
    """
    manifest = result.manifests[table]
    facts = dict(result.summary)
    metadata: dict[str, Any] = {name: facts.pop(name) for name in _SHOWN_FIRST if facts.get(name) is not None}
    metadata |= {name: facts.pop(name) for name in list(facts) if isinstance(facts[name], int | float)}
    metadata["dagster/row_count"] = manifest.rows
    metadata |= day_figures(ctx, result, table) | checkpoint_figures(ctx, result, table)
    for name, value in facts.items():
        metadata[name] = dg.MetadataValue.json(value) if isinstance(value, dict | list) else value
    metadata |= {
        "complete": manifest.complete,
        "skipped (already current)": result.skipped,
        "content_digest": manifest.content_digest,
        "table_version": manifest.table_version,
        "identity": manifest.identity,
    }
    if spent is not None:
        metadata |= {**spent._asdict(), "gpu_s": gpu_seconds(ctx, result, table)}
    return capped({name: value for name, value in metadata.items() if value is not None})


def capped(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata cut to ``MAX_METADATA_BYTES`` with a marker; never an exception after the data is written.

    What does not fit any more is left out, smaller entries behind it are kept.
    """
    kept: dict[str, Any] = {}
    left_out: list[str] = []
    used = 0
    for name, value in metadata.items():
        size = len(name) + len(json.dumps(getattr(value, "value", value), default=str))
        if used + size > MAX_METADATA_BYTES:
            left_out.append(name)
            continue
        kept[name] = value
        used += size
    if left_out:
        kept["cut"] = f"left out, more than {MAX_METADATA_BYTES} bytes: {', '.join(left_out)}"[:_MAX_TEXT]
    return kept


_SHOWN_FIRST = ("status", "state", "reason", "checkpoint_id", "parent")


def contiguous(days: Sequence[str]) -> list[tuple[str, str]]:
    """Days as ranges of consecutive days, oldest first: what one backfill run can take."""
    ranges: list[tuple[str, str]] = []
    for day in sorted(days):
        if ranges and date.fromisoformat(day).toordinal() - date.fromisoformat(ranges[-1][1]).toordinal() == 1:
            ranges[-1] = (ranges[-1][0], day)
        else:
            ranges.append((day, day))
    return ranges
