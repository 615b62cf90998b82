"""Every (run, problem) pair of a day: where it was found, when it was judged, what state it is in.

Rules: design 3, "Row and day". The folder says where a pair was found; its partition is the UTC day it was judged
(``updated_at``), without ``updated_at`` the folder's day. A day reads its own folder and the two beside it, so a pair
judged further away could be seen by no partition; it stays in its folder's day as
``unreadable: judged_day_out_of_reach``. Hence, for every day, ``raw_rows == found + moved_in - moved_out``, and every
row is in exactly one partition.

A file that holds a whole run lies where one of its pairs was judged. A pair in it that this folder's listing does not
name and a folder beside it does belongs to that folder: it is found there, with the bytes of the file here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.identity import safe_id, sha256_hex, trace_id, utc_day
from trajectory_platform.lake.tables import RAW_TRACES
from trajectory_platform.sources.container import Content, Limits, Record, open_artifact
from trajectory_platform.sources.files import ArtifactRef, RawDay
from trajectory_platform.sources.records import Fault, fault
from trajectory_platform.traces.pairs import Entry, Found, Listing, index_listing, pair_row

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "inventory-2"  # raise it when the same folder would give other rows
OUT_OF_REACH = "judged_day_out_of_reach"
DUPLICATE = "duplicate_line"
NOT_SAMPLED = "not_sampled"
AWAITED = "artifact_"
"""Reasons of a ``not_final`` row that begin so: the artifact of a fetched day is asked for again."""
_NOT_ASKED, _GONE = "not_asked", "gone"  # what else a pair without its artifact may be: wanted, later, not_sampled
_DAY = timedelta(days=1)
_SHARED_FORMS = ("jsonl_envelopes", "jsonl_steps", "whole_file")


_Key = tuple[str, str]
_Found_Key = tuple[str, str | None]


class Source(Protocol):
    """What the inventory needs of a source (``sources.files.FileSource`` has it)."""

    @property
    def parallel_reads(self) -> int: ...
    def open_day(self, day: date) -> RawDay: ...
    def read(self, uri: str) -> bytes: ...


class Inventory(NamedTuple):
    """``rows`` in the ``raw_traces`` schema, sorted by trace_id; ``summary`` is one ``day_summaries`` row.

    Of a day that was fetched (``RawDay.unfetched``): ``awaited`` rows, whose artifact is asked for again, and
    ``not_sampled`` rows, which the sampling policy left out.
    """

    rows: pa.Table
    summary: dict[str, Any]
    awaited: int
    not_sampled: int


class _Row(NamedTuple):
    """A row with what is needed to place it: judged day, and digest of its own content for duplicates."""

    judged_day: date
    folder_day: date
    base_id: str
    content: str | None
    shared: bool
    values: dict[str, Any]


def inventory_day(source: Source, day: date, limits: Limits) -> Inventory:
    """The partition of a day: pairs judged that day, from its own folder and the two beside it.

    Args:
        source: raw days.
        day: half-open UTC day.
        limits: sizes and depth above which an artifact or record is set aside.

    Raises:
        RetryLater: the storage does not answer now; nothing is published.
    """
    own = _read_folder(source, source.open_day(day), limits)
    beside = [
        _read_folder(source, raw, limits, _runs_judged_on(listing, raw.day, day) | own.runs(), listing)
        for raw in (source.open_day(day - _DAY), source.open_day(day + _DAY))
        if raw.exists
        for listing in [index_listing(raw)]
    ]
    lent = {folder.day: folder.unnamed_there() for folder in (own, *beside)}

    def borrowed(key: _Key, judged: date) -> list[tuple[date, Found]]:
        """For a pair that the day's folder names: on another day from the folder of that day, else from both."""
        lenders = [folder.day for folder in beside if judged in (day, folder.day)]
        return [(lender, one) for lender in lenders for one in lent[lender].get(key, [])]

    named_beside = {key for folder in beside for key in lent[day] if folder.judged_day(key) in (day, folder.day)}
    found = list(_rows(own, borrowed, named_beside))
    rows: list[_Row] = []
    moved_out = 0
    for row in found:
        if row.judged_day == day:
            rows.append(row)
        elif abs((row.judged_day - day).days) == 1:
            moved_out += 1
        else:
            rows.append(_out_of_reach(row))
    moved_in = 0
    for folder in beside:
        arriving = _rows(folder, lambda key, _: [(day, one) for one in lent[day].get(key, [])])
        moved = [row for row in arriving if row.judged_day == day]
        moved_in += len(moved)
        rows += moved
    values = [{**value, "day": day.isoformat()} for value in _number_duplicates(rows, day)]
    return _inventory(values, _summary(own, found, values, day, moved_in=moved_in, moved_out=moved_out))


