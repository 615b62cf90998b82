"""A retraction and an invalidated run on their way: out of the splits, flagged checkpoints, a request to train again,
no byte of the text left."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.identity import sha256_hex
from trajectory_platform.lake import tables
from trajectory_platform.lineage.questions import about_checkpoint
from trajectory_platform.lineage.words import checkpoint_text, retraction_text
from trajectory_platform.stages import audits, daily
from trajectory_platform.stages.contamination import contamination
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.lineage_counts import checkpoint_lineage
from trajectory_platform.stages.retraction import purge_retracted, retract, vacuum
from trajectory_platform.stages.retraining import evidence_version, retraining
from trajectory_platform.stages.splits import check_trainable, leak_clusters, leak_guarded_splits
from trajectory_platform.training.checkpoints import MANIFEST, REQUIRED, verify_checkpoint
from trajectory_platform.training.loss_mask import LOSS_MASK, LOSS_MASK_VERSION
from trajectory_platform_tests.splits.rows import public
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, place, rewrite, split
from trajectory_platform_tests.stages.built_lake import context, publish_day
from trajectory_platform_tests.stages.made_checkpoints import made

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
ONE, TWO = "2026-05-01", "2026-05-02"
MARK = "the very words of r1"


def lake_of_two_days(tmp_path: Path) -> StageContext:
    """Two days of one problem each; r1:a and its copy r9:a; sft and its child kto on both days."""
    ctx = context(tmp_path, pool_train=100, pool_dev=0, pool_sealed=0, window_days=40)
    a, b = public("a", "wish a of its own", ["1"]), public("b", "thing b apart", ["2"])

    def trace(name: str, problem: Any, **values: Any) -> dict[str, Any]:
        named = {"trace_id": f"{name}:{problem.problem_id}", "problem_id": problem.problem_id}
        return named | {"problem_key": problem.problem_key, "query": problem.query, "agent": name} | values

    copy = {"content_hash": "same", "said": MARK}
    publish_day(ctx, ONE, [a], [trace("r1", a, **copy), trace("r2", a)])
    publish_day(ctx, TWO, [a, b], [trace("r9", a, **copy), trace("r3", b)])
    for day in (ONE, TWO):
        as_of(ctx, day)
        made(ctx, day, "kto", made(ctx, day), seconds=None)
    return ctx


def as_of(ctx: StageContext, day: str) -> dict[str, Any]:
    leak_clusters(ctx, day)
    return leak_guarded_splits(ctx, day).summary


def exclusions(ctx: StageContext, day: str) -> dict[str, str]:
    rows = ctx.lake.read(tables.SPLIT_EXCLUSIONS, [day]).to_pylist()
    return {row["trace_id"]: row["reason"] for row in rows}


def test_the_plan_names_ancestors_first_and_what_it_would_cost(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    plan = retract(ctx, "r1:a", at=None)
    assert plan["retraction_id"] is None and ctx.lake.days(tables.RETRACTIONS) == []
    names = [(row["stage"], row["day"], row["why"]) for row in plan["checkpoints"]]
    assert names == [("sft", ONE, "fed"), ("kto", ONE, "fed"), ("sft", TWO, "fed"), ("kto", TWO, "fed")]
    assert plan["requested_day"] == TWO and plan["cost"]["everything"]["seconds"] == 20.0
    assert plan["cost"]["everything"]["unknown"] == 2, "no kto was ever measured"
    assert "would be retracted" in retraction_text(plan) and "<- requested" in retraction_text(plan)
    with pytest.raises(Abort, match="no trace, run or miner 'r7'"):
        retract(ctx, "r7", at=None)


@pytest.mark.parametrize(("subject", "kind"), [("r1:a", "trace"), ("r1", "run")])
def test_a_tombstone_takes_trace_and_copies_out_and_asks_for_the_newest_day(
    tmp_path: Path, subject: str, kind: str
) -> None:
    ctx = lake_of_two_days(tmp_path)
    assert retraining(ctx) is None
    before = evidence_version(ctx)
    corpus = ctx.lake.manifest(tables.AXIS_A_CORPUS, ONE)
    told = retract(ctx, subject, reason="asked for by its author", at=NOW)
    assert told["kind"] == kind
    [row] = ctx.lake.read(tables.RETRACTIONS).to_pylist()
    assert row["at"] == NOW and row["day"] == "2026-06-01" and row["reason"] == "asked for by its author" and row["who"]
    with pytest.raises(Abort, match="was retracted on 2026-06-01 12:00"):
        retract(ctx, subject, reason="again", at=NOW)
    with pytest.raises(Abort, match="needs --reason"):
        retract(ctx, "r2:a", reason=" ", at=NOW)

    wanted = retraining(ctx)
    assert wanted is not None and wanted.day == TWO and evidence_version(ctx) != before
    assert [name.partition("-")[0] for name in wanted.checkpoints] == ["sft", "kto"] and len(wanted.older) == 2
    assert "retracted" in wanted.text()
    with pytest.raises(Exception, match="splits of .* are older than retractions/2026-06-01"):
        check_trainable(ctx, TWO)
    summary = as_of(ctx, TWO)
    assert exclusions(ctx, TWO)["r1:a"] == "retracted"
    assert summary["traces"] + sum(count for name, count in summary.items() if name.startswith("excluded_")) == 4
    assert ctx.lake.manifest(tables.AXIS_A_CORPUS, ONE) == corpus, "the published day is not rewritten"

    flagged = contamination(ctx, TWO).summary["flagged"]
    assert all(told["traces_retracted"] >= 1 for told in flagged.values()) and len(flagged) == 4
    facts = about_checkpoint(ctx.lake, wanted.checkpoints[0])
    assert facts is not None and facts["retracted_rows"] == 1 and "RETRACTED rows: 1" in checkpoint_text(facts)
    assert facts["flags"] == {"as_of": TWO, "traces_retracted": 1}
    made(ctx, TWO, "kto", made(ctx, TWO))  # what the requested run does
    assert retraining(ctx) is None, "the older checkpoints stay, flagged"


def test_the_copy_of_another_agent_goes_with_the_text(tmp_path: Path) -> None:
    """r9:a was the copy that the window removed; without r1:a it must not come back in its place."""
    ctx = lake_of_two_days(tmp_path)
    assert exclusions(ctx, TWO) == {"r9:a": "cross_day_copy"}
    know_the_text(ctx)
    told = retract(ctx, "r1:a", reason="asked for", at=NOW)
    assert told["copies"] == ["r9:a"]
    as_of(ctx, TWO)
    assert exclusions(ctx, TWO) == {"r1:a": "retracted", "r9:a": "retracted"}


@pytest.mark.parametrize("text", ["{", '{"version": 99}', '{"version": 1, "trace_id": "r2:a", "trace_ids": ["r1:a"]}'])
def test_a_picture_of_several_turns_or_that_cannot_be_read_goes_too(tmp_path: Path, text: str) -> None:
    ctx = lake_of_two_days(tmp_path)
    folder = checkpoint_folder(ctx, 1, "r2:a", text)
    know_the_text(ctx)
    retract(ctx, "r1:a", reason="asked for", at=NOW)
    purged = purge_retracted(ctx)
    assert purged is not None and purged.pictures == [folder.name]
    verify_checkpoint(folder)


def know_the_text(ctx: StageContext) -> None:
    """The trajectory of r1:a: copies are known by it."""
    import pyarrow as pa

    from trajectory_platform_tests.stages.built_lake import row

    told = {"trace_id": "r1:a", "day": ONE, "content_hash": "same", "messages": json.dumps([MARK]), "tools": "[]"}
    rows = pa.Table.from_pylist([row(tables.TRAJECTORIES, **told)], schema=tables.TRAJECTORIES.schema())
    ctx.lake.publish(tables.TRAJECTORIES, ONE, rows, identity="x", inputs={}, code_version="1", settings={})


def test_purged_text_is_in_no_file_and_the_day_keeps_its_count(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    assert purge_retracted(ctx) is None
    know_the_text(ctx)
    retract(ctx, "r1:a", reason="asked for", at=NOW)
    untouched = ctx.lake.manifest(tables.JUDGED_TRACES, ONE)
    purged = purge_retracted(ctx)
    assert purged is not None and purged.traces == 2 and purged.rejected == {ONE: 1, TWO: 1}
    accepted = ctx.lake.read(tables.AXIS_A_CORPUS, columns=["trace_id"]).column(0).to_pylist()
    rejected = ctx.lake.read(tables.REJECTED_TRACES).to_pylist()
    assert accepted == ["r2:a", "r3:b"]
    assert [(row["trace_id"], row["stage"], row["reason"]) for row in rejected] == [
        ("r1:a", "ingest", "run_unusable"),
        ("r9:a", "ingest", "run_unusable"),
    ]
    assert all(row["detail"].startswith("retracted: ") for row in rejected)
    assert purged.pictures == []
    assert ctx.lake.manifest(tables.JUDGED_TRACES, ONE) == untouched
    for path in (tmp_path / "lake").rglob("*.parquet"):
        assert MARK not in words_of(path), path
    assert vacuum(ctx, dry_run=True, partition_versions=True).unreadable == []
    as_of(ctx, TWO)
    for day in (ONE, TWO):
        assert checkpoint_lineage(ctx, day).summary["traces"] >= 1, "old checkpoints are answered for"
    assert purge_retracted(ctx).rejected == {}  # type: ignore[union-attr]


def checkpoint_folder(ctx: StageContext, number: int, trace_id: str, mask: str | None = None) -> Path:
    """A finished checkpoint, all of it but real weights, with the picture of one row."""
    folder = Path(ctx.settings.checkpoint_root) / f"sft-{ONE}-{number:012x}"
    folder.mkdir(parents=True)
    shown = {"version": LOSS_MASK_VERSION, "trace_id": trace_id, "stretches": [{"pieces": [MARK]}]}
    texts = dict.fromkeys(REQUIRED, "{}") | {LOSS_MASK: mask or json.dumps(shown)}
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    files = {name: sha256_hex(text.encode()) for name, text in texts.items()}
    (folder / MANIFEST).write_text(json.dumps({"checkpoint_id": folder.name, "files": files}), "utf-8")
    verify_checkpoint(folder)
    return folder


def test_a_purge_takes_the_picture_of_a_retracted_row_out_of_its_checkpoint(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    shown = {name: checkpoint_folder(ctx, number, name) for number, name in enumerate(("r1:a", "r2:a", "r9:a"))}
    know_the_text(ctx)
    retract(ctx, "r1:a", reason="asked for", at=NOW)
    purged = purge_retracted(ctx)
    gone = ["r1:a", "r9:a"]  # r9:a is its copy
    assert purged is not None and purged.pictures == sorted(shown[name].name for name in gone)
    assert purge_retracted(ctx).pictures == []  # type: ignore[union-attr]
    for name, folder in shown.items():
        assert (folder / LOSS_MASK).exists() == (name not in gone)
        verify_checkpoint(folder)  # what is left is a whole checkpoint
        assert name not in gone or all(MARK not in path.read_text("utf-8") for path in folder.iterdir())
    (shown["r2:a"] / LOSS_MASK).write_text("{}", "utf-8")
    with pytest.raises(FailPartition, match="loss_mask.json differs"):
        verify_checkpoint(shown["r2:a"])


def words_of(path: Path) -> str:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    return "".join(str(table.column(name).to_pylist()) for name in table.column_names if name == "messages")


# -- simulated days: the source itself takes a run back --


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_days(tmp_path_factory.mktemp("days"), days=2, traces=60)


def test_an_invalidated_run_flags_its_checkpoints_and_asks_for_the_newest_day(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path, pool_train=100, pool_dev=0, pool_sealed=0, judge="rules")
    ctx = StageContext(settings)
    ingest(settings, DAYS[:2])
    split(settings, DAYS[1])
    name = made(ctx, DAYS[1])
    assert retraining(ctx) is None
    fed = ctx.lake.read(tables.CHECKPOINT_TRACES).to_pylist()
    run = next(row["trace_id"] for row in fed if row["trace_day"] == DAYS[0]).partition(":")[0]
    for day in DAYS[:2]:
        rewrite(
            Path(settings.data_root) / day / "runs.jsonl",
            lambda row: row | ({"invalidated_at": "2026-05-09T00:00:00Z"} if row["eval_run_id"] == run else {}),
        )
    ingest(settings, DAYS[:2])
    hit = {row["trace_id"] for row in fed if row["trace_id"].startswith(f"{run}:")}
    wanted = retraining(ctx)
    assert wanted is not None and wanted.day == DAYS[1] and wanted.checkpoints == [name]
    assert wanted.reasons == dict.fromkeys(sorted(hit), "run_unusable")
    split(settings, DAYS[1])
    assert contamination(ctx, DAYS[1]).summary["flagged"][name]["traces_run_unusable"] == len(hit)
    assert made(ctx, DAYS[1]) != name
    assert retraining(ctx) is None


def test_a_day_built_again_after_a_retraction_rejects_it_and_keeps_its_count(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path, judge="rules")
    ctx = StageContext(settings)
    ingest(settings, DAYS[:2])
    columns = ["trace_id", "eval_run_id", "miner_hotkey"]
    one = ctx.lake.read(tables.AXIS_A_CORPUS, [DAYS[0]], columns=columns).to_pylist()[0]
    accepted = set(ctx.lake.read(tables.AXIS_A_CORPUS, [DAYS[0]], columns=["trace_id"]).column(0).to_pylist())
    retract(ctx, one["miner_hotkey"], reason="left the subnet", at=NOW)
    for stage in (daily.trajectories, daily.judged_traces, daily.axis_a_corpus):
        assert not stage(ctx, DAYS[0]).skipped
        assert stage(ctx, DAYS[0]).skipped, "once"
    assert audits.audited(audits.conservation, ctx, DAYS[0])["passed"]
    rejected = {row["trace_id"]: row for row in ctx.lake.read(tables.REJECTED_TRACES, [DAYS[0]]).to_pylist()}
    assert rejected[one["trace_id"]]["reason"] == "run_unusable" and "retracted" in rejected[one["trace_id"]]["detail"]
    now = set(ctx.lake.read(tables.AXIS_A_CORPUS, [DAYS[0]], columns=["trace_id"]).column(0).to_pylist())
    assert one["trace_id"] in accepted - now
    assert one["trace_id"] not in ctx.lake.read(tables.TRAJECTORIES, [DAYS[0]], ["trace_id"]).column(0).to_pylist()
