"""The web category by upstream's rule (domain 2.3, 4.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trajectory_platform.judging import outcome
from trajectory_platform.sandbox.problems import Problem, parse_problem
from trajectory_platform_tests.conftest import shared_folder
from trajectory_platform_tests.judging.dialogues import KETTLE, PRODUCTS, call, dialogue, step

K = "5100000001"
TWIN = {**KETTLE, "product_id": "9", "description": "As used by MARIE CURIE in 1903"}


def web(answer: Any = "Marie Curie", reward: dict[str, Any] | None = None) -> Problem:
    row = {"query": "who, and a kettle of hers?", "Knowledge_Attribute": answer, "reward": reward or KETTLE}
    return parse_problem(row, suite_id=None)


def answering(ids: str, response: str) -> list[dict[str, Any]]:
    steps = dialogue(ids)
    return [*steps[:3], step(4, "t", call("terminate", {}), response=response)]


@pytest.mark.parametrize(
    ("ids", "document", "fields"),
    [
        (K, KETTLE, {"gt": 1, "kw": 1, "title": 1, "rule": 1, "response": 1}),  # the product itself is right
        ("9", TWIN, {"gt": 0, "kw": 1, "title": 1, "rule": 1, "response": 1}),
        ("9", {**TWIN, "description": "", "title": "Kettle of Marie Curie"}, {"kw": 1, "title": 0, "rule": 0.5}),
        ("9", {**TWIN, "description": None}, {"kw": 0, "title": 1, "rule": 0.5, "response": 0}),
        ("9", {**TWIN, "description": "Marie", "title": "Pot"}, {"kw": 0, "title": 0, "rule": 0, "product": 1}),
        ("999", TWIN, {"product": 0, "kw": 0, "title": 0, "rule": 0}),
    ],
)
def test_answer_in_the_product_and_similar_title(ids: str, document: dict[str, Any], fields: dict[str, float]) -> None:
    scored = outcome.score(dialogue(ids), web(), {**PRODUCTS, "9": document})
    assert {name: scored.score[name] for name in fields} == fields
    assert scored.success is (fields["rule"] == 1) and scored.outcome in ("success", "failure")
    assert {"length", "format"} <= set(scored.score)


def test_the_response_is_scored_and_is_no_part_of_success() -> None:
    said = outcome.score(answering("999", "It was marie curie."), web(), PRODUCTS)
    assert said.score["response"] == 1 and not said.success
    silent = outcome.score(dialogue(K), web(), PRODUCTS)
    assert silent.success


def test_an_integer_answer_is_searched_as_text() -> None:
    scored = outcome.score(dialogue("9"), web(1903), {**PRODUCTS, "9": TWIN})
    assert scored.success and scored.score["kw"] == 1


def test_without_an_encoder_the_title_constraint_disappears_here_too() -> None:
    other = {**TWIN, "title": "Pot"}
    options: dict[str, Any] = {"title_regime": "upstream"}
    assert outcome.score(dialogue("9"), web(), {"9": other}, **options).success
    assert not outcome.score(dialogue("9"), web(), {"9": other}).success


def test_a_title_without_a_vector_decides_only_where_the_answer_is_found() -> None:
    options: dict[str, Any] = {"title_regime": "upstream", "title_encoder": "stored"}
    other = {**TWIN, "title": "Pot"}
    assert outcome.score(dialogue("9"), web(), {"9": other}, **options).reason == "title_not_encoded"
    assert outcome.score(dialogue("9"), web("nobody"), {"9": other}, **options).outcome == "failure"


def test_a_problem_without_its_answer_is_unscorable() -> None:
    task = parse_problem({"category": "web", "query": "q", "reward": KETTLE}, suite_id=None)
    scored = outcome.score(dialogue(K), task, PRODUCTS)
    assert (scored.outcome, scored.reason, scored.success) == ("unscorable", "answer_missing", None)


def test_every_published_web_problem_is_solved_by_its_own_product() -> None:
    path = shared_folder() / "samples" / "shoppingbench" / "synthesize_web_simpleqa_test.jsonl"
    if not path.is_file():
        pytest.skip("shared/samples is not present")
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    products = {row["reward"]["product_id"]: row["reward"] for row in rows}
    tasks = [parse_problem(row, suite_id=None) for row in rows]
    found = outcome.score_batch([dialogue(row["reward"]["product_id"]) for row in rows], tasks, products)
    assert len(found) == 150 and all(one.success for one in found)
    first = rows[0]["reward"]["product_id"]
    wrong = outcome.score_batch([dialogue(first)] * 150, tasks, products)
    assert sum(bool(one.success) for one in wrong) < 5
