"""The axes of a static figure: which values they span, where a value lies, ticks and their labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from trajectory_platform.reports.figure_svg_text import number, plain

_EPOCH = date(1970, 1, 1)
_KINDS = ("linear", "log", "category", "date")


@dataclass
class Axis:
    """One axis.

    Attributes:
        name: ``x``, ``y2``, ... as the traces name it. spec: its part of the layout.
        kind: linear, log (values are logarithms to base 10), category (places of ``categories``) or date (days).
        low, high: ends of the range in the unit of ``kind``; ``low`` is drawn left or below unless ``reversed``.
        slot: room of one bar with its gap, in the unit of the axis.
    """

    name: str
    spec: Mapping[str, Any]
    kind: str
    categories: list[str] = field(default_factory=list)
    low: float = 0.0
    high: float = 1.0
    reversed: bool = False
    slot: float = 1.0

    @property
    def horizontal(self) -> bool:
        return self.name.startswith("x")

    @property
    def shown(self) -> bool:
        return bool(self.spec.get("visible", True))

    @property
    def domain(self) -> tuple[float, float]:
        low, high = self.spec.get("domain", (0.0, 1.0))
        return float(low), float(high)

    def unit(self, value: Any) -> float | None:
        """A value of the data in the unit of the axis; None where it says nothing."""
        if value is None:
            return None
        if self.kind == "category":
            text = str(value)
            if isinstance(value, int | float) and not isinstance(value, bool) and text not in self.categories:
                return float(value)  # plotly reads a number on a category axis as a place
            return float(self.categories.index(text)) if text in self.categories else None
        if self.kind == "date":
            return float((date.fromisoformat(str(value)[:10]) - _EPOCH).days)
        found = float(value)
        if not math.isfinite(found) or (self.kind == "log" and found <= 0):
            return None
        return math.log10(found) if self.kind == "log" else found

    def fraction(self, unit: float) -> float:
        """Where on the axis, from 0 (left or below) to 1."""
        share = (unit - self.low) / (self.high - self.low)
        return 1 - share if self.reversed else share

    def ticks(self, room: float) -> list[tuple[float, str]]:
        """(place in the unit of the axis, label) for an axis of ``room`` pixels."""
        if not self.shown or self.spec.get("showticklabels") is False:
            return []
        chosen = self.spec.get("tickvals")
        if chosen is not None:
            named = self.spec.get("ticktext") or [self._label(value) for value in chosen]
            pairs = [(self.unit(value), plain(label)) for value, label in zip(chosen, named, strict=True)]
            return [(unit, label) for unit, label in pairs if unit is not None and self._inside(unit)]
        if self.kind == "category":
            return [(float(place), plain(name)) for place, name in enumerate(self.categories)]
        if self.kind == "date":
            return [(day, (_EPOCH + timedelta(days=day)).isoformat()) for day in self._days(room)]
        if self.kind == "log":
            return [(math.log10(value), self._label(value)) for value in self._powers()]
        return [(value, self._label(value)) for value in _nice(self.low, self.high, room / self._tick_px())]

    def _tick_px(self) -> float:
        return 78.0 if self.horizontal else 38.0

    def _label(self, value: Any) -> str:
        if isinstance(value, int | float):
            return number(float(value), str(self.spec.get("tickformat", ""))) + str(self.spec.get("ticksuffix", ""))
        return str(value)

    def _inside(self, unit: float) -> bool:
        return self.low - 1e-9 <= unit <= self.high + 1e-9

    def _days(self, room: float) -> list[int]:
        first, last = math.ceil(self.low), math.floor(self.high)
        step = max(1, math.ceil((last - first + 1) / max(1.0, room / 96)))
        return list(range(first, last + 1, step))

    def _powers(self) -> list[float]:
        """Powers of ten; where fewer than three are in the range, also their double and fivefold."""
        first, last = math.floor(self.low), math.ceil(self.high)
        within = [power for power in range(first, last + 1) if self._inside(power)]
        step = max(1, math.ceil(len(within) / 8))
        if len(within) > 2:
            return [10.0**power for power in within[::step]]
        values = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
        return [value for value in values if self._inside(math.log10(value))]


def make_axis(
    name: str, spec: Mapping[str, Any], values: Iterable[Any], *, pad: bool, zero: bool, bars: bool = False
) -> Axis:
    """An axis over the values that its traces show.

    Args:
        values: of the data, ends of bars and error bars included; in the order of the traces.
        pad: half a place of room beyond the ends of numbers (marks would be cut in halves).
        zero: the range reaches down to zero (the lengths of bars).
        bars: the places of bars, each of which needs its room.

    Raises:
        ValueError: an axis of a kind that is not known here.
    """
    found = [value for value in values if value is not None]
    kind = str(spec.get("type") or _guessed(found))
    if kind not in _KINDS:
        raise ValueError(f"axis {name}: type {kind!r} is not one that a static figure can draw")
    axis = Axis(name, spec, kind)
    if kind == "category":
        axis.categories = list(dict.fromkeys(str(value) for value in found))
        axis.low, axis.high = -0.5, max(0.5, len(axis.categories) - 0.5)
    else:
        units = [unit for value in found if (unit := axis.unit(value)) is not None]
        axis.low, axis.high = _span(units, pad=pad, zero=zero or spec.get("rangemode") == "tozero")
        if bars and units:
            places = sorted(set(units))
            axis.slot = min((one - other for one, other in zip(places[1:], places, strict=False)), default=1.0)
            axis.low, axis.high = places[0] - axis.slot / 2, places[-1] + axis.slot / 2
    axis.reversed = spec.get("autorange") == "reversed"
    if spec.get("range") is not None:
        first, last = (axis.unit(end) if kind == "date" else float(end) for end in spec["range"])
        assert first is not None and last is not None
        axis.low, axis.high, axis.reversed = min(first, last), max(first, last), first > last
    if axis.high <= axis.low:
        axis.low, axis.high = axis.low - 0.5, axis.low + 0.5
    return axis


def _guessed(values: list[Any]) -> str:
    if all(isinstance(value, int | float) for value in values):
        return "linear"
    return "date" if all(_is_day(value) for value in values) else "category"


def _is_day(value: Any) -> bool:
    try:
        date.fromisoformat(str(value))
    except ValueError:
        return False
    return True


def _span(units: list[float], *, pad: bool, zero: bool) -> tuple[float, float]:
    if not units:
        return 0.0, 1.0
    low, high = min(units), max(units)
    if zero:
        low, high = min(0.0, low), max(0.0, high)
    room = 0.05 * (high - low or abs(high) or 1.0) if pad else 0.0
    keep_low, keep_high = zero and low == 0.0, zero and high == 0.0
    return low - (0.0 if keep_low else room), high + (0.0 if keep_high else room)


def _nice(low: float, high: float, wanted: float) -> list[float]:
    """Round numbers between two ends, about ``wanted`` of them."""
    rough = (high - low) / max(2.0, wanted)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.75 * rough)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    digits = max(0, 2 - math.floor(math.log10(step)))
    return [round((first + place) * step, digits) + 0.0 for place in range(count + 1)]
