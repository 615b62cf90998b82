"""Days of the miniature through the real chain: what the filter makes of each kind of miner."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.lake import tables
from trajectory_platform.miniature import miners
from trajectory_platform.miniature.days import OTHERS, SOLVED_SHARE, simulate_miniature
from trajectory_platform.miniature.plan import CONTROL, MiniaturePlan, recipe_of, settings_of, simulate, variant_of
from trajectory_platform.stages import splits
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.plain import ingest_days, run_one
from trajectory_platform.stages.training_rows import Feed, imitated

PLAN = MiniaturePlan(days=2, traces_per_day=200, seed=3)
AXIS_B = ("coded", "narrated", "classified")


class Chain:
    """Two days, ingested, filtered and split; read only."""

    def __init__(self, folder: Path) -> None:
        self.report = simulate(PLAN, folder)
        self.ctx = StageContext(settings_of(PLAN, folder, recipe="smoke"))
        self.day = PLAN.last_day.isoformat()
        facts = list(ingest_days(self.ctx.settings, None, None, None))
        for name, stage in (("c", splits.leak_clusters), ("s", splits.leak_guarded_splits)):
            facts.append(run_one(self.ctx, name, stage, self.day))
        assert [fact["text"] for fact in facts if fact["state"] != "published"] == []
        truth = map(json.loads, (folder / "days" / "truth.jsonl").read_text("utf-8").splitlines())
        self.truth: dict[str, Any] = {f"{row['eval_run_id']}:{row['problem_id']}": row for row in truth}

    def rows(self, table: tables.Table) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ctx.lake.read(table, self.ctx.lake.days(table)).to_pylist()
        return found


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    yield Chain(tmp_path_factory.mktemp("miniature"))


def test_every_trace_is_accounted_for(chain: Chain) -> None:
    ends = [row["trace_id"] for table in (tables.AXIS_A_CORPUS, tables.REJECTED_TRACES) for row in chain.rows(table)]
    assert sorted(ends) == sorted(chain.truth)
    assert chain.report.traces == PLAN.days * PLAN.traces_per_day == sum(chain.report.by_kind.values())
    assert set(chain.report.by_kind) == {"good", *OTHERS}


def test_axis_b_is_rejected_and_nothing_else_is_rejected_as_that(chain: Chain) -> None:
    refused = Counter(
        (row["reason"], chain.truth[row["trace_id"]]["kind"]) for row in chain.rows(tables.REJECTED_TRACES)
    )
    assert {kind for reason, kind in refused if reason == "axis_b"} == set(AXIS_B)
    assert all(refused["axis_b", kind] == chain.report.by_kind[kind] for kind in AXIS_B)


def test_what_is_imitated_are_successes_and_nearly_all_from_those_who_compare(chain: Chain) -> None:
    uses: dict[str, Counter[str]] = {}
    for row in chain.rows(tables.AXIS_A_CORPUS):
        told = chain.truth[row["trace_id"]]
        uses.setdefault(told["kind"], Counter()).update(row["uses"])
        assert "sft" not in row["uses"] or told["outcome"] == "success"
    imitated = {kind: counts["sft"] for kind, counts in uses.items()}
    assert imitated["good"] > 0.75 * chain.report.by_kind["good"]
    assert imitated["good"] + imitated["copycat"] + imitated["careless"] > 0.95 * sum(imitated.values())
    for kind in ("lazy", "mistyped", "unexplained", "broken"):
        assert imitated.get(kind, 0) == 0 and uses[kind]["kto_undesirable"] > 0


def test_most_problems_are_solved_once_by_a_good_miner_and_pools_are_filled(chain: Chain) -> None:
    good = Counter(row["problem_id"] for row in chain.truth.values() if row["kind"] == "good")
    assert len(good) == pytest.approx(SOLVED_SHARE * chain.report.problems, abs=2) and set(good.values()) == {1}
    pools = Counter(row["pool"] for row in chain.rows(tables.LEAK_GUARDED_SPLITS))
    assert pools["train"] > 3 * pools["dev"] > 0 < pools["sealed"]


def test_the_control_learns_from_all_that_can_be_read_and_leaks_nothing(chain: Chain) -> None:
    recipe = variant_of(recipe_of(PLAN, Path("base")), CONTROL, steps=9)
    assert recipe.names() == ("sft",) and recipe.stage("sft").amount.max_steps == 9
    rows = imitated(Feed(chain.ctx, chain.day, recipe, "sft"))
    kinds = Counter(chain.truth[row["trace_id"]]["kind"] for row in rows)
    assert {"good", *AXIS_B, "first_row", "lazy"} <= set(kinds)
    assert 0.45 < sum(kinds[kind] for kind in AXIS_B) / sum(kinds.values()) < 0.65
    pools = {row["cluster_id"]: row["pool"] for row in chain.rows(tables.LEAK_CLUSTERS)}
    assert {pools[row["cluster_id"]] for row in rows} == {"train"}


def _digests(root: Path) -> dict[str, str]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        simulate_miniature(tmp_path / name, days=1, traces_per_day=40, seed=seed)
    one, two, other = (_digests(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two != other


def test_without_written_comparisons_no_trace_has_one(tmp_path: Path) -> None:
    simulate_miniature(tmp_path, days=1, traces_per_day=200, seed=1, scan_share=0.0)
    truth = [json.loads(line) for line in (tmp_path / "truth.jsonl").read_text("utf-8").splitlines()]
    assert {row["style"] for row in truth} == {miners.PLAIN}


def test_what_is_there_is_not_replaced_unasked(tmp_path: Path) -> None:
    simulate_miniature(tmp_path, days=1, traces_per_day=30, seed=1)
    before = _digests(tmp_path)
    with pytest.raises(Abort, match="exists already"):
        simulate_miniature(tmp_path, days=1, traces_per_day=30, seed=2)
    assert _digests(tmp_path) == before
    simulate_miniature(tmp_path, days=1, traces_per_day=30, seed=2, overwrite=True)
    assert _digests(tmp_path) != before


@pytest.mark.parametrize("wrong", [{"days": 0}, {"traces_per_day": 5}, {"scan_share": 1.5}], ids=str)
def test_impossible_sizes_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(Abort):
        simulate_miniature(tmp_path, **{"days": 1, "traces_per_day": 30, "seed": 1, **wrong})
