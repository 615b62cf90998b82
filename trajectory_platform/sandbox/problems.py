"""Shopping problems: the shapes they are published in, their key and their table (domain 4).

Three shapes become one ``Problem``:

* an item of ``suite.json`` or of the API: ``{problem_id, suite_id, metadata: {query, category, reward, ...}}``;
* an item of a published suite file: the same fields at the top level, without a problem id;
* a ShoppingBench row: ``query``, ``reward`` and, for web rows, ``Knowledge_Attribute`` (text or integer).

A race problem has no item at all; it is known only by the id in ``problems.jsonl`` and its reward is hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trajectory_platform import jsontext
from trajectory_platform.identity import digest_json, safe_id
from trajectory_platform.sandbox.difficulty import difficulty_of
from trajectory_platform.sandbox.problem_shapes import (
    ANSWER_FIELD,
    answer_text,
    category_of,
    fields_of,
    product_id_text,
    reward_list,
)
from trajectory_platform.sandbox.problem_shapes import id_text as id_text
from trajectory_platform.sandbox.problem_shapes import title_embeddings_of as title_embeddings_of
from trajectory_platform.sandbox.queries import normalise_query as normalise_query
from trajectory_platform.sandbox.vouchers import parse_voucher_text

if TYPE_CHECKING:
    from datetime import date

    import pyarrow as pa

VERSION = "problems-2"  # raise it when the same suite would give other rows


@dataclass(frozen=True)
class Problem:
    """One shopping problem.

    Attributes:
        problem_id: safe id (``identity.safe_id``), or ``key-...`` where the source gives none.
        suite_id: text, or None.
        category: lower case; ``""`` when unknown.
        difficulty: as stated, else ``difficulty.difficulty_of``; None for hidden and web problems that state none.
        query: None for a problem known only from traces.
        reward: always a list of reward objects; None when hidden or unusable.
        reward_raw: the reward as published. An object is right for product and web problems; a shop or
            voucher problem whose reward is an object makes the reference scorer raise (domain 2.5).
        reward_state: ``public``, ``hidden`` (none published) or ``invalid`` (published, but no reward can be read).
        voucher: the published voucher object, else, for a hidden problem, the one that its query describes (without
            ``price_after_voucher``), else None.
        problem_key: what identifies the task itself, see ``problem_key``.
        reward_product_ids: in reward order, as text, each once.
        knowledge_answer: the answer of a web problem as text, as published (blanks around it included), or None.
        voucher_derived: the voucher was read from the query; no object was published.
    """

    problem_id: str
    suite_id: str | None
    category: str
    difficulty: str | None
    title: str | None
    query: str | None
    reward: list[dict[str, Any]] | None
    reward_raw: Any
    reward_state: str
    voucher: dict[str, Any] | None
    problem_key: str
    reward_product_ids: tuple[str, ...]
    knowledge_answer: str | None = None
    voucher_derived: bool = False

    @property
    def answer(self) -> str | None:
        """The knowledge answer; the name of the first release."""
        return self.knowledge_answer


class WebRule(NamedTuple):
    """What the score of a web problem compares (domain 2.3): the recommended product is the rewarded one, or its title
    or description contains the keyword (case is ignored) and its title is similar to ``title``; besides, whether the
    agent's responses contain the keyword.

    Attributes:
        title: the rewarded product's title; None where the reward has none.
    """

    product_id: str
    keyword: str
    title: str | None


def problem_key(query: str | None, reward_ids: Iterable[str], category: str) -> str:
    """Digest of the normalised query, the sorted reward ids and the category (design 3, "Pools").

    The same task in two suites has one key; the wording of ids, ranks and titles plays no part.
    """
    return digest_json(["problem", normalise_query(query or ""), sorted(set(reward_ids)), category.strip().lower()])


def hidden_problem_key(suite_id: str | None, problem_id: str) -> str:
    """The key of a problem whose text and reward are both unknown: only its id tells it apart.

    The query of a race trace is written by the agent and therefore never enters a key.
    """
    return digest_json(["hidden", suite_id, problem_id])


def parse_problem(item: Mapping[str, Any], *, suite_id: str | None, problem_id: str | None = None) -> Problem:
    """Any published shape to a ``Problem``.

    Args:
        item: suite item, suite-file item or ShoppingBench row.
        suite_id: used where the item names none.
        problem_id: used where the item names none; without either the id is made from the key.

    Nothing is guessed: a field of the wrong type is None, a reward that cannot be read is ``invalid``.
    """
    fields = fields_of(item)
    raw_reward = fields.get("reward")
    reward = reward_list(raw_reward)
    state = "public" if reward else "hidden" if raw_reward is None else "invalid"
    ids: dict[str, None] = {}
    for entry in reward or ():
        ids.setdefault(product_id_text(entry["product_id"]) or "", None)
    query = _text(fields.get("query"))
    published = fields.get("voucher") if isinstance(fields.get("voucher"), Mapping) else None
    voucher, derived = _voucher(published, state, query)
    category = category_of(fields, voucher)
    suite = id_text(item.get("suite_id", fields.get("suite_id"))) or suite_id
    named = item.get("problem_id", fields.get("problem_id", problem_id))
    key = problem_key(query, ids, category)
    safe = f"key-{key[:40]}" if named in (None, "") else safe_id(named)
    if not ids and not normalise_query(query or ""):
        key = hidden_problem_key(suite, safe)
    stated = _text(fields.get("difficulty"))
    return Problem(
        problem_id=safe,
        suite_id=suite,
        category=category,
        difficulty=stated if stated and stated.strip() else difficulty_of(category, reward, voucher),
        title=_text(fields.get("title")),
        query=query,
        reward=reward,
        reward_raw=raw_reward,
        reward_state=state,
        voucher=voucher,
        problem_key=key,
        reward_product_ids=tuple(ids),
        knowledge_answer=answer_text(fields.get(ANSWER_FIELD)),
        voucher_derived=derived,
    )


def web_rule(problem: Problem) -> WebRule | None:
    """What a scorer needs of a web problem; None for other categories and where reward or answer is missing."""
    if problem.category != "web" or problem.knowledge_answer is None or not problem.reward:
        return None
    titles = problem.reward[0].get("title")
    title = titles[0] if isinstance(titles, list) and titles else titles
    return WebRule(problem.reward_product_ids[0], problem.knowledge_answer, title if isinstance(title, str) else None)


def _voucher(published: Any, state: str, query: str | None) -> tuple[dict[str, Any] | None, bool]:
    """The voucher and whether it was read from the query, which only a hidden problem allows: where the reward is
    public, a missing object makes the reference scorer raise (domain 2.5), and nothing is put in its place."""
    if published is not None:
        return dict(published), False
    told = parse_voucher_text(query) if state == "hidden" and query else None
    return told, told is not None


def hidden_problem(problem_id: object, *, suite_id: str | None, category: object = None) -> Problem:
    """A problem named only by an entry of ``problems.jsonl`` or by an artifact: no query, no reward."""
    safe = safe_id(problem_id)
    return Problem(
        problem_id=safe,
        suite_id=suite_id,
        category=category.strip().lower() if isinstance(category, str) else "",
        difficulty=None,
        title=None,
        query=None,
        reward=None,
        reward_raw=None,
        reward_state="hidden",
        voucher=None,
        problem_key=hidden_problem_key(suite_id, safe),
        reward_product_ids=(),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# ---------------------------------------------------------------------------------------------- tables


class DayRecords(Protocol):
    """What ``problem_rows`` needs of a raw day (``sources.files.RawDay`` has it)."""

    @property
    def day(self) -> date: ...
    @property
    def runs(self) -> list[dict[str, Any]]: ...
    @property
    def problems(self) -> list[dict[str, Any]]: ...
    @property
    def suite(self) -> dict[str, Any] | None: ...
    @property
    def artifacts(self) -> Sequence[Any]: ...


def suite_problems(suite: Mapping[str, Any] | None, *, suite_id: str | None = None) -> list[Problem]:
    """The problems of a ``suite.json`` object (``{suite, problems[]}``) in file order, without items that are none."""
    if suite is None:
        return []
    head = suite.get("suite")
    own = id_text(head.get("suite_id")) if isinstance(head, Mapping) else None
    items = suite.get("problems")
    found = items if isinstance(items, list) else []
    return [parse_problem(item, suite_id=own or suite_id) for item in found if isinstance(item, Mapping)]


def problem_rows(raw: DayRecords) -> pa.Table:
    """Every problem seen in a day folder, as rows of ``problem_suites``.

    A problem is keyed by (suite_id, problem_id). One id twice in a suite with other content is never merged: the
    further one (by content, so that the order of the file decides nothing) gets ``#n`` after its id, and its reward
    still takes part in the leak clusters.
    """
    found: dict[tuple[str | None, str], tuple[Problem, str]] = {}
    for problem in sorted(suite_problems(raw.suite), key=lambda problem: jsontext.canonical(_content(problem)[1:])):
        _add_unmerged(found, problem, "suite")
    _add_named(found, raw)
    return to_table((problem for problem, _ in found.values()), raw.day.isoformat(), [s for _, s in found.values()])


def _add_unmerged(found: dict[tuple[str | None, str], tuple[Problem, str]], problem: Problem, source: str) -> None:
    number, name = 0, problem.problem_id
    while (held := found.get((problem.suite_id, name))) is not None:
        if _content(held[0]) == _content(problem):
            return
        number += 1
        name = f"{problem.problem_id}#{number}"
    found[(problem.suite_id, name)] = (replace(problem, problem_id=name), source)


def _content(problem: Problem) -> tuple[Any, ...]:
    return (problem.problem_key, problem.query, problem.reward_raw, problem.voucher, problem.knowledge_answer)


def _add_named(found: dict[tuple[str | None, str], tuple[Problem, str]], raw: DayRecords) -> None:
    """Add problems that have no suite item: entries of ``problems.jsonl``, then artifacts of unnamed problems."""
    for entry in raw.problems:
        if entry.get("problem_id") is not None:
            problem = hidden_problem(
                entry["problem_id"], suite_id=id_text(entry.get("suite_id")), category=entry.get("category")
            )
            found.setdefault((problem.suite_id, problem.problem_id), (problem, "problems"))
    known = {problem_id for _, problem_id in found}
    suites = {str(run.get("eval_run_id")): id_text(run.get("suite_id")) for run in raw.runs}
    for artifact in raw.artifacts:
        if safe_id(artifact.problem_id) not in known:
            problem = hidden_problem(artifact.problem_id, suite_id=suites.get(artifact.eval_run_id))
            found.setdefault((problem.suite_id, problem.problem_id), (problem, "artifact"))


def to_table(problems: Iterable[Problem], day: str, sources: Sequence[str] | None = None) -> pa.Table:
    """Problems as a table in the ``problem_suites`` schema, sorted by (problem_id, suite_id).

    The knowledge answer of a web problem is kept as ``Knowledge_Attribute`` inside the stored reward. A voucher read
    from the query is not stored: it is read again.
    """
    import pyarrow as pa

    from trajectory_platform.lake.tables import PROBLEM_SUITES

    rows = []
    for number, problem in enumerate(problems):
        rows.append(_row(problem, day, sources[number] if sources else "suite"))
    rows.sort(key=lambda row: (row["problem_id"], row["suite_id"] is not None, row["suite_id"] or ""))
    return pa.Table.from_pylist(rows, schema=PROBLEM_SUITES.schema())


def _row(problem: Problem, day: str, source: str) -> dict[str, Any]:
    reward = problem.reward_raw if problem.reward is not None else None
    if problem.knowledge_answer is not None and isinstance(reward, Mapping):
        reward = {**reward, ANSWER_FIELD: problem.knowledge_answer}
    voucher = None if problem.voucher_derived else problem.voucher
    return {
        "problem_id": problem.problem_id,
        "day": day,
        "suite_id": problem.suite_id,
        "problem_key": problem.problem_key,
        "category": problem.category,
        "difficulty": problem.difficulty,
        "title": problem.title,
        "query": problem.query,
        "reward": None if reward is None else jsontext.dumps(reward),
        "reward_state": problem.reward_state,
        "reward_product_ids": list(problem.reward_product_ids),
        "voucher": None if voucher is None else jsontext.dumps(voucher),
        "source": source,
    }


def _json_value(text: str) -> Any:
    return jsontext.parse(text.encode()).value


def from_row(row: Mapping[str, Any]) -> Problem:
    """A ``problem_suites`` row back as a ``Problem`` (the stored key is kept)."""
    raw = None if row["reward"] is None else _json_value(row["reward"])
    answer = raw.pop(ANSWER_FIELD, None) if isinstance(raw, dict) else None
    published = None if row["voucher"] is None else _json_value(row["voucher"])
    voucher, derived = _voucher(published, row["reward_state"], row["query"])
    return Problem(
        problem_id=row["problem_id"],
        suite_id=row["suite_id"],
        category=row["category"],
        difficulty=row["difficulty"],
        title=row["title"],
        query=row["query"],
        reward=None if raw is None else reward_list(raw),
        reward_raw=raw,
        reward_state=row["reward_state"],
        voucher=voucher,
        problem_key=row["problem_key"],
        reward_product_ids=tuple(row["reward_product_ids"]),
        knowledge_answer=answer,
        voucher_derived=derived,
    )


def load_problems(table: pa.Table) -> dict[tuple[str | None, str], Problem]:
    """``problem_suites`` rows as an index for ``find_problem``.

    Besides (suite_id, problem_id), the key (None, problem_id) leads to the one problem all suites agree on: the only
    public one, or else the only one. Where suites disagree about an id there is no such entry.
    """
    index: dict[tuple[str | None, str], Problem] = {}
    candidates: dict[str, list[Problem]] = {}
    for row in table.to_pylist():
        problem = from_row(row)
        index[(problem.suite_id, problem.problem_id)] = problem
        candidates.setdefault(problem.problem_id, []).append(problem)
    for problem_id, problems in candidates.items():
        public = [problem for problem in problems if problem.reward_state == "public"] or problems
        if len({problem.problem_key for problem in public}) == 1:
            index.setdefault((None, problem_id), public[0])
    return index


def find_problem(
    index: Mapping[tuple[str | None, str], Problem], suite_id: str | None, problem_id: str | None
) -> Problem | None:
    """The problem a trace is bound to: its own suite's, else the one all other suites agree on.

    A hidden problem of the own suite gives way to a public one with the same id, so that a suite file given later
    (``--suite``) adds the reward.
    """
    if problem_id is None:
        return None
    own = index.get((suite_id, problem_id))
    if own is not None and own.reward_state != "hidden":
        return own
    shared = index.get((None, problem_id))
    if own is None or (shared is not None and shared.reward_state == "public"):
        return shared
    return own
