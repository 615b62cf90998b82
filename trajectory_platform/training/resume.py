"""A killed training goes on where its trainer last saved: one folder per checkpoint that is being made.

``{checkpoint_root}/.progress/{checkpoint_id}`` belongs to whoever holds the lock beside it, so a checkpoint is
trained by one process at a time. The lock is the kernel's: it is gone with its process, however that ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trajectory_platform.errors import RetryLater
from trajectory_platform.evaluation.child import rank, wait_for_ranks
from trajectory_platform.identity import digest_json
from trajectory_platform.lake.manifests import fsync_path

PROGRESS = ".progress"
MARK = "complete.json"  # in a trainer checkpoint: every file with its size, written when all of them were on disk
FACTS = "facts.json"
STALE_S = 14 * 24 * 3600
SWEPT = 32  # folders removed by one sweep at most


@contextlib.contextmanager
def claim(root: Path, checkpoint_id: str) -> Iterator[Path]:
    """The folder in which this process alone makes a checkpoint; what an earlier process left there is kept.

    Raises:
        RetryLater: ``training_in_progress``: a living process has it; names machine and process.
    """
    place = root / PROGRESS
    place.mkdir(parents=True, exist_ok=True)
    handle = _lock(place / f"{checkpoint_id}.lock")
    if handle is None:
        raise RetryLater("training_in_progress", f"{checkpoint_id} is being trained by {_holder(place, checkpoint_id)}")
    try:
        os.truncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        folder = place / checkpoint_id
        folder.mkdir(exist_ok=True)
        yield folder
    finally:
        if not (place / checkpoint_id).exists():
            (place / f"{checkpoint_id}.lock").unlink(missing_ok=True)
        os.close(handle)


def finished(folder: Path) -> None:
    """Remove the folder of a checkpoint that is in its place; called by the process that claimed it."""
    shutil.rmtree(folder, ignore_errors=True)


def agree(folder: Path, facts: Mapping[str, Any]) -> bool:
    """Whether what lies in the folder was made by this very run; what another one left is removed.

    ``facts``: JSON of all that decides the steps besides the weights (rows in their order, arguments, versions of the
    packages). Weights of one run and data of another would be neither.
    """
    digest = digest_json(dict(facts))
    path = folder / FACTS
    try:
        same = bool(json.loads(path.read_text("utf-8"))["digest"] == digest)
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        path.write_text(json.dumps({"digest": digest, "facts": dict(facts)}, sort_keys=True, indent=1), "utf-8")
    return same


def resume_point(folder: Path, facts: Mapping[str, Any]) -> Path | None:
    """The trainer checkpoint at which an earlier process of this very run stopped, or None; called by every rank.

    ``agree`` may remove files, so one process does it while the others wait.
    """
    if rank() == 0:
        agree(folder, facts)
    wait_for_ranks()
    return resumable(folder / "trainer")


def step_of(saved: Path | None) -> int:
    """The step of a trainer checkpoint (``checkpoint-N``), 0 for none."""
    return int(saved.name.rpartition("-")[2]) if saved is not None else 0


def resumable(folder: Path) -> Path | None:
    """The newest complete trainer checkpoint (``checkpoint-N``) in a trainer's folder, or None.

    One that a kill left half written has no mark, one that was half removed lacks a file of it; neither is named.
    """
    found = [
        (int(number), path)
        for path in (folder.glob("checkpoint-*") if folder.is_dir() else [])
        if (number := path.name.rpartition("-")[2]).isdigit() and _complete(path)
    ]
    return max(found)[1] if found else None


def mark_complete(saved: Path) -> None:
    """Mark a trainer checkpoint as complete, after all of its files are on disk."""
    files = sorted(path for path in saved.rglob("*") if path.is_file() and path.name != MARK)
    for path in files:
        fsync_path(path)
    sizes = {str(path.relative_to(saved)): path.stat().st_size for path in files}
    waiting = saved / f"{MARK}.part"
    waiting.write_text(json.dumps(sizes, sort_keys=True), "utf-8")
    fsync_path(waiting)
    os.replace(waiting, saved / MARK)
    fsync_path(saved)


def completion_marks() -> Any:
    """A trainer callback that marks every trainer checkpoint when it is saved."""
    from transformers import TrainerCallback

    class Marks(TrainerCallback):
        """Marks what the trainer saved, once every rank has written its part."""

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            wait_for_ranks()
            if state.is_world_process_zero:
                mark_complete(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    return Marks()


def sweep_progress(root: Path) -> list[str]:
    """Remove folders whose checkpoint is finished and those nobody touched for two weeks; returns their names.

    A folder that a living process has is never removed, and no more than ``SWEPT`` are in one call.
    """
    place = root / PROGRESS
    removed: list[str] = []
    for folder in sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []:
        if len(removed) == SWEPT:
            break
        if not (root / folder.name / "manifest.json").is_file() and time.time() - _touched(folder) < STALE_S:
            continue
        lock = place / f"{folder.name}.lock"
        handle = _lock(lock)
        if handle is None:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        lock.unlink(missing_ok=True)
        os.close(handle)
        removed.append(folder.name)
    return removed


def _lock(path: Path) -> int | None:
    """An open handle that holds the lock, or None when another process does."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
        try:
            if os.fstat(handle).st_ino == path.stat().st_ino:
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)  # its last holder removed the file between our two looks: lock the new one


def _holder(place: Path, checkpoint_id: str) -> str:
    try:
        return (place / f"{checkpoint_id}.lock").read_text("utf-8", "replace")[:200] or "another process"
    except OSError:
        return "another process"


def _touched(folder: Path) -> float:
    """Newest time of change in a folder; of one that vanishes meanwhile, now."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return time.time()


def _complete(saved: Path) -> bool:
    try:
        sizes = json.loads((saved / MARK).read_text("utf-8"))
        return bool(sizes) and all((saved / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False
