"""When the newest checkpoints are to be trained again: they learnt from traces that were withdrawn since.

A trace is withdrawn when it was retracted (a tombstone) or when its newest listing says that its run is unusable. Only
the newest as-of day is ever requested; older checkpoints stay, flagged by ``contamination``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from trajectory_platform.identity import digest_json
from trajectory_platform.lake import tables
from trajectory_platform.lineage import ledger
from trajectory_platform.lineage.retractions import RETRACTED, is_in
from trajectory_platform.stages.checkpoints import current_checkpoint
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.retraction import INVALIDATED, retracted_among
from trajectory_platform.training.stage_recipes import STAGES

_SHOWN = 5


class Retraining(NamedTuple):
    """Why the newest as-of day is to be trained again.

    Attributes:
        day: the newest as-of day with a checkpoint.
        checkpoints: its present checkpoints that learnt from withdrawn traces, ancestors first.
        reasons: trace id -> ``retracted`` or ``run_unusable``.
        older: further checkpoints that learnt from them: they stay, flagged.
    """

    day: str
    checkpoints: list[str]
    reasons: dict[str, str]
    older: list[str]

    @property
    def key(self) -> str:
        """The same for the same request: a day, what is to be replaced, and what is to be left out."""
        return f"retrain:{self.day}:{digest_json([self.checkpoints, sorted(self.reasons.items())])[:16]}"

    def text(self) -> str:
        """Why, for people; ids are ours or made safe when they were read."""
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(self.reasons.values()).items()))
        some = ", ".join(sorted(self.reasons)[:_SHOWN]) + (" ..." if len(self.reasons) > _SHOWN else "")
        older = f"; {len(self.older)} older checkpoints are flagged and stay" if self.older else ""
        return f"{', '.join(self.checkpoints)} learnt from withdrawn traces ({told}: {some}){older}"


def retraining(ctx: StageContext) -> Retraining | None:
    """What the newest as-of day's present checkpoints, or an ancestor of theirs, learnt from traces that were retracted
    or whose run was invalidated since; None when nothing, or when there is no checkpoint."""
    days = [one.day for one in ctx.lake.manifests(tables.CHECKPOINTS) if one.summary.get("checkpoint_id")]
    if not days:
        return None
    day = max(days)
    named = [row for stage in STAGES if (row := current_checkpoint(ctx, day, stage)) is not None]
    seen = ledger.seen_rows(ctx.lake, [row["checkpoint_id"] for row in named])
    reasons = withdrawn(ctx, {row["trace_id"] for rows in seen.values() for row in rows})
    hit = [name for name, rows in seen.items() if any(row["trace_id"] in reasons for row in rows)]
    if not hit:
        return None
    columns = ["checkpoint_id", "role"]
    fed = ctx.lake.read(tables.CHECKPOINT_TRACES, columns=columns, filter=is_in("trace_id", reasons)).to_pylist()
    learnt = {row["checkpoint_id"] for row in fed if row["role"] in ledger.LEARNT_FROM}
    heirs = ledger.heirs(ledger.family(ctx.lake), learnt)
    return Retraining(day, hit, reasons, sorted({*learnt, *heirs} - set(hit)))


def withdrawn(ctx: StageContext, trace_ids: Iterable[str]) -> dict[str, str]:
    """Trace id -> ``retracted`` (a tombstone) or ``run_unusable`` (its newest listing) of what was withdrawn."""
    wanted = set(trace_ids)
    newest: dict[str, tuple[str, str]] = {}
    columns = ["trace_id", "day", "state"]
    for row in ctx.lake.read(tables.RAW_TRACES, columns=columns, filter=is_in("trace_id", wanted)).to_pylist():
        newest[row["trace_id"]] = max(newest.get(row["trace_id"], ("", "")), (row["day"], row["state"]))
    found = {name: INVALIDATED for name, (_, state) in newest.items() if state == INVALIDATED}
    return found | dict.fromkeys(retracted_among(ctx, wanted), RETRACTED)


def evidence_version(ctx: StageContext) -> str:
    """Digest of what ``retraining`` depends on; cheap, so that a sensor asks it first."""
    names = (tables.RETRACTIONS, tables.RAW_TRACES, tables.CHECKPOINTS)
    found = {
        table.name: [[one.day, one.part, one.content_digest, one.summary.get("checkpoint_id")] for one in listed]
        for table, listed in ((table, ctx.lake.manifests(table)) for table in names)
    }
    return digest_json(found)
