"""Medium edges: requests that are the same though they name other products, and requests that only look alike."""

from __future__ import annotations

import random
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.splits.constraints import Match, fold_pair, fold_title, matches, points, spec_of

Reward = dict[str, Any]
TITLE = "Sweet Spot Sanded Carbon Fiber Pickleball Paddle"


def asked(product: str, title: str = TITLE, *, price: Any = None, service: Any = None, **pairs: Any) -> Reward:
    """A reward item; ``color`` and ``size`` are options, the others attributes."""
    options = {key: value for key, value in pairs.items() if key in ("color", "size")}
    attributes = [{key: [value]} for key, value in pairs.items() if key not in options]
    found: Reward = {"product_id": product, "title": [title], "sku_options": [options], "attributes": attributes}
    return found | ({"price": price} if price else {}) | ({"service": service} if service else {})


def joined(left: list[Reward], right: list[Reward]) -> list[Match]:
    return matches([("old", spec_of(left)), ("new", spec_of(right))])


FULL = asked("1", brand="joola", material="carbon fiber", weight="7.8 oz", color="red", price=[{"between": [400, 900]}])

SAME: dict[str, list[Reward]] = {
    "relisted": [{**FULL, "product_id": "2"}],
    "pair_order": [{**FULL, "product_id": "2", "attributes": FULL["attributes"][::-1]}],
    "subset": [{**FULL, "product_id": "2", "attributes": FULL["attributes"][:2], "sku_options": []}],
    "each_drops_another": [asked("2", brand="joola", weight="7.8 oz", grip="4 inch")],
    "no_price": [{name: value for name, value in FULL.items() if name != "price"} | {"product_id": "2"}],
    "restated_price": [{**FULL, "product_id": "2", "price": [{"greater than": [350, None]}]}],
    "other_service": [{**FULL, "product_id": "2", "service": ["COD"]}],
    "one_pair_and_the_price": [asked("2", brand="joola", price=[{"between": [400, 900]}])],
    "in_a_longer_list": [asked("3", "another thing of another kind", color="red"), {**FULL, "product_id": "2"}],
    "spelled_otherwise": [
        asked(
            "2",
            unicodedata.normalize("NFD", TITLE.upper().replace(" ", "\u00a0")),
            Brand="ＪＯＯＬＡ",
            MATERIAL="Carbon\u200b Fiber",
            color="Red",
            weight="7.8  oz",
        )
    ],
}


@pytest.mark.parametrize("how", sorted(SAME))
def test_one_request_for_another_product_joins(how: str) -> None:
    found = joined([FULL], SAME[how])
    assert [(match.left, match.right) for match in found] == [("old", "new")]
    assert 0 < found[0].value <= 1
    assert found[0].evidence.startswith(f"title={TITLE.lower()}; ")


OTHER: dict[str, list[Reward]] = {
    "the_same_product": [FULL],  # its product_id edge says it
    "one_shared_pair_of_several": [asked("2", color="red")],
    "another_colour": [{**FULL, "product_id": "2", "sku_options": [{"color": "blue"}]}],
    "prices_that_exclude_one_another": [{**FULL, "product_id": "2", "price": [{"less than": [0, 399]}]}],
    "another_title": [{**FULL, "product_id": "2", "title": ["Carbon Fiber Ping Pong Paddle for Kids"]}],
    "title_alone_against_pairs": [asked("2")],
}


@pytest.mark.parametrize("how", sorted(OTHER))
def test_what_only_looks_alike_does_not_join(how: str) -> None:
    assert joined([FULL], OTHER[how]) == []


def test_copied_titles_of_the_shared_days_stay_apart() -> None:
    """Two pairs of those days have one title, one shared pair and different targets."""
    title = "Lumo Non Slip Natural Rubber Yoga Mat for Kids and Adults"
    long = asked("1", title, color="pink", material="natural rubber", sport_features="non-slip")
    assert joined([long], [asked("2", title, sport_features="non-slip")]) == []


