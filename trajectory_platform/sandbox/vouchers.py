"""The voucher that a query describes, to check the published object against (domain 4.1)."""

from __future__ import annotations

import re
from typing import Any

from trajectory_platform.sandbox.problems import Problem
from trajectory_platform.sandbox.queries import visible_text

_NUMBER = r"`?(\d+(?:\.\d+)?)`?"
_VOUCHER_TAIL = re.compile(
    rf"my budget is only {_NUMBER}, but i have a voucher with the following rules:\s*"
    r"1\. the voucher (?P<scope>applies to all products|only applies to the products from the same shop)\.\s*"
    rf"2\. it is valid only when the total price of the products exceeds {_NUMBER}\.\s*"
    rf"3\. it provides a (?:fixed discount of {_NUMBER}"
    r"|percentage discount of `?(\d+(?:\.\d+)?)%`?(?: with a cap of `?(\d+(?:\.\d+)?)`?)?)\.",
    re.IGNORECASE,
)


def parse_voucher_text(query: str) -> dict[str, Any] | None:
    """The voucher that the fixed tail of a voucher query describes (domain 4.1), or None without such a tail.

    Returns ``voucher_type``, ``discount_type``, ``threshold``, ``face_value``, ``discount`` (share), ``cap`` and
    ``budget``. ``price_after_voucher`` is not in the text. A check on the published object, never its replacement.
    """
    match = _VOUCHER_TAIL.search(visible_text(query))
    if match is None:
        return None
    budget, scope, threshold, fixed, percent, cap = match.groups()
    return {
        "voucher_type": "platform" if scope.lower().startswith("applies") else "shop",
        "discount_type": "fixed" if fixed is not None else "percentage",
        "threshold": float(threshold),
        "face_value": None if fixed is None else float(fixed),
        "discount": None if percent is None else float(percent) / 100,
        "cap": None if cap is None else float(cap),
        "budget": float(budget),
    }


def voucher_mismatches(problem: Problem) -> list[str]:
    """Voucher fields in which the query text and the published object differ; empty when they agree.

    ``["no_text"]`` when the query has no readable voucher tail, ``["no_voucher"]`` when only the text has one.
    """
    told = parse_voucher_text(problem.query or "")
    if problem.voucher is None:
        return ["no_voucher"] if told else []
    if told is None:
        return ["no_text"]
    return [name for name, value in told.items() if not _same_value(problem.voucher.get(name), value)]


def _same_value(published: Any, told: Any) -> bool:
    if isinstance(published, bool):
        return False
    if isinstance(published, int | float) and isinstance(told, float):
        return abs(published - told) < 1e-9
    return bool(published == told)
