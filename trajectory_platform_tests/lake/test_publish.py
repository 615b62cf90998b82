"""What a publish promises: whole days, declared types, no commit without a change, nothing stale."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.lake import staging
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.snapshots import open_snapshot
from trajectory_platform.lake.tables import (
    CHECKPOINTS,
    PROBLEM_SUITES,
    RAW_TRACES,
    TABLES,
    TRAJECTORIES,
    VERDICTS,
    Table,
)
from trajectory_platform.lake.verification import verify
from trajectory_platform_tests.lake.rows import DAY, DAY2, LOCAL, batches, data_files, fill, put, trace_ids

BOTH_PATHS = pytest.mark.parametrize("table", [RAW_TRACES, TRAJECTORIES], ids=["small", "big-text"])


def version(lake: Lake, table: Table) -> int:
    snapshot = open_snapshot(lake.storage, table)
    assert snapshot is not None
    return snapshot.version


@BOTH_PATHS
def test_rows_come_back_as_published_in_key_order(lake: Lake, table: Table) -> None:
    rows = fill(table, trace_ids(700))
    manifest = put(lake, table, rows.take(list(reversed(range(700)))))
    assert lake.read(table).equals(rows)
    assert lake.read(table).schema.equals(table.schema())
    assert manifest.rows == 700
    assert lake.is_current(table.name, DAY, "one")
    assert not lake.is_current(table.name, DAY, "two")
    assert lake.days(table) == [DAY]


@BOTH_PATHS
def test_equal_rows_make_no_commit(lake: Lake, table: Table) -> None:
    first = put(lake, table, fill(table, trace_ids(10)))
    before = version(lake, table)
    second = put(lake, table, fill(table, trace_ids(10)))
    third = put(lake, table, fill(table, trace_ids(10)), identity="new code, same rows", code_version="2")
    assert version(lake, table) == before
    assert second == first
    assert third.table_version == first.table_version and third.content_digest == first.content_digest
    assert lake.is_current(table, DAY, "new code, same rows") and not lake.is_current(table, DAY, "one")


@BOTH_PATHS
def test_fewer_rows_leave_nothing_stale(lake: Lake, table: Table) -> None:
    put(lake, table, fill(table, trace_ids(600)))
    put(lake, table, fill(table, trace_ids(5), DAY2), day=DAY2)
    put(lake, table, fill(table, trace_ids(3)), identity="two")
    assert lake.read(table, [DAY]).column("trace_id").to_pylist() == trace_ids(3)
    assert lake.read(table).num_rows == 8
    assert [batch.num_rows for batch in lake.batches(table, DAY)] == [3]


@BOTH_PATHS
def test_an_empty_day_is_published_and_empties_an_old_one(lake: Lake, table: Table) -> None:
    empty = table.schema().empty_table()
    put(lake, table, empty)
    assert lake.is_current(table, DAY, "one") and lake.days(table) == [DAY]
    assert lake.read(table).schema.equals(table.schema()) and lake.read(table).num_rows == 0
    put(lake, table, fill(table, trace_ids(4)), identity="two")
    put(lake, table, empty, identity="three")
    assert lake.read(table).num_rows == 0
    assert lake.is_current(table, DAY, "three")
    assert list(lake.batches(table, DAY)) == []


@LOCAL
def test_missing_tables_and_days_read_as_empty(lake: Lake) -> None:
    assert lake.read(VERDICTS).equals(VERDICTS.schema().empty_table())
    assert lake.read(VERDICTS, [DAY], columns=["retryable", "trace_id"]).schema.names == ["retryable", "trace_id"]
    assert lake.days(VERDICTS) == [] and list(lake.batches(TRAJECTORIES, DAY)) == []
    assert lake.manifest("verdicts", DAY) is None
    assert not lake.root.exists(), "reading creates nothing"


def test_incomplete_days_are_never_current(lake: Lake) -> None:
    put(lake, VERDICTS, fill(VERDICTS, ["a"]), complete=False)
    assert lake.manifest(VERDICTS, DAY).complete is False
    assert not lake.is_current(VERDICTS, DAY, "one")
    put(lake, VERDICTS, fill(VERDICTS, ["a"]))
    assert lake.is_current(VERDICTS, DAY, "one")


def test_columns_and_filters_are_pushed_down(lake: Lake) -> None:
    rows = fill(RAW_TRACES, trace_ids(6), validator_score=[0.0, 1.0, None, 1.0, 0.0, 1.0])
    put(lake, RAW_TRACES, rows)
    put(lake, RAW_TRACES, fill(RAW_TRACES, trace_ids(2), DAY2), day=DAY2)
    read = lake.read(RAW_TRACES, [DAY], columns=["validator_score", "trace_id"], filter=pc.field("validator_score") > 0)
    assert read.to_pylist() == [{"validator_score": 1.0, "trace_id": trace_ids(6)[i]} for i in (1, 3, 5)]
    assert lake.read(RAW_TRACES, columns=["day"], filter=pc.field("day") == DAY2).num_rows == 2
    with pytest.raises(Abort, match="no column"):
        lake.read(RAW_TRACES, columns=["nope"])


@BOTH_PATHS
def test_batches_are_bounded_and_ordered(lake: Lake, table: Table) -> None:
    put(lake, table, fill(table, trace_ids(1000)))
    found = list(lake.batches(table, DAY, columns=["day", "trace_id"], batch_rows=100))
    assert max(batch.num_rows for batch in found) <= 100
    assert pa.Table.from_batches(found).column("trace_id").to_pylist() == trace_ids(1000)
    assert found[0].schema.names == ["day", "trace_id"]


def test_the_digest_does_not_depend_on_batches_order_or_type_layout(tmp_path: Path) -> None:
    rows = fill(TRAJECTORIES, trace_ids(600), query=[None, "é€"] * 300, flags=[[], ["a", None]] * 300)
    large = rows.cast(pa.schema([f.with_type(pa.large_string()) if f.type == pa.string() else f for f in rows.schema]))
    variants = [rows, batches(rows, 1), batches(rows, 255), rows.take(list(reversed(range(600)))), large]
    digests = {
        put(Lake(str(tmp_path / str(number))), TRAJECTORIES, data).content_digest
        for number, data in enumerate(variants)
    }
    assert len(digests) == 1


def test_files_of_big_text_are_bounded_and_read_in_order(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "FILE_BYTES", 300_000)
    rows = fill(TRAJECTORIES, trace_ids(2000), messages=["text " * 100] * 2000)
    manifest = put(lake, TRAJECTORIES, batches(rows, 90))
    assert len(manifest.files) == 4
    assert pa.Table.from_batches(list(lake.batches(TRAJECTORIES, DAY))).equals(rows)
    assert lake.read(TRAJECTORIES).equals(rows) and verify(lake) == []
    assert put(lake, TRAJECTORIES, rows, identity="two").table_version == manifest.table_version
    put(lake, TRAJECTORIES, rows.slice(5, 3), identity="three")
    assert lake.read(TRAJECTORIES).equals(rows.slice(5, 3))


@LOCAL
@pytest.mark.parametrize("table", list(TABLES.values()), ids=list(TABLES))
def test_every_declared_table_can_be_published(lake: Lake, table: Table) -> None:
    """Also: no text of a row is copied into the log, where a retraction would not reach it."""
    part = {"stage": "x"} if "stage" in table.partition else None
    ids = [DAY] if table.key == ("day",) else ["a", "b"]
    texts = {name: ["remarkable"] * len(ids) for name, kind in table.columns.items() if kind.startswith("text")}
    kept = {name: column for name, column in texts.items() if name not in {*table.key, *table.values, "day", "stage"}}
    lists = {name: [["remarkable"]] * len(ids) for name in kept if table.columns[name] == "texts"}
    rows = fill(table, ids, **{**kept, **lists})
    put(lake, table, rows, part=part)
    assert lake.read(table).equals(rows) and lake.is_current(table, DAY, "one", part)
    log = b"".join(path.read_bytes() for path in (lake.root / table.name / "_delta_log").iterdir())
    assert b"remarkable" not in log


@LOCAL
def test_row_groups_of_big_text_are_small(lake: Lake) -> None:
    import pyarrow.parquet as pq

    manifest = put(lake, TRAJECTORIES, fill(TRAJECTORIES, trace_ids(1000)).to_batches(max_chunksize=700))
    (name,) = manifest.files
    metadata = pq.read_metadata(lake.root / "trajectories" / name)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [256, 256, 256, 232]
    assert metadata.row_group(0).column(metadata.num_columns - 1).compression == "ZSTD"


def test_a_day_and_stage_is_a_slot_of_its_own(lake: Lake) -> None:
    def row(checkpoint: str, stage: str) -> pa.Table:
        return fill(CHECKPOINTS, [checkpoint], stage=[stage])

    put(lake, CHECKPOINTS, row("a", "sft"), part={"stage": "sft"})
    put(lake, CHECKPOINTS, row("b", "kto"), part={"stage": "kto"})
    put(lake, CHECKPOINTS, row("c", "sft"), part={"stage": "sft"}, identity="two")
    assert lake.read(CHECKPOINTS, columns=["checkpoint_id"]).column(0).to_pylist() == ["b", "c"]
    assert lake.is_current("checkpoints", DAY, "one", {"stage": "kto"})
    assert not lake.is_current("checkpoints", DAY, "one", {"stage": "sft"})
    with pytest.raises(Abort, match="stage must be given"):
        put(lake, CHECKPOINTS, row("d", "sft"))
    with pytest.raises(FailPartition, match="stage = 'kto'"):
        put(lake, CHECKPOINTS, row("d", "kto"), part={"stage": "sft"}, identity="three")
    with pytest.raises(Abort, match="safe partition value"):
        put(lake, CHECKPOINTS, row("d", "x"), part={"stage": "x' OR '1'='1"})


@pytest.mark.parametrize("day", ["2026-3-1", "20260301", "../../etc", "2026-02-30", "' OR true", ""])
def test_a_day_that_is_none_is_refused(lake: Lake, day: str) -> None:
    with pytest.raises(Abort, match="is no day"):
        put(lake, RAW_TRACES, RAW_TRACES.schema().empty_table(), day=day)


@pytest.mark.parametrize(
    "uri", ["gs://bucket/lake", "s3://", "s3://bucket/a lake", "s3://bucket/../other", "s3://user:secret@bucket/lake"]
)
def test_a_lake_lies_in_a_local_folder_or_in_s3(uri: str) -> None:
    with pytest.raises(Abort, match="local folder or s3://") as refused:
        Lake(uri)
    assert "secret" not in str(refused.value)


# --- the contract: a day that breaks it is never published, the old one stays -------------------------------------


def _retyped(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, values)


_ROWS = fill(RAW_TRACES, trace_ids(3))
_BIG = fill(TRAJECTORIES, trace_ids(3))

BREACHES = {
    "int for text": (RAW_TRACES, _retyped(_ROWS, "trace_id", pa.array([1, 2, 3])), "no silent cast"),
    "bool for int": (RAW_TRACES, _retyped(_ROWS, "inference_total", pa.array([True] * 3)), "no silent cast"),
    "int for float": (RAW_TRACES, _retyped(_ROWS, "validator_score", pa.array([1, 0, 1])), "no silent cast"),
    "local time": (RAW_TRACES, _retyped(_ROWS, "judged_at", pa.array([0] * 3, pa.timestamp("us"))), "no silent cast"),
    "null": (RAW_TRACES, _retyped(_ROWS, "state", pa.array(["trace", None, "trace"])), "holds 1 nulls"),
    "all null": (RAW_TRACES, _retyped(_ROWS, "state", pa.nulls(3)), "no silent cast"),
    "missing column": (RAW_TRACES, _ROWS.drop_columns(["phase"]), "columns missing: phase"),
    "foreign column": (RAW_TRACES, _ROWS.append_column("x", pa.array([1, 2, 3])), "not declared: x"),
    "bad word": (
        RAW_TRACES,
        fill(RAW_TRACES, ["b", "a"], state=["trace", "lo\nst"]),
        r"state = 'lo\\\\nst' in \['a'\]",
    ),
    "other day": (RAW_TRACES, fill(RAW_TRACES, ["a"], DAY2), "day = '2026-03-02'"),
    "double key": (RAW_TRACES, fill(RAW_TRACES, ["a", "b", "a"]), r"key \['a'\] is not unique"),
    "double null key": (PROBLEM_SUITES, fill(PROBLEM_SUITES, ["p", "p"], suite_id=[None, None]), "is not unique"),
    "big text: null": (TRAJECTORIES, _retyped(_BIG, "messages", pa.array(["[]", None, "[]"])), "holds 1 nulls"),
    "big text: double": (TRAJECTORIES, fill(TRAJECTORIES, ["a", "b", "b"]).to_batches(), "'b' twice"),
    "big text: order": (TRAJECTORIES, fill(TRAJECTORIES, ["a", "c", "b"]).to_batches(), "'b' after 'c'"),
    "big text: order of batches": (TRAJECTORIES, fill(TRAJECTORIES, ["b", "a"]).to_batches(max_chunksize=1), "after"),
    "big text: other day": (TRAJECTORIES, fill(TRAJECTORIES, ["a"], DAY2).to_batches(), "day = '2026-03-02'"),
    "bad UTF-8": (
        RAW_TRACES,
        _retyped(_ROWS, "phase", pa.array([b"\xff", b"a", b"b"]).view(pa.string())),
        "column phase is damaged",
    ),
}


@pytest.mark.parametrize("breach", BREACHES, ids=list(BREACHES))
def test_a_breach_of_contract_keeps_the_old_day(lake: Lake, breach: str) -> None:
    table, data, message = BREACHES[breach]
    put(lake, table, fill(table, ["old"]), identity="old")
    with pytest.raises(FailPartition, match=message) as raised:
        put(lake, table, data, identity="new")
    assert "\n" not in str(raised.value) and str(raised.value).startswith(f"{table.name} {DAY}")
    assert lake.read(table).column(0).to_pylist() == ["old"]
    assert lake.is_current(table, DAY, "old")
    assert len(data_files(lake)) == 1, "nothing staged is left"


def test_verify_runs_before_the_commit_and_without_the_big_text(lake: Lake) -> None:
    seen = []

    def refuse(rows: pa.Table) -> None:
        seen.append(rows)
        raise FailPartition("found + moved_in is not accepted + rejected + moved_out")

    put(lake, TRAJECTORIES, fill(TRAJECTORIES, ["old"]))
    with pytest.raises(FailPartition, match="moved_in"):
        put(lake, TRAJECTORIES, fill(TRAJECTORIES, ["a", "b"]), identity="two", verify=[refuse])
    assert seen[0].num_rows == 2 and "messages" not in seen[0].column_names and "content_hash" in seen[0].column_names
    assert lake.read(TRAJECTORIES).column("trace_id").to_pylist() == ["old"]


def test_a_manifest_that_is_no_json_is_refused_before_the_commit(lake: Lake) -> None:
    with pytest.raises(FailPartition, match="summary of the manifest"):
        put(lake, RAW_TRACES, _ROWS, summary={"share": float("nan")})
    with pytest.raises(FailPartition, match="settings of the manifest"):
        put(lake, RAW_TRACES, _ROWS, settings={"path": Path("x")})
    assert lake.read(RAW_TRACES).num_rows == 0


@LOCAL
def test_the_manifest_tells_what_the_day_is_made_of(lake: Lake) -> None:
    given = {"inputs": {"raw_traces": {"version": 3, "digest": "ab"}}, "settings": {"a": 1}, "summary": {"rows": 3}}
    written = put(lake, RAW_TRACES, _ROWS, code_version="7", **given)
    read = Lake(str(lake.root)).manifest("raw_traces", DAY)
    assert read == written
    assert (read.inputs, read.settings, read.summary, read.code_version) == (*given.values(), "7")
    assert lake.manifests("raw_traces") == [read]
    assert read.table_version == version(lake, RAW_TRACES)


@LOCAL
def test_a_manifest_of_other_data_is_no_manifest(lake: Lake) -> None:
    """A kill between data commit and manifest leaves the old manifest beside new data."""
    put(lake, RAW_TRACES, _ROWS)
    path = lake.root / "_manifests" / "raw_traces" / f"{DAY}.json"
    old = path.read_bytes()
    put(lake, RAW_TRACES, fill(RAW_TRACES, ["x"]), identity="two")
    path.write_bytes(old)
    assert lake.manifest(RAW_TRACES, DAY) is None and not lake.is_current(RAW_TRACES, DAY, "one")
    content = json.loads(old)
    content["identity"] = "forged"
    path.write_text(json.dumps(content))
    assert lake.manifest(RAW_TRACES, DAY) is None


# --- public bug reports (cases/G*) --------------------------------------------------------------------------------


def test_g01_g03_g06_the_schema_never_comes_from_the_rows(tmp_path: Path) -> None:
    """A column null or absent in the first 20,480 rows, or all day, keeps its declared type, in any order of days."""
    notes = [None] * 20480 + ["r"] * 20
    days = {DAY: [None], DAY2: ["ok"], "2026-03-03": []}
    for order in (list(days), list(reversed(days))):
        lake = Lake(str(tmp_path / order[0]))
        for day in order:
            ids = [f"{day}:p"] * len(days[day])
            put(lake, RAW_TRACES, fill(RAW_TRACES, ids, day, phase=days[day]), day=day)
        read = lake.read(RAW_TRACES, columns=["phase"])
        assert read.column(0).to_pylist() == [None, "ok"] and read.schema.field("phase").type == pa.string()
    put(lake, RAW_TRACES, fill(RAW_TRACES, trace_ids(20500), phase=notes), identity="many")
    assert 20500 - lake.read(RAW_TRACES, [DAY], columns=["phase"]).column(0).null_count == 20


@pytest.mark.parametrize("name", ["with space", "ünï cöde", "hash#q?x", "a=b;c", "ends."])
def test_a_lake_folder_may_have_any_name_that_delta_keeps(tmp_path: Path, name: str) -> None:
    lake = Lake(str(tmp_path / name))
    rows = fill(RAW_TRACES, trace_ids(3))
    put(lake, RAW_TRACES, rows)
    assert lake.read(RAW_TRACES).equals(rows) and lake.is_current(RAW_TRACES, DAY, "one")
    assert {path.name for path in tmp_path.iterdir()} == {name}


def test_a_folder_name_that_delta_would_decode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Abort, match="%"):
        Lake(str(tmp_path / "per%20cent"))


def test_links_and_dots_in_the_lake_path_and_a_changed_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    monkeypatch.chdir(tmp_path)
    lake = Lake("link/../lake")  # of the link's target, as the operating system reads it
    monkeypatch.chdir("/")
    put(lake, RAW_TRACES, fill(RAW_TRACES, trace_ids(2)))
    assert (tmp_path / "real" / "lake" / "raw_traces").is_dir()
    assert Lake(str(tmp_path / "real" / "lake")).read(RAW_TRACES).num_rows == 2


def test_a_lake_that_is_a_file_fails_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("no folder")
    lake = Lake(str(tmp_path / "lake"))
    assert lake.days(RAW_TRACES) == [] and lake.manifest(RAW_TRACES, DAY) is None
    for table in (RAW_TRACES, TRAJECTORIES):
        with pytest.raises(FailPartition, match="not published"):
            put(lake, table, fill(table, trace_ids(1)))


def test_manifests_of_some_days(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    for day in (DAY, DAY2):
        put(lake, RAW_TRACES, fill(RAW_TRACES, trace_ids(1), day), day=day)
    assert [one.day for one in lake.manifests(RAW_TRACES, [DAY2, "2026-03-09"])] == [DAY2]
    assert [one.day for one in lake.manifests(RAW_TRACES)] == [DAY, DAY2]