def inventory_folder(source: Source, day: date, limits: Limits) -> Inventory:
    """All rows of one day folder, each with the day it was judged in ``day`` (plain commands)."""
    own = _read_folder(source, source.open_day(day), limits)
    found = list(_rows(own, lambda key, judged: []))
    values = _number_duplicates(found, day)
    return _inventory(values, _summary(own, found, values, day, moved_in=0, moved_out=0))


def _inventory(values: list[dict[str, Any]], summary: dict[str, Any]) -> Inventory:
    awaited = sum(value["state"] == "not_final" and value["state_reason"].startswith(AWAITED) for value in values)
    left_out = sum(value["state_reason"] == NOT_SAMPLED for value in values)
    return Inventory(_table(values), summary, awaited, left_out)


def _out_of_reach(row: _Row) -> _Row:
    values = {
        **row.values,
        "state": "unreadable",
        "state_reason": OUT_OF_REACH,
        "state_detail": f"found in folder {row.folder_day}, judged {row.judged_day}",
    }
    return row._replace(values=values)


# ---------------------------------------------------------------------------------------------- one folder


class _Folder(NamedTuple):
    """A day folder: its listing, and what its artifacts hold, by (safe run id, safe problem id or None)."""

    raw: RawDay
    listing: Listing
    pairs: dict[_Found_Key, list[Found]]

    @property
    def day(self) -> date:
        return self.raw.day

    def runs(self) -> set[str]:
        """Runs of the pairs that the listing names."""
        return {run for run, _ in self.listing.entries}

    def judged_day(self, key: _Key) -> date | None:
        """When a pair that the listing names was judged; None for others."""
        return _judged_day(pair, self.day) if (pair := self.listing.entries.get(key)) else None

    def unnamed_there(self) -> dict[_Key, list[Found]]:
        """What artifacts hold of pairs that the folder's listing does not name; empty files belong to no other."""
        return {
            (run, problem): found
            for (run, problem), found in self.pairs.items()
            if problem is not None and (run, problem) not in self.listing.entries and not any(x.empty for x in found)
        }

    def faults(self) -> list[Fault]:
        named = {run for run, _ in self.pairs} | self.runs() | set(self.listing.unnamed)
        missing = sorted(named - set(self.listing.runs))
        return [fault("runs.jsonl", None, "run_missing", run) for run in missing] + self.listing.faults


def _read_folder(
    source: Source, raw: RawDay, limits: Limits, runs: Collection[str] | None = None, listing: Listing | None = None
) -> _Folder:
    """The listing of a folder and its artifacts, all or only those of some runs."""
    pairs: dict[_Found_Key, list[Found]] = {}
    refs = [ref for ref in raw.artifacts if runs is None or safe_id(ref.eval_run_id) in runs]
    for ref, held in zip(refs, _open_all(source, refs, limits), strict=True):
        for problem_id, found in held:
            pairs.setdefault((safe_id(ref.eval_run_id), problem_id), []).append(found)
    return _Folder(raw, listing or index_listing(raw), pairs)


def _runs_judged_on(listing: Listing, folder_day: date, day: date) -> set[str]:
    named = {run for (run, _), pair in listing.entries.items() if _judged_day(pair, folder_day) == day}
    return named | {
        run for run, group in listing.unnamed.items() if any(_judged_day(pair, folder_day) == day for pair in group)
    }


def _judged_day(pair: Entry | None, folder_day: date) -> date:
    return (utc_day(pair.result.get("updated_at")) if pair else None) or folder_day


