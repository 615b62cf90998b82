"""What is there, what is missing, what to do next."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform import jsontext
from trajectory_platform.identity import days_between
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.catalogue import catalogue_place, judged_without
from trajectory_platform.stages.checkpoints import NOT_IN_RECIPE, current_checkpoint, last_checkpoint
from trajectory_platform.stages.context import StageContext, neighbours
from trajectory_platform.stages.evaluations import EVALUATIONS
from trajectory_platform.stages.fetching import utc_now
from trajectory_platform.stages.folder_changes import Change, changes, root_missing
from trajectory_platform.stages.text import shown
from trajectory_platform.stages.triggers import MISSING, not_as_listed, published
from trajectory_platform.training.resume import PROGRESS

if TYPE_CHECKING:
    from trajectory_platform.lake.manifests import Manifest
    from trajectory_platform.training.recipe import Recipe

_CHAIN = (
    tables.RAW_TRACES,
    tables.PROBLEM_SUITES,
    tables.TRAJECTORIES,
    tables.JUDGED_TRACES,
    tables.AXIS_A_CORPUS,
)

_OF_AN_EVALUATION = (
    "checkpoint_id", "pool", "success_share", "clusters", "available_clusters", "contaminated_problems", "sealed_looks",
    "sealed_looks_of_all",
)  # fmt: skip
_HOLDER = re.compile(r"process (?P<pid>\d{1,10}) on (?P<machine>\S{1,200})")


def lake_status(settings: Settings, *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Per day how far it got, the newest checkpoint with its score, and the next step.

    A day in the source without any published table is ``late``; one with some tables is ``partial``; a
    partition with retryable holes is ``incomplete``; one made with other settings than the present is ``stale``; one
    whose folder, inputs or retracted traces are others now is ``behind`` (``why``); one whose folder is there before it
    ended is ``not over``. Folders are compared by what is cheap to ask (``folder_changes``). Changed code is not looked
    for here: ``ingest`` finds it, and skips what is current.

    Args:
        clock: decides which incomplete days wait for the API (``waits_until``) and which are due.
    """
    ctx = StageContext(settings)
    source_days = [day.isoformat() for day in ctx.source.days()]
    there = {table.name: set(ctx.lake.days(table)) for table in _CHAIN}
    sound = published(ctx)
    changed = changes(ctx, sound)
    today = clock().date().isoformat()
    expected = _expected_settings(settings)
    days = []
    for day in sorted(set(source_days).union(*there.values())):
        done = [table.name for table in _CHAIN if day in there[table.name]]
        corpus = sound["axis_a_corpus"].get(day)
        summary = (corpus.summary if corpus else None) or {}
        open_tables = [name for name in done if day not in sound[name] or not sound[name][day].complete]
        stale = any(_made_otherwise(sound[name][day], expected[name]) for name in done if day in sound[name])
        whole = "behind" if day in changed else "incomplete" if open_tables else "stale" if stale else "complete"
        state = whole if len(done) == len(_CHAIN) else "partial" if done else "late"
        if day >= today:
            state = "not over"
        days.append(
            {
                "day": day,
                "state": state,
                "missing": [table.name for table in _CHAIN if table.name not in done],
                "in_source": day in source_days,
                "why": changed[day].text if day in changed else None,
                "input": summary.get("input"),
                "accepted": summary.get("accepted"),
                "rejected": summary.get("rejected"),
                "waits_until": _waits_until(ctx, sound["raw_traces"].get(day), clock())
                if state == "incomplete" and open_tables == [tables.RAW_TRACES.name] and not stale
                else None,
            }
        )
    checkpoint = newest_checkpoint(ctx)
    missing_root = settings.data_root if root_missing(ctx) else None
    step, because = _next_step(ctx, days, changed, clock())
    return {
        "lake": settings.lake_uri,
        "source": settings.data_root,
        "days": days,
        "newest_checkpoint": checkpoint,
        "under_way": under_way(settings),
        "warnings": _warnings(settings, sound["judged_traces"], missing_root),
        "next": step,
        "because": because,
    }


def _waits_until(ctx: StageContext, raw: Manifest | None, now: datetime) -> str | None:
    """When the API is to be looked at again for an incomplete day; None when ``ingest`` may bring something now.

    A day that lacks what it lacked at its last look has nothing to gain from being read again before that.
    """
    awaited = None if raw is None else raw.summary.get("awaited")
    if raw is None or ctx.settings.source != "oro_api" or not awaited or raw.summary.get("damaged_neighbours"):
        return None
    from trajectory_platform.sources.oro_api import read_report

    report = read_report(ctx.settings.data_root, date.fromisoformat(raw.day))
    if report is None or report.next_look is None or report.next_look <= now:
        return None
    same = report.wanted + sum(report.later.values()) == awaited
    return report.next_look.isoformat(timespec="minutes") if same else None


