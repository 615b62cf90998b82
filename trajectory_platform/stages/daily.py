"""The per-day stages: raw artifacts in, an axis-A corpus and its rejections out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import (
    Output,
    Produced,
    StageContext,
    StageResult,
    input_digests,
    neighbours,
    run_stage,
)
from trajectory_platform.stages.folder import limits_of
from trajectory_platform.stages.listings import Listings, check_folders
from trajectory_platform.stages.retraction import day_inputs, present_raw

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.curation.config import FilterConfig
    from trajectory_platform.judging.judge_journal import Journal
    from trajectory_platform.stages.llm_judging import LLMJudge, LLMVerdicts

# Reasons of a row whose bytes are no longer those of the inventory: no property of the trace.
_CHANGED = ("artifact_changed", "not_found", "unreadable_file", "outside_root")


def raw_traces(ctx: StageContext, day: str) -> StageResult:
    """Every (run, problem) pair judged on ``day``: key, place, state. Bytes stay in the raw folder."""
    from trajectory_platform.traces import inventory

    folder_digests = {f"folder/{near}": ctx.source.digest(date.fromisoformat(near)) for near in neighbours(day)}

    def body() -> Produced:
        listings = Listings(ctx.source)
        damaged = check_folders(ctx, day, listings, folder_digests)
        found = inventory.inventory_day(listings, date.fromisoformat(day), limits_of(ctx.settings))
        summary = {key: value for key, value in found.summary.items() if key != "faults"}
        own = listings.open_day(date.fromisoformat(day)).exists
        fetched = {"awaited": found.awaited, "not_sampled": found.not_sampled, "no_folder": 0 if own else 1}
        summary |= {name: count for name, count in fetched.items() if count}
        return Produced(
            [
                Output(tables.DAY_SUMMARIES, single_row(tables.DAY_SUMMARIES, found.summary)),
                Output(tables.RAW_TRACES, found.rows),
            ],
            {**summary, "damaged_neighbours": damaged} if damaged else summary,
            # rows that moved in from there are missing until it can be read; awaited artifacts until they are fetched.
            # A day of which nothing is there was not looked at as yet: it is not known to be empty
            complete=not damaged and not found.awaited and (own or found.rows.num_rows > 0),
        )

    return run_stage(
        ctx,
        stage="raw_traces",
        day=day,
        code_version=inventory.VERSION,
        tables=(tables.DAY_SUMMARIES, tables.RAW_TRACES),
        inputs=folder_digests,
        body=body,
    )


def no_pairs_beside(ctx: StageContext, day: str) -> str | None:
    """Why a day without a folder is no day of the source; None where the folders beside it hold pairs judged on it."""
    from trajectory_platform.traces import inventory

    listings = Listings(ctx.source)
    if not any(listings.open_day(date.fromisoformat(near)).exists for near in neighbours(day)):
        return f"no day folder in {ctx.settings.data_root}, nor beside it"
    if inventory.inventory_day(listings, date.fromisoformat(day), limits_of(ctx.settings)).rows.num_rows:
        return None
    return f"no day folder in {ctx.settings.data_root}, and no pair in the folders beside it was judged on {day}"


def problem_suites(ctx: StageContext, day: str) -> StageResult:
    """The problems seen that day, with rewards where they are public."""
    from trajectory_platform.sandbox import problems

    def body() -> Produced:
        rows = problems.problem_rows(ctx.source.open_day(date.fromisoformat(day)))
        states = rows.column("reward_state").to_pylist()
        return Produced(
            [Output(tables.PROBLEM_SUITES, rows)],
            {"problems": len(states), **{f"reward_{state}": states.count(state) for state in sorted(set(states))}},
        )

    return run_stage(
        ctx,
        stage="problem_suites",
        day=day,
        code_version=problems.VERSION,
        tables=(tables.PROBLEM_SUITES,),
        inputs={f"folder/{day}": ctx.source.digest(date.fromisoformat(day))},
        body=body,
    )


def trajectories(ctx: StageContext, day: str) -> StageResult:
    """Raw traces as canonical OpenAI messages with the evidence of their proxy log."""
    import pyarrow.compute as pc

    from trajectory_platform.traces import evidence, normalise

    def body() -> Produced:
        raw = present_raw(ctx, day)
        traces = raw.filter(pc.equal(raw.column("state"), "trace"))
        counts = {"traces": traces.num_rows, "readable": 0, "malformed": 0, "repaired": 0}

        def counted() -> Any:
            for batch in normalise.normalise_batches(
                traces, ctx.source, limits_of(ctx.settings), ctx.settings.batch_rows, ctx.settings.workers
            ):
                _check_unchanged(day, batch)
                readable = pc.sum(batch.column("readable")).as_py() or 0
                counts["readable"] += readable
                counts["malformed"] += batch.num_rows - readable
                counts["repaired"] += pc.sum(pc.not_equal(batch.column("repairs"), "[]")).as_py() or 0
                yield batch

        return Produced([Output(tables.TRAJECTORIES, counted())], counts)

    return run_stage(
        ctx,
        stage="trajectories",
        day=day,
        code_version=f"{normalise.VERSION},evidence-{evidence.EVIDENCE_VERSION}",
        tables=(tables.TRAJECTORIES,),
        inputs=input_digests(ctx, {"raw_traces": [day]}) | day_inputs(ctx, day),
        body=body,
    )


def judged_traces(ctx: StageContext, day: str, *, llm: LLMJudge | None = None) -> StageResult:
    """Outcome and reasoning verdicts, on two decoupled axes.

    Args:
        llm: whom to ask where the settings name an LLM judge; None = the one the settings name.

    Raises:
        RetryLater: another process is asking an LLM judge about the same day.
    """
    from contextlib import ExitStack

    from trajectory_platform.judging import day as judging_day
    from trajectory_platform.judging.judge_models import is_llm
    from trajectory_platform.stages import llm_judging
    from trajectory_platform.stages.catalogue import day_catalogue
    from trajectory_platform.stages.title_vectors import title_inputs, title_vectors

    catalogue_digest, load = day_catalogue(ctx, day)
    vectors = title_vectors(ctx.settings, ctx.source, neighbours(day))
    asked = is_llm(ctx.settings.judge)
    if asked and llm is None:
        llm = llm_judging.configured_judge(ctx.settings)
    with ExitStack() as stack:
        journal = stack.enter_context(llm_judging.open_journal(ctx.lake.workspace, day)) if asked else None

        def body() -> Produced:
            raw = present_raw(ctx, day)
            judged, verdicts = judging_day.judge_day(
                raw,
                ctx.lake.batches(tables.TRAJECTORIES, day, batch_rows=ctx.settings.batch_rows),
                ctx.lake.read(tables.PROBLEM_SUITES, neighbours(day)),
                load(),
                judge=ctx.settings.judge,
                title_regime=ctx.settings.title_regime,
                title_encoder=ctx.settings.title_encoder,
                attribute_rule=ctx.settings.attribute_rule,
                title_vectors=vectors,
            )
            outputs, summary = [], _judged_summary(judged)
            if llm is not None and journal is not None:
                told = _asked(ctx, day, llm, journal, raw, judged, verdicts)
                verdicts = _joined(tables.VERDICTS, [verdicts, told.verdicts])
                outputs.append(Output(tables.JUDGE_CALLS, told.calls))
                summary |= told.summary
            kinds = verdicts.column("judge_kind").to_pylist()
            summary |= {f"verdicts_{kind}": kinds.count(kind) for kind in sorted(set(kinds))}
            outputs += [Output(tables.VERDICTS, verdicts), Output(tables.JUDGED_TRACES, judged)]
            return Produced(outputs, summary, complete=not any(verdicts.column("retryable").to_pylist()))

        return run_stage(
            ctx,
            stage="judged_traces",
            day=day,
            code_version=judging_day.VERSION,
            tables=(*((tables.JUDGE_CALLS,) if asked else ()), tables.VERDICTS, tables.JUDGED_TRACES),
            inputs={
                **input_digests(ctx, {"raw_traces": [day], "trajectories": [day], "problem_suites": neighbours(day)}),
                "catalogue": catalogue_digest,
                **title_inputs(ctx.settings, vectors),
                **day_inputs(ctx, day),
            },
            body=body,
            extra_settings={"llm": llm.identity(), "filter": _filter(ctx).identity()} if llm is not None else None,
        )


def _judged_summary(judged: pa.Table) -> dict[str, Any]:
    outcomes = judged.column("outcome").to_pylist()
    return {
        "judged": len(outcomes),
        **{name: outcomes.count(name) for name in ("success", "failure", "unscorable")},
        "injection_suspected": judged.column("injection_suspected").to_pylist().count(True),
    }


def _asked(
    ctx: StageContext, day: str, llm: LLMJudge, journal: Journal, raw: pa.Table, judged: pa.Table, verdicts: pa.Table
) -> LLMVerdicts:
    """The LLM judge's verdicts on what the rest of the filter would keep."""
    import pyarrow.compute as pc

    from trajectory_platform.curation.filter import worth_judging
    from trajectory_platform.stages import llm_judging

    def batches() -> Iterator[pa.RecordBatch]:
        return ctx.lake.batches(tables.TRAJECTORIES, day, batch_rows=ctx.settings.batch_rows)

    def earlier(keys: Sequence[str]) -> pa.Table:
        about_batches = pc.field("status").isin(["batch_passed", "batch_failed"])
        return ctx.lake.read(tables.JUDGE_CALLS, filter=pc.field("call_key").isin(list(keys)) | about_batches)

    return llm_judging.ask_day(
        llm,
        journal,
        day,
        wanted=worth_judging(raw, batches, judged, verdicts, config=_filter(ctx)),
        raw_rows=raw,
        trajectory_batches=batches,
        judged=judged,
        published_calls=ctx.lake.read(tables.JUDGE_CALLS, [day]),
        earlier_calls=earlier,
    )


