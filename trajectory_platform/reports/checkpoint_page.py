"""The report of one checkpoint: one HTML file, complete and readable offline."""

from __future__ import annotations

from collections.abc import Callable

from trajectory_platform.reports.checkpoint_data import CheckpointData
from trajectory_platform.reports.checkpoint_failures import failures_section
from trajectory_platform.reports.checkpoint_sections import (
    actions_section,
    categories_section,
    conduct_section,
    costs_section,
    curves_section,
    limits_section,
    making_section,
    passes_section,
    stages_section,
    trust_section,
)
from trajectory_platform.reports.page import Figures, build_page
from trajectory_platform.reports.trace_view import trace_styles

_FOOTER = (
    "Success is strict: a crash, a timeout or an attempt that cannot be scored is a failure. Intervals are 95 % "
    "bootstraps over leak clusters. Sealed problems are counted and never shown."
)


def build_checkpoint_page(data: CheckpointData) -> str:
    """The page as text; same data, same bytes."""
    figures = Figures()
    sections = [(anchor, title, render(data, figures)) for anchor, title, render in _SECTIONS]
    anchor, title, body = sections[_FIRST]
    sections[_FIRST] = (anchor, title, f"<style>{trace_styles()}{_STYLES}</style>{body}")
    return build_page(
        title=data.checkpoint_id,
        subtitle=data.subtitle,
        tiles=data.tiles,
        notes=data.notes,
        sections=sections,
        figures=figures,
        footer=_FOOTER,
    )


def _failures(data: CheckpointData, figures: Figures) -> str:
    return failures_section(data.failures, figures)


_FIRST = 0
_STYLES = (
    ".pairs{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:0 28px}"
    ".pairs>div{min-width:0}.pairs h3{margin:14px 0 0}"
    ".words{padding-left:20px;max-width:76ch}.words li{margin:0 0 8px}h4{font-size:0.95rem;margin:22px 0 4px}"
    ".upright th{white-space:normal}.upright td:first-child{white-space:normal;min-width:13ch}"
    "@media (max-width:600px){.facts table{table-layout:fixed}.facts th:first-child{width:32%}"
    ".facts td{white-space:normal;overflow-wrap:anywhere;min-width:0}}"
)
_SECTIONS: tuple[tuple[str, str, Callable[[CheckpointData, Figures], str]], ...] = (
    ("making", "What it is", making_section),
    ("stages", "Stage by stage", stages_section),
    ("passes", "Several attempts at a problem", passes_section),
    ("categories", "By category", categories_section),
    ("failures", "Why attempts failed", _failures),
    ("conduct", "How it went about it", conduct_section),
    ("actions", "The next action", actions_section),
    ("trust", "What the scores rest on", trust_section),
    ("curves", "Learning curves", curves_section),
    ("costs", "What it cost", costs_section),
    ("limits", "What it may not be compared with", limits_section),
)
