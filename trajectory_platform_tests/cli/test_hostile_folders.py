"""The plain commands over folders that nobody meant: rows are conserved, faults are told, errors are one line."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.arena.simulate import simulate
from trajectory_platform.cli import main

DAY = "2026-05-02"
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    10**25,
    10**400,
    "",
    "x",
    [],
    {},
    [1],
    {"a": [None]},
    "\u202e\x1b[31m",
    "\ud800",
]
NASTY = "\x1b[31m[red]\u202e\u2028\x85\r\n\x00<script>"


@pytest.fixture(scope="module")
def plain_day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("arena")
    simulate(root, days=1, traces_per_day=30, seed=5, first_day=date(2026, 5, 2))
    return root


@pytest.fixture
def folder(plain_day: Path, tmp_path: Path) -> Path:
    shutil.copytree(plain_day, tmp_path / "days")
    return tmp_path / "days" / DAY


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["trajectory-platform", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    return call


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def _save(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _all(run: Any, folder: Path, out: Path) -> dict[str, Any]:
    """Run the four commands; returns the summary after the counts of all of them were compared."""
    names = set()
    for command in ("normalise", "score", "judge"):
        code, printed, errors = run(command, "--in", str(folder), "--out", str(out / f"{command}.jsonl"), "--json")
        assert (code, errors) == (0, "")
        json.loads(printed)
        if command != "judge":
            names.add(tuple(row["trace_id"] for row in _rows(out / f"{command}.jsonl")))
    code, printed, errors = run("curate", "--in", str(folder), "--out", str(out / "curated"), "--json")
    assert (code, errors) == (0, "")
    summary: dict[str, Any] = json.loads(printed)
    ends = [row["trace_id"] for name in ("accepted", "rejected") for row in _rows(out / "curated" / f"{name}.jsonl")]
    names.add(tuple(sorted(ends)))
    assert len(names) == 1 and len(set(ends)) == len(ends)
    assert summary["input"] == summary["accepted"] + summary["rejected"] == len(ends)
    return summary


def _scatter(path: Path, seed: int, kept: tuple[str, ...]) -> None:
    chance = random.Random(seed)
    rows = _rows(path)
    for row in rows:
        for record in [row, *(row.get("validator_results") or [])]:
            for key in record:
                if key not in kept and chance.random() < 0.3:
                    record[key] = chance.choice(ODD)
    _save(path, rows)


@pytest.mark.parametrize("seed", range(3))
def test_odd_values_everywhere_lose_no_row(run: Any, folder: Path, tmp_path: Path, seed: int) -> None:
    kept = ("eval_run_id", "problem_id", "validator_results", "product_id")
    for name in ("runs.jsonl", "problems.jsonl", "agent_versions.jsonl"):
        _scatter(folder / name, seed, kept)
    for place in (folder / "catalogue", folder.parent / "catalogue"):
        if place.is_dir():
            _scatter(place / "products.jsonl", seed, kept)
    suite = json.loads((folder / "suite.json").read_text())
    chance = random.Random(seed)
    for problem in suite["problems"]:
        fields = problem["metadata"]
        rewards = fields["reward"] if isinstance(fields["reward"], list) else [fields["reward"]]
        for holder in (*rewards, fields.get("voucher") or {}, fields):
            for key in holder:
                if key not in kept and chance.random() < 0.2:
                    holder[key] = chance.choice(ODD)
    (folder / "suite.json").write_text(json.dumps(suite))
    assert _all(run, folder, tmp_path)["input"] == 30


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"NaN", b"5", b'{"problems": [null, 1, {}]}', b"[" * 50_000, b"\xff\xfe["]
)
def test_a_broken_suite_file_loses_no_row(run: Any, folder: Path, tmp_path: Path, body: bytes) -> None:
    (folder / "suite.json").write_bytes(body)
    assert _all(run, folder, tmp_path)["input"] == 30


def test_broken_artifacts_are_rows_with_a_reason(run: Any, folder: Path, tmp_path: Path) -> None:
    bodies = [
        b"",
        gzip.compress(b"", mtime=0),
        gzip.compress(gzip.compress(b"[]"), mtime=0),
        b"\x1f\x8b",
        b"[" * 200_000,
        json.dumps([{"a": 1}]).encode("utf-16"),
        b"// comment\n[]",
        b'{"dialogue": []}\n' * 3,
        json.dumps([{"extra_info": None}, 5, NASTY]).encode(),
    ]
    paths = sorted(path for path in (folder / "artifacts").rglob("*") if path.is_file())
    for path, body in zip(paths, bodies, strict=False):
        path.write_bytes(body)
    shutil.copy(paths[-1], os.path.join(os.fsencode(paths[-1].parent), b"\xff\xfe.json.gz"))
    summary = _all(run, folder, tmp_path)
    assert summary["input"] >= 31 and summary["by_reason"]["name_not_utf8"] == 1


def test_what_of_the_listing_was_not_used_is_told(run: Any, folder: Path, tmp_path: Path) -> None:
    with (folder / "problems.jsonl").open("ab") as listing:
        listing.write(b"// comment\n[1]\n")
    (folder / "artifacts" / f"x{NASTY.replace(chr(0), '')[:4]}.zip").write_bytes(b"PK")
    told = {"artifacts: unexpected_file": 1, "problems.jsonl: not_an_object": 1, "problems.jsonl: not_json": 1}
    assert _all(run, folder, tmp_path)["faults"] == told
    _, printed, _ = run("score", "--in", str(folder), "--out", str(tmp_path / "s.jsonl"))
    assert "problems.jsonl: not_json 1" in printed
    assert json.loads((tmp_path / "curated" / "summary.json").read_text())["faults"] == told


def test_the_order_of_every_list_decides_nothing(run: Any, folder: Path, tmp_path: Path) -> None:
    def double(path: Path, key: str, value: Any) -> None:
        _save(path, [*(rows := _rows(path)), *({**row, key: value} for row in rows[::2])])

    double(folder / "problems.jsonl", "category", "shop")
    double(folder / "runs.jsonl", "phase", "RACE")
    suite = json.loads((folder / "suite.json").read_text())
    twice = json.loads(json.dumps(suite["problems"]))
    for problem, other in zip(twice, suite["problems"][1:], strict=False):
        problem["metadata"]["reward"] = other["metadata"]["reward"]
    suite["problems"] += twice
    found = []
    for seed in range(2):
        chance = random.Random(seed)
        for name in ("problems.jsonl", "runs.jsonl", "agent_versions.jsonl"):
            rows = _rows(folder / name)
            chance.shuffle(rows)
            _save(folder / name, rows)
        chance.shuffle(suite["problems"])
        (folder / "suite.json").write_text(json.dumps(suite))
        _all(run, folder, tmp_path / str(seed))
        files = ("normalise.jsonl", "score.jsonl", "judge.jsonl", "curated/accepted.jsonl", "curated/rejected.jsonl")
        found.append([(tmp_path / str(seed) / name).read_bytes() for name in files])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("out", "said"),
    [("{tmp}", "folder"), ("", "folder"), ("{tmp}/file/x", "file"), ("{tmp}/" + "x" * 300, "name too long")],
)
def test_an_output_that_cannot_be_written_is_wrong_use(
    run: Any, folder: Path, tmp_path: Path, out: str, said: str
) -> None:
    (tmp_path / "file").write_text("")
    code, _, errors = run("normalise", "--in", str(folder), "--out", out.format(tmp=tmp_path))
    assert code == 2 and errors.startswith("error: ") and errors.count("\n") == 1
    assert said in errors.lower()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_device_is_written_to_and_never_replaced(run: Any, folder: Path) -> None:
    kind = os.stat("/dev/null").st_mode
    assert run("normalise", "--in", str(folder), "--out", "/dev/null")[0] == 0
    assert os.stat("/dev/null").st_mode == kind


def test_a_damaged_catalogue_is_a_problem_with_the_data(run: Any, folder: Path, tmp_path: Path) -> None:
    (folder / "catalogue").mkdir(exist_ok=True)
    (folder / "catalogue" / "products.jsonl").write_bytes(gzip.compress(b'{"product_id": "1"}\n' * 99, mtime=0)[:-9])
    code, _, errors = run("score", "--in", str(folder), "--out", str(tmp_path / "s.jsonl"))
    assert code == 1 and errors.startswith("error: ") and errors.count("\n") == 1
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize(
    "value",
    [
        [{"completion": {"message": {"think": NASTY, "tool_call": [{"name": NASTY, "parameters": {NASTY: 1}}]}}}],
        [{"role": NASTY, "content": NASTY}],
        {NASTY: 1},
        {"problem_id": NASTY, "dialogue": NASTY},
        [{"completion": {"message": {"tool_call": [{"name": "f", "parameters": f'{{"{NASTY}":1,"{NASTY}":2}}'}]}}}],
    ],
)
def test_lint_prints_hostile_text_as_plain_lines(run: Any, tmp_path: Path, value: Any) -> None:
    path = tmp_path / "a\x1b[31m\u202e.json"
    path.write_text(json.dumps(value))
    code, printed, errors = run("traces", "lint", str(path))
    assert code == 1 and errors == "" and printed.count("\n") == 1
    assert printed.rstrip("\n").isprintable()
    assert json.loads(run("traces", "lint", str(path), "--json")[1])["rejected"]
