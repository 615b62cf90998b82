"""The filter's stages that look at one trace: a table of small pure functions, each with its version and reasons.

A stage gets a ``Case`` and objects with a ``Rejection`` or stays silent. Which objection counts is decided by the order
in the configuration; with ``--all-reasons`` every stage is asked. ``docs/filter.md`` is generated from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from trajectory_platform.curation.agency import AxisDecision
from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.curation.read_reasons import READ_REASONS
from trajectory_platform.errors import RejectRow

Row = dict[str, Any]
# What is merely not shown; a log that is forged, cannot be true or was bypassed is never excused by other traces.
UNEVIDENCED = frozenset({"log_absent", "replies_truncated"})


class Rejection(NamedTuple):
    """Why a row is not in the corpus. ``duplicate_of`` names the survivor of a duplicate."""

    stage: str
    reason: str
    detail: str | None = None
    duplicate_of: str | None = None
    retryable: bool = False


class Case(NamedTuple):
    """One raw row with everything known about it; what a stage of this row has no access to is None.

    Attributes:
        raw: RAW_TRACES row.
        row: TRAJECTORIES row, None where the raw row is no trace.
        messages: canonical messages, None where they cannot be read.
        judged, verdict: JUDGED_TRACES row and the effective verdict.
        proven: the agent version's evidenced traces are axis A (only with ``accept_proven_agents``).
    """

    raw: Mapping[str, Any]
    row: Mapping[str, Any] | None
    messages: list[dict[str, Any]] | None
    axis: AxisDecision | None
    judged: Mapping[str, Any] | None
    verdict: Mapping[str, Any] | None
    config: FilterConfig
    proven: bool = False


class FilterStage(NamedTuple):
    """One stage: what it is for, the reasons it can give (with their meaning) and its check."""

    name: str
    version: int
    purpose: str
    reasons: tuple[tuple[str, str], ...]
    check: Callable[[Case], Rejection | None]


def _ingest(case: Case) -> Rejection | None:
    raw = case.raw
    if raw["state"] in ("trace", "unreadable"):
        return None
    detail = ": ".join(part for part in (raw["state_reason"], raw["state_detail"]) if part) or None
    return Rejection("ingest", raw["state"], detail, retryable=raw["state"] == "not_final")


def _read(case: Case) -> Rejection | None:
    raw, row = case.raw, case.row
    if raw["state"] == "unreadable" and not (_is_duplicate(raw) and case.config.active("duplicate")):
        return Rejection("read", raw["state_reason"] or "unreadable", raw["state_detail"])
    if raw["state"] != "trace":
        return None
    if row is None:
        return Rejection("read", "trajectory_missing", "no trajectory was read for this trace", None, True)
    if not row["readable"] or row["malformed"]:
        return Rejection("read", row["malformed"] or "malformed", row["malformed_detail"])
    return None


def _duplicate(case: Case) -> Rejection | None:
    raw = case.raw
    if _is_duplicate(raw):
        first = raw["trace_id"].rpartition("#")[0] or None
        return Rejection("duplicate", "duplicate_line", raw["state_detail"], duplicate_of=first)
    if raw["state"] == "trace" and raw["duplicates_differ"]:
        # The scored dialogue may be another than the published one (domain 8.5): the first line has no use either.
        return Rejection("duplicate", "conflicting_lines", "further lines for this problem differ from the first")
    return None


def _is_duplicate(raw: Mapping[str, Any]) -> bool:
    return bool(raw["state"] == "unreadable" and raw["state_reason"] == "duplicate_line")


def _injection(case: Case) -> Rejection | None:
    if case.judged is None or not case.judged["injection_suspected"]:
        return None
    return Rejection("injection", "injection", ",".join(case.judged["injection_sources"]))


def _protocol(case: Case) -> Rejection | None:
    if case.messages is None:
        return None
    turns = [message for message in case.messages if message.get("role") == "assistant"]
    if not turns:
        return Rejection("protocol", "no_assistant_turn", "the dialogue has no reply of the agent")
    if not any(message.get("tool_calls") for message in turns):
        return Rejection("protocol", "no_tool_call", "no tool was called: there is no action to learn from")
    return None


def _format(case: Case) -> Rejection | None:
    """What no chat template can carry: such a row would be lost in training, after it was counted as accepted."""
    # Only a text with "<" can hold a tag or a control token; arguments were written by the reader.
    if case.messages is None or case.row is None or "<" not in case.row["messages"]:
        return None
    from trajectory_platform.traces.rendering import chat_messages

    try:
        chat_messages(case.messages)
    except RejectRow as error:
        return Rejection("format", error.reason, error.detail)
    return None


def _axis(case: Case) -> Rejection | None:
    axis = case.axis
    if axis is None:
        return None
    if axis.label == "unknown" and case.proven and axis.reason in UNEVIDENCED and not axis.theatre_suspected:
        return None
    if axis.label != "A":
        return Rejection("axis", f"axis_{axis.label.lower()}", axis.reason)
    # Label A stays what the log supports; a log that looks staged is still nothing to imitate (domain 6: 36, 42).
    if axis.theatre_suspected:
        return Rejection("axis", "axis_theatre", "the emitted calls stood verbatim in the prompt")
    if axis.notes:
        return Rejection("axis", "axis_log_suspect", ",".join(axis.notes))
    return None


def _outcome(case: Case) -> Rejection | None:
    """No outcome, or one that contradicts the validator's verdict on the same run."""
    judged = case.judged
    if judged is None:
        return Rejection("outcome", "no_outcome", "the trace was never scored", retryable=True)
    if judged["outcome"] == "unscorable" and judged["reason"] != "reward_hidden":
        return Rejection("outcome", "unscorable", judged["reason"])
    if judged["outcome_source"] == "rule" and judged["validators_agree"] is False:
        told = "success" if judged["validator_success"] else "failure"
        return Rejection("outcome", "verdict_mismatch", f"rule says {judged['outcome']}, validator says {told}")
    if judged["outcome_success"] is None:
        return Rejection("outcome", "no_outcome", "the reward is hidden and no validator's verdict is known")
    return None


