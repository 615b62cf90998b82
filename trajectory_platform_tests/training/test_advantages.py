"""Advantages of Dr. GRPO: group baselines per turn, no deviation, no length, over any number of processes."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from trajectory_platform.errors import FailPartition
from trajectory_platform.training.advantages import (
    Advantages,
    Scores,
    gathered,
    group_advantages,
    loss_scale,
    per_token,
)

NAN = float("nan")


def scores(turns: list[list[float]], outcome: list[float], *, kept: list[bool] | None = None, size: int = 2) -> Scores:
    width = max((len(row) for row in turns), default=0)
    padded = [row + [NAN] * (width - len(row)) for row in turns]
    count = len(outcome)
    return Scores(
        torch.tensor(padded).view(count, width),
        torch.tensor(outcome),
        torch.tensor(kept or [True] * count),
        torch.arange(count) // size,
    )


def case(shared: Path, name: str) -> Any:
    return json.loads((shared / "cases" / f"{name}.json").read_text("utf-8"))


def test_c06_advantages_are_not_divided_by_the_deviation(shared: Path) -> None:
    told = case(shared, "C06")
    rewards = [float(reward) for reward in told["input"]["rewards"]]
    found = group_advantages(scores([[]] * 4, rewards, size=4), size=4, mode="outcome")
    assert found.whole.tolist() == told["expect"]["advantages_for_1110"]


def test_c06_a_token_weighs_the_same_in_a_short_and_in_a_long_attempt(shared: Path) -> None:
    told = case(shared, "C06")["input"]
    longest = max(told["lengths"])
    turns = torch.full((2, longest), -1)
    for row, length in enumerate(told["lengths"]):
        turns[row, :length] = 0
    both = Advantages(torch.zeros(2, 1), torch.full((2,), told["advantage"]), torch.tensor([]), torch.tensor([]))
    tokens = per_token(both, torch.arange(2), turns)
    weights = tokens / (2 * told["max_completion_length"])
    assert weights[0, 0] == weights[1, 0] == weights[1, longest - 1] and float(weights[0, 10]) == 0.0


def test_c04_groups_without_a_difference_are_counted_and_move_nothing(shared: Path) -> None:
    told = case(shared, "C04")
    outcome = [float(r) for group in told["input"]["groups"] for r in group]
    found = group_advantages(scores([[]] * 8, outcome, size=4), size=4, mode="both")
    assert int(found.zero_variance.sum()) == told["expect"]["zero_variance_groups"]
    assert found.whole.view(2, 4).tolist() == told["expect"]["advantages"]


def test_c08_masked_attempts_count_neither_above_nor_below(shared: Path) -> None:
    told = case(shared, "C08")
    length, longest = told["input"]["lengths"][0], max(told["input"]["lengths"])
    for keep, expected in (
        (told["input"]["keep"], told["expect"]["loss"]),
        (told["input"]["second_batch_keep"], told["expect"]["all_masked_loss"]),
    ):
        turns = torch.full((2, longest), -1)
        for row, kept in enumerate(keep):
            if kept:
                turns[row, : told["input"]["lengths"][row]] = 0
        advantage = Advantages(
            torch.zeros(2, 1), torch.full((2,), -told["input"]["token_loss"]), torch.tensor([]), torch.tensor([])
        )
        scale = loss_scale(2, sum(keep))
        loss = -per_token(advantage, torch.arange(2), turns, scale=scale).sum() / (2 * length)
        assert float(loss) == pytest.approx(expected) and torch.isfinite(loss)


def test_the_baseline_of_a_turn_is_the_mean_of_those_who_have_that_turn() -> None:
    found = group_advantages(
        scores([[1.0, 0.5, 0.2], [0.0], [1.0, -0.5], [1.0]], [0.0] * 4, size=4), size=4, mode="turn"
    )
    assert found.turns.tolist() == [
        pytest.approx([0.25, 0.5, 0.0]),
        pytest.approx([-0.75, 0.0, 0.0]),
        pytest.approx([0.25, -0.5, 0.0]),
        pytest.approx([0.25, 0.0, 0.0]),
    ]
    assert found.whole.tolist() == [0.0] * 4 and found.zero_variance.tolist() == [False]


def test_the_two_advantages_are_switched_and_weighted() -> None:
    both = scores([[1.0], [0.0]], [1.0, 0.0])
    by_turn = group_advantages(both, size=2, mode="turn", turn_weight=2.0)
    assert by_turn.turns.flatten().tolist() == [1.0, -1.0] and by_turn.whole.tolist() == [0.0, 0.0]
    outcome = group_advantages(both, size=2, mode="outcome", outcome_weight=3.0)
    assert outcome.turns.flatten().tolist() == [0.0, 0.0] and outcome.whole.tolist() == [1.5, -1.5]
    summed = group_advantages(both, size=2, mode="both", turn_weight=2.0, outcome_weight=3.0)
    assert summed.turns.flatten().tolist() == [1.0, -1.0] and summed.whole.tolist() == [1.5, -1.5]


def test_a_problem_without_a_reference_is_moved_by_its_outcome_in_every_mode() -> None:
    mixed = scores([[NAN], [NAN], [1.0], [0.0]], [1.0, 0.0, 1.0, 0.0])
    found = group_advantages(mixed, size=2, mode="turn")
    assert found.whole.tolist() == [0.5, -0.5, 0.0, 0.0]
    assert found.turns.flatten().tolist() == [0.0, 0.0, 0.5, -0.5]


def test_an_attempt_that_is_not_trained_on_takes_no_part_in_the_baseline() -> None:
    found = group_advantages(
        scores([[1.0], [0.0], [9.0], [1.0]], [1.0, 0.0, 9.0, 1.0], kept=[True, True, False, True], size=4),
        size=4,
        mode="both",
    )
    assert found.whole.tolist() == pytest.approx([1 / 3, -2 / 3, 0.0, 1 / 3])
    assert float(found.turns[2]) == 0.0
    nobody = group_advantages(scores([[1.0], [0.0]], [1.0, 0.0], kept=[False, False]), size=2, mode="both")
    assert nobody.whole.tolist() == [0.0, 0.0] and bool(nobody.zero_variance)


def test_a_difference_in_the_turns_alone_is_a_difference() -> None:
    alike = scores([[1.0], [0.0]], [0.0, 0.0])
    assert group_advantages(alike, size=2, mode="outcome").zero_variance.tolist() == [True]
    found = group_advantages(alike, size=2, mode="both")
    assert found.zero_variance.tolist() == [False] and found.same_outcome.tolist() == [True]


def test_attempts_of_two_problems_never_share_a_baseline() -> None:
    torn = scores([[]] * 4, [1.0, 0.0, 1.0, 0.0])._replace(group=torch.tensor([0, 1, 1, 0]))
    with pytest.raises(FailPartition, match="group_split"):
        group_advantages(torn, size=2, mode="both")
    with pytest.raises(FailPartition, match="group_split"):
        group_advantages(scores([[]] * 3, [1.0, 0.0, 1.0]), size=2, mode="both")


def test_c09_only_tokens_of_the_model_in_a_trained_attempt_get_an_advantage(shared: Path) -> None:
    told = case(shared, "C09")
    mask = told["input"]["tool_mask"]
    turns = torch.tensor([[0 if m and at < 5 else 1 if m else -1 for at, m in enumerate(mask)]])
    one = Advantages(torch.tensor([[0.5, -0.5]]), torch.tensor([0.25]), torch.tensor([]), torch.tensor([]))
    assert int((per_token(one, torch.tensor([0]), turns) != 0).sum()) == told["expect"]["trained_tokens_otherwise"]
    assert per_token(one, torch.tensor([0]), turns)[0].tolist() == [0.75] * 3 + [0.0] * 5 + [-0.25] * 2
    masked = per_token(one, torch.tensor([0]), torch.full_like(turns, -1))
    assert int((masked != 0).sum()) == told["expect"]["trained_tokens_if_mask_truncated"]
    assert float(per_token(one, torch.tensor([-1]), turns).abs().sum()) == 0.0


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 6])
def test_any_split_over_processes_gives_the_same_advantages(processes: int) -> None:
    """Three groups of four: over two, three or six processes groups are torn apart, and widths differ."""
    generator = torch.Generator().manual_seed(5)
    rows = [torch.rand(1 + number % 4, generator=generator).tolist() for number in range(12)]
    whole = scores(rows, [float(number % 3 == 0) for number in range(12)], kept=[n != 7 for n in range(12)], size=4)
    expected = group_advantages(whole, size=4, mode="both")
    share = 12 // processes
    parts = []
    for rank in range(processes):
        place = slice(rank * share, (rank + 1) * share)
        width = max(len(row) for row in rows[place])
        parts.append(Scores(whole.turns[place, :width], *(value[place] for value in whole[1:])))
    found = _in_processes(parts)
    for one in found:
        assert torch.equal(one.kept, whole.kept) and torch.equal(one.group, whole.group)
        got = group_advantages(one, size=4, mode="both")
        assert torch.equal(got.turns, expected.turns) and torch.equal(got.whole, expected.whole)


def _in_processes(parts: list[Scores]) -> list[Scores]:
    """Every part in a thread of its own, with a gather that waits for all, as a collective operation does."""
    barrier = threading.Barrier(len(parts))
    posted: list[Any] = [None] * len(parts)
    found: list[Any] = [None] * len(parts)

    def work(rank: int) -> None:
        def gather(value: torch.Tensor) -> torch.Tensor:
            posted[rank] = value
            barrier.wait(10)
            joined = torch.cat(list(posted))
            barrier.wait(10)
            return joined

        found[rank] = gathered(parts[rank], gather)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found
