"""A release: data, card, splits, filter, arena rules, sealed problems as commitments, and checksums, in one folder.

README.md              the data card; ``load_dataset(FOLDER, "sft")`` and ``"kto"`` work by it
release.json           counts, sources, digests
sft/, kto/             an export each (``exports``), complete in itself; one without rows is left out
splits/problems.jsonl  problems of the data: key, cluster, pool, category
splits/method.json     how pools and clusters were made
splits/sealed.txt      one commitment per sealed problem (``sealed_problems``)
filter.json            versions and whole configuration of the structural filter
arena_rules.json       the rules of the arena, the tools and the rules of the score
SHA256SUMS             of everything else; its own digest names the release
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, FailPartition, RejectRow
from trajectory_platform.identity import digest_lines
from trajectory_platform.release import folders
from trajectory_platform.release.card import release_card
from trajectory_platform.release.exports import (
    CARD,
    FACTS,
    MAX_FACTS_BYTES,
    fill,
    pretty,
    read_export,
    read_facts,
    verify_export,
    verify_rows,
)
from trajectory_platform.release.folders import Fault
from trajectory_platform.release.rows import USES, Row, SetAside
from trajectory_platform.release.sealed_problems import LINE, commitments

HEAD = "release.json"
KIND, VERSION = "trajectory-platform release", 1
PROBLEMS, METHOD, SEALED = "splits/problems.jsonl", "splits/method.json", "splits/sealed.txt"
FILTER, RULES = "filter.json", "arena_rules.json"


class Material(NamedTuple):
    """What a release is made from.

    Attributes:
        rows: use -> its rows and what gives the facts of their source (``exports.write_export``).
        sealed: keys of the sealed problems; ``key``: the release key.
        rules: content of ``arena_rules.json``.
    """

    as_of: str
    rows: Mapping[str, tuple[Iterable[Row], Callable[[], Mapping[str, Any]]]]
    sealed: Sequence[str]
    key: bytes
    rules: Mapping[str, Any]


class Released(NamedTuple):
    """``release.json``, the digest that names the release, and whether it is new."""

    facts: dict[str, Any]
    digest: str
    new: bool


def build_release(out: Path, material: Material, *, licence: str) -> Released:
    """Write a release into a new folder; it appears whole or not at all.

    Raises:
        Abort: the folder holds something else.
        FailPartition: no use has a row, a leak between the splits of the exports, or a released problem is sealed.
    """
    with folders.staged(out) as folder:
        exports: dict[str, dict[str, Any]] = {}
        problems = _Problems()
        for use, (rows, about) in material.rows.items():
            (folder / use).mkdir()
            made = fill(folder / use, problems.noted(rows), about, use=use, form="hf", licence=licence)
            if made is None:
                (folder / use).rmdir()
                continue
            exports[use] = made
            folders.write_sums(folder / use)
        if not exports:
            raise FailPartition("no row to release: nothing was written")
        facts = _describe(folder, material, exports, problems, licence)
        new = folders.place(folder, out)
        return Released(facts, folders.folder_digest(out), new)


def verify_release(folder: Path, key: bytes | None = None) -> list[Fault]:
    """Checksums, every row of every export, the leak rule across them, and the lists of problems.

    Reasons: those of ``exports.verify_export``, and ``bad_release``, ``problems_differ``, ``sealed_differ``,
    ``sealed_problem_released``.

    Args:
        key: the release key; with it, it is also checked that no released problem is one of the sealed ones.
    """
    if faults := folders.verify_sums(folder):
        return faults
    files = folders.files_of(folder)
    facts = read_release(folder)
    uses = [use for use in USES if f"{use}/{FACTS}" in files]
    faults = [Fault(HEAD, "bad_release", "it names other exports than it holds")] if uses != facts["uses"] else []
    problems = _Problems()
    for use in uses:
        faults += [fault._replace(file=f"{use}/{fault.file}") for fault in verify_rows(folder / use)]
        told = read_facts(folder / use)
        if told["use"] != use:
            faults.append(Fault(f"{use}/{FACTS}", "bad_release", f"it is an export for {told['use']}"))
        if told.get("splits") != facts["exports"].get(use):
            faults.append(Fault(HEAD, "rows_differ", f"{use}: other counts than its export states"))
        rows = (row for _, row in read_export(folder / use) if not isinstance(row, SetAside))
        try:
            for _ in problems.noted(rows):
                pass
        except FailPartition as error:
            faults.append(Fault(use, "shared_cluster", str(error)))
    if PROBLEMS not in files or files[PROBLEMS].read_bytes() != problems.text().encode():
        faults.append(Fault(PROBLEMS, "problems_differ", "not the problems of the rows"))
    return faults + _verify_sealed(files, facts, problems, key)


def read_release(folder: Path) -> dict[str, Any]:
    """The checked head of ``release.json``. Raises FailPartition for anything that is no release of ours."""
    path = folders.files_of(folder).get(HEAD) if folder.is_dir() else None
    if path is None or path.stat().st_size > MAX_FACTS_BYTES:
        raise FailPartition(f"{folder} is no release: it has no {HEAD}, or one that is too large")
    try:
        facts = jsontext.parse(path.read_bytes()).value
    except RejectRow as error:
        raise FailPartition(f"{folder}/{HEAD}: {error}") from error
    if not isinstance(facts, dict) or facts.get("kind") != KIND or facts.get("version") != VERSION:
        raise FailPartition(f"{folder} is no release of this platform, or one of an unknown version")
    if not isinstance(facts.get("exports"), dict) or not isinstance(facts.get("sealed"), dict):
        raise FailPartition(f"{folder}/{HEAD}: exports and sealed are missing")
    return {**facts, "uses": [use for use in USES if use in facts["exports"]]}


def verify(folder: Path, key: bytes | None = None) -> list[Fault]:
    """``verify_release`` of a release, ``exports.verify_export`` of a single export.

    Raises:
        Abort: no such folder. FailPartition: it is neither.
    """
    if not folder.is_dir():
        raise Abort(f"{folder} is no folder")
    if (folder / FACTS).exists() and not (folder / HEAD).exists():
        return verify_export(folder)
    return verify_release(folder, key)


class _Problems:
    """The problems of the rows that pass by, each in one pool, whatever the export."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, str, str | None]] = {}
        self._pools: dict[str, str] = {}

    def noted(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows as they are. Raises FailPartition where a cluster or problem stands in two pools."""
        for row in rows:
            entry = (row["cluster_id"], row["pool"], row["category"])
            if self._found.setdefault(row["problem_key"], entry)[:2] != entry[:2]:
                raise FailPartition(f"leak: problem {row['problem_key'][:16]} has two clusters or pools")
            if self._pools.setdefault(row["cluster_id"], row["pool"]) != row["pool"]:
                raise FailPartition(f"leak: cluster {row['cluster_id'][:16]} is in two pools")
            yield row

    def keys(self) -> list[str]:
        return sorted(self._found)

    def text(self) -> str:
        """``splits/problems.jsonl``."""
        lines = []
        for key, (cluster, pool, category) in sorted(self._found.items()):
            entry = {"problem_key": key, "cluster_id": cluster, "pool": pool, "category": category}
            lines.append(jsontext.dumps_line(entry) + "\n")
        return "".join(lines)


def _describe(
    folder: Path, material: Material, exports: Mapping[str, dict[str, Any]], problems: _Problems, licence: str
) -> dict[str, Any]:
    """Write everything of a release beside its exports; returns ``release.json``."""
    lines = commitments(material.key, material.sealed)
    if not set(lines).isdisjoint(commitments(material.key, problems.keys())):
        raise FailPartition("leak: a problem of the data is sealed")
    first = next(iter(exports.values()))
    facts = {
        "kind": KIND,
        "version": VERSION,
        "as_of": material.as_of,
        "licence": licence,
        "exports": {use: made["splits"] for use, made in exports.items()},
        "left_out": {use: made["left_out"] for use, made in exports.items()},
        "sources": first["sources"],
        "problems": len(problems.keys()),
        "sealed": {"problems": len(lines), "list_sha256": digest_lines(lines), "scheme": "commitment 1"},
    }
    (folder / "splits").mkdir()
    (folder / PROBLEMS).write_text(problems.text(), encoding="utf-8")
    (folder / METHOD).write_text(pretty(first["split_method"]), encoding="utf-8")
    (folder / SEALED).write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    (folder / FILTER).write_text(pretty(first["filters"]), encoding="utf-8")
    (folder / RULES).write_text(pretty(material.rules), encoding="utf-8")
    (folder / HEAD).write_text(pretty(facts), encoding="utf-8")
    (folder / CARD).write_text(release_card(facts, exports), encoding="utf-8")
    return facts


def _verify_sealed(
    files: Mapping[str, Path], facts: Mapping[str, Any], problems: _Problems, key: bytes | None
) -> list[Fault]:
    lines = files[SEALED].read_text("ascii", "replace").splitlines() if SEALED in files else []
    said = facts["sealed"]
    if not all(LINE.fullmatch(line) for line in lines) or lines != sorted(set(lines)):
        return [Fault(SEALED, "sealed_differ", "not one commitment a line, sorted")]
    if said.get("problems") != len(lines) or said.get("list_sha256") != digest_lines(lines):
        return [Fault(SEALED, "sealed_differ", f"{len(lines)} lines, not those that {HEAD} states")]
    if key is not None and not set(lines).isdisjoint(commitments(key, problems.keys())):
        return [Fault(SEALED, "sealed_problem_released", "a problem of the data is in the list of sealed ones")]
    return []
