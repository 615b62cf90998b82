"""Weak evidence that two problems are alike: shared words of their queries. For review, never merged (domain 4.4).

Of all pairs of queries of the benchmark 21 share six words of ten, and all 21 are unrelated: they share the voucher
text. So templates are taken out first, found by how many texts hold a run of words (numbers count as one word). Then
MinHash bands name the candidates and every candidate is measured exactly: the bands are chosen so that a pair at the
threshold is a candidate with probability ``RECALL``, and no pair below it is listed (cases D02, D03). Hashes are fixed
functions of the words (case D04), so neither order nor process decides anything.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort
from trajectory_platform.sandbox.queries import normalise_query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

RECALL = 0.995
EMBEDDING_SIMILARITY = 0.9  # cosine from which two texts are a hint, where somebody gives vectors
MAX_HASHES = 320  # 64-bit hashes a text: bounds work and memory; reached below a threshold of about 0.1 only
TEMPLATE_WORDS = 3  # a run of so many words ...
TEMPLATE_TEXTS = 20  # ... in so many texts, and in this share of them, is a template
TEMPLATE_SHARE = 0.01
# A bucket with more texts than this is a family of near copies (a generated series): each text is then compared with
# the first and the nearest of them, not with all.
FAMILY = 64
_NEIGHBOURS = 16
_WORD = re.compile(r"[^\W_]+")
_SHOWN_WORDS = 12

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]


class Near(NamedTuple):
    """Two texts by position, ``left < right``; ``value`` in [0, 1]; ``shared`` some of the words both hold."""

    left: int
    right: int
    value: float
    shared: tuple[str, ...]


class _Texts(NamedTuple):
    """Word hashes of texts: the distinct ones of text ``n``, sorted, are ``words[starts[n]:starts[n + 1]]``."""

    words: Words
    starts: NDArray[np.int64]

    def of(self, number: int) -> Words:
        return self.words[self.starts[number] : self.starts[number + 1]]


def words_of(text: str, *, normalised: bool = False) -> list[str]:
    """The words of a text in its comparison form; the unit of every measure here is one word."""
    return _WORD.findall(text if normalised else normalise_query(text))


def bands_for(threshold: float) -> tuple[int, int]:
    """(bands, rows): the fewest chance candidates for which a pair at the threshold is missed with probability at
    most ``1 - RECALL``: ``1 - (1 - t ** rows) ** bands >= RECALL`` (case D02).

    Raises:
        Abort: the threshold is not in (0, 1].
    """
    if not 0 < threshold <= 1:
        raise Abort(f"a word similarity of {threshold} is no threshold: it must be above 0 and at most 1")
    if threshold == 1:
        return 1, 8
    best = (1, 1)
    for rows in range(1, 17):
        bands = max(1, math.ceil(math.log(1 - RECALL) / math.log1p(-(threshold**rows))))
        if rows > 1 and bands * rows > MAX_HASHES:
            break
        best = (bands, rows)
    return best


def near_pairs(texts: Sequence[str], threshold: float, *, strip: bool = True) -> list[Near]:
    """Pairs of texts whose distinct words have a Jaccard similarity of at least ``threshold``, sorted.

    Args:
        texts: oldest first; texts without a word are alike to none (case D01).
        strip: take templates out before; a text that is nothing but template is alike only to equal texts.

    Texts with equal words are tied to the first of them, and only that one is compared with others.
    """
    return near_words([words_of(text) for text in texts], threshold, strip=strip)


def near_words(split: Sequence[Sequence[str]], threshold: float, *, strip: bool = True) -> list[Near]:
    """``near_pairs`` of texts that are words already (``words_of``)."""
    import numpy as np

    names = sorted({word for words in split for word in words})
    if not names:
        return []
    hashes = np.fromiter((_hash(name) for name in names), np.uint64, len(names))
    position = {name: number for number, name in enumerate(names)}
    flat = np.fromiter((position[word] for words in split for word in words), np.int64)
    owner = np.repeat(np.arange(len(split)), [len(words) for words in split])
    kept = ~_template_words(flat, owner, names, len(split)) if strip else np.ones(len(flat), np.bool_)
    sets = _distinct_words(hashes[flat], owner, kept, len(split))
    found, firsts = _equal_sets(sets)
    measured = _measured(sets, _candidates(sets, firsts, *bands_for(threshold)), threshold)
    word_of = dict(zip(hashes.tolist(), names, strict=True))
    return [
        Near(left, right, round(value, 6), _shared_words(sets, left, right, word_of))
        for left, right, value in sorted([*((one, two, 1.0) for one, two in found), *measured])
    ]


def similarity(left: str, right: str) -> float:
    """Jaccard similarity of the distinct words of two texts, templates included; 0 where both have none."""
    one, two = set(words_of(left)), set(words_of(right))
    return len(one & two) / len(one | two) if one or two else 0.0


def near_vectors(vectors: Sequence[Sequence[float]], threshold: float) -> list[Near]:
    """Pairs of vectors with a cosine of at least ``threshold``, sorted; a vector of length 0 is alike to none.

    Every pair is measured, in blocks: for tens of thousands of texts, not for millions.
    """
    import numpy as np

    if not len(vectors):
        return []
    matrix = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix = np.divide(matrix, lengths, out=np.zeros_like(matrix), where=lengths > 0)
    found: list[Near] = []
    for start in range(0, len(matrix), 1024):
        cosines = matrix[start : start + 1024] @ matrix[start:].T
        for row, column in zip(*np.nonzero(cosines >= threshold), strict=True):
            if row < column:
                value = min(1.0, float(cosines[row, column]))
                found.append(Near(start + int(row), start + int(column), round(value, 6), ()))
    return sorted(found)


def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _template_words(
    flat: NDArray[np.int64], owner: NDArray[np.int64], names: Sequence[str], texts: int
) -> NDArray[np.bool_]:
    """Which word positions are template: covered by a run of words that many texts hold."""
    import numpy as np

    marked = np.zeros(len(flat), np.bool_)
    last = len(flat) - TEMPLATE_WORDS + 1
    if last < 1:
        return marked
    number = _hash("\0number")  # the numbers of a template differ from text to text
    codes = np.fromiter((number if name.isdigit() else _hash(name) for name in names), np.uint64, len(names))[flat]
    runs = np.zeros(last, np.uint64)
    for offset in range(TEMPLATE_WORDS):
        runs = _mixed(runs ^ codes[offset : offset + last])
    inside = owner[:last] == owner[TEMPLATE_WORDS - 1 :]
    runs, where = runs[inside], np.flatnonzero(inside)
    order = np.lexsort((owner[where], runs))
    sorted_runs, sorted_owner = runs[order], owner[where][order]
    new_run = np.ones(len(order), np.bool_)
    new_run[1:] = sorted_runs[1:] != sorted_runs[:-1]
    new_text = new_run.copy()
    new_text[1:] |= sorted_owner[1:] != sorted_owner[:-1]
    group = np.cumsum(new_run) - 1
    held = np.bincount(group, weights=new_text)  # texts per run
    common = held >= max(TEMPLATE_TEXTS, TEMPLATE_SHARE * texts)
    starts = where[order[common[group]]]
    for offset in range(TEMPLATE_WORDS):
        marked[starts + offset] = True
    return marked


def _distinct_words(words: Words, owner: NDArray[np.int64], kept: NDArray[np.bool_], texts: int) -> _Texts:
    """The distinct kept words of each text. A text of which nothing is kept is one word: itself (case D01)."""
    import numpy as np

    emptied = np.bincount(owner, minlength=texts).astype(np.bool_) & (np.bincount(owner[kept], minlength=texts) == 0)
    if emptied.any():
        words, kept = words.copy(), kept.copy()
        first = np.searchsorted(owner, np.arange(texts + 1))
        for number in np.flatnonzero(emptied):
            whole = words[first[number] : first[number + 1]]
            words[first[number]] = int.from_bytes(hashlib.blake2b(whole.tobytes(), digest_size=8).digest(), "big")
            kept[first[number]] = True
    words, owner = words[kept], owner[kept]
    order = np.lexsort((words, owner))
    words, owner = words[order], owner[order]
    new = np.ones(len(words), np.bool_)
    new[1:] = (words[1:] != words[:-1]) | (owner[1:] != owner[:-1])
    return _Texts(words[new], np.searchsorted(owner[new], np.arange(texts + 1)).astype(np.int64))


def _equal_sets(sets: _Texts) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """(first text with these words, another one) and the first texts; texts without words are in neither."""
    import numpy as np

    first: dict[bytes, int] = {}
    found: list[tuple[int, int]] = []
    for number in range(len(sets.starts) - 1):
        words = sets.of(number)
        if len(words) and (older := first.setdefault(words.tobytes(), number)) != number:
            found.append((older, number))
    return found, np.fromiter(first.values(), np.int64, len(first))


def _candidates(sets: _Texts, firsts: NDArray[np.int64], bands: int, rows: int) -> NDArray[np.int64]:
    """Codes ``left * texts + right`` of the pairs that share a band, each once."""
    import numpy as np

    texts = len(sets.starts) - 1
    parts = [np.zeros(0, np.int64)]
    if len(firsts) < 2:
        return parts[0]
    known, position = np.unique(sets.words, return_inverse=True)
    for band in range(bands):
        keys = np.zeros(len(firsts), np.uint64)
        for row in range(rows):
            seed = np.uint64(_hash(f"minhash {band * rows + row}"))
            lowest = np.minimum.reduceat(_mixed(known ^ seed)[position], sets.starts[firsts])
            keys = _mixed(keys ^ lowest)
        parts.append(np.unique(_bucket_pairs(keys, firsts, texts)))
        if sum(map(len, parts)) > 1 << 23:  # keep the memory bounded by the distinct pairs
            parts = [np.unique(np.concatenate(parts))]
    return np.unique(np.concatenate(parts))


def _bucket_pairs(keys: Words, firsts: NDArray[np.int64], texts: int) -> NDArray[np.int64]:
    import numpy as np

    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    sizes = np.diff(np.append(starts, len(ordered)))
    rank = np.arange(len(ordered)) - np.repeat(starts, sizes)  # place inside the bucket, oldest first
    size = np.repeat(sizes, sizes)
    found = []
    for step in range(1, min(FAMILY, int(sizes.max()))):
        later = np.flatnonzero((rank >= step) & ((size <= FAMILY) | (step <= _NEIGHBOURS)))
        found.append(firsts[order[later - step]] * texts + firsts[order[later]])
    for place in range(_NEIGHBOURS if int(sizes.max()) > FAMILY else 0):
        later = np.flatnonzero((rank > place) & (size > FAMILY))
        found.append(firsts[order[later - rank[later] + place]] * texts + firsts[order[later]])
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _measured(sets: _Texts, codes: NDArray[np.int64], threshold: float) -> Iterator[tuple[int, int, float]]:
    """The candidates that hold, with their exact similarity (case D03)."""
    import numpy as np

    texts = len(sets.starts) - 1
    left, right = codes // texts, codes % texts
    sizes = np.diff(sets.starts)
    one, two = sizes[left], sizes[right]
    possible = np.minimum(one, two) >= threshold * np.maximum(one, two) - 1e-9
    held: dict[int, frozenset[int]] = {}

    def words(number: int) -> frozenset[int]:
        if number not in held:
            held[number] = frozenset(sets.of(number).tolist())
        return held[number]

    for a, b in zip(left[possible].tolist(), right[possible].tolist(), strict=True):
        shared = len(words(a) & words(b))
        value = shared / (len(words(a)) + len(words(b)) - shared)
        if value >= threshold:
            yield a, b, value


def _shared_words(sets: _Texts, left: int, right: int, word_of: dict[int, str]) -> tuple[str, ...]:
    both = set(sets.of(left).tolist()) & set(sets.of(right).tolist())
    return tuple(sorted(word_of.get(word, "(template only)") for word in both)[:_SHOWN_WORDS])


def _mixed(values: Words) -> Words:
    """A fixed bijection of 64-bit numbers that looks random (splitmix64)."""
    import numpy as np

    mixed: Any = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Words = mixed ^ (mixed >> np.uint64(31))
    return found
