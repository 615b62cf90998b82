"""Forty scripted days with merges, late rewards and retractions, checked against the script's own knowledge.

The oracle knows which problems are variants (families), what became public when, and which traces were withdrawn. It
shares no code with the clusters but the draw of a single problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from trajectory_platform.lake.tables import AXIS_A_CORPUS, RAW_TRACES
from trajectory_platform.sandbox.problems import Problem
from trajectory_platform.splits.clusters import BenchmarkProblems, Clusters
from trajectory_platform.splits.contamination import (
    Asked,
    contamination_rows,
    near_clusters,
    seen_by,
    stale_training_rows,
)
from trajectory_platform.splits.guard import COPY_COLUMNS, CORPUS_COLUMNS, assert_disjoint, split_window
from trajectory_platform.splits.pools import STRICTNESS, Shares, draw
from trajectory_platform_tests.splits.rows import clusters, hidden, link, links, on_days, public
from trajectory_platform_tests.stages.built_lake import row

FIRST = date(2026, 5, 1)
DAYS = 40
WINDOW = 12
LISTED = 3  # days that a problem is listed and run
_WORDS = ["teapot", "lamp", "rug", "chair", "pen", "bag", "kettle", "mirror", "clock", "basket", "towel", "candle"]


def day_of(number: int) -> str:
    return (FIRST + timedelta(days=number)).isoformat()


def wish(*parts: int) -> str:
    """A query that shares no wording with others."""
    return " ".join(f"{_WORDS[(part * 7 + n) % len(_WORDS)]}{part}x{n}" for part in parts for n in range(6))


class Script(NamedTuple):
    """The history: problems per day, judged traces, raw rows, corpus rows, the families of problem ids, retractions."""

    problems: list[list[Problem]]
    links: list[dict[str, Any]]
    raw: list[dict[str, Any]]
    corpus: list[dict[str, Any]]
    families: dict[str, int]
    retracted: dict[str, int]


def script() -> Script:
    """Day f starts family f with a public problem and a race problem with a hidden reward.

    f % 3 == 0: the race problem's reward becomes public six days later and is the family's product. f % 3 == 1: a late
    verdict, four days later, shows a success that recommended the product. Else the race problem is its own family.
    f % 10 == 5: eight days later a problem asks for the products of families f and f - 3 (a merge). On d % 7 == 3 a run
    of the day before is invalidated.
    """
    story = Script([[] for _ in range(DAYS)], [], [], [], {}, {})
    for family in range(DAYS):
        listed = public(f"a{family}", wish(family, 100), [f"9{family:04}"], category="product")
        race = hidden(f"race{family}", category="product")
        story.families.update({f"a{family}": family, f"race{family}": 1000 + family})
        for number in range(family, min(DAYS, family + LISTED)):
            story.problems[number] += [listed, race]
            for problem in (listed, race):
                _run(story, problem, number)
        _late(story, family)
    for number in range(3, DAYS, 7):
        before = day_of(number - 1)
        name = min(one["trace_id"] for one in story.corpus if one["day"] == before)
        story.retracted[name] = number
        story.raw.append(row(RAW_TRACES, trace_id=name, day=day_of(number), state="run_unusable"))
    return story


def _late(story: Script, family: int) -> None:
    product = f"9{family:04}"
    if family % 3 == 0 and family + 6 < DAYS:
        shown = public(f"race{family}", wish(family, 200), [product], category="product")
        story.problems[family + 6].append(shown)
        story.families[f"race{family}"] = family
    if family % 3 == 1 and family + 4 < DAYS:
        story.links.append(
            link(
                f"race{family}",
                day=day_of(family + 4),
                category="product",
                outcome_success=True,
                recommended_ids=[product],
            )
        )
        story.families[f"race{family}"] = family
    if family % 10 == 5 and family + 8 < DAYS:
        other = family - 3
        story.problems[family + 8].append(public(f"m{family}", wish(family, 300), [product, f"9{other:04}"]))
        story.families[f"m{family}"] = family
        for name, own in list(story.families.items()):
            if own == other:
                story.families[name] = family


def _run(story: Script, problem: Problem, number: int) -> None:
    """Two agents run a problem on a day."""
    for agent in ("one", "two"):
        name = f"{number:02}-{agent}:{problem.problem_id}"
        public_reward = problem.reward_state == "public"
        common = {"trace_id": name, "day": day_of(number), "problem_id": problem.problem_id, "suite_id": "1"}
        story.raw.append(row(RAW_TRACES, trace_id=name, day=day_of(number), state="trace"))
        story.links.append(link(problem.problem_id, day=day_of(number), category="product"))
        story.corpus.append(
            common
            | {
                "problem_key": problem.problem_key if public_reward else None,
                "category": "product",
                "content_hash": f"hash of {name}",
                "uses": ["sft"],
                "quality": 1.0,
                "agent_version_id": agent,
                "strategy_signature": "",
            }
        )


class Lived(NamedTuple):
    """What forty days left: clusters of the last day, traced rows of all checkpoints."""

    last: Clusters
    traced: list[dict[str, Any]]


def as_of(story: Script, number: int, **more: Any) -> Clusters:
    problems = on_days(*((day_of(n), story.problems[n]) for n in range(DAYS)))
    day = date.fromisoformat(day_of(number))
    return clusters(problems, links(*story.links), day=day, near_similarity=0.6, **more)


def live(story: Script, registered: BenchmarkProblems) -> Lived:
    """Every day: clusters, splits, both disjoint; every third day a checkpoint of the train pool."""
    schema = pa.schema([AXIS_A_CORPUS.schema().field(name) for name in (*CORPUS_COLUMNS, *COPY_COLUMNS)])
    corpus = pa.Table.from_pylist(story.corpus, schema=schema)
    raw = pa.Table.from_pylist(story.raw, schema=RAW_TRACES.schema())
    problems = on_days(*((day_of(n), story.problems[n]) for n in range(DAYS)))
    traced: list[dict[str, Any]] = []
    for number in range(DAYS):
        day = date.fromisoformat(day_of(number))
        found = as_of(story, number, benchmarks=[registered] if number >= 30 else [])
        split = split_window(corpus, found.clusters, day=day, window_days=WINDOW, judged=raw, copy_similarity=0.9)
        seen = problems.filter(pa.compute.less_equal(problems["day"], day.isoformat()))
        assert_disjoint(found.clusters, seen)
        assert_disjoint(split.splits, seen)
        withdrawn = {name for name, since in story.retracted.items() if since <= number}
        assert not withdrawn & set(split.splits["trace_id"].to_pylist())
        if number % 3 == 2:
            name = f"sft-{day.isoformat()}"
            traced += [{"checkpoint_id": name, **one} for one in split.splits.to_pylist() if one["pool"] == "train"]
    return Lived(found, traced)


@pytest.fixture(scope="module")
def story() -> Script:
    return script()


@pytest.fixture(scope="module")
def registered() -> BenchmarkProblems:
    """Two variants of families of the history, and a problem that nobody ever ran."""
    rows = [public("b0", "words of a benchmark", ["90010"]), public("b1", "more words", ["90022"])]
    return BenchmarkProblems("bench", on_days(("2026-01-01", [*rows, public("b2", "unseen thing", ["1"])])))


@pytest.fixture(scope="module")
def lived(story: Script, registered: BenchmarkProblems) -> Lived:
    return live(story, registered)


def true_pools(story: Script, found: pa.Table) -> dict[str, str]:
    """Problem key -> pool by the script's families and the draw of each problem alone."""
    family: dict[str, set[int]] = {}
    for one in found.to_pylist():
        family[one["problem_key"]] = {story.families[name.partition("#")[0]] for name in one["problem_ids"]}
    assert all(len(found) == 1 for found in family.values())
    drawn: dict[int, str] = {}
    for key, [own] in family.items():
        pool = draw("test-key", key, Shares())
        drawn[own] = max(drawn.get(own, "train"), pool, key=STRICTNESS.index)
    return {key: drawn[own] for key, [own] in family.items()}


