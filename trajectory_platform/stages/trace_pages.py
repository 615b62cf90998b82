"""Traces for others to look at: pages that are complete in themselves, and MLflow's trace view."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from trajectory_platform.errors import Abort
from trajectory_platform.lineage import retractions
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.text import shown
from trajectory_platform.stages.trace_choice import (
    open_views,
    traces_of_checkpoint,
    traces_of_day,
    traces_of_problem,
)
from trajectory_platform.stages.trace_views import View, trace_views

Row = dict[str, Any]


def write_trace_pages(
    settings: Settings,
    out: Path,
    trace_ids: Sequence[str] = (),
    *,
    problem: str | None = None,
    limit: int = 4,
    sealed_reason: str | None = None,
    at: datetime,
) -> Row:
    """One page with one trace, or several side by side; into a folder one page each.

    Args:
        out: a file that ends in ``.html``, else a folder, whose files are named as ``reports.trace_links`` says.
        problem: id or key of a problem in place of trace ids; ``limit`` of its traces are taken.

    Returns:
        ``traces`` (ids in the order shown), ``files`` (written), ``problem``.

    Raises:
        Abort: a trace is unknown, retracted, or sealed and no reason is given, or too many for one page.
    """
    from trajectory_platform.reports.page import write_page
    from trajectory_platform.reports.trace_compare import MOST_TRACES, trace_page
    from trajectory_platform.reports.trace_links import trace_file

    if bool(trace_ids) == (problem is not None):
        raise Abort("name traces, or a problem with --problem, and not both")
    ctx = StageContext(settings)
    single = out.suffix.lower() in (".html", ".htm")
    ids = list(dict.fromkeys(trace_ids))
    if problem is not None:
        ids = traces_of_problem(ctx, problem, limit=limit)
    if single and len(ids) > MOST_TRACES:
        raise Abort(
            f"{len(ids)} traces do not fit side by side: at most {MOST_TRACES}, or --out FOLDER for one page each"
        )
    views = trace_views(ctx, ids, sealed_reason=sealed_reason, at=at, what="traces page")
    if gone := [view["trace_id"] for view in views if view["retracted"]]:
        raise Abort(f"{len(gone)} of {len(views)} traces were retracted ({shown(gone[0])}): their text is not shown")
    if withheld := [view["trace_id"] for view in views if view["withheld"]]:
        raise Abort(
            f"{len(withheld)} of {len(views)} traces are of sealed problems, or of a day that no leak clusters cover "
            f"yet ({shown(withheld[0])}): --sealed REASON shows them, and the look is recorded"
        )
    pages = [(out, views)] if single else [(out / trace_file(view["trace_id"]), [view]) for view in views]
    for path, chosen in pages:
        write_page(path, trace_page(chosen, note=_note(chosen)))
    return {"traces": ids, "files": [str(path) for path, _ in pages], "problem": problem}


def log_to_mlflow(
    settings: Settings,
    uri: str,
    trace_ids: Sequence[str] = (),
    *,
    day: str | None = None,
    checkpoint: str | None = None,
    fed_to: str | None = None,
    only: str | None = None,
    limit: int = 100,
    sealed_reason: str | None = None,
    at: datetime,
) -> Row:
    """Traces into the trace view of an MLflow store, each once, however often this is called. What was retracted since
    it was logged is removed from there.

    Args:
        uri: tracking URI.
        day, checkpoint, fed_to: one of them in place of trace ids: a day's traces (``only`` as in ``traces_of_day``),
            what a checkpoint did, or what it was trained on; up to ``limit`` of them.

    Returns:
        ``written``, ``known`` (there already, unchanged), ``replaced`` (their facts changed), ``sealed`` and
        ``retracted`` (passed over), ``removed`` (retracted ones that were there),
        ``chosen_from`` and ``address`` of the page, where the store is a server.

    Raises:
        Abort: nothing to log, a trace is unknown, or the store cannot be used.
    """
    from trajectory_platform.training.trace_log import forget_traces, log_traces

    if sum((bool(trace_ids), *(one is not None for one in (day, checkpoint, fed_to)))) != 1:
        raise Abort("name traces, or one of --day, --checkpoint and --fed-to")
    if only is not None and day is None:
        raise Abort("--only chooses among the traces of a day: give --day as well")
    ctx = StageContext(settings)
    ids = list(dict.fromkeys(trace_ids))
    if day is not None:
        ids = traces_of_day(ctx, day, only=only)
    elif checkpoint is not None or fed_to is not None:
        ids = traces_of_checkpoint(ctx, checkpoint or fed_to or "", fed=fed_to is not None)
    gone = retractions.tombstones(ctx.lake).among(ctx.lake, ids)
    removed = forget_traces(uri, sorted(gone))
    passed: list[View] = []
    views = open_views(
        ctx,
        ids,
        limit=len(ids) if trace_ids else limit,
        sealed_reason=sealed_reason,
        at=at,
        what="traces mlflow",
        on_withheld=passed.append,
    )
    done = log_traces(uri, views)
    counts = {"written": done.written, "known": done.known, "replaced": done.replaced, "removed": removed}
    counts |= {
        "sealed": sum(not view["retracted"] for view in passed),
        "retracted": sum(bool(view["retracted"]) for view in passed),
    }
    address = f"{uri.rstrip('/')}/{done.page}" if uri.startswith("http") and "@" not in uri else None
    return {**counts, "chosen_from": len(ids), "page": done.page, "address": address}


def _note(views: Sequence[Row]) -> str:
    return f"In a terminal: trajectory-platform traces show {views[0]['trace_id']}." if len(views) == 1 else ""
