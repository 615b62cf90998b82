"""TRL's ``GRPOTrainer`` with our episodes and our advantages.

TRL keeps what it is good at: the order of groups over processes, weights for the sampler, the clipped loss with KL and
importance weights, the optimiser, saving. Ours are the attempts (``grpo_rollouts``) and what each token is worth
(``advantages``). They enter through two doors: ``rollout_func``, which may return token sequences with an environment
mask, and the advantages of shape (rows, tokens), which ``_compute_loss`` takes from subclasses.

``environment_factory`` was not taken: it derives tool schemas from Python signatures (the prompt would differ from
the one that was trained), parses replies by the template's own schema, and glues results to tokens its own way, so a
reply would mean something else here than in evaluation.

The class overrides one semi-private method of TRL 1.16, so TRL is pinned exactly.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.evaluation.context import ContextPolicy
from trajectory_platform.evaluation.environment import Limits, Reply, TurnRequest
from trajectory_platform.evaluation.generation import Generated, Wanted
from trajectory_platform.evaluation.policy_sampling import Sampling
from trajectory_platform.evaluation.policy_transformers import REUSE_BYTES, TransformersPolicy
from trajectory_platform.training.advantages import (
    EPSILON,
    Advantages,
    Scores,
    gathered,
    group_advantages,
    loss_scale,
    per_token,
)
from trajectory_platform.training.grpo_report import local_numbers, numbers_of
from trajectory_platform.training.grpo_rollouts import (
    Asked,
    Attempt,
    Segment,
    TrainedRow,
    attempt_all,
    judged,
    rows_of_attempts,
    task_of,
)
from trajectory_platform.training.stage_recipes import GrpoStage

if TYPE_CHECKING:
    from torch import Tensor

    from trajectory_platform.judging.outcome import Scorer
    from trajectory_platform.sandbox.tools import World

_MISLEADING = ("completions/", "rewards/", "reward", "frac_reward_zero_std")  # TRL's, over rows that are segments


@dataclass(frozen=True)
class Task:
    """What the trainer attempts, and how it is judged."""

    part: GrpoStage
    context: ContextPolicy
    seed: int
    asked: Sequence[Asked]
    world: World
    scorer: Scorer

    @property
    def limits(self) -> Limits:
        return Limits(**self.part.limits.model_dump())


class Batch(NamedTuple):
    """One generation batch of this process, ready for TRL.

    Attributes:
        output: what a ``rollout_func`` returns.
        rewards: of each row, for TRL's own bookkeeping only.
        attempt, turns: see ``advantages.per_token``; attempts are numbered over all processes.
        numbers: of the whole batch, over all processes.
        attempts: of this process.
    """

    output: dict[str, Any]
    rewards: list[float]
    attempt: list[int]
    turns: list[list[int]]
    advantages: Any
    scale: float
    numbers: dict[str, float]
    attempts: list[Attempt]


class TrainerPolicy(TransformersPolicy):
    """Replies drawn from the model in training; by vLLM where the trainer has one.

    vLLM draws with its own random numbers: then a run repeats the order of problems, not the replies.
    """

    def __init__(self, trainer: Any, model: Any, task: Task, most: Callable[[int], int]) -> None:
        part = task.part
        super().__init__(
            model,
            trainer.processing_class,
            task.context,
            name="training",
            sampling=Sampling(temperature=part.temperature, top_p=part.top_p, seed=task.seed),
            max_batch=len(task.asked) * part.amount.batch if trainer.use_vllm else part.generation_batch,
            keep_tokens=True,
            reuse_bytes=REUSE_BYTES,  # a policy lives for one batch of attempts, so no prefix outlives the weights
        )
        self._trainer, self._most, self._asked = trainer, most, False

    def reply_all(self, requests: Sequence[TurnRequest]) -> list[Reply]:
        """As before; where a server draws for all processes, each asks once a round, if only for nothing."""
        self._asked = False
        replies = super().reply_all(requests)
        if self._trainer.use_vllm and not self._asked:
            self._generate([])
        return replies

    def _generate(self, wanted: Sequence[Wanted]) -> list[Generated]:
        if not self._trainer.use_vllm:
            return super()._generate(wanted)
        self._asked = True
        end = self._tokenizer.eos_token_id
        prompts = [list(one.ids) for one in wanted]
        if self._trainer.vllm_mode == "server":  # it hands out its answers in equal shares
            prompts += [[end]] * (self._most(len(prompts)) - len(prompts))
        if not prompts:
            return []
        ids, logprobs = self._trainer._generate_single_turn(prompts, None, {}, 1)
        made = zip(ids[: len(wanted)], logprobs[: len(wanted)], strict=True)
        return [Generated(list(row), list(shares), list(row[-1:]) == [end]) for row, shares in made]


@contextmanager
def generating(trainer: Any) -> Iterator[Any]:
    """The model as generation wants it: unwrapped, whole, without gradient checkpointing, in evaluation mode."""
    import torch
    from trl.models import unwrap_model_for_generation

    with (
        unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        ) as model,
        torch.no_grad(),
        trainer._dist.summon_full_params(trainer.model_wrapped, recurse=False),
        trainer.accelerator.autocast(),
    ):
        training = model.training
        model.eval()
        try:
            yield model
        finally:
            model.train(training)


def collect(trainer: Any, task: Task, inputs: Sequence[Mapping[str, Any]]) -> Batch:
    """Attempt the problems of one generation batch, judge the attempts and lay them out in rows.

    Args:
        inputs: rows of the dataset, ``slot`` and ``asked``; this process's part of the batch, groups side by side.
    """
    import torch

    part, accelerator = task.part, trainer.accelerator
    first = accelerator.process_index * len(inputs)
    asked = [task.asked[row["asked"]] for row in inputs]
    tasks = [
        task_of(one, seed=task.seed, slot=row["slot"], sample=(first + number) % part.group)
        for number, (one, row) in enumerate(zip(asked, inputs, strict=True))
    ]

    def most(count: int) -> int:
        return int(accelerator.gather(torch.tensor([count], device=accelerator.device)).max())

    with generating(trainer) as model:
        policy = TrainerPolicy(trainer, model, task, most)
        rollouts = attempt_all(policy.reply_all, tasks, task.world, task.limits, most=most)
    attempts = [judged(one, rollout, task.scorer) for one, rollout in zip(asked, rollouts, strict=True)]
    local = scores_of(attempts, [row["slot"] for row in inputs], part, accelerator.device)
    scores = gathered(local, accelerator.gather)
    found = group_advantages(
        scores,
        size=part.group,
        mode=part.advantage,
        turn_weight=part.turn_weight,
        outcome_weight=part.outcome_weight,
    )
    used = _used(part, local.kept.tolist(), found, first)
    rows, left = rows_of_attempts(attempts, used, _row_count(trainer, part, attempts, used, most))
    stats = accelerator.gather(torch.tensor(local_numbers(attempts, local.kept.tolist()), device=accelerator.device))
    numbers = numbers_of(stats, found, size=part.group) | {
        "replies_left_out": float(accelerator.gather(torch.tensor([left], device=accelerator.device)).sum()),
    }
    return Batch(
        output=_output(rows, trainer.processing_class.eos_token_id),
        rewards=[0.0 if row.attempt is None else float(local.outcome[row.attempt]) for row in rows],
        attempt=[-1 if row.attempt is None else first + row.attempt for row in rows],
        turns=[[-1] if row.segment is None else row.segment.turns for row in rows],
        advantages=found,
        scale=loss_scale(len(rows) * accelerator.num_processes, int(scores.kept.sum())),
        numbers=numbers,
        attempts=attempts,
    )


def _used(part: GrpoStage, kept: Sequence[bool], found: Advantages, first: int) -> list[bool]:
    """Which of this process's attempts move the model at all; the others need no forward pass.

    Without an advantage only an entropy bonus or the KL term can; a group without any difference is left out of the KL
    term too, unless the recipe says otherwise (case C04).
    """
    if part.entropy_coef:
        return list(kept)
    if part.beta:
        moved = (~found.zero_variance).repeat_interleave(part.group) | part.kl_on_zero_variance
    else:
        moved = ((found.turns.abs() > EPSILON).any(dim=1)) | (found.whole.abs() > EPSILON)
    own = moved[first : first + len(kept)].tolist()
    return [one and other for one, other in zip(kept, own, strict=True)]


def scores_of(attempts: Sequence[Attempt], slots: Sequence[int], part: GrpoStage, device: Any) -> Scores:
    """The scores of this process's attempts: turn rewards with later ones discounted, outcome, who is trained on."""
    import torch

    turns = [_returns([one.gain for one in attempt.rewards or []], part.discount) for attempt in attempts]
    known = torch.full((len(attempts), max((len(row) for row in turns), default=0)), math.nan)
    for number, row in enumerate(turns):
        known[number, : len(row)] = torch.tensor(row)
    fined = part.truncated_penalty if part.truncated == "penalty" else 0.0
    outcome = [float(one.success) - fined * one.clipped for one in attempts]
    kept = [one.dropped is None and not (one.clipped and part.truncated == "mask") for one in attempts]
    return Scores(
        known.to(device), torch.tensor(outcome, device=device), torch.tensor(kept, device=device),
        torch.tensor(list(slots), device=device),
    )  # fmt: skip


