"""Words and numbers of a figure as SVG text: plotly's labels made plain, its number formats, widths by estimate.

A label of a plotly figure is HTML-escaped text (``escape.figure_text``) that may hold the line breaks and emphasis of
our own code. For SVG it is turned back into the text that a reader sees, and escaped once more for XML.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape as xml_escape

from trajectory_platform.reports.escape import visible

FONT_PX = 13.0
_NARROW, _WIDE = 0.6, 1.0  # of the font size: an average character, and an East Asian one
_BREAK = re.compile(r"<br\s*/?>")
_EMPHASIS = re.compile(r"</?(?:b|i|em|strong|sub|sup)>")
_FORMAT = re.compile(r"([+]?)(,?)(?:\.(\d+))?([f%dse]?)")
_FIELD = re.compile(r"%\{([A-Za-z]+)(?::([^}]*))?\}")
_THOUSANDS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def plain(label: object) -> str:
    """The text of a plotly label on one line; markup of others stays visible as what it is."""
    text = _EMPHASIS.sub("", _BREAK.sub(" ", "" if label is None else str(label)))
    return visible(html.unescape(text))


def lines(label: object) -> list[str]:
    """The lines of a plotly label that breaks with ``<br>``."""
    return [plain(part) for part in _BREAK.split("" if label is None else str(label))]


def xml_text(text: str) -> str:
    """Plain text for element content and double-quoted attributes of an SVG."""
    return xml_escape(visible(text), {'"': "&quot;"})


def text_width(text: str, size: float = FONT_PX) -> float:
    """Estimated width in pixels; no font is asked, so that the same figure has the same bytes everywhere."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return size * (_NARROW * (len(text) - wide) + _WIDE * wide)


def shortened(text: str, room: float, size: float = FONT_PX) -> str:
    """As much of a text as fits into ``room`` pixels, with an ellipsis where something is cut."""
    if text_width(text, size) <= room:
        return text
    kept = text
    while kept and text_width(kept + "…", size) > room:
        kept = kept[:-1]
    return kept + "…" if kept else ""


def number(value: float, form: str = "") -> str:
    """A number in the part of d3's formats that our figures use.

    Raises:
        ValueError: another format.
    """
    if not form:
        return _short(value)
    if form == "~s":
        return _si(value, None)
    found = _FORMAT.fullmatch(form)
    if found is None:
        raise ValueError(f"number format {form!r} is not one that a static figure can write")
    sign, comma, digits, kind = found.groups()
    if kind == "s":
        return _si(value, int(digits or 3))
    if kind == "d" or (not kind and digits is None):
        return f"{round(value):{sign}{comma}d}" if kind == "d" else _short(value)
    return format(value, f"{sign}{comma}{f'.{digits}' if digits is not None else ''}{kind or 'f'}")


def filled(template: str, values: Mapping[str, Any]) -> str:
    """A plotly text template (``%{y:.1%}``) with its values; a missing value leaves an empty place.

    Raises:
        ValueError: the template names a value that is not known here.
    """

    def field(found: re.Match[str]) -> str:
        name, form = found[1], found[2] or ""
        if name not in values:
            raise ValueError(f"text template {template!r}: %{{{name}}} is not known to a static figure")
        value = values[name]
        if value is None:
            return ""
        return number(value, form) if isinstance(value, int | float) else str(value)

    return _FIELD.sub(field, template)


def _short(value: float) -> str:
    if value == round(value) and abs(value) < 1e15:
        return f"{round(value):,}"
    text = f"{value:.6g}"
    return text if "e" in text else f"{float(text):,.6f}".rstrip("0").rstrip(".")


def _si(value: float, digits: int | None) -> str:
    for scale, letter in _THOUSANDS:
        if abs(value) >= scale:
            shown = f"{value / scale:.{max(3, digits or 3)}g}"
            return f"{shown}{letter}"
    return f"{value:.{digits or 6}g}"
