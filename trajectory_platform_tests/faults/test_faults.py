"""Every kind of fault with its seeds: the default ones here, the others marked slow; ``benchmarks/fault_table.py``."""

from __future__ import annotations

import pytest

from trajectory_platform_tests.faults.oracle import NotHere
from trajectory_platform_tests.faults.table import KINDS, Kind

SLOW_SEEDS = 5  # of `make test-all`; the table has all
CASES = [
    pytest.param(kind, seed, id=f"{kind.name}-{seed}", marks=[] if seed < kind.default else [pytest.mark.slow])
    for kind in KINDS
    for seed in range(max(kind.default, min(SLOW_SEEDS, kind.long // 5)))
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_after_a_fault_nothing_is_partial_doubled_or_lost(
    kind: Kind, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    try:
        outcome = kind.fault(seed)
    except NotHere as reason:
        pytest.skip(str(reason))
    assert outcome.sound(), f"{kind.name}, seed {seed}, at {outcome.at}: {outcome}"


def test_the_table_has_what_was_asked_for() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 15
    assert all(kind.done and kind.promised and kind.long >= 5 for kind in KINDS)
