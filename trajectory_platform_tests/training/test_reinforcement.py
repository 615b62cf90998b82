"""Dr. GRPO with TRL in the driver's seat: the same messages and tokens as our own loop, exact masks, exact resuming."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation import policy_transformers
from trajectory_platform.evaluation.policy_sampling import Sampling
from trajectory_platform.evaluation.policy_transformers import TransformersPolicy, load_checkpoint
from trajectory_platform.evaluation.rollout import run_episode
from trajectory_platform.sandbox.catalogue_index import open_world
from trajectory_platform.training import grpo_trainer
from trajectory_platform.training.grpo_report import verdict
from trajectory_platform.training.grpo_rollouts import StepClock, tokens_of
from trajectory_platform.training.recipe import Recipe
from trajectory_platform.training.reinforcement import problem_order, train_dr_grpo
from trajectory_platform.training.stage_recipes import GrpoStage
from trajectory_platform.training.trained import Trained
from trajectory_platform_tests.training import grpo_market
from trajectory_platform_tests.training.grpo_market import Script, as_miners, as_trained, recipe_of, straight


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grpo_market.world_folder(tmp_path_factory.mktemp("market"))


@pytest.fixture(scope="module")
def base(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grpo_market.base_folder(tmp_path_factory.mktemp("base"), place)


@pytest.fixture(scope="module")
def tokenizer(base: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every generation batch that a trainer made, in order."""
    seen: list[Any] = []
    made = grpo_trainer.collect

    def collect(*args: Any) -> Any:
        seen.append(made(*args))
        return seen[-1]

    monkeypatch.setattr(grpo_trainer, "collect", collect)
    return seen


def train(
    recipe: Recipe,
    place: Path,
    folder: Path,
    *,
    count: int = 2,
    report: Callable[[str], None] = lambda line: None,
    **more: Any,
) -> Trained:
    folder.mkdir(exist_ok=True)
    rows = grpo_market.rows(count, place, **more)
    return train_dr_grpo(rows, recipe, "dr_grpo", parent=None, folder=folder, files={"world": place}, report=report)


def scripted(monkeypatch: pytest.MonkeyPatch, tokenizer: Any, says: Callable[[int, int, int], str | None]) -> Script:
    script = Script(tokenizer, says)
    monkeypatch.setattr(policy_transformers, "generate", script)
    return script


def better_or_worse(number: int, turn: int, seed: int) -> str:
    """Half of the attempts take the straight path, half recommend something else at once."""
    if seed % 2:
        return as_trained(straight(number)[turn])
    other = straight(number + 1)[2]
    return as_trained(other if turn == 0 else straight(number)[3])


# ------------------------------------------------------------------------------------ one meaning of a reply


@pytest.mark.parametrize("form", [as_trained, as_miners])
def test_a_scripted_reply_gives_the_same_messages_and_tokens_in_trl_and_in_our_own_loop(
    form: Callable[[Any], str],
    base: Path,
    place: Path,
    tokenizer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batches: list[Any],
) -> None:
    script = scripted(monkeypatch, tokenizer, lambda number, turn, seed: form(straight(number)[turn]))
    recipe = recipe_of(base, max_steps=1)
    train(recipe, place, tmp_path / "run")
    asked_by_trl, script.asked = script.asked, []
    (batch,) = batches
    assert len(batch.attempts) == 4
    model, own_tokenizer = load_checkpoint(base)
    policy = TransformersPolicy(
        model, own_tokenizer, recipe.context, name="ours", sampling=Sampling(temperature=1.0, seed=7), keep_tokens=True
    )
    limits = grpo_trainer.Limits(**recipe.stage("dr_grpo").limits.model_dump())  # type: ignore[union-attr]
    for attempt in batch.attempts:
        ours = run_episode(policy, attempt.rollout.task, open_world(place), limits, clock=StepClock())
        assert ours.environment.messages == attempt.rollout.environment.messages
        assert ours.ending == attempt.rollout.ending and ours.ending.reason == "terminate"
        assert tokens_of(ours) == attempt.replies and len(attempt.replies) == 4
    assert sorted(script.asked) == sorted(asked_by_trl)


