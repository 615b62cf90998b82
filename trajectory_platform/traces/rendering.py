"""Canonical messages on their way to a chat template, or to a person's screen.

Training and evaluation both pass through :func:`chat_messages`, so the context a model is trained on and the
context it is asked with are made by one function (domain 5.3: "train and serve with one identical chat template").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform.errors import RejectRow
from trajectory_platform.escaping import escaped

# Tokens that end or begin a message in the Qwen3 templates. Inside a text they would let third-party words open a
# turn of their own, so such a row is refused instead of rendered (the readers have already neutralised theirs).
CONTROL_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
# Tags that delimit the parts of one assistant message: inside its thinking or text the rendered reply would be read
# back as something else (domain 6, case 13).
REPLY_TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
CUT_MARK = "\n[cut]"
FOLDED_RESULT = "[earlier result left out]"


class Rendered(NamedTuple):
    """Messages a chat template accepts, with what was shortened on the way.

    Attributes:
        messages: dicts with role, content (always text) and, for the assistant, reasoning_content and tool_calls whose
            ``arguments`` are mappings.
        cut_results: tool results longer than the limit, which were cut.
    """

    messages: list[dict[str, Any]]
    cut_results: int


def parse_tools(value: object) -> list[dict[str, Any]]:
    """The tool schemas of a row; null, ``""``, ``"null"``, ``"[]"`` and an absent key all mean no tools (case B12).

    Raises:
        RejectRow: ``bad_tools`` when there is something, but not a list of objects.
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            value = json.loads(text) if text else None
        except (ValueError, RecursionError) as error:
            raise RejectRow("bad_tools", str(error)) from error
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise RejectRow("bad_tools", f"expected a list of objects, got {type(value).__name__}")
    return value


def parse_messages(value: object) -> list[dict[str, Any]]:
    """The messages of a row, given as JSON text (the lake's form) or as a list.

    Raises:
        RejectRow: ``bad_messages`` when this is no list of objects.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RejectRow("bad_messages", str(error)) from error
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        raise RejectRow("bad_messages", "expected a list of objects")
    return value


def chat_messages(messages: Sequence[Mapping[str, Any]], *, max_result_chars: int | None = None) -> Rendered:
    """Canonical messages as a chat template takes them; the input is not changed.

    ``arguments`` text becomes a mapping (the template writes it in the form the pretrained model knows), null content
    becomes ``""``, ``reasoning_content`` is kept, ids and side fields are left out. A tool result of more than
    ``max_result_chars`` characters is cut there and ends in a mark.

    Raises:
        RejectRow: ``control_token_in_text``, ``tag_in_reply``, ``arguments_not_object``, ``bad_messages``.
    """
    rendered: list[dict[str, Any]] = []
    cut = 0
    for position, message in enumerate(messages):
        role = message.get("role")
        if role == "assistant":
            rendered.append(_assistant(message, position))
        elif role == "tool":
            content = _text(message.get("content"), position)
            if max_result_chars is not None and len(content) > max_result_chars:
                content = content[:max_result_chars] + CUT_MARK
                cut += 1
            rendered.append({"role": "tool", "content": content})
        elif role in ("system", "user"):
            rendered.append({"role": role, "content": _text(message.get("content"), position)})
        else:
            raise RejectRow("bad_messages", f"message {position} has role {role!r}")
    return Rendered(rendered, cut)


def fold_results(messages: Sequence[Mapping[str, Any]], count: int) -> list[dict[str, Any]]:
    """Chat messages with the ``count`` oldest tool results replaced by a fixed remark, to win room in the context."""
    folded: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool" and count > 0:
            folded.append({"role": "tool", "content": FOLDED_RESULT})
            count -= 1
        else:
            folded.append(dict(message))
    return folded


def escape_control(text: str) -> str:
    """Text safe to print: whatever is not printable (control, bidi, invisible) as an escape; line ends are kept."""
    return escaped(text, keep="\n\t")


def plain_text(messages: Sequence[Mapping[str, Any]], *, max_chars: int = 2000) -> str:
    """A trace for people (``traces show``): one block per message, hostile characters escaped, long texts cut."""
    blocks = []
    for position, message in enumerate(messages):
        lines = [f"[{position}] {escape_control(str(message.get('role')))}"]
        for label, key in (("thinking", "reasoning_content"), ("text", "content")):
            value = message.get(key)
            if value:
                lines.append(_indented(label, value if isinstance(value, str) else _compact(value), max_chars))
        for call in message.get("tool_calls") or []:
            function = call.get("function", call)
            arguments = function.get("arguments")
            shown = arguments if isinstance(arguments, str) else _compact(arguments)
            lines.append(_indented("call", f"{function.get('name')} {shown}", max_chars))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _assistant(message: Mapping[str, Any], position: int) -> dict[str, Any]:
    content = _text(message.get("content"), position)
    thinking = _text(message.get("reasoning_content"), position)
    for tag in REPLY_TAGS:
        if tag in content or tag in thinking:
            raise RejectRow("tag_in_reply", f"message {position} contains {tag}")
    reply: dict[str, Any] = {"role": "assistant", "content": _begun(content), "reasoning_content": thinking}
    calls = [_call(call, position) for call in message.get("tool_calls") or []]
    if calls:
        reply["tool_calls"] = calls
    return reply


def _begun(content: str) -> str:
    """Text without blank lines before it: their line ends would share a token with the one that opens the turn.

    Then the turn would begin inside a token, and no prompt could end where training says it does.
    """
    text = content.lstrip()
    lead = content[: len(content) - len(text)]
    return text if "\n" in lead or "\r" in lead else content


def _call(call: Mapping[str, Any], position: int) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise RejectRow("bad_messages", f"message {position} has a tool call without a function")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        raise RejectRow("bad_messages", f"message {position} has a tool call without a name")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise RejectRow("arguments_not_object", f"message {position}: {error}") from error
    if not isinstance(arguments, Mapping):
        raise RejectRow("arguments_not_object", f"message {position}: {type(arguments).__name__}")
    whole = json.dumps([name, arguments], ensure_ascii=False)
    for token in CONTROL_TOKENS + REPLY_TAGS:
        if token in whole:
            raise RejectRow("control_token_in_text", f"message {position}: {token} in a tool call")
    return {"type": "function", "function": {"name": name, "arguments": dict(arguments)}}


def _text(value: object, position: int) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RejectRow("bad_messages", f"message {position} has content of type {type(value).__name__}")
    for token in CONTROL_TOKENS:
        if token in value:
            raise RejectRow("control_token_in_text", f"message {position} contains {token}")
    return value


def _indented(label: str, text: str, max_chars: int) -> str:
    shown = text if len(text) <= max_chars else f"{text[:max_chars]} ... ({len(text) - max_chars} more characters)"
    return f"  {label}: " + escape_control(shown).replace("\n", "\n    ")


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
