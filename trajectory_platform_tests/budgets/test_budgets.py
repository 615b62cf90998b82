"""Starting the platform stays cheap. What may not be loaded is asserted; the CPU seconds are CI's table
(``benchmarks/import_budgets.py``), because a number that depends on the neighbours' load fails good code."""

from __future__ import annotations

import pytest

from benchmarks import import_budgets as budgets


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (budgets.PACKAGE, ("dagster", *budgets.TRAINING, *budgets.SERVICES, *budgets.ENGINES)),
        (budgets.HELP, ("dagster", *budgets.TRAINING, *budgets.SERVICES, *budgets.ENGINES)),
        (budgets.DEFINITIONS, (*budgets.TRAINING, *budgets.SERVICES, "pandera")),
    ],
    ids=["package", "help", "definitions"],
)
def test_entry_point_loads_nothing_heavy(code: str, names: tuple[str, ...]) -> None:
    assert budgets.forbidden(budgets.measure(code, rounds=1), names) == ()


def test_a_heavy_module_is_noticed() -> None:
    found = budgets.measure("import trajectory_platform, wave, sys; sys.modules['torch'] = wave", rounds=1)
    assert budgets.forbidden(found, budgets.TRAINING) == ("torch",)


def test_code_that_fails_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        budgets.measure("1 / 0", rounds=1)


def test_cpu_time_is_the_child_s_own() -> None:
    spinning = budgets.measure("sum(range(6_000_000))", rounds=1)
    waiting = budgets.measure("import time; time.sleep(0.3)", rounds=1)
    assert waiting.cpu_s < spinning.cpu_s


@pytest.mark.parametrize(
    ("cpu_s", "loaded", "verdict", "failed"),
    [
        (0.4, (), "ok", False),
        (0.9, (), "over, within noise", False),
        (1.1, (), "over", True),
        (0.1, ("torch",), "loads torch", True),
    ],
)
def test_only_a_forbidden_module_or_twice_the_budget_fails(
    cpu_s: float, loaded: tuple[str, ...], verdict: str, failed: bool
) -> None:
    row = budgets.Row("x", cpu_s, 0.5, loaded)
    assert (row.verdict, row.failed) == (verdict, failed)
