"""The model a stage starts from: its parent's, a local folder's, or a new tiny Qwen3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort
from trajectory_platform.training.recipe import ModelSpec, Recipe
from trajectory_platform.training.stage_recipes import GET_IT, AnyStage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def starting_model(
    recipe: Recipe, part: AnyStage, parent: Path | None, make_tokenizer: Callable[[], Any] | None = None
) -> tuple[Any, Any]:
    """(model, tokenizer) that a stage starts from, with its adapter if the part has one.

    With a parent, or with ``model.base``, the tokenizer is the one that lies beside the weights; the chat template is
    the parent's own, or the recipe's over a base folder. Only a run's first stage may make a new model, and with it a
    tokenizer (``make_tokenizer``).

    Raises:
        Abort: no such folder, or a new model in a stage that cannot make its tokenizer.
    """
    from trajectory_platform.training.tokenizer import template_text

    dtype = _dtype(recipe, part)
    seed = recipe.fixed_seed
    if parent is not None:
        model, tokenizer = load_base(str(parent), None, dtype=dtype)
    elif recipe.model.base is not None:
        model, tokenizer = load_base(recipe.model.base, template_text(recipe.template), dtype=dtype)
    elif make_tokenizer is None:
        raise Abort("this stage needs a model to start from: a parent stage or model.base in the recipe")
    else:
        tokenizer = make_tokenizer()
        model = build_model(recipe.model, tokenizer, max_length=recipe.context.max_length, seed=seed)
    return with_adapter(model, part, seed), tokenizer


def with_adapter(model: Any, part: AnyStage, seed: int) -> Any:
    """The model with the LoRA adapter of the part, or as it is."""
    if part.adapter is None:
        return model
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    adapter = part.adapter
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=list(adapter.targets),
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)


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
        rope_theta=spec.rope_theta,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def load_base(folder: str, template: str | None, *, dtype: str = "float32") -> tuple[Any, Any]:
    """(model, tokenizer) from a local folder, without remote code and without the network.

    Args:
        template: chat template in place of the folder's own; None keeps that.

    Raises:
        Abort: the folder does not exist.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not Path(folder).is_dir():
        raise Abort(f"model.base {folder!r} is no folder here; {GET_IT}")
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, dtype), trust_remote_code=False, local_files_only=True
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    if template is not None:
        tokenizer.chat_template = template
    return model, tokenizer


def _dtype(recipe: Recipe, part: AnyStage) -> str:
    """Weights that are trained stay float32 (bf16 rounds small steps away); frozen and sharded ones need not.

    DeepSpeed keeps a float32 copy of what it shards.
    """
    hardware = recipe.hardware
    frozen = part.adapter is not None or hardware.zero is not None
    return "bfloat16" if hardware.precision == "bf16" and frozen else "float32"
