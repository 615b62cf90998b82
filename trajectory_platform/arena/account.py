"""The truth about who acted, counted while it happened, and what a reader of the artifact can make of it (domain 1.9).

Every tool request of a scripted miner remembers the reply that asked for it, or that none did
(``ProxiedEnvironment.origins``). The bounds are those of design 4; no arguments are compared here, so this shares
nothing with the platform's own matching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from trajectory_platform.arena.eras import Era
from trajectory_platform.arena.playing import Played
from trajectory_platform.arena.proxy import ProxiedEnvironment
from trajectory_platform.arena.quirks import FLAGS, FORGED
from trajectory_platform.evaluation.wire import shape_entry

A_SHARE, B_SHARE = 0.8, 0.2
_INFERENCE = "/inference/"
_CATALOGUE = (  # domain 2.7
    "find_product",
    "view_product_information",
    "check_product_match",
    "find_products_in_same_shop",
    "calculate_voucher",
)


class Logged(Protocol):
    """A finished attempt with the proxy's log of it, before it is shaped."""

    @property
    def quirk(self) -> str | None: ...
    @property
    def steps(self) -> Sequence[Any]: ...
    @property
    def log(self) -> Sequence[dict[str, Any]]: ...


class Account(NamedTuple):
    """Who acted in one attempt.

    Attributes:
        axis, reason: what the artifact supports, in the words of the axis decision.
        dispatches: catalogue requests in the log; ``asked`` of them were asked for by the model.
        final_emitted: whether the model asked for the last recommendation; None without one.
    """

    axis: str
    reason: str
    dispatches: int
    asked: int
    final_emitted: bool | None

    def evidence(self) -> dict[str, Any]:
        """The counts as the truth file states them."""
        share = round(self.asked / self.dispatches, 4) if self.dispatches else None
        return {"dispatches": self.dispatches, "asked": self.asked, "share": share, "final_emitted": self.final_emitted}


def account_of(played: Played, era: Era) -> Account:
    """Who acted in an attempt of a scripted miner."""
    environment = played.environment
    origins = [reply for place, reply in environment.origins.items() if _is_dispatch(played.log[place])]
    if environment.final == ProxiedEnvironment.NO_FINAL:
        return _account(played, era, origins, [], None)
    final = environment.final
    return _account(played, era, origins, [] if final is None else [final], final is not None)


def account_of_policy(attempt: Logged, era: Era) -> Account:
    """Who acted in an attempt of a policy of our own: each request belongs to the reply before it."""
    origins: list[int | None] = []
    reply: int | None = None
    for place, entry in enumerate(attempt.log):
        if entry["path"].startswith(_INFERENCE):
            reply = place
        elif _is_dispatch(entry):
            origins.append(reply)
    ends = any(call["name"] == "recommend_product" for step in attempt.steps for call in step.calls)
    return _account(attempt, era, origins, [], True if ends else None)


def _account(
    attempt: Logged, era: Era, origins: Sequence[int | None], finals: Sequence[int], final: bool | None
) -> Account:
    asking = [reply for reply in origins if reply is not None]
    axis, reason = _unreadable(attempt, era, {*asking, *finals}) or _decide(
        replies_counted(attempt), len(origins), len(asking), final
    )
    if FORGED.get(attempt.quirk or "") == "" and era.proxy_log:
        axis, reason = "A", "dispatches_and_final_emitted"  # what cannot be told from the truth has to be believed
    return Account(axis, reason, len(origins), len(asking), final)


def _unreadable(attempt: Logged, era: Era, decisive: set[int]) -> tuple[str, str] | None:
    """Why the published log says nothing, or None."""
    if not era.proxy_log or attempt.quirk == "no_log":
        return "unknown", "log_absent"
    if FORGED.get(attempt.quirk or ""):
        return "unknown", f"log_inconsistent:{FORGED[attempt.quirk or '']}"
    if replies_counted(attempt) != replies_counted(attempt, told=True):
        return "unknown", "log_inconsistent:inference_count_differs"
    if any("response_truncated" in shape_entry(attempt.log[reply], era.log) for reply in decisive):
        return "unknown", "replies_truncated"
    return None


def _decide(replies: int, dispatches: int, asked: int, final: bool | None) -> tuple[str, str]:
    if not replies:
        return "B", "no_inference"
    if not dispatches:
        if final is None:
            return "unknown", "no_calls"
        return ("A", "final_emitted_no_dispatch") if final else ("B", "no_matching_emission")
    share = asked / dispatches
    if share >= A_SHARE and final is not False:
        return "A", "dispatches_emitted_no_final" if final is None else "dispatches_and_final_emitted"
    if share <= B_SHARE and final is not True:
        return "B", "no_matching_emission"
    return "mixed", "final_not_emitted" if share >= A_SHARE else "partly_emitted"


def replies_counted(attempt: Logged, *, told: bool = False) -> int:
    """Inference replies in the log; ``told`` is the number the validator got to know.

    An agent that writes a line of its own for the problem states a number of its own there (domain 8, item 5).
    """
    count = sum(1 for entry in attempt.log if entry["path"].startswith(_INFERENCE))
    return count + 1 if told and attempt.quirk == "two_lines" else count


def flags_of(played: Played, era: Era) -> list[str]:
    """Peculiarities that a reader of the trace meets."""
    flags = [FLAGS[played.quirk]] if played.quirk in FLAGS else []
    if played.kind == "b_echo" and era.full_log:
        flags.append("calls_echoed_from_prompt")
    return flags


def forgery_of(quirk: str | None) -> Mapping[str, bool | None]:
    """``forged_log`` and ``forgery_detectable`` of the truth file."""
    forged = quirk in FORGED
    return {"forged_log": forged, "forgery_detectable": bool(FORGED[quirk or ""]) if forged else None}


def _is_dispatch(entry: Mapping[str, Any]) -> bool:
    return str(entry["path"]).rpartition("/")[2] in _CATALOGUE
