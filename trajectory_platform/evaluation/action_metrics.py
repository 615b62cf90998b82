"""Teacher-forced accuracy with intervals, per category: no number without its n, no interval that hides a thin day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trajectory_platform.evaluation.intervals import cluster_interval, wilson
from trajectory_platform.evaluation.plan import ActionPlan


def action_metrics(scores: Sequence[Mapping[str, Any]], plan: ActionPlan) -> dict[str, Any]:
    """Rows of ``action_scores`` to ``{"state", "categories": [...]}``, the first category being ``all``.

    Per category: ``turns``, ``clusters``, ``state`` (``ok``, ``thin`` below ``plan.thin_below`` clusters,
    ``no_dev_traces``), ``tool`` and ``arguments`` as {share, wilson, bootstrap, bootstrap_method}, ``majority_tool``
    with the share of turns a constant answer would get right (taken from these very turns, so a model that is no
    better has learned nothing of use), ``parse_errors``, ``clipped``. Where all clusters agree, ``bootstrap`` is the
    bound of ``intervals.unseen_bound``, named in ``bootstrap_method``.
    """
    rows = sorted(scores, key=lambda row: (row["trace_id"], row["turn"]))
    names = sorted({row["category"] for row in rows})
    categories = [_category("all", rows, plan)]
    categories += [_category(name, [row for row in rows if row["category"] == name], plan) for name in names]
    return {"state": categories[0]["state"], "categories": categories}


def metric_lines(metrics: Mapping[str, Any]) -> list[str]:
    """The metrics as plain text lines for people."""
    lines = []
    for entry in metrics["categories"]:
        if entry["state"] == "no_dev_traces":
            lines.append(f"{entry['category']}: no dev traces to score on")
            continue
        thin = "  (thin: too few clusters for a firm interval)" if entry["state"] == "thin" else ""
        lines.append(
            f"{entry['category']}: tool {_shown(entry['tool'])}, arguments {_shown(entry['arguments'])}, "
            f"majority tool {entry['majority_tool']} {entry['majority_share']:.0%}, "
            f"n = {entry['turns']} turns in {entry['clusters']} clusters{thin}"
        )
    return lines


def _category(name: str, rows: Sequence[Mapping[str, Any]], plan: ActionPlan) -> dict[str, Any]:
    clusters = len({row["cluster_id"] for row in rows})
    if not rows:
        return {"category": name, "state": "no_dev_traces", "turns": 0, "clusters": 0}
    expected = Counter(row["expected_tool"] for row in rows)
    majority = min(expected, key=lambda tool: (-expected[tool], tool))
    return {
        "category": name,
        "state": "thin" if clusters < plan.thin_below else "ok",
        "turns": len(rows),
        "clusters": clusters,
        "tool": _share(rows, "tool_correct", plan),
        "arguments": _share(rows, "arguments_correct", plan),
        "majority_tool": majority,
        "majority_share": expected[majority] / len(rows),
        "parse_errors": sum(row["parse_error"] is not None for row in rows),
        "clipped": sum(bool(row["clipped"]) for row in rows),
    }


def _share(rows: Sequence[Mapping[str, Any]], column: str, plan: ActionPlan) -> dict[str, Any]:
    values = [(str(row["cluster_id"]), bool(row[column])) for row in rows]
    correct = sum(value for _, value in values)
    interval = cluster_interval(values, seed=plan.seed, resamples=plan.bootstrap)
    return {
        "share": correct / len(values),
        "correct": correct,
        "n": len(values),
        "wilson": wilson(correct, len(values)),
        "bootstrap": None if interval is None else (interval["low"], interval["high"]),
        "bootstrap_method": None if interval is None else interval["method"],
    }


def _shown(share: Mapping[str, Any]) -> str:
    interval = share["bootstrap"] or share["wilson"]
    return f"{share['share']:.0%} [{interval[0]:.0%}, {interval[1]:.0%}]"
