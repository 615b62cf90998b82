"""Runs and their oddities: which kind of miner gets which share, which fate hits a run, which quirk hits a pair."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from random import Random

from trajectory_platform.arena import rules
from trajectory_platform.arena.knobs import Knobs
from trajectory_platform.arena.miners import MINERS, Agent
from trajectory_platform.arena.problems import ArenaProblem, make_uuid

SECONDS_A_PROBLEM = 4
QUALIFYING, RACE = "QUALIFYING", "RACE"

# The kinds by camp, with their weights inside the camp. A kind the arena has no script for takes no part.
HONEST = {"a_xml": 27, "a_native": 23, "a_refine": 10, "a_verify": 6, "a_composite": 9}
POOR = {"a_poor": 3}
MIXED = {"mixed_ab": 5}
AXIS_B = {"b_regex": 6, "b_classifier": 5, "b_narrator": 4, "b_decoy": 2}
THEATRE = {"b_echo": 1}  # axis B that states its calls as the model's: adversaries by kind, not by quirk
COPYCAT = "copycat"
THEATRE_SHARE = 0.35  # of the adversaries
_HONEST = tuple(HONEST)
_ANY = (*_HONEST, "a_poor", "b_regex", "b_classifier", "b_narrator", "mixed_ab")

# quirk -> (share of all pairs in per mille at the default noise, kinds it can happen to)
NOISE: dict[str, tuple[float, tuple[str, ...]]] = {
    "crash": (11, _ANY),
    "timeout": (11, _ANY),
    "non_list": (7, _ANY),
    "empty_dialogue": (2, _ANY),
    "no_line": (4, _ANY),
    "no_log": (9, _ANY),
    "verbose": (13, _HONEST),
    "reply_cut": (5, _HONEST),
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
    "hallucinated_catalogue": (3, _HONEST),
    "unknown_tool": (4, _HONEST),
    "unknown_fields": (2, _HONEST),
    "broken_reply": (3, _HONEST),
    "cut_end": (2, _HONEST),
    "recommend_loop": (2, _HONEST),
    "ids_blank_first": (2, _HONEST),
    "emoji": (2, _HONEST),
    "mojibake": (2, _HONEST),
    "two_lines": (3, _HONEST),
    "clock_rounded": (2, _HONEST),
    "clock_float": (2, _HONEST),
    "clock_seconds": (3, _HONEST),
    "clock_reversed": (2, _HONEST),
    "clock_zero": (2, _HONEST),
    "score_flipped": (3, _HONEST),
    "judged_two_days_later": (2, _HONEST),
}
ADVERSE: dict[str, tuple[float, tuple[str, ...]]] = {
    "forged_planted": (6, ("b_regex",)),
    "forged_repeated": (3, ("b_regex",)),
    "forged_all": (4, ("b_regex",)),
    "forged_appended": (3, ("b_regex",)),
    "forged_results": (3, ("b_regex",)),
    "forged_consistent": (3, ("b_regex",)),
    "inject_think": (6, _HONEST),
    "inject_closing": (3, _HONEST),
    "inject_block": (3, _HONEST),
    "inject_query": (3, _HONEST),
    "inject_param": (3, _HONEST),
}
QUIRKS = ADVERSE | NOISE

# run states that are no executed run: entries (status, score) per problem
GHOSTS: tuple[tuple[str, tuple[tuple[str, float | None], ...]], ...] = (
    ("STALE", (("SUCCESS", 1.0), ("RUNNING", None), ("PENDING", None))),
    ("TIMED_OUT", (("SKIPPED", None), ("SKIPPED", None))),
    ("RUNNING", (("SUCCESS", 1.0), ("RUNNING", None))),
    ("FAILED", ()),
    ("CANCELLED", ()),
    ("CLAIMED", ()),
)


@dataclass(frozen=True)
class Entry:
    """One submitted agent version.

    Attributes:
        submitted_at: UTC milliseconds.
        copied_from: agent version whose released code it copies, or None.
        checkpoint_id: identity of our own policy behind it, or None.
    """

    agent: Agent
    submitted_at: int
    copied_from: str | None = None
    checkpoint_id: str | None = None


@dataclass(frozen=True)
class RaceRef:
    """The race a run belongs to."""

    race_id: str
    number: int


@dataclass
class RunPlan:
    """One evaluation run: an agent version on its problems at one validator.

    Attributes:
        suite_id: the suite that was active when the run was made.
        start: UTC milliseconds.
        fate: included | not_included | invalidated | judge_failed, or a run status of ``GHOSTS``.
        quirks: problem id -> quirk.
    """

    run_id: str
    entry: Entry
    validator: str
    phase: str
    suite_id: int
    start: int
    problems: list[ArenaProblem]
    fate: str = "included"
    race: RaceRef | None = None
    quirks: dict[str, str] = field(default_factory=dict)

    @property
    def agent(self) -> Agent:
        return self.entry.agent

    @property
    def executed(self) -> bool:
        """Whether the run came to an end: a ghost has entries without an execution behind them."""
        return not self.fate.isupper()


def kind_weights(knobs: Knobs) -> dict[str, float]:
    """Share of pairs per kind; they sum to 1. What copying and axis B leave is divided among the other camps."""
    theatre = _camp(THEATRE, min(knobs.axis_b, knobs.adversaries * THEATRE_SHARE))
    shares = _camp(AXIS_B, knobs.axis_b - sum(theatre.values())) | theatre | {COPYCAT: knobs.copying}
    return _camp(HONEST | POOR | MIXED, 1.0 - knobs.axis_b - knobs.copying) | shares


def _camp(weights: Mapping[str, int], share: float) -> dict[str, float]:
    scripted = {kind: weight for kind, weight in weights.items() if kind in MINERS}
    total = sum(scripted.values())
    return {kind: share * weight / total for kind, weight in scripted.items()}


def next_kind(debts: Mapping[str, float], weights: Mapping[str, float]) -> str:
    """The kind that is furthest behind its share; the name decides between equals."""
    return max((kind for kind in weights if weights[kind] > 0), key=lambda kind: (debts[kind], kind))


def charge(debts: MutableMapping[str, float], weights: Mapping[str, float], kind: str, pairs: int) -> None:
    """Book ``pairs`` of one kind: every kind earns its share of them, this one has used them up."""
    for name, weight in weights.items():
        debts[name] += weight * pairs
    debts[kind] -= pairs


def run_size(traces: int) -> int:
    """Problems per run: small days have small runs, so that every kind of miner takes part."""
    return min(rules.PROBLEMS_PER_RUN, max(3, traces // 100))


def ghost_pairs(traces: int) -> int:
    """Pairs of the day that are never executed (pending, running, skipped, stale)."""
    return sum(len(entries) for _, entries in GHOSTS) if traces >= 140 else 0


def validator_keys(seed: int, count: int) -> list[str]:
    """The hotkeys of the validators."""
    rng = Random(f"validators|{seed}")
    return [make_hotkey(rng) for _ in range(count)]


def make_hotkey(rng: Random) -> str:
    """Text in the form of a hotkey: 48 letters and digits, the first is 5."""
    letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    return "5" + "".join(rng.choice(letters) for _ in range(47))


def set_fates(rng: Random, plans: list[RunPlan], day_end: int) -> None:
    """Invalidated, not included and judge-failed runs, and runs that reach into the next UTC day."""
    count = len(plans)
    if count < 20:
        return
    order = rng.sample(range(count), count)
    for fate, share in (("invalidated", 0.02), ("not_included", 0.02), ("judge_failed", 0.012)):
        for _ in range(max(1, round(count * share))):
            plans[order.pop()].fate = fate
    for _ in range(max(1, round(count * 0.01))):
        reach_over(plans[order.pop()], day_end)


def reach_over(plan: RunPlan, day_end: int) -> None:
    """Let a run straddle the end of the day: half of its problems are judged after midnight."""
    plan.start = day_end - len(plan.problems) * SECONDS_A_PROBLEM * 500 - 10_000


def set_quirks(rng: Random, plans: Sequence[RunPlan], knobs: Knobs) -> None:
    """Spread the quirks over the pairs, each at its share (remainders by chance), at most one a pair."""
    places: dict[str, list[tuple[RunPlan, str]]] = {}
    executed = 0
    for plan in plans:
        for problem in plan.problems:
            executed += 1
            places.setdefault(plan.agent.kind, []).append((plan, problem.problem_id))
    for kind in sorted(places):
        rng.shuffle(places[kind])
    weights = kind_weights(knobs)
    by_quirk = knobs.adversaries - sum(weights.get(kind, 0.0) for kind in THEATRE)
    for table, share in ((ADVERSE, by_quirk), (NOISE, knobs.noise)):
        total = sum(weight for weight, _ in table.values())
        left = 0.0  # what found no place goes to the next quirk of the table
        for quirk, (weight, kinds) in table.items():
            wanted = executed * share * weight / total + left
            count = int(wanted + rng.random())
            done = _place(rng, places, quirk, kinds, count)
            left = float(count - done)


def _place(
    rng: Random, places: dict[str, list[tuple[RunPlan, str]]], quirk: str, kinds: Sequence[str], count: int
) -> int:
    """Give a quirk to up to ``count`` pairs of the kinds that can have it; returns how many got it."""
    for done in range(count):
        open_kinds = [kind for kind in kinds if places.get(kind)]
        if not open_kinds:
            return done
        weights = [len(places[kind]) for kind in open_kinds]
        plan, problem_id = places[rng.choices(open_kinds, weights)[0]].pop()
        plan.quirks[problem_id] = quirk
    return count


class Deck:
    """Problems dealt evenly: a used-up deck is shuffled anew, so that all of them are run about equally often."""

    def __init__(self, rng: Random, problems: Sequence[ArenaProblem]) -> None:
        self._rng, self._problems = rng, problems
        self._left: list[ArenaProblem] = []

    def __len__(self) -> int:
        return len(self._problems)

    def draw(self, count: int) -> list[ArenaProblem]:
        """The next ``count`` different problems; all of them when there are fewer."""
        chosen: dict[str, ArenaProblem] = {}
        while len(chosen) < min(count, len(self._problems)):
            if not self._left:
                self._left = self._rng.sample(self._problems, len(self._problems))
            problem = self._left.pop()
            chosen.setdefault(problem.problem_id, problem)
        return list(chosen.values())


def new_run(
    rng: Random,
    entry: Entry,
    validator: str,
    start: int,
    problems: Sequence[ArenaProblem],
    *,
    suite_id: int,
    race: RaceRef | None = None,
    fate: str = "included",
) -> RunPlan:
    """A run with an id of its own."""
    phase = QUALIFYING if race is None else RACE
    return RunPlan(make_uuid(rng), entry, validator, phase, suite_id, start, list(problems), fate, race)
