"""Is a proxy log possible at all? The checks of domain 6, item 36.

The log is written by the agent's process and can be forged. What the run's own bookkeeping, physics and the dialogue
contradict makes the log worthless as evidence of the axis; what is merely odd becomes a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from trajectory_platform.traces.arguments import CATALOGUE_TOOLS
from trajectory_platform.traces.literals import finite_number

COUNT_DIFFERS = "inference_count_differs"
DUPLICATES = "duplicate_entries"
DURATIONS = "impossible_durations"
RESULTS_DIFFER = "results_differ"
SHARED_LOG = "shared_log"
OUT_OF_ORDER = "out_of_order"
LONGER_THAN_RUN = "longer_than_run"

PROBLEM_LIMIT_MS = 300_000.0  # a problem is stopped after 300 s (domain 7)
_SLACK_MS = 10_000.0
_ORDER_SLACK_MS = 1_000.0


def log_problems(
    evidence: Mapping[str, Any], entries: list[dict[str, Any]], results: list[Any], buckets: Iterable[list[Any]]
) -> tuple[list[str], list[str]]:
    """(reasons why the log cannot be true, oddities that prove nothing).

    Args:
        evidence: the facts of ``traces.evidence`` (events, calls, counts).
        entries: the log entries behind ``events``, in the same order.
        results: the results the dialogue shows for ``calls``, in the same order.
        buckets: the log as it lies in the steps.
    """
    problems = []
    if evidence["shared_log"]:
        problems.append(SHARED_LOG)
    if _count_differs(evidence):
        problems.append(COUNT_DIFFERS)
    if _has_duplicates(entries):
        problems.append(DUPLICATES)
    span = _span(evidence)
    if span > PROBLEM_LIMIT_MS + _SLACK_MS or _has_impossible_duration(entries):
        problems.append(DURATIONS)
    if _results_differ(evidence, entries, results):
        problems.append(RESULTS_DIFFER)
    notes = [OUT_OF_ORDER] if _is_out_of_order(buckets) else []
    taken = evidence["execution_time"]
    if taken is not None and span > taken * 1000.0 * 1.1 + _ORDER_SLACK_MS:
        # no proof: of two lines for one problem the time is that of the other line (domain 8, item 5)
        notes.append(LONGER_THAN_RUN)
    return problems, notes


def _count_differs(evidence: Mapping[str, Any]) -> bool:
    """Replies logged against the number the validator counted.

    A null total means zero counted calls when the problem ended SUCCESS or FAILED, and nothing otherwise.
    """
    if not evidence["log_present"]:
        return False
    total = evidence["inference_total"]
    if total is None:
        if (evidence["problem_status"] or "").strip().upper() not in ("SUCCESS", "FAILED"):
            return False
        total = 0
    return bool(total != sum(event["kind"] == "inference" for event in evidence["events"]))


def _has_duplicates(entries: list[dict[str, Any]]) -> bool:
    """Two entries equal in everything. A real log has its millisecond clock and its response ids."""
    clocks = [(entry.get("path"), str(entry.get("timestamp")), str(entry.get("duration_ms"))) for entry in entries]
    if len(set(clocks)) == len(clocks):
        return False
    seen: set[tuple[Any, bytes]] = set()
    for clock, entry in zip(clocks, entries, strict=True):
        mark = (clock, _content(entry))
        if entry.get("timestamp") is not None and mark in seen:
            return True
        seen.add(mark)
    return False


def _content(entry: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(entry, default=repr, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        return repr(entry).encode("utf-8", "surrogatepass")


def _has_impossible_duration(entries: list[dict[str, Any]]) -> bool:
    """A negative duration, or one above the time limit of a problem."""
    for entry in entries:
        duration = entry.get("duration_ms")
        if isinstance(duration, bool) or not isinstance(duration, int | float):
            continue
        if not -1.0 <= duration <= PROBLEM_LIMIT_MS + _SLACK_MS:  # NaN fails the comparison, too
            return True
    return False


def _span(evidence: Mapping[str, Any]) -> float:
    """Milliseconds from the first start to the last end in the log."""
    starts = [event["start"] for event in evidence["events"] if event["start"] is not None]
    ends = [event["end"] for event in evidence["events"] if event["end"] is not None]
    return float(max(ends) - min(starts)) if starts else 0.0


class _Answer(NamedTuple):
    """What the log says a request returned: ids (None when the log does not say), and the rows where they are there."""

    ids: list[str] | None
    rows: list[Any] | None


def _results_differ(evidence: Mapping[str, Any], entries: list[dict[str, Any]], results: list[Any]) -> bool:
    """A call's result that no logged answer to the same call accounts for.

    Compared only where the answers to the same tool with equal arguments are readable. The agent may have trimmed
    rows or fields. It retries an empty search by itself with a simpler query, so the answers to the searches that
    come right after an empty one may stand for it, too.
    """
    answers: dict[tuple[str, str], list[_Answer]] = {}
    unreadable: set[tuple[str, str]] = set()
    open_retry: tuple[str, str] | None = None
    for event, entry in zip(evidence["events"], entries, strict=True):
        if event["kind"] != "dispatch" or event["tool"] not in CATALOGUE_TOOLS or event["arguments"] is None:
            open_retry = None
            continue
        key = (event["tool"], event["arguments"])
        body = entry.get("response")
        answer = _Answer(event["result_ids"], body if isinstance(body, list) else None)
        for asked in {key, open_retry or key}:
            answers.setdefault(asked, []).append(answer)
            if answer.ids is None:
                unreadable.add(asked)
        retries = event["tool"] == "find_product" and event["empty"]
        open_retry = (open_retry or key) if retries else None
    for call, result in zip(evidence["calls"], results, strict=True):
        key = (call["name"], call["arguments"])
        known = answers.get(key)
        if call["result_ids"] is None or known is None or key in unreadable:
            continue
        if not any(_accounts_for(answer, call["result_ids"], result) for answer in known):
            return True
    return False


def _accounts_for(answer: _Answer, shown: list[str], result: list[Any]) -> bool:
    """The shown rows are the answer's rows, perhaps fewer rows or fields, in the same order."""
    if answer.rows is not None and answer.rows == result:
        return True
    if not shown or not answer.ids:
        return not shown and not answer.ids
    rest = iter(answer.ids)
    if not all(item in rest for item in shown):
        return False
    if answer.rows is None:
        return True
    logged = {str(row.get("product_id")): row for row in answer.rows if isinstance(row, dict)}
    return all(_same_fields(row, logged.get(str(row.get("product_id")))) for row in result if isinstance(row, dict))


def _same_fields(shown: dict[str, Any], logged: dict[str, Any] | None) -> bool:
    if logged is None or shown == logged:
        return True
    return all(
        value == logged[field] or value != value  # NaN is not equal to itself
        for field, value in shown.items()
        if field in logged
    )


def _is_out_of_order(buckets: Iterable[list[Any]]) -> bool:
    """Inside one step, entries stand in the order in which the calls ended; an appended forgery breaks it.

    Only a note: order inside the published array is the uploader's, and the decision must not depend on it.
    """
    for bucket in buckets:
        last: float | None = None
        for entry in bucket:
            end = finite_number(entry.get("timestamp")) if isinstance(entry, dict) else None
            if end is None:
                continue
            if last is not None and end < last - _ORDER_SLACK_MS:
                return True
            last = end
    return False
