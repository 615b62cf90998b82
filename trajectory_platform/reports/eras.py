"""The eras of the subnet: what a published trace could show about who acted, and how its reasoning was scored.

Numbers of two eras are not one series: a share that jumps at a border says more about the format than about agents.
"""

from __future__ import annotations

from typing import NamedTuple


class Era(NamedTuple):
    """``first``: first UTC day, "" where no date is known; ``name``: for axes and tables; ``change``: what is new."""

    first: str
    name: str
    change: str


# Source: domain 1.11 (the drift table); the change of July is dated "about July" there.
ERAS: tuple[Era, ...] = (
    Era("2026-03-26", "bare lists", "launch: lines are bare lists without a request log, so nobody can tell who acted"),
    Era(
        "2026-04-19",
        "log, judged on step 0",
        "request logs appear (first all on step 0, the same day on every step); the judge read step 0 only until 04-23 "
        "and scored too low",
    ),
    Era("2026-04-24", "log on every step", "the judge reads the calls of every step"),
    Era("2026-04-27", "envelopes", "lines are envelopes with a kind; on 04-28 and 04-29 whole files were uploaded"),
    Era("2026-04-30", "discrete gate", "reasoning scores take five values; earlier ones cannot be compared with them"),
    Era("2026-07-01", "nonces, full logs", "about July: nonces, full request logs, title guard, folded attributes"),
    Era("", "envpack", "later, no date known: episodes of generated environments replace the suites"),
)
BEFORE = Era("0000-00-00", "before the launch", "a day before the launch of the subnet")


def era_of(day: str) -> Era:
    """The era of a UTC day; an era without a date is never a day's."""
    return next((era for era in reversed(ERAS) if era.first and day >= era.first), BEFORE)
