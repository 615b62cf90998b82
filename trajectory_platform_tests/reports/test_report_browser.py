"""The report in a real browser: it draws, its policy holds, hostile text stays text, narrow screens do not scroll."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.reports.data import ReportData
from trajectory_platform.reports.html import build_report
from trajectory_platform_tests.reports.sample import HOSTILE, sample_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


def until(page: Any, condition: str) -> None:
    """Wait for a condition from outside: the page's policy forbids the evaluation Playwright's own wait injects."""
    for _ in range(300):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"not within 30 s: {condition}")


def opened(browser: Any, folder: Path, data: ReportData, width: int, scheme: str) -> tuple[Any, list[str]]:
    """The loaded page, and everything the browser complained about (errors, warnings, refused sources)."""
    target = folder / "report.html"
    target.write_text(build_report(data), encoding="utf-8")
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.add_init_script(
        "document.addEventListener('securitypolicyviolation', e => console.error('refused ' + e.violatedDirective));"
    )
    page.goto(target.as_uri())
    drawn = "[...document.querySelectorAll('[data-figure]')].every(e => e.querySelector('.main-svg'))"
    until(page, drawn)
    return page, complaints


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_figure_draws_without_a_complaint(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    page, complaints = opened(browser, tmp_path, sample_report(), width, scheme)
    assert complaints == []
    assert page.locator("[data-figure]").count() == 8
    assert page.evaluate("document.documentElement.scrollWidth") <= width


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
