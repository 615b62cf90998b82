"""What an artifact's bytes are, found by looking at them: names and content types do not tell (cases A24, 35).

Published shapes (domain 1.2, 1.3): a JSON array of dialogue steps, JSON lines of envelopes, JSON lines of bare step
lists, a whole run's file under the id of one problem, nothing at all; each with or without gzip, and a gzip file may
have several members. A fault of the gzip layer costs the file, a broken record costs that record.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow

GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_ARCHIVES = (b"PK\x03\x04", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c", b"Rar!")
_MAX_MEMBERS = 10_000
_CHUNK = 1 << 16
_ID_SCAN = 1 << 16  # bytes of a damaged record that are searched for its problem id
_ID = re.compile(rb'"problem_id"\s*:\s*("(?:[^"\\\x00-\x1f]|\\.){1,200}")')
_KEPT_OF_OVERSIZED = 4096


class Limits(NamedTuple):
    """Caps, in bytes and levels; the defaults are those of ``settings.Settings``."""

    max_artifact_bytes: int = 64 << 20
    max_inflated_bytes: int = 256 << 20
    max_record_bytes: int = 16 << 20
    max_depth: int = 100


class Record(NamedTuple):
    """One trace of an artifact.

    Attributes:
        line: 0-based line (blank ones count) or, for an array of records, index; None when the file is one trace.
        problem_id: the id written beside the dialogue, as text; None when there is none or it is null.
        raw: the record's bytes (of an oversized one only the first 4,096).
        steps: the dialogue, or None (null dialogue, or damage).
        envelope: the other fields of an envelope line or message row, or None.
        reject: why it cannot be read, or None.
        repairs: reason -> count.
        recovered_problem_id: the id was found by searching the bytes of a damaged record.
    """

    line: int | None
    problem_id: str | None
    raw: bytes
    steps: list[Any] | None
    envelope: dict[str, Any] | None
    reject: RejectRow | None
    repairs: dict[str, int]
    recovered_problem_id: bool


class Content(NamedTuple):
    """A whole artifact. ``form``: array | chat | jsonl_envelopes | jsonl_steps | whole_file | empty | unknown.

    ``whole_file`` is a file of several envelope lines: a run's whole output.
    """

    form: str
    gzip: bool
    records: list[Record]


def inflate(data: bytes, limits: Limits) -> tuple[bytes, bool]:
    """(content, whether it was gzip), decided by the magic bytes; never more than the cap is inflated.

    Raises:
        RejectRow: ``too_large``, ``truncated_gzip`` (a member without its trailer: case A22), ``corrupt_gzip``.
    """
    if len(data) > limits.max_artifact_bytes:
        raise RejectRow("too_large", f"{len(data)} stored bytes, {limits.max_artifact_bytes} allowed")
    if not data.startswith(GZIP_MAGIC):
        if len(data) > limits.max_inflated_bytes:
            raise RejectRow("too_large", f"{len(data)} bytes, {limits.max_inflated_bytes} allowed")
        return data, False
    content, position = BytesIO(), 0
    for _ in range(_MAX_MEMBERS):
        position = _inflate_member(data, position, content, limits.max_inflated_bytes)
        if _only_padding(data, position):
            return content.getvalue(), True
        if not data.startswith(GZIP_MAGIC, position):
            raise RejectRow("corrupt_gzip", f"{len(data) - position} bytes behind the gzip member are no gzip")
    raise RejectRow("corrupt_gzip", f"more than {_MAX_MEMBERS} gzip members")


def _inflate_member(data: bytes, position: int, content: BytesIO, limit: int) -> int:
    """Append one member's content; returns the offset behind its trailer, which is verified."""
    stream = zlib.decompressobj(wbits=31)
    while not stream.eof:
        chunk = data[position : position + _CHUNK]
        if not chunk:
            raise RejectRow("truncated_gzip", f"{len(data)} bytes, {content.tell()} inflated, no trailer")
        position += len(chunk)
        try:
            content.write(stream.decompress(chunk, limit - content.tell() + 1))
        except zlib.error as error:
            raise RejectRow("corrupt_gzip", str(error)) from error
        if content.tell() > limit:
            raise RejectRow("too_large", f"inflates to more than the {limit} bytes allowed")
    return position - len(stream.unused_data)


def _only_padding(data: bytes, position: int) -> bool:
    return not data[position : position + _CHUNK].strip(b"\x00") and not data[position:].strip(b"\x00")


