"""References of a file: strict successes that somebody accepted, for evaluations that have no lake to ask."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, RejectRow
from trajectory_platform.escaping import escaped
from trajectory_platform.evaluation.turn_rewards import Reference, references_from_rows


def read_references(path: Path | None) -> dict[str, Reference] | None:
    """The best reference of each problem among the rows of a JSONL file; None where no file is named.

    A row has ``problem_key``, ``trace_id`` and ``messages`` (canonical, as a list or as JSON text), like the rows of
    the corpus; other fields are left alone.

    Raises:
        Abort: no such file, or a line that is no such row.
    """
    if path is None:
        return None
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise Abort(f"cannot read {path}: {error.strerror or error}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = jsontext.parse(line).value
            if not isinstance(row, dict):
                raise RejectRow("bad_reference", "no object")
            references_from_rows([row])
        except RejectRow as error:
            raise Abort(f"{escaped(str(path))} line {number} is no accepted row ({error})") from error
        rows.append({name: row[name] for name in ("problem_key", "trace_id", "messages")})
    return references_from_rows(rows)


def grounded(problem_keys: Collection[str], references: Mapping[str, Reference] | None) -> dict[str, Any]:
    """How many problems have a process score, and why the others have none: ``{problems, without: {reason: n}}``."""
    known = sum(key in (references or {}) for key in problem_keys)
    reason = "no_references_given" if references is None else "no_strict_success_known"
    return {"problems": known, "without": {reason: len(problem_keys) - known} if known < len(problem_keys) else {}}
