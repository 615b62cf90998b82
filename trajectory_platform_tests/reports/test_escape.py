"""Third-party text is shown, never obeyed: terminal, HTML, Markdown and plotly labels."""

from __future__ import annotations

import html
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.reports.escape import figure_text, html_text, markdown_text, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 商品 ✓", "plain ünïcode 商品 ✓"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("one\ntwo\ttab\r", "one\\ntwo\\ttab\\r"),
        ("\x00\x7f\x85", "\\x00\\x7f\\x85"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("tag \U000e0041", "tag \\U000e0041"),
        ("half \ud800 pair", "half \\ud800 pair"),
        (None, ""),
        (12.5, "12.5"),
    ],
)
def test_control_characters_are_shown(text: object, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(st.characters()))
def test_visible_text_is_printable_and_encodable(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert not {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} & {unicodedata.category(char) for char in shown}


def test_long_text_says_how_much_is_missing() -> None:
    assert visible("x" * 100, 10) == "x" * 10 + "… (+90)"


@given(st.text())
def test_html_text_is_one_inert_text_node(text: str) -> None:
    escaped = html_text(text)
    assert not set("<>\"'") & set(escaped)
    assert html.unescape(escaped) == visible(text)


@given(st.text())
def test_figure_text_holds_no_markup(text: str) -> None:
    assert "<" not in figure_text(text) and ">" not in figure_text(text)


@pytest.mark.parametrize(
    "text",
    ["[a](javascript:alert(1))", "![x](http://example.invalid/p.png)", "<b>x</b>", "a | b", "`code`", "**x**", "# x"],
)
def test_markdown_text_escapes_every_mark(text: str) -> None:
    escaped = markdown_text(text)
    assert "<" not in escaped
    for position, char in enumerate(escaped):
        if char in "[]()!|`*#":
            assert escaped[position - 1] == "\\"
