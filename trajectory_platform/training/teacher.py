"""A teacher solves train problems in the sandbox: a script offline, or any model of litellm (issue 6, item 4).

It gets the query and tool results, nothing else: no reward, no trace of a miner. A paid teacher keeps a journal of its
own below the lake, one per teacher for all days: what it said once is never paid for again. The time limits of the
subnet do not bind it (an endpoint may be slow without being wrong); steps and tokens do.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation import rollout_launch
from trajectory_platform.evaluation.environment import Limits, SimulatedClock, Task
from trajectory_platform.evaluation.policies import open_policy
from trajectory_platform.evaluation.policy_litellm import UNANSWERED, LitellmPolicy, policy_name
from trajectory_platform.evaluation.policy_sampling import Sampling
from trajectory_platform.evaluation.rollout import Policy, Rollout, run_rollouts
from trajectory_platform.evaluation.rollout_rows import rollout_row
from trajectory_platform.identity import digest_json, sha256_hex
from trajectory_platform.judging.judge_budget import Spending
from trajectory_platform.judging.judge_journal import Journal, spent_usd
from trajectory_platform.judging.judge_models import JudgeBudget, JudgeModel, load_judge
from trajectory_platform.training.generated_rows import Key, plan_of

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.evaluation.eval_problems import EvalProblem
    from trajectory_platform.evaluation.policy_litellm import Completes
    from trajectory_platform.sandbox.tools import World
    from trajectory_platform.training.stage_recipes import Rollouts, TeacherStage

STAGE = "teacher_sft"
SCRIPT = "script:"
_UNBOUND_S = 7 * 86_400.0
_TELL_EVERY = 16  # attempts between two lines for people


class Teacher(NamedTuple):
    """Whom to ask.

    Attributes:
        name: its identity, without key: what the rows call their source.
        model: None for a script.
    """

    spec: str
    name: str
    sampling: Sampling
    model: JudgeModel | None


class Taught(NamedTuple):
    """What a teacher did.

    Attributes:
        rollouts: ``rollouts`` rows of the attempts that were made, by (problem key, sample).
        unmade: planned attempts that nobody answered, with the reason (``budget``, ``circuit_open``, a kind of
            ``judge_router.FAILURES``); a later run may make them.
        cached: trace ids of attempts that cost nothing in this run.
        summary: counts and money for people.
    """

    rollouts: pa.Table
    unmade: dict[Key, str]
    cached: frozenset[str]
    summary: dict[str, Any]


class _Caller(Protocol):
    """Makes the endpoint of one model."""

    def __call__(self, model: JudgeModel, /) -> Completes: ...


def find_teacher(
    stage: TeacherStage,
    *,
    seed: int = 0,
    api_base: str | None = None,
    api_key_env: str | None = None,
    usd_per_million_input: float | None = None,
    usd_per_million_output: float | None = None,
) -> Teacher:
    """Who ``stage.teacher`` is: ``script:NAME``, a litellm model, or a YAML file of models with exactly one.

    Nobody is asked. The other arguments serve the short form of a model (``judge_models.load_judge``).

    Raises:
        Abort: one line that says what is wrong.
    """
    spec, wanted = stage.teacher, stage.rollouts
    sampling = Sampling(temperature=wanted.temperature, top_p=wanted.top_p, seed=seed)
    if spec.startswith(SCRIPT):
        return Teacher(spec, open_policy(spec, sampling=sampling).name, sampling, None)
    found = load_judge(
        spec,
        api_base=api_base,
        api_key_env=api_key_env,
        usd_per_million_input=usd_per_million_input,
        usd_per_million_output=usd_per_million_output,
    ).models
    if len(found) != 1:
        raise Abort(f"teacher {spec}: a teacher is one model, not {len(found)}")
    model = found[0]
    if "max_tokens" not in model.model_fields_set:  # the judge's default is the length of a verdict
        model = model.model_copy(update={"max_tokens": wanted.limits.reply_tokens})
    sampling = replace(sampling, seed=0)  # a server is not told a seed
    return Teacher(spec, policy_name(model, sampling), sampling, model)


def teach(
    teacher: Teacher,
    stage: TeacherStage,
    chosen: Sequence[EvalProblem],
    world: World,
    *,
    day: str,
    seed: int,
    journal: Path,
    tell: Callable[[str], None] = lambda _: None,
    endpoint: _Caller | None = None,
) -> Taught:
    """Attempt the chosen problems, in this process.

    Args:
        seed: of the attempts; scripts may draw from it.
        journal: folder of the journals of teachers; not used by a script.
        endpoint: whom to call instead of litellm.

    Raises:
        Abort: no key, no litellm. RetryLater: another process asks this teacher.
    """
    tasks = [Task(**task) for task in rollout_launch.tasks(chosen, plan_of(stage.rollouts), seed)]
    run = _Run(day, _identity(teacher, stage, seed, world), stage.rollouts, world, len(tasks), tell)
    if teacher.model is None:
        made = run.attempts(open_policy(teacher.spec, sampling=teacher.sampling), tasks)
        return _taught(made, {}, frozenset(), {"made": len(made)})
    folder_name = "teacher-" + sha256_hex(teacher.name.encode())[:16]
    with Journal(journal, folder_name) as kept:
        spent = spent_usd(row for row in kept.stream() if row["day"] == day)
        policy = LitellmPolicy(
            teacher.model,
            (endpoint or _litellm)(teacher.model),
            kept,
            Spending(JudgeBudget(usd_per_day=stage.budget_usd), spent),
            day=day,
            sampling=teacher.sampling,
        )
        made = run.attempts(policy, tasks)
        summary = _told(policy, kept, tell, day)
    unmade = {(task.problem_key, task.sample): why for task, row in made if (why := _why_unmade(row)) is not None}
    answered = [(task, row) for task, row in made if (task.problem_key, task.sample) not in unmade]
    cached = frozenset(
        str(row["trace_id"]) for task, row in answered if (task.problem_key, task.sample) not in policy.paid_for
    )
    return _taught(answered, unmade, cached, {"made": len(answered), "unmade": len(unmade), **summary})


class _Run(NamedTuple):
    """The attempts of one call of ``teach``."""

    day: str
    identity: str
    rollouts: Rollouts
    world: World
    total: int
    tell: Callable[[str], None]

    def attempts(self, policy: Policy, tasks: Sequence[Task]) -> list[tuple[Task, dict[str, Any]]]:
        """Every task with its ``rollouts`` row, by (problem key, sample)."""
        found: list[tuple[Task, dict[str, Any]]] = []

        def keep(rollout: Rollout) -> None:
            row = rollout_row(rollout, checkpoint_id=policy.name, stage=STAGE, day=self.day, plan=self.identity)
            found.append((rollout.task, row))
            if len(found) % _TELL_EVERY == 0 or len(found) == self.total:
                money = f", {policy.spending.usd:.4f} USD" if isinstance(policy, LitellmPolicy) else ""
                self.tell(f"{self.day}: teacher {len(found)} of {self.total} attempts{money}")

        asyncio.run(self._all(policy, tasks, keep))
        return sorted(found, key=lambda entry: (entry[0].problem_key, entry[0].sample))

    async def _all(self, policy: Policy, tasks: Sequence[Task], keep: Callable[[Rollout], None]) -> None:
        bound = self.rollouts.limits.model_dump() | {"reply_timeout_s": _UNBOUND_S, "rollout_timeout_s": _UNBOUND_S}
        try:
            await run_rollouts(
                policy,
                tasks,
                self.world,
                Limits(**bound),
                concurrency=self.rollouts.concurrency,
                clock=self._clock,
                on_done=keep,
            )
        finally:
            if isinstance(policy, LitellmPolicy):
                await policy.aclose()

    def _clock(self, task: Task) -> SimulatedClock:
        """Drawn, or taken from the replies: an attempt that is replayed from the journal is the same again."""
        start_ms = int(datetime.fromisoformat(self.day).replace(tzinfo=UTC).timestamp() * 1000)
        return SimulatedClock(start_ms, Random(f"{self.identity}|{task.problem_key}|{task.sample}"))


def _identity(teacher: Teacher, stage: TeacherStage, seed: int, world: World) -> str:
    """What an attempt of this teacher depends on besides its problem."""
    limits = stage.rollouts.limits.model_dump(mode="json")
    return digest_json([teacher.name, limits, seed, world.catalogue.digest])


def _litellm(model: JudgeModel) -> Completes:
    from trajectory_platform.judging.judge_models import JudgeConfig
    from trajectory_platform.judging.judge_router import JudgeRouter

    return JudgeRouter(JudgeConfig(models=(model,)))


def _why_unmade(row: Mapping[str, Any]) -> str | None:
    """Why nobody answered in this attempt; None where it is the teacher's own."""
    code, _, reason = (row["ending_detail"] or "").partition(": ")
    return reason if row["ending"] == "policy_error" and code == UNANSWERED else None


def _told(policy: LitellmPolicy, journal: Journal, tell: Callable[[str], None], day: str) -> dict[str, Any]:
    for kind, words in policy.failures.items():
        tell(f"{day}: teacher: {kind}: {words}")
    return {
        **{f"teacher_{name}": count for name, count in sorted(policy.counts.items())},
        "teacher_usd": round(policy.spending.usd, 6),
        "teacher_usd_day": round(spent_usd(row for row in journal.stream() if row["day"] == day), 6),
        "teacher_stopped": policy.stopped or "",
    }


def _taught(
    made: Sequence[tuple[Task, dict[str, Any]]],
    unmade: dict[Key, str],
    cached: frozenset[str],
    summary: dict[str, Any],
) -> Taught:
    import pyarrow as pa

    from trajectory_platform.lake.tables import ROLLOUTS

    rows: Iterator[dict[str, Any]] = (row for _, row in made)
    table = pa.Table.from_pylist(list(rows), schema=ROLLOUTS.schema())
    return Taught(table, unmade, cached, {**summary, "cost_usd": math.fsum(row["cost_usd"] for _, row in made)})
