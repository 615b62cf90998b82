"""Weights of the two classes in the KTO loss: Eq. 8 of Ethayarajh et al. 2024 (arXiv:2402.01306).

With n_D desirable and n_U undesirable examples the weights are to satisfy
1 <= (desirable_weight * n_D) / (undesirable_weight * n_U) <= 4/3, so that a rare class is not drowned (case C03).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from trajectory_platform.errors import FailPartition

LOW, HIGH = 1.0, 4.0 / 3.0
_ROUNDING = 1e-9
AUTO = "auto"
Choice = float | Literal["auto"]


class ClassWeights(NamedTuple):
    """The factors of the losses, and ``ratio``, the weighted count of desirable over that of undesirable examples."""

    desirable: float
    undesirable: float
    ratio: float


def class_weights(desirable_rows: int, undesirable_rows: int, desirable: Choice, undesirable: Choice) -> ClassWeights:
    """The weights for these counts of examples as they are drawn.

    ``auto`` for both gives the rarer class a weight above 1 and leaves the other at 1; ``auto`` for one fits it to the
    other. It aims at a ratio of 1, rounded to hundredths so that the ratio never falls below.

    Raises:
        FailPartition: ``one_class``, or ``class_weights_out_of_band`` where given weights leave the band.
    """
    if min(desirable_rows, undesirable_rows) < 1:
        raise FailPartition(f"one_class: {desirable_rows} desirable and {undesirable_rows} undesirable examples")
    share = desirable_rows / undesirable_rows
    if desirable == AUTO and undesirable == AUTO:
        first, second = (_up(1 / share), 1.0) if share < 1 else (1.0, _down(share))
    elif desirable == AUTO:
        second = float(undesirable)
        first = _up(second / share)
    elif undesirable == AUTO:
        first = float(desirable)
        second = _down(first * share)
    else:
        first, second = float(desirable), float(undesirable)
    ratio = first * share / second if second > 0 else math.inf
    if not (min(first, second) > 0 and LOW - _ROUNDING <= ratio <= HIGH + _ROUNDING):
        raise FailPartition(
            f"class_weights_out_of_band: weights {first:g} and {second:g} for {desirable_rows} desirable and "
            f"{undesirable_rows} undesirable examples give the ratio {ratio:.3g}, outside 1 to 4/3 "
            "(Eq. 8 of the KTO paper); use auto"
        )
    return ClassWeights(first, second, ratio)


def _up(value: float) -> float:
    step = _step(value)
    return math.ceil(value * step - _ROUNDING) / step


def _down(value: float) -> float:
    step = _step(value)
    return math.floor(value * step + _ROUNDING) / step


def _step(value: float) -> float:
    """Hundredths; of what is smaller than a tenth, two significant digits."""
    return 100.0 if value >= 0.1 else 10.0 ** (1 - math.floor(math.log10(value)))
