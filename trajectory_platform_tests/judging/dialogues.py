"""Small dialogues, products and rows that the judging and curation tests are built from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pyarrow as pa

from trajectory_platform.lake.tables import RAW_TRACES, TRAJECTORIES, Table
from trajectory_platform.sandbox.problems import Problem, parse_problem

QUERY = "a steel kettle below 600 PHP"
KETTLE = {
    "product_id": "5100000001",
    "shop_id": "9001",
    "title": "Steel  Kettle 1L",
    "price": 500.0,
    "service": ["COD"],
    "sku_options": {"1": {"colour": "red"}, "2": {"colour": "blue", "size": "1l"}},
    "attributes": {"material": ["steel"]},
}
POT = {
    "product_id": "5100000002",
    "shop_id": "9001",
    "title": "Clay Pot",
    "price": 250.0,
    "service": [],
    "sku_options": {},
    "attributes": {"material": ["clay"], "brand": ["banwei"]},
}
FOREIGN_KETTLE = {
    **KETTLE,
    "product_id": "5100000003",
    "shop_id": "9002",
    "title": "STEEL kettle\u00a01l",
    "price": 550.0,
}
PRODUCTS = {product["product_id"]: product for product in (KETTLE, POT, FOREIGN_KETTLE)}
REWARD = {
    "product_id": "5100000001",
    "title": ["Steel Kettle 1L"],
    "price": [{"less than": [None, 600]}],
    "service": ["COD"],
    "sku_options": [{"colour": "blue", "size": "1l"}],
    "attributes": [{"material": ["steel"]}],
}
POT_REWARD = {"product_id": "5100000002", "title": ["Clay Pot"], "attributes": [{"material": ["clay"]}]}
VOUCHER = {
    "voucher_type": "shop",
    "discount_type": "fixed",
    "threshold": 700,
    "face_value": 60,
    "discount": None,
    "cap": None,
    "budget": 700,
}


def problem(category: str, reward: Any, voucher: Any = None, problem_id: str = "p1", query: str = QUERY) -> Problem:
    """A problem of suite ``7``."""
    fields = {"category": category, "query": query, "reward": reward, "voucher": voucher}
    return parse_problem({"problem_id": problem_id, "suite_id": 7, "metadata": fields}, suite_id="7")


def call(name: str, parameters: Any, result: Any = None) -> dict[str, Any]:
    """One tool call of a dialogue step."""
    return {"name": name, "parameters": parameters, "tool_call_id": "Xy12ab34", "result": result}


def step(number: int, think: str, *calls: Any, response: str = "", query: str = QUERY) -> dict[str, Any]:
    """One dialogue step."""
    message: dict[str, Any] = {"think": think}
    if calls:
        message["tool_call"] = list(calls)
    if response:
        message["response"] = response
    extra = {"step": number, "query": query, "timestamp": 1_777_000_000_000 + number, "problem_id": "p1"}
    return {"completion": {"reasoning_content": "", "content": "", "message": message}, "extra_info": extra}


def dialogue(ids: Any = "5100000001", *, seen: tuple[str, ...] = ("5100000001", "5100000002")) -> list[dict[str, Any]]:
    """Search, open, recommend, terminate."""
    rows = [{key: PRODUCTS[name][key] for key in ("product_id", "shop_id", "title", "price")} for name in seen]
    pages = [{key: PRODUCTS[name][key] for key in ("product_id", "sku_options", "attributes")} for name in seen[:1]]
    first = seen[0] if seen else "5100000001"
    return [
        step(1, "I search for a kettle.", call("find_product", {"q": "kettle", "page": 1}, rows)),
        step(2, "Two rows; I open the first.", call("view_product_information", {"product_ids": first}, pages)),
        step(3, "It fits.", call("recommend_product", {"product_ids": ids}, f"Having recommended: {ids}")),
        step(4, "Done.", call("terminate", {"status": "success"}, "ended")),
    ]


def messages_of(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Canonical messages of a well-formed dialogue."""
    found: list[dict[str, Any]] = [{"role": "user", "content": steps[0]["extra_info"]["query"]}]
    number = 0
    for one in steps:
        message = one["completion"]["message"]
        calls, results = [], []
        for item in message.get("tool_call", []):
            arguments = orjson.dumps(item["parameters"], option=orjson.OPT_SORT_KEYS).decode()
            function = {"name": item["name"], "arguments": arguments}
            calls.append({"id": f"call_{number}", "type": "function", "function": function})
            result = item["result"]
            content = result if isinstance(result, str) else orjson.dumps(result).decode()
            results.append({"role": "tool", "tool_call_id": f"call_{number}", "name": item["name"], "content": content})
            number += 1
        answer = {"role": "assistant", "content": message.get("response", ""), "reasoning_content": message["think"]}
        found.append({**answer, **({"tool_calls": calls} if calls else {})})
        found += results
    return found


