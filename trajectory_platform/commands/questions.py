"""Questions to the lake: ``lineage``, ``judge-calibration`` and ``sql``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trajectory_platform.commands.opened import JsonOption, SealedOption, day_of, open_lake, settings
from trajectory_platform.errors import Abort
from trajectory_platform.output import print_json

app = typer.Typer()
lineage_app = typer.Typer(help="Which traces fed which checkpoint.", no_args_is_help=True)


@app.command("judge-calibration")
def judge_calibration(
    first: Annotated[str | None, typer.Option("--from", help="first day; default the first judged")] = None,
    last: Annotated[str | None, typer.Option("--to", help="last day; default the newest judged")] = None,
    day_dir: Annotated[str | None, typer.Option("--in", help="a day folder instead of the lake")] = None,
    as_json: JsonOption = False,
) -> None:
    """How far the judges agree with the validators, per score regime: whether a cheaper judge can be trusted."""
    from trajectory_platform.stages import calibration
    from trajectory_platform.stages.context import StageContext
    from trajectory_platform.stages.folder import open_folder

    if day_dir is not None:
        facts = calibration.calibrate_folder(open_folder(settings(), day_dir))
    else:
        facts = calibration.calibration_facts(StageContext(settings()), _iso(first), _iso(last))
    text = facts.pop("text")
    print_json(facts) if as_json else typer.echo(text)


@lineage_app.command("checkpoint")
def lineage_checkpoint(
    checkpoint_id: str,
    recipe: Annotated[bool, typer.Option("--recipe", help="print its recipe as YAML instead")] = False,
    as_json: JsonOption = False,
) -> None:
    """What a checkpoint and each of its ancestors was fed, by role and share; days, miners, strategies, partitions."""
    from trajectory_platform.lake.arrays import without_pandas
    from trajectory_platform.lineage import questions, words

    without_pandas()
    facts = questions.about_checkpoint(open_lake(), checkpoint_id)
    if facts is None:
        raise Abort(f"no checkpoint {checkpoint_id!a} in the lake: 'trajectory-platform status' names the newest")
    if recipe:
        print_json(facts["recipe"]) if as_json else typer.echo(words.recipe_text(facts), nl=False)
    else:
        print_json(facts) if as_json else typer.echo(words.checkpoint_text(facts))


@lineage_app.command("trace")
def lineage_trace(trace_id: str, sealed: SealedOption = None, as_json: JsonOption = False) -> None:
    """Where a trace came from, what was decided and why, every checkpoint it fed, and those that inherit it.

    Also of traces that our own checkpoints or a teacher generated, and of problems attempted in training (prompt:KEY).
    """
    from datetime import UTC, datetime

    from trajectory_platform.lake.arrays import without_pandas
    from trajectory_platform.lineage import questions, words

    without_pandas()
    facts = questions.about_trace(open_lake(), trace_id, sealed_reason=sealed, at=datetime.now(UTC))
    if facts is None:
        raise Abort(
            f"no trace {trace_id!a} in the lake: ids are {{eval_run_id}}:{{problem_id}}, or prompt:{{problem_key}}"
        )
    print_json(facts) if as_json else typer.echo(words.trace_text(facts))


@lineage_app.command("retract")
def lineage_retract(
    subject: Annotated[str, typer.Argument(metavar="TRACE_ID|RUN_ID|MINER")],
    reason: Annotated[str | None, typer.Option("--reason", help="why; kept in the lake with your name")] = None,
    kind: Annotated[str | None, typer.Option("--as", help="trace | run | miner, where a name could be several")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would have to be retrained")] = False,
    as_json: JsonOption = False,
) -> None:
    """Retract a trace, a run or everything of a miner: what has to be retrained, in order, with an estimated cost.

    Writes a tombstone: the next as-of run leaves the traces out, and the sensor requests it for the newest day.
    'lake purge' removes their text.
    """
    from datetime import UTC, datetime

    from trajectory_platform.lake.arrays import without_pandas
    from trajectory_platform.lineage import words
    from trajectory_platform.stages.context import StageContext
    from trajectory_platform.stages.retraction import retract

    without_pandas()
    now = None if dry_run else datetime.now(UTC)
    facts = retract(StageContext(settings()), subject, kind=kind, reason=reason, at=now)
    print_json(facts) if as_json else typer.echo(words.retraction_text(facts))


@app.command()
def sql(
    query: str,
    sealed: SealedOption = None,
    limit: Annotated[int, typer.Option(min=1, help="more result rows than this are an error")] = 10_000,
    as_json: JsonOption = False,
) -> None:
    """DuckDB over every table of the lake, locked down: no files, no network, no writes."""
    from datetime import UTC, datetime

    from trajectory_platform.lake.query import sql as run_sql

    lake = open_lake()
    table = run_sql(lake, query, sealed_reason=sealed, at=datetime.now(UTC), max_rows=limit)
    if as_json:
        for row in table.to_pylist():
            print_json({name: _json_value(value) for name, value in row.items()})
    else:
        from trajectory_platform.stages.text import render_table

        typer.echo(render_table(table))
        if sealed is None:
            from trajectory_platform.lake.sealing import sealed as known_seal

            left = "rows of sealed problems, and of days without leak clusters yet, are left out; --sealed REASON reads"
            none = "nothing is left out: no leak clusters yet, or none of them can be sealed"
            typer.echo(none if known_seal(lake) is None else f"{left} them too", err=True)


def _iso(day: str | None) -> str | None:
    return None if day is None else day_of(day).isoformat()


def _json_value(value: Any) -> Any:
    """A value of a query result as JSON has it: sums of integers come as decimals, times as objects."""
    from datetime import date, datetime, time, timedelta
    from decimal import Decimal

    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _json_value(inner) for key, inner in value.items()}
    return [_json_value(inner) for inner in value] if isinstance(value, list | tuple) else value
