"""What leaves the lake: the accepted rows of train and dev, whole and in order; nothing sealed, by any clusters."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.identity import sha256_hex
from trajectory_platform.lake import tables
from trajectory_platform.release.releases import verify
from trajectory_platform.sandbox.problems import Problem
from trajectory_platform.settings import HoldOut, Settings
from trajectory_platform.stages import export, splits
from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.splits.rows import public
from trajectory_platform_tests.stages.built_lake import context, publish, publish_day, row

DAY, LATER = "2026-05-01", "2026-05-02"
OPEN = public("open", "a small round brass bell for a bicycle handlebar please", ["1"])
OTHER = public("other", "two linen table cloths in dark green without any pattern on them", ["2"])
DEV = public("dev", "find a large green garden umbrella with a heavy stone foot below forty", ["3"])
SECRET = public("secret", "one pair of waterproof hiking boots with red laces in size forty four", ["4"])
PROBLEMS = (OPEN, OTHER, DEV, SECRET)
Row = dict[str, Any]


def hold(problem: Problem, pool: Any, since: str = "2026-04-01") -> HoldOut:
    return HoldOut(pool=pool, since=date.fromisoformat(since), problem_key=problem.problem_key)


HELD = (hold(DEV, "dev"), hold(SECRET, "sealed"))


def accepted(problem: Problem, said: str = "done", uses: tuple[str, ...] = ("sft", "kto_desirable"), n: int = 0) -> Row:
    """A row of the corpus whose hash fits its messages."""
    messages = [
        {"role": "user", "content": problem.query},
        {"role": "assistant", "content": said, "reasoning_content": "short"},
    ]
    return row(
        tables.AXIS_A_CORPUS,
        trace_id=f"run{n}:{problem.problem_id}",
        day=DAY,
        problem_id=problem.problem_id,
        suite_id="1",
        problem_key=problem.problem_key,
        category="product",
        messages=jsontext.dumps(messages),
        tools="[]",
        content_hash=sha256_hex(jsontext.canonical(messages).encode()),
        uses=list(uses),
        quality=0.25,
        filter_version="filter-2",
        outcome_source="rule",
    )


def lake_of(root: Path, rows: list[Row], **changes: Any) -> StageContext:
    made = context(root, **{"hold_outs": HELD, "pool_train": 100, "pool_dev": 0, "pool_sealed": 0, **changes})
    traces = [{"trace_id": one["trace_id"], "problem_id": one["problem_id"], "problem_key": one["problem_key"]}
              for one in rows]  # fmt: skip
    publish_day(made, DAY, PROBLEMS, traces)
    publish(made, tables.AXIS_A_CORPUS, DAY, rows)
    splits.leak_clusters(made, DAY)
    splits.leak_guarded_splits(made, DAY)
    return made


def exported(settings: Settings, out: Path, use: str = "sft", form: str = "hf") -> tuple[Row, list[Row]]:
    done = export.export_traces(settings, day=DAY, use=use, form=form, out=out)
    aside: list[Any] = []
    rows = list(export.imported_rows(out, aside))
    assert aside == []
    return done["facts"], rows


@pytest.mark.parametrize("form", ["hf", "openai"])
def test_rows_leave_as_they_are_in_the_lake(tmp_path: Path, form: str) -> None:
    kept = [accepted(one) for one in PROBLEMS] + [accepted(OPEN, uses=("kto_undesirable",), n=1)]
    ctx = lake_of(tmp_path, kept)
    facts, rows = exported(ctx.settings, tmp_path / "out", form=form)
    pools = {one["trace_id"]: one["pool"] for one in rows}
    assert pools == {"run0:open": "train", "run0:other": "train", "run0:dev": "dev"}
    corpus = {one["trace_id"]: one for one in kept}
    guarded = {one["trace_id"]: one for one in ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [DAY]).to_pylist()}
    for one in rows:
        for name in ("messages", "tools", "filter_version", "content_hash", "uses", "quality", "problem_key"):
            assert one[name] == corpus[one["trace_id"]][name]
        assert one["cluster_id"] == guarded[one["trace_id"]]["cluster_id"]
    assert facts["left_out"] == {} and facts["splits"]["validation"]["rows"] == 1
    assert facts["filters"][0]["version"] == "filter-2" and facts["days"] == [DAY]


def test_nothing_of_a_sealed_problem_is_in_any_file(tmp_path: Path) -> None:
    ctx = lake_of(tmp_path, [accepted(one) for one in PROBLEMS])
    done = export.build_release(ctx.settings, day=None, out=tmp_path / "out")
    seen = b"".join(path.read_bytes() for path in sorted((tmp_path / "out").rglob("*")) if path.is_file())
    for word in (SECRET.query, "run0:secret", SECRET.problem_key, SECRET.problem_key[:16], ctx.settings.pool_key):
        assert str(word).encode() not in seen
    assert done["facts"]["sealed"]["problems"] == 1 and done["facts"]["problems"] == 3
    key = tmp_path / "lake" / "_release.key"
    faults, digest = export.verify_folder(tmp_path / "out", key)
    assert faults == [] and digest == done["digest"]
    assert not export.build_release(ctx.settings, day=DAY, out=tmp_path / "out")["new"]


def test_a_public_pool_key_and_a_new_release_key_are_said_and_the_card_agrees_with_itself(tmp_path: Path) -> None:
    ctx = lake_of(tmp_path, [accepted(one) for one in PROBLEMS])
    own = export.build_release(ctx.settings, day=DAY, out=tmp_path / "own")
    assert own["warnings"] == [export.KEY_MADE.format(own["key_file"])], "a key of its own, so only the new release key"
    card = (tmp_path / "own" / "README.md").read_text("utf-8")
    assert "the key is not published." in card and "published default" not in card
    public = ctx.settings.model_copy(update={"pool_key": export._DEFAULT_POOL_KEY})
    made = lake_of(tmp_path / "public", [accepted(one) for one in PROBLEMS], pool_key=public.pool_key)
    done = export.export_traces(made.settings, day=DAY, use="sft", form="hf", out=tmp_path / "sft")
    assert done["warnings"] == [export.PUBLIC_KEY]
    card = (tmp_path / "sft" / "README.md").read_text("utf-8")
    assert "the key was the published default of the software." in card and "not published" not in card
    assert export.build_release(ctx.settings, day=DAY, out=tmp_path / "own")["warnings"] == []


def test_kto_takes_both_kinds_with_their_labels(tmp_path: Path) -> None:
    kept = [accepted(OPEN), accepted(OTHER, uses=("kto_undesirable",)), accepted(DEV, uses=("sft",))]
    _, rows = exported(lake_of(tmp_path, kept).settings, tmp_path / "out", use="kto")
    assert {one["trace_id"]: one["label"] for one in rows} == {"run0:open": True, "run0:other": False}


def test_a_dev_row_that_quotes_a_sealed_problem_stays_in(tmp_path: Path) -> None:
    quoting = accepted(DEV, said=f"I was asked before: {SECRET.query}", n=1)
    facts, rows = exported(lake_of(tmp_path, [accepted(OPEN), accepted(DEV), quoting]).settings, tmp_path / "out")
    assert {one["trace_id"] for one in rows} == {"run0:open", "run0:dev"}
    assert facts["left_out"] == {"restates_held_out_problem": 1}


def test_what_was_held_out_since_the_day_stays_in(tmp_path: Path) -> None:
    """An export of an older day is made with what is known today."""
    held = (*HELD, hold(OTHER, "sealed", since=LATER))
    ctx = lake_of(tmp_path, [accepted(one) for one in PROBLEMS], hold_outs=held)
    _, before = exported(ctx.settings, tmp_path / "before")
    assert {one["trace_id"] for one in before} == {"run0:open", "run0:other", "run0:dev"}
    publish_day(ctx, LATER, PROBLEMS, [])
    splits.leak_clusters(ctx, LATER)
    facts, after = exported(ctx.settings, tmp_path / "after")
    assert {one["trace_id"] for one in after} == {"run0:open", "run0:dev"}
    assert facts["left_out"] == {"sealed_now": 1} and facts["clusters_as_of"] == LATER
    done = export.build_release(ctx.settings, day=DAY, out=tmp_path / "release")
    assert done["facts"]["sealed"]["problems"] == 2


def test_what_was_withdrawn_never_leaves(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    from trajectory_platform.stages.retraction import retract

    ctx = lake_of(tmp_path, [accepted(OPEN), accepted(OTHER, "fine", n=1)])
    retract(ctx, "run1:other", reason="asked for", at=datetime(2026, 5, 9, tzinfo=UTC))
    with pytest.raises(FailPartition, match="older than retractions"):
        exported(ctx.settings, tmp_path / "early")
    splits.leak_guarded_splits(ctx, DAY)
    _, rows = exported(ctx.settings, tmp_path / "out")
    assert [row["trace_id"] for row in rows] == ["run0:open"]


def test_stale_splits_stop_the_export(tmp_path: Path) -> None:
    ctx = lake_of(tmp_path, [accepted(OPEN)])
    publish_day(ctx, DAY, PROBLEMS, [])
    with pytest.raises(FailPartition, match="older than"):
        export.export_traces(ctx.settings, day=DAY, use="sft", form="hf", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_row_that_is_not_what_its_hash_says_is_left_out_and_counted(tmp_path: Path) -> None:
    wrong = accepted(OTHER) | {"content_hash": "0" * 64}
    facts, rows = exported(lake_of(tmp_path, [accepted(OPEN), wrong]).settings, tmp_path / "out")
    assert [one["trace_id"] for one in rows] == ["run0:open"]
    assert facts["left_out"] == {"content_hash_differs": 1}


def test_a_day_without_splits_is_named(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    with pytest.raises(Abort, match="train sft"):
        export.export_traces(ctx.settings, day=None, use="sft", form="hf", out=tmp_path / "out")
    ctx = lake_of(tmp_path / "second", [accepted(OPEN)])
    with pytest.raises(Abort, match=f"newest are of {DAY}"):
        export.export_traces(ctx.settings, day="2026-04-01", use="sft", form="hf", out=tmp_path / "out")


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from trajectory_platform.commands import export as commands

    settings = lake_of(tmp_path, [accepted(one) for one in PROBLEMS]).settings
    monkeypatch.setattr(commands, "settings", lambda: settings)
    run = CliRunner().invoke
    out, back, made = (str(tmp_path / name) for name in ("out", "back.jsonl", "release"))
    words = ["export", "--format", "openai", "--out", out, "--day", DAY]
    for state in ("written", "the same was there"):
        answer = run(commands.app, words)
        assert answer.exit_code == 0 and state in answer.output and "2 rows" in answer.output
    assert run(commands.app, ["import", out, "--out", back]).exit_code == 0
    assert [json.loads(line)["trace_id"] for line in Path(back).read_text("utf-8").splitlines()] == [
        "run0:open", "run0:other", "run0:dev",
    ]  # fmt: skip
    answer = run(commands.release_app, ["build", "--out", made, "--json"])
    told = json.loads(answer.stdout)
    digest = told["digest"]
    assert answer.stderr == f"warning: {told['warnings'][0]}\n" and told["key_file"] in answer.stderr
    said = run(commands.release_app, ["verify", made]).output
    files = len((Path(made) / "SHA256SUMS").read_text("utf-8").splitlines())
    assert f"{files} files have the checksums of SHA256SUMS" in said and f"digest {digest}" in said
    (Path(made) / "README.md").write_text("changed")
    answer = run(commands.release_app, ["verify", made])
    assert answer.exit_code == 1 and "README.md: checksum_differs" in answer.output
    assert verify(Path(out)) == []
