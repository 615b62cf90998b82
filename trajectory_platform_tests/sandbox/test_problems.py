"""Problems: every published shape, the comparison form of a query, the key, the voucher text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.sandbox.problems import (
    find_problem,
    from_row,
    load_problems,
    normalise_query,
    parse_problem,
    problem_key,
    problem_rows,
    title_embeddings_of,
    to_table,
    web_rule,
)
from trajectory_platform.sandbox.suites import problem_faults, read_suite, title_embeddings


@dataclass
class Day:
    """A raw day as ``problem_rows`` sees it."""

    day: date = date(2026, 5, 1)
    runs: list[dict[str, Any]] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)
    suite: dict[str, Any] | None = None
    artifacts: list[Any] = field(default_factory=list)


@dataclass
class Artifact:
    eval_run_id: str
    problem_id: str


def item(problem_id: str, query: str, *products: str, suite: int = 21) -> dict[str, Any]:
    reward = [{"product_id": product} for product in products]
    return {
        "problem_id": problem_id,
        "suite_id": suite,
        "metadata": {"category": "Shop", "query": query, "reward": reward},
    }


def entry(problem_id: str | None, *judged: str, suite: int = 21) -> dict[str, Any]:
    results = [{"eval_run_id": f"r{number}", "updated_at": time} for number, time in enumerate(judged)]
    return {"problem_id": problem_id, "suite_id": suite, "category": "voucher", "validator_results": results}


# ------------------------------------------------------------------------------------------- shapes


def test_the_benchmark_rows_parse_with_the_published_counts(shared: Path) -> None:
    """Domain 4.2: 900 rows, one reward object for product and web, lists for shop and voucher, 11 integer answers."""
    counts: dict[str, int] = {}
    for path in sorted((shared / "samples" / "shoppingbench").glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            problem = parse_problem(json.loads(line), suite_id=path.stem)
            counts[problem.category] = counts.get(problem.category, 0) + 1
            assert problem.reward_state == "public"
            assert problem.reward is not None
            assert isinstance(problem.reward_raw, dict) == (problem.category in ("product", "web"))
            assert len(problem.reward) == (1 if isinstance(problem.reward_raw, dict) else len(problem.reward_raw))
            assert (problem.voucher is not None) == (problem.category == "voucher")
            assert isinstance(problem.knowledge_answer, str) == (problem.category == "web")
    assert counts == {"product": 250, "shop": 250, "voucher": 250, "web": 150}


def test_a_suite_item_has_the_key_of_its_benchmark_row(shared: Path) -> None:
    """Domain 4.3: v3's product problems are test rows 107, 92, 48, 38, 29, 189, 14, 9, 84 and 211."""
    samples = shared / "samples"
    rows = (samples / "shoppingbench" / "synthesize_product_test.jsonl").read_bytes().splitlines()
    keys = [parse_problem(json.loads(row), suite_id="bench").problem_key for row in rows]
    suite = json.loads((samples / "sn15_suites" / "problem_suite_v3.noemb.json").read_text())
    found = [keys.index(parse_problem(one, suite_id="v3").problem_key) for one in suite if one["category"] == "Product"]
    assert found == [107, 92, 48, 38, 29, 189, 14, 9, 84, 211]


@pytest.mark.parametrize(
    ("reward", "state", "ids"),
    [
        (None, "hidden", ()),
        ({"product_id": 123}, "public", ("123",)),
        ([{"product_id": "1"}, {"product_id": "2"}, {"product_id": "1"}], "public", ("1", "2")),
        ([], "invalid", ()),
        ("123", "invalid", ()),
        ([{"product_id": "1"}, None], "invalid", ()),
        ([{"product_id": True}], "invalid", ()),
        ({"title": ["no id"]}, "invalid", ()),
    ],
)
def test_a_reward_is_public_hidden_or_invalid_but_never_guessed(reward: Any, state: str, ids: tuple[str, ...]) -> None:
    problem = parse_problem({"problem_id": "p", "query": "q", "category": "Shop", "reward": reward}, suite_id=None)
    assert (problem.reward_state, problem.reward_product_ids) == (state, ids)
    assert (problem.reward is None) == (state != "public")


