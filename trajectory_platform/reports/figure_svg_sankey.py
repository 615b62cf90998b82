"""A Sankey diagram as static SVG: nodes in columns, ribbons as thick as what flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform.reports.figure_svg_marks import one_of
from trajectory_platform.reports.figure_svg_paint import Paint, label, px, rect
from trajectory_platform.reports.figure_svg_text import plain
from trajectory_platform.reports.sankey_labels import (
    FAR,
    LINE,
    NEAR,
    SIZE,
    column_lines,
    column_width,
    fitted,
    shared_room,
    spread,
)

_THICK = 16.0
_OVER = 5.0  # pixels that a name may stand over the upper and lower edge


class _Flow(NamedTuple):
    source: int
    target: int
    value: float
    colour: str


def draw_sankey(trace: Mapping[str, Any], box: tuple[float, float, float, float], paint: Paint) -> str:
    """The diagram inside (left, top, width, height).

    A node stands in the column after the last of its sources, below the nodes named before it; where ``node.x`` and
    ``node.y`` (its middle, 0 to 1) are given, equal x are a column and y is kept. How wide a column is, its names say.

    Raises:
        ValueError: a link of a node that is not there, or links that lead back.
    """
    node, link = trace["node"], trace["link"]
    names = [plain(name) for name in node["label"]]
    flows = _flows(link, len(names))
    into, out = ([0.0] * len(names) for _ in range(2))
    for flow in flows:
        out[flow.source] += flow.value
        into[flow.target] += flow.value
    size = [max(one, other) for one, other in zip(into, out, strict=True)]
    columns = _columns(node, flows, len(names))
    tops, scale = _tops(node, columns, size, box)
    middles = [tops[i] + size[i] * scale / 2 for i in range(len(names))]
    lines, places = _named_columns(names, size, columns, middles, box)
    xs = [places[column] for column in columns]
    parts = _ribbons(flows, xs, tops, scale, paint)
    for index in range(len(names)):
        if not size[index]:
            continue
        colour = str(one_of(node.get("color"), index) or "var(--a)")
        height = max(1.0, size[index] * scale)
        parts.append(rect(xs[index], tops[index], _THICK, height, paint.fill(colour)))
    return "".join(parts) + _labels(lines, size, columns, xs, middles, box, paint)


def _flows(link: Mapping[str, Any], nodes: int) -> list[_Flow]:
    found = []
    for place, (source, target, value) in enumerate(zip(link["source"], link["target"], link["value"], strict=True)):
        if not (0 <= source < nodes and 0 <= target < nodes):
            raise ValueError(f"sankey link {place} joins nodes {source} and {target} of {nodes}")
        colour = str(one_of(link.get("color"), place) or "var(--soft)")
        if value:
            found.append(_Flow(source, target, float(value), colour))
    return found


def _columns(node: Mapping[str, Any], flows: Sequence[_Flow], nodes: int) -> list[int]:
    columns = [0] * nodes
    for _ in range(nodes + 1):
        moved = False
        for flow in flows:
            if columns[flow.target] <= columns[flow.source]:
                columns[flow.target], moved = columns[flow.source] + 1, True
        if not moved:
            break
    else:
        raise ValueError("the links of a sankey lead back to where they came from")
    if node.get("x"):
        order = sorted({round(float(x), 3) for x in node["x"]})
        return [order.index(round(float(x), 3)) for x in node["x"]]
    return columns


def _tops(
    node: Mapping[str, Any], columns: Sequence[int], size: Sequence[float], box: tuple[float, float, float, float]
) -> tuple[list[float], float]:
    """Upper edge of every node, and pixels per unit of flow."""
    _, top, _, height = box
    pad = float(node.get("pad", 15))
    members = [[i for i, at in enumerate(columns) if at == c and size[i]] for c in range(max(columns, default=0) + 1)]
    full = [(sum(size[i] for i in column), len(column)) for column in members if column]
    scale = min(((height - pad * (count - 1)) / total for total, count in full if total), default=1.0)
    scale = max(scale, 0.2 * height / max((total for total, _ in full), default=1.0))  # many nodes: they may touch
    tops = [top] * len(size)
    for column in members:
        used = sum(size[i] for i in column) * scale
        gap = min(pad, max(2.0, (height - used) / (len(column) - 1))) if len(column) > 1 else 0.0
        y = top
        if node.get("y"):
            column = sorted(column, key=lambda i: (float(node["y"][i]), i))
        for i in column:
            if node.get("y"):
                y = max(y, top + float(node["y"][i]) * height - size[i] * scale / 2)
            tops[i] = y
            y += size[i] * scale + gap
        over = max(0.0, y - gap - (top + height))
        for i in column:
            tops[i] -= min(over, max(0.0, tops[i] - top)) if over else 0.0
    return tops, scale


def _named_columns(
    names: Sequence[str],
    size: Sequence[float],
    columns: Sequence[int],
    middles: Sequence[float],
    box: tuple[float, float, float, float],
) -> tuple[dict[int, list[str]], list[float]]:
    """The lines of the name of every node that is drawn, from the top, and the left edge of every column."""
    left, _, width, _ = box
    count = max(columns, default=0) + 1
    members = [
        sorted((i for i, at in enumerate(columns) if at == column and size[i]), key=lambda i: (middles[i], i))
        for column in range(count)
    ]
    told = [column_lines([names[i] for i in column], [middles[i] for i in column]) for column in members]
    room = width - count * (_THICK + NEAR) - (count - 1) * FAR
    rooms = shared_room([column_width(lines) for lines in told], room)
    spare = (room - sum(rooms)) / (count - 1) if count > 1 else 0.0
    edges = [left]
    for given in rooms[:-1]:
        edges.append(edges[-1] + _THICK + NEAR + given + FAR + spare)
    lines = {
        i: [fitted(line, rooms[column]) for line in own]
        for column in range(count)
        for i, own in zip(members[column], told[column], strict=True)
    }
    return lines, edges


def _ribbons(
    flows: Sequence[_Flow], xs: Sequence[float], tops: Sequence[float], scale: float, paint: Paint
) -> list[str]:
    leaving, arriving = list(tops), list(tops)
    begin, end = {}, {}
    for flow in sorted(flows, key=lambda one: (one.source, tops[one.target], one.target)):
        begin[flow] = leaving[flow.source]
        leaving[flow.source] += flow.value * scale
    for flow in sorted(flows, key=lambda one: (one.target, tops[one.source], one.source)):
        end[flow] = arriving[flow.target]
        arriving[flow.target] += flow.value * scale
    parts = []
    for flow in flows:
        x0, x1 = xs[flow.source] + _THICK, xs[flow.target]
        y0, y1, thick = begin[flow], end[flow], max(0.6, flow.value * scale)
        bend = (x0 + x1) / 2
        parts.append(
            f'<path d="M{px(x0)},{px(y0)}C{px(bend)},{px(y0)} {px(bend)},{px(y1)} {px(x1)},{px(y1)}V{px(y1 + thick)}'
            f'C{px(bend)},{px(y1 + thick)} {px(bend)},{px(y0 + thick)} {px(x0)},{px(y0 + thick)}Z" '
            f"{paint.fill(flow.colour)}/>"
        )
    return parts


def _labels(
    lines: Mapping[int, list[str]],
    size: Sequence[float],
    columns: Sequence[int],
    xs: Sequence[float],
    middles: Sequence[float],
    box: tuple[float, float, float, float],
    paint: Paint,
) -> str:
    """The name at the right of each node; where a column is too low for its names, the smallest nodes have none."""
    _, top, _, height = box
    low, high = top - _OVER, top + height + _OVER
    parts: list[str] = []
    for column in sorted(set(columns)):
        shown = [i for i in lines if columns[i] == column]
        while shown and sum(len(lines[i]) for i in shown) * LINE > high - low:
            shown.remove(min(shown, key=lambda i: (size[i], -i)))
        places = spread([middles[i] for i in shown], [len(lines[i]) * LINE for i in shown], low, high)
        for index, place in zip(shown, places, strict=True):
            first = place - (len(lines[index]) - 1) * LINE / 2
            for number, text in enumerate(lines[index]):
                y = first + number * LINE
                parts.append(label(xs[index] + _THICK + NEAR, y, text, paint, size=SIZE))
    return "".join(parts)
