"""Which rows of the lake are sealed, and whose they are. Everything that shows text asks here first.

A row is sealed when its ``problem_key``, ``problem_id`` (also the one inside its ``trace_id``), edge key or own
``pool`` is sealed in the *newest* published ``leak_clusters``, or when its dialogue or its survivor (``duplicate_of``)
is that of a sealed trace: an agent may replay one elsewhere. So is a trace of another problem that was found to restate
a sealed problem's query (``split_exclusions``), and the evidence that quotes it.

A problem that is in no cluster yet may become sealed, or turn out to be a variant of a sealed one. So a day that the
newest clusters do not cover (it was ingested, or ingested anew, after them) is *closed*: its rows count as sealed
until the clusters are built again. Before the first clusters nothing is held out, so nothing is closed or hidden; the
same holds while no problem is sealed and the settings of the clusters can seal none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.identity import safe_id
from trajectory_platform.lake.arrays import text_array
from trajectory_platform.lake.tables import (
    AXIS_A_CORPUS,
    CONTAMINATION,
    JUDGE_CALLS,
    JUDGED_TRACES,
    LEAK_CLUSTERS,
    LEAK_GUARDED_SPLITS,
    PROBLEM_SUITES,
    RAW_TRACES,
    REJECTED_TRACES,
    SPLIT_EXCLUSIONS,
    TABLES,
    TRAJECTORIES,
    VERDICTS,
)

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from trajectory_platform.lake.publish import Lake

WITHHELD = "(withheld: may quote sealed problems)"
# Free text about traces in rows that name no trace: hidden for all rows, or it would quote sealed ones.
UNNAMED_TEXT: dict[str, dict[str, str | None]] = {
    JUDGE_CALLS.name: {"explanation": None, "raw_reply": WITHHELD},
}
_SEALING = ("pool_sealed", "hold_outs", "hold_new_suites_days", "benchmarks")  # settings that can seal a problem
# Tables filled day by day, and the table from which the clusters learn the problems of such a day.
_LEARNT_FROM = {
    PROBLEM_SUITES.name: PROBLEM_SUITES.name,
    **{
        table.name: JUDGED_TRACES.name
        for table in (RAW_TRACES, TRAJECTORIES, JUDGED_TRACES, VERDICTS, AXIS_A_CORPUS, REJECTED_TRACES)
    },
}
_QUOTING = frozenset((SPLIT_EXCLUSIONS.name, CONTAMINATION.name))  # their ``detail`` may quote the query of a problem
_QUOTED = r"(?s)^.*of the query of ([^()]{1,16})\).*$"  # whose: ``splits.ngrams.Overlap.evidence``
_KEY_DIGITS = 16  # of a problem key in such evidence
_NOT_PROBLEM = r"^[^:]*:|#\d+$"  # what a trace id holds besides its problem id


class Seal(NamedTuple):
    """What is sealed as of the newest published ``leak_clusters``.

    Attributes:
        day: of those clusters. ``keys``, ``problem_ids``: sealed problems.
        covered: ``problem_suites`` and ``judged_traces`` -> days that the clusters know as they are now; None = every
            day up to ``day``.
    """

    day: str
    keys: frozenset[str]
    problem_ids: frozenset[str]
    covered: Mapping[str, frozenset[str]] | None = None

    def closed(self, day: str) -> bool:
        """Is this day of traces not in the clusters yet?"""
        return day > self.day or (self.covered is not None and day not in self.covered[JUDGED_TRACES.name])


class SealedTraces(NamedTuple):
    """Traces to hide by id, and the content hashes of all sealed dialogues."""

    ids: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


NO_TRACES = SealedTraces()


def sealed(lake: Lake) -> Seal | None:
    """What the newest clusters seal; None where no clusters were published or nothing can be sealed."""
    days = lake.days(LEAK_CLUSTERS)
    if not days:
        return None
    day = days[-1]
    rows = lake.read(LEAK_CLUSTERS, [day], columns=["problem_key", "problem_ids", "pool"]).to_pylist()
    chosen = [row for row in rows if row["pool"] == "sealed"]
    manifest = lake.manifest(LEAK_CLUSTERS, day)
    settings = manifest.settings if manifest is not None else {}
    if not chosen and not any(settings.get(name) for name in _SEALING):
        return None
    ids = frozenset(problem_id for row in chosen for problem_id in row["problem_ids"])
    covered = _covered(lake, manifest.inputs if manifest is not None else {})
    return Seal(day, frozenset(row["problem_key"] for row in chosen), ids, covered)


def hidden(table_name: str, seal: Seal, traces: SealedTraces) -> ds.Expression | None:
    """The Arrow condition of the sealed rows of a table, by the columns it has; None where none can be sealed."""
    import pyarrow.compute as pc

    columns = TABLES[table_name].columns
    keys = text_array(sorted(seal.keys))
    ids = text_array(sorted(seal.problem_ids))
    conditions = [pc.field(name).isin(keys) for name in ("problem_key", "left_key", "right_key") if name in columns]
    if "problem_id" in columns:
        conditions.append(pc.field("problem_id").isin(ids))
    if "pool" in columns:
        conditions.append(pc.field("pool") == "sealed")
    if "content_hash" in columns:
        conditions.append(pc.field("content_hash").isin(text_array(traces.texts)))
    named = text_array(traces.ids)
    for name in ("trace_id", "duplicate_of"):
        if name in columns:
            conditions += [_names_problem(name, seal), pc.field(name).isin(named)]
    if table_name in _QUOTING and "detail" in columns:
        conditions.append(_quotes(seal))
    if table_name in _LEARNT_FROM:
        conditions.append(_closed_days(seal, _LEARNT_FROM[table_name]))
    found = None
    for condition in conditions:
        certain = pc.coalesce(condition, False)  # a null key hides nothing
        found = certain if found is None else found | certain
    return found


def sealed_traces(lake: Lake, seal: Seal) -> SealedTraces:
    """Traces that must be named: of problems known by key only (race problems carry no suite id), and every trace that
    repeats the text of a sealed one under another problem."""
    import pyarrow.compute as pc

    keys = text_array(sorted(seal.keys))
    ids: set[str] = set()
    for table in (JUDGED_TRACES, AXIS_A_CORPUS, LEAK_GUARDED_SPLITS):
        rows = lake.read(table, columns=["trace_id"], filter=pc.field("problem_key").isin(keys))
        ids.update(rows.column("trace_id").to_pylist())
    rows = lake.read(SPLIT_EXCLUSIONS, columns=["trace_id"], filter=pc.coalesce(_quotes(seal), False))
    ids.update(rows.column("trace_id").to_pylist())
    known = _names_problem("trace_id", seal) | pc.field("trace_id").isin(text_array(sorted(ids)))
    sealed_rows = lake.read(TRAJECTORIES, columns=["content_hash"], filter=known)
    texts = pc.unique(sealed_rows.column("content_hash").drop_null().combine_chunks())
    copies = lake.read(TRAJECTORIES, columns=["trace_id"], filter=pc.field("content_hash").isin(texts))
    ids.update(copies.column("trace_id").to_pylist())
    return SealedTraces(tuple(sorted(ids)), tuple(texts.to_pylist()))


def sealed_problems_of(lake: Lake, trace_id: str) -> tuple[str, ...] | None:
    """Keys of the sealed problems that a trace is about, or whose dialogue it repeats; None when it is open.

    A trace of a closed day is not open either: its keys are those of its problem as far as they are known.
    """
    return sealed_problems_of_many(lake, [trace_id]).get(trace_id)


def sealed_problems_of_many(lake: Lake, trace_ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """``sealed_problems_of`` of those traces that are not open; each table is looked up once for all."""
    seal = sealed(lake)
    own = sorted(set(trace_ids))
    if seal is None or not own:
        return {}
    raw = _rows(lake, RAW_TRACES, "trace_id", own, ["trace_id", "day", "problem_id"])
    read = _rows(lake, TRAJECTORIES, "trace_id", own, ["trace_id", "day", "problem_id", "content_hash"])
    texts = {row["content_hash"] for row in read if row["content_hash"] is not None}
    copies = _rows(lake, TRAJECTORIES, "content_hash", texts, ["trace_id", "content_hash"]) if texts else []
    alike = _grouped(copies, "content_hash", "trace_id")
    facts = {name: _Facts({name}) for name in own}
    for row in (*raw, *read):
        one = facts[row["trace_id"]]
        one.ids.add(row["problem_id"])
        one.closed = one.closed or seal.closed(row["day"])
        one.names |= alike.get(row.get("content_hash"), set())
    everyone = set().union(*(one.names for one in facts.values()))
    keys: dict[str, set[str]] = {}
    for table in (JUDGED_TRACES, AXIS_A_CORPUS, LEAK_GUARDED_SPLITS):
        rows = _rows(lake, table, "trace_id", everyone, ["trace_id", "problem_key"])
        for name, found in _grouped(rows, "trace_id", "problem_key").items():
            keys.setdefault(name, set()).update(found)
    quoted: dict[str, set[str | None]] = {}
    for row in _rows(lake, SPLIT_EXCLUSIONS, "trace_id", everyone, ["trace_id", "detail"]):
        quoted.setdefault(row["trace_id"], set()).add(_quoted_key(row["detail"] or ""))
    by_id = _sealed_by_id(lake, seal, {one for fact in facts.values() for one in _names_of(fact)})
    told = {name: _keys_of(one, seal, keys, quoted, by_id) for name, one in facts.items()}
    return {name: found for name, found in told.items() if found is not None}


class _Facts:
    """What is known of one trace: the traces with its text, itself among them, and the ids of its problem."""

    def __init__(self, names: set[str]) -> None:
        self.names, self.ids, self.closed = names, set[str | None](), False


def _keys_of(
    one: _Facts,
    seal: Seal,
    keys: Mapping[str, set[str]],
    quoted: Mapping[str, set[str | None]],
    by_id: Mapping[str, set[str]],
) -> tuple[str, ...] | None:
    found: set[str] = set().union(*(keys.get(name, set()) for name in one.names))
    starts = set().union(*(quoted.get(name, set()) for name in one.names)) - {None}
    found |= {key for key in seal.keys if key[:_KEY_DIGITS] in starts} if starts else set()
    for name in _names_of(one):
        found |= by_id.get(name, set())
    if one.closed:
        return tuple(sorted(found))
    return tuple(sorted(found & seal.keys)) or None


def _names_of(one: _Facts) -> set[str]:
    """Ids of its problem: those stated, and the ones inside the ids of the traces with its text."""
    return {name for name in one.ids if name is not None} | {re.sub(_NOT_PROBLEM, "", name) for name in one.names}


def _sealed_by_id(lake: Lake, seal: Seal, wanted: set[str]) -> dict[str, set[str]]:
    """Problem id, as it is and as it stands in trace ids -> keys of the sealed problems that have it."""
    names = {problem_id: {problem_id, safe_id(problem_id)} & wanted for problem_id in seal.problem_ids}
    found: dict[str, set[str]] = {}
    if not any(names.values()):
        return found
    for row in lake.read(LEAK_CLUSTERS, [seal.day], columns=["problem_key", "problem_ids", "pool"]).to_pylist():
        if row["pool"] == "sealed":
            for name in set[str]().union(*(names[problem_id] for problem_id in row["problem_ids"])):
                found.setdefault(name, set()).add(row["problem_key"])
    return found


def _grouped(rows: Iterable[Mapping[str, Any]], by: str, value: str) -> dict[Any, set[str]]:
    found: dict[Any, set[str]] = {}
    for row in rows:
        if row[value] is not None:
            found.setdefault(row[by], set()).add(row[value])
    return found


def _quoted_key(text: str) -> str | None:
    found = re.match(_QUOTED, text)
    return found[1] if found else None


def _quotes(seal: Seal) -> ds.Expression:
    """Is ``detail`` evidence about the query of a sealed problem?"""
    import pyarrow.compute as pc

    starts = text_array(sorted({key[:_KEY_DIGITS] for key in seal.keys}))
    return pc.replace_substring_regex(pc.field("detail"), pattern=_QUOTED, replacement=r"\1").isin(starts)


def _rows(lake: Lake, table: Any, column: str, values: Iterable[str], wanted: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.lookup(table, column, values, columns=wanted).to_pylist()
    return rows


def _covered(lake: Lake, inputs: Mapping[str, Any]) -> dict[str, frozenset[str]] | None:
    """Days that the clusters were built from, with the content they have now; None where the inputs name no day."""
    found = {}
    for table in (PROBLEM_SUITES, JUDGED_TRACES):
        named = {
            day: digest for name, digest in inputs.items() for of, _, day in [name.partition("/")] if of == table.name
        }
        now = {one.day: one.content_digest for one in lake.manifests(table, named)} if named else {}
        found[table.name] = frozenset(day for day, digest in named.items() if now.get(day) == digest)
    return found if any("/" in name for name in inputs) else None


def _closed_days(seal: Seal, table_name: str) -> ds.Expression:
    import pyarrow.compute as pc

    late = pc.field("day") > seal.day
    if seal.covered is None:
        return late
    return late | ~pc.field("day").isin(text_array(sorted(seal.covered[table_name])))


def _names_problem(column: str, seal: Seal) -> ds.Expression:
    """Does the problem id inside a trace id belong to a sealed problem?"""
    import pyarrow.compute as pc

    safe = text_array(sorted({safe_id(problem_id) for problem_id in seal.problem_ids}))
    return pc.replace_substring_regex(pc.field(column), pattern=_NOT_PROBLEM, replacement="").isin(safe)
