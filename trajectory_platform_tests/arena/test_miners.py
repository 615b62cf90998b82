"""Scripted miners: what each kind leaves in the log, what the platform makes of it, and that no reward reaches them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from random import Random
from typing import Any

import pytest

from trajectory_platform.arena.account import account_of, forgery_of, replies_counted
from trajectory_platform.arena.agents import Agent
from trajectory_platform.arena.artifacts import dialogue_of, era_of
from trajectory_platform.arena.catalogue import generate_products
from trajectory_platform.arena.miners import MINERS, solve
from trajectory_platform.arena.needs import Brief, Candidate, Need, Voucher, read_brief
from trajectory_platform.arena.playing import Played
from trajectory_platform.arena.problems import ArenaProblem, ProblemMaker
from trajectory_platform.arena.quirks import FORGED, THINK_BAIT
from trajectory_platform.arena.referee import judge_outcome
from trajectory_platform.arena.shopping import Shelf, Work, settle
from trajectory_platform.arena.styles import STYLES
from trajectory_platform.curation.agency import AxisDecision, decide
from trajectory_platform.evaluation.policy_scripted import ScriptedTurn
from trajectory_platform.evaluation.wire import FORMS
from trajectory_platform.judging.injection import scan_messages
from trajectory_platform.sandbox.products import load_products
from trajectory_platform.sandbox.search import SearchIndex
from trajectory_platform.sandbox.tools import World, call_tool
from trajectory_platform.traces.sn15 import read_dialogue

DOCUMENTS = list(generate_products(7, 3_000))
MAY, JULY = date(2026, 5, 2), date(2026, 7, 5)
AGENT = Agent(
    agent_version_id="v",
    agent_id="a",
    name="n",
    hotkey="5",
    version=1,
    kind="a_xml",
    style="plain",
    form="xml_array",
    model="Qwen/Qwen3-32B-TEE",
    care=1.0,
    views=2,
    words=3,
    together=False,
    page=True,
    filters=True,
    sort=None,
    plus=True,
)


@pytest.fixture(scope="module")
def world() -> World:
    catalogue = load_products(DOCUMENTS)
    return World(catalogue, SearchIndex(catalogue))


@pytest.fixture(scope="module")
def problems() -> list[ArenaProblem]:
    return ProblemMaker(DOCUMENTS, 7).public(24)


def played(
    world: World, problem: ArenaProblem, day: date = MAY, *, quirk: str | None = None, seed: int = 1, **habits: Any
) -> Played:
    agent = replace(AGENT, **habits)
    rngs = Random(f"words|{seed}"), Random(f"own|{seed}")
    return solve(world, agent, problem, quirk, era_of(day), start=1_777_700_000_000, words=rngs[0], own=rngs[1])


def published(attempt: Played, day: date = MAY) -> list[Any]:
    return dialogue_of(attempt, "p-1", era_of(day), 9.5)


def decided(attempt: Played, day: date = MAY) -> AxisDecision:
    """The platform's own decision on what was published."""
    binding = {
        "problem_status": "SUCCESS",
        "inference_total": replies_counted(attempt, told=True) or None,
        "problem_id": "p-1",
    }
    trajectory = read_dialogue(published(attempt, day), binding=binding)
    return decide(trajectory.messages, trajectory.evidence)


def entries(steps: list[Any]) -> Iterator[dict[str, Any]]:
    for step in steps:
        yield from step["extra_info"].get("proxy_calls", ())


def test_what_a_miner_is_told_holds_no_answer(problems: list[ArenaProblem]) -> None:
    for problem in problems:
        told = repr(read_brief(problem))
        for want in problem.wants:
            assert want.product_id not in told and want.title not in told
        if problem.voucher is not None:
            assert repr(problem.voucher["price_after_voucher"]) not in told


@pytest.mark.parametrize("kind", sorted(MINERS))
def test_another_reward_changes_nothing(world: World, problems: list[ArenaProblem], kind: str) -> None:
    for problem in problems[:6]:
        other = replace(
            problem, wants=tuple(replace(want, product_id="1", title="another title") for want in problem.wants)
        )
        assert published(played(world, problem, kind=kind)) == published(played(world, other, kind=kind))


@pytest.mark.parametrize("form", FORMS)
def test_replies_in_every_form_lead_to_the_same_acts(world: World, problems: list[ArenaProblem], form: str) -> None:
    for problem in problems[:6]:
        plain, other = played(world, problem), played(world, problem, form=form)
        assert other.ending is not None and other.ending.reason == "terminate"
        results = [[[call["result"] for call in step.calls] for step in one.steps] for one in (plain, other)]
        assert results[0] == results[1]
        assert [step.think for step in plain.steps] == [step.think for step in other.steps]
        assert decided(other).label == "A"


