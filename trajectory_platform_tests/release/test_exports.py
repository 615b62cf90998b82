"""An export appears whole or not at all, says what it holds, and a hostile one is refused with a reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.release import folders
from trajectory_platform.release.card import front_matter
from trajectory_platform.release.exports import read_export, verify_export
from trajectory_platform.release.rows import SetAside, schema
from trajectory_platform.strict_yaml import parse_yaml
from trajectory_platform_tests.release.exported import Row, dialogue, export, row, some_rows


def reasons(folder: Path) -> list[str]:
    return [value.reason for _, value in read_export(folder) if isinstance(value, SetAside)]


def sealed_again(folder: Path) -> None:
    """Checksums that fit, as whoever changed the files would make them."""
    folders.write_sums(folder)


def test_the_card_says_what_is_in_the_folder(tmp_path: Path) -> None:
    facts = export(tmp_path / "out", some_rows()).facts
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    _, head, body = card.split("---\n", 2)
    told = parse_yaml(head, "card")
    assert told["license"] == "cc-by-4.0" and told["size_categories"] == ["n<1K"]
    assert told["configs"] == [
        {
            "config_name": "default",
            "data_files": [
                {"split": "train", "path": "data/train-*.parquet"},
                {"split": "validation", "path": "data/validation-*.parquet"},
            ],
        }
    ]
    assert [one["num_examples"] for one in told["dataset_info"]["splits"]] == [3, 1]
    for words in ("filter\\-2", "Known limits", "Strictest.", "sealed", *(f"`{name}`" for name in schema().names)):
        assert words in body
    for name in facts["splits"]["train"]["files"]:
        assert folders.file_digest(tmp_path / "out" / name) in body


def test_a_category_cannot_write_into_the_card(tmp_path: Path) -> None:
    hostile = "x |\n\n---\nlicense: mit\n---\n# [a](http://b) <script>"
    export(tmp_path / "out", [row(0, category=hostile)])
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "<script>" not in card and "\nlicense: mit" not in card and "[a](http" not in card
    assert front_matter({"license": "unknown"}) == "---\nlicense: unknown\n---\n"


def test_an_unknown_licence_is_said_to_be_unknown(tmp_path: Path) -> None:
    from trajectory_platform.release.exports import write_export
    from trajectory_platform_tests.release.exported import ABOUT

    write_export(tmp_path / "out", some_rows(), lambda: ABOUT, use="sft", form="openai", licence="unknown")
    assert "Nobody stated a licence" in (tmp_path / "out" / "README.md").read_text("utf-8")


@pytest.mark.parametrize("form", ["hf", "openai"])
def test_the_same_export_may_be_asked_for_again_another_one_not(tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    assert export(out, some_rows(), form).new
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert not export(out, some_rows(), form).new
    with pytest.raises(Abort, match="holds something else"):
        export(out, some_rows()[1:], form)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_damaged_copy_of_the_same_export_is_named(tmp_path: Path) -> None:
    export(tmp_path / "out", some_rows(), "openai")
    (tmp_path / "out" / "train.jsonl").write_text("{}\n")
    with pytest.raises(FailPartition, match=r"train\.jsonl: checksum_differs"):
        export(tmp_path / "out", some_rows(), "openai")


def test_an_empty_folder_is_taken_a_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    assert export(tmp_path / "empty", some_rows()).new
    with pytest.raises(Abort):
        export(tmp_path / "file", some_rows())
    assert (tmp_path / "file").read_text() == "mine"


def test_an_error_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Any:
        yield from some_rows()
        raise OSError("the disk is full")

    for form in ("hf", "openai"):
        with pytest.raises(OSError, match="full"):
            export(tmp_path / "out", broken(), form)
        assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from trajectory_platform_tests.release.exported import export, row

def rows():
    yield from (row(number) for number in range(600))
    os.kill(os.getpid(), signal.SIGKILL)

export(Path(sys.argv[1]), rows())
"""


