"""Title vectors of suites on their way to the scorer, and into the identity of a judged day."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.settings import Settings
from trajectory_platform.sources.files import FileSource
from trajectory_platform.stages.title_vectors import title_inputs, title_vectors

DAYS = ("2026-05-01", "2026-05-02", "2026-05-03")


def suite(title: str, *numbers: float) -> dict[str, Any]:
    fields = {"query": "q", "reward_title_embeddings": {title: list(numbers)}}
    return {"suite": {"suite_id": 7}, "problems": [{"problem_id": "p", "metadata": fields}]}


@pytest.fixture
def source(tmp_path: Path) -> FileSource:
    """Two days with a suite, one without a folder."""
    for day, title in ((DAYS[0], "pot"), (DAYS[1], "kettle")):
        folder = tmp_path / "days" / day
        folder.mkdir(parents=True)
        (folder / "suite.json").write_text(json.dumps(suite(title, 1.0, 0.5)))
    return FileSource(str(tmp_path / "days"))


def settings(**changes: str) -> Settings:
    return Settings(**{"title_regime": "sn15", "title_encoder": "stored", **changes})


def test_the_days_and_the_given_files_are_read(source: FileSource, tmp_path: Path) -> None:
    whole, lines = tmp_path / "suite.json", tmp_path / "suite.jsonl"
    whole.write_text(json.dumps(suite("pan", 0.0, 1.0)))
    lines.write_text('{"reward_title_embeddings": {"cup": [1]}}\n{"cut\n{"reward_title_embeddings": {"lid": [2]}}\n')
    assert title_vectors(settings(), source, DAYS) == {"pot": [1.0, 0.5], "kettle": [1.0, 0.5]}
    found = title_vectors(settings(), source, DAYS[:1], [whole, lines])
    assert found == {"pot": [1.0, 0.5], "pan": [0.0, 1.0], "cup": [1], "lid": [2]}
    with pytest.raises(Abort, match="missing"):
        title_vectors(settings(), source, DAYS, [tmp_path / "missing.json"])


@pytest.mark.parametrize(
    "changes", [{"title_regime": "normalised"}, {"title_encoder": "none"}, {"title_encoder": "stored:x.json"}]
)
def test_nothing_is_read_where_no_score_wants_it(source: FileSource, changes: dict[str, str]) -> None:
    assert title_vectors(settings(**changes), source, DAYS) == {}


def test_what_the_encoder_reads_is_part_of_the_identity(source: FileSource, tmp_path: Path) -> None:
    path = tmp_path / "vectors.json"
    by_content = []
    for number in (0.5, 0.25, 0.5):
        path.write_text(json.dumps({"kettle": [1.0, number]}))
        by_content.append(title_inputs(settings(title_encoder=f"stored:{path}"), {}))
    assert by_content[0] == by_content[2] != by_content[1]
    published = title_inputs(settings(), title_vectors(settings(), source, DAYS))
    assert set(published) == {"title_vectors"} and published != by_content[0]
    assert title_inputs(settings(title_regime="normalised"), {}) == {}
    assert title_inputs(settings(title_encoder="none"), {}) == {}
    with pytest.raises(Abort, match="unknown title regime"):
        title_inputs(settings(title_regime="magic"), {})
