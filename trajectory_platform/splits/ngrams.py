"""A second, independent look for leaks: word n-grams of held-out queries inside the text of training rows.

The clusters compare problems with problems. This compares what is really trained on (the user's words and everything
the assistant wrote) with the queries of held-out problems, whatever a trace claims its problem is: a dialogue under
another id, a memory that an agent carries along, a thought that quotes another task.

Why 8 words: of the 900 test queries of ShoppingBench a tenth has at most 14 words, so 13-grams (GPT-3) would see two of
them; 8-grams see every query of 8 words and more. Unrelated queries share at most 0.36 of their 8-grams (0.46 of their
5-grams), so half of them is evidence and less is none. The voucher tail and runs that stand in queries of
``TEMPLATE_CLUSTERS`` clusters are templates and are not counted (domain 4.4). A shorter query is one n-gram of its own
length; below ``MIN_WORDS`` words, and where templates leave almost nothing, only the whole message counts (case D13).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from trajectory_platform.sandbox.problems import hidden_problem_key
from trajectory_platform.sandbox.queries import normalise_query
from trajectory_platform.splits.similarity import without_voucher
from trajectory_platform.splits.weak import words_of

if TYPE_CHECKING:
    import pyarrow as pa

NGRAMS_VERSION = "ngrams-2"  # raise it when the same texts would give other overlaps
WORDS = 8
MIN_WORDS = 5
EVIDENCE_SHARE = 0.5  # share of a query's n-grams in one row from which the row restates the query
TEMPLATE_CLUSTERS = 5
_LEAST_OWN = 3  # n-grams that must remain of a query that lost some to templates
_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"[^\W_]+")  # as in ``weak``: "_find_ _this_" (Markdown) is two words
_SHOWN_WORDS = re.compile(r"(of the query of [^()]{1,16}\)): ['\"].*", re.DOTALL)
_FOLDED = re.compile(r"[`\x00-\x08\x0e-\x1b\x7f]")  # ASCII characters that the comparison form removes

Gram = tuple[str, ...]


class Known(NamedTuple):
    """The query of a problem; ``cluster_id`` "" where it is in none."""

    problem_key: str
    cluster_id: str
    query: str


class Overlap(NamedTuple):
    """One row holds ``share`` of the n-grams of a problem's query, the longest piece of it at a place.

    Attributes:
        place: which text of the row (``message 0 user``), ``start``: 0-based word in it, ``words``: its length.
        span: these words in comparison form. The words of a sealed problem are shown to nobody.
    """

    problem_key: str
    share: float
    place: str
    start: int
    words: int
    span: str

    def evidence(self, trace_id: str, *, show: bool) -> str:
        """Row, place and length of what was found; its words only with ``show`` (case D15)."""
        text = f": {self.span[:200]!a}" if show else ""
        return (
            f"{trace_id} {self.place} words {self.start} to {self.start + self.words - 1} "
            f"({self.share:.2f} of the query of {self.problem_key[:16]}){text}"
        )


def without_words(detail: str | None) -> str | None:
    """Evidence without the words that ``Overlap.evidence`` shows: for a problem that was sealed since."""
    return None if detail is None else _SHOWN_WORDS.sub(r"\1", detail)


class NgramIndex:
    """Queries of held-out problems, ready to be looked for in rows.

    Args:
        queries: what is looked for; several of one problem count each for itself.
        background: further queries that show what is template.
    """

    def __init__(self, queries: Iterable[Known], background: Iterable[Known] = ()) -> None:
        listed = sorted(set(_comparable(queries)))
        templates = _templates(listed, background)
        self.problems = [known.problem_key for known in listed]
        self.sizes = [min(WORDS, len(known.query.split())) for known in listed]
        self.counts: list[int] = []
        self.whole: dict[Gram, list[int]] = {}
        self.grams: dict[int, dict[Gram, list[tuple[int, int]]]] = {}
        for number, known in enumerate(listed):
            words = tuple(known.query.split())
            every = _distinct(words)
            own = [gram for gram in every if _masked(gram) not in templates]
            if len(words) < MIN_WORDS or len(own) < min(_LEAST_OWN, len(every)):
                self.whole.setdefault(words, []).append(number)
                own = []
            self.counts.append(len(own))
            for place, gram in enumerate(own):
                self.grams.setdefault(len(gram), {}).setdefault(gram, []).append((number, place))
        self.openings: dict[str, set[str]] = {}
        for gram in (gram for table in self.grams.values() for gram in table):
            self.openings.setdefault(gram[0], set()).add(gram[1])

    def overlaps(self, messages: Iterable[Mapping[str, Any]], *, least: float = EVIDENCE_SHARE) -> list[Overlap]:
        """Problems of whose queries one row holds at least ``least``, by key; of several queries the largest share."""
        hits: dict[int, dict[int, tuple[str, int]]] = {}
        texts: dict[str, list[str]] = {}
        best: dict[str, Overlap] = {}
        for place, text in texts_of(messages):
            words = texts[place] = row_words(text)
            for number in self._wholly(text, words):
                _keep(best, Overlap(self.problems[number], 1.0, place, 0, len(words), " ".join(words)))
            for start, gram_words in self._found(words):
                for number, gram in self.grams[len(gram_words)][gram_words]:
                    hits.setdefault(number, {}).setdefault(gram, (place, start))
        for number, found in hits.items():
            share = round(len(found) / self.counts[number], 4)
            if share >= least:
                place, start, length = _longest(found.values(), self.sizes[number])
                span = " ".join(texts[place][start : start + length])
                _keep(best, Overlap(self.problems[number], share, place, start, length, span))
        return [best[key] for key in sorted(best)]

    def _wholly(self, text: str, words: Sequence[str]) -> Sequence[int]:
        """Queries that are the whole text. They are known without the voucher tail, which the text may have."""
        found = self.whole.get(tuple(words), ())
        if not found and self.whole and "voucher" in words:
            found = self.whole.get(tuple(words_of(without_voucher(normalise_query(text)))), ())
        return found

    def _found(self, words: Sequence[str]) -> Iterator[tuple[int, Gram]]:
        """Known n-grams of a text. Only where the first two words open one is an n-gram made and looked up."""
        openings = self.openings
        for at, (word, following) in enumerate(pairwise(words)):
            seconds = openings.get(word)
            if seconds is None or following not in seconds:
                continue
            for size, table in self.grams.items():
                gram = tuple(words[at : at + size])
                if gram in table:
                    yield at, gram


def row_words(text: str) -> list[str]:
    """``words_of``, faster where nothing is to be folded: most of what agents write."""
    if text.isascii() and _FOLDED.search(text) is None:
        return _WORD.findall(text.lower())
    return words_of(text)


def texts_of(messages: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(place, text) of what a model would read or learn from: words of the system prompt (an agent's examples and
    memory stand there) and of the user, and all the assistant wrote, calls included.

    Tool results are what a shop answered: they name products that many problems ask for.
    """
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in ("system", "user", "assistant"):
            continue
        for name in ("content", "reasoning_content"):
            text = message.get(name)
            if isinstance(text, str) and text:
                yield f"message {number} {role}{'' if name == 'content' else ' thought'}", _unquoted(text)
        for place, call in enumerate(message.get("tool_calls") or ()):
            arguments = call["function"]["arguments"]
            text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
            yield f"message {number} call {place}", _unquoted(text)


