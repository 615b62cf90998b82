"""Static pictures of figures: every figure of the reports draws, text is text, and what is not known is refused."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from trajectory_platform.reports import checkpoint_figures, figures
from trajectory_platform.reports.calibration import calibration_figure
from trajectory_platform.reports.checkpoint_data import CheckpointData
from trajectory_platform.reports.checkpoint_page import build_checkpoint_page
from trajectory_platform.reports.data import ReportData, total_funnel
from trajectory_platform.reports.escape import figure_text
from trajectory_platform.reports.figure_svg import TYPES, svg
from trajectory_platform.reports.figure_svg_axes import make_axis
from trajectory_platform.reports.figure_svg_text import filled, number, shortened, text_width
from trajectory_platform.reports.html import build_report
from trajectory_platform_tests.reports.checkpoint_sample import sample_checkpoint
from trajectory_platform_tests.reports.sample import HOSTILE, sample_report

SVG = "{http://www.w3.org/2000/svg}"
HARMLESS = {"svg", "title", "style", "rect", "line", "text", "circle", "polygon", "polyline", "path", "g"}


def of_day(data: ReportData) -> dict[str, figures.Figure]:
    return {
        "funnel": figures.funnel_figure(total_funnel(data.funnels)),
        "funnel by day": figures.funnel_by_day_figure(data.funnels),
        "axis": figures.axis_figure(data.axis),
        "reasons": figures.reasons_figure(data.reasons),
        "cluster sizes": figures.cluster_sizes_figure(data.cluster_sizes),
        "scores": figures.scores_figure(data.scores),
        "tasks": figures.tasks_figure(data.tasks),
        "calibration": calibration_figure(data.calibration),
    }


def of_checkpoint(data: CheckpointData) -> dict[str, figures.Figure]:
    return {
        **{curve.name: figure for curve, figure in checkpoint_figures.curve_figures(data.history)},
        "passes": checkpoint_figures.pass_figure(data.passes),
        "stages": checkpoint_figures.stages_figure(data.stages),
        "categories": checkpoint_figures.categories_figure(data.categories, "kto"),
        "failures": checkpoint_figures.failures_figure(data.failures[0].counts),
        "fed": checkpoint_figures.fed_figure(data.chain),
    }


def everything(hostile: str = "") -> dict[str, figures.Figure]:
    return of_day(sample_report(hostile)) | of_checkpoint(sample_checkpoint(hostile))


SANKEY = {
    "type": "sankey",
    "node": {"label": ["pairs", "kept", "lost"], "color": "var(--a)"},
    "link": {"source": [0, 0], "target": [1, 2], "value": [3, 1], "color": ["var(--soft)", "var(--bsoft)"]},
}


def spec(*traces: dict[str, Any], **layout: Any) -> dict[str, Any]:
    return {"data": list(traces), "layout": figures.themed(200, **layout)}


def drawn(what: dict[str, Any], **more: Any) -> ElementTree.Element:
    return ElementTree.fromstring(svg(what, **more))


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]


def test_every_figure_of_the_reports_draws_the_same_each_time_and_holds_nothing_but_shapes() -> None:
    for hostile in ("", HOSTILE):
        for name, figure in everything(hostile).items():
            text = svg(figure, title=name + hostile)
            assert text == svg(json.loads(json.dumps(figure)), title=name + hostile)
            root = ElementTree.fromstring(text)
            assert {one.tag.removeprefix(SVG) for one in root.iter()} <= HARMLESS, name
            assert not any(key.startswith("on") or "href" in key for one in root.iter() for key in one.attrib)
            assert "url(" not in text and "\u202e" not in text and "\x1b" not in text


def test_every_figure_of_a_page_can_be_a_picture_too() -> None:
    """Whatever the pages draw, wide or narrow: a figure that cannot be a picture is noticed here."""
    pages = (build_report(sample_report(HOSTILE)), build_checkpoint_page(sample_checkpoint(HOSTILE)))
    blocks = [re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page) for page in pages]
    assert all(len(found) > 5 for found in blocks)
    for block in (block for found in blocks for block in found):
        figure = json.loads(block)
        for shown in (figure, figure.get("narrow", figure)):
            assert drawn(shown).tag == f"{SVG}svg"


def test_hostile_text_is_shown_as_text() -> None:
    label = figure_text("<script>x</script>\u202e&lt;", None)
    root = drawn(spec({"type": "bar", "x": [label], "y": [1], "name": label}), title='"><script>y</script>')
    assert "<script>x</script>\\u202e&lt;" in texts(root)
    assert root.attrib["aria-label"] == '"><script>y</script>'
    assert root.find(f"{SVG}script") is None


def test_all_types_of_traces_are_known() -> None:
    one: dict[str, dict[str, Any]] = {
        "bar": {"type": "bar", "x": ["a"], "y": [1]},
        "funnel": {"type": "funnel", "y": ["a", "b"], "x": [2, 1]},
        "heatmap": {"type": "heatmap", "x": ["a"], "y": ["b"], "z": [[1]], "colorscale": [[0, "#fff"], [1, "#000"]]},
        "sankey": SANKEY,
        "scatter": {"type": "scatter", "x": [1, 2], "y": [1, 2]},
    }
    assert sorted(one) == sorted(TYPES)
    for trace in one.values():
        assert drawn(spec(trace)).tag == f"{SVG}svg"


@pytest.mark.parametrize(
    ("trace", "layout", "named"),
    [
        ({"type": "pie", "values": [1]}, {}, "type 'pie'"),
        ({"type": "scatter", "x": [1], "y": [1], "stackgroup": "a"}, {}, "stackgroup"),
        ({"type": "scatter", "x": [1], "y": [1], "fill": "tonext"}, {}, "fill 'tonext'"),
        ({"type": "scatter", "mode": "markers", "x": [1], "y": [1], "marker": {"symbol": "hexagram"}}, {}, "hexagram"),
        ({"type": "scatter", "x": [1], "y": [1], "line": {"color": "var(--nothing)"}}, {}, "--nothing"),
        ({"type": "scatter", "x": [1], "y": [1], "line": {"color": "url(#x)"}}, {}, "url"),
        ({"type": "scatter", "x": [1, 2], "y": [1, 2]}, {"yaxis": {"tickformat": "$.2r"}}, "format"),
        ({"type": "scatter", "x": [1], "y": [1]}, {"xaxis": {"type": "multicategory"}}, "multicategory"),
        ({"type": "bar", "x": ["a"], "y": [1]}, {"barmode": "waterfall"}, "waterfall"),
        ({"type": "bar", "x": ["a"], "y": [1], "texttemplate": "%{secret}"}, {}, "secret"),
        ({"type": "scatter", "x": [1], "y": [1]}, {"shapes": [{"type": "path"}]}, "path"),
        ({**SANKEY, "link": {"source": [0], "target": [7], "value": [1]}}, {}, "7"),
        ({**SANKEY, "link": {"source": [0, 1], "target": [1, 0], "value": [1, 1]}}, {}, "lead back"),
    ],
    ids=["type", "stackgroup", "fill", "symbol", "variable", "url", "format", "axis", "barmode", "template", "shape",
         "sankey-node", "sankey-circle"],
)  # fmt: skip
def test_what_cannot_be_drawn_is_named(trace: dict[str, Any], layout: dict[str, Any], named: str) -> None:
    with pytest.raises((ValueError, KeyError), match=named):
        svg(spec(trace, **layout))


def test_both_schemes_are_in_the_picture_and_it_paints_its_own_ground() -> None:
    text = svg(spec({"type": "bar", "x": ["a"], "y": [1], "marker": {"color": "var(--b)"}}))
    light, _, dark = text.partition("@media(prefers-color-scheme:dark)")
    assert ".f-b{fill:#b9533a}" in light and ".f-b{fill:#e08a70}" in dark and ".f-card{" in dark
    first = next(ElementTree.fromstring(text).iter(f"{SVG}rect"))
    assert first.attrib["class"] == "f-card" and first.attrib["width"] == "760"


def test_bars_are_as_long_as_their_values() -> None:
    root = drawn(spec({"type": "bar", "orientation": "h", "y": ["a", "b"], "x": [10, 5]}, xaxis={"range": [0, 10]}))
    [long, short] = [float(one.attrib["width"]) for one in root.iter(f"{SVG}rect")][1:]
    assert short == pytest.approx(long / 2, abs=0.2)


def test_stacked_bars_follow_one_another() -> None:
    parts = [{"type": "bar", "x": ["d"], "y": [value]} for value in (1, 3)]
    root = drawn(spec(*parts, barmode="stack"))
    [low, high] = [(float(one.attrib["y"]), float(one.attrib["height"])) for one in root.iter(f"{SVG}rect")][1:]
    assert low[0] == pytest.approx(high[0] + high[1], abs=0.2) and high[1] == pytest.approx(3 * low[1], abs=0.4)


def test_a_band_lies_between_its_two_lines_and_error_bars_reach_their_ends() -> None:
    lower = {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [0, 0], "line": {"width": 0}}
    upper = {**lower, "y": [1, 1], "fill": "tonexty", "fillcolor": "var(--asoft)"}
    root = drawn(spec(lower, upper, yaxis={"range": [0, 1]}))
    [band] = list(root.iter(f"{SVG}polygon"))
    ys = {float(spot.split(",")[1]) for spot in band.attrib["points"].split()}
    assert len(ys) == 2 and max(ys) - min(ys) > 100
    error = {"type": "data", "array": [0.25], "arrayminus": [0.5]}
    point = {"type": "scatter", "mode": "markers", "x": [0.5], "y": [0], "error_x": error}
    lines = [
        one
        for one in drawn(spec(point, xaxis={"range": [0, 1]})).iter(f"{SVG}line")
        if one.attrib["stroke-width"] == "1.5"
    ]
    whole = next(one for one in lines if one.attrib["y1"] == one.attrib["y2"])
    circle = float(next(drawn(spec(point, xaxis={"range": [0, 1]})).iter(f"{SVG}circle")).attrib["cx"])
    left, right = circle - float(whole.attrib["x1"]), float(whole.attrib["x2"]) - circle
    assert left == pytest.approx(2 * right, abs=0.3)


def test_a_missing_value_is_a_gap_and_no_zero() -> None:
    root = drawn(spec({"type": "scatter", "mode": "lines", "x": [1, 2, 3, 4, 5], "y": [1, 2, None, 3, 4]}))
    assert [len(one.attrib["points"].split()) for one in root.iter(f"{SVG}polyline")] == [2, 2]


def test_the_first_step_of_a_funnel_is_on_top_and_a_reversed_axis_runs_down() -> None:
    root = drawn(spec({"type": "funnel", "y": ["first", "last"], "x": [9, 1]}, yaxis={"type": "category"}))
    ys = {"".join(one.itertext()): float(one.attrib["y"]) for one in root.iter(f"{SVG}text")}
    assert ys["first"] < ys["last"]


def test_an_empty_figure_is_a_picture_without_marks() -> None:
    assert texts(drawn({"data": [], "layout": {"height": 120}}, title="nothing yet")) == ["nothing yet"]


def test_days_are_read_as_days() -> None:
    axis = make_axis("x", {}, ["2026-03-28", "2026-03-30"], pad=False, zero=False)
    assert axis.kind == "date" and axis.high - axis.low == 2
    assert [label for _, label in axis.ticks(900)] == ["2026-03-28", "2026-03-29", "2026-03-30"]


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (0.123, ".0%", "12%"), (0.5, ".1%", "50.0%"), (12345.0, ",", "12,345"), (1234.5, "", "1,234.5"),
        (2, ".2f", "2.00"), (1500000, "~s", "1.5M"), (0.00001, ".1e", "1.0e-05"), (0.25, "+.2f", "+0.25"),
        (3.0, "d", "3"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_plotly_does(value: float, form: str, shown: str) -> None:
    assert number(value, form) == shown


def test_templates_and_lengths() -> None:
    assert filled("%{value:,}  (%{share:.0%})", {"value": 1200, "share": 0.5}) == "1,200  (50%)"
    assert shortened("abcdefghij", 40) != "abcdefghij" and shortened("ab", 400) == "ab"
    assert text_width(shortened("一二三四五六七八", 60)) <= 60