def open_artifact(data: bytes, limits: Limits) -> Content:
    """Every record of an artifact, damaged ones with a reason in their place. ``[]`` is one record without steps.

    Raises:
        RejectRow: only when nothing can be read (gzip faults, sizes).
    """
    content, gzip = inflate(data, limits)
    form, records = _split(content, limits)
    kept = list(records)
    return Content(_form_of(form, kept), gzip, kept)


def read_records(data: bytes, limits: Limits, wanted: set[int] | None = None) -> Iterator[Record]:
    """The records one after the other, of all lines or of the wanted ones: a run's file is never held as values.

    Raises:
        RejectRow: as :func:`open_artifact`.
    """
    content, _ = inflate(data, limits)
    _, records = _split(content, limits, wanted)
    return records if wanted is None else (record for record in records if record.line in wanted)


def _split(content: bytes, limits: Limits, wanted: set[int] | None = None) -> tuple[str, Iterator[Record]]:
    """(form, records). The form of lines depends on the records, see :func:`_form_of`."""
    body = content.removeprefix(_BOM)
    marks = {"byte_order_mark": 1} if len(body) != len(content) else {}
    body = body.lstrip(_BLANK)
    lead = content[: len(content) - len(body)].count(b"\n")
    trimmed = body.rstrip(_BLANK + b"\x00")
    if not trimmed:
        return "empty", iter(())
    padding = b"\x00" in body[len(trimmed) :]
    if trimmed[:1] not in (b"[", b"{"):
        if not _is_archive(trimmed) and (trimmed[:1] == b"\x00" or _has_record_line(trimmed)):
            return "lines", _lines(body, lead, limits, marks, wanted)
        return "unknown", iter([_no_container(content)])
    newline = trimmed.find(b"\n")
    if newline < 0:
        return _whole(trimmed, limits, marks, padding)
    if _looks_complete(trimmed[:newline]):
        return "lines", _lines(body, lead, limits, marks, wanted)
    if len(trimmed) <= limits.max_record_bytes:
        form, records = _whole(trimmed, limits, marks, padding)
        kept = list(records)
        if kept[0].reject is None or not _has_record_line(trimmed[newline + 1 :]):
            return form, iter(kept)
    if _has_record_line(trimmed[newline + 1 :]):
        return "lines", _lines(body, lead, limits, marks, wanted)
    return _whole(trimmed, limits, marks, padding)


def _looks_complete(line: bytes) -> bool:
    line = line.rstrip(_BLANK + b"\x00")
    return (line[:1], line[-1:]) in ((b"[", b"]"), (b"{", b"}"))


def _has_record_line(body: bytes) -> bool:
    """Whether some line begins, without indentation, like a record of its own (pretty-printed JSON has no such)."""
    return any(body.startswith(start) or b"\n" + start in body for start in (b'{"', b'{ "', b"[{", b"[]"))


def _no_container(content: bytes) -> Record:
    reason = "nested_archive" if _is_archive(content) else "unknown_container"
    return _rejected(None, content, RejectRow(reason, f"begins with {content[:16].hex()}"))


def _is_archive(content: bytes) -> bool:
    """An archive may hold lines that look like records: its members are no lines of a run."""
    return content.startswith((GZIP_MAGIC, *_ARCHIVES)) or content[257:262] == b"ustar"


def _rejected(line: int | None, raw: bytes, reject: RejectRow, repairs: dict[str, int] | None = None) -> Record:
    problem_id = _search_id(raw)
    kept = raw if reject.reason != "record_too_large" else raw[:_KEPT_OF_OVERSIZED]
    return Record(line, problem_id, kept, None, None, reject, repairs or {}, problem_id is not None)


def _search_id(raw: bytes) -> str | None:
    """The first ``problem_id`` near the start of a damaged record (in an envelope it is the first field)."""
    found = _ID.search(raw, 0, _ID_SCAN)
    if found is None:
        return None
    try:
        value = jsontext.parse(found.group(1)).value
    except RejectRow:
        return None
    return value if isinstance(value, str) else None


def _parse(raw: bytes, limits: Limits) -> jsontext.ParsedJson | RejectRow:
    if len(raw) > limits.max_record_bytes:
        return RejectRow("record_too_large", f"{len(raw)} bytes, {limits.max_record_bytes} allowed")
    try:
        return jsontext.parse(raw, max_depth=limits.max_depth)
    except RejectRow as error:
        return error