def _returns(rewards: Sequence[float], discount: float) -> list[float]:
    found: list[float] = []
    later = 0.0
    for reward in reversed(rewards):
        later = reward + discount * later
        found.append(later)
    return found[::-1]


def _row_count(
    trainer: Any, part: GrpoStage, attempts: Sequence[Attempt], used: Sequence[bool], most: Callable[[int], int]
) -> int:
    """Rows of the batch, the same in every process: as many as segments, up to the recipe's ``extra_rows``.

    TRL wants whole groups and equal parts.
    """
    whole = len(attempts)
    wanted = most(sum(len(one.segments) for one, moved in zip(attempts, used, strict=True) if moved))
    wanted = min(wanted, math.floor(whole * (1 + part.extra_rows)))
    unit = math.lcm(trainer.args.steps_per_generation, part.group)
    count = max(1, -(-wanted // unit)) * unit
    return whole if wanted <= whole <= count else count


def _output(rows: Sequence[TrainedRow], end: int) -> dict[str, Any]:
    """What a ``rollout_func`` returns; padding is a row of which nothing is trained."""
    nothing = Segment([end], [end], [0], [0.0], [-1])
    segments = [nothing if row.segment is None else row.segment for row in rows]
    return {
        "prompt_ids": [list(one.prompt_ids) for one in segments],
        "completion_ids": [list(one.completion_ids) for one in segments],
        "logprobs": [list(one.logprobs) for one in segments],
        "env_mask": [list(one.env_mask) for one in segments],
    }


def turn_grpo(task: Task, **arguments: Any) -> Any:
    """A ``GRPOTrainer`` for a task.

    Args:
        arguments: of ``GRPOTrainer``; the dataset has the columns ``prompt`` (any text), ``slot`` and ``asked``.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # that rollout_func may change is why TRL is pinned
    from trl import GRPOTrainer

    class TurnGrpo(GRPOTrainer):  # type: ignore[misc, unused-ignore]
        """Attempts of our own environment, and an advantage for every token."""

        batch: Batch

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            self.batch = collect(self, task, inputs)
            rows = [{"prompt": ""} for _ in self.batch.rewards]
            self.beta = task.part.beta
            output = super()._generate_and_score_completions(rows)
            self.beta *= self.batch.scale  # the KL term is a mean over the attempts that count too, not over rows
            output["advantages"] = self._token_advantages(output["completion_ids"])
            recorded = self._metrics["train"]
            for name in [name for name in recorded if name.startswith(_MISLEADING)]:
                del recorded[name]
            for name, value in self.batch.numbers.items():
                recorded[name].append(value)
            return dict(output)

        def _token_advantages(self, completion_ids: Tensor) -> Tensor:
            import torch

            turns = torch.full(tuple(completion_ids.shape), -1, device=completion_ids.device)
            for number, row in enumerate(self.batch.turns):
                turns[number, : len(row)] = torch.tensor(row, device=turns.device)
            attempt = torch.tensor(self.batch.attempt, device=turns.device)
            return per_token(self.batch.advantages, attempt, turns, scale=self.batch.scale)

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        return dict(trainer.batch.output)

    def reward(prompts: list[Any], **_: Any) -> list[float]:
        rewards: list[float] = trainer.batch.rewards
        return rewards

    trainer = TurnGrpo(rollout_func=rollout, reward_funcs=reward, **arguments)
    return trainer
