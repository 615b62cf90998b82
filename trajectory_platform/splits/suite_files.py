"""Cluster and pool per problem of plain suite files (``split --suites FILE...``), without a lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, RejectRow
from trajectory_platform.sandbox.problems import Problem, id_text, parse_problem, to_table
from trajectory_platform.splits.clusters import BENCHMARK_KEY, BenchmarkProblems, Clusters, build_clusters
from trajectory_platform.splits.pools import Shares

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.settings import Benchmark, HoldOut

_ANY_DAY = date(2026, 1, 1)  # only names the partition of an answer that is never stored


class SuiteRow(NamedTuple):
    """One row of a suite file: its output id, its suite, and the problem or why it cannot be read."""

    problem_id: str
    suite: str
    problem: Problem | None
    error: str | None


def split_files(
    paths: Iterable[str | Path],
    *,
    pool_key: str,
    shares: Shares | tuple[int, int, int] = Shares(),  # noqa: B008  (an immutable tuple)
    hold_outs: Sequence[HoldOut] = (),
    as_of: date | None = None,
    max_cluster_share: float = 0.2,
    min_problems_for_share: int = 50,
    benchmarks: Sequence[Benchmark] = (),
) -> list[dict[str, Any]]:
    """Rows ``{problem_id, suite, category, cluster_id, pool, edges[], problem_key, benchmark_overlap, error}``, in file
    order.

    ``edges`` are ``{kind, value, evidence, other}``: the row's problem and ``other`` (a problem id of the output, or
    ``benchmark:NAME:KEY``) are variants for that reason; rows that state the same problem have an edge
    ``same_problem``. A row that cannot be read is in the output too, with ``error`` and without cluster and pool: it
    must not be trained on.

    Args:
        hold_outs: dated entries.
        as_of: those in force on this day apply. Files have no day of their own: None applies every entry, whatever its
            dates, because what is held at any time must not be trained on by accident.
        benchmarks: registered files; their rows are not in the output, what they overlap is marked, and sealed ones
            seal it.

    Raises:
        Abort: a file is missing, unreadable as a whole, or two files have one stem.
        FailPartition: one cluster holds too large a share.
    """
    rows = read_suite_files(paths)
    good = [row for row in rows if row.problem is not None]
    day = as_of or _ANY_DAY
    always = {"since": day, "until": None}
    result = build_clusters(
        _table_of(rows, day),
        None,
        day=day,
        pool_key=pool_key,
        shares=shares,
        hold_outs=hold_outs if as_of else [entry.model_copy(update=always) for entry in hold_outs],
        max_cluster_share=max_cluster_share,
        min_problems_for_share=min_problems_for_share,
        benchmarks=read_benchmarks(benchmarks),
    )
    clusters = {row["problem_key"]: row for row in result.clusters.to_pylist()}
    edges = _edges_by_row(good, result.edges.to_pylist())
    return [_output(row, clusters, edges) for row in rows]


def explain_files(
    paths: Iterable[str | Path], left: str, right: str, *, pool_key: str, near_similarity: float = 0.6
) -> dict[str, Any]:
    """Why two problems of plain files are, or are not, variants: see ``explain.explain``.

    Nothing is withheld: whoever names the files has them, and reading files is outside the ledger of sealed looks.

    Args:
        left, right: ``problem_id`` as ``split_files`` prints it, problem key, or an unambiguous start of one.

    Raises:
        Abort: see ``split_files``; or a problem is unknown or ambiguous.
    """
    from trajectory_platform.splits.explain import explain

    rows = read_suite_files(paths)
    table = _table_of(rows, _ANY_DAY)
    found: Clusters = build_clusters(
        table, None, day=_ANY_DAY, pool_key=pool_key, max_cluster_share=1.0, near_similarity=near_similarity
    )
    keys = {row.problem_id: row.problem.problem_key for row in rows if row.problem is not None}
    return explain(
        found.clusters,
        found.edges,
        keys.get(left, left),
        keys.get(right, right),
        hints=found.hints,
        problems=table,
    )


def read_benchmarks(benchmarks: Iterable[Benchmark]) -> list[BenchmarkProblems]:
    """The files of registered benchmarks. Rows that cannot be read overlap nothing and are left out.

    Raises:
        Abort: a file is missing or unreadable, no row of it can be read, or two have one name.
    """
    found: dict[str, BenchmarkProblems] = {}
    for benchmark in benchmarks:
        table = _table_of(read_suite_files([benchmark.path]), _ANY_DAY)
        if not table.num_rows:
            raise Abort(f"benchmark {benchmark.name!a}: no row of {benchmark.path} can be read")
        if benchmark.name in found:
            raise Abort(f"two benchmarks are named {benchmark.name!a}: rename one")
        found[benchmark.name] = BenchmarkProblems(benchmark.name, table, benchmark.sealed)
    return list(found.values())


def _table_of(rows: Iterable[SuiteRow], day: date) -> pa.Table:
    """The readable rows in the ``problem_suites`` schema. The suite of the output is the file's; inside the clusters
    ids count within a suite, so both are bound here."""
    problems = [replace(row.problem, suite_id=row.suite) for row in rows if row.problem is not None]
    return to_table(problems, day.isoformat())


def _output(
    row: SuiteRow, clusters: Mapping[str, Mapping[str, Any]], edges: Mapping[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    cluster = clusters[row.problem.problem_key] if row.problem is not None else {}
    return {
        "problem_id": row.problem_id,
        "suite": row.suite,
        "category": row.problem.category if row.problem is not None else "",
        "cluster_id": cluster.get("cluster_id"),
        "pool": cluster.get("pool"),
        "edges": edges.get(row.problem_id, []),
        "problem_key": cluster.get("problem_key"),
        "benchmark_overlap": cluster.get("benchmark_overlap") or [],
        "error": row.error,
    }


def _edges_by_row(rows: list[SuiteRow], edges: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.problem is not None:
            names.setdefault(row.problem.problem_key, []).append(row.problem_id)
    found: dict[str, list[dict[str, Any]]] = {}

    def note(left: str, right: str, kind: str, value: float, evidence: str) -> None:
        found.setdefault(left, []).append({"kind": kind, "value": value, "evidence": evidence, "other": right})
        found.setdefault(right, []).append({"kind": kind, "value": value, "evidence": evidence, "other": left})

    for edge in edges:
        if edge["right_key"].startswith(BENCHMARK_KEY):
            told = {name: edge[name] for name in ("kind", "value", "evidence")}
            found.setdefault(names[edge["left_key"]][0], []).append({**told, "other": edge["right_key"]})
            continue
        note(names[edge["left_key"]][0], names[edge["right_key"]][0], edge["kind"], edge["value"], edge["evidence"])
    for key, (first, *others) in names.items():
        for other in others:
            note(first, other, "same_problem", 1.0, key[:16])
    return {
        name: sorted(some, key=lambda edge: (edge["kind"], edge["evidence"], edge["other"]))
        for name, some in found.items()
    }


def read_suite_files(paths: Iterable[str | Path]) -> list[SuiteRow]:
    """All rows of suite files: a JSON list, an object with a list ``problems``, or JSON lines.

    Where a file gives no id, ``problem_id = "{file stem}:{0-based row}"``; where it gives no suite, the file stem.
    An id that an earlier row of the call has taken gets ``#n``.

    Raises:
        Abort: see ``split_files``.
    """
    rows: list[SuiteRow] = []
    taken: set[str] = set()
    for path, label in _labels(list(map(Path, paths))):
        for number, (item, error) in enumerate(_items(path)):
            row = _row(item, error, label, number)
            name, copy = row.problem_id, 0
            while name in taken:
                copy += 1
                name = f"{row.problem_id}#{copy}"
            taken.add(name)
            rows.append(row._replace(problem_id=name))
    return rows


def _labels(paths: list[Path]) -> list[tuple[Path, str]]:
    """The name each file gives its rows: its stem, with the folder before it where several files have that stem
    (the ``suite.json`` of two raw days)."""
    stems = [path.stem for path in paths]
    labels = [
        path.stem if stems.count(path.stem) == 1 else f"{path.absolute().parent.name}-{path.stem}" for path in paths
    ]
    for number, label in enumerate(labels):
        if label in labels[:number]:
            first = paths[labels.index(label)]
            raise Abort(f"{first} and {paths[number]} would both name their rows {label!a}: rename one")
    return list(zip(paths, labels, strict=True))


def _row(item: Any, error: str | None, stem: str, number: int) -> SuiteRow:
    fallback = f"{stem}:{number}"
    if error is None and not isinstance(item, Mapping):
        error = "not_an_object"
    if error is not None:
        return SuiteRow(fallback, stem, None, error)
    nested = item.get("metadata") if isinstance(item.get("metadata"), Mapping) else {}
    named = id_text(item.get("problem_id", nested.get("problem_id")))
    suite = id_text(item.get("suite_id", nested.get("suite_id"))) or stem
    problem = parse_problem(item, suite_id=suite, problem_id=fallback)
    if problem.query is None and problem.reward is None:
        return SuiteRow(named or fallback, suite, None, "no_query_no_reward")
    return SuiteRow(named or fallback, suite, problem, None)


def _items(path: Path) -> list[tuple[Any, str | None]]:
    """(item, error) per row. A file that is one JSON document is that; else it is read line by line."""
    try:
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise Abort(f"cannot read suite file {path}: {type(error).__name__}") from error
    lines = [line for line in data.split(b"\n") if line.strip()]
    if len(lines) > 1 and lines[0].strip().startswith(b"{") and lines[0].strip().endswith(b"}"):
        return [_parsed(line) for line in lines]
    value, error_text = _parsed(data.strip())
    if error_text is not None:
        if len(lines) > 1:
            return [_parsed(line) for line in lines]
        raise Abort(f"suite file {path} cannot be read: {error_text}")
    if isinstance(value, Mapping) and isinstance(value.get("problems"), list):
        return [(item, None) for item in value["problems"]]
    return [(item, None) for item in value] if isinstance(value, list) else [(value, None)]


def _parsed(data: bytes) -> tuple[Any, str | None]:
    try:
        return jsontext.parse(data.strip()).value, None
    except RejectRow as error:
        return None, error.reason