def _rows(
    folder: _Folder, borrowed: Callable[[_Key, date], list[tuple[date, Found]]], left_out: Collection[_Key] = ()
) -> Iterator[_Row]:
    """One row per pair that is named or found, and one per further line of it.

    Args:
        borrowed: (pair that is named, when it was judged) -> what other folders hold of it, with their days.
        left_out: pairs found but not named, which another folder names.
    """
    raw, listing, pairs = folder
    folder_day = raw.day
    named: list[tuple[str, str | None, Entry | None, list[Found]]] = [
        (run, problem, pair, pairs.get((run, problem), [])) for (run, problem), pair in listing.entries.items()
    ]
    for (run, problem), found in pairs.items():
        if problem is not None and (run, problem) not in listing.entries and (run, problem) not in left_out:
            named.append((run, problem, None, found))
    for run in sorted({run for run, problem in pairs if problem is None} | set(listing.unnamed)):
        named += _without_id(run, listing.unnamed.get(run, []), pairs.get((run, None), []))
    for run, problem, pair, found in named:
        judged = _judged_day(pair, folder_day)
        others = borrowed((run, problem), judged) if pair is not None and problem is not None else []
        held: list[tuple[date, Found | None]] = [*((folder_day, one) for one in found), *others]
        for place, one in held or [(folder_day, None)]:
            line = one.line if one else None
            values = pair_row(listing, run, problem, pair, one, place.isoformat())
            if one is None and values["state"] == "no_trace" and problem is not None:
                values |= _unfetched(raw.unfetched.get((run, problem)))
            shared = bool(one and one.line is not None)
            yield _Row(judged, place, trace_id(run, problem, line), one.content if one else None, shared, values)


def _unfetched(pair: Mapping[str, Any] | None) -> dict[str, Any]:
    """State of a pair without an artifact in a day that was fetched: asked for again, or why it never comes."""
    if pair is None:
        return {}
    if pair["state"] == NOT_SAMPLED:
        share = pair.get("probability")
        detail = f"stratum {pair.get('stratum')!a}, chosen with probability {share}"
        return {"state_reason": NOT_SAMPLED, "state_detail": detail}
    reason = str(pair.get("reason") or pair["state"])
    if pair["state"] == _NOT_ASKED:
        return {"state_detail": reason}
    named = {"state_reason": AWAITED + reason.removeprefix(AWAITED)}
    return named if pair["state"] == _GONE else {"state": "not_final", **named}


def _without_id(
    run: str, entries: list[Entry], found: list[Found]
) -> list[tuple[str, str | None, Entry | None, list[Found]]]:
    """Pairs whose problem id is null. Entry and line are bound only where there is exactly one of each."""
    if len(entries) == 1 and len(found) == 1:
        return [(run, None, entries[0], found)]
    return [(run, None, None, [one]) for one in found] + [(run, None, entry, []) for entry in entries]


def _open_all(source: Source, refs: list[ArtifactRef], limits: Limits) -> Iterator[list[tuple[str | None, Found]]]:
    """``_open`` of each, in order; remote files are fetched side by side, of which only digests stay in memory."""
    if source.parallel_reads == 1:
        yield from (_open(source, ref, limits) for ref in refs)
        return
    with ThreadPoolExecutor(source.parallel_reads) as pool:
        yield from pool.map(lambda ref: _open(source, ref, limits), refs)


def _open(source: Source, ref: ArtifactRef, limits: Limits) -> list[tuple[str | None, Found]]:
    """(problem id, content) of every pair an artifact holds.

    A file that holds several lines is split by the ids inside and loses the binding of its name (domain 1.3, 34).
    """
    stem = safe_id(ref.problem_id)
    blank = Found(ref.uri, ref.size, None, None, None, None, None, None, None, None)
    if ref.size > limits.max_artifact_bytes:
        detail = f"{ref.size} stored bytes, {limits.max_artifact_bytes} allowed"
        return [(stem, blank._replace(reject=RejectRow("too_large", detail)))]
    try:
        data = source.read(ref.uri)
    except RejectRow as error:
        return [(stem, blank._replace(reject=error))]
    blank = blank._replace(size=len(data), sha256=sha256_hex(data))
    try:
        content = open_artifact(data, limits)
    except RejectRow as error:
        return [(stem, blank._replace(reject=error, content=blank.sha256))]
    blank = blank._replace(form=content.form, gzip=content.gzip)
    if not content.records:
        return [(stem, blank._replace(empty="empty_artifact"))]
    return [_found(content, record, stem, blank) for record in content.records]


