"""A day's catalogue is read once, small or large, and a file that changes is never taken for the one before."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from typing import Any

import pyarrow.fs as fs
import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.sandbox import product_files
from trajectory_platform.sandbox.product_files import content_digest
from trajectory_platform.sandbox.products import Catalogue
from trajectory_platform.sandbox.store import CatalogueStore
from trajectory_platform.settings import Settings
from trajectory_platform.stages import catalogue
from trajectory_platform.stages.catalogue import catalogue_facts, day_catalogue, day_world
from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.sandbox.built import lines
from trajectory_platform_tests.sandbox.market import product

DAY, NEXT = "2026-05-01", "2026-05-02"
DATA = lines(*(product(str(number)) for number in range(20)))


@pytest.fixture(autouse=True)
def forgetful() -> None:
    for held in (catalogue._DIGESTS, catalogue._LOADED, catalogue._WORLDS):
        held.clear()


@pytest.fixture
def ctx(tmp_path: Path) -> StageContext:
    place(tmp_path, "catalogue", DATA)
    for day in (DAY, NEXT):
        (tmp_path / day).mkdir()
        (tmp_path / day / "runs.jsonl").write_bytes(b"")
    return StageContext(
        Settings(data_root=str(tmp_path), lake_uri=str(tmp_path / "lake"), index_root=str(tmp_path / "index"))
    )


def place(root: Path, folder: str, data: bytes, age_s: float = 0.0) -> Path:
    file = root / folder / "products.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    os.utime(file, (time.time() - age_s, time.time() - age_s))
    return file


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(catalogue, "LARGE_BYTES", 1 if request.param == "large" else 1 << 20)
    return str(request.param)


def test_both_sizes_give_the_same_world(ctx: StageContext, size: str) -> None:
    digest, load = day_catalogue(ctx, DAY)
    assert digest == content_digest(DATA)
    assert isinstance(load(), CatalogueStore if size == "large" else Catalogue)
    world = day_world(ctx, NEXT)
    assert world.catalogue.digest == digest and world is day_world(ctx, DAY)
    assert [row["product_id"] for row in world.index.find({"q": "mug", "page": 1})][:2] == ["0", "1"]
    assert Path(ctx.settings.index_root).exists() == (size == "large")
    facts = {"day": NEXT, "products": 20, "skipped_lines": 0, "digest": digest}
    assert catalogue_facts(ctx) == facts


def test_days_with_their_own_catalogue_take_turns(ctx: StageContext, tmp_path: Path, size: str) -> None:
    place(tmp_path, f"{NEXT}/catalogue", lines(product("other", title="mug")))
    worlds = [day_world(ctx, day) for day in (DAY, NEXT, DAY)]
    assert [len(world.catalogue) for world in worlds] == [20, 1, 20]
    assert [len(world.index.find({"q": "mug", "page": 1})) for world in worlds] == [10, 1, 10]


def test_another_packing_is_the_same_catalogue(ctx: StageContext, tmp_path: Path) -> None:
    place(tmp_path, f"{NEXT}/catalogue", gzip.compress(DATA, mtime=0))
    assert day_catalogue(ctx, DAY)[0] == day_catalogue(ctx, NEXT)[0]


def test_a_settled_file_is_read_once_and_a_changed_one_again(
    ctx: StageContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    inflated = product_files.inflated

    def counted(source: Any) -> Any:
        reads.append(source)
        return inflated(source)

    monkeypatch.setattr(product_files, "inflated", counted)
    monkeypatch.setattr(catalogue, "_SETTLED_S", -1.0)  # as if the file had been written long ago
    first = day_catalogue(ctx, DAY)[0]
    assert day_catalogue(ctx, NEXT)[0] == first and len(reads) == 1
    changed = DATA.replace(b"mug 7", b"cup 7")
    place(tmp_path, "catalogue", changed, age_s=60)
    second = [day_catalogue(ctx, day)[0] for day in (DAY, NEXT)]
    assert len(reads) == 2
    assert second == [content_digest(changed)] * 2 and first == content_digest(DATA)


def test_a_file_that_was_written_just_now_is_not_trusted_by_its_time(ctx: StageContext, tmp_path: Path) -> None:
    file = place(tmp_path, "catalogue", DATA)
    before = file.stat()
    assert day_catalogue(ctx, DAY)[0] == content_digest(DATA)
    changed = DATA.replace(b"mug 7", b"cup 7")
    file.write_bytes(changed)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert day_catalogue(ctx, DAY)[0] == content_digest(changed)


def test_a_file_that_changes_before_it_is_loaded_fails_the_day(ctx: StageContext, tmp_path: Path, size: str) -> None:
    _, load = day_catalogue(ctx, DAY)
    place(tmp_path, "catalogue", DATA + lines(product("more")))
    with pytest.raises(FailPartition, match="changed while it was read"):
        load()


def test_a_day_without_a_catalogue(ctx: StageContext, tmp_path: Path) -> None:
    (tmp_path / "catalogue" / "products.jsonl").unlink()
    digest, load = day_catalogue(ctx, DAY)
    assert digest == "none" and load() is None
    with pytest.raises(FailPartition, match="no product catalogue"):
        day_world(ctx, DAY)
    assert catalogue_facts(ctx) == {"day": None, "products": 0, "skipped_lines": 0, "digest": "none"}


@pytest.mark.parametrize("kind", ["link", "pipe", "damaged"])
def test_a_catalogue_that_cannot_be_read_fails_the_day(ctx: StageContext, tmp_path: Path, kind: str, size: str) -> None:
    file = tmp_path / "catalogue" / "products.jsonl"
    file.unlink()
    if kind == "link":
        outside = tmp_path.parent / f"{tmp_path.name}-outside.jsonl"
        outside.write_bytes(DATA)
        file.symlink_to(outside)
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.write_bytes(gzip.compress(DATA)[:-9])
    with pytest.raises(FailPartition, match="damaged" if kind == "damaged" else "cannot be read"):
        day_catalogue(ctx, DAY)


def test_a_catalogue_in_an_object_store_is_streamed(
    ctx: StageContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    objects = fs.SubTreeFileSystem(str(tmp_path.parent), fs.LocalFileSystem())
    monkeypatch.setattr("trajectory_platform.sources.stores.connect_s3", lambda: objects)
    remote = StageContext(ctx.settings.model_copy(update={"data_root": f"s3://{tmp_path.name}"}))
    assert day_catalogue(remote, DAY)[0] == day_catalogue(ctx, DAY)[0] == content_digest(DATA)
    world = day_world(remote, DAY)
    assert isinstance(world.catalogue, CatalogueStore) == (size == "large")
    assert world.catalogue.get("7") == product("7")
    assert world.index.find({"q": "mug", "page": 2}) == day_world(ctx, NEXT).index.find({"q": "mug", "page": 2})
