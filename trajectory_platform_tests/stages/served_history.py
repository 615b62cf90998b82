"""A simulated history behind the local API server, and what of it a fetcher must end with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trajectory_platform.arena.oro_server_history import VERDICTS, History

COUNTED = ("SUCCESS", "FAILED")
"""Runs whose verdicts stand; what a stale run left is judged again in another run."""

# Everything the API may do to a client, all of it passing in the end.
FAULTS: dict[str, Any] = {
    "seed": 5,
    "history": {"late_judgments": 0.01, "late_by_hours": 30, "late_invalidations": 0.02, "invalidated_after_days": 2},
    "rules": [
        {"fault": "rate_limited", "share": 0.004, "retry_after": 1},
        {"fault": "server_error", "path": "agent-versions/*", "share": 0.02, "status": 503},
        {"fault": "server_error", "path": "artifacts/download-url", "every": 150, "burst": 2, "status": 502},
        {"fault": "reset", "path": "*", "share": 0.01},
        {"fault": "truncated", "path": "storage/*", "share": 0.03},
        {"fault": "truncated", "path": "storage/*", "share": 0.03, "declared": "short"},
        {"fault": "truncated", "path": "agent-versions/*", "share": 0.03},
        {"fault": "slow", "path": "storage/*", "share": 0.01, "seconds": 0.2},
        {"fault": "expired_link", "share": 0.04},
        {"fault": "link_refused", "share": 0.02},
        {"fault": "artifact_not_found", "share": 0.03},
        {"fault": "artifact_not_released", "share": 0.02},
        {"fault": "race_in_flight", "share": 0.02},
        {"fault": "redirect", "path": "storage/*", "share": 0.01, "to": "http://foreign.invalid/trace.json.gz"},
        {"fault": "paging_shift", "newest": 1},
        {"fault": "duplicate_ids", "path": "leaderboard", "share": 0.3, "times": None},
        {"fault": "extra_fields", "share": 0.1, "times": None},
        {"fault": "cold_history", "share": 1.0, "times": 2},
        {"fault": "times", "path": "agent-versions/*/problems", "share": 0.1, "times": None, "form": "offset"},
        {"fault": "times", "path": "agent-versions/*/problems", "share": 0.1, "times": None, "form": "naive"},
        {"fault": "times", "path": "agent-versions/*/runs", "share": 0.1, "times": None, "form": "epoch"},
        {"fault": "unknown_enum", "path": "agent-versions/*/runs", "share": 0.05, "value": "REPLAYED"},
        {"fault": "unknown_enum", "path": "suites", "field": "execution_kind", "value": "later_kind", "times": None},
        {"fault": "missing_fields", "path": "leaderboard", "share": 0.3, "fields": ["agent_name", "version_number"]},
        {"fault": "missing_fields", "path": "races/*", "share": 0.3, "fields": ["qualifier_count", "suite_id"]},
        {"fault": "html", "path": "suites/*/problems", "share": 0.2},
        {"fault": "date_skew", "path": "suites", "share": 1.0, "seconds": 4000},
    ],
}


def judged_pairs(history: History) -> Iterator[tuple[str, str, str, Path | None]]:
    """(run, problem, UTC day of judgment, artifact file or None) of every verdict that stands."""
    for results in history.results_of.values():
        for one in results:
            run = history.runs[one.row["eval_run_id"]]
            if one.judged_at is None or one.row["status"] not in VERDICTS or run.row["status"] not in COUNTED:
                continue
            pair = (run.run_id, str(one.entry["problem_id"]))
            yield (*pair, one.judged_at.date().isoformat(), history.artifacts.get(pair))


def account(history: History, data_root: Path) -> dict[str, Any]:
    """What of a history lies in fetched day folders, pair by pair and byte by byte.

    Beside ``fetched`` and ``never_published``: ``unused`` are artifacts of runs that are not included, which a fetcher
    asks for once only; ``cut_unseen`` are files that are no gzip and were cut with a length that fits, which nothing on
    the wire tells. ``wrong`` is what no rule explains.
    """
    counts = Counter({"judged": 0, "fetched": 0, "never_published": 0})
    wrong: list[str] = []
    expected = set()
    for run, problem, day, file in judged_pairs(history):
        counts["judged"] += 1
        expected.add((day, run, problem))
        place = data_root / day / "artifacts" / run / f"{problem}.json.gz"
        held = place.read_bytes() if place.exists() else None
        published = file.read_bytes() if file is not None else None
        if held == published:
            counts["never_published" if held is None else "fetched"] += 1
        elif held is None and not history.runs[run].row["is_included"]:
            counts["unused"] += 1
        elif held and published and published[:2] != b"\x1f\x8b" and published.startswith(held):
            counts["cut_unseen"] += 1
        else:
            wrong.append(f"{day}/{run}/{problem}: {'not fetched' if held is None else 'other bytes'}")
    listed = Counter(listed_pairs(data_root))
    counts["listed"] = len(listed)
    places = Counter((run, problem) for _, run, problem in listed.elements())
    counts["listed_twice"] = sum(count > 1 for count in places.values())
    unlisted = sorted(expected - set(listed))
    return {**counts, "wrong": wrong, "not_listed": ["/".join(pair) for pair in unlisted]}


def listed_pairs(data_root: Path) -> Iterator[tuple[str, str, str]]:
    """(day folder, run, problem) of every result in the fetched listings."""
    for file in sorted(data_root.glob("2*/problems.jsonl")):
        for line in file.read_bytes().split(b"\n"):
            if line:
                entry = json.loads(line)
                for result in entry["validator_results"]:
                    yield (file.parent.name, result["eval_run_id"], entry["problem_id"])
