"""Reading the ledger: the rows of the lake that say where a trace went and what a checkpoint was made of.

Nothing is stored here. The tables are the ledger (``checkpoints``, ``checkpoint_traces`` and the day tables behind
them); these functions read them by key and return plain rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trajectory_platform.lake import tables
from trajectory_platform.lake.contracts import light_columns
from trajectory_platform.lake.tables import Table
from trajectory_platform.training.checkpoints import trace_list_digest

if TYPE_CHECKING:
    from trajectory_platform.lake.publish import Lake

ABSENT = "absent"


def rows_where(
    lake: Lake, table: Table, column: str, values: Iterable[str], days: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Rows whose ``column`` is one of ``values``, without the big text columns, in the order of day and key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(sorted(set(values)), type=pa.string())
    found: list[dict[str, Any]] = lake.read(
        table, days=days, columns=light_columns(table), filter=pc.field(column).isin(wanted)
    ).to_pylist()
    return found


def checkpoint_row(lake: Lake, checkpoint_id: str) -> dict[str, Any] | None:
    """The row of ``checkpoints`` with its manifest parsed, or None."""
    rows = rows_where(lake, tables.CHECKPOINTS, "checkpoint_id", [checkpoint_id])
    if not rows:
        return None
    return {**rows[0], "manifest": json.loads(rows[0]["manifest"])}


def parents_of(lake: Lake, checkpoint_id: str) -> list[str]:
    """The chain of parents, nearest first; a parent that is not in the table ends it."""
    chain: list[str] = []
    row = checkpoint_row(lake, checkpoint_id)
    while row is not None and row["parent"] is not None and row["parent"] not in chain:
        chain.append(row["parent"])
        row = checkpoint_row(lake, row["parent"])
    return chain


def traces_of(lake: Lake, checkpoint: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of ``checkpoint_traces`` of a checkpoint row."""
    return rows_where(
        lake, tables.CHECKPOINT_TRACES, "checkpoint_id", [checkpoint["checkpoint_id"]], [checkpoint["day"]]
    )


def list_digest(traces: Iterable[Mapping[str, Any]]) -> str:
    """Digest of the ids of the training traces, the way the manifest records it."""
    return trace_list_digest([row["trace_id"] for row in traces if row["role"] == "train"])


def changed_inputs(lake: Lake, manifest: Mapping[str, Any]) -> list[dict[str, str]]:
    """Input partitions whose content is no longer what the checkpoint was made of.

    Names of inputs are ``{table}/{day}``. Returns {input, recorded, present}; ``present`` is ``absent`` when the
    partition has gone.
    """
    changed = []
    for name, entry in sorted(manifest["inputs"].items()):
        table, _, day = name.partition("/")
        if table not in tables.TABLES or not day:
            continue
        found = lake.manifest(table, day) if tables.TABLES[table].partition == ("day",) else None
        present = found.content_digest if found else ABSENT
        if present != entry["content_digest"]:
            changed.append({"input": name, "recorded": str(entry["content_digest"]), "present": present})
    return changed


def held_out_now(lake: Lake, traces: Iterable[Mapping[str, Any]]) -> list[str]:
    """Pool, other than train, of every trace whose problem has one in the newest published clusters."""
    days = lake.days(tables.LEAK_CLUSTERS)
    if not days:
        return []
    rows = lake.read(tables.LEAK_CLUSTERS, [days[-1]], columns=["problem_key", "pool"]).to_pylist()
    held = {row["problem_key"]: row["pool"] for row in rows if row["pool"] != "train"}
    return [held[trace["problem_key"]] for trace in traces if trace["problem_key"] in held]
