"""The reasoning rubric: four gates, five values, in our own words (domain 2.6).

The gates are tested in order; the first one that fails gives the value. Length and rhetoric count for nothing, and
whether the chosen product is right is not part of it: that is the outcome axis.
"""

from __future__ import annotations

from typing import NamedTuple

RUBRIC_VERSION = "gates-1"


class Gate(NamedTuple):
    """One gate: what must hold, and the value of a trace that fails here."""

    name: str
    passes_when: str
    value_if_failed: float


GATES = (
    Gate("inference", "at least one model call of the trace produced 30 or more tokens", 0.1),
    Gate("results_used", "the thinking refers to the content or shape of tool results, not only to the request", 0.3),
    Gate("specific_datum", "the thinking names a concrete datum of a result: id, price, brand, attribute, shop", 0.5),
    Gate("comparison", "one single thought names two or more candidates and a reason for one of them", 0.7),
)
ALL_PASSED = 0.9
GRID = tuple(gate.value_if_failed for gate in GATES) + (ALL_PASSED,)


def value(failed: int | None) -> float:
    """The value of a trace whose first failed gate has this 0-based position; None: all passed."""
    return ALL_PASSED if failed is None else GATES[failed].value_if_failed


def on_grid(quality: float) -> bool:
    """Whether a number is one of the five values (a 0.7 that went through binary floats still is)."""
    return any(abs(quality - step) < 1e-9 for step in GRID)


def explain(failed: int | None) -> str:
    """One line for people."""
    if failed is None:
        return "all four gates passed"
    return f"gate {failed + 1} failed: not shown that {GATES[failed].passes_when}"
