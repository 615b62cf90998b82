"""The seven tools of the shopping agent (domain 1.6): their schemas and what they answer.

``call_tool`` is the only door through which agents act. It never raises on bad input: whatever an agent sends,
the answer is a JSON value of the documented shape or ``{"error": text}``.

Texts, shapes and the requests inside composite tools are those of the reference agent (ORO-AI/oro,
``src/agent/agent.py``) as the published traces show them. Two things differ on purpose. The reference check never
looks into the SKU options (domain 8, note 8); here it sees them, as the tool's description says. And a later query of
``find_products_in_same_shop`` keeps its service filter in the first try, which the reference forgets. A plain
``find_product`` is one request: the reference agent's own second tries are the agent's, not the tool's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from trajectory_platform.sandbox.products import ProductCatalogue, attributes_of, options_of
from trajectory_platform.sandbox.search import SearchIndex, ServerError

MAX_SHOPS = 10
MAX_REQUIREMENTS = 50
MAX_QUERIES = 10
SUMMARY_ATTRIBUTES = 10
LARGEST_AMOUNT = 10**15  # PHP; sums and products stay finite
_SEARCH_PARAMETERS = ("q", "page", "shop_id", "price", "sort", "service")

Dispatch = Callable[[str, dict[str, Any], list[dict[str, Any]]], None]
"""Called for every request to the search server with (path, parameters, rows): the proxy's view of a tool call."""


@dataclass(frozen=True)
class World:
    """What the tools act on."""

    catalogue: ProductCatalogue
    index: SearchIndex


def _schema(name: str, description: str, required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": properties, "required": list(required)},
        },
    }


def _string(description: str, values: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"type": "string", "description": description} | ({"enum": list(values)} if values else {})


def _number(description: str, kind: str = "number") -> dict[str, Any]:
    return {"type": kind, "description": description}


TOOLS: list[dict[str, Any]] = [
    _schema(
        "find_product",
        "Search products by words. Returns up to 10 rows a page with id, shop, title, price, services and sales.",
        ("q",),
        q=_string("words to search for"),
        page=_number("page 1 to 5, default 1", "integer"),
        shop_id=_string("only this shop"),
        price=_string("price range in PHP as low-high; either side may be empty, e.g. 100- or -250"),
        sort=_string("order of the rows", ("priceasc", "pricedesc", "order", "default")),
        service=_string("comma-separated subset of official,freeShipping,COD,flashsale"),
    ),
    _schema(
        "view_product_information",
        "Details of products: descriptions, SKU options and attributes. No title, price or shop.",
        ("product_ids",),
        product_ids=_string("comma-separated product ids"),
    ),
    _schema(
        "check_product_match",
        "Check one product against required values.",
        ("product_id", "requirements"),
        product_id=_string("product id"),
        requirements=_string('JSON object of required values, e.g. {"color": "blue"}'),
    ),
    _schema(
        "find_products_in_same_shop",
        "Find one shop that sells a product for each query.",
        ("product_queries",),
        product_queries=_string('JSON list of queries, e.g. [{"q": "mug", "price": "50-100", "service": "COD"}]'),
    ),
    _schema(
        "calculate_voucher",
        "Total of the given prices with a voucher, compared with the budget.",
        ("product_prices", "voucher_type", "discount_value", "threshold", "budget"),
        product_prices=_string("comma-separated prices"),
        voucher_type=_string("kind of discount", ("fixed", "percentage")),
        discount_value=_number("amount in PHP, or percent"),
        threshold=_number("total from which the voucher applies"),
        budget=_number("money available"),
        cap=_number("largest discount of a percentage voucher, 0 for none"),
    ),
    _schema(
        "recommend_product",
        "Recommend products to the user, once, in the order of the request.",
        ("product_ids",),
        product_ids=_string("comma-separated product ids"),
    ),
    _schema(
        "terminate",
        "End the dialogue.",
        ("status",),
        status=_string("result", ("success", "failure")),
    ),
]


def call_tool(world: World, name: Any, arguments: Any, on_dispatch: Dispatch | None = None) -> Any:
    """The answer of one tool as a JSON value. Never raises on bad input.

    Args:
        name: one of the seven tools; anything else is an error result.
        arguments: an object; other types are an error result.
        on_dispatch: sees every request to the search server, also the inner ones of composite tools.
    """
    tool = _TOOLS.get(name) if isinstance(name, str) else None
    if tool is None:
        return {"error": f"unknown tool {name[:80]!r}" if isinstance(name, str) else "the tool's name must be text"}
    if not isinstance(arguments, Mapping):
        return {"error": f"arguments must be an object, not {type(arguments).__name__}"}
    try:
        return tool(_Server(world, on_dispatch), arguments)
    except (ServerError, _BadArgument) as error:
        return {"error": str(error)}


class _BadArgument(ValueError):
    """An argument the tool cannot use; its text becomes the error result."""


