"""One day of the arena: every run is executed, its artifacts and the listing files are put into place."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

from trajectory_platform.arena import artifacts, referee
from trajectory_platform.arena.miners import solve
from trajectory_platform.arena.plan import GHOSTS, SECONDS_A_PROBLEM, RunPlan
from trajectory_platform.arena.problems import ArenaProblem, make_uuid
from trajectory_platform.arena.quirks import QUERY_BAIT
from trajectory_platform.arena.race import Episode, Voice
from trajectory_platform.arena.rows import DayContext, Pair, iso, run_base, run_row, truth_row, version_row
from trajectory_platform.sandbox.tools import World

Progress = Callable[[date, int, int], None]
"""Called with (day, pairs done, pairs of the day)."""
_LAUNCH = date(2026, 3, 26)


class DayWriter:
    """Writes one day: runs every plan, keeps the listing rows, puts the artifacts into place."""

    def __init__(
        self,
        world: World,
        out: Path,
        day: date,
        problems: Sequence[ArenaProblem],
        plans: Sequence[RunPlan],
        seed: int,
        progress: Progress | None,
    ) -> None:
        self.world, self.out, self.day, self.seed, self.progress = world, out, day, seed, progress
        self.problems, self.plans = problems, plans
        self.folder = out / day.isoformat()
        rng = Random(f"race|{seed}|{day.isoformat()}")
        self.context = DayContext(day, 10 + (day - _LAUNCH).days, make_uuid(rng), max(1, (day - _LAUNCH).days + 9))
        self.entries: dict[tuple[str, str], dict[str, Any]] = {}
        self.runs: list[dict[str, Any]] = []
        self.truth: list[dict[str, Any]] = []

    def write(self) -> list[dict[str, Any]]:
        """All files of the day; returns the truth rows in the order of the runs."""
        done, total = 0, sum(len(plan.problems) for plan in self.plans)
        for plan in self.plans:
            if plan.fate.isupper():
                self._ghost(plan)
            else:
                self._run(plan)
            done += len(plan.problems)
            if self.progress:
                self.progress(self.day, done, total)
        write_lines(self.folder / "runs.jsonl", self.runs)
        write_lines(self.folder / "problems.jsonl", list(self.entries.values()))
        agents = {plan.agent.agent_version_id: plan.agent for plan in self.plans}
        write_lines(
            self.folder / "agent_versions.jsonl",
            [version_row(self.context, agent, self.runs) for agent in agents.values()],
        )
        counters: dict[str, int] = {}
        items = []
        for problem in self.problems:
            if problem.in_suite:
                counters[problem.category] = counters.get(problem.category, 0) + 1
                title = f"{problem.category.title()} {counters[problem.category]}"
                items.append(problem.suite_item(self.context.suite_id, title))
        suite = {
            "suite_id": self.context.suite_id,
            "suite_version": self.context.suite_id,
            "is_active": True,
            "execution_kind": "legacy_shoppingbench",
        }
        text = json.dumps({"suite": suite, "problems": items}, indent=1, ensure_ascii=False)
        (self.folder / "suite.json").write_text(text + "\n", encoding="utf-8")
        return self.truth

    def _run(self, plan: RunPlan) -> None:
        """Execute one run and file everything it leaves."""
        hour = datetime.fromtimestamp(plan.start / 1000, tz=UTC).hour
        era = artifacts.era_of(self.day, hour)
        pairs = [self._pair(plan, problem, number, era) for number, problem in enumerate(plan.problems)]
        for pair in pairs:
            self._report(pair, era)
        if plan.fate != "judge_failed":
            self._publish(plan, pairs, era)
        self.runs.append(run_row(self.context, plan, pairs))
        self.truth += [truth_row(self.context, pair, era.regime) for pair in pairs]

    def _pair(self, plan: RunPlan, problem: ArenaProblem, number: int, era: artifacts.Era) -> Pair:
        """One episode: copies of a group draw the same words, all other draws are their own."""
        agent, quirk = plan.agent, plan.quirks.get(problem.problem_id)
        if not era.proxy_log and quirk in ("forged_planted", "forged_repeated"):
            quirk = None
        own = f"{self.seed}|{plan.run_id}|{problem.problem_id}"
        words = Random(f"words|{self.seed}|{agent.group}|{problem.problem_id}" if agent.group else f"words|{own}")
        clock = Random(f"clock|{own}")
        start = plan.start + number * SECONDS_A_PROBLEM * 1000
        voice = Voice(agent.model, agent.form, agent.plus, verbose=quirk == "verbose")
        query = problem.query + QUERY_BAIT if quirk == "inject_query" else problem.query
        retry = agent.kind == "a_composite"
        episode = Episode(self.world, clock, start, voice, query, quirk, retry_without_service=retry)
        solve(agent, problem, episode, words)
        truth = referee.judge_outcome(episode, agent.kind, problem.target_ids, era.proxy_log)
        if quirk in ("score_flipped", "judged_two_days_later", "clock_seconds", "clock_reversed", "clock_zero"):
            truth.flags.append(str(quirk))
        seconds = 300.03 if quirk == "timeout" else round((episode.clock - start) / 1000 + clock.random(), 6)
        updated = start + int(seconds * 1000) + clock.randrange(3_000, 9_000)
        if quirk == "judged_two_days_later":
            updated += 2 * 86_400_000
        pair = Pair(plan, problem, episode, truth, seconds, updated)
        if truth.execution_status == "SUCCESS" and quirk not in referee.EXECUTION:
            pair.dialogue = artifacts.dialogue_of(episode, problem.problem_id, era, seconds)
        return pair

    def _report(self, pair: Pair, era: artifacts.Era) -> None:
        """The validator's entry in problems.jsonl."""
        plan, truth, quirk = pair.plan, pair.truth, pair.episode.quirk
        rng = Random(f"verdict|{self.seed}|{plan.run_id}|{pair.problem.problem_id}")
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
        calls = sum(1 for entry in pair.episode.log if entry["method"] == "POST")
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
        self._problem_line(plan, pair.problem)["validator_results"].append(pair.entry)

    def _problem_line(self, plan: RunPlan, problem: ArenaProblem) -> dict[str, Any]:
        key = (plan.agent.agent_version_id, problem.problem_id)
        if key not in self.entries:
            self.entries[key] = {
                "agent_version_id": plan.agent.agent_version_id,
                "suite_id": self.context.suite_id,
                "problem_id": problem.problem_id,
                "category": problem.category,
                "phase": plan.phase,
                "race_id": self.context.race_id if plan.phase == "RACE" else None,
                "validator_results": [],
            }
        return self.entries[key]

    def _publish(self, plan: RunPlan, pairs: Sequence[Pair], era: artifacts.Era) -> None:
        """The artifacts of a run: one per problem, or the whole output file under the first problem's id."""
        folder = self.folder / "artifacts" / plan.run_id
        folder.mkdir(parents=True, exist_ok=True)
        written = [pair for pair in pairs if pair.truth.execution_status != "NO_LINE"]
        if era.whole_file:
            if not written:
                return
            name = f"{pairs[0].problem.problem_id}.json.gz"
            envelopes = []
            for line, pair in enumerate(written):
                envelopes.append(self._envelope(pair))
                pair.artifact_line = line
                pair.artifact, pair.artifact_form = f"{self.day}/artifacts/{plan.run_id}/{name}", "whole_file_gzip"
            (folder / name).write_bytes(artifacts.lines_bytes(envelopes))
            return
        for pair in written:
            name = f"{pair.problem.problem_id}.json.gz"
            quirk = pair.episode.quirk
            (folder / name).write_bytes(artifacts.dialogue_bytes(pair.dialogue or [], quirk))
            pair.artifact = f"{self.day}/artifacts/{plan.run_id}/{name}"
            pair.artifact_form = "json_array_plain" if quirk == "plain_array" else "json_array_gzip"

    def _envelope(self, pair: Pair) -> Any:
        calls = pair.entry["inference_total"] or 0
        error = {"FAILED": "KeyError", "TIMED_OUT": "TimeoutError"}.get(pair.truth.execution_status)
        return artifacts.envelope_of(
            pair.problem.problem_id, pair.truth.execution_status, pair.seconds, calls, pair.dialogue, error
        )

    def _ghost(self, plan: RunPlan) -> None:
        """A run that never came to an end: entries without an execution behind them."""
        row = run_base(self.context, plan, plan.fate, None)
        if plan.fate == "TIMED_OUT":
            row |= {"failure_reason": "Evaluation exceeded lease", "completed_at": iso(plan.start + 2_400_000, 0)}
        if plan.fate == "FAILED":
            row |= {
                "failure_reason": "Miner has no token to fund inference",
                "completed_at": iso(plan.start + 2_400_000, 0),
            }
        self.runs.append(row)
        for number, (problem, (status, score)) in enumerate(zip(plan.problems, dict(GHOSTS)[plan.fate], strict=False)):
            entry = {
                "eval_run_id": plan.run_id,
                "validator_hotkey": plan.validator,
                "status": status,
                "score": score,
                "score_components": None,
                "reasoning_score": None,
                "updated_at": None if status == "PENDING" else iso(plan.start + 300_000 + number * 1000, 0),
                "inference_failure_count": None,
                "inference_total": None,
                "execution_time": None,
            }
            self._problem_line(plan, problem)["validator_results"].append(entry)


def write_lines(path: Path, rows: Sequence[Any]) -> None:
    """JSON lines, UTF-8, one object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
