"""How a day was fetched from the subnet's API, as its record says; nothing where it was not fetched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajectory_platform.errors import RejectRow
from trajectory_platform.sources.files import FETCH_FILE
from trajectory_platform.sources.records import parse_object
from trajectory_platform.stages.context import StageContext

Fact = tuple[str, Any]
_TIMES = (("first_look", "first look"), ("last_look", "last look"), ("next_look", "next look"))
_COUNTS = (
    ("pairs", "pairs judged, as the API names them"),
    ("fetched", "artifacts fetched"),
    ("adopted", "of them found in the folder"),
    ("damaged", "of them damaged"),
    ("wanted", "still to be asked for"),
    ("not_sampled", "left out by the sample"),
)
_REASONS = (("later", "not there yet"), ("gone", "given up"), ("not_asked", "not asked for"))


def fetch_facts(ctx: StageContext, day: str) -> list[Fact]:
    """(label, value) of the record of the day folder, the state first."""
    try:
        data = ctx.source.read(f"{day}/{FETCH_FILE}")
    except RejectRow as error:
        return [] if error.reason == "not_found" else [("state", f"the record cannot be read: {error}")]
    record, faults = parse_object(data, FETCH_FILE)
    if not isinstance(record, Mapping):
        return [("state", f"the record is damaged: {'; '.join(one['reason'] for one in faults) or 'no object'}")]
    return record_facts(record)


def record_facts(record: Mapping[str, Any]) -> list[Fact]:
    """The record in words; what it does not say is left out."""
    state = str(record.get("state", "unknown")).replace("_", " ")
    facts: list[Fact] = [("state", state)]
    if record.get("open_because"):
        facts.append(("open because", record["open_because"]))
    facts += [(label, record[name]) for name, label in _TIMES if record.get(name)]
    facts += [("looks", record["looks"])] if record.get("looks") else []
    facts += [(label, f"{record[name]:,}") for name, label in _COUNTS if isinstance(record.get(name), int)]
    facts += [(label, _listed(record[name])) for name, label in _REASONS if record.get(name)]
    facts.append(("the subnet's own count", _reconciled(record)))
    for name, label in (("requests_total", "requests of all looks"), ("sampling", "sample"), ("oddities", "kept, odd")):
        if record.get(name):
            facts.append((label, _listed(record[name])))
    if isinstance(record.get("clock_skew_s"), int | float):
        facts.append(("clock of the API, ahead", f"{record['clock_skew_s']:.1f} s"))
    facts += [("warning", warning) for warning in record.get("warnings") or ()]
    if record.get("stopped"):
        facts.append(("the last look stopped", record["stopped"]))
    return facts


def _reconciled(record: Mapping[str, Any]) -> str:
    expected, found = record.get("expected"), record.get("distinct")
    said = str(record.get("reconciliation", "unknown")).replace("_", " ")
    told = "not told" if expected is None else f"{expected:,}"
    return f"{told}; {found if found is not None else 'unknown'} distinct pairs found: {said}"


def _listed(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return ", ".join(f"{str(name).replace('_', ' ')} {count}" for name, count in value.items())
