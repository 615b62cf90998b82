"""The dense reward of a turn, grounded in a teacher's trace of the same problem, and the process score made of it.

The teacher is the best strict success known for the problem. What an agent does is compared with it call by call, in
order: every call of the teacher can be credited once, up to 1, to the first call of the agent that does the same work,
and later calls earn only what they do better. So the sum of all credit is at most the number of the teacher's calls,
the teacher's own path earns all of it, and every detour earns nothing and costs.

A credit is a weighted mean of what applies (``GAINS``):

============  ====  ===========================================================================================
``tool``       0.2  the same tool (domain 5.1, tool match: the name)
``arguments``  0.3  mean over the parameters of both calls of how like the values are (domain 5.1: key Jaccard and
                    value credit). Unlike 5.1, values are compared in the form in which the platform compares calls
                    (``traces.arguments``), so that page 1 and "1" are one page, and ids are compared as sets of ids
``evidence``   0.2  share of the ids in the call that an earlier result (or the user) named
``progress``   0.3  a search: share of the teacher's products it had shown the teacher that the agent has seen by now
``checked``    0.3  a look or a check: share of the teacher's products opened there that the agent has opened by now
``commit``     0.3  the end, in time: ids known, opened as the teacher opened its own, and not recommended before
============  ====  ===========================================================================================

Costs (``COSTS``) do not depend on the teacher, except that only a teacher who looked can be hasty to. A turn is worth
the mean credit of its calls minus all its costs, clipped to [-1, 1]. The strict outcome of the attempt plays no part.
Plain Python, deterministic; no input of these types raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from trajectory_platform.errors import RejectRow
from trajectory_platform.evaluation.turn_calls import Call, turns_of
from trajectory_platform.judging import dialogue
from trajectory_platform.traces.rendering import parse_messages

TURN_REWARD_VERSION = "turn-reward-1"  # raise it when the same messages would be worth something else

GAINS = {"tool": 0.2, "arguments": 0.3, "evidence": 0.2, "progress": 0.3, "checked": 0.3, "commit": 0.3}
COSTS = {
    "hallucinated": 1.0,  # ids that nothing named, by their share of the call's ids (domain 6, item 41)
    "invalid": 0.5,  # an unknown tool, unreadable arguments, an error as the answer; or a reply that cannot be read
    "no_call": 0.5,  # a turn that only talks
    "ignored_filter": 0.3,  # filters that the server ignores in silence (``traces.call_flags``)
    "repeat": 0.5,  # exactly a call that was made before
    "surplus": 0.3,  # a call that does no work the teacher did and shows nothing new of what it chose; a 2nd recommend
    "early": 0.5,  # recommended nothing, or without a look where the teacher looked; or ended without a recommendation
    "unfinished": 1.0,  # at the last turn of an attempt that never terminates
}
SAME_EFFECT = 0.7  # of a teacher's call, in a sum, where other calls showed or opened what it showed or opened
LOST_ENDINGS = ("reply_truncated", "malformed_reply", "no_call")
"""Endings of which the last reply may have left no message behind; see ``left_no_message``."""

_SEARCHES = frozenset({"find_product", "find_products_in_same_shop"})
_LOOKS = frozenset({dialogue.VIEW, dialogue.MATCH})
_WORD = re.compile(r"\w+")

Message = dict[str, Any]


class Reference(NamedTuple):
    """The teacher's trace of a problem: canonical messages of a strict success."""

    problem_key: str
    trace_id: str
    messages: list[Message]


class TurnReward(NamedTuple):
    """What one turn is worth: ``total`` in [-1, 1] is the clipped sum of ``parts`` (names of ``GAINS``, ``COSTS``).

    ``gain`` is what it adds to a sum over turns: the credit of its calls less all costs. Neither more turns for the
    same calls nor a teacher's detours (searches and looks that showed nothing it chose) add to it, and work done by
    other calls than the teacher's counts in part (``SAME_EFFECT``), so that a straighter path is no worse.
    """

    total: float
    parts: dict[str, float]
    gain: float


