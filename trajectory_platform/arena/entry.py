"""Our own policy as a miner of the arena (``arena_entry``).

A checkpoint, an endpoint or a script of the platform enters with a hotkey of its own. Its qualifying runs go through
``evaluation.rollout`` like every other rollout; its artifacts are published in the layout of the day with the proxy log
of the day's era. Its row in ``agent_versions.jsonl`` carries ``policy_checkpoint_id``, which ingestion copies to every
trace (``traces.pairs``), so that a policy is not trained on its own traces by accident.

Byte for byte the same again only with a policy that answers the same again and states no measured seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from trajectory_platform.arena import referee
from trajectory_platform.arena.account import account_of_policy
from trajectory_platform.arena.execution import Frame, RunResult, finish
from trajectory_platform.arena.knobs import EntryKnobs
from trajectory_platform.arena.miners import Agent
from trajectory_platform.arena.plan import SECONDS_A_PROBLEM, Entry, RunPlan, make_hotkey
from trajectory_platform.arena.problems import make_uuid
from trajectory_platform.arena.rows import Pair
from trajectory_platform.errors import Abort

if TYPE_CHECKING:
    from trajectory_platform.evaluation.environment import Task
    from trajectory_platform.evaluation.rollout import Policy, Rollout
    from trajectory_platform.sandbox.tools import World

OWN = "own"
"""Kind of an agent whose decisions are made by a policy, not by a script of the arena."""
_LOST = {  # endings that leave no dialogue behind: partial work is lost (domain 1.2)
    "timeout": referee.EXECUTION["timeout"],
    "policy_error": referee.EXECUTION["crash"],
    "environment_error": referee.EXECUTION["crash"],
}


@dataclass
class Attempt:
    """A finished rollout as the referee sees any episode."""

    query: str
    steps: Sequence[Any]
    log: Sequence[dict[str, Any]]
    quirk: str | None = None


def own_entry(knobs: EntryKnobs, submitted_at: int) -> Entry:
    """The submission of an own policy: the same version id for the same checkpoint, on every day."""
    rng = Random(f"own|{knobs.checkpoint_id}")
    agent_id, version_id, hotkey = make_uuid(rng), make_uuid(rng), make_hotkey(rng)
    agent = Agent(
        agent_version_id=version_id,
        agent_id=agent_id,
        name=f"own-{knobs.checkpoint_id}",
        hotkey=knobs.hotkey or hotkey,
        version=1,
        kind=OWN,
        style="plain",
        form="native",
        model=knobs.checkpoint_id,
        care=1.0,
        views=1,
        words=1,
        together=False,
        page=False,
        filters=False,
        sort=None,
        plus=False,
    )
    return Entry(agent, submitted_at, checkpoint_id=knobs.checkpoint_id)


def check_policies(entries: Sequence[EntryKnobs]) -> None:
    """Say what is wrong with a policy before anything is written; a model is not loaded and a server not asked.

    Raises:
        Abort: a spec that cannot be opened.
    """
    for entry in entries:
        from trajectory_platform.evaluation.policies import open_policy, parse_spec

        kind, rest = parse_spec(entry.policy)
        if kind != "checkpoint":
            open_policy(entry.policy, key_variable=entry.key_variable)
        elif not Path(rest).is_dir():
            raise Abort(f"the checkpoint {rest!a} of an entry is no folder")


class OwnPolicies:
    """The policies behind our own entries, opened when the first of their runs is due."""

    def __init__(self, entries: Sequence[EntryKnobs], world: World) -> None:
        self._knobs = {entry.checkpoint_id: entry for entry in entries}
        self._open: dict[str, Policy] = {}
        self._world = world

    def __call__(self, frame: Frame, plans: Sequence[RunPlan]) -> Iterator[RunResult]:
        """The results of these runs, in order; all pairs of one policy are under way at the same time.

        Raises:
            Abort: a policy that cannot be opened or has no server behind it.
            RetryLater: its server is away; nothing was published for these runs.
        """
        by_policy: dict[str, list[RunPlan]] = {}
        for plan in plans:
            by_policy.setdefault(str(plan.entry.checkpoint_id), []).append(plan)
        played: dict[str, list[Pair]] = {}
        for checkpoint_id, own in by_policy.items():
            played |= self._play(self._knobs[checkpoint_id], own, frame)
        for plan in plans:
            yield finish(plan, played[plan.run_id], frame)

    def _play(self, knobs: EntryKnobs, plans: Sequence[RunPlan], frame: Frame) -> dict[str, list[Pair]]:
        """run id -> its pairs in the order of the plan."""
        from trajectory_platform.evaluation.environment import Limits, SimulatedClock
        from trajectory_platform.evaluation.policies import open_policy
        from trajectory_platform.evaluation.rollout import run_rollouts

        policy = self._open.get(knobs.checkpoint_id)
        if policy is None:
            policy = self._open[knobs.checkpoint_id] = open_policy(knobs.policy, key_variable=knobs.key_variable)
        starts: dict[Task, int] = {}
        done: dict[Task, Rollout] = {}
        for number, plan in enumerate(plans):
            for place, task in enumerate(_tasks(plan, number)):
                starts[task] = plan.start + place * SECONDS_A_PROBLEM * 1000
        asyncio.run(
            run_rollouts(
                policy,
                starts,
                self._world,
                Limits(reply_tokens=knobs.reply_tokens),
                concurrency=knobs.concurrency,
                clock=lambda task: SimulatedClock(starts[task], Random(f"clock|{frame.seed}|{task.seed}")),
                on_done=lambda rollout: done.__setitem__(rollout.task, rollout),
            )
        )
        return {plan.run_id: _pairs(plan, number, frame, done, starts) for number, plan in enumerate(plans)}


def _tasks(plan: RunPlan, number: int) -> list[Task]:
    """The attempts of a run. ``sample`` is the number of the run: two validators' runs are two rollouts."""
    from trajectory_platform.evaluation.environment import Task

    return [
        Task(
            problem_id=problem.problem_id,
            suite_id=str(plan.suite_id),
            problem_key=problem.problem_id,
            category=problem.category,
            query=problem.query,
            sample=number,
            seed=Random(f"own|{plan.run_id}|{problem.problem_id}").getrandbits(31),
        )
        for problem in plan.problems
    ]


def _pairs(
    plan: RunPlan, number: int, frame: Frame, done: Mapping[Task, Rollout], starts: Mapping[Task, int]
) -> list[Pair]:
    """Finished rollouts as pairs: what the referee says of them, and the dialogue as the era publishes it."""
    from trajectory_platform.evaluation.wire import dialogue

    era = frame.era_at(plan.start)
    pairs = []
    for problem, task in zip(plan.problems, _tasks(plan, number), strict=True):
        rollout = done[task]
        environment = rollout.environment
        attempt = Attempt(task.query, environment.steps, environment.log)
        lost = _LOST.get(rollout.ending.reason) or (None if attempt.steps else referee.EXECUTION["empty_dialogue"])
        if lost is None:
            truth = referee.judge_outcome(attempt, problem.target_ids, account_of_policy(attempt, era))
        else:
            truth = referee.Outcome(execution_status=lost[0], malformed=lost[1])
        seconds = round((environment.clock_ms - starts[task]) / 1000 + 0.001, 6)
        pair = Pair(plan, problem, attempt, truth, seconds, environment.clock_ms + 3_000)
        if lost is None:
            stated = seconds if era.execution_time else None
            pair.dialogue = dialogue(environment, problem.problem_id, seconds=stated, form=era.log)
        pairs.append(pair)
    return pairs
