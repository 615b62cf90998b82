"""A lake on S3: the same answers, conditional puts, leases that expire, refused commits, faults of the store."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition, RetryLater
from trajectory_platform.lake import ledger, manifests, object_store, s3_lease, s3_storage, snapshots, value_index
from trajectory_platform.lake.ledger import HEAD, LEDGER, read_ledger
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.s3_lease import lease
from trajectory_platform.lake.storage import Content
from trajectory_platform.lake.tables import RAW_TRACES, TRAJECTORIES, Table
from trajectory_platform.lake.verification import verify
from trajectory_platform_tests.lake.children import finish, publish_often, start, vacuum_often
from trajectory_platform_tests.lake.rows import DAY, DAY2, data_files, fill, put, trace_ids
from trajectory_platform_tests.lake.test_ledger import look
from trajectory_platform_tests.s3_server import Server

SLOW = pytest.mark.slow
BOTH_PATHS = pytest.mark.parametrize("table", [RAW_TRACES, TRAJECTORIES], ids=["small", "big-text"])


def published(lake: Lake, table: Table, first: int, day: str = DAY, **more: Any) -> Any:
    """Three rows whose ids begin with a number, so that each publish is told from the others."""
    return put(lake, table, fill(table, trace_ids(3, start=first), day), day=day, identity=f"of {first}", **more)


def ids(lake: Lake, table: Table, day: str = DAY) -> list[str]:
    return Lake(lake.uri).read(table, [day], columns=["trace_id"]).column(0).to_pylist()  # type: ignore[no-any-return]


@BOTH_PATHS
def test_a_day_on_s3_is_the_day_on_disk(s3_lake: Lake, tmp_path: Path, table: Table) -> None:
    local = Lake(str(tmp_path / "lake"))
    rows = fill(table, trace_ids(900))
    there, here = put(s3_lake, table, rows), put(local, table, rows)
    assert there.content_digest == here.content_digest
    assert s3_lake.read(table).equals(local.read(table))
    assert s3_lake.days(table) == [DAY] and s3_lake.is_current(table, DAY, "one")
    named = ["run000007:p", "run000800:p", "nobody"]
    assert s3_lake.lookup(table, "trace_id", named).equals(local.lookup(table, "trace_id", named))
    assert s3_lake.manifests(table) == [s3_lake.manifest(table, DAY)]
    assert verify(s3_lake) == []
    copied = pickle.loads(pickle.dumps(s3_lake))  # noqa: S301 - our own bytes: stages send their context to workers
    assert copied.read(table).equals(rows)


def test_an_index_is_fetched_once_and_kept(s3_lake: Lake, s3: Server, tmp_path: Path) -> None:
    put(s3_lake, RAW_TRACES, fill(RAW_TRACES, trace_ids(900)))
    elsewhere = Lake(s3_lake.uri, tmp_path / "another machine")
    s3.requests()
    for _ in range(2):
        assert elsewhere.lookup(RAW_TRACES, "trace_id", ["run000007:p"]).num_rows == 1
    asked = [one for one in s3.requests() if value_index.FOLDER in one]
    assert len(asked) == 1 and asked[0].startswith("GET")


def test_local_and_remote_workspaces_are_apart(s3_lake: Lake, tmp_path: Path) -> None:
    other = Lake(s3_lake.uri + "/other")
    assert s3_lake.workspace != other.workspace and s3_lake.workspace.is_relative_to(tmp_path)
    with pytest.raises(Abort, match="no local folder"):
        _ = s3_lake.root


# --- conditional puts ----------------------------------------------------------------------------------------------


def test_a_small_file_is_replaced_only_as_it_was_seen(s3_lake: Lake) -> None:
    store = s3_lake.storage
    first = store.write("some/file", b"one", None)
    with pytest.raises(FailPartition, match="some/file was written by another process"):
        store.write("some/file", b"two", None)
    second = store.write("some/file", b"two", first)
    with pytest.raises(FailPartition, match="by another process"):
        store.write("some/file", b"three", first)
    with pytest.raises(FailPartition, match="by another process"):
        store.write("some/none", b"three", first)
    assert store.read("some/file") == second and second.data == b"two"
    assert store.read("some/none") is None
    assert store.names("some") == ["file"] and store.sizes("some", ["file", "none"]) == {"file": 3}


def test_of_many_conditional_puts_one_wins(s3_lake: Lake) -> None:
    won: list[int] = []

    def write(number: int) -> None:
        if s3_lake.storage.put("contended", str(number).encode(), None) is not None:
            won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = s3_lake.storage.read("contended")
    assert found is not None and [found.data] == [str(number).encode() for number in won]


def test_a_put_whose_answer_was_lost_is_known_again(s3_lake: Lake, s3: Server) -> None:
    s3.play("PUT", "some/file", lose=True)
    written = s3_lake.storage.write("some/file", b"one", None)
    assert s3_lake.storage.read("some/file") == written
    assert [one for one in s3.requests() if one.startswith("PUT")] == [f"PUT /{s3.bucket_name}/team/lake/some/file"] * 2


def test_a_store_that_ignores_conditions_is_refused(s3_lake: Lake, s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_storage, "_tested", set())
    s3.play("PUT", "_leases", times=9, ignore=True)
    with pytest.raises(Abort, match="ignores conditional puts"):
        published(s3_lake, RAW_TRACES, 0)
    s3.calm()
    published(s3_lake, RAW_TRACES, 0)
    assert ids(s3_lake, RAW_TRACES) == trace_ids(3)


# --- leases --------------------------------------------------------------------------------------------------------


def test_a_lease_has_one_holder_who_is_named(s3_lake: Lake) -> None:
    with (
        s3_lake.storage.lease("t"),
        pytest.raises(FailPartition, match="table t is being written by process [0-9]+ on .* for more than 0.2 s"),
        s3_lake.storage.lease("t", 0.2),
    ):
        pass
    with s3_lake.storage.lease("t", 0.2), s3_lake.storage.lease("other", 0.2):
        pass


@SLOW
def test_a_lease_is_renewed_while_it_is_held(s3_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_lease, "LEASE_S", 1.0)
    with s3_lake.storage.lease("t"), pytest.raises(FailPartition, match="being written"), s3_lake.storage.lease("t", 4):
        pass


def test_a_lease_nobody_renews_is_taken_over(s3_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_lease, "LEASE_S", 0.5)
    with standing_still(monkeypatch), s3_lake.storage.lease("t"), s3_lake.storage.lease("t", 10):
        held = json.loads(s3_lake.storage.read("_leases/t.json").data)
    freed = json.loads(s3_lake.storage.read("_leases/t.json").data)
    assert freed == {**held, "free": True}, "the first holder leaves the lease of the second alone"


def test_a_damaged_lease_expires_like_any(s3_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_lease, "LEASE_S", 0.2)
    s3_lake.storage.write("_leases/t.json", b"\xff{")
    with s3_lake.storage.lease("t", 10):
        pass


@contextmanager
def standing_still(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leases are taken, and not renewed: their holders stand still."""
    with monkeypatch.context() as patch:
        patch.setattr(s3_lease._Held, "_renew", lambda self: None)
        yield


