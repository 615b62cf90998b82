"""Edges between problems: what makes two problems one leak cluster (domain 4.4).

Strong kinds, each exact, none a guess by wording:

* ``product_id``: both rewards name the product;
* ``query``: equal normalised queries, also where one of them has the fixed voucher tail and the other has another
  one or none (a product problem to which a voucher was added);
* ``problem_id``: one problem id under two contents (a hidden problem that became public, a changed suite item);
* ``successful_recommendation``: a hidden problem whose *successful* traces recommended what the other asks for: two
  products of it, or its only product. One product of several is no edge: a product that merely satisfies the hidden
  problem too is often another problem's target (3 false merges and no true one on the shared days);
* ``answer``: equal knowledge answers of web problems, capped.

Medium kind: ``constraints``, equal requests for different products (``splits.constraints``). Weak evidence, word
similarity, is in ``splits.weak`` and never an edge.

Every rule is monotone: data of later days adds edges, it never removes one. A problem can therefore only move to a
stricter pool. Rules over agent-written data are majorities inside *one day*, which later days cannot change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.identity import safe_id
from trajectory_platform.sandbox.problems import hidden_problem_key, normalise_query
from trajectory_platform.splits.constraints import Spec, matches, spec_of, spec_order

if TYPE_CHECKING:
    import pyarrow as pa

# A reward names at most four products (domain 4.2). The scorer ignores surplus ids, so an agent may append any id to a
# right recommendation: ids behind the fourth, for a product problem behind the first, are no evidence.
REWARD_PRODUCTS = 4
# A short answer ("2", "red") fits many problems: only the first problems that share one are joined by it.
ANSWER_GROUP = 8
# The fixed voucher tail of a normalised query (domain 4.1; ``sandbox.vouchers`` reads its values).
_VOUCHER_TAIL = re.compile(r"\s*my budget is only \S+ but i have a voucher with the following rules.*", re.DOTALL)
_GLOBAL_ID = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")


class Edge(NamedTuple):
    """An edge between two problem keys; ``left_key`` is the older problem."""

    left_key: str
    right_key: str
    kind: str
    value: float
    evidence: str


@dataclass
class Node:
    """One problem key with everything ever seen of it.

    ``bindings`` are (suite_id, problem_id) pairs, ``listed`` the first day a listing named each, ``said`` queries of
    traces, ``hits`` target (see ``targets``) -> successful traces that recommended it. ``answers`` and ``specs`` have
    the first day each was listed: the rules that look at the oldest only go by it, because ``first_seen`` may still
    become earlier.
    """

    key: str
    first_seen: str
    category: str
    reward_state: str
    bindings: set[tuple[str | None, str]] = field(default_factory=set)
    listed: dict[tuple[str | None, str], str] = field(default_factory=dict)
    queries: set[str] = field(default_factory=set)
    rewards: set[str] = field(default_factory=set)
    answers: dict[str, str] = field(default_factory=dict)
    specs: dict[Spec, str] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)
    hits: Counter[str] = field(default_factory=Counter)

    @property
    def age(self) -> tuple[str, str]:
        """Order of appearance, with the key as tie break: the only order that edges and ids may depend on."""
        return (self.first_seen, self.key)


def edges_between(nodes: Mapping[str, Node]) -> list[Edge]:
    """All strong and medium edges, sorted. A shared value gives a star around its oldest problem, so the work is
    linear; equal requests for one product have its ``product_id`` edges only."""
    oldest_first = sorted(nodes.values(), key=lambda node: node.age)
    edges: set[Edge] = set()
    edges.update(_star(_groups((node, _wordings(node)) for node in oldest_first), "query"))
    edges.update(_star(_groups((node, _id_values(node)) for node in oldest_first), "problem_id"))
    edges.update(_star({value: group[:ANSWER_GROUP] for value, group in answer_groups(nodes).items()}, "answer"))
    edges.update(_constraint_edges(nodes))
    rewards = _groups((node, node.rewards) for node in oldest_first)
    edges.update(_star(rewards, "product_id"))
    hits = _groups((node, set(node.hits)) for node in oldest_first)
    asked = _groups((node, targets(node.rewards) & hits.keys()) for node in oldest_first)
    for target, group in hits.items():
        centre = asked.get(target, group)[0]
        for node in group:
            if node is not centre:
                left, right = sorted((centre, node), key=lambda one: one.age)
                edges.add(Edge(left.key, right.key, "successful_recommendation", float(node.hits[target]), target))
    return sorted(edges)


def answer_groups(nodes: Mapping[str, Node]) -> dict[str, list[Node]]:
    """Problems by knowledge answer, by the day the answer was first listed, then by key."""
    dated = ((day, node.key, value) for node in nodes.values() for value, day in node.answers.items())
    groups: dict[str, list[Node]] = {}
    for _, key, value in sorted(dated):
        groups.setdefault(value, []).append(nodes[key])
    return groups


def dated_specs(nodes: Mapping[str, Node]) -> list[tuple[str, Spec]]:
    """(problem key, items of its reward), by the day the reward was first listed, then by key."""
    dated = [
        (day, node.key, number, spec)
        for node in nodes.values()
        for number, (spec, day) in enumerate(
            sorted(node.specs.items(), key=lambda item: spec_order(item[0]))
            if len(node.specs) > 1
            else node.specs.items()
        )
    ]
    return [(key, spec) for _, key, _, spec in sorted(dated, key=lambda entry: entry[:3])]


def _constraint_edges(nodes: Mapping[str, Node]) -> Iterable[Edge]:
    for match in matches(dated_specs(nodes)):
        left, right = sorted((nodes[match.left], nodes[match.right]), key=lambda node: node.age)
        yield Edge(left.key, right.key, "constraints", match.value, match.evidence)


def _wordings(node: Node) -> set[str]:
    texts = node.queries | node.said
    return texts | {stem for text in texts if (stem := without_voucher(text))}


def without_voucher(query: str) -> str:
    """A normalised query without the fixed voucher tail."""
    return _VOUCHER_TAIL.sub("", query) if "voucher" in query else query


def targets(products: Iterable[str]) -> set[str]:
    """What a set of products can be recognised by: its only product, or each two of it (``"id,id"``)."""
    ordered = sorted(set(products))
    if len(ordered) == 1:
        return set(ordered)
    return {f"{left},{right}" for number, left in enumerate(ordered) for right in ordered[number + 1 :]}


def _groups(valued: Iterable[tuple[Node, set[str]]]) -> dict[str, list[Node]]:
    """Nodes by shared value, oldest first."""
    groups: dict[str, list[Node]] = {}
    for node, values in valued:
        for value in values:
            groups.setdefault(value, []).append(node)
    return groups


def _star(groups: Mapping[str, list[Node]], kind: str) -> Iterable[Edge]:
    for value, (centre, *others) in groups.items():
        for node in others:
            yield Edge(centre.key, node.key, kind, 1.0, value)


def _id_values(node: Node) -> set[str]:
    """Problem ids as edge values. A UUID is one problem in every suite; other ids count inside their suite only."""
    values = set()
    for suite, problem_id in node.bindings:
        plain = problem_id.partition("#")[0]  # "#n": a further content under one id (sandbox.problems)
        values.add(plain if _GLOBAL_ID.fullmatch(plain) else f"{'' if suite is None else suite}/{plain}")
    return values


def nodes_of(problems: pa.Table) -> dict[str, Node]:
    """Problem rows of all days (``problem_suites``) as nodes by key."""
    from trajectory_platform.sandbox.problems import from_row

    nodes: dict[str, Node] = {}
    for row in _first_rows(problems.sort_by([("day", "ascending")])).to_pylist():
        problem = from_row(row)
        node = nodes.setdefault(
            problem.problem_key, Node(problem.problem_key, row["day"], problem.category, problem.reward_state)
        )
        node.bindings.add((problem.suite_id, problem.problem_id))
        node.listed.setdefault((problem.suite_id, problem.problem_id), row["day"])
        node.reward_state = min(node.reward_state, problem.reward_state, key=("public", "invalid", "hidden").index)
        node.category = max(node.category, problem.category)
        node.rewards.update(problem.reward_product_ids)
        if query := normalise_query(problem.query or ""):
            node.queries.add(query)
        if answer := normalise_query(problem.answer or ""):
            node.answers.setdefault(answer, row["day"])
        if problem.reward and (spec := spec_of(problem.reward)):
            node.specs.setdefault(spec, row["day"])
    return nodes


def _first_rows(problems: pa.Table) -> pa.Table:
    """The rows that tell something new: the same problem on a later day does not, and most rows are that."""
    names = ("problem_key", "suite_id", "problem_id", "reward_state", "category", "reward")
    first: dict[tuple[Any, ...], int] = {}
    for number, identity in enumerate(zip(*(problems[name].to_pylist() for name in names), strict=True)):
        first.setdefault(identity, number)
    return problems if len(first) == problems.num_rows else problems.take(list(first.values()))


def add_links(nodes: dict[str, Node], links: pa.Table) -> None:
    """Add what traces tell about problems with a hidden reward; see ``daily_links`` for the rules.

    Args:
        nodes: changed in place; a trace of a problem that no listing named gets a hidden node of its own.
        links: columns day, problem_id, suite_id, query, query_verified, category, outcome_success, recommended_ids;
            with problem_key where the judge bound the traces (see ``_bind_by_key``).
    """
    bound_to: dict[str, list[Node]] = {}
    listed: dict[str, str] = {}  # name -> first day of a listing
    for key in sorted(nodes):
        for suite, problem_id in nodes[key].bindings:
            day = nodes[key].listed[suite, problem_id]
            for name in {f"{suite or ''}/{problem_id}", f"/{problem_id}"}:  # a trace may not know its suite
                bound_to.setdefault(name, []).append(nodes[key])
                listed[name] = min(listed.get(name, day), day)
    settled = [name for name, bound in bound_to.items() if all(node.reward_state == "public" for node in bound)]
    open_links = _bind_by_key(nodes, _without(links, {name: listed[name] for name in settled}), listed)
    _seen_in_traces(nodes, links)
    for link in daily_links(open_links):
        for node in _bound(nodes, link, bound_to, listed):
            node.first_seen = min(node.first_seen, link.day)
            if node.reward_state != "public":
                if link.query:
                    node.said.add(link.query)
                node.hits.update(link.hits)


def _bound(
    nodes: dict[str, Node], link: Link, bound_to: Mapping[str, list[Node]], listed: Mapping[str, str]
) -> list[Node]:
    """The problems that a day's traces are about: what a listing up to that day names so.

    Traces of a problem that no listing had named by then keep the hidden problem they got on their day, also when a
    later listing names it: it would take its edges with it, and a cluster could fall apart.
    """
    name = f"{link.suite_id or ''}/{link.problem_id}"
    names = [name, f"/{link.problem_id}"] if _GLOBAL_ID.fullmatch(link.problem_id) else [name]
    for one in names:
        if one in listed and listed[one] <= link.day:
            return bound_to[one]
    key = hidden_problem_key(link.suite_id, link.problem_id)
    node = nodes.setdefault(key, Node(key, link.day, link.category, "hidden"))
    node.bindings.add((link.suite_id, link.problem_id))
    return [node]


def _bind_by_key(nodes: dict[str, Node], links: pa.Table, listed: Mapping[str, str]) -> pa.Table:
    """Problems that only a later day's listing names, but whose key the judge knew (a trace that moved in over
    midnight is bound by the neighbour's suite). They become nodes under that key; the other links are returned.

    Under a key of its own such a trace would have a node that vanishes with the next day's listing, and its edges with
    it. What agents wrote is not taken from these traces: the listing that follows may be public.
    """
    if "problem_key" not in links.column_names:
        return links
    columns = ["day", "suite_id", "problem_id", "problem_key", "category", "query", "query_verified"]
    others: list[bool] = []
    for row in links.select(columns).to_pylist():
        key, suite = row["problem_key"], row["suite_id"]
        name = None if row["problem_id"] is None else safe_id(row["problem_id"])
        known = (
            listed.get(f"{suite or ''}/{name}", row["day"] + "~") <= row["day"]
        )  # by a listing of that day or before
        if key is None or name is None or known or key == hidden_problem_key(suite, name):
            others.append(True)
            continue
        others.append(False)
        node = nodes.setdefault(key, Node(key, row["day"], row["category"] or "", "hidden"))
        node.category = max(node.category, row["category"] or "")
        node.bindings.add((suite, name))
        if row["query_verified"] and (query := normalise_query(row["query"] or "")):
            node.queries.add(query)
    import pyarrow as pa

    return links.filter(pa.array(others, pa.bool_()))


def _seen_in_traces(nodes: dict[str, Node], links: pa.Table) -> None:
    """A problem is first seen on the day of its first trace, also where its listing came a day later."""
    if "problem_key" not in links.column_names:
        return
    first = links.group_by("problem_key").aggregate([("day", "min")])
    for key, day in zip(first["problem_key"].to_pylist(), first["day_min"].to_pylist(), strict=True):
        if key in nodes:
            nodes[key].first_seen = min(nodes[key].first_seen, day)


def _without(links: pa.Table, settled: Mapping[str, str]) -> pa.Table:
    """Links of other problems than these (name -> first day of its listing), and of these before that day: traces of
    public problems tell nothing and are the bulk of a day."""
    import pyarrow as pa
    import pyarrow.compute as pc

    suite = pc.fill_null(links["suite_id"].cast(pa.string()), "")
    names = pc.binary_join_element_wise(suite, links["problem_id"], "/")
    place = pc.index_in(names, value_set=pa.array(list(settled), pa.string()))
    since = pc.take(pa.array(list(settled.values()), pa.string()), place)
    return links.filter(pc.invert(pc.fill_null(pc.greater_equal(links["day"], since), False)))


class Link(NamedTuple):
    """What one day's traces agree on about one problem."""

    day: str
    suite_id: str | None
    problem_id: str
    category: str
    query: str  # "" when no majority
    hits: Counter[str]


