"""The marks of a static figure that fill room: bars, heat maps and funnels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform.reports.figure_svg_axes import Axis
from trajectory_platform.reports.figure_svg_paint import Paint, corners, label, rect
from trajectory_platform.reports.figure_svg_text import filled, plain, shortened, text_width

Trace = Mapping[str, Any]
SMALL_PX = 12.0
_ON_SHADE = "#ffffff"  # text on the darker half of a heat map, in both schemes


class Panel(NamedTuple):
    """Two axes and the rectangle (pixels) between them."""

    x: Axis
    y: Axis
    left: float
    top: float
    width: float
    height: float

    def across(self, unit: float) -> float:
        return self.left + self.x.fraction(unit) * self.width

    def down(self, unit: float) -> float:
        return self.top + (1 - self.y.fraction(unit)) * self.height

    def place(self, x: Any, y: Any) -> tuple[float, float] | None:
        """Pixels of a point of the data; None where a value is missing."""
        at_x, at_y = self.x.unit(x), self.y.unit(y)
        return None if at_x is None or at_y is None else (self.across(at_x), self.down(at_y))


class Bar(NamedTuple):
    """One bar: the trace and point it is of, its place on the axis of places, and its two ends in values."""

    trace: Trace
    point: int
    place: Any
    begin: float
    end: float
    slot: int
    slots: int


def bars_of(traces: Sequence[Trace], barmode: str) -> list[Bar]:
    """The bars of one panel, stacked or side by side as ``layout.barmode`` says.

    Raises:
        ValueError: a barmode that is not known here.
    """
    if barmode not in ("stack", "relative", "group", "overlay"):
        raise ValueError(f"barmode {barmode!r} is not one that a static figure can draw")
    stacked: dict[tuple[str, bool], float] = {}
    found = []
    for number, trace in enumerate(traces):
        lying = trace.get("orientation") == "h"
        places, values = (trace["y"], trace["x"]) if lying else (trace["x"], trace["y"])
        bases = trace.get("base") or [0.0] * len(values)
        for point, (place, value) in enumerate(zip(places, values, strict=True)):
            if value is None:
                continue
            begin = float(bases[point])
            if barmode in ("stack", "relative"):
                key = (str(place), value < 0)
                begin += stacked.get(key, 0.0)
                stacked[key] = begin + value
            side = (number, len(traces)) if barmode == "group" else (0, 1)
            found.append(Bar(trace, point, place, begin, begin + float(value), *side))
    return found


def draw_bars(panel: Panel, bars: Sequence[Bar], gap: float, paint: Paint) -> str:
    """Bars with their texts: inside where there is room, else beyond the end."""
    parts = []
    for bar in bars:
        lying = bar.trace.get("orientation") == "h"
        places, values = (panel.y, panel.x) if lying else (panel.x, panel.y)
        at, begin, end = places.unit(bar.place), values.unit(bar.begin), values.unit(bar.end)
        if at is None or begin is None or end is None:
            continue
        thick = places.slot * (1 - gap) / bar.slots
        first = at - places.slot * (1 - gap) / 2 + bar.slot * thick
        if lying:
            x0, x1 = panel.across(begin), panel.across(end)
            y0, y1 = panel.down(first), panel.down(first + thick)
        else:
            x0, x1 = panel.across(first), panel.across(first + thick)
            y0, y1 = panel.down(begin), panel.down(end)
        parts.append(rect(x0, y0, x1 - x0, y1 - y0, paint.fill(colour_of(bar.trace, bar.point))))
        parts.append(_bar_text(bar, lying, (x0, y0, x1, y1), panel, paint))
    return "".join(parts)


def _bar_text(bar: Bar, lying: bool, box: tuple[float, float, float, float], panel: Panel, paint: Paint) -> str:
    text = point_text(bar.trace, bar.point)
    where = bar.trace.get("textposition", "auto")
    if not text or where == "none":
        return ""
    x0, y0, x1, y1 = box
    width, height = text_width(text, SMALL_PX) + 8, SMALL_PX + 2
    fits = width <= abs(x1 - x0) and height <= abs(y1 - y0)
    if where == "inside" or (where == "auto" and fits):
        if not fits:
            return ""
        colour = (bar.trace.get("insidetextfont") or {}).get("color", "var(--onbar)")
        return label((x0 + x1) / 2, (y0 + y1) / 2, text, paint, colour=colour, anchor="middle", size=SMALL_PX)
    if lying:
        y = (y0 + y1) / 2
        if x1 >= x0 and x1 + width > panel.left + panel.width + 60:  # no room beyond: before the end
            return label(x1 - 4, y, text, paint, colour="var(--onbar)", anchor="end", size=SMALL_PX)
        side = (x1 + 5, "start") if x1 >= x0 else (x1 - 5, "end")
        return label(side[0], y, text, paint, anchor=side[1], size=SMALL_PX)
    shown = shortened(text, abs(x1 - x0) + 16, SMALL_PX)
    return label((x0 + x1) / 2, y1 + (-9 if y1 <= y0 else 9), shown, paint, anchor="middle", size=SMALL_PX)


def draw_heatmap(panel: Panel, trace: Trace, paint: Paint) -> str:
    """Cells in the shades between two or more colours, each with its text."""
    stops = [(float(at), str(colour)) for at, colour in trace.get("colorscale", [])]
    if len(stops) < 2:
        raise ValueError("a heat map needs a colorscale of at least two colours")
    values = [value for row in trace["z"] for value in row if value is not None]
    low = float(trace.get("zmin", min(values, default=0.0)))
    high = float(trace.get("zmax", max(values, default=1.0)))
    across = panel.width / max(1, len(panel.x.categories)) - float(trace.get("xgap", 0))
    down = panel.height / max(1, len(panel.y.categories)) - float(trace.get("ygap", 0))
    parts = []
    for row, y in enumerate(trace["y"]):
        for column, x in enumerate(trace["x"]):
            value, middle = trace["z"][row][column], panel.place(x, y)
            if value is None or middle is None:
                continue
            share = min(1.0, max(0.0, (float(value) - low) / (high - low))) if high > low else 0.0
            left, top = middle[0] - across / 2, middle[1] - down / 2
            parts.append(_shade(left, top, across, down, stops, share, paint))
            known = {"text": _at(trace.get("text"), row, column), "z": value, "x": x, "y": y}
            template = trace.get("texttemplate")
            text = shortened(plain(filled(template, known)), across - 2, SMALL_PX) if template else ""
            colour = _ON_SHADE if share > 0.6 else "var(--text)"
            parts.append(label(*middle, text, paint, colour=colour, anchor="middle", size=SMALL_PX))
    return "".join(parts)


def _shade(
    left: float, top: float, width: float, height: float, stops: list[tuple[float, str]], share: float, paint: Paint
) -> str:
    """Two layers, the upper one as opaque as the share between its two colours: it holds in both schemes."""
    upper = next((place for place in range(1, len(stops)) if share <= stops[place][0]), len(stops) - 1)
    (begin, below), (end, above) = stops[upper - 1], stops[upper]
    part = (share - begin) / (end - begin) if end > begin else 1.0
    lower = rect(left, top, width, height, paint.fill(below))
    return lower + rect(left, top, width, height, f'{paint.fill(above)} fill-opacity="{min(1.0, part):.3f}"')


def draw_funnel(panel: Panel, trace: Trace, gap: float, paint: Paint) -> str:
    """Bars around the middle, each beside the share of the first that is left."""
    values = [float(value) for value in trace["x"]]
    largest, middle = max(values, default=0.0), panel.left + panel.width / 2
    parts, slot = [], panel.height / max(1, len(values))
    thick = slot * (1 - gap)
    edges = []
    for point, (name, value) in enumerate(zip(trace["y"], values, strict=True)):
        at = panel.y.unit(name)
        assert at is not None  # the names are the axis' own categories
        width = panel.width * value / largest if largest else 0.0
        y = panel.down(at)
        edges.append((y, width))
        parts.append(rect(middle - width / 2, y - thick / 2, width, thick, paint.fill(colour_of(trace, point))))
        known = {"value": value, "percentInitial": value / values[0] if values[0] else None, "label": name}
        known["percentPrevious"] = value / values[point - 1] if point and values[point - 1] else None
        text = plain(filled(trace.get("texttemplate", "%{value:,}"), known))
        inside = text_width(text, SMALL_PX) + 8 <= width
        colour = "var(--onbar)" if inside else "var(--text)"
        at_x, anchor = (middle, "middle") if inside else (middle + width / 2 + 6, "start")
        if not inside and at_x + text_width(text, SMALL_PX) > panel.left + panel.width:
            at_x, anchor = middle - width / 2 - 6, "end"
        parts.append(label(at_x, y, text, paint, colour=colour, anchor=anchor, size=SMALL_PX))
    soft = paint.fill("var(--soft)")
    for (y0, w0), (y1, w1) in zip(edges, edges[1:], strict=False):
        top, bottom = y0 + thick / 2, y1 - thick / 2
        edge = ((middle - w0 / 2, top), (middle + w0 / 2, top), (middle + w1 / 2, bottom), (middle - w1 / 2, bottom))
        parts.insert(0, f'<polygon points="{corners(edge)}" {soft}/>')
    return "".join(parts)


def point_text(trace: Trace, point: int) -> str:
    """What is written at one point."""
    text = one_of(trace.get("text"), point)
    template = trace.get("texttemplate")
    if not template:
        return plain(text)
    return plain(filled(template, {"text": text, "x": trace["x"][point], "y": trace["y"][point], "value": text}))


def colour_of(trace: Trace, point: int, otherwise: str = "var(--a)") -> str:
    """The colour of one point."""
    return str(one_of((trace.get("marker") or {}).get("color"), point) or otherwise)


def one_of(value: Any, point: int) -> Any:
    """Of a list the entry of one point, else the value that holds for all."""
    if isinstance(value, list | tuple):
        return value[point] if point < len(value) else None
    return value


def _at(rows: Any, row: int, column: int) -> Any:
    return None if rows is None else rows[row][column]
