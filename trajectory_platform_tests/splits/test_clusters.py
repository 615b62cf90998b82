"""Leak clusters: what joins two problems, what does not, and what never changes a cluster."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.errors import FailPartition
from trajectory_platform.sandbox.problems import Problem, parse_problem, to_table
from trajectory_platform.settings import HoldOut
from trajectory_platform.splits.clusters import EXACT_DIAMETER, BenchmarkProblems
from trajectory_platform.splits.pools import STRICTNESS
from trajectory_platform_tests.splits.rows import (
    cluster_of,
    clusters,
    hidden,
    link,
    links,
    on_days,
    pool_of,
    public,
    uuid_like,
)


def test_two_wordings_of_one_target_are_one_cluster() -> None:
    """Case D08: 3-gram similarity of the two queries is zero, the target product is the same."""
    rows = on_days(
        (
            "2026-05-01",
            [
                public("pb-17", "find a black waist bag with three pockets under 20 dollars", ["70010001"]),
                public("pb-932", "recommend a waist bag in black priced below 20 that has 3 pockets", ["70010001"]),
                public("pb-5", "find a black waist bag with four pockets under 20 dollars", ["70010002"]),
            ],
        )
    )
    found = cluster_of(clusters(rows))
    assert found["pb-17"] == found["pb-932"] != found["pb-5"]


def test_equal_text_joins_and_empty_text_joins_nothing() -> None:
    """Case D01, over problems whose reward is hidden."""
    texts = {"t0": "cat", "t1": "dog", "t2": "Cat ", "t3": "  ", "t4": "\u00a0"}
    rows = on_days(("2026-05-01", [public(name, text, []) for name, text in texts.items()]))
    found = cluster_of(clusters(rows))
    assert found["t0"] == found["t2"]
    assert len(set(found.values())) == 4


def test_similar_but_different_texts_stay_apart() -> None:
    """Case D03 and the voucher boilerplate of domain 4.4: word overlap is no edge."""
    tail = " My budget is only `100`, but I have a voucher with the following rules: it applies to all products."
    rows = on_days(("2026-05-01", [public("a", "a red mug." + tail, ["1"]), public("b", "a blue mug." + tail, ["2"])]))
    result = clusters(rows)
    assert len(set(cluster_of(result).values())) == 2
    assert result.edges.num_rows == 0


def test_a_problem_id_binds_its_contents() -> None:
    """A hidden problem that becomes public later stays in its cluster; so does an item whose text changed."""
    rows = on_days(
        ("2026-05-01", [hidden("pb-1"), public("pb-2", "old text", ["7"])]),
        ("2026-05-02", [public("pb-1", "now public", ["5"]), public("pb-2", "new text", ["8"])]),
    )
    table = clusters(rows).clusters.to_pylist()
    by_id = {name: {row["cluster_id"] for row in table if name in row["problem_ids"]} for name in ("pb-1", "pb-2")}
    assert len(table) == 4
    assert all(len(found) == 1 for found in by_id.values())
    assert by_id["pb-1"] != by_id["pb-2"]


def test_short_ids_bind_inside_a_suite_and_uuids_everywhere() -> None:
    shared_id = uuid_like("one problem")
    rows = on_days(
        (
            "2026-05-01",
            [
                public("1", "first of suite a", ["11"], suite="a"),
                public("1", "first of suite b", ["12"], suite="b"),
                public(shared_id, "worded so", ["13"], suite="a"),
                public(shared_id, "worded otherwise", ["14"], suite="b"),
            ],
        )
    )
    table = clusters(rows).clusters.to_pylist()
    assert len({row["cluster_id"] for row in table if row["problem_ids"] == ["1"]}) == 2
    assert len({row["cluster_id"] for row in table if row["problem_ids"] == [shared_id]}) == 1


def test_successful_recommendations_bind_a_hidden_problem() -> None:
    rows = on_days(
        (
            "2026-05-01",
            [hidden("race"), public("shop", "three things", ["1", "2", "3"]), public("x", "one thing", ["4"])],
        )
    )
    success = link("race", outcome_success=True, recommended_ids=["2", "1"])
    failure = link("race", outcome_success=False, recommended_ids=["4"])
    found = cluster_of(clusters(rows, links(success, failure)))
    assert found["race"] == found["shop"] != found["x"]


def test_one_shared_product_of_several_is_no_edge_for_a_hidden_problem() -> None:
    """A product that also satisfies the hidden problem is often another problem's target."""
    rows = on_days(("2026-05-01", [hidden("race"), public("shop", "three things", ["1", "2", "3"])]))
    found = cluster_of(clusters(rows, links(link("race", outcome_success=True, recommended_ids=["1", "9"]))))
    assert found["race"] != found["shop"]


