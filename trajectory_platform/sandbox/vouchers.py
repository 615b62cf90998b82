"""The voucher that a query describes, and what is wrong with the published object (domain 2.3, 2.5, 4.1)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trajectory_platform.sandbox.queries import visible_text

if TYPE_CHECKING:
    from trajectory_platform.sandbox.problems import Problem

_NUMBER = r"`?(\d+(?:\.\d+)?)`?"
_VOUCHER_TAIL = re.compile(
    rf"my budget is only {_NUMBER}, but i have a voucher with the following rules:\s*"
    r"1\. the voucher (?P<scope>applies to all products|only applies to the products from the same shop)\.\s*"
    rf"2\. it is valid only when the total price of the products exceeds {_NUMBER}\.\s*"
    rf"3\. it provides a (?:fixed discount of {_NUMBER}"
    r"|percentage discount of `?(\d+(?:\.\d+)?)%`?(?: with a cap of `?(\d+(?:\.\d+)?)`?)?)\.",
    re.IGNORECASE,
)
TOLD_FIELDS = ("voucher_type", "discount_type", "threshold", "face_value", "discount", "cap", "budget")


def parse_voucher_text(query: str) -> dict[str, Any] | None:
    """The voucher that the fixed tail of a voucher query describes (domain 4.1), or None without such a tail.

    Returns ``voucher_type`` (platform, shop), ``discount_type`` (fixed, percentage), ``threshold``, ``face_value``
    and ``cap`` in PHP, ``discount`` as a share, and ``budget`` in PHP. What the text does not name is None;
    ``price_after_voucher`` is never in it.
    """
    if query.isascii() and "budget" not in query.lower():
        return None  # most queries; reading the others costs more
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


def voucher_faults(problem: Problem) -> list[str]:
    """What is wrong with a problem's voucher, as reason codes; empty when text and object agree.

    ``voucher_missing`` (a public voucher problem without an object: the reference scorer raises),
    ``voucher_text_missing`` (an object, but no readable tail in the query), ``voucher_differs_FIELD`` (text and object
    disagree), and those of ``voucher_object_faults``. A voucher derived from the text has nothing to disagree with.
    """
    if problem.voucher is None:
        expected = problem.category == "voucher" and problem.reward_state == "public"
        return ["voucher_missing"] if expected or parse_voucher_text(problem.query or "") else []
    if problem.voucher_derived:
        return []
    faults = voucher_object_faults(problem.voucher)
    told = parse_voucher_text(problem.query or "")
    if told is None:
        return [*faults, "voucher_text_missing"]
    return faults + [
        f"voucher_differs_{name}" for name in TOLD_FIELDS if not _same_value(problem.voucher.get(name), told[name])
    ]


def voucher_object_faults(voucher: Mapping[str, Any]) -> list[str]:
    """What the reference scorer could not calculate with (domain 2.5): ``voucher_type_unknown``,
    ``voucher_discount_type_unknown``, and ``voucher_FIELD_not_a_number`` for a value that its rule needs."""
    faults = [] if voucher.get("voucher_type") in ("platform", "shop") else ["voucher_type_unknown"]
    kind = voucher.get("discount_type")
    needed = ["budget", "threshold"]
    if kind == "fixed":
        needed.append("face_value")
    elif kind == "percentage":
        needed += ["discount", "cap"]
    else:
        faults.append("voucher_discount_type_unknown")
    return faults + [f"voucher_{name}_not_a_number" for name in needed if not _is_number(voucher.get(name))]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _same_value(published: Any, told: Any) -> bool:
    if isinstance(told, float):
        return _is_number(published) and abs(published - told) < 1e-9
    return bool(published == told)
