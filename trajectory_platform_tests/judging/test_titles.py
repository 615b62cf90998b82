"""Title regimes and encoders: thresholds, the guard band, and what happens where a title has no vector."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.judging import outcome
from trajectory_platform.judging.embeddings import published_vectors
from trajectory_platform.judging.matching import find_rules, match_product
from trajectory_platform_tests.conftest import shared_folder
from trajectory_platform_tests.judging.dialogues import KETTLE, PRODUCTS, REWARD, dialogue, problem

REWARD_TITLE = REWARD["title"][0]
TWIN = {**KETTLE, "product_id": "9", "title": "kettle of steel"}
CATALOGUE = {**PRODUCTS, "9": TWIN}


def file_of(folder: Path, cosine: float, **more: list[float]) -> str:
    """A ``stored:FILE`` setting in which the twin's title has this cosine with the reward's."""
    vectors = {REWARD_TITLE: [2.0, 0.0], TWIN["title"]: [cosine, math.sqrt(1 - cosine * cosine)], **more}
    path = folder / "vectors.json"
    path.write_text(json.dumps(vectors))
    return f"stored:{path}"


def rule(encoder: str, regime: str, reward: dict[str, Any] = REWARD, product: dict[str, Any] = TWIN) -> Any:
    return match_product(product, reward, find_rules(regime, encoder))


@pytest.mark.parametrize(
    ("regime", "cosine", "similar"),
    [
        ("sn15", 0.7, True),  # equality in float32
        ("sn15", 0.6999, False),
        ("upstream", 0.5, True),
        ("upstream", 0.4999, False),
        ("sn15-guard", 0.72, True),
    ],
)
def test_thresholds_are_inclusive(tmp_path: Path, regime: str, cosine: float, similar: bool) -> None:
    matched = rule(file_of(tmp_path, cosine), regime)
    assert matched.rule == pytest.approx(1.0 if similar else 5 / 6) and matched.shares[0] == float(similar)


COLOUR_ONLY = {**REWARD, "sku_options": [{"colour": "blue"}], "attributes": [{"material": ["steel"]}]}


@pytest.mark.parametrize(
    ("reward", "cosine", "credited"),
    [
        (REWARD, 0.6, True),  # all else met, and a size is distinctive
        (REWARD, 0.5, True),
        (REWARD, 0.4999, False),
        ({**REWARD, "service": ["official"]}, 0.6, False),  # something else is missed
        (COLOUR_ONLY, 0.6, False),  # colour, material, price and service tell no product apart
        (COLOUR_ONLY, 0.72, True),  # outside the band nothing else is asked
    ],
)
def test_the_guard_band_is_credited_only_beside_a_distinctive_match(
    tmp_path: Path, reward: dict[str, Any], cosine: float, credited: bool
) -> None:
    assert rule(file_of(tmp_path, cosine), "sn15-guard", reward).shares[0] == float(credited)


@pytest.mark.parametrize("regime", ["sn15", "upstream", "sn15-guard"])
def test_without_an_encoder_the_title_constraint_disappears(regime: str) -> None:
    scored = outcome.score(dialogue("9"), problem("Product", REWARD), CATALOGUE, title_regime=regime)
    assert scored.success and scored.score["rule"] == 1.0 and scored.score["title"] == 0.0
    titled = problem("Product", {"product_id": "1", "title": [TWIN["title"]]})
    assert not outcome.score(dialogue("9"), titled, CATALOGUE, title_regime=regime).success  # nothing is left to meet


def test_a_title_without_a_vector_leaves_open_only_what_it_decides(tmp_path: Path) -> None:
    path = tmp_path / "few.json"
    path.write_text(json.dumps({"some other title": [1, 0]}))
    options = {"title_regime": "sn15", "title_encoder": f"stored:{path}"}
    undecided = outcome.score(dialogue("9"), problem("Product", REWARD), CATALOGUE, **options)
    assert (undecided.outcome, undecided.success, undecided.reason) == ("unscorable", None, "title_not_encoded")
    assert undecided.score["rule"] == 1.0 and undecided.lenient_success is None  # the reference's values
    dear = {**REWARD, "price": [{"less than": [None, 1]}]}
    assert outcome.score(dialogue("9"), problem("Product", dear), CATALOGUE, **options).outcome == "failure"
    assert outcome.score(dialogue(), problem("Product", REWARD), CATALOGUE, **options).success  # the same product
    same_text = {**CATALOGUE, "9": {**TWIN, "title": REWARD_TITLE}}  # a text is similar to itself, whatever the model
    assert outcome.score(dialogue("9"), problem("Product", REWARD), same_text, **options).success


def test_positions_are_open_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "few.json"
    path.write_text(json.dumps({"some other title": [1, 0]}))
    rewards = [REWARD, {"product_id": "5100000002", "title": ["Clay Pot"]}]
    options = {"title_regime": "sn15", "title_encoder": f"stored:{path}"}
    shop = problem("Shop", rewards)
    assert outcome.score(dialogue("9,5100000002"), shop, CATALOGUE, **options).reason == "title_not_encoded"
    assert outcome.score(dialogue("9,999"), shop, CATALOGUE, **options).outcome == "failure"


def test_vectors_of_two_lengths_are_never_compared(tmp_path: Path) -> None:
    encoder = file_of(tmp_path, 0.9)
    path = Path(encoder.partition(":")[2])
    path.write_text(json.dumps({REWARD_TITLE: [1.0, 0.0], TWIN["title"]: [1.0, 0.0, 0.0]}))
    assert rule(encoder, "sn15").unknown == 1


def test_upstream_fills_a_position_with_any_product_and_the_subnet_does_not() -> None:
    rewards = [REWARD, {"product_id": "1", "title": ["nothing like it"]}]
    shop = problem("Shop", rewards)
    for regime, filled in (("upstream", 1), ("sn15", 0)):
        scored = outcome.score(dialogue("5100000001,5100000002"), shop, PRODUCTS, title_regime=regime)
        assert scored.score["shop"] == filled and not scored.success


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "normalised-1/exact-1"),
        ({"encoder": "stored"}, "normalised-1/exact-1"),  # not used, not named
        ({"attributes": "folded"}, "normalised-1/folded-2"),
        ({"regime": "sn15"}, "sn15-1/none/exact-1"),
        ({"regime": "upstream", "encoder": "stored"}, "upstream-1/stored/exact-1"),
    ],
)
def test_the_rules_are_named_in_one_form(settings: dict[str, str], name: str) -> None:
    assert find_rules(**settings).name == name
    assert outcome.score(dialogue(), problem("Product", REWARD), PRODUCTS).rules == "normalised-1/exact-1"


def test_the_name_of_stored_vectors_is_their_content(tmp_path: Path) -> None:
    first = find_rules("sn15", file_of(tmp_path, 0.9)).name
    again = find_rules("sn15", file_of(tmp_path, 0.9)).name
    other = find_rules("sn15", file_of(tmp_path, 0.85)).name  # same path, other content
    assert first == again != other and first.startswith("sn15-1/stored@")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"regime": "embeddings"}, "normalised, sn15, sn15-guard, upstream"),
        ({"encoder": "magic"}, "sentence-transformers:FOLDER"),
        ({"encoder": "sentence-transformers"}, "sentence-transformers:FOLDER"),
        ({"attributes": "fuzzy"}, "exact, folded"),
        ({"regime": "sn15", "encoder": "stored:/no/such/file"}, "/no/such/file"),
        ({"regime": "sn15", "encoder": "sentence-transformers:/no/such/folder"}, "/no/such/folder"),
    ],
)
def test_wrong_rules_abort_and_say_what_to_use(settings: dict[str, str], said: str) -> None:
    with pytest.raises(Abort, match=said):
        find_rules(**settings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "names no title"),
        ('{"a": [0, 0]}', "no usable vector"),
        ('{"a": [1, "2"]}', "no usable vector"),
        ('{"a": [1, NaN]}', "no usable vector"),
        ('{"a": [true, 1]}', "no usable vector"),
        ('{"a": []}', "no usable vector"),
        ('[{"reward_title_embeddings": {"a": [1]}}, {"reward_title_embeddings": {"a": [2]}}]', "two vectors"),
    ],
)
def test_files_without_usable_vectors_abort(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "vectors.json"
    path.write_text(text)
    with pytest.raises(Abort, match=said):
        find_rules("sn15", f"stored:{path}")


def test_published_suites_are_read_in_every_shape() -> None:
    item = {"query": "q", "reward_title_embeddings": {"a": [1.0, 0.0], "b": ["no", "vector"]}}
    api = {"problem_id": "p", "metadata": {"reward_title_embeddings": {"c": [0.0, 1.0]}}}
    assert published_vectors([[item], {"suite": {}, "problems": [api, "odd"]}, None]) == {
        "a": [1.0, 0.0],
        "c": [0.0, 1.0],
    }
    twice = [[{"reward_title_embeddings": {"a": [value, 1.0]}}] for value in (0.5, 0.25)]
    assert published_vectors(twice) == published_vectors(twice[::-1]) == {"a": [0.25, 1.0]}


def test_the_published_sample_of_the_subnet_is_readable() -> None:
    path = shared_folder() / "samples" / "sn15_suites" / "problem_suite_v3.first_with_embedding.json"
    if not path.is_file():
        pytest.skip("shared/samples is not present")
    encoder = find_rules("sn15", f"stored:{path}").titles.encoder
    (title,) = published_vectors([json.loads(path.read_text("utf-8"))])
    assert encoder is not None and encoder.vector(title).shape == (1024,)  # type: ignore[union-attr]
