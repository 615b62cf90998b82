"""``export``, ``import`` and ``release``: what leaves the lake for others, and what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trajectory_platform.commands.opened import JsonOption, OutFile, day_of, settings
from trajectory_platform.output import counts_text, print_json, write_lines

app = typer.Typer()
release_app = typer.Typer(help="Releases: one folder that others can verify.", no_args_is_help=True)

DayOption = Annotated[str | None, typer.Option(help="UTC day of the splits; default the newest published")]
LicenceOption = Annotated[str, typer.Option(help="licence identifier of the Hub that the card states")]
KeyOption = Annotated[Path | None, typer.Option("--key", help="file of the release key; default in the lake's folder")]


@app.command()
def export(
    form: Annotated[str, typer.Option("--format", help="hf: Parquet for datasets | openai: fine-tuning JSONL")],
    out: Annotated[Path, typer.Option(help="new folder")],
    day: DayOption = None,
    use: Annotated[str, typer.Option(help="sft | kto")] = "sft",
    licence: LicenceOption = "unknown",
    as_json: JsonOption = False,
) -> None:
    """Accepted traces as of a day: split train (pool train) and validation (pool dev), with a data card."""
    from trajectory_platform.stages.export import export_traces

    chosen = None if day is None else day_of(day).isoformat()
    done = export_traces(settings(), day=chosen, use=use, form=form, out=out, licence=licence)
    _warn(done)
    print_json(done) if as_json else typer.echo(counts_text(_shown(done, done["facts"]["splits"])))


@app.command("import")
def import_rows(
    folder: Annotated[Path, typer.Argument(help="folder of an export")], out: OutFile, as_json: JsonOption = False
) -> None:
    """Rows of an export as JSON lines, exactly as they went out; what fails the checks is named and left out."""
    from trajectory_platform.release.rows import SetAside
    from trajectory_platform.stages.export import imported_rows
    from trajectory_platform.stages.text import shown

    set_aside: list[SetAside] = []
    out.parent.mkdir(parents=True, exist_ok=True)
    count = write_lines(out, imported_rows(folder, set_aside))
    facts = {"rows": count, "set_aside": len(set_aside), "out": str(out)}
    if as_json:
        print_json({**facts, "reasons": [one._asdict() for one in set_aside]})
    else:
        typer.echo(counts_text(facts))
        for one in set_aside:
            typer.echo(f"{shown(one.file)} row {one.line}: {one.reason}: {shown(one.detail, 200)}", err=True)
    if set_aside:
        raise typer.Exit(1)


@release_app.command("build")
def release_build(
    out: Annotated[Path, typer.Option(help="new folder")],
    day: DayOption = None,
    key: KeyOption = None,
    licence: LicenceOption = "unknown",
    as_json: JsonOption = False,
) -> None:
    """Data, card, splits, filter, arena rules and checksums as of a day; sealed problems as commitments only."""
    from trajectory_platform.stages.export import build_release

    chosen = None if day is None else day_of(day).isoformat()
    done = build_release(settings(), day=chosen, out=out, key_file=key, licence=licence)
    _warn(done)
    if as_json:
        print_json(done)
        return
    splits = {f"{use} {name}": part for use, some in done["facts"]["exports"].items() for name, part in some.items()}
    facts = _shown(done, splits) | {
        "sealed": done["facts"]["sealed"]["problems"],
        "digest": done["digest"],
        "release key": done["key_file"],
    }
    typer.echo(counts_text(facts))


@release_app.command("verify")
def release_verify(
    folder: Annotated[Path, typer.Argument(help="folder of a release or an export")],
    key: Annotated[
        Path | None, typer.Option("--key", help="release key: also check that no released problem is a sealed one")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Checksums, every row, the splits and the lists of a release or an export. Exit code 1 where anything differs."""
    from trajectory_platform.stages.export import verify_folder
    from trajectory_platform.stages.text import shown

    faults, digest = verify_folder(folder, key)
    if as_json:
        print_json({"folder": str(folder), "digest": digest, "faults": [fault._asdict() for fault in faults]})
    else:
        for fault in faults:
            typer.echo(f"{shown(fault.file)}: {fault.reason}  {shown(fault.detail, 200)}")
        typer.echo(f"{len(faults)} faults" if faults else _holds(folder, digest, key is not None))
    if faults:
        raise typer.Exit(1)


def _holds(folder: Path, digest: str, with_key: bool) -> str:
    """What a verified folder was found to be."""
    from trajectory_platform.release.folders import SUMS
    from trajectory_platform.stages.text import shown

    files = (folder / SUMS).read_text("utf-8").count("\n")
    sealed = ", and no released problem is a sealed one" if with_key else ""
    return (
        f"{shown(folder)} holds: {files:,} files have the checksums of {SUMS}; rows, splits and lists fit together"
        f"{sealed}\ndigest {digest}"
    )


def _warn(done: dict[str, Any]) -> None:
    """What others should not find out first, on stderr; with --json it is in the answer too."""
    for line in done["warnings"]:
        typer.echo(f"warning: {line}", err=True)


def _shown(done: dict[str, Any], splits: dict[str, Any]) -> dict[str, Any]:
    """Counts for people."""
    state = "written" if done["new"] else "the same was there"
    facts = {name: f"{part['rows']} rows, {part['clusters']} clusters" for name, part in splits.items()}
    left = done["facts"]["left_out"]
    return {"out": f"{done['out']} ({state})", **facts, "left out": left}
