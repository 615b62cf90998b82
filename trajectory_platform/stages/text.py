"""Third-party text on a terminal: never markup, control characters always shown escaped."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from trajectory_platform.escaping import escaped

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_COLUMNS = 12  # more do not fit beside one another: each row is then shown as a block


def shown(value: Any, width: int | None = None) -> str:
    """A value as one line of harmless text; ``width`` cuts it with an ellipsis."""
    safe = escaped("" if value is None else str(value))
    return safe if width is None or len(safe) <= width else safe[: width - 1] + "…"


def render_table(table: pa.Table, width: int = 60) -> str:
    """An Arrow table as plain text with a header and the number of rows; a wide one row by row."""
    if table.num_columns > _MOST_COLUMNS:
        return _render_blocks(table, width)
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in table.column_names:
        grid.add_column(Text(shown(name)))
    for row in table.to_pylist():
        grid.add_row(*(Text(shown(row[name], width)) for name in table.column_names))
    out = io.StringIO()
    Console(file=out, width=max(80, min(240, (width + 3) * max(1, table.num_columns))), markup=False).print(grid)
    return f"{out.getvalue().rstrip()}\n({table.num_rows} rows)"


def _render_blocks(table: pa.Table, width: int) -> str:
    names = [shown(name) for name in table.column_names]
    margin = max(map(len, names))
    lines = []
    for number, row in enumerate(table.to_pylist(), 1):
        lines.append(f"row {number}")
        lines.extend(
            f"  {label:<{margin}}  {shown(row[name], width)}".rstrip()
            for label, name in zip(names, table.column_names, strict=True)
        )
    return "\n".join([*lines, f"({table.num_rows} rows)"])
