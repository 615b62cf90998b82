"""The constant text between the values of JSON, found by counting: what a tokenizer may give a token of its own.

A page of search results repeats the same keys and brackets around a few values, and a call the same words around its
arguments. Only the values tell anything. With one token for each stretch between two values a small model reads and
writes a third of the tokens, and the text stays what it was.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MIN_CHARS = 3
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[^"\d-]+|.', re.DOTALL)
_NUMBERS = re.compile(r"\d+")


def between_values(text: str) -> list[str]:
    """The stretches of a JSON text between its values, in order: keys, brackets, quotes; of other text those between
    numbers. Joined with the values they give the text again.

    >>> between_values('[{"id":"12","tags":["a","b"],"n":3}]')
    ['[{"id":"', '","tags":["', '","', '"],"n":', '}]']
    """
    if text[:1] not in ("{", "["):
        return _NUMBERS.split(text)
    parts = _PART.findall(text)
    pieces, current = [], ""
    for number, part in enumerate(parts):
        after = parts[number + 1] if number + 1 < len(parts) else ""
        if part[0].isdigit() or (part[0] == "-" and len(part) > 1):
            pieces.append(current)
            current = ""
        elif len(part) > 2 and part[0] == '"' and not after.lstrip().startswith(":"):
            pieces.append(current + '"')
            current = '"'
        else:
            current += part
    return [*pieces, current]


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A tool call as the Qwen3 templates print it (transformers' ``tojson``)."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments, ensure_ascii=False)}}}\n</tool_call>'


def _around_arguments(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """The stretches of a call between the values of its arguments; the tool's name is part of the first."""
    pieces = between_values(json.dumps(arguments, ensure_ascii=False))
    opening = f'<tool_call>\n{{"name": "{name}", "arguments": '
    pieces[0] = opening + pieces[0]
    pieces[-1] += "}\n</tool_call>"
    return pieces


def glue_texts(chats: Iterable[Sequence[Mapping[str, Any]]], limit: int, *, least: int = 1) -> list[str]:
    """The commonest stretches of calls and tool results in chat messages (``traces.rendering.chat_messages``).

    Args:
        limit: how many at most; the commonest first, ties by text.
        least: how often a stretch must occur.
    """
    counts: Counter[str] = Counter()
    for messages in chats:
        for message in messages:
            if message["role"] == "tool":
                counts.update(between_values(message["content"]))
            for call in message.get("tool_calls") or []:
                counts.update(_around_arguments(call["function"]["name"], call["function"]["arguments"]))
    found = [text for text in counts if len(text) >= MIN_CHARS and counts[text] >= least]
    return sorted(found, key=lambda text: (-counts[text], text))[:limit]