def _warnings(settings: Settings, judged: Mapping[str, Manifest], missing_root: str | None) -> list[str]:
    """What is worth a word beside the days; days that share it share one sentence."""
    told = [f"TRAJECTORY_PLATFORM_DATA_ROOT: {missing_root} is no folder"] if missing_root else []
    poor = sorted(day for day, manifest in judged.items() if judged_without(manifest))
    if not poor:
        return told
    which = poor[0] if len(poor) == 1 else f"{len(poor)} days from {poor[0]} to {poor[-1]}"
    place = catalogue_place(settings.data_root)
    lost = f"{which}: no product catalogue, most traces are unscorable (no_catalogue); put it at {place} and ingest"
    return [*told, lost]


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
    told = jsontext.parse(row["manifest"].encode()).value.get("recipe") or {}
    sft = current_checkpoint(ctx, newest["day"])
    columns = ["checkpoint_id", "tool_correct", "cluster_id"]
    scores = ctx.lake.read(tables.ACTION_SCORES, [newest["day"]], columns=columns).to_pylist()
    own = [row for row in scores if sft is not None and row["checkpoint_id"] == sft["checkpoint_id"]]
    return {
        **newest,
        "recipe": told.get("name"),
        "scored_turns": len(own),
        "scored_clusters": len({row["cluster_id"] for row in own}),
        "tool_accuracy": sum(row["tool_correct"] for row in own) / len(own) if own else None,
        "evaluations": _evaluations(ctx, newest["day"]),
    }


def _evaluations(ctx: StageContext, day: str) -> dict[str, dict[str, Any]]:
    """Per evaluation of a day its state and, where something was attempted, its success share with the pool, problems
    and clusters it rests on and what was left out as contaminated; stages that the recipe does not have are left out.
    """
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
            **{name: manifest.summary.get(name) for name in _OF_AN_EVALUATION},
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
        waits = f", waits until {day['waits_until']}" if day["waits_until"] else ""
        why = f"; {day['why']}" if day["why"] else ""
        lines.append(f"{day['day']}  {day['state']:<10} {counts}{missing}{waits}{why}")
    checkpoint = facts["newest_checkpoint"]
    if facts["days"]:
        lines.append("")
    if checkpoint:
        accuracy = checkpoint["tool_accuracy"]
        on = f"{checkpoint['scored_turns']} turns in {checkpoint['scored_clusters']} clusters"
        score = "not scored" if accuracy is None else f"next tool of sft {accuracy:.1%} on {on}"
        made = f"recipe {shown(checkpoint['recipe'] or 'unknown')}, {checkpoint['traces']} traces, {score}"
        lines.append(f"newest checkpoint  {checkpoint['checkpoint_id']} ({made})")
        lines += [f"{asset:>17}  {_evaluated(one)}" for asset, one in checkpoint["evaluations"].items()]
    lines += [f"under way  {shown(one['checkpoint_id'])}, by {shown(one['by'])}" for one in facts["under_way"]]
    lines += [f"warning  {words}" for words in facts["warnings"]]
    why = f"  ({facts['because']})" if facts["because"] else ""
    lines.append(f"next  {facts['next']}{why}")
    return "\n".join(lines)


def _evaluated(one: dict[str, Any]) -> str:
    if one["success_share"] is None:
        return f"nothing attempted ({one['state']})"
    looks, of_all = one["sealed_looks"], one["sealed_looks_of_all"]
    looked = "" if looks is None else f"; look {looks} of this checkpoint, {of_all} of all"
    left = one.get("contaminated_problems")
    seen = f"; {left} contaminated left out" if left else ""
    rests = f"{one['problems']} held-out problems in {one['clusters']} clusters"
    return f"solves {one['success_share']:.1%} of {rests} in the sandbox (pool {one['pool']}{seen}{looked})"


def under_way(settings: Settings) -> list[dict[str, str]]:
    """Checkpoints that a living process trains now: {checkpoint_id, by}; nothing is locked to find out."""
    place = Path(settings.checkpoint_root) / PROGRESS
    found = []
    for path in sorted(place.glob("*.lock")) if place.is_dir() else []:
        try:
            words = path.read_text("utf-8", "replace")[:300]
        except OSError:
            continue  # finished meanwhile
        holder = _HOLDER.match(words)
        if holder and (holder["machine"] != socket.gethostname() or _alive(int(holder["pid"]))):
            found.append({"checkpoint_id": path.name.removesuffix(".lock"), "by": holder.group(0)})
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True


