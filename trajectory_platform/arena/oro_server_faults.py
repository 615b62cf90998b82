"""Faults of the local server of the public API, by a script: what goes wrong, for which requests, how often.

    seed: 1
    history: {late_judgments: 0.02, late_by_hours: 30, late_invalidations: 0.02, invalidated_after_days: 3}
    rules:
      - {fault: rate_limited, path: "races/*", share: 0.1, retry_after: 2}
      - {fault: server_error, status: 503, every: 50, burst: 4}
      - {fault: artifact_not_found, share: 0.05, times: 2}

``path`` is a pattern over the path below ``/v1/public/`` (``storage/...`` for downloads). A rule hits a request when
its key (method, path, parameters, body) is drawn with ``share``, at most ``times`` times for one key (null: always),
or, with ``every`` and ``burst``, the first ``burst`` of every ``every`` requests that match. Nothing depends on how
two clients take turns, ``every`` excepted. Every other key of a rule is a parameter of its fault.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trajectory_platform.arena.oro_server_history import Twists
from trajectory_platform.errors import Abort
from trajectory_platform.identity import parse_utc
from trajectory_platform.strict_yaml import read_yaml

# fault -> its parameters with their defaults
ANSWERS: dict[str, dict[str, Any]] = {
    "rate_limited": {"retry_after": 1},  # null: no header; a text is sent as it is
    "server_error": {"status": 503, "retry_after": None},
    "reset": {},
    "redirect": {"to": "http://foreign.invalid/"},
    "html": {},
    "artifact_not_found": {},
    "artifact_not_released": {},
    "race_in_flight": {},
    "link_refused": {},
    "oversized": {"bytes": 1 << 30},
}
CHANGES: dict[str, dict[str, Any]] = {
    "slow": {"seconds": 1.0, "pieces": 1},
    "truncated": {"keep": 0.5, "declared": "whole"},  # declared: whole | short (a length that fits the cut body)
    "unknown_enum": {"field": "status", "value": "UNDER_REVIEW"},
    "extra_fields": {},
    "missing_fields": {"fields": []},
    "times": {"form": "naive"},  # naive | offset | epoch | epoch_ms
    "duplicate_ids": {},
    "date_skew": {"seconds": 3600},
}
INSIDE: dict[str, dict[str, Any]] = {
    "paging_shift": {"newest": 1},
    "expired_link": {},
    "cold_history": {},
}
"""Answered by the endpoint itself: a list whose newest entries arrive after its first page, a link that is too old."""
_PARAMETERS = ANSWERS | CHANGES | INSIDE
_PATTERNS = {
    "artifact_not_found": "artifacts/download-url",
    "artifact_not_released": "artifacts/download-url",
    "race_in_flight": "artifacts/download-url",
    "expired_link": "artifacts/download-url",
    "link_refused": "storage/*",
    "paging_shift": "races/history",
    "cold_history": "trajectories/history",
    "unknown_enum": "agent-versions/*/runs",
}
_RULE_KEYS = ("fault", "path", "share", "times", "every", "burst")


@dataclass
class Rule:
    """One line of a script; see the module text."""

    fault: str
    path: str
    share: float = 1.0
    times: int | None = 1
    every: int | None = None
    burst: int = 1
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass
class Script:
    """The rules with their memory of what they have hit. Safe for several threads."""

    seed: int = 0
    rules: list[Rule] = field(default_factory=list)
    twists: Twists = field(default_factory=Twists)
    hits: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Counter[tuple[int, str]] = Counter()
        self._matched: Counter[int] = Counter()

    def pick(self, path: str, key: str) -> list[Rule]:
        """The rules that hit this request, in the order of the script."""
        with self._lock:
            hit = [rule for number, rule in enumerate(self.rules) if self._hits(number, rule, path, key)]
            self.hits.update(rule.fault for rule in hit)
            return hit

    def _hits(self, number: int, rule: Rule, path: str, key: str) -> bool:
        if not fnmatchcase(path, rule.path):
            return False
        if rule.every is not None:
            self._matched[number] += 1
            return (self._matched[number] - 1) % rule.every < rule.burst
        if _draw(self.seed, number, key) >= rule.share:
            return False
        self._seen[number, key] += 1
        return rule.times is None or self._seen[number, key] <= rule.times


def _draw(seed: int, number: int, key: str) -> float:
    digest = hashlib.sha256(f"{seed}|{number}|{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def load_script(path: Path | None) -> Script:
    """A script from a YAML or JSON file; None: nothing goes wrong.

    Raises:
        Abort: it is not a script; says where.
    """
    if path is None:
        return Script()
    return script_of(read_yaml(path, str(path)), str(path))


def script_of(value: Any, name: str = "the script") -> Script:
    """A script from its parsed form.

    Raises:
        Abort: an unknown fault, key or value.
    """
    if not isinstance(value, dict) or set(value) - {"seed", "history", "rules"}:
        raise Abort(f"{name}: a mapping with seed, history and rules is expected")
    seed, history = value.get("seed", 0), value.get("history") or {}
    if not isinstance(history, dict) or set(history) - {*Twists._fields}:
        raise Abort(f"{name}: history knows {', '.join(Twists._fields)}")
    rules = [_rule(row, f"{name}: rule {number}") for number, row in enumerate(value.get("rules") or (), 1)]
    return Script(seed, rules, Twists(**{"seed": seed, **history}))


def _rule(row: Any, where: str) -> Rule:
    fault = row.get("fault") if isinstance(row, dict) else None
    if fault not in _PARAMETERS:
        raise Abort(f"{where}: fault is one of {', '.join(sorted(_PARAMETERS))}")
    unknown = set(row) - {*_RULE_KEYS, *_PARAMETERS[fault]}
    if unknown:
        raise Abort(f"{where}: {fault} has no {', '.join(sorted(map(str, unknown)))}")
    share = row.get("share", 1.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise Abort(f"{where}: share is a number from 0 to 1")
    given = {name: row[name] for name in row if name in _PARAMETERS[fault]}
    kept = {name: row[name] for name in ("share", "times", "every", "burst") if name in row}
    return Rule(fault, row.get("path", _PATTERNS.get(fault, "*")), parameters=_PARAMETERS[fault] | given, **kept)


# ------------------------------------------------------------------------------------------- changes of an answer


def changed(body: bytes, rules: Iterable[Rule]) -> bytes:
    """A JSON answer with what the rules change in it; what is no JSON stays as it is."""
    steps = [_CHANGERS[rule.fault](rule.parameters) for rule in rules if rule.fault in _CHANGERS]
    if not steps:
        return body
    try:
        value = json.loads(body)
    except ValueError:
        return body
    for step in steps:
        value = step(value)
    return json.dumps(value).encode()


def _walked(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Every object of a JSON value, changed."""
    if isinstance(value, dict):
        return change({name: _walked(inner, change) for name, inner in value.items()})
    return [_walked(inner, change) for inner in value] if isinstance(value, list) else value


