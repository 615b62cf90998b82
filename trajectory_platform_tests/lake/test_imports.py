"""The lake's doors open without loading the libraries behind them (design 2, budgets)."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyarrow", "deltalake", "polars", "pandera", "duckdb", "numpy")


def test_no_heavy_library_is_loaded_by_an_import() -> None:
    code = (
        "import sys, pkgutil, importlib, trajectory_platform.lake as lake\n"
        "for module in pkgutil.iter_modules(lake.__path__): importlib.import_module(f'{lake.__name__}.{module.name}')\n"
        "from trajectory_platform.lake.publish import Lake; Lake('x')\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
