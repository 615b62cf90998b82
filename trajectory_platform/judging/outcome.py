"""The outcome axis: the reference's rule score of one dialogue (domain 2.1 to 2.3, 2.5), strictly and leniently.

The score never looks at the reasoning verdict, and a hidden reward is not a failure: it is ``unscorable``.
``score_batch`` scores many dialogues over one catalogue; what one product is worth against one reward is worked out
once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trajectory_platform.errors import RejectRow
from trajectory_platform.judging import dialogue, protocol
from trajectory_platform.judging.categories import Scored, Undecided, decide
from trajectory_platform.judging.matching import RuleMatch, Rules, find_rules, match_product
from trajectory_platform.judging.web import responses

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.sandbox.problems import Problem

SCORER_VERSION = "rule-3"
_MAX_MATCHES = 1 << 17  # product against reward, kept per scorer
# The reference raises on these too (domain 2.5); its exception becomes part of the reason.
_RAISED = (TypeError, KeyError, AttributeError, ValueError, ArithmeticError)


class Products(Protocol):
    """What the scorer needs of ``sandbox.products.Catalogue``."""

    def get(self, product_id: str, /) -> Any: ...


@dataclass(frozen=True)
class OutcomeScore:
    """One scored dialogue.

    Attributes:
        outcome: success, failure or unscorable, strictly as the reference reads the dialogue.
        success: None when undecided; False where the reference raises, because the subnet counts "no score" as a
            failure (domain 2.3), although the outcome stays unscorable.
        reason: why unscorable (``reward_hidden``, ``reward_invalid``, ``answer_missing``, ``no_catalogue``,
            ``empty_dialogue``, ``title_not_encoded``, a reason of ``jsontext.parse`` or
            ``scorer_raised:{exception of the reference}``); None otherwise.
        detail: free text to the reason.
        score: the reference's fields: length, format and, where a product was found, product, gt, rule, title,
            price, service, "sku & attrs", plus shop or budget; for web product, gt, rule, kw, title, response.
            ``{}`` where the reference raises.
        recommended_ids: strict reading; lenient_ids: see ``dialogue.lenient_ids``.
        lenient_success: what the same rules say of ``lenient_ids``. Only the reading of the dialogue is lenient: a
            tool_call given as one object or as JSON text, parameters given as JSON text, ids given as a list, a
            number, the text of a list or under ``product_id``, invisible characters around them; and a defect that
            makes the reference raise before it looks at the products (domain 2.5) does not matter. The last
            recommendation still wins, order and thresholds stay. True wherever ``success`` is; None where no
            reading helps (hidden reward, no catalogue, a price stored as text).
        lenient_score: the product fields behind ``lenient_success``, as in ``score``.
        hallucinated_ids: recommended, in no result of the trace.
        unviewed_ids: recommended and seen, but on no detail page.
        not_in_catalogue_ids: recommended, unknown to the catalogue (empty without a catalogue).
        discipline: violations of the recommend-then-terminate protocol.
        rules: name of the rules (``matching.Rules``).
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
    lenient_success: bool | None = None
    lenient_score: dict[str, float] = field(default_factory=dict)
    rules: str = ""

    @property
    def format(self) -> float | None:
        return self.score.get("format")

    @property
    def length(self) -> float | None:
        return self.score.get("length")

    @property
    def lenient_outcome(self) -> str:
        """``lenient_success`` in the words of ``outcome``."""
        return "unscorable" if self.lenient_success is None else "success" if self.lenient_success else "failure"


def score(
    steps: list[Any],
    problem: Problem | None,
    catalogue: Products | None,
    *,
    title_regime: str = "normalised",
    title_encoder: str = "none",
    attribute_rule: str = "exact",
) -> OutcomeScore:
    """Score one dialogue against its problem; for many, use ``score_batch`` or one ``Scorer``.

    Args:
        steps: the dialogue as read (domain 1.4); NaN is allowed, it passes as a timestamp as in the reference.
        problem: None or a hidden reward gives ``unscorable: reward_hidden``.
        catalogue: product documents by id; None gives ``unscorable: no_catalogue``.

    Never raises for any dialogue; unknown rules abort. An encoder is read once per process.
    """
    return Scorer(catalogue, _kept_rules(title_regime, title_encoder, attribute_rule)).score(steps, problem)


def score_batch(
    dialogues: Iterable[list[Any] | str | bytes | None] | pa.Array,
    problems: Sequence[Problem | None],
    catalogue: Products | None,
    *,
    title_regime: str = "normalised",
    title_encoder: str = "none",
    attribute_rule: str = "exact",
) -> list[OutcomeScore]:
    """Score many dialogues over one catalogue, in their order.

    Args:
        dialogues: parsed steps, or the JSON text of a step array (a text column such as ``source_steps``); a null
            is an empty dialogue, text that is no JSON array is unscorable with the reader's reason.
        problems: one per dialogue.

    Raises:
        Abort: unknown rules. No dialogue raises.
        ValueError: the two have different lengths.
    """
    return Scorer(catalogue, find_rules(title_regime, title_encoder, attribute_rule)).score_batch(dialogues, problems)


