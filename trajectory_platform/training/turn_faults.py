"""Which turns of a trace are to blame: what is wrong with each turn, and which an outcome speaks against.

A trace is judged as a whole, KTO learns single turns. What can be seen at a turn (an id no result showed, a call made
before, a filter the server ignores) is that turn's own fault whatever came of the trace; what a verdict says is laid
on the turns that it is about: a failure on the end and the choice, a verdict below the gate on the moves whose thought
names nothing of a result. The readings are those of the filter, the scorer and the rules judge; none is repeated here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from trajectory_platform.curation import discipline, uses
from trajectory_platform.judging import dialogue, protocol, reasoning
from trajectory_platform.traces.call_flags import UNKNOWN_TOOL, call_flags

TURN_FAULTS_VERSION = "turn-faults-2"
FAULTS: Mapping[str, str] = {
    "no_call": "the turn calls no tool: in the sandbox it ends the attempt",
    "unknown_tool": "a tool that nobody published",
    "failed_call": "the tool refused the call: its result is nothing but an error",
    "repeated_call": "a call that was answered before, with the same arguments",
    "ineffective_price": "a price filter that the server ignores in silence",
    "ineffective_service": "a service filter that the server ignores in silence",
    "ineffective_sort": "an order that the server ignores in silence",
    "ineffective_page": "a page that has no rows",
    "unseen_id": "opens or checks an id that no result before it showed",
    "hallucinated_id": "recommends an id that no result before it showed, or that does not exist",
    "unviewed_id": "recommends a product that was never opened before: a lucky shortcut where it succeeds",
    "ids_not_plain": "the strict and the lenient reading of the recommended ids differ",
    "empty_recommend": "a recommendation that names nothing",
    "several_recommends": "a second recommendation",
    "recommend_after_terminate": "a recommendation after the end",
    "steps_after_terminate": "goes on after the end",
    "no_terminate": "the last turn, and it neither ends the session nor makes its one recommendation",
    "format_below_gate": "the turn is not well formed, in a trace whose format is below the gate",
    "wrong_end": "what was recommended, or giving up, in a trace that failed",
    "wrong_choice": "opened the one product that was then wrongly recommended, and no other",
    "ungrounded": "acts on results without naming a datum of one, in a success whose reasoning is below the gate",
    "decisive": "the trace is undesirable and nothing more precise is known: its last recommendation, else its end",
}
_OPENS = {"view_product_information": "product_ids", "check_product_match": "product_id"}


class Judged(NamedTuple):
    """What is known about a trace besides its messages (the stage-specific ``extra`` of its row)."""

    situation: str = ""
    success: bool | None = None
    flags: frozenset[str] = frozenset()
    false_ids: frozenset[str] = frozenset()


NOTHING_KNOWN = Judged()


class Turn(NamedTuple):
    """One assistant turn, read.

    Attributes:
        position: of its message in the trace.
        calls: with their results.
        texts: (name, argument text) of each call, as it is compared with earlier ones.
        message: the canonical message.
    """

    position: int
    calls: list[dialogue.Call]
    texts: list[tuple[str, str]]
    message: Mapping[str, Any]

    def ids(self, name: str, *keys: str) -> list[str]:
        """Ids that its calls of one tool name."""
        return [one for call in self.calls if call.name == name for one in _ids(call.parameters, *keys)]

    def has(self, name: str) -> bool:
        """Whether it calls the tool."""
        return any(call.name == name for call in self.calls)


def judged_of(extra: Mapping[str, Any]) -> Judged:
    """The judgement in a row's ``extra``; what it does not say stays unknown."""
    success = extra.get("outcome_success")
    return Judged(
        situation=str(extra.get("situation") or ""),
        success=success if isinstance(success, bool) else None,
        flags=frozenset([*(extra.get("flags") or ()), *(extra.get("discipline") or ())]),
        false_ids=frozenset([*(extra.get("hallucinated_ids") or ()), *(extra.get("not_in_catalogue_ids") or ())]),
    )


