"""A judge's configuration is refused in one line when it is wrong, and never shows a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.judging.judge_asking import STOPS
from trajectory_platform.judging.judge_models import JudgeConfig, JudgeModel, is_llm, load_judge
from trajectory_platform.judging.judge_reply import REASONS
from trajectory_platform.judging.judge_router import FAILURES
from trajectory_platform.judging.judge_run import WITHHELD

GOOD = """
models:
  - {name: cheap, model: openai/small, api_base: "http://127.0.0.1:1/v1", free: true, concurrency: 4}
  - {name: dear, model: openai/large, usd_per_million_input: 2.5, usd_per_million_output: 10, api_key_env: BIG_KEY}
budget: {usd_per_day: 5, usd_per_run: 2, tokens_per_run: 1000000}
canaries: 3
"""


def written(tmp_path: Path, text: str, name: str = "judge.yaml") -> str:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return str(path)


def test_a_file_of_models(tmp_path: Path) -> None:
    config = load_judge(written(tmp_path, GOOD))
    assert [model.name for model in config.models] == ["cheap", "dear"] and config.canaries == 3
    assert config.models[1].cost(1_000_000, 100_000) == 3.5
    assert load_judge(written(tmp_path, config.model_dump_json(), "judge.json")) == config


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"free: true": "free: false"}, "prices"),
        ({"name: dear": "name: cheap"}, "one name"),
        ({"api_key_env: BIG_KEY": "api_key: sk-secret-1"}, "api_key"),
        ({"api_key_env: BIG_KEY": "api_key_env: sk-secret-1"}, "api_key_env"),
        ({"http://127.0.0.1:1/v1": "http://me:sk-secret-1@h/v1"}, "credentials"),
        ({"http://127.0.0.1:1/v1": "http://h/v1?key=sk-secret-1"}, "credentials"),
        ({"http://127.0.0.1:1/v1": "file:///sk-secret-1"}, "http"),
        ({"usd_per_million_input: 2.5": "usd_per_million_input: .nan"}, "finite"),
        ({"usd_per_million_input: 2.5": "usd_per_million_input: -1"}, "greater"),
        ({"canaries: 3": "canaries: 0"}, "canaries"),
        ({"canaries: 3": "canarys: 3"}, "canarys"),
        ({"concurrency: 4": "concurrency: 0"}, "concurrency"),
        ({"models:": "nothing:"}, "models"),
        ({GOOD: "[]"}, "mapping"),
        ({GOOD: "{"}, "YAML"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_file_is_refused_in_one_line_without_secrets(
    tmp_path: Path, change: dict[str, str], words: str
) -> None:
    text = GOOD
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(Abort) as caught:
        load_judge(written(tmp_path, text))
    told = str(caught.value)
    assert words in told and "\n" not in told and "sk-secret" not in told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD + "budget: {}\n", "'budget' stands twice"),
        (GOOD.replace("usd_per_million_input: 2.5", "usd_per_million_input: true"), "true is no number"),
        (GOOD.replace("usd_per_day: 5", "usd_per_day: no"), "false is no number"),
    ],
    ids=["two-budgets", "price-true", "budget-no"],
)
def test_no_price_or_limit_is_lost_or_taken_from_a_truth_value(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(Abort, match=words):
        load_judge(written(tmp_path, text))


def test_e14_a_model_without_a_price_is_refused_unless_marked_free() -> None:
    with pytest.raises(Abort, match="needs both prices"):
        load_judge("openai/judge-unknown", api_base="https://example.org/v1")
    with pytest.raises(Abort, match="needs both prices"):
        load_judge("openai/judge-unknown", usd_per_million_input=1.0)
    assert load_judge("openai/x", api_base="http://127.0.0.1:8000/v1").models[0].free


@pytest.mark.parametrize("judge", ["rules", "validator", "", "gpt", "missing.yaml"])
def test_names_that_are_no_llm_judge(judge: str) -> None:
    with pytest.raises(Abort):
        load_judge(judge)
    assert is_llm(judge) == (judge not in ("rules", "validator"))


def test_identity_follows_what_may_change_an_answer_and_nothing_else() -> None:
    def config(**options: Any) -> str:
        return JudgeConfig(models=(JudgeModel(name="m", model="openai/m", free=True, **options),)).identity()

    for same in ({"concurrency": 3}, {"timeout_s": 3}, {"requests_per_minute": 3}, {"api_key_env": "K"}):
        assert config(**same) == config()
    for other in ({"temperature": 1}, {"max_tokens": 99}, {"structured_output": "none"}, {"api_base": "http://h/v1"}):
        assert config(**other) != config()


def test_the_documentation_shows_a_file_that_loads_and_every_reason(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "judging.md").read_text("utf-8")
    example = text.split("```yaml\n")[1].split("```")[0]
    assert len(load_judge(written(tmp_path, example)).models) == 2
    told = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert sorted(told) == sorted({*REASONS, *FAILURES, *STOPS, *WITHHELD})
    for reason, meaning in {**FAILURES, **REASONS, **STOPS, **WITHHELD}.items():
        assert meaning in text, reason