def test_surplus_ids_cannot_tie_a_problem_to_others() -> None:
    """The scorer ignores surplus ids, so a hostile agent may append the whole catalogue to a right answer."""
    targets = [public(f"p{number}", f"thing {number}", [str(number), str(number + 1000)]) for number in range(100)]
    rows = on_days(("2026-05-01", [hidden("race"), hidden("single", category="product"), *targets]))
    flood = [str(number) for number in range(5, 100)] + [str(number + 1000) for number in range(5, 100)]
    attack = links(
        link("race", outcome_success=True, recommended_ids=["1", "1001", "2", "1002", *flood]),
        link("single", category="product", outcome_success=True, recommended_ids=["77", *flood]),
    )
    found = cluster_of(clusters(rows, attack))
    assert found["race"] == found["p1"] == found["p2"]
    assert len(set(found.values())) == 100


def test_one_agents_query_cannot_tie_a_problem_when_others_ran_it() -> None:
    """The query of a race trace is agent-written: the day's majority counts, a tie does not."""
    rows = on_days(("2026-05-01", [hidden("race"), hidden("even"), public("p", "Find a Teapot!", ["1"])]))
    attack = [link("race", query="find a teapot"), link("race", query="a red mug"), link("race", query="A red mug")]
    tie = [link("even", query="find a teapot"), link("even", query="a blue mug")]
    found = cluster_of(clusters(rows, links(*attack, *tie)))
    assert len(set(found.values())) == 3
    honest = cluster_of(clusters(rows, links(link("race", query="`find`  a teapot"), link("even", query=""))))
    assert honest["race"] == honest["p"] != honest["even"]


def test_knowledge_answers_join_but_do_not_chain_without_end() -> None:
    """Domain 4.4: a short answer over-merges at scale, so only the first problems that share it are joined."""
    rows = [
        parse_problem(
            {"query": f"trivia {number}", "Knowledge_Attribute": 1977, "reward": {"product_id": str(number)}},
            suite_id="w",
            problem_id=f"w{number:02}",
        )
        for number in range(30)
    ]
    sizes = [row["cluster_size"] for row in clusters(to_table(rows, "2026-05-01")).clusters.to_pylist()]
    assert sorted(sizes) == [1] * 22 + [8] * 8


def test_a_trace_of_an_unlisted_problem_has_a_cluster() -> None:
    result = clusters(on_days(("2026-05-01", [hidden("a")])), links(link("nowhere-listed", query="text")))
    assert set(cluster_of(result)) == {"a", "nowhere-listed"}


def test_rows_after_the_day_do_not_count() -> None:
    rows = on_days(("2026-05-01", [public("a", "a", ["1"])]), ("2026-05-03", [public("b", "b", ["1"])]))
    assert set(cluster_of(clusters(rows, day=date(2026, 5, 2)))) == {"a"}


def chain(length: int) -> pa.Table:
    """Problems that each share a product with the next: the ends share nothing (case D06)."""
    return on_days(
        ("2026-05-01", [public(f"c{n}", f"chain {n}", [str(n), str(n + 1)]) for n in range(length)]),
        ("2026-05-01", [public(f"s{n}", f"single {n}", [f"9{n}"]) for n in range(length)]),
    )


