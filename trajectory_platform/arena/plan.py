"""Who runs what on one day: agent versions, validators, runs, their problems, and which oddity hits which pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from random import Random

from trajectory_platform.arena.miners import Agent
from trajectory_platform.arena.problems import ArenaProblem, make_uuid
from trajectory_platform.arena.styles import STYLES

MAX_RUN = 30
DAY_MS = 86_400_000
SECONDS_A_PROBLEM = 4

# share of runs by kind of miner
KINDS = {
    "a_xml": 27,
    "a_native": 23,
    "a_refine": 10,
    "a_composite": 9,
    "copycat": 8,
    "a_poor": 3,
    "b_regex": 6,
    "b_classifier": 5,
    "b_narrator": 4,
    "mixed_ab": 5,
}
_HONEST = ("a_xml", "a_native", "a_refine", "a_composite")
_ANY = (*_HONEST, "a_poor", "b_regex", "b_classifier", "b_narrator", "mixed_ab")

# quirk -> (share of all pairs in per mille, kinds it can happen to)
QUIRKS: dict[str, tuple[float, tuple[str, ...]]] = {
    "crash": (11, _ANY),
    "timeout": (11, _ANY),
    "non_list": (7, _ANY),
    "empty_dialogue": (2, _ANY),
    "no_line": (4, _ANY),
    "no_log": (9, _ANY),
    "verbose": (13, _HONEST),
    "reply_cut": (5, _HONEST),
    "forged_planted": (6, ("b_regex",)),
    "forged_repeated": (4, ("b_regex",)),
    "inject_think": (8, _HONEST),
    "inject_query": (3, _HONEST),
    "inject_param": (3, _HONEST),
    "nan_result": (4, _HONEST),
    "nan_parameter": (3, _HONEST),
    "nan_timestamp": (2, _HONEST),
    "surrogate": (3, _HONEST),
    "control_text": (2, _HONEST),
    "bidi": (2, _HONEST),
    "tag_text": (2, ("a_native",)),
    "tool_call_object": (3, _HONEST),
    "tool_call_text": (2, _HONEST),
    "tool_call_strings": (2, _HONEST),
    "message_null": (2, _HONEST),
    "completion_null": (2, _HONEST),
    "completion_null_last": (2, _HONEST),
    "think_number": (2, _HONEST),
    "think_null": (2, _HONEST),
    "call_without_name": (2, _HONEST),
    "ids_list": (3, _HONEST),
    "ids_int": (2, _HONEST),
    "ids_singular": (2, _HONEST),
    "ids_spaces": (2, _HONEST),
    "parameters_text": (2, _HONEST),
    "cut_line": (2, _HONEST),
    "truncated_gzip": (1, _HONEST),
    "trailing_nuls": (1, _HONEST),
    "plain_array": (2, _HONEST),
    "no_terminate": (7, _HONEST),
    "several_recommends": (6, _HONEST),
    "recommend_after_terminate": (4, _HONEST),
    "later_empty_recommend": (2, _HONEST),
    "harness_final": (8, _HONEST),
    "hallucinated_typo": (5, _HONEST),
    "hallucinated_invented": (4, _HONEST),
    "hallucinated_extra": (3, _HONEST),
    "clock_seconds": (3, _HONEST),
    "clock_reversed": (2, _HONEST),
    "clock_zero": (2, _HONEST),
    "score_flipped": (3, _HONEST),
    "judged_two_days_later": (2, _HONEST),
}

# run states that are no executed run: entries (status, score) per problem
GHOSTS: tuple[tuple[str, tuple[tuple[str, float | None], ...]], ...] = (
    ("STALE", (("SUCCESS", 1.0), ("RUNNING", None), ("PENDING", None))),
    ("TIMED_OUT", (("SKIPPED", None), ("SKIPPED", None))),
    ("RUNNING", (("SUCCESS", 1.0), ("RUNNING", None))),
    ("FAILED", ()),
    ("CANCELLED", ()),
    ("CLAIMED", ()),
)


@dataclass
class RunPlan:
    """One evaluation run: an agent version on its problems at one validator.

    Attributes:
        start: UTC milliseconds.
        fate: included | not_included | invalidated | judge_failed, or a run status of ``GHOSTS``.
        quirks: problem id -> quirk.
    """

    run_id: str
    agent: Agent
    validator: str
    phase: str
    start: int
    problems: list[ArenaProblem]
    fate: str = "included"
    quirks: dict[str, str] = field(default_factory=dict)


def validators(seed: int) -> list[str]:
    """The hotkeys of the three validators."""
    rng = Random(f"validators|{seed}")
    return [_hotkey(rng) for _ in range(3)]


def miners(seed: int, count: int) -> list[Agent]:
    """``count`` agents with fixed kinds and habits; copycats form groups that share all habits."""
    rng = Random(f"miners|{seed}")
    kinds = _apportion(count)
    rng.shuffle(kinds)
    agents: list[Agent] = []
    leaders: dict[str, Agent] = {}
    copies = 0
    for number, kind in enumerate(kinds):
        agent = _agent(rng, kind, number)
        if kind == "copycat":
            group = f"sg-{copies // 4 + 1:02d}"
            copies += 1
            leader = leaders.setdefault(group, agent)
            agent = Agent(**{**vars(leader), **{name: getattr(agent, name) for name in _IDENTITY}, "group": group})
        agents.append(agent)
    return agents


def run_size(traces: int) -> int:
    """Problems per run: small days have small runs, so that every kind of miner takes part."""
    return min(MAX_RUN, max(3, traces // 40))


def ghost_pairs(traces: int) -> int:
    """Pairs of the day that are never executed (pending, running, skipped, stale)."""
    return 7 if traces >= 140 else 0


def plan_day(
    day: date, problems: Sequence[ArenaProblem], agents: Sequence[Agent], traces: int, seed: int
) -> list[RunPlan]:
    """The runs of a day: ``traces`` (run, problem) pairs in all, ghosts included."""
    rng = Random(f"plan|{seed}|{day.isoformat()}")
    keys = validators(seed)
    suite = [problem for problem in problems if problem.in_suite]
    race = [problem for problem in problems if not problem.in_suite]
    midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
    size = run_size(traces)
    executed = traces - ghost_pairs(traces)
    decks = {"QUALIFYING": _deck(rng, suite), "RACE": _deck(rng, race)}
    group_problems: dict[str, list[ArenaProblem]] = {}
    plans: list[RunPlan] = []
    left, turn = executed, 0
    while left > 0:
        agent = _version_of(agents[turn % len(agents)], day, turn // len(agents))
        phase = "RACE" if race and turn % 12 == 5 and agent.group is None else "QUALIFYING"
        wanted = min(size, left, len(race) if phase == "RACE" else len(suite))
        chosen = _draw(decks[phase], suite if phase == "QUALIFYING" else race, wanted, rng)
        if agent.group is not None:
            chosen = group_problems.setdefault(agent.group, chosen)[:wanted]
        copies = rng.choices((1, 2, 3), (90, 7, 3))[0]
        for key in rng.sample(keys, copies):
            if left <= 0:
                break
            part = chosen[:left]
            plans.append(RunPlan(make_uuid(rng), agent, key, phase, midnight + _start(rng, phase), part))
            left -= len(part)
        turn += 1
    _set_fates(rng, plans, midnight)
    _set_quirks(rng, plans, executed)
    plans += _ghosts(rng, suite, agents, day, midnight, keys) if ghost_pairs(traces) else []
    return plans


def _start(rng: Random, phase: str) -> int:
    """Milliseconds after midnight: races run in the evening, and no run reaches into the next day by chance."""
    low, high = (19 * 3600, 22 * 3600) if phase == "RACE" else (600, 23 * 3600)
    return rng.randrange(low, high) * 1000 + rng.randrange(1000)


def _set_fates(rng: Random, plans: list[RunPlan], midnight: int) -> None:
    """Invalidated, not included and judge-failed runs, and runs that reach into the next UTC day."""
    count = len(plans)
    if count < 20:
        return
    order = rng.sample(range(count), count)
    for fate, share in (("invalidated", 0.02), ("not_included", 0.02), ("judge_failed", 0.012)):
        for _ in range(max(1, round(count * share))):
            plans[order.pop()].fate = fate
    for _ in range(max(1, round(count * 0.01))):
        late = plans[order.pop()]
        late.start = midnight + DAY_MS - len(late.problems) * SECONDS_A_PROBLEM * 500 - 10_000


def _set_quirks(rng: Random, plans: list[RunPlan], executed: int) -> None:
    """Spread the quirks over the pairs, each at its share (remainders by chance), at most one a pair."""
    places: dict[str, list[tuple[RunPlan, str]]] = {}
    for plan in plans:
        for problem in plan.problems:
            places.setdefault(plan.agent.kind, []).append((plan, problem.problem_id))
    for kind in sorted(places):
        rng.shuffle(places[kind])
    for quirk, (share, kinds) in QUIRKS.items():
        count = int(executed * share / 1000 + rng.random())
        for _ in range(count):
            open_kinds = [kind for kind in kinds if places.get(kind)]
            if not open_kinds:
                break
            weights = [len(places[kind]) for kind in open_kinds]
            plan, problem_id = places[rng.choices(open_kinds, weights)[0]].pop()
            plan.quirks[problem_id] = quirk


def _ghosts(
    rng: Random,
    suite: list[ArenaProblem],
    agents: Sequence[Agent],
    day: date,
    midnight: int,
    keys: list[str],
) -> list[RunPlan]:
    """Runs that were never finished; their agent versions have no other run that day."""
    ghosts = []
    for number, (status, entries) in enumerate(GHOSTS):
        agent = _version_of(agents[number % len(agents)], day, 900 + number)
        problems = rng.sample(suite, min(len(entries), len(suite)))
        start = midnight + _start(rng, "QUALIFYING")
        ghosts.append(RunPlan(make_uuid(rng), agent, rng.choice(keys), "QUALIFYING", start, problems, fate=status))
    return ghosts


def _deck(rng: Random, problems: list[ArenaProblem]) -> list[ArenaProblem]:
    return rng.sample(problems, len(problems))


def _draw(deck: list[ArenaProblem], problems: list[ArenaProblem], count: int, rng: Random) -> list[ArenaProblem]:
    """The next ``count`` different problems; a used-up deck is shuffled anew, so all problems are run about equally."""
    chosen: dict[str, ArenaProblem] = {}
    while len(chosen) < count:
        if not deck:
            deck.extend(rng.sample(problems, len(problems)))
        problem = deck.pop()
        chosen.setdefault(problem.problem_id, problem)
    return list(chosen.values())


def _version_of(agent: Agent, day: date, round_number: int) -> Agent:
    """The agent's version of the day: a new id, the same habits."""
    rng = Random(f"version|{agent.agent_id}|{day.isoformat()}|{round_number}")
    version = agent.version + (day - date(2026, 3, 26)).days + round_number
    return Agent(**{**vars(agent), "agent_version_id": make_uuid(rng), "version": version})


