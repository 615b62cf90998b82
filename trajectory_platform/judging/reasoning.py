"""The ``rules`` judge: the four gates of ``rubric`` read deterministically from messages and log evidence.

It costs nothing and repeats exactly, so it stands in where a validator's verdict is missing, an infrastructure zero or
on a scale that cannot be compared. It sees the thinking, the tool results and the log; never the reward, the
outcome or the category, and not the answer text. Its values are comparable with one another only: regime ``rules``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform.judging import rubric
from trajectory_platform.judging.dialogue import tool_results

JUDGE_MODEL = "rules-1"
MIN_TOKENS = 30

_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?")
# The shape of a result: how many rows, none at all, what kind of page it was.
_SHAPE = re.compile(
    r"\b(?:\d+|no|zero|few|several|many|empty|first|second|next|same|of the|all|these|top)\W{0,2}"
    r"(?:\w+ )?(?:results?|hits?|rows?|matches|listings?|pages?|resulta)\b"
    r"|\b(?:results?|rows?|listings?|search|pages?) (?:\w+ )?"
    r"(?:gave|gives?|shows?|returned|returns|lists?|contains?|is empty|are empty|confirms?)\b"
    r"|\bdetail pages? (?:of|shows?|confirms?|says)\b"
    r"|\b(?:too broad|off topic|nothing found|not found|came back empty)\b",
    re.IGNORECASE,
)
# A reason given for one candidate. "since both ..." keeps two candidates and chooses none.
_REASON = re.compile(
    r"\b(?:because|since|as it|as this|due to|therefore|hence|thus|so (?:i|it|this|that|\d+)|given that|"
    r"prefer|better|cheaper|closer|wins|lacks|unlike|rather than|instead of|beats|over the other|"
    r"dahil|kasi|sapagkat|mas (?:mura|bagay|angkop|mababa)|porque|weil|denn)\b(?!\W+both\b)|因为|因為|所以",
    re.IGNORECASE,
)
_MIN_VALUE_LENGTH = 3
_TITLE_PREFIX = 24  # agents cut long titles; this much of one names it


class RulesVerdict(NamedTuple):
    """Quality on the five-value grid, or null with a reason; ``failed`` is the 0-based first failed gate."""

    quality: float | None
    failed: int | None
    null_reason: str | None
    explanation: str


class _Seen:
    """What the tool results have shown so far; grows as the trace is read."""

    def __init__(self, request: str) -> None:
        self.request = request.casefold()
        self.request_numbers = frozenset(_NUMBER.findall(request))
        self.ids: set[str] = set()  # product ids: the candidates
        self.shops: set[str] = set()
        self.prices: set[float] = set()
        self.values: set[str] = set()  # brands, attribute and SKU values, title beginnings
        self.titles: dict[str, str] = {}  # beginning of a title -> product id
        self.any = False

    def add(self, result: Any) -> None:
        """Take in one tool result; text that is no JSON counts as a result without data."""
        self.any = True
        self._walk(result, 0)

    def data_in(self, thought: str, folded: str) -> bool:
        """Whether a thought names a datum that results showed and the request did not."""
        for token in _NUMBER.findall(thought):
            if token in self.request_numbers:
                continue
            if token in self.ids or token in self.shops or _price(token) in self.prices:
                return True
        return any(value in folded for value in self.values)

    def candidates_in(self, thought: str, folded: str) -> set[str]:
        """The different products a thought names, by id or by the beginning of a title."""
        named = {token for token in _NUMBER.findall(thought) if token in self.ids}
        if len(named) < 2:
            named.update(product for title, product in self.titles.items() if title in folded)
        return named

    def _walk(self, value: Any, depth: int) -> None:
        if depth > 12:
            return
        if isinstance(value, list):
            for item in value:
                if isinstance(item, dict | list):
                    self._walk(item, depth + 1)
        elif isinstance(value, dict):
            product = value.get("product_id")
            if isinstance(product, str | int) and not isinstance(product, bool):
                self._product(str(product), value)
                return
            for inner in value.values():
                if isinstance(inner, dict | list):
                    self._walk(inner, depth + 1)

    def _product(self, product: str, row: Mapping[str, Any]) -> None:
        self.ids.add(product)
        shop, price, title = row.get("shop_id"), row.get("price"), row.get("title")
        if isinstance(shop, str):
            self.shops.add(shop)
        if isinstance(price, int | float) and not isinstance(price, bool):
            self.prices.add(price)
        if isinstance(title, str) and len(title) >= _TITLE_PREFIX:
            self.titles.setdefault(title[:_TITLE_PREFIX].casefold(), product)
        self._value(row.get("brand"))
        attributes, skus = row.get("attributes"), row.get("sku_options")
        if isinstance(attributes, dict):
            for values in attributes.values():
                for value in values if isinstance(values, list) else (values,):
                    self._value(value)
        if isinstance(skus, dict):
            for option in skus.values():
                for value in option.values() if isinstance(option, dict) else ():
                    self._value(value)

    def _value(self, value: Any) -> None:
        if isinstance(value, str) and len(value) >= _MIN_VALUE_LENGTH:
            folded = value.casefold()
            if folded not in self.request:
                self.values.add(folded)


def judge(
    messages: list[dict[str, Any]], evidence: Mapping[str, Any], results: Sequence[Any] | None = None
) -> RulesVerdict:
    """Read the four gates in order; the first that fails gives the value.

    Args:
        messages: canonical OpenAI messages.
        results: ``dialogue.tool_results(messages)`` where the caller already has it.
        evidence: ``traces.evidence`` of the same trace. Without a log the first gate cannot be read and the
            verdict is null (``no_log``), never a low value.
    """
    if not evidence.get("log_present"):
        return RulesVerdict(None, None, "no_log", "no request log: the first gate cannot be read")
    failed = None if _inferred(evidence) else 0
    if failed is None:
        failed = _first_failed_thinking_gate(messages, tool_results(messages) if results is None else results)
    return RulesVerdict(rubric.value(failed), failed, None, rubric.explain(failed))


def _price(token: str) -> float:
    return float(token.replace(",", ""))


def _inferred(evidence: Mapping[str, Any]) -> bool:
    """Gate 1. A reply that the log cut is longer than 2,000 characters, so it holds more than 30 tokens."""
    for event in evidence.get("events") or ():
        if event.get("kind") != "inference" or event.get("state") == "failed":
            continue
        tokens = event.get("completion_tokens")
        if event.get("state") == "truncated" or (isinstance(tokens, int) and tokens >= MIN_TOKENS):
            return True
    return False


def _first_failed_thinking_gate(messages: list[dict[str, Any]], results: Sequence[Any]) -> int | None:
    request = next((message["content"] for message in messages if message.get("role") == "user"), "")
    seen = _Seen(request if isinstance(request, str) else "")
    used = datum = compared = False
    shown = iter(results)
    for message in messages:
        if message.get("role") == "tool":
            seen.add(next(shown))
            continue
        thought = message.get("reasoning_content")
        if message.get("role") != "assistant" or not isinstance(thought, str) or not thought or not seen.any:
            continue
        folded = thought.casefold()
        if not datum:
            datum = seen.data_in(thought, folded)
        used = used or datum or _SHAPE.search(thought) is not None
        if not compared and _REASON.search(thought) is not None:
            compared = len(seen.candidates_in(thought, folded)) >= 2
        if datum and compared:
            return None
    if not used:
        return 1
    return 2 if not datum else 3
