"""Scripts as policies: what they are told, how they speak, that an answer depends on the request alone."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.environment import Limits, Reply, Task, TurnRequest
from trajectory_platform.evaluation.example_scripts import random_browser, search_and_check
from trajectory_platform.evaluation.policies import open_policy
from trajectory_platform.evaluation.policy_scripted import MAX_OPEN_SCRIPTS, ScriptedPolicy, ScriptedTurn
from trajectory_platform.evaluation.request_text import read_request
from trajectory_platform.evaluation.rollout import run_episode
from trajectory_platform.evaluation.wire import FORMS
from trajectory_platform.traces.toolcalls import parse_reply
from trajectory_platform_tests.evaluation.policy_requests import clock, drive, market, request, task

SHARED = Path(__file__).resolve().parents[3] / "shared"
VOUCHER = (
    "\n\nMy budget is only `300`, but I have a voucher with the following rules:\n"
    "1. The voucher applies to all products.\n"
    "2. It is valid only when the total price of the products exceeds `133`.\n"
    "3. It provides a percentage discount of `42%` with a cap of `152`."
)


def noting(heard: list[Any]) -> Any:
    """A script of three turns that notes what it hears."""

    def script(asked: Task) -> Generator[ScriptedTurn | Reply, list[Any], None]:
        heard.append((yield ScriptedTurn("look", [("find_product", {"q": asked.query, "page": 1})])))
        heard.append(
            (yield ScriptedTurn("two", [("terminat", {}), ("view_product_information", {"product_ids": "m2"})]))
        )
        heard.append((yield ScriptedTurn("end", [("terminate", {"status": "success"})], "bye")))

    return script


@pytest.mark.parametrize("form", FORMS)
def test_a_script_hears_the_results_of_its_calls_in_order_whatever_its_form(form: str) -> None:
    heard: list[Any] = []
    policy = ScriptedPolicy(noting(heard), name="n", form=form)
    rollout = run_episode(policy, task(query="blue mug"), market(), Limits(), clock=clock(task()))
    assert rollout.ending.reason == "terminate"
    [rows], [unknown, details] = heard
    assert {row["product_id"] for row in rows} >= {"m1", "m2", "m4"}
    assert "unknown tool" in unknown["error"]
    assert details[0]["attributes"]["material"] == ["steel"]
    assert [step.think for step in rollout.environment.steps] == ["look", "two", "end"]
    assert rollout.environment.steps[-1].response == "bye"


@pytest.mark.parametrize("form", FORMS)
def test_what_a_script_says_is_read_back_as_it_was_meant(form: str) -> None:
    calls = [("find_product", {"q": 'a "mug" </tool_call>', "page": 1}), ("terminate", {"status": "failure"})]
    said = [ScriptedTurn("because", calls, "so"), ScriptedTurn("only thinking"), ScriptedTurn("", calls[1:])]
    for turn in said:

        def script(_task: Task, turn: ScriptedTurn = turn) -> Generator[ScriptedTurn, list[Any], None]:
            yield turn

        reply = ScriptedPolicy(script, name="n", form=form).reply_now(request())
        parsed = parse_reply(reply.content, reply.tool_calls)
        assert parsed.error is None
        assert [call.name for call in parsed.calls] == [name for name, _ in turn.calls]
        assert (reply.reasoning_content or parsed.think) == turn.think
        assert (parsed.response or parsed.rest) == turn.response


def test_a_script_may_answer_with_a_reply_of_its_own_and_ends_in_silence() -> None:
    def script(_task: Task) -> Generator[ScriptedTurn | Reply, list[Any], None]:
        yield Reply(error="policy_error: on strike")

    policy = ScriptedPolicy(script, name="n")
    assert policy.reply_now(request()).error == "policy_error: on strike"
    later = request(turn=1, messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}])
    assert policy.reply_now(later) == Reply("")


def test_an_answer_depends_on_the_request_alone() -> None:
    """Another policy object, asked in the middle of an attempt, says what the first one said."""
    recorded: list[tuple[TurnRequest, Reply]] = []

    class Recording:
        name = "r"
        inner = open_policy("script:search_and_check")

        def reply_now(self, asked: TurnRequest) -> Reply:
            reply: Reply = self.inner.reply_now(asked)  # type: ignore[attr-defined]
            recorded.append((asked, reply))
            return reply

    one = task(query="Find a blue mug, priced below 200 PHP.")
    run_episode(Recording(), one, market(), Limits(), clock=clock(one))
    assert len(recorded) == 4
    for asked, reply in reversed(recorded):
        assert open_policy("script:search_and_check").reply_now(asked) == reply  # type: ignore[attr-defined]
    again = open_policy("script:search_and_check")
    assert [again.reply_now(asked) for asked, _ in recorded[:2] * 2] == [reply for _, reply in recorded[:2] * 2]  # type: ignore[attr-defined]


def test_attempts_that_never_end_do_not_pile_up() -> None:
    policy = ScriptedPolicy(noting([]), name="n")
    for number in range(MAX_OPEN_SCRIPTS + 50):
        policy.reply_now(request(task(number)))
    assert len(policy._open) == MAX_OPEN_SCRIPTS


def test_interleaved_attempts_keep_apart() -> None:
    tasks = [task(number, query=query) for number, query in enumerate(["blue mug", "red bowl", "green mug"] * 3)]
    together = drive(open_policy("script:search_and_check"), tasks, concurrency=9)
    alone = {
        key: drive(open_policy("script:search_and_check"), [one])[key] for one in tasks for key in [(one.problem_id, 0)]
    }
    assert {key: rollout.environment.steps for key, rollout in together.items()} == {
        key: rollout.environment.steps for key, rollout in alone.items()
    }


def test_what_a_script_raises_is_not_hidden() -> None:
    def script(_task: Task) -> Generator[ScriptedTurn, list[Any], None]:
        raise KeyError("typo")
        yield

    with pytest.raises(KeyError):
        ScriptedPolicy(script, name="n").reply_now(request())
    [rollout] = drive(ScriptedPolicy(script, name="n"), [task()]).values()
    assert rollout.ending.reason == "policy_error"


def test_an_unknown_form_is_wrong_use() -> None:
    with pytest.raises(Abort, match="xml_array"):
        ScriptedPolicy(noting([]), name="n", form="yaml")


def test_the_synchronous_and_the_asynchronous_door_lead_to_the_same_script() -> None:
    policy = ScriptedPolicy(noting([]), name="n")
    assert asyncio.run(policy.reply(request())) == policy.reply_now(request())


def recommended(rollout: Any) -> list[str]:
    return [
        call["parameters"]["product_ids"]
        for step in rollout.environment.steps
        for call in step.calls
        if call["name"] == "recommend_product"
    ]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("Find a blue mug made of steel, priced below 200 PHP.", "m2"),
        ("Find a green mug.", "m3"),
        ("Show me a green mug and a red bowl.", "m3,b1"),
        ("Find a shop that sells: (1) A blue mug; (2) A red bowl. Both must come from one shop.", "m4,b1"),
        ("Looking for a blue mug and a red bowl." + VOUCHER, "m2,b1"),
    ],
)
def test_search_and_check_picks_by_what_the_tools_show(query: str, ids: str) -> None:
    [rollout] = drive(open_policy("script:search_and_check"), [task(query=query)]).values()
    assert recommended(rollout) == [ids]
    assert rollout.ending.reason == "terminate"
    calls = [call for step in rollout.environment.steps for call in step.calls]
    if "voucher" in query:
        [voucher] = [call for call in calls if call["name"] == "calculate_voucher"]
        assert voucher["result"]["voucher_applied"] and voucher["result"]["within_budget"]
    viewed = ",".join(call["parameters"]["product_ids"] for call in calls if call["name"] == "view_product_information")
    assert set(ids.split(",")) <= set(viewed.split(","))


@pytest.mark.parametrize("query", ["", "?", "Find a zzzz.", "\u202e", "`" * 200, "(1)(2)(3)", "a, a, a and a"])
@pytest.mark.parametrize("script", ["search_and_check", "random_browser"])
def test_example_scripts_end_in_order_on_odd_requests(script: str, query: str) -> None:
    [rollout] = drive(open_policy(f"script:{script}"), [task(query=query)]).values()
    assert rollout.ending.reason == "terminate"


@pytest.mark.parametrize("result", [{"error": "down"}, "text", [], [1, None], [{"product_id": ""}], 7, None])
@pytest.mark.parametrize("script", [search_and_check, random_browser])
def test_example_scripts_survive_whatever_a_tool_returns(script: Any, result: Any) -> None:
    running = script(task(query="Find a shop with: (1) A blue mug; (2) A red bowl." + VOUCHER))
    turn = next(running)
    for _ in range(25):
        if turn.calls[-1][0] == "terminate":
            break
        turn = running.send([result] * len(turn.calls))
    assert turn.calls[-1] == ("terminate", {"status": "failure"})


def test_random_browser_depends_on_the_attempt_s_seed_only() -> None:
    def picks(seed: int) -> list[list[str]]:
        tasks = [task(number, query="blue green mug bowl", seed=seed) for number in range(8)]
        return [
            recommended(rollout) for _, rollout in sorted(drive(open_policy("script:random_browser"), tasks).items())
        ]

    assert picks(1) == picks(1)
    assert picks(1) != picks(2)


def test_a_request_is_taken_apart() -> None:
    read = read_request(
        "Looking for a shop offering these items: First, a white coffee mug floral, made of enamel, costing between "
        "235 and 511 pesos, with cash on delivery and a LazFlash deal. Second, a wireless mouse, priced above 620.5 "
        "PHP and available with free shipping. Please show shops that have all these products."
    )
    assert [item.words for item in read.items] == [
        ("white", "coffee", "mug", "floral", "enamel"),
        ("wireless", "mouse"),
    ]
    assert [item.price for item in read.items] == ["235-511", "620.5-"]
    assert [item.services for item in read.items] == [("COD", "flashsale"), ("freeShipping",)]
    assert read.same_shop and read.voucher is None
    with_voucher = read_request(
        "I need an oat cookies with flavor raisin and a leather belt with size waist:38." + VOUCHER
    )
    assert [item.words[-1] for item in with_voucher.items] == ["raisin", "waist:38"]
    assert with_voucher.voucher is not None and with_voucher.voucher["cap"] == 152
    assert not with_voucher.same_shop


@pytest.mark.skipif(not (SHARED / "days").is_dir(), reason="the shared days are not here")
def test_the_offline_teacher_solves_problems_of_a_real_format_day() -> None:
    """It finds the wanted product of most product problems; chance, which random_browser shows, is far below."""
    from trajectory_platform.sandbox.products import load_products
    from trajectory_platform.sandbox.search import SearchIndex
    from trajectory_platform.sandbox.tools import World

    day = SHARED / "days" / "2026-05-02"
    catalogue = load_products(day / "catalogue" / "products.jsonl")
    world = World(catalogue, SearchIndex(catalogue))
    wanted = {
        entry["problem_id"]: entry["metadata"]
        for entry in json.loads((day / "suite.json").read_text("utf-8"))["problems"]
        if isinstance(entry["metadata"].get("reward"), dict)
    }
    tasks = [Task(key, None, key, "product", entry["query"]) for key, entry in wanted.items()]

    def share(name: str) -> float:
        done = drive(open_policy(name), tasks, world=world, concurrency=4)
        hits = [recommended(done[key, 0])[-1:] == [entry["reward"]["product_id"]] for key, entry in wanted.items()]
        return sum(hits) / len(hits)

    assert share("script:search_and_check") >= 0.5
    assert share("script:random_browser") <= 0.4


def test_a_scripted_turn_costs_little() -> None:
    """CPU time of the policy alone, far below the 2 ms a trace of the arena may take."""
    policy = ScriptedPolicy(noting([]), name="n")
    asked = [request(task(number)) for number in range(1000)]
    begun = time.process_time()
    for one in asked:
        policy.reply_now(one)
    assert (time.process_time() - begun) / len(asked) < 0.0005