@pytest.mark.parametrize(("share", "flagged"), [(0.1, True), (0.4999, True), (0.5, False), (1.0, False)])
def test_a_chain_that_eats_the_data_stops_the_run(share: float, flagged: bool) -> None:
    """Case D06: size above the set share stops the run with the edges; case D10: the threshold is what decides."""
    if not flagged:
        sizes = {
            row["cluster_size"]
            for row in clusters(chain(30), max_cluster_share=share, min_problems_for_share=50).clusters.to_pylist()
        }
        assert sizes == {1, 30}
        return
    with pytest.raises(FailPartition) as stopped:
        clusters(chain(30), max_cluster_share=share, min_problems_for_share=50)
    assert "30 of 60 problems" in str(stopped.value)
    assert str(stopped.value).count("product_id (sealed)") == 29
    with pytest.raises(FailPartition) as stopped:
        clusters(chain(30), max_cluster_share=share, min_problems_for_share=50, shares=(90, 10, 0))
    assert str(stopped.value).count("product_id '") == 29


def test_the_run_that_stops_tells_nothing_of_sealed_problems() -> None:
    """Its message is printed and kept by logs and event stores, where no ledger stands before it."""
    wish = "a wish that nobody may read"
    rows = on_days(("2026-05-01", [public(f"p{n}", wish, [str(900_000 + n)]) for n in range(60)]))
    for shares, told in (((0, 0, 100), False), ((0, 100, 0), True)):
        with pytest.raises(FailPartition, match=r"60 of 60 problems.*\(query 59\)") as stopped:
            clusters(rows, max_cluster_share=0.2, min_problems_for_share=50, shares=shares)
        assert (wish in str(stopped.value)) is told


def test_the_share_is_not_tested_on_few_problems() -> None:
    clusters(chain(24), max_cluster_share=0.1, min_problems_for_share=50)


def test_hold_outs_are_dated_and_take_the_whole_cluster() -> None:
    rows = on_days(
        ("2026-05-01", [public("a", "a", ["1", "2"], suite="7"), public("b", "b", ["2", "3"], suite="8")]),
    )
    sealed = HoldOut(since=date(2026, 5, 2), until=date(2026, 5, 10), suite_id="7")
    free = pool_of(clusters(rows, day=date(2026, 5, 1), hold_outs=[sealed]))
    held = clusters(rows, day=date(2026, 5, 2), hold_outs=[sealed])
    released = pool_of(clusters(rows, day=date(2026, 5, 10), hold_outs=[sealed]))
    assert pool_of(held) == {"a": "sealed", "b": "sealed"}
    assert {row["problem_ids"][0]: row["held_out"] for row in held.clusters.to_pylist()} == {"a": True, "b": False}
    assert free == released


def test_a_voucher_added_to_a_query_is_the_same_query() -> None:
    tail = (
        "\n\nMy budget is only `425`, but I have a voucher with the following rules:\n1. The voucher applies to all "
        "products.\n2. It is valid only when the total price of the products exceeds `170`.\n3. It provides a fixed "
        "discount of `34`."
    )
    plain = public("plain", "Looking for oil-based crayons.", ["1"], category="product")
    with_voucher = public("voucher", "Looking for oil-based crayons" + tail, ["2"], category="voucher")
    other_voucher = public("other", "looking for  oil-based crayons" + tail.replace("34", "99"), ["3"])
    only_tail = [public(f"tail{number}", tail + " " * number, [f"9{number}"]) for number in range(2)]
    another = public("another", "Looking for a seat cushion" + tail, ["4"], category="voucher")
    result = clusters(on_days(("2026-05-01", [plain, with_voucher, other_voucher, *only_tail, another])))
    found = cluster_of(result)
    assert found["plain"] == found["voucher"] == found["other"]
    assert len({found[name] for name in ("plain", "tail0", "another")}) == 3
    assert {edge["evidence"] for edge in result.edges.to_pylist() if edge["kind"] == "query"} >= {
        "looking for oil-based crayons"
    }


