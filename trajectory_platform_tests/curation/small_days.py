"""Small days and single cases for the filter's tests: every pair asks for the kettle and is good unless changed."""

from __future__ import annotations

from typing import Any

import orjson

from trajectory_platform.curation.agency import decide
from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.curation.filter import CurationResult, curate_day
from trajectory_platform.curation.filter_stages import Case
from trajectory_platform.judging.day import judge_day
from trajectory_platform.lake.tables import RAW_TRACES, TRAJECTORIES
from trajectory_platform.sandbox.problems import to_table
from trajectory_platform_tests.judging.dialogues import (
    PRODUCTS,
    QUERY,
    REWARD,
    dialogue,
    problem,
    proxy_log,
    raw_row,
    table,
    trajectory_row,
)

Row = dict[str, Any]
Rows = dict[str, Row]
# Small days are full of runs of one agent on one problem: caps have tests of their own.
UNCAPPED = FilterConfig(skip=frozenset({"caps"}))


def marked(mark: str, ids: str = "5100000001", *, base: list[Row] | None = None) -> list[Row]:
    """A dialogue of its own: the mark keeps traces from being copies of one another."""
    steps = dialogue(ids) if base is None else base
    steps[0]["completion"]["message"]["think"] += f" ({mark})"
    return steps


def query_of(problem_id: str) -> str:
    """Every problem of a small day asks for the kettle in words of its own, so that it has a key of its own."""
    return QUERY if problem_id == "p1" else f"{QUERY} ({problem_id})"


def asked(problem_id: str, steps: list[Row]) -> list[Row]:
    """The steps with the query of a problem."""
    return [{**one, "extra_info": {**one["extra_info"], "query": query_of(problem_id)}} for one in steps]


def curate(
    raws: list[Row],
    rows: list[Row] | None = None,
    config: FilterConfig | None = None,
    *,
    batch_rows: int = 2,
    all_reasons: bool = False,
) -> tuple[CurationResult, Rows, Rows]:
    """(result, accepted rows, rejected rows) of a small day; checks that no row is lost or counted twice."""
    config = config or UNCAPPED
    if rows is None:
        rows = [
            trajectory_row(raw, proxy_log(asked(raw["problem_id"], marked(raw["trace_id"]))))
            for raw in raws
            if raw["state"] == "trace"
        ]
    raw_table, trajectories = table(raws, RAW_TRACES), table(rows, TRAJECTORIES)

    def batches() -> Any:
        return iter(trajectories.to_batches(max_chunksize=batch_rows))

    names = sorted({raw["problem_id"] for raw in raws})
    problems = to_table(
        [problem("Product", REWARD, problem_id=name, query=query_of(name)) for name in names], "2026-05-02"
    )
    judged, verdicts = judge_day(
        raw_table, batches(), problems, PRODUCTS, judge=config.judge, title_regime="normalised"
    )
    result = curate_day(raw_table, batches, judged, verdicts, config=config, all_reasons=all_reasons)
    accepted = {row["trace_id"]: row for batch in result.accepted for row in batch.to_pylist()}
    rejected = {row["trace_id"]: row for row in result.rejected.to_pylist()}
    assert accepted.keys() | rejected.keys() == {raw["trace_id"] for raw in raws}
    assert not accepted.keys() & rejected.keys()
    assert result.summary["input"] == len(raws) == len(accepted) + len(rejected)
    return result, accepted, rejected


def only(raw: Row, steps: list[Row], config: FilterConfig | None = None, **values: Any) -> tuple[Rows, Rows]:
    """(accepted, rejected) of a day of one trace."""
    _, accepted, rejected = curate([raw], [trajectory_row(raw, proxy_log(steps), **values)], config)
    return accepted, rejected


def good_case(config: FilterConfig | None = None, **changes: Any) -> Case:
    """A case that no stage objects to. ``changes`` replace fields of the Case, dicts are merged into its rows."""
    raw = raw_row("a:p1")
    row = trajectory_row(raw, proxy_log(marked("a")))
    messages = orjson.loads(row["messages"])
    judged: Row = {
        "injection_suspected": False,
        "injection_sources": [],
        "outcome": "success",
        "reason": None,
        "outcome_success": True,
        "outcome_source": "rule",
        "validators_agree": True,
        "validator_success": True,
    }
    verdict: Row = {"reasoning_quality": 0.9, "null_reason": None, "score_regime": "discrete"}
    case = Case(
        raw, row, messages, decide(messages, orjson.loads(row["evidence"])), judged, verdict, config or FilterConfig()
    )
    for name, change in changes.items():
        old = getattr(case, name)
        case = case._replace(**{name: {**old, **change} if isinstance(old, dict) and change is not None else change})
    return case
