"""A trace on a page: everything of it is there once, nothing of it acts."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.trace_compare import MOST_TRACES, trace_page
from trajectory_platform.reports.trace_results import CAP_CHARS, arguments_html, result_html, text_html
from trajectory_platform.reports.trace_view import trace_fragment
from trajectory_platform_tests.reports.trace_samples import GOOD, HOSTILE, end, find, look, recommend, view

OWN_TAGS = frozenset(
    (
        *("a", "article", "aside", "b", "body", "br", "code", "dd", "details", "div", "dl", "dt", "fieldset", "footer"),
        *("h1", "h2", "h3", "h4", "head", "header", "html", "i", "input", "label", "legend", "link", "main", "meta"),
        *("nav", "ol", "p", "pre", "section", "span", "style", "summary", "table", "tbody", "td", "th", "thead"),
        *("title", "tr"),
    )
)
VOID = frozenset(("br", "input", "link", "meta"))


class Reader(HTMLParser):
    """Tags, attributes and texts of a page; complains about what does not nest."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def test_every_call_and_every_word_is_there_once() -> None:
    made = view([find("a"), find("b")], [look("1")], [recommend("1"), end()])
    html = trace_fragment(made)
    for turn in made["turns"]:
        for call in turn["calls"]:
            assert html.count('<p class="call-head">') == 5
            assert f"<b>{call['name']}</b>" in html
    names = re.findall(r'<p class="call-head"><b>([a-z_]+)</b>', html)
    assert names == [call["name"] for turn in made["turns"] for call in turn["calls"]]
    assert [int(number) for number in re.findall(r"Turn (\d+) ", html)] == [1, 2, 3]
    text = "".join(read(html).text)
    for told in ("A gray canvas backpack", "injection", "timeout", "0.7", "sft-1", "control_token x2", "by the model"):
        assert told in text


def test_results_without_a_call_and_messages_behind_the_last_turn_are_shown() -> None:
    made = view()
    made["turns"][0]["orphans"] = [{"name": "ghost", "text": "an answer nobody asked for"}]
    made["after"] = [{"role": "user", "text": "one more thing"}]
    html = trace_fragment(made)
    assert "an answer nobody asked for" in html and "one more thing" in html


@pytest.mark.parametrize("several", [False, True])
def test_hostile_text_stays_text(several: bool) -> None:
    made = view(said=HOSTILE)
    page = trace_page([made, view(name="r2:p1", said=HOSTILE)] if several else [made])
    reader = read(page)
    assert reader.tags <= OWN_TAGS
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    assert not [
        value for name, value in reader.attributes if name in ("href", "src") and not value.startswith(("#", "data:"))
    ]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
    assert "\\u202egnp.exe" in page and "\\x1b[31m\\x00\\x07" in page and "\\ud800" in page
    assert page.encode("utf-8")


def test_a_page_is_the_same_bytes_every_time_and_has_no_script() -> None:
    views = [view(), view([find("b")], *GOOD[1:], name="r2:p1")]
    page = trace_page(views)
    assert page == trace_page(json.loads(json.dumps(views)))
    assert "<script" not in page and "script-src 'none'" in page and "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=\"https?:", page)


def test_a_huge_text_is_folded_and_capped_with_its_length() -> None:
    html = text_html("a" * (CAP_CHARS + 5_000))
    assert html.count("<details") == 1 and "25,000 characters" in html and "5,000 more characters are left out" in html
    assert len(html) < CAP_CHARS + 2_000
    many = view([("find_product", {"q": "x" * 500_000}, "y" * 2_000_000)])
    assert len(trace_page([many])) < 200_000


def test_products_are_a_table_with_what_was_recommended_and_wanted_marked() -> None:
    name, arguments, rows = find("x")
    html = result_html(json.dumps(rows), chosen=["4779797803"], wanted=["4888093778"], folded=False)
    reader = read(html)
    assert {"table", "details"} <= reader.tags
    assert "4888093778 <span" in html, "what is copied from the page keeps id and mark apart"
    assert html.count("<tr class=chosen>") == 1 and html.count("mark good") == 2 and html.count("mark chosen") == 2
    for row in rows:
        assert html_text(row["title"]) in html


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", '"text"', "[1, 2]", '[{"a": 1}, 2]', "[{}]", '{"error": "no"}', "[" * 2000, "NaN"),
        '[{"product_id": "1", "x": {"deep": [1, {"y": "z"}]}}]',
        json.dumps([{f"k{number}": number for number in range(40)}]),
        '[{"<b>": "<i>"}]',
    ],
    ids=lambda text: f"{len(text)}-characters",
)
def test_any_answer_can_be_shown(text: str) -> None:
    reader = read(result_html(text, chosen=(), wanted=(), folded=True) + arguments_html(text))
    assert reader.tags <= OWN_TAGS
    assert read(result_html(None, chosen=(), wanted=(), folded=True)).text == ["no answer"]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.text(st.characters(), max_size=60) | st.text("<>&\"'/ \\\ud800\u202e\x00`", max_size=60))
def test_whatever_is_said_can_be_read_back_from_the_page(said: str) -> None:
    reader = read(
        text_html(said) + arguments_html(json.dumps({"q": said})) + result_html(said, chosen=(), wanted=(), folded=True)
    )
    assert reader.tags <= OWN_TAGS
    assert all(char.isprintable() or char in "\n\t" for char in "".join(reader.text))


def test_a_withheld_trace_shows_no_text() -> None:
    html = trace_fragment(view(said="ZEBRAFINCH", withheld=True, sealed=True, turns=[], after=[], query=None))
    assert "--sealed REASON" in html and "sealed problem" in html


def test_an_unreadable_trace_says_why() -> None:
    html = trace_fragment(view(readable=False, turns=[], after=[], malformed="too_deep", malformed_detail="line <3>"))
    assert "There is no dialogue to show: too_deep: line &lt;3&gt;." in html


def test_too_many_traces_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 8"):
        trace_page([view(name=f"r{number}:p") for number in range(MOST_TRACES + 1)])
    with pytest.raises(ValueError, match="not 0"):
        trace_page([])


def read_ids(html: str) -> list[Any]:
    return re.findall(r' id="([^"]+)"', html)


def test_fragments_have_no_ids_so_that_any_number_fit_into_a_page() -> None:
    assert read_ids(trace_fragment(view())) == []
    page = trace_page([view(), view(name="r2:p1"), view(name="r3:p1")])
    assert len(read_ids(page)) == len(set(read_ids(page)))
