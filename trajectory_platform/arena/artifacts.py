"""From an attempt to the published artifact: the dialogue in the era's form, what was done to it, and its bytes.

Sources: domain 1.2, 1.3, 1.5, 1.11. Steps and log are rendered by ``evaluation.wire``; what is odd in real files is
made odd here on purpose, by name (``quirk``).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from typing import Any

from trajectory_platform.arena.damage import DAMAGE
from trajectory_platform.arena.eras import Era as Era
from trajectory_platform.arena.eras import era_of as era_of
from trajectory_platform.arena.forgery import forge
from trajectory_platform.arena.playing import Played
from trajectory_platform.arena.quirks import FORGED, ODD_TEXT, SURROGATE
from trajectory_platform.evaluation.wire import LogForm, dialogue

Dialogue = list[Any]
_STORED = ("cut_line", "truncated_gzip", "trailing_nuls", "plain_array")  # they happen to a file of one dialogue
_NO_LOG = LogForm(proxy_log=False)


def possible(quirk: str | None, era: Era) -> str | None:
    """The quirk, or None where the era's files cannot show it."""
    if (quirk in FORGED and not era.proxy_log) or (quirk in _STORED and era.whole_file):
        return None
    return quirk


def dialogue_of(played: Played, problem_id: str, era: Era, seconds: float) -> Dialogue:
    """The published steps of one attempt, with the oddities its quirk asks for."""
    quirk = played.quirk
    if quirk == "surrogate":
        _restore_surrogate(played)
    steps: Dialogue = dialogue(
        played.environment,
        problem_id,
        seconds=seconds if era.execution_time else None,
        form=_NO_LOG if quirk == "no_log" else era.log,
        stamps=_stamps(played),
    )
    if quirk in FORGED and era.proxy_log and steps:
        forge(quirk, steps, played, era)
    if quirk in DAMAGE and steps:
        DAMAGE[quirk](steps)
    return steps


def envelope_of(
    problem_id: str, status: str, seconds: float, calls: int, dialogue: Dialogue | None, error: str | None
) -> Any:
    """One line of the sandbox output file (domain 1.2)."""
    return {
        "problem_id": problem_id,
        "status": status,
        "execution_time": seconds,
        "inference_failure_count": 0,
        "inference_total": calls,
        "error": None if error is None else {"type": error, "message": "the agent did not return"},
        "dialogue": dialogue,
    }


def dialogue_bytes(dialogue: Dialogue, quirk: str | None) -> bytes:
    """The stored bytes of one artifact: gzip of the ASCII JSON array; damaged for the quirks of storage."""
    text = json.dumps(dialogue).encode("ascii")
    if quirk == "cut_line":
        text = text[: len(text) * 6 // 10]
    elif quirk == "trailing_nuls":
        text += b"\x00" * 64
    elif quirk == "plain_array":
        return text
    data = gzip.compress(text, compresslevel=6, mtime=0)
    return data[: len(data) // 2] if quirk == "truncated_gzip" else data


def lines_bytes(envelopes: Sequence[Any]) -> bytes:
    """The whole output file of a run, as validator 1.0.60 uploaded it (domain 1.3)."""
    text = "".join(json.dumps(envelope) + "\n" for envelope in envelopes)
    return gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)


_CLOCKS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "clock_seconds": lambda stamps: [stamp // 1000 for stamp in stamps],
    "clock_rounded": lambda stamps: [stamp // 1000 * 1000 for stamp in stamps],
    "clock_float": lambda stamps: [stamp + 0.25 for stamp in stamps],
    "clock_reversed": lambda stamps: stamps[::-1],
    "clock_zero": lambda stamps: [0 for _ in stamps],
    "nan_timestamp": lambda stamps: [float("nan") if place == 1 else stamp for place, stamp in enumerate(stamps)],
}


def _stamps(played: Played) -> list[Any] | None:
    """The times that the steps state, where they are not the true ones."""
    change = _CLOCKS.get(played.quirk or "")
    return None if change is None else change([step.timestamp for step in played.steps])


def _restore_surrogate(played: Played) -> None:
    """The lone surrogate that the model wrote, in the step and in the reply behind it."""
    kept = ODD_TEXT["surrogate"]
    for step in played.steps:
        step.think = step.think.replace(kept, SURROGATE)
    for entry in played.log:
        choices = entry["response"].get("choices", ()) if isinstance(entry["response"], dict) else ()
        for choice in choices:
            for field in ("content", "reasoning_content"):
                if choice["message"].get(field):
                    choice["message"][field] = choice["message"][field].replace(kept, SURROGATE)
