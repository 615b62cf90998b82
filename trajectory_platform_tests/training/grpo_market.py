"""A market, problems, a tiny base model and scripted replies for the tests of reinforcement learning."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from trajectory_platform.evaluation.environment import Limits
from trajectory_platform.evaluation.generation import Generated, Wanted
from trajectory_platform.evaluation.rollout import run_episode
from trajectory_platform.sandbox.catalogue_index import build_index, open_world
from trajectory_platform.sandbox.problems import Problem, parse_problem, to_table
from trajectory_platform.sandbox.tools import TOOLS
from trajectory_platform.traces.rendering import chat_messages
from trajectory_platform.training.datasets import TraceRow
from trajectory_platform.training.recipe import Recipe, parse_recipe
from trajectory_platform.training.trained import Rows
from trajectory_platform_tests.evaluation import acting
from trajectory_platform_tests.sandbox.market import product

Call = tuple[str, dict[str, Any]]
Spoken = tuple[str, Sequence[Call]]  # a thought and calls

DOCUMENTS = [
    product("11", title="blue mug", price=120.0, attributes={"material": ["stoneware"]}, service=["COD"]),
    product("12", title="blue glass mug", price=180.0, attributes={"material": ["glass"]}),
    product("13", title="tea box", price=60.0, shop_id="s2"),
    product("14", title="tea pot", price=310.5, shop_id="s2"),
]
GOODS = (("11", "blue mug"), ("13", "tea box"), ("14", "tea pot"), ("12", "blue glass mug"))

RECIPE = """
name: grpo-test
hardware: {{threads: 1}}
model: {{base: {base}}}
context: {{max_length: {max_length}, reply_tokens: 48, max_result_chars: 300}}
min_traces: 1
stages:
  sft: null
  dr_grpo:
    parent: base
    optimiser: {{learning_rate: 0.001, warmup_share: 0.0, schedule: constant}}
    amount: {{max_steps: 2, batch: 4, micro_batch: 2}}
    group: 2
    limits: {{max_steps: 5, reply_tokens: 48}}
    clipped_action: warn
    zero_variance_action: warn
"""


def world_folder(root: Path) -> Path:
    return build_index(b"".join(orjson.dumps(one) + b"\n" for one in DOCUMENTS), root)


def problem(number: int) -> Problem:
    product_id, title = GOODS[number % len(GOODS)]
    item = {
        "problem_id": f"problem-{number}",
        "metadata": {
            "query": f"I want a {title}, number {number}",
            "category": "Product",
            "reward": {"product_id": product_id, "title": title, "price": [{"less than": [0, 400]}]},
        },
    }
    return parse_problem(item, suite_id="suite")


def straight(number: int) -> list[Spoken]:
    """The path of the teacher."""
    product_id, title = GOODS[number % len(GOODS)]
    return [
        ("search", [("find_product", {"q": title})]),
        ("look", [("view_product_information", {"product_ids": product_id})]),
        ("take it", [("recommend_product", {"product_ids": product_id})]),
        ("done", [("terminate", {"status": "success"})]),
    ]


def as_trained(said: Spoken) -> str:
    """A reply in the words of the chat template: what a model that was trained on it writes."""
    calls = [
        f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
        for name, arguments in said[1]
    ]
    return f"<think>\n{said[0]}\n</think>\n\n" + "\n".join(calls)


def as_miners(said: Spoken) -> str:
    """The same reply in a form that is read, but not written that way again."""
    calls = json.dumps([{"name": name, "parameters": arguments} for name, arguments in said[1]])
    return f"<think>{said[0]}</think><tool_call>{calls}</tool_call>"


def reference(number: int, folder: Path) -> list[dict[str, Any]]:
    """The messages of the teacher's attempt."""
    replies = [acting.spoken(thought, list(calls)) for thought, calls in straight(number)]
    task = acting.task(number, query=str(problem(number).query))
    found = run_episode(acting.Says(replies), task, open_world(folder), Limits(), clock=acting.clock(task))
    return found.environment.messages


