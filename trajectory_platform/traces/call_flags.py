"""What is odd about a call that was made: filters the server ignores in silence, tools nobody published.

The model learns that a constraint was applied when it was not (domain 3; 6, items 20, 21, 56). Only flags: the call
stays what the model wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INEFFECTIVE_FILTER = "ineffective_filter"
UNKNOWN_SERVICE = "unknown_service"
UNKNOWN_TOOL = "unknown_tool"

_UPSTREAM_ONLY = frozenset({"web_search", "python_execute"})  # domain 1.6


def call_flags(name: str, arguments: Mapping[str, Any], published: frozenset[str]) -> list[str]:
    """Flags of one call.

    Args:
        name: tool name as written.
        arguments: decoded arguments.
        published: names of the tools the agent could use.
    """
    if name not in published and name not in _UPSTREAM_ONLY:
        return [UNKNOWN_TOOL]
    return _search_flags(arguments) if name == "find_product" else []


def _search_flags(arguments: Mapping[str, Any]) -> list[str]:
    from trajectory_platform.sandbox.products import SERVICES
    from trajectory_platform.sandbox.search import parse_price

    flags = []
    price, service = arguments.get("price"), arguments.get("service")
    if isinstance(price, int | float | str) and not isinstance(price, bool) and str(price).strip():
        bounds = parse_price(str(price))
        if bounds.low is None and bounds.high is None:
            flags.append(INEFFECTIVE_FILTER)
    names = service if isinstance(service, list) else service.split(",") if isinstance(service, str) else []
    if any(name not in SERVICES for name in names if name not in ("", "default")):
        flags.append(UNKNOWN_SERVICE)
    return flags