def turn_rewards(messages: Sequence[Message], reference: Reference, *, lost_reply: bool = False) -> list[TurnReward]:
    """The reward of every assistant turn, in order.

    Args:
        messages: canonical OpenAI messages with tool results, the user's query first.
        lost_reply: the attempt ended in a reply that left no message (see ``left_no_message``); it is one more turn.
    """
    attempt = _Attempt(_read(reference.messages), messages)
    rewards = [attempt.turn(calls) for calls in turns_of(messages)]
    if lost_reply:
        rewards.append(({"invalid": -COSTS["invalid"]}, 0.0))
    if rewards and not attempt.ended:
        rewards[-1][0]["unfinished"] = -COSTS["unfinished"]
    return [_reward(parts, work) for parts, work in rewards]


def _reward(parts: dict[str, float], work: float) -> TurnReward:
    costs = math.fsum(value for name, value in parts.items() if name in COSTS)
    return TurnReward(max(-1.0, min(1.0, math.fsum(parts.values()))), parts, work + costs)


def process_score(
    messages: Sequence[Message], reference: Reference | None, *, lost_reply: bool = False
) -> float | None:
    """Mean over turns of the turn reward, in [-1, 1]; None without a reference, 0 for an attempt without any turn."""
    if reference is None:
        return None
    rewards = turn_rewards(messages, reference, lost_reply=lost_reply)
    return math.fsum(one.total for one in rewards) / len(rewards) if rewards else 0.0


def left_no_message(messages: Sequence[Message], ending: str) -> bool:
    """Whether an attempt that ended so had a last reply that stands in no message: cut or unreadable, and silent."""
    if ending not in LOST_ENDINGS:
        return False
    last = messages[-1] if messages else {}
    return last.get("role") != "assistant" or bool(last.get("tool_calls"))


def faults(reference: Reference) -> int:
    """Turns of a trace that cost something, measured against itself: 0 for a straight path."""
    return sum(any(value < 0 for value in one.parts.values()) for one in turn_rewards(reference.messages, reference))


def best_reference(candidates: Iterable[Reference]) -> Reference | None:
    """The teacher among strict successes at one problem: fewest faults, then fewest turns and calls, then trace_id.

    That they are strict successes is the caller's to know. None where there is no candidate with a turn.
    """
    ranked = [
        ((faults(one), len(turns), sum(map(len, turns)), one.trace_id), one)
        for one in candidates
        if (turns := turns_of(one.messages))
    ]
    return min(ranked, key=lambda item: item[0])[1] if ranked else None


def references_from_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, Reference]:
    """The best reference of each problem among rows of strict successes.

    Args:
        rows: ``problem_key``, ``trace_id``, ``messages`` (a list, or the lake's JSON text).

    Raises:
        RejectRow: a row without one of them (``bad_reference``), or with unreadable messages.
    """
    found: dict[str, list[Reference]] = {}
    for row in rows:
        key, trace = row.get("problem_key"), row.get("trace_id")
        if not isinstance(key, str) or not isinstance(trace, str):
            raise RejectRow("bad_reference", "a reference needs problem_key, trace_id and messages")
        messages = parse_messages(row.get("messages"))
        try:
            turns_of(messages)
        except (KeyError, TypeError, AttributeError) as error:  # e.g. a call without a function
            raise RejectRow("bad_reference", f"messages are not canonical ({type(error).__name__}: {error})") from error
        found.setdefault(key, []).append(Reference(key, trace, messages))
    best = {key: best_reference(candidates) for key, candidates in sorted(found.items())}
    return {key: one for key, one in best.items() if one is not None}


# ---------------------------------------------------------------------------------------------- reading


class _Unit(NamedTuple):
    """A call of the teacher: what work it did.

    Attributes:
        progress: products the teacher chose in the end that this search showed for the first time.
        checked: those that this look opened.
        detour: whether the teacher's end did not need it.
        first: whether it showed or opened something of that for the first time.
    """

    call: Call
    progress: frozenset[str]
    checked: frozenset[str]
    detour: bool
    first: bool


