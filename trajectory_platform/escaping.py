"""Hostile text on a screen: what cannot be seen, or moves the cursor or the reading direction, shown as its escape."""

from __future__ import annotations

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str, keep: str = "") -> str:
    """Text in which every character that is not printable is written as its escape (``\\n``, ``\\x1b``, ``\\u202e``).

    Not printable are control, format (bidirectional, zero width), surrogate, private and unassigned characters and
    every separator but the plain space.

    Args:
        keep: characters left as they are all the same, such as line ends in text of several lines.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _code(char) for char in text)


def _code(char: str) -> str:
    point = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
