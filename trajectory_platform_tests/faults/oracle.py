"""What must hold around every fault: what readers see meanwhile, and what the lake holds after a rerun."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trajectory_platform.errors import PlatformError, RetryLater
from trajectory_platform.lake.digests import ContentDigest
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.tables import AXIS_A_CORPUS, RAW_TRACES, TABLES, Table
from trajectory_platform.lake.verification import verify
from trajectory_platform.settings import Settings
from trajectory_platform.stages import audits
from trajectory_platform.stages.context import StageContext

Slot = tuple[str, str]
Contents = dict[Slot, str]


class NotHere(Exception):
    """This machine cannot make the fault (no Postgres, no right to mount); says why."""


@dataclass
class Outcome:
    """What one seed of a kind found.

    Attributes:
        kills: processes that were killed.
        looks, partial: reads during the fault, and those that saw neither the old nor the new content of a day.
        duplicates: rows that stand twice. losses: slots or items that an undisturbed run has and this one has not.
        completes: the rerun ended well. told: the error said what, where and what to do; None = nobody could be told.
        notes: what is wrong, or where the fault hit.
    """

    kills: int = 0
    looks: int = 0
    partial: int = 0
    duplicates: int = 0
    losses: int = 0
    completes: bool = False
    told: bool | None = None
    at: str = ""
    notes: list[str] = field(default_factory=list)

    def sound(self) -> bool:
        return self.completes and self.told is not False and not (self.partial or self.duplicates or self.losses)

    def say(self, text: str, *words: str) -> None:
        """The error text must hold each of the words (``a|b`` = one of them)."""
        missing = [one for one in words if not any(choice in text for choice in one.split("|"))]
        self.told = self.told is not False and not missing and "Traceback" not in text
        if not self.told:
            self.notes.append(f"not told {missing}: {text.strip()[-600:]}")

    def expect(self, true: bool, what: str) -> None:
        """Something that must hold; what does not is a loss."""
        if not true:
            self.losses += 1
            self.notes.append(what)


def contents(lake: Lake) -> Contents:
    """(table, day or day and part) -> content digest of everything that is published."""
    found: Contents = {}
    for name in TABLES:
        for one in lake.manifests(name):
            found[(name, "/".join((one.day, *one.part.values())))] = one.content_digest
    return found


def compare(lake: Lake, reference: Mapping[Slot, str], outcome: Outcome) -> None:
    """Equal digests in every slot, nothing else published, nothing damaged, no leftovers after vacuum."""
    found = contents(lake)
    for slot in sorted(set(found) | set(reference)):
        outcome.expect(found.get(slot) == reference.get(slot), f"{slot}: other content than undisturbed")
    for damage in verify(lake):
        outcome.expect(False, f"damage: {damage.table} {damage.day} {damage.reason} {damage.detail}")
    for table in (RAW_TRACES, AXIS_A_CORPUS):
        outcome.duplicates += doubled(lake, table)
    lake.vacuum()
    outcome.expect(lake.vacuum(dry_run=True).removed == [], "vacuum leaves something behind")
    outcome.expect(contents(lake) == found, "vacuum changed what is published")


def doubled(lake: Lake, table: Table) -> int:
    """Rows of a table that stand twice."""
    rows = lake.read(table, columns=["trace_id", "day"]).to_pylist()
    return len(rows) - len({(row["trace_id"], row["day"]) for row in rows})


def conserved(settings: Settings, days: Iterable[str], outcome: Outcome) -> None:
    """found + moved in = accepted + rejected + moved out, counted from the tables."""
    ctx = StageContext(settings)
    for day in days:
        found = audits.conservation(ctx, day)
        outcome.expect(bool(found["passed"]), f"{day} is not conserved: {found}")


class Reader(threading.Thread):
    """Reads every table again and again while something happens; each day must be the old or the new one.

    Args:
        allowed: by slot the digests that may be seen; a slot without rows may be seen where it is not in ``always``.
    """

    def __init__(self, uri: str, allowed: Mapping[Slot, set[str]], always: Iterable[Slot] = ()) -> None:
        super().__init__(daemon=True)
        self._lake, self._allowed, self._always = Lake(uri), allowed, set(always)
        self._known: dict[tuple[str, str, tuple[str, ...]], str] = {}
        self._over = threading.Event()
        self._ended = False
        self.looks, self.wrong = 0, list[str]()

    def __enter__(self) -> Reader:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self.join(60)

    def count(self, outcome: Outcome) -> None:
        """Add what was seen to an outcome. A reader that died saw nothing wrong, and that is wrong."""
        if not self._ended:
            self.wrong.append("the reader died or hangs")
        outcome.looks += self.looks
        outcome.partial += len(self.wrong)
        outcome.notes += self.wrong[:3]

    def run(self) -> None:
        while True:
            last = self._over.is_set()  # one look after everything is over
            for name, day in self._allowed:
                try:
                    self._look(TABLES[name], day)
                except RetryLater:
                    continue  # a store that fails now was not called damaged, and showed nothing
                except PlatformError as error:
                    self.wrong.append(f"{name} {day} cannot be read: {error}")
            if last:
                self._ended = True
                return
            time.sleep(0.03)

    def _look(self, table: Table, day: str) -> None:
        self.looks += 1
        batches = list(self._lake.batches(table, day))
        rows = sum(batch.num_rows for batch in batches)
        slot = (table.name, day)
        if not rows and slot not in self._always:
            return
        digest = ContentDigest(table)
        for batch in batches:
            digest.update(batch)
        if digest.hexdigest() not in self._allowed[slot]:
            self.wrong.append(f"{slot}: {rows} rows that are neither the old nor the new day")
