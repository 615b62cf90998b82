"""Review hints between leak clusters: what looks alike and was not merged, with kind and measured value.

Kinds: ``words`` (word similarity of the queries without their templates), ``embedding`` (cosine, where vectors are
given), ``title`` (equal titles of different products, too little else in common) and ``answer`` (an answer that so many
problems share that it joins no more of them). A hint decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trajectory_platform.splits.constraints import tells
from trajectory_platform.splits.similarity import ANSWER_GROUP, Edge, Node, answer_groups, dated_specs
from trajectory_platform.splits.weak import EMBEDDING_SIMILARITY, Embed, Near, near_vectors, near_words, words_of


def hints_between(
    nodes: Mapping[str, Node],
    members: Mapping[str, Sequence[Node]],
    near_similarity: float,
    embed: Embed | None = None,
) -> list[Edge]:
    """All hints between problems of different clusters, sorted; of several texts of one pair the most alike counts.

    Args:
        members: cluster id -> problems.
        near_similarity: least word similarity, in (0, 1].
        embed: texts -> one vector each.

    Raises:
        Abort: ``near_similarity`` is out of range.
    """
    cluster = {node.key: name for name, group in members.items() for node in group}
    oldest_first = sorted(nodes.values(), key=lambda node: node.age)
    texts = [(node, text) for node in oldest_first for text in sorted(node.queries | node.said)]
    words = [words_of(text, normalised=True) for _, text in texts]
    found = _by_text(texts, near_words(words, near_similarity), cluster, "words")
    if embed is not None and texts:
        vectors = embed([text for _, text in texts])
        found += _by_text(texts, near_vectors(vectors, EMBEDDING_SIMILARITY), cluster, "embedding")
    found += _by_group(_titles(nodes), cluster, "title")
    answers = {value: group for value, group in answer_groups(nodes).items() if len(group) > ANSWER_GROUP}
    found += _by_group(answers, cluster, "answer")
    return sorted(found)


def _by_text(
    texts: Sequence[tuple[Node, str]], near: Iterable[Near], cluster: Mapping[str, str], kind: str
) -> list[Edge]:
    best: dict[tuple[str, str], Edge] = {}
    for pair in near:
        left, right = texts[pair.left][0], texts[pair.right][0]
        if cluster[left.key] == cluster[right.key]:
            continue
        edge = Edge(left.key, right.key, kind, pair.value, " ".join(pair.shared))
        held = best.setdefault((left.key, right.key), edge)
        if (edge.value, edge.evidence) > (held.value, held.evidence):
            best[(left.key, right.key)] = edge
    return list(best.values())


def _titles(nodes: Mapping[str, Node]) -> dict[str, list[Node]]:
    groups: dict[str, list[Node]] = {}
    for key, spec in dated_specs(nodes):
        for title in sorted({item.title for item in spec}):
            if tells(title):
                groups.setdefault(title, []).append(nodes[key])
    return groups


def _by_group(groups: Mapping[str, Sequence[Node]], cluster: Mapping[str, str], kind: str) -> list[Edge]:
    """Each other cluster's first problem, tied to the group's first."""
    found: list[Edge] = []
    for value, group in groups.items():
        first: dict[str, Node] = {}
        for node in group:
            first.setdefault(cluster[node.key], node)
        oldest, *others = first.values()
        for other in others:
            left, right = sorted((oldest, other), key=lambda node: node.age)
            found.append(Edge(left.key, right.key, kind, 1.0, value))
    return found
