"""Sealed scores against the ledger of looks: no score without its look, and the count of looks beside every score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.ledger import EVALUATION, LEDGER, Fault, Ledger, read_ledger
from trajectory_platform.lake.tables import EVAL_SCORES

if TYPE_CHECKING:
    from trajectory_platform.lake.publish import Lake

_NAMED = 5


class Looks(NamedTuple):
    """How often sealed problems were looked at, as far as the ledger can be read.

    Attributes:
        own: evaluations of the checkpoint asked about; ``evaluations``: of all checkpoints, which are ``checkpoints``
            different ones. ``others``: looks of people (``sql``, shows); ``faults``: damages of the ledger.
    """

    own: int
    evaluations: int
    checkpoints: int
    others: int
    faults: int


def verify_ledger(lake: Lake) -> list[Fault]:
    """What is wrong with the ledger, and published sealed scores that it knows nothing of; empty when all is sound."""
    import pyarrow.compute as pc

    ledger = read_ledger(lake)
    faults = list(ledger.faults)
    columns = ["checkpoint_id", "problem_key", "pool", "outcome"]
    rows = lake.read(EVAL_SCORES, columns=columns, filter=pc.field("pool") == "sealed").to_pylist()
    for checkpoint_id, keys in sorted(_sealed_scores(rows).items()):
        if missing := _not_looked(ledger, checkpoint_id, keys):
            faults.append(Fault(0, "score_without_look", _unlooked(checkpoint_id, missing)))
    return faults


def assert_looked(lake: Lake, checkpoint_id: str, problem_keys: Iterable[str]) -> None:
    """The ledger holds evaluations of this checkpoint that cover all these sealed problems.

    Raises:
        FailPartition: it does not; a sealed score without its look is neither published nor shown.
    """
    if missing := _not_looked(read_ledger(lake), checkpoint_id, set(problem_keys)):
        raise FailPartition(_unlooked(checkpoint_id, missing))


def assert_scores_looked(lake: Lake, rows: Iterable[Mapping[str, Any]]) -> None:
    """``assert_looked`` for the sealed ones among rows of ``eval_scores`` (checkpoint_id, problem_key, pool, outcome).

    Problems without a reward (``no_reward``) carry no score, so nobody had to look at them.

    Raises:
        FailPartition: as above.
    """
    scores = _sealed_scores(rows)
    ledger = read_ledger(lake) if scores else Ledger((), ())
    for checkpoint_id, keys in sorted(scores.items()):
        if missing := _not_looked(ledger, checkpoint_id, keys):
            raise FailPartition(_unlooked(checkpoint_id, missing))


def looks(lake: Lake, checkpoint_id: str | None = None) -> Looks:
    """How often it was looked: every further evaluation on the same sealed problems makes the best score less true."""
    ledger = read_ledger(lake)
    scored = [look.checkpoint_id for look in ledger.looks if look.what == EVALUATION]
    return Looks(
        own=0 if checkpoint_id is None else scored.count(checkpoint_id),
        evaluations=len(scored),
        checkpoints=len(set(scored)),
        others=len(ledger.looks) - len(scored),
        faults=len(ledger.faults),
    )


def looks_text(counted: Looks) -> str:
    """The counts as the line that stands beside every sealed score."""
    damaged = f"; the ledger has {counted.faults} faults ('lake verify' names them)" if counted.faults else ""
    return (
        f"sealed problems: looked at by {_times(counted.own, 'evaluation')} of this checkpoint, "
        f"{_times(counted.evaluations, 'evaluation')} of {_times(counted.checkpoints, 'checkpoint')} in all and "
        f"{_times(counted.others, 'other look')}; the best of many looks is too good{damaged}"
    )


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _sealed_scores(rows: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows:
        if row["pool"] == "sealed" and row["outcome"] != "no_reward":
            found.setdefault(row["checkpoint_id"], set()).add(row["problem_key"])
    return found


def _not_looked(ledger: Ledger, checkpoint_id: str, keys: set[str]) -> list[str]:
    own = (look for look in ledger.looks if look.what == EVALUATION and look.checkpoint_id == checkpoint_id)
    return sorted(keys.difference(*(look.keys or () for look in own)))


def _unlooked(checkpoint_id: str, missing: list[str]) -> str:
    named = ", ".join(key[:16] for key in missing[:_NAMED]) + (" ..." if len(missing) > _NAMED else "")
    return (
        f"sealed score without a look: {LEDGER} holds no evaluation of {checkpoint_id} for {len(missing)} sealed "
        f"problems ({named}); evaluate it through the platform"
    )