def rows(count: int, folder: Path, *, grounded: Callable[[int], bool] = lambda number: True) -> Rows:
    """``prompt`` and ``reference`` rows as stages/attempted_problems.py makes them."""
    found: list[TraceRow] = []
    for number in range(count):
        one = problem(number)
        [row] = to_table([one], "2026-05-02").to_pylist()
        taught = {"trace_id": f"run:{number}", "messages": reference(number, folder)} if grounded(number) else None
        place = {"leak_cluster": f"lc-{number}", "problem_key": one.problem_key, "trace_day": "2026-05-02"}
        extra = {"problem": row, "category": "product", "reference": taught}
        asked = [{"role": "user", "content": one.query}]
        found.append(
            TraceRow(f"prompt:{one.problem_key}", messages=asked, tools=[], role="prompt", extra=extra, **place)
        )
        if taught is not None:
            found.append(
                TraceRow(taught["trace_id"], messages=taught["messages"], tools=TOOLS, role="reference", **place)
            )
    return Rows(sorted(found, key=lambda row: row.key), [])


def base_folder(root: Path, folder: Path, *, max_length: int = 2048) -> Path:
    """A tiny random model with a tokenizer that knows the real tool block as single tokens."""
    from trajectory_platform.training.model import build_model
    from trajectory_platform.training.tokenizer import build_tokenizer

    recipe = parse_recipe(
        "name: base\nmodel: {hidden: 32, layers: 1, heads: 2, kv_heads: 1, head_dim: 16, mlp: 64}\n"
        "tokenizer: {vocab: 700}\n"
    )
    chat = [(chat_messages(reference(number, folder)).messages, TOOLS) for number in range(len(GOODS))]
    tokenizer = build_tokenizer(chat, recipe)
    place = root / "base"
    build_model(recipe.model, tokenizer, max_length=max_length, seed=3).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def recipe_of(base: Path, *, max_length: int = 1024, **changes: Any) -> Recipe:
    """The test recipe; ``changes`` of the stage's part, by name."""
    recipe = parse_recipe(RECIPE.format(base=json.dumps(str(base)), max_length=max_length)).resolved(7)
    part = recipe.stage("dr_grpo")
    amount = {name: changes.pop(name) for name in ("max_steps", "batch", "micro_batch") if name in changes}
    told = {**part.model_dump(), **changes, "amount": {**part.amount.model_dump(), **amount}}
    stages = recipe.stages.model_copy(update={"dr_grpo": type(part).model_validate(told)})
    return recipe.model_copy(update={"stages": stages})


class Script:
    """In place of ``evaluation.generation.generate``: replies by problem and turn, as tokens.

    Args:
        says: (number of the problem, number of the turn, seed) -> the reply's text; None for one that never ends.
    """

    def __init__(self, tokenizer: Any, says: Callable[[int, int, int], str | None]) -> None:
        self.tokenizer, self.says = tokenizer, says
        self.asked: list[list[int]] = []

    def __call__(self, model: Any, wanted: Sequence[Wanted], *, end: int, pad: int, **_: Any) -> list[Generated]:
        made = []
        for one in wanted:
            self.asked.append(list(one.ids))
            text = self.tokenizer.decode(list(one.ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
            number = int(text.partition(", number ")[2].partition("<|im_end|>")[0])
            said = self.says(number, text.count("<|im_start|>assistant") - 1, one.seed)
            if said is None:
                ids = [self.tokenizer("word", add_special_tokens=False)["input_ids"][0]] * one.max_new
                made.append(Generated(ids, [-1.0] * len(ids), False))
            else:
                ids = [*self.tokenizer(said, add_special_tokens=False)["input_ids"], end]
                made.append(Generated(ids, [-0.5] * len(ids), True))
        return made
