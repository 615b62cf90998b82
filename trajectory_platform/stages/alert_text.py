"""What an alert says, which two are equal, and how many failures at once become one.

What is quoted (error texts, ids) is not trusted: it is made visible, cut, rid of what looks like a secret, and sent as
data, never as markup.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from trajectory_platform.escaping import escaped
from trajectory_platform.identity import day_ranges, digest_lines

MAX_TITLE, MAX_TEXT, MAX_DETAILS = 200, 2000, 20
HELD_BACK = "equal ones held back"
_CAUSES, _CAUSE = 6, 200  # of an alert that stands for many: how many causes are told, and how much of each
_TITLES = 4
_RANGES = 30
_VARYING = re.compile(r"\b[0-9a-f]{8,}(?:-[0-9a-f]{4,})*\b|\d+(?:[.:]\d+)+|\d{5,}", re.IGNORECASE)
_SECRETS = (
    (re.compile(r"//[^/@\s]*@"), "//***@"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://[^\s?'\"<>]+)\?[^\s'\"<>]+", re.IGNORECASE), r"\1?***"),
    (
        re.compile(
            r"((?:password|passwd|secret\w*|api_?key\w*|access_?token|authorization)[\"']?\s*[:=]\s*[\"']?(?:bearer\s+)?)"
            r"[^\s\"',;]+",
            re.IGNORECASE,
        ),
        r"\1***",
    ),
)


class Alert(NamedTuple):
    """Something a person should know.

    Attributes:
        kind: ``run_failed`` | ``check_failed`` | ``queue_stalled``.
        key: equal alerts have an equal key (what failed, of which day, by which cause): within the cooldown they are
            one.
        details: name -> value, shown as a list.
        at: ISO time, UTC.
        group: what is to be told of one group at once becomes one alert; "" stands alone.
        day: the day it is about, named at the end of ``title``; "" for none.
    """

    kind: str
    key: str
    title: str
    text: str
    at: str
    details: dict[str, str]
    group: str = ""
    day: str = ""


def cause_of(text: str) -> str:
    """A digest of an error text, the same for texts that differ in ids, addresses or times only."""
    return digest_lines([_VARYING.sub("#", text[:MAX_TEXT])])[:12]


def bundles(alerts: Sequence[Alert]) -> list[list[Alert]]:
    """What is told together: the alerts of a group, each other one alone."""
    found: dict[str, list[Alert]] = {}
    for number, alert in enumerate(alerts):
        found.setdefault(alert.group or f"alone {number}", []).append(alert)
    return list(found.values())


def as_one(parts: Sequence[Alert]) -> Alert:
    """One alert for several of a group: all their days, and the first of their causes."""
    if len(parts) == 1:
        return parts[0]
    titles: dict[str, list[str]] = {}
    causes: dict[str, list[str]] = {}
    for part in parts:
        titles.setdefault(part.title.removesuffix(f" for {part.day}"), []).append(part.day)
        causes.setdefault(part.text, []).append(part.day)
    named = [f"{title}{_for(days)}" for title, days in titles.items()]
    told = [
        (f"{_spans(days)}: " if any(days) else "") + (text if len(text) <= _CAUSE else f"{text[:_CAUSE]} ...")
        for text, days in list(causes.items())[:_CAUSES]
    ]
    more = len(causes) - _CAUSES
    held = sum(int(part.details[HELD_BACK]) for part in parts if part.details.get(HELD_BACK, "").isdecimal())
    lines = [*named[:_TITLES], *([f"and {len(named) - _TITLES} more"] if len(named) > _TITLES else []), *told]
    return Alert(
        parts[0].kind,
        parts[0].group,
        named[0] if len(named) == 1 else f"{len(parts)} failures: {'; '.join(titles)}",
        "\n".join([*lines, *([f"and {more} more causes"] if more > 0 else [])]),
        parts[-1].at,
        {
            "failures": str(len(parts)),
            "first run": parts[0].details.get("run", ""),
            "last run": parts[-1].details.get("run", ""),
            **({HELD_BACK: str(held)} if held else {}),
        },
        parts[0].group,
    )


def _for(days: Sequence[str]) -> str:
    return f" for {_spans(days)}" if any(days) else ""


def _spans(days: Sequence[str]) -> str:
    """Days as ranges; all of them, unless somebody left a hole beside each."""
    try:
        ranges = day_ranges({day for day in days if day})
    except ValueError:  # a partition that is no day
        ranges = [(day, day) for day in sorted({*days} - {""})]
    words = [first if first == last else f"{first} to {last}" for first, last in ranges[:_RANGES]]
    return ", ".join(words) + (f" and {len(ranges) - _RANGES} more" if len(ranges) > _RANGES else "")


def payload(alert: Alert) -> dict[str, Any]:
    """The JSON of a webhook. ``text`` alone is what chat systems with incoming hooks show."""
    details = {cut(key, 60): cut(value, MAX_TITLE) for key, value in list(alert.details.items())[:MAX_DETAILS]}
    title, text = cut(alert.title, MAX_TITLE), cut(alert.text, MAX_TEXT)
    listed = "".join(f"\n{key}: {value}" for key, value in details.items())
    return {
        "source": "trajectory-platform",
        "kind": alert.kind,
        "key": cut(alert.key, MAX_TITLE),
        "at": alert.at,
        "title": title,
        "details": details,
        "text": _plain(f"{title}\n{text}{listed}"),
    }


def cut(text: str, room: int) -> str:
    """Third-party text of bounded length, visible, without secrets."""
    shown = escaped(_without_secrets(text[: 4 * room]), keep="\n")
    return shown if len(shown) <= room else shown[: room - 4] + " ..."


def _without_secrets(text: str) -> str:
    """Without users and queries of addresses (a signed link is a key), and without what is named as a secret."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def _plain(text: str) -> str:
    """No mentions, links or tags in a chat: ``&``, ``<`` and ``>`` are what their markup begins with."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@\u200b")