def test_hostile_ids_are_replaced_before_they_are_composed() -> None:
    problem = parse_problem({"problem_id": "../../etc/passwd", "query": "q"}, suite_id=None)
    assert problem.problem_id.startswith("sha256-")
    assert parse_problem({"query": "q"}, suite_id=None).problem_id.startswith("key-")


# ------------------------------------------------------------------------------------------- suites, web, faults


def documents(shared: Path) -> dict[str, Any]:
    """Every suite and benchmark file of the shared folder, by name."""
    samples = shared / "samples"
    found = {path.name: json.loads(path.read_text()) for path in sorted((samples / "sn15_suites").glob("*.json"))}
    for path in sorted((samples / "shoppingbench").glob("*.jsonl")):
        found[path.name] = [json.loads(line) for line in path.read_bytes().splitlines()]
    for path in sorted((shared / "days").glob("*/suite.json")):
        found[path.parent.name] = json.loads(path.read_text())
    return found


def test_all_published_suites_load_without_a_fault(shared: Path) -> None:
    suites = {name: read_suite(document, suite_id=name) for name, document in documents(shared).items()}
    assert len(suites) >= 11
    assert {name: suite.faults for name, suite in suites.items() if suite.faults} == {}
    assert all(problem.reward_state == "public" for suite in suites.values() for problem in suite.problems)


def test_the_web_rule_has_what_the_score_compares(shared: Path) -> None:
    """Domain 4.2: the rewarded product mentions the answer, in 150 of 150 rows; blanks around it are part of it."""
    rows = documents(shared)["synthesize_web_simpleqa_test.jsonl"]
    rules = [(row, web_rule(parse_problem(row, suite_id=None))) for row in rows]
    assert len(rules) == 150
    for row, rule in rules:
        assert rule is not None
        assert (rule.product_id, rule.title) == (row["reward"]["product_id"], row["reward"]["title"])
        assert rule.keyword == str(row["Knowledge_Attribute"])
        assert rule.keyword.lower() in f"{row['reward']['title']}\n{row['reward']['description']}".lower()
    assert sum(isinstance(row["Knowledge_Attribute"], int) for row in rows) == 11
    assert any(rule is not None and rule.keyword != rule.keyword.strip() for _, rule in rules)


def test_other_problems_have_no_web_rule() -> None:
    web = {"query": "q", "Knowledge_Attribute": 1977, "reward": {"product_id": "1", "title": ["a", "b"]}}
    assert web_rule(parse_problem(web, suite_id=None)) == ("1", "1977", "a")
    assert web_rule(parse_problem(web | {"category": "Product"}, suite_id=None)) is None
    assert web_rule(parse_problem(web | {"reward": None}, suite_id=None)) is None
    assert web_rule(parse_problem(web | {"Knowledge_Attribute": True, "category": "web"}, suite_id=None)) is None


