"""The product catalogue a day is scored against: the day's own file, else the one beside all days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition, RejectRow
from trajectory_platform.identity import sha256_hex

if TYPE_CHECKING:
    from trajectory_platform.sandbox.products import Catalogue
    from trajectory_platform.stages.context import StageContext

_LOADED: dict[str, Catalogue] = {}  # digest -> catalogue: several days of one run share one file


def day_catalogue(ctx: StageContext, day: str) -> tuple[str, Callable[[], Catalogue | None]]:
    """Content digest of the day's catalogue (``none`` when there is none) and a loader.

    Raises:
        FailPartition: the file is there and cannot be read (a link that leaves the folder, too large).
    """
    uri = ctx.source.open_day(date.fromisoformat(day)).catalogue_uri
    if uri is None:
        return "none", lambda: None
    try:
        data = ctx.source.read(uri)
    except RejectRow as error:
        raise FailPartition(f"{day}: the catalogue {uri} cannot be read: {error}") from error
    digest = sha256_hex(data)

    def load() -> Catalogue:
        from trajectory_platform.sandbox.products import load_products

        if digest not in _LOADED:
            _LOADED.clear()
            _LOADED[digest] = load_products(data)
        return _LOADED[digest]

    return digest, load


def catalogue_facts(ctx: StageContext) -> dict[str, Any]:
    """What the newest day with a catalogue offers: products, skipped lines, digest."""
    for day in reversed(ctx.source.days()):
        digest, load = day_catalogue(ctx, day.isoformat())
        catalogue = load()
        if catalogue is not None:
            return {"day": day.isoformat(), "products": len(catalogue), "digest": digest}
    return {"day": None, "products": 0, "digest": "none"}