def test_after_forty_days_no_cluster_is_on_two_sides_and_the_pools_are_the_true_ones(
    story: Script, lived: Lived
) -> None:
    found = lived.last.clusters
    sides: dict[str, set[str]] = {}
    for one in found.to_pylist():
        sides.setdefault(one["cluster_id"], set()).add(one["pool"])
    assert [name for name, pools in sides.items() if len(pools) > 1] == []
    assert dict(zip(*(found[name].to_pylist() for name in ("problem_key", "pool")), strict=True)) == true_pools(
        story, found
    )
    assert len(set(story.families.values())) == len(sides)


def answered(lived: Lived, asked: Sequence[Asked]) -> Mapping[str, list[dict[str, Any]]]:
    seen = seen_by(lived.traced, lived.last.clusters, {})
    near = near_clusters(lived.last.hints, lived.last.clusters)
    table = contamination_rows(seen, {one.checkpoint_id: asked for one in seen}, near, day=day_of(39), stage="sft")
    found: dict[str, list[dict[str, Any]]] = {}
    for one in table.to_pylist():
        found.setdefault(one["checkpoint_id"], []).append(one)
    return found


def test_the_right_checkpoints_are_flagged_for_the_right_problems_and_traces(story: Script, lived: Lived) -> None:
    pools = true_pools(story, lived.last.clusters)
    rows = lived.last.clusters.to_pylist()
    family_of = {one["problem_key"]: story.families[one["problem_ids"][0].partition("#")[0]] for one in rows}
    asked = [Asked(one["problem_key"], one["pool"], (one["cluster_id"],)) for one in rows if one["pool"] != "train"]
    expected: dict[tuple[str, str], set[str]] = {}
    for one in lived.traced:
        problem = one["trace_id"].partition(":")[2]
        for key, family in family_of.items():
            if pools[key] != "train" and family == story.families[problem]:
                expected.setdefault((one["checkpoint_id"], key), set()).add(one["trace_id"])
    found = answered(lived, asked)
    told = {
        (name, one["problem_key"]): set(one["traces"])
        for name, rows in found.items()
        for one in rows
        if one["status"] == "same_cluster"
    }
    assert told == expected
    flagged = {name for name, _ in told}
    assert flagged
    assert found.keys() - flagged, "some checkpoints of this history are clean"
    assert all("held out" in one["detail"] for rows in found.values() for one in rows if one["status"] != "clean")


