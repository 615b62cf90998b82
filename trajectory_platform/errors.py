"""The four errors of the platform, named by what the runner does with them.

Extension code may raise plain exceptions; one boundary per stage classifies them into these.
"""

from __future__ import annotations


class PlatformError(Exception):
    """Base of the four; never raised itself."""


class RejectRow(PlatformError):
    """This row is set aside with a machine-readable reason; the batch goes on.

    Args:
        reason: snake_case name, stable across releases (it is stored in ``rejected_traces.reason``).
        detail: free text for people: where in the input, which value, how large.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[RejectRow], tuple[str, str]]:
        return (type(self), (self.reason, self.detail))


class RetryLater(PlatformError):
    """The input is not there *yet* (embargo, rate limit, clock skew): the same call may succeed later.

    Args:
        reason: snake_case name.
        detail: free text for people.
        after_s: seconds to wait before the next try, or None when unknown.
    """

    def __init__(self, reason: str, detail: str = "", after_s: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.after_s = after_s

    def __reduce__(self) -> tuple[type[RetryLater], tuple[str, str, float | None]]:
        return (type(self), (self.reason, self.detail, self.after_s))


class FailPartition(PlatformError):
    """This day cannot be published; the previously published day stays, other days go on."""


class Abort(PlatformError):
    """Wrong use or a broken installation: stop now and tell the user what to do (exit code 2)."""
