"""The context of every assistant turn, in tokens: one function for training, evaluation and rollouts.

A trace that fits is one context. In a longer one the oldest tool results are left out *before* a turn whose history
would not fit, and stay out from there on; the choice looks only at what came before the turn, so an agent at
inference makes the same one. Each assistant turn belongs to exactly one context, hence none is trained twice and
none is lost as long as its own text fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trajectory_platform.errors import RejectRow
from trajectory_platform.traces.rendering import chat_messages, fold_results

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ContextPolicy(BaseModel):
    """How much of a trace a model sees; recorded in the recipe, so that evaluation repeats what training did."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    max_length: int = Field(2048, ge=64, description="tokens of history and reply together")
    reply_tokens: int = Field(256, ge=8, description="tokens kept free for the reply; the limit of generation too")
    max_result_chars: int | None = Field(None, ge=1, description="characters of a tool result the model sees")

    @model_validator(mode="after")
    def _history_has_room(self) -> ContextPolicy:
        if self.reply_tokens * 2 > self.max_length:
            raise ValueError("reply_tokens must be at most half of max_length")
        return self


class Turn(NamedTuple):
    """One assistant turn inside a context: its 0-based number and its token span ``[start, stop)``."""

    number: int
    start: int
    stop: int


class Context(NamedTuple):
    """A token sequence and the assistant turns that are scored (or trained) in it.

    Attributes:
        input_ids: tokens from the start of the trace to the end of the last turn.
        turns: turns that belong to this context; earlier ones in it belong to a context before.
        folded: tool results left out.
    """

    input_ids: list[int]
    turns: list[Turn]
    folded: int


class Contexts(NamedTuple):
    """All contexts of a trace; ``lost`` maps the number of a turn that fits nowhere to the reason."""

    contexts: list[Context]
    lost: dict[int, str]
    cut_results: int


def encode(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Token ids of chat messages and the span of each assistant turn, as the template's generation markers give them.

    Raises:
        RejectRow: ``no_generation_markers`` when the template marks fewer turns than there are (case B03).
    """
    encoded = tokenizer.apply_chat_template(
        [dict(message) for message in messages],
        tools=[dict(tool) for tool in tools] or None,
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    ids, mask = list(encoded["input_ids"]), encoded["assistant_masks"]
    spans: list[tuple[int, int]] = []
    start: int | None = None
    for position, inside in enumerate([*mask, 0]):
        if inside and start is None:
            start = position
        elif not inside and start is not None:
            spans.append((start, position))
            start = None
    turns = sum(message["role"] == "assistant" for message in messages)
    if len(spans) != turns:
        raise RejectRow("no_generation_markers", f"the chat template marks {len(spans)} of {turns} assistant turns")
    return ids, spans


def contexts_of(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    policy: ContextPolicy,
) -> Contexts:
    """Split canonical messages into contexts of at most ``policy.max_length`` tokens.

    Raises:
        RejectRow: the row cannot be rendered (see :func:`chat_messages`, :func:`encode`).
    """
    chat, cut_results = chat_messages(messages, max_result_chars=policy.max_result_chars)
    room = policy.max_length - policy.reply_tokens
    ids, spans = encode(tokenizer, chat, tools)
    contexts: list[Context] = []
    lost: dict[int, str] = {}
    first, folded = 0, 0
    while first < len(spans):
        if spans[first][0] > room:
            folded, ids, spans = _fold(tokenizer, chat, tools, first, folded, room)
            if spans[first][0] > room:  # later histories only grow: nothing after this turn fits either
                lost |= dict.fromkeys(range(first, len(spans)), "history_too_long")
                break
        last = first
        while last + 1 < len(spans) and spans[last + 1][0] <= room:
            last += 1
        turns = [Turn(number, *spans[number]) for number in range(first, last + 1)]
        if turns[-1].stop > policy.max_length:  # only the last turn of a context can reach over the end
            lost[turns.pop().number] = "reply_too_long"
        if turns:
            contexts.append(Context(ids[: turns[-1].stop], turns, folded))
        first = last + 1
    return Contexts(contexts, lost, cut_results)


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase,
    history: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    policy: ContextPolicy,
) -> list[int] | None:
    """Tokens to ask the next assistant turn with, from its history alone; None when it cannot fit.

    This is what an agent at inference calls; it equals the context the same turn was trained in.
    """
    number = sum(message.get("role") == "assistant" for message in history)
    probe = contexts_of(tokenizer, [*history, {"role": "assistant", "content": ""}], tools, policy)
    for context in probe.contexts:
        for turn in context.turns:
            if turn.number == number:
                return context.input_ids[: turn.start]
    return None


def _fold(
    tokenizer: PreTrainedTokenizerBase,
    chat: list[dict[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    turn: int,
    folded: int,
    room: int,
) -> tuple[int, list[int], list[tuple[int, int]]]:
    """Leave out the oldest results before ``turn`` until half the room is free again, the newest ones only if needed.

    Half, so that a long trace is not re-cut before every single turn.
    """
    old, newest = _results_before(chat, turn)
    ids, spans = encode(tokenizer, fold_results(chat, folded), tools)
    while folded < old + newest and spans[turn][0] > (room // 2 if folded < old else room):
        folded += 1
        ids, spans = encode(tokenizer, fold_results(chat, folded), tools)
    return folded, ids, spans


def _results_before(chat: list[dict[str, Any]], turn: int) -> tuple[int, int]:
    """Tool results before an assistant turn: (older ones, those that answer the turn just before it)."""
    total, newest, seen = 0, 0, 0
    for message in chat:
        if message["role"] == "assistant":
            if seen == turn:
                break
            seen, newest = seen + 1, 0
        elif message["role"] == "tool":
            total, newest = total + 1, newest + 1
    return total - newest, newest
