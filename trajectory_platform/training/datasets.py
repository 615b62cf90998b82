"""Canonical traces to token rows with labels: the loss falls on what the model wrote and on nothing else.

Rows are tokenised here, not by the trainer: free-form arguments never enter a typed column (cases B07, B09), every
row keeps its ``trace_id`` and leak cluster to the last step, and the trained text can be compared with the assistant
turns before the first step is taken.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import FailPartition, RejectRow
from trajectory_platform.evaluation.context import Context, ContextPolicy, Contexts, contexts_of
from trajectory_platform.identity import digest_json, sha256_hex
from trajectory_platform.traces.rendering import chat_messages, fold_results, parse_messages, parse_tools

if TYPE_CHECKING:
    import pyarrow as pa
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
MAX_IDS = 50  # ids named in an error message; all of them are in the report


@dataclass(frozen=True)
class TraceRow:
    """One trace of the train pool, as parsed from the lake's JSON text columns.

    ``role``: what the row is to the stage (``lake.tables.CHECKPOINT_ROLES``); ``extra``: what its trainer needs
    besides.
    """

    trace_id: str
    leak_cluster: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    weight: float = 1.0
    trace_day: str = ""
    problem_key: str = ""
    role: str = "train"
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """(trace id, role): what a row is known by in a stage."""
        return self.trace_id, self.role

    def digest(self) -> str:
        """Digest of what the model sees; a missing, null or empty tool list is the same (case B12)."""
        return digest_json({"messages": self.messages, "tools": self.tools})


class Example(NamedTuple):
    """One context with labels (``-100`` = no loss); ids and labels have equal length."""

    trace_id: str
    leak_cluster: str
    input_ids: list[int]
    labels: list[int]
    context: Context
    role: str = "train"


class Built(NamedTuple):
    """Examples by trace and the report on what did not become one."""

    examples: dict[str, list[Example]]
    report: dict[str, Any]


def rows_of(table: pa.Table) -> tuple[list[TraceRow], list[dict[str, str]]]:
    """(rows sorted by ``trace_id`` and role, dropped rows with reason) of a table with the columns of a job's row file.

    Raises:
        FailPartition: the same trace twice in one role.
    """
    rows: list[TraceRow] = []
    dropped: list[dict[str, str]] = []
    seen: set[tuple[str, str]] = set()
    for record in sorted(table.to_pylist(), key=_key_of):
        key = _key_of(record)
        if key in seen:
            raise FailPartition(f"row {key[0]} stands twice among the {key[1]} rows")
        seen.add(key)
        try:
            rows.append(
                TraceRow(
                    trace_id=record["trace_id"],
                    leak_cluster=record["leak_cluster"],
                    messages=parse_messages(record["messages"]),
                    tools=parse_tools(record.get("tools")),
                    weight=float(record.get("weight") if record.get("weight") is not None else 1.0),
                    trace_day=record.get("trace_day") or "",
                    problem_key=record.get("problem_key") or "",
                    role=key[1],
                    extra=_extra(record.get("extra")),
                )
            )
        except RejectRow as error:
            dropped.append({"trace_id": key[0], "role": key[1], "reason": error.reason, "detail": error.detail})
    return rows, dropped


def _key_of(record: Mapping[str, Any]) -> tuple[str, str]:
    return record["trace_id"], record.get("role") or "train"


def _extra(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RejectRow("bad_extra", str(error)) from error
    if not isinstance(value, dict):
        raise RejectRow("bad_extra", "expected an object")
    return value


def renderable(rows: Iterable[TraceRow], policy: ContextPolicy) -> tuple[list[TraceRow], list[dict[str, str]]]:
    """Split rows into those a chat template can take and those it cannot, with the reason."""
    good, dropped = [], []
    for row in rows:
        try:
            chat_messages(row.messages, max_result_chars=policy.max_result_chars)
        except RejectRow as error:
            dropped.append({"trace_id": row.trace_id, "reason": error.reason, "detail": error.detail})
        else:
            good.append(row)
    return good, dropped


def build_examples(
    rows: Sequence[TraceRow], tokenizer: PreTrainedTokenizerBase, policy: ContextPolicy, *, max_lost_share: float
) -> Built:
    """Tokenise, mask and cut.

    A row too long for one context becomes several, cut between turns (``evaluation.context``). A turn that fits
    nowhere is lost and its row reported; a row without any trained turn is dropped as
    ``no_trained_tokens_after_truncation`` (case B04).

    Raises:
        FailPartition: more than ``max_lost_share`` of the rows lost something, or the template marks no turns (B03).
    """
    examples: dict[str, list[Example]] = {}
    dropped: list[dict[str, str]] = []
    cut: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    for row in rows:
        try:
            found = contexts_of(tokenizer, row.messages, row.tools, policy)
        except RejectRow as error:
            if error.reason == "no_generation_markers":
                raise FailPartition(f"row {row.trace_id}: {error}; loss on assistant turns is impossible") from error
            dropped.append({"trace_id": row.trace_id, "reason": error.reason, "detail": error.detail})
            continue
        counts["cut_results"] += found.cut_results
        if not found.contexts:
            dropped.append({"trace_id": row.trace_id, **_why_nothing(found)})
            continue
        if found.lost:
            cut.append(
                {"trace_id": row.trace_id, "turns": sorted(found.lost), "reasons": sorted(set(found.lost.values()))}
            )
        examples[row.trace_id] = [_example(row, context) for context in found.contexts]
        counts["contexts"] += len(found.contexts)
        counts["folded_results"] += sum(context.folded for context in found.contexts)
    report = _report(rows, examples, dropped, cut, counts)
    check_lost_share(report, len(rows), max_lost_share)
    return Built(examples, report)


def check_lost_share(report: Mapping[str, Any], rows: int, max_lost_share: float) -> None:
    """Raise ``FailPartition`` when dropped and cut rows together are more than the allowed share."""
    lost = [row["trace_id"] for row in [*report["dropped_rows"], *report["cut_rows"]]]
    if rows and len(lost) / rows > max_lost_share:
        raise FailPartition(
            f"{len(lost)} of {rows} training rows lost a turn or were dropped, more than max_lost_share "
            f"{max_lost_share}: {', '.join(lost[:MAX_IDS])}"
        )


def preflight(
    built: Built,
    rows: Sequence[TraceRow],
    tokenizer: PreTrainedTokenizerBase,
    policy: ContextPolicy,
    *,
    sample: int = 32,
) -> dict[str, Any]:
    """What must hold before training starts; returns trained tokens by role.

    Every example has trained tokens, and no trained token lies outside an assistant message. For ``sample`` rows
    (fixed by their ids) the trained text equals the assistant turns, each ending in the end-of-turn token.

    Raises:
        FailPartition: names the row and what differs.
    """
    by_role: Counter[str] = Counter()
    for examples in built.examples.values():
        for example in examples:
            if all(label == IGNORED for label in example.labels):
                raise FailPartition(f"row {example.trace_id}: no trained token")
            roles = roles_of(tokenizer, example.input_ids)
            by_role.update(role for role, label in zip(roles, example.labels, strict=True) if label != IGNORED)
    wrong = {role: count for role, count in by_role.items() if role != "assistant"}
    if wrong:
        raise FailPartition(f"loss outside assistant messages: {wrong} tokens; nothing was trained")
    chosen = sorted(
        (row for row in rows if row.trace_id in built.examples), key=lambda row: sha256_hex(row.trace_id.encode())
    )
    for row in chosen[:sample]:
        _compare_texts(row, built.examples[row.trace_id], tokenizer, policy)
    return {"trained_tokens": {role: by_role.get(role, 0) for role in ("assistant", "user", "tool", "system")}}


def roles_of(tokenizer: PreTrainedTokenizerBase, input_ids: Sequence[int]) -> list[str]:
    """The role of the message each token belongs to (Qwen3 prints tool results as ``user`` with a response tag)."""
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    starts = [position for position, token in enumerate(input_ids) if token == start]
    roles = ["none"] * (starts[0] if starts else len(input_ids))
    for begin, end in zip(starts, [*starts[1:], len(input_ids)], strict=True):
        opening = str(tokenizer.decode(list(input_ids[begin + 1 : min(begin + 17, end)])))
        role, _, text = opening.partition("\n")
        role = "tool" if role.strip() == "user" and text.startswith("<tool_response>") else role.strip()
        roles += [role] * (end - begin)
    return roles


def duplicates_of(rows: Sequence[TraceRow]) -> list[dict[str, str]]:
    """Rows with the same content as an earlier one (by id), each with the row it repeats; reported, not removed."""
    first: dict[str, str] = {}
    found = []
    for row in rows:
        survivor = first.setdefault(row.digest(), row.trace_id)
        if survivor != row.trace_id:
            found.append({"trace_id": row.trace_id, "duplicate_of": survivor})
    return found


def _example(row: TraceRow, context: Context) -> Example:
    labels = [IGNORED] * len(context.input_ids)
    for turn in context.turns:
        labels[turn.start : turn.stop] = context.input_ids[turn.start : turn.stop]
    return Example(row.trace_id, row.leak_cluster, context.input_ids, labels, context, row.role)


def _why_nothing(found: Contexts) -> dict[str, str]:
    if not found.lost:
        return {"reason": "no_assistant_turn", "detail": ""}
    return {"reason": "no_trained_tokens_after_truncation", "detail": ", ".join(sorted(set(found.lost.values())))}


def _report(
    rows: Sequence[TraceRow],
    examples: Mapping[str, list[Example]],
    dropped: list[dict[str, str]],
    cut: list[dict[str, Any]],
    counts: Counter[str],
) -> dict[str, Any]:
    flat = [example for group in examples.values() for example in group]
    return {
        "rows": len(rows),
        "rows_used": len(examples),
        "dropped_rows": dropped,
        "cut_rows": cut,
        "duplicate_rows": duplicates_of(rows),
        "contexts": counts["contexts"],
        "cut_results": counts["cut_results"],
        "folded_results": counts["folded_results"],
        "tokens": sum(len(example.input_ids) for example in flat),
        "tokens_with_loss": sum(label != IGNORED for example in flat for label in example.labels),
    }


def _compare_texts(
    row: TraceRow, examples: Sequence[Example], tokenizer: PreTrainedTokenizerBase, policy: ContextPolicy
) -> None:
    chat = chat_messages(row.messages, max_result_chars=policy.max_result_chars).messages
    assistant = [position for position, message in enumerate(chat) if message["role"] == "assistant"]
    for example in examples:
        seen = fold_results(chat, example.context.folded)
        for turn in example.context.turns:
            position = assistant[turn.number]
            before = _text(tokenizer, seen[:position], row.tools, prompt=True)
            whole = _text(tokenizer, seen[: position + 1], row.tools, prompt=False)
            trained = tokenizer.decode(example.input_ids[turn.start : turn.stop])
            expected = _as_tokens_say(tokenizer, whole[len(before) :])
            if not whole.startswith(before) or expected != trained:
                raise FailPartition(
                    f"row {row.trace_id}, turn {turn.number}: the trained text is not the assistant turn "
                    f"(trained {trained[:120]!r}, expected {expected[:120]!r})"
                )
            if tokenizer.eos_token not in trained:
                raise FailPartition(f"row {row.trace_id}, turn {turn.number}: the end of the turn is not trained")


def _as_tokens_say(tokenizer: Any, text: str) -> str:
    """A text as its tokens spell it: Qwen's tokenizer composes accents (NFC), which is no fault of a row."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    return text if normalizer is None else str(normalizer.normalize_str(text))


def _text(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], *, prompt: bool
) -> str:
    return str(
        tokenizer.apply_chat_template(
            list(messages), tools=list(tools) or None, tokenize=False, add_generation_prompt=prompt
        )
    )
