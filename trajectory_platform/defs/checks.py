"""Checks that re-read what is published.

The core has already refused a bad day before its commit; these read the table again, as a user would, and
report. A check covers every day of its run and lists the days that fail.
"""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

from collections.abc import Sequence

import dagster as dg

from trajectory_platform.defs.assets.training import GENERATED
from trajectory_platform.defs.day_runs import capped
from trajectory_platform.defs.resources import Platform
from trajectory_platform.defs.runs import days_of_run
from trajectory_platform.stages import audits
from trajectory_platform.stages.audits import Audit
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.evaluations import EVALUATIONS
from trajectory_platform.stages.training_stages import TRAINING

# check name -> (asset, audit, description)
CHECKS: dict[str, tuple[str, Audit, str]] = {
    "conservation": (
        "axis_a_corpus",
        audits.conservation,
        "found + moved in = accepted + rejected + moved out, counted again from the published tables",
    ),
    "accepted_rows_are_trainable": (
        "axis_a_corpus",
        audits.accepted_rows,
        "every accepted row is readable, axis A and has a use; no row is both accepted and rejected",
    ),
    "content_digest": (
        "trajectories",
        audits.content_digest("trajectories"),
        "the published rows still have the digest of their manifest",
    ),
    "corpus_digest": (
        "axis_a_corpus",
        audits.content_digest(
            "day_summaries", "raw_traces", "judged_traces", "verdicts", "axis_a_corpus", "rejected_traces"
        ),
        "the corpus, its rejections and what they were decided from still have the digests of their manifests",
    ),
    "pools_disjoint": (
        "leak_guarded_splits",
        audits.pools_disjoint,
        "no cluster, problem or text stands in two pools, and every pool is the one its cluster drew",
    ),
    "splits_digest": (
        "leak_guarded_splits",
        audits.content_digest("leak_clusters", "leak_edges", "leak_hints", "leak_guarded_splits", "split_exclusions"),
        "clusters and splits still have the digests of their manifests",
    ),
    **{
        "checkpoint_intact" if row.stage == "sft" else f"{row.stage}_checkpoint_intact": (
            row.asset,
            audits.checkpoint_intact(row.stage),
            "files, manifest and trace list of the day's checkpoint agree",
        )
        for row in TRAINING
    },
    **{
        f"{asset}_accounted": (
            asset,
            audits.generated_accounted(stage),
            "every planned attempt is there, accepted or with a reason; accepted ones are strict successes on problems "
            "that are in the train pool now",
        )
        for stage, asset in GENERATED.items()
    },
    "scores_digest": (
        "base_eval",  # the last one of a run
        audits.content_digest("rollouts", "eval_scores", "action_scores", "generated_traces"),
        "attempts, scores and generated traces still have the digests of their manifests",
    ),
}


def build_checks() -> Sequence[dg.AssetChecksDefinition]:
    """All checks. They carry no partitions of their own: Dagster shows a partitioned check of a range as skipped."""
    return [_check(name) for name in CHECKS]


def newest_published(ctx: StageContext, asset: str) -> list[str]:
    """The newest published day, for a check started by hand without a partition; empty when there is none."""
    staged = {
        **{row.asset: ("checkpoints", row.stage) for row in TRAINING},
        **{name: ("generated_traces", stage) for stage, name in GENERATED.items()},
        **{row.asset: ("eval_scores", row.stage) for row in EVALUATIONS},
    }
    if asset not in staged:
        return ctx.lake.days(asset)[-1:]
    table, stage = staged[asset]
    return [one.day for one in ctx.lake.manifests(table) if one.part == {"stage": stage}][-1:]


def _check(name: str) -> dg.AssetChecksDefinition:
    asset, audit, description = CHECKS[name]

    @dg.asset_check(name=name, asset=asset, description=description)
    def run(context: dg.AssetCheckExecutionContext, platform: Platform) -> dg.AssetCheckResult:
        days = days_of_run(context.run.tags) or newest_published(platform.context, asset)
        if not days:
            raise dg.Failure(f"{name}: no day of {asset} is published yet", allow_retries=False)
        found = {day: audits.audited(audit, platform.context, day) for day in days}
        failed = [day for day, facts in found.items() if not facts["passed"]]
        return dg.AssetCheckResult(
            passed=not failed,
            severity=dg.AssetCheckSeverity.ERROR,
            description=f"failed on {', '.join(failed)}{_advice(name)}" if failed else f"{len(found)} day(s) hold",
            metadata=capped({day: dg.MetadataValue.json(facts) for day, facts in found.items()}),
        )

    return run


def _advice(check: str) -> str:
    """What to do about a failed check, where one thing helps."""
    if check.endswith("_digest"):
        return ": 'trajectory-platform lake verify --invalidate', then run these days again"
    return ""
