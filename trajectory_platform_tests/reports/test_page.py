"""A page is written whole or not at all, and says its numbers where no script runs."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.reports.figures import themed
from trajectory_platform.reports.page import NO_FIGURES, Figures, build_page, write_page


def test_several_writers_of_one_page_leave_one_whole_page(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    texts = [str(number) * 300_000 for number in range(6)]
    writers = [threading.Thread(target=write_page, args=(out, text)) for text in texts]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert out.read_text("utf-8") in texts
    assert [file.name for file in tmp_path.iterdir()] == ["r.html"]


@pytest.mark.parametrize("kind", ["folder", "device", "pipe", "below a file", "too long"])
def test_what_is_no_file_to_write_is_said_and_left_alone(tmp_path: Path, kind: str) -> None:
    """A device replaced by a file would harm the whole machine."""
    out = tmp_path / "out"
    if kind == "folder":
        out.mkdir()
    elif kind == "device":
        out = Path("/dev/null")
    elif kind == "pipe":
        os.mkfifo(out)
    elif kind == "below a file":
        out.write_text("text")
        out = out / "r.html"
    else:
        out = tmp_path / ("x" * 300 + ".html")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(Abort, match="folder or no ordinary file|cannot write"):
        write_page(out, "page")
    assert sorted(tmp_path.iterdir()) == before
    assert not Path("/dev/null").is_file()


def test_a_link_is_replaced_and_what_it_names_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "r.html").symlink_to("kept")
    write_page(tmp_path / "r.html", "page")
    assert (tmp_path / "kept").read_text() == "kept" and (tmp_path / "r.html").read_text() == "page"


def test_without_scripts_the_page_says_where_the_numbers_are() -> None:
    drawn = Figures()
    body = drawn.add({"data": [], "layout": themed(200)}, "label")
    assert NO_FIGURES in build_page(title="t", sections=[("a", "A", body)], figures=drawn)
    assert "noscript" not in build_page(title="t", sections=[("a", "A", "")], figures=Figures())
