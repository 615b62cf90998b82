"""What would have to be retrained without some traces: which checkpoints, in which order, at what cost.

A checkpoint is affected when it was fed one of the traces, descends from such a checkpoint, or was fed traces that such
a checkpoint made (rollouts of re-SFT, or its own traces that came back through the arena). Costs are estimates: the
seconds and tokens that were measured when the same checkpoint was trained; where they are not known, the rate of the
other checkpoints of the same stage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.lake import tables
from trajectory_platform.lake.arrays import text_array
from trajectory_platform.lineage import ledger
from trajectory_platform.lineage.retractions import Subject, is_in, subject_of
from trajectory_platform.training.stage_recipes import STAGES

if TYPE_CHECKING:
    from trajectory_platform.lake.publish import Lake

FED, INHERITS, MADE_BY = "fed", "inherits", "fed_by_one_of_these"
_MAX_REPORT_BYTES = 64 << 20
Row = dict[str, Any]


def plan(lake: Lake, name: str, *, kind: str | None = None, checkpoint_root: Path | None = None) -> Row:
    """What retracting a trace, run or miner means: {kind, subject, traces, copies, checkpoints, requested_day, cost}.

    ``checkpoints`` is in the order of retraining, ancestors first: {checkpoint_id, stage, day, parent, why, through,
    rows, weight, share, present, seconds, tokens, measured}. ``rows`` and ``weight`` are of what it was fed itself,
    ``share`` is the rows per trace that it was fed. ``present``: it is the checkpoint that its day and stage have now.
    Only those of ``requested_day`` (the newest day with checkpoints) are requested by the sensor; the others stay and
    are flagged.

    Raises:
        Abort: nothing of that name is in the lake.
    """
    return plan_of(lake, subject_of(lake, name, kind), checkpoint_root=checkpoint_root)


def plan_of(lake: Lake, subject: Subject, *, checkpoint_root: Path | None = None) -> Row:
    """``plan`` of a subject that was looked up."""
    family = ledger.family(lake)
    affected = affected_by(lake, family, subject)
    newest = max((row["day"] for row in family.values()), default=None)
    traces = {name: row["traces"] for name, row in family.items()}
    manifests = lake.manifests(tables.CHECKPOINTS)
    current = {str(name) for one in manifests if (name := one.summary.get("checkpoint_id"))}
    costs = _Costs(family, traces, [one.summary for one in manifests], checkpoint_root)
    listed = [
        {
            **{key: family[one][key] for key in ("checkpoint_id", "stage", "day", "parent")},
            **affected[one],
            "share": affected[one]["rows"] / traces[one] if traces.get(one) else 0.0,
            "present": one in current,
            **costs.of(one),
        }
        for one in in_order(family, affected)
    ]
    wanted = [row for row in listed if row["day"] == newest and row["present"]]
    return {
        "kind": subject.kind,
        "subject": subject.name,
        "traces": len(subject.trace_ids),
        "copies": list(subject.copies),
        "checkpoints": listed,
        "requested_day": newest if wanted else None,
        "cost": {"requested": _sum(wanted), "everything": _sum(listed)},
    }


def affected_by(lake: Lake, family: Mapping[str, Row], subject: Subject) -> dict[str, Row]:
    """Checkpoint -> {why, rows, weight, through} of those that learnt from a subject, however remotely."""
    found = {name: {"why": FED, **told, "through": []} for name, told in _fed(lake, subject).items() if name in family}
    while True:
        added = {
            name: {"why": INHERITS, "rows": 0, "weight": 0.0, "through": chain}
            for name, chain in ledger.heirs(family, found).items()
            if name not in found
        }
        makers_of = [*found, *added]
        days = sorted({row["day"] for name, row in family.items() if name not in found and name not in added})
        for name, makers in (_fed_by(lake, makers_of, days) if days else {}).items():
            if name in family and name not in found and name not in added:
                added[name] = {"why": MADE_BY, "rows": 0, "weight": 0.0, "through": makers}
        if not added:
            return found
        found |= added


def in_order(family: Mapping[str, Row], names: Iterable[str]) -> list[str]:
    """Checkpoints so that each comes after its ancestors: by day, then by place in the run."""

    def place(name: str) -> tuple[str, int, int, str]:
        row = family[name]
        stage = STAGES.index(row["stage"]) if row["stage"] in STAGES else len(STAGES)
        return row["day"], len(ledger.ancestors(family, name)), stage, name

    return sorted(names, key=place)


def _fed(lake: Lake, subject: Subject) -> dict[str, Row]:
    """Checkpoint -> {rows, weight} of the rows of the subject it was fed."""
    import pyarrow.compute as pc

    columns = ["checkpoint_id", "role", "weight"]
    ids = subject.everything()
    rows = lake.lookup(tables.CHECKPOINT_TRACES, "trace_id", ids, columns=columns, ordered=False, exact=False)
    rows = rows.filter(pc.is_in(rows["role"], value_set=text_array(ledger.LEARNT_FROM)))
    counted = rows.group_by("checkpoint_id").aggregate([("weight", "sum"), ("role", "count")]).to_pylist()
    return {row["checkpoint_id"]: {"rows": row["role_count"], "weight": row["weight_sum"]} for row in counted}


def _fed_by(lake: Lake, names: list[str], days: list[str]) -> dict[str, list[str]]:
    """Checkpoint -> those of ``names`` whose own traces it was fed, generated for it or come back through the arena.

    Args:
        days: of the checkpoints that are asked about.
    """
    made: dict[str, str] = {}
    for table, column in (
        (tables.GENERATED_TRACES, "source"),
        (tables.AXIS_A_CORPUS, "policy_checkpoint_id"),
    ):
        named = is_in(column, names)
        rows = lake.read(table, columns=["trace_id", column], filter=named, ordered=False) if names else None
        made |= {} if rows is None else dict(zip(rows["trace_id"].to_pylist(), rows[column].to_pylist(), strict=True))
    if not made:
        return {}
    columns = ["checkpoint_id", "trace_id", "role"]
    rows = lake.lookup(tables.CHECKPOINT_TRACES, "trace_id", made, days, columns, ordered=False).to_pylist()
    found: dict[str, set[str]] = {}
    for row in rows:
        if row["role"] in ledger.LEARNT_FROM and made[row["trace_id"]] != row["checkpoint_id"]:
            found.setdefault(row["checkpoint_id"], set()).add(made[row["trace_id"]])
    return {name: sorted(makers) for name, makers in found.items()}


class _Costs:
    """Measured seconds and tokens of checkpoints; from the manifest of the slot, else from the checkpoint's folder."""

    def __init__(
        self, family: Mapping[str, Row], traces: Mapping[str, int], summaries: Iterable[Row], root: Path | None
    ) -> None:
        self._root = root
        self._traces = traces
        self._stages = {name: row["stage"] for name, row in family.items()}
        self._known: dict[str, Row] = {}
        for told in summaries:
            if told.get("checkpoint_id") and isinstance(told.get("run_seconds"), int | float):
                self._known[told["checkpoint_id"]] = {
                    "seconds": float(told["run_seconds"]),
                    "tokens": told.get("run_tokens"),
                }

    def of(self, name: str) -> Row:
        """{seconds, tokens, measured}; null where nothing of the stage was ever measured."""
        found = self._known.get(name) or self._in_folder(name)
        if found is not None:
            return {**found, "measured": True}
        alike = [one for one in self._known if self._stages.get(one) == self._stages[name] and self._traces.get(one)]
        traces = sum(self._traces[one] for one in alike)
        if not traces:
            return {"seconds": None, "tokens": None, "measured": False}
        rate = sum(self._known[one]["seconds"] for one in alike) / traces
        return {"seconds": round(rate * self._traces.get(name, 0), 2), "tokens": None, "measured": False}

    def _in_folder(self, name: str) -> Row | None:
        path = self._root / name / "rows_report.json" if self._root is not None else None
        if path is None or not path.is_file() or path.stat().st_size > _MAX_REPORT_BYTES:
            return None
        try:
            run = json.loads(path.read_bytes()).get("run") or {}
        except (ValueError, AttributeError):
            return None  # a damaged report measures nothing; the checkpoint's own check names it
        seconds = run.get("seconds")
        if not isinstance(seconds, int | float):
            return None
        self._known[name] = {"seconds": float(seconds), "tokens": run.get("tokens")}
        return self._known[name]


def _sum(rows: list[Row]) -> Row:
    known = [row["seconds"] for row in rows if row["seconds"] is not None]
    return {
        "checkpoints": len(rows),
        "seconds": round(sum(known), 2),
        "tokens": sum(row["tokens"] or 0 for row in rows),
        "unknown": len(rows) - len(known),
        "estimated": sum(row["seconds"] is not None and not row["measured"] for row in rows),
    }
