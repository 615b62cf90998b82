"""The plain commands: one day folder in, JSON rows out, without a lake and without an orchestrator.

They call the same core functions as the stages. The rows of a day are every (run, problem) named in
``problems.jsonl`` or found as an artifact; the folder's rows stay together and the judged day is in ``day``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform import jsontext
from trajectory_platform.settings import Settings
from trajectory_platform.sources import files
from trajectory_platform.sources.files import FileSource
from trajectory_platform.stages.folder_judging import judged_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.curation.filter import CurationResult
    from trajectory_platform.curation.filter_stages import Rejection

Row = dict[str, Any]


@dataclass(frozen=True)
class Folder:
    """One day folder, listed.

    Attributes:
        rows: RAW_TRACES rows.
        summary: the counts of the listing (a DAY_SUMMARIES row).
        faults: what of the listing files and the catalogue could not be used, ``{file}: {reason}`` -> count.
    """

    settings: Settings
    source: FileSource
    day: date
    rows: pa.Table
    summary: Row
    faults: dict[str, int]

    def trajectory_batches(self, only_traces: bool) -> Iterator[pa.RecordBatch]:
        """TRAJECTORIES batches in trace_id order.

        Args:
            only_traces: leave out what the filter rejects before reading (unusable runs); the plain
                ``normalise`` and ``score`` read everything that has an artifact.
        """
        import pyarrow.compute as pc

        from trajectory_platform.traces import normalise

        states = ["trace"] if only_traces else ["trace", "run_unusable", "not_final"]
        wanted = self.rows.filter(
            pc.and_(
                pc.is_in(self.rows.column("state"), value_set=_texts(states)),
                pc.is_valid(self.rows.column("artifact_uri")),
            )
        )
        yield from normalise.normalise_batches(
            wanted, self.source, limits_of(self.settings), self.settings.batch_rows, self.settings.workers
        )


def open_folder(settings: Settings, day_dir: str) -> Folder:
    """List one day folder.

    Raises:
        Abort: when the folder does not exist or is not named like a day.
    """
    from trajectory_platform.traces.inventory import inventory_folder

    source, day = files.open_folder(day_dir)
    found = inventory_folder(source, day, limits_of(settings))
    return Folder(settings, source, day, found.rows, found.summary, _fault_counts(found.summary))


def _fault_counts(summary: Row) -> dict[str, int]:
    """Faults of a listing by file and reason; files below ``artifacts/`` have hostile names and count as one."""
    counts: dict[str, int] = {}
    for fault in jsontext.parse(summary["faults"].encode()).value:
        name = f"{fault['file'].partition('/')[0]}: {fault['reason']}"
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def normalise_rows(folder: Folder) -> Iterator[Row]:
    """One row per pair: canonical messages and the axis; a pair that cannot be read says why."""
    from trajectory_platform.curation import agency

    batches = _rows_of(folder.trajectory_batches(only_traces=False))
    for raw, row in _joined(folder.rows, batches):
        if row is None:
            yield {
                "trace_id": raw["trace_id"],
                "day": raw["day"],
                "content_hash": None,
                "messages": [],
                "tools": [],
                "axis": {"label": "unknown", "share": None, "reason": "no_dialogue"},
                "repairs": [],
                "source": {"reader": None, "reader_version": None, "artifact": raw["artifact_uri"]},
                "readable": False,
                "reason": raw["state_reason"] or raw["state"],
                "state": raw["state"],
            }
            continue
        messages = jsontext.parse(row["messages"].encode()).value
        evidence = jsontext.parse(row["evidence"].encode()).value
        axis = agency.decide(
            messages,
            evidence,
            a_min_share=folder.settings.axis_a_min_share,
            b_max_share=folder.settings.axis_b_max_share,
        )
        yield {
            "trace_id": row["trace_id"],
            "day": row["day"],
            "content_hash": row["content_hash"],
            "messages": messages,
            "tools": jsontext.parse(row["tools"].encode()).value,
            "axis": {"label": axis.label, "share": axis.share, "reason": axis.reason},
            "repairs": jsontext.parse(row["repairs"].encode()).value,
            "source": {
                "reader": row["reader"],
                "reader_version": row["reader_version"],
                "artifact": raw["artifact_uri"],
            },
            "readable": row["readable"],
            "reason": row["malformed"],
            "state": raw["state"],
            "flags": row["flags"],
            "query": row["query"],
        }


def score_rows(folder: Folder, suites: list[Path]) -> Iterator[Row]:
    """Outcome, format and length per pair; ``suites`` add rewards for problems of other files.

    ``success`` is what the subnet would have counted: False also where nothing was delivered or where the reference
    scorer raises (domain 2.5); null where it cannot be known (hidden reward, unreadable artifact, not final).
    ``lenient`` is the same by a lenient reading of the dialogue (``judging.outcome.OutcomeScore``); it never changes
    ``outcome``. ``rules`` names the rules of the score, null where there was no dialogue.
    """
    judged, _ = judged_folder(folder, only_traces=False, judge="validator", suites=suites)
    for raw, row in _joined(folder.rows, iter(judged.to_pylist())):
        if row is None:
            outcome = {"not_final": "not_final", "unreadable": "unscorable"}.get(raw["state"], "no_trace")
            yield {
                "trace_id": raw["trace_id"],
                "outcome": outcome,
                "success": False if outcome == "no_trace" else None,
                "score": {},
                "format": None,
                "length": None,
                "recommended_ids": [],
                "hallucinated_ids": [],
                "unviewed_ids": [],
                "reason": raw["state_reason"] or raw["state"],
                "lenient": {"outcome": outcome, "score": {}},
                "rules": None,
            }
            continue
        success = {"success": True, "failure": False}.get(row["outcome"])
        if (row["reason"] or "").startswith("scorer_raised"):
            success = False
        yield {
            "trace_id": row["trace_id"],
            "outcome": row["outcome"],
            "success": success,
            "score": jsontext.parse(row["score"].encode()).value,
            **{
                name: row[name]
                for name in (
                    "format",
                    "length",
                    "recommended_ids",
                    "hallucinated_ids",
                    "unviewed_ids",
                    "not_in_catalogue_ids",
                    "reason",
                    "validator_success",
                )
            },
            "lenient": _lenient(row),
            "rules": row["title_regime"],
        }


def _lenient(row: Row) -> Row | None:
    """The lenient outcome and score of a judged row; None where the table does not carry them."""
    if "lenient_success" not in row:
        return None
    outcome = {True: "success", False: "failure", None: "unscorable"}[row["lenient_success"]]
    return {"outcome": outcome, "score": jsontext.parse(row["lenient_score"].encode()).value}


def judge_rows(
    folder: Folder, judge: str, *, journal_beside: Path | None = None, tell: Callable[[str], None] = lambda _: None
) -> Iterator[Row]:
    """The effective reasoning verdict per trace: the one that the reasoning gate of ``curate`` reads.

    An LLM judge is asked about what the rest of the filter would keep; of all other traces the validator's verdict is
    told, and ``null_reason`` says why there is none.
    """
    from trajectory_platform.judging.verdicts import effective_verdicts
    from trajectory_platform.stages.folder_judging import asked_folder

    judged, verdicts, _ = asked_folder(folder, judge, journal_beside=journal_beside, tell=tell)
    chosen = effective_verdicts(verdicts, judge)
    columns = (
        "reasoning_quality",
        "reasoning_coefficient",
        "judge_kind",
        "judge_model",
        "rubric_version",
        "score_regime",
        "explanation",
        "cost_usd",
        "null_reason",
    )
    for row in judged.to_pylist():
        verdict = chosen.get(row["trace_id"], {})
        yield {
            "trace_id": row["trace_id"],
            **{name: verdict.get(name) for name in columns},
            "injection_suspected": row["injection_suspected"],
        }


def curate_folder(
    folder: Folder,
    judge: str,
    *,
    all_reasons: bool = False,
    journal_beside: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> CurationResult:
    """The structural filter on its own over one folder; ``all_reasons`` also keeps every objection of a row."""
    from trajectory_platform.curation.config import filter_config
    from trajectory_platform.curation.filter import curate_day
    from trajectory_platform.stages.folder_judging import asked_folder

    judged, verdicts, counts = asked_folder(folder, judge, journal_beside=journal_beside, tell=tell)
    config = filter_config(folder.settings.model_copy(update={"judge": judge}))
    result = curate_day(
        folder.rows,
        lambda: folder.trajectory_batches(only_traces=True),
        judged,
        verdicts,
        config=config,
        all_reasons=all_reasons,
    )
    result.summary.update(counts)
    return result


def accepted_row(row: Row) -> Row:
    """An AXIS_A_CORPUS row in the shape of ``accepted.jsonl``."""
    return {
        "trace_id": row["trace_id"],
        "messages": jsontext.parse(row["messages"].encode()).value,
        "tools": jsontext.parse(row["tools"].encode()).value,
        "axis": {"label": row["axis_label"], "share": row["axis_share"], "reason": row["axis_reason"]},
        **{
            name: row[name]
            for name in (
                "uses",
                "situation",
                "flags",
                "axis_source",
                "quality",
                "strategy_cluster",
                "outcome_success",
                "outcome_source",
                "reasoning_quality",
                "judge_kind",
                "score_regime",
                "problem_key",
                "day",
            )
        },
    }


def rejected_row(row: Row, objections: Sequence[Rejection] | None = None) -> Row:
    """A REJECTED_TRACES row in the shape of ``rejected.jsonl``.

    Args:
        objections: everything the stages have against it; None leaves the field out.
    """
    label = row["axis_label"]
    axis = None if label is None else {"label": label, "share": row["axis_share"], "reason": row["axis_reason"]}
    return {
        "trace_id": row["trace_id"],
        "stage": row["stage"],
        "reason": row["reason"],
        "detail": row["detail"],
        "axis": axis,
        "duplicate_of": row["duplicate_of"],
        **(
            {}
            if objections is None
            else {"reasons": [{"stage": one.stage, "reason": one.reason, "detail": one.detail} for one in objections]}
        ),
    }


def limits_of(settings: Settings) -> Any:
    """The size and depth caps of the settings in the form the readers take."""
    from trajectory_platform.sources.container import Limits

    return Limits(
        settings.max_artifact_bytes, settings.max_inflated_bytes, settings.max_record_bytes, settings.max_depth
    )


def _rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from batch.to_pylist()


def _joined(raw: pa.Table, rows: Iterator[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Merge join of raw rows with rows in the same trace_id order; a raw row without partner gets None."""
    pending = next(rows, None)
    for raw_row in raw.to_pylist():
        if pending is not None and pending["trace_id"] == raw_row["trace_id"]:
            yield raw_row, pending
            pending = next(rows, None)
        else:
            yield raw_row, None


def _texts(values: list[str]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, pa.string())
