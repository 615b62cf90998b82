"""The small world: what is right can only be told by reading the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.miniature import rates
from trajectory_platform.miniature.miners import Row, rows_of
from trajectory_platform.miniature.world import (
    COLOURS,
    MATERIALS,
    OBJECTS,
    ROWS,
    ProblemMaker,
    Request,
    make_products,
    perfect_call,
    read_query,
    words_of,
)
from trajectory_platform.sandbox.problems import parse_problem, to_table
from trajectory_platform.sandbox.tools import call_tool
from trajectory_platform.splits.clusters import build_clusters
from trajectory_platform_tests.miniature.market import market


def test_the_same_seed_gives_the_same_world() -> None:
    products = make_products(3)
    assert products == make_products(3) != make_products(4)
    first, again = (ProblemMaker(products, 3).problems(40) for _ in range(2))
    assert first == again != ProblemMaker(products, 4).problems(40)


def test_no_word_has_two_meanings() -> None:
    words = [*OBJECTS, *COLOURS, *MATERIALS]
    assert len(words) == len(set(words))
    assert all(word.isalpha() and word.islower() and word[0] not in "aeiou" for word in words)


def test_queries_say_what_the_problem_asks_for() -> None:
    for problem in market().problems:
        want, request = problem.wants[0], read_query(problem.query)
        assert request is not None and request.thing == want.noun
        assert want.price == ("between", request.low, request.high)
        assert want.services == (() if request.service is None else (request.service,))
        shown = words_of({"title": want.title})
        assert request.wanted and all(shown[name] == word for name, word in request.wanted.items())


@pytest.mark.parametrize("query", ["", "Find a red spaceship for 10 to 20 pesos.", "Find a red shirt under 20 pesos."])
def test_other_queries_are_not_guessed_at(query: str) -> None:
    assert read_query(query) is None


def test_the_perfect_call_shows_a_few_rows_of_which_the_strict_scorer_accepts_one() -> None:
    found = market()
    shares = rates.row_shares(found.evaluated(), found.world, found.scorer)
    assert all(ROWS[0] <= len(one.right) <= ROWS[1] and sum(one.right) == 1 for one in shares)
    assert {len(one.right) for one in shares} == set(range(ROWS[0], ROWS[1] + 1))


def test_no_words_of_a_search_bring_the_answer_forward() -> None:
    world = market().world
    for problem in market().problems[:100]:
        request = read_query(problem.query)
        assert request is not None
        name, arguments = perfect_call(request)
        rows = call_tool(world, name, arguments)
        for words in (*request.wanted.values(), " ".join(request.wanted.values()), problem.wants[0].title):
            shown = call_tool(world, name, {**arguments, "q": f"{request.thing} {words}"})
            assert shown[: len(rows)] == rows  # other objects come behind


def test_neither_place_nor_price_nor_sales_tell_the_answer() -> None:
    """Each rule takes one row by something else than its words; none may be clearly above chance."""
    found = market()
    rules: dict[str, Callable[[list[Row]], Row]] = {
        "first": lambda rows: rows[0],
        "last": lambda rows: rows[-1],
        "cheapest": lambda rows: min(rows, key=lambda row: row["price"]),
        "dearest": lambda rows: max(rows, key=lambda row: row["price"]),
        "bestseller": lambda rows: max(rows, key=lambda row: row["sold_count"]),
        "shop": lambda rows: max(rows, key=lambda row: row["shop_id"]),
        "services": lambda rows: max(rows, key=lambda row: len(row["service"])),
    }
    hits: Counter[str] = Counter()
    chance = 0.0
    for problem in found.problems:
        request = read_query(problem.query)
        assert request is not None
        rows = rows_of([call_tool(found.world, *perfect_call(request))])
        chance += 1 / len(rows)
        hits.update(name for name, rule in rules.items() if rule(rows)["product_id"] == problem.target_ids[0])
    spread = (chance * (1 - chance / len(found.problems))) ** 0.5
    assert all(abs(hits[name] - chance) < 3 * spread for name in rules), (dict(hits), chance)


def test_every_property_that_is_stated_is_needed() -> None:
    """A reader who skips one of two stated words finds other rows as well, often enough to fail."""
    found = market()
    ambiguous = 0
    both = [one for one in found.problems if len((read_query(one.query) or Request("", {}, 0, 0, None)).wanted) == 2]
    for problem in both:
        request = read_query(problem.query)
        assert request is not None
        rows = rows_of([call_tool(found.world, *perfect_call(request))])
        fitting = [sum(words_of(row)[name] == word for row in rows) for name, word in request.wanted.items()]
        ambiguous += max(fitting) > 1
    assert len(both) > 200 and ambiguous > len(both) / 3


def test_different_problems_are_different_leak_clusters_and_variants_are_one() -> None:
    problems = market().problems
    assert 20 < sum(one.variant_of is not None for one in problems) < 120
    parsed = [parse_problem(one.suite_item(1, "Product 1"), suite_id="1") for one in problems]
    table = build_clusters(to_table(parsed, "2026-05-02"), None, day=date(2026, 5, 2), pool_key="test").clusters
    found = {row["problem_key"]: row["cluster_id"] for row in table.to_pylist()}
    made: dict[str, set[str]] = {}
    for one, problem in zip(problems, parsed, strict=True):
        made.setdefault(one.leak_cluster, set()).add(found[problem.problem_key])
    assert all(len(clusters) == 1 for clusters in made.values())  # variants are one
    assert len(set().union(*made.values())) == len(made)  # different problems are apart


def test_too_many_problems_or_products_are_refused() -> None:
    with pytest.raises(Abort):
        ProblemMaker(make_products(1, per_object=9), 1, variant_share=0.0).problems(1500)
    with pytest.raises(Abort):
        make_products(1, per_object=2000)
