"""No name of a Sankey diagram lies on another or on a node, whatever the numbers, in both renderers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.curation.filter_stages import DAY_STAGE_TABLE, ROW_STAGE_TABLE
from trajectory_platform.reports.figure_svg import svg
from trajectory_platform.reports.figure_svg_text import lines, text_width
from trajectory_platform.reports.flow import Flow, flow_of
from trajectory_platform.reports.flow_figures import ends_figure, flow_figure
from trajectory_platform.reports.flow_section import flow_section
from trajectory_platform.reports.page import Figures, build_page
from trajectory_platform.reports.sankey_labels import SIZE, fitted, shared_room, spread
from trajectory_platform_tests.reports.browsing import CHROMIUM, open_page, running_browser
from trajectory_platform_tests.reports.sample import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"
REASONS = [(stage.name, reason) for stage in ROW_STAGE_TABLE for reason, _ in stage.reasons]
REASONS += [(name, reason) for name, _, _, reasons in DAY_STAGE_TABLE for reason, _ in reasons]
USES = [("sft", "kto_desirable"), ("kto_undesirable",), ("sft",), ("sft", "kto_desirable", "kto_undesirable"), ()]
COUNTS = st.one_of(st.integers(0, 9), st.integers(0, 5_000_000))
Box = tuple[float, float, float, float]  # left, top, right, bottom

browser = pytest.fixture(scope="module")(running_browser)


def flow(rejected: dict[tuple[str, str], int], uses: dict[tuple[str, ...], int], moved: int = 0) -> Flow:
    pairs = sum(rejected.values()) + sum(uses.values())
    came = min(moved, pairs)
    return flow_of(pairs, rejected, uses, found=pairs - came + moved, moved_in=came, moved_out=moved)


FLOWS = {
    "usual": flow({row: 4 + 97 * (place % 3) for place, row in enumerate(REASONS)}, {USES[0]: 622, USES[1]: 385}, 11),
    "all accepted": flow({}, {USES[0]: 5}),
    "all rejected once": flow(dict.fromkeys(REASONS, 1), {}, 1),
    "one large, all others rare": flow(dict.fromkeys(REASONS, 3), {USES[0]: 3_000_000}, 1),
    "everything moved": flow({REASONS[0]: 7}, {USES[1]: 2}, 9),
    "every set of uses": flow({REASONS[-1]: 1}, dict.fromkeys(USES, 1)),
    "words of others": flow({(HOSTILE, HOSTILE): 5, ("WWWWWW" * 9, "\u6587" * 40): 5}, {(HOSTILE,): 3}),
}


def meeting(boxes: Sequence[Box]) -> list[tuple[Box, Box]]:
    """Pairs that lie on one another; touching is allowed."""
    return [
        (one, other)
        for one, other in itertools.combinations(boxes, 2)
        if min(one[2], other[2]) - max(one[0], other[0]) > 0.2 and min(one[3], other[3]) - max(one[1], other[1]) > 0.2
    ]


def drawn(figure: dict[str, Any], width: int) -> tuple[list[Box], list[Box]]:
    """Boxes of the names and of the nodes of the static picture."""
    root = ElementTree.fromstring(svg(figure, width=width))
    names, nodes = [], []
    for one in root.iter(f"{SVG}text"):
        x, base = float(one.attrib["x"]), float(one.attrib["y"])
        assert "text-anchor" not in one.attrib and float(one.attrib["font-size"]) == SIZE
        top = base - 0.35 * SIZE - SIZE / 2
        names.append((x, top, x + text_width("".join(one.itertext()), SIZE), top + SIZE))
    for one in list(root.iter(f"{SVG}rect"))[1:]:  # the first is the ground
        x, y, wide, high = (float(one.attrib[key]) for key in ("x", "y", "width", "height"))
        nodes.append((x, y, x + wide, y + high))
    return names, nodes


def written(figure: dict[str, Any], width: float) -> tuple[list[Box], list[Box]]:
    """Boxes of the names and of the columns of nodes where plotly draws the figure ``width`` pixels wide."""
    high, wide = figure["layout"]["height"] - 24, width - 16
    [trace] = figure["data"]
    names = []
    for note in figure["layout"]["annotations"]:
        told = lines(note["text"])
        x, y = note["x"] * wide + note["xshift"], (1 - note["y"]) * high
        half = (15 * (len(told) - 1) + SIZE) / 2
        names.append((x, y - half, x + max(text_width(line, SIZE) for line in told), y + half))
    thick = trace["node"]["thickness"]
    return names, [(x * wide - thick / 2, -20, x * wide + thick / 2, high + 20) for x in set(trace["node"]["x"])]


def assert_readable(names: list[Box], nodes: list[Box], width: float) -> None:
    assert names and meeting(names) == []
    assert [(name, node) for name in names for node in nodes if meeting([name, node])] == []
    assert all(left >= 0 and right <= width for left, _, right, _ in names)


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("draw", [flow_figure, ends_figure])
def test_names_keep_apart(name: str, draw: Any) -> None:
    figure = draw(FLOWS[name])
    for width in (420, 760, 1100):
        assert_readable(*drawn(figure, width), width)
    room = figure["layout"]["meta"]["room"]
    for width in (room, room + 300):
        assert_readable(*written(figure, width), width)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(REASONS), COUNTS), st.dictionaries(st.sampled_from(USES), COUNTS), COUNTS)
def test_names_keep_apart_whatever_the_numbers(
    rejected: dict[tuple[str, str], int], uses: dict[tuple[str, ...], int], moved: int
) -> None:
    whole = flow(
        {row: count for row, count in rejected.items() if count},
        {row: count for row, count in uses.items() if count},
        moved,
    )
    for figure in (flow_figure(whole), ends_figure(whole)) if whole.pairs else ():
        assert_readable(*drawn(figure, 760), 760)
        assert_readable(*written(figure, figure["layout"]["meta"]["room"]), figure["layout"]["meta"]["room"])


def test_a_usual_day_is_drawn_whole_on_a_small_screen() -> None:
    """702 pixels are what a window of 800 leaves."""
    assert flow_figure(FLOWS["usual"])["layout"]["meta"]["room"] <= 702
    assert ends_figure(FLOWS["usual"])["layout"]["meta"]["room"] <= 334  # a phone of 390


def test_a_name_is_cut_and_its_number_is_not() -> None:
    assert fitted("a_very_long_reason 1,234 (12%)", 150) == "a_very_… 1,234 (12%)"
    assert fitted("short 4", 150) == "short 4"
    assert "12 (" not in fitted("reason 12", 20) and text_width(fitted("reason 12", 20), SIZE) <= 20
    label = flow_figure(flow({("axis", "x" * 90): 4}, {}))["data"][0]["node"]["label"][-1]
    assert label == "x" * 35 + "… 4"


def test_places_keep_their_distance_and_stay_inside() -> None:
    assert spread([5, 6, 7, 90], [10] * 4, 0, 100) == [5, 15, 25, 90]
    assert spread([95, 96, 97], [10] * 3, 0, 100) == [75, 85, 95]
    assert spread([], [], 0, 100) == []
    assert shared_room([10, 200, 100], 150) == [10, 70, 70]
    assert shared_room([10, 20], 150) == [10, 20]


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("name", ["usual", "all rejected once", "every set of uses", "words of others"])
def test_no_name_lies_on_another_in_a_browser(browser: Any, tmp_path: Path, name: str) -> None:
    figures = Figures()
    html = build_page(title="t", sections=[("flow", "f", flow_section(FLOWS[name], figures))], figures=figures)
    page, complaints = open_page(browser, tmp_path, html, 1300, "light")
    nodes = {}
    for width in (1300, 800, 640, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(900)
        told = page.evaluate(
            """() => [".annotation-text", ".node-rect"].map(what => [...document.querySelectorAll(what)].map(e => {
                const box = e.getBoundingClientRect();
                return [box.left, box.top + 1, box.right, box.bottom - 1];
            }))"""
        )
        boxes, nodes[width] = told
        assert len(boxes) == len(nodes[width]) and meeting(boxes) == []
        assert [name for name in boxes for node in nodes[width] if meeting([name, node])] == []
        assert max(box[2] for box in boxes) <= width
    small = len(ends_figure(FLOWS[name])["data"][0]["node"]["label"])
    assert len(nodes[390]) == small
    assert name == "words of others" or len(nodes[800]) == len(nodes[1300]) > small  # those words need more room
    assert complaints == []
