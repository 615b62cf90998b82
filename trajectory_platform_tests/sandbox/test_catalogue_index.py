"""Index folders are complete or absent, one build serves all, damage is found, and old versions can be served on."""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.sandbox import catalogue_index
from trajectory_platform.sandbox.catalogue_index import build_index, damage_of, open_world, world_of
from trajectory_platform.sandbox.product_files import content_digest
from trajectory_platform_tests.sandbox.built import lines
from trajectory_platform_tests.sandbox.market import product

DATA = lines(*(product(str(number)) for number in range(50)))
OTHER = lines(*(product(str(number), title=f"cup {number}") for number in range(30)))


def folders(root: Path) -> list[str]:
    """Everything below the root but the lock files."""
    return sorted(path.name for path in root.iterdir() if not path.name.endswith(".lock"))


def test_one_content_is_built_once_whatever_its_packing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "products.jsonl.gz"
    file.write_bytes(gzip.compress(DATA, mtime=0))
    root = tmp_path / "index"
    first = build_index(file, root)
    assert first.name == f"{content_digest(DATA)}-v{catalogue_index.FORMAT}"
    monkeypatch.setattr(catalogue_index, "_write", None)  # building again would fail
    assert (
        build_index(DATA, root) == build_index(str(file), root) == build_index(lambda: io.BytesIO(DATA), root) == first
    )
    assert folders(root) == [first.name]


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    build_index(DATA, tmp_path, progress=lambda phase, done: told.append((phase, done)))
    assert told == [("read", 0), ("indexed", 0)]


@pytest.mark.parametrize("name", ["ids.bin", "price.f64", "documents.jsonl", "words/meta.json", "manifest.json"])
@pytest.mark.parametrize("how", ["cut", "flipped", "gone"])
def test_a_damaged_folder_is_found_and_built_again_while_it_is_served(tmp_path: Path, name: str, how: str) -> None:
    world = world_of(DATA, tmp_path)
    before = world.index.find({"q": "mug", "page": 1})
    folder = tmp_path / folders(tmp_path)[0]
    harm(folder / name, how)
    assert damage_of(folder) is not None
    with pytest.raises(FailPartition, match="build it again"):
        open_world(folder)
    again = world_of(DATA, tmp_path)
    assert again.index.find({"q": "mug", "page": 1}) == before
    assert folders(tmp_path) == [folder.name] and damage_of(folder, thorough=True) is None


def test_a_manifest_that_was_edited_is_no_manifest(tmp_path: Path) -> None:
    folder = build_index(DATA + b"{}\n", tmp_path)
    manifest = folder / "manifest.json"
    for other in (b'"title_missing": 1', b'"product_id_missing": 2'):
        manifest.write_bytes(manifest.read_bytes().replace(b'"product_id_missing": 1', other))
        assert damage_of(folder) == "no complete manifest"
    for other in (b"[]", b"null", b"{}", b'{"files": 3}', b"\xff"):
        manifest.write_bytes(other)
        assert damage_of(folder) == "no complete manifest"


def harm(file: Path, how: str) -> None:
    """Damage a file the way a disk does: under a new name, so that a mapping of the old one stays whole."""
    data = file.read_bytes()
    file.unlink()
    if how != "gone":
        file.write_bytes(data[:-1] if how == "cut" else data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])


def test_a_flipped_byte_in_a_large_file_is_found_by_the_thorough_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build_index(DATA, tmp_path)
    harm(folder / "documents.jsonl", "flipped")
    monkeypatch.setattr(catalogue_index, "_ALWAYS_HASHED", 1000)
    assert damage_of(folder) is None
    assert "documents.jsonl" in (damage_of(folder, thorough=True) or "")


def test_a_folder_of_another_engine_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build_index(DATA, tmp_path)
    monkeypatch.setattr(catalogue_index, "engine_version", lambda: "tantivy next")
    assert "another version" in (damage_of(folder) or "")
    assert build_index(DATA, tmp_path) == folder and damage_of(folder) is None


def test_a_running_server_keeps_its_version(tmp_path: Path) -> None:
    old = world_of(DATA, tmp_path)
    asked = {"q": "mug cup", "page": 1}
    before = old.index.find(asked)
    new = world_of(OTHER, tmp_path)
    for name in folders(tmp_path):
        assert damage_of(tmp_path / name) is None
    shutil.rmtree(tmp_path)  # even when its folder is removed
    assert old.index.find(asked | {"sort": "order"}) == before == old.index.find(asked)
    assert old.catalogue.get("7") == product("7") and old.catalogue.digest != new.catalogue.digest


def test_a_file_that_changes_while_it_is_read_leaves_nothing(tmp_path: Path) -> None:
    contents = iter([DATA, OTHER])
    with pytest.raises(FailPartition, match="changed while it was read"):
        build_index(lambda: io.BytesIO(next(contents)), tmp_path)
    assert folders(tmp_path) == []


