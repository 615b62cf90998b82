"""Attempts at train problems for GRPO: the episodes of evaluation, with the tokens that were really drawn.

A reply means here what it means in evaluation (``evaluation.episode``), and every prompt is what
``evaluation.context.prompt_ids`` gives. So a whole attempt is one token sequence only as long as each prompt continues
the prompt and reply before it. Where it does not (older results were left out to win room, or the model wrote what is
not written that way again), the attempt is split there: each part is trained on exactly the tokens the model saw, and
none is put together from texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.environment import Environment, Limits, Reply, Task, TurnRequest
from trajectory_platform.evaluation.episode import episode
from trajectory_platform.evaluation.eval_rows import CUTS, decided
from trajectory_platform.evaluation.rollout import Rollout
from trajectory_platform.evaluation.turn_rewards import Reference, TurnReward, left_no_message, turn_rewards
from trajectory_platform.evaluation.wire import dialogue
from trajectory_platform.identity import digest_lines
from trajectory_platform.sandbox.problems import Problem

if TYPE_CHECKING:
    from trajectory_platform.judging.outcome import Scorer
    from trajectory_platform.sandbox.tools import World

LENGTHS_DIFFER = "mask_length_mismatch"  # case B13
PROMPT_CHANGED = "prompt_mismatch"
TURNS_DIFFER = "turns_without_reward"
NO_TOKENS = "no_reply"

Answer = Callable[[Sequence[TurnRequest]], list[Reply]]


@dataclass(frozen=True)
class Asked:
    """A train problem that is attempted, with what grounds its dense reward."""

    problem: Problem
    cluster_id: str
    reference: Reference | None

    @property
    def key(self) -> str:
        return self.problem.problem_key


class StepClock:
    """Time in which everything takes one millisecond: an attempt repeats exactly, and no time limit ends it.

    How long a reply takes in training says nothing about the policy: many are generated together.
    """

    __slots__ = ("_now",)

    def __init__(self, start_ms: int = 0) -> None:
        self._now = start_ms

    @property
    def now(self) -> int:
        return self._now

    def begin(self) -> None:
        """Nothing to remember."""

    def end_reply(self, seconds: float) -> float:
        return self.end_request()

    def end_request(self) -> float:
        self._now += 1
        return 1.0

    def end_step(self) -> None:
        """A step takes no time of its own."""


class TurnTokens(NamedTuple):
    """One reply: the prompt it was drawn for, its tokens (the end token included) and their log probabilities."""

    prompt_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]


class Segment(NamedTuple):
    """A part of an attempt that is one token sequence.

    Attributes:
        prompt_ids: never trained, whatever they hold.
        completion_ids, env_mask, logprobs: of equal length; mask 1 = drawn by the model, 0 = put there by the
            environment (log probability 0).
        turns: number of the reply each token belongs to, -1 where the mask is 0.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    env_mask: list[int]
    logprobs: list[float]
    turns: list[int]


class Attempt(NamedTuple):
    """One attempt with all that its loss and its report need.

    Attributes:
        rewards: of every reply, in order; None where the problem has no reference.
        success: by the strict rule of evaluation; ``reason``: why it could not be decided.
        clipped: a limit cut a reply or the attempt.
        dropped: why it is not trained on, or None.
    """

    asked: Asked
    rollout: Rollout
    replies: list[TurnTokens]
    segments: list[Segment]
    rewards: list[TurnReward] | None
    success: bool
    reason: str | None
    hallucinated: int
    clipped: bool
    dropped: str | None


def task_of(asked: Asked, *, seed: int, slot: int, sample: int) -> Task:
    """The task of one attempt; what is drawn in it depends on these numbers and the problem alone.

    Args:
        slot: place of the problem in the order of the run, so that each visit draws anew.
        sample: number of the attempt in its group.
    """
    problem = asked.problem
    drawn = int(digest_lines(["dr_grpo", str(seed), str(slot)])[:8], 16) >> 1
    category = problem.category or "unknown"
    return Task(problem.problem_id, problem.suite_id, problem.problem_key, category, problem.query or "", sample, drawn)


