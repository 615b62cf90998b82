"""The outcome axis: the reference's rule score of one dialogue (domain 2.1 to 2.3, 2.5).

The score never looks at the reasoning verdict, and a hidden reward is not a failure: it is ``unscorable``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from trajectory_platform.judging import dialogue, protocol
from trajectory_platform.judging.matching import FIELDS, TitleRegime, match_product, number
from trajectory_platform.judging.matching import title_regime as find_regime

if TYPE_CHECKING:
    from trajectory_platform.sandbox.problems import Problem

SCORER_VERSION = "rule-1"
_SEVERAL = ("shop", "voucher")  # categories whose reward is a list, compared position by position


class Products(Protocol):
    """What the scorer needs of ``sandbox.products.Catalogue``."""

    def get(self, product_id: str, /) -> Any: ...


@dataclass(frozen=True)
class OutcomeScore:
    """One scored dialogue.

    Attributes:
        outcome: success, failure or unscorable.
        success: None when undecided; False where the reference raises, because the subnet counts "no score" as a
            failure (domain 2.3), although the outcome stays unscorable.
        reason: why unscorable (``reward_hidden``, ``reward_invalid``, ``no_catalogue``, ``empty_dialogue``,
            ``category_not_scored`` or ``scorer_raised:{exception of the reference}``); None otherwise.
        detail: free text to the reason.
        score: the reference's fields: length, format and, where a product was found, product, gt, rule, title,
            price, service, "sku & attrs", plus shop or budget. ``{}`` where the reference raises.
        recommended_ids: strict reading; lenient_ids: lists and numbers accepted.
        hallucinated_ids: recommended, in no result of the trace.
        unviewed_ids: recommended and seen, but on no detail page.
        not_in_catalogue_ids: recommended, unknown to the catalogue (empty without a catalogue).
        discipline: violations of the recommend-then-terminate protocol.
    """

    outcome: str
    success: bool | None
    reason: str | None
    detail: str | None
    score: dict[str, float]
    recommended_ids: list[str]
    lenient_ids: list[str]
    hallucinated_ids: list[str]
    unviewed_ids: list[str]
    not_in_catalogue_ids: list[str]
    discipline: list[str] = field(default_factory=list)

    @property
    def format(self) -> float | None:
        return self.score.get("format")

    @property
    def length(self) -> float | None:
        return self.score.get("length")


def score(
    steps: list[Any], problem: Problem | None, catalogue: Products | None, *, title_regime: str = "normalised"
) -> OutcomeScore:
    """Score a dialogue against its problem.

    Args:
        steps: the dialogue as read (domain 1.4); NaN is allowed, it passes as a timestamp as in the reference.
        problem: None or a hidden reward gives ``unscorable: reward_hidden``.
        catalogue: product documents by id; None gives ``unscorable: no_catalogue``.

    Never raises for any dialogue; an unknown title regime aborts.
    """
    regime = find_regime(title_regime)
    calls = dialogue.read_calls(steps)
    ids = dialogue.strict_ids(steps)
    seen = dialogue.seen_ids(calls, steps)
    hallucinated = [name for name in ids if not seen.shows(name)]
    unseen = frozenset(hallucinated)  # a list of thousands of ids must not be searched once per id
    lenient = dialogue.lenient_ids(calls)
    values: dict[str, float] = {}
    reason = detail = None
    success: bool | None = None
    try:
        if not steps:
            raise _Undecided("empty_dialogue", "the agent delivered no step")
        values["length"] = protocol.length_score(steps)
        values["format"] = protocol.format_score(steps)
        success = _decide(values, ids, problem, catalogue, regime)
    except protocol.ScorerFault as fault:
        values, success, reason, detail = {}, False, f"scorer_raised:{fault.kind}", fault.detail
    except _Undecided as undecided:
        reason, detail = undecided.reason, undecided.detail
    except (TypeError, KeyError, AttributeError, ValueError, ArithmeticError) as error:
        # The reference raises on these values too (domain 2.5); its exception is part of the reason.
        values, success, reason, detail = {}, False, f"scorer_raised:{type(error).__name__}", str(error)
    return OutcomeScore(
        outcome="unscorable" if reason else "success" if success else "failure",
        success=success,
        reason=reason,
        detail=detail,
        score=values,
        recommended_ids=ids,
        lenient_ids=lenient,
        hallucinated_ids=hallucinated,
        unviewed_ids=[name for name in ids if name not in seen.viewed and name not in unseen],
        not_in_catalogue_ids=[] if catalogue is None else [name for name in ids if not catalogue.get(name)],
        discipline=dialogue.discipline(calls, lenient, len(steps)),
    )


class _Undecided(Exception):
    """No rule score is possible, for a reason that is ours and not the reference's."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def _decide(
    values: dict[str, float],
    ids: list[str],
    problem: Problem | None,
    catalogue: Products | None,
    regime: TitleRegime,
) -> bool:
    """Add the product fields to ``values`` and return whether the category's success rule holds (domain 2.3)."""
    if problem is None or problem.reward_state == "hidden":
        raise _Undecided("reward_hidden", "no published reward for this problem")
    if problem.reward is None:
        raise _Undecided("reward_invalid", "the published reward cannot be read")
    if problem.category == "web":
        raise _Undecided("category_not_scored", "web problems are not part of the subnet's scorer")
    if catalogue is None:
        raise _Undecided("no_catalogue", "no product documents to score against")
    if problem.category not in _SEVERAL:
        found = _add_products(values, ids[:1], problem.reward[:1], catalogue, regime)
        return bool(found) and values["rule"] >= 1
    if isinstance(problem.reward_raw, Mapping) and any(catalogue.get(name) for name in ids[: len(problem.reward_raw)]):
        raise protocol.ScorerFault("TypeError", f"{problem.category} reward is an object")
    for name in ("product", "gt", "rule", *FIELDS):
        values[name] = 0.0
    hits = _add_products(values, ids, problem.reward, catalogue, regime)
    size = len(problem.reward)
    for name in ("product", "gt", "rule", *FIELDS):
        values[name] /= size
    shops = {product["shop_id"] for product in hits}
    complete = len(hits) == size
    if problem.category == "shop":
        values["shop"] = 1 if complete and len(shops) == 1 else 0
        return values["rule"] >= 1 and values["shop"] >= 1
    values["budget"] = 1 if complete and _within_budget(hits, problem.voucher, len(shops)) else 0
    return values["rule"] >= 1 and values["budget"] >= 1