def test_a_damaged_or_missing_file_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FailPartition, match="damaged"):
        build_index(gzip.compress(DATA, mtime=0)[:-9], tmp_path / "index")
    with pytest.raises(Abort, match="cannot read"):
        build_index(tmp_path / "nothing.jsonl", tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_a_disk_that_refuses_is_an_error_with_a_name_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(catalogue_index, "_write_manifest", full)
    with pytest.raises(FailPartition, match="No space left"):
        build_index(DATA, tmp_path)
    assert folders(tmp_path) == []


BUILD = """
import sys
from pathlib import Path
from trajectory_platform.sandbox import catalogue_index
hold, data, root = sys.argv[1:]
def told(phase, done):
    if phase == hold:
        print("held", flush=True)
        sys.stdin.read()
print(catalogue_index.build_index(Path(data), root, progress=told).name, flush=True)
"""


def builder(hold: str, data: Path, root: Path) -> subprocess.Popen[str]:
    """A process that builds, and waits in a phase until its input is closed."""
    command = [sys.executable, "-c", BUILD, hold, str(data), str(root)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("phase", ["read", "indexed"])
def test_a_killed_build_is_invisible_and_cleaned_up(tmp_path: Path, phase: str) -> None:
    data, root = tmp_path / "p.jsonl", tmp_path / "index"
    data.write_bytes(DATA)
    process = builder(phase, data, root)
    assert process.stdout and process.stdout.readline() == "held\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    name = f"{content_digest(DATA)}-v{catalogue_index.FORMAT}"
    assert folders(root) == [f".building-{name}"]
    other = build_index(OTHER, root)  # another version may clean up: the lock is free
    assert folders(root) == [other.name]
    assert build_index(data, root).name == name and len(folders(root)) == 2


def test_two_builders_agree_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    data, root = tmp_path / "p.jsonl", tmp_path / "index"
    data.write_bytes(DATA)
    first = builder("indexed", data, root)
    assert first.stdout and first.stdout.readline() == "held\n"
    name = f"{content_digest(DATA)}-v{catalogue_index.FORMAT}"
    other = build_index(OTHER, root)
    assert folders(root) == sorted([f".building-{name}", other.name])  # not taken for a leftover
    second = builder("never", data, root)
    time.sleep(0.5)
    assert second.poll() is None  # it waits instead of building the same
    assert first.communicate("")[0] == f"{name}\n" and second.communicate("")[0] == f"{name}\n"
    assert folders(root) == sorted([name, other.name]) and damage_of(root / name, thorough=True) is None


def test_a_waiting_builder_takes_over_from_a_killed_one(tmp_path: Path) -> None:
    data, root = tmp_path / "p.jsonl", tmp_path / "index"
    data.write_bytes(DATA)
    first = builder("read", data, root)
    assert first.stdout and first.stdout.readline() == "held\n"
    second = builder("never", data, root)
    time.sleep(0.3)
    first.kill()
    first.communicate()
    assert second.communicate("")[0].strip() == f"{content_digest(DATA)}-v{catalogue_index.FORMAT}"
    assert len(folders(root)) == 1


def test_foreign_files_below_the_root_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".building-mine").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    folder = build_index(DATA, tmp_path)
    assert folders(tmp_path) == sorted([".building-mine", folder.name, "notes.txt"])


def test_a_built_folder_needs_no_right_to_write(tmp_path: Path) -> None:
    folder = build_index(DATA, tmp_path)
    with (tmp_path / f".{folder.name}.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # nor the lock: an existing version is returned at once
        assert build_index(DATA, tmp_path) == folder


MEMORY = """
import io, resource, sys
from trajectory_platform.sandbox import catalogue_index
import numpy, pyarrow.compute, tantivy
line = b'{"product_id": "%07d", "title": "mug %d", "description": "' + b"x" * 50_000 + b'"}\\n'
class Lines(io.RawIOBase):
    number, rest = 0, b""
    def read(self, size):
        if not self.rest and self.number < 4000:
            self.rest, self.number = line % (self.number * 7919 % 4000, self.number), self.number + 1
        piece, self.rest = self.rest[:size], self.rest[size:]
        return piece
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
folder = catalogue_index.build_index(Lines, sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, (folder / "documents.jsonl").stat().st_size)
"""


def test_memory_does_not_grow_with_the_documents(tmp_path: Path) -> None:
    told = subprocess.run([sys.executable, "-c", MEMORY, tmp_path], capture_output=True, text=True, check=True).stdout
    grown_kb, stored = map(int, told.split())
    assert stored > 190 << 20 and grown_kb < 60 << 10  # 200 MB of documents, the largest part is buffers