def test_a_killed_export_leaves_no_half_folder_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", KILLED, str(out)], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not out.exists() and len(list(tmp_path.iterdir())) == 1
    export(out, some_rows())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    with folders.staged(tmp_path / "out") as first, folders.staged(tmp_path / "out") as second:
        assert first.is_dir() and second.is_dir() and first != second


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(0), row(0)], "twice"),
        ([row(0), row(1, pool="dev", cluster_id="c0")], "cluster_id .* in both splits"),
        ([row(0), row(1, pool="dev", problem_key=row(0)["problem_key"])], "problem_key .* in both splits"),
        ([row(0, pool="sealed")], "must not be exported"),
        ([], "no row"),
    ],
    ids=["twice", "cluster", "problem", "sealed", "none"],
)
def test_what_must_not_leave_stops_the_export(tmp_path: Path, rows: list[Row], words: str) -> None:
    with pytest.raises(FailPartition, match=words):
        export(tmp_path / "out", rows)
    assert list(tmp_path.iterdir()) == []


def test_undesirable_rows_never_become_openai_examples(tmp_path: Path) -> None:
    with pytest.raises(Abort, match="no label"):
        export(tmp_path / "out", [row(0, use="kto")], "openai", use="kto")


def test_kto_rows_carry_a_label(tmp_path: Path) -> None:
    rows = [row(0, use="kto"), row(1, use="kto", uses=["sft", "kto_desirable"])]
    export(tmp_path / "out", rows, use="kto")
    assert [one["label"] for _, one in read_export(tmp_path / "out") if isinstance(one, dict)] == [False, True]
    assert verify_export(tmp_path / "out") == []


CHANGES: dict[str, tuple[str, Callable[[Row], Row]]] = {
    "sealed pool": ("wrong_pool", lambda one: one | {"pool": "sealed"}),
    "dev in train": ("wrong_pool", lambda one: one | {"pool": "dev"}),
    "no use": ("wrong_use", lambda one: one | {"uses": ["kto_undesirable"]}),
    "a label": ("wrong_label", lambda one: one | {"label": True}),
    "other words": (
        "content_hash_differs",
        lambda one: one | {"messages": one["messages"].replace("teapot", "kettle")},
    ),
    "no list": ("bad_messages", lambda one: one | {"messages": "{}"}),
    "no JSON": ("not_json", lambda one: one | {"messages": "__import__('os').system('true')"}),
    "deep": ("too_deep", lambda one: one | {"tools": "[" * 5000 + "]" * 5000}),
    "tools": ("bad_tools", lambda one: one | {"tools": '"all of them"'}),
    "two values": ("duplicate_key", lambda one: one | {"tools": '[{"a":1,"a":2}]'}),
    "orphan": ("orphan_tool_message", lambda one: one | {"messages": json.dumps(dialogue()[:1] + dialogue()[2:])}),
    "unanswered": ("unanswered_call", lambda one: one | {"messages": json.dumps(dialogue()[:2] + dialogue()[3:])}),
    "role": ("bad_messages", lambda one: one | {"messages": '[{"role":"root","content":"x"}]'}),
    "long id": ("too_large", lambda one: one | {"trace_id": "x" * 70_000}),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("form", ["hf", "openai"])
def test_a_hostile_row_is_set_aside_with_its_reason_and_the_others_are_read(
    tmp_path: Path, form: str, name: str
) -> None:
    reason, change = CHANGES[name]
    out = tmp_path / "out"
    export(out, [row(0), row(1), row(2)], form)
    hostile = change(row(1))
    if form == "hf":
        table = pa.Table.from_pylist([row(0), hostile, row(2)], schema=schema())
        pq.write_table(table, out / "data" / "train-00000-of-00001.parquet")
    else:
        path = out / "train.side.jsonl"
        sides = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        texts = {key: hostile[key] for key in ("messages", "tools")}
        sides[1] = {**sides[1], "row": {k: v for k, v in hostile.items() if k not in texts}, **texts}
        path.write_text("".join(json.dumps(side) + "\n" for side in sides), "utf-8")
    sealed_again(out)
    assert reasons(out) == [reason]
    kept = [value["trace_id"] for _, value in read_export(out) if not isinstance(value, SetAside)]
    assert kept == ["run0:p0", "run2:p2"]
    assert [fault.reason for fault in verify_export(out)][0] == reason


def test_a_row_that_comes_twice_is_read_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, [row(0), row(1)])
    table = pa.Table.from_pylist([row(0), row(0)], schema=schema())
    pq.write_table(table, out / "data" / "train-00000-of-00001.parquet")
    assert reasons(out) == ["duplicate_trace_id"]