def test_a_relisted_request_is_one_cluster() -> None:
    """No product and no text in common: the constraints are (``splits.constraints``)."""

    def item(name: str, product: str, **more: object) -> Problem:
        reward = {
            "product_id": product,
            "title": ["Sweet Spot Sanded Carbon Fiber Pickleball Paddle"],
            "attributes": [{"racquet_material": ["carbon fiber"]}, {"brand": ["joola"]}],
        }
        return parse_problem({"query": f"words of {name}", "reward": reward | more}, suite_id="1", problem_id=name)

    rows = on_days(
        ("2026-05-01", [item("old", "1", price=[{"between": [402, 2395]}])]),
        ("2026-05-02", [item("new", "2", price=[{"greater than": [300, None]}]), item("far", "3", title=["Paddle"])]),
    )
    result = clusters(rows)
    found = cluster_of(result)
    assert found["old"] == found["new"] != found["far"]
    (edge,) = result.edges.to_pylist()
    assert (edge["kind"], edge["value"]) == ("constraints", 1.0)
    assert "brand=joola" in edge["evidence"]


def test_an_answer_group_never_loses_a_member() -> None:
    """The eight that are joined go by the day their answer was listed: a trace that makes a problem look older, seen
    before its listing, must not push another one out."""

    def trivia(number: int) -> Problem:
        return parse_problem(
            {"query": f"trivia {number}", "Knowledge_Attribute": "red", "reward": {"product_id": str(number)}},
            suite_id="w",
            problem_id=f"w{number:02}",
        )

    for late in range(20, 40):  # whichever key comes first
        problem = trivia(late)
        rows = on_days(("2026-05-01", [trivia(number) for number in range(8)]), ("2026-05-02", [problem]))
        judged = links(
            link(problem.problem_id, day="2026-05-01", suite_id="w", problem_key=problem.problem_key, category="web")
        )
        before = cluster_of(clusters(rows, judged, day=date(2026, 5, 1)))
        after = cluster_of(clusters(rows, judged, day=date(2026, 5, 2)))
        assert len({after[name] for name, cluster in before.items() if cluster == before["w00"]}) == 1


@pytest.mark.parametrize("length", [1, 2, 3, 30, 199, 260])
def test_the_diameter_shows_a_chain(length: int) -> None:
    """Case D06: exact for small clusters; for large ones never less than it is, and at most twice."""
    rows = on_days(("2026-05-01", [public(f"c{n}", f"chain {n}", [str(n), str(n + 1)]) for n in range(length)]))
    table = clusters(rows).clusters.to_pylist()
    assert {row["cluster_size"] for row in table} == {length}
    (told,) = {row["diameter"] for row in table}
    assert told == length - 1 if length <= EXACT_DIAMETER else length - 1 <= told <= 2 * (length - 1)


def test_the_diameter_of_a_star_is_two_whatever_its_size() -> None:
    for size in (3, 40, EXACT_DIAMETER + 50):
        rows = on_days(("2026-05-01", [public(f"s{n}", f"star {n}", ["1", f"own{n}"]) for n in range(size)]))
        assert {row["diameter"] for row in clusters(rows).clusters.to_pylist()} == {2}


def test_hints_are_listed_and_never_merge() -> None:
    rows = on_days(
        (
            "2026-05-01",
            [
                public("a", "a black steel water bottle with two straws", ["1"]),
                public("b", "a blue steel water bottle with two straws", ["2"]),
                public("c", "a garden hose", ["3"]),
            ],
        )
    )
    assert clusters(rows).hints.num_rows == 0
    result = clusters(rows, near_similarity=0.6)
    (hint,) = result.hints.to_pylist()
    assert (hint["kind"], hint["value"], hint["evidence"]) == (
        "words",
        0.777778,
        "a bottle steel straws two water with",
    )
    assert len(set(cluster_of(result).values())) == 3
    assert clusters(rows, near_similarity=0.8).hints.num_rows == 0
    table = result.clusters
    assert table.equals(clusters(rows).clusters)


