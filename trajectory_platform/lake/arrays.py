"""Arrow arrays without pandas: ``pyarrow.array`` and ``pyarrow.scalar`` import it where it is installed, which takes
longer than most questions do."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def text_array(values: Iterable[str]) -> pa.StringArray:
    """Texts, none of them null, as an Arrow array."""
    import numpy as np
    import pyarrow as pa

    encoded = [value.encode() for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def row_array(rows: Any) -> pa.Int64Array:
    """Row numbers (a NumPy array of integers) as an Arrow array, for ``take``."""
    import numpy as np
    import pyarrow as pa

    whole = np.ascontiguousarray(rows, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(whole), [None, pa.py_buffer(whole)])


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table without rows."""
    import pyarrow as pa

    return pa.Table.from_batches([], schema)


def without_pandas() -> None:
    """Let pyarrow do without pandas in this process: for a command that answers a question and ends.

    ``pyarrow.dataset`` asks for pandas when it is imported and remembers the answer; only this answer is changed,
    pandas itself can be imported afterwards. Nothing is done where pyarrow is loaded already.
    """
    if "pyarrow" in sys.modules or "pandas" in sys.modules:
        return
    finder: Any = SimpleNamespace(find_spec=_refuse_pandas)
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.scalar(True)  # asks
    finally:
        sys.meta_path.remove(finder)


def _refuse_pandas(name: str, _path: Any = None, _target: Any = None) -> None:
    if name == "pandas":
        raise ModuleNotFoundError("not for this", name=name)
