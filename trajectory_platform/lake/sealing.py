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
    seal = sealed(lake)
    if seal is None:
        return None
    own = [trace_id]
    raw = _rows(lake, RAW_TRACES, "trace_id", own, ["day", "problem_id"])
    read = _rows(lake, TRAJECTORIES, "trace_id", own, ["day", "problem_id", "content_hash"])
    texts = {row["content_hash"] for row in read if row["content_hash"] is not None}
    copies = _rows(lake, TRAJECTORIES, "content_hash", texts, ["trace_id"]) if texts else []
    names = {trace_id, *(row["trace_id"] for row in copies)}
    tables = (JUDGED_TRACES, AXIS_A_CORPUS, LEAK_GUARDED_SPLITS)
    keys = {
        row["problem_key"] for table in tables for row in _rows(lake, table, "trace_id", names, ["problem_key"])
    } - {None}
    quoted = {_quoted_key(text) for text in _details(lake, names)} - {None}
    keys |= {key for key in seal.keys if key[:_KEY_DIGITS] in quoted}
    safe = {re.sub(_NOT_PROBLEM, "", name) for name in names}
    ids = {row["problem_id"] for row in (*raw, *read)}
    hit = {one for one in seal.problem_ids if one in ids or safe_id(one) in safe}
    if hit:
        rows = lake.read(LEAK_CLUSTERS, [seal.day], columns=["problem_key", "problem_ids", "pool"]).to_pylist()
        keys |= {row["problem_key"] for row in rows if row["pool"] == "sealed" and hit & set(row["problem_ids"])}
    if any(seal.closed(row["day"]) for row in (*raw, *read)):
        return tuple(sorted(keys))
    return tuple(sorted(keys & seal.keys)) or None


def _details(lake: Lake, trace_ids: Iterable[str]) -> list[str]:
    """Evidence by which traces were kept out of training."""
    return [row["detail"] or "" for row in _rows(lake, SPLIT_EXCLUSIONS, "trace_id", trace_ids, ["detail"])]


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
