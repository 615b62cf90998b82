"""What stands around the marks of a static figure: room for labels, grid, tick labels, titles, shapes and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform.reports.figure_svg_axes import Axis
from trajectory_platform.reports.figure_svg_marks import Panel
from trajectory_platform.reports.figure_svg_paint import Paint, label, line, rect, widest
from trajectory_platform.reports.figure_svg_text import lines, plain, shortened, text_width

_SIZE = 12.0
_GAP, _TITLE = 6.0, 18.0
_MOST = 0.36  # of the width, for the labels at the left

Box = tuple[float, float, float, float]


class Frame(NamedTuple):
    """Where the marks go (left, top, width, height), and the angle of the labels below: 0, or -40 for long ones."""

    box: Box
    turn: float


def frame_of(axes: Mapping[str, Axis], box: Box) -> Frame:
    """The room that is left for the marks once the labels of the outer axes have theirs."""
    left, top, width, height = box
    at_left, at_right = (_beside(axes, side, width, height) for side in ("left", "right"))
    at_right = max(at_right, 12.0)
    inner = width - at_left - at_right
    turn = min((_turn(axis, inner) for axis in axes.values() if axis.horizontal), default=0.0)
    above, below = (_above(axes, side, inner, turn) for side in ("top", "bottom"))
    return Frame((left + at_left, top + above, inner, max(40.0, height - above - below)), turn)


def draw_frame(panels: Sequence[Panel], frame: Frame, paint: Paint) -> str:
    """Grid, tick labels and titles of every axis, once each."""
    parts, done = [], set()
    for panel in panels:
        for axis in (panel.x, panel.y):
            if axis.shown:
                parts.append(_grid(panel, axis, paint))
            if axis.name not in done and axis.shown:
                done.add(axis.name)
                parts.append(_words(panel, axis, frame, paint))
    return "".join(parts)


def draw_notes(layout: Mapping[str, Any], panels: Sequence[Panel], frame: Frame, paint: Paint) -> str:
    """The shapes (lines, rectangles) and annotations of a layout."""
    parts = []
    for shape in layout.get("shapes") or []:
        if shape.get("type") not in ("line", "rect"):
            raise ValueError(f"shape {shape.get('type')!r} is not one that a static figure can draw")
        x0, y0 = _spot(shape, "x0", "y0", panels, frame.box)
        x1, y1 = _spot(shape, "x1", "y1", panels, frame.box)
        pen = shape.get("line") or {}
        if shape.get("type") == "line":
            dash = ' stroke-dasharray="6 4"' if str(pen.get("dash", "solid")) != "solid" else ""
            stroke = paint.stroke(str(pen.get("color", "var(--muted)")), float(pen.get("width", 1)))
            parts.append(line(x0, y0, x1, y1, stroke + dash))
        else:
            opacity = f' fill-opacity="{float(shape.get("opacity", 1.0)):g}"'
            parts.append(rect(x0, y0, x1 - x0, y1 - y0, paint.fill(str(shape.get("fillcolor", "none"))) + opacity))
    for note in layout.get("annotations") or []:
        x, y = _spot(note, "x", "y", panels, frame.box)
        x, y = x + float(note.get("xshift", 0)), y - float(note.get("yshift", 0))
        rows = lines(note.get("text"))
        y += {"bottom": -_SIZE * (len(rows) - 0.5), "top": _SIZE / 2}.get(str(note.get("yanchor")), 0.0)
        anchor = {"left": "start", "right": "end"}.get(str(note.get("xanchor")), "middle")
        colour = str((note.get("font") or {}).get("color", "var(--text)"))
        for place, text in enumerate(rows):
            parts.append(label(x, y + place * (_SIZE + 3), text, paint, colour=colour, anchor=anchor, size=_SIZE))
    return "".join(parts)


def _beside(axes: Mapping[str, Axis], side: str, width: float, height: float) -> float:
    room = 0.0
    for axis in axes.values():
        if axis.horizontal or not axis.shown or axis.spec.get("side", "left") != side or not _outer(axis, axes, side):
            continue
        texts = [text for _, text in axis.ticks(height)]
        room = max(room, min(_MOST * width, widest(texts, _SIZE) + _GAP) + (_TITLE if _title(axis) else 0.0))
    return room


def _above(axes: Mapping[str, Axis], side: str, inner: float, turn: float) -> float:
    room = 8.0 if side == "top" else 0.0
    for axis in axes.values():
        if not axis.horizontal or not axis.shown or axis.spec.get("side", "bottom") != side:
            continue
        texts = [text for _, text in axis.ticks(_length(axis, inner))]
        deep = _SIZE + _GAP if texts else 0.0
        if turn and texts:
            deep = min(96.0, 0.643 * widest(texts, _SIZE) + _SIZE) + _GAP
        room = max(room, deep + (_TITLE if _title(axis) else 0.0))
    return room


def _turn(axis: Axis, inner: float) -> float:
    ticks = axis.ticks(_length(axis, inner)) if axis.shown else []
    if axis.kind != "category" or len(ticks) < 2:
        return 0.0
    slot = _length(axis, inner) / (axis.high - axis.low)
    return -40.0 if widest([text for _, text in ticks], _SIZE) + 4 > slot else 0.0


def _length(axis: Axis, inner: float) -> float:
    low, high = axis.domain
    return inner * (high - low)


def _outer(axis: Axis, axes: Mapping[str, Axis], side: str) -> bool:
    """Does this y axis stand at the edge of the whole figure? One between two panels has its room by their domains."""
    partner = axes.get(str(axis.spec.get("anchor", "x")))
    if partner is None:
        return True
    return partner.domain[0] < 0.01 if side == "left" else partner.domain[1] > 0.99


def _title(axis: Axis) -> str:
    title = axis.spec.get("title")
    return plain(title.get("text") if isinstance(title, Mapping) else title)


def _grid(panel: Panel, axis: Axis, paint: Paint) -> str:
    parts = []
    pen = paint.stroke("var(--line)")
    if axis.spec.get("showgrid", axis.kind != "category"):
        for unit, _ in axis.ticks(panel.width if axis.horizontal else panel.height):
            if axis.horizontal:
                at = panel.across(unit)
                parts.append(line(at, panel.top, at, panel.top + panel.height, pen))
            else:
                at = panel.down(unit)
                parts.append(line(panel.left, at, panel.left + panel.width, at, pen))
    if axis.horizontal and axis.spec.get("side", "bottom") == "bottom":
        bottom = panel.top + panel.height
        parts.append(line(panel.left, bottom, panel.left + panel.width, bottom, pen))
    return "".join(parts)


def _words(panel: Panel, axis: Axis, frame: Frame, paint: Paint) -> str:
    return _below(panel, axis, frame, paint) if axis.horizontal else _left(panel, axis, frame, paint)


def _below(panel: Panel, axis: Axis, frame: Frame, paint: Paint) -> str:
    on_top = axis.spec.get("side") == "top"
    ticks = axis.ticks(panel.width)
    slot = panel.width / max(1, len(ticks))
    every = 1
    if axis.kind == "category" and frame.turn:
        every = max(1, round((_SIZE + 2) / slot + 0.49)) if slot < _SIZE + 2 else 1
    edge = panel.top - _GAP - _SIZE / 2 if on_top else panel.top + panel.height + _GAP + _SIZE / 2
    parts = []
    for unit, text in ticks[::every]:
        x = panel.across(unit)
        if frame.turn:
            shown = shortened(text, (96.0 - _SIZE) / 0.643, _SIZE)
            parts.append(label(x, edge, shown, paint, anchor="start" if on_top else "end", size=_SIZE, turn=frame.turn))
        else:
            parts.append(label(x, edge, text, paint, anchor="middle", size=_SIZE))
    title = _title(axis)
    if title:
        deep = min(96.0, 0.643 * widest([t for _, t in ticks], _SIZE) + _SIZE) if frame.turn else _SIZE
        y = edge - deep - 2 if on_top else edge + deep + 4
        shown = shortened(title, panel.width, _SIZE)
        middle = panel.left + panel.width / 2
        parts.append(label(middle, y, shown, paint, colour="var(--muted)", anchor="middle", size=_SIZE))
    return "".join(parts)


def _left(panel: Panel, axis: Axis, frame: Frame, paint: Paint) -> str:
    at_right = axis.spec.get("side") == "right"
    ticks = axis.ticks(panel.height)
    whole = frame.box[0] + frame.box[2]
    title = _title(axis)
    room = max(30.0, min(_MOST * whole, panel.left) - _GAP - (_TITLE if title else 0.0) - 4.0)
    edge = panel.left + panel.width + _GAP if at_right else panel.left - _GAP
    anchor = "start" if at_right else "end"
    slot = panel.height / max(1, len(ticks))
    every = max(1, round(_SIZE / slot + 0.49)) if slot < _SIZE else 1
    parts = [
        label(edge, panel.down(unit), shortened(text, room, _SIZE), paint, anchor=anchor, size=_SIZE)
        for unit, text in ticks[::every]
    ]
    if title:
        wide = min(room, widest([text for _, text in ticks], _SIZE)) + _GAP + _SIZE / 2
        x = edge + wide if at_right else edge - wide
        middle = panel.top + panel.height / 2
        shown = shortened(title, panel.height, _SIZE)
        parts.append(label(x, middle, shown, paint, colour="var(--muted)", anchor="middle", size=_SIZE, turn=-90.0))
    return "".join(parts)


def _spot(what: Mapping[str, Any], x_key: str, y_key: str, panels: Sequence[Panel], box: Box) -> tuple[float, float]:
    """Pixels of a point of a shape or note, by its own references: ``paper``, an axis, or an axis' domain."""
    x_ref, y_ref = str(what.get("xref", "x")), str(what.get("yref", "y"))
    left, top, width, height = box
    if x_ref == "paper":
        x = left + float(what[x_key]) * width
    else:
        panel = _panel_of(panels, x_ref.removesuffix(" domain"))
        x = panel.left + float(what[x_key]) * panel.width if x_ref.endswith(" domain") else _across(panel, what[x_key])
    if y_ref == "paper":
        return x, top + (1 - float(what[y_key])) * height
    panel = _panel_of(panels, y_ref.removesuffix(" domain"))
    if y_ref.endswith(" domain"):
        return x, panel.top + (1 - float(what[y_key])) * panel.height
    unit = panel.y.unit(what[y_key])
    return x, panel.down(unit if unit is not None else panel.y.low)


def _panel_of(panels: Sequence[Panel], name: str) -> Panel:
    found = next((panel for panel in panels if name in (panel.x.name, panel.y.name)), None)
    if found is None:
        raise ValueError(f"a shape or note refers to axis {name!r}, on which nothing is drawn")
    return found


def _across(panel: Panel, value: Any) -> float:
    unit = panel.x.unit(value)
    return panel.across(unit if unit is not None else panel.x.low)


def legend_rows(entries: Sequence[str], width: float) -> list[list[int]]:
    """Which entries of a legend stand in which line."""
    rows: list[list[int]] = [[]]
    used = 0.0
    for place, name in enumerate(entries):
        need = text_width(name, _SIZE) + 40
        if rows[-1] and used + need > width:
            rows.append([])
            used = 0.0
        rows[-1].append(place)
        used += need
    return rows
