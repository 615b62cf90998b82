"""How an asset runs several days in one run without letting one bad day hide the good ones.

Dagster marks all partitions of a run as done or none. Here each day is tried on its own: when all are good,
every partition gets its own metadata; when some are bad, the good days' materialisations are logged first
and then the step fails and names the bad ones. The ``resume_good_days`` sensor requests what lies downstream
of the good days (design 4).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from trajectory_platform.defs.checkpoint_figures import checkpoint_figures
from trajectory_platform.defs.day_figures import day_figures
from trajectory_platform.defs.resources import Platform
from trajectory_platform.errors import PlatformError
from trajectory_platform.stages.context import Stage, StageContext, StageResult

MAX_METADATA_BYTES = 18_000  # two pictures and the counts; an event row of megabytes stops the web server (cases F14)
_MAX_TEXT = 400


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
    bad: dict[str, str] = {}
    for day in context.partition_keys:
        try:
            good[day] = stage(platform.context, day)
            context.log.info(f"{day}: {_one_line(good[day])}")
        except PlatformError as error:
            bad[day] = str(error)
            context.log.error(f"{day}: {error}")
        except Exception as error:
            # the boundary of a day: an unknown fault fails this day and names itself, the others go on
            bad[day] = f"{type(error).__name__}: {error}"
            context.log.exception(f"{day} failed")
    if bad:
        for day, result in good.items():
            for asset, table in outputs.items():
                metadata = event_metadata(platform.context, result, table)
                context.log_event(dg.AssetMaterialization(asset, partition=day, metadata=metadata))
        raise dg.Failure(
            f"{len(bad)} of {len(bad) + len(good)} days failed: {', '.join(sorted(bad))}"[:_MAX_TEXT],
            metadata=capped({day: dg.MetadataValue.text(reason[:_MAX_TEXT]) for day, reason in sorted(bad.items())}),
            allow_retries=False,
        )
    for asset, table in outputs.items():
        for day, result in good.items():
            metadata = event_metadata(platform.context, result, table)
            context.add_asset_metadata(metadata, asset_key=asset, partition_key=day)
        yield dg.MaterializeResult(asset_key=asset)


def event_metadata(ctx: StageContext, result: StageResult, table: str) -> dict[str, Any]:
    """How a day ended, its counts and pictures; then what it was made from and as what it is published."""
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
    return capped(metadata)


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


_SAID_FIRST = ("status", "state", "reason")
_SHOWN_FIRST = (*_SAID_FIRST, "checkpoint_id", "parent")


def _one_line(result: StageResult) -> str:
    """What a stage did for a day, for a person who watches: how it ended, then its counts."""
    words = [str(result.summary[name]) for name in _SAID_FIRST if result.summary.get(name)]
    for name, value in result.summary.items():
        if isinstance(value, int | float):
            shown = f"{value:.3g}" if isinstance(value, float) else f"{value:,}"
            words.append(f"{name.replace('_', ' ')} {shown}")
    return ("already current; " if result.skipped else "") + ", ".join(words)


def contiguous(days: Sequence[str]) -> list[tuple[str, str]]:
    """Days as ranges of consecutive days, oldest first: what one backfill run can take."""
    ranges: list[tuple[str, str]] = []
    for day in sorted(days):
        if ranges and date.fromisoformat(day).toordinal() - date.fromisoformat(ranges[-1][1]).toordinal() == 1:
            ranges[-1] = (ranges[-1][0], day)
        else:
            ranges.append((day, day))
    return ranges
