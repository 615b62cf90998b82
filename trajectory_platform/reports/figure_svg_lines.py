"""The marks of a static figure that are drawn: lines, bands and points with their error bars."""

from __future__ import annotations

from collections.abc import Sequence

from trajectory_platform.reports.figure_svg_marks import SMALL_PX, Panel, Trace, colour_of, one_of, point_text
from trajectory_platform.reports.figure_svg_paint import Paint, corners, label, line, px, rect


def draw_scatter(panel: Panel, trace: Trace, before: Trace | None, paint: Paint) -> str:
    """A line, a band down to the trace before it (``fill: tonexty``), points, and error bars.

    Raises:
        ValueError: a kind of fill that is not known here.
    """
    spots = [panel.place(x, y) for x, y in zip(trace["x"], trace["y"], strict=True)]
    marker, pen = trace.get("marker") or {}, trace.get("line") or {}
    mode = str(trace.get("mode", "lines"))
    main = str(pen.get("color") or marker.get("color") or "var(--a)")
    parts = [_band(panel, trace, before, spots, main, paint)]
    if "lines" in mode and float(pen.get("width", 2)) > 0:
        dash = {"dash": "7 5", "dot": "2 4", "dashdot": "7 4 2 4"}.get(str(pen.get("dash", "solid")))
        more = paint.stroke(main, float(pen.get("width", 2))) + (f' stroke-dasharray="{dash}"' if dash else "")
        for run in _runs(spots):
            shown = _stairs(run) if pen.get("shape") == "hv" else run
            parts.append(f'<polyline points="{corners(shown)}" stroke-linejoin="round" {more}/>')
    for name in ("error_x", "error_y"):
        if trace.get(name):
            parts.append(_errors(panel, trace, name, main, paint))
    if "markers" in mode:
        for point, spot in enumerate(spots):
            if spot is not None:
                size = marker.get("size", 6)
                parts.append(
                    mark(
                        *spot,
                        str(one_of(marker.get("symbol", "circle"), point)),
                        float(one_of(size, point)),
                        colour_of(trace, point, main),
                        paint,
                    )
                )
    if "text" in mode:
        for point, spot in enumerate(spots):
            if spot is not None:
                text = point_text(trace, point)
                parts.append(label(spot[0], spot[1] - 12, text, paint, anchor="middle", size=SMALL_PX))
    opacity = float(trace.get("opacity", 1.0))
    drawn = "".join(parts)
    return f'<g opacity="{opacity:g}">{drawn}</g>' if opacity < 1 and drawn else drawn


def mark(x: float, y: float, symbol: str, size: float, colour: str, paint: Paint) -> str:
    """One point.

    Raises:
        ValueError: a symbol that is not known here.
    """
    name, _, how = symbol.partition("-open")
    half = size / 2
    if name in ("x", "cross"):
        ends = ((half, half), (half, -half)) if name == "x" else ((half, 0.0), (0.0, half))
        pen = paint.stroke(colour, 2)
        return "".join(line(x - dx, y - dy, x + dx, y + dy, pen) for dx, dy in ends)
    style = paint.stroke(colour, 1.5) if symbol.endswith("-open") and not how else paint.fill(colour)
    if name == "circle":
        return f'<circle cx="{px(x)}" cy="{px(y)}" r="{px(half)}" {style}/>'
    if name == "square":
        return rect(x - half, y - half, size, size, style)
    edge: Sequence[tuple[float, float]]
    if name == "diamond":
        edge = ((x, y - half * 1.2), (x + half * 1.2, y), (x, y + half * 1.2), (x - half * 1.2, y))
        return f'<polygon points="{corners(edge)}" {style}/>'
    if name == "triangle-up":
        edge = ((x, y - half), (x + half, y + half), (x - half, y + half))
        return f'<polygon points="{corners(edge)}" {style}/>'
    raise ValueError(f"marker symbol {symbol!r} is not one that a static figure can draw")


def _band(
    panel: Panel,
    trace: Trace,
    before: Trace | None,
    spots: list[tuple[float, float] | None],
    main: str,
    paint: Paint,
) -> str:
    fill = str(trace.get("fill", "none"))
    if fill == "none":
        return ""
    upper = [spot for spot in spots if spot is not None]
    if fill == "tonexty" and before is not None:
        found = [panel.place(x, y) for x, y in zip(before["x"], before["y"], strict=True)]
        lower = [spot for spot in found if spot is not None]
    elif fill in ("tozeroy", "tonexty"):
        ground = panel.down(max(panel.y.low, 0.0) if panel.y.kind == "linear" else panel.y.low)
        lower = [(upper[0][0], ground), (upper[-1][0], ground)] if upper else []
    elif fill == "toself":
        lower = []
    else:
        raise ValueError(f"fill {fill!r} is not one that a static figure can draw")
    colour = str(trace.get("fillcolor", main))
    opacity = "" if "fillcolor" in trace else ' fill-opacity="0.5"'
    return f'<polygon points="{corners([*upper, *reversed(lower)])}" {paint.fill(colour)}{opacity}/>'


def _errors(panel: Panel, trace: Trace, name: str, main: str, paint: Paint) -> str:
    error = trace[name]
    lying = name == "error_x"
    pen = paint.stroke(str(error.get("color", main)), float(error.get("thickness", 1.5)))
    parts = []
    for point, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True)):
        ends = error_ends(trace, name, point)
        if ends is None:
            continue
        one, other = (panel.place(end, y) if lying else panel.place(x, end) for end in ends)
        if one is None or other is None:
            continue
        parts.append(line(*one, *other, pen))
        cap = (0.0, 4.0) if lying else (4.0, 0.0)
        parts += [line(at[0] - cap[0], at[1] - cap[1], at[0] + cap[0], at[1] + cap[1], pen) for at in (one, other)]
    return "".join(parts)


def error_ends(trace: Trace, name: str, point: int) -> tuple[float, float] | None:
    """The two ends of an error bar in values; None where there is none."""
    error, value = trace.get(name) or {}, trace["x" if name == "error_x" else "y"][point]
    above = (error.get("array") or [])[point : point + 1]
    if value is None or not above or above[0] is None:
        return None
    below = above if error.get("symmetric", "arrayminus" not in error) else error["arrayminus"][point : point + 1]
    return float(value) - float(below[0] or 0.0), float(value) + float(above[0])


def _runs(spots: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """Stretches without a missing value, of at least two points."""
    runs: list[list[tuple[float, float]]] = [[]]
    for spot in spots:
        if spot is None:
            runs.append([])
        else:
            runs[-1].append(spot)
    return [run for run in runs if len(run) > 1]


def _stairs(run: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found = [run[0]]
    for (_, y0), (x1, y1) in zip(run, run[1:], strict=False):
        found += [(x1, y0), (x1, y1)]
    return found