class _Server:
    """The search server as one call sees it: every request is reported, the client's page default is filled in."""

    def __init__(self, world: World, on_dispatch: Dispatch | None) -> None:
        self.world = world
        self._report = on_dispatch

    def find(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        sent = {name: params[name] for name in _SEARCH_PARAMETERS if params.get(name) is not None}
        sent.setdefault("page", 1)
        rows = self.world.index.find(sent)
        if self._report:
            self._report("find_product", sent, rows)
        return rows

    def view(self, product_ids: str) -> list[dict[str, Any]]:
        rows = self.world.index.view({"product_ids": product_ids})
        if self._report:
            self._report("view_product_information", {"product_ids": product_ids}, rows)
        return rows


def _find_product(server: _Server, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One search. ``default`` is a word of the tools, not of the server: the client leaves it out."""
    sent = dict(arguments)
    for name in _SEARCH_PARAMETERS:
        value = sent.get(name)
        if value is not None and _plain_text(value) is None:
            raise _BadArgument(f"{name} must be text")
    if sent.get("sort") == "default":
        del sent["sort"]
    service = sent.get("service")
    if service == "default":
        del sent["service"]
    elif isinstance(service, str) and "default" in service:
        sent["service"] = ",".join(part for part in service.split(",") if part != "default")
    return server.find(sent)


def _view(server: _Server, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    return server.view(_text(arguments, "product_ids"))


def _recommend(server: _Server, arguments: Mapping[str, Any]) -> str:
    """The confirmation repeats the ids as they were given; what is scored is another matter (domain 2.1)."""
    return f"Having recommended the products to the user: {_text(arguments, 'product_ids')}."


def _terminate(server: _Server, arguments: Mapping[str, Any]) -> str:
    """Without a status it is a success: the reference tool's own default (case A01: models call it without any)."""
    status = "success" if arguments.get("status") is None else _text(arguments, "status")
    return f"The interaction has been completed with status: {status}"


def _check(server: _Server, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Substring test of every required value over attributes, SKU options and descriptions, ignoring case."""
    result: dict[str, Any] = {"matched": False, "matches": [], "mismatches": [], "product_summary": {}}
    try:
        product_id = _text(arguments, "product_id")
        rows = server.view(product_id)  # before the requirements are read, as the reference does
        requirements = _json(arguments.get("requirements"), "requirements", dict)
    except _BadArgument as error:
        return result | {"error": str(error)}
    if not requirements or len(requirements) > MAX_REQUIREMENTS:
        return result | {"error": f"requirements must name 1 to {MAX_REQUIREMENTS} values"}
    keys = [str(key) for key in requirements]
    if not rows:
        return result | {"mismatches": keys, "error": "Product not found"}
    row = rows[0]
    attributes = attributes_of(row)
    haystack = _haystack(row, attributes)
    by_key = {key.lower(): " ".join(values).lower() for key, values in reversed(attributes.items())}
    for key, wanted in zip(keys, requirements.values(), strict=True):
        values = [_plain_text(value) for value in (wanted if isinstance(wanted, list) else [wanted])]
        own = by_key.get(key.lower(), "")
        found = bool(values) and all(v is not None and (v.lower() in own or v.lower() in haystack) for v in values)
        result["matches" if found else "mismatches"].append(key)
    result["matched"] = not result["mismatches"]
    summary = row["attributes"]
    if isinstance(summary, Mapping):
        summary = dict(list(summary.items())[:SUMMARY_ATTRIBUTES])
    result["product_summary"] = {"product_id": row["product_id"], "attributes": summary}
    return result


def _haystack(row: Mapping[str, Any], attributes: Mapping[str, list[str]]) -> str:
    """Everything a check looks into, one value a line, lower case."""
    texts = [value for values in attributes.values() for value in values]
    texts += [value for option in options_of(row) for value in option.values()]
    texts.append(f"{row.get('short_description') or ''} {row.get('description') or ''}")
    return "\n".join(texts).lower()


def _same_shop(server: _Server, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The first of at most 10 shops with a hit for every query. The shops are those of the first query's first page,
    each with its best row there; only the other queries are searched inside the shop."""
    result: dict[str, Any] = {"found": False, "shop_id": None, "products": [], "shops_tried": 0}
    try:
        queries = _json(arguments.get("product_queries"), "product_queries", list)
    except _BadArgument as error:
        return result | {"error": str(error)}
    if not 1 <= len(queries) <= MAX_QUERIES or not all(_is_query(query) for query in queries):
        return result | {"error": f"product_queries must be 1 to {MAX_QUERIES} objects with a text q"}
    wanted = [
        {name: query[name] for name in ("q", "price", "service") if name == "q" or query.get(name)} for query in queries
    ]
    candidates: dict[Any, dict[str, Any]] = {}
    for row in server.find(wanted[0]):
        if row["shop_id"]:
            candidates.setdefault(row["shop_id"], row)
    if not candidates:
        return result | {"error": f"No results for first product: {wanted[0]['q'][:80]}"}
    for shop_id, first in list(candidates.items())[:MAX_SHOPS]:
        result["shops_tried"] += 1
        rows = [first]
        for query in wanted[1:]:
            hit = _in_shop(server, query, shop_id)
            if hit is None:
                break
            rows.append(hit)
        if len(rows) == len(wanted):
            products = [{name: row[name] for name in ("product_id", "title", "price", "shop_id")} for row in rows]
            return result | {"found": True, "shop_id": shop_id, "products": products}
    return result | {"error": f"Could not find all {len(wanted)} products in any single shop"}


def _in_shop(server: _Server, query: dict[str, Any], shop_id: Any) -> dict[str, Any] | None:
    """The best row for a query in one shop: as asked, then without the service, then its first two words, then its
    first. A try is sent even when it equals the one before it, as published logs show."""
    words = query["q"].split()
    two, one = " ".join(words[:2]), words[0] if words else query["q"]
    lighter = {name: value for name, value in query.items() if name != "service"} | {"shop_id": shop_id}
    tries = [{**query, "shop_id": shop_id}, lighter]
    tries += [{**lighter, "q": two}] if two != query["q"] else []
    tries += [{**lighter, "q": one}] if one != two else []
    for sent in tries:
        if rows := server.find(sent):
            return rows[0]
    return None


def _voucher(server: _Server, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Pure arithmetic: no request to the server.

    In the shared days the tool wants the total to *exceed* the threshold, as the problem text says; the scorer also
    accepts equality (domain 2.3), and so do the reference agents whose source is public. The data at hand decides.
    """
    prices = [_amount(part, "product_prices") for part in _text(arguments, "product_prices").split(",")]
    kind = arguments.get("voucher_type")
    if kind not in ("fixed", "percentage"):
        raise _BadArgument("voucher_type must be fixed or percentage")
    value, threshold, budget = (_number_of(arguments, name) for name in ("discount_value", "threshold", "budget"))
    cap = _number_of(arguments, "cap") if arguments.get("cap") is not None else 0
    before = sum(prices)
    applied = before > threshold
    discount: float = 0.0
    if applied and kind == "fixed":
        discount = value
    elif applied:
        discount = before * value / 100
        discount = round(min(discount, cap) if cap > 0 else discount, 2)
    after = round(max(before - discount, 0.0), 2)
    return {
        "prices": prices,
        "total_before": round(before, 2),
        "discount_amount": discount,
        "total_after": after,
        "within_budget": after <= budget,
        "voucher_applied": applied,
        "budget": budget,
    }


_TOOLS: dict[str, Callable[[_Server, Mapping[str, Any]], Any]] = {
    "find_product": _find_product,
    "view_product_information": _view,
    "check_product_match": _check,
    "find_products_in_same_shop": _same_shop,
    "calculate_voucher": _voucher,
    "recommend_product": _recommend,
    "terminate": _terminate,
}


def _text(arguments: Mapping[str, Any], name: str) -> str:
    """A required text argument; whole numbers are read as text, everything else is refused."""
    value = arguments.get(name)
    text = _plain_text(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if text is None:
        raise _BadArgument(f"{name} is missing" if value is None else f"{name} must be text")
    return text


def _plain_text(value: Any) -> str | None:
    """Text and numbers as text; None for null, for containers, and for numbers too long to be written."""
    if isinstance(value, str):
        return value
    try:
        return str(value) if isinstance(value, int | float) else None
    except ValueError:  # more digits than the interpreter writes
        return None


def _json(value: Any, name: str, kind: type) -> Any:
    """A JSON argument given as text (as documented) or already decoded."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except ValueError as error:
            raise _BadArgument(f"{name} is not valid JSON") from error
    if not isinstance(value, kind):
        raise _BadArgument(f"{name} must be a JSON {'object' if kind is dict else 'list'}")
    return value


def _is_query(query: Any) -> bool:
    return (
        isinstance(query, dict)
        and all(query.get(name) is None or isinstance(query[name], str) for name in ("price", "service"))
        and isinstance(query.get("q"), str)
    )


def _number_of(arguments: Mapping[str, Any], name: str) -> float:
    """A required number, also as text; integers stay integers."""
    value = arguments.get(name)
    if isinstance(value, str):
        return _amount(value, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_AMOUNT:
        raise _BadArgument(f"{name} must be a number from 0 to {LARGEST_AMOUNT}")
    return value


def _amount(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise _BadArgument(f"{name}: {text[:40]!r} is no number") from error
    if not 0 <= value <= LARGEST_AMOUNT:  # NaN is refused too
        raise _BadArgument(f"{name}: {text[:40]!r} is no amount of money")
    return value