def test_stored_title_vectors_can_be_reached_and_stay_out_of_the_tables(shared: Path) -> None:
    document = documents(shared)["problem_suite_v3.first_with_embedding.json"]
    items = document if isinstance(document, list) else [document]
    (title,) = items[0]["reward"]["title"]
    vectors = title_embeddings_of({"problem_id": "p", "metadata": items[0]})
    assert list(vectors) == [title] and len(vectors[title]) == 1024
    assert title_embeddings([None, *items, items[0] | {"reward_title_embeddings": {title: [0.5]}}]) == vectors
    table = to_table([parse_problem(items[0], suite_id="v3")], "2026-05-01")
    assert table.nbytes < 5_000


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        ({}, []),
        ({"query": None}, ["query_missing"]),
        ({"query": " "}, ["query_missing"]),
        ({"query": ["q"]}, ["query_not_text"]),
        ({"category": "Auction"}, ["category_unknown"]),
        ({"reward": None}, []),
        ({"reward": []}, ["reward_empty"]),
        ({"reward": "1"}, ["reward_not_an_object"]),
        ({"reward": [{"product_id": "1"}, None]}, ["reward_not_an_object"]),
        ({"reward": [{"title": ["a"]}]}, ["reward_without_product_id"]),
        ({"reward": {"product_id": "1"}}, ["reward_not_a_list"]),
        ({"category": "Product"}, ["reward_not_an_object"]),
        ({"category": "Voucher"}, ["voucher_missing"]),
        ({"voucher": "10% off"}, ["voucher_not_an_object"]),
        ({"category": "web", "reward": {"product_id": "1"}}, ["answer_missing"]),
        ({"category": "web", "reward": {"product_id": "1"}, "Knowledge_Attribute": True}, ["answer_not_text"]),
        ({"reward_title_embeddings": {"a": [0.5, "x"]}}, ["title_embeddings_unreadable"]),
        ({"reward_title_embeddings": {"a": [float("nan")]}}, ["title_embeddings_unreadable"]),
    ],
)
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_a_broken_shape_says_what_is_wrong(change: dict[str, Any], reasons: list[str], nested: bool) -> None:
    fields = {"category": "Shop", "query": "q", "reward": [{"product_id": "1"}]} | change
    item = {"problem_id": "p", "metadata": fields} if nested else {"problem_id": "p", **fields}
    assert problem_faults(item) == reasons


def test_no_row_of_a_suite_is_dropped_without_a_fault() -> None:
    document = {"suite": {"suite_id": 7}, "problems": [item("a", "q", "1"), None, item("a", "r", "2"), 5]}
    suite = read_suite(document)
    assert [problem.problem_id for problem in suite.problems] == ["a", "a"]
    assert [tuple(fault) for fault in suite.faults] == [
        (1, None, "not_an_object"),
        (2, "a", "problem_id_repeated"),
        (3, None, "not_an_object"),
    ]
    assert suite.faults_by_reason() == {"not_an_object": 2, "problem_id_repeated": 1}
    assert read_suite("text").problems == [] and len(read_suite(item("a", "q", "1")).problems) == 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = (
    "category",
    "difficulty",
    "title",
    "query",
    "reward",
    "voucher",
    "Knowledge_Attribute",
    "problem_id",
    "suite_id",
)


@given(st.dictionaries(st.sampled_from((*_FIELDS, "metadata", "reward_title_embeddings")), _JSON, max_size=6))
def test_no_shape_makes_the_reader_raise(item: dict[str, Any]) -> None:
    for shape in (item, {"metadata": item}):
        suite = read_suite([shape])
        assert len(suite.problems) == 1
        if suite.problems[0].reward_state == "invalid":
            assert any(fault.reason.startswith("reward_") for fault in suite.faults)


# ------------------------------------------------------------------------------------------- text and key


@pytest.mark.parametrize(
    "same",
    [
        ["Find a teapot!", "find  a teapot", "\ufeffFind a\u00a0tea\u200bpot.", "ＦＩＮＤ a ｔｅａｐｏｔ"],
        ["price `100-200`", "price 100\u2013200", "PRICE 100\u2212200"],
        ["women\u2019s \u201cbest\u201d bag", 'women\'s "best" bag'],
        ["Stra\u00dfe caf\u00e9", "STRASSE CAFE\u0301"],
    ],
)
def test_wordings_that_differ_only_in_form_are_one(same: list[str]) -> None:
    assert len({normalise_query(text) for text in same}) == 1


@pytest.mark.parametrize(
    ("one", "two"), [("10.5 mm", "105 mm"), ("C++ book", "C book"), ("size 9", "size 6"), ("a-b", "a b")]
)
def test_meaning_survives_normalisation(one: str, two: str) -> None:
    assert normalise_query(one) != normalise_query(two)


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise_query(text)
    assert normalise_query(once) == once
    once.encode()


