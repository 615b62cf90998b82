"""The report of a checkpoint in a real browser, light and dark, wide and narrow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.reports.checkpoint_page import build_checkpoint_page
from trajectory_platform_tests.reports.browsing import CHROMIUM, open_page, running_browser
from trajectory_platform_tests.reports.checkpoint_sample import NAME, sample_checkpoint
from trajectory_platform_tests.reports.sample import HOSTILE

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from running_browser()


@pytest.mark.parametrize(
    ("width", "scheme", "hostile"), [(1280, "light", ""), (390, "dark", HOSTILE)], ids=["wide", "narrow"]
)
def test_it_draws_asks_for_nothing_and_complains_about_nothing(
    browser: Any, tmp_path: Path, width: int, scheme: str, hostile: str
) -> None:
    target = tmp_path / "checkpoint.html"
    target.write_text(build_checkpoint_page(sample_checkpoint(hostile)), encoding="utf-8")
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(target.as_uri())
    ready = "[...document.querySelectorAll('[data-figure]')].every(e => e.querySelector('.main-svg'))"
    for _ in range(300):
        if page.evaluate(ready):
            break
        page.wait_for_timeout(100)
    assert page.evaluate(ready) and page.locator("[data-figure]").count() >= 10
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.title() == NAME
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.locator("article.trace").count() == 3 and page.locator("article.trace").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.title() == NAME and page.locator("main img").count() == 0


@pytest.mark.parametrize("width", [1280, 1440])
def test_the_stages_of_a_run_fit_the_page(browser: Any, tmp_path: Path, width: int) -> None:
    """With every column filled; where a window is narrower the table scrolls, and the names of the stages stay."""
    sample = sample_checkpoint()
    told = {
        "pass_at": {1: 0.25, 2: 0.35, 4: 0.45, 8: 0.5},
        "process": -0.31,
        "process_low": -0.42,
        "process_high": -0.1,
    }
    row = {**sample.stages[1], **told, "hallucinated": 0.1, "truncated": 0.2, "traces": 12_345, "thin": True}
    stages = [{**row, "stage": name} for name in ("base", "teacher_sft", "dr_grpo")]
    page_of = build_checkpoint_page(dataclasses.replace(sample, stages=stages))
    page, complaints = open_page(browser, tmp_path, page_of, width, "light")
    wide = "[...document.querySelectorAll('.stages .table')].map(one => one.scrollWidth - one.clientWidth)"
    assert page.evaluate(wide) == [0, 0] and complaints == []
    page.set_viewport_size({"width": 390, "height": 900})
    place = "document.querySelector('.stages td').getBoundingClientRect().left"
    before = page.evaluate(place)
    page.evaluate("document.querySelector('.stages .table').scrollLeft = 300")
    assert page.evaluate("document.querySelector('.stages .table').scrollLeft") == 300
    assert page.evaluate(place) == before
