"""What is there, what is missing, what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.checkpoints import NOT_IN_RECIPE, current_checkpoint, last_checkpoint
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.evaluations import EVALUATIONS

if TYPE_CHECKING:
    from trajectory_platform.lake.manifests import Manifest

_CHAIN = (
    tables.RAW_TRACES,
    tables.PROBLEM_SUITES,
    tables.TRAJECTORIES,
    tables.JUDGED_TRACES,
    tables.AXIS_A_CORPUS,
)


def lake_status(settings: Settings) -> dict[str, Any]:
    """Per day how far it got, the newest checkpoint with its score, and the next step.

    A day in the source without any published table is ``late``; one with some tables is ``partial``; a
    partition with retryable holes is ``incomplete``; one made with other settings than the present is ``stale``.
    Changed folders and code are not looked for here: ``ingest`` finds them, and skips what is current.
    """
    ctx = StageContext(settings)
    source_days = [day.isoformat() for day in ctx.source.days()]
    published = {table.name: set(ctx.lake.days(table)) for table in _CHAIN}
    sound = {table.name: {one.day: one for one in ctx.lake.manifests(table)} for table in _CHAIN}
    expected = _expected_settings(settings)
    days = []
    for day in sorted(set(source_days).union(*published.values())):
        done = [table.name for table in _CHAIN if day in published[table.name]]
        corpus = sound["axis_a_corpus"].get(day)
        summary = (corpus.summary if corpus else None) or {}
        complete = all(day in sound[name] and sound[name][day].complete for name in done)
        stale = any(_made_otherwise(sound[name][day], expected[name]) for name in done if day in sound[name])
        whole = "incomplete" if not complete else "stale" if stale else "complete"
        state = whole if len(done) == len(_CHAIN) else "partial" if done else "late"
        days.append(
            {
                "day": day,
                "state": state,
                "missing": [table.name for table in _CHAIN if table.name not in done],
                "in_source": day in source_days,
                "input": summary.get("input"),
                "accepted": summary.get("accepted"),
                "rejected": summary.get("rejected"),
            }
        )
    checkpoint = newest_checkpoint(ctx)
    return {
        "lake": settings.lake_uri,
        "source": settings.data_root,
        "days": days,
        "newest_checkpoint": checkpoint,
        "next": _next_step(ctx, days),
    }


def _expected_settings(settings: Settings) -> dict[str, dict[str, Any]]:
    """What a manifest records of the present settings, per table; the filter is recorded as it resolves."""
    from trajectory_platform.curation.config import filter_config

    expected = {table.name: settings.used_by(table.name) for table in _CHAIN}
    expected[tables.AXIS_A_CORPUS.name]["filter"] = filter_config(settings).identity()
    return expected


def _made_otherwise(manifest: Manifest, expected: dict[str, Any]) -> bool:
    return {name: manifest.settings.get(name) for name in expected} != expected


def newest_checkpoint(ctx: StageContext) -> dict[str, Any] | None:
    """The checkpoint of the last stage with the newest as-of day, with the teacher-forced scores of that day's SFT."""
    listed = ctx.lake.read(tables.CHECKPOINTS, columns=["day"]).column("day").to_pylist()
    row = last_checkpoint(ctx, max(listed)) if listed else None
    if row is None:
        return None
    newest = {name: row[name] for name in ("checkpoint_id", "day", "stage", "traces")}
    sft = current_checkpoint(ctx, newest["day"])
    scores = ctx.lake.read(tables.ACTION_SCORES, [newest["day"]], columns=["checkpoint_id", "tool_correct"]).to_pylist()
    own = [row["tool_correct"] for row in scores if sft is not None and row["checkpoint_id"] == sft["checkpoint_id"]]
    return {
        **newest,
        "scored_turns": len(own),
        "tool_accuracy": sum(own) / len(own) if own else None,
        "evaluations": _evaluations(ctx, newest["day"]),
    }


def _evaluations(ctx: StageContext, day: str) -> dict[str, dict[str, Any]]:
    """Per evaluation of a day its state and, where something was attempted, problems and success share; stages that
    the recipe does not have are left out."""
    left_out = {
        one.part["stage"]
        for one in ctx.lake.manifests(tables.CHECKPOINTS, [day])
        if one.summary.get("reason") == NOT_IN_RECIPE
    }
    found = {
        row.asset: ctx.lake.manifest(tables.EVAL_SCORES, day, row.part)
        for row in EVALUATIONS
        if row.stage not in left_out
    }
    return {
        asset: {
            "state": manifest.summary["state"],
            "problems": manifest.summary["problems"],
            "success_share": manifest.summary.get("success_share"),
            "sealed_looks": manifest.summary.get("sealed_looks"),
            "sealed_looks_of_all": manifest.summary.get("sealed_looks_of_all"),
        }
        for asset, manifest in found.items()
        if manifest is not None
    }


def render_status(facts: dict[str, Any]) -> str:
    """The status as plain text."""
    lines = [f"lake    {facts['lake']}", f"source  {facts['source']}", ""]
    for day in facts["days"]:
        counts = "" if day["input"] is None else f"{day['input']} traces, {day['accepted']} accepted"
        missing = f"missing {', '.join(day['missing'])}" if day["missing"] else ""
        lines.append(f"{day['day']}  {day['state']:<10} {counts}{missing}")
    checkpoint = facts["newest_checkpoint"]
    if facts["days"]:
        lines.append("")
    if checkpoint:
        accuracy = checkpoint["tool_accuracy"]
        score = "not scored" if accuracy is None else f"next tool {accuracy:.1%} on {checkpoint['scored_turns']} turns"
        lines.append(f"newest checkpoint  {checkpoint['checkpoint_id']} ({checkpoint['traces']} traces, {score})")
        lines += [f"{asset:>17}  {_evaluated(one)}" for asset, one in checkpoint["evaluations"].items()]
    lines.append(f"next  {facts['next']}")
    return "\n".join(lines)


def _evaluated(one: dict[str, Any]) -> str:
    if one["success_share"] is None:
        return f"nothing attempted ({one['state']})"
    looks, of_all = one["sealed_looks"], one["sealed_looks_of_all"]
    looked = "" if looks is None else f" (sealed pool, look {looks} of this checkpoint, {of_all} of all)"
    return f"solves {one['success_share']:.1%} of {one['problems']} held-out problems in the sandbox{looked}"


def _next_step(ctx: StageContext, days: list[dict[str, Any]]) -> str:
    from trajectory_platform.training.recipe import load_recipe

    open_days = [day["day"] for day in days if day["in_source"] and day["state"] != "complete"]
    if not days:
        return "no days yet: 'trajectory-platform arena simulate' or set TRAJECTORY_PLATFORM_DATA_ROOT"
    if open_days:
        return f"trajectory-platform ingest --from {open_days[0]} --to {open_days[-1]}"
    newest = days[-1]["day"]
    stages = load_recipe(ctx.settings.recipe).names()
    tried = {one.part["stage"]: one.summary for one in ctx.lake.manifests(tables.CHECKPOINTS, [newest])}
    first = tried.get(stages[0]) if stages else None
    if first is not None and not first.get("checkpoint_id"):
        return f"nothing to train as of {newest} ({first.get('reason') or 'no rows'}): ingest more days"
    if any(stage not in tried for stage in stages):
        wanted = stages[0] if len(stages) == 1 else "all"
        return f"trajectory-platform train {wanted} --as-of {newest}"
    return "nothing: everything ingested and the newest day has a checkpoint of every stage that could be trained"
