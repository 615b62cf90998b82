"""Judging one day: outcome and reasoning verdicts of every trajectory, on two decoupled axes (design 3, "Verdicts").

The scorer never sees a reasoning score and the rules judge never sees reward, outcome or category: each gets only
what it needs. Trajectories are streamed; what stays in memory is one small row per raw trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from trajectory_platform.errors import FailPartition
from trajectory_platform.identity import safe_id
from trajectory_platform.judging import dialogue, injection, outcome, reasoning, verdicts
from trajectory_platform.judging.attributes import ATTRIBUTE_RULES
from trajectory_platform.judging.judge_models import is_llm, load_judge
from trajectory_platform.judging.matching import find_rules
from trajectory_platform.judging.rubric import RUBRIC_VERSION
from trajectory_platform.judging.titles import TITLE_REGIMES
from trajectory_platform.sandbox.problems import Problem, find_problem, load_problems
from trajectory_platform.sandbox.queries import normalise_query
from trajectory_platform.traces.garbage import collection_paused

if TYPE_CHECKING:
    import pyarrow as pa


VERSION = "/".join(
    (
        "judging-4",
        outcome.SCORER_VERSION,
        *(f"title-{name}-{regime.version}" for name, regime in sorted(TITLE_REGIMES.items())),
        *(rule.name for _, rule in sorted(ATTRIBUTE_RULES.items())),
        injection.INJECTION_VERSION,
        reasoning.JUDGE_MODEL,
        RUBRIC_VERSION,
    )
)

Row = dict[str, Any]
_RAW_COLUMNS = [
    "trace_id", "day", "problem_id", "agent_version_id", "state", "judged_at", "problem_status", "validator_score",
    "reasoning_score", "reasoning_score_text", "reasoning_model", "reasoning_explanation",
]  # fmt: skip
_READ_COLUMNS = [
    "trace_id", "day", "problem_id", "suite_id", "category", "readable", "malformed", "query", "messages",
    "source_steps", "evidence", "repairs",
]  # fmt: skip


def judge_day(
    raw_rows: pa.Table,
    trajectory_batches: Iterator[pa.RecordBatch],
    problems: pa.Table,
    catalogue: outcome.Products | None,
    *,
    judge: str,
    title_regime: str = "normalised",
    title_encoder: str = "none",
    attribute_rule: str = "exact",
    title_vectors: Mapping[str, Any] | None = None,
) -> tuple[pa.Table, pa.Table]:
    """Score and judge every trajectory of a day.

    Args:
        raw_rows: RAW_TRACES rows; joined by trace_id.
        trajectory_batches: TRAJECTORIES batches, unreadable rows included.
        problems: PROBLEM_SUITES rows that may bind a trace (several days and suite files are fine).
        catalogue: product documents, or None.
        judge: ``rules``, ``validator`` or an LLM judge. Every trace gets the validator's and the rules judge's verdict,
            side by side; ``effective_verdicts`` says which one a gate reads. LLM judges are asked by the stage, about
            the traces that the filter would keep.
        title_regime, title_encoder, attribute_rule: the rules of the score (``matching.find_rules``).
        title_vectors: title -> numbers, what suites publish, for the encoder ``stored``.

    Returns:
        (JUDGED_TRACES, VERDICTS), each sorted by its key, one judged row per trajectory.

    Raises:
        Abort: an unknown judge or unknown rules.
        FailPartition: a trajectory without a raw row.
    """
    import pyarrow as pa

    from trajectory_platform.lake.tables import JUDGED_TRACES, VERDICTS

    check_judge(judge)
    rules = find_rules(title_regime, title_encoder, attribute_rule, published=title_vectors)
    raw = {row["trace_id"]: row for row in raw_rows.select(_RAW_COLUMNS).to_pylist()}
    agreement = agreement_by_pair(raw.values())
    bindings = Bindings(load_problems(problems))
    scorer = outcome.Scorer(catalogue, rules)
    judged_parts, verdict_parts = [], []
    for batch in trajectory_batches:
        judged_rows, verdict_rows = [], []
        with collection_paused():
            for row in batch.select(_READ_COLUMNS).to_pylist():
                source = raw.get(row["trace_id"])
                if source is None:
                    raise FailPartition(f"trajectory {row['trace_id']} belongs to no raw row of the day")
                judged, found = judge_trace(row, source, bindings, scorer)
                judged["other_validators_agree"] = agreement.get((source["agent_version_id"], source["problem_id"]))
                judged_rows.append(judged)
                verdict_rows += found
        judged_parts.append(pa.Table.from_pylist(judged_rows, schema=JUDGED_TRACES.schema()))
        verdict_parts.append(pa.Table.from_pylist(verdict_rows, schema=VERDICTS.schema()))
    return _sorted(judged_parts, JUDGED_TRACES), _sorted(verdict_parts, VERDICTS)


def check_judge(judge: str) -> None:
    """Abort unless the name is a built-in judge or can be an LLM judge (``judge_models.load_judge``)."""
    if is_llm(judge):
        load_judge(judge, usd_per_million_input=0.0, usd_per_million_output=0.0)


class Bindings:
    """Which problem a trace belongs to: by the backend's ids, never by what the agent says the query is.

    A problem whose reward this suite hides is looked up by id in the other suites. Items of a suite file without an
    id (named ``key-...`` or ``{file}:{row}``) can only be found by their text.
    """

    def __init__(self, index: dict[tuple[str | None, str], Problem]) -> None:
        self._index = index
        self._by_query: dict[str, Problem | None] = {}
        for problem in index.values():
            nameless = problem.problem_id.startswith("key-") or ":" in problem.problem_id
            if nameless and problem.query:
                text = normalise_query(problem.query)
                held = self._by_query.get(text, problem)
                same = held is not None and held.problem_key == problem.problem_key
                self._by_query[text] = problem if same else None

    def find(self, suite_id: str | None, problem_id: str | None, stated_query: str | None) -> Problem | None:
        """The problem of a pair, or None."""
        problem = find_problem(self._index, suite_id, safe_id(problem_id) if problem_id is not None else None)
        if self._by_query and stated_query and (problem is None or problem.reward_state == "hidden"):
            return self._by_query.get(normalise_query(stated_query)) or problem
        return problem


def agreement_by_pair(rows: Any) -> dict[tuple[str | None, str | None], bool]:
    """(agent_version_id, problem_id) -> whether all runs of the pair have one verdict; only pairs with several.

    Verdicts are never collapsed to the best one (domain 6: 32). Unusable and unfinished runs have no voice.
    """
    scores: dict[tuple[str | None, str | None], list[bool]] = {}
    for row in rows:
        success = validator_success(row)
        if success is None or row["agent_version_id"] is None or row["state"] in ("run_unusable", "not_final"):
            continue
        scores.setdefault((row["agent_version_id"], row["problem_id"]), []).append(success)
    return {pair: len(set(values)) == 1 for pair, values in scores.items() if len(values) > 1}


def validator_success(raw: Mapping[str, Any]) -> bool | None:
    """The validator's binary verdict; None where there is none.

    A problem that ended TIMED_OUT or SKIPPED was never scored: its stored 0.0 is no verdict (domain 8.7).
    """
    status = raw["problem_status"]
    if status is not None and status.strip().upper() not in ("SUCCESS", "FAILED"):
        return None
    return {1.0: True, 0.0: False}.get(raw["validator_score"])


def judge_trace(
    row: Mapping[str, Any], raw: Mapping[str, Any], bindings: Bindings, scorer: outcome.Scorer
) -> tuple[Row, list[Row]]:
    """One trajectory to its judged row (without ``other_validators_agree``) and its verdict rows."""
    steps = _steps(row)
    messages = orjson.loads(row["messages"]) or dialogue.loose_messages(steps)
    results = dialogue.tool_results(messages)
    stated = dialogue.queries(steps)
    problem = bindings.find(row["suite_id"], row["problem_id"], row["query"])
    evidence = orjson.loads(row["evidence"])
    sources = injection.scan_messages(messages, stated, results, evidence)
    judged = _judged_row(row, raw, problem, scorer.score(steps, problem), stated, sources)
    found = [verdicts.validator_verdict(raw)]
    verdict = reasoning.judge(messages, evidence, results)
    found.append(verdicts.rules_verdict(raw, verdict))
    return judged, found


def _judged_row(
    row: Mapping[str, Any],
    raw: Mapping[str, Any],
    problem: Problem | None,
    scored: outcome.OutcomeScore,
    stated: list[str],
    sources: tuple[str, ...],
) -> Row:
    unreadable = row["malformed"] if scored.reason == "empty_dialogue" and not row["readable"] else None
    told = validator_success(raw)
    public = problem is not None and problem.reward_state == "public" and scored.success is not None
    success, source = (scored.success, "rule") if public else (told, "none" if told is None else "validator")
    bound = problem is not None and problem.query is not None
    discipline = list(scored.discipline)
    if query_changed(problem, stated):
        discipline.append("query_changed")
    return {
        "trace_id": row["trace_id"],
        "day": row["day"],
        "suite_id": row["suite_id"],
        "problem_id": row["problem_id"],
        "problem_key": problem.problem_key if problem else None,
        "category": (problem.category if problem else None) or row["category"],
        "query": problem.query if problem is not None and bound else row["query"],
        "query_verified": bound,
        "outcome": scored.outcome,
        "reason": unreadable or scored.reason,
        "outcome_success": success,
        "outcome_source": source,
        "validator_success": told,
        "validators_agree": None if scored.outcome == "unscorable" or told is None else scored.success == told,
        "other_validators_agree": None,
        "score": orjson.dumps(scored.score).decode(),
        "lenient_success": scored.lenient_success,
        "lenient_score": orjson.dumps(scored.lenient_score).decode(),
        "format": scored.format,
        "length": scored.length,
        "recommended_ids": scored.recommended_ids,
        "lenient_ids": scored.lenient_ids,
        "hallucinated_ids": scored.hallucinated_ids,
        "unviewed_ids": scored.unviewed_ids,
        "not_in_catalogue_ids": scored.not_in_catalogue_ids,
        "discipline": discipline,
        "injection_suspected": bool(sources),
        "injection_sources": list(sources),
        "scorer_version": outcome.SCORER_VERSION,
        "title_regime": scored.rules,
    }


def query_changed(problem: Problem | None, stated: list[str]) -> bool:
    """Whether a step states another query than the suite, or the steps disagree: the agent chose it (domain 6: 47)."""
    texts = set(stated)
    if problem is not None and problem.query is not None:
        texts.add(problem.query)
    return len(texts) > 1 and len({normalise_query(text) for text in texts}) > 1


def _steps(row: Mapping[str, Any]) -> list[Any]:
    """The dialogue as read, with the NaN timestamps back that the reader had to store as null.

    The reference lets a NaN pass as a timestamp, but not a null (domain 2.4). The reader counts the numbers it
    replaced; as many null timestamps as that count covers were numbers.
    """
    steps = dialogue.read_text(row["source_steps"].encode())
    if not isinstance(steps, list):
        return []
    if "non_finite_number" in row["repairs"]:
        replaced = sum(
            repair["count"] for repair in orjson.loads(row["repairs"]) if repair["reason"] == "non_finite_number"
        )
        extras = [step.get("extra_info") for step in steps if isinstance(step, dict)]
        empty = [extra for extra in extras if isinstance(extra, dict) and extra.get("timestamp", 0) is None]
        if len(empty) <= replaced:
            for extra in empty:
                extra["timestamp"] = math.nan
    return steps


def _sorted(parts: list[pa.Table], table: Any) -> pa.Table:
    import pyarrow as pa

    joined = pa.concat_tables(parts) if parts else table.schema().empty_table()
    return joined.sort_by([(name, "ascending") for name in table.key])