def test_checkpoints_with_withdrawn_rows_are_flagged(story: Script, lived: Lived) -> None:
    raw = pa.Table.from_pylist(story.raw, schema=RAW_TRACES.schema())
    kept = [{name: one[name] for name in ("trace_id", "day", "uses")} for one in story.corpus]
    found = stale_training_rows(lived.traced, raw, pa.Table.from_pylist(kept), use="sft")
    expected = {(one["checkpoint_id"], one["trace_id"]) for one in lived.traced if one["trace_id"] in story.retracted}
    assert {(one["checkpoint_id"], one["trace_id"]) for one in found} == expected
    assert {one["reason"] for one in found} == {"run_unusable"}
    assert 0 < len({name for name, _ in expected}) < len({one["checkpoint_id"] for one in lived.traced})


def test_a_benchmark_registered_on_day_thirty_flags_older_checkpoints(story: Script, lived: Lived) -> None:
    marked = {
        one["cluster_id"]: one["problem_ids"]
        for one in lived.last.clusters.to_pylist()
        if one["benchmark_overlap"] == ["bench"]
    }
    families = {story.families[name.partition("#")[0]] for names in marked.values() for name in names}
    assert families == {story.families["a10"], story.families["a22"]}
    asked = [Asked("benchmark:bench:x", "benchmark", tuple(sorted(marked)))]
    found = answered(lived, asked)
    trained = {
        one["checkpoint_id"] for one in lived.traced if story.families[one["trace_id"].partition(":")[2]] in families
    }
    assert {name for name, rows in found.items() if rows[0]["status"] == "same_cluster"} == trained
    assert trained
