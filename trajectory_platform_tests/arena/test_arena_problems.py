"""Generated problems: every constraint holds for the wanted product and is stated; vouchers agree with their text."""

from __future__ import annotations

import re

import pytest

from trajectory_platform.arena.catalogue import generate_products
from trajectory_platform.arena.problems import ArenaProblem, ProblemMaker
from trajectory_platform.arena.wants import meets, noun_of
from trajectory_platform.errors import Abort
from trajectory_platform.sandbox.products import load_products, price_of, services_of

DOCUMENTS = list(generate_products(3, 3_000))


@pytest.fixture(scope="module")
def problems() -> list[ArenaProblem]:
    maker = ProblemMaker(DOCUMENTS, 3)
    return maker.public(150) + maker.public(150)


def test_the_catalogue_has_unique_titles_and_ids_and_the_published_value_types() -> None:
    assert len({document["title"] for document in DOCUMENTS}) == len(DOCUMENTS) == len(load_products(DOCUMENTS))
    assert all(isinstance(document["price"], float) for document in DOCUMENTS)
    assert all(set(services_of(document)) <= {"official", "freeShipping", "COD", "flashsale"} for document in DOCUMENTS)
    assert any(document["sku_options"] == {} for document in DOCUMENTS)
    assert list(generate_products(3, 50)) == list(generate_products(3, 50)) != list(generate_products(4, 50))


def test_the_wanted_product_meets_every_constraint(problems: list[ArenaProblem]) -> None:
    by_id = {document["product_id"]: document for document in DOCUMENTS}
    for problem in problems:
        assert all(meets(by_id[want.product_id], want) for want in problem.wants)
        if problem.category == "shop" or (problem.voucher and problem.voucher["voucher_type"] == "shop"):
            assert len({by_id[want.product_id]["shop_id"] for want in problem.wants}) == 1


def test_most_products_are_the_only_match(problems: list[ArenaProblem]) -> None:
    by_noun: dict[str, list[dict[str, object]]] = {}
    for document in DOCUMENTS:
        by_noun.setdefault(noun_of(document), []).append(document)
    matches = [
        sum(meets(document, want) for document in by_noun[want.noun])
        for problem in problems
        if problem.variant_of is None
        for want in problem.wants
    ]
    assert min(matches) == 1 and matches.count(1) / len(matches) > 0.85


def test_the_query_states_every_value_and_bound(problems: list[ArenaProblem]) -> None:
    for problem in problems:
        text = problem.query.replace("\u00a0", " ").replace("  ", " ")
        for want in problem.wants:
            assert all(value in text for _, value in want.pairs)
            assert want.title not in text and want.product_id not in text
            if want.price:
                assert all(str(bound) in text for bound in want.price[1:] if bound)


def test_voucher_text_and_object_agree_and_the_voucher_is_needed(problems: list[ArenaProblem]) -> None:
    by_id = {document["product_id"]: document for document in DOCUMENTS}
    seen = set()
    for problem in problems:
        voucher = problem.voucher
        if voucher is None or (problem.variant_of and problem.variant_of["how"] == "whitespace"):
            continue
        seen.add((voucher["voucher_type"], voucher["discount_type"]))
        assert f"My budget is only `{voucher['budget']}`" in problem.query
        assert f"exceeds `{voucher['threshold']}`" in problem.query
        scope = "applies to all products" if voucher["voucher_type"] == "platform" else "from the same shop"
        assert scope in problem.query
        total = sum(price_of(by_id[want.product_id]) or 0 for want in problem.wants)
        if voucher["discount_type"] == "fixed":
            assert re.search(r"fixed discount of `(\d+)`", problem.query).group(1) == str(voucher["face_value"])
            after = total - voucher["face_value"]
        else:
            found = re.search(r"discount of `(\d+)%` with a cap of `(\d+)`", problem.query)
            assert found.groups() == (str(round(voucher["discount"] * 100)), str(voucher["cap"]))
            after = max(total * (1 - voucher["discount"]), total - voucher["cap"])
        assert total > voucher["threshold"] and total > voucher["budget"] and after <= voucher["budget"]
        assert voucher["price_after_voucher"] == round(after, 2)
        assert all("price" not in want.reward() for want in problem.wants)
    assert len(seen) == 4


def test_variants_say_it_differently(problems: list[ArenaProblem]) -> None:
    by_id = {problem.problem_id: problem for problem in problems}
    variants = [problem for problem in problems if problem.variant_of]
    assert len(variants) > 15
    for problem in variants:
        origin = by_id[problem.variant_of["problem_id"]]
        assert problem.query != origin.query
        assert set(problem.target_ids) <= set(origin.target_ids)


def test_a_catalogue_that_is_too_small_is_named() -> None:
    maker = ProblemMaker(list(generate_products(1, 200)), 1)
    with pytest.raises(Abort, match="more products"):
        maker.public(400, variant_share=0.0)


def test_rewards_have_the_published_shape(problems: list[ArenaProblem]) -> None:
    for problem in problems[:40]:
        metadata = problem.suite_item(9, "Product 1")["metadata"]
        assert metadata["category"] == problem.category.title()
        reward = metadata["reward"]
        assert isinstance(reward, dict) is (problem.category == "product")
        for entry in [reward] if isinstance(reward, dict) else reward:
            assert (
                {"product_id", "title"}
                <= set(entry)
                <= {"product_id", "title", "sku_options", "attributes", "service", "price"}
            )