def test_vectors_of_the_caller_give_hints_too() -> None:
    rows = on_days(("2026-05-01", [public(name, f"words of {name}", [name]) for name in "abc"]))
    vectors = {"words of a": [1.0, 0.0], "words of b": [0.99, 0.05], "words of c": [0.0, 1.0]}
    result = clusters(rows, near_similarity=1.0, embed=lambda texts: [vectors[text] for text in texts])
    assert [hint["kind"] for hint in result.hints.to_pylist()] == ["embedding"]


def benchmark(*problems: Problem, sealed: bool = False) -> BenchmarkProblems:
    return BenchmarkProblems("bench", to_table(problems, "2026-01-01"), sealed)


def test_a_registered_benchmark_marks_and_only_a_sealed_one_seals() -> None:
    rows = on_days(
        ("2026-05-01", [public("a", "one", ["1"]), public("b", "two", ["1", "2"]), public("c", "three", ["3"])]),
    )
    # Its first row is a row of the platform word for word; its second would tie b to c, which nothing else does.
    own = (public("x", "one", ["1"], suite="f"), public("y", "else", ["2", "3"], suite="f"))
    without, marked = clusters(rows), clusters(rows, benchmarks=[benchmark(*own)])
    unmarked = marked.clusters.set_column(
        marked.clusters.column_names.index("benchmark_overlap"),
        "benchmark_overlap",
        without.clusters["benchmark_overlap"],
    )
    assert unmarked.equals(without.clusters)
    assert {row["problem_ids"][0]: row["benchmark_overlap"] for row in marked.clusters.to_pylist()} == {
        "a": ["bench"], "b": ["bench"], "c": ["bench"],
    }  # fmt: skip
    told = {(edge["kind"], edge["evidence"]) for edge in marked.edges.to_pylist() if "benchmark" in edge["right_key"]}
    assert told == {("product_id", "1"), ("product_id", "2"), ("product_id", "3"), ("query", "one")}
    sealed = clusters(rows, benchmarks=[benchmark(own[0], sealed=True)])
    assert {name: pool for name, pool in pool_of(sealed).items() if name != "c"} == {"a": "sealed", "b": "sealed"}
    assert pool_of(sealed)["c"] == pool_of(without)["c"]
    held = {row["problem_ids"][0]: row["held_out"] for row in sealed.clusters.to_pylist()}
    assert held["a"] and not held["c"]


# ------------------------------------------------------------------------------------------- properties

_PRODUCTS = st.lists(st.integers(0, 30).map(str), min_size=1, max_size=4, unique=True)
_PROBLEMS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 40), st.sampled_from(["cup", "pot", "mug", "bag"]), _PRODUCTS),
    min_size=1,
    max_size=30,
)


def table_of(drawn: list[tuple[int, int, str, list[str]]]) -> pa.Table:
    return pa.concat_tables(
        [
            to_table([public(f"p{number}", f"{text} {number}", products)], f"2026-05-0{day}")
            for day, number, text, products in drawn
        ]
    )


