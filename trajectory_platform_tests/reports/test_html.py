"""The report is one inert, complete file: what it admits, what it refuses, and that numbers reach the reader."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from trajectory_platform.reports.data import ReportData
from trajectory_platform.reports.html import build_report
from trajectory_platform_tests.reports.sample import HOSTILE, sample_report

VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Collects what matters: tags with attributes, text outside scripts, scripts by type, unbalanced tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts.append((self.tags[-1][1].get("type"), data))
        elif self._open and self._open[-1] != "style":
            self.text += data

    def policy(self) -> str:
        return next(a["content"] or "" for t, a in self.tags if a.get("http-equiv") == "Content-Security-Policy")


@pytest.fixture(scope="module")
def plain() -> Page:
    return Page(build_report(sample_report()))


@pytest.fixture(scope="module")
def hostile() -> Page:
    return Page(build_report(sample_report(HOSTILE)))


def test_same_data_same_bytes() -> None:
    assert build_report(sample_report()) == build_report(sample_report())


def test_the_policy_admits_exactly_the_two_scripts_of_the_page(plain: Page) -> None:
    running = [body for kind, body in plain.scripts if kind is None]
    hashes = {"'sha256-" + base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() + "'" for body in running}
    parts = dict(part.strip().split(" ", 1) for part in plain.policy().split(";"))
    assert len(running) == 2
    assert set(parts["script-src"].split()) == hashes
    assert parts["default-src"] == parts["base-uri"] == parts["form-action"] == "'none'"


def test_nothing_is_loaded_from_elsewhere(plain: Page) -> None:
    for tag, attributes in plain.tags:
        for name in ("src", "href", "action", "data", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, name)


def test_hostile_text_adds_no_element_and_no_handler(plain: Page, hostile: Page) -> None:
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in plain.tags}
    assert sum(tag == "script" for tag, _ in hostile.tags) == sum(tag == "script" for tag, _ in plain.tags)
    assert not [name for _, attributes in hostile.tags for name in attributes if name.startswith("on")]
    assert hostile.policy() == plain.policy()


def test_hostile_text_is_shown_with_its_control_characters(hostile: Page) -> None:
    assert "<script>document.title='owned'</script>" in hostile.text
    assert "\\u202egnp.exe\\x1b[31m\\x00" in hostile.text
    assert not re.search("[\x00\x1b\u202e]", hostile.text)


def test_figure_blocks_are_data_that_parses(hostile: Page) -> None:
    blocks = [body for kind, body in hostile.scripts if kind == "application/json"]
    assert len(blocks) == 11
    assert all({"data", "layout"} <= set(json.loads(body)) for body in blocks)


@pytest.mark.parametrize(
    "words",
    [
        "718",
        "91.4% (85.2% to 94.5%)",
        "too few to conclude from",
        "axis_b",
        "truncated_gzip",
        "27.5% (17.5% to 37.5%)",
        "pass@2",
        "+25.0 (+12.0 to +38.0)",
        "b minus a: +25.0 points",
    ],
)
def test_numbers_and_reasons_are_readable_without_scripts(plain: Page, words: str) -> None:
    assert words in plain.text


def test_a_day_that_does_not_add_up_is_named() -> None:
    day = {"day": "2026-03-26", "found": 10, "moved_in": 1, "moved_out": 2, "accepted": 3, "rejected": 5}
    assert "no: +1" in Page(build_report(ReportData("t", days=[day]))).text


def test_an_empty_report_says_why_each_part_is_empty() -> None:
    page = Page(build_report(ReportData("Empty")))
    assert page.text.count("Nothing to show: ") == 14


def test_a_year_of_days_is_a_figure_of_a_month_and_a_table_of_all() -> None:
    days = [f"{2026 + number // 336}-{1 + number // 28 % 12:02d}-{1 + number % 28:02d}" for number in range(400)]
    steps = [("pairs judged that day", 600), ("axis A", 200)]
    data = dataclasses.replace(sample_report(), funnels=dict.fromkeys(days, steps))
    page = build_report(data)
    assert "The last 31 of 400 days; the table has all." in page
    assert all(page.count(f">{day}<") >= 1 for day in days)
    heights = [int(height) for height in re.findall(r'class="figure"[^>]*height:(\d+)px', page)]
    assert max(heights) < 1400
    assert "The last 31" not in build_report(sample_report())
