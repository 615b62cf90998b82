"""Simulated days of the miniature, in the raw-day layout of the arena (design 5).

Every day opens problems of its own. Most are solved by one good miner, so that the corpus has about one good trace for
each of them (further equal ones would be copies); the rest are left to the other miners, who meet problems of the day
by chance: there is something for rejection sampling and a teacher to add. Artifacts, logs,
verdicts and listing rows are the arena's (``arena.execution``, ``arena.rows``); only world and miners are small. The
same arguments give the same bytes.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from trajectory_platform.arena import artifacts, rules
from trajectory_platform.arena.agents import Agent
from trajectory_platform.arena.day import problem_line, write_lines, write_suite
from trajectory_platform.arena.execution import Frame, finish, pair_of
from trajectory_platform.arena.plan import SECONDS_A_PROBLEM, Deck, Entry, RunPlan, make_hotkey, new_run
from trajectory_platform.arena.playing import Played, play
from trajectory_platform.arena.problems import ArenaProblem, make_uuid
from trajectory_platform.arena.proxy import ProxiedEnvironment
from trajectory_platform.arena.rows import Pair, version_row
from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.clocks import SimulatedClock
from trajectory_platform.evaluation.environment import Task
from trajectory_platform.miniature.miners import MINERS, PLAIN, SCAN
from trajectory_platform.miniature.world import ProblemMaker, make_products
from trajectory_platform.sandbox.products import load_products
from trajectory_platform.sandbox.search import SearchIndex
from trajectory_platform.sandbox.tools import World

VERSION = "miniature-days-2"  # raise it when the same arguments would give other days
FIRST_DAY = date(2026, 5, 2)  # the first era in which the validators' gate values are comparable
GOOD_SHARE = 0.30
"""Share of the traces that good miners leave."""
SOLVED_SHARE = 0.65
"""Share of the problems that a good miner solves."""
OTHERS: Mapping[str, float] = {
    "coded": 0.22,
    "narrated": 0.22,
    "classified": 0.11,
    "random_row": 0.03,
    "first_row": 0.03,
    "careless": 0.03,
    "lazy": 0.02,
    "copycat": 0.01,
    "mistyped": 0.01,
    "unexplained": 0.01,
    "broken": 0.005,
    "damaged": 0.005,
}
"""What the others leave, by kind. 55 % is axis B: in the real stream, too, code makes most of the calls (design 1)."""
SCAN_SHARE = 0.9
"""Share of the good miners' traces that compare in writing (``miners.scan_thought``); the rest says its choice only."""
_VALIDATORS = 3


@dataclass(frozen=True)
class MiniatureReport:
    """What was written: traces by kind of miner, and how many of each the truth calls a success."""

    root: Path
    days: list[date]
    products: int
    problems: int
    traces: int
    by_kind: dict[str, int] = field(default_factory=dict)
    successes: dict[str, int] = field(default_factory=dict)


def simulate_miniature(
    root: Path,
    *,
    days: int,
    traces_per_day: int,
    seed: int,
    first_day: date = FIRST_DAY,
    scan_share: float = SCAN_SHARE,
    overwrite: bool = False,
) -> MiniatureReport:
    """Write the catalogue, raw days and ``truth.jsonl`` under ``root``.

    Args:
        traces_per_day: (run, problem) pairs, up to the rounding of the shares of ``OTHERS``; ``GOOD_SHARE`` of them
            are the good miners', one a problem, and ``SOLVED_SHARE`` of the problems have one.
        scan_share: of the miners that compare, how many do it in writing; 0 leaves only the other style.
        overwrite: replace what an earlier simulation left in the same place.

    Raises:
        Abort: wrong numbers, files in the way, or too few products for so many problems.
    """
    if days < 1 or traces_per_day < 20 or not 0.0 <= scan_share <= 1.0:
        raise Abort("a miniature has 1 or more days, 20 or more traces a day and a scan share from 0 to 1")
    dates = [first_day + timedelta(days=number) for number in range(days)]
    _clear(root, dates, overwrite)
    products = make_products(seed)
    write_lines(root / "catalogue" / "products.jsonl", products)
    catalogue = load_products(products)
    world = World(catalogue, SearchIndex(catalogue))
    maker = ProblemMaker(products, seed)
    kinds, successes, problems = Counter[str](), Counter[str](), 0
    with (root / "truth.jsonl").open("w", encoding="utf-8", newline="\n") as truth_file:
        for day in dates:
            suite = maker.problems(max(1, round(traces_per_day * GOOD_SHARE / SOLVED_SHARE)))
            problems += len(suite)
            shifts = plan_day(day, suite, traces_per_day, scan_share, seed)
            for row in _write_day(Frame(root, day, day, seed), world, suite, shifts):
                truth_file.write(json.dumps(row) + "\n")
                kinds[row["kind"]] += 1
                successes[row["kind"]] += row["outcome"] == "success"
    counts = dict(sorted(kinds.items())), dict(sorted(successes.items()))
    return MiniatureReport(root, dates, len(products), problems, sum(kinds.values()), *counts)


def _clear(root: Path, dates: Sequence[date], overwrite: bool) -> None:
    targets = [root / "catalogue", root / "truth.jsonl", *(root / day.isoformat() for day in dates)]
    existing = [target for target in targets if target.exists()]
    if existing and not overwrite:
        raise Abort(f"{existing[0]} exists already; choose another folder or remove it")
    for target in existing:
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    root.mkdir(parents=True, exist_ok=True)


class Shift(NamedTuple):
    """One run and who makes it: a kind of ``miners.MINERS`` in a style."""

    kind: str
    style: str
    plan: RunPlan


