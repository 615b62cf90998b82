"""The ledger of looks at sealed problems: ``{lake_uri}/_sealed_reads.jsonl``, one line per look, append-only.

A line says who looked, when, for which checkpoint, at which problems and why, and carries the digest of the line before
it (``previous``), so that a changed, removed or inserted line breaks the chain. ``_sealed_reads.head.json`` holds the
number of lines and the digest of the last one, so that lines cut off at the end are missed too. A look compares the two
before it is written and says what is wrong (``found``), so no later look covers up what was cut off before. Lines of
the first format ({at, query_sha256, reason}, without ``previous``) may only stand before all others; the first chained
line carries the digest of all bytes before it.

The ledger is evidence against oversight and quiet edits. It does not bind whoever may write the lake's folder: such a
person can make the whole file anew. Reading the lake's files directly is outside it (``docs/leaks.md``).
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.identity import digest_lines, sha256_hex
from trajectory_platform.lake.storage import ANYTHING, Content, Storage

if TYPE_CHECKING:
    from trajectory_platform.lake.publish import Lake

LEDGER = "_sealed_reads.jsonl"
HEAD = "_sealed_reads.head.json"
LEASE = "sealed_reads"
USER_VARIABLE = "TRAJECTORY_PLATFORM_USER"
_READ_TRIES = 10
EVALUATION = "evaluation"  # the kind of look that scores come from


class Look(NamedTuple):
    """One look.

    Attributes:
        line: 1-based line of the ledger. ``at``: UTC time, ISO-8601; ``who``: None in the first format.
        what: ``evaluation``, ``sql``, ``traces show``, ``leaks explain``, ``lineage trace``, ``export``.
        detail: what exactly (stage and day, trace id); ``query_sha256``: digest of the text of a ``sql`` look.
        checkpoint_id: whose score came of it; None for a person's look.
        keys: keys of the problems, sorted; None where the line does not tell them (first format, damaged list).
    """

    line: int
    at: str
    who: str | None
    what: str
    detail: str | None
    checkpoint_id: str | None
    keys: tuple[str, ...] | None
    reason: str
    query_sha256: str | None


class Fault(NamedTuple):
    """Damage of the ledger.

    Attributes:
        line: 1-based; 0 for the ledger as a whole.
        reason: cut | unreadable | chain_broken | not_chained | keys_damaged | head_damaged | head_missing |
            lines_missing | head_differs | head_behind; of ``verify_ledger`` also score_without_look. With ``line`` and
            a reason of the head: what the look of that line found before it was written.
    """

    line: int
    reason: str
    detail: str


class Ledger(NamedTuple):
    """All readable looks, in order, and everything that is wrong with the file."""

    looks: tuple[Look, ...]
    faults: tuple[Fault, ...]


def user_name() -> str:
    """Who looks, when the caller names nobody: ``TRAJECTORY_PLATFORM_USER``, else the login name of this process.

    The login name is that of the system's user table, never ``$USER``; an unknown user is ``uid-{number}``.
    """
    given = os.environ.get(USER_VARIABLE, "").strip()
    if given:
        return given
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid-{os.geteuid()}"


def record(
    lake: Lake,
    *,
    what: str,
    reason: str | None,
    at: datetime | None,
    keys: Iterable[str],
    checkpoint_id: str | None = None,
    detail: str | None = None,
    query: str | None = None,
    who: str | None = None,
) -> None:
    """Append one look and wait until it is on the disk; call it *before* anything sealed is shown.

    The list of keys is written once: a later look at the very same problems only repeats its digest.

    Args:
        at: the time of the look with a zone (the lake reads no clock).
        keys: problem keys, in any order.
        who: None = ``user_name()``.

    Raises:
        Abort: no reason or no time.
        FailPartition: it cannot be written; nothing may be shown then.
    """
    if reason is None or not reason.strip():
        raise Abort("reading sealed rows needs a reason: --sealed REASON")
    if at is None or at.tzinfo is None:
        raise Abort("reading sealed rows needs the time of the read (at=, with a zone)")
    listed = sorted(set(keys))
    entry: dict[str, Any] = {
        "at": at.astimezone(UTC).isoformat(),
        "who": who or user_name(),
        "what": what,
        "checkpoint_id": checkpoint_id,
        "problems": len(listed),
        "keys_sha256": digest_lines(listed),
        "reason": reason,
    }
    if detail is not None:
        entry["detail"] = detail
    if query is not None:
        entry["query_sha256"] = sha256_hex(query.encode("utf-8", "surrogatepass"))
    try:
        with lake.storage.lease(LEASE):
            _append(lake.storage, entry, listed)
    except OSError as error:
        raise FailPartition(f"the sealed read cannot be recorded in {LEDGER}: {error.strerror or error}") from error


def read_ledger(lake: Lake) -> Ledger:
    """Every look of the ledger and its faults; an absent ledger holds none.

    Raises:
        FailPartition: the file cannot be opened.
    """
    content, head = _settled(lake.storage)
    looks: list[Look] = []
    faults: list[Fault] = []
    lists: dict[str, tuple[str, ...]] = {}
    chained, start, before = False, 0, b""
    lines = _lines(content)
    for number, line in enumerate(lines, 1):
        entry = _entry(line)
        if entry is None:
            cut = number == len(lines) and not content.endswith(b"\n")
            faults.append(Fault(number, "cut" if cut else "unreadable", f"line {number} is no record of a look"))
        else:
            if "previous" in entry:
                expected = sha256_hex(before if chained else content[:start])
                if entry["previous"] != expected:
                    words = f"line {number} does not follow the line before it: one was changed, removed or put in"
                    faults.append(Fault(number, "chain_broken", words))
                chained = True
            elif chained:
                words = f"line {number} carries no digest of the line before it: it was not written by the platform"
                faults.append(Fault(number, "not_chained", words))
            keys = _keys(entry, lists)
            if keys is None and "previous" in entry:
                words = f"line {number}: its list of problems is missing or not the one of its digest"
                faults.append(Fault(number, "keys_damaged", words))
            if entry.get("found"):
                reason, _, words = entry["found"].partition(": ")
                faults.append(Fault(number, reason, f"found when line {number} was written: {words}"))
            looks.append(_look(number, entry, keys))
        start, before = start + len(line) + 1, line
    return Ledger(tuple(looks), (*faults, *_head_faults(head, lines, chained)))


def _append(storage: Storage, entry: dict[str, Any], keys: list[str]) -> None:
    """Write one line under the lease. A cut last line (a writer was killed) is closed and stays, as evidence."""
    seen, head = _read(storage, LEDGER), _read(storage, HEAD)
    content = seen.data if seen else b""
    gap = b"" if not content or content.endswith(b"\n") else b"\n"
    lines = _lines(content)
    known = [found for line in lines if (found := _entry(line)) is not None]
    chained = any("previous" in found for found in known)
    entry["previous"] = sha256_hex(lines[-1] if chained else content + gap)
    for fault in _head_faults(head.data if head else None, lines, chained):
        shows_itself = 0 < fault.line <= len(lines) and _entry(lines[fault.line - 1]) is None
        if not shows_itself:
            entry["found"] = f"{fault.reason}: {fault.detail}"
    digest = entry["keys_sha256"]
    if not any(found.get("keys_sha256") == digest and "keys" in found for found in known):
        entry["keys"] = keys
    line = json.dumps(entry, sort_keys=True).encode("ascii")
    with storage.appended(LEDGER, seen, gap + line + b"\n"):  # no line is left without its head
        _write_head(storage, len(lines) + 1, sha256_hex(line), head)


def _write_head(storage: Storage, lines: int, digest: str, seen: Content | None = ANYTHING) -> None:
    data = json.dumps({"lines": lines, "sha256": digest}, sort_keys=True).encode("ascii") + b"\n"
    storage.write(HEAD, data, seen)


def _settled(storage: Storage) -> tuple[bytes, bytes | None]:
    """Ledger and head while nobody writes.

    Who may not write the lake takes no lease and reads what is there. In an object store nobody takes one: the head is
    read before and after the ledger, until it is the same.
    """
    head, content = _read(storage, HEAD), _read(storage, LEDGER)
    if head is None and content is None:
        return b"", None
    if storage.remote:
        for _ in range(_READ_TRIES):
            after = _read(storage, HEAD)
            if after == head:
                break
            head, content = after, _read(storage, LEDGER)
        return content.data if content else b"", head.data if head else None
    try:
        with storage.lease(LEASE):
            head, content = _read(storage, HEAD), _read(storage, LEDGER)
    except OSError:
        pass
    return content.data if content else b"", head.data if head else None


def _head_faults(raw: bytes | None, lines: list[bytes], chained: bool) -> list[Fault]:
    """The end of the ledger against its head. A writer that was killed between the two leaves the head one behind."""
    if raw is None:
        first_only = len(lines) <= 1  # killed before the first head
        return [Fault(0, "head_missing", f"{HEAD} is missing")] if chained and not first_only else []
    try:
        head = json.loads(raw)
        count, digest = int(head["lines"]), str(head["sha256"])
    except (ValueError, KeyError, TypeError):
        return [Fault(0, "head_damaged", f"{HEAD} is not readable")]
    if len(lines) < count:
        return [Fault(0, "lines_missing", f"{LEDGER} has {len(lines)} lines, {count} were written")]
    if count < 1 or sha256_hex(lines[count - 1]) != digest:
        return [Fault(count, "head_differs", f"line {count} is not the one that was written")]
    if len(lines) > count + 1:
        return [Fault(count + 1, "head_behind", f"{len(lines) - count} lines were not written by the platform")]
    return []


def _read(storage: Storage, name: str) -> Content | None:
    try:
        return storage.read(name)
    except OSError as error:
        raise FailPartition(f"{name} cannot be read: {error.strerror or error}") from error


def _lines(content: bytes) -> list[bytes]:
    """The lines without their ends; one that was cut is the last."""
    parts = content.split(b"\n")
    return parts[:-1] if parts[-1] == b"" else parts


def _entry(line: bytes) -> dict[str, Any] | None:
    """A line as a record; None where it is none."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in ("at", "reason")):
        return None
    texts = ("who", "what", "detail", "checkpoint_id", "query_sha256", "keys_sha256", "previous", "found")
    return entry if all(isinstance(entry.get(name), str | None) for name in texts) else None


def _keys(entry: Mapping[str, Any], lists: dict[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """The problems of a look, from its own list or from the line that wrote this list first."""
    digest = entry.get("keys_sha256")
    if digest is None:
        return None
    if "keys" in entry:
        listed = entry["keys"]
        if not isinstance(listed, list) or not all(isinstance(key, str) for key in listed):
            return None
        if digest_lines(listed) != digest:
            return None
        lists[digest] = tuple(listed)
    return lists.get(digest)


def _look(number: int, entry: Mapping[str, Any], keys: tuple[str, ...] | None) -> Look:
    return Look(
        line=number,
        at=entry["at"],
        who=entry.get("who"),
        what=entry.get("what") or "sql",  # the first format knew nothing else
        detail=entry.get("detail"),
        checkpoint_id=entry.get("checkpoint_id"),
        keys=keys,
        reason=entry["reason"],
        query_sha256=entry.get("query_sha256"),
    )
