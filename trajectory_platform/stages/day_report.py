"""The report of one subnet day: reads the lake, fills :class:`DayReport`, writes one HTML file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from trajectory_platform.curation.corpus import era_of
from trajectory_platform.errors import Abort
from trajectory_platform.lake import tables
from trajectory_platform.lake.manifests import Manifest
from trajectory_platform.reports.day_data import DayReport
from trajectory_platform.reports.trace_links import FOLDER, TraceLinks, trace_file
from trajectory_platform.settings import Settings
from trajectory_platform.stages import day_rows
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.cost_facts import cost_facts
from trajectory_platform.stages.fetch_facts import fetch_facts
from trajectory_platform.stages.flows import day_flows
from trajectory_platform.stages.leak_facts import leak_facts
from trajectory_platform.stages.strategy_facts import day_strategies

Row = dict[str, Any]
_DAYS_BEFORE = 13
AXIS_LABELS = ("A", "mixed", "B", "unknown")


def write_day_report(settings: Settings, out: Path, day: str, *, traces_at: datetime | None = None) -> Path:
    """Write the page of ``day``, replacing an older one atomically.

    Args:
        traces_at: also write a page of each trace that is named, into the folder ``traces`` beside it; None links those
            that are there already.

    Raises:
        Abort: when the day was not curated.
    """
    from trajectory_platform.reports.day_page import build_day_page
    from trajectory_platform.reports.page import write_page

    ctx = StageContext(settings)
    data = day_report(ctx, day)
    if traces_at is not None:
        _write_traces(ctx, out.parent / FOLDER, named_traces(data), traces_at)
    return write_page(out, build_day_page(data, TraceLinks(out.parent)))


def named_traces(data: DayReport) -> list[str]:
    """The traces that a page names, in the order of the page."""
    named = [example["trace_id"] for row in data.reasons for example in row["examples"]]
    named += [row["survivor"] for row in data.strategies.copied if row["survivor"]] if data.strategies else []
    return list(dict.fromkeys(named))


def _write_traces(ctx: StageContext, folder: Path, trace_ids: Sequence[str], at: datetime) -> None:
    from trajectory_platform.reports.page import write_page
    from trajectory_platform.reports.trace_compare import trace_page
    from trajectory_platform.stages.trace_views import trace_views

    for view in trace_views(ctx, trace_ids, at=at) if trace_ids else ():
        if not view["withheld"]:
            write_page(folder / trace_file(view["trace_id"]), trace_page([view]))


def day_report(ctx: StageContext, day: str) -> DayReport:
    """Everything the page shows.

    Raises:
        Abort: when the day was not curated.
    """
    from trajectory_platform.stages.calibration import calibration_facts

    manifest = ctx.lake.manifest(tables.AXIS_A_CORPUS, day)
    if manifest is None:
        known = ctx.lake.days(tables.AXIS_A_CORPUS)
        listed = f"; curated days: {known[0]} to {known[-1]}" if known else ""
        raise Abort(
            f"no report of {day}: it was not curated in {ctx.settings.lake_uri}{listed}; "
            f"run 'trajectory-platform ingest --day {day}' first"
        )
    rows = _DayRows(ctx, day)
    opened = day_rows.Open(ctx, day)
    shown = opened.rejected(day, ["trace_id", "stage", "reason", "detail"])
    flow = day_flows(ctx, [day])[day]
    verdicts = ctx.lake.read(tables.VERDICTS, [day])
    comparisons = calibration_facts(ctx, day, day)["comparisons"] if verdicts.num_rows else []
    listing = _listing(ctx, day)
    holes, fetch = _holes(ctx, day), fetch_facts(ctx, day)
    return DayReport(
        day=day,
        subtitle=f"{'with holes' if holes else 'complete'} · era: {era_of(day).name} · lake {ctx.settings.lake_uri}",
        tiles=_tiles(rows),
        notes=_notes(holes, fetch, opened.closed),
        facts=_facts(ctx, day),
        counted={**listing, "accepted": len(rows.accepted), "rejected": len(rows.rejected)},
        fetch=fetch,
        flow=flow,
        axis=_axis_before(ctx, day),
        axis_share=day_rows.axis_share(day, rows.people, rows.labels, seed=ctx.settings.seed),
        calibration=comparisons,
        verdicts=day_rows.verdict_rows(verdicts, _gates(manifest)),
        situations=day_rows.situation_rows(rows.accepted),
        outcomes=day_rows.outcome_rows(rows.judged, seed=ctx.settings.seed),
        strategies=day_strategies(ctx, day, rows.accepted, rows.rejected, rows.people, opened.names(day)),
        leaks=leak_facts(ctx, day),
        reasons=day_rows.reason_rows(rows.rejected, shown),
        examples_note=_examples_note(opened, rows.rejected, len(shown)),
        miners=day_rows.miner_rows(rows.people, rows.accepted, rows.rejected),
        cost=cost_facts(ctx, [day]),
    )


@dataclass(frozen=True)
class _DayRows:
    """The rows of a day that several sections count; read once, without their big texts."""

    ctx: StageContext
    day: str

    @cached_property
    def accepted(self) -> list[Row]:
        columns = [
            "trace_id", "category", "miner_hotkey", "strategy_cluster", "uses", "situation", "outcome_success",
        ]  # fmt: skip
        return self._read(tables.AXIS_A_CORPUS, columns)

    @cached_property
    def rejected(self) -> list[Row]:
        return self._read(tables.REJECTED_TRACES, ["trace_id", "stage", "reason", "axis_label", "duplicate_of"])

    @cached_property
    def people(self) -> dict[str, Row]:
        """Miner and agent version of every pair, also of those retracted since."""
        rows = self._read(tables.RAW_TRACES, ["trace_id", "miner_hotkey", "agent_version_id"])
        found = {row["trace_id"]: row for row in rows}
        nobody = {"miner_hotkey": None, "agent_version_id": None}
        return {name: found.get(name, nobody) for name in self._ends}

    @cached_property
    def labels(self) -> dict[str, str]:
        """Axis label of every trace that could be read: all that is accepted is A."""
        told = {row["trace_id"]: row["axis_label"] for row in self.rejected if row["axis_label"] is not None}
        return told | {row["trace_id"]: "A" for row in self.accepted}

    @cached_property
    def judged(self) -> list[Row]:
        return self._read(tables.JUDGED_TRACES, ["category", "outcome", "outcome_success", "problem_key"])

    @property
    def _ends(self) -> list[str]:
        return [row["trace_id"] for row in (*self.accepted, *self.rejected)]

    def _read(self, table: tables.Table, columns: list[str]) -> list[Row]:
        rows: list[Row] = self.ctx.lake.read(table, [self.day], columns=columns).to_pylist()
        return rows


def _tiles(rows: _DayRows) -> list[tuple[str, str]]:
    pairs = len(rows.accepted) + len(rows.rejected)
    readable = len(rows.labels)
    own = sum(label == "A" for label in rows.labels.values())
    sft = sum("sft" in row["uses"] for row in rows.accepted)
    strategies = len({row["strategy_cluster"] for row in rows.accepted})
    return [
        ("pairs judged", f"{pairs:,}"),
        ("accepted, axis A", f"{len(rows.accepted):,}"),
        ("fit for SFT", f"{sft:,}"),
        ("axis A of the readable", f"{own / readable:.1%}" if readable else "none readable"),
        ("strategies", f"{strategies:,}"),
        ("miners", f"{len({row['miner_hotkey'] for row in rows.people.values()} - {None}):,}"),
    ]


def _listing(ctx: StageContext, day: str) -> Row:
    found = ctx.lake.read(tables.DAY_SUMMARIES, [day]).to_pylist()
    row = found[0] if found else {"found": 0, "moved_in": 0, "moved_out": 0}
    return {"day": day, **{name: row[name] for name in ("found", "moved_in", "moved_out")}}


_MADE = (tables.RAW_TRACES, tables.TRAJECTORIES, tables.JUDGED_TRACES, tables.VERDICTS, tables.AXIS_A_CORPUS)


def _facts(ctx: StageContext, day: str) -> list[tuple[str, Any]]:
    """What the day was made from: counts of its listing, code, settings, tables."""
    facts: list[tuple[str, Any]] = [("day", f"{day}, UTC day of the judgment"), ("era", era_of(day).change)]
    for row in ctx.lake.read(tables.DAY_SUMMARIES, [day]).to_pylist():
        facts += [("runs", f"{row['runs']:,}"), ("runs without a problem", f"{row['runs_without_problems']:,}")]
        facts.append(("pairs by state", _counted(json.loads(row["by_state"] or "{}"))))
        faults = Counter(f"{fault['file']} {fault['reason']}" for fault in json.loads(row["faults"] or "[]"))
        facts += [("broken lines of the listing", _counted(faults))] if faults else []
    for manifest in (ctx.lake.manifest(table, day) for table in _MADE):
        if manifest is not None:
            facts.append((f"table {manifest.table}", _made(manifest)))
    return facts


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _made(manifest: Manifest) -> str:
    from trajectory_platform.identity import digest_json

    whole = "complete" if manifest.complete else "INCOMPLETE"
    return (
        f"{manifest.rows:,} rows, {whole}, content {manifest.content_digest[:12]}, table version "
        f"{manifest.table_version}, code {manifest.code_version}, settings {digest_json(manifest.settings)[:12]}"
    )


def _holes(ctx: StageContext, day: str) -> list[str]:
    """Tables of the day that hold rows to be tried again."""
    found = (ctx.lake.manifest(table, day) for table in _MADE)
    return [manifest.table for manifest in found if manifest is not None and not manifest.complete]


def _notes(holes: Sequence[str], fetch: Sequence[tuple[str, Any]], closed: bool) -> list[str]:
    notes = []
    if holes:
        notes.append(
            f"The day has holes: {', '.join(holes)} will be completed by a later run (rows to be tried again, or a "
            "damaged neighbour)."
        )
    if fetch and fetch[0][1] != "final":
        notes.append(f"State of its fetch from the API: {fetch[0][1]}; see how it was fetched.")
    if closed:
        notes.append(
            "No leak clusters cover this day yet, so any of its problems may become sealed: no trace of it is named."
        )
    return notes


def _examples_note(opened: day_rows.Open, rejected: Sequence[Row], shown: int) -> str:
    if opened.closed:
        return "No examples: no leak clusters cover this day yet, so any problem of it may become sealed."
    gone = sum(row["trace_id"] in opened.retracted for row in rejected)
    hidden = {"of sealed problems": len(rejected) - shown - gone, "retracted": gone}
    told = " and ".join(f"{count:,} traces {what}" for what, count in hidden.items() if count)
    return f"{told} are counted and never shown." if told else ""


def _axis_before(ctx: StageContext, day: str) -> dict[str, dict[str, int]]:
    """Axis labels of the day and of the curated days before it."""
    before = [one for one in ctx.lake.days(tables.AXIS_A_CORPUS) if one <= day]
    return axis_counts(ctx, sorted(before)[-_DAYS_BEFORE - 1 :])


def axis_counts(ctx: StageContext, days: Sequence[str]) -> dict[str, dict[str, int]]:
    """Axis labels of some curated days, from their summaries."""
    found: dict[str, dict[str, int]] = {}
    for manifest in ctx.lake.manifests(tables.AXIS_A_CORPUS, days):
        counts: Mapping[str, int] = (manifest.summary or {}).get("by_axis") or Counter()
        found[manifest.day] = {label: counts.get(label, 0) for label in AXIS_LABELS}
    return found


def _gates(manifest: Manifest) -> Mapping[str, float]:
    gates: Mapping[str, float] = (manifest.settings.get("filter") or {}).get("reasoning") or {}
    return gates
