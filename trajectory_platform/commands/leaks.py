"""``leaks``: why problems are variants of one another, what pools hold, and what checkpoints have seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trajectory_platform.commands.opened import JsonOption, SealedOption, day_of, settings
from trajectory_platform.errors import Abort
from trajectory_platform.output import print_json

app = typer.Typer(help="Leaks between problems, pools and checkpoints.", no_args_is_help=True)
AsOf = Annotated[str | None, typer.Option("--as-of", help="UTC day; default the newest published")]


@app.command("explain")
def leaks_explain(
    left: str,
    right: str,
    suites: Annotated[
        list[Path] | None, typer.Option(help="suite or benchmark file; repeat it; default the lake's problems")
    ] = None,
    sealed: SealedOption = None,
    as_json: JsonOption = False,
) -> None:
    """The chain of edges by which two problems are variants of one another, or why they are not."""
    from datetime import UTC, datetime

    from trajectory_platform.stages.leaks import explain_plain_files, explain_problems

    if suites:
        facts = explain_plain_files(settings(), [str(path) for path in suites], left, right)
    else:
        facts = explain_problems(settings(), left, right, sealed_reason=sealed, at=datetime.now(UTC))
    print_json(facts) if as_json else typer.echo(facts["text"])


@app.command("pools")
def leaks_pools(as_of: AsOf = None, as_json: JsonOption = False) -> None:
    """Observed shares of train, dev and sealed per category, beside the shares that were asked for."""
    from trajectory_platform.lake.tables import LEAK_CLUSTERS
    from trajectory_platform.splits.pools import observed_shares
    from trajectory_platform.stages.splits import pools_text

    ctx, day = _context(as_of)
    if as_json:
        print_json({"as_of": day, "shares": observed_shares(ctx.lake.read(LEAK_CLUSTERS, [day]))})
    else:
        typer.echo(pools_text(ctx, day))


@app.command("benchmark")
def leaks_benchmark(name: str, as_json: JsonOption = False) -> None:
    """How many traces a day training would lose if a registered benchmark were declared sealed."""
    from trajectory_platform.stages.contamination import benchmark_cost, benchmark_text

    ctx, _ = _context(None)
    print_json(benchmark_cost(ctx, name)) if as_json else typer.echo(benchmark_text(ctx, name))


@app.command("contamination")
def leaks_contamination(
    checkpoint: Annotated[str | None, typer.Argument(help="checkpoint id; default all, counted")] = None,
    problems: Annotated[list[str] | None, typer.Argument(help="problem keys; default all that are not clean")] = None,
    as_of: AsOf = None,
    as_json: JsonOption = False,
) -> None:
    """What checkpoints have seen of the problems they are measured on: clean and contaminated scores side by side."""
    from trajectory_platform.stages.contamination import contamination_report, contamination_text, seen_of

    if checkpoint is None:
        ctx, day = _context(as_of)
        print_json(contamination_report(ctx, day)) if as_json else typer.echo(contamination_text(ctx, day))
        return
    from trajectory_platform.stages.text import shown

    rows = seen_of(settings(), checkpoint, problems or [], as_of=day_of(as_of).isoformat() if as_of else None)
    for row in rows:
        if as_json:
            print_json(row)
        else:
            words = f"{row['problem_key'][:16]}  {row['pool']:<6} {row['status']:<12} overlap {row['overlap']:.2f}"
            typer.echo(f"{words}  {shown(row['detail'], 120)}  {', '.join(map(shown, row['traces'][:3]))}")
    if not rows and not as_json:
        typer.echo("every problem is clean")


def _context(as_of: str | None) -> tuple[Any, str]:
    """The context of the settings and the day asked for, or the newest that has clusters."""
    from trajectory_platform.lake.tables import LEAK_CLUSTERS
    from trajectory_platform.stages.context import StageContext

    ctx = StageContext(settings())
    days = ctx.lake.days(LEAK_CLUSTERS)
    if not days:
        raise Abort("no leak clusters in the lake: run 'trajectory-platform train sft' first")
    if as_of is None:
        return ctx, max(days)
    day = day_of(as_of).isoformat()
    if day not in days:
        raise Abort(f"no leak clusters as of {day}; the newest are of {max(days)}")
    return ctx, day
