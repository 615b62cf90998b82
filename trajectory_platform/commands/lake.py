"""``lake``: care of the lake."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trajectory_platform.commands.opened import JsonOption, open_lake, settings
from trajectory_platform.errors import Abort
from trajectory_platform.output import counts_text, print_json

app = typer.Typer(help="Care of the lake.", no_args_is_help=True)
_SHOWN = 20  # files that are named to people


@app.command("vacuum")
def lake_vacuum(
    dry_run: Annotated[bool, typer.Option("--dry-run/--delete", help="only say what would go, or delete it")] = True,
    checkpoints_only: Annotated[
        bool, typer.Option("--checkpoints-only", help="keep old versions only where a checkpoint names them")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove files that no table version named by a manifest needs, and leftovers of killed publishes.

    Superseded files that hold a retracted trace go whatever names them; 'lake purge' also rewrites the present ones.
    """
    from trajectory_platform.stages.context import StageContext
    from trajectory_platform.stages.retraction import vacuum

    facts = vacuum(StageContext(settings()), dry_run=dry_run, partition_versions=not checkpoints_only).__dict__
    print_json(facts) if as_json else typer.echo(_vacuumed(facts))


def _vacuumed(facts: dict[str, Any]) -> str:
    """What a vacuum removed or would remove, with the versions as ranges; ``--json`` names every file."""
    names, size = facts["removed"], f"{facts['removed_bytes'] / 1e6:,.1f} MB"
    if not facts["dry_run"]:
        lines = [
            f"{len(names):,} files were deleted, {size}" if names else "nothing was deleted: nothing is superfluous"
        ]
    elif names:
        lines = [f"nothing was deleted: {len(names):,} files, {size}, are superfluous; --delete removes them"]
    else:
        lines = ["nothing was deleted: nothing is superfluous, so --delete would remove nothing either"]
    lines += [f"  {name}" for name in names[:_SHOWN]]
    lines += [f"  and {len(names) - _SHOWN:,} more (--json names all)"] if len(names) > _SHOWN else []
    for key, words in (("kept_versions", "kept versions"), ("missing_versions", "versions named but not in the log")):
        lines += [f"{words}:"] if facts[key] else []
        lines += [f"  {table:<20} {_ranges(versions)}" for table, versions in facts[key].items()]
    rest = {name: facts[name] for name in ("broken_versions", "unreadable") if facts[name]}
    return "\n".join([*lines, *([counts_text(rest)] if rest else [])])


def _ranges(numbers: list[int]) -> str:
    """``0, 2-5`` for [0, 2, 3, 4, 5]."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


@app.command("purge")
def lake_purge(as_json: JsonOption = False) -> None:
    """Remove the text of everything retracted ('lineage retract') from the data files, old versions included.

    Raw artifacts are the source's and stay; the days that held it are built again by the next run, without it.
    """
    from trajectory_platform.stages.context import StageContext
    from trajectory_platform.stages.retraction import purge_retracted

    purged = purge_retracted(StageContext(settings()))
    if purged is None:
        print_json({"traces": 0}) if as_json else typer.echo("nothing was retracted")
        return
    facts = {"traces": purged.traces, "rows": purged.report.rows, "rejected": purged.rejected}
    facts |= {"removed_files": len(purged.report.vacuum.removed), "unreadable": purged.report.vacuum.unreadable}
    facts |= {"broken_versions": purged.report.vacuum.broken_versions, "pictures": purged.pictures}
    print_json(facts) if as_json else typer.echo(counts_text(facts))


@app.command("verify")
def lake_verify(
    invalidate: Annotated[
        bool, typer.Option("--invalidate", help="make damaged days not current: the next run builds them anew")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Re-read every published day and compare it with its manifest.

    Exits with 1 where something is damaged, with 2 where nothing is published.
    """
    from trajectory_platform.lake.verification import verify

    lake = open_lake()
    damages = [damage.__dict__ for damage in verify(lake, invalidate=invalidate)]
    lines = [f"{one['table']} {one['day'] or ''}".rstrip() + f": {one['reason']}: {one['detail']}" for one in damages]
    sound = "" if damages else _sound(lake)
    print_json({"damaged": damages}) if as_json else typer.echo("\n".join(lines) or sound)
    if damages:
        made = "are not current any more: run them again" if invalidate else "stay as they are without --invalidate"
        typer.echo(f"the days named {made}", err=True)
        raise typer.Exit(1)


def _sound(lake: Any) -> str:
    from trajectory_platform.lake.tables import TABLES

    days = {day for table in TABLES for day in lake.days(table)}
    if not days:
        raise Abort(f"nothing is published in {lake.uri}")
    return f"every published day holds ({len(days)} days)"


@app.command("backup")
def lake_backup(
    to: Annotated[str, typer.Option("--to", help="an empty place or an earlier backup: folder or s3://bucket/prefix")],
    as_json: JsonOption = False,
) -> None:
    """Copy the lake to another place, also while days are published. Run again, it copies what is new."""
    from trajectory_platform.lake.backup import copy
    from trajectory_platform.lake.publish import Lake

    facts = copy(open_lake(), Lake(to, settings().lake_local)).__dict__
    print_json(facts) if as_json else typer.echo(_copied(facts))


@app.command("restore")
def lake_restore(
    source: Annotated[str, typer.Option("--from", help="a backup: folder or s3://bucket/prefix")],
    as_json: JsonOption = False,
) -> None:
    """Copy a backup to where the settings want the lake, which must be empty or an earlier state of the same lake."""
    from trajectory_platform.lake.backup import copy
    from trajectory_platform.lake.publish import Lake

    facts = copy(Lake(source, settings().lake_local), open_lake()).__dict__
    print_json(facts) if as_json else typer.echo(f"{_copied(facts)}\nnow run 'trajectory-platform lake verify'")


def _copied(facts: dict[str, Any]) -> str:
    """What a copy of a lake did; that it found everything in its place is said, not counted in zeros."""
    if not any(facts[name] for name in ("files", "log_entries", "manifests", "forgotten", "beside")):
        there = f"{facts['tables']:,} tables, {facts['kept']:,} data files"
        return f"{facts['target']} is the same as {facts['source']}: nothing of its tables had to be copied ({there})"
    lines = [f"{facts['source']} is copied to {facts['target']}, {facts['tables']:,} tables:"]
    lines.append(
        f"  {facts['files']:,} data files copied, {facts['bytes'] / 1e6:,.1f} MB; {facts['kept']:,} were there"
    )
    written = {
        "log entries": facts["log_entries"],
        "manifests": facts["manifests"],
        "files beside the tables (journals, keys)": facts["beside"],
    }
    told = ", ".join(f"{count:,} {name}" for name, count in written.items() if count)
    lines += [f"  {told} written"] if told else []
    lines += [f"  {facts['forgotten']:,} manifests removed that are no more"] if facts["forgotten"] else []
    return "\n".join(lines)