def _unknown_enum(parameters: Mapping[str, Any]) -> Callable[[Any], Any]:
    name, word = parameters["field"], parameters["value"]
    return lambda value: _walked(value, lambda row: row | {name: word} if isinstance(row.get(name), str) else row)


def _extra_fields(parameters: Mapping[str, Any]) -> Callable[[Any], Any]:
    return lambda value: _walked(value, lambda row: row | {"x_later_field": {"nested": [1, None, "text"]}})


def _missing_fields(parameters: Mapping[str, Any]) -> Callable[[Any], Any]:
    gone = set(parameters["fields"])
    return lambda value: _walked(value, lambda row: {name: row[name] for name in row if name not in gone})


def _times(parameters: Mapping[str, Any]) -> Callable[[Any], Any]:
    form = parameters["form"]

    def turned(text: Any) -> Any:
        moment = parse_utc(text) if isinstance(text, str) and len(text) >= 19 and text[4:5] == "-" else None
        return text if moment is None else _written(moment, form)

    return lambda value: _walked(value, lambda row: {name: turned(inner) for name, inner in row.items()})


def _written(moment: datetime, form: str) -> Any:
    if form == "epoch":
        return moment.timestamp()
    if form == "epoch_ms":
        return int(moment.timestamp() * 1000)
    if form == "offset":
        return moment.astimezone(timezone(timedelta(hours=2))).isoformat()
    return moment.replace(tzinfo=None).isoformat()


def _duplicate_ids(parameters: Mapping[str, Any]) -> Callable[[Any], Any]:
    def doubled(row: dict[str, Any]) -> dict[str, Any]:
        return {name: inner + inner[:2] if _rows(inner) else inner for name, inner in row.items()}

    return lambda value: value + value[:2] if _rows(value) else _walked(value, doubled)


def _rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


_CHANGERS = {
    "unknown_enum": _unknown_enum,
    "extra_fields": _extra_fields,
    "missing_fields": _missing_fields,
    "times": _times,
    "duplicate_ids": _duplicate_ids,
}