def test_boilerplate_joins_nothing_however_often_it_is_repeated() -> None:
    """Four black things with free shipping, in one price band: the shape of many problems."""
    terms = {"price": [{"between": [100, 200]}], "service": ["freeShipping", "COD"]}
    plain = {"color": "black", "size": "int:l", "pattern": "plain", "brand": "oem"}
    left = [asked(f"1{n}", f"first kind of thing number {n}", **terms, **plain) for n in range(4)]
    right = [asked(f"2{n}", f"second sort of object number {n}", **terms, **plain) for n in range(4)]
    assert joined(left, right) == []


def test_constraints_that_tell_enough_join_without_a_title() -> None:
    """A phone by its data sheet (shop row 105 of the benchmark); a subset of it too, a few common features not."""
    phone = {
        "model": "realme 14 pro plus 5g", "battery_capacity": "6000 mah", "type_of_battery": "lithium polymer battery",
        "camera_front": "32 mp", "phone_features": "gps", "number_of_camera": "triple", "video_resolution": "1080p",
    }  # fmt: skip
    common = {name: phone[name] for name in ("phone_features", "number_of_camera", "video_resolution")}
    left = [asked("1", "Realme phone with official store warranty", **phone)]
    assert joined(left, [asked("2", "Brand new unit sealed in box", **phone)])
    assert joined(left, [asked("2", "Brand new unit sealed in box", **dict(list(phone.items())[:5]))])
    assert not joined(left, [asked("2", "Brand new unit sealed in box", **common)])
    unnamed = {name: value for name, value in phone.items() if name != "model"} | {"sim_slots": "2", "weight": "190 g"}
    assert not joined([asked("1", "Some phone with official warranty", **unnamed)], [asked("2", "Unit", **unnamed)])
    changed = dict(list(phone.items())[:5]) | {"camera_front": "16 mp"}
    assert not joined(left, [asked("2", "Brand new unit sealed in box", **changed)])


def test_two_shared_titles_tie_problems_of_several_items() -> None:
    first, second = "Wooden Sword Stand Display Holder", "Hss Taper Pipe Tap Thread Cutting Tool"
    left = [asked("1", first, color="red"), asked("2", second, material="steel")]
    right = [asked("3", second, size="g1/4"), asked("4", first)]
    assert len(joined(left, right)) == 1
    assert joined(left, right[:1]) == []


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("color_family", "Black"), ("Colour", "black")),
        (("color family", "BLACK "), ("color classification", "black")),
        (("size", "int: XL"), ("Size", "xlarge")),
        (("size", "EU: 42"), ("plate_size", "eu:42")),
        (("Leather Material", "PU"), ("material", "pu")),
        (("compatibility by model", "Oppo A37"), ("model", "oppo\u00a0a37")),
    ],
)
def test_one_property_has_one_name(left: tuple[str, str], right: tuple[str, str]) -> None:
    assert fold_pair(*left) == fold_pair(*right)


def test_underscores_stand_between_the_words_of_a_title() -> None:
    assert fold_title("Cast_Iron_Teapot - black") == fold_title("cast iron teapot (Black)")


@pytest.mark.parametrize(("left", "right"), [("eu:42", "us:42"), ("int:m", "int:l"), ("42", "eu 42")])
def test_sizes_that_differ_stay_different(left: str, right: str) -> None:
    assert fold_pair("size", left) != fold_pair("size", right)


@pytest.mark.parametrize(
    "same",
    [
        ("heavy-duty", "Heavy Duty", "heavy_duty", '"heavy duty"', "\u201cheavy\u2011duty\u201d"),
        ("500ml", "500 ml", "500 ML", "'500ml'"),
        ('12"', "12 inch", "12-inch", "12 inches", "12in", "12\u2033"),
        ("black/white", "black-white", "black white"),
        ("men's", "mens", "men\u2019s"),
        ("n/a", "N/A", "n-a"),
    ],
    ids=lambda same: same[1].replace(" ", "-").lower(),
)
def test_marks_between_the_words_of_a_value_are_spelling(same: tuple[str, ...]) -> None:
    assert len({fold_pair("type", value) for value in same}) == 1


def test_marks_and_units_that_mean_something_stay() -> None:
    values = ("10-20", "10 20", "1020", "1/2", "12", "1.5l", "15l", "-5", "5", "5v", "5w", "5in", "5cm", "-", "'")
    assert len({fold_pair("type", value) for value in values}) == len(values)
    assert points(fold_pair("warranty", "N/A")) == 0, "boilerplate is known in its folded form"