def test_what_the_loss_sees_are_the_tokens_that_were_drawn(
    base: Path, place: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: list[Any]
) -> None:
    import torch
    from trl import GRPOTrainer

    seen: list[dict[str, Any]] = []
    compute = GRPOTrainer._compute_loss
    monkeypatch.setattr(
        GRPOTrainer, "_compute_loss", lambda self, model, inputs: (seen.append(inputs), compute(self, model, inputs))[1]
    )
    scripted(monkeypatch, tokenizer, better_or_worse)
    train(recipe_of(base, max_steps=1), place, tmp_path / "run")
    (batch,) = batches
    drawn = sorted(tuple(token for reply in one.replies for token in reply.token_ids) for one in batch.attempts)
    trained = []
    for inputs in seen:
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        assert inputs["completion_ids"].shape == mask.shape == inputs["advantages"].shape
        assert not bool((inputs["advantages"] != 0)[mask == 0].any())
        trained += [tuple(ids[one.bool()].tolist()) for ids, one in zip(inputs["completion_ids"], mask, strict=True)]
    assert sorted(trained) == drawn
    assert any(bool((inputs["advantages"] != 0).any()) for inputs in seen)
    assert all(bool(torch.isfinite(inputs["advantages"]).all()) for inputs in seen)


def test_the_probabilities_at_drawing_are_those_of_training(
    base: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: list[Any]
) -> None:
    """Contexts, temperature and masks agree between sampler and loss: drift would be an off-policy gradient."""
    from trl import GRPOTrainer

    seen: list[tuple[Any, Any]] = []
    score = GRPOTrainer._get_per_token_logps_and_entropies

    def spy(self: Any, model: Any, *args: Any, **more: Any) -> Any:
        found = score(self, model, *args, **more)
        seen.append((args[0], found[0].detach()))
        return found

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", spy)
    train(recipe_of(base, max_steps=1, temperature=0.8, entropy_coef=1e-6), place, tmp_path / "run")
    (batch,) = batches
    expected = {}
    for ids, completion, mask, logprobs in zip(*(batch.output[name] for name in (
        "prompt_ids", "completion_ids", "env_mask", "logprobs",
    )), strict=True):  # fmt: skip
        expected[tuple(ids + completion)] = (mask, logprobs)
    compared = 0
    for ids, logps in seen:
        for row, found in zip(ids.tolist(), logps, strict=True):
            for key, (mask, logprobs) in expected.items():
                if tuple(token for token in row if token != 0)[: len(key)] != key:
                    continue
                for place_, (drawn, logprob) in enumerate(zip(mask, logprobs, strict=True)):
                    if drawn:
                        assert float(found[place_]) == pytest.approx(logprob, abs=2e-4)
                        compared += 1
    assert compared > 40


# -------------------------------------------------------------------------------------------- advantages


def test_outcome_advantages_without_splits_are_those_of_trl(
    base: Path, place: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: list[Any]
) -> None:
    from trl import GRPOTrainer

    stock: list[Any] = []
    ours: list[Any] = []
    generate = GRPOTrainer._generate_and_score_completions

    def spy(self: Any, inputs: Any) -> Any:
        found = generate(self, inputs)
        stock.append(found["advantages"].clone())
        ours.append((self._token_advantages(found["completion_ids"]), found["tool_mask"] * found["completion_mask"]))
        return found

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", spy)
    scripted(monkeypatch, tokenizer, better_or_worse)
    train(
        recipe_of(base, max_steps=1, advantage="outcome", batch=8, group=4, truncated="keep"), place, tmp_path / "run"
    )
    (whole,), ((tokens, mask),) = stock, ours
    assert float(whole.abs().sum()) > 0
    for row in range(len(whole)):
        own = tokens[row][mask[row].bool()]
        assert own.tolist() == pytest.approx([float(whole[row]) * batches[0].scale] * len(own))


def test_attempts_that_move_nothing_are_left_out_of_the_pass_and_change_nothing(
    base: Path, place: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: list[Any]
) -> None:
    import torch

    def says(number: int, turn: int, seed: int) -> str:
        return as_trained(straight(number)[turn]) if number == 0 else better_or_worse(number, turn, seed)

    scripted(monkeypatch, tokenizer, says)
    recipe = recipe_of(base, max_steps=2, batch=8, group=4, micro_batch=4)
    few = train(recipe, place, tmp_path / "few")
    monkeypatch.setattr(grpo_trainer, "_used", lambda part, kept, found, first: list(kept))
    every = train(recipe, place, tmp_path / "every")
    assert [len(batch.rewards) for batch in batches] == [4, 4, 8, 8]
    for one, other in zip(weights(few), weights(every), strict=True):
        assert torch.allclose(one, other, atol=2e-5)
    assert few.history[0]["loss"] == pytest.approx(every.history[0]["loss"], abs=1e-5)