def _filter(ctx: StageContext) -> FilterConfig:
    from trajectory_platform.curation.config import filter_config

    return filter_config(ctx.settings)


def _joined(table: tables.Table, parts: Sequence[pa.Table]) -> pa.Table:
    """Rows of several sources in the order of the table's key."""
    import pyarrow as pa

    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in table.key])


def axis_a_corpus(ctx: StageContext, day: str) -> StageResult:
    """The structural filter: accepted axis-A traces with their uses, and every rejection with its reason."""
    from trajectory_platform.curation import filter as structural_filter

    config = _filter(ctx)

    def body() -> Produced:
        raw = present_raw(ctx, day)
        result = structural_filter.curate_day(
            raw,
            lambda: ctx.lake.batches(tables.TRAJECTORIES, day, batch_rows=ctx.settings.batch_rows),
            ctx.lake.read(tables.JUDGED_TRACES, [day]),
            ctx.lake.read(tables.VERDICTS, [day]),
            config=config,
        )
        counted = result.summary
        if counted["accepted"] + counted["rejected"] != raw.num_rows:
            raise FailPartition(
                f"{day}: conservation broken: {raw.num_rows} raw rows, "
                f"{counted['accepted']} accepted + {counted['rejected']} rejected"
            )
        return Produced(
            [Output(tables.REJECTED_TRACES, result.rejected), Output(tables.AXIS_A_CORPUS, result.accepted)],
            counted,
        )

    return run_stage(
        ctx,
        stage="axis_a_corpus",
        day=day,
        code_version=structural_filter.VERSION,
        tables=(tables.REJECTED_TRACES, tables.AXIS_A_CORPUS),
        inputs=input_digests(ctx, {name: [day] for name in ("raw_traces", "trajectories", "judged_traces", "verdicts")})
        | day_inputs(ctx, day),
        body=body,
        extra_settings={"filter": config.identity()},
    )


def _check_unchanged(day: str, batch: pa.RecordBatch) -> None:
    """Refuse a day whose artifacts changed since its inventory: the gap would be published as damaged traces, and
    stay, because the inventory (the input) is the same again once the file is back."""
    for reason, detail in zip(
        batch.column("malformed").to_pylist(), batch.column("malformed_detail").to_pylist(), strict=True
    ):
        if reason in _CHANGED:
            raise FailPartition(f"{day}: {reason}: {detail}: the folder changed while it was read; run the day again")


def single_row(table: tables.Table, row: dict[str, Any]) -> Any:
    """One row as an Arrow table of the declared schema."""
    import pyarrow as pa

    return pa.Table.from_pylist([row], schema=table.schema())