class _Teacher(NamedTuple):
    """The teacher's calls in order; what it recommended; the share of that it had opened before."""

    units: list[_Unit]
    targets: frozenset[str]
    opened: float


def _read(messages: Sequence[Message]) -> _Teacher:
    turns = turns_of(messages)
    recommended = [call for turn in turns for call in turn if call.name == dialogue.RECOMMEND and call.ids]
    last = recommended[-1] if recommended else None
    targets = frozenset(last.ids) if last is not None else frozenset[str]()
    units: list[_Unit] = []
    shown, viewed, opened = set[str](), set[str](), 0.0
    for turn in turns:
        before = frozenset(viewed)  # a turn is written before any of its results is known
        for call in turn:
            if call is last:
                opened = len(targets & before) / len(targets)
            progress = (targets & call.shown) - shown if call.name in _SEARCHES else frozenset[str]()
            checked = targets & call.viewed
            idle = (
                (call.name in _SEARCHES and not progress)
                or (call.name in _LOOKS and targets.isdisjoint(call.viewed.union(call.ids)))
                or (call.name == dialogue.RECOMMEND and call is not last)
            )
            detour = call.failed or (bool(targets) and idle)
            units.append(_Unit(call, frozenset(progress), checked, detour, bool(progress or checked - viewed)))
            shown |= call.shown
            viewed |= call.viewed
    return _Teacher(units, targets, opened)


# --------------------------------------------------------------------------------------------- crediting


