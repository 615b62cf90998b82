"""Exported rows as records of a training stage (``training.launch.RECORD``): data that came back can be trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trajectory_platform import jsontext
from trajectory_platform.release.rows import Row

_EXTRA = ("situation", "outcome_success", "reasoning_quality", "uses")


def as_records(rows: Iterable[Row]) -> Iterator[Row]:
    """Records of rows of the split ``train``, in their order.

    Role by label: none is ``train``, else ``desirable`` or ``undesirable``, whose ``extra`` tells the verdicts.
    """
    for row in rows:
        role = {None: "train", True: "desirable", False: "undesirable"}[row["label"]]
        extra = jsontext.dumps({**{name: row[name] for name in _EXTRA}, "source": "export"})
        yield {
            **{name: row[name] for name in ("trace_id", "trace_day", "problem_key", "cluster_id", "messages", "tools")},
            "role": role,
            "weight": row["quality"],
            "extra": None if role == "train" else extra,
        }
