"""Generated variants join, strangers with their boilerplate do not: ``benchmarks/leak_variants.py`` with one seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.leak_variants import KINDS, measure


def check(samples: Path, simulated: int, least: int) -> None:
    report, exact = measure(11, samples, simulated, strangers=simulated)
    assert report["variants"] >= least
    assert {name.partition("/")[0] for name in report["joined_of_made"]} == set(KINDS)
    assert all(len(set(count.split("/"))) == 1 for count in report["joined_of_made"].values()), report
    assert report["strangers_joined"] == 0
    assert exact, report


def test_variants_of_simulated_problems(tmp_path: Path) -> None:
    check(tmp_path / "none", 80, 900)


@pytest.mark.slow
def test_variants_of_published_and_simulated_problems(shared: Path) -> None:
    """Recall and precision of 1 over more than 5,000 variants."""
    check(shared / "samples", 300, 5_000)
