"""The scripted miners: what each kind does with a problem, and how it is played in the sandbox.

A miner sees the query and what a model would understand of it (``needs.Brief``), never the wanted ids or titles, and
no reward. Axis A kinds are scripts of model turns through the rollout loop; in axis B kinds code acts and a model
classifies, comments, repeats, or is not there; mixed kinds do both.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from trajectory_platform.arena import harnesses
from trajectory_platform.arena.agents import Agent as Agent
from trajectory_platform.arena.eras import Era
from trajectory_platform.arena.needs import read_brief
from trajectory_platform.arena.playing import Played, Script, play
from trajectory_platform.arena.problems import ArenaProblem
from trajectory_platform.arena.proxy import ProxiedEnvironment
from trajectory_platform.arena.quirks import FORGED, QUERY_BAIT
from trajectory_platform.arena.shopping import Work, honest, verified
from trajectory_platform.arena.styles import CODE, POOR, SCRIPTED, STYLES
from trajectory_platform.evaluation.clocks import SimulatedClock
from trajectory_platform.evaluation.environment import Task
from trajectory_platform.sandbox.tools import World

MINERS: dict[str, Callable[[Work], Script]] = {
    "a_native": honest,
    "a_xml": honest,
    "a_refine": honest,
    "a_verify": verified,
    "a_poor": honest,
    "a_composite": harnesses.composite,
    "copycat": honest,
    "b_regex": harnesses.code_only,
    "b_narrator": harnesses.narrated,
    "b_classifier": harnesses.classifier,
    "b_echo": harnesses.echoed,
    "b_decoy": harnesses.decoyed,
    "mixed_ab": harnesses.mixed,
}
_STYLE_OF_KIND = {"a_poor": POOR, "b_regex": CODE, "b_classifier": CODE, "b_echo": SCRIPTED}


def solve(
    world: World,
    agent: Agent,
    problem: ArenaProblem,
    quirk: str | None,
    era: Era,
    *,
    start: int,
    words: Random,
    own: Random,
) -> Played:
    """Let an agent work on one problem.

    Args:
        start: UTC milliseconds.
        words: draws what the agent says and its careless choices; equal for copies of one strategy.
        own: draws times and ids; never equal.
    """
    query = problem.query + QUERY_BAIT if quirk == "inject_query" else problem.query
    environment = ProxiedEnvironment(
        world,
        agent,
        query,
        era=era,
        clock=SimulatedClock(start, own),
        ids=own,
        retries=agent.kind == "a_composite",
    )
    style = STYLES[agent.style] if quirk in FORGED else _STYLE_OF_KIND.get(agent.kind, STYLES[agent.style])
    remembered = _remembered(world) if quirk == "hallucinated_catalogue" else ""
    work = Work(agent, read_brief(problem), style, words, quirk=quirk, remembered=remembered)
    script = harnesses.disturbed(MINERS[agent.kind](work), quirk, words)
    task = Task(problem.problem_id, None, problem.problem_id, problem.category, query)
    return Played(environment, agent.kind, quirk, play(script, environment, task))


def _remembered(world: World) -> str:
    """An id that every model has seen before: the first one of the catalogue."""
    return str(next(iter(world.catalogue))["product_id"])