def _unquoted(text: str) -> str:
    """Line ends of JSON inside a text are white space: agents write their memory so, in calls and in prose."""
    return text.replace("\\n", " ") if "\\" in text else text


def known_queries(problems: pa.Table, stated: pa.Table | None, clusters: pa.Table) -> list[Known]:
    """Queries of all problems of the clusters, sorted: listed ones, and for hidden problems what most traces state.

    Args:
        problems: ``problem_suites`` rows (problem_key, query).
        stated: ``judged_traces`` rows (suite_id, problem_id, problem_key, query). A query counts for a problem without
            a listed one when more than half of its traces state it: single agents write what they like.
    """
    rows = zip(clusters["problem_key"].to_pylist(), clusters["cluster_id"].to_pylist(), strict=True)
    cluster_of = dict(rows)
    listed = problems.select(["problem_key", "query"]).group_by(["problem_key", "query"]).aggregate([])
    found = {(row["problem_key"], row["query"]) for row in listed.to_pylist() if row["query"]}
    known = {key for key, _ in found}
    if stated is not None:
        found |= {(key, query) for key, query in _majorities(stated).items() if key not in known}
    return [Known(key, cluster_of[key], query) for key, query in sorted(found) if key in cluster_of]


def _majorities(stated: pa.Table) -> dict[str, str]:
    names = ["suite_id", "problem_id", "problem_key", "query"]
    counted = stated.select(names).group_by(names).aggregate([([], "count_all")])
    votes: dict[str, Counter[str]] = {}
    for row in counted.to_pylist():
        key = row["problem_key"]
        if key is None and row["problem_id"] is not None:
            key = hidden_problem_key(row["suite_id"], row["problem_id"])
        if key is not None:
            votes.setdefault(key, Counter())[normalise_query(row["query"] or "")] += row["count_all"]
    agreed = {}
    for key, counts in votes.items():
        query, count = max(counts.items(), key=lambda item: (item[1], item[0]))
        if query and 2 * count > counts.total():
            agreed[key] = query
    return agreed


def _comparable(queries: Iterable[Known]) -> Iterator[Known]:
    """Queries as their words, without the voucher tail; those without a word are left out."""
    for known in queries:
        words = words_of(without_voucher(normalise_query(known.query)))
        if words:
            yield known._replace(query=" ".join(words))


def _distinct(words: Gram) -> list[Gram]:
    size = min(WORDS, len(words))
    return list(dict.fromkeys(words[at : at + size] for at in range(len(words) - size + 1)))


def _masked(gram: Gram) -> str:
    """Numbers count as one word: a template with another price is the same template."""
    return _DIGITS.sub("0", " ".join(gram))


def _templates(listed: Sequence[Known], background: Iterable[Known]) -> frozenset[str]:
    """Masked n-grams of the listed queries that stand in queries of ``TEMPLATE_CLUSTERS`` clusters."""
    clusters: dict[str, set[str]] = {}
    for known in listed:
        for gram in _distinct(tuple(known.query.split())):
            clusters.setdefault(_masked(gram), set()).add(known.cluster_id or known.problem_key)
    for other in _comparable(background):
        for gram in _distinct(tuple(other.query.split())):
            found = clusters.get(_masked(gram))
            if found is not None and len(found) < TEMPLATE_CLUSTERS:
                found.add(other.cluster_id or other.problem_key)
    return frozenset(gram for gram, found in clusters.items() if len(found) >= TEMPLATE_CLUSTERS)


def _longest(found: Iterable[tuple[str, int]], size: int) -> tuple[str, int, int]:
    """Place, first word and number of words of the longest run of n-grams that follow one another, the first such."""
    runs: list[tuple[str, int, int]] = []
    for place, start in sorted(found):
        if runs and runs[-1][0] == place and start == runs[-1][1] + runs[-1][2] - size + 1:
            runs[-1] = (place, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((place, start, size))
    return max(runs, key=lambda run: run[2])


def _keep(best: dict[str, Overlap], found: Overlap) -> None:
    held = best.get(found.problem_key)
    if held is None or (found.share, found.words) > (held.share, held.words):
        best[found.problem_key] = found
