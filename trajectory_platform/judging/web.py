"""The web category: answer a question, then buy a product that mentions the answer (domain 2.3, upstream only).

The subnet dropped the category; the benchmark's test file still has it. The rules are ShoppingBench's: the rewarded
product itself is right; otherwise the answer must stand in the product's title or description, and the titles must
be similar (cosine >= 0.8; equal in a regime that compares texts; without an encoder this constraint disappears).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajectory_platform.judging.dialogue import message_of
from trajectory_platform.judging.titles import TitleRule
from trajectory_platform.sandbox.problems import WebRule

TITLE_THRESHOLD = 0.8


def web_fields(
    product: Mapping[str, Any] | None, rule: WebRule, said: str, titles: TitleRule, *, best_case: bool = False
) -> tuple[dict[str, float], bool]:
    """The score fields of a web problem, and whether its title could not be compared.

    Args:
        product: the document of the first recommended id, or None where there is none.
        said: every response of the dialogue (``responses``).
        best_case: take a title without a vector as similar instead of leaving the constraint out.

    Returns:
        product, gt, rule (mean of kw and title), kw, title, response. The last is 1 too where the product mentions
        the answer, as upstream, and is no part of success.

    Raises:
        TypeError, KeyError, AttributeError: a document without a title.
    """
    fields = dict.fromkeys(("product", "gt", "rule", "kw", "title", "response"), 0.0)
    unknown = False
    word = rule.keyword.lower()
    if product is not None:
        fields["product"] = 1.0
        if product["product_id"] == rule.product_id:
            fields.update(gt=1.0, rule=1.0, kw=1.0, title=1.0)
        else:
            fields["kw"] = float(word in product["title"].lower() or word in _text(product.get("description")).lower())
            similar = None if rule.title is None else titles.similar(product["title"], rule.title, TITLE_THRESHOLD)
            unknown = similar is None and rule.title is not None and titles.encoder is not None
            similar = True if unknown and best_case else similar
            fields["title"] = float(similar is True)
            fields["rule"] = fields["kw"] if similar is None else (fields["kw"] + fields["title"]) / 2
    fields["response"] = max(fields["kw"], float(word in said.lower()))
    return fields, unknown


def responses(steps: list[Any]) -> str:
    """What the agent answered, step by step."""
    messages = (message_of(step) for step in steps)
    return "\n".join(_text(message.get("response")) for message in messages if isinstance(message, dict))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
