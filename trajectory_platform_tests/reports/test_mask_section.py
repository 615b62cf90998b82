"""The loss-mask picture: trained and other tokens are told apart, text stays text, long rows scroll in their box."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.reports.data import ReportData
from trajectory_platform.reports.html import build_report
from trajectory_platform.reports.mask_section import mask_section
from trajectory_platform_tests.reports.masks import mask
from trajectory_platform_tests.reports.sample import HOSTILE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def test_trained_tokens_are_marked_and_counted() -> None:
    html = mask_section([mask()])
    assert "4 trained (0%)" in html and "1,209 tokens" in html and "1,200 tokens not shown" in html
    assert html.count('<div class="stretch on">') == 1 and "turn 1, assistant: 4 tokens, trained" in html
    trained = re.search(r'<div class="toks on">(.*?)</div>', html, re.DOTALL)
    assert trained is not None and trained[1].count("<i>") == 4


def test_a_preference_row_shows_its_label_and_its_fault() -> None:
    html = mask_section([mask(label=False)])
    assert "undesirable" in html and "wrong_end" in html and "taught not to write" in html
    good = mask_section([mask(label=True)])
    assert 'class="ok">desirable' in good and "taught not to write" not in good


def test_without_a_picture_it_says_so() -> None:
    assert "Nothing to show" in mask_section([])
    assert "0 tokens" in mask_section([{"version": 1}])


def test_hostile_text_stays_text() -> None:
    html = mask_section([mask(HOSTILE, label=False), mask(HOSTILE)])
    assert "<script" not in html and "<img" not in html and "javascript:document" in html
    tags = set(re.findall(r"</?([a-z0-9]+)", html))
    assert tags <= {"p", "h3", "div", "span", "i", "b", "details", "summary"}
    assert "\u202e" not in html and "\x1b" not in html and "\x00" not in html


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_long_row_scrolls_inside_its_box(tmp_path: Path, width: int, scheme: Any) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    target = tmp_path / "report.html"
    data = ReportData(title="t", loss_masks=[mask(HOSTILE, label=False, long=300)])
    target.write_text(build_report(data), encoding="utf-8")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
        page.goto(target.as_uri())
        assert page.title() == "t"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        box = "document.querySelector('.mask')"
        assert page.evaluate(f"{box}.scrollHeight") > page.evaluate(f"{box}.clientHeight") <= 462
        assert page.evaluate(f"{box}.scrollWidth - {box}.clientWidth") <= 1
        style = "getComputedStyle(document.querySelector('.toks.on i'))"
        assert page.evaluate(f"{style}.backgroundColor") != "rgba(0, 0, 0, 0)"
        assert page.evaluate(f"{style}.textDecorationLine") == "none"  # an underline lies on the underscores
        line, away = (page.evaluate(f"parseFloat({style}.{what})") for what in ("borderBottomWidth", "paddingBottom"))
        assert line >= 1 and away >= 2
        browser.close()
