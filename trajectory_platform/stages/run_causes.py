"""Why runs failed, in the words of the days that failed in them, asked of a Dagster webserver."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from trajectory_platform.errors import Abort
from trajectory_platform.identity import days_between

MAX_RUNS, MAX_PAGES, MAX_CAUSE = 100, 10, 400
FAILURE = "dagster._core.definitions.events.Failure: "
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")  # by which a failure names its reasons, and a run its days
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")

_LOG = """query Log($id: ID!, $cursor: String) { logsForRun(runId: $id, afterCursor: $cursor, limit: 1000) { __typename
  ... on EventConnection { cursor hasMore events { ... on ExecutionStepFailureEvent { stepKey
    error { message causes { message } }
    failureMetadata { metadataEntries { label ... on TextMetadataEntry { text } } } } } }
  ... on PythonError { message } } }"""


def causes(ask: Callable[[str, dict[str, Any]], dict[str, Any]], runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Day -> the step that failed and its reason, of the runs that failed; of a day with several the newest.

    Args:
        runs: newest first, as Dagster lists them. A webserver that does not answer leaves the rest unsaid: the days
            themselves are told all the same.
    """
    found: dict[str, str] = {}
    for run in [one for one in runs if one["status"] == "FAILURE"][:MAX_RUNS]:
        try:
            failures = _failures(ask, run["runId"])
        except Abort:
            break
        for failure in failures:
            for day, why in _reasons(failure, run.get("tags") or ()).items():
                found.setdefault(day, f"{failure['stepKey']}: {why}"[:MAX_CAUSE])
    return found


def _failures(ask: Callable[[str, dict[str, Any]], dict[str, Any]], run: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = ask(_LOG, {"id": run, "cursor": cursor})
        found += [event for event in page.get("events", ()) if event.get("stepKey")]
        cursor = page.get("cursor")
        if not page.get("hasMore"):
            break
    return found


def _reasons(failure: Mapping[str, Any], tags: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Day -> reason; one that names no day is the reason of every day of its run."""
    entries = (failure.get("failureMetadata") or {}).get("metadataEntries") or ()
    told = {one["label"]: one["text"] for one in entries if DAY.fullmatch(one["label"]) and one.get("text")}
    if told:
        return told
    error = failure.get("error") or {}
    innermost = [error, *(error.get("causes") or ())][-1]
    why = str(innermost.get("message") or "failed").strip().removeprefix(FAILURE)
    return dict.fromkeys(_days({tag["key"]: tag["value"] for tag in tags}), why)


def _days(tags: Mapping[str, str]) -> list[str]:
    first, last = (tags.get(name, "") for name in _RANGE)
    if DAY.fullmatch(first) and DAY.fullmatch(last):
        return [day.isoformat() for day in days_between(date.fromisoformat(first), date.fromisoformat(last))]
    day = tags.get("dagster/partition", "")
    return [day] if DAY.fullmatch(day) else []
