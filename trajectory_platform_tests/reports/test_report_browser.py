"""The report in a real browser: it draws, its policy holds, hostile text stays text, narrow screens do not scroll."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.reports.data import ReportData
from trajectory_platform.reports.html import build_report
from trajectory_platform_tests.reports.browsing import CHROMIUM, open_page, running_browser, until
from trajectory_platform_tests.reports.sample import HOSTILE, sample_report

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]
browser = pytest.fixture(scope="module")(running_browser)


def opened(browser: Any, folder: Path, data: ReportData, width: int, scheme: str) -> tuple[Any, list[str]]:
    """The loaded page, and everything the browser complained about (errors, warnings, refused sources)."""
    return open_page(browser, folder, build_report(data), width, scheme)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_figure_draws_without_a_complaint(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    page, complaints = opened(browser, tmp_path, sample_report(), width, scheme)
    assert complaints == []
    assert page.locator("[data-figure]").count() == 11
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [800, 1300])
def test_the_words_on_an_era_are_in_sight(browser: Any, tmp_path: Path, width: int) -> None:
    page, _ = opened(browser, tmp_path, sample_report(), width, "light")
    told = page.evaluate(
        """() => [...document.querySelectorAll(".eras tbody tr")].map(row => ({
            high: row.offsetHeight,
            out: row.lastChild.getBoundingClientRect().right
                - document.querySelector(".eras .table").getBoundingClientRect().right,
        }))"""
    )
    assert len(told) >= 7
    assert max(row["out"] for row in told) <= 1 and max(row["high"] for row in told) < 200


def test_hostile_text_runs_nothing(browser: Any, tmp_path: Path) -> None:
    page, complaints = opened(browser, tmp_path, sample_report(HOSTILE), 1280, "light")
    assert complaints == []
    assert page.title().startswith("Three simulated days<script>")
    assert page.locator("img, a[href^='javascript'], svg a").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_script_that_was_not_hashed_is_refused(browser: Any, tmp_path: Path) -> None:
    page, complaints = opened(browser, tmp_path, sample_report(), 1280, "light")
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = \"document.title = 'owned'\";"
        " document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; }"
    )
    page.wait_for_timeout(300)
    assert page.title() == "Three simulated days"
    assert any("script-src" in complaint for complaint in complaints)
    assert any("img-src" in complaint for complaint in complaints)


def test_colours_follow_the_scheme(browser: Any, tmp_path: Path) -> None:
    page, _ = opened(browser, tmp_path, sample_report(), 1280, "light")
    bar = "getComputedStyle(document.querySelector('.funnellayer path, .funnellayer .point path')).fill"
    light = page.evaluate(bar)
    page.emulate_media(color_scheme="dark")
    until(page, f"{bar} !== {light!r}")


def test_paper_gets_every_number_and_every_band_in_light_colours(browser: Any, tmp_path: Path) -> None:
    """Printed from a dark screen: folds open, figures drawn anew as wide as the paper; then all is as before."""
    page, complaints = opened(browser, tmp_path, sample_report(), 1280, "dark")
    page.evaluate(
        """addEventListener("beforeprint", () => { window.told = {
            closed: document.querySelectorAll("details:not([open])").length,
            ink: getComputedStyle(document.querySelector(".figure .xtick text, .figure .ytick text")).fill,
            wide: Math.max(...[...document.querySelectorAll(".main-svg")].map(e => e.getBoundingClientRect().width)),
            bands: [...document.querySelectorAll(".sankey-link")].filter(e => e.style.opacity === "1").length,
        }; })"""
    )
    dark = page.evaluate("getComputedStyle(document.querySelector('.figure .xtick text, .figure .ytick text')).fill")
    page.pdf()
    told = page.evaluate("window.told")
    assert told["closed"] == 0 and told["wide"] <= 700
    assert told["ink"] == "rgb(28, 36, 48)" != dark
    assert told["bands"] > 0
    until(page, "!document.documentElement.classList.contains('printing')")
    assert page.locator("details[open]").count() == 0
    ink = page.evaluate("getComputedStyle(document.querySelector('.figure .xtick text, .figure .ytick text')).fill")
    assert ink == dark and complaints == []
