"""The model of a run: a new tiny Qwen3, or weights from a local folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort
from trajectory_platform.training.recipe import ModelSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def build_model(spec: ModelSpec, tokenizer: PreTrainedTokenizerBase, *, max_length: int, seed: int) -> Any:
    """A ``Qwen3ForCausalLM`` in float32; the same spec, vocabulary and seed give the same weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=spec.hidden,
        intermediate_size=spec.mlp,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def load_base(folder: str, template: str) -> tuple[Any, Any]:
    """(model, tokenizer) from a local folder, without remote code and without the network.

    Raises:
        Abort: the folder does not exist.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not Path(folder).is_dir():
        raise Abort(f"model.base {folder!r} is no folder; models are read from disk only")
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=False, local_files_only=True
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    tokenizer.chat_template = template
    return model, tokenizer
