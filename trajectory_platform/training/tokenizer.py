"""A byte-level BPE tokenizer trained on the corpus, with Qwen3's special tokens and chat template.

Only texts of the train pool may be passed in. The result depends on the texts alone: they are sorted first, and BPE
training breaks ties by token id.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trajectory_platform.errors import Abort
from trajectory_platform.training.glue import glue_texts
from trajectory_platform.training.recipe import Recipe, TokenizerSpec

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
# Like Qwen's own rule, but numbers in threes instead of single digits and JSON punctuation kept with its word, which
# makes a trace of search results about a third shorter; every byte still has a token, so any text round-trips.
_WORDS = r"\p{N}{1,3}|\s?[^\s\p{L}\p{N}]+\p{L}*|\s?\p{L}+|\s+"
MAX_CONSTANTS = 64
MAX_GLUE = 48
LEAST_GLUE = 20  # occurrences below which a stretch of text is no constant of the corpus


def template_text(name: str) -> str:
    """The chat template TRL ships under this name (``qwen3_training``: thinking in every turn, generation markers).

    The training variants render earlier turns the same whatever follows, so they serve at inference too (case B01).
    """
    import trl

    path = Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja"
    if not path.is_file():
        raise Abort(f"TRL {trl.__version__} ships no chat template {name!r}; use the pinned version (make install)")
    return path.read_text("utf-8")


def train_tokenizer(texts: Iterable[str], constants: Sequence[str], spec: TokenizerSpec, template: str) -> Any:
    """A fast tokenizer of about ``spec.vocab`` entries (plus the constants), with ``template`` as chat template.

    The vocabulary is learned from what lies between the constants: no entry is spent on text that has its token.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(_between(sorted(texts), constants), trainer)
    inner.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    inner.add_tokens([AddedToken(text, special=False, normalized=False) for text in constants])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        model_max_length=1 << 20,
    )
    tokenizer.chat_template = template
    return tokenizer


def build_tokenizer(
    rows: Sequence[tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]], recipe: Recipe
) -> Any:
    """Train the tokenizer of a recipe on (chat messages, tools) of the train pool."""
    template = template_text(recipe.template)
    constants: list[str] = []
    if recipe.tokenizer.constant_text:
        glue = glue_texts((messages for messages, _ in rows), MAX_GLUE, least=LEAST_GLUE)
        constants = [*constant_texts([tools for _, tools in rows]), *TEMPLATE_PARTS, *glue]
    texts = [text for messages, _ in rows for text in message_texts(messages)]
    texts += [tool_line(tool) for tool in _distinct([tools for _, tools in rows])]
    return train_tokenizer(texts, constants, recipe.tokenizer, template)


def message_texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts a template will print for these chat messages, without its own words but the roles."""
    texts = []
    for message in messages:
        texts += [f"{message['role']}\n", message["content"], message.get("reasoning_content") or ""]
        for call in message.get("tool_calls") or []:
            function = call["function"]
            arguments = json.dumps(function["arguments"], ensure_ascii=False)
            texts.append(f'\n{{"name": "{function["name"]}", "arguments": {arguments}}}\n')
    return [text for text in texts if text]


def tool_line(tool: Mapping[str, Any]) -> str:
    """A tool schema as the Qwen3 template prints it (transformers' ``tojson``)."""
    return json.dumps(tool, ensure_ascii=False)


def constant_texts(tools_of_rows: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Texts that get a token of their own: the schemas common in the corpus and the system block around them."""
    counted = Counter(tool_line(tool) for tools in tools_of_rows for tool in tools)
    common = sorted(counted, key=lambda line: (-counted[line], line))[:MAX_CONSTANTS]
    if not common:
        return []
    lists = Counter(tuple(map(tool_line, tools)) for tools in tools_of_rows if tools)
    commonest = min(lists, key=lambda lines: (-lists[lines], lines))
    return [*common, *_SYSTEM_BLOCK, "\n".join(commonest).join(_SYSTEM_BLOCK)]


# What the Qwen3 templates print around the parts of a message, up to the marks of a turn: no token may reach over the
# begin or the end of what the model writes, or the loss mask would.
TEMPLATE_PARTS = (
    "<think>\n",
    "\n</think>\n\n",
    "user\n",
    "assistant\n",
    "user\n<tool_response>\n",
    "\n</tool_response>",
)
_SYSTEM_BLOCK = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n",
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
)


def _between(texts: Iterable[str], constants: Sequence[str]) -> Iterator[str]:
    """The texts without the constants, longest first as the tokenizer takes them."""
    if not constants:
        yield from texts
        return
    pattern = re.compile("|".join(re.escape(text) for text in sorted(constants, key=len, reverse=True)))
    for text in texts:
        yield from (part for part in pattern.split(text) if part)


def _distinct(tools_of_rows: Sequence[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    by_line = {tool_line(tool): tool for tools in tools_of_rows for tool in tools}
    return [by_line[line] for line in sorted(by_line)]
