"""Registered benchmarks: what enters the identity, what changed files do, what sealing would cost."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.lake.tables import LEAK_GUARDED_SPLITS
from trajectory_platform.settings import Benchmark
from trajectory_platform.splits.benchmarks import assert_unchanged, cost_per_day, load, overlapping, registered, ties
from trajectory_platform_tests.splits.rows import clusters, on_days, public
from trajectory_platform_tests.stages.built_lake import row


def item(query: str, product: str) -> dict[str, object]:
    return {"category": "product", "query": query, "reward": {"product_id": product, "title": [f"title {product}"]}}


def written(path: Path, *items: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in items), "utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "test.jsonl", item("a wish of the benchmark", "1"), item("another wish", "77"))


def test_the_content_and_the_seal_are_the_identity_and_the_place_is_not(file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_bytes(file.read_bytes())
    first = registered([Benchmark(name="b", path=str(file))])
    assert first == registered([Benchmark(name="b", path=str(elsewhere))])
    assert first != registered([Benchmark(name="b", path=str(file), sealed=True)])
    written(file, item("a wish of the benchmark", "2"))
    assert first != registered([Benchmark(name="b", path=str(file))])


def test_a_missing_file_names_the_benchmark_and_the_path(tmp_path: Path) -> None:
    missing = Benchmark(name="sb-test", path=str(tmp_path / "gone.jsonl"))
    with pytest.raises(Abort, match="benchmark 'sb-test': cannot read .*gone.jsonl: No such file"):
        registered([missing])


def test_two_of_one_name_are_refused(file: Path) -> None:
    with pytest.raises(Abort, match="two benchmarks are named 'b'"):
        registered([Benchmark(name="b", path=str(file))] * 2)


def test_a_file_that_changes_while_it_is_read_is_not_used(file: Path) -> None:
    benchmark = Benchmark(name="b", path=str(file))
    known = registered([benchmark])
    assert [one.problems.num_rows for one in load([benchmark], known)] == [2]
    written(file, item("now something else", "5"))
    with pytest.raises(FailPartition, match="benchmark/b: the file changed while it was read"):
        load([benchmark], known)


def test_what_changed_since_the_clusters_were_made_is_named(file: Path) -> None:
    plain, sealed = (Benchmark(name="b", path=str(file), sealed=seal) for seal in (False, True))
    made = {**registered([plain]), "problem_suites/2026-05-01": "digest"}
    assert_unchanged([plain], made)
    for now, why in (
        ([sealed], "was sealed or released since"),
        ([], "is no longer registered"),
        ([plain, Benchmark(name="c", path=str(file))], "benchmark/c was registered since"),
    ):
        with pytest.raises(FailPartition, match=why):
            assert_unchanged(now, made)
    written(file, item("changed", "5"))
    with pytest.raises(FailPartition, match="has changed since the leak clusters were made: run leak_clusters again"):
        assert_unchanged([plain], made)


def test_the_overlap_is_marked_and_no_pool_moves(file: Path) -> None:
    problems = on_days(("2026-05-01", [public("a", "text a", ["1"]), public("b", "text b", ["2"])]))
    benchmark = Benchmark(name="b", path=str(file))
    files = load([benchmark], registered([benchmark]))
    marked = clusters(problems, benchmarks=files)
    plain = clusters(problems)
    assert marked.clusters.drop_columns(["benchmark_overlap"]).equals(
        plain.clusters.drop_columns(["benchmark_overlap"])
    )
    marks = dict(
        zip(*(marked.clusters[name].to_pylist() for name in ("problem_key", "benchmark_overlap")), strict=True)
    )
    [hit] = [key for key, names in marks.items() if names == ["b"]]
    assert [own for keys in ties(marked.edges).values() for own in keys] == [hit]
    assert list(overlapping(problems, None, marked.clusters, files[0])) == [f"lc-{hit[:16]}"]


def test_the_cost_of_sealing_is_counted_per_day_of_the_traces() -> None:
    rows = [
        row(LEAK_GUARDED_SPLITS, trace_id=f"t{number}", trace_day=day, pool=pool, cluster_id=cluster)
        for number, (day, pool, cluster) in enumerate(
            [
                ("2026-05-01", "train", "lc-1"),
                ("2026-05-01", "train", "lc-2"),
                ("2026-05-01", "dev", "lc-3"),
                ("2026-05-02", "sealed", "lc-4"),
                ("2026-05-02", "train", "lc-2"),
            ]
        )
    ]
    splits = pa.Table.from_pylist(rows, schema=LEAK_GUARDED_SPLITS.schema())
    assert cost_per_day(splits, ["lc-1", "lc-3", "lc-4"]) == [
        {"day": "2026-05-01", "train_traces": 2, "lost": 1, "lost_dev": 1, "share": 0.5},
        {"day": "2026-05-02", "train_traces": 1, "lost": 0, "lost_dev": 0, "share": 0.0},
    ]
