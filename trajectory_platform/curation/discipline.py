"""Tool discipline of a trace: how well it kept to what the tools and the protocol say.

Violations withhold uses (the table of uses), flags only say that something is odd. Nothing here rejects a trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.sandbox.products import SERVICES
from trajectory_platform.sandbox.search import ServerError, parse_page, parse_price

DISCIPLINE_VERSION = "discipline-2"
_SORTS = ("priceasc", "pricedesc", "order", "default")


def violations(judged: Mapping[str, Any], config: FilterConfig) -> list[str]:
    """What keeps a success from being an example (domain 6: 8, 41).

    The protocol violations of the scorer; ``ids_not_plain`` where the strict and the lenient reading of the
    recommended ids differ, so that positions may have shifted; ``unviewed_id`` for a recommended product that was
    seen and never opened; ``format_below_gate``.
    """
    found = list(judged["discipline"])
    if list(judged["lenient_ids"]) != list(judged["recommended_ids"]):
        found.append("ids_not_plain")
    if config.viewed_required and judged["unviewed_ids"]:
        found.append("unviewed_id")
    if judged["format"] is not None and judged["format"] < config.min_format - 1e-9:
        found.append("format_below_gate")
    return found


def ineffective_filters(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Filters of searches that the server ignores in silence (domain 3, the table of bad values; domain 6: 20, 21).

    The agent saw unfiltered rows and learned that a filter was applied. One flag per kind: ``ineffective_price`` (no
    bound, or one of two sides, can be read), ``ineffective_service``, ``ineffective_sort``, ``ineffective_page`` (no
    rows come back at all). The searches inside ``find_products_in_same_shop`` count as well.
    """
    found: set[str] = set()
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            arguments = _json(function["arguments"])
            if not isinstance(arguments, dict):
                continue
            if function["name"] == "find_product":
                found.update(_ineffective(arguments))
            elif function["name"] == "find_products_in_same_shop":
                inner = arguments.get("product_queries")
                inner = _json(inner) if isinstance(inner, str) else inner
                for one in inner if isinstance(inner, list) else ():
                    found.update(_ineffective(one) if isinstance(one, dict) else ())
    return sorted(found)


def _ineffective(arguments: Mapping[str, Any]) -> list[str]:
    found = []
    price = _text(arguments.get("price"))
    if price and _lost_bound(price):
        found.append("ineffective_price")
    service = _text(arguments.get("service")) or ""
    if service != "default" and any(name and name not in SERVICES for name in service.split(",")):
        found.append("ineffective_service")
    sort = _text(arguments.get("sort"))
    if sort and sort not in _SORTS:
        found.append("ineffective_sort")
    page = _text(arguments.get("page"))
    if page:
        try:
            if parse_page(page) is None:
                found.append("ineffective_page")
        except ServerError:
            found.append("ineffective_page")
    return found


def _lost_bound(price: str) -> bool:
    """Whether the price, or a side of it that says something, has no effect ("PHP 100-200" only bounds from above)."""
    bounds = parse_price(price)
    if bounds == (None, None):
        return True
    sides = price.split("-")
    return any(side.strip() and bound is None for side, bound in zip(sides, bounds, strict=True))


def _json(text: Any) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)
