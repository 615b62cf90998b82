"""Which dispatch was asked for by which model reply: matching in time order, by tool and equal arguments.

The emission of one call serves one dispatch. Composite tools of the reference agent fan out to several requests, and
its search retries by itself; those children belong to the model's call (domain 1.6). Everything else that no earlier
reply names was made by the agent's code.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from trajectory_platform.traces.arguments import CATALOGUE_TOOLS, normalise_arguments

MATCHED = "matched"
COMPOSITE_CHILD = "composite_child"
RETRY_CHILD = "retry_child"
HARNESS_MADE = "harness_made"
UNMATCHED = "unmatched"

# What one find_products_in_same_shop can send (domain 1.6): the same search again once at most, in at most ten shops.
FAN_OUT_REPEATS, FAN_OUT_SHOPS = 2, 10
CLOCK_SLACK_MS = 100.0  # wall clock against monotonic duration

_Key = tuple[str, str]
_Search = tuple[str, str, str]  # words, price, service


class Emission(NamedTuple):
    """One call in a reply: comparison key, when the reply was complete, echoed or not."""

    key: _Key
    end: float | None
    echoed: bool


class Matching(NamedTuple):
    """The outcome over one trace.

    Attributes:
        reasons: per catalogue dispatch in time order, one of the five reasons. ``unmatched`` means that a hidden
            reply stands directly before it and may have asked for it; ``harness_made`` that nothing can have.
        keys: per catalogue dispatch its (tool, arguments).
        emissions: every emitted call in time order.
        hidden: may any reply hold calls that cannot be read?
        overlaps: True when a dispatch started although the reply that names it was not complete yet.
    """

    reasons: list[str]
    keys: list[_Key]
    emissions: list[Emission]
    hidden: bool
    overlaps: bool


def is_hidden(event: Mapping[str, Any]) -> bool:
    """May this reply have held calls that cannot be read?"""
    return event["state"] in ("truncated", "unreadable") or bool(event.get("incomplete"))


def match(evidence: Mapping[str, Any]) -> Matching:
    """Match the dispatches of ``traces.evidence.extract`` to the replies before them."""
    walk = _Walk()
    for event in evidence["events"]:
        if event["kind"] == "inference":
            walk.reply(event)
        elif event["tool"] in CATALOGUE_TOOLS:
            walk.dispatch(event)
    return Matching(walk.reasons, walk.keys, walk.emissions, walk.hidden, walk.overlaps)


class _Walk:
    """State of one pass over the events: open emissions, the latest reply and the search that just came back empty."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.keys: list[_Key] = []
        self.emissions: list[Emission] = []
        self.lost = False  # a reply was truncated or damaged in the log
        self._latest_cut = False
        self.overlaps = False
        self._open: dict[_Key, deque[int]] = {}
        self._latest_hidden = False
        self._children: dict[_Key, int] = {}  # one view behind each product check
        self._fan_outs: set[_Search] = set()  # searches that a composite call of the latest reply may send
        self._fan_calls = 0
        self._sent: dict[str, int] = {}  # of them, by arguments
        self._shops: set[str] = set()
        self._retries: set[str] = set()

    @property
    def hidden(self) -> bool:
        """What the token limit cut was asked for again, unless it was the last reply of all."""
        return self.lost or self._latest_cut

    def reply(self, event: Mapping[str, Any]) -> None:
        if event["state"] == "failed":
            return  # the agent got nothing from it
        self._latest_hidden = is_hidden(event)
        self._latest_cut = self._latest_hidden and bool(event["cut"])
        self.lost = self.lost or (self._latest_hidden and not self._latest_cut)
        self._children, self._fan_outs, self._retries = {}, set(), set()
        self._fan_calls, self._sent, self._shops = 0, {}, set()
        echoed = event.get("echoed") or ()
        for order, call in enumerate(event["calls"]):
            key = (call["name"], call["arguments"])
            self._open.setdefault(key, deque()).append(len(self.emissions))
            self.emissions.append(Emission(key, event["end"], order < len(echoed) and bool(echoed[order])))
            if call["name"] == "check_product_match":
                viewed = _viewed_by_check(call["arguments"])
                self._children[viewed] = self._children.get(viewed, 0) + 1
            elif call["name"] == "find_products_in_same_shop":
                self._fan_outs |= _fan_out(call["arguments"])
                self._fan_calls += 1

    def dispatch(self, event: Mapping[str, Any]) -> None:
        key = (event["tool"], event["arguments"] or "")
        reason = self._reason(key, event)
        self.reasons.append(reason)
        self.keys.append(key)
        if event["tool"] == "find_product" and event["arguments"]:
            if not event["empty"]:
                self._retries = set()
            elif reason == MATCHED:
                self._retries = _retries_of(json.loads(event["arguments"]))

    def _reason(self, key: _Key, event: Mapping[str, Any]) -> str:
        if event["arguments"] is not None:
            if self._take(key, event):
                return MATCHED
            if self._children.get(key):
                self._children[key] -= 1
                return COMPOSITE_CHILD
            if key[0] == "find_product":
                if key[1] in self._retries:
                    return RETRY_CHILD
                if self._fan_outs and self._is_fan_out(key[1]):
                    return COMPOSITE_CHILD
        if self._latest_hidden:
            # the stamp comes from the proxy: it hands out nonces for calls it saw in a reply (domain 1.8)
            return MATCHED if event["nonce_status"] == "valid" else UNMATCHED
        return HARNESS_MADE

    def _is_fan_out(self, arguments: str) -> bool:
        """Whether a composite call of the latest reply can have sent this search, within what such a call can send."""
        if _search_of(arguments) not in self._fan_outs:
            return False
        shop = json.loads(arguments).get("shop_id", "")
        shops = self._shops | ({shop} if shop else set())
        if (
            self._sent.get(arguments, 0) >= FAN_OUT_REPEATS * self._fan_calls
            or len(shops) > FAN_OUT_SHOPS * self._fan_calls
        ):
            return False
        self._sent[arguments] = self._sent.get(arguments, 0) + 1
        self._shops = shops
        return True

    def _take(self, key: _Key, event: Mapping[str, Any]) -> bool:
        waiting = self._open.get(key)
        if not waiting:
            return False
        ready, start = self.emissions[waiting.popleft()].end, event["start"]
        if ready is not None and start is not None and start < ready - CLOCK_SLACK_MS:
            self.overlaps = True  # asked for before the reply was complete: the times cannot both be true
        return True


