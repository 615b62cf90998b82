"""From the raw day to the axis-A corpus: what runs for every subnet day and can be backfilled."""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

import warnings
from collections.abc import Sequence

import dagster as dg

from trajectory_platform.defs.assets.day_asset import DayAsset
from trajectory_platform.defs.partitions import day_and_neighbours, same_day
from trajectory_platform.defs.resources import Platform
from trajectory_platform.stages import catalogue, daily


def rows() -> Sequence[DayAsset]:
    """The per-day assets, in the order of the flow."""
    return (
        DayAsset(
            stage=daily.raw_traces,
            outputs={"raw_traces": "raw_traces"},
            group="sources",
            kinds=frozenset({"python", "deltalake"}),
            descriptions={
                "raw_traces": "Every (run, problem) pair **judged** that UTC day: key, place, digest, state. "
                "Reads the day's folder and the two beside it; the bytes stay where they are."
            },
            reads_folders=True,
        ),
        DayAsset(
            stage=daily.problem_suites,
            outputs={"problem_suites": "problem_suites"},
            group="sources",
            kinds=frozenset({"python", "deltalake"}),
            descriptions={
                "problem_suites": "Problems seen that day, with query and reward where they are public. "
                "Race problems are listed with a hidden reward."
            },
        ),
        DayAsset(
            stage=daily.trajectories,
            outputs={"trajectories": "trajectories"},
            group="traces",
            kinds=frozenset({"python", "deltalake"}),
            descriptions={
                "trajectories": "Each trace as OpenAI chat messages with `reasoning_content`, plus the proxy log "
                "as evidence of who made the calls. Unreadable traces stay as rows with a reason."
            },
            upstream={"raw_traces": same_day()},
        ),
        DayAsset(
            stage=daily.judged_traces,
            outputs={"judged_traces": "judged_traces"},
            group="judging",
            kinds=frozenset({"python", "deltalake"}),
            descriptions={
                "judged_traces": "Two decoupled axes: the rule-based **outcome** (this table) and the reasoning "
                "**verdicts** (table `verdicts`, one row per trace and source)."
            },
            upstream={
                "raw_traces": same_day(),
                "trajectories": same_day(),
                "problem_suites": day_and_neighbours(),
                "product_catalogue": None,
            },
        ),
        DayAsset(
            stage=daily.axis_a_corpus,
            outputs={"axis_a_corpus": "axis_a_corpus", "rejected_traces": "rejected_traces"},
            group="curation",
            kinds=frozenset({"python", "deltalake"}),
            descriptions={
                "axis_a_corpus": "Accepted traces: readable, usable, not injected, **the model itself emitted the "
                "calls**. `uses` says what each may train (sft, kto_desirable, kto_undesirable).",
                "rejected_traces": "Everything else, with stage, reason and (for copies) the survivor. "
                "found + moved in = accepted + rejected + moved out, every day.",
            },
            upstream={"raw_traces": same_day(), "trajectories": same_day(), "judged_traces": same_day()},
        ),
    )


def product_catalogue() -> dg.SourceAsset:
    """The catalogue as what it is, a file of the source: Dagster never warns that it was not materialised."""

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # its version is pinned, and what it does is tested

        @dg.observable_source_asset(
            name="product_catalogue",
            group_name="sandbox",
            tags={"dagster/kind/jsonl": ""},
            description="The product documents the newest day is scored against. A file of the source: nothing here "
            "makes it, *Observe* loads and counts it.",
        )
        def look(platform: Platform) -> dg.ObserveResult:
            facts = catalogue.catalogue_facts(platform.context)
            return dg.ObserveResult(metadata=facts, data_version=dg.DataVersion(facts["digest"][:32]))

    return look
