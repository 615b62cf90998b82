"""The configured LLM judge on attempts we generate: values gate, silence leaves holes, nothing is paid twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trajectory_platform.judging.judge_models import JudgeBudget, JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_router import CallFailure, RawReply
from trajectory_platform.training.generated_rows import Generated
from trajectory_platform.training.grounding import llm_judge
from trajectory_platform.training.stage_recipes import Acceptance
from trajectory_platform_tests.training.attempts import made, problem, shopping

MODEL = JudgeModel(name="m", model="openai/m", usd_per_million_input=2.0, usd_per_million_output=8.0)
GATED = Acceptance(min_reasoning=0.7)


class Endpoint:
    """Answers from a function of the user message."""

    def __init__(self, answer: Callable[[str], float]) -> None:
        self.answer, self.texts = answer, list[str]()

    async def ask(self, model: JudgeModel, messages: Sequence[dict[str, str]]) -> RawReply:
        self.texts.append(messages[1]["content"])
        quality = self.answer(messages[1]["content"])
        return RawReply(json.dumps({"reasoning_quality": quality}), "stop", 1000, 100)


def judged(folder: Path, answer: Callable[[str], float], **options: Any) -> tuple[Generated, Endpoint]:
    endpoint = Endpoint(answer)
    config = JudgeConfig(models=(MODEL,), entrance_canaries=1, canaries=1, **options)
    judge = llm_judge(config, lambda _: endpoint, folder, "generated-resft-2026-05-02")
    tries = [(problem(), 0, shopping()), (problem(), 1, shopping(search="mug")), (problem(1), 0, shopping(take="12"))]
    return made(tries, GATED, judge=judge), endpoint


def about_attempts(endpoint: Endpoint) -> list[str]:
    return [text for text in endpoint.texts if "stoneware" in text]


def by_attempt(found: Generated) -> list[tuple[Any, ...]]:
    rows = sorted(found.table.to_pylist(), key=lambda row: (row["problem_key"], row["sample"]))
    return [(row["reason"], row["reasoning_quality"], row["judge_kind"]) for row in rows][:2]


def test_its_values_gate_and_it_sees_no_attempt_that_is_out_already(tmp_path: Path) -> None:
    found, endpoint = judged(tmp_path, lambda text: 0.5 if re.search(r'q[\\":]+mug', text) else 0.7)
    assert len(about_attempts(endpoint)) == 2 and found.complete
    assert by_attempt(found) == [(None, 0.7, "llm"), ("low_reasoning", 0.5, "llm")]


def test_a_second_run_asks_nothing_about_the_same_attempts(tmp_path: Path) -> None:
    first, _ = judged(tmp_path, lambda _: 0.7)
    second, endpoint = judged(tmp_path, lambda _: 0.1)
    assert not endpoint.texts and by_attempt(second) == by_attempt(first)
    assert first.summary["accepted"] == 2


def test_without_a_value_nothing_is_accepted_and_the_stage_stays_open(tmp_path: Path) -> None:
    def down(_: str) -> float:
        raise CallFailure("unauthorised", "no")

    found, _ = judged(tmp_path, down)
    assert not found.complete and found.summary["accepted"] == 0
    assert found.summary["reasons"]["not_judged"] == 2


def test_a_budget_of_nothing_leaves_the_attempts_unjudged(tmp_path: Path) -> None:
    found, endpoint = judged(tmp_path, lambda _: 0.9, budget=JudgeBudget(usd_per_day=0.0))
    assert not endpoint.texts and found.summary["reasons"]["not_judged"] == 2 and not found.complete