def _viewed_by_check(arguments: str) -> _Key:
    fields = json.loads(arguments)
    form = normalise_arguments("view_product_information", {"product_ids": fields.get("product_id", "")})
    return ("view_product_information", form)


def _short(query: str, words: int) -> str:
    return " ".join(query.split()[:words])


def _retries_of(fields: Mapping[str, str]) -> set[str]:
    """Comparison forms of what the reference agent tries after an empty search: no ``service``, then two words."""
    plain = {key: value for key, value in fields.items() if key != "service"}
    shorter = {**plain, "q": _short(plain.get("q", ""), 2)}
    forms = {normalise_arguments("find_product", variant) for variant in (plain, shorter)}
    return forms - {normalise_arguments("find_product", fields)}


def _fan_out(arguments: str) -> set[_Search]:
    """The searches behind one ``find_products_in_same_shop``: its queries, whole or shortened, in any shop."""
    try:
        queries = json.loads(json.loads(arguments).get("product_queries", "[]"))
    except (ValueError, AttributeError):
        queries = []
    searches: set[_Search] = set()
    for spec in queries if isinstance(queries, list) else ():
        if isinstance(spec, Mapping):
            form = json.loads(normalise_arguments("find_product", spec))
            query = form.get("q", "")
            for words in {query, _short(query, 2), _short(query, 1)}:
                for service in {"", form.get("service", "")}:  # only the first search carries the service filter
                    searches.add((words, form.get("price", ""), service))
    return searches


def _search_of(arguments: str) -> _Search | None:
    """What a composite tool decides about a search (comparison form); None where it says more than such a tool can."""
    fields = json.loads(arguments)
    if fields.keys() - {"q", "price", "service", "shop_id"}:
        return None
    return (fields.get("q", ""), fields.get("price", ""), fields.get("service", ""))
