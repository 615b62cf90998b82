"""``split --suites FILE...``: rows, ids, and the overlaps that domain 4.3 and 4.4 counted on the published files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.splits.suite_files import split_files


def benchmark_files(shared: Path) -> list[Path]:
    return sorted((shared / "samples" / "shoppingbench").glob("*.jsonl"))


def suite_files(shared: Path) -> list[Path]:
    return sorted((shared / "samples" / "sn15_suites").glob("*.noemb.json"))


def sizes(rows: list[dict[str, Any]]) -> Counter[int]:
    return Counter(Counter(row["cluster_id"] for row in rows).values())


def test_the_benchmark_clusters_as_counted(shared: Path) -> None:
    """900 rows: 880 clusters by product, 19 of them with several rows; one more pair shares the answer 1977."""
    rows = split_files(benchmark_files(shared), pool_key="k")
    assert len(rows) == 900
    assert Counter(row["category"] for row in rows) == {"product": 250, "shop": 250, "voucher": 250, "web": 150}
    assert sizes(rows) == {1: 859, 2: 19, 3: 1}
    by_id = {row["problem_id"]: row for row in rows}
    answer = [edge for edge in by_id["synthesize_web_simpleqa_test:25"]["edges"] if edge["kind"] == "answer"]
    assert [(edge["other"], edge["evidence"]) for edge in answer] == [("synthesize_web_simpleqa_test:144", "1977")]
    others = [path for path in benchmark_files(shared) if "web" not in path.name]
    assert sizes(split_files(others, pool_key="k")) == {1: 750 - 2 * 13, 2: 13}


def test_the_named_pairs_are_found_with_their_products(shared: Path) -> None:
    """Domain 4.4 lists the pairs; each row says which product joins it to which other row."""
    rows = {row["problem_id"]: row for row in split_files(benchmark_files(shared), pool_key="k")}
    pairs = {("product", "voucher"): [(41, 20), (78, 33), (140, 60), (154, 108), (159, 66), (244, 99), (246, 101)]}
    pairs[("shop", "voucher")] = [(6, 11), (42, 56), (105, 131), (156, 192), (168, 207), (193, 240)]
    pairs[("web_simpleqa", "web_simpleqa")] = [
        (18, 72),
        (22, 68),
        (68, 107),
        (87, 130),
        (117, 129),
        (142, 148),
        (143, 149),
    ]
    for (left, right), numbers in pairs.items():
        for one, two in numbers:
            a, b = rows[f"synthesize_{left}_test:{one}"], rows[f"synthesize_{right}_test:{two}"]
            assert a["cluster_id"] == b["cluster_id"]
            assert a["pool"] == b["pool"]
    named = {(edge["kind"], edge["other"]) for edge in rows["synthesize_product_test:41"]["edges"]}
    assert named == {("product_id", "synthesize_voucher_test:20")}


def test_every_published_suite_problem_is_a_test_row(shared: Path) -> None:
    """Domain 4.3: 30 of 30 for v1, v2 and v3, and the suites do not overlap one another."""
    rows = split_files([*benchmark_files(shared), *suite_files(shared)], pool_key="k")
    tests = {row["cluster_id"] for row in rows[:900]}
    suites: dict[str, set[str]] = {}
    for row in rows[900:]:
        suites.setdefault(row["suite"], set()).add(row["problem_key"])
    assert len(rows) == 990
    assert all(row["cluster_id"] in tests for row in rows[900:])
    assert all(any(edge["kind"] == "same_problem" for edge in row["edges"]) for row in rows[900:])
    assert [len(keys) for keys in suites.values()] == [30, 30, 30]
    assert len(set.union(*suites.values())) == 90


def test_pools_do_not_depend_on_which_files_are_split_together(shared: Path) -> None:
    """Only joining may tighten a pool: alone or with the benchmark, a suite row is never looser."""
    alone = {row["problem_id"]: row["pool"] for row in split_files(suite_files(shared), pool_key="k")}
    joined = {
        row["problem_id"]: row["pool"]
        for row in split_files([*suite_files(shared), *benchmark_files(shared)], pool_key="k")
    }
    order = ("train", "dev", "sealed")
    assert all(order.index(joined[name]) >= order.index(pool) for name, pool in alone.items())


def test_ids_come_from_the_file_or_from_stem_and_row(tmp_path: Path) -> None:
    first = tmp_path / "one.jsonl"
    first.write_text(
        '{"query": "a", "reward": {"product_id": "1"}}\n'
        "\n"
        "not json\n"
        '{"problem_id": "given", "suite_id": 7, '
        '"metadata": {"query": "b", "category": "Shop", "reward": [{"product_id": 1}]}}\n'
        '{"nothing": true}\n'
    )
    second = tmp_path / "two.json"
    second.write_text(
        json.dumps({"suite": {"suite_id": 3}, "problems": [{"query": "c", "reward": {"product_id": "9"}}, 5]})
    )
    rows = split_files([first, second], pool_key="k")
    assert [(row["problem_id"], row["suite"], row["category"], row["error"]) for row in rows] == [
        ("one:0", "one", "product", None),
        ("one:1", "one", "", "not_json"),
        ("given", "7", "shop", None),
        ("one:3", "one", "", "no_query_no_reward"),
        ("two:0", "two", "product", None),
        ("two:1", "two", "", "not_an_object"),
    ]
    assert rows[0]["cluster_id"] == rows[2]["cluster_id"]
    assert {row["pool"] for row in rows if row["error"]} == {None}
    assert list(rows[0])[:6] == ["problem_id", "suite", "category", "cluster_id", "pool", "edges"]


@pytest.mark.parametrize("content", ["", "not json at all", "[1, 2"])
def test_a_file_that_cannot_be_read_stops_the_command(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(Abort, match=r"broken\.json"):
        split_files([path], pool_key="k")


def test_two_days_can_be_split_together(tmp_path: Path) -> None:
    paths = []
    for day, product in (("2026-05-02", "1"), ("2026-05-03", "1")):
        (tmp_path / day).mkdir()
        paths.append(tmp_path / day / "suite.json")
        paths[-1].write_text(json.dumps([{"query": day, "category": "Product", "reward": {"product_id": product}}]))
    rows = split_files(paths, pool_key="k")
    assert [row["problem_id"] for row in rows] == ["2026-05-02-suite:0", "2026-05-03-suite:0"]
    assert rows[0]["cluster_id"] == rows[1]["cluster_id"]


def test_two_files_that_name_their_rows_alike_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    path.write_text("[]")
    with pytest.raises(Abort, match="both name their rows"):
        split_files([path, path], pool_key="k")
