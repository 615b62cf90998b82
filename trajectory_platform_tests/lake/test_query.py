"""SQL reads the tables and nothing else; sealed rows need a reason that is written down."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.identity import sha256_hex
from trajectory_platform.lake.ledger import LEDGER
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.query import sql
from trajectory_platform.lake.tables import (
    ACTION_SCORES,
    AXIS_A_CORPUS,
    CHECKPOINT_TRACES,
    JUDGED_TRACES,
    LEAK_CLUSTERS,
    LEAK_EDGES,
    LEAK_GUARDED_SPLITS,
    PROBLEM_SUITES,
    RAW_TRACES,
    REJECTED_TRACES,
    TABLES,
    TRAJECTORIES,
    VERDICTS,
    Table,
)
from trajectory_platform_tests.lake.rows import DAY, DAY2, LOCAL, fill, put, trace_ids

AT = datetime(2026, 3, 3, 12, tzinfo=UTC)


@pytest.fixture
def sealed_lake(lake: Lake) -> Lake:
    """Three problems: open, sealed (id ``s``, key ``ks``), and one of race traces known by key only (``kr``).

    Trace ``r2:s#1`` is known as sealed by nothing but the problem id inside its trace id.
    """
    keys, pools = ["ko", "kr", "ks"], ["train", "sealed", "sealed"]
    clusters = fill(LEAK_CLUSTERS, keys, pool=pools, problem_ids=[["o"], [], ["s"]])
    put(lake, LEAK_CLUSTERS, fill(LEAK_CLUSTERS, keys, pool=["sealed", "train", "train"]))
    put(lake, LEAK_CLUSTERS, clusters.set_column(0, clusters.schema.field(0), pa.array([DAY2] * 3)), day=DAY2)
    traces = ["r1:@0", "r1:o", "r1:s", "r2:s#1"]
    key_of = ["kr", "ko", "ks", None]
    problems = [None, "o", "s", "s"]
    put(lake, PROBLEM_SUITES, fill(PROBLEM_SUITES, ["o", "s"], problem_key=["ko", "ks"]))
    put(lake, RAW_TRACES, fill(RAW_TRACES, traces, problem_id=problems))
    texts = ["text 0", "text o", "text s", "text s2"]
    put(lake, TRAJECTORIES, fill(TRAJECTORIES, traces, problem_id=problems, content_hash=texts))
    put(lake, JUDGED_TRACES, fill(JUDGED_TRACES, traces, problem_id=problems, problem_key=key_of))
    put(lake, AXIS_A_CORPUS, fill(AXIS_A_CORPUS, traces, problem_id=problems, problem_key=key_of, content_hash=texts))
    put(lake, VERDICTS, fill(VERDICTS, traces))
    put(lake, REJECTED_TRACES, fill(REJECTED_TRACES, traces))
    put(lake, LEAK_EDGES, fill(LEAK_EDGES, ["ko", "ko", "ks"], right_key=["ks", "kx", "ko"]))
    pools = ["sealed", "train", "sealed", "sealed"]
    split = fill(LEAK_GUARDED_SPLITS, traces, problem_key=["kr", "ko", "ks", "kz"], pool=pools, content_hash=texts)
    put(lake, LEAK_GUARDED_SPLITS, split)
    for table in (CHECKPOINT_TRACES, ACTION_SCORES):
        ids = ["c"] * len(traces)
        extra = {"problem_key": ["kr", "ko", "ks", "ks"]} if table is CHECKPOINT_TRACES else {}
        rows = fill(table, ids, trace_id=traces, stage=["sft"] * 4, **extra)
        put(lake, table, rows, part={"stage": "sft"})
    return lake


SEALED_TABLES = [
    RAW_TRACES, TRAJECTORIES, JUDGED_TRACES, AXIS_A_CORPUS, VERDICTS, REJECTED_TRACES, LEAK_GUARDED_SPLITS,
    CHECKPOINT_TRACES, ACTION_SCORES,
]  # fmt: skip


@pytest.mark.parametrize("table", SEALED_TABLES, ids=lambda table: table.name)
def test_sealed_rows_are_hidden_in_every_table(sealed_lake: Lake, table: Table) -> None:
    query = f"select trace_id from {table.name} order by 1"
    assert sql(sealed_lake, query).column(0).to_pylist() == ["r1:o"]
    assert sql(sealed_lake, f"select count(*) from {table.name}").column(0).to_pylist() == [1]
    assert sql(sealed_lake, query, sealed_reason="audit", at=AT).num_rows == 4


def test_sealed_problems_clusters_and_edges_are_hidden(sealed_lake: Lake) -> None:
    assert sql(sealed_lake, "select problem_id from problem_suites").column(0).to_pylist() == ["o"]
    assert sql(sealed_lake, "select day, problem_key from leak_clusters").to_pylist() == [
        {"day": DAY2, "problem_key": "ko"}
    ], "the row of the day on which it was sealed stays hidden"
    assert sql(sealed_lake, "select right_key from leak_edges").column(0).to_pylist() == ["kx"]


def test_sealed_rows_cannot_be_reached_around(sealed_lake: Lake) -> None:
    for query in (
        "from query('select trace_id from ' || 'judged_traces')",
        "from query_table('judged_' || 'traces')",
        "select * from (summarize judged_traces) where column_name = 'trace_id' and max <> 'r1:o'",
        "select trace_id from \"judged_traces\" where trace_id like '%:s'",
        "with j as materialized (from judged_traces) select * from j where problem_key = 'ks'",
    ):
        found = sql(sealed_lake, query)
        assert "ks" not in str(found.to_pydict()) and ":s" not in str(found.to_pydict())


def test_a_sealed_dialogue_replayed_under_another_problem_is_hidden(sealed_lake: Lake) -> None:
    """By its text where a table holds that, by its id in the others, and where another row only names it."""
    ids = ["r7:o", "r8:o", "r9:o"]
    texts = {"content_hash": ["text s", "text 0", "text new"]}
    put(sealed_lake, TRAJECTORIES, fill(TRAJECTORIES, ids, DAY2, problem_id=["o"] * 3, **texts), day=DAY2)
    put(sealed_lake, JUDGED_TRACES, fill(JUDGED_TRACES, ids, DAY2, problem_id=["o"] * 3), day=DAY2)
    named = fill(REJECTED_TRACES, ["r5:o", "r6:o"], DAY2, duplicate_of=["r1:s", "r1:o"])
    put(sealed_lake, REJECTED_TRACES, named, day=DAY2)
    for table, expected in (("trajectories", ["r9:o"]), ("judged_traces", ["r9:o"]), ("rejected_traces", ["r6:o"])):
        query = f"select trace_id from {table} where day = '{DAY2}' order by 1"
        assert sql(sealed_lake, query).column(0).to_pylist() == expected, table


def test_a_reason_is_written_down_before_the_query_runs(sealed_lake: Lake) -> None:
    sql(sealed_lake, "select 1", sealed_reason="final evaluation", at=AT)
    with pytest.raises(Abort):
        sql(sealed_lake, "select nothing from nowhere", sealed_reason="typo\nforged line", at=AT)
    lines = [json.loads(line) for line in sealed_lake.storage.read(LEDGER).data.splitlines()]
    assert [line["reason"] for line in lines] == ["final evaluation", "typo\nforged line"]
    assert lines[0]["at"] == "2026-03-03T12:00:00+00:00" and lines[0]["query_sha256"] == sha256_hex(b"select 1")
    for reason, at in (("  ", AT), ("audit", None), ("audit", AT.replace(tzinfo=None))):
        with pytest.raises(Abort, match="sealed rows needs"):
            sql(sealed_lake, "select 1", sealed_reason=reason, at=at)


def test_without_clusters_nothing_is_hidden(lake: Lake) -> None:
    put(lake, JUDGED_TRACES, fill(JUDGED_TRACES, trace_ids(3)))
    assert sql(lake, "select count(*) from judged_traces").column(0).to_pylist() == [3]


FORBIDDEN = [
    "copy raw_traces to '{dir}/out.csv'", "attach '{dir}/x.db'", "install fts", "load httpfs", "set threads = 4",
    "reset threads", "pragma database_list", "call pragma_version()", "export database '{dir}/e'", "checkpoint",
    "create table x as select 1", "create view x as select 1", "insert into raw_traces values (1)", "begin",
    "delete from raw_traces", "drop table raw_traces", "explain analyze select 1", "prepare p as select 1",
    "select 1; select 2", "", "-- nothing", "selec 1", "select * from read_csv('/etc/passwd')", "from '/etc/passwd'",
    "from read_text('/etc/passwd')", "select * from glob('/*')", "from read_parquet('{dir}/lake/raw_traces/*/*')",
    "from 'https://example.org/x.parquet'", "from lake", "from hidden_frame", "select * from nowhere",
    "from query('copy (select 1) to ''{dir}/y''')", "select getenv('HOME')", "from sniff_csv('/etc/passwd')",
]  # fmt: skip


@pytest.mark.parametrize("query", FORBIDDEN)
def test_everything_but_reading_the_tables_fails_on_one_line(lake: Lake, tmp_path: Path, query: str) -> None:
    hidden_frame = pa.table({"secret": [1]})  # noqa: F841 - DuckDB must not find Python variables
    put(lake, RAW_TRACES, fill(RAW_TRACES, trace_ids(2)))
    before = sorted(path for path in tmp_path.iterdir())
    with pytest.raises(Abort) as raised:
        sql(lake, query.replace("{dir}", str(tmp_path)))
    assert "\n" not in str(raised.value)
    assert sorted(path for path in tmp_path.iterdir()) == before


def test_every_table_can_be_named_even_when_nothing_is_published(lake: Lake) -> None:
    for name, table in TABLES.items():
        assert sql(lake, f"select * from {name}").schema.names == list(table.columns)
    assert set(sql(lake, "show tables").column(0).to_pylist()) == set(TABLES)


def test_joins_over_days_and_types(lake: Lake) -> None:
    for day in (DAY, DAY2):
        put(lake, JUDGED_TRACES, fill(JUDGED_TRACES, [f"{day}:p"], day), day=day)
        put(lake, VERDICTS, fill(VERDICTS, [f"{day}:p"], day), day=day)
    found = sql(
        lake,
        "select j.day, v.judge_kind, j.recommended_ids[1] as first"
        " from judged_traces j join verdicts v using (trace_id) where j.day >= '2026-03-02'",
    )
    assert found.to_pylist() == [{"day": DAY2, "judge_kind": "validator", "first": "a"}]


def test_g04_json_text_comes_back_digit_for_digit(lake: Lake) -> None:
    scores = {f"k{number:03d}": 9007199254740993 for number in range(1, 200)}
    text = json.dumps({"k000": 1.5, **scores})
    put(lake, JUDGED_TRACES, fill(JUDGED_TRACES, ["a"], score=[text]))
    assert sql(lake, "select score from judged_traces").column(0).to_pylist() == [text]
    assert sql(lake, "select score ->> '$.k001' from judged_traces").column(0).to_pylist() == ["9007199254740993"]
    assert lake.read(JUDGED_TRACES, columns=["score"]).column(0).to_pylist() == [text]


def test_results_and_memory_are_bounded(lake: Lake) -> None:
    assert sql(lake, "from range(10)", max_rows=10).num_rows == 10
    with pytest.raises(Abort, match="more than 10 rows"):
        sql(lake, "from range(11)", max_rows=10)
    with pytest.raises(Abort, match="(?i)memory"):
        sql(lake, "select list(i) from range(50000000) t(i)", memory_limit="50MB")


@LOCAL
def test_a_damaged_file_names_itself(lake: Lake) -> None:
    manifest = put(lake, RAW_TRACES, fill(RAW_TRACES, trace_ids(2)))
    put(lake, RAW_TRACES, fill(RAW_TRACES, trace_ids(2), DAY2), day=DAY2)
    (name,) = manifest.files
    path = lake.root / "raw_traces" / name
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FailPartition, match=path.name):
        sql(lake, "select count(trace_id) from raw_traces")
    assert sql(lake, f"select count(trace_id) from raw_traces where day = '{DAY2}'").column(0).to_pylist() == [2]
