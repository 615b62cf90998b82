"""Why attempts failed: kinds with their numbers, the faults behind them, and traces to read for each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trajectory_platform.reports.checkpoint_data import FailureReport, Row
from trajectory_platform.reports.checkpoint_figures import failures_figure
from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.page import Figures
from trajectory_platform.reports.tables import Column, folded, nothing, table
from trajectory_platform.reports.taxonomy import KINDS, words_of
from trajectory_platform.reports.trace_view import trace_fragment

_RULE = (
    "Every failed attempt counts once, under the first kind that applies; the kinds are tried in the order of the list "
    "below. Faults that occur together are counted in the second table, each wherever it occurs."
)


def failures_section(reports: Sequence[FailureReport], figures: Figures) -> str:
    """One part per evaluation; the first one with examples, three traces of each kind at most."""
    if not reports:
        return nothing("nothing was attempted in the sandbox")
    order = ", ".join(f"{kind.name.replace('_', ' ')}: {html_text(kind.words)}" for kind in KINDS)
    parts = [f'<p class="muted">{_RULE}</p>']
    parts += [_one(report, figures) for report in reports]
    parts.append(folded("All kinds, in the order in which they are tried", f'<p class="muted">{order}.</p>'))
    return "".join(parts)


def _one(report: FailureReport, figures: Figures) -> str:
    heading = f"<h3>{html_text(report.label)}</h3>"
    share = f"{report.failed / report.attempts:.1%}" if report.attempts else "none"
    said = f"<p>{report.failed:,} of {report.attempts:,} attempts failed ({share}).</p>"
    if not report.failed:
        return heading + said
    figure = figures.add(failures_figure(report.counts), f"Failures by kind: {report.label}")
    return heading + said + figure + _kinds(report) + _signs(report) + _examples(report)


def _kinds(report: FailureReport) -> str:
    categories = sorted({name for counts in report.counts.values() for name in counts})
    several = len(categories) > 1
    columns: list[Column] = [
        ("kind", "kind", "word"),
        ("words", "what happened", "text"),
        *((name, html_text(name, 40), "number") for name in categories if several),
        ("all", "failures", "number"),
        ("share", "of all failures", "share"),
        ("attempts", "of all attempts", "share"),
    ]
    rows: list[Row] = [
        {
            **counts,
            "kind": kind.replace("_", " "),
            "words": words_of(kind),
            "all": sum(counts.values()),
            "share": sum(counts.values()) / report.failed,
            "attempts": sum(counts.values()) / report.attempts,
        }
        for kind, counts in report.counts.items()
    ]
    return table(columns, rows)


def _signs(report: FailureReport) -> str:
    if not report.signs:
        return ""
    columns: list[Column] = [
        ("sign", "fault", "word"),
        ("words", "what it means", "text"),
        ("count", "failures", "number"),
        ("share", "of all failures", "share"),
    ]
    rows = [
        {"sign": name, "words": words, "count": count, "share": count / report.failed}
        for name, words, count in report.signs
    ]
    return folded("Faults among the failures, several at a time", table(columns, rows))


def _examples(report: FailureReport) -> str:
    if report.withheld:
        return f'<p class="muted">No trace is shown: {html_text(report.withheld)}.</p>'
    return "".join(_kind(kind, views, report.counts.get(kind, {})) for kind, views in report.examples.items())


def _kind(kind: str, views: Sequence[Row], counts: Mapping[str, int]) -> str:
    of = sum(counts.values())
    traces = "".join(folded(_summary(view), trace_fragment(view, compact=True)) for view in views)
    many = f"{len(views)} of {of:,}" if of > len(views) else f"{len(views)}"
    return f"<h4>{html_text(kind.replace('_', ' '))}: {many} to read</h4>{traces}"


def _summary(view: Row) -> str:
    """What was asked, on one line and cut; the id stands inside."""
    return html_text(" ".join(str(view["query"] or "").split()) or view["trace_id"], 110)
