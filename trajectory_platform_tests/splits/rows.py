"""Small problem and link tables, so that a test states only what it is about."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from trajectory_platform.sandbox.problems import Problem, hidden_problem, parse_problem, to_table
from trajectory_platform.settings import HoldOut
from trajectory_platform.splits.clusters import Clusters, build_clusters

DAY = date(2026, 5, 2)
LINKS = pa.schema(
    [
        ("day", pa.string()),
        ("problem_id", pa.string()),
        ("suite_id", pa.string()),
        ("problem_key", pa.string()),
        ("query", pa.string()),
        ("query_verified", pa.bool_()),
        ("category", pa.string()),
        ("outcome_success", pa.bool_()),
        ("recommended_ids", pa.list_(pa.string())),
    ]
)


def public(
    problem_id: str, query: str, products: Sequence[str], *, category: str = "shop", suite: str = "1"
) -> Problem:
    """A problem with a public reward."""
    reward = [{"product_id": product, "title": [f"title {product}"]} for product in products]
    item = {"problem_id": problem_id, "category": category, "query": query, "reward": reward or None}
    return parse_problem(item, suite_id=suite)


def hidden(problem_id: str, *, category: str = "shop", suite: str = "1") -> Problem:
    """A race problem: its id is all that is published."""
    return hidden_problem(problem_id, suite_id=suite, category=category)


def on_days(*days: tuple[str, Sequence[Problem]]) -> pa.Table:
    """``problem_suites`` rows of several days."""
    return pa.concat_tables([to_table(problems, day) for day, problems in days])


def link(problem_id: str, **values: Any) -> dict[str, Any]:
    """One judged trace of a problem."""
    return {
        "day": "2026-05-01",
        "problem_id": problem_id,
        "suite_id": "1",
        "problem_key": None,
        "query": None,
        "query_verified": False,
        "category": "shop",
        "outcome_success": False,
        "recommended_ids": [],
    } | values


def links(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=LINKS)


def clusters(
    problems: pa.Table,
    judged: pa.Table | None = None,
    *,
    day: date = DAY,
    hold_outs: Sequence[HoldOut] = (),
    **more: Any,
) -> Clusters:
    """``build_clusters`` with a test key; the share is not tested unless asked."""
    options: dict[str, Any] = {"pool_key": "test-key", "min_problems_for_share": 10**6} | more
    return build_clusters(problems, judged, day=day, hold_outs=hold_outs, **options)


def cluster_of(result: Clusters) -> dict[str, str]:
    """Problem id -> cluster id."""
    return {problem: row["cluster_id"] for row in result.clusters.to_pylist() for problem in row["problem_ids"]}


def pool_of(result: Clusters) -> dict[str, str]:
    """Problem id -> pool."""
    return {problem: row["pool"] for row in result.clusters.to_pylist() for problem in row["problem_ids"]}


def uuid_like(text: str) -> str:
    """A UUID made from a text."""
    digits = hashlib.sha256(text.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"