# --- a holder whose lease has expired ------------------------------------------------------------------------------

MIDDLES = {  # where the holder stands still: module, function, before or after it
    "before the commit": (snapshots, "_replace", False),
    "after the upload": (snapshots, "_commit_options", True),
    "before the manifest": (manifests, "save", False),
}


def interrupted(monkeypatch: pytest.MonkeyPatch, middle: str, meanwhile: Callable[[], None]) -> None:
    """The next time the middle of a publish is reached, something happens there first."""
    module, name, upload = MIDDLES[middle]
    real = getattr(module, name)
    where = snapshots if upload else module
    target = "place" if upload else name
    original = getattr(where, target)

    def once(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named) if upload else None
        monkeypatch.setattr(where, target, original)
        meanwhile()
        return result if upload else real(*arguments, **named)

    monkeypatch.setattr(where, target, once)


@pytest.fixture
def expiring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leases of a moment that nobody renews."""
    monkeypatch.setattr(s3_lease, "LEASE_S", 0.1)
    with standing_still(monkeypatch):
        yield


@pytest.mark.usefixtures("expiring")
@pytest.mark.parametrize(
    ("table", "middle", "before"),
    [
        (RAW_TRACES, "before the commit", True),
        (RAW_TRACES, "before the manifest", True),
        (TRAJECTORIES, "after the upload", True),
        (TRAJECTORIES, "before the manifest", False),
        pytest.param(RAW_TRACES, "before the commit", False, marks=SLOW),
        pytest.param(RAW_TRACES, "before the manifest", False, marks=SLOW),
        pytest.param(TRAJECTORIES, "before the commit", False, marks=SLOW),
        pytest.param(TRAJECTORIES, "before the commit", True, marks=SLOW),
        pytest.param(TRAJECTORIES, "after the upload", False, marks=SLOW),
        pytest.param(TRAJECTORIES, "before the manifest", True, marks=SLOW),
    ],
    ids=lambda value: value.name if isinstance(value, Table) else str(value),
)
def test_who_comes_back_after_another_published_the_day_is_told(
    s3_lake: Lake, monkeypatch: pytest.MonkeyPatch, table: Table, middle: str, before: bool
) -> None:
    if before:
        published(s3_lake, table, 0)
    interrupted(monkeypatch, middle, lambda: published(Lake(s3_lake.uri), table, 100))
    with pytest.raises(FailPartition, match="by another process meanwhile"):
        published(s3_lake, table, 200)
    assert ids(s3_lake, table) == trace_ids(3, start=100)
    assert verify(s3_lake) == [] and s3_lake.is_current(table, DAY, "of 100")
    published(s3_lake, table, 300)
    s3_lake.vacuum(retention_days=0)
    assert ids(s3_lake, table) == trace_ids(3, start=300) and verify(s3_lake) == []


@pytest.mark.usefixtures("expiring")
@BOTH_PATHS
def test_who_comes_back_after_another_day_was_published_goes_on(
    s3_lake: Lake, monkeypatch: pytest.MonkeyPatch, table: Table
) -> None:
    interrupted(monkeypatch, "before the commit", lambda: published(Lake(s3_lake.uri), table, 100, DAY2))
    published(s3_lake, table, 200)
    assert (ids(s3_lake, table), ids(s3_lake, table, DAY2)) == (trace_ids(3, start=200), trace_ids(3, start=100))
    assert verify(s3_lake) == []


@pytest.mark.usefixtures("expiring")
@pytest.mark.parametrize("middle", ["after the upload", "before the commit"])
def test_vacuum_takes_no_file_that_a_late_commit_names(
    s3_lake: Lake, monkeypatch: pytest.MonkeyPatch, middle: str
) -> None:
    """The files of a holder that stands still are in no log: vacuum removes them, and the holder uploads anew."""
    published(s3_lake, TRAJECTORIES, 0)
    removed: list[str] = []
    interrupted(monkeypatch, middle, lambda: removed.extend(Lake(s3_lake.uri).vacuum().removed))
    published(s3_lake, TRAJECTORIES, 200)
    assert len(removed) == (1 if middle == "after the upload" else 0)
    assert ids(s3_lake, TRAJECTORIES) == trace_ids(3, start=200) and verify(s3_lake) == []


@pytest.mark.usefixtures("expiring")
def test_no_look_at_sealed_problems_is_overwritten(s3_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    look(s3_lake, "k1")
    real = ledger._head_faults

    def once(*arguments: Any) -> Any:
        monkeypatch.setattr(ledger, "_head_faults", real)
        look(Lake(s3_lake.uri), "k2")
        return real(*arguments)

    monkeypatch.setattr(ledger, "_head_faults", once)
    with pytest.raises(FailPartition, match="by another process"):
        look(s3_lake, "k3")
    found = read_ledger(s3_lake)
    assert [one.keys for one in found.looks] == [("k1",), ("k2",)] and found.faults == ()


# --- faults of the store -------------------------------------------------------------------------------------------


FAULTS = {
    "refused": ({"status": 403, "code": "AccessDenied"}, Abort, "refuses access"),
    "skew": ({"status": 403, "code": "RequestTimeTooSkewed"}, RetryLater, "clock skew"),
    "busy": ({"status": 503, "code": "SlowDown"}, RetryLater, "slow down"),
    "broken": ({"status": 500, "code": "InternalError"}, RetryLater, "InternalError|500"),
}
WHERE = ("_manifests/", "_delta_log/0+2.json", "parquet", "_leases/")
QUICK = [("_delta_log/0+2.json", "refused"), ("_manifests/", "broken")]


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        pytest.param(where, fault, marks=[] if (where, fault) in QUICK else [SLOW])
        for where in WHERE
        for fault in FAULTS
    ],
)
def test_an_error_of_the_store_says_what_it_is_and_keeps_the_old_day(
    s3_lake: Lake, s3: Server, where: str, fault: str
) -> None:
    answer, kind, said = FAULTS[fault]
    for table in (RAW_TRACES, TRAJECTORIES):
        published(s3_lake, table, 0)
        s3.play("PUT", where, times=999, **answer)
        with pytest.raises(kind, match=said):
            published(s3_lake, table, 100)
        s3.calm()
        new = where == "_manifests/"
        assert ids(s3_lake, table) == trace_ids(3, start=100 if new else 0)
        assert s3_lake.is_current(table, DAY, "of 0") is not new
        published(s3_lake, table, 100)
        assert verify(s3_lake) == [] and ids(s3_lake, table) == trace_ids(3, start=100)
        lake_files = data_files(s3_lake)
        s3_lake.vacuum(retention_days=0)
        assert len([name for name in data_files(s3_lake) if name.startswith(table.name)]) == 1 <= len(lake_files)


@BOTH_PATHS
@pytest.mark.parametrize("where", ["_delta_log/0+1.json", "_manifests/", "parquet$"])
def test_an_answer_that_was_lost_changes_nothing(s3_lake: Lake, s3: Server, table: Table, where: str) -> None:
    s3.play("PUT", where, lose=True)
    manifest = published(s3_lake, table, 0)
    assert manifest.table_version == 1 and s3_lake.manifest(table, DAY) == manifest
    assert ids(s3_lake, table) == trace_ids(3) and verify(s3_lake) == []


@BOTH_PATHS
def test_an_answer_that_is_cut_is_asked_for_again(s3_lake: Lake, s3: Server, table: Table) -> None:
    published(s3_lake, table, 0)
    for where in ("_manifests/", "parquet$"):
        s3.play("GET", where, cut=True)
        assert s3_lake.is_current(table, DAY, "of 0")
        assert ids(s3_lake, table) == trace_ids(3)
    assert verify(s3_lake) == []
    for number, where in enumerate(("_last_checkpoint", r"_delta_log/.*\.json", "_delta_log"), 1):
        fresh, held = Lake(s3_lake.uri), ids(s3_lake, table)
        s3.play("GET", where, times=2, cut=True)
        assert ids(fresh, table) == held
        s3.play("GET", where, times=2, cut=True)
        published(fresh, table, number)
        assert s3_lake.is_current(table, DAY, f"of {number}")
        s3.calm()


@SLOW
def test_a_store_that_cannot_be_read_now_is_not_called_damaged(s3_lake: Lake, s3: Server) -> None:
    published(s3_lake, RAW_TRACES, 0)
    s3.play("GET", "parquet", times=999, status=500, code="InternalError")
    with pytest.raises(RetryLater, match="storage_unavailable"):
        s3_lake.read(RAW_TRACES)
    with pytest.raises(RetryLater, match="storage_unavailable"):
        verify(s3_lake)
    s3.calm()
    assert verify(s3_lake) == []


def test_a_missing_bucket_is_named(s3: Server) -> None:
    lake = Lake(f"s3://nowhere{s3.bucket_name}/lake")
    asked = (lambda: lake.read(RAW_TRACES), lambda: lake.storage.read("file"), lambda: published(lake, RAW_TRACES, 0))
    for ask in asked:
        with pytest.raises(Abort, match="bucket 'nowhere.*' of the lake does not exist"):
            ask()


def test_a_store_that_does_not_answer_is_waited_for_and_named(s3_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(RetryLater, match="storage_unavailable"):
        Lake(s3_lake.uri).read(RAW_TRACES)
    with pytest.raises(RetryLater, match="storage_unavailable"):
        s3_lake.storage.read("some/file")


def test_missing_credentials_are_no_damage_and_nothing_is_printed(
    s3_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The advice for a damaged table, to set its folder aside, would be harmful here."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for profile, said in ((None, "set the AWS_"), ("nobody", r"profile \(nobody\)")):
        if profile:
            monkeypatch.setenv("AWS_PROFILE", profile)
        with pytest.raises(Abort, match=f"no credentials for .*{said}") as told:
            Lake(s3_lake.uri).read(RAW_TRACES)
        assert "restore" not in str(told.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Kernel error -> an error occurred while loading credentials failed to load IMDS session token", "no credent"),
        ("Generic S3 error: Received redirect without LOCATION, this normally indicates an incorrectly", "AWS_REGION"),
        ("Generic S3 error: <Code>AuthorizationHeaderMalformed</Code>: expecting 'eu-west-1'", "AWS_REGION"),
        ("Generic S3 error: Client error with status 403 Forbidden: <Code>AccessDenied</Code>", "refuses access"),
    ],
)
def test_what_bars_the_way_to_a_table_is_not_called_damage(s3_lake: Lake, text: str, said: str) -> None:
    with (
        pytest.raises(Abort, match=said) as told,
        snapshots.plain_errors(s3_lake.storage, "table raw_traces: the log cannot be read", " (set it aside)"),
    ):
        raise OSError(text)
    assert "aside" not in str(told.value)


def test_without_boto3_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Abort, match=r"pip install 'trajectory-platform\[deploy\]'"):
        Lake("s3://bucket/lake")


def test_an_upload_in_parts_is_there_whole_or_not(
    s3_lake: Lake, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 takes parts of 5 MB and more."""
    monkeypatch.setattr(s3_storage, "PART_BYTES", 5 << 20)
    file = tmp_path / "staged"
    file.write_bytes(bytes(range(256)) * (12 << 12))
    s3.play("PUT", "big", times=999, status=500, code="InternalError")
    with pytest.raises(RetryLater, match="was not uploaded"):
        s3_lake.storage.place(file, "trajectories/big.parquet")
    s3.calm()
    assert s3_lake.storage.walk("trajectories") == {} and unfinished(s3) == []
    s3_lake.storage.place(file, "trajectories/big.parquet")
    assert s3_lake.storage.read("trajectories/big.parquet") == Content(
        file.read_bytes(), s3_lake.storage.read("trajectories/big.parquet").tag
    )


