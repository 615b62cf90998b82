"""The section on strategies: how many ways of solving a task there are, the long tail, and what copies cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trajectory_platform.reports.diversity import Tail
from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.page import Figures
from trajectory_platform.reports.strategy_figures import diversity_figure, rank_size_figure
from trajectory_platform.reports.tables import Column, folded, nothing, table
from trajectory_platform.reports.trace_links import NO_LINKS, TraceLinks

ALL = "all"
_MOST_MINERS = 20


@dataclass(frozen=True)
class StrategyFacts:
    """The strategies of the accepted traces of a day or of several days.

    Attributes:
        tails: ``all``, then each category, to its tail; ``miners``: the same per miner.
        largest: ``strategy, outline, before, after``: traces of the largest ones before and after the stages that thin
            the whole day.
        before: (strategies, traces) before those stages, None where it was not counted.
        removed: ``stage, reason, count`` of what those stages took away.
        copied: the traces with most copies: ``survivor`` (its id, None where it must not be named), ``copies, agents,
            miners, strategy``.
        days: day -> (strategies, effective number), for the course over time.
        between_days: reason -> traces that were taken from the training window because another day has them.
        window: the day as of which ``between_days`` was counted.
    """

    tails: Mapping[str, Tail]
    miners: Mapping[str, Tail] = field(default_factory=dict)
    largest: Sequence[Mapping[str, Any]] = ()
    before: tuple[int, int] | None = None
    removed: Sequence[Mapping[str, Any]] = ()
    copied: Sequence[Mapping[str, Any]] = ()
    days: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    between_days: Mapping[str, int] = field(default_factory=dict)
    window: str = ""


def strategy_section(facts: StrategyFacts | None, drawn: Figures, links: TraceLinks = NO_LINKS) -> str:
    """Numbers first, then the figure, then the tables."""
    if facts is None or not facts.tails.get(ALL) or not facts.tails[ALL].traces:
        return nothing("no trace was accepted")
    shown = {name: tail for name, tail in facts.tails.items() if tail.traces}
    parts = [
        '<p class="muted">A strategy is the outline of the calls of a trace, without its words: which tools in which '
        "order with which parameters. The effective number (exponential of the entropy) says how many strategies of "
        "equal size would be as diverse. All accepted traces are counted, so these are no estimates.</p>",
        f"<p>{html_text(tail_words(facts.tails[ALL]))}</p>",
        drawn.add(rank_size_figure(shown), "Traces per strategy by rank, for all and for each category"),
        '<p class="muted">Read from the left: the height of the first points is what the largest strategies hold, the '
        "right end is the tail of strategies that few traces use. Both axes are logarithmic.</p>",
        _tails(shown, "category"),
    ]
    if len(facts.days) > 1:
        parts.append("<h3>Over the days</h3>")
        parts.append(drawn.add(diversity_figure(facts.days), "Strategies and their effective number by day"))
        rows = [{"day": day, "n": facts.days[day][0], "effective": facts.days[day][1]} for day in sorted(facts.days)]
        columns: list[Column] = [("day", "day", "word"), ("n", "strategies", "number")]
        columns.append(("effective", "effective number", "float"))
        parts.append(folded("The numbers of the days", table(columns, rows)))
    parts.append(_copies(facts, links))
    if facts.largest:
        parts.append(folded(f"The {len(facts.largest)} largest strategies", _largest(facts)))
    if facts.miners:
        parts.append(folded("Strategies per miner", _miners(facts.miners)))
    return "".join(parts)


def tail_words(tail: Tail) -> str:
    """The tail in two sentences, for people and for where there is no figure."""
    return (
        f"{tail.traces:,} accepted traces use {tail.strategies:,} strategies, as diverse as {tail.effective:,.1f} of "
        f"equal size. The largest holds {tail.top_1:.1%}, the ten largest {tail.top_10:.1%}; {tail.singletons:,} "
        f"strategies ({tail.singleton_traces:.1%} of the traces) were seen once."
    )


def _tails(tails: Mapping[str, Tail], heading: str) -> str:
    columns: list[Column] = [
        ("name", heading, "word"),
        ("traces", "traces", "number"),
        ("strategies", "strategies", "number"),
        ("effective", "effective number", "float"),
        ("top_1", "in the largest", "share"),
        ("top_10", "in the ten largest", "share"),
        ("singletons", "seen once", "number"),
        ("singleton_traces", "share of the traces", "share"),
    ]
    rows = [{"name": name or "(none)", **tail._asdict()} for name, tail in tails.items()]
    return table(columns, rows)


def _miners(miners: Mapping[str, Tail]) -> str:
    listed = list(miners.items())
    rest = listed[_MOST_MINERS:]
    note = ""
    if rest:
        traces = sum(tail.traces for _, tail in rest)
        note = f'<p class="muted">{len(rest):,} more miners with {traces:,} traces.</p>'
    return _tails(dict(listed[:_MOST_MINERS]), "miner") + note


def _copies(facts: StrategyFacts, links: TraceLinks) -> str:
    parts = ["<h3>What copies cost</h3>"]
    if facts.before is not None:
        strategies, traces = facts.before
        tail = facts.tails[ALL]
        parts.append(
            f"<p>Before the stages that look at the whole day: {traces:,} traces of {strategies:,} strategies; after "
            f"them {tail.traces:,} of {tail.strategies:,}.</p>"
        )
    if facts.removed:
        columns: list[Column] = [
            ("stage", "stage", "word"),
            ("reason", "reason", "word"),
            ("count", "traces", "number"),
        ]
        parts.append(table([*columns, ("meaning", "meaning", "text")], facts.removed))
    else:
        parts.append('<p class="muted">They removed no trace.</p>')
    if facts.between_days:
        told = ", ".join(f"{html_text(reason)} {count:,}" for reason, count in facts.between_days.items())
        parts.append(
            f'<p class="muted">Taken from the training window as of {html_text(facts.window)} besides, because of what '
            f"other days or held-out problems have: {told}.</p>"
        )
    if facts.copied:
        shown: list[Column] = [
            ("survivor", "trace that was kept", "html"),
            ("copies", "copies", "number"),
            ("agents", "agent versions", "number"),
            ("miners", "miners", "number"),
            ("strategy", "strategy", "word"),
        ]
        rows = [{**row, "survivor": _survivor(row["survivor"], links)} for row in facts.copied]
        parts.append(folded("The most copied traces", table(shown, rows)))
    return "".join(parts)


def _survivor(trace_id: str | None, links: TraceLinks) -> str:
    if trace_id is None:
        return '<span class="muted">(of a sealed problem, or not known yet)</span>'
    return links.html(trace_id)


def _largest(facts: StrategyFacts) -> str:
    columns: list[Column] = [
        ("outline", "moves", "text"),
        ("before", "before", "number"),
        ("after", "after", "number"),
        ("share", "of the accepted", "share"),
        ("strategy", "strategy", "word"),
    ]
    total = facts.tails[ALL].traces
    return table(columns, [{**row, "share": row["after"] / total} for row in facts.largest])
