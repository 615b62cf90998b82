"""Every kind of fault: what is done, what is promised, how many seeds run by default and in the long run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trajectory_platform_tests.faults import damages, disks, fetches, killed, orchestrated, processes, stores
from trajectory_platform_tests.faults.oracle import Outcome

OLD_OR_NEW = "readers see the old day or the new one; a rerun ends with the content of an undisturbed lake"
NAMED = "named with file and reason; nothing beside it is hidden; repaired as the words say"


class Kind(NamedTuple):
    """A kind of fault.

    Attributes:
        default: seeds of the default suite; 0 = only in the long run.
        long: seeds of the long run.
    """

    name: str
    fault: Callable[[int], Outcome]
    done: str
    promised: str
    default: int
    long: int = 50


KINDS = (
    Kind("kill: ingest", killed.ingest, "SIGKILL at a drawn call of the day's flow", OLD_OR_NEW, 3),
    Kind("kill: publish, local", killed.publish_local, "SIGKILL inside the lake's code", OLD_OR_NEW, 3),
    Kind("kill: publish, S3", stores.killed, "SIGKILL inside the lake's code", OLD_OR_NEW, 3),
    Kind("kill: fetch", fetches.killed, "SIGKILL inside the API client", "no byte lost, nothing fetched twice", 3),
    Kind("kill: LLM judge", killed.judge, "SIGKILL at a drawn call", "no answered call is paid for twice", 1),
    Kind("kill: train", killed.train, "SIGKILL of the trainer at a drawn step", "no half checkpoint, equal weights", 1),
    Kind("kill: sensor", orchestrated.sensor, "SIGKILL at Dagster's points of a tick", "no run twice, none lost", 1),
    Kind("disk: full", disks.full, "a file system with a drawn number of free pages", OLD_OR_NEW, 3),
    Kind("disk: file size", disks.file_limit, "RLIMIT_FSIZE below one of the files", OLD_OR_NEW, 3),
    Kind("disk: read-only", disks.read_only, "folders of the lake without the right to write", OLD_OR_NEW, 3),
    Kind(
        "source: truncated artifact",
        disks.truncated_artifact,
        "a raw file ends in the middle",
        "one row with its reason",
        3,
    ),
    Kind("source: poisoned day", orchestrated.poisoned, "a listing of one day is no listing", "the day fails alone", 3),
    Kind("S3: errors", stores.errors, "500 and 503, passing or for good", OLD_OR_NEW, 2),
    Kind("S3: slow", stores.slow, "answers late", OLD_OR_NEW, 1),
    Kind("S3: cut and lost", stores.cut, "bodies cut, answers lost after the work", OLD_OR_NEW, 2),
    Kind("S3: upload part", stores.part, "parts of a large upload refused", OLD_OR_NEW, 1),
    Kind("two runs", processes.two_runs, "ingest of the same days at once", OLD_OR_NEW, 3),
    Kind(
        "two writers, local", processes.two_writers_local, "other rows of one day at once", "one wins, one is told", 2
    ),
    Kind("two writers, S3", processes.two_writers_s3, "other rows of one day at once", "one wins, one is told", 2),
    Kind("clock: ingest", processes.clock, "jumps by seconds to years, both ways", "equal content", 2),
    Kind("clock: fetch", fetches.clock, "jumps by minutes to a year, both ways", "no byte lost, within the limit", 1),
    Kind("worker out of memory", processes.worker, "a pool worker killed, or without memory", OLD_OR_NEW, 1),
    Kind("damage: Delta log", damages.log_entry, "an entry or the checkpoint is spoiled", NAMED, 3),
    Kind("damage: manifest", damages.manifest, "a manifest is spoiled", NAMED, 2),
    Kind("damage: data file", damages.data_file, "a Parquet file is cut or gone", NAMED, 2),
    Kind("damage: value index", damages.lost_index, "indexes are spoiled or gone", "the same answers", 2),
    Kind("damage: sealed ledger", damages.sealed_ledger, "a line changed, removed, cut, added", "named for ever", 2),
    Kind(
        "API: faults",
        fetches.api,
        "twelve drawn faults of the API on three mornings",
        "no byte lost, within the limit",
        1,
    ),
    Kind("API: down", fetches.down, "listings answer 5xx for long", "what was there stays; complete later", 0, 10),
    Kind("Postgres restart", orchestrated.postgres, "Dagster's database restarted during a run", OLD_OR_NEW, 0, 10),
    Kind("webserver and daemon restart", orchestrated.backfill, "all killed in a backfill", "it goes on", 0, 5),
)
