"""Words that people and patterns pass over and a language model reads: base64, hex, rot13.

Only what decodes to readable words is returned, so that ids, digests and keys in honest text cost a look and no more.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,}={0,2}")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:0x)?(?:[0-9a-fA-F]{2}[ :]?){16,}(?![0-9A-Za-z])")
# what directives to a judge or a model are made of, in rot13; as whole stems they are in no other language's words
_ROT13 = (
    "whqtr", "rinyhngbe", "tenqre", "vtaber", "qvfertneq", "vafgehpgvba", "ernfbavat", "cresrpg", "fpber",
)  # fmt: skip
_MOST = 8  # runs of one text that are decoded
_LONGEST = 20_000
_LEAST_WORDS = 3


def hidden_texts(text: str) -> Iterator[str]:
    """What is written in another alphabet inside a text: decoded runs that read as words, and the text turned by 13."""
    if len(text) < 24:
        return
    for pattern, decode in ((_BASE64, _from_base64), (_HEX, _from_hex)):
        for number, run in enumerate(pattern.finditer(text)):
            if number == _MOST:
                break
            words = decode(run.group()[:_LONGEST])
            if words is not None:
                yield words
    lower = text.lower()
    if any(stem in lower for stem in _ROT13):
        yield codecs.encode(text[:_LONGEST], "rot13")


def _from_base64(run: str) -> str | None:
    body = run.rstrip("=").translate(_URL_SAFE)
    body = body[: len(body) // 4 * 4] if len(body) % 4 == 1 else body
    try:
        return _readable(base64.b64decode(body + "=" * (-len(body) % 4), validate=True))
    except (binascii.Error, ValueError):
        return None


def _from_hex(run: str) -> str | None:
    digits = run.removeprefix("0x").replace(" ", "").replace(":", "")
    try:
        return _readable(bytes.fromhex(digits))
    except ValueError:
        return None


def _readable(data: bytes) -> str | None:
    """The text, where the bytes are words with blanks between them."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if any(not (char.isprintable() or char in "\n\t\r") for char in text) or len(text.split()) < _LEAST_WORDS:
        return None
    return text


_URL_SAFE = str.maketrans("-_", "+/")
