"""Pictures of training rows, as ``training.loss_mask`` writes them."""

from __future__ import annotations

from typing import Any


def stretch(role: str, pieces: list[str], *, turn: int | None = None, left_out: int = 0) -> dict[str, Any]:
    """Tokens of one message; with ``turn`` they are trained."""
    return {
        "trained": turn is not None,
        "role": role,
        "turn": turn,
        "tokens": len(pieces) + left_out,
        "pieces": pieces,
        "left_out": left_out,
        "end": [],
    }


def mask(hostile: str = "", *, label: bool | None = None, long: int = 1) -> dict[str, Any]:
    """One row of three messages; ``hostile`` stands in every text, ``long`` repeats the trained part."""
    stretches = [
        stretch("system", ["# Tools\n", hostile or "none"], left_out=1200),
        stretch("user", ["I need", " a blue", " lamp" + hostile]),
        stretch("assistant", ["<think>\n", "3001", " fits" + hostile, "<|im_end|>\n"] * long, turn=0),
    ]
    told: dict[str, Any] = {"kind": "sft", "role": "train"}
    if label is not None:
        told = {"kind": "kto", "role": "desirable" if label else "undesirable", "label": label, "faults": []}
        told["faults"] = [] if label else ["wrong_end" + hostile]
    return {
        **told,
        "version": 1,
        "checkpoint_id": f"sft-2026-03-28-0123456789ab{hostile}",
        "stage": "sft",
        "trace_id": "run:0:problem" + hostile,
        "leak_cluster": "cluster-1",
        "tokens": sum(one["tokens"] for one in stretches),
        "trained_tokens": 4 * long,
        "stretches": stretches,
        "left_out_stretches": 0,
    }
