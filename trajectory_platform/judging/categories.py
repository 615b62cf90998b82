"""When a recommendation succeeds: the rule of each category (domain 2.3), on top of product against reward.

An unknown category is scored like ``product``, as in the reference. Web problems, which only upstream scores, are in
``judging.web``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trajectory_platform.judging.matching import FIELDS, RuleMatch, Rules, number
from trajectory_platform.judging.protocol import ScorerFault
from trajectory_platform.judging.web import web_fields
from trajectory_platform.sandbox.problems import Problem, web_rule

Lookup = Callable[[str, dict[str, Any]], tuple[Any, RuleMatch] | None]
Documents = Callable[[str], Any]

_SEVERAL = ("shop", "voucher")  # categories whose reward is a list, compared position by position
_SUMMED = ("product", "gt", "rule", *FIELDS)


class Undecided(Exception):
    """No rule score is possible, for a reason that is ours and not the reference's."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


@dataclass
class Scored:
    """The score fields of one recommendation while they are added up.

    Attributes:
        values: field -> value, the reference's names.
        best_case: every title that could not be compared is taken as similar.
        unknown_titles: how many could not be compared.
    """

    values: dict[str, float] = field(default_factory=dict)
    best_case: bool = False
    unknown_titles: int = 0


def decide(
    scored: Scored, ids: list[str], problem: Problem, said: str, rules: Rules, match: Lookup, document: Documents
) -> bool:
    """Add the product fields to ``scored.values``; whether the category's success rule holds.

    Args:
        ids: recommended ids in order, blanks and repeats gone.
        said: the agent's responses (web only).
        match: (product id, reward) -> document and match, None for an unknown id.
        document: product id -> document or None.

    Raises:
        Undecided: ``reward_invalid``, ``answer_missing``.
        ScorerFault, TypeError, KeyError, AttributeError, ArithmeticError: where the reference raises, too.
    """
    if problem.reward is None:
        raise Undecided("reward_invalid", "the published reward cannot be read")
    if problem.category == "web":
        return _decide_web(scored, ids, problem, said, rules, document)
    if problem.category not in _SEVERAL:
        if isinstance(problem.reward_raw, list) and ids and document(ids[0]):
            raise ScorerFault("TypeError", f"{problem.category or 'product'} reward is a list")
        _add_products(scored, ids[:1], problem.reward[:1], rules, match)
        return scored.values.get("rule", 0.0) >= 1
    if isinstance(problem.reward_raw, Mapping) and any(document(name) for name in ids[: len(problem.reward_raw)]):
        raise ScorerFault("TypeError", f"{problem.category} reward is an object")
    scored.values.update(dict.fromkeys(_SUMMED, 0.0))
    hits = _add_products(scored, ids, problem.reward, rules, match)
    return _decide_several(scored.values, hits, problem, len(problem.reward))


def _decide_several(values: dict[str, float], hits: list[Mapping[str, Any]], problem: Problem, size: int) -> bool:
    shops = {product["shop_id"] for product in hits}
    total: float = 0
    if problem.category == "voucher":  # the reference adds up prices even where a position is missing
        total = sum(number(product["price"], "price") for product in hits)
    complete = len(hits) == size
    fits = complete and problem.category == "voucher" and within_budget(total, problem.voucher, len(shops))
    for name in _SUMMED:
        values[name] /= size
    if problem.category == "shop":
        values["shop"] = 1 if complete and len(shops) == 1 else 0
        return values["rule"] >= 1 and values["shop"] >= 1
    values["budget"] = 1 if fits else 0
    return values["rule"] >= 1 and values["budget"] >= 1


def _add_products(
    scored: Scored, ids: list[str], rewards: list[dict[str, Any]], rules: Rules, match: Lookup
) -> list[Mapping[str, Any]]:
    """Sum the fields over the positions; returns the products that fill their position, in order.

    A position is filled by a rule score above 0, upstream by any product that exists (domain 2.3).
    """
    hits = []
    values = scored.values
    for product_id, reward in zip(ids, rewards, strict=False):
        found = match(product_id, reward)
        if found is None:
            continue
        product, matched = found
        rule = matched.best_case if scored.best_case else matched.rule
        scored.unknown_titles += matched.unknown
        added = (1.0, matched.ground_truth, rule, *matched.shares)
        for name, value in zip(_SUMMED, added, strict=True):
            values[name] = values.get(name, 0.0) + value
        if rule > 0 or rules.titles.regime.any_product_hits:
            hits.append(product)
    return hits


def _decide_web(scored: Scored, ids: list[str], problem: Problem, said: str, rules: Rules, document: Documents) -> bool:
    rule = web_rule(problem)
    if rule is None:
        raise Undecided("answer_missing", "a web problem without its knowledge answer")
    product = document(ids[0]) if ids else None
    fields, unknown = web_fields(product or None, rule, said, rules.titles, best_case=scored.best_case)
    scored.values.update(fields)
    scored.unknown_titles += unknown
    return fields["rule"] >= 1


def within_budget(total: float, voucher: Mapping[str, Any] | None, shops: int) -> bool:
    """Whether a total fits the budget, with the voucher where it is needed and applies (domain 2.3).

    Equality with the threshold is accepted although the text says "exceeds". Unrounded floats.

    Args:
        total: PHP, before the voucher.
        shops: number of different shops.

    Raises:
        TypeError, KeyError: a null voucher, or one without a number that is needed, as in the reference.
        ScorerFault: an unknown discount type; the reference raises a bare ``Exception``.
    """
    if not voucher:
        raise TypeError("voucher is null")
    budget = number(voucher["budget"], "budget")
    if total <= budget:
        return True
    applies = voucher["voucher_type"] == "platform" or (voucher["voucher_type"] == "shop" and shops == 1)
    if not applies or total < number(voucher["threshold"], "threshold"):
        return False
    if voucher["discount_type"] == "fixed":
        return total - number(voucher["face_value"], "face_value") <= budget
    if voucher["discount_type"] == "percentage":
        share, cap = number(voucher["discount"], "discount"), number(voucher["cap"], "cap")
        return max(total * (1 - share), total - cap) <= budget
    raise ScorerFault("Exception", f"unknown discount type {voucher['discount_type']!r}")