def _add_products(
    values: dict[str, float],
    ids: list[str],
    rewards: list[dict[str, Any]],
    catalogue: Products,
    regime: TitleRegime,
) -> list[Mapping[str, Any]]:
    """Sum the fields over the positions; returns the products with a rule score above 0, in order."""
    hits = []
    for product_id, reward in zip(ids, rewards, strict=False):
        product = catalogue.get(product_id)
        if not product:
            continue
        match = match_product(product, reward, regime)
        added = (
            ("product", 1.0),
            ("gt", match.ground_truth),
            ("rule", match.rule),
            *zip(FIELDS, match.shares, strict=True),
        )
        for name, value in added:
            values[name] = values.get(name, 0.0) + value
        if match.rule > 0:
            hits.append(product)
    return hits


def _within_budget(products: list[Mapping[str, Any]], voucher: Mapping[str, Any] | None, shops: int) -> bool:
    """Whether the products fit the budget, with the voucher where it is needed and applies (domain 2.3).

    Equality with the threshold is accepted although the text says "exceeds". Raises on a null voucher, an unknown
    discount type or a missing number, as the reference does.
    """
    total = sum(number(product["price"], "price") for product in products)
    if voucher is None:
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
    raise ValueError(f"unknown discount type {voucher['discount_type']!r}")
