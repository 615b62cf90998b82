"""Every table of the lake: columns, key, partition and write path, in one place (hence its length).

Free-form values (messages, arguments, rewards, evidence) are JSON *text* columns: they never enter a typed
Arrow column, where rows would pollute one another with nulls. Times are UTC. ``day`` is always the partition
as ``YYYY-MM-DD`` text. Rows of a published day are sorted by the key.

Column types: text, int (64 bit), float (64 bit), bool, texts (list of text), time (UTC microseconds).
A type ending in ``?`` may be null.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Table:
    """One table of the lake.

    Attributes:
        name: folder below ``lake_uri`` and name in ``sql``.
        columns: column name -> type word (see the module).
        key: columns that identify a row inside a partition.
        partition: partition columns; the first is always ``day``.
        big_text: True for the staged write path (sorted Parquet files added in one commit).
        values: column -> allowed values, checked by the contract.
        doc: one line for people.
    """

    name: str
    columns: dict[str, str]
    key: tuple[str, ...]
    doc: str
    partition: tuple[str, ...] = ("day",)
    big_text: bool = False
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def schema(self) -> pa.Schema:
        """The declared Arrow schema; every write and every read uses it, also for empty or all-null days."""
        import pyarrow as pa

        kinds = {
            "text": pa.string(),
            "int": pa.int64(),
            "float": pa.float64(),
            "bool": pa.bool_(),
            "texts": pa.list_(pa.string()),
            "time": pa.timestamp("us", tz="UTC"),
        }
        return pa.schema(
            [
                pa.field(name, kinds[kind.rstrip("?")], nullable=kind.endswith("?"))
                for name, kind in self.columns.items()
            ]
        )


_RUN_CONTEXT = {
    "eval_run_id": "text",
    "problem_id": "text?",
    "agent_version_id": "text?",
    "miner_hotkey": "text?",
    "validator_hotkey": "text?",
    "suite_id": "text?",
    "category": "text?",
    "phase": "text?",
    "race_id": "text?",
}

RAW_TRACES = Table(
    "raw_traces",
    {
        "trace_id": "text",
        "day": "text",
        **_RUN_CONTEXT,
        "state": "text",  # trace | not_final | run_unusable | no_trace | unreadable
        "state_reason": "text?",  # machine-readable, null only for state = trace
        "state_detail": "text?",
        "folder_day": "text",  # where it was found
        "judged_at": "time?",
        "artifact_uri": "text?",  # relative to data_root, never absolute
        "artifact_line": "int?",  # 0-based inner line of a whole-file artifact
        "artifact_sha256": "text?",
        "artifact_bytes": "int?",
        "artifact_form": "text?",  # array | chat | jsonl_envelopes | jsonl_steps | whole_file | empty | unknown
        "artifact_gzip": "bool?",
        "execution_status": "text?",
        "problem_status": "text?",
        "run_status": "text?",
        "run_included": "bool?",
        "run_invalidated_at": "time?",
        "run_failure_reason": "text?",
        "validator_score": "float?",  # binary per-problem score
        "reasoning_score": "float?",
        "reasoning_score_text": "text?",  # the raw JSON value where it is no finite number ("NaN", "\"0.9\"")
        "reasoning_model": "text?",
        "reasoning_explanation": "text?",
        "run_reasoning_quality": "float?",
        "run_reasoning_coefficient": "float?",
        "inference_total": "int?",
        "inference_failure_count": "int?",
        "execution_time": "float?",
        "duplicate_lines": "int",  # further lines for the same problem in the same file
        "duplicates_differ": "bool",
        "policy_checkpoint_id": "text?",
    },
    key=("trace_id",),
    doc="every (run, problem) pair judged that day: key, place, state; the bytes stay in the raw folder",
    values={"state": ("trace", "not_final", "run_unusable", "no_trace", "unreadable")},
)

DAY_SUMMARIES = Table(
    "day_summaries",
    {
        "day": "text",
        "found": "int",  # pairs in the day's own folder
        "moved_in": "int",  # pairs of the two folders beside it that were judged this day
        "moved_out": "int",  # pairs of the own folder judged another day
        "raw_rows": "int",  # found + moved_in - moved_out
        "runs": "int",
        "runs_without_problems": "int",
        "faults": "text",  # JSON list of {file, line, reason, detail}: broken lines of the listing files
        "by_state": "text",  # JSON object state -> count
    },
    key=("day",),
    doc="how many pairs a day folder holds and where they went",
)

PROBLEM_SUITES = Table(
    "problem_suites",
    {
        "problem_id": "text",
        "day": "text",
        "suite_id": "text?",
        "problem_key": "text",  # digest of normalised query, reward ids and category
        "category": "text",  # lower case; "" when unknown
        "difficulty": "text?",
        "title": "text?",
        "query": "text?",  # null: known only from traces (race problems)
        "reward": "text?",  # JSON: object or list; null: hidden or unusable
        "reward_state": "text",  # public | hidden | invalid
        "reward_product_ids": "texts",
        "voucher": "text?",  # JSON object
        "source": "text",  # suite | problems | artifact
    },
    key=("problem_id", "suite_id"),
    doc="problems seen that day, with rewards where they are public",
    values={"reward_state": ("public", "hidden", "invalid")},
)

TRAJECTORIES = Table(
    "trajectories",
    {
        "trace_id": "text",
        "day": "text",
        **_RUN_CONTEXT,
        "readable": "bool",  # False: messages is "[]" and malformed names why
        "malformed": "text?",  # reason of quarantine
        "malformed_detail": "text?",
        "content_hash": "text?",  # SHA-256 of the canonical messages; null when unreadable
        "messages": "text",  # JSON: OpenAI chat messages
        "tools": "text",  # JSON: OpenAI tool schemas
        "query": "text?",  # as the trace states it (first step)
        "source_steps": "text",  # JSON: the dialogue as read, without proxy_calls and rendered content
        "evidence": "text",  # JSON: what traces.evidence.extract found
        "repairs": "text",  # JSON list of {reason, where, count}
        "flags": "texts",  # peculiarities that are no damage
        "steps": "int",
        "tool_calls": "int",
        "reader": "text",
        "reader_version": "text",
        "policy_checkpoint_id": "text?",
    },
    key=("trace_id",),
    big_text=True,
    doc="every raw trace as canonical OpenAI messages plus the evidence of its proxy log",
)

JUDGED_TRACES = Table(
    "judged_traces",
    {
        "trace_id": "text",
        "day": "text",
        "suite_id": "text?",
        "problem_id": "text?",
        "problem_key": "text?",
        "category": "text?",
        "query": "text?",  # the suite's where a binding exists, else the trace's
        "query_verified": "bool",
        "outcome": "text",  # success | failure | unscorable
        "reason": "text?",  # why unscorable
        "outcome_success": "bool?",  # rule score where the reward is public, else the validator's
        "outcome_source": "text",  # rule | validator | none
        "validator_success": "bool?",
        "validators_agree": "bool?",  # rule and validator on the same run; null when one is missing
        "other_validators_agree": "bool?",  # the runs of one agent version on one problem agree
        "score": "text",  # JSON object with the reference's field names
        "format": "float?",
        "length": "float?",
        "lenient_success": "bool?",  # under the lenient reading of the recommended ids; never below the strict one
        "lenient_score": "text",  # JSON object like score
        "recommended_ids": "texts",  # strict reading
        "lenient_ids": "texts",  # lenient reading (lists, numbers)
        "hallucinated_ids": "texts",  # recommended, in no tool result of the trace
        "unviewed_ids": "texts",  # recommended and seen, never opened
        "not_in_catalogue_ids": "texts",
        "discipline": "texts",  # violations: several_recommends, recommend_after_terminate, no_terminate, ...
        "injection_suspected": "bool",
        "injection_sources": "texts",
        "scorer_version": "text",
        "title_regime": "text",  # regime/encoder/attribute rule with their versions
    },
    key=("trace_id",),
    doc="the outcome axis: rule score, format, length, recommended ids and their provenance",
    values={
        "outcome": ("success", "failure", "unscorable"),
        "outcome_source": ("rule", "validator", "none"),
    },
)

VERDICTS = Table(
    "verdicts",
    {
        "trace_id": "text",
        "day": "text",
        "judge_kind": "text",  # validator | llm | rules
        "judge_model": "text",
        "reasoning_quality": "float?",
        "reasoning_coefficient": "float?",  # the formula applied to this trace
        "null_reason": "text?",  # why reasoning_quality is null
        "retryable": "bool",  # a null that the next materialisation tries again
        "rubric_version": "text",
        "score_regime": "text",  # discrete | continuous | continuous_step0_only | rules | llm
        "explanation": "text?",
        "cost_usd": "float",
        "cached": "bool",
        "gate_eligible": "bool",  # may the default gate be applied to it
    },
    key=("trace_id", "judge_kind", "judge_model"),
    doc="the reasoning axis: one row per trace and verdict source",
    values={"judge_kind": ("validator", "llm", "rules")},
)

JUDGE_CALLS = Table(
    "judge_calls",
    {
        "day": "text",  # subnet day whose traces were judged
        "sequence": "int",  # order of the calls of that day
        "call_key": "text",  # digest of what was asked, rubric, model and parameters; "" for a row about a batch
        "batch": "text",
        "canary": "text?",  # name of the canary; null for a trace
        "content_key": "text",  # digest of what the judge saw
        "judge_model": "text",
        "rubric_version": "text",
        "status": "text",  # ok | why there is no value (also timeout, interrupted ...) | batch_passed | batch_failed
        "quality": "float?",
        "explanation": "text?",
        "prompt_tokens": "int?",
        "completion_tokens": "int?",
        "cost_usd": "float",
        "cost_known": "bool",  # False: the endpoint told no token counts, the worst case is booked
        "attempt": "int",
        "raw_reply": "text",  # its first 4,000 characters
    },
    key=("sequence",),
    doc="every paid reply of an LLM judge, canaries included: the cache of verdicts and the account of their cost",
)

AXIS_A_CORPUS = Table(
    "axis_a_corpus",
    {
        "trace_id": "text",
        "day": "text",
        **_RUN_CONTEXT,
        "problem_key": "text?",
        "content_hash": "text",
        "messages": "text",
        "tools": "text",
        "axis_label": "text",
        "axis_share": "float?",
        "axis_reason": "text",
        "axis_source": "text",  # trace: by its own log | agent: by the agent version's evidenced traces
        "uses": "texts",
        "situation": "text",  # row of the table of uses
        "flags": "texts",  # violations and oddities that are no reason to reject
        "quality": "float",  # sampling weight
        "strategy_cluster": "text",
        "strategy_signature": "text",  # the calls with normalised arguments, for copies across days
        "outcome_success": "bool?",
        "outcome_source": "text",
        "reasoning_quality": "float?",
        "judge_kind": "text?",
        "score_regime": "text?",
        "query_verified": "bool",
        "recommended_ids": "texts",
        "filter_version": "text",
        "policy_checkpoint_id": "text?",
    },
    key=("trace_id",),
    big_text=True,
    doc="accepted traces: readable, usable, not injected, axis A, with their uses",
    values={"axis_label": ("A",), "axis_source": ("trace", "agent")},
)

REJECTED_TRACES = Table(
    "rejected_traces",
    {
        "trace_id": "text",
        "day": "text",
        "stage": "text",
        "reason": "text",
        "detail": "text?",
        "axis_label": "text?",
        "axis_share": "float?",
        "axis_reason": "text?",
        "duplicate_of": "text?",
        "retryable": "bool",
        "filter_version": "text",
    },
    key=("trace_id",),
    doc="every trace that is not in the corpus, with the stage and the reason",
)

LEAK_CLUSTERS = Table(
    "leak_clusters",
    {
        "day": "text",  # as of
        "problem_key": "text",
        "problem_ids": "texts",
        "suite_ids": "texts",
        "category": "text",
        "first_seen": "text",
        "cluster_id": "text",
        "pool": "text",
        "own_draw": "text",
        "held_out": "bool",
        "reward_state": "text",
        "cluster_size": "int",
        "diameter": "int?",  # longest shortest path between two members, in edges: 0 for a single problem
        "benchmark_overlap": "texts?",  # registered benchmarks that have a problem of this cluster
    },
    key=("problem_key",),
    doc="every problem ever seen up to the day: its leak cluster and pool",
    values={"pool": ("train", "dev", "sealed"), "own_draw": ("train", "dev", "sealed")},
)

LEAK_EDGES = Table(
    "leak_edges",
    {
        "day": "text",
        "left_key": "text",
        "right_key": "text",  # benchmark:{name}:{key} for a problem of a registered benchmark
        "kind": "text",  # product_id | query | problem_id | answer | constraints | successful_recommendation
        "value": "float",
        "evidence": "text",
    },
    key=("left_key", "right_key", "kind", "evidence"),
    doc="why two problems are in one cluster: every edge with its kind and measured value",
)

LEAK_HINTS = Table(
    "leak_hints",
    dict(LEAK_EDGES.columns),
    key=LEAK_EDGES.key,  # kinds: words | title | answer | embedding
    doc="weak evidence that two problems are alike: for review, never merged",
)

LEAK_GUARDED_SPLITS = Table(
    "leak_guarded_splits",
    {
        "trace_id": "text",
        "day": "text",  # as of
        "trace_day": "text",
        "problem_key": "text",
        "cluster_id": "text",
        "pool": "text",
        "uses": "texts",
        "quality": "float",
        "category": "text?",
        "content_hash": "text",
    },
    key=("trace_id",),
    doc="the training window as of a day: accepted traces with cluster and pool",
    values={"pool": ("train", "dev", "sealed")},
)

SPLIT_EXCLUSIONS = Table(
    "split_exclusions",
    {
        "trace_id": "text",
        "day": "text",
        "trace_day": "text",
        "reason": "text",
        "duplicate_of": "text?",
        "detail": "text?",  # the evidence, e.g. the share of a held-out query found in the row
    },
    key=("trace_id", "trace_day"),  # a pair that was judged again is in two days
    doc="accepted traces that the window's view removes (cross-day copies), as of a day",
)

CONTAMINATION = Table(
    "contamination",
    {
        "checkpoint_id": "text",
        "day": "text",  # as of
        "stage": "text",
        "problem_key": "text",
        "pool": "text",
        "cluster_id": "text",
        "status": "text",
        "overlap": "float",  # largest share of the problem's word n-grams found in one training row
        "traces": "texts",  # training traces concerned, at most 20
        "detail": "text?",
    },
    key=("checkpoint_id", "problem_key"),
    partition=("day", "stage"),
    doc="what every checkpoint has seen of every problem it is evaluated on, as of a day",
    values={"status": ("clean", "same_cluster", "near")},
)

CHECKPOINTS = Table(
    "checkpoints",
    {
        "checkpoint_id": "text",
        "day": "text",
        "stage": "text",
        "parent": "text?",
        "path": "text",  # relative to checkpoint_root
        "manifest": "text",  # JSON
        "trace_list_digest": "text",
        "traces": "int",
    },
    key=("checkpoint_id",),
    partition=("day", "stage"),
    doc="checkpoints by as-of day and stage, with their manifest",
)

CHECKPOINT_ROLES = (
    "train",  # a corpus row, supervised
    "generated",  # a rollout of the parent (re-SFT)
    "teacher",  # a teacher's rollout
    "desirable",  # KTO
    "undesirable",
    "prompt",  # a problem that was attempted in training (Dr. GRPO); trace_id = "prompt:" + problem_key
    "reference",  # the trace that grounded the rewards of such attempts
    "dev",
)

CHECKPOINT_TRACES = Table(
    "checkpoint_traces",
    {
        "checkpoint_id": "text",
        "day": "text",
        "stage": "text",
        "trace_id": "text",
        "role": "text",  # what the row was to this stage
        "weight": "float",
        "trace_day": "text",
        "problem_key": "text",
        "cluster_id": "text",
    },
    key=("checkpoint_id", "trace_id", "role"),
    partition=("day", "stage"),
    doc="which traces fed which checkpoint",
    values={"role": CHECKPOINT_ROLES},
)

GENERATED_TRACES = Table(
    "generated_traces",
    {
        "trace_id": "text",
        "day": "text",  # as of
        "stage": "text",  # resft | teacher_sft
        "source": "text",  # the parent checkpoint's id, or the teacher's name
        "problem_id": "text",
        "suite_id": "text?",
        "problem_key": "text",
        "cluster_id": "text",
        "category": "text",
        "sample": "int",
        "ending": "text",
        "outcome": "text",
        "success": "bool?",
        "accepted": "bool",  # a training row of the stage
        "reason": "text?",  # why not
        "detail": "text?",
        "conduct_score": "float?",
        "reasoning_quality": "float?",
        "judge_kind": "text?",
        "strategy_signature": "text",
        "recommended_ids": "texts",
        "hallucinated_ids": "texts",
        "content_hash": "text?",
        "messages": "text",
        "tools": "text",
        "prompt_tokens": "int?",
        "completion_tokens": "int?",
        "cost_usd": "float",
        "cached": "bool",
    },
    key=("trace_id",),
    partition=("day", "stage"),
    big_text=True,
    doc="what a parent or a teacher did on train problems: every attempt, and why it is a training row or not",
)

CHECKPOINT_LINEAGE = Table(
    "checkpoint_lineage",
    {
        "checkpoint_id": "text",
        "day": "text",
        "stage": "text",
        "role": "text",
        "trace_day": "text",
        "miner_hotkey": "text",  # "" when unknown
        "category": "text",
        "strategy_cluster": "text",
        "verdict_source": "text",  # judge_kind of the gate's verdict
        "traces": "int",
        "weight": "float",
    },
    key=("checkpoint_id", "role", "trace_day", "miner_hotkey", "category", "strategy_cluster", "verdict_source"),
    partition=("day", "stage"),
    doc="what a checkpoint was made of, counted: days, miners, categories, strategies, verdict sources",
)

ACTION_SCORES = Table(
    "action_scores",
    {
        "checkpoint_id": "text",
        "day": "text",
        "stage": "text",
        "trace_id": "text",
        "turn": "int",  # 0-based assistant turn
        "category": "text",
        "cluster_id": "text",
        "expected_tool": "text",
        "predicted_tool": "text?",
        "tool_correct": "bool",
        "arguments_correct": "bool",
        "parse_error": "text?",
        "generated_tokens": "int",
        "clipped": "bool",
    },
    key=("checkpoint_id", "trace_id", "turn"),
    partition=("day", "stage"),
    doc="teacher-forced next-action scores on dev traces",
)

ROLLOUTS = Table(
    "rollouts",
    {
        "trace_id": "text",  # {rollout run}:{problem_id}, like the trace of any miner
        "day": "text",
        "stage": "text",
        "checkpoint_id": "text",  # or the name of an endpoint or script
        "problem_id": "text",
        "suite_id": "text?",
        "problem_key": "text",
        "sample": "int",  # 0-based attempt at the same problem
        "category": "text",
        "ending": "text",  # terminate | no_call | step_limit | token_limit | timeout | policy_error | ...
        "ending_detail": "text?",
        "content_hash": "text?",
        "messages": "text",  # JSON: canonical messages, as trajectories.messages
        "tools": "text",
        "source_steps": "text",  # JSON: the dialogue with its proxy log, in the published form
        "evidence": "text",  # JSON, as trajectories.evidence
        "repairs": "text",
        "steps": "int",
        "tool_calls": "int",
        "prompt_tokens": "int?",
        "completion_tokens": "int?",
        "truncated_replies": "int",
        "seconds": "float",  # measured, hence not the same in two runs
        "cost_usd": "float",
    },
    key=("trace_id",),
    partition=("day", "stage"),
    big_text=True,
    doc="what policies did in the sandbox: one canonical trace with its proxy log per problem and attempt",
)

EVAL_SCORES = Table(
    "eval_scores",
    {
        "checkpoint_id": "text",
        "day": "text",
        "stage": "text",
        "problem_id": "text",
        "suite_id": "text?",
        "problem_key": "text",
        "sample": "int",
        "pool": "text",
        "category": "text",
        "cluster_id": "text",
        "trace_id": "text?",  # null: the attempt left no trace
        "outcome": "text",  # success | failure | unscorable | crash | timeout | no_reward
        "success": "bool?",  # null only for no_reward: everything else that is no success is a failure
        "reason": "text?",
        "ending": "text",
        "score": "text",  # JSON object with the reference's field names
        "lenient_success": "bool?",
        "format": "float?",
        "length": "float?",
        "conduct_score": "float?",  # how it was conducted, by itself: evaluation.conduct, 0 to 1
        "process_score": "float?",  # mean turn reward against the reference, -1 to 1; null without one
        "process_reference": "text?",  # trace id of the reference: the best strict success of the same problem
        "process_version": "text?",
        "recommended_ids": "texts",
        "hallucinated_ids": "texts",  # recommended, in no tool result of the attempt
        "unviewed_ids": "texts",  # recommended and seen, never opened
        "discipline": "texts",
        "steps": "int",
        "tool_calls": "int",
        "prompt_tokens": "int?",
        "completion_tokens": "int?",
        "truncated": "bool",  # a reply or the whole attempt was cut by a limit
        "seconds": "float",
        "cost_usd": "float",
    },
    key=("checkpoint_id", "problem_key", "sample"),
    partition=("day", "stage"),
    doc="strict task scores: one row per checkpoint, problem and attempt",
    values={
        "outcome": ("success", "failure", "unscorable", "crash", "timeout", "no_reward"),
        "pool": ("train", "dev", "sealed", "benchmark"),
    },
)

RETRACTIONS = Table(
    "retractions",
    {
        "retraction_id": "text",
        "day": "text",  # UTC day on which it was written, no subnet day
        "at": "time",
        "who": "text",
        "kind": "text",
        "subject": "text",  # a trace id, a run id or a hotkey, as found in the lake
        "reason": "text",
        "traces": "int",  # known when it was written
        "checkpoints": "texts",  # to be retrained when it was written, ancestors first
        "copies": "texts",  # other accepted or generated traces with the same text, which go as well
        "content_hashes": "texts",  # of the retracted texts, so that a copy that comes later is known
    },
    key=("retraction_id",),
    doc="tombstones, append-only: what must not be used or kept any more, since when, by whom and why",
    values={"kind": ("trace", "run", "miner")},
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        RAW_TRACES,
        DAY_SUMMARIES,
        PROBLEM_SUITES,
        TRAJECTORIES,
        JUDGED_TRACES,
        VERDICTS,
        JUDGE_CALLS,
        AXIS_A_CORPUS,
        REJECTED_TRACES,
        LEAK_CLUSTERS,
        LEAK_EDGES,
        LEAK_HINTS,
        LEAK_GUARDED_SPLITS,
        SPLIT_EXCLUSIONS,
        CHECKPOINTS,
        CHECKPOINT_TRACES,
        GENERATED_TRACES,
        CHECKPOINT_LINEAGE,
        CONTAMINATION,
        ACTION_SCORES,
        ROLLOUTS,
        EVAL_SCORES,
        RETRACTIONS,
    )
}