def test_a_parquet_file_of_another_shape_is_not_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, [row(0)])
    shard = out / "data" / "train-00000-of-00001.parquet"
    typed = pa.Table.from_pylist([row(0)]).set_column(0, "trace_id", pa.array([1]))
    for table in (typed.select(schema().names), typed.drop(["pool"])):
        pq.write_table(table, shard)
        assert reasons(out) == ["schema_differs"]
    shard.write_bytes(shard.read_bytes()[:-10])
    assert reasons(out) == ["damaged_file"]


@pytest.mark.parametrize("change", ["line", "side", "lost line", "more lines", "lost side"])
def test_a_line_and_a_side_row_that_do_not_belong_together(tmp_path: Path, change: str) -> None:
    out = tmp_path / "out"
    export(out, [row(0), row(1), row(2)], "openai")
    lines, sides = ((out / name).read_bytes().splitlines(keepends=True) for name in ("train.jsonl", "train.side.jsonl"))
    if change == "line":
        lines[1] = lines[1].replace(b"teapot", b"kettle")
    elif change == "side":
        sides[1] = b"{\n"
    elif change == "lost line":
        lines.pop()
    elif change == "more lines":
        lines.append(lines[0])
    else:
        sides.pop()
    (out / "train.jsonl").write_bytes(b"".join(lines))
    (out / "train.side.jsonl").write_bytes(b"".join(sides))
    expected = {
        "line": "line_differs", "side": "truncated_json", "lost line": "no_line",
        "more lines": "no_side_row", "lost side": "no_side_row",
    }  # fmt: skip
    assert reasons(out) == [expected[change]]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda out: (out / "README.md").write_text("other"), "checksum_differs"),
        (lambda out: (out / "loader.py").write_text("print('run me')"), "unlisted_file"),
        (lambda out: (out / "export.json").unlink(), "missing_file"),
        (lambda out: (out / "SHA256SUMS").unlink(), "no_checksums"),
        (lambda out: (out / "SHA256SUMS").write_text("../../etc/passwd\n"), "bad_checksums"),
        (lambda out: (out / "link").symlink_to("/etc/passwd"), "no_regular_file"),
        (lambda out: os.mkfifo(out / "pipe"), "no_regular_file"),
        (lambda out: (out / "a b\n").write_text(""), "strange_name"),
    ],
    ids=["changed", "added", "lost", "no sums", "bad sums", "link", "pipe", "name"],
)
def test_verify_names_what_is_wrong(tmp_path: Path, damage: Callable[[Path], Any], reason: str) -> None:
    export(tmp_path / "out", some_rows())
    assert verify_export(tmp_path / "out") == []
    damage(tmp_path / "out")
    assert reason in [fault.reason for fault in verify_export(tmp_path / "out")]


def test_sha256sum_reads_the_checksums(tmp_path: Path) -> None:
    export(tmp_path / "out", some_rows())
    done = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=tmp_path / "out", capture_output=True)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "",
        '{"kind":"trajectory-platform export","version":2}',
        '{"kind":"trajectory-platform export","version":1,"use":[]}',
        "x" * 100,
    ],
)
def test_a_folder_that_is_no_export_is_refused(tmp_path: Path, text: str) -> None:
    export(tmp_path / "out", some_rows())
    (tmp_path / "out" / "export.json").write_text(text)
    with pytest.raises(FailPartition):
        list(read_export(tmp_path / "out"))
    with pytest.raises(FailPartition):
        list(read_export(tmp_path / "nowhere"))
