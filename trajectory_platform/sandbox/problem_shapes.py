"""The published shapes of a problem, field by field: how each is read and what is wrong with one (domain 4.1, 4.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

ANSWER_FIELD = "Knowledge_Attribute"
EMBEDDINGS_FIELD = "reward_title_embeddings"
CATEGORIES = ("product", "shop", "voucher", "web")


def fields_of(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where query and reward stand: in ``metadata`` (API, ``suite.json``) or at the top level (suite files)."""
    nested = item.get("metadata")
    return nested if isinstance(nested, Mapping) else item


def product_id_text(value: Any) -> str | None:
    """A product id as text; whole numbers are accepted, ``bool`` and blanks are not."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value)
    return value.strip() or None if isinstance(value, str) else None


def id_text(value: Any) -> str | None:
    """An id that sources give as a number or as text (``suite_id``), as text."""
    if isinstance(value, bool) or value is None:
        return None
    return str(value).strip() or None if isinstance(value, int | str) else None


def answer_text(value: Any) -> str | None:
    """A knowledge answer as text: 11 of the 150 published ones are integers (domain 4.2, case 49).

    Blanks around it stay: the published scorer looks for the answer with them ("1977 " is one).
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value)
    return text if text.strip() else None


def reward_list(reward: Any) -> list[dict[str, Any]] | None:
    """A reward object or list as a list of objects that each name a product; None when it cannot be read."""
    entries = [reward] if isinstance(reward, Mapping) else reward
    if not isinstance(entries, list) or not entries:
        return None
    if all(isinstance(entry, Mapping) and product_id_text(entry.get("product_id")) for entry in entries):
        return [dict(entry) for entry in entries]
    return None


def category_of(fields: Mapping[str, Any], voucher: object) -> str:
    """The stated category in lower case; ShoppingBench rows state none, there the shape says it. ``""`` if unknown."""
    stated = fields.get("category")
    if isinstance(stated, str) and stated.strip():
        return stated.strip().lower()
    if answer_text(fields.get(ANSWER_FIELD)) is not None:
        return "web"
    if voucher is not None:
        return "voucher"
    reward = fields.get("reward")
    if isinstance(reward, list):
        return "shop"
    return "product" if isinstance(reward, Mapping) else ""


def title_embeddings_of(item: Mapping[str, Any]) -> dict[str, list[float]]:
    """The stored vectors of the reward titles, title -> floats (1,024 of them in suites v2 and later); mostly empty.

    They are 20 KB a title, so no table carries them: a scorer that wants them reads the suite file. A vector that is
    no list of finite numbers is left out (``item_faults`` names it).
    """
    found = fields_of(item).get(EMBEDDINGS_FIELD)
    if not isinstance(found, Mapping):
        return {}
    return {str(title): list(map(float, vector)) for title, vector in found.items() if _is_vector(vector)}


def item_faults(item: Any) -> list[str]:
    """What is wrong with one published problem, as reason codes in a fixed order; empty for a sound one.

    ``not_an_object``; ``query_missing``, ``query_not_text``; ``category_unknown``; ``reward_empty``,
    ``reward_not_an_object``, ``reward_without_product_id``; ``reward_not_a_list`` (a shop or voucher problem whose
    reward is an object makes the reference scorer raise, domain 2.5); ``voucher_not_an_object``; ``answer_missing``,
    ``answer_not_text`` (web); ``title_embeddings_unreadable``. A missing reward is no fault: it is hidden. The
    voucher's own are in ``vouchers.voucher_faults``.
    """
    if not isinstance(item, Mapping):
        return ["not_an_object"]
    fields = fields_of(item)
    voucher = fields.get("voucher")
    category = category_of(fields, voucher)
    faults = _query_faults(fields.get("query"))
    if category and category not in CATEGORIES:
        faults.append("category_unknown")
    faults += _reward_faults(fields.get("reward"), category)
    if voucher is not None and not isinstance(voucher, Mapping):
        faults.append("voucher_not_an_object")
    answer = fields.get(ANSWER_FIELD)
    if answer is not None and answer_text(answer) is None:
        faults.append("answer_not_text")
    elif answer is None and category == "web":
        faults.append("answer_missing")
    embeddings = fields.get(EMBEDDINGS_FIELD)
    if embeddings is not None and not (isinstance(embeddings, Mapping) and all(map(_is_vector, embeddings.values()))):
        faults.append("title_embeddings_unreadable")
    return faults


def _query_faults(query: Any) -> list[str]:
    if query is None:
        return ["query_missing"]
    if not isinstance(query, str):
        return ["query_not_text"]
    return [] if query.strip() else ["query_missing"]


def _reward_faults(reward: Any, category: str) -> list[str]:
    if reward is None:
        return []
    entries = [reward] if isinstance(reward, Mapping) else reward
    if not isinstance(entries, list):
        return ["reward_not_an_object"]
    if not entries:
        return ["reward_empty"]
    faults = []
    if not all(isinstance(entry, Mapping) for entry in entries):
        faults.append("reward_not_an_object")
    elif reward_list(reward) is None:
        faults.append("reward_without_product_id")
    if isinstance(reward, list) and category in ("product", "web"):
        faults.append("reward_not_an_object")
    if isinstance(reward, Mapping) and category in ("shop", "voucher"):
        faults.append("reward_not_a_list")
    return list(dict.fromkeys(faults))


def _is_vector(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in value)
    )
