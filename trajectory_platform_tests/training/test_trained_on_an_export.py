"""Data that left the platform and came back, loaded by ``datasets`` without a network, is trained on like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform import jsontext
from trajectory_platform.identity import sha256_hex
from trajectory_platform.release.exports import read_export
from trajectory_platform.release.training_rows import as_records
from trajectory_platform_tests.release.exported import export, row
from trajectory_platform_tests.release.test_round_trip import loaded
from trajectory_platform_tests.training import shopping
from trajectory_platform_tests.training.conftest import TINY


@pytest.mark.slow
def test_an_export_is_loaded_offline_trained_on_for_two_steps_and_imported_equal(window: Any, tmp_path: Path) -> None:
    from trajectory_platform.training.recipe import parse_recipe

    corpus = {one["trace_id"]: one for one in window.corpus.to_pylist()}
    sent = [_row(one, corpus[one["trace_id"]]) for one in window.splits.to_pylist() if one["pool"] != "sealed"]
    for form in ("hf", "openai"):
        export(tmp_path / form, sent, form)
        assert [one for _, one in read_export(tmp_path / form)] == sorted(sent, key=lambda one: one["pool"] == "dev")
    found = loaded(tmp_path / "hf", tmp_path / "cache")
    assert [*found["train"], *found["validation"]] == sorted(sent, key=lambda one: one["pool"] == "dev")

    recipe = parse_recipe(TINY.replace("epochs: 1, batch: 4", "max_steps: 2, batch: 4")).resolved(7)
    again = shopping.train_stage(window, recipe, tmp_path / "checkpoints", rows=as_records(found["train"]))
    assert again.status == "trained"
    fed = again.traces.to_pylist()
    assert {one["trace_id"] for one in fed} <= {one["trace_id"] for one in found["train"]} and fed
    assert {one["role"] for one in fed} == {"train"}
    report = json.loads((again.path / "rows_report.json").read_text("utf-8"))
    assert max(one["step"] for one in report["history"]) == 2
    straight = shopping.train_stage(window, recipe, tmp_path / "straight")
    assert again.manifest["files"]["model.safetensors"] == straight.manifest["files"]["model.safetensors"]


def _row(place: Any, texts: Any) -> dict[str, Any]:
    """The exported row of a trace of the window, with its own texts."""
    told = {name: texts[name] for name in ("messages", "tools")}
    facts = ("trace_id", "trace_day", "problem_key", "cluster_id", "pool", "quality", "category")
    digest = sha256_hex(jsontext.canonical(json.loads(texts["messages"])).encode())
    return row(**{name: place[name] for name in facts}) | told | {"content_hash": digest}