def _apportion(count: int) -> list[str]:
    """Kinds by largest remainder."""
    total = sum(KINDS.values())
    exact = {kind: count * weight / total for kind, weight in KINDS.items()}
    taken = {kind: int(value) for kind, value in exact.items()}
    rest = sorted(KINDS, key=lambda kind: (taken[kind] - exact[kind], kind))
    for kind in rest[: count - sum(taken.values())]:
        taken[kind] += 1
    return [kind for kind in KINDS for _ in range(taken[kind])]


_IDENTITY = ("agent_version_id", "agent_id", "name", "hotkey", "version")
_MODELS = ("deepseek-ai/DeepSeek-V3.2-TEE", "Qwen/Qwen3-235B-A22B-Instruct-2507-TEE", "zai-org/GLM-5-TEE")
_NAMES = ("bayong", "suki", "tindera", "kariton", "tiangge", "bodega", "resibo", "banig", "salakot", "bilao")


def _agent(rng: Random, kind: str, number: int) -> Agent:
    form = rng.choices(("xml_array", "xml_blocks", "alias", "fenced"), (70, 15, 8, 7))[0]
    if kind == "a_native" or (kind in ("a_refine", "a_composite", "copycat", "mixed_ab") and rng.random() < 0.5):
        form = "native"
    return Agent(
        agent_version_id="",
        agent_id=make_uuid(rng),
        name=f"{rng.choice(_NAMES)}-{number}",
        hotkey=_hotkey(rng),
        version=rng.randint(1, 9),
        kind=kind,
        style=rng.choice(sorted(STYLES)),
        form=form,
        model=rng.choice(_MODELS),
        care=round(rng.uniform(0.6, 0.97), 2),
        views=rng.choice((1, 2, 2, 3)),
        words=rng.choice((2, 3, 3, 4)),
        together=rng.random() < 0.45,
        page=rng.random() < 0.5,
        filters=rng.random() < 0.75,
        sort=rng.choice((None, None, None, "default", "priceasc")),
        plus=rng.random() < 0.85,
    )


def _hotkey(rng: Random) -> str:
    letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    return "5" + "".join(rng.choice(letters) for _ in range(47))
