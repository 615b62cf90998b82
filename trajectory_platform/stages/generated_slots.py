"""The slots of ``generated_traces``: what is in them now, under which ids, and what of it enters an identity.

A slot (day, stage) keeps the rows of every parent and teacher; its manifest says whose are the present ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trajectory_platform.identity import digest_json
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import Output, StageContext

if TYPE_CHECKING:
    import pyarrow as pa

SLOTS_VERSION = "slots-2"  # raise it when the same attempts would be other rows, or have other ids


def accepted_digest(rows: Sequence[Mapping[str, Any]]) -> str:
    """What a training stage depends on: the accepted rows, whatever else stands beside them in the slot."""
    return digest_json(sorted([row["trace_id"], row["content_hash"] or ""] for row in rows if row["accepted"]))


def generated_input(ctx: StageContext, day: str, stage: str) -> dict[str, dict[str, Any]]:
    """The generated traces of a stage as an input of a checkpoint: name -> {content_digest, table_version, rows}."""
    manifest = ctx.lake.manifest(tables.GENERATED_TRACES, day, {"stage": stage})
    name = f"{tables.GENERATED_TRACES.name}/{day}/{stage}"
    if manifest is None:
        return {name: {"content_digest": "absent", "table_version": None, "rows": 0}}
    digest = manifest.summary.get("accepted_digest", "none")
    return {name: {"content_digest": digest, "table_version": manifest.table_version, "rows": manifest.rows}}


def present_traces(ctx: StageContext, day: str, stage: str) -> list[dict[str, Any]]:
    """What the newest run of a stage generated as of a day; rows of other parents and teachers are left out."""
    import pyarrow.compute as pc

    manifest = ctx.lake.manifest(tables.GENERATED_TRACES, day, {"stage": stage})
    source = manifest.summary.get("source") if manifest is not None else None
    if not source:
        return []
    own = (pc.field("stage") == stage) & (pc.field("source") == source)
    rows: list[dict[str, Any]] = ctx.lake.read(tables.GENERATED_TRACES, [day], filter=own).to_pylist()
    return rows


def beside_sources(ctx: StageContext, day: str, stage: str, source: str | None, rows: pa.Table) -> Output:
    """The rows of one parent or teacher beside those of the others of the same day and stage."""
    import pyarrow as pa
    import pyarrow.compute as pc

    others = pc.field("stage") == stage
    if source is not None:
        others &= pc.field("source") != source
    present = ctx.lake.read(tables.GENERATED_TRACES, [day], filter=others)
    schema = tables.GENERATED_TRACES.schema()
    return Output(tables.GENERATED_TRACES, pa.concat_tables([present, rows.cast(schema)]), part={"stage": stage})
