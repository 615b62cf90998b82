"""``split --suites FILE...``: rows, ids, and the overlaps that domain 4.3 and 4.4 counted on the published files."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.settings import Benchmark, HoldOut
from trajectory_platform.splits.suite_files import explain_files, split_files
from trajectory_platform.splits.weak import near_pairs


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


def test_no_word_pair_of_the_benchmark_is_merged(shared: Path) -> None:
    """Domain 4.4: token similarity finds 21 pairs, all false. Here they are neither edges nor one cluster."""
    texts = {}
    for path in benchmark_files(shared):
        for number, line in enumerate(path.read_text("utf-8").rstrip("\n").split("\n")):
            texts[f"{path.stem}:{number}"] = json.loads(line)["query"]
    names = list(texts)
    false = near_pairs(list(texts.values()), 0.6, strip=False)
    home = {row["problem_id"]: row["cluster_id"] for row in split_files(benchmark_files(shared), pool_key="k")}
    assert len(false) == 21
    assert all(home[names[pair.left]] != home[names[pair.right]] for pair in false)


def test_the_edges_of_the_benchmark_are_products_and_one_answer(shared: Path) -> None:
    rows = split_files(benchmark_files(shared), pool_key="k")
    kinds = Counter(edge["kind"] for row in rows for edge in row["edges"])
    assert set(kinds) == {"product_id", "answer"}


def test_a_registered_benchmark_marks_what_it_overlaps(shared: Path) -> None:
    """All 90 suite problems are rows of the three files; sealing one of these seals what it holds."""
    files = {path.stem.split("_")[1]: path for path in benchmark_files(shared) if "web" not in path.stem}
    marks = [Benchmark(name=name, path=str(path)) for name, path in files.items()]
    rows = split_files(suite_files(shared), pool_key="k", benchmarks=marks)
    assert len(rows) == 90
    assert all(row["category"] in row["benchmark_overlap"] for row in rows)
    alone = split_files(suite_files(shared), pool_key="k")
    assert [row["pool"] for row in rows] == [row["pool"] for row in alone]
    told = [edge for row in rows for edge in row["edges"] if edge["other"].startswith("benchmark:")]
    assert {edge["kind"] for edge in told} == {"query", "product_id"}
    sealed = [mark.model_copy(update={"sealed": mark.name == "shop"}) for mark in marks]
    held = split_files(suite_files(shared), pool_key="k", benchmarks=sealed)
    assert all(row["pool"] == "sealed" for row in held if row["category"] == "shop")
    assert {row["pool"] for row in held if "shop" not in row["benchmark_overlap"]} == {
        row["pool"] for row, mark in zip(alone, held, strict=True) if "shop" not in mark["benchmark_overlap"]
    }


def test_benchmarks_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    good, empty = tmp_path / "good.jsonl", tmp_path / "empty.jsonl"
    good.write_text('{"query": "a", "reward": {"product_id": "1"}}\n')
    empty.write_text('{"nothing": true}\n{"nothing": 1}\n')
    with pytest.raises(Abort, match="no row of"):
        split_files([good], pool_key="k", benchmarks=[Benchmark(name="b", path=str(empty))])
    with pytest.raises(Abort, match="two benchmarks"):
        split_files([good], pool_key="k", benchmarks=[Benchmark(name="b", path=str(good))] * 2)


def test_problems_of_files_are_explained(shared: Path) -> None:
    """Shop 105 and voucher 131 list the same phones; shop 211 and voucher 225 share four plain pairs of a shirt."""
    files = benchmark_files(shared)
    same = explain_files(files, "synthesize_shop_test:105", "synthesize_voucher_test:131", pool_key="k")
    assert same["same_cluster"] and {step["kind"] for step in same["path"]} == {"product_id"}
    other = explain_files(files, "synthesize_shop_test:211", "synthesize_voucher_test:225", pool_key="k")
    assert not other["same_cluster"] and other["path"] == []
    shared_pairs = other["why_not"]["compared"]["items"][0]["shared"]
    assert shared_pairs == ["neckline=crew neck", "pattern=graphic print", "season=summer", "style=casual"]
    with pytest.raises(Abort, match="no problem"):
        explain_files(files, "nowhere:1", "synthesize_voucher_test:225", pool_key="k")


def test_what_is_held_out_stays_held_in_files_whatever_the_dates(tmp_path: Path) -> None:
    """Files have no day: an entry that starts next year or ended last week holds, unless a day is given."""
    path = tmp_path / "suite.json"
    path.write_text(json.dumps([{"query": f"wish {n}", "reward": {"product_id": str(n)}} for n in range(30)]))
    entry = HoldOut(since=date(2027, 4, 1), until=date(2027, 5, 1), suite_id="suite")

    def pools(as_of: date | None) -> set[str]:
        return {row["pool"] for row in split_files([path], pool_key="k", hold_outs=[entry], as_of=as_of)}

    assert pools(None) == pools(date(2027, 4, 1)) == {"sealed"}
    assert "train" in pools(date(2027, 3, 31)) and "train" in pools(date(2027, 5, 1))
