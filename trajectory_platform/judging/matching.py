"""One recommended product against one reward: the constraint rule of domain 2.2.

When titles are similar is decided in ``judging.titles``, when an attribute is met in ``judging.attributes``; both
exist in versions, and ``Rules`` holds the two that a score is made with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from trajectory_platform.judging.attributes import AttributeRule, attribute_rule, is_distinctive, wanted_pairs
from trajectory_platform.judging.embeddings import find_encoder
from trajectory_platform.judging.titles import TitleCounts, TitleRule, title_regime
from trajectory_platform.sandbox.problem_shapes import product_id_text

FIELDS = ("title", "price", "service", "sku & attrs")


class Rules(NamedTuple):
    """The versioned rules of a score.

    Attributes:
        name: what every score is stored with: ``normalised-1/exact-1``, ``sn15-1/none/exact-1``,
            ``sn15-guard-1/stored@1a2b3c4d/folded-2`` (title regime, encoder where one is used, attribute rule).
    """

    titles: TitleRule
    attributes: AttributeRule

    @property
    def name(self) -> str:
        return f"{self.titles.name}/{self.attributes.name}"


class RuleMatch(NamedTuple):
    """How one product meets one reward.

    Attributes:
        rule: share of the constraints that are met, in [0, 1]; titles that could not be compared are no constraints,
            as in the reference.
        best_case: the same with every such title taken as met; equal to ``rule`` where all could be compared.
        unknown: how many titles could not be compared.
        ground_truth: 1 for the rewarded product itself, else 0.
        shares: hit share per field in the order of FIELDS, 0 where the reward does not constrain it.
    """

    rule: float
    best_case: float
    unknown: int
    ground_truth: int
    shares: tuple[float, ...]


def find_rules(
    regime: str = "normalised",
    encoder: str = "none",
    attributes: str = "exact",
    *,
    published: Mapping[str, Any] | None = None,
) -> Rules:
    """The rules of three settings (``title_regime``, ``title_encoder``, ``attribute_rule``).

    An encoder that the regime does not use is checked for its spelling only.

    Args:
        published: title vectors of the suites, for the encoder ``stored`` (``embeddings.published_vectors``).

    Raises:
        Abort: an unknown name, or an encoder whose file, folder or packages are missing.
    """
    uses_encoder = title_regime(regime).threshold is not None
    found = find_encoder(encoder, load=uses_encoder, published=published)
    return Rules(TitleRule(regime, found), attribute_rule(attributes))


def match_product(product: Mapping[str, Any], reward: Mapping[str, Any], rules: Rules) -> RuleMatch:
    """Score one catalogue document against one reward (domain 2.2).

    The same id is exactly 1 whatever the fields say, and its title is the reward's by definition; otherwise hits /
    constraints, 0 without any constraint.

    Raises:
        TypeError, KeyError, AttributeError: a value the arithmetic cannot use, e.g. a price stored as text. It is
            never guessed; the caller reports the trace as unscorable.
    """
    same = product["product_id"] == product_id_text(reward["product_id"])
    titles = _listed_titles(reward)
    if same:
        compared = TitleCounts(len(titles), 0, len(titles), 0)
    else:
        compared = rules.titles.compare(product["title"], titles)
    pairs = wanted_pairs(reward)
    options = (rules.attributes.best(pairs, product) if pairs else 0, len(pairs))
    others = (_prices(product, reward), _services(product, reward), options)
    counts = ((_title_hits(compared, others, pairs), compared.total), *others)
    shares = tuple(hit / total if total else 0.0 for hit, total in counts)
    if same:
        return RuleMatch(1.0, 1.0, 0, 1, shares)
    hits, total = sum(hit for hit, _ in counts), sum(total for _, total in counts)
    rule = hits / total if total else 0.0
    unknown = compared.unknown
    return RuleMatch(rule, (hits + unknown) / (total + unknown) if unknown else rule, unknown, 0, shares)


def number(value: Any, what: str) -> float:
    """A JSON number; text, null and ``bool`` raise TypeError (domain 6: 19, 24)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is no number")
    return value


def _title_hits(titles: TitleCounts, others: tuple[tuple[int, int], ...], pairs: list[tuple[Any, Any]]) -> int:
    """Similar titles, those in the guard band included where the band counts.

    It does when every other constraint is met, the other titles too, and one of them is distinctive: an option or
    attribute that is neither colour- nor material-like. Price and service never are.
    """
    if not titles.near or titles.hits + titles.near < titles.total:
        return titles.hits
    met = all(hit == total for hit, total in others)
    return titles.hits + titles.near if met and any(is_distinctive(key) for key, _ in pairs) else titles.hits


def _listed_titles(reward: Mapping[str, Any]) -> list[Any]:
    titles = reward.get("title") or []
    return [titles] if isinstance(titles, str) else titles


def _prices(product: Mapping[str, Any], reward: Mapping[str, Any]) -> tuple[int, int]:
    hits = total = 0
    for constraint in reward.get("price") or []:
        for mode, (low, high) in constraint.items():
            price = product["price"]
            total += 1
            if mode == "less than":
                hits += number(price, "price") <= number(high, "upper bound")
            elif mode == "greater than":
                hits += number(price, "price") >= number(low, "lower bound")
            elif mode == "between":
                hits += number(low, "lower bound") <= number(price, "price") <= number(high, "upper bound")
    return hits, total


def _services(product: Mapping[str, Any], reward: Mapping[str, Any]) -> tuple[int, int]:
    wanted = _listed(reward.get("service") or [], "service")
    offered = _listed(product["service"], "service") if wanted else ()
    return sum(service in offered for service in wanted), len(wanted)


def _listed(value: Any, what: str) -> list[Any]:
    """A JSON list. Text raises TypeError: taken letter by letter it would be a verdict about nothing."""
    if not isinstance(value, list):
        raise TypeError(f"{what} is no list")
    return value
