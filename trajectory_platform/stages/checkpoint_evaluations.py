"""All that was measured of a checkpoint and of the other stages of its run: in the lake and in folders of ``evaluate``.

A run is the line a checkpoint stands in: the model it began with, its ancestors, itself, and what was trained from it
as of the same day under the same recipe. Two evaluations are put side by side only where they are of one kind: the
same pool, the same way of drawing, the same number of attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, FailPartition, RejectRow
from trajectory_platform.lake import sealed_scores, tables
from trajectory_platform.lineage import ledger
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.text import shown
from trajectory_platform.training.stage_recipes import BASE, STAGES

Row = dict[str, Any]
SCORES, ROLLOUTS, METRICS = "scores.jsonl", "rollouts.jsonl", "metrics.json"
GRAPH = "evaluation of the run"


class Member(NamedTuple):
    """One model of a run; ``manifest`` is None for the model before training."""

    stage: str
    checkpoint_id: str
    day: str
    parent: str | None
    manifest: Mapping[str, Any] | None


class Measured(NamedTuple):
    """One evaluation of one model.

    Attributes:
        stage, checkpoint_id: of the model. kind: equal for evaluations that may be put side by side.
        label: for people. pool: of its problems (``mixed`` where there are several).
        rows: of ``eval_scores``, ``score`` as an object. folder: where its files are; None for the lake.
        facts: what its summary or metrics say beside the rows (``contaminated_problems``, ``available_clusters``, ...).
    """

    stage: str
    checkpoint_id: str
    kind: str
    label: str
    pool: str
    rows: Sequence[Row]
    folder: Path | None
    facts: Mapping[str, Any]

    @property
    def counted(self) -> list[Row]:
        """Rows that are an attempt at a problem with a known reward."""
        return [row for row in self.rows if row["outcome"] != "no_reward"]


def members_of(ctx: StageContext, name: str) -> list[Member]:
    """The models of a checkpoint's run, the one before training first, then in the order of the stages.

    Raises:
        Abort: no such checkpoint is published.
    """
    family = ledger.family(ctx.lake)
    if name not in family:
        some = ", ".join(sorted(family)[-5:]) or "none"
        raise Abort(f"no checkpoint {shown(name)} in {ctx.settings.lake_uri}; known, the last: {some}")
    line = [one for one in (*ledger.ancestors(family, name), name) if one in family]
    heirs = [one for one in ledger.heirs(family, [name]) if family[one]["day"] == family[name]["day"]]
    days = sorted({family[one]["day"] for one in (*line, *heirs)})
    listed = ledger.rows_where(ctx.lake, tables.CHECKPOINTS, "checkpoint_id", [*line, *heirs], days)
    rows = {row["checkpoint_id"]: _member(row) for row in listed}
    recipe = (rows[name].manifest or {}).get("recipe_digest")
    found = [rows[one] for one in line]
    found += [rows[one] for one in heirs if (rows[one].manifest or {}).get("recipe_digest") == recipe]
    found.sort(key=lambda one: (one.day, STAGES.index(one.stage), one.checkpoint_id))
    first = found[0]
    assert first.manifest is not None
    return [Member(BASE, _base_name(first), first.day, None, None), *found]


def _member(row: Mapping[str, Any]) -> Member:
    manifest = jsontext.parse(row["manifest"].encode()).value
    return Member(row["stage"], row["checkpoint_id"], row["day"], row["parent"], manifest)


def _base_name(first: Member) -> str:
    """As ``eval_scores`` names the model a run began with (``stages.base_model``, ``rollout_launch.untrained``)."""
    from trajectory_platform.evaluation.rollout_launch import untrained
    from trajectory_platform.identity import digest_json

    manifest = first.manifest
    assert manifest is not None
    recipe, base = manifest["recipe"], manifest.get("base")
    if base is not None and base.get("digest"):
        return f"base-{digest_json([base['digest'], recipe['template'], recipe['context']])[:12]}"
    return untrained(manifest, Path(first.checkpoint_id), manifest["seeds"]["training"], 1, first.day).name


def measured_in_lake(ctx: StageContext, members: Sequence[Member]) -> list[Measured]:
    """The published evaluations of the models, in their order; rows of several pools are several evaluations.

    Raises:
        FailPartition: sealed scores that the ledger knows no look of.
    """
    import pyarrow.compute as pc

    from trajectory_platform.lake.arrays import text_array

    names = [one.checkpoint_id for one in members]
    days = sorted({one.day for one in members})
    table = ctx.lake.read(tables.EVAL_SCORES, days, filter=pc.field("checkpoint_id").isin(text_array(names)))
    found = []
    for member in members:
        own = [row for row in table.to_pylist() if row["checkpoint_id"] == member.checkpoint_id]
        sealed_scores.assert_scores_looked(ctx.lake, own)
        for day, slot, pool in sorted({(row["day"], row["stage"], row["pool"]) for row in own}):
            rows = [_decoded(row) for row in own if (row["day"], row["stage"], row["pool"]) == (day, slot, pool)]
            found.append(_of_lake(ctx, member, day, slot, pool, rows))
    return found


def _of_lake(ctx: StageContext, member: Member, day: str, slot: str, pool: str, rows: list[Row]) -> Measured:
    manifest = ctx.lake.manifest(tables.EVAL_SCORES, day, {"stage": slot})
    facts: dict[str, Any] = {}
    drawn, samples = "", 1 + max((row["sample"] for row in rows), default=0)
    if manifest is not None and manifest.summary.get("checkpoint_id") == member.checkpoint_id:
        plan = manifest.settings.get("plan") or {}
        facts = {**manifest.summary, "rules": {key: manifest.settings.get(key) for key in _RULES}, "plan": plan}
        drawn = decoding(plan.get("temperature"), samples)
    asked = str((facts.get("plan") or {}).get("pool") or pool)
    named = asked if asked.partition(":")[0] == pool else f"{asked}, {pool}"  # fresh ones may be dev or sealed
    label = f"{GRAPH}: {named}" + (f", {drawn}" if drawn else "")
    kind = f"lake/{day}/{named}/{drawn}"
    return Measured(member.stage, member.checkpoint_id, kind, label, pool, rows, None, facts)


_RULES = ("title_regime", "title_encoder", "attribute_rule")


def decoding(temperature: float | None, samples: int) -> str:
    """How attempts were drawn, for people: greedy, or the temperature; with several attempts their number."""
    how = "" if temperature is None else "greedy" if temperature == 0 else f"temperature {temperature:g}"
    attempts = f"{samples} attempts" if samples > 1 else ""
    return ", ".join(part for part in (how, attempts) if part)


def measured_in_folders(ctx: StageContext, members: Sequence[Member], folders: Iterable[Path]) -> list[Measured]:
    """Evaluations in folders of ``evaluate``, each of one of the models.

    Raises:
        Abort: a folder holds no evaluation, or one of a model that is not of this run.
        FailPartition: a damaged file, or sealed scores that the ledger knows no look of.
    """
    known = {one.checkpoint_id: one for one in members}
    base = ""
    found = []
    for folder in folders:
        rows = [_decoded(row) for row in json_lines(folder / SCORES)]
        names = sorted({str(row.get("checkpoint_id")) for row in rows})
        if len(names) != 1 or any(column not in row for row in rows for column in tables.EVAL_SCORES.columns):
            raise Abort(f"{shown(str(folder))}: {SCORES} is not the scores of one evaluation")
        if names[0] not in known and names[0] != (base := base or _folder_name(ctx, members[0])):
            raise Abort(f"{shown(str(folder))} is of {shown(names[0])}, which is not of the run of this checkpoint")
        sealed_scores.assert_scores_looked(ctx.lake, rows)
        [told] = json_lines(folder / METRICS)
        pools = sorted({str(row["pool"]) for row in rows})
        pool = pools[0] if len(pools) == 1 else "mixed"
        asked = str(told.get("pool") or pool)
        sampling = told.get("sampling") or {}
        samples = 1 + max(row["sample"] for row in rows)
        drawn = decoding(sampling.get("temperature"), samples)
        label = f"evaluate: {asked}" + (f", {drawn}" if drawn else "")
        kind = f"folder/{asked}/{drawn}"
        member = known.get(names[0], members[0])
        found.append(Measured(member.stage, member.checkpoint_id, kind, label, pool, rows, folder, told))
    order = [one.checkpoint_id for one in members]
    return sorted(found, key=lambda one: (one.kind, order.index(one.checkpoint_id)))


def _folder_name(ctx: StageContext, base: Member) -> str:
    """How ``evaluate`` names the model before training, a folder without a manifest; "" where it is not here."""
    from trajectory_platform.evaluation.policy_transformers import checkpoint_name
    from trajectory_platform.stages.base_model import FOLDER

    place = Path(ctx.settings.checkpoint_root) / FOLDER / base.checkpoint_id
    return checkpoint_name(place) if place.is_dir() else ""


def json_lines(path: Path) -> list[Row]:
    """The objects of a file of JSON lines.

    Raises:
        Abort: it cannot be read. FailPartition: a line is damaged.
    """
    try:
        lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    except OSError as error:
        raise Abort(f"cannot read {shown(str(path))}: {error.strerror or error}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = jsontext.parse(line).value
        except RejectRow as error:
            raise FailPartition(f"{shown(str(path))} line {number} is damaged ({error.reason})") from error
        if not isinstance(row, dict):
            raise FailPartition(f"{shown(str(path))} line {number} is no object")
        rows.append(row)
    if not rows:
        raise Abort(f"{shown(str(path))} is empty")
    return rows


def _decoded(row: Row) -> Row:
    score = row.get("score")
    return {**row, "score": jsontext.parse(score.encode()).value} if isinstance(score, str) else row
