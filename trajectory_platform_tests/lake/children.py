"""Processes that publish at the same time, are killed at a point, or run into a full disk."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import manifests, s3_lease, snapshots, staging
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.storage import LOCAL_VARIABLE
from trajectory_platform.lake.tables import TABLES, Table
from trajectory_platform_tests.lake.rows import DAY, fill, put, trace_ids

# Children are forked from a server that has imported the libraries but never run them (deltalake's runtime does not
# survive a fork), so a child costs milliseconds instead of the seconds of those imports.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["deltalake", "hypothesis.strategies", "pandera.polars", "pyarrow.dataset", "pyarrow.parquet", __name__]
)

MODULES = {"manifests": manifests, "snapshots": snapshots, "staging": staging, "os": os}


CHILD_LEASE_S = 2.0  # in an object store, where the lease of a killed child has to expire


def start(work: Any, *arguments: Any) -> Any:
    """A child that finds the object store where this process finds it."""
    environment = {
        name: value for name, value in os.environ.items() if name.startswith("AWS_") or name == LOCAL_VARIABLE
    }
    process = PROCESSES.Process(target=_child, args=(environment, work, arguments))
    process.start()
    return process


def _child(environment: dict[str, str], work: Any, arguments: tuple[Any, ...]) -> None:
    os.environ.update(environment)  # the server of the children was started with another one
    s3_lease.LEASE_S = CHILD_LEASE_S
    work(*arguments)


def finish(process: Any, timeout_s: float = 60) -> int:
    process.join(timeout_s)
    assert process.exitcode is not None, "the child hangs"
    return int(process.exitcode)


def kill_at(point: str) -> None:
    """Make this process kill itself when ``module.function`` is entered (``before``) or has returned (``after``)."""
    when, _, target = point.partition(" ")
    module_name, function_name = target.split(".")
    module = MODULES[module_name]
    real = getattr(module, function_name)

    def killing(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(module, function_name, killing)


OLD = trace_ids(900)
NEW = trace_ids(700, start=500)


def rows(table: Table, ids: list[str], day: str = DAY) -> pa.Table:
    if not table.big_text:
        return fill(table, ids, day)
    return fill(table, ids, day, messages=[f'[{{"role": "user", "content": "{name * 40}"}}]' for name in ids])


def publish_new(root: str, table_name: str, point: str) -> None:
    """Child: publish the new day, killed at a point (a function of the publish, or a batch of its input)."""
    table = TABLES[table_name]

    def arriving() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(rows(table, NEW).to_batches(max_chunksize=100)):
            if point == f"batch {number}":
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    if point.split(" ")[0] in ("before", "after"):
        kill_at(point)
    put(Lake(root), table, arriving(), identity="new")


def publish_with_a_small_limit(root: str, table_name: str, result: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
    random_text = random.Random(3)
    table = TABLES[table_name]
    ids = trace_ids(2000)
    column = "messages" if table.big_text else "reasoning_explanation"
    data = fill(table, ids, **{column: [random_text.randbytes(30).hex() for _ in ids]})
    try:
        put(Lake(root), table, data.to_batches(max_chunksize=200), identity="new")
    except FailPartition as error:
        Path(result).write_text(str(error))


def publish_day(root: str, table_name: str, day: str, ids: list[str], identity: str, barrier: Any, result: str) -> None:
    """Child: meets the others when it has seen the present state and staged its rows, then commits."""
    table = TABLES[table_name]

    def meet(_: pa.Table) -> None:
        barrier.wait(30)

    try:
        manifest = put(Lake(root), table, rows(table, ids, day), day=day, identity=identity, verify=[meet])
        said = {"published": manifest.content_digest, "version": manifest.table_version}
    except FailPartition as error:
        said = {"refused": str(error)}
    Path(result).write_text(json.dumps(said))


def hold_the_lease(root: str, table_name: str, held: str) -> None:
    with Lake(root).storage.lease(table_name):
        Path(held).touch()
        time.sleep(60)


def publish_often(root: str, table_name: str, number: int, times: int, result: str) -> None:
    """Child: publishes days of its choice under leases that are worth nothing; writes down what became of each."""
    s3_lease.LEASE_S = 0.01
    s3_lease._Held._renew = lambda self: None  # type: ignore[method-assign]
    lake, table = Lake(root), TABLES[table_name]
    choose, said = random.Random(number), []
    for turn in range(times):
        day = f"2026-04-0{choose.randint(1, 3)}"
        ids = trace_ids(20, start=1000 * number + 20 * turn)
        try:
            manifest = put(lake, table, rows(table, ids, day), day=day, identity=f"{number}-{turn}")
            said.append([day, "published", manifest.content_digest])
        except FailPartition as error:
            said.append([day, "refused", str(error)])
    Path(result).write_text(json.dumps(said))


def vacuum_often(root: str, times: int) -> None:
    """Child: removes what no log names, under leases that are worth nothing."""
    s3_lease.LEASE_S = 0.01
    for _ in range(times):
        Lake(root).vacuum(tables=["trajectories", "raw_traces"])
