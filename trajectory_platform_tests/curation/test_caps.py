"""Caps: how many traces of one source stay on one problem, and which (issue 4 point 7; domain 6: 31)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from trajectory_platform.curation.agency import decide
from trajectory_platform.curation.caps import over_caps
from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.curation.corpus import Candidate

NO_CAPS = {"max_per_agent_problem": 0, "max_per_miner_problem": 0, "max_per_problem": 0}
AXIS = decide([], {"log_present": False, "log_problems": [], "notes": [], "events": [], "steps": 0, "calls": [],
                   "unreadable_entries": 0})  # fmt: skip


def _candidate(**values: Any) -> Candidate:
    given: dict[str, Any] = {
        "content_hash": "h",
        "order": ("", ""),
        "agent_version_id": "agent",
        "miner_hotkey": "miner",
        "problem_key": "p",
        "axis": AXIS,
        "judged": {},
        "verdict": {},
        "situation": "success_clean",
        "uses": ("sft", "kto_desirable"),
        "own_quality": 0.5,
        "strategy": "sc",
        "signature": "",
        "flags": (),
        "axis_source": "trace",
    }
    return Candidate(**{**given, **values})


def _capped(candidates: dict[str, Candidate], **options: int) -> dict[str, str]:
    found = over_caps(candidates, FilterConfig(**{**NO_CAPS, **options}))
    assert all(rejection.stage == "caps" and rejection.detail for rejection in found.values())
    return {name: rejection.reason for name, rejection in found.items()}


@pytest.mark.parametrize(
    ("option", "reason", "field"),
    [
        ("max_per_agent_problem", "cap_agent_problem", "agent_version_id"),
        ("max_per_miner_problem", "cap_miner_problem", "miner_hotkey"),
        ("max_per_problem", "cap_problem", "problem_key"),
    ],
)
def test_each_cap_counts_its_own_source_on_one_problem(option: str, reason: str, field: str) -> None:
    same = {f"t{n}": _candidate() for n in range(4)}
    for cap in range(1, 6):
        assert _capped(same, **{option: cap}) == {f"t{n}": reason for n in range(cap, 4)}
    assert _capped(same, **{option: 0}) == {}
    others = {f"t{n}": _candidate(**{field: f"x{n}"}) for n in range(4)}
    assert _capped(others, **{option: 1}) == {}
    assert _capped({name: one._replace(problem_key=f"p{name}") for name, one in same.items()}, **{option: 1}) == {}


def test_a_trace_without_agent_miner_or_problem_is_not_counted_there() -> None:
    for field in ("agent_version_id", "miner_hotkey", "problem_key"):
        unknown = {f"t{n}": _candidate(**{field: None}) for n in range(3)}
        option = {"agent_version_id": "max_per_agent_problem", "miner_hotkey": "max_per_miner_problem"}.get(
            field, "max_per_problem"
        )
        assert _capped(unknown, **{option: 1}) == {}


def test_good_examples_stay_before_better_weighted_ones_then_the_smaller_id() -> None:
    candidates = {
        "d": _candidate(own_quality=0.2),
        "c": _candidate(own_quality=0.9, uses=("kto_undesirable",)),
        "b": _candidate(own_quality=0.4),
        "a": _candidate(own_quality=0.2),
    }
    kept = [[name for name in candidates if name not in _capped(candidates, max_per_problem=cap)] for cap in (1, 2, 3)]
    assert kept == [["b"], ["b", "a"], ["d", "b", "a"]]


def test_a_trace_that_one_cap_removed_does_not_fill_the_next_one() -> None:
    candidates = {f"a{n}": _candidate(own_quality=0.9) for n in range(3)} | {"b0": _candidate(agent_version_id="other")}
    assert _capped(candidates, max_per_agent_problem=1, max_per_problem=2) == dict.fromkeys(
        ("a1", "a2"), "cap_agent_problem"
    )


def test_the_order_of_the_rows_does_not_matter() -> None:
    draw = random.Random(0)
    items = [
        (
            f"t{n}",
            _candidate(agent_version_id=f"a{n % 3}", miner_hotkey=f"m{n % 2}", own_quality=draw.choice([0.3, 0.6])),
        )
        for n in range(20)
    ]
    options = {"max_per_agent_problem": 3, "max_per_miner_problem": 4, "max_per_problem": 5}
    expected = _capped(dict(items), **options)
    assert {name for name, _ in items} - expected.keys() and len(set(expected.values())) == 3
    for _ in range(5):
        draw.shuffle(items)
        assert _capped(dict(items), **options) == expected
