"""The section on leak clusters: how large they are as of a day, and which of them are new or have grown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.figures import Figure, themed
from trajectory_platform.reports.page import Figures
from trajectory_platform.reports.tables import Column, folded, nothing, table

KNOWN, GROWN, NEW = "known", "grown", "new"
_STATES = (
    (KNOWN, "known before", "var(--unknown)"),
    (GROWN, "grown that day", "var(--mixed)"),
    (NEW, "new that day", "var(--a)"),
)


@dataclass(frozen=True)
class LeakFacts:
    """Leak clusters, told as of one day.

    Attributes:
        day: the day; ``as_of``: of the clusters that are shown, ``day`` itself or the next later day that has them,
            without the problems that were first seen after ``day``.
        sizes: state (``known, grown, new``) -> problems in the cluster -> clusters.
        pools: ``pool, clusters, problems, new_problems, new_clusters``.
        changed: new and grown clusters of several problems, largest first, sealed ones left out: ``cluster_id, state,
            pool, size, new, category, why, problems``.
        sealed_changed: how many sealed ones were left out.
    """

    day: str
    as_of: str
    sizes: Mapping[str, Mapping[int, int]]
    pools: Sequence[Mapping[str, Any]]
    changed: Sequence[Mapping[str, Any]] = ()
    sealed_changed: int = 0


def leak_section(facts: LeakFacts | None, day: str, drawn: Figures) -> str:
    """Words, figure, pools and the clusters that changed."""
    if facts is None:
        return nothing(f"no leak clusters were built as of {day} or later (trajectory-platform train sft --as-of DAY)")
    counts = {state: sum(facts.sizes.get(state, {}).values()) for state, _, _ in _STATES}
    several = sum(count for sizes in facts.sizes.values() for size, count in sizes.items() if size > 1)
    parts = [
        '<p class="muted">Variants of one problem form a cluster and share one pool, so that no checkpoint is measured '
        "on a problem it trained on in other words.</p>",
        f"<p>{sum(counts.values()):,} clusters as of {html_text(facts.day)}, {several:,} with several problems; "
        f"{counts[NEW]:,} are new that day and {counts[GROWN]:,} have grown.{_later(facts)}</p>",
        drawn.add(cluster_states_figure(facts.sizes), "Leak clusters by size, those new or grown that day marked"),
        table(
            [
                ("pool", "pool", "word"),
                ("clusters", "clusters", "number"),
                ("problems", "problems", "number"),
                ("new_clusters", "new clusters", "number"),
                ("new_problems", "new problems", "number"),
            ],
            facts.pools,
        ),
        folded("The sizes as a table", _size_table(facts.sizes)),
    ]
    if facts.changed:
        parts.append(folded("New and grown clusters of several problems", _changed(facts)))
    if facts.sealed_changed:
        parts.append(
            f'<p class="muted">{facts.sealed_changed:,} changed clusters of the sealed pool are counted, not shown.</p>'
        )
    return "".join(parts)


def cluster_states_figure(sizes: Mapping[str, Mapping[int, int]]) -> Figure:
    """How many clusters have how many problems, stacked by what the day did to them; the total is written above."""
    wanted = sorted({size for found in sizes.values() for size in found})
    traces = [
        {
            "type": "bar",
            "name": name,
            "x": [str(size) for size in wanted],
            "y": [sizes.get(state, {}).get(size, 0) for size in wanted],
            "marker": {"color": colour, "line": {"width": 1, "color": "var(--card)"}},
            "hovertemplate": "%{y:,} clusters of %{x} problems<extra>%{fullData.name}</extra>",
        }
        for state, name, colour in _STATES
        if any(sizes.get(state, {}).values())
    ]
    totals = [sum(found.get(size, 0) for found in sizes.values()) for size in wanted]
    layout = themed(
        300,
        barmode="stack",
        bargap=0.3,
        xaxis={"type": "category", "title": {"text": "problems in the cluster"}},
        yaxis={"title": {"text": "clusters"}, "rangemode": "tozero", "range": [0, 1.12 * max(totals, default=1)]},
    )
    layout["annotations"] = [
        {
            "x": place,
            "y": total,
            "text": f"{total:,}",
            "showarrow": False,
            "yshift": 10,
        }  # x: place among the categories
        for place, total in enumerate(totals)
    ]
    return {"data": traces, "layout": layout}


def _later(facts: LeakFacts) -> str:
    if facts.as_of == facts.day:
        return ""
    return (
        f" No clusters were built as of that day: these are those of {html_text(facts.as_of)} without later problems, "
        "so problems may be joined that nothing joined yet."
    )


def _size_table(sizes: Mapping[str, Mapping[int, int]]) -> str:
    columns: list[Column] = [("size", "problems in the cluster", "number")]
    columns += [(state, name, "number") for state, name, _ in _STATES]
    wanted = sorted({size for found in sizes.values() for size in found})
    states = [state for state, _, _ in _STATES]
    return table(columns, [{"size": size, **{s: sizes.get(s, {}).get(size, 0) for s in states}} for size in wanted])


def _changed(facts: LeakFacts) -> str:
    columns: list[Column] = [
        ("cluster_id", "cluster", "word"),
        ("state", "that day", "word"),
        ("pool", "pool", "word"),
        ("size", "problems", "number"),
        ("new", "of them new", "number"),
        ("category", "category", "word"),
        ("why", "joined by", "word"),
        ("problems", "which", "text"),
    ]
    return table(columns, facts.changed)
