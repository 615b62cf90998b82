"""Strategy copies across the days of a window: different agents that did the same on variants of one problem.

Inside a day the filter compares the traces of one problem. Here the group is the leak cluster, the only place where
days and variants meet, and the comparison is by the stored signatures, without the messages (``curation.copies``).
The result is a function of the set of rows: neither their order nor that of the days decides anything. The traces of a
cluster are in one pool, so a copy in train can never outlive a sealed trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trajectory_platform.curation.copies import COPIES_VERSION, Signed, near_copies
from trajectory_platform.errors import FailPartition

REASON = "strategy_copy_in_window"
WINDOW_COPIES_VERSION = f"window-copies-1,{COPIES_VERSION}"


def window_copies(rows: Iterable[Mapping[str, Any]], *, similarity: float) -> dict[str, str]:
    """Copy -> the trace that stays, by id. Survivors are never copies themselves.

    Args:
        rows: one per trace: trace_id, cluster_id, agent_version_id (None is nobody's copy), quality and
            strategy_signature.
        similarity: of the call sequences, in (0, 1]; the filter's ``copy_similarity``.

    Raises:
        FailPartition: a signature of another form: that day's corpus is older than the code.
    """
    signed = [
        Signed(
            row["trace_id"], row["cluster_id"], row["agent_version_id"], row["quality"], row["strategy_signature"] or ""
        )
        for row in rows
    ]
    try:
        found = near_copies(signed, similarity=similarity)
    except ValueError as error:
        raise FailPartition(f"the corpus of the window has {error}: run axis_a_corpus of its days again") from error
    return {name: copy.of for name, copy in found.items()}
