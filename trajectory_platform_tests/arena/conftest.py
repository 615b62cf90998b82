"""One simulation for all tests of the arena; big enough that every kind of miner and quirk shows up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.arena.simulate import SimulationReport, simulate
from trajectory_platform.sandbox.products import load_products
from trajectory_platform.sandbox.search import SearchIndex
from trajectory_platform.sandbox.tools import World


@dataclass
class Simulated:
    root: Path
    report: SimulationReport
    truth: list[dict[str, Any]]
    world: World

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of one listing file over all days."""
        return [row for day in self.report.days for row in read_rows(self.root / day.isoformat() / name)]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSONL file; ``str.splitlines`` would also split at the U+0085 that mojibake titles contain."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    root = tmp_path_factory.mktemp("arena")
    report = simulate(root, days=2, traces_per_day=600, seed=11)
    catalogue = load_products(root / "catalogue" / "products.jsonl")
    return Simulated(root, report, read_rows(root / "truth.jsonl"), World(catalogue, SearchIndex(catalogue)))
