"""Which raw folders are no longer what the lake was made of, told without reading every file of every day.

A folder is read (its digest asked) only where something cheap says that it changed: it came or went, or a listing file
or a folder of artifacts was written after the day was published. On an object store only coming and going is seen. An
artifact that was overwritten in place is found by ``ingest`` and by the hourly check of the newest days.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from trajectory_platform.identity import digest_lines
from trajectory_platform.lake import tables
from trajectory_platform.lake.manifests import path_of, slot
from trajectory_platform.sources.files import FETCH_FILE
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.triggers import INCOMPLETE, MISSING, Manifests, behind

_EMPTY = digest_lines([])  # of a folder that was not there, or held no file
_FOLDER = "folder/"


class Change(NamedTuple):
    """Why a published day is not what its source holds now; ``gone`` where a folder it was made of is missing."""

    text: str
    gone: bool = False


def root_missing(ctx: StageContext) -> bool:
    """Whether the folder of the days is not there at all; of an object store nobody can tell."""
    root = ctx.settings.data_root
    return not root.startswith("s3://") and not os.path.isdir(os.path.expanduser(root))


def changes(ctx: StageContext, chain: Manifests) -> dict[str, Change]:
    """Published day -> why it is not what its folders and the lake hold now; days that are current are not in it."""
    present = {day.isoformat() for day in ctx.source.days()}
    digest = lru_cache(None)(lambda folder: ctx.source.digest(date.fromisoformat(folder)))
    written = lru_cache(None)(lambda folder: _last_written(ctx, folder))
    found: dict[str, Change] = {}
    for day, raw in chain[tables.RAW_TRACES.name].items():
        made_of = {name.removeprefix(_FOLDER): was for name, was in raw.inputs.items() if name.startswith(_FOLDER)}
        published_at = _published_at(ctx, day)
        doubtful = {
            folder
            for folder, was in made_of.items()
            if folder in present and (was == _EMPTY or (published_at is not None and written(folder) > published_at))
        }
        gone = [folder for folder, was in made_of.items() if was != _EMPTY and folder not in present]
        if gone:
            found[day] = Change(f"the folder {gone[0]} is gone", gone=True)
            continue
        why = behind(ctx, day, chain, _digests(made_of, doubtful, digest))
        if why is not None and why.kind not in (MISSING, INCOMPLETE):
            found[day] = Change(why.text)
    return found


def _digests(made_of: Mapping[str, str], doubtful: set[str], digest: Callable[[str], str]) -> Callable[[str], str]:
    """Folder -> its digest, read where it is in doubt, else the one that the day was made of."""
    return lambda folder: digest(folder) if folder in doubtful else made_of.get(folder, _EMPTY)


def _published_at(ctx: StageContext, day: str) -> float | None:
    """When the rows of a day were published by the clock of the lake's disk; None for a lake in an object store."""
    if ctx.lake.storage.remote:
        return None
    with suppress(OSError):
        return (ctx.lake.root / path_of(slot(tables.RAW_TRACES, day))).stat().st_mtime
    return None


def _last_written(ctx: StageContext, day: str) -> float:
    """The newest time of what lies in a folder, without the artifacts themselves; a missing file shows in its folder's.

    The report of a look at the API is written at every look and is no part of the day; with it the day's own folder
    gets a new time, which therefore says nothing.
    """
    if ctx.settings.data_root.startswith("s3://"):
        return 0.0
    folder = Path(ctx.settings.data_root).expanduser() / day
    artifacts = folder / "artifacts"
    times = [0.0 if (folder / "runs.jsonl").exists() else float("inf")]
    for place in (folder, artifacts):
        with suppress(OSError), os.scandir(place) as entries:
            listed = [one for one in entries if one.name != FETCH_FILE]
            times += [one.stat(follow_symlinks=False).st_mtime for one in listed]
    return max(times)
