"""Arrays made without pandas are those made with it; a command that only asks never loads it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa

from trajectory_platform.lake.arrays import empty_table, row_array, text_array

ASKED = """
import sys
from trajectory_platform.lake.arrays import without_pandas
without_pandas()
import pyarrow.compute, pyarrow.dataset
assert "pandas" not in sys.modules
import importlib.util
if importlib.util.find_spec("pandas"):
    import pandas  # the refusal is over
"""


def test_they_equal_what_arrow_makes_itself() -> None:
    for values in ([], [""], ["a", "", "\u017c\U0001f600", "b" * 1000]):
        made = text_array(values)
        made.validate(full=True)
        assert made.equals(pa.array(values, pa.string()))
    assert row_array(np.array([3, 1], np.uint64)).to_pylist() == [3, 1] and len(row_array(np.array([]))) == 0
    schema = pa.schema([("a", pa.string())])
    assert empty_table(schema).equals(schema.empty_table())


def test_a_process_that_asks_does_without_pandas_and_may_import_it_later() -> None:
    subprocess.run([sys.executable, "-c", ASKED], check=True)
