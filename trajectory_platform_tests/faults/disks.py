"""A disk that fails: full, a limit of file sizes, read-only; and an artifact that was written in half."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trajectory_platform_tests.faults import oracle
from trajectory_platform_tests.faults.bench import TWO, Bench, bench, chance, settled, watching, world
from trajectory_platform_tests.faults.oracle import NotHere, Outcome

NOBODY = 65534


def _refused(made: Bench, outcome: Outcome, text: str, code: int, *words: str) -> None:
    """A day that could not be written ended its command with 1, on one line of the day's own."""
    outcome.expect(code == 1, f"exit code {code}")
    outcome.say(text, "failed", *words)


def file_limit(seed: int) -> Outcome:
    """No file may grow beyond a size that one of the day's files has (a quota, ``ulimit -f``)."""
    draw, outcome = chance("file-limit", seed), Outcome()
    sizes = sorted({path.stat().st_size for path in world().lake.rglob("*.parquet")})
    with bench("file-limit", seed) as made:
        limit = draw.choice(sizes) - 1
        outcome.at = f"{limit} bytes a file"
        with watching(made) as reader:
            code, text = made.run("ingest", file_bytes=limit)
        reader.count(outcome)
        _refused(made, outcome, text, code, "was not published", "disk|File too large|too large")
        return settled(made, outcome)


@contextmanager
def _small_disk(folder: Path, size: int) -> Iterator[None]:
    """A file system of so many bytes at a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        raise NotHere("a small disk can only be mounted by root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _pages(folder: Path) -> int:
    """Bytes of the files below a folder in whole pages."""
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in folder.rglob("*") if path.is_file())


def full(seed: int) -> Outcome:
    """The disk of the lake has room for a part of what a run writes; later it has more."""
    draw, outcome = chance("disk-full", seed), Outcome()
    used = _pages(world().old)
    size = used + draw.randrange(8192, _pages(world().lake) // 2)  # what is replaced stays beside it for readers
    with bench("disk-full", seed, old=False) as made:
        disk = made.folder / "disk"
        with _small_disk(disk, size):
            made.uri = str(disk / "lake")
            shutil.copytree(world().old, made.uri)
            outcome.at = f"{size >> 10} KiB, old lake {used >> 10} KiB"
            with watching(made) as reader:
                code, text = made.run("ingest")
            reader.count(outcome)
            _refused(made, outcome, text, code, "No space left|disk is full|no space", "was not published|cannot")
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            return settled(made, outcome)


def read_only(seed: int) -> Outcome:
    """A lake in which this user may not write: said per table and path; whoever only reads goes on."""
    draw, outcome = chance("read-only", seed), Outcome()
    with bench("read-only", seed) as made:
        for parent in (made.folder, *made.folder.parents):
            if parent.stat().st_uid == os.geteuid() and parent != Path("/tmp"):
                parent.chmod(parent.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
        made.folder.chmod(0o777)  # the words of the child go there
        top = Path(made.uri)
        locked = draw.choice([top, top / "raw_traces", top / "_manifests", top / "trajectories" / "_delta_log"])
        outcome.at = str(locked.relative_to(made.folder))
        modes = {path: path.stat().st_mode for path in (locked, *locked.rglob("*"))}
        others = {path: path.stat().st_mode for path in top.rglob("*") if path not in modes}
        for path, mode in others.items():
            path.chmod(mode | 0o777)
        if locked != top:
            modes[top] = top.stat().st_mode
            top.chmod(0o777)
        for path in (locked, *locked.rglob("*")):
            path.chmod(modes[path] & ~0o222 | 0o444 | (0o111 if path.is_dir() else 0))
        with watching(made) as reader:
            code, text = made.run("ingest", uid=NOBODY, imported=str(world().recording))
            query = made.run(
                "sql", "select count(*) as n from raw_traces", "--json", uid=NOBODY, imported=str(world().recording)
            )
        reader.count(outcome)
        outcome.expect(code in (1, 2), f"exit code {code}")
        outcome.say(text, "Permission denied|permission|Read-only", "lake", "failed|error")
        outcome.expect(query.code == 0, f"a reader cannot read: {query.text[-300:]}")
        for path, mode in modes.items():
            if path.exists():
                path.chmod(mode)
        return settled(made, outcome)


def truncated_artifact(seed: int) -> Outcome:
    """A raw artifact that ends in the middle: one row with its reason, nothing else changes; whole again, all is."""
    draw, outcome = chance("truncated", seed), Outcome()
    with bench("truncated", seed, own_days=True) as made:
        path = draw.choice(sorted(made.days.rglob("*.json.gz")))
        whole = path.read_bytes()
        path.write_bytes(whole[: draw.randrange(0, len(whole))])
        outcome.at = f"{path.stat().st_size} of {len(whole)} bytes of {path.name}"
        code, text = made.run("ingest", "--json")
        outcome.expect(code == 0, f"one artifact stopped the run: {text[-300:]}")
        rows = made.lake.read("trajectories", columns=["trace_id", "readable", "day"]).to_pylist()
        raw = made.lake.read("raw_traces", columns=["trace_id", "state", "state_reason", "state_detail"]).to_pylist()
        bad = {row["trace_id"] for row in rows if not row["readable"]}
        bad |= {row["trace_id"] for row in raw if row["state"] == "unreadable"}
        name = f"{path.parent.name}:{path.name.removesuffix('.json.gz')}"
        outcome.expect(bad == {name}, f"unreadable: {sorted(bad)}, not {name}")
        oracle.conserved(made.settings, TWO, outcome)
        rejected = made.run("sql", f"select reason, detail from rejected_traces where trace_id = '{name}'", "--json")
        outcome.say(rejected.text, "reason", "empty|truncated|gzip|json|unreadable|cut|end|damaged|unfinished")
        outcome.at += f" ({_reason(rejected.text)})"
        path.write_bytes(whole)
        return settled(made, outcome)


def _reason(text: str) -> str:
    """The reason of a rejection in the output of ``sql --json``."""
    for line in text.splitlines():
        if line.startswith(("{", "[")):
            return json.dumps(json.loads(line))[:200]
    return text[:200]
