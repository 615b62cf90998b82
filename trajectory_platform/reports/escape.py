"""Third-party text made harmless for the place where it is shown.

Everything that did not come from this code (queries, titles, ids, reasons from traces) passes through one of
these: :func:`visible` for a terminal, :func:`html_text`, :func:`markdown_text` and :func:`figure_text` elsewhere.
"""

from __future__ import annotations

import html

from trajectory_platform.escaping import escaped

_MARKDOWN = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]()#+-.!|~$:"})


def visible(text: object, limit: int | None = None) -> str:
    """Text in which every control character is shown as its escape (``\\x1b``, ``\\u202e``), on one line.

    Args:
        text: any value; ``None`` becomes an empty string.
        limit: longest result in characters; what is cut is counted behind an ellipsis.
    """
    raw = "" if text is None else str(text)
    kept = raw if limit is None or len(raw) <= limit else raw[:limit]
    return escaped(kept) if len(kept) == len(raw) else f"{escaped(kept)}… (+{len(raw) - len(kept)})"


def html_text(text: object, limit: int | None = None) -> str:
    """For element content and double-quoted attributes."""
    return html.escape(visible(text, limit), quote=True)


def markdown_text(text: object, limit: int | None = None) -> str:
    """For Markdown metadata: no link, image, emphasis, table cell or HTML can come out of it."""
    return html.escape(visible(text, limit).translate(_MARKDOWN), quote=False)


def figure_text(text: object, limit: int | None = 60) -> str:
    """For labels of a plotly figure, which reads a subset of HTML in them."""
    return html.escape(visible(text, limit), quote=False)
