"""Teacher-forced next-action accuracy: would the model call the tool the trace called, with the same arguments?

For every assistant turn of a dev trace the history is rendered exactly as at inference
(``evaluation.context``), the model answers greedily, and its answer is read by the same parser that reads miners'
replies. The score says how well the protocol and the next step are imitated; it is no task success.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import RejectRow
from trajectory_platform.evaluation.context import ContextPolicy, contexts_of
from trajectory_platform.evaluation.plan import ActionPlan
from trajectory_platform.identity import sha256_hex
from trajectory_platform.traces.rendering import parse_messages, parse_tools
from trajectory_platform.traces.toolcalls import normalise_arguments, parse_arguments, parse_reply

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

VERSION = "actions-1"  # raise it when the same checkpoint would score otherwise
NO_CALL = "no_call"  # the tool of a turn that calls none


@dataclass(frozen=True)
class DevTrace:
    """A trace to score on."""

    trace_id: str
    category: str
    cluster_id: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> DevTrace:
        """From a row with JSON text columns; raises ``RejectRow`` when they cannot be read."""
        return cls(
            trace_id=record["trace_id"],
            category=record.get("category") or "unknown",
            cluster_id=record["cluster_id"],
            messages=parse_messages(record["messages"]),
            tools=parse_tools(record.get("tools")),
        )


class Prompt(NamedTuple):
    """One turn to answer: tokens of its history and the calls the trace made there."""

    trace: DevTrace
    turn: int
    ids: list[int]
    expected: tuple[tuple[str, str], ...]  # (tool, arguments in comparison form)


class Prompts(NamedTuple):
    """Turns to answer and what is left out: ``skipped`` counts turns by reason."""

    prompts: list[Prompt]
    turns: int
    skipped: dict[str, int]


def sampled_turns(traces: Sequence[DevTrace], plan: ActionPlan) -> dict[str, list[int]]:
    """Which turns of which traces are scored: all, or the ``max_turns`` with the smallest keyed hash."""
    every = [
        (sha256_hex(f"{plan.seed}:{trace.trace_id}:{turn}".encode()), trace.trace_id, turn)
        for trace in traces
        for turn in range(sum(message.get("role") == "assistant" for message in trace.messages))
    ]
    chosen: dict[str, list[int]] = {}
    for _, trace_id, turn in sorted(every)[: plan.max_turns]:
        chosen.setdefault(trace_id, []).append(turn)
    return {trace_id: sorted(turns) for trace_id, turns in chosen.items()}


def build_prompts(
    traces: Sequence[DevTrace], tokenizer: PreTrainedTokenizerBase, policy: ContextPolicy, plan: ActionPlan
) -> Prompts:
    """The prompts of the sampled turns; a turn that fits no context, or a row that cannot be rendered, is counted."""
    chosen = sampled_turns(traces, plan)
    prompts: list[Prompt] = []
    skipped: Counter[str] = Counter()
    for trace in traces:
        turns = chosen.get(trace.trace_id, [])
        if not turns:
            continue
        try:
            expected = [_expected(message) for message in trace.messages if message.get("role") == "assistant"]
            found = contexts_of(tokenizer, trace.messages, trace.tools, policy)
        except RejectRow as error:
            skipped[error.reason] += len(turns)
            continue
        starts = {turn.number: context.input_ids[: turn.start] for context in found.contexts for turn in context.turns}
        for turn in turns:
            if turn in starts:
                prompts.append(Prompt(trace, turn, starts[turn], expected[turn]))
            else:
                skipped[found.lost[turn]] += 1
    return Prompts(prompts, sum(len(turns) for turns in chosen.values()), dict(sorted(skipped.items())))


def score_actions(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Prompt],
    *,
    policy: ContextPolicy,
    plan: ActionPlan,
    report: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Answer every prompt greedily and compare; rows of ``action_scores`` without checkpoint, day and stage.

    Rows are sorted by (trace_id, turn). Batches hold prompts of like length, in an order fixed by the prompts.
    """
    rows: list[dict[str, Any]] = []
    ordered = sorted(prompts, key=lambda prompt: (len(prompt.ids), prompt.trace.trace_id, prompt.turn))
    for number, batch in enumerate(_batches(ordered, plan.batch)):
        for prompt, new in zip(batch, _generate(model, tokenizer, batch, policy.reply_tokens), strict=True):
            rows.append(_score(prompt, new, tokenizer))
        if number % 4 == 0:
            report(f"scored {len(rows)} of {len(prompts)} turns")
    return sorted(rows, key=lambda row: (row["trace_id"], row["turn"]))


def _batches(prompts: Sequence[Prompt], size: int) -> Iterator[Sequence[Prompt]]:
    for begin in range(0, len(prompts), size):
        yield prompts[begin : begin + size]


def _generate(model: Any, tokenizer: Any, batch: Sequence[Prompt], new_tokens: int) -> list[list[int]]:
    """New tokens per prompt, up to and with the end token if there is one; greedy, left-padded, with a KV cache."""
    import torch

    width = max(len(prompt.ids) for prompt in batch)
    ids = torch.full((len(batch), width), tokenizer.pad_token_id, dtype=torch.long)
    mask = torch.zeros((len(batch), width), dtype=torch.long)
    for row, prompt in enumerate(batch):
        ids[row, width - len(prompt.ids) :] = torch.tensor(prompt.ids)
        mask[row, width - len(prompt.ids) :] = 1
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=new_tokens,
            do_sample=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    end = tokenizer.eos_token_id
    replies = []
    for row in out[:, width:].tolist():
        replies.append(row[: row.index(end) + 1] if end in row else row)
    return replies


def _score(prompt: Prompt, new: list[int], tokenizer: Any) -> dict[str, Any]:
    clipped = tokenizer.eos_token_id not in new
    text = tokenizer.decode(new[: None if clipped else -1])
    reply = parse_reply(text)
    error = reply.error or ("truncated" if clipped else None)
    predicted = tuple((call.name, normalise_arguments(call.name, call.arguments)) for call in reply.calls)
    names, wanted = tuple(name for name, _ in predicted), tuple(name for name, _ in prompt.expected)
    tool_correct = error is None and names == wanted
    return {
        "trace_id": prompt.trace.trace_id,
        "turn": prompt.turn,
        "category": prompt.trace.category,
        "cluster_id": prompt.trace.cluster_id,
        "expected_tool": _shown(wanted),
        "predicted_tool": None if error is not None else _shown(names),
        "tool_correct": tool_correct,
        "arguments_correct": tool_correct and predicted == prompt.expected,
        "parse_error": error,
        "generated_tokens": len(new),
        "clipped": clipped,
    }


def _expected(message: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    calls = []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        arguments, _ = parse_arguments(function["arguments"])
        calls.append((function["name"], normalise_arguments(function["name"], arguments)))
    return tuple(calls)


def _shown(names: Sequence[str]) -> str:
    return "+".join(names) if names else NO_CALL
