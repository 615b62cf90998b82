"""Strategy fingerprints: section 6 item 43."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import orjson
import pytest

from trajectory_platform.curation.strategy import fingerprint
from trajectory_platform_tests.judging.dialogues import call, messages_of, step
from trajectory_platform_tests.judging.shared_days import DAYS, DAYS_FOLDER, judged_day, truth


def _messages(*turns: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return messages_of([step(n, "t", *(call(name, args, "r") for name, args in turn)) for n, turn in enumerate(turns)])


def _find(**parameters: Any) -> tuple[str, dict[str, Any]]:
    return "find_product", {"q": "pot", **parameters}


END = [("recommend_product", {"product_ids": "1"}), ("terminate", {"status": "success"})]


def test_the_template_names_tools_and_explicit_parameters() -> None:
    messages = _messages(
        [_find(page=1, price="1-2", sort="order"), _find(page=2)],
        [("view_product_information", {"product_ids": "1, 2,"})],
        [],
        END,
    )
    assert fingerprint(messages).template == "find(page,price,sort=order)+find(page)>view(2)>->recommend+terminate"


def test_words_prices_shops_and_the_number_of_items_do_not_change_the_cluster() -> None:
    one = _messages([_find(page=1, price="1-2")], [("view_product_information", {"product_ids": "1,2"})], END)
    other = _messages(
        [("find_product", {"q": "a blue tent", "page": 3})],
        [_find(page=1, shop_id="9", service="COD")],
        [("view_product_information", {"product_ids": "4,5,6"})],
        END,
    )
    assert fingerprint(one).cluster == fingerprint(other).cluster
    assert fingerprint(one).template != fingerprint(other).template


def test_habits_of_the_author_do() -> None:
    plain = _messages([_find()], END)
    clusters = {
        fingerprint(messages).cluster
        for messages in (
            plain,
            _messages([_find(page=1)], END),
            _messages([_find(sort="order")], END),
            _messages([_find(), _find()], END),
            _messages([_find()], END[:1], END[1:]),
        )
    }
    assert len(clusters) == 5


@pytest.mark.skipif(not DAYS_FOLDER.is_dir(), reason="shared/days is not present")
def test_copied_strategies_of_the_shared_days_share_clusters_with_nobody_else() -> None:
    groups: dict[str, set[str | None]] = defaultdict(set)
    found: dict[str | None, set[str]] = defaultdict(set)
    for day in DAYS:
        for batch in judged_day(day).batches:
            for row in batch.select(["trace_id", "messages", "malformed", "repairs"]).to_pylist():
                label = truth()[row["trace_id"]]
                strategy = fingerprint(orjson.loads(row["messages"]))
                groups[strategy.cluster].add(label["strategy_group"])
                found[label["strategy_group"]].add(strategy.cluster)
                if label["malformed"] is None:
                    assert strategy.template == label["strategy_template"], row["trace_id"]
    assert all(len(names) == 1 for names in groups.values())
    for group in set(found) - {None}:
        assert len(found[group]) <= 2
