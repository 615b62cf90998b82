"""The page of a day: inert, complete, every figure with its numbers in text, and words where nothing is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.reports.day_data import DayReport
from trajectory_platform.reports.day_page import build_day_page
from trajectory_platform.reports.figure_svg import svg
from trajectory_platform.reports.trace_links import TraceLinks, trace_file
from trajectory_platform_tests.reports.browsing import CHROMIUM, open_page, running_browser, until
from trajectory_platform_tests.reports.day_sample import DAY, sample_day
from trajectory_platform_tests.reports.sample import HOSTILE
from trajectory_platform_tests.reports.test_html import Page

SECTIONS = 9
FIGURES = 9
in_browser = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]
browser = pytest.fixture(scope="module")(running_browser)


@pytest.fixture(scope="module")
def plain() -> Page:
    return Page(build_day_page(sample_day()))


@pytest.fixture(scope="module")
def hostile() -> Page:
    return Page(build_day_page(sample_day(HOSTILE)))


def blocks(page: Page) -> list[dict[str, Any]]:
    return [json.loads(body) for kind, body in page.scripts if kind == "application/json"]


def test_same_data_same_bytes() -> None:
    assert build_day_page(sample_day()) == build_day_page(sample_day())


def test_hostile_text_adds_nothing_that_runs(plain: Page, hostile: Page) -> None:
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in plain.tags}
    assert sum(tag == "script" for tag, _ in hostile.tags) == sum(tag == "script" for tag, _ in plain.tags)
    assert hostile.policy() == plain.policy()
    for _, attributes in hostile.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith(("#", "data:"))
    assert "<script>document.title='owned'</script>" in hostile.text and "\x1b" not in hostile.text


@pytest.mark.parametrize(
    "words",
    [
        f"Subnet day {DAY}",
        "the cache is cold",
        "154 rows, complete",
        "The parts add up to the whole.",
        "SFT + KTO desirable",
        "70.2% (51.0% to 84.0%) of 131 readable traces of 33 agent versions",
        "code made the calls",
        "run-1:p-1",
        "4 traces of sealed problems are counted and never shown.",
        "off_grid 10",
        "70.0% (60.0% to 80.0%)*",
        "* all clusters agree",
        "92 accepted traces use 14 strategies",
        "112 traces of 14 strategies; after them 92 of 14",
        "88 clusters as of 2026-05-02, 12 with several problems; 30 are new that day and 2 have grown.",
        "these are those of 2026-05-03 without later problems",
        "2 changed clusters of the sealed pool are counted, not shown.",
        "2 miners, most pairs first",
        "240 paid replies, 0.84 USD",
        "1 replies came without token counts",
        "488.1 kB",
    ],
)
def test_what_the_figures_show_stands_in_words_too(plain: Page, words: str) -> None:
    assert words in plain.text


def test_only_written_pages_of_traces_are_links(plain: Page, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    for name in ("run-1:p-1", "r:p"):
        (tmp_path / "traces" / trace_file(name)).touch()
    found = Page(build_day_page(sample_day(), TraceLinks(tmp_path)))
    assert outward(plain) == []
    assert outward(found) == ["traces/run-1.p-1.html", "traces/r.p.html"]


def outward(page: Page) -> list[str]:
    links = [attributes["href"] or "" for tag, attributes in page.tags if tag == "a"]
    return [link for link in links if not link.startswith("#")]


def test_every_figure_can_be_a_static_picture(hostile: Page) -> None:
    found = blocks(hostile)
    assert len(found) == FIGURES
    for spec in found:
        for figure in (spec, spec.get("narrow", spec)):
            assert "<script" not in svg(figure, title="t")


def test_an_empty_day_says_why_each_part_is_empty_and_runs_nothing() -> None:
    page = Page(build_day_page(DayReport(DAY)))
    assert page.text.count("Nothing to show: ") == SECTIONS
    assert page.scripts == [] and "script-src 'none'" in page.policy()


def test_a_day_that_does_not_add_up_is_named() -> None:
    broken = replace(sample_day(), counted={**sample_day().counted, "rejected": 61})
    assert "no: +1" in Page(build_day_page(broken)).text


@pytest.mark.parametrize(
    ("width", "scheme"), [pytest.param(1280, "light", marks=in_browser), pytest.param(390, "dark", marks=in_browser)]
)
def test_every_figure_draws_and_the_page_fits(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    page, complaints = open_page(browser, tmp_path, build_day_page(sample_day(HOSTILE)), width, scheme)
    assert complaints == []
    assert page.locator("[data-figure]").count() == FIGURES
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    columns = page.evaluate(
        "new Set([...document.querySelectorAll('.sankey-node')].map(e => e.transform.baseVal[0].matrix.e)).size"
    )
    assert columns == (4 if width > 600 else 2)
    assert page.title() == f"Subnet day {DAY}"


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_window_that_becomes_narrow_gets_the_small_flow(browser: Any, tmp_path: Path) -> None:
    page, complaints = open_page(browser, tmp_path, build_day_page(sample_day()), 1000, "light")
    nodes = "document.querySelectorAll('.sankey-node').length"
    wide = page.evaluate(nodes)
    page.set_viewport_size({"width": 400, "height": 800})
    until(page, f"{nodes} < {wide}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert complaints == []


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_page_without_a_figure_opens_without_a_script(browser: Any, tmp_path: Path) -> None:
    page, complaints = open_page(browser, tmp_path, build_day_page(DayReport(DAY)), 1280, "light")
    assert complaints == [] and page.locator("script").count() == 0
