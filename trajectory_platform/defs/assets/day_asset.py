"""One factory: a stage, its tables and its upstreams become a daily-partitioned asset."""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Any

import dagster as dg

from trajectory_platform.defs.day_runs import materialise_days
from trajectory_platform.defs.pipes import pipes_runner
from trajectory_platform.defs.resources import Platform
from trajectory_platform.defs.runs import read_tag
from trajectory_platform.sources.listed import listed
from trajectory_platform.stages.context import StageContext, StageResult, neighbours
from trajectory_platform.stages.triggers import local_digest, version_of

OWNERS = ["team:trajectory-platform"]


@dataclass(frozen=True)
class DayAsset:
    """One row of an asset table.

    Attributes:
        stage: the function that does the work for one day; with ``own_process`` it also takes ``run``, the runner
            that starts its heavy part.
        outputs: asset name -> table it publishes (usually the same word; several for one stage).
        group: group in the asset graph, named like the package.
        kinds: what a newcomer sees as icons on the node.
        descriptions: asset name -> Markdown description.
        upstream: asset name -> partition mapping (None for an asset without partitions).
        days_per_run: how many days a backfill puts into one run; None for one run per day.
        pool: concurrency pool of heavy assets.
        own_process: the heavy part runs in a separate process through Dagster Pipes.
        reads_folders: it reads the raw folders; the run keeps which version of them.
    """

    stage: Callable[..., StageResult]
    outputs: Mapping[str, str]
    group: str
    kinds: frozenset[str]
    descriptions: Mapping[str, str]
    upstream: Mapping[str, dg.PartitionMapping | None] = field(default_factory=dict)
    days_per_run: int | None = 5
    pool: str | None = None
    own_process: bool = False
    reads_folders: bool = False


def versions_to_keep(ctx: StageContext, days: Sequence[str]) -> dict[str, str]:
    """Tag -> version of the folders of each day as they are listed before they are read.

    By it ``new_raw_days`` knows that a folder in an object store was read, whoever asked for the run. Where contents
    can be compared (local folders) nothing is kept.
    """
    if local_digest(ctx) is not None:
        return {}
    there = {found.isoformat() for found in ctx.source.days()}
    near = sorted({one for day in days for one in neighbours(day)} & there)
    versions = {one: listed(ctx.settings.data_root, date.fromisoformat(one)).version for one in near}
    return {read_tag(day): version_of(day, versions) for day in days}


def build(
    row: DayAsset, partitions: dg.DailyPartitionsDefinition, pod: Mapping[str, Any] | None = None
) -> dg.AssetsDefinition:
    """The Dagster asset of one row; ``pod`` are the tags by which a cluster sizes its step (``defs.kubernetes``)."""
    deps: Sequence[dg.AssetDep] = [
        dg.AssetDep(name, partition_mapping=mapping) for name, mapping in row.upstream.items()
    ]
    specs = [
        dg.AssetSpec(
            name,
            description=row.descriptions[name],
            group_name=row.group,
            kinds=set(row.kinds),
            owners=OWNERS,
            deps=deps,
            partitions_def=partitions,
        )
        for name in row.outputs
    ]

    @dg.multi_asset(
        name="_and_".join(row.outputs),
        specs=specs,
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=row.days_per_run or 1),
        pool=row.pool,
        op_tags=pod,
    )
    def run(
        context: dg.AssetExecutionContext, platform: Platform, pipes: dg.PipesSubprocessClient
    ) -> Iterator[dg.MaterializeResult[None]]:
        stage = partial(row.stage, run=pipes_runner(context, pipes)) if row.own_process else row.stage
        tags = versions_to_keep(platform.context, context.partition_keys) if row.reads_folders else {}
        yield from materialise_days(context, platform, stage, row.outputs)
        if tags:
            context.instance.add_run_tags(context.run.run_id, tags)

    return run
