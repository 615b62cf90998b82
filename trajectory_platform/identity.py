"""Ids, digests and days: the few rules by which a row is named and placed.

Every digest here is SHA-256 over canonical bytes, so it does not depend on the process,
the machine, the row order or ``PYTHONHASHSEED``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def safe_id(raw: object) -> str:
    """A source id that may be composed into other ids, keys and partition names.

    Ids inside ``[A-Za-z0-9_-]{1,64}`` stay as they are; everything else becomes ``sha256-`` and the
    first 40 hex digits of the digest of its text (design: "ids and text are hostile").
    """
    text = raw if isinstance(raw, str) else json.dumps(raw, sort_keys=True, default=str)
    if _SAFE_ID.fullmatch(text):
        return text
    return "sha256-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def trace_id(eval_run_id: str, problem_id: str | None, line: int | None = None) -> str:
    """``{eval_run_id}:{problem_id}``; a null problem id gives ``{eval_run_id}:@{line}``."""
    if problem_id is None:
        return f"{safe_id(eval_run_id)}:@{0 if line is None else line}"
    return f"{safe_id(eval_run_id)}:{safe_id(problem_id)}"


def sha256_hex(data: bytes) -> str:
    """Hex SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_json(value: Any) -> str:
    """Hex SHA-256 of a JSON value in canonical form (sorted keys, no spaces, ASCII)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def digest_lines(lines: Iterable[str]) -> str:
    """Hex SHA-256 of text items, length-prefixed so that ``["ab","c"]`` and ``["a","bc"]`` differ."""
    hasher = hashlib.sha256()
    for line in lines:
        data = line.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "big"))
        hasher.update(data)
    return hasher.hexdigest()


def identity_digest(*, stage: str, code_version: str, inputs: Mapping[str, str], settings: Mapping[str, Any]) -> str:
    """What a partition is made of: input content digests, the stage's code version, the settings it used.

    Table versions are deliberately absent: a version belongs to the whole table, not to a day.
    """
    return digest_json(
        {"stage": stage, "code_version": code_version, "inputs": dict(inputs), "settings": dict(settings)}
    )


def parse_utc(value: object) -> datetime | None:
    """An ISO-8601 text as aware UTC; a missing zone means UTC. None for anything that is not a time.

    Epoch numbers are seconds, or milliseconds from 1e11 upward. ``bool`` is refused.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            seconds = value / 1000 if abs(value) >= 1e11 else value  # an int of any size may stand in a listing
            return datetime.fromtimestamp(seconds, tz=UTC)
        except (OverflowError, OSError, ValueError):
            return None
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value.strip())
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def utc_day(value: object) -> date | None:
    """The half-open UTC day a time belongs to, or None."""
    moment = parse_utc(value)
    return None if moment is None else moment.date()


def days_between(first: date, last: date) -> list[date]:
    """All days from ``first`` to ``last``, both included; empty when ``last`` is earlier."""
    return [first + timedelta(days=offset) for offset in range((last - first).days + 1)]


def day_ranges(days: Iterable[str]) -> list[tuple[str, str]]:
    """Days, YYYY-MM-DD, as ranges of consecutive days, oldest first."""
    found: list[tuple[str, str]] = []
    for day in sorted(days):
        before = (date.fromisoformat(day) - timedelta(days=1)).isoformat()
        if found and found[-1][1] == before:
            found[-1] = (found[-1][0], day)
        else:
            found.append((day, day))
    return found