def test_vacuum_drops_uploads_that_were_cut_off(s3_lake: Lake, s3: Server) -> None:
    published(s3_lake, TRAJECTORIES, 0)
    folder = "team/lake/trajectories/day=2026-03-01"
    object_store.client().create_multipart_upload(Bucket=s3.bucket_name, Key=f"{folder}/part-dead.parquet")
    left = f"trajectories/day={DAY}/part-other.parquet"
    s3_lake.storage.write(left, b"of a killed writer")
    assert s3_lake.vacuum(dry_run=True).removed == s3_lake.vacuum().removed == [left]
    assert unfinished(s3) == [] and verify(s3_lake) == []


def unfinished(s3: Server) -> list[str]:
    found = object_store.client().list_multipart_uploads(Bucket=s3.bucket_name)
    return [one["Key"] for one in found.get("Uploads", ())]


def test_a_look_without_its_head_is_taken_back(s3_lake: Lake, s3: Server) -> None:
    look(s3_lake, "k1")
    before = s3_lake.storage.read(LEDGER), s3_lake.storage.read(HEAD)
    for _ in range(2):
        s3.play("PUT", HEAD, times=99, status=500, code="InternalError")
        with pytest.raises(RetryLater):
            look(s3_lake, "k2")
        s3.calm()
    assert (s3_lake.storage.read(LEDGER), s3_lake.storage.read(HEAD)) == before
    look(s3_lake, "k2")
    assert read_ledger(s3_lake).faults == () and len(read_ledger(s3_lake).looks) == 2


