"""Colours of a static figure: the page's CSS variables as classes that follow the colour scheme, and basic shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from trajectory_platform.reports.figure_svg_text import FONT_PX, text_width, xml_text

_VARIABLE = re.compile(r"var\(--([a-z0-9]+)\)")
_LITERAL = re.compile(r"#[0-9a-fA-F]{3,8}|rgba?\([0-9., %]+\)|transparent|none|white|black")
_ROOT = re.compile(r":root(?::not\(\.printing\))?\s*\{([^}]*)\}")
_ENTRY = re.compile(r"--([a-z0-9]+)\s*:\s*(#[0-9a-fA-F]{3,8}|rgba?\([0-9., %]+\))")
_CLEAR = ("rgba(0,0,0,0)", "transparent", "none")


class Paint:
    """Collects which colours a figure uses; ``style`` defines them for both schemes."""

    def __init__(self) -> None:
        self._fills: set[str] = set()
        self._strokes: set[str] = set()

    def fill(self, colour: str) -> str:
        """The attribute that fills a shape.

        Raises:
            ValueError: no colour of the page's style and no plain colour.
        """
        return self._attribute("fill", colour, self._fills)

    def stroke(self, colour: str, width: float = 1.0) -> str:
        """The attributes that draw a line."""
        return f'{self._attribute("stroke", colour, self._strokes)} stroke-width="{px(width)}"'

    def style(self) -> str:
        """Classes of the colours in use, for light and for dark."""
        light, dark = _schemes()
        return f"{self._rules(light)}@media(prefers-color-scheme:dark){{{self._rules(dark)}}}"

    def _rules(self, scheme: dict[str, str]) -> str:
        fills = "".join(f".f-{name}{{fill:{scheme[name]}}}" for name in sorted(self._fills))
        return fills + "".join(f".s-{name}{{stroke:{scheme[name]}}}" for name in sorted(self._strokes))

    def _attribute(self, what: str, colour: str, used: set[str]) -> str:
        found = _VARIABLE.fullmatch(colour)
        if found is not None and found[1] in _schemes()[0]:
            used.add(found[1])
            return f'class="{what[0]}-{found[1]}"' + (' fill="none"' if what == "stroke" else "")
        if found is None and _LITERAL.fullmatch(colour):
            name = "none" if colour.replace(" ", "") in _CLEAR else colour
            return f'{what}="{name}"' + (' fill="none"' if what == "stroke" else "")
        raise ValueError(f"colour {colour!r} is neither one of the page's style nor a plain one")


def px(value: float) -> str:
    """A coordinate: at most one decimal, no negative zero."""
    text = f"{value:.1f}"
    text = text[:-2] if text.endswith(".0") else text
    return "0" if text == "-0" else text


def rect(x: float, y: float, width: float, height: float, attributes: str) -> str:
    """A rectangle; a negative width or height reaches left or up."""
    left, top = min(x, x + width), min(y, y + height)
    return f'<rect x="{px(left)}" y="{px(top)}" width="{px(abs(width))}" height="{px(abs(height))}" {attributes}/>'


def line(x0: float, y0: float, x1: float, y1: float, attributes: str) -> str:
    return f'<line x1="{px(x0)}" y1="{px(y0)}" x2="{px(x1)}" y2="{px(y1)}" {attributes}/>'


def corners(spots: Sequence[tuple[float, float]]) -> str:
    """Value of a ``points`` attribute."""
    return " ".join(f"{px(x)},{px(y)}" for x, y in spots)


def label(
    x: float,
    y: float,
    text: str,
    paint: Paint,
    *,
    colour: str = "var(--text)",
    anchor: str = "start",
    size: float = FONT_PX,
    turn: float = 0.0,
    weight: int = 400,
) -> str:
    """One line of text; ``y`` is its middle. Empty text is nothing."""
    if not text:
        return ""
    base = y + 0.35 * size
    more = f' font-size="{px(size)}"' if size != FONT_PX else ""
    more += f' text-anchor="{anchor}"' if anchor != "start" else ""
    more += f' font-weight="{weight}"' if weight != 400 else ""
    more += f' transform="rotate({px(turn)} {px(x)} {px(y)})"' if turn else ""
    return f'<text x="{px(x)}" y="{px(base)}" {paint.fill(colour)}{more}>{xml_text(text)}</text>'


def widest(texts: list[str], size: float = FONT_PX) -> float:
    """Width of the widest of several texts, by estimate; 0 without any."""
    return max((text_width(text, size) for text in texts), default=0.0)


@cache
def _schemes() -> tuple[dict[str, str], dict[str, str]]:
    """The colours of the page's style sheet: light, and dark where it differs."""
    sheet = files("trajectory_platform.reports").joinpath("assets", "report.css").read_text("utf-8")
    light_part, _, dark_part = sheet.partition("prefers-color-scheme: dark")
    light = dict(_ENTRY.findall("".join(_ROOT.findall(light_part))))
    dark = dict(_ENTRY.findall("".join(_ROOT.findall(dark_part)[:1])))
    return light, {**light, **dark}