class Scorer:
    """A catalogue with the rules to score against, and what is already known of product against reward.

    Results are the same as one by one: a match depends on document, reward and rules alone. The catalogue must not
    change under a scorer.
    """

    def __init__(self, catalogue: Products | None, rules: Rules) -> None:
        self.rules = rules
        self._catalogue = catalogue
        # (id of the reward object, product id) -> (the reward, so that its id stays taken; document; match)
        self._matches: dict[tuple[int, str], tuple[Any, Any, RuleMatch]] = {}

    def score_batch(
        self, dialogues: Iterable[list[Any] | str | bytes | None] | pa.Array, problems: Sequence[Problem | None]
    ) -> list[OutcomeScore]:
        """See ``score_batch``."""
        values = dialogues.to_pylist() if hasattr(dialogues, "to_pylist") else dialogues
        return [self._score_any(value, problem) for value, problem in zip(values, problems, strict=True)]

    def score(self, steps: list[Any], problem: Problem | None) -> OutcomeScore:
        """See ``score``."""
        calls = dialogue.read_calls(steps)
        ids, lenient = dialogue.strict_ids(steps), dialogue.lenient_ids(calls)
        decided = self._strict(steps, ids, problem)
        if decided.success or not steps or (lenient == ids and not decided.before_products):
            tolerant = decided
        else:
            tolerant = self._decision({}, steps, lenient, problem)
        raised = tolerant.reason is not None and tolerant.reason.startswith("scorer_raised")
        seen = dialogue.seen_ids(calls, steps) if ids else None
        hallucinated = [name for name in ids if seen is not None and not seen.shows(name)]
        unseen = frozenset(hallucinated)  # a list of thousands of ids must not be searched once per id
        return OutcomeScore(
            outcome="unscorable" if decided.reason else "success" if decided.success else "failure",
            success=decided.success,
            reason=decided.reason,
            detail=decided.detail,
            score=decided.values,
            recommended_ids=ids,
            lenient_ids=lenient,
            hallucinated_ids=hallucinated,
            unviewed_ids=[name for name in ids if seen and name not in seen.viewed and name not in unseen],
            not_in_catalogue_ids=[] if self._catalogue is None else [name for name in ids if not self._product(name)],
            discipline=dialogue.discipline(calls, lenient, len(steps)),
            lenient_success=None if raised else tolerant.success,
            lenient_score={name: value for name, value in tolerant.values.items() if name not in ("length", "format")},
            rules=self.rules.name,
        )

    def _score_any(self, value: Any, problem: Problem | None) -> OutcomeScore:
        if isinstance(value, str | bytes):
            try:
                value = dialogue.read_text(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
            except RejectRow as error:
                return _unreadable(error.reason, error.detail, self.rules)
        if value is not None and not isinstance(value, list):
            return _unreadable("not_an_array", type(value).__name__, self.rules)
        return self.score(value or [], problem)

    def _strict(self, steps: list[Any], ids: list[str], problem: Problem | None) -> _Decision:
        if not steps:
            return _Decision(None, {}, "empty_dialogue", "the agent delivered no step")
        try:
            values = {"length": protocol.length_score(steps), "format": protocol.format_score(steps)}
        except protocol.ScorerFault as fault:
            return _Decision(False, {}, f"scorer_raised:{fault.kind}", fault.detail, before_products=True)
        return self._decision(values, steps, ids, problem)

    def _decision(
        self, values: dict[str, float], steps: list[Any], ids: list[str], problem: Problem | None
    ) -> _Decision:
        """The success rule of the problem's category on ``ids``; the product fields are added to ``values``.

        A title that could not be compared leaves the result open only where it decides: where every other
        constraint is met, so that a similar title would be a success and another one a failure.
        """
        if problem is None or problem.reward_state == "hidden":
            return _Decision(None, values, "reward_hidden", "no published reward for this problem")
        if self._catalogue is None and problem.reward is not None:
            return _Decision(None, values, "no_catalogue", "no product documents to score against")
        said = responses(steps) if problem.category == "web" else ""
        rest = (ids, problem, said, self.rules, self._match, self._product)
        scored = Scored(values)
        try:
            success = decide(scored, *rest)
            if scored.unknown_titles:
                if decide(Scored(best_case=True), *rest):
                    return _Decision(None, values, "title_not_encoded", f"{scored.unknown_titles} without a vector")
                success = False
        except protocol.ScorerFault as fault:
            return _Decision(False, {}, f"scorer_raised:{fault.kind}", fault.detail)
        except Undecided as undecided:
            return _Decision(None, values, undecided.reason, undecided.detail)
        except _RAISED as error:
            return _Decision(False, {}, f"scorer_raised:{type(error).__name__}", str(error))
        return _Decision(success, values)

    def _product(self, product_id: str) -> Any:
        return None if self._catalogue is None else self._catalogue.get(product_id)

    def _match(self, product_id: str, reward: dict[str, Any]) -> tuple[Any, RuleMatch] | None:
        """Document and match of an id, or None for an unknown one."""
        key = (id(reward), product_id)
        held = self._matches.get(key)
        if held is None:
            product = self._product(product_id)
            if not product:
                return None
            if len(self._matches) >= _MAX_MATCHES:
                self._matches.clear()
            held = self._matches[key] = (reward, product, match_product(product, reward, self.rules))
        return held[1], held[2]


class _Decision(NamedTuple):
    """One reading of a dialogue, decided; ``before_products``: the reference raises before it looks at a product."""

    success: bool | None
    values: dict[str, float]
    reason: str | None = None
    detail: str | None = None
    before_products: bool = False


@lru_cache(maxsize=8)
def _kept_rules(title_regime: str, title_encoder: str, attribute_rule: str) -> Rules:
    return find_rules(title_regime, title_encoder, attribute_rule)


def _unreadable(reason: str, detail: str, rules: Rules) -> OutcomeScore:
    """The score of a dialogue whose text cannot be read."""
    return OutcomeScore("unscorable", None, reason, detail, {}, [], [], [], [], [], rules=rules.name)
