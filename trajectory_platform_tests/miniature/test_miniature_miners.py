"""The miners: who solves what, and how each of the others fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from trajectory_platform.arena.playing import CodeTurn
from trajectory_platform.evaluation.environment import Limits, SimulatedClock, Task
from trajectory_platform.evaluation.policy_scripted import ScriptedPolicy, ScriptedTurn
from trajectory_platform.evaluation.rollout import Rollout, run_episode
from trajectory_platform.evaluation.wire import dialogue
from trajectory_platform.judging.outcome import OutcomeScore
from trajectory_platform.miniature import miners
from trajectory_platform_tests.miniature.market import market

ROWS: list[dict[str, Any]] = [
    {"product_id": "261247651", "title": "mug green wool"},
    {"product_id": "615257232", "title": "mug pink leather"},
    {"product_id": "829327161", "title": "mug pink ceramic"},
    {"product_id": "900000000", "title": "mug pink ceramic"},
]


def play(script: Callable[[Task], Any], count: int = 30) -> list[tuple[Rollout, OutcomeScore]]:
    """A script on the first problems, scored strictly."""
    found = market()
    policy = ScriptedPolicy(script, name="test", form="native")
    played = []
    for one in found.evaluated()[:count]:
        problem = one.problem
        task = Task(problem.problem_id, "1", problem.problem_key, "product", problem.query or "")
        rollout = run_episode(policy, task, found.world, Limits(), clock=SimulatedClock(0, Random(1)))
        played.append((rollout, found.scorer.score(dialogue(rollout.environment, problem.problem_id), problem)))
    return played


def tools_of(rollout: Rollout) -> list[str]:
    return [call["name"] for step in rollout.environment.steps for call in step.calls]


def test_a_scan_compares_word_by_word_and_stops_at_the_first_row_that_fits() -> None:
    assert miners.scan_thought(ROWS, {"color": "pink", "material": "ceramic"}) == (
        "261247651 green want pink differs\n"
        "615257232 pink want pink same leather want ceramic differs\n"
        "829327161 pink want pink same ceramic want ceramic same"
    )
    assert miners.scan_thought(ROWS, {"material": "leather"}) == (
        "261247651 wool want leather differs\n615257232 leather want leather same"
    )
    assert miners.scan_thought([], {"color": "pink"}) == ""


@pytest.mark.parametrize("style", [miners.SCAN, miners.PLAIN])
def test_a_good_miner_solves_every_problem_in_four_turns(style: str) -> None:
    for rollout, score in play(partial(miners.good, style=style), 60):
        assert score.success and score.format == 1.0 and not score.discipline
        assert not score.hallucinated_ids and not score.unviewed_ids
        assert tools_of(rollout) == ["find_product", "view_product_information", "recommend_product", "terminate"]
        assert miners.style_of(rollout.environment.messages) == style


def test_guessers_succeed_about_as_often_as_chance() -> None:
    for script in (miners.random_row, miners.first_row, miners.all_words):
        wins = sum(bool(score.success) for _, score in play(script, 200))
        assert 17 < wins < 55  # 36 of 200 by chance; 3.5 standard deviations


def test_a_careless_miner_writes_down_the_slip_that_misleads_it() -> None:
    played = play(partial(miners.careless, style=miners.SCAN), 150)
    failed = [rollout for rollout, score in played if not score.success]
    assert 5 < len(failed) < 60
    for rollout in failed:
        thought = rollout.environment.steps[1].think
        slips = [words for words in thought.replace("\n", " ").split(" same") if " want " in words]
        assert any(words.split()[-3] != words.split()[-1] for words in slips)


@pytest.mark.parametrize(
    ("script", "success", "told"),
    [
        (miners.lazy, True, "unviewed"),
        (miners.mistyped, False, "hallucinated"),
        (miners.unexplained, True, ""),
        (miners.broken, False, "malformed_reply"),
    ],
    ids=["lazy", "mistyped", "unexplained", "broken"],
)
def test_each_other_miner_fails_in_its_own_way(script: Any, success: bool, told: str) -> None:
    for rollout, score in play(partial(script, style=miners.SCAN)):
        assert score.success == success
        assert bool(score.unviewed_ids) == (told == "unviewed")
        assert bool(score.hallucinated_ids) == (told == "hallucinated")
        assert rollout.ending.reason == (told if told == "malformed_reply" else "terminate")


@pytest.mark.parametrize("kind", sorted(miners.MINERS))
def test_a_request_from_elsewhere_ends_in_a_stated_failure(kind: str) -> None:
    task = Task("p", None, "k", "product", "Which river is the longest?")
    script = miners.MINERS[kind].script(task, miners.SCAN)
    said = [deed for deed in script if isinstance(deed, ScriptedTurn | CodeTurn)]
    assert Counter(name for deed in said for name, _ in deed.calls) == {"terminate": 1} or kind == "broken"
    assert said[0].calls == [("terminate", {"status": "failure"})]