def plan_day(day: date, suite: Sequence[ArenaProblem], traces: int, scan_share: float, seed: int) -> list[Shift]:
    """The runs of the day: ``SOLVED_SHARE`` of the problems once for a good miner, then the others' draws."""
    rng = Random(f"miniature day|{seed}|{day.isoformat()}")
    validators = [make_hotkey(Random(f"miniature validator|{seed}|{number}")) for number in range(_VALIDATORS)]
    shared = rng.sample(suite, max(1, round(len(suite) * SOLVED_SHARE)))
    scanned = round(len(shared) * scan_share)
    halves = ((SCAN, shared[:scanned]), (PLAIN, shared[scanned:]))
    runs = [("good", style, part) for style, whole in halves for part in _runs(whole)]
    deck = Deck(rng, suite)
    for kind, share in OTHERS.items():
        left = round(traces * share)
        while left > 0:
            part = deck.draw(min(left, rules.PROBLEMS_PER_RUN))
            left -= len(part)
            style = SCAN if MINERS[kind].compares and rng.random() < scan_share else PLAIN
            runs.append((kind, style, part))
    numbers = Counter[tuple[str, str]]()
    shifts = []
    for kind, style, part in runs:
        agent = _agent(kind, style, numbers[kind, style], day, seed)
        numbers[kind, style] += 1
        begin = rules.midnight(day) + rng.randrange(30 * rules.MINUTE_MS, 22 * rules.HOUR_MS)
        entry = Entry(agent, begin - rng.randrange(rules.MINUTE_MS, 20 * rules.MINUTE_MS))
        plan = new_run(rng, entry, rng.choice(validators), begin, part, suite_id=rules.suite_id(day))
        quirks = MINERS[kind].quirks
        plan.quirks = {problem.problem_id: rng.choice(quirks) for problem in part} if quirks else {}
        shifts.append(Shift(kind, style, plan))
    return shifts


def _runs(problems: list[ArenaProblem]) -> Iterator[list[ArenaProblem]]:
    for start in range(0, len(problems), rules.PROBLEMS_PER_RUN):
        yield problems[start : start + rules.PROBLEMS_PER_RUN]


def _agent(kind: str, style: str, number: int, day: date, seed: int) -> Agent:
    """The agent of a miner on a day: the same hotkey every day, a new version."""
    own = Random(f"miniature miner|{seed}|{kind}|{style}|{number}")
    miner = MINERS[kind]
    agent_id, hotkey = make_uuid(own), make_hotkey(own)
    version = Random(f"miniature version|{agent_id}|{day.isoformat()}")
    return Agent(
        agent_version_id=make_uuid(version),
        agent_id=agent_id,
        name=f"{kind}-{style}-{number + 1}",
        hotkey=hotkey,
        version=1 + (day - rules.LAUNCH).days,
        kind=miner.arena_kind,
        style=style,
        form=miner.form,
        model="miniature/scripted",
        care=1.0,
        views=1,
        words=1,
        together=False,
        page=False,
        filters=True,
        sort=None,
        plus=False,
        group="copies" if kind == "copycat" else None,
    )


def play_pair(world: World, shift: Shift, problem: ArenaProblem, number: int, frame: Frame) -> Pair:
    """One miner on one problem of its run, played and published as the arena does."""
    plan = shift.plan
    era = frame.era_at(plan.start)
    quirk = artifacts.possible(plan.quirks.get(problem.problem_id), era)
    chance = Random(f"miniature clock|{frame.seed}|{plan.run_id}|{problem.problem_id}")
    start = plan.start + number * SECONDS_A_PROBLEM * 1000
    environment = ProxiedEnvironment(
        world, plan.agent, problem.query, era=era, clock=SimulatedClock(start, chance), ids=chance
    )
    seed = Random(f"miniature task|{plan.run_id}|{problem.problem_id}").getrandbits(31)
    task = Task(problem.problem_id, None, problem.problem_id, problem.category, problem.query, seed=seed)
    ending = play(MINERS[shift.kind].script(task, shift.style), environment, task)
    played = Played(environment, plan.agent.kind, quirk, ending)
    return pair_of(plan, problem, played, era, start=start, chance=chance)


def _write_day(
    frame: Frame, world: World, suite: Sequence[ArenaProblem], shifts: Sequence[Shift]
) -> list[dict[str, Any]]:
    """All files of a day; returns its truth rows with the miniature's kind and style."""
    folder = frame.out / frame.day.isoformat()
    (folder / "artifacts").mkdir(parents=True)
    suite_id, moment = rules.suite_id(frame.day), rules.midnight(frame.day) + rules.DAY_MS
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    runs: list[dict[str, Any]] = []
    versions: list[dict[str, Any]] = []
    truth: list[dict[str, Any]] = []
    for shift in shifts:
        plan = shift.plan
        pairs = [play_pair(world, shift, problem, number, frame) for number, problem in enumerate(plan.problems)]
        result = finish(plan, pairs, frame)
        runs.append(result.run)
        for problem, entry in result.entries:
            problem_line(entries, plan, problem)["validator_results"].append(entry)
        rated = None if result.score is None else (result.score, result.completed_at)
        versions.append(version_row(plan.entry, suite_id, "ELIGIBLE" if rated else "DISCARDED", rated, moment))
        truth += [{**row, "kind": shift.kind, "style": shift.style} for row in result.truth]
    write_lines(folder / "runs.jsonl", runs)
    write_lines(folder / "problems.jsonl", entries.values())
    write_lines(folder / "agent_versions.jsonl", versions)
    write_suite(folder / "suite.json", suite_id, suite)
    return truth