def _next_step(
    ctx: StageContext, days: list[dict[str, Any]], changed: Mapping[str, Change], now: datetime
) -> tuple[str, str | None]:
    """(the command to run next, or that there is none; what it would mend)."""
    from trajectory_platform.training.recipe import load_recipe

    if not days:
        return "no days yet: 'trajectory-platform arena simulate --out DIR' or set TRAJECTORY_PLATFORM_DATA_ROOT", None
    lost = [day for day, why in changed.items() if why.gone]
    if lost and root_missing(ctx):
        return f"set TRAJECTORY_PLATFORM_DATA_ROOT: {ctx.settings.data_root} is no folder", None
    waiting = [day["waits_until"] for day in days if day["waits_until"]]
    over = [day for day in days if day["state"] != "not over"]
    open_days = [
        day["day"]
        for day in over
        if (day["in_source"] or day["state"] == "behind")
        and day["state"] != "complete"
        and not day["waits_until"]
        and day["day"] >= ctx.settings.first_day.isoformat()
        and day["day"] not in lost  # its folder must come back first
    ]
    if open_days:
        return f"trajectory-platform ingest --from {open_days[0]} --to {open_days[-1]}", None
    if lost:
        which = sorted(lost)
        return f"bring the raw folders back below {ctx.settings.data_root}", f"{which[0]}: {changed[which[0]].text}"
    made = [day["day"] for day in over if tables.AXIS_A_CORPUS.name not in day["missing"]]
    if not made:
        return "nothing yet: no day of the source is over and in the partitions", None
    newest = made[-1]
    recipe = load_recipe(ctx.settings.recipe).resolved(ctx.settings.seed)
    stages = recipe.names()
    tried = {
        one.part["stage"]: one
        for one in ctx.lake.manifests(tables.CHECKPOINTS, [newest])
        if one.part["stage"] in stages and one.settings.get("recipe") == _recorded(recipe, one.part["stage"])
    }
    first = tried.get(stages[0]) if stages else None
    if first is not None and not first.summary.get("checkpoint_id"):
        reason = first.summary.get("reason") or "no rows"
        return f"nothing to train as of {newest} ({reason}): ingest more days", None
    why = _lacking(ctx, newest, recipe, tried)
    if why is not None:
        wanted = stages[0] if len(stages) == 1 else "all"
        return f"trajectory-platform train {wanted} --as-of {newest}", f"recipe {shown(recipe.name)}: {why}"
    done = f"recipe {shown(recipe.name)} was trained on {newest} as far as it could, evaluated and traced"
    if waiting:
        return f"nothing before {min(waiting)}: the API has not published all of {len(waiting)} days yet", done
    beside = _without_folder(ctx, now)
    note = "".join(f"; {day} has no folder, pairs of the folder beside it may have been judged on it" for day in beside)
    return "nothing: everything is ingested", f"{done}{note}"


def _without_folder(ctx: StageContext, now: datetime) -> list[str]:
    """Unpublished days that have no folder, but one beside it with pairs that were judged on another day.

    They may be ingested, but nothing is missing while their folder has not come: with a few pairs of its neighbours
    such a day would be the newest of the corpus.
    """
    over = [day.isoformat() for day in days_between(ctx.settings.first_day, now.date() - timedelta(days=1))]
    folders = {day.isoformat() for day in ctx.source.days()}
    moved = {one.day for one in ctx.lake.manifests(tables.RAW_TRACES) if one.summary.get("moved_out")}
    listed = not_as_listed(ctx, over).items()
    return [day for day, why in listed if why.kind == MISSING and day not in folders and moved & {*neighbours(day)}]


def _recorded(recipe: Recipe, stage: str) -> Any:
    """What a manifest records of a recipe, as JSON gives it back."""
    return jsontext.parse(jsontext.dumps(recipe.identity(stage)).encode()).value


def _trained_before(ctx: StageContext, day: str, recipe: Recipe) -> set[str]:
    """The stages of a recipe that have a checkpoint of an earlier day."""
    recorded = {stage: _recorded(recipe, stage) for stage in recipe.names()}
    return {
        one.part["stage"]
        for one in ctx.lake.manifests(tables.CHECKPOINTS)
        if one.day < day and one.summary.get("checkpoint_id")
        if one.part["stage"] in recorded and one.settings.get("recipe") == recorded[one.part["stage"]]
    }


def _lacking(ctx: StageContext, day: str, recipe: Recipe, tried: dict[str, Manifest]) -> str | None:
    """The first thing that a run as of a day has not made yet; None when it ended."""
    stages = recipe.names()
    for stage in stages:
        if stage not in tried:
            older = stage in _trained_before(ctx, day, recipe)
            return f"{stage} has older checkpoints, none as of {day}" if older else f"no {stage} checkpoint yet"
        name = tried[stage].summary.get("checkpoint_id")
        scored = ctx.lake.manifest(tables.EVAL_SCORES, day, {"stage": stage})
        if name and (scored is None or scored.summary.get("checkpoint_id") != name):
            return f"{stage} is not evaluated yet"
    made = [stage for stage in stages if tried[stage].summary.get("checkpoint_id")]
    fed = {one.part["stage"]: one for one in ctx.lake.manifests(tables.CHECKPOINT_TRACES, [day])}
    for table in (tables.CHECKPOINT_LINEAGE, tables.CONTAMINATION):
        seen = {one.part["stage"]: one for one in ctx.lake.manifests(table, [day])}
        if made and not all(_covers(seen.get(stage), fed.get(stage)) for stage in made):
            return f"{table.name} is not brought up to date yet"
    return None


def _covers(told: Manifest | None, fed: Manifest | None) -> bool:
    """Was a table made of the present trace list of a checkpoint?"""
    return told is not None and fed is not None and fed.content_digest in told.inputs.values()
