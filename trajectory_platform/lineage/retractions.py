"""Tombstones: what was retracted, by whom, when and why, and which rows of the lake that concerns.

A retraction names a trace, a run or a miner and holds from then on, also for what comes later. It is a row of the
append-only table ``retractions``; nothing else is written here. Text equal to a retracted one goes with it, whoever
published it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.identity import digest_json
from trajectory_platform.lake import tables
from trajectory_platform.lake.arrays import text_array
from trajectory_platform.lake.manifests import slot
from trajectory_platform.lake.tables import Table

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from trajectory_platform.lake.manifests import Manifest
    from trajectory_platform.lake.publish import Lake

KINDS = tables.RETRACTIONS.values["kind"]
RETRACTED = "retracted"
_PAIR_TABLES = (tables.RAW_TRACES, tables.GENERATED_TRACES, tables.ROLLOUTS)
_TEXT_TABLES = (tables.AXIS_A_CORPUS, tables.GENERATED_TRACES)  # whose rows feed checkpoints
_SOURCES = (tables.TRAJECTORIES, tables.GENERATED_TRACES)  # where texts are known from
_MAX_REASON = 1000


class Subject(NamedTuple):
    """What is to be retracted.

    Attributes:
        kind: trace, run or miner.
        trace_ids: everything of it that the lake knows, sorted.
        copies: other accepted or generated traces with the same text, sorted.
        days: of the traces, sorted.
    """

    kind: str
    name: str
    trace_ids: tuple[str, ...]
    copies: tuple[str, ...]
    days: tuple[str, ...]

    def everything(self) -> list[str]:
        """All traces that go."""
        return sorted({*self.trace_ids, *self.copies})


@dataclass(frozen=True)
class Tombstones:
    """The retractions of a lake; false when there are none."""

    rows: tuple[dict[str, Any], ...]

    def __bool__(self) -> bool:
        return bool(self.rows)

    def of(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """The earliest retraction that a row falls under, by its trace_id, miner_hotkey and content_hash; or None."""
        run = row["trace_id"].partition(":")[0]
        found = [
            self._traces.get(row["trace_id"]),
            self._runs.get(run),
            self._miners.get(row.get("miner_hotkey") or ""),
            self._texts.get(row.get("content_hash") or ""),
        ]
        return min((one for one in found if one is not None), key=_order, default=None)

    def among(self, lake: Lake, trace_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Trace id -> the retraction it falls under, for those that do; by id, run, miner and known copies."""
        wanted = set(trace_ids)
        found: dict[str, dict[str, Any]] = {}
        if not self.rows or not wanted:
            return found
        for name in wanted:
            one = self.of({"trace_id": name})
            if one is not None:
                found[name] = one
        if self._miners:
            columns = ["trace_id", "miner_hotkey"]
            rows = lake.lookup(tables.RAW_TRACES, "miner_hotkey", self._miners, columns=columns, ordered=False)
            for row in rows.to_pylist():
                if row["trace_id"] in wanted:
                    found.setdefault(row["trace_id"], self._miners[row["miner_hotkey"]])
        return found

    def rows_of(self, lake: Lake, table: Table, days: Sequence[str] | None, columns: Sequence[str]) -> list[Any]:
        """(row, retraction) of the rows of a table that fall under one; ``columns`` besides those it is known by."""
        if not self.rows:
            return []
        known_by = [name for name in ("trace_id", "miner_hotkey", "content_hash") if name in table.columns]
        names = list(dict.fromkeys((*columns, *known_by)))
        rows = lake.read(table, days, columns=names, filter=self.condition(table)).to_pylist()
        return [(row, found) for row in rows if (found := self.of(row)) is not None]

    def condition(self, table: Table) -> ds.Expression:
        """The Arrow condition of the rows of a table that may fall under a retraction."""
        found = is_in("trace_id", self._traces)
        for run in self._runs:
            found |= of_run(run)
        for name, values in (("miner_hotkey", self._miners), ("content_hash", self._texts)):
            if values and name in table.columns:
                found |= is_in(name, values)
        return found

    @cached_property
    def _traces(self) -> dict[str, dict[str, Any]]:
        named = self._by("trace")
        for row in self.rows:
            for copy in row["copies"]:
                named.setdefault(copy, row)
        return named

    @cached_property
    def _runs(self) -> dict[str, dict[str, Any]]:
        return self._by("run")

    @cached_property
    def _miners(self) -> dict[str, dict[str, Any]]:
        return self._by("miner")

    @cached_property
    def _texts(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for row in self.rows:
            for text in row["content_hashes"]:
                found.setdefault(text, row)
        return found

    def _by(self, kind: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for row in self.rows:
            if row["kind"] == kind:
                found.setdefault(row["subject"], row)
        return found


def tombstones(lake: Lake) -> Tombstones:
    """All retractions, oldest first."""
    return Tombstones(tuple(sorted(lake.read(tables.RETRACTIONS).to_pylist(), key=_order)))


def detail_of(retraction: Mapping[str, Any]) -> str:
    """What is said of a row that is left out for it; ids and reasons are text of people, for printing as such."""
    return f"{retraction['retraction_id'][:12]} of {retraction['kind']} {retraction['subject']}: {retraction['reason']}"


def is_in(column: str, values: Iterable[str]) -> ds.Expression:
    """The Arrow condition that a column has one of these values."""
    import pyarrow.compute as pc

    return pc.field(column).isin(text_array(sorted(values)))


def of_run(run: str) -> ds.Expression:
    """The Arrow condition that a trace id is of a run; a range, so that row groups can be passed over."""
    import pyarrow.compute as pc

    return (pc.field("trace_id") >= f"{run}:") & (pc.field("trace_id") < f"{run};")  # ";" follows ":"


def subject_of(lake: Lake, name: str, kind: str | None = None) -> Subject:
    """What a name stands for: a trace, else a run, else a miner that the lake knows, or the kind asked for.

    Raises:
        Abort: nothing of that name is in the lake.
    """
    if kind is not None and kind not in KINDS:
        raise Abort(f"{kind!a} is no kind of subject: {', '.join(KINDS)}")
    for one in (kind,) if kind else KINDS:
        rows = [row for table in _PAIR_TABLES for row in _rows(lake, table, one, name)]
        if rows:
            ids = sorted({row["trace_id"] for row in rows})
            return _subject(lake, one, name, ids, sorted({row["day"] for row in rows}))
    what = kind or "trace, run or miner"
    raise Abort(f"no {what} {name!a} in the lake: a trace is {{run id}}:{{problem id}}, a miner its hotkey")


def _rows(lake: Lake, table: Table, kind: str, name: str) -> list[dict[str, Any]]:
    columns = ["trace_id", "day"]
    rows: list[dict[str, Any]]
    if kind == "run":
        rows = lake.read(table, columns=columns, filter=of_run(name), ordered=False).to_pylist()
    elif kind == "miner" and "miner_hotkey" not in table.columns:
        rows = []
    else:
        known_by = "trace_id" if kind == "trace" else "miner_hotkey"
        rows = lake.lookup(table, known_by, [name], columns=columns, ordered=False).to_pylist()
    return rows


def _subject(lake: Lake, kind: str, name: str, ids: list[str], days: list[str]) -> Subject:
    """The subject with what has the same text; of what can feed a checkpoint only, the rest is found when it goes."""
    copies: set[str] = set()
    for own in _SOURCES:
        copies |= lake.alike(own, ids, _TEXT_TABLES, days)
    return Subject(kind, name, tuple(ids), tuple(sorted(copies - set(ids))), tuple(days))


def _texts_of(lake: Lake, subject: Subject) -> list[str]:
    """Content hashes of the texts of a subject, sorted."""
    found: set[str] = set()
    for table in _SOURCES:
        rows = lake.lookup(table, "trace_id", subject.trace_ids, subject.days, ["content_hash"], ordered=False)
        found.update(rows.column("content_hash").drop_null().to_pylist())
    return sorted(found)


def retract(
    lake: Lake, subject: Subject, *, reason: str, who: str, at: datetime, checkpoints: Sequence[str]
) -> dict[str, Any]:
    """Append one tombstone; returns its row.

    Args:
        at: now, with a time zone (the lake reads no clock). ``checkpoints``: to be retrained, ancestors first.

    Raises:
        Abort: no reason, no time zone, or the subject is retracted already.
        FailPartition: it cannot be written.
    """
    if not reason.strip() or len(reason) > _MAX_REASON:
        raise Abort(
            f"a retraction needs --reason TEXT of at most {_MAX_REASON} characters, which is kept in the lake; "
            "--dry-run says what it would cost and needs none"
        )
    if at.tzinfo is None:
        raise Abort("the time of a retraction needs a time zone")
    now = at.astimezone(UTC)
    with lake.storage.lease("retractions_append"):
        held = tombstones(lake)
        double = [row for row in held.rows if (row["kind"], row["subject"]) == (subject.kind, subject.name)]
        if double:
            raise Abort(f"{subject.kind} {subject.name!a} was retracted on {double[0]['at']:%Y-%m-%d %H:%M} UTC")
        row = {
            "retraction_id": digest_json([subject.kind, subject.name, who, now.isoformat()])[:32],
            "day": now.date().isoformat(),
            "at": now,
            "who": who,
            "kind": subject.kind,
            "subject": subject.name,
            "reason": reason.strip(),
            "traces": len(subject.trace_ids),
            "checkpoints": list(checkpoints),
            "copies": list(subject.copies),
            "content_hashes": _texts_of(lake, subject),
        }
        _append(lake, row)
    return row


def _append(lake: Lake, row: dict[str, Any]) -> Manifest:
    """The day's slot with one more row; rows that are there stay as they are."""
    import pyarrow as pa

    day = row["day"]
    onto = lake.state(slot(tables.RETRACTIONS, day))
    before = lake.read(tables.RETRACTIONS, [day])
    rows = pa.concat_tables([before, pa.Table.from_pylist([row], schema=tables.RETRACTIONS.schema())])
    names = before.column("retraction_id").to_pylist()
    if row["retraction_id"] in names:
        raise FailPartition(f"retraction {row['retraction_id']} is there already")
    inputs = {"retractions": [*names, row["retraction_id"]]}
    return lake.publish(
        tables.RETRACTIONS,
        day,
        rows,
        identity=digest_json(inputs),
        inputs=inputs,
        code_version="1",
        settings={},
        summary={"retractions": rows.num_rows},
        onto=onto,
    )


def _order(row: Mapping[str, Any]) -> tuple[datetime, str]:
    return row["at"], row["retraction_id"]
