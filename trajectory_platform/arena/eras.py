"""What the subnet's software did on one day (domain 1.11): which parts of a trace were published, and how."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from trajectory_platform.evaluation.wire import TRUNCATE_AT, LogForm


@dataclass(frozen=True)
class Era:
    """One state of the subnet's software.

    Attributes:
        log: how the proxy log is published.
        execution_time: the first step states it.
        whole_file: validator 1.0.60 uploaded the output file of a run under its first problem.
        regime: score regime of the validators' judge, or None before there was one.
        full_log: inference entries hold their prompts (from mid-2026).
        nonces: the proxy stamps tool calls with the state of their nonce, and native agents dispatch by POST.
    """

    log: LogForm
    execution_time: bool
    whole_file: bool
    regime: str | None
    full_log: bool = False
    nonces: bool = False

    @property
    def proxy_log(self) -> bool:
        """Whether there is a log at all."""
        return self.log.proxy_log


def era_of(day: date, hour: int = 12) -> Era:
    """The era of a UTC day; within 04-19 and 04-29 the software changed at noon."""

    def since(month: int, number: int) -> bool:
        return day >= date(2026, month, number)

    regime = None
    if since(4, 12):
        regime = "discrete" if since(4, 30) else "continuous"
        if since(4, 19) and not since(4, 23):
            regime = "continuous_step0_only"
    late = since(7, 1)
    log = LogForm(
        proxy_log=since(4, 19),
        first_step_only=day == date(2026, 4, 19) and hour < 12,
        kind=since(4, 27),
        truncate_at=None if late else TRUNCATE_AT,
        result_ids=since(4, 22),
    )
    return Era(
        log=log,
        execution_time=since(4, 24),
        whole_file=day == date(2026, 4, 28) or (day == date(2026, 4, 29) and hour < 12),
        regime=regime,
        full_log=late,
        nonces=late,
    )