@given(_PROBLEMS, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_row_order_changes_nothing(drawn: list[tuple[int, int, str, list[str]]], random: object) -> None:
    rows = table_of(drawn)
    order = list(range(rows.num_rows))
    random.shuffle(order)  # type: ignore[attr-defined]
    one, two = (clusters(some, day=date(2026, 5, 9), near_similarity=0.5) for some in (rows, rows.take(order)))
    assert all(left.equals(right) for left, right in zip(one, two, strict=True))


@given(_PROBLEMS)
@settings(max_examples=60)
def test_later_days_only_merge_and_tighten(drawn: list[tuple[int, int, str, list[str]]]) -> None:
    """Monotone in the day: problems together stay together, and no pool becomes looser."""
    rows = table_of(drawn)
    before: dict[str, dict[str, object]] = {}
    for number in range(1, 6):
        now = {row["problem_key"]: row for row in clusters(rows, day=date(2026, 5, number)).clusters.to_pylist()}
        moved: dict[object, set[object]] = {}
        for key, row in before.items():
            moved.setdefault(row["cluster_id"], set()).add(now[key]["cluster_id"])
            assert STRICTNESS.index(str(now[key]["pool"])) >= STRICTNESS.index(str(row["pool"]))
        assert all(len(found) == 1 for found in moved.values())
        before = now


@given(_PROBLEMS)
@settings(max_examples=60)
def test_unrelated_problems_leave_ids_and_pools_alone(drawn: list[tuple[int, int, str, list[str]]]) -> None:
    rows = table_of(drawn)
    others = [public(f"other{number}", f"unrelated {number}", [f"u{number}"], suite="9") for number in range(20)]
    more = pa.concat_tables([to_table(others, "2026-05-01"), rows])
    small = {row["problem_key"]: row for row in clusters(rows, day=date(2026, 5, 9)).clusters.to_pylist()}
    large = {row["problem_key"]: row for row in clusters(more, day=date(2026, 5, 9)).clusters.to_pylist()}
    assert {key: large[key] for key in small} == small


_SEED_PROBE = """
import json
from trajectory_platform_tests.splits.rows import clusters, hidden, link, links, on_days, public
texts = [
    public(f"h{n}", f"find item number {n % 7} in shop {n % 5}", [f"{n % 7}", f"{n % 5 + 100}"]) for n in range(20)
]
rows = on_days(("2026-05-01", texts + [hidden("r")]))
judged = links(*[link("r", outcome_success=True, recommended_ids=["1", "101"], query="a") for _ in range(3)])
result = clusters(rows, judged, near_similarity=0.3)
print(json.dumps([table.to_pylist() for table in result]))
"""


def test_the_hash_seed_changes_nothing() -> None:
    """Case D04: identical clusters and split for PYTHONHASHSEED 0, 1 and 2."""
    answers = set()
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", _SEED_PROBE], env=environment, capture_output=True, text=True, check=True
        )
        answers.add(run.stdout)
    assert len(answers) == 1
    assert len(json.loads(answers.pop())[0]) == 21


def test_a_trace_bound_by_a_later_listing_keeps_cluster_and_pool_when_that_arrives() -> None:
    """Judged before midnight, listed in the next day's folder: its problem is one node, then and afterwards."""
    later = public("p", "a red pot", ["1"])
    twin = public("q", "A red  pot!", ["9"], category="product")
    moved = link(
        "p",
        problem_key=later.problem_key,
        query="a red pot",
        query_verified=True,
        outcome_success=True,
        recommended_ids=["5"],
    )
    judged = links(moved)
    rows = on_days(("2026-05-01", [twin, public("r", "blue", ["5"], category="product")]), ("2026-05-02", [later]))
    before = clusters(rows, judged, day=date(2026, 5, 1)).clusters.to_pylist()
    after = clusters(rows, judged, day=date(2026, 5, 2)).clusters.to_pylist()

    def facts(found: list[dict[str, object]]) -> dict[object, tuple[object, ...]]:
        return {row["problem_key"]: (row["cluster_id"], row["pool"], row["first_seen"]) for row in found}

    assert facts(before) == facts(after) and later.problem_key in facts(before)
    assert facts(before)[later.problem_key][0] == facts(before)[twin.problem_key][0]


def test_pools_only_tighten_when_traces_move_over_midnight() -> None:
    """Whatever is listed a day late, and whatever the traces claim."""
    for seed in range(40):
        chance = random.Random(seed)
        made = [
            public(f"p{n}", f"query {chance.randrange(12)}", [str(chance.randrange(15))], category="product")
            if chance.random() < 0.6
            else hidden(f"p{n}", category="product")
            for n in range(20)
        ]
        days = [f"2026-05-0{day}" for day in (1, 2, 3, 4)]
        listed: dict[str, list[Problem]] = {day: [] for day in days}
        traces = []
        for problem in made:
            first = chance.randrange(3)
            listed[days[first + 1]].append(problem)
            for _ in range(3):
                day = days[chance.choice((first, first + 1))]
                stated = problem.query or f"query {chance.randrange(12)}"
                traces.append(
                    link(
                        problem.problem_id,
                        day=day,
                        problem_key=problem.problem_key,
                        category="product",
                        query=stated,
                        query_verified=problem.query is not None,
                        outcome_success=chance.random() < 0.7,
                        recommended_ids=[str(chance.randrange(15))],
                    )
                )
        judged = links(*traces)
        rows = on_days(*listed.items())
        held: dict[str, str] = {}
        for day in days:
            now = {row["problem_key"]: row["pool"] for row in _rows_of(rows, judged, day)}
            assert set(held) <= set(now), (seed, day, "a problem vanished")
            looser = [key for key, pool in held.items() if STRICTNESS.index(now[key]) < STRICTNESS.index(pool)]
            assert not looser, (seed, day)
            held = now