class _Attempt:
    """The state of one attempt while its turns are judged, one after the other."""

    def __init__(self, teacher: _Teacher, messages: Sequence[Message]) -> None:
        self.teacher = teacher
        self.ended = False
        self._best = [0.0] * len(teacher.units)  # credit of each of the teacher's calls so far
        self._counted = [0.0] * len(teacher.units)  # what each of them that is no detour counts in a sum
        self._work = 0.0  # the sum of that
        self._at = 0  # the teacher's call that was matched last; work before it is done or was passed over
        self._known: set[str] = set()
        for message in messages:
            if message.get("role") in ("user", "system") and isinstance(message.get("content"), str):
                self._known.update(_WORD.findall(message["content"]))
        self._shown: set[str] = set()
        self._viewed: set[str] = set()
        self._made: set[tuple[str, str]] = set()
        self._recommended = False

    def turn(self, calls: list[Call]) -> tuple[dict[str, float], float]:
        """(parts, credit that counts in a sum) of one turn, whose calls were written before any result was known."""
        if not calls:
            return {"no_call": -COSTS["no_call"]}, 0.0
        parts: dict[str, float] = {}
        known, viewed, work = set(self._known), set(self._viewed), self._work
        for call in calls:
            for name, value in self._judge(call, known, viewed).items():
                parts[name] = parts.get(name, 0.0) + (value / len(calls) if name in GAINS else value)
        for call in calls:
            self._known |= call.named
        return parts, self._work - work

    def _judge(self, call: Call, known: set[str], viewed: set[str]) -> dict[str, float]:
        parts: dict[str, float] = {}
        made = (call.name, orjson.dumps(call.form, option=orjson.OPT_SORT_KEYS).decode())
        repeated, after = made in self._made, self.ended
        self._made.add(made)
        strange = sum(name not in known for name in call.ids) / len(call.ids) if call.ids else 0.0
        news = call.name in _SEARCHES and bool((self.teacher.targets & call.shown) - self._shown)
        self._shown |= call.shown
        self._viewed |= call.viewed
        commit, early = self._commit(call, strange, viewed)
        if strange:
            parts["hallucinated"] = -COSTS["hallucinated"] * strange
        if call.flags and not call.failed:
            parts["ignored_filter"] = -COSTS["ignored_filter"]
        if early:
            parts["early"] = -COSTS["early"]
        if call.failed:
            parts["invalid"] = -COSTS["invalid"]
        elif repeated:
            parts["repeat"] = -COSTS["repeat"]
        else:
            gained = {} if after else self._credit(call, strange, commit)
            if (not gained and not news) or (call.name == dialogue.RECOMMEND and self._recommended):
                parts["surplus"] = -COSTS["surplus"]
            parts |= gained
        if not after:
            self._count_effects()
        self._recommended = self._recommended or call.name == dialogue.RECOMMEND
        self.ended = self.ended or (call.name == dialogue.TERMINATE and not call.failed)
        return parts

    def _commit(self, call: Call, strange: float, viewed: set[str]) -> tuple[float, bool]:
        """(how much a recommendation or an end is in time, whether it is hasty)."""
        if call.name == dialogue.TERMINATE:
            due = bool(self.teacher.targets) and not self._recommended
            return float(not due), due
        if call.name != dialogue.RECOMMEND or not call.ids:
            return 0.0, call.name == dialogue.RECOMMEND
        opened = sum(name in viewed for name in call.ids) / len(call.ids)
        enough = 1.0 if not self.teacher.opened else min(1.0, opened / self.teacher.opened)
        return 0.0 if strange or self._recommended else enough, not enough

    def _credit(self, call: Call, strange: float, commit: float) -> dict[str, float]:
        """What a call adds to the credit of the teacher's call whose work it does best; {} where it adds nothing."""
        best: tuple[float, int, dict[str, float]] = (0.0, -1, {})
        for at in range(self._at, len(self.teacher.units)):
            unit = self.teacher.units[at]
            if unit.call.name != call.name:
                continue
            shares = self._shares(call, unit, strange, commit)
            weight = math.fsum(GAINS[name] for name in shares)
            worth = {name: GAINS[name] * share / weight for name, share in shares.items()}
            gain = math.fsum(worth.values()) - self._best[at]
            if gain > best[0] + 1e-9:
                best = (gain, at, worth)
        gain, at, worth = best
        if at < 0:
            return {}
        whole = self._best[at] + gain
        self._best[at], self._at = whole, at
        self._count(at, whole)
        return {name: value * gain / whole for name, value in worth.items() if value}

    def _count(self, at: int, worth: float) -> None:
        if not self.teacher.units[at].detour and worth > self._counted[at]:
            self._work += worth - self._counted[at]
            self._counted[at] = worth

    def _count_effects(self) -> None:
        """Work of the teacher's that other calls did: its products were shown, or opened."""
        for at, unit in enumerate(self.teacher.units):
            if unit.first and not self._best[at] and unit.progress <= self._shown and unit.checked <= self._viewed:
                self._count(at, SAME_EFFECT)

    def _shares(self, call: Call, unit: _Unit, strange: float, commit: float) -> dict[str, float]:
        shares = {"tool": 1.0, "arguments": _alike(call.form or {}, unit.call.form or {})}
        if call.ids or unit.call.ids:
            shares["evidence"] = 1.0 - strange if call.ids else 0.0
        if unit.progress:
            shares["progress"] = len(unit.progress & self._shown) / len(unit.progress)
        if unit.checked:
            shares["checked"] = len(unit.checked & self._viewed) / len(unit.checked)
        if call.name in (dialogue.RECOMMEND, dialogue.TERMINATE):
            shares["commit"] = commit
        return shares


def _alike(ours: Mapping[str, str], theirs: Mapping[str, str]) -> float:
    """Mean over the parameters of either call of the credit of their values, in [0, 1]."""
    names = ours.keys() | theirs.keys()
    if not names:
        return 1.0
    return math.fsum(_value(name, ours.get(name), theirs.get(name)) for name in names) / len(names)


def _value(name: str, ours: str | None, theirs: str | None) -> float:
    """Jaccard of the words (of the ids, filters, requirements); a price range is right or wrong."""
    if ours is None or theirs is None:
        return 0.0
    if ours == theirs or name == "price":
        return float(ours == theirs)
    mine, others = set(_WORD.findall(ours.lower())), set(_WORD.findall(theirs.lower()))
    return len(mine & others) / len(mine | others) if mine | others else 0.0
