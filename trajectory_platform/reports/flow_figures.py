"""The flow of pairs as a Sankey figure: pairs to stages and acceptance, then to reasons and uses.

Places are computed here, so that the same flow is always drawn the same way, by plotly and as a static picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trajectory_platform.reports.escape import figure_text, visible
from trajectory_platform.reports.figures import Figure, themed
from trajectory_platform.reports.flow import Flow, stage_words, use_words
from trajectory_platform.reports.sankey_labels import FAR, NEAR, SIZE, column_lines, column_width

_PAD = 16  # CSS pixels between two nodes of a column: a label of one line must fit beside every node
_THICK = 14
_BAD = "var(--bad)"
_REASONS = 6  # of a stage that are named; the others are one node
_NAME = 36  # characters of a name; the table has all of it
_SHARE = 0.002  # of all pairs below which a reason is not named alone


@dataclass
class _Drawing:
    """Nodes and links under way; a node's key is unique, its column counts from the left."""

    labels: list[str] = field(default_factory=list)
    colours: list[str] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    links: list[tuple[int, int, int, str]] = field(default_factory=list)

    def node(self, label: str, column: int, value: int, colour: str) -> int:
        self.labels.append(label)
        self.columns.append(column)
        self.values.append(value)
        self.colours.append(colour)
        return len(self.labels) - 1

    def link(self, source: int, target: int, value: int, colour: str) -> None:
        if value > 0:  # a listing that contradicts itself (more moved in than were judged) has no band for it
            self.links.append((source, target, value, colour))


def flow_figure(flow: Flow) -> Figure:
    """The flow, left to right: pairs, then acceptance or the rejecting stage, then uses or reasons. The width of a
    band is its number of pairs."""
    drawing = _Drawing()
    moved = bool(flow.found is not None and (flow.moved_in or flow.moved_out))
    first = 1 if moved else 0
    pairs = drawing.node(_counted("pairs judged", flow.pairs), first, flow.pairs, "var(--text)")
    if moved:
        _sources(drawing, flow, pairs)
    if flow.accepted:
        label = _counted("accepted", flow.accepted, flow.pairs)
        accepted = drawing.node(label, first + 1, flow.accepted, "var(--good)")
        drawing.link(pairs, accepted, flow.accepted, "var(--goodsoft)")
        _uses(drawing, flow, accepted, first + 2)
    for stage, found in flow.stages():
        total = sum(count for _, count in found)
        colour, soft = _stage_colours(stage)
        place = drawing.node(_counted(stage_words(stage), total, flow.pairs), first + 1, total, colour)
        drawing.link(pairs, place, total, soft)
        for label, count in _named(found, flow.pairs):
            drawing.link(place, drawing.node(_counted(label, count), first + 2, count, colour), count, soft)
    _lost(drawing, flow, pairs, first + 1)
    return _placed(drawing)


def ends_figure(flow: Flow) -> Figure:
    """The same in two columns, for a narrow page or a small picture: pairs, then uses and rejecting stages."""
    drawing = _Drawing()
    pairs = drawing.node(_counted("pairs", flow.pairs), 0, flow.pairs, "var(--text)")
    _uses(drawing, flow, pairs, 1)
    for stage, found in flow.stages():
        total = sum(count for _, count in found)
        colour, soft = _stage_colours(stage)
        place = drawing.node(_counted(stage_words(stage), total, flow.pairs), 1, total, colour)
        drawing.link(pairs, place, total, soft)
    _lost(drawing, flow, pairs, 1)
    return _placed(drawing)


def _lost(drawing: _Drawing, flow: Flow, pairs: int, column: int) -> None:
    """Pairs that are neither accepted nor rejected have a band too, or the picture would hide that they are lost."""
    if flow.difference > 0:
        gone = drawing.node(_counted("not accounted for", flow.difference, flow.pairs), column, flow.difference, _BAD)
        drawing.link(pairs, gone, flow.difference, _BAD)


def _uses(drawing: _Drawing, flow: Flow, source: int, column: int) -> None:
    for uses, count in flow.uses:
        end = drawing.node(_counted(use_words(uses), count, flow.pairs), column, count, "var(--good)")
        drawing.link(source, end, count, "var(--goodsoft)")


def _stage_colours(stage: str) -> tuple[str, str]:
    return ("var(--b)", "var(--bsoft)") if stage == "axis" else ("var(--unknown)", "var(--unknownsoft)")


