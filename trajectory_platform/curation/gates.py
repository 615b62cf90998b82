"""The thresholds and the table of uses: everything about the filter that may be changed without a judge call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from trajectory_platform.errors import Abort

if TYPE_CHECKING:
    from trajectory_platform.settings import Settings

SFT, DESIRABLE, UNDESIRABLE = "sft", "kto_desirable", "kto_undesirable"
USES = (SFT, DESIRABLE, UNDESIRABLE)

# The situations of an accepted trace, and what it is then good for (design 3, "Conservation").
CLEAN, UNDISCIPLINED, BELOW_GATE, UNSEEN_ID, FAILURE = (
    "success_clean",
    "success_undisciplined",
    "success_below_gate",
    "success_unseen_id",
    "failure",
)
DEFAULT_USES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        CLEAN: (SFT, DESIRABLE),
        UNDISCIPLINED: (UNDESIRABLE,),
        BELOW_GATE: (UNDESIRABLE,),
        UNSEEN_ID: (UNDESIRABLE,),
        FAILURE: (UNDESIRABLE,),
    }
)


@dataclass(frozen=True)
class Gates:
    """Configuration of the structural filter.

    Attributes:
        a_min_share, b_max_share: axis bounds (design 4).
        judge: ``rules`` or ``validator``; which verdict is the effective one.
        reasoning: lowest passing quality per score regime. A regime that is not named cannot be gated: its
            verdicts leave a trace unjudged.
        uses: situation -> uses; every situation needs at least one.
        max_strategy_share: summed sampling weight one strategy may have, as a share of the accepted traces.
        min_strategy_weight: below this many traces of one strategy nothing is down-weighted.
    """

    a_min_share: float = 0.8
    b_max_share: float = 0.2
    judge: str = "rules"
    reasoning: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"discrete": 0.7, "rules": 0.7}))
    uses: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: DEFAULT_USES)
    max_strategy_share: float = 0.1
    min_strategy_weight: int = 5

    def __post_init__(self) -> None:
        missing = sorted(set(DEFAULT_USES) - set(self.uses))
        if missing:
            raise Abort(f"the table of uses names nothing for {', '.join(missing)}")
        for situation, uses in self.uses.items():
            if situation not in DEFAULT_USES or not uses or not set(uses) <= set(USES):
                raise Abort(f"uses of {situation!r}: one or more of {', '.join(USES)} are needed, not {list(uses)}")


def gates_from(settings: Settings) -> Gates:
    """The gates of a settings object; the one reasoning gate applies to both gateable regimes."""
    gate = settings.reasoning_gate
    return Gates(
        a_min_share=settings.axis_a_min_share,
        b_max_share=settings.axis_b_max_share,
        judge=settings.judge,
        reasoning=MappingProxyType({"discrete": gate, "rules": gate}),
    )


def situation(*, success: bool, unseen_id: bool, quality: float, gate: float, disciplined: bool) -> str:
    """Which row of the table of uses an accepted trace falls under; the first that applies, worst first."""
    if not success:
        return FAILURE
    if unseen_id:
        return UNSEEN_ID
    if quality < gate - 1e-9:  # 0.7 must pass a gate of 0.7 whatever binary floats make of it
        return BELOW_GATE
    return CLEAN if disciplined else UNDISCIPLINED