def _whole(raw: bytes, limits: Limits, marks: dict[str, int], padding: bool) -> tuple[str, Iterator[Record]]:
    """The file is one JSON value."""
    repairs = {**marks, "trailing_nul_bytes": 1} if padding else dict(marks)
    parsed = _parse(raw, limits)
    if isinstance(parsed, RejectRow):
        form = "array" if raw[:1] == b"[" else "jsonl_envelopes"
        return form, iter([_rejected(None, raw, parsed, repairs)])
    value, repairs = parsed.value, {**repairs, **parsed.repairs}
    if isinstance(value, list):
        first = next((item for item in value if isinstance(item, dict)), None)
        if first is not None and "completion" not in first and ("dialogue" in first or "messages" in first):
            return "array", (_record(index, b"", item, {} if index else repairs) for index, item in enumerate(value))
        form = "chat" if is_chat(value) else "array"
        return form, iter([Record(None, None, raw, value, None, None, repairs, False)])
    record = _record(0, raw, value, repairs)
    if not isinstance(value, dict) or record.envelope is None:
        return "unknown", iter([record])
    return ("jsonl_envelopes" if "dialogue" in value else "chat"), iter([record])


def is_chat(steps: list[Any]) -> bool:
    """Whether a dialogue is in the third shape, ``{role, content, ...}`` without ``completion`` (domain 1.4)."""
    first = next((step for step in steps if isinstance(step, dict)), None)
    return first is not None and "completion" not in first and "role" in first


def _lines(
    body: bytes, number: int, limits: Limits, marks: dict[str, int], wanted: set[int] | None
) -> Iterator[Record]:
    """The file is JSON lines; blank ones, and lines of NUL bytes that a killed writer left, are no records."""
    start = 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        if wanted is None or number in wanted:
            line = body[start:end].strip(_BLANK)
            if line.strip(_BLANK + b"\x00"):
                yield _line(number, line, limits, marks)
                marks = {}
        number, start = number + 1, end + 1


def _line(number: int, line: bytes, limits: Limits, marks: dict[str, int]) -> Record:
    trimmed = line.rstrip(_BLANK + b"\x00")
    padding = b"\x00" in line[len(trimmed) :]
    repairs = {**marks, "trailing_nul_bytes": 1} if padding else marks
    parsed = _parse(trimmed, limits)
    if isinstance(parsed, RejectRow):
        if parsed.reason == "truncated_json":
            parsed = RejectRow("cut_line", parsed.detail)
        return _rejected(number, trimmed, parsed, repairs)
    return _record(number, trimmed, parsed.value, {**repairs, **parsed.repairs})


def _record(line: int | None, raw: bytes, value: Any, repairs: dict[str, int]) -> Record:
    """A parsed line: an envelope, a bare list of steps, or a row of chat messages."""
    raw = raw or jsontext.dumps(value).encode()
    if isinstance(value, list):
        return Record(line, _step_id(value), raw, value, None, None, repairs, False)
    if isinstance(value, dict):
        problem_id = _as_text(value.get("problem_id"))
        for key in ("dialogue", "messages"):
            if key in value:
                envelope = {name: item for name, item in value.items() if name != key}
                steps = value[key]
                if steps is None or isinstance(steps, list):
                    return Record(line, problem_id, raw, steps, envelope, None, repairs, False)
                reject = RejectRow("non_list_result", f"{key} is {type(steps).__name__}")
                return Record(line, problem_id, raw, None, envelope, reject, repairs, False)
        keys = ", ".join(sorted(value)[:8])
        return Record(line, problem_id, raw, None, None, RejectRow("no_dialogue", f"keys: {keys!a}"), repairs, False)
    reject = RejectRow("no_dialogue", f"a {type(value).__name__}")
    return Record(line, None, raw, None, None, reject, repairs, False)


def _step_id(steps: list[Any]) -> str | None:
    """The problem id that a bare list names: its first step's. The agent can set it, but nothing else names one."""
    first = steps[0] if steps else None
    extra = first.get("extra_info") if isinstance(first, dict) else None
    return _as_text(extra.get("problem_id")) if isinstance(extra, dict) else None


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return jsontext.canonical(value)


def _form_of(form: str, records: list[Record]) -> str:
    if form != "lines":
        return form
    if all(record.reject is None and record.envelope is None for record in records):
        return "jsonl_steps"
    if all(record.envelope is not None and "problem_id" not in record.envelope for record in records):
        return "chat"
    if any(record.raw.lstrip(b"\x00")[:1] == b"{" for record in records):
        return "whole_file" if len(records) > 1 else "jsonl_envelopes"
    return "jsonl_steps"
