"""Two versions of the attribute rule (domain 2.2)."""

from __future__ import annotations

from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.judging.attributes import attribute_rule, is_distinctive, wanted_pairs


def met(rule: str, asked: tuple[Any, Any], offered: tuple[Any, Any], place: str = "attributes") -> bool:
    """Whether a product that offers one pair meets one that is asked for."""
    key, value = offered
    product = {"attributes": {key: [value]}} if place == "attributes" else {"sku_options": {"1": {key: value}}}
    return attribute_rule(rule).best([asked], product) == 1


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        (("color family", "blue"), ("color_family", "blue")),  # underscore
        (("Color Family", "Blue"), ("color family", "BLUE")),  # case
        (("colorfamily", "blue"), ("color-family", "blue")),
        (("flavors", "vanilla"), ("flavor", "vanilla")),  # plural
        (("size (cm)", "10"), ("size cm", "10")),  # brackets in a key
        (("color", "7*9cm 10pcs"), ("color", "7*9cm\u301010pcs\u3011")),  # and in a value
        (("color", "\uff22lue"), ("color", "blue")),  # compatible characters
        (("size", "48mm"), ("size", "(1pcs) 2#- 48mm")),  # words in order
        (("material", "genuine leather"), ("material", "genuine suede leather")),
        (("size", "eu:38"), ("size", "eu: 38")),
        (("color family", "blue"), ("color", "blue")),  # another name of the key
        (("colour", "blue"), ("color_family", "blue")),
        (("size", "m"), ("size", "Medium")),  # size letters
        (("size", "int: medium"), ("size", "int:m")),
        (("size", "xl"), ("size", "xlarge")),
        (("compatibility by model", "for vivo y02a"), ("compatibility_by_model", "vivo y02a")),
        (("compatibility", "vivo y02a"), ("compatibility", "compatible with vivo y02a")),
        (("compatibility_by_model", "fits vivo y02a"), ("compatibility_by_model", "vivo y02a, y16")),
        (("capacity", 10), ("capacity", "10")),
        (("size", "case blue 5"), ("size", "case blue 3 / blue 5")),  # a later place where the number does follow
        (("size", "20 x 30"), ("size", "2 pcs 20 x 30 cm")),
    ],
)
def test_folding_meets_what_only_the_spelling_told_apart(asked: tuple[Any, Any], offered: tuple[Any, Any]) -> None:
    for place in ("attributes", "sku_options"):
        assert met("folded", asked, offered, place)
        assert not met("exact", asked, offered, place)


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        (("size", "43"), ("size", "42")),
        (("size", "48mm"), ("size", "50mm")),
        (("ram", "8gb"), ("ram", "128gb")),  # a part of a word is no word
        (("size", "5"), ("size", "1.5l")),  # a part of a number is no number
        (("size", "206"), ("size", "11,206")),
        (("color", "blue"), ("color", "black")),
        (("model", "2023"), ("model", "2024")),
        (("color", "v1 red lining"), ("color", "v1 black lining")),
        (("color", "yellow-24inch"), ("color", "yellow")),  # the offer says less
        (("material", "leather suede"), ("material", "suede leather")),  # another order
        (("color", "\u9ed1\u8272 5"), ("color", "\u7ea2\u8272 5")),  # words of any script count
        (("color family", "blue"), ("color", "light blue")),  # across names of a key only an equal value
        (("size", "large"), ("style", "large")),  # keys that are no names of one another
        (("voltage", "4 modes 12v"), ("color", "4 modes 12v")),
        (("ring size", "m"), ("ring size", "medium")),  # letters mean other things there
        (("size", "l x w x h"), ("size", "large x w x h")),
        (("size", "5 l"), ("size", "5 large")),
        (("feature", "for indoor use"), ("feature", "indoor use")),  # only compatibility keys lose their "for"
        (("compatibility", "for vivo y02a"), ("compatibility", "vivo y16")),
        (("color", "red"), ("color", ".")),
        (("color", ""), ("color", "red")),
        (("weight", "1 kg"), ("weight", "1 x 10 kg")),  # no other number between a number and its unit
        (("weight", "5 kg"), ("weight", "5-10 kg")),
        (("capacity", "2 l"), ("capacity", "2 pcs 5 l")),
        (("size", "20 x 30"), ("size", "20 x 40 x 30")),
        (("ages", "2-4"), ("ages", "2-6, 4")),
        (("model", "iphone 1"), ("model", "iphone 15 pro 1")),
    ],
)
def test_what_differs_stays_different(asked: tuple[Any, Any], offered: tuple[Any, Any]) -> None:
    assert not met("folded", asked, offered) and not met("exact", asked, offered)


@pytest.mark.parametrize("rule", ["exact", "folded"])
def test_the_best_single_option_counts_together_with_the_attributes(rule: str) -> None:
    product = {
        "attributes": {"material": ["steel"], "note": None, "brand": "b"},
        "sku_options": {"1": {"color": "red", "size": "1l"}, "2": {"color": "blue"}, "3": None},
    }
    wanted = [("material", "steel"), ("brand", "b"), ("color", "blue"), ("size", "1l")]
    assert attribute_rule(rule).best(wanted, product) == 3
    assert attribute_rule(rule).best(wanted, {"sku_options": [], "attributes": "."}) == 0


@pytest.mark.parametrize("value", ["steel", "x", "", "5", "a b"])
def test_what_is_exactly_equal_is_met_by_both(value: str) -> None:
    assert met("exact", ("k", value), ("k", value)) and met("folded", ("k", value), ("k", value))


def test_constraints_are_listed_one_by_one_and_text_is_no_list() -> None:
    reward = {"sku_options": [{"color": "red", "size": "m"}], "attributes": [{"material": ["a", "b"]}]}
    assert wanted_pairs(reward) == [("color", "red"), ("size", "m"), ("material", "a"), ("material", "b")]
    with pytest.raises(TypeError):
        wanted_pairs({"attributes": [{"material": "steel"}]})


@pytest.mark.parametrize(
    ("key", "distinctive"),
    [("size", True), ("brand", True), ("Color Family", False), ("colour", False), ("cookware_material", False)],
)
def test_colour_and_material_tell_no_product_apart(key: str, distinctive: bool) -> None:
    assert is_distinctive(key) is distinctive


def test_an_unknown_rule_aborts() -> None:
    with pytest.raises(Abort, match="exact, folded"):
        attribute_rule("fuzzy")