def read_turns(messages: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """The assistant turns of canonical messages, each call with its result (by id, else in order)."""
    shown = iter(dialogue.tool_results([dict(message) for message in messages]))
    turns: list[Turn] = []
    waiting: list[tuple[Any, int]] = []
    for position, message in enumerate(messages):
        if message.get("role") == "assistant":
            functions = [call["function"] for call in message.get("tool_calls") or ()]
            calls = [
                dialogue.Call(len(turns), str(function["name"]), _json(function["arguments"]), None)
                for function in functions
            ]
            texts = [(str(function["name"]), str(function["arguments"])) for function in functions]
            turns.append(Turn(position, calls, texts, message))
            waiting = [(call.get("id"), place) for place, call in enumerate(message.get("tool_calls") or ())]
        elif message.get("role") == "tool":
            result, named = next(shown), message.get("tool_call_id")
            if waiting:
                found = next((place for place, (name, _) in enumerate(waiting) if name == named), 0)
                _, place = waiting.pop(found)
                turns[-1].calls[place] = turns[-1].calls[place]._replace(result=result)
    return turns


def own_faults(
    turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]], judged: Judged = NOTHING_KNOWN
) -> list[tuple[str, ...]]:
    """What is wrong with each turn, whatever came of the trace; names of ``FAULTS`` in their order."""
    published = frozenset(str(tool.get("function", tool).get("name")) for tool in tools)
    made: set[tuple[str, str]] = set()
    found: list[tuple[str, ...]] = []
    ended, recommended = False, False
    for number, turn in enumerate(turns):
        faults = _call_faults(turn, published, made) | _id_faults(turns, number, judged)
        recommends = turn.has(dialogue.RECOMMEND)
        if recommends and recommended:
            faults.add("several_recommends")
        if ended:
            faults.add("recommend_after_terminate" if recommends else "steps_after_terminate")
        chooses = (
            recommends and not recommended
        )  # a turn that only chooses is right: the end may have a turn of its own
        ended, recommended = ended or turn.has(dialogue.TERMINATE), recommended or recommends
        if number == len(turns) - 1 and not ended and not chooses:
            faults.add("no_terminate")
        found.append(_ordered(faults))
    return found


def blamed_turns(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], judged: Judged
) -> dict[int, tuple[str, ...]]:
    """The turns of an undesirable trace that are to be pushed down, with why.

    A well-reasoned failure keeps its good early turns: they are in no result of this function. None at all is to blame
    only where the trace did all it should and then stopped without a last turn that ends it.
    """
    turns = read_turns(messages)
    found = [set(faults) for faults in own_faults(turns, tools, judged)]
    if not turns:
        return {}
    decisive = _decisive(turns)
    failed = judged.situation == uses.FAILURE or judged.success is False
    if failed and turns[decisive].has(dialogue.RECOMMEND):
        found[decisive].add("wrong_end")
        choice = _choice(turns, decisive)
        if choice is not None:
            found[choice].add("wrong_choice")
    elif failed and turns[decisive].has(dialogue.TERMINATE):
        found[decisive].add("wrong_end")
    if judged.situation == uses.BELOW_GATE:
        for number in _ungrounded(messages, turns):
            found[number].add("ungrounded")
    if "format_below_gate" in judged.flags:
        for number, turn in enumerate(turns):
            if not _well_formed(turn):
                found[number].add("format_below_gate")
    unended = turns[-1].has(dialogue.RECOMMEND) and not any(turn.has(dialogue.TERMINATE) for turn in turns)
    if not any(found) and not (judged.situation == uses.UNDISCIPLINED and unended):
        found[decisive].add("decisive")
    return {number: _ordered(faults) for number, faults in enumerate(found) if faults}


def _call_faults(turn: Turn, published: frozenset[str], made: set[tuple[str, str]]) -> set[str]:
    faults: set[str] = set(discipline.ineffective_filters([turn.message]))
    if not turn.calls:
        faults.add("no_call")
    for call, text in zip(turn.calls, turn.texts, strict=True):
        arguments = call.parameters if isinstance(call.parameters, Mapping) else {}
        if published and UNKNOWN_TOOL in call_flags(call.name, arguments, published):
            faults.add("unknown_tool")
        if text in made:
            faults.add("repeated_call")
        if isinstance(call.result, Mapping) and set(call.result) == {"error"}:
            faults.add("failed_call")  # nothing was answered: to try it again is no repetition
        else:
            made.add(text)
    return faults


