"""Pages of traces in a real browser: nothing is requested, nothing runs, and they can be used by keyboard and on a
phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.reports.trace_compare import trace_page
from trajectory_platform_tests.reports.browsing import CHROMIUM, running_browser
from trajectory_platform_tests.reports.trace_samples import GOOD, HOSTILE, find, view

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from running_browser()


def opened(browser: Any, folder: Path, page_text: str, width: int, scheme: str) -> tuple[Any, list[str]]:
    """The loaded page, and everything it asked for or the browser complained about."""
    target = folder / "trace.html"
    target.write_text(page_text, encoding="utf-8")
    page = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.on("request", lambda one: complaints.append(f"request: {one.url}") if one.url != target.as_uri() else None)
    page.goto(target.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    return page, [one for one in complaints if one != "request: data:,"]


def three() -> str:
    return trace_page([view(*GOOD), view([find("b")], *GOOD[1:], name="r2:p1"), view(GOOD[0], name="r3:p1")])


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("several", [False, True], ids=["one", "three"])
def test_nothing_is_requested_and_nothing_overflows(
    browser: Any, tmp_path: Path, width: int, scheme: str, several: bool
) -> None:
    text = three() if several else trace_page([view(*GOOD)])
    page, complaints = opened(browser, tmp_path, text, width, scheme)
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_text_runs_nothing_and_stays_inside(browser: Any, tmp_path: Path, width: int) -> None:
    hostile = trace_page([view(*GOOD, said=HOSTILE + "W" * 400), view(*GOOD, name="r2:p1", said=HOSTILE)])
    page, complaints = opened(browser, tmp_path, hostile, width, "light")
    assert complaints == []
    assert "owned" not in page.title()
    assert page.locator("img, script, iframe, a[href^='javascript']").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h1").is_visible()  # no style of theirs hides ours


def seen(page: Any) -> list[int]:
    """How many cells of each trace are visible."""
    return [sum(cell.is_visible() for cell in page.locator(f".grid > .c{place}").all()) for place in range(3)]


@pytest.mark.parametrize("width", [1280, 390])
def test_one_of_several_is_chosen_with_the_keyboard(browser: Any, tmp_path: Path, width: int) -> None:
    page, _ = opened(browser, tmp_path, three(), width, "light")
    whole = seen(page)
    assert whole[0] == whole[1] == whole[2] > 3
    page.locator("#pick-all").focus()
    page.keyboard.press("ArrowDown")
    assert seen(page) == [whole[0], 0, 0]
    page.keyboard.press("ArrowDown")
    assert seen(page) == [0, whole[1], 0]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert seen(page) == whole


def test_on_a_wide_screen_turns_stand_beside_one_another_on_a_phone_below(browser: Any, tmp_path: Path) -> None:
    for width, beside in ((1280, True), (390, False)):
        page, _ = opened(browser, tmp_path, three(), width, "light")
        first, second = (page.locator(f".grid > .c{place}").nth(1).bounding_box() for place in (0, 1))
        assert (abs(first["y"] - second["y"]) < 1) is beside
        assert (second["y"] >= first["y"] + first["height"] - 1) is not beside


def test_long_answers_open_with_the_keyboard(browser: Any, tmp_path: Path) -> None:
    page, _ = opened(browser, tmp_path, trace_page([view([("find_product", {}, "word " * 500)])]), 1280, "light")
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = false; })")
    long = page.locator("details.long").first
    assert not long.locator("pre").is_visible()
    long.locator("summary").focus()
    page.keyboard.press("Enter")
    assert long.locator("pre").is_visible()