def test_turn_advantages_reach_the_turn_that_earned_them(
    base: Path, place: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: list[Any]
) -> None:
    scripted(monkeypatch, tokenizer, better_or_worse)
    recipe = recipe_of(base, max_steps=1, advantage="turn", batch=8, group=4)
    done = train(recipe, place, tmp_path / "run")
    (batch,) = batches
    found = batch.advantages
    firsts: dict[str, set[tuple[str, bool]]] = {}
    for number, attempt in enumerate(batch.attempts):
        tool = attempt.rollout.environment.messages[1]["tool_calls"][0]["function"]["name"]
        firsts.setdefault(attempt.asked.key, set()).add((tool, float(found.turns[number, 0]) > 0))
    assert {("find_product", True), ("recommend_product", False)} in firsts.values()
    assert float(found.whole.abs().sum()) == 0.0
    (entry,) = done.history
    assert 0 < entry["hallucinated"] < 1 and entry["part_hallucinated"] < 0 < entry["part_tool"]
    assert entry["success"] <= entry["solved_groups"]


@pytest.mark.parametrize("advantage", ["turn", "outcome", "both"])
def test_what_was_better_becomes_likelier_and_what_was_worse_less_so(
    advantage: str,
    base: Path,
    place: Path,
    tokenizer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batches: list[Any],
) -> None:
    import torch

    def says(number: int, turn: int, seed: int) -> str:
        return better_or_worse(number, turn, seed) if turn == 0 else as_trained(straight(number)[turn])

    scripted(monkeypatch, tokenizer, says)
    done = train(recipe_of(base, max_steps=1, advantage=advantage, batch=8, group=8), place, tmp_path / "run", count=1)
    (batch,) = batches
    before, _ = load_checkpoint(base)
    for attempt, row in zip(batch.attempts, range(8), strict=True):
        worth = float(batch.advantages.turns[row, 0] + batch.advantages.whole[row])
        if abs(worth) < 1e-6:
            continue
        first = attempt.replies[0]
        ids = torch.tensor([first.prompt_ids + first.token_ids])
        with torch.no_grad():
            old, new = (
                model.eval()(input_ids=ids).logits[0, len(first.prompt_ids) - 1 : -1].log_softmax(-1)
                for model in (before, done.model)
            )
        tokens = torch.tensor(first.token_ids)[:, None]
        gain = float((new.gather(1, tokens) - old.gather(1, tokens)).sum())
        assert (gain > 0) is (worth > 0)


def test_a_split_attempt_is_several_rows_and_weighs_as_one(
    base: Path, place: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: list[Any]
) -> None:
    scripted(monkeypatch, tokenizer, lambda number, turn, seed: as_miners(straight(number)[turn]))
    done = train(recipe_of(base, max_steps=1, extra_rows=3.0, entropy_coef=1e-6), place, tmp_path / "all")
    (batch,) = batches
    rows = len(batch.rewards)
    segments = sum(len(one.segments) for one in batch.attempts)
    assert rows >= segments > 4 and rows % 2 == 0 and len([one for one in batch.attempt if one >= 0]) == segments
    assert batch.scale == rows / 4 and done.history[0]["contexts"] == segments / 4
    assert done.history[0]["replies_left_out"] == 0
    tight = train(recipe_of(base, max_steps=1, extra_rows=0.0, entropy_coef=1e-6), place, tmp_path / "tight")
    assert len(batches[-1].rewards) == 4 and tight.history[0]["replies_left_out"] > 0


def test_problems_without_a_reference_are_counted_and_learn_from_the_outcome(
    base: Path, place: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: list[Any]
) -> None:
    scripted(monkeypatch, tokenizer, better_or_worse)
    recipe = recipe_of(base, max_steps=1, advantage="turn", batch=8, group=4)
    done = train(recipe, place, tmp_path / "run", grounded=lambda number: False)
    assert done.report["problems_without_reference"] == 2 and done.history[0]["without_reference"] == 1.0
    assert "process" not in done.history[0] and float(batches[0].advantages.whole.abs().sum()) > 0
    assert {role for _, role in done.times} == {"prompt"}


# ------------------------------------------------------------------------------------- limits and masks


def never_ends(number: int, turn: int, seed: int) -> str | None:
    return None


