"""Any figure of the reports as a static SVG: for Dagster's metadata, MLflow's artifacts, and mail.

The figure is the same plain plotly dictionary that the page draws (``figures``). The SVG runs no script, loads nothing,
paints its own ground, follows the colour scheme of its reader, and has the same bytes for the same figure. Text is
escaped. What cannot be drawn (a type of trace, a format, a colour that we do not use) is a ``ValueError`` that names
it, so that a new figure is noticed in the tests and not as an empty picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajectory_platform.reports.escape import visible
from trajectory_platform.reports.figure_svg_axes import Axis, make_axis
from trajectory_platform.reports.figure_svg_frame import (
    Box,
    Frame,
    draw_frame,
    draw_notes,
    frame_of,
    legend_rows,
)
from trajectory_platform.reports.figure_svg_lines import draw_scatter, error_ends, mark
from trajectory_platform.reports.figure_svg_marks import (
    Bar,
    Panel,
    Trace,
    bars_of,
    colour_of,
    draw_bars,
    draw_funnel,
    draw_heatmap,
)
from trajectory_platform.reports.figure_svg_paint import Paint, label, line, px, rect
from trajectory_platform.reports.figure_svg_sankey import draw_sankey
from trajectory_platform.reports.figure_svg_text import plain, shortened, text_width, xml_text

TYPES = ("bar", "funnel", "heatmap", "sankey", "scatter")
_EDGE = 14.0  # pixels around everything
_LEGEND_LINE = 22.0
_LEGEND_PX = 12.0


def svg(spec: Mapping[str, Any], *, width: int = 760, title: str = "") -> str:
    """A figure as SVG text.

    Args:
        spec: ``{"data": [trace, ...], "layout": {...}}`` of plotly; ``layout.height`` in pixels.
        width: of the picture in pixels; the height is that of the layout and of the title.
        title: heading and accessible name, plain text of any origin.

    Raises:
        ValueError: something in the figure that a static picture cannot show.
    """
    layout, traces = spec.get("layout") or {}, list(spec["data"])
    for number, trace in enumerate(traces):
        kind = trace.get("type", "scatter")
        if kind not in TYPES:
            raise ValueError(f"trace {number} is of type {kind!r}; a static figure can draw {', '.join(TYPES)}")
        if trace.get("stackgroup"):
            raise ValueError(f"trace {number} uses stackgroup, which a static figure cannot draw; use stacked bars")
    paint, heading = Paint(), visible(title, 200)
    parts = []
    if title:
        parts.append(label(_EDGE, 24, shortened(heading, width - 2 * _EDGE), paint, weight=600))
    legend, top = _legend(traces, layout, width, 44.0 if title else _EDGE, paint)
    height = max(float(layout.get("height", 320)) + (30.0 if title else 0.0), top + 90.0)
    box = (_EDGE, top, width - 2 * _EDGE, height - top - _EDGE)
    if any(trace.get("type") == "sankey" for trace in traces):
        body = "".join(draw_sankey(trace, box, paint) for trace in traces)
    else:
        body = _plotted(traces, layout, box, paint)
    ground = rect(0, 0, width, height, f'{paint.fill("var(--card)")} rx="8"')
    name = xml_text(heading) or "figure"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {px(height)}" width="{width}" '
        f'height="{px(height)}" role="img" aria-label="{name}"><title>{name}</title>'
        "<style>text{font-family:system-ui,sans-serif;font-size:13px;font-variant-numeric:tabular-nums}"
        f"{paint.style()}</style>{ground}{''.join(parts)}{legend}{body}</svg>\n"
    )


def _plotted(traces: Sequence[Trace], layout: Mapping[str, Any], box: Box, paint: Paint) -> str:
    """Everything that has axes."""
    pairs: dict[tuple[str, str], list[Trace]] = {}
    for trace in traces:
        pairs.setdefault((str(trace.get("xaxis", "x")), str(trace.get("yaxis", "y"))), []).append(trace)
    barmode = str(layout.get("barmode", "group"))
    bars = {pair: bars_of([one for one in own if one.get("type") == "bar"], barmode) for pair, own in pairs.items()}
    axes = {name: _axis(name, layout, pairs, bars) for name in sorted({name for pair in pairs for name in pair})}
    frame = frame_of(axes, box)
    panels = {pair: _panel(axes[pair[0]], axes[pair[1]], frame) for pair in pairs}
    shown = list(panels.values())
    parts = [draw_frame(shown, frame, paint)]
    for pair, own in pairs.items():
        parts.append(draw_bars(panels[pair], bars[pair], float(layout.get("bargap", 0.2)), paint))
        before: Trace | None = None
        for trace in own:
            kind = trace.get("type", "scatter")
            if kind == "heatmap":
                parts.append(draw_heatmap(panels[pair], trace, paint))
            elif kind == "funnel":
                parts.append(draw_funnel(panels[pair], trace, float(layout.get("funnelgap", 0.2)), paint))
            elif kind == "scatter":
                parts.append(draw_scatter(panels[pair], trace, before, paint))
                before = trace
    return "".join(parts) + draw_notes(layout, shown, frame, paint)


def _panel(x: Axis, y: Axis, frame: Frame) -> Panel:
    left, top, width, height = frame.box
    (x0, x1), (y0, y1) = x.domain, y.domain
    return Panel(x, y, left + x0 * width, top + (1 - y1) * height, (x1 - x0) * width, (y1 - y0) * height)


def _axis(
    name: str,
    layout: Mapping[str, Any],
    pairs: Mapping[tuple[str, str], Sequence[Trace]],
    bars: Mapping[tuple[str, str], Sequence[Bar]],
) -> Axis:
    """An axis over all that its traces show on it."""
    side = name[0]
    spec = dict(layout.get(f"{side}axis{name[1:]}") or {})
    over = spec.get("overlaying")
    if over:
        spec["domain"] = (layout.get(f"{side}axis{str(over)[1:]}") or {}).get("domain", (0.0, 1.0))
        spec.setdefault("showgrid", False)
    values: list[Any] = []
    pad = zero = places = False
    for pair, own in pairs.items():
        if name not in pair:
            continue
        for bar in bars[pair]:
            of_values = (bar.trace.get("orientation") == "h") == (side == "x")
            values += [bar.begin, bar.end] if of_values else [bar.place]
            zero, places, pad = zero or of_values, places or not of_values, pad or of_values
        for trace in own:
            kind = trace.get("type", "scatter")
            if kind != "bar":
                values += list(trace[side])
                zero = zero or (kind == "funnel" and side == "x")
            if kind == "scatter":
                pad = True
                values += [end for ends in _ends(trace, side) for end in ends]
            if kind in ("heatmap", "funnel") and not (kind == "funnel" and side == "x"):
                spec.setdefault("type", "category")
            if kind == "funnel" and side == "y":
                spec.setdefault("autorange", "reversed")  # the first step is on top
    return make_axis(name, spec, values, pad=pad, zero=zero, bars=places)


def _ends(trace: Trace, side: str) -> list[tuple[float, float]]:
    found = (error_ends(trace, f"error_{side}", point) for point in range(len(trace[side])))
    return [ends for ends in found if ends is not None]


def _legend(
    traces: Sequence[Trace], layout: Mapping[str, Any], width: int, top: float, paint: Paint
) -> tuple[str, float]:
    """The names of the traces in lines above the figure, and where the figure begins."""
    named = [trace for trace in traces if trace.get("name") and trace.get("showlegend", True)]
    if layout.get("showlegend", len(named) > 1) is False or not named:
        return "", top
    names = [shortened(plain(trace["name"]), 260, _LEGEND_PX) for trace in named]
    parts = []
    for row in legend_rows(names, width - 2 * _EDGE):
        x = _EDGE
        for place in row:
            parts.append(_swatch(named[place], x, top + 8, paint))
            parts.append(label(x + 24, top + 8, names[place], paint, size=_LEGEND_PX))
            x += text_width(names[place], _LEGEND_PX) + 40
        top += _LEGEND_LINE
    return "".join(parts), top + 4


def _swatch(trace: Trace, x: float, y: float, paint: Paint) -> str:
    kind, mode = trace.get("type", "scatter"), str(trace.get("mode", "lines"))
    if kind != "scatter":
        return rect(x, y - 6, 16, 12, f'{paint.fill(colour_of(trace, 0))} rx="2"')
    pen, marker = trace.get("line") or {}, trace.get("marker") or {}
    colour = str(pen.get("color") or colour_of(trace, 0))
    if trace.get("fill", "none") != "none" and "markers" not in mode and not float(pen.get("width", 2)):
        opacity = f' fill-opacity="{float(trace.get("opacity", 1.0)):g}"'
        return rect(x, y - 6, 16, 12, paint.fill(str(trace.get("fillcolor", colour))) + opacity)
    parts = []
    if "lines" in mode:
        dash = "" if str(pen.get("dash", "solid")) == "solid" else ' stroke-dasharray="5 3"'
        parts.append(line(x, y, x + 18, y, paint.stroke(colour, float(pen.get("width", 2))) + dash))
    if "markers" in mode:
        symbol = marker.get("symbol", "circle")
        symbol = symbol if isinstance(symbol, str) else symbol[0]
        parts.append(mark(x + 9, y, symbol, 9, colour_of(trace, 0), paint))
    return "".join(parts)