@SLOW
def test_a_slow_store_only_takes_longer(s3_lake: Lake, s3: Server) -> None:
    s3.play("*", ".", times=99, delay=0.05)
    published(s3_lake, TRAJECTORIES, 0)
    assert ids(s3_lake, TRAJECTORIES) == trace_ids(3)


def test_a_lease_of_another_lake_is_another_lease(s3: Server) -> None:
    one, other = (Lake(f"s3://{s3.bucket_name}/{name}") for name in ("one", "other"))
    with lease(one.storage, "t", 1), lease(other.storage, "t", 1):  # type: ignore[arg-type]
        pass


@SLOW
@BOTH_PATHS
def test_processes_whose_leases_are_worth_nothing_lose_nothing(s3_lake: Lake, tmp_path: Path, table: Table) -> None:
    """Three processes publish the same days again and again, one vacuums, and every lease has expired at once."""
    results = [tmp_path / f"said{number}" for number in range(3)]
    children = [
        start(publish_often, s3_lake.uri, table.name, number, 10, str(result)) for number, result in enumerate(results)
    ]
    children.append(start(vacuum_often, s3_lake.uri, 4))
    assert [finish(child, 300) for child in children] == [0] * 4
    said = [one for result in results for one in json.loads(result.read_text())]
    refusals = {text for _, what, text in said if what == "refused"}
    assert all("by another process meanwhile" in text or "other writers took" in text for text in refusals), refusals
    days = sorted({day for day, what, _ in said if what == "published"})
    # a commit whose manifest came too late is there without one, as after a kill: the day is not current
    assert {one.reason for one in verify(s3_lake)} <= {"manifest_stale"}
    for manifest in s3_lake.manifests(table):
        assert [manifest.day, "published", manifest.content_digest] in said
    for day in days:
        found = ids(s3_lake, table, day)
        assert found == trace_ids(20, start=int(found[0][3:9])), "whole days of one publish each"
        put(s3_lake, table, fill(table, trace_ids(5), day), day=day, identity="last")
    assert verify(s3_lake) == []