def daily_links(links: pa.Table) -> list[Link]:
    """One ``Link`` per (day, problem), sorted.

    The query of a race trace is written by the agent. It counts only when more than half of the problem's traces of
    that day state it (compared in normalised form), so one agent cannot tie a problem to another that others ran too.
    Recommended ids count when a successful trace put them where the scorer looks (``REWARD_PRODUCTS``); with three or
    more successful traces on the day, two of them must agree.
    """
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in links.to_pylist():
        if row["problem_id"] is not None:
            groups.setdefault((row["day"], row["suite_id"] or "", safe_id(row["problem_id"])), []).append(row)
    found = []
    for (day, suite, problem_id), rows in sorted(groups.items()):
        category = max(row["category"] or "" for row in rows)
        found.append(
            Link(day, suite or None, problem_id, category, _majority_query(rows), _agreed_hits(rows, category))
        )
    return found


def _majority_query(rows: list[dict[str, Any]]) -> str:
    stated: Counter[str] = Counter()
    for text, times in Counter(row["query"] or "" for row in rows).items():
        stated[normalise_query(text)] += times
    query, count = max(stated.items(), key=lambda item: (item[1], item[0]))
    return query if 2 * count > len(rows) else ""


def _agreed_hits(rows: list[dict[str, Any]], category: str) -> Counter[str]:
    used = 1 if category == "product" else REWARD_PRODUCTS
    found = [targets((row["recommended_ids"] or [])[:used]) for row in rows if row["outcome_success"] is True]
    hits = Counter(target for trace in found for target in trace)
    return Counter({target: count for target, count in hits.items() if count >= 2 or len(found) < 3})