def test_results_come_from_the_sandbox(world: World, problems: list[ArenaProblem]) -> None:
    for kind in MINERS:
        for step in played(world, problems[0], kind=kind, filters=False).steps:
            for call in step.calls:
                assert call["result"] == call_tool(world, call["name"], call["parameters"])


EXPECTED = {
    "b_regex": "B",
    "b_narrator": "B",
    "b_classifier": "B",
    "b_decoy": "B",
}


@pytest.mark.parametrize("day", [MAY, JULY], ids=["may", "july"])
@pytest.mark.parametrize("kind", sorted(MINERS))
def test_the_platform_sees_who_acted(world: World, problems: list[ArenaProblem], kind: str, day: date) -> None:
    labels = set()
    for number, problem in enumerate(problems[:10]):
        form = FORMS[number % len(FORMS)]
        attempt = played(world, problem, day, kind=kind, form=form, together=number % 2 == 0, seed=number)
        account = account_of(attempt, era_of(day))
        decision = decided(attempt, day)
        assert (decision.label, decision.reason) == (account.axis, account.reason)
        labels.add(account.axis)
    if kind == "mixed_ab":
        assert "mixed" in labels and labels <= {"mixed", "B"}
    else:
        assert labels == {EXPECTED.get(kind, "A")}


def test_an_echo_is_told_from_a_model_once_its_prompts_are_logged(world: World, problems: list[ArenaProblem]) -> None:
    for form in FORMS:
        for problem in problems[:4]:
            assert decided(played(world, problem, JULY, kind="b_echo", form=form), JULY).theatre_suspected
            assert not decided(played(world, problem, JULY, kind="a_xml", form=form), JULY).theatre_suspected
            assert not decided(played(world, problem, MAY, kind="b_echo", form=form), MAY).theatre_suspected


def test_native_agents_of_the_nonce_era_dispatch_by_post(world: World, problems: list[ArenaProblem]) -> None:
    steps = published(played(world, problems[0], JULY, form="native"), JULY)
    requests = [entry for entry in entries(steps) if entry["path"].startswith("/search/")]
    calls = [call for step in steps for call in step["completion"]["message"]["tool_call"]]
    assert [entry["path"] for entry in requests] == [f"/search/{call['name']}" for call in calls]
    assert [entry["json_data"] for entry in requests] == [call["parameters"] for call in calls]
    assert {(entry["method"], entry["nonce_status"]) for entry in requests} == {("POST", "valid")}


@pytest.mark.parametrize(
    ("kind", "form", "status"),
    [("a_xml", "xml_array", "mismatch"), ("b_regex", "xml_array", "missing"), ("b_decoy", "native", "missing")],
)
def test_other_dispatches_are_stamped_as_the_proxy_would(
    world: World, problems: list[ArenaProblem], kind: str, form: str, status: str
) -> None:
    log = list(entries(published(played(world, problems[0], JULY, kind=kind, form=form), JULY)))
    assert {entry["nonce_status"] for entry in log if entry["path"].startswith("/search/")} == {status}
    early = entries(published(played(world, problems[0], kind=kind, form=form)))
    assert not any("nonce_status" in entry for entry in early)


def test_the_full_log_holds_the_prompts_and_the_nonces(world: World, problems: list[ArenaProblem]) -> None:
    for form in FORMS:
        replies = [
            entry
            for entry in entries(published(played(world, problems[0], JULY, form=form), JULY))
            if entry["path"].startswith("/inference/")
        ]
        for place, entry in enumerate(replies):
            prompt = entry["json_data"]["messages"]
            assert [message["role"] for message in prompt[:2]] == ["system", "user"]
            assert prompt[1]["content"] == problems[0].query
            assert sum(message["role"] == "assistant" for message in prompt) == place
            parsed = entry["response"]["oro_metadata"]["parsed_tool_calls"]
            assert parsed and set(entry["response"]["oro_metadata"]["tool_nonces"]) == {c["call_id"] for c in parsed}
        early = entries(published(played(world, problems[0], form=form)))
        assert not any("messages" in (entry.get("json_data") or {}) for entry in early)


@pytest.mark.parametrize("quirk", sorted(FORGED))
def test_forged_logs_are_unknown_unless_nothing_gives_them_away(
    world: World, problems: list[ArenaProblem], quirk: str
) -> None:
    for problem in problems[:6]:
        attempt = played(world, problem, kind="b_regex", quirk=quirk)
        account, decision = account_of(attempt, era_of(MAY)), decided(attempt)
        assert (decision.label, account.axis) == (("unknown", "unknown") if FORGED[quirk] else ("A", "A"))
        assert account.asked == 0, "the truth keeps what was done"
        assert forgery_of(quirk) == {"forged_log": True, "forgery_detectable": bool(FORGED[quirk])}


