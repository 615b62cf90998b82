"""Every way to read sealed text without a reason, tried: none of them prints any. With a reason each is recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trajectory_platform.cli import main
from trajectory_platform.errors import Abort
from trajectory_platform.lake.ledger import LEDGER, read_ledger
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.query import sql
from trajectory_platform.lake.sealing import sealed_problems_of
from trajectory_platform.lake.tables import TABLES
from trajectory_platform_tests.lake.rows import DAY
from trajectory_platform_tests.lake.sealed_lake import CHECKPOINT, DAY3, MARK, TRACES, sealed_lake


class Answer(NamedTuple):
    code: int
    text: str


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return sealed_lake(tmp_path_factory.mktemp("sealed") / "lake")


@pytest.fixture
def run(lake: Lake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    root = lake.root.parent
    for name, folder in (("DATA_ROOT", "days"), ("LAKE_URI", "lake"), ("CHECKPOINT_ROOT", "checkpoints")):
        monkeypatch.setenv(f"TRAJECTORY_PLATFORM_{name}", str(root / folder))

    def call(*words: str) -> Answer:
        monkeypatch.setattr("sys.argv", ["trajectory-platform", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capfd.readouterr()
        return Answer(int(stop.value.code or 0), printed.out + printed.err)

    return call


TRICKS = [
    "from query('select * from ' || 'trajectories')",
    "from query_table('problem_' || 'suites')",
    "select * from (summarize problem_suites)",
    "select * from (summarize judge_calls)",
    "select max(messages), min(messages) from trajectories",
    "select list(query) from problem_suites",
    "select string_agg(evidence, ',') from leak_edges",
    "select t from trajectories t",
    "select to_json(t) from axis_a_corpus t",
    "select columns('.*') from verdicts",
    "select cast(query as integer) from problem_suites",
    "select error(query) from problem_suites",
    "select try(error(messages)) from trajectories",
    "select * from problem_suites where query like '%ZEBRA%'",
    "select * from problem_suites where error(query) is null",
    "select * from trajectories where content_hash = 'h-sealed'",
    "select * from trajectories order by query desc limit 5",
    "select * from problem_suites p full join judged_traces j on p.problem_key = j.problem_key",
    "select * from raw_traces left join verdicts using (trace_id) left join rejected_traces using (trace_id)",
    "select * from judge_calls cross join eval_scores cross join rollouts",
    "with j as materialized (from judged_traces) select * from j where problem_key = 'ks'",
    "with recursive r as (select query from problem_suites union select query from r) from r",
    "select (select max(query) from judged_traces where problem_key = p.problem_key) from leak_clusters p",
    "select * from trajectories tablesample 100%",
    "pivot (select day, query, 1 as one from problem_suites) on query using sum(one)",
    "unpivot (select day, query from problem_suites) on query into name n value v",
    "from duckdb_views()", "from duckdb_tables()", "from duckdb_columns()", "from duckdb_temporary_files()",
    "from duckdb_dependencies()", "from duckdb_settings()",
    "from duckdb_functions() where function_name like '%arrow%'",
    "show all tables", "describe judge_calls", "select stats(query) from problem_suites limit 1",
    "from arrow_scan(0, 0, 0)", "from python_arrow_scan()", "from arrow_object_0", "from main.judge_calls",
    "from memory.main.trajectories", "from information_schema.columns", "from pragma_storage_info('trajectories')",
    "select raw_reply, explanation from judge_calls", "from read_parquet('{root}/lake/trajectories/*/*')",
    "from '{root}/lake/problem_suites/day=2026-03-01/*.parquet'", "from read_text('{root}/lake/_sealed_reads.jsonl')",
    f"select * from trajectories where day = '{DAY3}'",
    f"select * from problem_suites where day = '{DAY3}'",
]  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_no_table_shows_sealed_text(run: Callable[..., Answer], table: str) -> None:
    answer = run("sql", f"select * from {table}", "--json")
    assert answer.code == 0 and MARK not in answer.text


@pytest.mark.parametrize("query", TRICKS)
def test_no_query_reaches_sealed_text(run: Callable[..., Answer], lake: Lake, query: str) -> None:
    query = query.replace("{root}", str(lake.root.parent))
    assert MARK not in run("sql", query).text
    try:
        found = str(sql(lake, query).to_pylist())
    except Abort as error:
        found = str(error)
    assert MARK not in found


def test_the_views_beneath_the_tables_hold_nothing_more(run: Callable[..., Answer]) -> None:
    """The object under a view is named in its text; naming it gives nothing, or nothing sealed."""
    views = run("sql", "select sql from duckdb_views() where sql like '%judge_calls%'", "--json").text
    for name in {*re.findall(r"arrow_object_\w+", views), "arrow_object"}:
        assert MARK not in run("sql", f"select * from {name}, judge_calls", "--json").text


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
@pytest.mark.parametrize("words", [("traces", "show"), ("lineage", "trace")], ids=" ".join)
@pytest.mark.parametrize("name", [name for name in TRACES if name != "open"])
def test_no_trace_is_shown(run: Callable[..., Answer], name: str, words: tuple[str, str], as_json: bool) -> None:
    answer = run(*words, TRACES[name], *(["--json"] if as_json else []))
    assert answer.code == 0 and MARK not in answer.text and "sealed" in answer.text


@pytest.mark.parametrize(
    "words",
    [
        ("leaks", "explain", "ko", "ks"),
        ("leaks", "explain", "ks", "kr"),
        ("leaks", "explain", "ko", "kn"),
        ("lineage", "checkpoint", CHECKPOINT),
        ("status",),
        ("lake", "verify"),
        ("judge-calibration",),
        ("evaluate", "--policy", "script:search_and_check", "--pool", "sealed", "--day", DAY, "--out", "{root}/eval"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_no_other_command_shows_any(
    run: Callable[..., Answer], lake: Lake, words: tuple[str, ...], more: tuple[str, ...]
) -> None:
    answer = run(*(word.replace("{root}", str(lake.root.parent)) for word in words), *more)
    assert MARK not in answer.text


def test_no_report_shows_any(run: Callable[..., Answer], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    for which in (("--day", DAY), ("--day", DAY3), ("--as-of", DAY), ()):
        answer = run("report", "--out", str(page), *which)
        assert answer.code == 0, answer.text
        assert MARK not in page.read_text("utf-8"), which


def test_none_of_this_was_a_look(lake: Lake) -> None:
    assert not (lake.root / LEDGER).exists()


def test_open_traces_are_shown_as_ever(run: Callable[..., Answer], lake: Lake) -> None:
    assert "plain messages" in run("traces", "show", TRACES["open"]).text
    assert "alias x1" in run("lineage", "trace", TRACES["open"]).text
    assert sql(lake, "select trace_id from trajectories").column(0).to_pylist() == [TRACES["open"]]


def test_whose_problem_a_trace_is(lake: Lake) -> None:
    found = {name: sealed_problems_of(lake, trace_id) for name, trace_id in TRACES.items()}
    assert found["open"] is None and found["sealed"] == ("ks",) and found["race"] == ("kr",)
    assert found["replayed"] == ("ks",), "by its dialogue, whatever problem it is filed under"
    assert found.get("restating", ("ks",)) == ("ks",), "its text quotes the sealed query"
    assert found["new"] == ("kn",), "of a day without clusters: nobody knows yet"


def test_with_a_reason_each_is_shown_and_recorded(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    from trajectory_platform.lineage.questions import about_trace
    from trajectory_platform.settings import Settings
    from trajectory_platform.stages.leaks import explain_problems
    from trajectory_platform.stages.traces import find_trace, render_trace

    lake = sealed_lake(tmp_path / "lake")
    chosen = Settings(lake_uri=str(lake.root))
    why: dict[str, Any] = {"sealed_reason": "an audit", "at": datetime(2026, 3, 4, tzinfo=UTC)}
    assert MARK in str(sql(lake, "select query from problem_suites", **why).to_pydict())
    assert MARK in str(sql(lake, "select raw_reply from judge_calls", **why).to_pydict())
    assert MARK in render_trace(find_trace(chosen, TRACES["replayed"], **why))
    assert MARK in json.dumps(about_trace(lake, TRACES["new"], **why))
    assert MARK in explain_problems(chosen, "ko", "ks", **why)["text"]
    found = read_ledger(lake)
    assert not found.faults and {look.reason for look in found.looks} == {"an audit"}
    assert [(look.what, look.keys, look.detail) for look in found.looks] == [
        ("sql", ("kr", "ks"), None),
        ("sql", ("kr", "ks"), None),
        ("traces show", ("ks",), TRACES["replayed"]),
        ("lineage trace", ("kn",), TRACES["new"]),
        ("leaks explain", ("ks",), "ko ks"),
    ]


def test_what_is_open_needs_no_reason_and_leaves_no_line(tmp_path: Path) -> None:
    from trajectory_platform.settings import Settings
    from trajectory_platform.stages.traces import find_trace

    lake = sealed_lake(tmp_path / "lake")
    row = find_trace(Settings(lake_uri=str(lake.root)), TRACES["open"], sealed_reason="habit", at=None)
    assert not row["sealed"] and not (lake.root / LEDGER).exists()
