"""What one (run, problem) pair of a day folder is: its context from the listing files and its state (design 3).

States, in this order: run or problem PENDING, RUNNING, CLAIMED -> ``not_final``; run invalidated, not included,
STALE, CANCELLED, FAILED, TIMED_OUT -> ``run_unusable``; nothing readable -> ``unreadable``; no artifact, an empty one
or an empty dialogue -> ``no_trace``; else ``trace``. A run without a row in ``runs.jsonl`` is not known to be
unusable: its pairs go on, with ``run_status`` null and a fault ``run_missing``; but where a record of ``runs.jsonl``
cannot be read it may be the one that says so, and such a pair is ``run_unusable: run_record_unreadable``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.identity import digest_json, parse_utc, safe_id
from trajectory_platform.sources.files import RawDay
from trajectory_platform.sources.records import RECORD_KEPT, SCORE_TEXT, Fault, fault, id_text, later
from trajectory_platform.traces.literals import finite_number

OPEN_STATES = ("PENDING", "RUNNING", "CLAIMED")
ENDED_UNUSABLE = ("STALE", "CANCELLED", "FAILED", "TIMED_OUT")
_RUN_WORDS = ("SUCCESS", "CLAIMED", "RUNNING", *ENDED_UNUSABLE)
_PROBLEM_WORDS = ("PENDING", "RUNNING", "SUCCESS", "FAILED", "SKIPPED", "TIMED_OUT")
_INT64 = 1 << 63
_RUN_RECORD_KEPT = ("missing_file", *RECORD_KEPT)  # faults of runs.jsonl that cost no record


class Entry(NamedTuple):
    """One validator result and the problem entry that holds it."""

    entry: dict[str, Any]
    result: dict[str, Any]


class Found(NamedTuple):
    """What an artifact holds for one pair.

    Attributes:
        uri, size, sha256, form, gzip: the artifact file.
        line: 0-based line of a file that holds several pairs, else None.
        content: digest of the pair's own bytes, to compare duplicates; None without content.
        reject: why it cannot be read, or None.
        empty: why there is no dialogue (``empty_artifact``, ``empty_dialogue``, ``null_dialogue``), or None.
        envelope: status and counts of an envelope line, or None.
    """

    uri: str
    size: int
    sha256: str | None
    form: str | None
    gzip: bool | None
    line: int | None
    content: str | None
    reject: RejectRow | None
    empty: str | None
    envelope: dict[str, Any] | None


class Listing(NamedTuple):
    """The listing files of a day folder, indexed by safe ids.

    ``entries`` maps (eval_run_id, problem_id) to the newest result; entries whose problem id is null are in
    ``unnamed``, per run, in an order that does not depend on the file. ``runs_damaged``: a record of ``runs.jsonl``
    could not be read, so a run without one may be an invalidated one.
    """

    runs: dict[str, dict[str, Any]]
    agents: dict[str, dict[str, Any]]
    entries: dict[tuple[str, str], Entry]
    unnamed: dict[str, list[Entry]]
    faults: list[Fault]
    runs_damaged: bool = False


def index_listing(raw: RawDay) -> Listing:
    """Index a raw day. A pair named twice is decided by the latest ``updated_at`` (a tie: by digest)."""
    listing = Listing(
        {safe_id(run["eval_run_id"]): run for run in raw.runs},
        {safe_id(agent["agent_version_id"]): agent for agent in raw.agent_versions},
        {},
        {},
        [],
        any(entry["file"] == "runs.jsonl" and entry["reason"] not in _RUN_RECORD_KEPT for entry in raw.faults),
    )
    for entry in raw.problems:
        results = entry.get("validator_results")
        if not isinstance(results, list):
            name = ascii(entry.get("problem_id"))
            listing.faults.append(fault("problems.jsonl", None, "no_validator_results", f"problem {name}"))
            continue
        for result in results:
            _index_result(listing, entry, result)
    listing.faults.extend(_unknown_words(raw))
    for group in listing.unnamed.values():
        group.sort(key=lambda pair: digest_json([pair.entry, pair.result]))
    return listing


def _unknown_words(raw: RawDay) -> list[Fault]:
    """Status words outside the published ones (domain 1.10): kept as they are, counted, warned of (domain 6: 56)."""
    results = (
        result
        for entry in raw.problems
        if isinstance(entry.get("validator_results"), list)
        for result in entry["validator_results"]
        if isinstance(result, dict)
    )
    faults = []
    for file, records, known in (("runs.jsonl", raw.runs, _RUN_WORDS), ("problems.jsonl", results, _PROBLEM_WORDS)):
        words = Counter(ascii(record["status"])[:80] for record in records if _unknown(record.get("status"), known))
        faults += [fault(file, None, "unknown_status", f"{word} x{words[word]}") for word in sorted(words)]
    return faults


def _unknown(status: Any, known: tuple[str, ...]) -> bool:
    return status is not None and _upper(status) not in known


def _index_result(listing: Listing, entry: dict[str, Any], result: Any) -> None:
    run_id = id_text(result.get("eval_run_id")) if isinstance(result, dict) else None
    if run_id is None:
        name = ascii(entry.get("problem_id"))
        listing.faults.append(fault("problems.jsonl", None, "result_without_run", f"problem {name}"))
        return
    run, problem = safe_id(run_id), entry.get("problem_id")
    pair = Entry(entry, result)
    if problem is None:
        listing.unnamed.setdefault(run, []).append(pair)
        return
    key = (run, safe_id(problem))
    held = listing.entries.get(key)
    if held is None:
        listing.entries[key] = pair
    elif held.result is not result and held.result != result:
        newer = later(held.result, result, ("updated_at",))
        listing.entries[key] = pair if newer is result else held
        detail = f"run {run}, problem {key[1]}: two different results, the latest is used"
        listing.faults.append(fault("problems.jsonl", None, "duplicate_record", detail))


def pair_row(
    listing: Listing, run_id: str, problem_id: str | None, pair: Entry | None, found: Found | None, folder_day: str
) -> dict[str, Any]:
    """One row in the ``raw_traces`` columns, without ``trace_id``, ``day`` and the duplicate columns."""
    entry: Mapping[str, Any] = pair.entry if pair else {}
    result: Mapping[str, Any] = pair.result if pair else {}
    run = listing.runs.get(run_id, {})
    agent_id = id_text(entry.get("agent_version_id")) or id_text(run.get("agent_version_id"))
    agent = listing.agents.get(safe_id(agent_id), {}) if agent_id else {}
    envelope: Mapping[str, Any] = (found.envelope if found else None) or {}
    components = result.get("score_components")
    components = components if isinstance(components, Mapping) else {}
    counts = result if pair else envelope
    state, reason, detail = pair_state(run, result, found)
    if listing.runs_damaged and run_id not in listing.runs and state != "not_final":
        state, reason, detail = "run_unusable", "run_record_unreadable", "runs.jsonl has records that cannot be read"
    return {
        "eval_run_id": run_id,
        "problem_id": problem_id,
        "agent_version_id": agent_id,
        "miner_hotkey": _text(agent.get("miner_hotkey")),
        "validator_hotkey": _text(result.get("validator_hotkey")) or _text(run.get("validator_hotkey")),
        "suite_id": id_text(entry.get("suite_id")) or id_text(run.get("suite_id")),
        "category": _lower(entry.get("category")),
        "phase": _text(entry.get("phase")) or _text(run.get("phase")),
        "race_id": id_text(entry.get("race_id")) or id_text(run.get("race_id")),
        "state": state,
        "state_reason": reason,
        "state_detail": detail,
        "folder_day": folder_day,
        "judged_at": parse_utc(result.get("updated_at")),
        "artifact_uri": found.uri if found else None,
        "artifact_line": found.line if found else None,
        "artifact_sha256": found.sha256 if found else None,
        "artifact_bytes": found.size if found else None,
        "artifact_form": found.form if found else None,
        "artifact_gzip": found.gzip if found else None,
        "execution_status": _text(envelope.get("status")),
        "problem_status": _text(result.get("status")),
        "run_status": _text(run.get("status")),
        "run_included": run["is_included"] if isinstance(run.get("is_included"), bool) else None,
        "run_invalidated_at": parse_utc(run.get("invalidated_at")),
        "run_failure_reason": _text(run.get("failure_reason")),
        "validator_score": finite_number(result.get("score")),
        "reasoning_score": finite_number(result.get("reasoning_score")),
        "reasoning_score_text": _score_text(result),
        "reasoning_model": _text(components.get("reasoning_model")),
        "reasoning_explanation": _text(components.get("reasoning_explanation")),
        "run_reasoning_quality": finite_number(run.get("reasoning_quality")),
        "run_reasoning_coefficient": finite_number(run.get("reasoning_coefficient")),
        "inference_total": _count(counts.get("inference_total")),
        "inference_failure_count": _count(counts.get("inference_failure_count")),
        "execution_time": finite_number(counts.get("execution_time")),
        "policy_checkpoint_id": _text(agent.get("policy_checkpoint_id")) or _text(run.get("policy_checkpoint_id")),
    }


def pair_state(
    run: Mapping[str, Any], result: Mapping[str, Any], found: Found | None
) -> tuple[str, str | None, str | None]:
    """(state, machine-readable reason, detail) of a pair; the reason is None only for a trace."""
    run_status, problem_status = _upper(run.get("status")), _upper(result.get("status"))
    if run_status in OPEN_STATES:
        return "not_final", f"run_{run_status.lower()}", None
    if problem_status in OPEN_STATES:
        return "not_final", f"problem_{problem_status.lower()}", None
    if run.get("invalidated_at") is not None:
        return "run_unusable", "run_invalidated", _text(run.get("invalidation_reason"))
    if run_status in ENDED_UNUSABLE:
        return "run_unusable", f"run_{run_status.lower()}", _text(run.get("failure_reason"))
    if run.get("is_included") not in (None, True):  # an answer that is no yes is a no: 0, "false", ...
        value = run["is_included"]
        return "run_unusable", "run_not_included", None if value is False else ascii(value)[:80]
    if found is None:
        return "no_trace", "no_artifact", None
    if found.reject is not None:
        return "unreadable", found.reject.reason, found.reject.detail
    if found.empty is not None:
        return "no_trace", found.empty, None
    return "trace", None, None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _upper(value: Any) -> str:
    return value.strip().upper() if isinstance(value, str) else ""


def _lower(value: Any) -> str | None:
    return value.strip().lower() if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -_INT64 <= value < _INT64 else None


def _score_text(result: Mapping[str, Any]) -> str | None:
    """The raw JSON text of a reasoning score that is no finite number (``NaN``, ``"0.9"``, ``true``)."""
    if SCORE_TEXT in result:
        return _text(result[SCORE_TEXT])
    score = result.get("reasoning_score")
    if score is None or finite_number(score) is not None:
        return None
    return jsontext.dumps(score)
