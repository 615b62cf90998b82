"""Kinds of failure: why an attempt in the sandbox was no success, one kind per attempt, from stored evidence only.

An attempt may show several faults (it recommended an id it never opened, of the wrong product, at the wrong price).
It is counted once, under the first of :data:`KINDS` that applies. Their order follows the attempt: first what kept it
from acting, then what it did not say, then what it said, and of a wrong product first the check that tells most. The
single faults, each counted wherever it occurs, are :data:`SIGNS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Row = Mapping[str, Any]
OTHER = "other"


class Evidence(NamedTuple):
    """What the trace of an attempt adds to its row of scores; None where nothing is known.

    Attributes:
        wanted_seen: a wanted product stood in a result that the attempt had seen.
        refined: a later search differs from an earlier one whose result was seen (``curation.quality``).
    """

    wanted_seen: bool | None = None
    refined: bool | None = None


NOTHING_KNOWN = Evidence()


class Kind(NamedTuple):
    """One kind of failure: its name, what it says to people, and when it applies."""

    name: str
    words: str
    applies: Callable[[Row, Evidence], bool]


def _ending(*names: str) -> Callable[[Row, Evidence], bool]:
    return lambda row, _: row["ending"] in names


def _outcome(name: str) -> Callable[[Row, Evidence], bool]:
    return lambda row, _: row["outcome"] == name


def _below(field: str) -> Callable[[Row, Evidence], bool]:
    """A check of the score that was made and did not hold in full."""
    return lambda row, _: row["score"].get(field) is not None and row["score"][field] < 1


def _silent(row: Row) -> bool:
    return not row["recommended_ids"]


def _other_product(row: Row) -> bool:
    return bool(_below("title")(row, NOTHING_KNOWN)) and not _silent(row)


def _all_right_but(field: str) -> Callable[[Row, Evidence], bool]:
    return lambda row, known: row["score"].get("rule", 0) >= 1 and _below(field)(row, known)


KINDS: tuple[Kind, ...] = (
    Kind("no_attempt", "was planned and left no trace", lambda row, _: row["reason"] == "no_attempt_recorded"),
    Kind("crash", "the model or the sandbox failed", _outcome("crash")),
    Kind("timeout", "ran out of time", _outcome("timeout")),
    Kind("malformed_reply", "a reply whose calls cannot be read", _ending("malformed_reply")),
    Kind("reply_cut", "a reply was cut at the token limit", _ending("reply_truncated")),
    Kind("token_limit", "the attempt used up its tokens or its context", _ending("token_limit")),
    Kind("step_limit", "still searching at the last allowed step", _ending("step_limit")),
    Kind("unscorable", "the dialogue cannot be scored", _outcome("unscorable")),
    Kind(
        "unread_recommendation",
        "recommended in a form that the strict rule does not read",
        lambda row, _: row["lenient_success"] is True or (_silent(row) and "empty_recommend" in row["discipline"]),
    ),
    Kind(
        "gave_up",
        "a reply without a call, before anything was recommended",
        lambda row, _: _silent(row) and row["ending"] == "no_call",
    ),
    Kind("no_recommendation", "ended without recommending anything", lambda row, _: _silent(row)),
    Kind("hallucinated_id", "recommended an id that no result showed", lambda row, _: bool(row["hallucinated_ids"])),
    Kind("missing_product", "an id that is no product, or fewer products than were asked for", _below("product")),
    Kind("never_viewed", "recommended a product that it never opened", lambda row, _: bool(row["unviewed_ids"])),
    Kind(
        "passed_over",
        "another product, although a wanted one stood in a result it had seen",
        lambda row, known: _other_product(row) and known.wanted_seen is True,
    ),
    Kind(
        "never_refined",
        "another product; the wanted one never came up, and no search was refined",
        lambda row, known: _other_product(row) and known.refined is False,
    ),
    Kind("wrong_title", "another product, by its title", lambda row, _: _other_product(row)),
    Kind("wrong_attributes", "another variant: SKU or attributes", _below("sku & attrs")),
    Kind("wrong_price", "outside the asked price", _below("price")),
    Kind("wrong_service", "without an asked service", _below("service")),
    Kind("wrong_answer", "the answer or its key words are not in the response (web)", lambda row, known: any(
        _below(field)(row, known) for field in ("response", "kw")
    )),
    Kind("several_shops", "the right products, but not of one shop", _all_right_but("shop")),
    Kind("over_budget", "the right products, but over the budget", _all_right_but("budget")),
    Kind(OTHER, "none of these", lambda row, _: True),
)  # fmt: skip
"""In the order in which they are tried; every failure is the first one that applies."""

SIGNS: tuple[Kind, ...] = (
    Kind("hallucinated ids", "recommended an id that no result showed", lambda row, _: bool(row["hallucinated_ids"])),
    Kind("never viewed", "recommended a product that it never opened", lambda row, _: bool(row["unviewed_ids"])),
    Kind("wanted product seen", "a wanted product stood in a result", lambda _, known: known.wanted_seen is True),
    Kind("search not refined", "no later search differs from an earlier one", lambda _, known: known.refined is False),
    *(
        Kind(f"check failed: {words}", f"the score's check of {words} did not hold", _below(field))
        for field, words in (
            ("product", "products that exist"),
            ("title", "title"),
            ("sku & attrs", "SKU and attributes"),
            ("price", "price"),
            ("service", "services"),
            ("kw", "key words"),
            ("response", "answer"),
            ("shop", "one shop"),
            ("budget", "budget"),
        )
    ),
    Kind("cut by a limit", "a reply or the attempt was cut", lambda row, _: bool(row["truncated"])),
    Kind("protocol violated", "not one recommendation and then an end", lambda row, _: bool(row["discipline"])),
)
"""Faults that may occur together; each is counted wherever it occurs."""

_WORDS = {kind.name: kind.words for kind in KINDS}


class Failure(NamedTuple):
    """A failed attempt with its kind."""

    kind: str
    row: Row
    evidence: Evidence


def is_failure(row: Row) -> bool:
    """An attempt that counts and was no success; problems without a known reward are neither."""
    return row["outcome"] != "no_reward" and row["success"] is not True


def kind_of(row: Row, evidence: Evidence = NOTHING_KNOWN) -> str:
    """The kind of one failure: the first of :data:`KINDS` that applies.

    Args:
        row: columns of ``eval_scores``, ``score`` as an object (not as its JSON text).
    """
    return next(kind.name for kind in KINDS if kind.applies(row, evidence))


def words_of(kind: str) -> str:
    """What a kind says to people."""
    return _WORDS[kind]


def failures(rows: Iterable[Row], evidence: Mapping[str, Evidence]) -> list[Failure]:
    """The failures among attempts, each with its kind, in the order of the rows.

    Args:
        evidence: by trace id; an attempt without an entry is judged by its row alone.
    """
    found = []
    for row in rows:
        if is_failure(row):
            known = evidence.get(row["trace_id"] or "", NOTHING_KNOWN)
            found.append(Failure(kind_of(row, known), row, known))
    return found


def counted(found: Sequence[Failure]) -> dict[str, dict[str, int]]:
    """Kind -> category -> failures, kinds in the order of :data:`KINDS`, only those that occur."""
    counts: dict[str, dict[str, int]] = {}
    for kind in KINDS:
        own = [failure.row["category"] for failure in found if failure.kind == kind.name]
        if own:
            counts[kind.name] = {name: own.count(name) for name in sorted(set(own))}
    return counts


def signs(found: Sequence[Failure]) -> list[tuple[str, str, int]]:
    """(sign, what it says, failures that show it); signs that no failure shows are left out."""
    counts = [
        (sign.name, sign.words, sum(bool(sign.applies(failure.row, failure.evidence)) for failure in found))
        for sign in SIGNS
    ]
    return [row for row in counts if row[2]]


def examples(found: Sequence[Failure], *, most: int = 3) -> dict[str, list[str]]:
    """Kind -> at most so many trace ids: different problems first, then by problem key and sample.

    The choice depends on nothing but the failures themselves, so that a report is the same when it is made again.
    """
    chosen: dict[str, list[str]] = {}
    for kind in KINDS:
        own = [failure.row for failure in found if failure.kind == kind.name and failure.row["trace_id"]]
        own.sort(key=lambda row: (row["problem_key"], row["sample"]))
        first: dict[str, Row] = {}
        for row in own:
            first.setdefault(row["problem_key"], row)
        again = [row for row in own if first[row["problem_key"]] is not row]
        ids = [str(row["trace_id"]) for row in (*first.values(), *again)][:most]
        if ids:
            chosen[kind.name] = ids
    return chosen
