"""Which families of injection signs the words of a text leave possible: what is cheap to know first.

Most texts hold none of the stems, and looking for a hundred stems in each of them costs more than everything else. A
text is looked at word by word instead, and what a word leaves possible is remembered: texts differ, words repeat.
"""

from __future__ import annotations

import re
from functools import lru_cache
from operator import add
from typing import NamedTuple

from trajectory_platform.judging.injection_families import Family
from trajectory_platform.judging.injection_signs import FAMILIES

_REMEMBERED_LENGTH = 32  # characters of a word; longer ones are ids, links and encoded data


class _Piece(NamedTuple):
    """A part of a stem without blanks; ``begins`` and ``ends``: the stem has a blank there, so a text has it too."""

    text: str
    begins: bool
    ends: bool

    def occurs(self, word: str) -> bool:
        """Whether a text that holds the stem could hold it in and around this word."""
        if not self.text:
            return True
        if self.begins:
            return word == self.text if self.ends else word.startswith(self.text)
        return word.endswith(self.text) if self.ends else self.text in word


def _piece(stem: str) -> _Piece:
    """The longest part of a stem that a text with this stem holds inside one word."""
    parts = re.split(r"\s", stem)
    last = len(parts) - 1
    pieces = (_Piece(text, place > 0, place < last) for place, text in enumerate(parts))
    return max(pieces, key=lambda piece: len(piece.text))


_NEEDED: list[tuple[int, Family]] = []  # (bits of all its groups of stems, family)
_PIECES: dict[str, list[tuple[_Piece, int]]] = {}  # first two characters of a piece -> (piece, bit of its group)
_bit = 1
for _family in FAMILIES:
    _needed = 0
    for _stems in _family.stems:
        for _found in map(_piece, _stems):
            _PIECES.setdefault(_found.text[:2], []).append((_found, _bit))
        _needed |= _bit
        _bit <<= 1
    _NEEDED.append((_needed, _family))
_PAIRS = frozenset(start for start in _PIECES if len(start) == 2)
_SINGLES = frozenset(start for start in _PIECES if len(start) == 1)
_NUMBERS_SAY_NOTHING = not any(piece.text.isdecimal() for pieces in _PIECES.values() for piece, _ in pieces)
_ANYWHERE = sum({bit for _, bit in _PIECES.get("", ())})


def possible_families(plain: str) -> list[Family]:
    """The families that a text can hold by its words, in the order of ``FAMILIES``.

    Args:
        plain: the text in comparison form. No family is left out of which every group has a stem in the text.
    """
    possible = _ANYWHERE
    for word in set(plain.split()):
        if _NUMBERS_SAY_NOTHING and word.isdecimal():
            continue  # ids and prices: each is new, and would only fill the memory
        possible |= _remembered(word) if len(word) <= _REMEMBERED_LENGTH else _possible(word)
    return [family for needed, family in _NEEDED if needed & possible == needed]


@lru_cache(maxsize=1 << 15)
def _remembered(word: str) -> int:
    return _possible(word)


def _possible(word: str) -> int:
    """Bits of the groups of which a stem may stand in the word or around it."""
    found = 0
    starts = [*_PAIRS.intersection(map(add, word, word[1:])), *_SINGLES.intersection(word)]
    for start in starts:
        for piece, bit in _PIECES[start]:
            if piece.occurs(word):
                found |= bit
    return found
