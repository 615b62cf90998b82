"""Raw rows in, canonical rows out: one for one, complete, the same on every road."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import RetryLater
from trajectory_platform.identity import sha256_hex
from trajectory_platform.lake.tables import RAW_TRACES, TRAJECTORIES
from trajectory_platform.sources.container import Limits
from trajectory_platform.sources.files import FileSource
from trajectory_platform.traces import sn15
from trajectory_platform.traces.inventory import inventory_folder
from trajectory_platform.traces.normalise import CONTEXT, normalise_batch, normalise_batches
from trajectory_platform_tests.traces.steps import Files, as_bytes, dialogue, envelope, json_lines, raw_rows

LIMITS = Limits()
WHOLE = gzip.compress(
    json_lines(
        envelope("p1", dialogue()),
        envelope("p2", [1, *dialogue()]),
        b'{"problem_id": "p3", "dial',
        envelope("p4", None),
    )
)
FILES = Files(
    {
        "array": gzip.compress(as_bytes(dialogue())),
        "plain": as_bytes(dialogue()),
        "changed": as_bytes(dialogue()),
        "whole": WHOLE,
        "cut": gzip.compress(as_bytes(dialogue()))[:-9],
        "chat": as_bytes([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]),
        "html": b"<html>",
        "empty": b"",
    }
)
ROWS: list[tuple[str, dict[str, Any], str | None]] = [
    ("a", {"artifact_uri": "array"}, None),
    ("b", {"artifact_uri": "plain", "artifact_sha256": sha256_hex(FILES.files["plain"])}, None),
    ("c", {"artifact_uri": "whole", "artifact_line": 0}, None),
    ("d", {"artifact_uri": "whole", "artifact_line": 1}, "step_not_object"),
    ("e", {"artifact_uri": "whole", "artifact_line": 2}, "cut_line"),
    ("f", {"artifact_uri": "whole", "artifact_line": 3}, "no_dialogue"),
    ("g", {"artifact_uri": "whole", "artifact_line": 9}, "record_missing"),
    ("h", {"artifact_uri": "cut"}, "truncated_gzip"),
    ("i", {"artifact_uri": "chat"}, None),
    ("j", {"artifact_uri": "html"}, "unknown_container"),
    ("k", {"artifact_uri": "empty"}, "record_missing"),
    ("l", {"artifact_uri": "changed", "artifact_sha256": "0" * 64}, "artifact_changed"),
    ("m", {"artifact_uri": None}, "no_artifact"),
    ("n", {"artifact_uri": "array"}, None),
]


def table(order: int = 1) -> Any:
    return raw_rows(*({"trace_id": name, **values} for name, values, _ in ROWS[::order]))


def test_every_row_comes_back_once_readable_or_with_its_reason() -> None:
    batch = normalise_batch(table(), FILES.read, LIMITS)
    assert batch.schema == TRAJECTORIES.schema()
    rows = batch.to_pylist()
    assert [(row["trace_id"], row["malformed"]) for row in rows] == [(name, reason) for name, _, reason in ROWS]
    for row in rows:
        assert row["readable"] == (row["malformed"] is None) == (row["content_hash"] is not None)
        for column in ("messages", "tools", "source_steps", "evidence", "repairs"):
            json.loads(row[column], parse_constant=pytest.fail)
    assert {row["reader"] for row in rows} == {"sn15", "chat", "container"}
    assert rows[0]["content_hash"] == rows[1]["content_hash"] == rows[2]["content_hash"]
    assert (rows[0]["steps"], rows[0]["tool_calls"], rows[0]["query"]) == (3, 3, "a red mug")
    damaged = rows[3]
    assert damaged["steps"] == 4 and json.loads(damaged["source_steps"])[0] == 1
    assert (damaged["messages"], damaged["tool_calls"]) == ("[]", 3)
    assert len(json.loads(damaged["evidence"])["calls"]) == 3, "the intact steps stay readable for statistics"


def test_context_columns_are_copied() -> None:
    values = {name: f"value of {name}" for name in CONTEXT if RAW_TRACES.columns[name].startswith("text")}
    (row,) = normalise_batch(raw_rows({**values, "artifact_uri": "plain"}), FILES.read, LIMITS).to_pylist()
    assert {name: row[name] for name in CONTEXT} == values
    assert {"trace_id", "day", "problem_id", "race_id", "policy_checkpoint_id"} <= set(CONTEXT)


def test_the_evidence_knows_the_binding() -> None:
    row = {"artifact_uri": "plain", "trace_id": "a", "inference_total": 7, "problem_status": "SUCCESS"}
    (read,) = normalise_batch(raw_rows(row), FILES.read, LIMITS).to_pylist()
    evidence = json.loads(read["evidence"])
    assert (evidence["inference_total"], evidence["problem_status"]) == (7, "SUCCESS")


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
@pytest.mark.parametrize("order", [1, -1])
def test_batches_are_ordered_and_independent_of_their_size(batch_rows: int, order: int) -> None:
    import pyarrow as pa

    batches = list(normalise_batches(table(order), FILES, LIMITS, batch_rows, 1))
    assert max(batch.num_rows for batch in batches) <= batch_rows
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches([normalise_batch(table(), FILES.read, LIMITS)]))


def test_batches_of_large_artifacts_hold_fewer_rows() -> None:
    rows = raw_rows(*({"trace_id": f"{n}", "artifact_uri": "plain", "artifact_bytes": 9 << 20} for n in range(5)))
    assert [batch.num_rows for batch in normalise_batches(rows, FILES, LIMITS, 256, 1)] == [1] * 5
    assert list(normalise_batches(raw_rows(), FILES, LIMITS, 256, 1)) == []


def test_workers_do_not_change_the_result() -> None:
    alone = list(normalise_batches(table(), FILES, LIMITS, 4, 1))
    shared_out = list(normalise_batches(table(), FILES, LIMITS, 4, 2))
    assert [batch.to_pylist() for batch in shared_out] == [batch.to_pylist() for batch in alone]


def test_a_fault_in_a_reader_costs_its_row_only(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = sn15.read_dialogue

    def faulty(steps: list[Any], *, binding: Any) -> Any:
        if steps[0] == 1:
            raise ZeroDivisionError("a bug")
        return honest(steps, binding=binding)

    monkeypatch.setattr(sn15, "read_dialogue", faulty)
    rows = normalise_batch(table(), FILES.read, LIMITS).to_pylist()
    assert [row["malformed"] for row in rows].count("reader_error") == 1
    assert "ZeroDivisionError: a bug" in rows[3]["malformed_detail"]
    assert rows[2]["malformed"] is None


def test_a_storage_that_does_not_answer_now_is_not_an_unreadable_row() -> None:
    def read(uri: str) -> bytes:
        raise RetryLater("storage_unavailable", uri)

    with pytest.raises(RetryLater):
        normalise_batch(table(), read, LIMITS)


def test_the_shared_days_are_read_as_their_labels_say(shared: Path) -> None:
    """What the labels call malformed is repaired with that reason or set aside; nothing else is."""
    labels = {
        (label["eval_run_id"], label["problem_id"]): label
        for label in map(json.loads, (shared / "days/truth.jsonl").read_text().splitlines())
    }
    source = FileSource(str(shared / "days"))
    seen = 0
    for day in source.days():
        rows = inventory_folder(source, day, LIMITS).rows.to_pylist()
        traces = raw_rows(*(row for row in rows if row["state"] in ("trace", "run_unusable") and row["artifact_uri"]))
        for batch in normalise_batches(traces, source, LIMITS, 256, 1):
            for row in batch.to_pylist():
                label = labels[row["eval_run_id"], row["problem_id"]]
                _compare(row, label)
                seen += 1
    assert seen > 400


ODD_BUT_SOUND = {"timestamp_not_number", "product_ids_missing", "chat_shape"}


def _compare(row: dict[str, Any], label: dict[str, Any]) -> None:
    repaired = {repair["reason"] for repair in json.loads(row["repairs"])}
    named = label["malformed"]
    if named is None:
        assert row["malformed"] is None, row
        assert row["readable"] and row["tool_calls"] > 0
    elif named == "think_not_text":
        assert row["malformed"] == named or "think_null" in repaired
    elif named in ODD_BUT_SOUND:
        assert row["malformed"] in (None, "missing_tool_result")
    else:
        assert row["malformed"] == named or (row["readable"] and named in repaired), (named, row["malformed"], repaired)