def proxy_log(steps: list[dict[str, Any]], *, by_model: bool = True, tokens: int = 60) -> list[dict[str, Any]]:
    """The same steps with a request log in which the model emitted every call (or none)."""
    logged = []
    for number, one in enumerate(steps):
        entries = []
        base = 1_777_000_000_000 + 10_000 * number
        calls = one["completion"]["message"].get("tool_call", [])
        calls = [calls] if isinstance(calls, dict) else calls
        native = [
            {
                "id": f"n{number}{place}",
                "type": "function",
                "function": {"name": item["name"], "arguments": orjson.dumps(item["parameters"]).decode()},
            }
            for place, item in enumerate(calls)
        ]
        reply = {
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "ok", "tool_calls": native if by_model else None},
                }
            ],
            "usage": {"completion_tokens": tokens},
        }
        entries.append(
            {
                "kind": "summary",
                "method": "POST",
                "path": "/inference/chat/completions",
                "timestamp": base + 1000,
                "duration_ms": 900.0,
                "status_code": 200,
                "json_data": {"model": "m"},
                "response": reply,
            }
        )
        for place, item in enumerate(calls):
            if item["name"] in ("find_product", "view_product_information"):
                entries.append(
                    {
                        "kind": "summary",
                        "method": "GET",
                        "path": f"/search/{item['name']}",
                        "timestamp": base + 2000 + place,
                        "duration_ms": 100.0,
                        "status_code": 200,
                        "params": item["parameters"],
                        "response": item["result"],
                    }
                )
        logged.append({**one, "extra_info": {**one["extra_info"], "timestamp": base + 3000, "proxy_calls": entries}})
    return logged


def raw_row(trace_id: str, **values: Any) -> dict[str, Any]:
    """A RAW_TRACES row of a usable, finished pair."""
    run, _, problem_id = trace_id.partition(":")
    row: dict[str, Any] = dict.fromkeys(RAW_TRACES.columns)
    row.update(
        trace_id=trace_id,
        day="2026-05-02",
        eval_run_id=run,
        problem_id=problem_id,
        agent_version_id="agent-1",
        suite_id="7",
        category="product",
        state="trace",
        folder_day="2026-05-02",
        judged_at=datetime(2026, 5, 2, 10, tzinfo=UTC),
        problem_status="SUCCESS",
        run_status="SUCCESS",
        validator_score=1.0,
        reasoning_score=0.9,
        reasoning_model="zai-org/GLM-5.1-TEE",
        reasoning_explanation="Gate 4 passed",
        duplicate_lines=0,
        duplicates_differ=False,
    )
    row.update(values)
    return row


def trajectory_row(raw: dict[str, Any], steps: list[dict[str, Any]] | None = None, **values: Any) -> dict[str, Any]:
    """A TRAJECTORIES row made by the platform's own reader from steps with a request log."""
    from trajectory_platform import jsontext
    from trajectory_platform.traces.sn15 import read_dialogue

    logged = proxy_log(dialogue()) if steps is None else steps
    replies = sum(len(one["extra_info"].get("proxy_calls", [])) > 0 for one in logged)
    read = read_dialogue(logged, binding={**raw, "inference_total": replies})
    row = {name: raw.get(name) for name in TRAJECTORIES.columns}
    row.update(
        readable=read.malformed is None,
        malformed=read.malformed,
        malformed_detail=read.malformed_detail,
        content_hash=read.content_hash,
        messages=jsontext.dumps(read.messages),
        tools=jsontext.dumps(read.tools),
        query=read.query,
        source_steps=jsontext.dumps(read.source_steps),
        evidence=jsontext.dumps(read.evidence),
        repairs=jsontext.dumps(read.repairs),
        flags=read.flags,
        steps=read.steps,
        tool_calls=read.tool_calls,
        reader=read.reader,
        reader_version=read.reader_version,
    )
    row.update(values)
    return row


def table(rows: list[dict[str, Any]], declared: Table) -> pa.Table:
    """Rows in the declared schema, sorted by trace_id."""
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["trace_id"]), schema=declared.schema())
