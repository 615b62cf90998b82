"""Lists with limit and offset, newest first, that grow while they are read (case I03, domain 6: 55)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from trajectory_platform.errors import RetryLater
from trajectory_platform.identity import digest_json

OVERLAP = 3
MAX_PASSES = 8


class Page(NamedTuple):
    """One page: the items, and how many the list has in all (None when it does not say)."""

    items: Sequence[Any]
    total: int | None


def read_all(
    page: Callable[[int, int], Page],
    *,
    key: Callable[[Any], str | None],
    limit: int,
    overlap: int = OVERLAP,
    max_passes: int = MAX_PASSES,
) -> list[Any]:
    """Every item of a paged list, once, in the order first seen; a repeated item is the one read last.

    Pages overlap, so that a row that is removed while reading hides none; whole passes are repeated until one sees no
    unknown id. An item whose ``key`` is None is told apart by its content. ``total`` is read anew on each page.

    Args:
        page: (offset, limit) -> ``Page``.
        key: the id of an item.
        limit: items asked for at once.

    Raises:
        RetryLater: ``paging_unstable`` when after ``max_passes`` there are still unknown ids.
    """
    seen: dict[str, Any] = {}
    for number in range(max_passes):
        known = len(seen)
        pages = _one_pass(page, key, limit, min(overlap, limit - 1), seen)
        # One page that holds everything is one answer: nothing can have shifted inside it.
        if pages == 1 or (pages is not None and number > 0 and len(seen) == known):
            return list(seen.values())
    raise RetryLater("paging_unstable", f"unknown ids in {max_passes} passes over a list of {len(seen)}")


def _one_pass(
    page: Callable[[int, int], Page],
    key: Callable[[Any], str | None],
    limit: int,
    overlap: int,
    seen: dict[str, Any],
) -> int | None:
    """Read from the start to the end: the pages read; None when the end does not come."""
    offset = pages = 0
    before: list[Any] = []
    while True:
        items, total = page(offset, limit)
        pages += 1
        if len(items) > 1 and list(items) == before:  # the offset is ignored, or everything has shifted by a page
            return None
        before = list(items)
        for item in items:
            name = key(item)
            seen[digest_json(item) if name is None else f"id:{name}"] = item
        end = offset + len(items)
        # A full page is never taken for the last one: a total that is too small (counted before rows came) hides none.
        last = end >= total if total is not None else len(items) < limit
        if not items or (last and len(items) != limit):
            return pages
        step = max(len(items) - overlap, 1)
        if pages > 20 + 2 * max(total or 0, len(seen)) // step:
            return None
        offset += step
