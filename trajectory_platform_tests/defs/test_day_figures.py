"""The figures of a curated day stand in the metadata of its assets, small, and never stop a published day."""

from __future__ import annotations

import base64
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from trajectory_platform.defs import day_figures
from trajectory_platform.defs.day_runs import MAX_METADATA_BYTES, event_metadata
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import StageContext, StageResult
from trajectory_platform_tests.stages import built_lake
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, settings_for

DAY = DAYS[1]


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> StageContext:
    root = tmp_path_factory.mktemp("figures")
    settings = settings_for(make_days(root / "days", days=2, traces=60), root / "lake")
    ingest(settings, DAYS[:2])
    return StageContext(settings)


def result(ctx: StageContext, *, day: str = DAY, table: str = "axis_a_corpus") -> StageResult:
    manifest = ctx.lake.manifest(table, day)
    assert manifest is not None
    both = {name: ctx.lake.manifest(name, day) for name in (table, "rejected_traces")}
    return StageResult(table, day, False, {k: v for k, v in both.items() if v}, dict(manifest.summary))


def pictures(metadata: dict[str, Any]) -> dict[str, ElementTree.Element]:
    """The pictures in the Markdown of some metadata."""
    found = {}
    for name, value in metadata.items():
        if isinstance(value, dg.MarkdownMetadataValue):
            encoded = (value.value or "").partition("base64,")[2].partition(")")[0]
            found[name] = ElementTree.fromstring(base64.b64decode(encoded))
    return found


@pytest.mark.parametrize(
    ("table", "names"),
    [("axis_a_corpus", {"funnel", "strategies by rank"}), ("rejected_traces", {"flow", "axis"})],
)
def test_each_asset_of_a_curated_day_has_its_figures(ctx: StageContext, table: str, names: set[str]) -> None:
    metadata = event_metadata(ctx, result(ctx), table)
    assert set(pictures(metadata)) == names and "cut" not in metadata
    size = sum(len(name) + len(json.dumps(getattr(value, "value", value))) for name, value in metadata.items())
    assert size <= MAX_METADATA_BYTES
    for picture in pictures(metadata).values():
        assert not [element for element in picture.iter() if element.tag.endswith(("script", "image", "a"))]


def test_the_flow_has_its_numbers_in_words(ctx: StageContext) -> None:
    told = result(ctx)
    metadata = event_metadata(ctx, told, "rejected_traces")
    summary = told.summary
    words = f"{summary['accepted']} accepted + {summary['rejected']} rejected = {summary['input']} pairs"
    assert words in metadata["flow"].value


def test_other_tables_have_none(ctx: StageContext) -> None:
    assert pictures(event_metadata(ctx, result(ctx, table="judged_traces"), "judged_traces")) == {}


def test_a_figure_that_fails_is_named_and_stops_nothing(ctx: StageContext, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> dict[str, Any]:
        raise ValueError("no such colour")

    monkeypatch.setattr(day_figures, "_beside_corpus", broken)
    metadata = event_metadata(ctx, result(ctx), "axis_a_corpus")
    assert metadata["figures"].value == "not drawn: ValueError: no such colour"
    assert metadata["dagster/row_count"] > 0 and "by_stage" in metadata


def test_a_day_without_a_pair_has_no_empty_picture(tmp_path: Path) -> None:
    here = built_lake.context(tmp_path)
    summary = {"input": 0, "accepted": 0, "rejected": 0, "by_stage": {}, "by_axis": {}, "by_use": {}}
    for table in (tables.REJECTED_TRACES, tables.AXIS_A_CORPUS):
        built_lake.publish(here, table, DAY, [], summary=summary)
    for name in ("axis_a_corpus", "rejected_traces"):
        metadata = event_metadata(here, result(here), name)
        assert set(pictures(metadata)) <= {"funnel"} and "figures" not in metadata
