"""How an agent goes about a task, as a fingerprint over tools and argument *templates* (domain 6: 43).

Copied public code searches for other words on another problem but moves in the same way: the same tools in the same
order, the same explicit parameters, the same pairs of parallel calls. Text plays no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from trajectory_platform.identity import sha256_hex

STRATEGY_VERSION = "template-1"
_SHORT_NAMES = {"recommend_product": "recommend"}
# What the problem dictates (a price limit, a shop, a service) says nothing about who wrote the agent.
_DICTATED = frozenset({"q", "query", "price", "shop_id", "service"})


class Strategy(NamedTuple):
    """``template`` is the full move list, ``signature`` its problem-independent outline, ``cluster`` the id of that."""

    template: str
    signature: str
    cluster: str


def fingerprint(messages: list[dict[str, Any]]) -> Strategy:
    """Strategy of one canonical trajectory.

    ``template``: steps joined by ``>``, parallel calls by ``+``; ``find`` names its explicit parameters without the
    words (``sort`` with its value), ``view`` how many ids; a step without calls is ``-``.
    ``signature``: the same without what the problem dictates, one or several ids, and within a run of steps with the
    same tool (one per wanted product) every kind of step written once.
    """
    steps = [_calls(message) for message in messages if message.get("role") == "assistant"]
    template = ">".join("+".join(_template(name, arguments) for name, arguments in calls) or "-" for calls in steps)
    outline: list[str] = []
    run_tool, run_steps = "", set[str]()
    for calls in steps:
        if not calls:
            continue
        step = "+".join(_outline(name, arguments) for name, arguments in calls)
        if calls[0][0] != run_tool:
            run_tool, run_steps = calls[0][0], set()
        if step not in run_steps:
            run_steps.add(step)
            outline.append(step)
    signature = ">".join(outline)
    return Strategy(template, signature, "sc-" + sha256_hex(signature.encode("utf-8", "replace"))[:16])


def _calls(message: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        try:
            arguments = orjson.loads(function["arguments"])
        except ValueError:
            arguments = {}
        found.append((str(function["name"]), arguments if isinstance(arguments, dict) else {}))
    return found


def _template(name: str, arguments: Mapping[str, Any]) -> str:
    if name == "find_product":
        return f"find({_parameters(arguments, frozenset({'q', 'query'}))})"
    if name == "view_product_information":
        return f"view({_id_count(arguments)})"
    return _SHORT_NAMES.get(name, name)


def _outline(name: str, arguments: Mapping[str, Any]) -> str:
    if name == "find_product":
        return f"find({_parameters(arguments, _DICTATED)})"
    if name == "view_product_information":
        return "view(1)" if _id_count(arguments) <= 1 else "view(n)"
    return _SHORT_NAMES.get(name, name)


def _parameters(arguments: Mapping[str, Any], left_out: frozenset[str]) -> str:
    words = []
    for name in sorted(arguments):
        if name not in left_out:
            words.append(f"sort={arguments[name]}" if name == "sort" else name)
    return ",".join(words)


def _id_count(arguments: Mapping[str, Any]) -> int:
    ids = arguments.get("product_ids", arguments.get("product_id"))
    if isinstance(ids, list):
        return len(ids)
    return len([part for part in ids.split(",") if part.strip()]) if isinstance(ids, str) else 1
