"""Figures say what the numbers say, in a form plotly and an XML parser accept."""

from __future__ import annotations

import base64
import json
import xml.etree.ElementTree as ElementTree

import pytest

from trajectory_platform.reports import figures
from trajectory_platform.reports.data import total_funnel
from trajectory_platform_tests.reports.sample import HOSTILE, sample_report

SAMPLE = sample_report()
SVG = "{http://www.w3.org/2000/svg}"


def test_total_funnel_adds_the_days_up() -> None:
    total = dict(total_funnel(SAMPLE.funnels))
    assert total["raw pairs"] == 240 + 240 + 238
    assert total["use: sft"] == 61 + 70 + 58
    assert total_funnel({}) == []


def test_a_day_without_a_stage_leaves_its_cell_empty() -> None:
    spec = figures.funnel_by_day_figure(
        {"2026-03-02": [("raw pairs", 4), ("axis A", 1)], "2026-03-01": [("raw pairs", 0)]}
    )
    trace = spec["data"][0]
    assert trace["y"] == ["2026-03-01", "2026-03-02"]
    assert trace["text"] == [["0", ""], ["4", "1"]]
    assert trace["z"] == [[None, None], [1.0, 0.25]]


def test_axis_shares_of_a_day_add_up_to_one() -> None:
    traces = figures.axis_figure(SAMPLE.axis)["data"]
    assert [trace["name"] for trace in traces] == ["A", "mixed", "B", "unknown"]
    for day in range(3):
        assert sum(trace["x"][day] for trace in traces) == pytest.approx(1)


def test_an_empty_day_has_no_share() -> None:
    assert figures.axis_figure({"2026-03-01": {"A": 0}})["data"] == []


def test_reasons_are_ordered_by_count_whatever_the_input_order() -> None:
    forward = figures.reasons_figure(SAMPLE.reasons, top=3)
    backward = figures.reasons_figure(list(reversed(SAMPLE.reasons)), top=3)
    assert forward == backward
    assert forward["data"][0]["x"] == [161, 63, 41]


def test_score_intervals_are_lengths_around_the_point() -> None:
    row = {"category": "x", "n": 10, "tool": 0.5, "tool_low": 0.4, "tool_high": 0.7, "arguments": None}
    tool, arguments = figures.scores_figure([row])["data"]
    assert tool["error_x"]["array"] == [pytest.approx(0.2)]
    assert tool["error_x"]["arrayminus"] == [pytest.approx(0.1)]
    assert arguments["x"] == [None]


def test_no_label_of_a_figure_carries_markup() -> None:
    hostile = sample_report(HOSTILE)
    specs = [
        figures.axis_figure(hostile.axis),
        figures.reasons_figure(hostile.reasons),
        figures.scores_figure(hostile.scores),
        figures.funnel_figure([(HOSTILE, 3)]),
    ]
    for spec in specs:
        assert "<script" not in json.dumps(spec) and "<a " not in json.dumps(spec)


def test_bars_svg_is_wellformed_inert_and_proportional() -> None:
    root = ElementTree.fromstring(figures.bars_svg(HOSTILE, [("first", 200), (HOSTILE, 50), ("none", 0)]))
    assert {element.tag for element in root.iter()} <= {
        SVG + n for n in ("svg", "title", "style", "text", "tspan", "rect")
    }
    lengths = [float(bar.get("width", "")) for bar in root.iter(SVG + "rect") if bar.get("class") == "b"]
    assert lengths == [lengths[0], pytest.approx(lengths[0] / 4, abs=0.1), 0]


def test_bars_svg_of_nothing_is_still_a_picture() -> None:
    ElementTree.fromstring(figures.bars_svg("empty day", []))
    ElementTree.fromstring(figures.bars_svg("empty day", [("raw pairs", 0)]))


def test_funnel_markdown_holds_the_picture_and_the_table() -> None:
    text = figures.funnel_markdown("2026-03-26", [("raw pairs", 200), ("a|b<i>", 50)])
    picture, _, *table = text.splitlines()
    encoded = picture.partition("base64,")[2].rstrip(")")
    ElementTree.fromstring(base64.b64decode(encoded))
    assert table[-2:] == ["| raw pairs | 200 | 100.0% |", "| a\\|b&lt;i&gt; | 50 | 25.0% |"]


def test_marks_of_many_policies_stay_in_their_row_and_differ() -> None:
    tasks = [
        {"policy": policy, "category": category, "success": 0.5, "success_low": 0.4, "success_high": 0.6}
        for policy in ("base", "sft", "resft", "teacher_sft", "kto", "dr_grpo", "another")
        for category in ("all", "product")
    ]
    traces = figures.tasks_figure(tasks)["data"]
    assert all(abs(y - row) < 0.5 for trace in traces for row, y in enumerate(trace["y"]))
    assert len({(trace["marker"]["color"], trace["marker"]["symbol"]) for trace in traces}) == 7
