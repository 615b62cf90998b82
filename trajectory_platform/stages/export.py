"""Exports and releases of the lake as of a day, and the way back.

What leaves the lake is decided by the newest clusters too: a problem that was held out since the day, a trace that is
sealed by now, or a row that restates a problem of a stricter pool stays in, counted with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from trajectory_platform.errors import Abort, FailPartition, RejectRow
from trajectory_platform.lake import sealing, tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.splits import check_trainable, held_out_index, pool_shares

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.release.folders import Fault
    from trajectory_platform.release.rows import SetAside
    from trajectory_platform.splits.ngrams import NgramIndex

Row = dict[str, Any]
SEALED_NOW, NOT_IN_CLUSTERS, POOL_CHANGED, RESTATES = (
    "sealed_now",
    "day_not_in_newest_clusters",
    "pool_changed_since",
    "restates_held_out_problem",
)
_FROM_SPLITS = ("trace_id", "trace_day", "problem_key", "cluster_id", "pool", "uses", "quality", "category")
_FROM_CORPUS = (
    "situation", "strategy_cluster", "outcome_success", "outcome_source", "reasoning_quality", "judge_kind",
    "query_verified", "agent_version_id", "policy_checkpoint_id", "filter_version", "content_hash", "messages", "tools",
)  # fmt: skip
_DEFAULT_POOL_KEY = Settings.model_fields["pool_key"].default
_CLUSTER_RULE = (
    "Problems joined by evidence (a shared reward product, an equal query, one id under two contents, a successful "
    "recommendation of the other's product) are one leak cluster; its pool is the strictest of its members' draws and "
    "of the dated hold-out list (sealed before dev before train)."
)
_DRAW = "Each problem draws a pool by a keyed hash of its digest"
_OWN_KEY, _PUBLIC_KEY = "the key is not published.", "the key was the published default of the software."
PUBLIC_KEY = (
    "the pools were drawn with the published default of TRAJECTORY_PLATFORM_POOL_KEY: whoever knows the wording of a "
    "problem can compute its pool; choose a key of your own before the first day is split"
)
KEY_MADE = (
    "the release key {} was made: keep it, apart from the lake too; without it no sealed problem can be opened, and "
    "whoever has it can test guesses"
)
_SHOWN = 20


def export_traces(
    settings: Settings, *, day: str | None, use: str, form: str, out: Path, licence: str = "unknown"
) -> dict[str, Any]:
    """Export the accepted traces of one use as of a day; returns ``{out, new, facts, warnings}``.

    Args:
        day: None = the newest with published splits.
        use: ``sft`` or ``kto``. form: ``hf`` or ``openai``.

    Raises:
        Abort: wrong use, or ``out`` holds something else. FailPartition: a leak, stale splits, or no row.
    """
    from trajectory_platform.release.exports import check_wanted, write_export

    check_wanted(use, form)
    ctx = StageContext(settings)
    source = Source(ctx, as_of(ctx, day), use)
    written = write_export(out, source.rows(), source.about, use=use, form=form, licence=licence)
    return {"out": str(out), "new": written.new, "facts": written.facts, "warnings": _warnings(settings)}


def build_release(
    settings: Settings, *, day: str | None, out: Path, key_file: Path | None = None, licence: str = "unknown"
) -> dict[str, Any]:
    """Build the release as of a day; returns ``{out, new, digest, facts, key_file, warnings}``.

    Args:
        key_file: the release key (``release.sealed_problems``); None = ``_release.key`` in the lake's folder. A missing
            one is made.

    Raises:
        As ``export_traces``.
    """
    from trajectory_platform.release import releases
    from trajectory_platform.release.rows import USES
    from trajectory_platform.release.sealed_problems import KEY_FILE, key_is_made, release_key

    ctx = StageContext(settings)
    chosen = as_of(ctx, day)
    sources = {use: Source(ctx, chosen, use) for use in USES}
    newest = ctx.lake.read(tables.LEAK_CLUSTERS, [next(iter(sources.values())).newest])
    sealed = [row["problem_key"] for row in newest.to_pylist() if row["pool"] == "sealed"]
    secret = key_file or ctx.lake.workspace / KEY_FILE
    warnings = [*_warnings(settings), *([KEY_MADE.format(secret)] if key_is_made(secret) else [])]
    material = releases.Material(
        as_of=chosen,
        rows={use: (source.rows(), source.about) for use, source in sources.items()},
        sealed=sealed,
        key=release_key(secret),
        rules=_rules(settings),
    )
    made = releases.build_release(out, material, licence=licence)
    told = {"out": str(out), "new": made.new, "digest": made.digest, "facts": made.facts}
    return told | {"key_file": str(secret), "warnings": warnings}


def _warnings(settings: Settings) -> list[str]:
    """What whoever lets data out should know before others have it."""
    return [PUBLIC_KEY] if settings.pool_key == _DEFAULT_POOL_KEY else []


def verify_folder(folder: Path, key_file: Path | None = None) -> tuple[list[Fault], str]:
    """(everything wrong with a release or an export, the digest of its checksums).

    Raises:
        FailPartition: the folder is neither.
    """
    from trajectory_platform.release.folders import folder_digest
    from trajectory_platform.release.releases import verify
    from trajectory_platform.release.sealed_problems import read_key

    faults = verify(folder, None if key_file is None else read_key(key_file))
    return faults, folder_digest(folder)


def imported_rows(folder: Path, set_aside: list[SetAside]) -> Iterator[Row]:
    """Rows of an export, as they went out (messages and tools are JSON text); damaged ones go to ``set_aside``.

    Raises:
        Abort: no folder. FailPartition: no export, or a file that is not the one its checksum was made of.
    """
    from trajectory_platform.release.exports import read_export, read_facts
    from trajectory_platform.release.folders import verify_sums
    from trajectory_platform.release.rows import SetAside

    if not folder.is_dir():
        raise Abort(f"{folder} is no folder")
    read_facts(folder)
    if faults := verify_sums(folder):
        some = "; ".join(f"{fault.file}: {fault.reason}" for fault in faults[:_SHOWN])
        raise FailPartition(f"{folder} is not as it was written: {some}")
    for _, row in read_export(folder):
        if isinstance(row, SetAside):
            set_aside.append(row)
        else:
            yield row


def as_of(ctx: StageContext, day: str | None) -> str:
    """The day given, or the newest with published splits. Raises Abort where there are none."""
    days = ctx.lake.days(tables.LEAK_GUARDED_SPLITS)
    if not days:
        raise Abort("no splits in the lake: run 'trajectory-platform train sft' first")
    if day is not None and day not in days:
        raise Abort(f"no splits as of {day}; the newest are of {days[-1]}")
    return day or days[-1]


class Source:
    """The rows of one use as of a day, in the order (day, trace id), and the facts about them.

    Attributes:
        newest: the day of the newest clusters, which say what is held out now.
        left_out: reason -> rows of the wanted pools and use that stay in the lake; complete behind the last row.

    Raises:
        FailPartition: the guard of training finds a leak, or splits older than what they are made of.
    """

    def __init__(self, ctx: StageContext, day: str, use: str) -> None:
        from trajectory_platform.release.rows import USES

        self._ctx, self._day, self._use = ctx, day, use
        self._uses = USES[use]
        check_trainable(ctx, day, self._uses)
        self.newest: str = ctx.lake.days(tables.LEAK_CLUSTERS)[-1]
        self.left_out: Counter[str] = Counter()
        self._versions: dict[str, set[str]] = {}

    def rows(self) -> Iterator[Row]:
        """Rows with the columns of ``release.rows.COLUMNS``; read once.

        Raises:
            FailPartition: the corpus lacks a row that the splits name.
        """
        from trajectory_platform.release.rows import COLUMNS, SPLIT_OF, check_row, label_of, with_tools

        chosen = self._chosen()
        columns = ["trace_id", *_FROM_CORPUS]
        lake, batch_rows = self._ctx.lake, self._ctx.settings.batch_rows
        for day in sorted({row["trace_day"] for row in chosen.values()}):
            for batch in lake.batches(tables.AXIS_A_CORPUS, day, columns=columns, batch_rows=batch_rows):
                for record in batch.to_pylist():
                    told = chosen.pop((record["trace_id"], day), None)
                    if told is None:
                        continue
                    row = {**told, **record, "label": label_of(self._use, told["uses"])}
                    row = {name: row[name] for name in COLUMNS}
                    reason = self._restates(row)
                    try:
                        check_row(with_tools(row), SPLIT_OF[row["pool"]], self._use)
                    except RejectRow as error:
                        reason = reason or error.reason
                    if reason is not None:
                        self.left_out[reason] += 1
                        continue
                    self._versions.setdefault(row["filter_version"], set()).add(day)
                    yield row
        if chosen:
            some = ", ".join(sorted(trace_id for trace_id, _ in chosen)[:_SHOWN])
            raise FailPartition(f"{len(chosen)} rows are in the splits, not in the corpus: {some}")

    def about(self) -> dict[str, Any]:
        """Facts of the source (``release.card.export_card``)."""
        settings = self._ctx.settings
        days = sorted(set().union(*self._versions.values()))
        return {
            "as_of": self._day,
            "clusters_as_of": self.newest,
            "days": days,
            "left_out": dict(sorted(self.left_out.items())),
            "filters": self._filters(),
            "sources": self._digests(days),
            "split_method": {
                "draw": f"{_DRAW}; {_PUBLIC_KEY if settings.pool_key == _DEFAULT_POOL_KEY else _OWN_KEY}",
                "cluster_rule": _CLUSTER_RULE,
                "asked_shares": pool_shares(settings)._asdict(),
                "pools": self._observed(),
                "window_days": settings.window_days,
                "hold_out_entries": len(settings.hold_outs),
                "hold_new_suites_days": settings.hold_new_suites_days,
                "public_pool_key": settings.pool_key == _DEFAULT_POOL_KEY,
            },
        }

    def _chosen(self) -> dict[tuple[str, str], Row]:
        """(trace id, its day) -> row of the splits that may leave as far as its problem and id can tell."""
        import pyarrow.compute as pc

        lake = self._ctx.lake
        seal = sealing.sealed(lake)
        wanted = pc.field("pool").isin(["train", "dev"])
        rows = lake.read(tables.LEAK_GUARDED_SPLITS, [self._day], columns=list(_FROM_SPLITS), filter=wanted)
        listed = [row for row in rows.to_pylist() if not set(self._uses).isdisjoint(row["uses"])]
        shown: set[str] | None = None
        if seal is not None:
            condition = sealing.hidden(tables.LEAK_GUARDED_SPLITS.name, seal, sealing.sealed_traces(lake, seal))
            visible = wanted if condition is None else wanted & ~condition
            found = lake.read(tables.LEAK_GUARDED_SPLITS, [self._day], columns=["trace_id"], filter=visible)
            shown = set(found["trace_id"].to_pylist())
        chosen = {}
        for row in listed:
            if shown is not None and row["trace_id"] not in shown:
                self.left_out[SEALED_NOW] += 1
            elif seal is not None and seal.closed(row["trace_day"]):
                self.left_out[NOT_IN_CLUSTERS] += 1
            elif self._pools.get(row["problem_key"]) != row["pool"]:
                self.left_out[POOL_CHANGED] += 1
            else:
                chosen[row["trace_id"], row["trace_day"]] = row
        return chosen

    @cached_property
    def _clusters(self) -> pa.Table:
        return self._ctx.lake.read(tables.LEAK_CLUSTERS, [self.newest])

    @cached_property
    def _pools(self) -> dict[str, str]:
        """Problem key -> its pool by the newest clusters."""
        names = ("problem_key", "pool")
        return dict(zip(*(self._clusters[name].to_pylist() for name in names), strict=True))

    @cached_property
    def _index(self) -> NgramIndex:
        return held_out_index(self._ctx, self.newest, self._clusters)

    def _restates(self, row: Row) -> str | None:
        """The reason where a row holds the query of a problem of a stricter pool than its own.

        The guard of training has read the train rows against the clusters of the day itself.
        """
        from trajectory_platform.splits.pools import STRICTNESS

        if row["pool"] == "train" and self.newest == self._day:
            return None
        own = STRICTNESS.index(row["pool"])
        for overlap in self._index.overlaps(orjson.loads(row["messages"])):
            if STRICTNESS.index(self._pools[overlap.problem_key]) > own:
                return RESTATES
        return None

    def _filters(self) -> list[dict[str, Any]]:
        """Each version and configuration of the filter with the days it was applied to."""
        found: dict[tuple[str, str, str], list[str]] = {}
        for version, days in sorted(self._versions.items()):
            for manifest in self._ctx.lake.manifests(tables.AXIS_A_CORPUS, sorted(days)):
                config = _without_paths(manifest.settings.get("filter") or {})
                text = orjson.dumps(config, option=orjson.OPT_SORT_KEYS).decode()
                found.setdefault((version, manifest.code_version, text), []).append(manifest.day)
        return [
            {"version": version, "code_version": code, "days": sorted(days), "config": orjson.loads(text)}
            for (version, code, text), days in sorted(found.items())
        ]

    def _digests(self, days: list[str]) -> dict[str, str]:
        wanted = (
            (tables.LEAK_GUARDED_SPLITS, [self._day]),
            (tables.LEAK_CLUSTERS, sorted({self._day, self.newest})),
            (tables.AXIS_A_CORPUS, days),
        )
        return {
            f"{table.name}/{manifest.day}": manifest.content_digest
            for table, some in wanted
            for manifest in self._ctx.lake.manifests(table, some)
        }

    def _observed(self) -> dict[str, Any]:
        from trajectory_platform.splits.pools import observed_shares

        return observed_shares(self._ctx.lake.read(tables.LEAK_CLUSTERS, [self._day]))


def _rules(settings: Settings) -> dict[str, Any]:
    """``arena_rules.json``: the daily cycle, the tools, and how success is scored."""
    from trajectory_platform.judging.outcome import SCORER_VERSION
    from trajectory_platform.release.arena_rules import arena_rules
    from trajectory_platform.sandbox.tools import TOOLS

    scoring = {name: getattr(settings, name) for name in ("title_regime", "attribute_rule", "reasoning_gate")}
    return {"arena": arena_rules(), "tools": TOOLS, "scoring": {**scoring, "scorer_version": SCORER_VERSION}}


def _without_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """A filter configuration as others may see it: of a judge given as a file, only the file's name."""
    judge = config.get("judge")
    shown = Path(judge).name if isinstance(judge, str) and judge.endswith((".yaml", ".yml")) else judge
    return {**config, "judge": shown}
