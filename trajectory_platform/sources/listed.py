"""A cheap version of a day folder: what a listing says of its files, without reading one.

Changes with every file that comes, goes, or is written anew (size or time of change); says nothing about content. What
a day is made of is decided by ``FileSource.digest``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

from trajectory_platform.identity import digest_lines
from trajectory_platform.sources.stores import attempt, connect_s3

_LOOKED = "fetch.json"  # rewritten by every look at the source, whether or not it brought anything


class Listed(NamedTuple):
    """A day folder as it is listed.

    Attributes:
        version: digest over (path, size, time of change) of every file.
        files: how many.
        newest_ns: latest time of change, nanoseconds since 1970; 0 for an empty folder.
    """

    version: str
    files: int
    newest_ns: int


def listed(data_root: str, day: date) -> Listed:
    """What the listing of a day folder says; a missing folder is an empty one.

    Raises:
        RetryLater: the object store cannot be asked now.
    """
    root = f"{data_root.rstrip('/')}/{day.isoformat()}"
    there = _objects(root) if root.startswith("s3://") else _files(os.path.expanduser(root))
    found = sorted(one for one in there if one[0] != _LOOKED)
    newest = max((changed for _, _, changed in found), default=0)
    lines = (text for name, size, changed in found for text in (name, str(size), str(changed)))
    return Listed(digest_lines(lines)[:32], len(found), newest)


def _files(root: str) -> Iterator[tuple[str, int, int]]:
    """(path below the folder, bytes, time of change in ns); links are listed, never followed."""
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(name)
                        continue
                    about = entry.stat(follow_symlinks=False)
                    yield name, about.st_size, about.st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed while it was listed: the next look sees it so


def _objects(root: str) -> Iterator[tuple[str, int, int]]:
    import pyarrow.fs

    base = root.removeprefix("s3://")
    selector = pyarrow.fs.FileSelector(base, allow_not_found=True, recursive=True)
    for info in attempt(lambda: connect_s3().get_file_info(selector), what=f"listing {root}"):
        if info.type == pyarrow.fs.FileType.File:
            yield info.path.removeprefix(base + "/"), int(info.size), int(info.mtime_ns or 0)
