"""The scores of a checkpoint and of its run as rows for the report: pure functions over what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajectory_platform.errors import PlatformError
from trajectory_platform.stages.checkpoint_evaluations import Measured, Member

Row = dict[str, Any]
MOST_K = 8
ACTIONS_NOTE = (
    "Teacher-forced: the model is shown the true history of dev traces and asked for its next action. The baseline "
    "always answers with the commonest tool of the same turns."
)
_UNMEASURED = "not measured"


def metrics_of(measured: Measured, how: Mapping[str, Any]) -> Row:
    """``evaluation.metrics.task_metrics`` of one evaluation, with pass@k for every k up to the number of attempts."""
    from trajectory_platform.evaluation.metrics import task_metrics

    return task_metrics(measured.rows, ks=_ks(measured), **how)


def _ks(measured: Measured) -> tuple[int, ...]:
    most = 1 + max((row["sample"] for row in measured.rows), default=0)
    return tuple(range(1, min(MOST_K, most) + 1))


def stage_by_stage(
    members: Sequence[Member], measured: Sequence[Measured], own: Sequence[Measured], how: Mapping[str, Any]
) -> tuple[list[Row], dict[str, list[str]]]:
    """(rows of the stages of a run, evaluation -> what is shown of each step in words).

    The rows are of the first kind of evaluation that the checkpoint has; the words are about every kind. A stage is
    paired with its parent on the problems that both attempted (``evaluation.comparison.compare``).
    """
    if not own:
        return [], {}
    rows: list[Row] = []
    words: dict[str, list[str]] = {}
    for kind in dict.fromkeys(one.kind for one in own):
        of_kind = {one.checkpoint_id: one for one in measured if one.kind == kind}
        table = [_stage_row(member, members, of_kind, own[0].checkpoint_id, how) for member in members]
        said = [row["said"] for row in table if row.get("said")]
        words |= {next(one.label for one in own if one.kind == kind): said} if said else {}
        rows = rows or table
    return rows, words


def _stage_row(
    member: Member, members: Sequence[Member], of_kind: Mapping[str, Measured], name: str, how: Mapping[str, Any]
) -> Row:
    row: Row = {
        "stage": member.stage,
        "checkpoint_id": member.checkpoint_id,
        "own": member.checkpoint_id == name,
        "parent": member.parent or "",
        "traces": None if member.manifest is None else member.manifest["traces"],
        "state": _UNMEASURED,
        "reason": "",
    }
    measured = of_kind.get(member.checkpoint_id)
    if measured is None:
        return row
    metrics = metrics_of(measured, how)
    row["state"] = metrics["state"]
    if "success_rate" not in metrics["overall"]:
        return row
    row |= score_row(metrics["overall"]) | {"excluded": measured.facts.get("contaminated_problems")}
    before = _before(member, members, of_kind)
    return row | _gain(before, measured, member.stage, how) if before is not None else row


def _before(member: Member, members: Sequence[Member], of_kind: Mapping[str, Measured]) -> tuple[str, Measured] | None:
    """The nearest model that a stage began with and that was measured: its parent, else the one before that."""
    by_name = {one.checkpoint_id: one for one in members}
    base = members[0]
    step: Member | None = member
    while step is not None and step is not base:
        step = by_name.get(step.parent) if step.parent is not None else base
        if step is not None and step.checkpoint_id in of_kind:
            return step.stage, of_kind[step.checkpoint_id]
    return None


def _gain(before: tuple[str, Measured], measured: Measured, stage: str, how: Mapping[str, Any]) -> Row:
    """What a step added, paired on the same problems; {} where they share none."""
    from trajectory_platform.evaluation.comparison import compare

    against, other = before
    try:
        overall = compare(other.counted, measured.counted, **how)["overall"]
    except PlatformError:  # other problems: nothing can be paired
        return {}
    row = {"against": against, "detectable": overall["smallest_detectable"]["value"], "verdict": overall["verdict"]}
    row |= valued("difference", overall["difference"])
    return {**row, "said": _said(stage, against, row, overall)}


def _said(stage: str, against: str, row: Mapping[str, Any], overall: Mapping[str, Any]) -> str:
    """One honest sentence about a step."""
    points = f"{100 * row['difference']:+.1f} points"
    if row["difference_low"] is not None:
        points += f" ({100 * row['difference_low']:+.1f} to {100 * row['difference_high']:+.1f})"
    on = f"on {overall['problems']} problems in {overall['clusters']} clusters"
    said = {
        "better": f"shown to help, {points}",
        "worse": f"shown to hurt, {points}",
        "undecided": f"no difference is shown, {points}",
    }[row["verdict"]]
    sees = "" if row["detectable"] is None else f"; only differences above {100 * row['detectable']:.1f} can be seen"
    thin = "; too few clusters to conclude from" if overall["state"] == "thin" else ""
    return f"{stage} against {against}: {said} {on}{sees}{thin}."


def pass_curves(
    members: Sequence[Member], measured: Sequence[Measured], own: Sequence[Measured], how: Mapping[str, Any]
) -> tuple[list[Row], str]:
    """(pass@k curves of the run's models on the same problems, what they are or why there is only k = 1).

    Of the evaluation with the most attempts per problem; sealed problems are no reason to look again, so an open pool
    comes first.
    """
    if not own:
        return [], ""
    chosen = max(own, key=lambda one: (len(_ks(one)), one.pool != "sealed"))
    if len(_ks(chosen)) == 1:
        note = (
            "One attempt was made at each problem, so pass@k is known for k = 1 only, which is the success rate. For "
            "several: trajectory-platform evaluate --k 8, and name its folder when the report is made."
        )
        return [], note
    order = [one.checkpoint_id for one in members]
    of_kind = sorted(
        (one for one in measured if one.kind == chosen.kind), key=lambda one: order.index(one.checkpoint_id)
    )
    curves = []
    for one in of_kind:
        overall = metrics_of(one, how)["overall"]
        if "pass_at_k" in overall:
            points = [
                {"k": int(k), "value": score["value"], **_ends(score)}
                for k, score in overall["pass_at_k"].items()
                if score["value"] is not None
            ]
            counts = {name: overall[name] for name in ("attempts", "problems", "clusters")}
            label = next(member.stage for member in members if member.checkpoint_id == one.checkpoint_id)
            mine = one.checkpoint_id == chosen.checkpoint_id
            curves.append({"label": label, "own": mine, "points": points, **counts})
    note = (
        f"{chosen.label}. The chance that at least one of k attempts succeeds, estimated without bias from all "
        "attempts at a problem; the band is the 95 % bootstrap over leak clusters."
    )
    return curves, note


def by_category(
    members: Sequence[Member], measured: Sequence[Measured], own: Sequence[Measured], how: Mapping[str, Any]
) -> list[Row]:
    """Success per category of the checkpoint, of its parent and of the model before training, on the same problems."""
    if not own:
        return []
    name, kind = own[0].checkpoint_id, own[0].kind
    of_kind = {one.checkpoint_id: one for one in measured if one.kind == kind}
    mine = next(member for member in members if member.checkpoint_id == name)
    wanted = list(dict.fromkeys([members[0].checkpoint_id, mine.parent, name]))
    rows = []
    for member in members:
        if member.checkpoint_id in wanted and member.checkpoint_id in of_kind:
            metrics = metrics_of(of_kind[member.checkpoint_id], how)
            entries = {"all": metrics["overall"], **metrics["categories"]}
            rows += [
                {"policy": member.stage, "category": category, **score_row(entry)}
                for category, entry in entries.items()
                if "success_rate" in entry
            ]
    return rows


def score_row(entry: Mapping[str, Any]) -> Row:
    """The scores of ``task_metrics``' ``overall`` or of a category, flat, with the ends of their intervals."""
    return {
        **valued("success", entry["success_rate"]),
        **valued("process", entry["process_score"]),
        "pass_at": {int(k): one["value"] for k, one in entry["pass_at_k"].items()},
        "lenient": entry["lenient_success_rate"]["value"],
        "conduct": entry["conduct_score"]["value"],
        "hallucinated": entry["hallucinated"]["value"],
        "unviewed": entry["unviewed"]["value"],
        "truncated": entry["truncated"]["value"],
        "thin": entry["state"] == "thin",
        **{name: entry[name] for name in ("problems", "attempts", "clusters")},
    }


def valued(name: str, score: Mapping[str, Any]) -> Row:
    """``{name, name_low, name_high, name_note}`` of a score with its interval."""
    ends, note = _ends(score), (score["interval"] or {}).get("note")
    return {name: score["value"], f"{name}_low": ends["low"], f"{name}_high": ends["high"], f"{name}_note": note}


def _ends(score: Mapping[str, Any]) -> Row:
    interval = score["interval"] or {}
    return {"low": interval.get("low"), "high": interval.get("high")}


def conduct_rows(own: Sequence[Measured], metrics: Sequence[Row]) -> dict[str, list[Row]]:
    """Evaluation -> how its attempts went, overall and per category."""
    found: dict[str, list[Row]] = {}
    for measured, one in zip(own, metrics, strict=True):
        rows = found.setdefault(measured.label, [])
        for category, entry in {"all": one["overall"], **one["categories"]}.items():
            if "success_rate" not in entry:
                continue
            violations = entry["discipline"]["violations"]
            rows.append(
                {
                    "category": category,
                    "process_shown": _signed(entry["process_score"]),
                    "conduct_shown": _plain(entry["conduct_score"]),
                    "hallucinated": entry["hallucinated"]["value"],
                    "unviewed": entry["unviewed"]["value"],
                    "clean": entry["discipline"]["clean"]["value"],
                    "truncated": entry["truncated"]["value"],
                    "referenced": entry["process_score"]["n"],
                    "violations": ", ".join(f"{name} {told['attempts']:,}" for name, told in violations.items()),
                }
            )
    return found


def _signed(score: Mapping[str, Any]) -> str | None:
    return _with_ends(score, "+.2f")


def _plain(score: Mapping[str, Any]) -> str | None:
    return _with_ends(score, ".2f")


def _with_ends(score: Mapping[str, Any], form: str) -> str | None:
    if score["value"] is None:
        return None
    ends = _ends(score)
    shown = f"{score['value']:{form}}"
    return shown if ends["low"] is None else f"{shown} ({ends['low']:{form}} to {ends['high']:{form}})"


def resting_on(measured: Measured, metrics: Mapping[str, Any], status: Mapping[str, str]) -> Row:
    """What one evaluation rests on: its pool, what could be counted, and the scores on clean and other problems.

    Args:
        status: problem key -> what the checkpoint has seen of it (``contamination.status``).
    """
    overall = metrics["overall"]
    row: Row = {
        "label": measured.label,
        "pool": measured.pool,
        "excluded": measured.facts.get("contaminated_problems"),
        "withheld": measured.facts.get("withheld_problems"),
        "available": _available(measured.facts),
        "no_reward": metrics["no_reward"]["problems"],
        **{name: overall[name] for name in ("problems", "attempts", "clusters")},
    }
    if "success_rate" in overall:
        row |= valued("success", overall["success_rate"])
    groups = {"clean": ("clean", "near"), "near": ("near",), "contaminated": ("same_cluster",)}
    for name, wanted in groups.items():
        row[name] = _group([one for one in measured.counted if status.get(one["problem_key"]) in wanted])
    return row


def _available(facts: Mapping[str, Any]) -> str | None:
    """The problems of the pool that may be evaluated, of which a plan draws some."""
    problems, clusters = facts.get("available_problems"), facts.get("available_clusters")
    if problems is None:
        return None
    return f"{problems:,} problems" + ("" if clusters is None else f" in {clusters:,} clusters")


def _group(rows: Sequence[Row]) -> str | None:
    problems: dict[str, list[bool]] = {}
    for row in rows:
        problems.setdefault(row["problem_key"], []).append(row["success"] is True)
    if not problems:
        return None
    share = sum(sum(hits) / len(hits) for hits in problems.values()) / len(problems)
    return f"{share:.1%} of {len(problems):,} problems in {len({row['cluster_id'] for row in rows}):,} clusters"


def action_row(entry: Mapping[str, Any]) -> Row:
    """One category of ``evaluation.action_metrics`` as the pages show it."""
    row: Row = {
        "category": entry["category"],
        "n": entry["turns"],
        "clusters": entry["clusters"],
        "thin": entry["state"] == "thin",
        "baseline_tool": entry["majority_share"],
        "parse_errors": entry["parse_errors"],
        "clipped": entry["clipped"],
    }
    for name in ("tool", "arguments"):
        low, high = entry[name]["bootstrap"] or entry[name]["wilson"]
        row |= {name: entry[name]["share"], f"{name}_low": low, f"{name}_high": high}
    return row


def limits(member: Member, own: Sequence[Measured], how: Mapping[str, Any]) -> list[str]:
    """Sentences on what the scores may not be compared with."""
    found = [
        "With an evaluation of another day: pools and leak clusters are as of a day, and so are the problems drawn.",
        "With scores of the subnet: its validators judge other problems, and the reasoning beside the rule.",
        "With published figures of other models: the problems, the catalogue and the limits are others here.",
    ]
    for measured in own:
        plan = measured.facts.get("plan") or {}
        rules = measured.facts.get("rules") or {}
        told = [f"pool {measured.pool}"]
        told += (
            [f"at most {plan['limits']['max_steps']} replies of {plan['limits']['reply_tokens']} tokens"]
            if plan
            else []
        )
        told += (
            [f"titles {rules['title_regime']}/{rules['title_encoder']}, attributes {rules['attribute_rule']}"]
            if rules
            else []
        )
        found.append(f"{measured.label}: only with evaluations of the same kind ({'; '.join(told)}).")
        if measured.pool == "sealed":
            found.append(f"{measured.label}: the best of many looks is too good; the number of looks stands beside it.")
        clusters = len({row["cluster_id"] for row in measured.counted})
        if clusters < how["thin_below"]:
            found.append(f"{measured.label}: {clusters} clusters are too few to conclude from.")
    if len({one.kind for one in own}) > 1:
        found.append("The evaluations above with one another: greedy and drawn attempts, and other pools, differ.")
    stage = (member.manifest or {}).get("recipe", {}).get("stages", {}).get(member.stage) or {}
    if (stage.get("select") or {}).get("source") == "unfiltered":
        found.append("With checkpoints of the filtered corpus as if they were alternatives: this one is a control.")
    return found
