"""Texts in letters that can be compared: accents, look-alikes, ornaments and encodings folded away.

A reader (and a model) reads ``instru`` + ``c`` + ``tions`` in Cherokee, circled, small-capital or flag letters, with a
stroke through every letter, as HTML entities or percent escapes just as well as plain; a pattern does not. The folded
form is for comparison only and is never stored.
"""

from __future__ import annotations

import html
import re
import unicodedata
from urllib.parse import unquote

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
_TAGS = {0xE0000 + point: chr(point) for point in range(0x20, 0x7F)}  # invisible, but a model reads them
_TAGGED = re.compile("[\U000e0020-\U000e007e]")
_ACCENTS = re.compile("[\u0300-\u036f\u0489\u20d0-\u20f0]")
_DASHES = re.compile("[\u2010-\u2015\u2212]")
_PAIRS = (
    # Cyrillic
    ("\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u0261\u04bb\u0475", "aeopcyxijsdghv"),
    ("\u051b\u051d\u043a\u043c\u0442\u043d\u0432", "qwkmthb"),
    # Greek and phonetic
    ("\u03b1\u03b5\u03bf\u03c1\u03b9\u03ba\u03bd\u03c5\u03c7\u0131\u0269", "aeopikvuxii"),
    # small capitals
    ("\u1d00\u0299\u1d04\u1d05\u1d07\ua730\u0262\u029c\u026a\u1d0a\u1d0b\u029f\u1d0d", "abcdefghijklm"),
    ("\u0274\u1d0f\u1d18\ua7af\u0280\ua731\u1d1b\u1d1c\u1d20\u1d21\u028f\u1d22", "nopqrstuvwyz"),
    # Armenian, Cherokee
    ("\u0585\u057d\u0570\u0578\u0581\u0575\u0566", "ouhngjq"),
    ("\u13a0\u13a1\u13a2\u13a5\u13aa\u13ab\u13ac\u13b3\u13b7\u13bb\u13bd\u13c0\u13c2", "drtiajewmhygh"),
    ("\u13c3\u13cf\u13d2\u13d4\u13a7\u13d9\u13da\u13de\u13df\u13e2\u13e6\u13f4", "zbrwivslcpkb"),
)
_LOOKALIKES = {ord(odd): plain for odds, plains in _PAIRS for odd, plain in zip(odds, plains, strict=True)} | {
    # circled, squared and flag letters
    start + number: chr(ord("a") + number)
    for start in (0x1F150, 0x1F170, 0x1F1E6)
    for number in range(26)
}
_ODD = re.compile(f"[{''.join(map(chr, sorted(_LOOKALIKES)))}]")
_ESCAPED_LETTER = re.compile(r"\\u([0-9a-f]{4})")
_PERCENT = re.compile(r"%[0-9a-f]{2}")
_JOINED = re.compile(r"(?<=[a-z])\+(?=[a-z])")
_EMPHASIS = re.compile(r"(?<=[^\W_])[*_~`]+(?: [*_~`]*(?=[^\W_])|(?!\w))|(?<=[^\W_]) [*_~`]+(?=[^\W_])")
_LINK = re.compile(r"\[([^\[\]\n]{1,80})\]\([^()\n]{0,200}\)")


def plain_letters(text: str) -> str:
    """The text in lower case with every letter as the Latin one it looks like; other scripts keep what is no accent."""
    if text.isascii():
        return text.casefold()
    if _TAGGED.search(text):
        text = text.translate(_TAGS)
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", _INVISIBLE.sub("", text)))
    plain = _DASHES.sub("-", unicodedata.normalize("NFKC", plain)).casefold()
    return plain.translate(_LOOKALIKES) if not plain.isascii() and _ODD.search(plain) else plain


def decoded(plain: str) -> str:
    """A lower-case text without escapes of letters, words joined by plus signs, and marks of emphasis."""
    if "\\u" in plain:
        plain = _ESCAPED_LETTER.sub(lambda found: chr(int(found.group(1), 16)), plain)
    if "&" in plain and ";" in plain:
        plain = html.unescape(plain)
    if "%" in plain and _PERCENT.search(plain):
        plain = unquote(plain, errors="replace")
    if "+" in plain:
        plain = _JOINED.sub(" ", plain)
    if "*" in plain or "_" in plain or "`" in plain or "~" in plain:
        plain = _EMPHASIS.sub(" ", plain)
    if "](" in plain:
        plain = _LINK.sub(r"\1", plain)
    return plain if plain.isascii() else plain_letters(plain)
