"""A catalogue file that is looked at while it is being served: what has changed is built beside the old version."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from trajectory_platform.errors import Abort, PlatformError
from trajectory_platform.escaping import escaped


class CatalogueWatch:
    """Looks at the catalogue file in a thread of its own and builds what has changed."""

    def __init__(self, catalogue: Path, root: Path, folder: Path, every_s: float, tell: Callable[[str], None]) -> None:
        self._catalogue = catalogue
        self._root = root
        self._folder = folder
        self._every_s = every_s or None
        self._tell = tell
        self._seen = _stamp(catalogue)
        self._wake = threading.Event()
        self._asked = False
        self._ending = False

    def start(self, switch: Callable[[Path], None]) -> None:
        """Begin; ``switch`` is called with the folder of each new version."""
        # a daemon: a build that runs when the server ends is given up, and an unfinished one is invisible
        threading.Thread(target=self._run, args=(switch,), name="catalogue-watch", daemon=True).start()

    def look(self) -> None:
        """Look now, whatever the file's times say (SIGHUP)."""
        self._asked = True
        self._wake.set()

    def stop(self) -> None:
        """Begin no further build."""
        self._ending = True
        self._wake.set()

    def _run(self, switch: Callable[[Path], None]) -> None:
        waiting: tuple[int, ...] | None = None  # a change that must hold still for one round: it is still written
        while True:
            self._wake.wait(self._every_s)
            self._wake.clear()
            if self._ending:
                return
            asked, self._asked = self._asked, False
            stamp = _stamp(self._catalogue)
            if asked or (stamp != self._seen and stamp == waiting):
                self._seen, waiting = stamp, None
                self._rebuild(switch)
            else:
                waiting = stamp if stamp != self._seen else None

    def _rebuild(self, switch: Callable[[Path], None]) -> None:
        try:
            folder = built(self._catalogue, self._root)
            if folder == self._folder:
                self._tell("the catalogue is unchanged")
                return
            switch(folder)
        except (PlatformError, OSError, ValueError) as error:
            self._tell(f"the old catalogue stays: {escaped(str(error))}")
            return
        self._folder = folder
        self._tell(f"serving version {folder.name[:16]} of the catalogue")


def built(catalogue: Path, root: Path) -> Path:
    """The folder of the index of a catalogue file; built if there is none for its content.

    Raises:
        Abort: the file cannot be read, or has no usable product: somebody is still writing it, or it is another file.
        FailPartition: its compression is damaged.
    """
    from trajectory_platform.sandbox.catalogue_index import build_index, open_world

    folder = build_index(catalogue, root)
    if len(open_world(folder).catalogue) == 0:
        raise Abort(f"{escaped(str(catalogue))} has no usable product")
    return folder


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file is replaced or written; empty while there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns)