def attempt_all(
    answer: Answer,
    tasks: Sequence[Task],
    world: World,
    limits: Limits,
    *,
    name: str = "policy",
    most: Callable[[int], int] = lambda live: live,
) -> list[Rollout]:
    """All attempts side by side: every round asks one reply of each that still goes on, all at once.

    Args:
        answer: the replies to requests, in their order.
        most: the largest number of live attempts over all processes. Generation may be a collective operation, so a
            process whose own attempts are over takes part until none is left anywhere.

    Raises:
        FailPartition: generation itself failed (out of memory): no attempt's fault, and nothing to learn from.
    """
    environments = [Environment(world, query=task.query, clock=StepClock(), model=name) for task in tasks]
    runs = [episode(task, environment, limits) for task, environment in zip(tasks, environments, strict=True)]
    extras: list[list[Any]] = [[] for _ in tasks]
    done: dict[int, Rollout] = {}
    waiting = {number: next(run) for number, run in enumerate(runs)}
    while most(len(waiting)):
        replies = answer(list(waiting.values()))
        for number, reply in zip(list(waiting), replies, strict=True):
            if reply.error is not None and reply.error.startswith("generation_failed"):
                raise FailPartition(f"{reply.error}; use a smaller generation_batch or shorter contexts")
            extras[number].append(reply.extra)
            try:
                waiting[number] = runs[number].send(reply._replace(seconds=0.0))
            except StopIteration as stop:
                del waiting[number]
                done[number] = Rollout(tasks[number], name, environments[number], stop.value, extras[number])
    return [done[number] for number in range(len(tasks))]


def tokens_of(rollout: Rollout) -> list[TurnTokens]:
    """The replies that were drawn; requests that were refused (a full context) drew none."""
    return [
        TurnTokens(extra["prompt_ids"], extra["token_ids"], extra["logprobs"])
        for extra in rollout.extras
        if extra is not None
    ]


def segments_of(replies: Sequence[TurnTokens]) -> list[Segment]:
    """An attempt as token sequences: a new one begins wherever a prompt does not continue what stood before it."""
    segments: list[Segment] = []
    whole: list[int] = []
    for number, reply in enumerate(replies):
        continues = bool(segments) and reply.prompt_ids[: len(whole)] == whole
        if not continues:
            segments.append(Segment(list(reply.prompt_ids), [], [], [], []))
        segment = segments[-1]
        between = reply.prompt_ids[len(whole) :] if continues else []
        segment.completion_ids.extend([*between, *reply.token_ids])
        segment.env_mask.extend([0] * len(between) + [1] * len(reply.token_ids))
        segment.logprobs.extend([0.0] * len(between) + list(reply.logprobs))
        segment.turns.extend([-1] * len(between) + [number] * len(reply.token_ids))
        whole = [*reply.prompt_ids, *reply.token_ids]
    return segments


def fault_of(segments: Sequence[Segment], replies: Sequence[TurnTokens]) -> str | None:
    """Why an attempt must not be trained on, or None: every token must stand where the model drew it (case B13)."""
    found: dict[int, list[int]] = {}
    for segment in segments:
        lengths = {len(segment.completion_ids), len(segment.env_mask), len(segment.logprobs), len(segment.turns)}
        if len(lengths) != 1:
            return LENGTHS_DIFFER
        for place, (drawn, turn) in enumerate(zip(segment.env_mask, segment.turns, strict=True)):
            if bool(drawn) != (turn >= 0):
                return LENGTHS_DIFFER
            if not drawn or (place and segment.turns[place - 1] == turn):
                continue
            before = [*segment.prompt_ids, *segment.completion_ids[:place]]
            if turn in found or turn >= len(replies) or before != replies[turn].prompt_ids:
                return PROMPT_CHANGED
            length = len(replies[turn].token_ids)
            found[turn] = segment.completion_ids[place : place + length]
            if segment.turns[place : place + length] != [turn] * length:
                return LENGTHS_DIFFER
    if [found.get(turn) for turn in range(len(replies))] != [list(reply.token_ids) for reply in replies]:
        return PROMPT_CHANGED
    if any(len(reply.token_ids) != len(reply.logprobs) for reply in replies):
        return LENGTHS_DIFFER
    return None if replies else NO_TOKENS


