"""Drills that the miniature's base model is trained on: copying, same or different, comparing numbers, JSON records.

They teach what any pretrained model brings along and what a corpus of a few thousand traces cannot: to repeat a span,
to see that two words are the same, to walk a list of records. None is a shopping problem: there is no tool, no request
of a user, no row of the catalogue and no turn of a dialogue. Words are drawn from one list, so that each has met its
like; identifiers and numbers are random.

Every drill says which of its text the model has to write. The same seed gives the same drills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import NamedTuple

from trajectory_platform.errors import Abort
from trajectory_platform.miniature.world import COLOURS, MATERIALS, OBJECTS

VERSION = "miniature-drills-1"  # raise it when the same seed would give other drills

WORDS = (*COLOURS, *MATERIALS, *OBJECTS)
_SPEECH = """
    a and any all as at best between by can check code copy costs detail details differs done each enough fetching find
    finished first fits for found from good have i in is it less list look match matching me more need next none
    nothing now of one only open out pay pesos please priced product products recommend row rows same search searching
    selecting show so take than that the their this to want which with words you
"""
SPEECH = tuple(_SPEECH.split())
"""Other words of the stream's short sentences, for the tokenizer."""

GLUE = ('\n[{"code', '[{"code', '"},{"code', '":"', '","words', '"}]')
"""The text between the values of a list of records, in the pieces a tokenizer cuts it into."""

_PAIRS, _COPIES, _QUOTES, _COMPARISONS = 24, 5, 6, 16  # parts of one drill: sequences of about 100 to 200 tokens
_RECORDS = (3, 8)
_LISTS = 3  # of records asked for in a row
_NEAR = 0.25  # how often a word of a record is one that is asked for


class Part(NamedTuple):
    """A piece of a drill; ``trained`` pieces are what the model writes."""

    text: str
    trained: bool


Drill = list[Part]


def drills(seed: int, mix: Mapping[str, float]) -> Iterator[Drill]:
    """Drills without end, of the kinds in ``mix`` (a key of ``KINDS`` and its share).

    Raises:
        Abort: an unknown kind or no share above 0.
    """
    kinds = sorted(kind for kind, share in mix.items() if share > 0)
    unknown = sorted(set(mix) - set(KINDS))
    if unknown or not kinds:
        raise Abort(f"drills are of the kinds {', '.join(sorted(KINDS))}; not {', '.join(unknown) or 'none at all'}")
    rng = Random(f"miniature drills|{seed}")
    shares = [mix[kind] for kind in kinds]
    while True:
        yield KINDS[rng.choices(kinds, shares)[0]](rng)


def pairs(rng: Random) -> Drill:
    """Two words: the same, or not."""
    found: Drill = []
    for _ in range(_PAIRS):
        first = rng.choice(WORDS)
        second = first if rng.random() < 0.5 else rng.choice(WORDS)
        found += [Part(f" {first} want {second}", False), Part(_verdict(first == second), True), Part("\n", False)]
    return found


def copies(rng: Random) -> Drill:
    """A span of words and identifiers, and the same again."""
    found: Drill = []
    for _ in range(_COPIES):
        span = "".join(rng.choice((_word, _line))(rng) for _ in range(rng.randint(2, 5)))
        found += [Part(f"copy{span}\n", False), Part(span, True), Part("\n", False)]
    return found


def quotes(rng: Random) -> Drill:
    """Words and numbers of a line, each again in quotation marks."""
    found: Drill = []
    for _ in range(_QUOTES):
        words = [rng.choice(WORDS) for _ in range(rng.randint(2, 4))]
        low, high = rng.randrange(10, 1000), rng.randrange(10, 1000)
        found.append(Part(f"list {' '.join(words)} {low} and {high}", False))
        for word in words:
            found += [Part('\n"', False), Part(word, True), Part('"', False)]
        found += [Part(' is "', False), Part(f"{low}-{high}", True), Part('"\n', False)]
    return found


def comparisons(rng: Random) -> Drill:
    """Two numbers: less, more or the same."""
    found: Drill = []
    for _ in range(_COMPARISONS):
        first = rng.randrange(10, 1000)
        second = first if rng.random() < 0.2 else rng.randrange(10, 1000)
        answer = " same" if first == second else " less" if first < second else " more"
        found += [Part(f"{first} than {second}", False), Part(answer, True), Part("\n", False)]
    return found


def records(rng: Random) -> Drill:
    """A JSON list of records; then, for some words, its codes one by one up to the record that has them."""
    asked = [_asked(rng) for _ in range(_LISTS)]
    rows = [[_code(rng), rng.choice(OBJECTS), *_near(rng, asked)] for _ in range(rng.randint(*_RECORDS))]
    for words, row in zip(asked, rng.sample(rows, _LISTS), strict=True):  # each is found somewhere
        for place, word in words:
            row[place] = word
    rows.sort()
    listed = ",".join(f'{{"code":"{row[0]}","words":"{" ".join(row[1:])}"}}' for row in rows)
    found: Drill = []
    for number, words in enumerate(asked):
        wanted = "want" + "".join(f" {word}" for _, word in words) + "\n"
        found.append(Part(wanted if number else f"{wanted}[{listed}]\n", False))
        found += [Part(_walk(rows, words), True), Part("\n", False)]
    return found


KINDS: Mapping[str, Callable[[Random], Drill]] = {
    "pairs": pairs,
    "copies": copies,
    "quotes": quotes,
    "comparisons": comparisons,
    "records": records,
}


def _walk(rows: list[list[str]], words: list[tuple[int, str]]) -> str:
    lines = []
    for row in rows:
        line, fits = row[0], True
        for place, word in words:
            fits = row[place] == word
            line += f" {row[place]} want {word}{_verdict(fits)}"
            if not fits:
                break
        lines.append(line)
        if fits:
            break
    return "\n".join(lines) + "\n."


def _asked(rng: Random) -> list[tuple[int, str]]:
    """One or two words with their places in a record."""
    both = [(2, rng.choice(COLOURS)), (3, rng.choice(MATERIALS))]
    return both if rng.random() < 0.5 else [rng.choice(both)]


def _near(rng: Random, asked: list[list[tuple[int, str]]]) -> list[str]:
    """The last two words of a record, now and then such as are asked for."""
    found = []
    for place, words in ((2, COLOURS), (3, MATERIALS)):
        wanted = [word for one in asked for where, word in one if where == place]
        found.append(rng.choice(wanted) if wanted and rng.random() < _NEAR else rng.choice(words))
    return found


def _verdict(same: bool) -> str:
    return " same" if same else " differs"


def _word(rng: Random) -> str:
    return f" {rng.choice(WORDS)}"


def _line(rng: Random) -> str:
    return f"\n{_code(rng)}"


def _code(rng: Random) -> str:
    return str(rng.randrange(100_000_000, 1_000_000_000))