def test_c07_attempts_that_were_all_cut_stop_the_run_with_a_reason(
    base: Path, place: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, tokenizer, never_ends)
    with pytest.raises(FailPartition, match="all_rollouts_truncated: 100%"):
        train(recipe_of(base, clipped_action="stop"), place, tmp_path / "run")
    done = train(recipe_of(base, clipped_action="warn"), place, tmp_path / "warned")
    assert done.report["steps_at_a_limit"]["all_rollouts_truncated"] == 2 and done.metrics["steps"] == 2


def test_c04_groups_without_a_difference_are_reported_and_end_the_training(
    base: Path, place: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    scripted(monkeypatch, tokenizer, lambda number, turn, seed: as_trained(straight(number)[turn]))
    stop = {"max_steps": 4, "zero_variance_action": "stop", "zero_variance_patience": 2}
    done = train(recipe_of(base, **stop), place, tmp_path / "run")
    assert [entry["zero_variance"] for entry in done.history] == [1.0, 1.0]
    assert done.metrics["stopped"] == "zero_variance_groups at step 2" and done.metrics["steps"] == 2
    assert done.history[0]["success"] == 1.0 and done.history[0]["solved_groups"] == 1.0
    before, _ = load_checkpoint(base)
    for old, new in zip(before.parameters(), done.model.parameters(), strict=True):
        assert torch.allclose(old, new, atol=2e-3)  # weight decay only


@pytest.mark.parametrize(("how", "trained"), [("mask", False), ("penalty", True), ("keep", True)])
def test_what_becomes_of_a_cut_attempt_is_the_recipes_to_say(
    how: str,
    trained: bool,
    base: Path,
    place: Path,
    tokenizer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batches: list[Any],
) -> None:
    def says(number: int, turn: int, seed: int) -> str | None:
        return as_trained(straight(number)[turn]) if seed % 2 or turn == 0 else None

    scripted(monkeypatch, tokenizer, says)
    recipe = recipe_of(base, max_steps=1, truncated=how, batch=8, group=4, advantage="outcome")
    done = train(recipe, place, tmp_path / "run")
    (batch,) = batches
    clipped = [one.clipped for one in batch.attempts]
    assert 0 < sum(clipped) < 8
    assert any(clipped[row] for row in batch.attempt if row >= 0) is trained
    kept = 8 - sum(clipped) if how == "mask" else 8
    assert batch.scale == len(batch.rewards) / kept and done.history[0]["masked"] == pytest.approx((8 - kept) / 8)
    assert min(batch.rewards) == (-0.5 if how == "penalty" else 0.0)


def test_a_batch_of_masked_attempts_moves_nothing_and_is_counted(
    base: Path, place: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, tokenizer, never_ends)
    done = train(recipe_of(base, max_steps=2, truncated="mask"), place, tmp_path / "run")
    assert [entry["loss"] for entry in done.history] == [0.0, 0.0]
    assert [entry["masked"] for entry in done.history] == [1.0, 1.0] and done.report["attempts_masked"] == 8


def test_limits_decide_the_same_from_a_log_that_was_resumed() -> None:
    part = GrpoStage(zero_variance_limit=0.5, zero_variance_patience=2)
    log = [{"step": at + 1, "clipped": 0.0, "zero_variance": value} for at, value in enumerate([0.6, 0.4, 0.5, 0.9])]
    assert [verdict(log[:n], part) is not None for n in range(5)] == [False, False, False, False, True]
    assert verdict([*log, {"step": 4, "train_loss": 1.0}], part) == ("zero_variance_groups", 4)
    cut = [{"step": 1, "clipped": 0.2, "zero_variance": 0.0}, {"step": 2, "clipped": 1.0, "zero_variance": 0.0}]
    assert verdict(cut, part) == ("all_rollouts_truncated", 2)
    with pytest.raises(FailPartition, match="all_rollouts_truncated"):
        verdict(cut[1:], part)
    assert verdict(cut, part.model_copy(update={"clipped_action": "warn"})) is None


def test_a_kl_term_does_not_move_groups_without_a_difference(
    base: Path, place: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: list[Any]
) -> None:
    scripted(monkeypatch, tokenizer, lambda number, turn, seed: as_trained(straight(number)[turn]))
    train(recipe_of(base, max_steps=1, beta=0.1), place, tmp_path / "out")
    assert not any(any(mask) for mask in batches[-1].output["env_mask"]) and set(batches[-1].attempt) == {-1}
    train(recipe_of(base, max_steps=1, beta=0.1, kl_on_zero_variance=True), place, tmp_path / "in")
    assert all(any(mask) for mask in batches[-1].output["env_mask"])


def test_the_kl_term_is_a_mean_over_the_attempts_that_count_not_over_rows(
    base: Path, place: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: list[Any]
) -> None:
    """Groups without a difference have no rows: that must not make the KL term heavier than the rest."""

    def says(number: int, turn: int, seed: int) -> str:
        return as_trained(straight(number)[turn]) if number else better_or_worse(number, turn, seed)

    scripted(monkeypatch, tokenizer, says)
    recipe = recipe_of(base, max_steps=6, batch=8, micro_batch=8, group=4, beta=2.0, loss_length=64)
    done = train(recipe, place, tmp_path / "run")
    compared = 0
    for batch, entry in zip(batches, done.history, strict=True):
        policy = drawn = 0.0
        for row, mask in enumerate(batch.output["env_mask"]):
            drawn += sum(mask)
            policy -= sum(worth(batch, row, turn) for turn, one in zip(batch.turns[row], mask, strict=True) if one)
        expected = (policy + 2.0 * entry["kl"] * drawn) / (8 * 64)
        assert entry["loss"] == pytest.approx(expected, rel=1e-3, abs=1e-6)
        compared += len(batch.rewards) < 8 and 2.0 * entry["kl"] * drawn > 0.01 * abs(policy) > 0
    assert compared  # steps with a group that was left out, after the first


def worth(batch: Any, row: int, turn: int) -> float:
    """The advantage of a token of a turn, before any scale."""
    attempt = batch.attempt[row]
    return float(batch.advantages.turns[attempt, turn] + batch.advantages.whole[attempt])


# ----------------------------------------------------------------------------------------- what is recorded


def test_a_run_reports_every_step_and_names_what_it_used(base: Path, place: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    done = train(recipe_of(base, max_steps=3), place, tmp_path / "run", count=3, report=lines.append)
    assert sum("groups without a difference" in line for line in lines) == 3
    assert len(done.history) == 3 and done.metrics["steps"] == 3 and done.metrics["attempts"] == 12
    for entry in done.history:
        for name in ("zero_variance", "clipped", "hallucinated", "sampled_entropy", "solved_groups", "loss", "tokens"):
            assert math.isfinite(entry[name])
        assert not any(name.startswith(("completions/", "rewards/")) for name in entry)
    assert sum(times for (_, role), times in done.times.items() if role == "prompt") == 12
    keys = {row.key for row in grpo_market.rows(3, place).rows}
    assert set(done.times) <= keys and {role for _, role in done.times} == {"prompt", "reference"}
    assert done.report["dropped_rows"] == [] and done.report["rows"] == 6


def test_without_a_problem_or_a_catalogue_nothing_is_trained(base: Path, place: Path, tmp_path: Path) -> None:
    from trajectory_platform.training.trained import Rows

    with pytest.raises(FailPartition, match="no problem to attempt"):
        train_dr_grpo(
            Rows([], []), recipe_of(base), "dr_grpo", parent=None, folder=tmp_path, files={}, report=lambda line: None
        )
    with pytest.raises(FailPartition, match="no catalogue"):
        train_dr_grpo(
            grpo_market.rows(1, place),
            recipe_of(base),
            "dr_grpo",
            parent=None,
            folder=tmp_path,
            files={},
            report=lambda line: None,
        )


def test_problems_come_pass_after_pass_in_a_new_order_each_time() -> None:
    keys = [f"k{number}" for number in range(5)]
    order = problem_order(keys, 3, 12)
    assert sorted(order[:5]) == sorted(order[5:10]) == list(range(5)) and order[:5] != order[5:10]
    assert problem_order(keys, 3, 7) == order[:7] and problem_order(keys, 4, 12) != order


# ---------------------------------------------------------------------------------------------- resuming


class Killed(Exception):
    """In place of kill -9."""


def weights(done: Trained) -> list[Any]:
    return [parameter.detach().clone() for parameter in done.model.parameters()]


@pytest.mark.parametrize("iterations", [1, 2])
def test_a_killed_run_goes_on_at_its_generation_batch_with_the_same_problems_and_draws(
    iterations: int, base: Path, place: Path, tmp_path: Path, batches: list[Any]
) -> None:
    import torch

    recipe = recipe_of(base, max_steps=4 * iterations, iterations=iterations, save_every=1)
    whole = train(recipe, place, tmp_path / "whole", count=3)
    uninterrupted = [_drawn(batch) for batch in batches]
    assert len(uninterrupted) == 4
    del batches[:]

    def kill(line: str) -> None:
        if line.startswith(f"step {2 * iterations + 1}:"):
            raise Killed

    with pytest.raises(Killed):
        train(recipe, place, tmp_path / "run", count=3, report=kill)
    assert len(batches) == 3
    del batches[:]
    lines: list[str] = []
    resumed = train(recipe, place, tmp_path / "run", count=3, report=lines.append)
    assert any(line.startswith(f"going on at checkpoint-{2 * iterations}") for line in lines)
    assert [_drawn(batch) for batch in batches] == uninterrupted[2:]
    for one, other in zip(weights(whole), weights(resumed), strict=True):
        assert torch.equal(one, other)
    assert resumed.history == whole.history and resumed.times == whole.times


@pytest.mark.slow
def test_a_run_killed_by_the_kernel_ends_with_the_weights_of_one_that_was_not(
    base: Path, place: Path, tmp_path: Path
) -> None:
    import torch

    recipe = recipe_of(base, max_steps=4, save_every=1)
    whole = train(recipe, place, tmp_path / "whole")
    (tmp_path / "job.json").write_text(
        json.dumps({"recipe": recipe.model_dump(mode="json"), "world": str(place)}), "utf-8"
    )
    command = [sys.executable, "-m", "trajectory_platform_tests.training.grpo_rank", str(tmp_path)]
    told: list[str] = []
    with subprocess.Popen(
        command, env={**os.environ, "RANK": "0"}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            told.append(line)
            if line.startswith("step 3:"):  # its save may or may not be on disk yet
                running.kill()
                break
    assert running.returncode == -9, told
    assert not (tmp_path / "weights.pt").exists()
    again = subprocess.run(command, env={**os.environ, "RANK": "0"}, capture_output=True, text=True, timeout=250)
    assert again.returncode == 0, again.stderr[-3000:]
    assert "going on at checkpoint-" in again.stdout
    for one, other in zip(weights(whole), torch.load(tmp_path / "weights.pt"), strict=True):
        assert torch.equal(one, other)
    assert json.loads((tmp_path / "history.json").read_text("utf-8")) == whole.history


def _drawn(batch: Any) -> list[Any]:
    return [
        (one.asked.key, one.rollout.task.sample, [reply.token_ids for reply in one.replies]) for one in batch.attempts
    ]


# --------------------------------------------------------------------------------------- several processes


@pytest.mark.slow
def test_two_processes_that_share_a_group_train_what_one_does(
    base: Path, place: Path, tmp_path: Path, batches: list[Any]
) -> None:
    """Two processes over gloo, each with half of every group: the same draws, baselines, numbers and weights."""
    import torch

    recipe = recipe_of(base, max_steps=2, batch=8, group=8, micro_batch=2)
    alone = train(recipe, place, tmp_path / "alone")
    hardware = recipe.hardware.model_copy(update={"processes": 2})
    job = {"recipe": recipe.model_copy(update={"hardware": hardware}).model_dump(mode="json"), "world": str(place)}
    (tmp_path / "job.json").write_text(json.dumps(job), "utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "ACCELERATE_USE_CPU": "true"}
    command = [sys.executable, "-m", "trajectory_platform_tests.training.grpo_rank", str(tmp_path)]
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.STDOUT,
            stdout=(tmp_path / f"log-{rank}").open("wb"),
        )
        for rank in range(2)
    ]
    for rank, one in enumerate(started):
        assert one.wait(280) == 0, (tmp_path / f"log-{rank}").read_text("utf-8", "replace")[-3000:]
    ranks = [json.loads((tmp_path / f"drawn-{rank}.json").read_text("utf-8")) for rank in range(2)]
    for number, batch in enumerate(batches):
        together = [attempt for one in ranks for attempt in one[number]]
        assert together == [[one.asked.key, [reply.token_ids for reply in one.replies]] for one in batch.attempts]
    for one, other in zip(weights(alone), torch.load(tmp_path / "weights.pt"), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    history = json.loads((tmp_path / "history.json").read_text("utf-8"))
    for own, other in zip(alone.history, history, strict=True):
        for name in ("success", "zero_variance", "clipped", "process", "tokens", "turns"):
            assert other[name] == pytest.approx(own[name])
