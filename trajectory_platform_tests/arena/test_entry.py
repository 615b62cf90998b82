"""One of our own policies takes part: by the common rollouts, marked with its checkpoint, readable like any miner."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.arena.knobs import EntryKnobs, Knobs
from trajectory_platform.arena.simulate import simulate
from trajectory_platform.errors import Abort
from trajectory_platform_tests.arena.conftest import read_rows

Row = dict[str, Any]
CHECKPOINT = "dr_grpo-2026-04-30-0123456789ab"


def entered(root: Path, *, policy: str = "script:search_and_check", era: date | None = None, workers: int = 1) -> None:
    entry = EntryKnobs(policy=policy, checkpoint_id=CHECKPOINT, pairs_per_day=24)
    simulate(root, seed=4, workers=workers, knobs=Knobs(days=2, traces_per_day=100, era=era, entries=(entry,)))


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("entered")
    entered(root)
    return root


def own_rows(root: Path) -> list[Row]:
    return [row for row in read_rows(root / "truth.jsonl") if row["kind"] == "own"]


def test_the_checkpoint_stands_in_the_row_of_its_version_and_nowhere_else(days: Path) -> None:
    versions = [row for day in ("2026-05-02", "2026-05-03") for row in read_rows(days / day / "agent_versions.jsonl")]
    own = [row for row in versions if row.get("policy_checkpoint_id")]
    assert {row["policy_checkpoint_id"] for row in own} == {CHECKPOINT}
    assert len({(row["agent_version_id"], row["submitted_at"]) for row in own}) == 1, "one version, run every day"
    assert {row["agent_version_id"] for row in own_rows(days)} == {own[0]["agent_version_id"]}
    assert all("policy_checkpoint_id" not in row for row in versions if row not in own)


def test_it_runs_the_asked_pairs_within_the_day_s_number(days: Path) -> None:
    for day in ("2026-05-02", "2026-05-03"):
        rows = [row for row in own_rows(days) if row["day"] == day and row["phase"] == "QUALIFYING"]
        assert len(rows) == 24
        pairs = [entry for row in read_rows(days / day / "problems.jsonl") for entry in row["validator_results"]]
        assert len(pairs) == 100


def test_ingestion_marks_its_traces_and_reads_them_as_axis_a(days: Path) -> None:
    from trajectory_platform.curation.agency import decide
    from trajectory_platform.sources.container import Limits, open_artifact
    from trajectory_platform.sources.files import FileSource
    from trajectory_platform.traces.inventory import inventory_folder
    from trajectory_platform.traces.normalise import read_record

    source = FileSource(str(days))
    table = inventory_folder(source, date(2026, 5, 2), Limits()).rows.to_pylist()
    own = [row for row in table if row["policy_checkpoint_id"]]
    assert {row["policy_checkpoint_id"] for row in own} == {CHECKPOINT} and len(own) >= 24
    ids = {f"{row['eval_run_id']}:{row['problem_id']}" for row in own_rows(days) if row["day"] == "2026-05-02"}
    assert {row["trace_id"] for row in own} == ids
    for row in own:
        record = open_artifact(source.read(row["artifact_uri"]), Limits()).records[0]
        trajectory = read_record(record, row)
        assert trajectory.malformed is None
        assert decide(trajectory.messages, trajectory.evidence).label == "A"


def test_a_script_enters_the_same_way_again_whatever_the_workers(days: Path, tmp_path: Path) -> None:
    entered(tmp_path, workers=2)
    for name in ("truth.jsonl", "2026-05-02/runs.jsonl", "2026-05-03/problems.jsonl"):
        assert (tmp_path / name).read_bytes() == (days / name).read_bytes()
    artifact = own_rows(days)[0]["artifact"]
    assert (tmp_path / artifact).read_bytes() == (days / artifact).read_bytes()


def test_its_log_has_the_form_of_the_era(tmp_path: Path) -> None:
    entered(tmp_path, era=date(2026, 4, 10))
    rows = own_rows(tmp_path)
    assert rows and {row["axis"] for row in rows} == {"unknown"} and {row["reasoning_score"] for row in rows} == {None}


def test_a_policy_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """Before anything is written: what a failed simulation left would be in the way of the next one."""
    (tmp_path / "mine").mkdir()
    for policy, said in {
        "script:nobody": "nobody",
        "checkpoint:gone": "no folder",
        "endpoint:http://127.0.0.1:9": "names its model",
        "vllm:ftp://host#m": "http",
    }.items():
        with pytest.raises(Abort, match=said):
            entered(tmp_path, policy=policy)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
