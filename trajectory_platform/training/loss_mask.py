"""What is trained in one row: its tokens as text, each trained or not, with the turn and the role it belongs to.

Written into the checkpoint as ``loss_mask.json``, so that a report can show it without a tokenizer. Plain data: texts
of third parties are in it as they are, whoever draws them escapes them.

The line end after ``<|im_end|>`` is trained with its turn: TRL's training template of Qwen3, which is used as it is
shipped, ends its generation block behind it. It is one constant token a turn that a policy never writes (generation
stops before it), so it costs nothing, and masking it would make our rows differ from those of plain TRL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.identity import sha256_hex
from trajectory_platform.training.datasets import IGNORED, Example, roles_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from trajectory_platform.training.turn_examples import TurnExample

LOSS_MASK = "loss_mask.json"
LOSS_MASK_VERSION = 1
SHOWN = 400  # tokens of one stretch that are shown; what lies between its begin and its end is counted
_HEAD, _TAIL = 300, 100
MAX_STRETCHES = 200
MAX_PIECE_CHARS = 400  # a constant text may be one token of thousands of characters
_BROKEN = "\ufffd"  # what a part of a character decodes to
_MAX_BYTES = 8  # tokens that one character may take


class Place(NamedTuple):
    """What one token is: trained or not, the role of its message, and the 0-based assistant turn or None."""

    trained: bool
    role: str
    turn: int | None


def sft_mask(examples: Iterable[Example], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
    """The picture of one supervised row: the one of middle length; None without rows."""
    chosen = _middle([(len(one.input_ids), (one.trace_id, one.context.turns[0].number), one) for one in examples])
    if chosen is None:
        return None
    turns: list[int | None] = [None] * len(chosen.input_ids)
    for turn in chosen.context.turns:
        turns[turn.start : turn.stop] = [turn.number] * (turn.stop - turn.start)
    trained = [label != IGNORED for label in chosen.labels]
    told = {"kind": "sft", "trace_id": chosen.trace_id, "leak_cluster": chosen.leak_cluster, "role": chosen.role}
    return {**told, **_drawn(tokenizer, chosen.input_ids, trained, turns)}


def kto_mask(examples: Sequence[TurnExample], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
    """The picture of one preference row, an undesirable one where there is one, with its label and its faults."""
    group = [one for one in examples if not one.label] or list(examples)
    chosen = _middle([(one.tokens, one.key, one) for one in group])
    if chosen is None:
        return None
    source = chosen.sources[0]
    ids = [*chosen.prompt_ids, *chosen.completion_ids]
    trained = [False] * len(chosen.prompt_ids) + [True] * len(chosen.completion_ids)
    turns = [source.turn if inside else None for inside in trained]
    told = {
        "kind": "kto",
        "trace_id": source.trace_id,
        "trace_ids": sorted({one.trace_id for one in chosen.sources}),
        "leak_cluster": source.leak_cluster,
        "role": "desirable" if chosen.label else "undesirable",
        "label": chosen.label,
        "faults": list(chosen.faults),
    }
    return {**told, **_drawn(tokenizer, ids, trained, turns)}


def read_loss_mask(folder: Path) -> dict[str, Any] | None:
    """The picture that lies in a checkpoint; None where there is none, or one of another version."""
    try:
        mask = json.loads((folder / LOSS_MASK).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return mask if isinstance(mask, dict) and mask.get("version") == LOSS_MASK_VERSION else None


def traces_shown(mask: Mapping[str, Any]) -> set[str]:
    """The traces whose text a picture shows: a turn of preference may be that of several."""
    return {str(name) for name in (mask.get("trace_id"), *mask.get("trace_ids", [])) if name}


def _middle(found: Sequence[tuple[int, Any, Any]]) -> Any:
    """The row of median length; among equals the first by a hash of its key."""
    if not found:
        return None
    lengths = sorted(length for length, _, _ in found)
    middle = lengths[len(lengths) // 2]
    return min(found, key=lambda row: (abs(row[0] - middle), sha256_hex(repr(row[1]).encode())))[2]


def _drawn(tokenizer: Any, ids: Sequence[int], trained: Sequence[bool], turns: Sequence[int | None]) -> dict[str, Any]:
    roles = roles_of(tokenizer, ids)
    places = [Place(*place) for place in zip(trained, roles, turns, strict=True)]
    stretches = []
    for place, group in groupby(zip(places, ids, strict=True), key=lambda pair: pair[0]):
        tokens = [token for _, token in group]
        head, tail = (tokens, []) if len(tokens) <= SHOWN else (tokens[:_HEAD], tokens[-_TAIL:])
        stretches.append(
            {
                **place._asdict(),
                "tokens": len(tokens),
                "pieces": pieces_of(tokenizer, head),
                "left_out": len(tokens) - len(head) - len(tail),
                "end": pieces_of(tokenizer, tail),
            }
        )
    return {
        "version": LOSS_MASK_VERSION,
        "tokens": len(ids),
        "trained_tokens": sum(trained),
        "stretches": stretches[:MAX_STRETCHES],
        "left_out_stretches": max(0, len(stretches) - MAX_STRETCHES),
    }


def pieces_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The text of each token; tokens that only together make a character are one piece. A long piece is cut."""
    pieces: list[str] = []
    waiting: list[int] = []
    for token in ids:
        waiting.append(token)
        text = str(tokenizer.decode(waiting, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        if _BROKEN in text and len(waiting) < _MAX_BYTES:
            continue
        pieces.append(text if len(text) <= MAX_PIECE_CHARS else f"{text[:MAX_PIECE_CHARS]} ...")
        waiting = []
    if waiting:
        pieces.append(str(tokenizer.decode(waiting, skip_special_tokens=False, clean_up_tokenization_spaces=False)))
    return pieces
