"""An object store that fails: errors, slow and cut answers, lost answers, a part that is refused, killed writers."""

from __future__ import annotations

import atexit
import itertools
import os
import tempfile
from functools import cache

import pyarrow as pa

from trajectory_platform.errors import PlatformError
from trajectory_platform.lake import s3_lease
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.storage import LOCAL_VARIABLE
from trajectory_platform.lake.tables import TRAJECTORIES, Table
from trajectory_platform_tests import s3_server
from trajectory_platform_tests.faults import oracle
from trajectory_platform_tests.faults.bench import chance, scratch
from trajectory_platform_tests.faults.killed import BOTH, digests_of, publish_at
from trajectory_platform_tests.faults.oracle import NotHere, Outcome, Reader
from trajectory_platform_tests.lake import children
from trajectory_platform_tests.lake.rows import DAY, fill, put, trace_ids

_numbers = itertools.count()


@cache
def _server() -> s3_server.Server:
    """One server for this process, ended with it; the variables of this process lead there."""
    try:
        import boto3  # noqa: F401
        import moto.server  # noqa: F401
    except ImportError as error:
        raise NotHere(f"{error.name} is not installed") from error
    context = s3_server.running()
    server = context.__enter__()
    atexit.register(context.__exit__, None, None, None)
    return server


def store() -> tuple[s3_server.Server, str]:
    """A calm server and the address of a lake in a bucket of its own."""
    server = _server()
    server.calm()
    for name in ("AWS_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        os.environ.pop(name, None)
    os.environ.update(server.environment)
    os.environ[LOCAL_VARIABLE] = tempfile.mkdtemp(prefix="workspace-", dir=scratch())
    s3_lease.LEASE_S = children.CHILD_LEASE_S  # that of a killed child has to expire
    name = f"faults{os.getpid()}x{next(_numbers)}"
    server.bucket(name)
    server.bucket_name = name
    return server, f"s3://{name}/team/lake"


def killed(seed: int) -> Outcome:
    """A publish over an old day on S3, killed inside the lake's code."""
    _, uri = store()
    return publish_at(uri, "publish-s3", seed)


_PLACES = ("_manifests/", "_delta_log/", "parquet", "_leases/", ".")


def _publish(lake: Lake, table: Table) -> str:
    """Try to publish the new day; the error's words."""
    try:
        put(lake, table, children.rows(table, children.NEW), identity="new")
    except PlatformError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _old_day(uri: str, table: Table) -> Lake:
    lake = Lake(uri)
    put(lake, table, children.rows(table, children.OLD), identity="old")
    return lake


def _after(lake: Lake, table: Table, said: str, outcome: Outcome) -> Outcome:
    """The store is well again: the rerun, and everything as if nothing had been."""
    again = _publish(lake, table)
    outcome.completes = again == "" and lake.is_current(table, DAY, "new")
    outcome.notes += [f"rerun: {again}"] if again else []
    oracle.compare(lake, {(table.name, DAY): digests_of(table.name)["new"]}, outcome)
    return outcome


def errors(seed: int) -> Outcome:
    """Answers of 500 and 503 at one kind of file, some or for good."""
    draw, outcome = chance("s3-errors", seed), Outcome()
    table, (server, uri) = BOTH[seed % 2], store()
    lake, slot = _old_day(uri, table), (table.name, DAY)
    status, code = draw.choice([(500, "InternalError"), (503, "SlowDown"), (503, "ServiceUnavailable")])
    where, method, times = draw.choice(_PLACES), draw.choice(["PUT", "GET", "*"]), draw.choice([1, 2, 9999])
    outcome.at = f"{method} {where} {status} x {times}"
    seen = set(digests_of(table.name).values())
    server.play(method, where, times=times, status=status, code=code)
    with Reader(uri, {slot: seen}, [slot]) as reader:
        said = _publish(lake, table)
        server.calm()
    reader.count(outcome)
    if times < 3:
        outcome.expect(said == "", f"a passing error was not retried: {said}")
    elif said:
        outcome.say(
            said,
            "RetryLater",
            "storage_unavailable|throttl|slow",
            f"{table.name}|{lake.uri}|{where}",
            "again|later|retry|tries",
        )
    return _after(lake, table, said, outcome)


def slow(seed: int) -> Outcome:
    """Answers that take their time."""
    draw, outcome = chance("s3-slow", seed), Outcome()
    table, (server, uri) = BOTH[seed % 2], store()
    lake, slot = _old_day(uri, table), (table.name, DAY)
    delay, where = draw.uniform(0.05, 0.6), draw.choice(_PLACES)
    outcome.at = f"{where} {delay:.2f} s x 5"
    server.play(draw.choice(["PUT", "*"]), where, times=5, delay=delay)
    with Reader(uri, {slot: set(digests_of(table.name).values())}, [slot]) as reader:
        said = _publish(lake, table)
    reader.count(outcome)
    outcome.expect(said == "", f"slow is not broken: {said}")
    return _after(lake, table, said, outcome)


def cut(seed: int) -> Outcome:
    """Bodies cut in the middle, and answers lost after the work was done."""
    draw, outcome = chance("s3-cut", seed), Outcome()
    table, (server, uri) = BOTH[seed % 2], store()
    lake, slot = _old_day(uri, table), (table.name, DAY)
    for _ in range(draw.randint(1, 3)):
        where = draw.choice(_PLACES)
        lost = draw.randrange(2)
        server.play("PUT" if lost else "GET", where, **({"lose": True} if lost else {"cut": True}))
        outcome.at += f"{'lost' if lost else 'cut'} {where}; "
    with Reader(uri, {slot: set(digests_of(table.name).values())}, [slot]) as reader:
        said = _publish(lake, table)
    reader.count(outcome)
    outcome.expect(said == "", f"not retried: {said}")
    return _after(lake, table, said, outcome)


def part(seed: int) -> Outcome:
    """A large upload of which parts are refused: no file, no commit, the old day; sent anew in the end."""
    from trajectory_platform.lake import s3_storage

    draw, outcome = chance("s3-part", seed), Outcome()
    server, uri = store()
    table, slot = TRAJECTORIES, (TRAJECTORIES.name, DAY)
    lake, large = _old_day(uri, table), _large(seed)
    digest = put(Lake(tempfile.mkdtemp(prefix="large-", dir=scratch())), table, large, identity="new").content_digest
    times = draw.choice([1, 2, 9999])
    outcome.at = f"parts refused: {times}"
    said, real = "", s3_storage.PART_BYTES
    try:
        s3_storage.PART_BYTES = 5 << 20
        server.requests()
        server.play("PUT", "parquet", times=times, status=500, code="InternalError")
        with Reader(uri, {slot: {digests_of(table.name)["old"], digest}}, [slot]) as reader:
            try:
                put(lake, table, large, identity="new")
            except PlatformError as error:
                said = f"{type(error).__name__}: {error}"
        reader.count(outcome)
        server.calm()
        if times < 3:
            outcome.expect(said == "", f"a refused part was not sent again: {said}")
        else:
            outcome.say(said, "RetryLater", "was not uploaded", "storage_unavailable")
        put(lake, table, large, identity="new")
    finally:
        s3_storage.PART_BYTES = real
    outcome.completes = lake.is_current(table, DAY, "new")
    oracle.compare(lake, {slot: digest}, outcome)
    return outcome


def _large(seed: int) -> pa.Table:
    """A day whose one file is sent in parts."""
    draw, ids = chance("large", seed), trace_ids(60)
    return fill(TRAJECTORIES, ids, messages=[draw.randbytes(110_000).hex() for _ in ids])