def _sources(drawing: _Drawing, flow: Flow, pairs: int) -> None:
    assert flow.found is not None
    own = drawing.node(_counted("in the day's folder", flow.found), 0, flow.found, "var(--muted)")
    drawing.link(own, pairs, flow.pairs - flow.moved_in, "var(--unknownsoft)")
    if flow.moved_in:
        came = drawing.node(_counted("from a day beside it", flow.moved_in), 0, flow.moved_in, "var(--muted)")
        drawing.link(came, pairs, flow.moved_in, "var(--unknownsoft)")
    if flow.moved_out:
        gone = drawing.node(_counted("judged another day", flow.moved_out), 1, flow.moved_out, "var(--muted)")
        drawing.link(own, gone, flow.moved_out, "var(--unknownsoft)")


def _named(found: list[tuple[str, int]], pairs: int) -> list[tuple[str, int]]:
    """Reasons with a node of their own, and one for all others; every pair is in one of them."""
    shown = [row for row in found if row[1] >= _SHARE * pairs][:_REASONS]
    rest = found[len(shown) :]
    if len(rest) == 1:
        return [*shown, *rest]
    return [*shown, (f"{len(rest)} other reasons", sum(count for _, count in rest))] if rest else shown


def _counted(label: str, count: int, of: int | None = None) -> str:
    """Plain text; a long name is cut, its number never."""
    name = visible(label)
    name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    return f"{name} {count:,}{f' ({_percent(count / of)})' if of else ''}"


def _percent(share: float) -> str:
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def _placed(drawing: _Drawing) -> Figure:
    """The specification; y of a node is its centre, nodes of a column follow one another with ``_PAD`` between.

    The names are annotations at the right of the nodes, for plotly's own labels of two columns meet. A column is as
    wide as its names; ``layout.meta.room`` is how many pixels all columns need.
    """
    last = max(drawing.columns, default=0)
    in_column = [[node for node, at in enumerate(drawing.columns) if at == column] for column in range(last + 1)]
    most = max((len(nodes) for nodes in in_column), default=1)
    height = max(240.0, 8.0 * most + _PAD * (most - 1) + 40)
    largest = max((sum(drawing.values[node] for node in nodes) for nodes in in_column), default=1) or 1
    scale = (height - _PAD * (most - 1)) / largest
    centres = [0.0] * len(drawing.labels)
    lines: dict[int, list[str]] = {}
    edges = [0.0]
    for nodes in in_column:
        top = 0.0
        for node in nodes:
            tall = drawing.values[node] * scale
            centres[node] = top + tall / 2
            top += tall + _PAD
        own = column_lines([drawing.labels[node] for node in nodes], [centres[node] for node in nodes])
        lines.update(zip(nodes, own, strict=True))
        edges.append(edges[-1] + _THICK + NEAR + column_width(own) + FAR)
    room = edges[-1]
    x = [min(0.999, max(0.001, round((edges[at] + _THICK / 2) / room, 5))) for at in drawing.columns]
    y = [min(0.999, max(0.001, round(centre / height, 5))) for centre in centres]
    drawn = {end for source, target, _, _ in drawing.links for end in (source, target)}
    trace = {
        "type": "sankey",
        "arrangement": "fixed",
        "node": {
            "label": [figure_text(label, None) for label in drawing.labels],
            "color": drawing.colours,
            "x": x,
            "y": y,
            "pad": _PAD,
            "thickness": _THICK,
            "line": {"width": 0},
            "hovertemplate": "%{label}<extra></extra>",
        },
        "link": {
            "source": [link[0] for link in drawing.links],
            "target": [link[1] for link in drawing.links],
            "value": [link[2] for link in drawing.links],
            "color": [link[3] for link in drawing.links],
            "hovertemplate": "%{source.label}<br>to %{target.label}: %{value:,}<extra></extra>",
        },
        "textfont": {"color": "rgba(0,0,0,0)", "size": SIZE, "shadow": "none"},
    }
    notes = [_note(lines[node], x[node], y[node]) for node in range(len(x)) if node in drawn]
    margin = {"l": 8, "r": 8, "t": 12, "b": 12}
    return {
        "data": [trace],
        "layout": themed(round(height) + 24, margin=margin, annotations=notes, meta={"room": math.ceil(room) + 16}),
    }


def _note(lines: list[str], x: float, y: float) -> Figure:
    return {
        "text": "<br>".join(figure_text(line, None) for line in lines),
        "x": x,
        "y": round(1 - y, 5),
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "middle",
        "xshift": _THICK / 2 + NEAR - 1,
        "align": "left",
        "showarrow": False,
        "borderpad": 0,
        "font": {"color": "var(--text)", "size": SIZE, "shadow": "auto"},
    }
