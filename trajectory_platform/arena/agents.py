"""Who acts: one agent version of the arena with its habits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Agent:
    """One agent version: its identity and its habits.

    Attributes:
        kind: key of ``miners.MINERS``.
        style: how its model talks (``styles.STYLES``).
        form: how a reply carries its calls (``evaluation.wire.FORMS``).
        care: share of choices that are made by comparing the details; the rest takes what comes first.
        views: how many candidates are opened at once.
        words: how many stated values the first query carries.
        together: recommends and terminates in one reply.
        page, filters, sort: arguments it gives to its searches.
        plus: its client joins search words by plus signs (domain 1.5).
        group: strategy group of copied agents, or None.
    """

    agent_version_id: str
    agent_id: str
    name: str
    hotkey: str
    version: int
    kind: str
    style: str
    form: str
    model: str
    care: float
    views: int
    words: int
    together: bool
    page: bool
    filters: bool
    sort: str | None
    plus: bool
    group: str | None = None
