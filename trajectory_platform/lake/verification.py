"""Re-reading what is published: is every slot the rows its manifest names?

The cheap test of every run is ``Lake.is_current``. This one reads all bytes, recomputes the content digests and
names each damage; ``lake verify`` and the Dagster checks show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import manifests
from trajectory_platform.lake.manifests import Slot, slot, table_of
from trajectory_platform.lake.snapshots import Snapshot, open_snapshot
from trajectory_platform.lake.tables import TABLES, Table

if TYPE_CHECKING:
    from trajectory_platform.lake.publish import Lake


@dataclass(frozen=True)
class Damage:
    """One damaged slot.

    Attributes:
        reason: log_unreadable | manifest_damaged | no_manifest | manifest_stale | missing_file | unreadable_file |
            digest_mismatch; of the sealed ledger (``table`` is then its file) those of ``ledger.Fault``.
        file: path below the lake folder, where one file can be named.
    """

    table: str
    day: str | None
    part: dict[str, str]
    reason: str
    detail: str
    file: str | None = None


def verify(
    lake: Lake,
    tables: Iterable[Table | str] | None = None,
    days: Iterable[str] | None = None,
    *,
    invalidate: bool = False,
) -> list[Damage]:
    """All damage of the published tables, sorted by table and day; an empty list when everything is sound.

    Without ``tables`` and ``days`` the ledger of looks at sealed problems is verified too; its damage comes last.

    Args:
        invalidate: also make the damaged slots not current, so that the next run builds them anew.
    """
    wanted = None if days is None else {manifests.checked_day(day) for day in days}
    found: list[Damage] = []
    for table in sorted(map(table_of, TABLES if tables is None else tables), key=lambda one: one.name):
        try:
            snapshot = open_snapshot(lake.storage, table)
        except FailPartition as error:
            found.append(Damage(table.name, None, {}, "log_unreadable", str(error), f"{table.name}/_delta_log"))
            continue
        for where in _slots(lake, table, snapshot):
            if wanted is not None and where.day not in wanted:
                continue
            damage = _damage(lake, where, snapshot)
            if damage is not None:
                found.append(damage)
                if invalidate:
                    manifests.remove(lake.storage, where)
    return found if tables is not None or days is not None else [*found, *_ledger_damage(lake)]


def slot_damage(lake: Lake, where: Slot) -> Damage | None:
    """The damage of one slot, or None when it holds exactly the rows its manifest names."""
    return _damage(lake, where, open_snapshot(lake.storage, where.table))


def _ledger_damage(lake: Lake) -> list[Damage]:
    from trajectory_platform.lake.ledger import LEDGER
    from trajectory_platform.lake.sealed_scores import verify_ledger

    try:
        faults = [(fault.reason, fault.detail) for fault in verify_ledger(lake)]
    except FailPartition as error:  # the ledger cannot be opened, or the scores it is held against are damaged
        faults = [("ledger_not_verified", str(error))]
    return [Damage(LEDGER, None, {}, reason, detail, LEDGER) for reason, detail in faults]


def _slots(lake: Lake, table: Table, snapshot: Snapshot | None) -> list[Slot]:
    known = {where.values: where for where in manifests.slots(lake.storage, table)}
    for file in snapshot.files if snapshot else ():
        known.setdefault(file.values, slot(table, file.values[0][1], dict(file.values[1:])))
    return [known[values] for values in sorted(known)]


def _damage(lake: Lake, where: Slot, snapshot: Snapshot | None) -> Damage | None:
    from trajectory_platform.lake.digests import ContentDigest
    from trajectory_platform.lake.reading import missing, read_batches

    def damage(reason: str, detail: str, file: str | None = None) -> Damage:
        path = None if file is None else f"{where.table.name}/{file}"
        return Damage(where.table.name, where.day, where.part, reason, detail, path)

    try:
        manifest = manifests.load(lake.storage, where)
    except FailPartition as error:
        return damage("manifest_damaged", str(error))
    files = snapshot.of(where) if snapshot else {}
    if manifest is None:
        return damage("no_manifest", f"{where}: rows without a manifest; the publish was cut short")
    if snapshot is None or manifest.files != files:
        return damage("manifest_stale", f"{where}: the rows are not those the manifest names")
    if lost := missing(lake.storage, where.table, files):
        return damage("missing_file", f"{where}: {lost[0]} is missing or has another size", lost[0])
    active = [file for file in snapshot.files if file.path in files]
    digest = ContentDigest(where.table)
    try:
        for batch in read_batches(lake.storage, where.table, active, None, 256):
            digest.update(batch)
    except FailPartition as error:
        named = next((path for path in files if path in str(error)), None)
        return damage("unreadable_file", str(error), named)
    if digest.hexdigest() != manifest.content_digest:
        file = next(iter(files)) if len(files) == 1 else None
        return damage("digest_mismatch", f"{where}: the rows differ from the published ones", file)
    return None