def _id_faults(turns: Sequence[Turn], number: int, judged: Judged) -> set[str]:
    turn = turns[number]
    opened = [one for name, key in _OPENS.items() for one in turn.ids(name, key)]
    chosen = turn.ids(dialogue.RECOMMEND, "product_ids", "product_id")
    faults: set[str] = set()
    if turn.has(dialogue.RECOMMEND) and not chosen:
        faults.add("empty_recommend")
    if any(_differs(call) for call in turn.calls if call.name == dialogue.RECOMMEND):
        faults.add("ids_not_plain")
    if not opened and not chosen:
        return faults
    seen = dialogue.seen_ids([call for earlier in turns[:number] for call in earlier.calls], [])
    if not all(map(seen.shows, opened)):
        faults.add("unseen_id")
    false = [one for one in chosen if one in judged.false_ids or not seen.shows(one)]
    if false:
        faults.add("hallucinated_id")
    if any(one not in seen.viewed for one in chosen if one not in false):
        faults.add("unviewed_id")
    return faults


def _differs(call: dialogue.Call) -> bool:
    """Whether the reference scorer reads other ids from a recommendation than an obliging person."""
    step = {"completion": {"message": {"tool_call": [{"name": call.name, "parameters": call.parameters}]}}}
    return dialogue.strict_ids([step]) != dialogue.lenient_ids([call])


def _decisive(turns: Sequence[Turn]) -> int:
    """The turn with the last recommendation, else with the first end, else the last turn."""
    recommends = [number for number, turn in enumerate(turns) if turn.has(dialogue.RECOMMEND)]
    ends = [number for number, turn in enumerate(turns) if turn.has(dialogue.TERMINATE)]
    return recommends[-1] if recommends else ends[0] if ends else len(turns) - 1


def _choice(turns: Sequence[Turn], decisive: int) -> int | None:
    """Where the one recommended product was chosen: the turn that opened it, if nothing else was ever opened."""
    chosen = set(turns[decisive].ids(dialogue.RECOMMEND, "product_ids", "product_id"))
    opened = [
        (number, one)
        for number, turn in enumerate(turns[:decisive])
        for name, key in _OPENS.items()
        for one in turn.ids(name, key)
    ]
    if len(chosen) == 1 and opened and {one for _, one in opened} == chosen:
        return opened[0][0]
    return None


def _ungrounded(messages: Sequence[Mapping[str, Any]], turns: Sequence[Turn]) -> Iterable[int]:
    """Turns that open or recommend after a result, whose own thought names no datum of one (rules judge, gate 3)."""
    results = dialogue.tool_results([dict(message) for message in messages])
    first = next((number for number, message in enumerate(messages) if message.get("role") == "tool"), len(messages))
    for number, turn in enumerate(turns):
        acts = turn.has(dialogue.RECOMMEND) or any(turn.has(name) for name in _OPENS)
        if not acts or turn.position < first:
            continue
        alone = [  # the rules judge without the other thoughts about results
            {key: value for key, value in message.items() if key != "reasoning_content"}
            if first < position != turn.position
            else dict(message)
            for position, message in enumerate(messages[: turn.position + 1])
        ]
        if not reasoning.names_result_datum(alone, results):
            yield number


def _well_formed(turn: Turn) -> bool:
    calls = [
        {"name": call.name, "parameters": call.parameters if isinstance(call.parameters, dict) else None}
        for call in turn.calls
    ]
    thought, text = turn.message.get("reasoning_content"), turn.message.get("content")
    message = {"think": thought or "", "tool_call": calls, "response": text or ""}
    return protocol.well_formed(message)


def _ids(parameters: Any, *keys: str) -> list[str]:
    if not isinstance(parameters, Mapping):
        return []
    return next((found for key in keys if (found := dialogue.id_list(parameters.get(key)))), [])


def _json(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _ordered(faults: set[str]) -> tuple[str, ...]:
    return tuple(name for name in FAULTS if name in faults)