def test_what_a_pair_tells_is_fixed() -> None:
    told = {"color=black": 0, "brand=oem": 0, "color=blue": 1, "model=realme 14": 2, "material=304 stainless steel": 2}
    assert {pair: points(pair) for pair in told} == told


def test_rewards_of_unusual_shape_are_read_as_far_as_they_go() -> None:
    """A web reward is a whole product document: its options are alternatives, its price no bound (domain 4.2)."""
    (document,) = spec_of(
        [
            {
                "product_id": 7,
                "title": "Heart String Violin Bow",
                "price": 379.0,
                "sku_options": {"1": {"color_family": "black"}},
                "attributes": {"sleeves": ["short sleeve"], "season": None, "n": True},
                "service": [],
            }
        ]
    )
    assert (document.pairs, document.priced) == (frozenset({"sleeve=short sleeve"}), False)
    (odd,) = spec_of([{"product_id": "8", "price": [{"between": ["a", None]}, 5], "attributes": "x", "service": 3}])
    assert (odd.title, odd.pairs, odd.priced) == ("", frozenset(), False)


# ------------------------------------------------------------------------------------------- properties

_TITLES = st.sampled_from([f"{word} made of some {stuff} thing" for word in "abc" for stuff in "xyz"])
_PAIRS = st.dictionaries(
    st.sampled_from(["color", "size", "brand", "model", "material", "style"]), st.sampled_from("uvw"), max_size=6
)
_LOW = st.integers(0, 20)
_ITEMS = st.lists(st.tuples(st.integers(0, 60).map(str), _TITLES, _PAIRS, _LOW), min_size=1, max_size=3)
_SPECS = st.lists(_ITEMS, min_size=2, max_size=14)


def drawn_spec(items: list[tuple[str, str, dict[str, str], int]]) -> list[Reward]:
    return [asked(one, title, price=[{"between": [low, low + 8]}], **pairs) for one, title, pairs, low in items]


def groups(found: list[Match], names: list[str]) -> set[frozenset[str]]:
    home = {name: {name} for name in names}
    for match in found:
        both = home[match.left] | home[match.right]
        for name in both:
            home[name] = both
    return {frozenset(some) for some in home.values()}


@given(_SPECS, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_item_and_pair_order_change_nothing(drawn: list[Any], chance: random.Random) -> None:
    rewards = [drawn_spec(items) for items in drawn]
    turned = [chance.sample(reward, len(reward)) for reward in rewards]
    for reward in turned:
        for item in reward:
            item["attributes"] = chance.sample(item["attributes"], len(item["attributes"]))
    assert [spec_of(reward) for reward in rewards] == [spec_of(reward) for reward in turned]


@given(_SPECS)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_more_problems_take_no_edge_back(drawn: list[Any]) -> None:
    """Groups of the first problems are whole in the groups of all: no frequency is read."""
    specs = [(f"p{number:02}", spec_of(drawn_spec(items))) for number, items in enumerate(drawn)]
    for count in range(2, len(specs)):
        before = groups(matches(specs[:count]), [key for key, _ in specs[:count]])
        after = groups(matches(specs), [key for key, _ in specs])
        assert all(any(some <= more for more in after) for some in before)


@given(_SPECS)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_the_indexes_find_what_comparing_all_pairs_finds(drawn: list[Any]) -> None:
    """Together with the product ids, whose edges the equal requests rely on."""
    specs = [(f"p{number:02}", spec_of(drawn_spec(items))) for number, items in enumerate(drawn)]
    names = [key for key, _ in specs]
    by_product = [
        Match(one, two, 1.0, "product")
        for one, left in specs
        for two, right in specs
        if one < two and {item.product_id for item in left} & {item.product_id for item in right}
    ]
    every = [match for i, one in enumerate(specs) for two in specs[i + 1 :] for match in matches([one, two])]
    assert groups([*by_product, *matches(specs)], names) == groups([*by_product, *every], names)


@given(st.text(max_size=30))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_folding_a_title_again_changes_nothing(text: str) -> None:
    assert fold_title(fold_title(text)) == fold_title(text)
