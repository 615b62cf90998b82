"""A flow counts every pair once: in its parts, in its figure and in its table."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.curation.filter_stages import DAY_STAGE_TABLE, ROW_STAGE_TABLE
from trajectory_platform.reports.figure_svg import svg
from trajectory_platform.reports.flow import STAGE_WORDS, USE_WORDS, Flow, added, flow_of
from trajectory_platform.reports.flow_figures import ends_figure, flow_figure
from trajectory_platform.reports.flow_section import flow_section
from trajectory_platform.reports.page import Figures
from trajectory_platform_tests.reports.sample import HOSTILE

STAGES = [*(stage.name for stage in ROW_STAGE_TABLE), *(row[0] for row in DAY_STAGE_TABLE)]
REJECTED = st.lists(
    st.tuples(st.sampled_from([*STAGES, "new_stage"]), st.sampled_from(list("abcdefghij"))), max_size=80
)
USES = st.lists(st.lists(st.sampled_from(list(USE_WORDS)), max_size=3), max_size=60)


def flow(rejected: list[tuple[str, str]], uses: list[list[str]], moved: tuple[int, int] = (0, 0)) -> Flow:
    pairs = len(rejected) + len(uses)
    came = min(moved[0], pairs)
    return flow_of(pairs, rejected, uses, found=pairs - came + moved[1], moved_in=came, moved_out=moved[1])


def sides(figure: dict[str, Any]) -> tuple[dict[int, int], dict[int, int]]:
    """What comes into and goes out of every node."""
    link = figure["data"][0]["link"]
    came: dict[int, int] = defaultdict(int)
    went: dict[int, int] = defaultdict(int)
    for source, target, value in zip(link["source"], link["target"], link["value"], strict=True):
        came[target] += value
        went[source] += value
    return came, went


@given(REJECTED, USES, st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_nothing_is_lost_between_two_columns(
    rejected: list[tuple[str, str]], uses: list[list[str]], moved: tuple[int, int]
) -> None:
    whole = flow(rejected, uses, moved)
    assert whole.difference == 0 and whole.accepted + whole.lost == whole.pairs
    for figure in (flow_figure(whole), ends_figure(whole)):
        came, went = sides(figure)
        inner = set(came) & set(went)
        assert all(came[node] == went[node] for node in inner)
        ends = sum(came[node] for node in set(came) - inner)
        gone = whole.moved_out if figure == flow_figure(whole) and any(moved) else 0
        assert ends == whole.pairs + gone


@given(REJECTED, USES)
def test_nodes_stay_inside_and_do_not_lie_on_one_another(
    rejected: list[tuple[str, str]], uses: list[list[str]]
) -> None:
    figure = flow_figure(flow(rejected, uses))
    node, height = figure["data"][0]["node"], figure["layout"]["height"] - 24
    columns: dict[float, list[float]] = defaultdict(list)
    for x, y in zip(node["x"], node["y"], strict=True):
        assert 0 < x < 1 and 0 < y < 1
        columns[x].append(y)
    for places in columns.values():
        assert places == sorted(places)
        assert all((low - high) * height >= 12 for high, low in zip(places, places[1:], strict=False))


def test_the_order_is_that_of_the_filter_and_does_not_depend_on_the_rows() -> None:
    rows = [("axis", "axis_b"), ("ingest", "no_trace"), ("axis", "axis_mixed"), ("axis", "axis_b"), ("zz", "new")]
    uses = [["kto_desirable", "sft"], ["kto_undesirable"], ["sft", "kto_desirable"]]
    one, other = flow(rows, uses), flow(rows[::-1], [row[::-1] for row in uses[::-1]])
    assert one == other
    assert [row[0] for row in one.rejected] == ["ingest", "axis", "axis", "zz"]
    assert one.uses == ((("sft", "kto_desirable"), 2), (("kto_undesirable",), 1))


def test_every_stage_of_the_filter_has_words() -> None:
    assert set(STAGE_WORDS) == set(STAGES)


def test_days_add_up() -> None:
    first = flow([("axis", "axis_b")], [["sft"]], (1, 2))
    second = flow([("read", "too_deep"), ("axis", "axis_b")], [["sft"], ["sft"]])
    whole = added([first, second])
    assert (whole.pairs, whole.accepted, whole.moved_in, whole.moved_out) == (6, 3, 1, 2)
    assert whole.rejected == (("read", "too_deep", 1), ("axis", "axis_b", 2))
    assert whole.found == (first.found or 0) + (second.found or 0)


def test_rare_reasons_share_a_band_and_the_table_names_them() -> None:
    rare = [("read", f"reason_{number}") for number in range(9)]
    whole = flow([("axis", "axis_b")] * 6000 + rare, [["sft"]] * 4000)
    labels = flow_figure(whole)["data"][0]["node"]["label"]
    assert any(label.startswith("9 other reasons 9") for label in labels)
    assert "unreadable 9 (&lt;1%)" in labels
    drawn = Figures()
    html = flow_section(whole, drawn)
    assert all(f"reason_{number}" in html for number in range(9)) and "add up to the whole" in html


def test_a_flow_that_loses_pairs_says_so() -> None:
    assert "do not add up: +3 pairs" in flow_section(flow_of(5, [("axis", "axis_b")], [["sft"]]), Figures())


@pytest.mark.parametrize("draw", [flow_figure, ends_figure])
def test_hostile_reasons_are_text_in_both_renderers(draw: Any) -> None:
    figure = draw(flow([(HOSTILE, HOSTILE)], [[HOSTILE]], (1, 1)))
    assert "<script" not in str(figure)
    picture = svg(figure, title=HOSTILE)
    assert "<script" not in picture and picture.startswith("<svg")


def test_a_day_without_a_pair_is_words() -> None:
    drawn = Figures()
    assert "no pair was judged" in flow_section(flow([], []), drawn) and len(drawn) == 0


def test_lost_pairs_have_a_band_and_a_listing_that_contradicts_itself_draws_none() -> None:
    lost = flow_of(9, [("axis", "axis_b")] * 4, [["sft"]] * 2)
    for figure in (flow_figure(lost), ends_figure(lost)):
        assert "not accounted for 3 (33%)" in figure["data"][0]["node"]["label"]
        assert sides(figure)[1][0] == 9
        assert ">not accounted</text>" in svg(figure, title="t")  # the name takes two lines
    odd = flow_figure(flow_of(5, [("axis", "axis_b")] * 5, [], found=0, moved_in=9, moved_out=4))
    assert min(odd["data"][0]["link"]["value"]) > 0
    assert svg(odd, title="t")
