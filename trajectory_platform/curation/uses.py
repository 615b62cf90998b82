"""The table of uses: what an accepted trace is good for (design 3, "Conservation")."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SFT, DESIRABLE, UNDESIRABLE = "sft", "kto_desirable", "kto_undesirable"
USES = (SFT, DESIRABLE, UNDESIRABLE)

# The situations of an accepted trace, and what it is then good for (design 3, "Conservation").
CLEAN, UNDISCIPLINED, BELOW_GATE, UNSEEN_ID, FAILURE, OWN_POLICY = (
    "success_clean",
    "success_undisciplined",
    "success_below_gate",
    "success_unseen_id",
    "failure",
    "success_own_policy",
)
DEFAULT_USES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        CLEAN: (SFT, DESIRABLE),
        UNDISCIPLINED: (UNDESIRABLE,),
        BELOW_GATE: (UNDESIRABLE,),
        UNSEEN_ID: (UNDESIRABLE,),
        FAILURE: (UNDESIRABLE,),
        OWN_POLICY: (DESIRABLE,),  # a checkpoint of ours in the arena: not copied into its successors by imitation
    }
)
SITUATIONS: tuple[tuple[str, str], ...] = (
    (FAILURE, "the outcome is no success"),
    (UNSEEN_ID, "a success that recommends a product which no result of the trace showed, or that does not exist"),
    (BELOW_GATE, "a success whose reasoning is below the gate of its regime"),
    (UNDISCIPLINED, "a success that broke the protocol, or took a shortcut (`violations` in `curation/discipline.py`)"),
    (OWN_POLICY, "a clean success of one of our own checkpoints in the arena"),
    (CLEAN, "any other success"),
)


def situation(
    *, success: bool, unseen_id: bool, quality: float, gate: float, disciplined: bool, own_policy: bool = False
) -> str:
    """Which row of the table of uses an accepted trace falls under; the first that applies, worst first."""
    if not success:
        return FAILURE
    if unseen_id:
        return UNSEEN_ID
    if quality < gate - 1e-9:  # 0.7 must pass a gate of 0.7 whatever binary floats make of it
        return BELOW_GATE
    if not disciplined:
        return UNDISCIPLINED
    return OWN_POLICY if own_policy else CLEAN
