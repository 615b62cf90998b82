"""Opening a policy by its spec: identities without secrets, one clear line for a wrong one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.policies import Price, Sampling, open_policy, parse_spec
from trajectory_platform.evaluation.policy_endpoint import EndpointPolicy
from trajectory_platform.evaluation.policy_sampling import turn_seed
from trajectory_platform_tests.evaluation.policy_requests import task


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("script:search_and_check", "script:search_and_check@1"),
        ("script:random_browser", "script:random_browser@1"),
        ("endpoint:https://api.example.com/v1#org/model-7", "endpoint:https://api.example.com/v1#org/model-7|greedy"),
    ],
)
def test_names(spec: str, name: str) -> None:
    assert open_policy(spec).name == name


def test_what_changes_the_answers_changes_the_name() -> None:
    names = [
        open_policy("endpoint:http://h/v1#m").name,
        open_policy("vllm:http://h/v1#m").name,
        open_policy("endpoint:http://h/v1#m", sampling=Sampling(temperature=0.7)).name,
        open_policy("endpoint:http://h/v1#m", sampling=Sampling(temperature=0.7, seed=1)).name,
        open_policy("endpoint:http://h/v1#m", sampling=Sampling(max_tokens=5)).name,
        open_policy("endpoint:http://h/v1#m", body={"top_k": 3}).name,
        open_policy("script:random_browser", form="native").name,
        open_policy("script:random_browser").name,
    ]
    assert len(set(names)) == len(names)


def test_a_price_is_that_of_the_model_named() -> None:
    for model, priced in (("m", True), ("n", False)):
        policy = open_policy(f"endpoint:http://h/v1#{model}", prices={"m": Price(1, 2)})
        assert isinstance(policy, EndpointPolicy) and policy.priced is priced


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "no folder"),
        ("gpt-4", "no folder"),
        ("/nowhere/at/all", "no folder"),
        ("checkpoint:", "nothing after the colon"),
        ("checkpoint:/nowhere", "no folder"),
        ("script:", "nothing after the colon"),
        ("script:os.system", "search_and_check"),
        ("endpoint:http://h/v1", "names its model"),
        ("endpoint:http://h/v1#", "names its model"),
        ("endpoint:#m", "URL is http"),
        ("endpoint:http://u:secret@h/v1#m", "credentials"),
        ("http://h/v1#m", "endpoint:URL#MODEL"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line(spec: str, words: str) -> None:
    with pytest.raises(Abort, match=words) as raised:
        open_policy(spec)
    assert "\n" not in str(raised.value) and "secret" not in str(raised.value)


def test_folders_that_are_no_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(Abort, match=r"recipe\.yaml; pass a context"):
        open_policy(str(tmp_path))
    (tmp_path / "recipe.yaml").write_text("context: {max_length: 512, reply_tokens: 64}\n", "utf-8")
    with pytest.raises(Abort, match="no model can be read") as raised:
        open_policy(f"checkpoint:{tmp_path}")
    assert "\n" not in str(raised.value)


def test_the_path_of_a_folder_is_a_checkpoint(tmp_path: Path) -> None:
    assert parse_spec(str(tmp_path)) == ("checkpoint", str(tmp_path))
    assert parse_spec("vllm:http://h/v1#m") == ("vllm", "http://h/v1#m")


@pytest.mark.parametrize(
    "values", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"top_p": 1.5}, {"max_tokens": 0}]
)
def test_impossible_sampling_is_wrong_use(values: dict[str, float]) -> None:
    with pytest.raises(Abort):
        Sampling(**values)  # type: ignore[arg-type]


def test_seeds_differ_in_everything_that_names_a_turn() -> None:
    seeds = {
        turn_seed(task(number, sample=sample, seed=seed), turn, policy)
        for number in range(3)
        for sample in range(3)
        for seed in range(3)
        for turn in range(3)
        for policy in range(3)
    }
    assert len(seeds) == 3**5
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_nothing_heavy_is_loaded_by_importing() -> None:
    code = (
        "import sys, trajectory_platform.evaluation.policies, trajectory_platform.evaluation.policy_transformers\n"
        "import trajectory_platform.evaluation.example_scripts\n"
        "heavy = {'torch', 'transformers', 'litellm', 'openai', 'httpx', 'tenacity', 'numpy'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