@pytest.mark.parametrize(
    ("quirk", "ending"),
    [
        ("broken_reply", "malformed_reply"),
        ("cut_end", "reply_truncated"),
        ("recommend_loop", "step_limit"),
        ("reply_cut", "terminate"),
        ("unknown_tool", "terminate"),
        ("recommend_after_terminate", "terminate"),
        ("parameters_text", "terminate"),
    ],
)
def test_accidents_end_as_the_loop_says(world: World, problems: list[ArenaProblem], quirk: str, ending: str) -> None:
    for form in FORMS:
        attempt = played(world, problems[0], quirk=quirk, form=form)
        assert attempt.ending is not None and attempt.ending.reason == ending
        assert decided(attempt).label == account_of(attempt, era_of(MAY)).axis == "A"


@pytest.mark.parametrize(
    ("quirk", "source"),
    [*((quirk, "think") for quirk in THINK_BAIT), ("inject_param", "param"), ("inject_query", "query")],
)
def test_what_is_said_to_the_judge_is_in_the_trace_and_found(
    world: World, problems: list[ArenaProblem], quirk: str, source: str
) -> None:
    for form in FORMS:
        attempt = played(world, problems[0], quirk=quirk, form=form)
        truth = judge_outcome(attempt, problems[0].target_ids, account_of(attempt, era_of(MAY)))
        found = scan_messages(read_dialogue(published(attempt), binding=None).messages)
        assert source in truth.injection_sources and set(truth.injection_sources) == set(found)


@pytest.mark.parametrize("quirk", ["typo", "invented", "extra", "catalogue"])
def test_hallucinated_ids_are_in_no_result(world: World, problems: list[ArenaProblem], quirk: str) -> None:
    attempt = played(world, problems[0], quirk=f"hallucinated_{quirk}")
    truth = judge_outcome(attempt, problems[0].target_ids, account_of(attempt, era_of(MAY)))
    assert len(truth.hallucinated_ids) == 1
    assert (truth.hallucinated_ids[0] in world.catalogue) is (quirk == "catalogue")


def test_an_agent_of_its_own_line_is_betrayed_by_the_count(world: World, problems: list[ArenaProblem]) -> None:
    decision = decided(played(world, problems[0], quirk="two_lines"))
    assert (decision.label, decision.reason) == ("unknown", "log_inconsistent:inference_count_differs")


def test_a_lone_surrogate_stands_in_the_step_and_in_the_reply_behind_it(
    world: World, problems: list[ArenaProblem]
) -> None:
    steps = published(played(world, problems[0], quirk="surrogate"))
    texts = [str(step["completion"]["message"].get("think")) for step in steps]
    replies = [str(entry["response"]) for entry in entries(steps) if entry["path"].startswith("/inference/")]
    assert sum("\ud83d" in text for text in texts) == 1 and sum("\\ud83d" in text for text in replies) == 1


@pytest.mark.parametrize(
    ("voucher", "prices", "after"),
    [
        (Voucher("fixed", 100, 300, 250, 0), [200.0, 150.0], 250.0),
        (Voucher("fixed", 100, 400, 250, 0), [200.0, 150.0], 350.0),
        (Voucher("percentage", 20, 100, 300, 0), [150.0, 150.0], 240.0),
        (Voucher("percentage", 20, 100, 300, 30), [150.0, 150.0], 270.0),
        (Voucher("fixed", 500, 100, 300, 0), [120.0], 0.0),
    ],
)
def test_voucher_sums_in_the_head_equal_the_tool(
    world: World, voucher: Voucher, prices: list[float], after: float
) -> None:
    result = call_tool(world, "calculate_voucher", voucher.arguments(prices))
    assert voucher.after(prices) == after == result["total_after"]


@pytest.mark.parametrize(("style", "turns"), [("terse", 2), ("careful", 3)])
def test_a_pick_over_the_budget_is_exchanged_for_one_that_fits(world: World, style: str, turns: int) -> None:
    """Worked out in the head or asked of the tool: the choice follows the sum."""
    need = Need("mug", (), (), None, ())
    brief = Brief((need,), Voucher("fixed", 10, 50, 60, 0), same_shop=False)
    work = Work(replace(AGENT, style=style), brief, STYLES[style], Random(1), quirk=None, remembered="")
    shelf = Shelf(
        need, Candidate({"product_id": "11", "price": 100.0}), [Candidate({"product_id": "22", "price": 65.0})]
    )
    script = settle(work, [shelf])
    said, deed = [], next(script, None)
    while deed is not None:
        assert isinstance(deed, ScriptedTurn)
        said.append(deed)
        try:
            deed = script.send([call_tool(world, name, arguments) for name, arguments in deed.calls])
        except StopIteration:
            break
    assert len(said) == turns
    [recommended] = [arguments for turn in said for name, arguments in turn.calls if name == "recommend_product"]
    assert recommended == {"product_ids": "22"}
    assert any("22" in turn.think and "65.0" in turn.think for turn in said), "the thought says why"