def test_a_problem_known_from_traces_alone_stays_when_a_listing_names_it_later() -> None:
    """Its key was that of its bare id; the listing gives it another. The edges it had, and what they seal, stay."""
    race = "0d9f7a1c-7d1e-4a52-9a1f-3b9a6c1f2e10"
    judged = links(*[link(race, query="a red pot", outcome_success=True, recommended_ids=["5", "6"])] * 2)
    twins = [public("q", "A red  pot!", ["9"]), public("r", "blue", ["5", "6"])]
    for name, suite in ((race, "1"), (race, "2")):
        late = public(name, "what it was in the end", ["77"], suite=suite)
        rows = on_days(("2026-05-01", twins), ("2026-05-02", [late]))
        before = clusters(rows, judged, day=date(2026, 5, 1)).clusters.to_pylist()
        after = clusters(rows, judged, day=date(2026, 5, 2)).clusters.to_pylist()
        assert {row["problem_key"] for row in before} < {row["problem_key"] for row in after}
        assert [row["cluster_size"] for row in before] == [3] * 3
        assert [row["cluster_size"] for row in after] == [4] * 4, "and the listed problem is one with it"
        assert {row["cluster_id"] for row in before} == {row["cluster_id"] for row in after}


def test_pools_only_tighten_whatever_is_listed_when() -> None:
    """Listings come days after the traces, under the same or another suite, with other contents; traces know less."""
    for seed in range(40):
        chance = random.Random(f"late listings {seed}")
        days = [f"2026-05-0{day}" for day in (1, 2, 3, 4, 5)]
        suites = ("1", "2")
        listed: dict[str, dict[tuple[str, str], Problem]] = {day: {} for day in days}
        traces = []
        for day in days:
            for _ in range(chance.randrange(5)):
                name, suite = f"p{chance.randrange(8)}", chance.choice(suites)
                asked = public(name, f"query {chance.randrange(8)}", [str(chance.randrange(12))], suite=suite)
                listed[day][suite, name] = asked if chance.random() < 0.7 else hidden(name, suite=suite)
            for _ in range(chance.randrange(6)):
                traces.append(
                    link(
                        chance.choice([f"p{chance.randrange(8)}", f"x{chance.randrange(3)}"]),
                        day=day,
                        suite_id=chance.choice((*suites, None)),
                        category="product",
                        query=f"query {chance.randrange(8)}",
                        outcome_success=chance.random() < 0.7,
                        recommended_ids=[str(chance.randrange(12))],
                    )
                )
        rows, judged = on_days(*((day, list(named.values())) for day, named in listed.items())), links(*traces)
        held: dict[str, dict[str, str]] = {}
        for day in days:
            now = {row["problem_key"]: row for row in _rows_of(rows, judged, day)}
            assert set(held) <= set(now), (seed, day, "a problem vanished")
            homes: dict[str, set[str]] = {}
            for key, row in held.items():
                assert STRICTNESS.index(now[key]["pool"]) >= STRICTNESS.index(row["pool"]), (seed, day)
                homes.setdefault(row["cluster_id"], set()).add(now[key]["cluster_id"])
            assert all(len(home) == 1 for home in homes.values()), (seed, day, "a cluster fell apart")
            held = now


def _rows_of(rows: pa.Table, judged: pa.Table, day: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = clusters(rows, judged, day=date.fromisoformat(day)).clusters.to_pylist()
    return found
