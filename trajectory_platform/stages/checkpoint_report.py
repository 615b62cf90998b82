"""The report of one checkpoint: all that is known of it in one HTML file, read from lake and checkpoint folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajectory_platform.lake import sealed_scores, tables
from trajectory_platform.reports.checkpoint_data import CheckpointData
from trajectory_platform.settings import Settings
from trajectory_platform.stages import checkpoint_facts, checkpoint_scores
from trajectory_platform.stages.checkpoint_evaluations import (
    Measured,
    Member,
    measured_in_folders,
    measured_in_lake,
    members_of,
)
from trajectory_platform.stages.checkpoint_failures import failure_report
from trajectory_platform.stages.context import StageContext

Row = dict[str, Any]


def write_checkpoint_report(
    settings: Settings, out: Path, checkpoint_id: str, *, evaluations: Sequence[Path] = ()
) -> Path:
    """Write the page of a checkpoint, replacing an older one atomically.

    Args:
        evaluations: folders of ``trajectory-platform evaluate`` whose scores are shown too (several attempts per
            problem for pass@k, the one look at sealed problems), of this checkpoint or of others of its run.

    Raises:
        Abort: no such checkpoint, or a folder that holds no evaluation of its run.
        FailPartition: a damaged file, or sealed scores that the ledger knows no look of.
    """
    from trajectory_platform.reports.checkpoint_page import build_checkpoint_page
    from trajectory_platform.reports.page import write_page

    data = checkpoint_data(StageContext(settings), checkpoint_id, evaluations=evaluations)
    return write_page(out, build_checkpoint_page(data))


class Found(NamedTuple):
    """What was read of a checkpoint's run.

    Attributes:
        members: the run, the model before training first. own: the checkpoint itself.
        measured: every evaluation of every member. how: seed, resamples and least clusters of intervals.
        report: ``checkpoint_facts.training_report`` of the checkpoint itself.
    """

    members: Sequence[Member]
    own: Member
    measured: Sequence[Measured]
    how: Row
    report: Row | None

    def of(self, checkpoint_id: str) -> list[Measured]:
        """The evaluations of one model."""
        return [one for one in self.measured if one.checkpoint_id == checkpoint_id]


def find(ctx: StageContext, checkpoint_id: str, evaluations: Sequence[Path] = ()) -> Found:
    """Read a checkpoint's run and everything that was measured of it.

    Raises:
        Abort: no such checkpoint is published.
    """
    members = members_of(ctx, checkpoint_id)
    measured = [*measured_in_lake(ctx, members), *measured_in_folders(ctx, members, evaluations)]
    own = next(member for member in members if member.checkpoint_id == checkpoint_id)
    assert own.manifest is not None
    plan = own.manifest["recipe"]["evaluation"]
    how = {"seed": plan["seed"], "resamples": plan["bootstrap"], "thin_below": plan["thin_below"]}
    return Found(members, own, measured, how, checkpoint_facts.training_report(ctx, own))


def checkpoint_data(ctx: StageContext, checkpoint_id: str, *, evaluations: Sequence[Path] = ()) -> CheckpointData:
    """Everything the page shows; see ``write_checkpoint_report``."""
    from trajectory_platform.lineage.questions import about_checkpoint

    found = find(ctx, checkpoint_id, evaluations)
    answer = about_checkpoint(ctx.lake, checkpoint_id)
    assert answer is not None, f"{checkpoint_id} was read a moment ago"
    own = found.of(checkpoint_id)
    metrics = [checkpoint_scores.metrics_of(one, found.how) for one in own]
    stages, words = checkpoint_scores.stage_by_stage(found.members, found.measured, own, found.how)
    passes, passes_note = checkpoint_scores.pass_curves(found.members, found.measured, own, found.how)
    chain = [one for one in found.members if one.checkpoint_id in (checkpoint_id, *answer["parents"])]
    actions, actions_note = _actions(ctx, found)
    return CheckpointData(
        checkpoint_id=checkpoint_id,
        subtitle=f"{answer['stage']} of recipe {answer['recipe']['name']}, as of {answer['day']}",
        tiles=_tiles(answer, stages, passes),
        notes=_notes(answer, found),
        facts=checkpoint_facts.facts_of(answer, found.report),
        chain=answer["made_of"],
        fed=checkpoint_facts.fed_of(answer),
        packages=sorted(answer["packages"].items()),
        history=(found.report or {}).get("history") or (),
        stages=stages,
        words=words,
        passes=passes,
        passes_note=passes_note,
        categories=checkpoint_scores.by_category(found.members, found.measured, own, found.how),
        failures=[failure_report(ctx, one, with_examples=number == 0) for number, one in enumerate(own) if one.counted],
        actions=actions,
        actions_note=actions_note,
        evaluations=_evaluations(ctx, own, metrics),
        conduct=checkpoint_scores.conduct_rows(own, metrics),
        costs=checkpoint_facts.costs_of(ctx, chain, own, metrics),
        costs_note="Seconds and tokens as the trainings measured them. Where a device other than the CPU trained, its "
        "seconds are the wall seconds.",
        limits=checkpoint_scores.limits(found.own, own, found.how),
    )


def _tiles(answer: Mapping[str, Any], stages: list[Row], passes: list[Row]) -> list[tuple[str, str]]:
    tiles: list[tuple[str, str]] = []
    row = next((row for row in stages if row.get("own") and row.get("success") is not None), None)
    if row is not None:
        tiles.append(("success", f"{row['success']:.1%}"))
        if row.get("difference") is not None:
            tiles.append((f"points on {row['against']}", f"{100 * row['difference']:+.1f}"))
    mine = next((curve for curve in passes if curve["own"] and len(curve["points"]) > 1), None)
    if mine is not None:
        last = mine["points"][-1]
        tiles.append((f"pass@{last['k']}", f"{last['value']:.1%}"))
    if row is not None:
        tiles.append(("hallucinated ids", f"{row['hallucinated']:.1%}" if row["hallucinated"] is not None else "none"))
        tiles.append(("evaluable clusters", f"{row['clusters']:,}"))
    tiles.append(("traces", f"{answer['traces']:,}"))
    return tiles


def _notes(answer: Mapping[str, Any], found: Found) -> list[str]:
    notes = []
    if found.report is None:
        notes.append("The folder of this checkpoint is not here: its learning curves and costs cannot be shown.")
    if answer["control"]:
        notes.append(
            "A control: trained on the unfiltered stream to show what the filter is worth. Not a model to use."
        )
    if answer["retracted_rows"]:
        notes.append(f"{answer['retracted_rows']:,} of its rows were retracted since: it is to be trained again.")
    flags = {name: count for name, count in (answer["flags"] or {}).items() if name != "as_of"}
    if flags:
        told = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in flags.items())
        notes.append(f"Flagged as of {answer['flags']['as_of']}: {told}.")
    return notes


def _actions(ctx: StageContext, found: Found) -> tuple[list[Row], str]:
    """Next-action scores of the checkpoint, or of the nearest ancestor that has some, with whose they are."""
    import pyarrow.compute as pc

    from trajectory_platform.evaluation.action_metrics import action_metrics
    from trajectory_platform.evaluation.plan import ActionPlan

    before = found.members[: found.members.index(found.own) + 1]
    for member in reversed(before):
        if member.manifest is None:
            continue
        own = pc.field("checkpoint_id") == member.checkpoint_id
        rows = ctx.lake.read(tables.ACTION_SCORES, [member.day], filter=own).to_pylist()
        if rows:
            plan = ActionPlan.model_validate(member.manifest["recipe"]["evaluation"])
            told = [
                checkpoint_scores.action_row(one) for one in action_metrics(rows, plan)["categories"] if one["turns"]
            ]
            whose = "" if member is found.own else f" These are the scores of its ancestor {member.checkpoint_id}."
            return told, checkpoint_scores.ACTIONS_NOTE + whose
    return [], "Next actions are scored for the SFT checkpoint of a run; none of this run's has scores."


def _evaluations(ctx: StageContext, own: Sequence[Measured], metrics: Sequence[Row]) -> list[Row]:
    """What each evaluation rests on."""
    status = _status(ctx, {one.checkpoint_id for one in own})
    rows = []
    for measured, one in zip(own, metrics, strict=True):
        row = checkpoint_scores.resting_on(measured, one, status)
        if measured.pool == "sealed" or any(part["pool"] == "sealed" for part in measured.rows):
            row["looks"] = sealed_scores.looks_text(sealed_scores.looks(ctx.lake, measured.checkpoint_id))
        rows.append(row)
    return rows


def _status(ctx: StageContext, names: set[str]) -> dict[str, str]:
    """Problem key -> what a checkpoint has seen of it, by the newest published clusters; {} where nobody looked."""
    import pyarrow.compute as pc

    from trajectory_platform.lake.arrays import text_array

    columns = ["day", "problem_key", "status"]
    chosen = pc.field("checkpoint_id").isin(text_array(sorted(names)))
    rows = ctx.lake.read(tables.CONTAMINATION, columns=columns, filter=chosen).to_pylist()
    newest = max((row["day"] for row in rows), default="")
    return {row["problem_key"]: row["status"] for row in rows if row["day"] == newest}
