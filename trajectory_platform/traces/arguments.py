"""The form in which the arguments of two calls are compared.

A model writes ``{"q": "yoga mat"}``; the proxy log says ``q=yoga+mat&page=1``. Both are the same call. The comparison
form folds what the transport changes (aliases, list or comma-separated text, plus signs and percent codes, numbers as
text, defaults, empty optionals) and nothing else (domain 1.5, 1.6, 6 items 4-6 and 16-18).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import orjson

CATALOGUE_TOOLS = frozenset(
    {
        "find_product",
        "view_product_information",
        "check_product_match",
        "find_products_in_same_shop",
        "calculate_voucher",
    }
)

_ALIASES = {
    "find_product": {"query": "q"},
    "view_product_information": {"product_id": "product_ids"},
    "recommend_product": {"product_id": "product_ids"},
    "check_product_match": {"product_ids": "product_id"},
    "web_search": {"query": "q"},
}
_DEFAULTS = {
    "find_product": {"page": "1", "sort": "default"},
    "calculate_voucher": {"cap": "0"},
    "terminate": {"status": "success"},
}
_PLUS = re.compile(r"\++")


def normalise_arguments(tool: str, arguments: Mapping[str, Any]) -> str:
    """Comparison form of a call's arguments: canonical JSON text of text values.

    The tool name is part of the comparison, not of this text. Two calls are the same call when tool and form are equal.
    Order of ids counts (positions are scored); order of service filters does not.
    """
    aliases, defaults = _ALIASES.get(tool, _NONE), _DEFAULTS.get(tool, _NONE)
    form: dict[str, str] = {}
    for key, value in arguments.items():
        target = aliases.get(key, key)
        if target != key and target in arguments:
            target = key  # both spellings given: no guess which one counts
        reader = _FORMS.get(target)
        text = reader(value) if reader is not None else scalar_form(value)
        if text and defaults.get(target) != text:
            form[target] = text
    try:
        return orjson.dumps(form, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # lone surrogates
        return json.dumps(form, sort_keys=True, separators=(",", ":"))


def query_form(value: Any) -> str:
    """A search text without the client's encodings: "yoga+mat", "yoga%20mat" and "yoga  mat" are "yoga mat".

    A single plus between characters is a space. In a run of pluses only the last one can be, and only before another
    character: "C+++book" and "C%2B%2B+book" are both "C++ book", and "C++" stays what it is.
    """
    text = value if isinstance(value, str) else scalar_form(value)
    if "+" in text or "%" in text:
        text = _unplus(unquote(_unplus(text)))
    return " ".join(text.split())


def _unplus(text: str) -> str:
    def spaces(match: re.Match[str]) -> str:
        run = match.group()
        end = match.end()
        if end < len(text) and not text[end].isspace():
            return run[:-1] + " "
        return run

    return _PLUS.sub(spaces, text)


def _items(value: Any) -> list[str]:
    """Comma-separated text or a list as items: Unicode blanks stripped, empty ones dropped, order kept."""
    if isinstance(value, str) and value.isalnum():
        return [value]  # one id, nothing to strip
    if isinstance(value, list | tuple):
        parts = [part for item in value for part in scalar_form(item).split(",")]
    else:
        parts = scalar_form(value).split(",")
    return [stripped for part in parts if (stripped := part.strip())]


def scalar_form(value: Any) -> str:
    """Text of a scalar, the way a query string would carry it; lists and objects as canonical JSON."""
    if isinstance(value, str):
        return " ".join(value.split())
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _int_text(value)
    if isinstance(value, float):
        return _int_text(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if not value:
        return ""
    return _dump(value)


def _int_text(value: int) -> str:
    # As text and as a number it is the same id, however long. str() refuses integers of more than 4,300 digits.
    return str(value) if value.bit_length() < 14_000 else hex(value)


def _ids_form(value: Any) -> str:
    """Ids as comma-separated text, each once: list, number and sloppy commas are the same list of ids."""
    return ",".join(dict.fromkeys(_items(value)))


def _service_form(value: Any) -> str:
    return ",".join(sorted({item for item in _items(value) if item != "default"}))


def _prices_form(value: Any) -> str:
    return ",".join(_number_text(item) for item in _items(value))


def _number_text(text: str) -> str:
    try:
        return scalar_form(float(text))
    except (ValueError, OverflowError):
        return text


def _json_form(value: Any) -> str:
    """JSON text and the object it stands for compare equal (``requirements``, ``product_queries``)."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return " ".join(value.split())
    if value is None or value in ("", [], {}):
        return ""
    return _dump(value) if isinstance(value, list | dict) else scalar_form(value)


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return f"unreadable {type(value).__name__}"


_NONE: dict[str, str] = {}
_FORMS: dict[str, Callable[[Any], str]] = {
    "q": query_form,
    "product_ids": _ids_form,
    "product_id": _ids_form,
    "service": _service_form,
    "product_prices": _prices_form,
    "requirements": _json_form,
    "product_queries": _json_form,
}
