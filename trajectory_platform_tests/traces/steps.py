"""Small dialogues, artifacts and raw rows that the tests of the readers are built from."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from trajectory_platform.lake.tables import RAW_TRACES


def call(name: str, parameters: Any, result: Any = "ok", **more: Any) -> dict[str, Any]:
    """One call as the arena records it."""
    return {"name": name, "parameters": parameters, "result": result, **more}


def step(number: int, *calls: dict[str, Any], think: str = "thinking", query: str = "a red mug", **message: Any) -> Any:
    """One dialogue step with the harness's rendered content, which no reader may look at."""
    body = {"think": think, "tool_call": list(calls), **message}
    return {
        "completion": {
            "reasoning_content": "",
            "content": "<think>rendered</think>",
            "message": {key: value for key, value in body.items() if value},
        },
        "extra_info": {"step": number, "query": query, "timestamp": 1_777_000_000_000 + number, "problem_id": "p1"},
    }


def dialogue() -> list[Any]:
    """A complete shopping dialogue of three steps."""
    rows = [{"product_id": "11", "title": "Red mug", "price": 5.0}]
    return [
        step(1, call("find_product", {"q": "red mug", "page": 1}, rows)),
        step(2, call("recommend_product", {"product_ids": "11"}, "recommended 11")),
        step(3, call("terminate", {"status": "success"}, "done"), response="Take 11."),
    ]


def envelope(problem_id: str | None, steps: Any, status: str = "SUCCESS") -> dict[str, Any]:
    """One line of the sandbox output file."""
    return {
        "problem_id": problem_id,
        "status": status,
        "execution_time": 1.5,
        "inference_failure_count": 0,
        "inference_total": 3,
        "error": None,
        "dialogue": steps,
    }


def as_bytes(value: Any) -> bytes:
    """JSON bytes as the arena writes them (ASCII escapes, blanks after separators)."""
    return json.dumps(value).encode()


def json_lines(*values: Any) -> bytes:
    """JSON lines; bytes are taken as they are."""
    return b"".join((value if isinstance(value, bytes) else as_bytes(value)) + b"\n" for value in values)


def raw_rows(*rows: dict[str, Any]) -> Any:
    """RAW_TRACES rows with everything but the given fields empty."""
    import pyarrow as pa

    blank = dict.fromkeys(RAW_TRACES.columns)
    fixed = {"day": "2026-05-02", "folder_day": "2026-05-02", "eval_run_id": "run", "state": "trace"}
    filled = [{**blank, **fixed, "duplicate_lines": 0, "duplicates_differ": False, **row} for row in rows]
    return pa.Table.from_pylist(filled, schema=RAW_TRACES.schema())


class Files:
    """A source that holds its files in memory; it can be pickled into workers."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def read(self, uri: str) -> bytes:
        """The bytes of a file."""
        return self.files[uri]


def day_artifacts(shared: Path) -> list[bytes]:
    """The inflated artifacts of the shared days, in order of their paths."""
    found = []
    for path in sorted(shared.glob("days/*/artifacts/*/*")):
        data = path.read_bytes()
        found.append(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return found
