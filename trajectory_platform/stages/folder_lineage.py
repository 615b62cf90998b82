"""What a checkpoint folder and the folders of its ancestors beside it say about what was trained on, without a lake."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.identity import safe_id
from trajectory_platform.training.checkpoints import MANIFEST

if TYPE_CHECKING:
    from trajectory_platform.evaluation.eval_problems import EvalProblem

REPORT = "rows_report.json"


class TrainedOn(NamedTuple):
    """Ids of problems, sorted, of which the checkpoint or an ancestor was trained on something; ancestors whose folder
    is not there, so that nobody can say what they saw."""

    problem_ids: list[str]
    unknown_ancestors: list[str]


def trained_on(folder: Path | None, chosen: Iterable[EvalProblem]) -> TrainedOn:
    """Which of the chosen problems were trained on, as far as the folders say: one without a report says nothing."""
    if folder is None:
        return TrainedOn([], [])
    ancestors = [str(one["checkpoint_id"]) for one in _json(folder / MANIFEST).get("ancestors") or []]
    places = {name: folder.resolve().parent / name for name in ancestors}
    ids: set[str] = set()
    keys: set[str] = set()
    for place in (folder, *places.values()):
        report = _json(place / REPORT)
        ids |= {trace.partition(":")[2].partition("#")[0] for trace in report.get("times") or {}}
        keys |= {row["problem_key"] for row in report.get("traces") or []}
    seen = sorted(
        one.problem.problem_id
        for one in chosen
        if one.problem.problem_key in keys or safe_id(one.problem.problem_id) in ids
    )
    return TrainedOn(seen, sorted(name for name, place in places.items() if not (place / REPORT).is_file()))


def _json(path: Path) -> dict[str, Any]:
    return dict(jsontext.parse(path.read_bytes()).value) if path.is_file() else {}
