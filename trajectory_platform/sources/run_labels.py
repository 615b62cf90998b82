"""What the end of an evaluation run says of its traces, and scores that may be compared (cases I01 and I10).

A run that the validator or the platform broke is no failed attempt of the agent. Numbered errors (other subnets of the
kind have them) tell by their thousands whose fault it was; an unknown number is excluded and counted, never guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trajectory_platform.errors import FailPartition

USABLE, NEGATIVE, NOT_FINAL = "usable", "negative", "not_final"
EXCLUDED, INFRA, UNKNOWN = "excluded", "excluded_infra", "excluded_unknown"
_FAULTS = {1: NEGATIVE, 2: INFRA, 3: INFRA}  # 1xxx agent, 2xxx validator, 3xxx platform
_BY_STATUS = {
    "SUCCESS": USABLE,
    "CLAIMED": NOT_FINAL,
    "RUNNING": NOT_FINAL,
    "STALE": INFRA,  # the validator's lease ran out
    "CANCELLED": INFRA,
    "TIMED_OUT": UNKNOWN,  # the run's own limit: slow agent or slow validator
    "FAILED": UNKNOWN,  # the API gives a sentence, no code
}


def run_label(run: Mapping[str, Any]) -> str:
    """``usable``, ``negative``, ``not_final``, ``excluded``, ``excluded_infra`` or ``excluded_unknown``.

    A numbered error decides; else the status; a run that was invalidated or not included is ``excluded``.
    """
    code = run.get("error_code")
    if isinstance(code, int) and not isinstance(code, bool):
        return _FAULTS.get(code // 1000, UNKNOWN)
    if run.get("invalidated_at") is not None or run.get("is_included") is False:
        return EXCLUDED
    status = run.get("status")
    return _BY_STATUS.get(status.upper(), UNKNOWN) if isinstance(status, str) else UNKNOWN


def run_labels(runs: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """label -> number of runs."""
    counts = Counter(run_label(run) for run in runs)
    return {label: counts[label] for label in sorted(counts)}


def version_key(row: Mapping[str, Any]) -> tuple[str, str]:
    """(export version, problem id): a problem id may be used again by another version of the export."""
    return str(row.get("export_version")), str(row.get("problem_id"))


def one_scale(
    rows: Iterable[Mapping[str, Any]], mapping: Mapping[str, Callable[[float], float]] | None = None
) -> list[dict[str, Any]]:
    """Rows whose scores may be compared: all of one export version, or brought to one by an explicit mapping.

    Args:
        rows: with ``export_version`` and ``score``.
        mapping: export version -> what its score is on the common scale; it must name every version that occurs.

    Raises:
        FailPartition: several versions and no mapping for one of them.
    """
    copies = [dict(row) for row in rows]
    versions = sorted({str(row.get("export_version")) for row in copies})
    if len(versions) <= 1 and not mapping:
        return copies
    missing = [version for version in versions if version not in (mapping or {})]
    if missing:
        raise FailPartition(
            f"scores of export versions {', '.join(versions)} are not comparable: name a mapping for "
            f"{', '.join(missing)}"
        )
    for row in copies:
        score = row.get("score")
        if isinstance(score, int | float) and not isinstance(score, bool):
            row["score"] = (mapping or {})[str(row.get("export_version"))](float(score))
    return copies
