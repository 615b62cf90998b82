"""One export: rows of one use as one folder in one of two formats, and the way back.

    README.md      the data card; its YAML front matter is what ``datasets`` loads by
    export.json    the same facts for machines
    data/          Parquet shards (format hf)
    *.jsonl        training file and side file per split (format openai)
    SHA256SUMS     of everything else

The facts hold no time and no path, so the same rows and settings give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, FailPartition, RejectRow
from trajectory_platform.release import folders
from trajectory_platform.release.card import export_card
from trajectory_platform.release.folders import Fault
from trajectory_platform.release.hf_layout import SHARD, Shards, read_shard
from trajectory_platform.release.openai_jsonl import pair_of, read_pairs
from trajectory_platform.release.rows import (
    COLUMNS,
    SPLIT_OF,
    SPLITS,
    USES,
    Row,
    RowDigest,
    SetAside,
    check_row,
    with_tools,
)

FORMATS = ("hf", "openai")
FACTS = "export.json"
KIND, VERSION = "trajectory-platform export", 1
MAX_FACTS_BYTES = 8 << 20
CARD = "README.md"


class Written(NamedTuple):
    """What an export holds (``export.json``), and whether it is new (False: the very same was there)."""

    facts: dict[str, Any]
    new: bool


def write_export(
    out: Path, rows: Iterable[Row], about: Callable[[], Mapping[str, Any]], *, use: str, form: str, licence: str
) -> Written:
    """Write an export into a new folder; it appears whole or not at all.

    Args:
        rows: rows with ``rows.COLUMNS``, in the order in which they are written. Read once, never held.
        about: gives the facts of the source as JSON values (see ``card.export_card``); called after the last row, as
            they may be counted on the way.
        licence: as an identifier of the Hub; ``unknown`` where nobody stated one.

    Raises:
        Abort: the folder holds something else, or the format cannot carry the use.
        FailPartition: there is no row, one trace stands twice, or one cluster or problem in both splits.
    """
    check_wanted(use, form)
    with folders.staged(out) as folder:
        facts = fill(folder, rows, about, use=use, form=form, licence=licence)
        if facts is None:
            raise FailPartition("no row to export: nothing was written")
        return Written(facts, folders.place(folder, out))


def check_wanted(use: str, form: str) -> None:
    """Refuse an unknown use or format, and KTO in a format that cannot label an answer. Raises Abort."""
    if use not in USES or form not in FORMATS:
        raise Abort(f"--use is one of {', '.join(USES)}, --format one of {', '.join(FORMATS)}")
    if use == "kto" and form == "openai":
        raise Abort(
            "OpenAI's fine-tuning format has no label for a single answer: undesirable rows would be trained on as "
            "examples. Use --format hf for kto"
        )


def fill(
    folder: Path, rows: Iterable[Row], about: Callable[[], Mapping[str, Any]], *, use: str, form: str, licence: str
) -> dict[str, Any] | None:
    """Write files, facts and card of an export into a folder, without checksums; returns the facts.

    None: there was no row, and what is in the folder is of no use.
    """
    tally = Tally(use)
    with ExitStack() as stack:
        sinks = {split: _sink(form, folder, split, stack) for split in SPLITS}
        for given in rows:
            row = with_tools({name: given[name] for name in COLUMNS})
            sinks[tally.add(row)].add(row)
        files = {split: sink.close() for split, sink in sinks.items()}
    if not tally.rows():
        return None
    facts = {
        "kind": KIND,
        "version": VERSION,
        "format": form,
        "use": use,
        "licence": licence,
        "splits": tally.facts(files),
        **about(),
    }
    sums = {name: folders.file_digest(path) for name, path in folders.files_of(folder).items()}
    (folder / FACTS).write_text(pretty(facts), encoding="utf-8")
    (folder / CARD).write_text(export_card(facts, sums), encoding="utf-8")
    return facts


def read_export(folder: Path) -> Iterator[tuple[str, Row | SetAside]]:
    """(split, row or why it was set aside) of an export that others may have had in their hands.

    Every row is in the result, in the order of the files. Nothing of the folder is run, unpickled, or used as a path:
    files are found by listing the folder. Call ``verify_export`` first.

    Raises:
        FailPartition: no export, or one of a version that is not known.
    """
    facts = read_facts(folder)
    files = folders.files_of(folder)
    seen: set[str] = set()
    for split in SPLITS:
        for name, place, row in _read(files, split, facts["format"]):
            if isinstance(row, SetAside):
                yield split, row
                continue
            row = with_tools(row)
            try:
                check_row(row, split, facts["use"])
                if row["trace_id"] in seen:
                    raise RejectRow("duplicate_trace_id", row["trace_id"][:100])
            except RejectRow as error:
                yield split, SetAside(name, place, error.reason, error.detail)
                continue
            seen.add(row["trace_id"])
            yield split, row


def read_facts(folder: Path) -> dict[str, Any]:
    """The checked head of ``export.json``. Raises FailPartition for anything that is no export of ours."""
    path = folders.files_of(folder).get(FACTS) if folder.is_dir() else None
    if path is None:
        raise FailPartition(f"{folder} is no export: it has no {FACTS} (of a release, name one of its exports)")
    if path.stat().st_size > MAX_FACTS_BYTES:
        raise FailPartition(f"{folder}/{FACTS} is too large")
    try:
        facts = jsontext.parse(path.read_bytes()).value
    except RejectRow as error:
        raise FailPartition(f"{folder}/{FACTS}: {error}") from error
    if not isinstance(facts, dict) or facts.get("kind") != KIND:
        raise FailPartition(f"{folder} is no export of this platform")
    use = facts.get("use")
    known = isinstance(use, str) and use in USES and facts.get("format") in FORMATS
    if facts.get("version") != VERSION or not known:
        raise FailPartition(f"{folder}: version, use or format of the export is not known")
    return facts


def verify_export(folder: Path) -> list[Fault]:
    """Checksums, every row, and that the rows are those the facts state.

    Reasons: those of ``folders.verify_sums``, of ``rows.check_row``, and ``rows_differ``, ``shared_cluster``.
    """
    faults = folders.verify_sums(folder)
    return faults or verify_rows(folder)


def verify_rows(folder: Path) -> list[Fault]:
    """The part of ``verify_export`` behind the checksums."""
    facts = read_facts(folder)
    faults: list[Fault] = []
    tally = Tally(facts["use"])
    for split, row in read_export(folder):
        if isinstance(row, SetAside):
            faults.append(Fault(row.file, row.reason, f"row {row.line}: {row.detail}"))
            continue
        try:
            tally.add(row)
        except FailPartition as error:
            faults.append(Fault(split, "shared_cluster", str(error)))
    said = facts.get("splits")
    for split, counted in tally.facts({}).items():
        told = said.get(split) if isinstance(said, dict) else None
        told = told if isinstance(told, dict) else {}
        if any(told.get(name) != counted[name] for name in ("rows", "rows_sha256")):
            faults.append(Fault(FACTS, "rows_differ", f"{split}: {counted['rows']} rows, not those it states"))
    return faults


class Tally:
    """Counts of the rows of an export, and the last look at its leak rule: no cluster or problem in two splits."""

    def __init__(self, use: str) -> None:
        self._use = use
        self._digests = {split: RowDigest() for split in SPLITS}
        self._counts = {split: {name: Counter[str]() for name in _COUNTED} for split in SPLITS}
        self._of = {name: dict[str, str]() for name in ("cluster_id", "problem_key", "trace_id")}

    def add(self, row: Row) -> str:
        """Count a row; returns its split. Raises FailPartition for a leak or a row that is no row of an export."""
        split = SPLIT_OF.get(row["pool"])
        if split is None:
            raise FailPartition(f"row {row['trace_id']} of pool {row['pool']} must not be exported")
        if row["trace_id"] in self._of["trace_id"]:
            raise FailPartition(f"row {row['trace_id']} stands twice in the export")
        for name, seen in self._of.items():
            if seen.setdefault(row[name], split) != split:
                raise FailPartition(f"leak: {name} of row {row['trace_id']} is in both splits")
        for name, counter in self._counts[split].items():
            value = row[name]
            counter.update(value if isinstance(value, list) else [_word(value)])
        self._digests[split].add(row)
        return split

    def rows(self) -> int:
        return sum(digest.rows for digest in self._digests.values())

    def facts(self, files: Mapping[str, list[str]]) -> dict[str, Any]:
        """Per split: rows, their digest, pool, clusters, problems, files, and counts by column."""
        places = {name: Counter(seen.values()) for name, seen in self._of.items()}
        return {
            split: {
                "pool": SPLITS[split],
                "rows": digest.rows,
                "rows_sha256": digest.hexdigest(),
                "clusters": places["cluster_id"][split],
                "problems": places["problem_key"][split],
                "files": files.get(split, []),
                "counts": {name: dict(sorted(counter.items())) for name, counter in self._counts[split].items()},
            }
            for split, digest in self._digests.items()
        }


def pretty(value: Any) -> str:
    """JSON for machines that people may open: sorted keys, indented, ASCII."""
    import json

    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


_COUNTED = (
    "category",
    "uses",
    "situation",
    "outcome_source",
    "judge_kind",
    "query_verified",
    "filter_version",
    "label",
)


def _word(value: Any) -> str:
    return value if isinstance(value, str) and value else "unknown" if value in (None, "") else jsontext.dumps(value)


class _Sink(Protocol):
    def add(self, row: Row) -> None: ...
    def close(self) -> list[str]: ...


class _Lines:
    """Training file and side file of one split."""

    def __init__(self, folder: Path, split: str, stack: ExitStack) -> None:
        self._names = [f"{split}.jsonl", f"{split}.side.jsonl"]
        opened: list[IO[str]] = [
            stack.enter_context((folder / name).open("w", encoding="utf-8", newline="\n")) for name in self._names
        ]
        self._lines, self._sides = opened

    def add(self, row: Row) -> None:
        pair = pair_of(row)
        if pair.line is not None:
            self._lines.write(pair.line + "\n")
        self._sides.write(jsontext.dumps_line(pair.side) + "\n")

    def close(self) -> list[str]:
        self._lines.close()
        self._sides.close()
        return self._names


def _sink(form: str, folder: Path, split: str, stack: ExitStack) -> _Sink:
    if form == "openai":
        return _Lines(folder, split, stack)
    shards = Shards(folder, split)
    stack.callback(shards.abandon)
    return shards


def _read(files: Mapping[str, Path], split: str, form: str) -> Iterator[tuple[str, int, Row | SetAside]]:
    """(file, 0-based place in it, row) of one split."""
    if form == "hf":
        for name, path in files.items():
            match = SHARD.fullmatch(name)
            if match is not None and match[1] == split:
                for place, row in read_shard(path, name):
                    yield name, place, row
        return
    names = (f"{split}.jsonl", f"{split}.side.jsonl")
    if missing := [name for name in names if name not in files]:
        yield missing[0], 0, SetAside(missing[0], 0, "missing_file", "the split has no such file")
        return
    for place, row in read_pairs(files[names[0]], files[names[1]], names):
        yield names[1], place, row
