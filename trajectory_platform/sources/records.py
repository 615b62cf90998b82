"""Records of the listing files: broken lines become faults, repeated records one, nothing else is changed.

Unknown fields and unknown enum values stay as they are (domain 1.10). A fault is
``{file, line, reason, detail}``; ``line`` counts from 1 and is None for a whole file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.identity import digest_json, parse_utc

Fault = dict[str, Any]

SCORE_TEXT = "reasoning_score_text"
# Faults that cost no record: the line was read with a repair, or a newer record of the same id is used.
RECORD_KEPT = (jsontext.NON_FINITE, jsontext.LONE_SURROGATE, jsontext.REPEATED_KEY, "duplicate_record")
_BOM = b"\xef\xbb\xbf"


def fault(file: str, line: int | None, reason: str, detail: str = "") -> Fault:
    """One fault row."""
    return {"file": file, "line": line, "reason": reason, "detail": detail}


def parse_lines(data: bytes, file: str) -> tuple[list[dict[str, Any]], list[Fault]]:
    """JSON lines to objects. A broken line costs itself; blank lines, a BOM and trailing NUL bytes cost nothing."""
    records: list[dict[str, Any]] = []
    faults: list[Fault] = []
    for number, line in enumerate(data.removeprefix(_BOM).split(b"\n"), start=1):
        text = line.strip(b" \t\r\x00")
        if not text:
            continue
        try:
            parsed = jsontext.parse(text)
        except RejectRow as error:
            faults.append(fault(file, number, error.reason, error.detail))
            continue
        if not isinstance(parsed.value, dict):
            faults.append(fault(file, number, "not_an_object", type(parsed.value).__name__))
            continue
        for repair, count in sorted(parsed.repairs.items()):
            faults.append(fault(file, number, repair, f"{count} repaired"))
        if jsontext.NON_FINITE in parsed.repairs:
            keep_score_texts(parsed.value, text)
        records.append(parsed.value)
    return records, faults


def parse_object(data: bytes, file: str) -> tuple[Any, list[Fault]]:
    """One JSON document; None and a fault when it cannot be read."""
    text = data.removeprefix(_BOM).strip(b" \t\r\n\x00")
    if not text:
        return None, [fault(file, None, "empty_file")]
    try:
        parsed = jsontext.parse(text)
    except RejectRow as error:
        return None, [fault(file, None, error.reason, error.detail)]
    return parsed.value, [
        fault(file, None, repair, f"{count} repaired") for repair, count in sorted(parsed.repairs.items())
    ]


def keep_score_texts(value: Any, text: bytes) -> None:
    """Note the raw token of a reasoning score that was no finite number beside its repaired null.

    A NaN verdict must stay distinguishable from "not judged" (domain 2.6, 8.6).

    Args:
        value: what ``jsontext.parse`` made of ``text``: a problem entry, or an answer that lists some in ``problems``.
    """

    def non_finite(token: str) -> _Token:
        return _Token(token)

    def number(token: str) -> float | _Token:
        finite = float(token)
        return finite if math.isfinite(finite) else _Token(token)

    raw = json.loads(text, parse_constant=non_finite, parse_float=number)
    if not isinstance(value, dict):
        return
    entries = [(value, raw)]
    if isinstance(value.get("problems"), list):
        entries += zip(value["problems"], raw["problems"], strict=True)
    for entry, original in entries:
        if isinstance(entry, dict) and isinstance(entry.get("validator_results"), list):
            for result, source in zip(entry["validator_results"], original["validator_results"], strict=True):
                if isinstance(result, dict) and isinstance(source.get("reasoning_score"), _Token):
                    result[SCORE_TEXT] = str(source["reasoning_score"])


class _Token(str):
    """The text of a JSON number that is not finite."""


def newest(
    records: Iterable[dict[str, Any]], *, key: str, times: tuple[str, ...], file: str
) -> tuple[list[dict[str, Any]], list[Fault]]:
    """One record per id, in order of the id: the one with the latest time in any of ``times``.

    Equal times are decided by the digest of the record, so the order of lines plays no part. Records without an id
    are faults (``missing_id``); ids given twice with different content are reported (``duplicate_record``).
    """
    faults: list[Fault] = []
    best: dict[str, dict[str, Any]] = {}
    differing: dict[str, int] = {}
    for record in records:
        name = id_text(record.get(key))
        if name is None:
            faults.append(fault(file, None, "missing_id", f"{key} is {type(record.get(key)).__name__}"))
            continue
        if name != record[key]:
            record = {**record, key: name}
        held = best.get(name)
        if held is None:
            best[name] = record
        elif held != record:
            differing[name] = differing.get(name, 1) + 1
            best[name] = later(held, record, times)
    faults += [
        fault(file, None, "duplicate_record", f"{key} {name!a}: {count} different records, the latest is used")
        for name, count in sorted(differing.items())
    ]
    return [best[name] for name in sorted(best)], faults


def id_text(value: Any) -> str | None:
    """An id that a source gives as text or as a whole number, as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        return None
    return str(value)


def later(left: dict[str, Any], right: dict[str, Any], times: tuple[str, ...]) -> dict[str, Any]:
    """Whichever record was changed last; a tie is decided by digest."""
    return max(left, right, key=lambda record: (_last_time(record, times), _digest(record)))


def _last_time(record: Mapping[str, Any], times: tuple[str, ...]) -> float:
    moments = [moment.timestamp() for name in times if (moment := parse_utc(record.get(name))) is not None]
    return max(moments, default=-math.inf)


def _digest(record: Mapping[str, Any]) -> str:
    return digest_json(record)


def naive_time(value: Any) -> bool:
    """Whether a text is a time without a zone: it is read as UTC (``identity.parse_utc``), and flagged (case I07)."""
    if not isinstance(value, str):
        return False
    try:
        return datetime.fromisoformat(value.strip()).tzinfo is None
    except ValueError:
        return False