def judged(asked: Asked, rollout: Rollout, scorer: Scorer) -> Attempt:
    """An attempt with its rewards: dense by the reference, and the strict outcome as evaluation decides it."""
    ending, messages = rollout.ending, rollout.environment.messages
    steps = dialogue(rollout.environment, rollout.task.problem_id, seconds=ending.seconds)
    score = scorer.score(steps, asked.problem)
    _, success, reason = decided(ending.reason, ending.detail, score)
    replies = tokens_of(rollout)
    segments = segments_of(replies)
    dropped = fault_of(segments, replies)
    rewards = None
    if asked.reference is not None:
        lost = left_no_message(messages, ending.reason)
        rewards = turn_rewards(messages, asked.reference, lost_reply=lost)
        if len(rewards) != len(replies) and dropped is None:
            dropped = TURNS_DIFFER
    return Attempt(
        asked=asked,
        rollout=rollout,
        replies=replies,
        segments=segments,
        rewards=rewards,
        success=success,
        reason=reason,
        hallucinated=len(score.hallucinated_ids),
        clipped=bool(ending.truncated_replies) or ending.reason in CUTS,
        dropped=dropped,
    )


class TrainedRow(NamedTuple):
    """A row of the trainer's batch: a segment of an attempt; both None for padding that is not trained."""

    attempt: int | None
    segment: Segment | None


def rows_of_attempts(attempts: Sequence[Attempt], used: Sequence[bool], rows: int) -> tuple[list[TrainedRow], int]:
    """(exactly ``rows`` rows, replies left out because their segments found no place).

    The first segment of every attempt that is used is a row. Of the others those with most drawn tokens come first.

    Args:
        used: which attempts move the model; the others need no row.
        rows: at least the number of attempts that are used.
    """
    chosen = [(number, one) for number, (one, wanted) in enumerate(zip(attempts, used, strict=True)) if wanted]
    first = [TrainedRow(number, one.segments[0]) for number, one in chosen]
    more = sorted(
        (-sum(segment.env_mask), number, place)
        for number, one in chosen
        for place, segment in enumerate(one.segments)
        if place
    )
    kept, lost = more[: rows - len(first)], more[rows - len(first) :]
    further = [TrainedRow(number, attempts[number].segments[place]) for _, number, place in sorted(kept, key=_by_place)]
    left = sum(len(set(attempts[number].segments[place].turns) - {-1}) for _, number, place in lost)
    padding = [TrainedRow(None, None)] * (rows - len(first) - len(further))
    return [*first, *further, *padding], left


def _by_place(item: tuple[int, int, int]) -> tuple[int, int]:
    return item[1], item[2]


def asked_of(extra: Mapping[str, Any], problem_key: str, cluster_id: str) -> Asked:
    """The problem of a ``prompt`` row: ``extra`` is {problem: a ``problem_suites`` row, reference: {trace_id,
    messages} or null}.

    Raises:
        FailPartition: no problem, another one than the row says, or one without query or reward.
    """
    from trajectory_platform.sandbox.problems import from_row

    told = extra.get("problem")
    if not isinstance(told, Mapping):
        raise FailPartition(f"the prompt row of problem {problem_key} brings no problem; nothing was trained")
    problem = from_row(told)
    if problem.problem_key != problem_key:
        raise FailPartition(f"the prompt row of problem {problem_key} brings problem {problem.problem_key}")
    if not problem.query or problem.reward is None:
        raise FailPartition(f"problem {problem_key} has no query or no reward; it cannot be attempted in training")
    reference = extra.get("reference")
    taught = None
    if isinstance(reference, Mapping):
        taught = Reference(problem_key, str(reference["trace_id"]), list(reference["messages"]))
    return Asked(problem, cluster_id, taught)
