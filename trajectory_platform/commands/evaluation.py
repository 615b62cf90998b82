"""``evaluate`` and ``compare``: what a policy solves, strictly, and which of two policies solves more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trajectory_platform.commands.opened import JsonOption, SealedOption, day_of, settings
from trajectory_platform.errors import Abort
from trajectory_platform.output import print_json

app = typer.Typer()


@app.command()
def evaluate(
    out: Annotated[Path, typer.Option(help="folder for rollouts.jsonl, scores.jsonl and metrics.json")],
    checkpoint: Annotated[Path | None, typer.Option(help="checkpoint folder")] = None,
    policy: Annotated[
        str | None, typer.Option(help="endpoint:URL#MODEL, vllm:URL#MODEL, script:NAME or a model folder")
    ] = None,
    suites: Annotated[
        list[Path] | None, typer.Option(help="suite or benchmark file; repeat it; default the lake's problems")
    ] = None,
    catalogue: Annotated[Path | None, typer.Option(help="product documents; default those of the day")] = None,
    day: Annotated[str | None, typer.Option(help="as-of UTC day; default today for files, else the newest")] = None,
    k: Annotated[int, typer.Option(min=1, help="attempts at each problem")] = 1,
    problems: Annotated[
        int | None, typer.Option(min=1, help="at most so many problems, one of each cluster first")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="attempts under way at a time")] = 8,
    temperature: Annotated[float | None, typer.Option(min=0, help="default 0 for one attempt, 0.7 for several")] = None,
    top_p: Annotated[float, typer.Option(min=0, max=1)] = 1.0,
    pool: Annotated[str, typer.Option(help="dev | sealed | fresh (held out, of the newest suite) | all")] = "dev",
    sealed: SealedOption = None,
    key_variable: Annotated[
        str | None, typer.Option(help="NAME of the environment variable that holds the endpoint's key")
    ] = None,
    references: Annotated[
        Path | None, typer.Option(help="JSONL of accepted rows: strict successes that ground the process score")
    ] = None,
    seed: Annotated[int, typer.Option()] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="go on with what is in the folder")] = False,
    as_json: JsonOption = False,
) -> None:
    """Let a policy act on problems in the sandbox and score it strictly: success, pass@k, discipline, cost."""
    from trajectory_platform.stages.evaluation_files import evaluate_files

    if (checkpoint is None) == (policy is None):
        raise Abort("say who acts: --checkpoint FOLDER or --policy SPEC, one of the two")
    facts = evaluate_files(
        settings(),
        out=out,
        day=_as_of(day, bool(suites)),
        suites=suites or [],
        catalogue=catalogue,
        checkpoint=checkpoint,
        policy=policy,
        k=k,
        problems=problems,
        concurrency=concurrency,
        temperature=temperature,
        top_p=top_p,
        pool=pool,
        sealed_reason=sealed,
        seed=seed,
        policy_options={"key_variable": key_variable} if key_variable else None,
        resume=resume,
        references=references,
    )
    text = facts.pop("text")
    print_json(facts) if as_json else typer.echo(text)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="scores.jsonl of one policy")],
    after: Annotated[Path, typer.Argument(help="scores.jsonl of the other, on the same problems")],
    seed: Annotated[int, typer.Option()] = 0,
    as_json: JsonOption = False,
) -> None:
    """Paired comparison on the problems both attempted, with the smallest difference this evaluation can see.

    Scores on sealed problems are compared only where the lake of the settings knows of the looks at them.
    """
    from trajectory_platform.stages.evaluation_files import compare_files

    facts = compare_files(before, after, settings=settings(), seed=seed)
    text = facts.pop("text")
    print_json(facts) if as_json else typer.echo(text)


def _as_of(day: str | None, from_files: bool) -> str:
    """The day that rows state: the one given, the lake's newest for its problems, today for files."""
    if day is not None:
        return day_of(day).isoformat()
    if from_files:
        from datetime import UTC, datetime

        return datetime.now(UTC).date().isoformat()
    from trajectory_platform.lake.tables import LEAK_CLUSTERS
    from trajectory_platform.stages.context import StageContext

    days = StageContext(settings()).lake.days(LEAK_CLUSTERS)
    if not days:
        raise Abort("no problems in the lake: give --suites FILE, or run 'trajectory-platform train sft' first")
    return max(days)
