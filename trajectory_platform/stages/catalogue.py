"""The product catalogue a day is scored against: the day's own file, else the one beside all days.

A small file is held in memory. A large one is built once into the index folder of its content
(``sandbox.catalogue_index``) and mapped. Which content a file holds is remembered in the process by its size and
times, so that days that share one catalogue read it once.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import IO, TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition, RejectRow

if TYPE_CHECKING:
    from trajectory_platform.lake.manifests import Manifest
    from trajectory_platform.sandbox.product_files import Source
    from trajectory_platform.sandbox.products import ProductCatalogue
    from trajectory_platform.sandbox.tools import World
    from trajectory_platform.stages.context import StageContext

LARGE_BYTES = 16 << 20  # stored size from which a catalogue is mapped instead of held; the rows are the same
_SETTLED_S = 2.0  # a file changed later than this may change again without its time telling so
_SETTLED_S3_S = 900.0  # the clock of the store may differ from ours; it refuses us beyond 15 minutes

_DIGESTS: dict[tuple[str, str], tuple[Any, str]] = {}  # (data root, uri) -> (size and times, content digest)
_LOADED: dict[str, ProductCatalogue] = {}  # digest -> catalogue: several days of one run share one file
_WORLDS: dict[str, World] = {}


@dataclass(frozen=True)
class _File:
    """A catalogue file as found.

    Attributes:
        source: how to read it; ``size`` in stored bytes.
        state: size and times, or None while they do not yet tell one content from the next.
    """

    uri: str
    source: Source
    size: int
    state: tuple[int, ...] | None


def day_catalogue(ctx: StageContext, day: str) -> tuple[str, Callable[[], ProductCatalogue | None]]:
    """Content digest of the day's catalogue (``none`` when there is none) and a loader.

    The digest is the one of the inflated content: another packing is no other catalogue.

    Raises:
        FailPartition: the file is there and cannot be read (a link that leaves the folder, damaged), or (from the
            loader) it changes meanwhile.
    """
    file = _find(ctx, day)
    if file is None:
        return "none", lambda: None
    digest = _digest(ctx, file)

    def load() -> ProductCatalogue:
        if digest not in _LOADED:
            catalogue = _read(ctx, file)
            if catalogue.digest != digest:
                raise FailPartition(f"{day}: the catalogue {file.uri} changed while it was read; run the day again")
            _LOADED.clear()
            _LOADED[digest] = catalogue
        return _LOADED[digest]

    return digest, load


def day_world(ctx: StageContext, day: str) -> World:
    """The world of the day's catalogue, in which agents act; days with the same content share it in a process.

    A large catalogue is indexed here if it is not yet; a stage asks ``day_catalogue`` first whether there is
    anything to do.

    Raises:
        FailPartition: the day has no catalogue, or as ``day_catalogue``.
    """
    from trajectory_platform.sandbox.catalogue_index import open_world
    from trajectory_platform.sandbox.search import SearchIndex
    from trajectory_platform.sandbox.store import CatalogueStore
    from trajectory_platform.sandbox.tools import World

    digest, load = day_catalogue(ctx, day)
    if digest not in _WORLDS:
        catalogue = load()
        if catalogue is None:
            raise FailPartition(f"{day}: there is no product catalogue, so no agent can act")
        if isinstance(catalogue, CatalogueStore):
            world = open_world(catalogue.folder)
        else:
            world = World(catalogue, SearchIndex(catalogue))
        _WORLDS.clear()
        _WORLDS[digest] = world
    return _WORLDS[digest]


def catalogue_facts(ctx: StageContext) -> dict[str, Any]:
    """What the newest day with a catalogue offers: products, skipped lines, digest."""
    for day in reversed(ctx.source.days()):
        digest, load = day_catalogue(ctx, day.isoformat())
        catalogue = load()
        if catalogue is not None:
            return {
                "day": day.isoformat(),
                "products": len(catalogue),
                "skipped_lines": sum(catalogue.skipped_by_reason().values()),
                "digest": digest,
            }
    return {"day": None, "products": 0, "skipped_lines": 0, "digest": "none"}


def judged_without(judged: Manifest) -> bool:
    """Whether a judged day had no catalogue and most of its traces have no outcome: all that asks for a product's
    attributes is then ``no_catalogue``."""
    counts = judged.summary
    scored = int(counts.get("success", 0)) + int(counts.get("failure", 0))
    return judged.inputs.get("catalogue") == "none" and int(counts.get("unscorable", 0)) > scored


def catalogue_place(data_root: str) -> str:
    """Where the catalogue of all days belongs."""
    return f"{data_root.rstrip('/')}/catalogue/products.jsonl"


def _read(ctx: StageContext, file: _File) -> ProductCatalogue:
    from trajectory_platform.sandbox.catalogue_index import world_of
    from trajectory_platform.sandbox.products import load_products

    if file.size >= LARGE_BYTES:
        return world_of(file.source, ctx.settings.index_root).catalogue
    return load_products(file.source)


def _digest(ctx: StageContext, file: _File) -> str:
    from trajectory_platform.sandbox.product_files import content_digest

    place = (ctx.source.data_root, file.uri)
    known = _DIGESTS.get(place)
    if known is not None and file.state is not None and known[0] == file.state:
        return known[1]
    digest = content_digest(file.source)
    _DIGESTS[place] = (file.state, digest)
    return digest


def _find(ctx: StageContext, day: str) -> _File | None:
    uri = ctx.source.open_day(date.fromisoformat(day)).catalogue_uri
    if uri is None:
        return None
    return _on_s3(ctx, uri) if ctx.source.data_root.startswith("s3://") else _on_disk(ctx, day, uri)


def _on_disk(ctx: StageContext, day: str, uri: str) -> _File:
    path = os.path.join(os.path.expanduser(ctx.source.data_root), uri)
    try:
        found = os.stat(path)
        regular = stat.S_ISREG(found.st_mode)
    except OSError:
        regular = False
    if not regular or ctx.source.leads_out(uri):
        try:
            ctx.source.read(uri)  # says why
        except RejectRow as error:
            raise FailPartition(f"{day}: the catalogue {uri} cannot be read: {error}") from error
        raise FailPartition(f"{day}: the catalogue {uri} appeared while it was looked for; run the day again")
    times = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    changed_s = max(found.st_mtime_ns, found.st_ctime_ns) / 1e9
    return _File(uri, path, found.st_size, times if time.time() - changed_s > _SETTLED_S else None)


def _on_s3(ctx: StageContext, uri: str) -> _File:
    from trajectory_platform.sources.stores import attempt, connect_s3

    store = connect_s3()
    path = f"{ctx.source.data_root.removeprefix('s3://').strip('/')}/{uri}"
    info = attempt(lambda: store.get_file_info(path), what=uri)

    def opened() -> IO[bytes]:
        try:
            stream: IO[bytes] = attempt(lambda: store.open_input_stream(path, compression=None), what=uri)
        except RejectRow as error:
            raise FailPartition(f"the catalogue {uri} cannot be read: {error}") from error
        return stream

    settled = time.time() - info.mtime_ns / 1e9 > _SETTLED_S3_S
    return _File(uri, opened, int(info.size), (int(info.size), info.mtime_ns) if settled else None)
