"""One evaluation run from its plan to its files and listing rows. Independent of all other runs, so of the process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

from trajectory_platform.arena import artifacts, referee
from trajectory_platform.arena.account import account_of, flags_of, replies_counted
from trajectory_platform.arena.miners import solve
from trajectory_platform.arena.plan import SECONDS_A_PROBLEM, RunPlan
from trajectory_platform.arena.playing import Played
from trajectory_platform.arena.problems import ArenaProblem
from trajectory_platform.arena.rows import Pair, iso, run_row, truth_row
from trajectory_platform.sandbox.tools import World

_RELABELLED = ("score_flipped", "judged_two_days_later", "clock_seconds", "clock_reversed", "clock_zero")


@dataclass(frozen=True)
class Frame:
    """What all runs of a day share.

    Attributes:
        out: root of the simulation; the run's artifacts go below ``{out}/{day}/artifacts``.
        era_day: day whose formats and rules apply.
    """

    out: Path
    day: date
    era_day: date
    seed: int

    def era_at(self, moment: int) -> artifacts.Era:
        return artifacts.era_of(self.era_day, datetime.fromtimestamp(moment / 1000, tz=UTC).hour)


@dataclass
class RunResult:
    """What a finished run leaves.

    Attributes:
        score: the validator's score of an included run, else None.
        completed_at: UTC milliseconds.
        run: its line in ``runs.jsonl``.
        entries: per pair (problem, the validator's result in ``problems.jsonl``).
        truth: its rows in ``truth.jsonl``.
    """

    plan: RunPlan
    score: float | None
    completed_at: int
    run: dict[str, Any]
    entries: list[tuple[ArenaProblem, dict[str, Any]]]
    truth: list[dict[str, Any]]


def execute(world: World, plan: RunPlan, frame: Frame) -> RunResult:
    """Play all pairs of a scripted run, report them and publish their artifacts."""
    era = frame.era_at(plan.start)
    pairs = [play_script(world, plan, problem, number, era, frame.seed) for number, problem in enumerate(plan.problems)]
    return finish(plan, pairs, frame)


def finish(plan: RunPlan, pairs: Sequence[Pair], frame: Frame) -> RunResult:
    """Report and publish played pairs: whoever played them, this is what the validator makes of them."""
    era = frame.era_at(plan.start)
    for pair in pairs:
        report(pair, era, frame.seed)
    if plan.fate != "judge_failed":
        publish(plan, pairs, era, frame)
    run, completed_at = run_row(plan, pairs)
    score = run["validator_score"] if run["is_included"] else None
    entries = [(pair.problem, pair.entry) for pair in pairs]
    return RunResult(
        plan, score, completed_at, run, entries, [truth_row(frame.day, pair, era.regime) for pair in pairs]
    )


def play_script(world: World, plan: RunPlan, problem: ArenaProblem, number: int, era: artifacts.Era, seed: int) -> Pair:
    """One pair of a scripted miner: the seam to ``miners.solve``.

    Copies of one strategy draw the same words at the same validator; all other draws are the pair's own, so two
    validators' runs of one version are two rollouts.
    """
    agent, quirk = plan.agent, artifacts.possible(plan.quirks.get(problem.problem_id), era)
    own = f"{seed}|{plan.run_id}|{problem.problem_id}"
    copied = f"words|{seed}|{agent.group}|{plan.validator}|{problem.problem_id}"
    words = Random(copied if agent.group else f"words|{own}")
    chance = Random(f"clock|{own}")
    start = plan.start + number * SECONDS_A_PROBLEM * 1000
    played = solve(world, agent, problem, quirk, era, start=start, words=words, own=chance)
    return pair_of(plan, problem, played, era, start=start, chance=chance)


def pair_of(
    plan: RunPlan, problem: ArenaProblem, played: Played, era: artifacts.Era, *, start: int, chance: Random
) -> Pair:
    """A finished attempt of a script as a pair: what really happened, when, and its dialogue as the era publishes it.

    Args:
        start: UTC milliseconds.
        chance: draws the seconds around the attempt.
    """
    quirk = played.quirk
    truth = referee.judge_outcome(played, problem.target_ids, account_of(played, era))
    truth.flags += flags_of(played, era)
    if quirk in _RELABELLED:
        truth.flags.append(str(quirk))
    seconds = 300.03 if quirk == "timeout" else round((played.environment.clock_ms - start) / 1000 + chance.random(), 6)
    updated = start + int(seconds * 1000) + chance.randrange(3_000, 9_000)
    if quirk == "judged_two_days_later":
        updated += 2 * 86_400_000
    pair = Pair(plan, problem, played, truth, seconds, updated)
    if truth.execution_status == "SUCCESS" and quirk not in referee.EXECUTION:
        pair.dialogue = artifacts.dialogue_of(played, problem.problem_id, era, seconds)
    return pair


def report(pair: Pair, era: artifacts.Era, seed: int) -> None:
    """Set the validator's entry of ``problems.jsonl``."""
    plan, truth, quirk = pair.plan, pair.truth, pair.episode.quirk
    rng = Random(f"verdict|{seed}|{plan.run_id}|{pair.problem.problem_id}")
    scored = truth.outcome in ("success", "failure") or quirk in referee.DAMAGED
    success = truth.success
    if quirk in referee.DAMAGED:
        success = referee.recommended_ids(pair.episode)[: len(pair.problem.wants)] == pair.problem.target_ids
    if quirk == "score_flipped":
        success = not success
    status = "SUCCESS" if success else "FAILED"
    if not scored:
        status = "FAILED" if truth.execution_status == "FAILED" else "TIMED_OUT"
    judged = scored and era.regime is not None and plan.fate != "judge_failed"
    pair.quality = referee.true_quality(pair.episode, plan.agent.kind)
    score, note, pair.judge_state = referee.reported_reasoning(rng, pair.quality, era.regime or "", judged)
    calls = replies_counted(pair.episode, told=True)
    known = calls > 0 and quirk != "crash"
    pair.entry = {
        "eval_run_id": plan.run_id,
        "validator_hotkey": plan.validator,
        "status": status,
        "score": 1.0 if status == "SUCCESS" else 0.0,
        "score_components": note,
        "reasoning_score": score,
        "updated_at": iso(pair.updated_at, rng.randrange(1000)),
        "inference_failure_count": 0 if known else None,
        "inference_total": calls if known else None,
        "execution_time": pair.seconds,
    }


def publish(plan: RunPlan, pairs: Sequence[Pair], era: artifacts.Era, frame: Frame) -> None:
    """Write the artifacts of a run: one per problem, or the whole output file under the first problem's id."""
    place = f"{frame.day.isoformat()}/artifacts/{plan.run_id}"
    folder = frame.out / place
    folder.mkdir(parents=True, exist_ok=True)
    written = [pair for pair in pairs if pair.truth.execution_status != "NO_LINE"]
    if not era.whole_file:
        for pair in written:
            name = f"{pair.problem.problem_id}.json.gz"
            quirk = pair.episode.quirk
            (folder / name).write_bytes(artifacts.dialogue_bytes(pair.dialogue or [], quirk))
            pair.artifact = f"{place}/{name}"
            pair.artifact_form = "json_array_plain" if quirk == "plain_array" else "json_array_gzip"
        return
    if not written:
        return
    name = f"{pairs[0].problem.problem_id}.json.gz"
    for line, pair in enumerate(written):
        pair.artifact_line = line
        pair.artifact, pair.artifact_form = f"{place}/{name}", "whole_file_gzip"
    (folder / name).write_bytes(artifacts.lines_bytes([_envelope(pair) for pair in written]))


def _envelope(pair: Pair) -> Any:
    """The pair's line in the run's output file."""
    status = pair.truth.execution_status
    error = {"FAILED": "KeyError", "TIMED_OUT": "TimeoutError"}.get(status)
    calls = pair.entry["inference_total"] or 0
    return artifacts.envelope_of(pair.problem.problem_id, status, pair.seconds, calls, pair.dialogue, error)
