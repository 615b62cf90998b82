"""The raw day as it is fetched from the subnet's API; only where ``settings.source`` is ``oro_api``."""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

from collections.abc import Mapping
from functools import partial
from typing import Any

import dagster as dg

from trajectory_platform.defs.assets.day_asset import OWNERS
from trajectory_platform.defs.day_runs import capped, measured
from trajectory_platform.defs.resources import Platform
from trajectory_platform.defs.runs import days_of_run
from trajectory_platform.errors import PlatformError
from trajectory_platform.stages import fetching
from trajectory_platform.stages.result_words import fetch_lines

API_POOL = "api"
"""One look at a time: the requests of all processes share one limit anyway."""
NAME = fetching.STAGE
_DAYS_PER_RUN = 5
_MAX_TEXT = 400


def fetched_day(partitions: dg.DailyPartitionsDefinition, pod: Mapping[str, Any] | None = None) -> dg.AssetsDefinition:
    """The asset; ``pod`` are the tags by which a cluster sizes its step (``defs.kubernetes``)."""

    @dg.asset(
        name=NAME,
        group_name="sources",
        kinds={"python"},
        owners=OWNERS,
        description="The day's runs, verdicts and artifacts from the subnet's public API, in the raw-day layout. "
        "Looked at again until final: what is embargoed or missing is asked for later, nothing twice.",
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=_DAYS_PER_RUN),
        pool=API_POOL,
        op_tags=pod,
    )
    def run(context: dg.AssetExecutionContext, platform: Platform) -> dg.MaterializeResult[None]:
        good, bad = _fetched(context, platform)
        if bad:
            for day, facts in good.items():
                context.log_event(dg.AssetMaterialization(NAME, partition=day, metadata=capped(facts)))
            raise dg.Failure(
                f"{len(bad)} of {len(bad) + len(good)} days failed: {', '.join(sorted(bad))}"[:_MAX_TEXT],
                metadata=capped({day: dg.MetadataValue.text(words[:_MAX_TEXT]) for day, words in sorted(bad.items())}),
            )
        for day, facts in good.items():
            context.add_asset_metadata(capped(facts), asset_key=NAME, partition_key=day)
        return dg.MaterializeResult(asset_key=NAME)

    return run


def _fetched(context: dg.AssetExecutionContext, platform: Platform) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """(metadata per good day, reason per bad day); a bad day fails alone (design 4)."""
    good: dict[str, dict[str, Any]] = {}
    bad: dict[str, str] = {}
    ctx = platform.context
    with fetching.connected(ctx.settings) as client:
        for day in context.partition_keys:
            try:
                report, spent = measured(partial(fetching.fetch, ctx, day, client=client))
            except PlatformError as error:
                bad[day] = str(error)
                context.log.error(f"{day}: {error}")
                continue
            except Exception as error:
                bad[day] = f"unexpected {type(error).__name__}: {error}"[:_MAX_TEXT]
                context.log.exception(f"{day}: unexpected")
                continue
            summary = fetching.summary_of(report)
            context.log.info(f"{day}: {summary['state'].replace('_', ' ')}: {'; '.join(fetch_lines(summary))}")
            good[day] = {
                name: dg.MetadataValue.json(value) if isinstance(value, dict | list) else value
                for name, value in {**summary, **spent._asdict()}.items()
                if value is not None
            }
    return good, bad


@dg.asset_check(
    name="day_reconciled",
    asset=NAME,
    description="what was found is what the subnet says it judged that day, and every pair is accounted for; "
    "a count that is not known yet is no zero",
)
def day_reconciled(context: dg.AssetCheckExecutionContext, platform: Platform) -> dg.AssetCheckResult:
    """Warns where the numbers differ or are not known; an error where pairs are not accounted for."""
    days = days_of_run(context.run.tags) or fetching.newest_fetched(platform.context)
    if not days:
        raise dg.Failure("day_reconciled: no day was fetched yet", allow_retries=False)
    found = {day: fetching.reconciled(platform.context, day) for day in days}
    failed = {day: facts["words"] for day, facts in found.items() if not facts["passed"]}
    broken = any(facts["broken"] for facts in found.values())
    return dg.AssetCheckResult(
        passed=not failed,
        severity=dg.AssetCheckSeverity.ERROR if broken else dg.AssetCheckSeverity.WARN,
        description="; ".join(f"{day}: {words}" for day, words in failed.items())[:_MAX_TEXT]
        or f"{len(found)} day(s) hold",
        metadata=capped({day: dg.MetadataValue.json(facts) for day, facts in found.items()}),
    )
