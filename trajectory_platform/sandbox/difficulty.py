"""How hard a problem is, where the source does not say: the tiers of the published suites (domain 4.1).

The thresholds are those of the subnet's own suite selection (ORO-AI/oro, ``scripts/select_launch_problems.py``). They
give the stated tier of all 90 problems of the suites v1 to v3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TIERS = ("easy", "medium", "hard")
# The largest count that is still easy, and still medium.
_PRODUCT = (4, 6)
_SHOP = (2, 3)
_VOUCHER = (2, 4)


def difficulty_of(category: str, reward: Sequence[Mapping[str, Any]] | None, voucher: object) -> str | None:
    """``easy``, ``medium`` or ``hard``; None for web problems, unknown categories and hidden rewards.

    Args:
        category: lower case.
        reward: the reward objects, as ``Problem.reward``.
        voucher: the voucher object of a voucher problem.

    Product: number of constraints, id and title included. Shop: number of products. Voucher: number of products, one
    more for a voucher of one shop, one more for a percentage.
    """
    if not reward:
        return None
    if category == "product":
        return _tier(constraint_count(reward[0]), _PRODUCT)
    if category == "shop":
        return _tier(len(reward), _SHOP)
    if category == "voucher" and isinstance(voucher, Mapping):
        of_one_shop = voucher.get("voucher_type") == "shop"
        percentage = voucher.get("discount_type") == "percentage"
        return _tier(len(reward) + of_one_shop + percentage, _VOUCHER)
    return None


def constraint_count(reward: Mapping[str, Any]) -> int:
    """Constraints of one reward object: its id and its title, and every entry of SKU options, attributes, price and
    service. A service given as plain text is one."""
    count = sum(1 for name in ("product_id", "title") if name in reward)
    for name in ("sku_options", "attributes", "price", "service"):
        value = reward.get(name)
        count += len(value) if isinstance(value, list) else int(name == "service" and bool(value))
    return count


def _tier(count: int, limits: tuple[int, int]) -> str:
    return TIERS[sum(count > limit for limit in limits)]
