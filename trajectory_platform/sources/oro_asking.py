"""Asks the API for a listing of a day, or takes the remembered answer where it is young enough or says all there is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from trajectory_platform.errors import RejectRow, RetryLater
from trajectory_platform.sources.api_state import ApiState
from trajectory_platform.sources.oro_found import Found


class Asking:
    """Answers as of ``now``, not older than ``age_s``; what is not there is noted in ``found``."""

    def __init__(self, state: ApiState, found: Found, now: datetime, age_s: float) -> None:
        self._state, self._found = state, found
        self._now, self._age = now, age_s

    def remembered(self, key: str, ask: Callable[[], Any]) -> Any:
        """A remembered answer that is young enough, else a new one.

        Raises:
            RetryLater, RejectRow: of the client.
        """
        return self._state.remembered(key, ask, self._now, self._age)

    def needed(self, key: str, ask: Callable[[], Any]) -> Any:
        """An answer without which there is no listing of the day; that it is not there cannot be meant.

        Raises:
            RetryLater: ``listing_refused``, and whatever the client raises.
        """
        try:
            return self.remembered(key, ask)
        except RejectRow as error:
            raise RetryLater("listing_refused", f"{key}: {error}") from error

    def if_there(self, key: str, ask: Callable[[], Any], *, hold: bool) -> Any:
        """An answer; None when what is asked for is not there, which holds the day open where it must be there."""
        try:
            return self.remembered(key, ask)
        except RejectRow as error:
            self._found.oddities[f"{key.partition(':')[0]}:{error.reason}"] += 1
            if hold:
                self._found.hidden[key] = error.reason
            return None

    def held_since(self, key: str, moment: datetime) -> Any:
        """A remembered answer that was read at ``moment`` or later, however old it is by now; None without one."""
        held = self._state.answer(key, self._now)
        return held[1] if held is not None and held[0] >= moment else None
