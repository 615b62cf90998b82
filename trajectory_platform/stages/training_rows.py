"""The rows of each stage of training: which traces of the window, which generated ones, in which role.

Records have the keys of ``training.launch.RECORD``; all of them have passed the guard when they leave this module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform import jsontext
from trajectory_platform.lake import tables
from trajectory_platform.stages.checkpoints import corpus_batches
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.generated_slots import present_traces
from trajectory_platform.stages.retraction import retracted_among
from trajectory_platform.stages.splits import published_window
from trajectory_platform.stages.training_guard import HeldOut

if TYPE_CHECKING:
    from trajectory_platform.training.recipe import Recipe
    from trajectory_platform.training.stage_recipes import Selection

Row = dict[str, Any]
ROWS_VERSION = "rows-1"  # raise it when the same partitions would give other rows
SFT_USE, DESIRABLE, UNDESIRABLE = "sft", "kto_desirable", "kto_undesirable"
ROLES = {SFT_USE: "train", DESIRABLE: "desirable", UNDESIRABLE: "undesirable"}  # use -> role of the row
GENERATED_ROLES = {"resft": "generated", "teacher_sft": "teacher"}  # stage -> role of what was generated for it
_JUDGED = ("hallucinated_ids", "unviewed_ids", "not_in_catalogue_ids", "discipline")
_SITUATION = ("situation", "flags", "outcome_success", "reasoning_quality", "recommended_ids")


@dataclass
class Feed:
    """What the rows of one stage are made from.

    Attributes:
        counts: what became of the rows on the way, for the summary and the manifest.
    """

    ctx: StageContext
    day: str
    recipe: Recipe
    stage: str
    counts: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def held_out(self) -> HeldOut:
        return HeldOut(self.ctx, self.day)

    @property
    def seed(self) -> int:
        return int(self.recipe.seed or 0)


@dataclass(frozen=True)
class Material:
    """What a stage is trained on: records, and the files that its trainer needs besides."""

    rows: list[Row]
    files: Mapping[str, Path] = field(default_factory=dict)


def supervised(feed: Feed, _scratch: Path) -> Material:
    """SFT: the accepted traces of the train pool that are worth imitating (or the whole stream, for the control)."""
    return Material(imitated(feed))


def with_generated(feed: Feed, _scratch: Path) -> Material:
    """Re-SFT and teacher SFT: what was generated for the stage and accepted, and the corpus that is mixed in."""
    made = accepted_traces(feed, feed.stage)
    corpus = imitated(feed) if made else []
    feed.counts |= {"generated_traces": len(made), "corpus_traces": len(corpus)}
    return Material([*made, *corpus])


def preferred(feed: Feed, _scratch: Path) -> Material:
    """KTO: accepted traces with their verdicts; desirable or not by their uses."""
    rows = _streamed(feed, (DESIRABLE, UNDESIRABLE)) if _control(feed) else judged_rows(feed)
    feed.held_out.check(rows, texts=False)
    feed.counts |= Counter(row["role"] for row in rows)
    return Material(rows)


def imitated(feed: Feed) -> list[Row]:
    """Rows in the role ``train``, sorted by trace id."""
    rows = _streamed(feed, (SFT_USE,)) if _control(feed) else corpus_rows(feed, (SFT_USE,))
    feed.held_out.check(rows, texts=False)  # check_trainable has read the texts of the corpus, _streamed its own
    return rows


def corpus_rows(feed: Feed, uses: Sequence[str], extra: Callable[[Row], str | None] = lambda _row: None) -> list[Row]:
    """Records of the accepted traces of the train pool with one of these uses.

    Args:
        extra: JSON text of what a trainer is told of a row of the splits besides.
    """
    from trajectory_platform.evaluation.texts import chosen_texts

    days = published_window(feed.ctx, tables.AXIS_A_CORPUS, feed.day)
    splits = feed.ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [feed.day]).to_pylist()
    select = selection(feed)
    chosen = [
        row
        for row in splits
        if row["pool"] == "train"
        and any(use in row["uses"] for use in uses)
        and row["quality"] >= select.min_quality
        and (select.categories is None or row["category"] in select.categories)
    ]
    found = []
    for row, record in chosen_texts(chosen, corpus_batches(feed.ctx, days)):
        use = next(use for use in uses if use in row["uses"])
        texts = {"weight": row["quality"], **{name: record[name] for name in ("messages", "tools")}}
        place = {name: row[name] for name in ("trace_id", "trace_day", "problem_key", "cluster_id")}
        found.append({**place, "role": ROLES[use], **texts, "extra": extra(row)})
    return found


def judged_rows(feed: Feed) -> list[Row]:
    """The rows of KTO; ``extra`` tells what the verdicts say of each."""
    days = published_window(feed.ctx, tables.AXIS_A_CORPUS, feed.day)
    situations = _by_trace(feed.ctx, tables.AXIS_A_CORPUS, days, (*_SITUATION, "uses"))
    judged = _by_trace(feed.ctx, tables.JUDGED_TRACES, days, _JUDGED)

    def extra(row: Row) -> str:
        key = row["trace_id"], row["trace_day"]
        return jsontext.dumps({**situations[key], **judged.get(key, {}), "source": "corpus"})

    return corpus_rows(feed, (DESIRABLE, UNDESIRABLE), extra)


def _by_trace(
    ctx: StageContext, table: tables.Table, days: Sequence[str], names: Sequence[str]
) -> dict[tuple[str, str], Row]:
    rows = ctx.lake.read(table, list(days), columns=["trace_id", "day", *names]).to_pylist()
    return {(row["trace_id"], row["day"]): {name: row[name] for name in names} for row in rows}


def accepted_traces(feed: Feed, stage: str) -> list[Row]:
    """What was generated for a stage as of the day and accepted, in the role it has there."""
    made = [row for row in present_traces(feed.ctx, feed.day, stage) if row["accepted"]]
    retracted = retracted_among(feed.ctx, {row["trace_id"] for row in made})
    made = [row for row in made if row["trace_id"] not in retracted]
    rows = [
        {
            "trace_id": row["trace_id"],
            "role": GENERATED_ROLES[stage],
            "trace_day": feed.day,
            "weight": 1.0,
            "extra": jsontext.dumps({"source": row["source"], "conduct_score": row["conduct_score"]}),
            **{name: row[name] for name in ("problem_key", "cluster_id", "messages", "tools")},
        }
        for row in made
    ]
    feed.held_out.check(rows, texts=True)
    return rows


def selection(feed: Feed) -> Selection:
    """The selection of the stage; one without any takes all of the corpus."""
    from trajectory_platform.training.stage_recipes import Selection

    found: Selection = getattr(feed.recipe.stage(feed.stage), "select", Selection())
    return found


def _control(feed: Feed) -> bool:
    return selection(feed).source == "unfiltered"


def _streamed(feed: Feed, uses: Sequence[str]) -> list[Row]:
    """The control: every readable trajectory of the train problems in the window, whatever the filter said of it.

    Rows that hold the text of held-out problems are left out and counted: the comparison with the filtered corpus is
    about quality, not about a leak. Without verdicts, KTO takes what succeeded as desirable.
    """
    ctx = feed.ctx
    days = published_window(ctx, tables.TRAJECTORIES, feed.day)
    wanted = _of_the_stream(feed, days)
    retracted = retracted_among(ctx, {trace_id for trace_id, _ in wanted})
    wanted = {key: place for key, place in wanted.items() if key[0] not in retracted}
    found: list[Row] = []
    left = 0
    columns = ["trace_id", "day", "messages", "tools"]
    for day in days:
        for batch in ctx.lake.batches(tables.TRAJECTORIES, day, columns=columns, batch_rows=ctx.settings.batch_rows):
            for row in batch.to_pylist():
                place = wanted.get((row["trace_id"], day))
                if place is None:
                    continue
                if feed.held_out.restated(row["trace_id"], row["messages"]) is not None:
                    left += 1
                    continue
                told = {"source": "unfiltered", "outcome_success": place["outcome_success"]}
                found.append(
                    {
                        **{name: row[name] for name in ("trace_id", "messages", "tools")},
                        **{name: place[name] for name in ("problem_key", "cluster_id")},
                        "role": _role_of_outcome(uses, place["outcome_success"]),
                        "trace_day": day,
                        "weight": 1.0,
                        "extra": jsontext.dumps(told),
                    }
                )
    feed.counts |= {"source": "unfiltered", "left_out_held_out_text": left}
    return sorted(found, key=lambda row: row["trace_id"])


def _of_the_stream(feed: Feed, days: Sequence[str]) -> dict[tuple[str, str], Row]:
    """(trace id, day) -> problem, cluster and outcome of the readable trajectories of train problems.

    Of a pair that was judged again the newest day counts, and a text that a trace of a held-out problem has too is
    left out, as the splits leave it out.
    """
    from trajectory_platform.sandbox.problems import hidden_problem_key

    ctx = feed.ctx
    names = ("problem_id", "suite_id", "problem_key", "category", "outcome_success")
    judged = _by_trace(ctx, tables.JUDGED_TRACES, days, names)
    listed = _by_trace(ctx, tables.TRAJECTORIES, days, ("readable", "content_hash"))
    latest: dict[str, str] = {}
    for trace_id, day in judged:
        latest[trace_id] = max(day, latest.get(trace_id, ""))
    categories = selection(feed).categories
    found: dict[tuple[str, str], Row] = {}
    elsewhere: set[str] = set()
    for key, told in judged.items():
        read = listed.get(key)
        if read is None or not read["readable"]:
            continue
        problem = told["problem_key"]
        if problem is None and told["problem_id"] is not None:  # a problem that no listing named: its bare id
            problem = hidden_problem_key(told["suite_id"], told["problem_id"])
        cluster = feed.held_out.train_cluster(problem)
        if cluster is None:
            elsewhere.add(read["content_hash"])
        elif latest[key[0]] == key[1] and (categories is None or told["category"] in categories):
            found[key] = {"problem_key": problem, "cluster_id": cluster, "outcome_success": told["outcome_success"]}
    return {key: row for key, row in found.items() if listed[key]["content_hash"] not in elsewhere}


def _role_of_outcome(uses: Sequence[str], success: bool | None) -> str:
    if len(uses) == 1:
        return ROLES[uses[0]]
    return ROLES[DESIRABLE if success else UNDESIRABLE]
