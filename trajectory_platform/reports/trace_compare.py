"""Several traces of one problem side by side: where they agree, where they part, and how each ended.

Turns are aligned by number. The first trace is the one that the others are compared with, call by call: the same call
(equal tool and arguments as calls are compared everywhere), other arguments, another tool, or one more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.page import Figures, build_page
from trajectory_platform.reports.tables import folded
from trajectory_platform.reports.trace_view import (
    Mark,
    View,
    head_html,
    outcome_chip,
    query_html,
    said_html,
    tail_html,
    trace_fragment,
    trace_styles,
    turn_html,
)

MOST_TRACES = 8
_LETTERS = "ABCDEFGH"
SAME, MOVED, OTHER_ARGUMENTS, OTHER_TOOL, ONLY = "same", "moved", "other-arguments", "other-tool", "only"
_WORDS = {
    SAME: "same call",
    MOVED: "the same in another turn",
    OTHER_ARGUMENTS: "other arguments",
    OTHER_TOOL: "other tool",
    ONLY: "only here",
}


class Compared(NamedTuple):
    """One call against those of the same turn in the first trace.

    Attributes:
        kind: ``same``, ``moved`` (the same call in another turn there), ``other-arguments``, ``other-tool``, ``only``.
        against: the call it is set against; None for ``only`` and ``moved``.
        turn: of ``moved`` the turn number there.
    """

    kind: str
    against: Mapping[str, Any] | None = None
    turn: int | None = None


class TurnCompared(NamedTuple):
    """One turn: per call its comparison, and the calls of the first trace that have no counterpart here."""

    number: int
    calls: tuple[Compared, ...]
    absent: tuple[Mapping[str, Any], ...]

    @property
    def differs(self) -> bool:
        return bool(self.absent) or any(one.kind != SAME for one in self.calls)


def compare(first: View, other: View) -> list[TurnCompared]:
    """Every turn that either trace has, in order; each call of ``other`` exactly once."""
    places: dict[tuple[str, str], int] = {}
    for turn in first["turns"]:
        for call in turn["calls"]:
            places.setdefault(_key(call), turn["number"])
    told = []
    for number in range(max(len(first["turns"]), len(other["turns"]))):
        mine = first["turns"][number]["calls"] if number < len(first["turns"]) else []
        theirs = other["turns"][number]["calls"] if number < len(other["turns"]) else []
        calls, absent = _pair(mine, theirs, places, number + 1)
        told.append(TurnCompared(number + 1, tuple(calls), tuple(absent)))
    return told


def first_difference(turns: Sequence[TurnCompared], other: View) -> str:
    """Where a trace first departs from the first one, in one sentence of plain text."""
    turn = next((one for one in turns if one.differs), None)
    if turn is None:
        return "the same calls throughout"
    place = f"turn {turn.number}: "
    calls = other["turns"][turn.number - 1]["calls"] if turn.number <= len(other["turns"]) else []
    for told, call in zip(turn.calls, calls, strict=True):
        if told.kind == OTHER_ARGUMENTS and told.against is not None:
            return f"{place}other arguments for {call['name']} ({_changes(told.against, call)})"
        if told.kind == OTHER_TOOL and told.against is not None:
            return f"{place}other tool ({told.against['name']} → {call['name']})"
        if told.kind == MOVED:
            return f"{place}{call['name']} as in turn {told.turn} there"
        if told.kind == ONLY:
            return f"{place}{call['name']} only here"
    return f"{place}{', '.join(call['name'] for call in turn.absent)} not made here"


def trace_page(views: Sequence[View], *, note: str = "") -> str:
    """A page that is complete in itself: one trace, or up to eight side by side; same views, same bytes.

    Args:
        note: plain text for the foot, for instance how to see the same in a terminal.

    Raises:
        ValueError: no trace, or more than eight.
    """
    if not 1 <= len(views) <= MOST_TRACES:
        raise ValueError(f"a page shows 1 to {MOST_TRACES} traces, not {len(views)}")
    problems = {view["facts"]["problem_key"] or view["facts"]["problem_id"] for view in views}
    if len(views) == 1:
        title, body = "Trace", trace_fragment(views[0])
        sections = [("trace", "The trace", body)]
    else:
        one = len(problems) == 1 and None not in problems
        title = f"{len(views)} traces of one problem" if one else f"{len(views)} traces"
        compared = [compare(views[0], view) for view in views]
        sections = [("side", "Side by side", _side(views, compared))]
    names = [(view["facts"]["problem_id"] or "", view["facts"]["category"] or "") for view in views]
    problem, category = names[0]
    subtitle = views[0]["trace_id"] if len(views) == 1 else f"{category} problem {problem}" if one else ""
    styles = trace_styles() + (_picking(len(views)) if len(views) > 1 else "")
    return build_page(title=title, subtitle=subtitle, sections=sections, figures=Figures(), footer=note, styles=styles)


def _key(call: Mapping[str, Any]) -> tuple[str, str]:
    return call["name"], call["form"]


def _pair(
    mine: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]], places: Mapping[Any, int], number: int
) -> tuple[list[Compared], list[Mapping[str, Any]]]:
    """Equal calls first, then those of one tool, then what is left in order."""
    free = list(mine)
    told: list[Compared | None] = [None] * len(theirs)
    for test in (lambda one, call: _key(one) == _key(call), lambda one, call: one["name"] == call["name"]):
        for place, call in enumerate(theirs):
            if told[place] is None and (found := next((one for one in free if test(one, call)), None)) is not None:
                free = [one for one in free if one is not found]
                told[place] = Compared(SAME if _key(found) == _key(call) else OTHER_ARGUMENTS, found)
    made: list[Compared] = []
    for place, call in enumerate(theirs):
        known = told[place]
        elsewhere = places.get(_key(call))
        if known is None and elsewhere is None and free:
            known = Compared(OTHER_TOOL, free.pop(0))
        elif (known is None or known.kind == OTHER_ARGUMENTS) and elsewhere is not None and elsewhere != number:
            free += [known.against] if known is not None and known.against is not None else []
            known = Compared(MOVED, None, elsewhere)
        made.append(known or Compared(ONLY))
    return made, free


def _changes(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Which arguments differ: ``price 10-20 → 10-30``."""
    left, right = _arguments(one), _arguments(other)
    if left is None or right is None:
        return "not readable as names and values"
    names = [name for name in sorted(left.keys() | right.keys()) if left.get(name) != right.get(name)]
    told = [f"{name[:40]} {_short(left.get(name))} → {_short(right.get(name))}" for name in names[:3]]
    return "; ".join(told) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _arguments(call: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        value = orjson.loads(call["form"])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _short(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= 60 else f"{text[:60]}…"


def _side(views: Sequence[View], compared: Sequence[list[TurnCompared]]) -> str:
    asked = {view["query"] for view in views}
    shared = len(asked) == 1 and all(view["readable"] and not view["withheld"] for view in views)
    cells = [_cell(place, _head(views, compared, place, shared)) for place in range(len(views))]
    for number in range(max(len(view["turns"]) for view in views)):
        for place, view in enumerate(views):
            cells.append(
                _turn_cell(view, compared[place][number] if number < len(compared[place]) else None, place, number)
            )
    cells += [_cell(place, _end(view)) for place, view in enumerate(views)]
    counts = "".join(_count(views, compared, place) for place in range(1, len(views)))
    return (
        f'{query_html(views[0]) if shared else ""}<div class="compare" style="--n:{len(views)}">'
        f"{_picks(views)}{counts}"
        f'<div class="grid" tabindex="0" role="group" aria-label="Turns side by side">{"".join(cells)}</div></div>'
    )


def _picks(views: Sequence[View]) -> str:
    options = ['<label><input type="radio" name="pick" id="pick-all" checked>all</label>']
    options += [
        f'<label class="c{place}"><input type="radio" name="pick" id="pick-{place}">'
        f'<span class="letter">{_LETTERS[place]}</span>{html_text(_short_name(view))}</label>'
        for place, view in enumerate(views)
    ]
    return f'<fieldset class="pick"><legend>Show</legend>{"".join(options)}</fieldset>'


def _picking(count: int) -> str:
    """Without a script: the chosen trace alone fills the grid."""
    return "".join(
        f".compare:has(#pick-{place}:checked) .cell:not(.c{place}){{display:none}}"
        f".compare:has(#pick-{place}:checked) .grid{{grid-template-columns:minmax(0,1fr)}}"
        for place in range(count)
    )


def _short_name(view: View) -> str:
    """Who acted, short enough for a switch; a checkpoint's id needs its end."""
    name = str(view["by"] or view["facts"]["miner_hotkey"] or view["trace_id"])
    return name if view["by"] or len(name) <= 16 else f"{name[:12]}…"


def _head(views: Sequence[View], compared: Sequence[list[TurnCompared]], place: int, shared: bool) -> str:
    view = views[place]
    query = "" if shared else query_html(view)
    name = f'<p class="who-acts">{_letter(place)}<b>{html_text(_short_name(view))}</b></p>'
    if not place:
        return f"{name}{head_html(view)}{query}"
    words = html_text(first_difference(compared[place], view), 400)
    return f'{name}{head_html(view)}<p class="first"><b>Parts from A:</b> {words}</p>{query}'


def _count(views: Sequence[View], compared: Sequence[list[TurnCompared]], place: int) -> str:
    kinds = Counter(one.kind for turn in compared[place] for one in turn.calls)
    told = [f"{kinds[kind]} {_WORDS[kind]}" for kind in _WORDS if kinds[kind]]
    absent = sum(len(turn.absent) for turn in compared[place])
    told += [f"{absent} of A not made"] if absent else []
    words = html_text("; ".join(told) or "no calls")
    return f'<p class="muted cell c{place}">{_letter(place)}{outcome_chip(views[place])} {words}</p>'


def _turn_cell(view: View, compared: TurnCompared | None, place: int, number: int) -> str:
    if number >= len(view["turns"]):
        absent = _absent(compared)
        words = "".join(f'<p class="absent">{one}</p>' for one in absent)
        return _cell(place, f'<div class="turn"><h4>{_letter(place)}no turn {number + 1}</h4>{words}</div>', "none")
    marks: Sequence[Mark] = [_mark(one) for one in compared.calls] if place and compared is not None else ()
    absent = _absent(compared) if place else []
    turn = view["turns"][number]
    return _cell(place, turn_html(turn, view, folded_tables=True, marks=marks, absent=absent, heading=_letter(place)))


def _mark(one: Compared) -> Mark:
    if one.kind == MOVED:
        return MOVED, f"same call, turn {one.turn} of A"
    if one.kind == OTHER_TOOL and one.against is not None:
        return OTHER_TOOL, f"other tool, A: {html_text(one.against['name'], 60)}"
    return one.kind, _WORDS[one.kind]


def _absent(compared: TurnCompared | None) -> list[str]:
    return [f"A calls {html_text(call['name'], 60)} here" for call in (compared.absent if compared else ())]


def _letter(place: int) -> str:
    return f'<span class="letter">{_LETTERS[place]}</span>'


def _cell(place: int, html: str, kind: str = "") -> str:
    return f'<div class="cell c{place}{" " + kind if kind else ""}">{html}</div>'


def _end(view: View) -> str:
    """What follows the last turn, and what was decided."""
    tail = tail_html(view)
    return said_html(view["after"]) + (folded("What was decided and why", tail) if tail else "")
