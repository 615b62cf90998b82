"""Accuracy with intervals, per category: never a number without its n, never an interval that hides a thin day."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trajectory_platform.evaluation.plan import ActionPlan

Z95 = 1.959963984540054


def wilson(successes: int, n: int, *, z: float = Z95) -> tuple[float, float] | None:
    """Wilson 95 % interval of a share; None for n = 0. It treats turns as independent, so it is the narrow one."""
    if n == 0:
        return None
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def cluster_bootstrap(values: Sequence[tuple[str, bool]], *, seed: int, resamples: int) -> tuple[float, float] | None:
    """95 % percentile interval of a share when whole leak clusters are drawn with replacement.

    Turns of one cluster resemble each other, so this is the interval to report. ``values`` are (cluster, correct).
    None below two clusters, where nothing can be said. Depends on the values and the seed, not on their order.
    """
    import numpy

    sums: dict[str, list[int]] = {}
    for cluster, correct in values:
        entry = sums.setdefault(cluster, [0, 0])
        entry[0] += int(correct)
        entry[1] += 1
    if len(sums) < 2:
        return None
    table = numpy.array([sums[cluster] for cluster in sorted(sums)], dtype=numpy.float64)
    drawn = numpy.random.default_rng(seed).integers(0, len(table), size=(resamples, len(table)))
    totals = table[drawn].sum(axis=1)
    low, high = numpy.quantile(totals[:, 0] / totals[:, 1], [0.025, 0.975])
    return float(low), float(high)


def action_metrics(scores: Sequence[Mapping[str, Any]], plan: ActionPlan) -> dict[str, Any]:
    """Rows of ``action_scores`` to ``{"state", "categories": [...]}``, the first category being ``all``.

    Per category: ``turns``, ``clusters``, ``state`` (``ok``, ``thin`` below ``plan.thin_below`` clusters,
    ``no_dev_traces``), ``tool`` and ``arguments`` as {share, wilson, bootstrap}, ``majority_tool`` with the share of
    turns a constant answer would get right (taken from these very turns, so a model that is no better has learned
    nothing of use), ``parse_errors``, ``clipped``.
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
    return {
        "share": correct / len(values),
        "correct": correct,
        "n": len(values),
        "wilson": wilson(correct, len(values)),
        "bootstrap": cluster_bootstrap(values, seed=plan.seed, resamples=plan.bootstrap),
    }


def _shown(share: Mapping[str, Any]) -> str:
    interval = share["bootstrap"] or share["wilson"]
    return f"{share['share']:.0%} [{interval[0]:.0%}, {interval[1]:.0%}]"
