"""Names beside the nodes of a Sankey diagram, placed so that none lies on another or on a node.

Every name stands at the right of its node, and a column is as wide as its widest name: two names of different columns
cannot meet. In a column they keep a line's distance; where that is plenty, a name takes two lines and less width.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trajectory_platform.reports.figure_svg_text import shortened, text_width

SIZE = 12.0  # of the font
LINE = 15.0  # from one line to the next
NEAR, FAR = 5.0, 9.0  # pixels from a node to its name, from a name to the nodes of the next column
_BROAD, _MORE = re.compile("[MW@]"), 0.4  # of the font size, beyond what an average character is taken for
_SHORT = 9  # characters that stay on one line
_COUNT = re.compile(r" [0-9][0-9,]*(?: \([^()]{1,8}\))?$")


def column_lines(names: Sequence[str], centres: Sequence[float]) -> list[list[str]]:
    """The lines of the names of one column, from the top: two each where the nodes are far enough apart."""
    far = all(low - high >= 2 * LINE + 2 for high, low in zip(centres, centres[1:], strict=False))
    return [_halves(name) if far else [name] for name in names]


def column_width(lines: Sequence[Sequence[str]]) -> float:
    """Of the widest line, by estimate; a letter that is much wider than the average has its own width."""
    widths = (text_width(line, SIZE) + _MORE * SIZE * len(_BROAD.findall(line)) for name in lines for line in name)
    return max(widths, default=0.0)


def fitted(line: str, room: float) -> str:
    """A line cut to ``room`` pixels; of a name with a count the name is cut, for the count is what it is read for."""
    found = _COUNT.search(line)
    if found is None or text_width(line, SIZE) <= room:
        return shortened(line, room, SIZE)
    name = shortened(line[: found.start()], room - text_width(found[0], SIZE), SIZE)
    return name + found[0] if name else shortened(found[0].strip(), room, SIZE)


def shared_room(wanted: Sequence[float], room: float) -> list[float]:
    """What every column gets of ``room``: what it wants, and where that is too much the widest ones less."""
    given = [0.0] * len(wanted)
    left, waiting = max(0.0, room), len(wanted)
    for column in sorted(range(len(wanted)), key=lambda i: wanted[i]):
        given[column] = min(wanted[column], left / waiting)
        left, waiting = left - given[column], waiting - 1
    return given


def spread(centres: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Middles as near to ``centres`` (ascending) as a simple pass finds, so that no two of these heights overlap.

    They lie between ``low`` and ``high`` if together they are not higher than that.
    """
    places: list[float] = []
    edge = low
    for centre, height in zip(centres, heights, strict=True):
        places.append(max(centre, edge + height / 2))
        edge = places[-1] + height / 2
    edge = high
    for place in reversed(range(len(places))):
        half = heights[place] / 2
        if places[place] + half <= edge:
            break
        places[place] = edge - half
        edge = places[place] - half
    return places


def _halves(name: str) -> list[str]:
    """A name as two lines that are as equal as its blanks allow."""
    blanks = [place for place, char in enumerate(name) if char == " "]
    if not blanks or len(name) <= _SHORT:
        return [name]
    cut = min(blanks, key=lambda place: (max(text_width(name[:place]), text_width(name[place + 1 :])), place))
    return [name[:cut], name[cut + 1 :]]
