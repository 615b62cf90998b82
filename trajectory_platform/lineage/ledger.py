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
    from trajectory_platform.lake.manifests import Manifest
    from trajectory_platform.lake.publish import Lake

ABSENT = "absent"
LEARNT_FROM = tuple(role for role in tables.CHECKPOINT_ROLES if role != "dev")
"""Roles of rows that a checkpoint learnt something from, whatever it was."""
PROMPT = "prompt"
MAYBE_GENERATED = ("generated", "teacher", "reference")
"""Roles of rows that a checkpoint or a teacher of ours may have made."""


def rows_where(
    lake: Lake,
    table: Table,
    column: str,
    values: Iterable[str],
    days: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Rows whose ``column`` is one of ``values``, in the order of day and key; without ``columns`` all but big text."""
    names = light_columns(table) if columns is None else columns
    found: list[dict[str, Any]] = lake.lookup(table, column, values, days, names).to_pylist()
    return found


def checkpoint_row(lake: Lake, checkpoint_id: str, days: Sequence[str] | None = None) -> dict[str, Any] | None:
    """The row of ``checkpoints`` with its manifest parsed, or None; ``days``: where to look, if that is known."""
    rows = rows_where(lake, tables.CHECKPOINTS, "checkpoint_id", [checkpoint_id], days)
    if not rows:
        return None
    return {**rows[0], "manifest": json.loads(rows[0]["manifest"])}


def is_control(checkpoint: Mapping[str, Any]) -> bool:
    """Was this checkpoint itself trained on the unfiltered stream? Takes a row of ``checkpoints``."""
    told = checkpoint["manifest"]
    manifest = json.loads(told) if isinstance(told, str) else told
    stages = manifest.get("recipe", {}).get("stages") or {}
    part = stages.get(checkpoint["stage"]) or {}
    return bool((part.get("select") or {}).get("source") == "unfiltered")


def generated_of(lake: Lake, trace_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Trace id -> {trace_id, stage, source, category} of those that are generated ones."""
    wanted = set(trace_ids)
    columns = ["trace_id", "stage", "source", "category"]
    rows = rows_where(lake, tables.GENERATED_TRACES, "trace_id", wanted, columns=columns) if wanted else []
    return {row["trace_id"]: row for row in rows}


def streamed_of(lake: Lake, trace_ids: Iterable[str]) -> set[str]:
    """Which of these are trajectories, accepted or not."""
    return {row["trace_id"] for row in rows_where(lake, tables.TRAJECTORIES, "trace_id", trace_ids, None, ["trace_id"])}


def list_digest(traces: Iterable[Mapping[str, Any]]) -> str:
    """Digest of what was trained on, ids with their roles, the way the manifest records it."""
    return trace_list_digest(list(traces))


def family(lake: Lake) -> dict[str, dict[str, Any]]:
    """Every published checkpoint: id -> {checkpoint_id, stage, day, parent, traces}."""
    columns = ["checkpoint_id", "stage", "day", "parent", "traces"]
    return {row["checkpoint_id"]: row for row in lake.read(tables.CHECKPOINTS, columns=columns).to_pylist()}


def ancestors(known: Mapping[str, Mapping[str, Any]], checkpoint_id: str) -> list[str]:
    """The chain of parents among known checkpoints, nearest first; what is not known ends it."""
    chain: list[str] = []
    row = known.get(checkpoint_id)
    while row is not None and row["parent"] is not None and row["parent"] not in (checkpoint_id, *chain):
        chain.append(row["parent"])
        row = known.get(row["parent"])
    return chain


def heirs(known: Mapping[str, Mapping[str, Any]], checkpoint_ids: Iterable[str]) -> dict[str, list[str]]:
    """Checkpoint -> those of ``checkpoint_ids`` that it descends from, for every descendant, nearest ancestor first."""
    wanted = set(checkpoint_ids)
    found = {name: [one for one in ancestors(known, name) if one in wanted] for name in sorted(known)}
    return {name: chain for name, chain in found.items() if chain}


def seen_rows(lake: Lake, checkpoint_ids: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Checkpoint -> everything it has seen: its own ``checkpoint_traces`` rows and those of all its ancestors.

    A row keeps the checkpoint that it was fed to; rows are in the order of the chain, its own first.
    """
    known = family(lake)
    chains = {name: [name, *ancestors(known, name)] for name in checkpoint_ids}
    rows: dict[str, list[dict[str, Any]]] = {}
    every = {name for chain in chains.values() for name in chain}
    strangers = not every <= known.keys()  # their rows may be of any day
    days = None if strangers else sorted({known[name]["day"] for name in every})
    for row in rows_where(lake, tables.CHECKPOINT_TRACES, "checkpoint_id", every, days):
        if row["role"] in LEARNT_FROM:
            rows.setdefault(row["checkpoint_id"], []).append(row)
    return {name: [row for one in chain for row in rows.get(one, [])] for name, chain in chains.items()}


def changed_inputs(lake: Lake, manifest: Mapping[str, Any]) -> list[dict[str, str]]:
    """Input partitions whose content is no longer what the checkpoint was made of.

    Names of inputs are ``{table}/{day}`` or ``{table}/{day}/{stage}``; others are no partitions. Of generated traces
    the accepted rows count. Returns {input, recorded, present}; ``present`` is ``absent`` when the partition has gone.
    """
    changed = []
    listed = {name: name.split("/", 2) for name in sorted(manifest["inputs"]) if name.count("/")}
    listed = {name: [*place, ""][:3] for name, place in listed.items() if place[0] in tables.TABLES}
    present_of = {
        (one.table, one.day, one.part.get("stage", "")): _digest_of(one)
        for table in sorted({place[0] for place in listed.values()})
        for one in lake.manifests(table, {place[1] for place in listed.values() if place[0] == table})
    }
    for name, (table, day, stage) in listed.items():
        entry = manifest["inputs"][name]
        present = present_of.get((table, day, stage), ABSENT)
        if present != entry["content_digest"]:
            changed.append({"input": name, "recorded": str(entry["content_digest"]), "present": present})
    return changed


def flags_of(lake: Lake, checkpoint_id: str) -> dict[str, Any] | None:
    """What the newest ``contamination`` holds against a checkpoint: {as_of, reason: count ...}; None where nothing."""
    days = lake.days(tables.CONTAMINATION)
    for manifest in lake.manifests(tables.CONTAMINATION, days[-1:]):
        found = (manifest.summary or {}).get("flagged", {}).get(checkpoint_id)
        if found:
            return {"as_of": manifest.day, **found}
    return None


def _digest_of(manifest: Manifest) -> str:
    return str((manifest.summary or {}).get("accepted_digest", manifest.content_digest))


def held_out_now(lake: Lake, traces: Iterable[Mapping[str, Any]]) -> list[str]:
    """Pool, other than train, of every trace whose problem has one in the newest published clusters."""
    days = lake.days(tables.LEAK_CLUSTERS)
    if not days:
        return []
    rows = lake.read(tables.LEAK_CLUSTERS, [days[-1]], columns=["problem_key", "pool"]).to_pylist()
    held = {row["problem_key"]: row["pool"] for row in rows if row["pool"] != "train"}
    return [held[trace["problem_key"]] for trace in traces if trace["problem_key"] in held]
