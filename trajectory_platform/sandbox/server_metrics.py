"""Counters of the sandbox server in the Prometheus text format, without a client library.

All workers of one server count into one block of shared memory, each into its own part, so no lock is needed and any
worker can answer for all. The set of series is fixed: no text of a request becomes a label.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, MutableSequence
from pathlib import Path

ENDPOINTS = (
    "find_product",
    "view_product_information",
    "get_product_raw",
    "check_product_match",
    "find_products_in_same_shop",
    "calculate_voucher",
    "health",
    "metrics",
    "other",
)
STATUSES = (200, 400, 403, 404, 405, 408, 413, 414, 500, 503, 0)  # 0: any other, and a client that went away
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds, upper bounds

_WIDTH = len(STATUSES) + len(BUCKETS_S) + 2  # counts by status, buckets with +Inf, sum of seconds
_PID, _IN_FLIGHT, _RELOADS, _PRODUCTS = (len(ENDPOINTS) * _WIDTH + number for number in range(4))
CELLS = len(ENDPOINTS) * _WIDTH + 4  # float64 cells of one worker
_STATUS_AT = {status: number for number, status in enumerate(STATUSES)}
_ENDPOINT_AT = {name: number * _WIDTH for number, name in enumerate(ENDPOINTS)}
_STATM = "/proc/{pid}/statm"


class Metrics:
    """The counters of one worker inside the block of all.

    Args:
        cells: zeros, ``CELLS`` for each worker: a list, or shared memory (``multiprocessing.RawArray("d", n)``).
        worker: which part this process writes.
    """

    def __init__(self, cells: MutableSequence[float] | None = None, worker: int = 0) -> None:
        self._cells: MutableSequence[float] = [0.0] * CELLS if cells is None else cells
        self._base = worker * CELLS
        self._cells[self._base + _PID] = os.getpid()
        self._cells[self._base + _IN_FLIGHT] = 0  # what a worker that died was answering is answered no more

    def observe(self, endpoint: str, status: int, seconds: float) -> None:
        """Count one finished request; an unknown endpoint counts as ``other``, an unknown status as ``0``."""
        cells, at = self._cells, self._base + _ENDPOINT_AT.get(endpoint, _ENDPOINT_AT["other"])
        cells[at + _STATUS_AT.get(status, len(STATUSES) - 1)] += 1
        at += len(STATUSES)
        cells[at + bisect_left(BUCKETS_S, seconds)] += 1
        cells[at + len(BUCKETS_S) + 1] += seconds

    def in_flight(self, change: int) -> None:
        """One request more (1) or less (-1) is being answered by this worker."""
        self._cells[self._base + _IN_FLIGHT] += change

    def reloaded(self) -> None:
        """This worker has switched to another version of the catalogue."""
        self._cells[self._base + _RELOADS] += 1

    def serving(self, products: int) -> None:
        """How many products this worker serves."""
        self._cells[self._base + _PRODUCTS] = products

    def text(self, digest: str | None = None) -> str:
        """All series of all workers in the Prometheus text format 0.0.4.

        Args:
            digest: content digest of the catalogue that is served, hexadecimal.
        """
        return "\n".join(self._lines(digest)) + "\n"

    def _lines(self, digest: str | None) -> Iterator[str]:
        bases = range(0, len(self._cells), CELLS)

        def total(at: int) -> float:
            return sum(self._cells[base + at] for base in bases)

        yield "# HELP sandbox_requests_total Requests answered."
        yield "# TYPE sandbox_requests_total counter"
        for name, at in _ENDPOINT_AT.items():
            for number, status in enumerate(STATUSES):
                if count := total(at + number):
                    label = status or "other"
                    yield f'sandbox_requests_total{{endpoint="{name}",status="{label}"}} {count:.0f}'
        yield "# HELP sandbox_request_seconds Time from the request's head to the last byte handed to the socket."
        yield "# TYPE sandbox_request_seconds histogram"
        for name, at in _ENDPOINT_AT.items():
            yield from _histogram(name, [total(at + len(STATUSES) + n) for n in range(len(BUCKETS_S) + 2)])
        for name, kind, at, help_text in (
            ("sandbox_requests_in_flight", "gauge", _IN_FLIGHT, "Requests being answered."),
            ("sandbox_catalogue_reloads_total", "counter", _RELOADS, "Switches to another catalogue version."),
        ):
            yield from (f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", f"{name} {total(at):.0f}")
        yield "# HELP sandbox_catalogue_products Products served, by worker."
        yield "# TYPE sandbox_catalogue_products gauge"
        for worker, base in enumerate(bases):
            yield f'sandbox_catalogue_products{{worker="{worker}"}} {self._cells[base + _PRODUCTS]:.0f}'
        if digest is not None:
            yield "# HELP sandbox_catalogue_info Content digest of the catalogue this worker serves."
            yield "# TYPE sandbox_catalogue_info gauge"
            yield f'sandbox_catalogue_info{{digest="{digest}"}} 1'
        yield "# HELP sandbox_resident_memory_bytes Resident memory, by worker."
        yield "# TYPE sandbox_resident_memory_bytes gauge"
        for worker, base in enumerate(bases):
            if (size := resident_bytes(int(self._cells[base + _PID]))) is not None:
                yield f'sandbox_resident_memory_bytes{{worker="{worker}"}} {size}'


def resident_bytes(pid: int) -> int | None:
    """Resident memory of a process, or None where the system does not say."""
    try:
        return int(Path(_STATM.format(pid=pid)).read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def _histogram(endpoint: str, cells: list[float]) -> Iterator[str]:
    """Cumulative buckets, sum and count; nothing for an endpoint that was never asked."""
    *counts, seconds = cells
    if not any(counts):
        return
    so_far = 0.0
    for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), counts, strict=True):
        so_far += count
        yield f'sandbox_request_seconds_bucket{{endpoint="{endpoint}",le="{bound}"}} {so_far:.0f}'
    yield f'sandbox_request_seconds_sum{{endpoint="{endpoint}"}} {seconds:.6f}'
    yield f'sandbox_request_seconds_count{{endpoint="{endpoint}"}} {so_far:.0f}'