def test_the_key_ignores_order_and_form_but_not_the_task() -> None:
    key = problem_key("Find A  teapot", ["2", "1"], "Shop")
    assert key == problem_key("find a teapot", ["1", "2", "1"], "shop")
    assert key != problem_key("find a teapot", ["1", "2"], "voucher")
    assert key != problem_key("find a teapot", ["1"], "shop")
    assert key != problem_key("find two teapots", ["1", "2"], "shop")


def test_hidden_problems_have_keys_of_their_own() -> None:
    """Without text and reward only the id tells problems apart; one key for all would be one cluster for all."""
    keys = {parse_problem({"problem_id": name, "category": "shop"}, suite_id="1").problem_key for name in ("a", "b")}
    assert len(keys) == 2


# ------------------------------------------------------------------------------------------- tables


def test_a_day_lists_public_named_and_found_problems() -> None:
    day = Day(
        suite={"suite": {"suite_id": 21}, "problems": [item("p1", "a", "1")]},
        problems=[entry("p1"), entry("race"), entry(None)],
        runs=[{"eval_run_id": "r9", "suite_id": 22}],
        artifacts=[Artifact("r9", "only-a-file"), Artifact("r9", "race")],
    )
    rows = problem_rows(day).to_pylist()
    assert [
        (row["problem_id"], row["suite_id"], row["reward_state"], row["source"], row["category"]) for row in rows
    ] == [
        ("only-a-file", "22", "hidden", "artifact", ""),
        ("p1", "21", "public", "suite", "shop"),
        ("race", "21", "hidden", "problems", "voucher"),
    ]


def test_changed_content_under_one_id_is_kept_apart() -> None:
    day = Day(
        suite={
            "suite": {},
            "problems": [
                item("p1", "a", "1"),
                item("p1", "b", "2"),
                item("p1", "a", "1"),
                item("p1", "c", "3", suite=22),
            ],
        }
    )
    rows = problem_rows(day).to_pylist()
    assert [(row["problem_id"], row["suite_id"], row["query"]) for row in rows] == [
        ("p1", "21", "a"),
        ("p1", "22", "c"),
        ("p1#1", "21", "b"),
    ]


def test_which_of_two_contents_has_the_plain_id_does_not_depend_on_the_order_of_the_file() -> None:
    items = [item("p1", "a", "1"), item("p1", "b", "2"), item("p1", "a", "3")]
    orders = (items, items[::-1], items[1:] + items[:1])
    tables = [problem_rows(Day(suite={"suite": {}, "problems": order})).to_pylist() for order in orders]
    assert len(tables[0]) == 3 and tables[0] == tables[1] == tables[2]


def test_rows_round_trip(shared: Path) -> None:
    for path in sorted((shared / "samples" / "shoppingbench").glob("*.jsonl")):
        problems = [
            parse_problem(json.loads(line), suite_id="s", problem_id=f"p{number:04}")
            for number, line in enumerate(path.read_bytes().splitlines())
        ]
        assert [from_row(row) for row in to_table(problems, "2026-05-01").to_pylist()] == problems


def test_a_trace_is_bound_to_its_own_suite_first() -> None:
    def problem(suite: str, query: str | None, *products: str) -> Any:
        fields = {
            "problem_id": "p",
            "query": query,
            "category": "shop",
            "reward": [{"product_id": one} for one in products] or None,
        }
        return parse_problem(fields, suite_id=suite)

    own, other, hidden = problem("1", "a", "1"), problem("2", "b", "2"), problem("3", None)
    index = load_problems(to_table([own, other, hidden], "2026-05-01"))
    assert find_problem(index, "1", "p") == own
    assert find_problem(index, "2", "p") == other
    assert find_problem(index, "3", "p") == hidden, "two suites disagree: nothing is guessed"
    assert find_problem(index, None, "p") is None
    assert find_problem(index, "1", None) is None
    single = load_problems(to_table([own, hidden], "2026-05-01"))
    assert find_problem(single, "3", "p") == own, "a suite file given later adds the reward"
    assert find_problem(single, "9", "p") == own
