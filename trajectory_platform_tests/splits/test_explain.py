"""``leaks explain``: which problems can be named and what the answer says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.sandbox.problems import parse_problem
from trajectory_platform.settings import HoldOut, Settings
from trajectory_platform.splits.explain import explain
from trajectory_platform.stages.leaks import explain_plain_files
from trajectory_platform_tests.splits.rows import clusters, on_days, pool_of, public


def test_a_chain_is_told_in_order_and_strangers_have_no_path() -> None:
    found = clusters(
        on_days(
            (
                "2026-05-01",
                [
                    public("a", "a", ["1", "2"]),
                    public("b", "b", ["2", "3"]),
                    public("c", "c", ["3"]),
                    public("d", "d", ["9"]),
                ],
            )
        )
    )
    answer = explain(found.clusters, found.edges, "a", "c")
    assert [(step["kind"], step["evidence"]) for step in answer["path"]] == [("product_id", "2"), ("product_id", "3")]
    stranger = explain(found.clusters, found.edges, "a", "d")
    assert (stranger["same_cluster"], stranger["path"]) == (False, [])
    itself = explain(found.clusters, found.edges, "a", "a")
    assert (itself["same_cluster"], itself["path"]) == (True, [])


def test_unknown_and_ambiguous_names_are_wrong_use() -> None:
    found = clusters(on_days(("2026-05-01", [public("a", "a", ["1"], suite="1"), public("a", "b", ["2"], suite="2")])))
    key = found.clusters["problem_key"].to_pylist()[0]
    with pytest.raises(Abort, match="no problem 'zzz'"):
        explain(found.clusters, found.edges, "zzz", "a")
    with pytest.raises(Abort, match="2 contents"):
        explain(found.clusters, found.edges, "a", key)
    assert explain(found.clusters, found.edges, key[:12], key)["same_cluster"]


def near_bottles() -> pa.Table:
    rewards = {
        "a": {"product_id": "1", "title": ["Steel Bottle of One Litre"], "sku_options": [{"color_family": "black"}]},
        "b": {"product_id": "2", "title": ["Steel Bottle of One Litre"], "sku_options": [{"color_family": "blue"}]},
    }
    problems = [
        parse_problem(
            {"query": f"a steel water bottle with straws in {name}", "category": "product"}
            | {"reward": {**reward, "service": ["freeShipping"], "attributes": [{"brand": ["oem"]}]}},
            suite_id="1",
            problem_id=name,
        )
        for name, reward in rewards.items()
    ]
    return on_days(("2026-05-01", [*problems, public("far", "a garden hose", ["3"])]))


def test_why_not_names_the_nearest_hint_and_the_differences() -> None:
    rows = near_bottles()
    found = clusters(rows, near_similarity=0.6)
    why = explain(found.clusters, found.edges, "a", "b", hints=found.hints, problems=rows)["why_not"]
    assert (why["nearest_hint"]["kind"], why["nearest_hint"]["value"]) == ("title", 1.0)
    compared = why["compared"]
    (item,) = compared["items"]
    assert (item["shared"], item["only_left"], item["only_right"]) == (["brand=oem"], ["color=black"], ["color=blue"])
    assert item["same_title"] and item["prices_meet"] and not item["same_request"]
    assert compared["boilerplate"] == ["brand=oem", "service=freeshipping"]
    assert compared["words"] == 0.875
    strangers = explain(found.clusters, found.edges, "a", "far", hints=found.hints, problems=rows)["why_not"]
    assert strangers["nearest_hint"] is None
    assert strangers["compared"]["boilerplate"] == []
    assert explain(found.clusters, found.edges, "a", "a", hints=found.hints, problems=rows)["why_not"] is None


def test_sealed_problems_are_shown_only_to_whoever_gives_a_reason() -> None:
    rows = near_bottles()
    sealed = HoldOut(since=date(2026, 5, 1), suite_id="1")
    found = clusters(rows, hold_outs=[sealed], near_similarity=0.6)
    assert set(pool_of(found).values()) == {"sealed"}
    asked: list[Sequence[str]] = []

    def answer(recorded: bool) -> dict[str, object]:
        def reveal(keys: Sequence[str]) -> bool:
            asked.append(keys)
            return recorded

        told = explain(found.clusters, found.edges, "a", "b", hints=found.hints, problems=rows, reveal=reveal)
        why: dict[str, object] = told["why_not"]
        return why

    hidden = answer(False)
    assert (hidden["compared"], hidden["sealed"]) == (None, True)
    assert "bottle" not in repr(hidden)
    assert answer(True)["compared"] is not None
    keys = sorted(row["problem_key"] for row in found.clusters.to_pylist() if row["problem_ids"] != ["far"])
    assert asked == [keys, keys]


def test_the_evidence_of_sealed_edges_is_withheld_too() -> None:
    rows = on_days(("2026-05-01", [public("a", "secret words", ["1"]), public("b", "Secret words!", ["2"])]))
    found = clusters(rows, hold_outs=[HoldOut(since=date(2026, 5, 1), suite_id="1")])
    told = explain(found.clusters, found.edges, "a", "b", reveal=lambda _: False)
    assert [(step["kind"], step["evidence"]) for step in told["path"]] == [("query", "(sealed)")]
    assert "secret" in repr(explain(found.clusters, found.edges, "a", "b", reveal=lambda _: True))


def test_the_answer_is_written_out_for_people(tmp_path: Path) -> None:
    """``stages.leaks`` over plain files: both verdicts, and what keeps two problems apart."""
    path = tmp_path / "suite.jsonl"
    reward = {"title": ["Steel Bottle of One Litre"], "service": ["freeShipping"]}
    colors = [{"sku_options": [{"color_family": color}]} for color in ("black", "blue")]
    items = [
        {"query": "a steel bottle", "reward": {"product_id": "1", **reward, **colors[0]}},
        {"query": "some bottle", "reward": {"product_id": "2", **reward, **colors[1]}},
        {"query": "A steel  bottle!", "reward": {"product_id": "3"}},
    ]
    path.write_text("\n".join(map(json.dumps, items)))
    chosen = Settings(pool_key="k")
    apart = explain_plain_files(chosen, [str(path)], "suite:0", "suite:1")["text"]
    assert "different clusters" in apart
    assert "-- title 1.00 (steel bottle of one litre) --" in apart
    assert "left only: color=black" in apart and "right only: color=blue" in apart
    assert "shared and telling nothing: service=freeshipping" in apart
    together = explain_plain_files(chosen, [str(path)], "suite:0", "suite:2")["text"]
    assert "-- query 1.00 (a steel bottle) --" in together and "different clusters" not in together
