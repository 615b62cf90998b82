"""One day of the arena: its runs are executed in the order of the cycle, its listing files are put into place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from trajectory_platform.arena import rules
from trajectory_platform.arena.cycle import ArenaState
from trajectory_platform.arena.execution import Frame, RunResult
from trajectory_platform.arena.plan import GHOSTS, Entry, RunPlan
from trajectory_platform.arena.problems import ArenaProblem
from trajectory_platform.arena.races import race_row
from trajectory_platform.arena.rows import iso, run_base, version_row
from trajectory_platform.arena.workers import Runner

Progress = Callable[[date, int, int], None]
"""Called with (day, pairs done, pairs of the day)."""
_GHOST_STATE = {"CLAIMED": "QUEUED", "CANCELLED": "CANCELLED", "FAILED": "DISCARDED", "TIMED_OUT": "DISCARDED"}


class DayWriter:
    """Writes one day: advances the state, keeps the listing rows, hands the truth rows on."""

    def __init__(self, state: ArenaState, run: Runner, out: Path, day: date, progress: Progress | None) -> None:
        self.state, self.run, self.day, self.progress = state, run, day, progress
        self.frame = Frame(out, day, state.knobs.era_of_day(day), state.seed)
        self.folder = out / day.isoformat()
        self.entries: dict[tuple[str, str], dict[str, Any]] = {}
        self.runs: list[dict[str, Any]] = []
        self.plans: list[RunPlan] = []
        self.truth: list[dict[str, Any]] = []
        self.done = 0

    def write(self) -> list[dict[str, Any]]:
        """All files of the day; returns the truth rows in the order of the runs."""
        results = self._execute(self.state.open_day(self.day))
        results = self._execute(self.state.start_race(results))
        self.state.close_day(results)
        moment = rules.midnight(self.day) + rules.DAY_MS
        write_lines(self.folder / "runs.jsonl", self.runs)
        write_lines(self.folder / "problems.jsonl", self.entries.values())
        write_lines(self.folder / "agent_versions.jsonl", self._versions(moment))
        write_lines(self.folder / "races.jsonl", [race_row(race, moment, iso) for race in self.state.races])
        write_suite(self.folder / "suite.json", self.state.suite_id, self.state.suite)
        return self.truth

    def _execute(self, plans: Sequence[RunPlan]) -> list[RunResult]:
        """Run the plans; ghosts leave rows only. The results keep no rows: those are in the listing by then."""
        self.plans += plans
        results = iter(self.run(self.frame, [plan for plan in plans if plan.executed and plan.problems]))
        finished = []
        for plan in plans:
            if not plan.executed:
                self._ghost(plan)
            elif plan.problems:
                result = next(results)
                self.runs.append(result.run)
                for problem, entry in result.entries:
                    self._problem_line(plan, problem)["validator_results"].append(entry)
                self.truth += result.truth
                finished.append(RunResult(plan, result.score, result.completed_at, {}, [], []))
            self.done += len(plan.problems)
            if self.progress:
                self.progress(self.day, self.done, self.state.knobs.traces_per_day)
        return finished

    def _problem_line(self, plan: RunPlan, problem: ArenaProblem) -> dict[str, Any]:
        return problem_line(self.entries, plan, problem)

    def _ghost(self, plan: RunPlan) -> None:
        """A run that never came to an end: entries without an execution behind them."""
        row = run_base(plan, plan.fate, None)
        ended = iso(plan.start + rules.LEASE_MS, 0)
        if plan.fate == "TIMED_OUT":
            row |= {"failure_reason": "Evaluation exceeded lease", "completed_at": ended}
        if plan.fate == "FAILED":
            row |= {"failure_reason": "Miner has no token to fund inference", "completed_at": ended}
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

    def _versions(self, moment: int) -> list[dict[str, Any]]:
        """One row per agent version that has a run in the day's folder."""
        entries: dict[str, tuple[Entry, int]] = {}
        ghosts: dict[str, str] = {}
        for plan in self.plans:
            name = plan.agent.agent_version_id
            entries.setdefault(name, (plan.entry, plan.suite_id))
            if not plan.executed and plan.race is None:
                ghosts[name] = _GHOST_STATE.get(plan.fate, "RUNNING")
        rows = []
        for name, (entry, suite_id) in entries.items():
            standing = self.state.standings.get(name)
            rated = None if standing is None else (standing.score, standing.eligible_at)
            state = ghosts.get(name) or ("ELIGIBLE" if rated else "DISCARDED")
            rows.append(version_row(entry, suite_id, state, rated, moment))
        return rows


def problem_line(
    entries: dict[tuple[str, str], dict[str, Any]], plan: RunPlan, problem: ArenaProblem
) -> dict[str, Any]:
    """The line of ``problems.jsonl`` for an agent version and a problem, made on first use; validators add to it."""
    key = (plan.agent.agent_version_id, problem.problem_id)
    if key not in entries:
        entries[key] = {
            "agent_version_id": plan.agent.agent_version_id,
            "suite_id": plan.suite_id,
            "problem_id": problem.problem_id,
            "category": problem.category,
            "phase": plan.phase,
            "race_id": plan.race.race_id if plan.race else None,
            "validator_results": [],
        }
    return entries[key]


def write_suite(path: Path, suite_id: int, problems: Sequence[ArenaProblem]) -> None:
    """``suite.json``: the active public suite; problems of the hidden bank are not part of it."""
    counters: dict[str, int] = {}
    items = []
    for problem in problems:
        counters[problem.category] = counters.get(problem.category, 0) + 1
        title = f"{problem.category.title()} {counters[problem.category]}"
        items.append(problem.suite_item(suite_id, title))
    head = {
        "suite_id": suite_id,
        "suite_version": suite_id,
        "is_active": True,
        "execution_kind": "legacy_shoppingbench",
    }
    text = json.dumps({"suite": head, "problems": items}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """JSON lines, UTF-8, one object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