def _found(content: Content, record: Record, stem: str, blank: Found) -> tuple[str | None, Found]:
    unnamed_damage = record.reject is not None and record.problem_id is None
    split = len(content.records) > 1 or (content.form in _SHARED_FORMS and not unnamed_damage)
    inner = safe_id(record.problem_id) if record.problem_id is not None else None
    reject: RejectRow | None = record.reject
    empty: str | None = None
    if reject is not None and reject.reason == "non_list_result":
        empty, reject = reject.reason, None  # the agent returned no list: an outcome, but no trace (domain 6, 12)
    elif reject is None and not record.steps:
        empty = "empty_dialogue" if record.steps is not None else "null_dialogue"
    found = blank._replace(
        line=record.line if split else None,
        content=sha256_hex(record.raw.strip()),
        reject=reject,
        empty=empty,
        envelope=record.envelope,
    )
    return (inner if split else stem), found


# ---------------------------------------------------------------------------------------------- the day


def _number_duplicates(rows: list[_Row], day: date) -> list[dict[str, Any]]:
    """Give every row its trace id. Of rows with one id the first keeps it, the others get ``#n`` and are set aside.

    First is: the first line of a file; among files a readable one, then the own folder's, then the pair's own file
    before a shared one, then by uri.
    """
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(row.base_id, []).append(row)
    values: list[dict[str, Any]] = []
    for base_id in sorted(groups):
        kept, *others = _ranked(groups[base_id], day) if len(groups[base_id]) > 1 else groups[base_id]
        contents = {row.content for row in (kept, *others) if row.content is not None}
        values.append(
            _placed(kept, base_id, duplicate_lines=len(others), duplicates_differ=bool(others) and len(contents) > 1)
        )
        for number, row in enumerate(others, start=1):
            where = f"line {row.values['artifact_line']} of {row.values['artifact_uri']}"
            row.values.update(state="unreadable", state_reason=DUPLICATE, state_detail=f"{where} repeats {base_id}")
            values.append(_placed(row, f"{base_id}#{number}", duplicate_lines=0, duplicates_differ=False))
    return sorted(values, key=lambda value: str(value["trace_id"]))


def _ranked(rows: list[_Row], day: date) -> list[_Row]:
    """Rows of one trace id, best first; lines of one file stay together and in order."""
    files: dict[tuple[date, str], list[_Row]] = {}
    for row in sorted(rows, key=lambda row: row.values["artifact_line"] or 0):
        files.setdefault((row.folder_day, row.values["artifact_uri"] or ""), []).append(row)

    def rank(item: tuple[tuple[date, str], list[_Row]]) -> tuple[bool, bool, bool, date, str]:
        (folder_day, uri), lines = item
        return (lines[0].values["state"] != "trace", folder_day != day, lines[0].shared, folder_day, uri)

    return [row for _, lines in sorted(files.items(), key=rank) for row in lines]


def _placed(row: _Row, name: str, *, duplicate_lines: int, duplicates_differ: bool) -> dict[str, Any]:
    return {
        **row.values,
        "trace_id": name,
        "day": row.judged_day.isoformat(),
        "duplicate_lines": duplicate_lines,
        "duplicates_differ": duplicates_differ,
    }


def _summary(
    folder: _Folder,
    found: list[_Row],
    values: list[dict[str, Any]],
    day: date,
    *,
    moved_in: int,
    moved_out: int,
) -> dict[str, Any]:
    states = Counter(str(value["state"]) for value in values)
    with_pairs = {row.values["eval_run_id"] for row in found}
    faults = folder.raw.faults + folder.faults()
    faults.sort(key=lambda one: (one["file"], one["line"] or 0, one["reason"], one["detail"]))
    return {
        "day": day.isoformat(),
        "found": len(found),
        "moved_in": moved_in,
        "moved_out": moved_out,
        "raw_rows": len(values),
        "runs": len(folder.raw.runs),
        "runs_without_problems": sum(safe_id(run["eval_run_id"]) not in with_pairs for run in folder.raw.runs),
        "faults": jsontext.dumps(faults),
        "by_state": jsontext.dumps({state: states[state] for state in sorted(states)}),
    }


def _table(values: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    schema = RAW_TRACES.schema()
    columns = [pa.array([value[field.name] for value in values], type=field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)
