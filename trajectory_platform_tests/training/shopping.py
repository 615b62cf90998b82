"""Synthetic shopping traces in canonical form, for training tests: fixed words, no randomness but the number."""

from __future__ import annotations

import json
from typing import Any

NOUNS = ("teapot", "extension cord", "cooler bag", "dog leash", "guitar strap", "herb pot", "phone case", "desk lamp")
COLOURS = ("black", "white", "red", "blue", "green", "silver")
BRANDS = ("Lumo", "Oakpress", "GooFee", "Padded")
SERVICES = ("official", "freeShipping", "COD", "flashsale")


def _tool(name: str, description: str, **properties: str) -> dict[str, Any]:
    shape = {key: {"type": "string", "description": text} for key, text in properties.items()}
    parameters = {"type": "object", "properties": shape, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    _tool(
        "find_product",
        "Search the catalogue; returns up to ten rows with product_id, shop_id, title, price, service and sold_count.",
        q="Words to search for in titles, options and attributes.",
        page="Page from 1 to 5.",
        price="Range such as 100-200; one side may be left open.",
        service="Comma separated list of official, freeShipping, COD, flashsale.",
    ),
    _tool(
        "view_product_information",
        "Details of products: short description, description, options and attributes; no title, price or shop.",
        product_ids="Comma separated product ids.",
    ),
    _tool("recommend_product", "Recommend the products you chose; call it once.", product_ids="Comma separated ids."),
    _tool("terminate", "End the session.", status="success or failure"),
]


def mix(*parts: object) -> int:
    """A spread-out number from the parts, the same in every process."""
    value = 1469598103934665603
    for char in repr(parts):
        value = ((value ^ ord(char)) * 1099511628211) % (1 << 64)
    return (value >> 16) % 1_000_003


def product(seed: int, noun: str, colour: str) -> dict[str, Any]:
    return {
        "product_id": str(3_000_000_000 + mix("id", seed) * 1999),
        "shop_id": str(300_000 + mix("shop", seed) % 4000),
        "title": f"{BRANDS[mix(seed) % 4]} {noun} {colour} Local Seller Fast Delivery",
        "price": round(50 + mix("price", seed) % 900 + 0.5, 2),
        "service": [SERVICES[mix("service", seed) % 4]],
        "sold_count": mix("sold", seed) % 30,
    }


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": text}}


def messages(number: int) -> list[dict[str, Any]]:
    """Query, one or two searches, a look, a recommendation, the end: four or five assistant turns."""
    noun, colour = NOUNS[mix("noun", number) % 8], COLOURS[mix("colour", number) % 6]
    cap = 100 + mix("cap", number) % 800
    rows = [product(number * 10 + row, noun, COLOURS[mix(number, row) % 6]) for row in range(10)]
    best = rows[mix("best", number) % 3]
    found: list[dict[str, Any]] = [
        {"role": "user", "content": f"I need a {colour} {noun} for at most {cap} pesos, please."},
    ]

    def turn(thinking: str, name: str, result: object, **arguments: Any) -> None:
        position = sum(message["role"] == "assistant" for message in found) + 1
        calls = [call(position, name, **arguments)]
        found.append({"role": "assistant", "content": "", "reasoning_content": thinking, "tool_calls": calls})
        text = result if isinstance(result, str) else json.dumps(result, separators=(",", ":"))
        found.append({"role": "tool", "tool_call_id": f"call_{position}", "name": name, "content": text})

    words, chosen = f"{colour} {noun}", best["product_id"]
    if mix("narrow", number) % 3 == 0:
        turn(f'I search "{words} premium" first.', "find_product", [], page=1, q=f"{words} premium")
        turn("Nothing came back, so I search with fewer words.", "find_product", rows, page=1, q=words)
    else:
        thinking = f'The request is a {words}. I search "{words}".'
        turn(thinking, "find_product", rows, page=1, q=words, price=f"0-{cap}")
    detail = {"product_id": chosen, "short_description": f"colour {colour};", "attributes": {"color_family": [colour]}}
    looks = f"{chosen} at {best['price']} PHP looks right. I open it."
    turn(looks, "view_product_information", [detail], product_ids=chosen)
    says = f"The details say {colour}, so I recommend {chosen}."
    turn(says, "recommend_product", "Recommended.", product_ids=chosen)
    turn("The recommendation is made.", "terminate", "done", status="success")
    return found


def record(number: int) -> dict[str, Any]:
    """A row of a job's row file."""
    return {
        "trace_id": f"run-{number // 30:03d}:problem-{number:04d}",
        "leak_cluster": f"cluster-{number:04d}",
        "problem_key": f"key-{number:04d}",
        "trace_day": "2026-05-02",
        "weight": 1.0,
        "messages": json.dumps(messages(number), separators=(",", ":")),
        "tools": json.dumps(TOOLS, separators=(",", ":")),
    }


INPUTS = {
    "axis_a_corpus/2026-05-02": {"content_digest": "c" * 64, "table_version": 3},
    "leak_guarded_splits/2026-05-02": {"content_digest": "d" * 64, "table_version": 5},
}


def split_row(number: int, pool: str) -> dict[str, Any]:
    """A row of ``leak_guarded_splits``."""
    made = record(number)
    return {
        "trace_id": made["trace_id"],
        "day": "2026-05-02",
        "trace_day": made["trace_day"],
        "problem_key": made["problem_key"],
        "cluster_id": made["leak_cluster"],
        "pool": pool,
        "uses": ["sft", "kto_desirable"],
        "quality": 1.0,
        "category": ("product", "shop")[number % 2],
        "content_hash": f"hash-{number:04d}",
    }


def train_stage(window: Any, recipe: Any, root: Any, stage: str = "sft", **more: Any) -> Any:
    """A stage of a recipe on a window's corpus rows, as the platform trains it."""
    from trajectory_platform.training.launch import corpus_records, train_checkpoint, training_rows

    if "rows" not in more:
        train, _ = training_rows(window.splits, "sft")
        more["rows"] = corpus_records(train, more.pop("corpus", window.corpus))
    given = {"splits": window.splits, "inputs": INPUTS, "day": "2026-05-02", "seed": 7, **more}
    return train_checkpoint(stage=stage, recipe=recipe, checkpoint_root=root, **given)


def window(train: int = 16, dev: int = 6, sealed: int = 2) -> tuple[Any, Any]:
    """(splits, corpus columns) of one window as Arrow tables."""
    import pyarrow as pa

    from trajectory_platform.lake.tables import LEAK_GUARDED_SPLITS

    pools = ["train"] * train + ["dev"] * dev + ["sealed"] * sealed
    splits = [split_row(number, pool) for number, pool in enumerate(pools)]
    made = [record(number) for number in range(len(pools))]
    corpus = [{"day": row["trace_day"], **{key: row[key] for key in ("trace_id", "messages", "tools")}} for row in made]
    return pa.Table.from_pylist(splits, schema=LEAK_GUARDED_SPLITS.schema()), pa.Table.from_pylist(corpus)
