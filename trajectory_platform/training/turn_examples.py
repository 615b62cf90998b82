"""One KTO example per assistant turn that is to be learned from: prompt = its history, completion = the turn itself.

A preference trainer has no mask for tool results inside a completion (dependencies 3b), so a trace is taken apart into
its turns. The prompt is what the model is asked with at inference (``evaluation.context``), token for token; the
completion is the turn with its end token, token for token what supervised training would put the loss on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import FailPartition, RejectRow
from trajectory_platform.evaluation.context import ContextPolicy, Contexts, contexts_of, prompt_ids
from trajectory_platform.identity import sha256_hex
from trajectory_platform.training.datasets import TraceRow, duplicates_of, roles_of
from trajectory_platform.training.turn_faults import blamed_turns, judged_of, own_faults, read_turns

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DESIRABLE, UNDESIRABLE = "desirable", "undesirable"
_LABELS: Mapping[object, bool] = {DESIRABLE: True, UNDESIRABLE: False, "true": True, "false": False}


class Source(NamedTuple):
    """Where an example comes from: a turn (0-based, among the assistant turns) of a trace."""

    trace_id: str
    leak_cluster: str
    turn: int
    weight: float


class TurnExample(NamedTuple):
    """One turn to learn from.

    Attributes:
        sources: the turns that are this very example, by trace id; more than one where turns are exact copies.
        label: True = desirable.
        faults: names of ``turn_faults.FAULTS`` that an undesirable turn is blamed for.
        weight: sum over the sources.
    """

    sources: tuple[Source, ...]
    label: bool
    prompt_ids: list[int]
    completion_ids: list[int]
    faults: tuple[str, ...] = ()

    @property
    def weight(self) -> float:
        return sum(source.weight for source in self.sources)

    @property
    def key(self) -> tuple[str, int]:
        """(trace id, turn) of the first source: names the example in every order and report."""
        return self.sources[0].trace_id, self.sources[0].turn

    @property
    def tokens(self) -> int:
        """Tokens of prompt and completion together."""
        return len(self.prompt_ids) + len(self.completion_ids)


class Turns(NamedTuple):
    """Examples in the order of (trace id, turn), and the report on what did not become one."""

    examples: list[TurnExample]
    report: dict[str, Any]


def label_of(role: object) -> bool:
    """The label of a role, strictly: ``bool("false")`` is True, which is how labels get turned around (case C03).

    Raises:
        RejectRow: ``bad_label`` for everything but a boolean, desirable, undesirable and the texts true and false.
    """
    if isinstance(role, bool):
        return role
    label = _LABELS.get(role) if isinstance(role, str) else None
    if label is None:
        raise RejectRow("bad_label", f"{role!r} is neither desirable nor undesirable")
    return label


def build_turns(
    rows: Sequence[TraceRow], tokenizer: PreTrainedTokenizerBase, policy: ContextPolicy, *, blame: str = "faulty"
) -> Turns:
    """Take judged traces apart.

    Of a desirable trace every turn is an example except those that are faulty themselves; of an undesirable one the
    blamed turns (``blame`` = ``faulty``) or every turn (``all``). The other turns are in no class. The same prompt and
    completion under both labels contradicts itself and is dropped under both; exact copies are one example.

    Raises:
        FailPartition: a row lacks its lineage, or the template marks no turns (case B03).
    """
    found: list[TurnExample] = []
    dropped: list[dict[str, str]] = []
    cut: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    blamed: Counter[str] = Counter()
    for row in sorted(rows, key=lambda row: (row.trace_id, row.role)):
        if not row.trace_id or not row.leak_cluster:
            raise FailPartition(f"row {row.trace_id!r} has no leak cluster: its lineage would end here (case C11)")
        try:
            label = label_of(row.role)
            contexts = contexts_of(tokenizer, row.messages, row.tools, policy)  # refuses what cannot be read as well
            wanted, neutral = _wanted(row, label, blame)
        except RejectRow as error:
            if error.reason == "no_generation_markers":
                raise FailPartition(f"row {row.trace_id}: {error}") from error
            dropped.append({"trace_id": row.trace_id, "role": row.role, "reason": error.reason, "detail": error.detail})
            continue
        counts["neutral_turns" if not label else "faulty_turns_of_desirable"] += neutral
        counts["rows_without_a_turn"] += not wanted
        lost = {number: reason for number, reason in contexts.lost.items() if number in wanted}
        if lost:
            reasons = sorted(set(lost.values()))
            cut.append({"trace_id": row.trace_id, "role": row.role, "turns": sorted(lost), "reasons": reasons})
        for example in _examples(row, label, contexts, wanted):
            found.append(example)
            blamed.update(example.faults)
    examples = merged(found, counts)
    return Turns(examples, _report(rows, examples, dropped, cut, counts, blamed))


def merged(found: Sequence[TurnExample], counts: Counter[str]) -> list[TurnExample]:
    """Examples with equal prompt and completion as one; those with both labels as none, counted."""
    groups: dict[str, list[TurnExample]] = {}
    for example in found:
        text = " ".join(map(str, [*example.prompt_ids, "|", *example.completion_ids]))
        groups.setdefault(sha256_hex(text.encode()), []).append(example)
    kept: list[TurnExample] = []
    for group in groups.values():
        if len({example.label for example in group}) > 1:
            counts["contradictory_turns"] += len(group)
            continue
        counts["merged_copies"] += len(group) - 1
        sources = tuple(sorted(source for example in group for source in example.sources))
        faults = tuple(dict.fromkeys(fault for example in group for fault in example.faults))
        kept.append(group[0]._replace(sources=sources, faults=faults))
    return sorted(kept, key=lambda example: example.key)


def limited(examples: Sequence[TurnExample], max_rows: int | None, seed: int) -> list[TurnExample]:
    """At most ``max_rows`` examples, drawn by keyed hash; the rarer class is cut last."""
    if max_rows is None or len(examples) <= max_rows:
        return list(examples)
    classes = [[example for example in examples if example.label is label] for label in (True, False)]
    rarer, other = sorted(classes, key=len)
    room = min(len(rarer), max_rows // 2)
    kept: list[TurnExample] = []
    for group, limit in ((rarer, room), (other, max_rows - room)):
        kept += sorted(group, key=lambda example: sha256_hex(f"{seed}:limit:{example.key}".encode()))[:limit]
    return sorted(kept, key=lambda example: example.key)


def preflight_turns(
    examples: Sequence[TurnExample],
    rows: Sequence[TraceRow],
    tokenizer: PreTrainedTokenizerBase,
    policy: ContextPolicy,
    *,
    least: int = 1,
    sample: int = 32,
) -> dict[str, Any]:
    """What must hold before a step is taken; returns the tokens in the loss by role.

    Both classes are there with at least ``least`` examples; every completion lies in assistant messages and has the end
    token; for ``sample`` examples (fixed by their ids) the prompt equals what inference would send.

    Raises:
        FailPartition: ``one_class``, ``too_few_turns``, or the example and what differs.
    """
    sizes = {label: sum(example.label is label for example in examples) for label in (True, False)}
    told = f"{sizes[True]} desirable and {sizes[False]} undesirable turns"
    if not min(sizes.values()):
        raise FailPartition(f"one_class: {told}; KTO needs both (case C01)")
    if min(sizes.values()) < least:
        raise FailPartition(f"too_few_turns: {told}, at least {least} of each are needed")
    by_role: Counter[str] = Counter()
    for example in examples:
        roles = roles_of(tokenizer, [*example.prompt_ids, *example.completion_ids])[len(example.prompt_ids) :]
        by_role.update(roles)
        if tokenizer.eos_token_id not in example.completion_ids:
            raise FailPartition(f"row {example.key}: the end of the turn is not trained")
    wrong = {role: count for role, count in by_role.items() if role != "assistant"}
    if wrong:
        raise FailPartition(f"loss outside assistant messages: {wrong} tokens; nothing was trained")
    by_key = {(row.trace_id, label_of(row.role)): row for row in rows}
    for example in sorted(examples, key=lambda example: sha256_hex(repr(example.key).encode()))[:sample]:
        _compare_prompt(example, by_key[example.key[0], example.label], tokenizer, policy)
    return {"trained_tokens": {role: by_role.get(role, 0) for role in ("assistant", "user", "tool", "system")}}


def _wanted(row: TraceRow, label: bool, blame: str) -> tuple[dict[int, tuple[str, ...]], int]:
    """({turn: what it is blamed for}, number of turns that are in no class)."""
    judged = judged_of(row.extra)
    turns = sum(message.get("role") == "assistant" for message in row.messages)
    if label:
        faults = own_faults(read_turns(row.messages), row.tools, judged)
        wanted: dict[int, tuple[str, ...]] = {number: () for number, found in enumerate(faults) if not found}
        return wanted, turns - len(wanted)
    blamed = blamed_turns(row.messages, row.tools, judged)
    if blame == "all":
        blamed = {number: blamed.get(number, ()) for number in range(turns)}
    return blamed, turns - len(blamed)


def _examples(
    row: TraceRow, label: bool, contexts: Contexts, wanted: Mapping[int, tuple[str, ...]]
) -> list[TurnExample]:
    return [
        TurnExample(
            (Source(row.trace_id, row.leak_cluster, turn.number, row.weight),),
            label,
            context.input_ids[: turn.start],
            context.input_ids[turn.start : turn.stop],
            wanted[turn.number],
        )
        for context in contexts.contexts
        for turn in context.turns
        if turn.number in wanted
    ]


def _compare_prompt(
    example: TurnExample, row: TraceRow, tokenizer: PreTrainedTokenizerBase, policy: ContextPolicy
) -> None:
    trace_id, turn = example.key
    places = [position for position, message in enumerate(row.messages) if message.get("role") == "assistant"]
    if prompt_ids(tokenizer, row.messages[: places[turn]], row.tools, policy) != example.prompt_ids:
        raise FailPartition(f"row {trace_id}, turn {turn}: the prompt is not the one that inference would send")


def _report(
    rows: Sequence[TraceRow],
    examples: Sequence[TurnExample],
    dropped: list[dict[str, str]],
    cut: list[dict[str, Any]],
    counts: Counter[str],
    blamed: Counter[str],
) -> dict[str, Any]:
    keys = ("neutral_turns", "faulty_turns_of_desirable", "rows_without_a_turn", "contradictory_turns", "merged_copies")
    return {
        "rows": len(rows),
        "rows_used": len({source.trace_id for example in examples for source in example.sources}),
        "dropped_rows": dropped,
        "cut_rows": cut,
        "duplicate_rows": duplicates_of(rows),
        "desirable_turns": sum(example.label for example in examples),
        "undesirable_turns": sum(not example.label for example in examples),
        **{key: counts[key] for key in keys},
        "blamed_for": dict(sorted(blamed.items())),
        "tokens": sum(example.tokens for example in examples),
        "tokens_with_loss": sum(len(example.completion_ids) for example in examples),
    }
