"""Pages in Debian's Chromium, for the tests that look at what a reader sees."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]


def running_browser() -> Iterator[Any]:
    """Body of a fixture: a started browser."""
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


def open_page(browser: Any, folder: Path, html: str, width: int, scheme: str) -> tuple[Any, list[str]]:
    """The loaded page with its figures drawn, and everything the browser complained about or asked the network for."""
    target = folder / "page.html"
    target.write_text(html, encoding="utf-8")
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: complaints.extend(_outside(request.url)))
    page.add_init_script(
        "document.addEventListener('securitypolicyviolation', e => console.error('refused ' + e.violatedDirective));"
    )
    page.goto(target.as_uri())
    until(page, "[...document.querySelectorAll('[data-figure]')].every(e => e.querySelector('.main-svg'))")
    return page, complaints


def _outside(url: str) -> list[str]:
    return [] if url.startswith(("file:", "data:", "blob:")) else [f"request: {url}"]
