"""No sealed score without its look in the ledger, and the number of looks beside every one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.lake.ledger import LEDGER, read_ledger, record
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.sealed_scores import (
    Looks,
    assert_looked,
    assert_scores_looked,
    looks,
    looks_text,
    verify_ledger,
)
from trajectory_platform.lake.verification import verify
from trajectory_platform.settings import Settings
from trajectory_platform.stages.evaluations import compare_files, evaluate_files
from trajectory_platform_tests.lake.rows import fill, put
from trajectory_platform_tests.stages.arena_days import DAYS, here, make_days, settings_for

AT = datetime(2026, 3, 3, 12, tzinfo=UTC)
SCRIPT = "script:search_and_check"
NAME = SCRIPT + "@1"


def looked(lake: Lake, checkpoint_id: str | None, *keys: str, what: str = "evaluation") -> None:
    record(lake, what=what, reason="release", at=AT, keys=keys, checkpoint_id=checkpoint_id, who="ann")


def score(checkpoint_id: str, key: str, pool: str = "sealed", outcome: str = "success") -> dict[str, str]:
    return {"checkpoint_id": checkpoint_id, "problem_key": key, "pool": pool, "outcome": outcome}


def test_a_score_needs_looks_of_this_checkpoint_that_cover_its_problems(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    with pytest.raises(
        FailPartition, match="sealed score without a look: .* no evaluation of c1 for 2 sealed problems"
    ):
        assert_looked(lake, "c1", ["a", "b"])
    looked(lake, "c1", "a", "x")
    looked(lake, "c2", "a", "b")
    looked(lake, None, "a", "b", what="sql")
    with pytest.raises(FailPartition, match="1 sealed problems .b."):
        assert_looked(lake, "c1", ["a", "b"])
    looked(lake, "c1", "b")
    assert_looked(lake, "c1", ["a", "b"])


def test_only_sealed_rows_that_carry_a_score_need_a_look(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    assert_scores_looked(lake, [score("c1", "a", pool="dev"), score("c1", "b", outcome="no_reward")])
    for outcome in ("failure", "crash", "timeout", "unscorable"):
        with pytest.raises(FailPartition, match="without a look"):
            assert_scores_looked(lake, [score("c1", "a", outcome=outcome)])


def test_lines_of_the_first_format_vouch_for_no_score(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    line = {"at": "2026-02-01T00:00:00+00:00", "query_sha256": "aa", "reason": "before the chain"}
    (tmp_path / LEDGER).write_text(json.dumps(line) + "\n")
    assert looks(lake).others == 1
    with pytest.raises(FailPartition, match="without a look"):
        assert_looked(lake, "c1", ["a"])


def test_looks_are_counted_per_checkpoint_and_over_all(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    for name in ("c1", "c2", "c1"):
        looked(lake, name, "a")
    looked(lake, None, "a", what="traces show")
    assert looks(lake, "c1") == Looks(own=2, evaluations=3, checkpoints=2, others=1, faults=0)
    assert looks(lake, "c3").own == 0 and looks(lake).evaluations == 3
    words = looks_text(looks(lake, "c1"))
    assert "2 evaluations of this checkpoint, 3 evaluations of 2 checkpoints in all and 1 other look" in words
    with (tmp_path / LEDGER).open("ab") as stream:
        stream.write(b'{"at": "cut')
    assert "the ledger has 1 faults" in looks_text(looks(lake, "c1"))


def test_lake_verify_names_published_scores_nobody_looked_for(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    rows = fill(
        tables.EVAL_SCORES,
        ["c1", "c1"],
        problem_key=["a", "b"],
        pool=["sealed", "dev"],
        stage=["sft"] * 2,
        outcome=["failure"] * 2,
    )
    put(lake, tables.EVAL_SCORES, rows, part={"stage": "sft"})
    assert [fault.reason for fault in verify_ledger(lake)] == ["score_without_look"]
    (damage,) = verify(lake)
    assert (damage.table, damage.reason) == (LEDGER, "score_without_look") and "c1" in damage.detail
    looked(lake, "c1", "a")
    assert not verify_ledger(lake) and not verify(lake)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_days(tmp_path_factory.mktemp("suites") / "days", days=1)


def evaluated(settings: Settings, out: Path, **more: Any) -> dict[str, Any]:
    return evaluate_files(
        settings,
        suites=[Path(settings.data_root) / DAYS[0] / "suite.json"],
        catalogue=Path(settings.data_root) / "catalogue" / "products.jsonl",
        out=out,
        day=DAYS[0],
        **{"runner": here, "policy": SCRIPT, "pool": "sealed", "problems": 3, "now": lambda: AT, **more},
    )


def test_an_evaluation_is_in_the_ledger_before_it_acts_and_prints_how_often(days: Path, tmp_path: Path) -> None:
    settings = settings_for(days, tmp_path / "lake", pool_train=40, pool_dev=20, pool_sealed=40)
    lake = Lake(settings.lake_uri)
    with pytest.raises(Abort, match="only with a reason"):
        evaluated(settings, tmp_path / "no", runner=pytest.fail)
    assert not (lake.root / LEDGER).exists()
    first = evaluated(settings, tmp_path / "a", sealed_reason="release of May")
    (look,) = read_ledger(lake).looks
    rows = [json.loads(line) for line in (tmp_path / "a" / "scores.jsonl").read_text().splitlines()]
    scored = sorted(row["problem_key"] for row in rows if row["outcome"] != "no_reward")
    assert (look.what, look.checkpoint_id, look.reason, look.at) == (
        "evaluation", NAME, "release of May", AT.isoformat(),
    )  # fmt: skip
    assert look.keys == tuple(scored) and len(scored) == 3
    assert "1 evaluation of this checkpoint, 1 evaluation of 1 checkpoint in all" in first["text"]
    other = evaluated(settings, tmp_path / "b", sealed_reason="compare", policy="script:random_browser")
    assert "1 evaluation of this checkpoint, 2 evaluations of 2 checkpoints in all" in other["text"]
    metrics = json.loads((tmp_path / "b" / "metrics.json").read_text())
    assert metrics["sealed_looks"]["script:random_browser@1"]["evaluations"] == 2

    sides = tmp_path / "a" / "scores.jsonl", tmp_path / "b" / "scores.jsonl"
    assert "2 evaluations of 2 checkpoints in all" in compare_files(*sides, settings=settings)["text"]
    with pytest.raises(Abort, match="which lake's ledger"):
        compare_files(*sides)
    elsewhere = settings.model_copy(update={"lake_uri": str(tmp_path / "another lake")})
    with pytest.raises(FailPartition, match="without a look"):
        compare_files(*sides, settings=elsewhere)


def test_a_dev_score_says_nothing_of_looks(days: Path, tmp_path: Path) -> None:
    settings = settings_for(days, tmp_path / "lake", pool_train=40, pool_dev=50, pool_sealed=10)
    done = evaluated(settings, tmp_path / "a", pool="dev")
    assert "sealed" not in done["text"] and not (tmp_path / "lake" / LEDGER).exists()
