"""Third-party text made harmless for the place where it is shown.

Everything that did not come from this code (queries, titles, ids, reasons from traces) passes through one of
these: :func:`visible` for a terminal, :func:`html_text`, :func:`markdown_text` and :func:`figure_text` elsewhere.
"""

from __future__ import annotations

import html
import unicodedata

# Control, format (bidirectional overrides, zero width), surrogate, private use, line and paragraph separators.
_SHOWN_AS_CODE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MARKDOWN = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]()#+-.!|~$:"})


def visible(text: object, limit: int | None = None) -> str:
    """Text in which every control character is shown as its escape (``\\x1b``, ``\\u202e``), on one line.

    Args:
        text: any value; ``None`` becomes an empty string.
        limit: longest result in characters; what is cut is counted behind an ellipsis.
    """
    raw = "" if text is None else str(text)
    kept = raw if limit is None or len(raw) <= limit else raw[:limit]
    shown = "".join(_code(char) if unicodedata.category(char) in _SHOWN_AS_CODE else char for char in kept)
    return shown if len(kept) == len(raw) else f"{shown}… (+{len(raw) - len(kept)})"


def _code(char: str) -> str:
    point = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def html_text(text: object, limit: int | None = None) -> str:
    """For element content and double-quoted attributes."""
    return html.escape(visible(text, limit), quote=True)


def markdown_text(text: object, limit: int | None = None) -> str:
    """For Markdown metadata: no link, image, emphasis, table cell or HTML can come out of it."""
    return html.escape(visible(text, limit).translate(_MARKDOWN), quote=False)


def figure_text(text: object, limit: int | None = 60) -> str:
    """For labels of a plotly figure, which reads a subset of HTML in them."""
    return html.escape(visible(text, limit), quote=False)
