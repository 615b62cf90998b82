"""Text that must not become structure: chat control tokens, call and think tags, invisible characters (A16, A25, 50).

A chat template copies text as it stands, so ``<|im_start|>`` inside a product title would open a real turn. Such
marks are replaced by look-alikes in single angle quotes (``‹|im_start|›``): visible, harmless and not undone by
anything. The text as read stays in ``source_steps``.
"""

from __future__ import annotations

import re

CONTROL_TOKEN = "control_token_in_content"
TAG_IN_REPLY = "tag_in_reply"
HIDDEN_CHARACTER = "control_character"

# Added tokens of the Qwen family and the like of other families; tags are added tokens of Qwen3 as well.
_MARK = re.compile(r"<([|｜][^<>|｜]{1,40}[|｜]|/?(?:think|tool_call|tool_response))>")
_CHAT_TOKEN = re.compile(r"<[|｜][^<>|｜]{1,40}[|｜]>")
# C0 controls but tab and line ends, DEL, bidi embeddings, overrides and isolates: no reader sees them, a model does.
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
_BIDI = re.compile(rb"\xe2(?:\x80[\xaa-\xae]|\x81[\xa6-\xa9])")


def neutralise(text: str) -> tuple[str, int]:
    """The text without working control tokens and tags, and how many there were."""
    if "<" not in text:
        return text, 0
    return _MARK.subn(r"‹\1›", text)


def blank_hidden(text: str) -> tuple[str, int]:
    """The text with invisible control characters as U+FFFD, and how many there were."""
    return _HIDDEN.subn("\ufffd", text)


def has_chat_token(text: str) -> bool:
    """Whether a text holds a token that would end or begin a message."""
    return "<" in text and _CHAT_TOKEN.search(text) is not None


def may_hide(json_text: bytes) -> bool:
    """Whether a JSON text in UTF-8, as orjson writes it, may hold invisible characters (cheap; may err to True)."""
    if b"\\u00" in json_text or b"\\b" in json_text or b"\\f" in json_text or b"\x7f" in json_text:
        return True
    return b"\xe2" in json_text and _BIDI.search(json_text) is not None
