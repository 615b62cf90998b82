"""The calls of a trace, turn by turn, in the form in which the dense reward compares them. Plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from trajectory_platform.evaluation.conduct import calls_of
from trajectory_platform.judging import dialogue
from trajectory_platform.sandbox.tools import TOOLS
from trajectory_platform.traces.arguments import normalise_arguments
from trajectory_platform.traces.call_flags import call_flags

_PUBLISHED = frozenset(tool["function"]["name"] for tool in TOOLS)
_ID_PARAMETERS = ("product_ids", "product_id", "shop_id")
_DEPTH = 6


class Call(NamedTuple):
    """One call as it is compared.

    Attributes:
        form: parameters in comparison form; None where the arguments are no object.
        ids: every id it names. shown: product ids of its result. named: those and the shop ids. viewed: ids opened.
        failed: the tool answered with an error, or could not be called at all.
    """

    name: str
    form: dict[str, str] | None
    ids: tuple[str, ...]
    shown: frozenset[str]
    named: frozenset[str]
    viewed: frozenset[str]
    flags: bool
    failed: bool


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[list[Call]]:
    """The calls of every assistant message, in order."""
    calls, steps = calls_of([dict(message) for message in messages])
    turns: list[list[Call]] = [[] for _ in range(steps)]
    for call in calls:
        turns[call.step].append(_call(call))
    return turns


def _call(call: dialogue.Call) -> Call:
    given = call.parameters if isinstance(call.parameters, Mapping) else None
    seen = dialogue.seen_ids([call], [])
    ids: dict[str, None] = {}
    for name in _ID_PARAMETERS:
        ids.update(dict.fromkeys(dialogue.id_list(given.get(name)) if given else ()))
    shown = frozenset(seen.listed)
    refused = isinstance(call.result, Mapping) and set(call.result) == {"error"}
    return Call(
        name=call.name,
        form=None if given is None else orjson.loads(normalise_arguments(call.name, given)),
        ids=tuple(ids),
        shown=shown,
        named=shown | _shops(call.result) | frozenset(seen.words),
        viewed=frozenset(seen.viewed),
        flags=bool(given is not None and call_flags(call.name, given, _PUBLISHED)),
        failed=given is None or call.name not in _PUBLISHED or refused,
    )


def _shops(value: Any, depth: int = 0) -> frozenset[str]:
    """Shop ids anywhere in a result."""
    found: set[str] = set()
    if isinstance(value, list | tuple) and depth < _DEPTH:
        for inner in value:
            found |= _shops(inner, depth + 1)
    elif isinstance(value, Mapping) and depth < _DEPTH:
        found.update(dialogue.id_list(value.get("shop_id")))
        for inner in value.values():
            if isinstance(inner, Mapping | list):
                found |= _shops(inner, depth + 1)
    return frozenset(found)