def _judge(case: Case) -> Rejection | None:
    """Nothing the reasoning gate could read."""
    verdict = case.verdict
    if verdict is None:
        return Rejection("judge", "unjudged", "no verdict", retryable=True)
    if verdict["reasoning_quality"] is None:
        return Rejection("judge", "unjudged", verdict["null_reason"], retryable=True)
    if verdict["score_regime"] not in case.config.reasoning:
        detail = f"no gate for the {verdict['score_regime']} regime"
        return Rejection("judge", "unjudged", detail, retryable=True)
    return None


ROW_STAGE_TABLE: tuple[FilterStage, ...] = (
    FilterStage(
        "ingest", 1, "Only final and usable runs that left a trace.",
        (
            ("not_final", "the run or the problem is still pending or running; retried"),
            ("run_unusable", "the run was invalidated, excluded, stale, cancelled, failed or timed out"),
            ("no_trace", "nothing was published for the pair, or an empty dialogue"),
        ),
        _ingest,
    ),
    FilterStage("read", 1, "Only what can be read without guessing.", READ_REASONS, _read),
    FilterStage(
        "duplicate", 1, "One line per problem and file.",
        (
            ("duplicate_line", "a further line for a problem that the file has already; names the first"),
            ("conflicting_lines", "the lines differ, so that the scored one may be another"),
        ),
        _duplicate,
    ),
    FilterStage(
        "injection", 1, "Nothing that was written to steer a judge or a model.",
        (("injection", "text that addresses the judge or lifts the rules; the detail says where"),),
        _injection,
    ),
    FilterStage(
        "protocol", 1, "A dialogue in which the agent acts.",
        (
            ("no_assistant_turn", "no reply of the agent"),
            ("no_tool_call", "no tool was called"),
        ),
        _protocol,
    ),
    FilterStage(
        "format", 1, "Rows that a chat template carries unchanged.",
        (
            ("tag_in_reply", "a delimiting tag inside the agent's own text"),
            ("control_token_in_text", "a token of the chat template inside a text"),
            ("arguments_not_object", "call arguments that are no object"),
            ("bad_messages", "a message the template has no place for"),
        ),
        _format,
    ),
    FilterStage(
        "axis", 1, "Only traces in which the model itself emitted the calls (axis A).",
        (
            ("axis_b", "code made the calls"),
            ("axis_mixed", "some of the calls were the model's"),
            ("axis_unknown", "the request log is absent, cut or cannot be true"),
            ("axis_theatre", "the calls stood verbatim in the prompt: the model was told to repeat them"),
            ("axis_log_suspect", "the log contradicts itself, or lists calls of which few were made; see the detail"),
        ),
        _axis,
    ),
    FilterStage(
        "outcome", 1, "A known outcome that nobody contradicts.",
        (
            ("unscorable", "the reference scorer raises on the trace"),
            ("verdict_mismatch", "the rule score and the validator of the same run disagree"),
            ("no_outcome", "neither a public reward nor a validator's verdict"),
        ),
        _outcome,
    ),
    FilterStage(
        "judge", 1, "A verdict of the reasoning that a gate can read.",
        (("unjudged", "no verdict, a failed judgment, or a scale without a gate; retried"),),
        _judge,
    ),
)  # fmt: skip
_BY_NAME = {stage.name: stage for stage in ROW_STAGE_TABLE}

# The stages that look at the survivors of a day, in their order; their code is in ``copies`` and ``caps``.
DAY_STAGE_TABLE: tuple[tuple[str, int, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "copies", 1, "Every dialogue once.",
        (("exact_copy", "the canonical messages equal those of an earlier trace; names the survivor"),),
    ),
    (
        "strategy", 1, "One of several agents that do the same on one problem.",
        (("strategy_copy", "a near-equal call sequence of another agent on the same problem; names the survivor"),),
    ),
    (
        "caps", 1, "Not too much of one source on one problem.",
        (
            ("cap_agent_problem", "more traces of one agent version on the problem than the cap"),
            ("cap_miner_problem", "more traces of one miner on the problem than the cap"),
            ("cap_problem", "more traces on the problem than the cap"),
        ),
    ),
)  # fmt: skip


def objections(case: Case) -> Iterator[Rejection]:
    """What the active stages have against a row, in the configured order. The first is the rejecting one."""
    for name in case.config.order:
        if case.config.active(name):
            found = _BY_NAME[name].check(case)
            if found is not None:
                yield found


def first_objection(case: Case) -> Rejection | None:
    """The objection that rejects a row, or None."""
    return next(objections(case), None)


def stage_versions() -> str:
    """Name and version of every stage, for the identity of a partition."""
    named = [
        *((stage.name, stage.version) for stage in ROW_STAGE_TABLE),
        *((row[0], row[1]) for row in DAY_STAGE_TABLE),
    ]
    return ",".join(f"{name}{version}" for name, version in named)
