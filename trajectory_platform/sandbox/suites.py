"""Whole suites: their problems, and everything that is wrong with one, row by row with a reason (domain 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from trajectory_platform.sandbox.problem_shapes import item_faults, title_embeddings_of
from trajectory_platform.sandbox.problems import Problem, id_text, parse_problem
from trajectory_platform.sandbox.vouchers import voucher_faults


class SuiteFault(NamedTuple):
    """One thing that is wrong with one row of a suite.

    Attributes:
        row: 0-based.
        problem_id: as in ``Problem``; None where the row is no object.
        reason: a code of ``problem_shapes.item_faults`` or ``vouchers.voucher_faults``, or ``problem_id_repeated``.
    """

    row: int
    problem_id: str | None
    reason: str


class Suite(NamedTuple):
    """Problems in file order (a row that is no object gives none) and all faults."""

    problems: list[Problem]
    faults: list[SuiteFault]

    def faults_by_reason(self) -> dict[str, int]:
        """How many faults there are, per reason, sorted by reason."""
        counts: dict[str, int] = {}
        for fault in self.faults:
            counts[fault.reason] = counts.get(fault.reason, 0) + 1
        return dict(sorted(counts.items()))


def suite_items(document: Any) -> list[Any]:
    """The rows of a suite document: a list, the ``problems`` of an object, or the one problem that the object is."""
    if isinstance(document, Mapping):
        items = document.get("problems")
        return items if isinstance(items, list) else [document]
    return document if isinstance(document, list) else []


def read_suite(document: Any, *, suite_id: str | None = None) -> Suite:
    """A suite file (list of problems), ``suite.json`` (``{suite, problems[]}``), or the rows of a benchmark file.

    A row with faults still gives a problem, as far as it can be read; only a row that is no object gives none. Nothing
    raises, and nothing is dropped without a fault.

    Args:
        suite_id: used where neither the document nor the row names one.
    """
    head = document.get("suite") if isinstance(document, Mapping) else None
    named = id_text(head.get("suite_id")) if isinstance(head, Mapping) else None
    problems: list[Problem] = []
    faults: list[SuiteFault] = []
    seen: set[tuple[str | None, str]] = set()
    for row, item in enumerate(suite_items(document)):
        if not isinstance(item, Mapping):
            faults.append(SuiteFault(row, None, "not_an_object"))
            continue
        problem = parse_problem(item, suite_id=named or suite_id)
        problems.append(problem)
        reasons = _faults(item, problem)
        if (problem.suite_id, problem.problem_id) in seen:
            reasons.append("problem_id_repeated")
        seen.add((problem.suite_id, problem.problem_id))
        faults += [SuiteFault(row, problem.problem_id, reason) for reason in reasons]
    return Suite(problems, faults)


def problem_faults(item: Any) -> list[str]:
    """All reason codes for one published problem: its shape, then its voucher."""
    if not isinstance(item, Mapping):
        return item_faults(item)
    return _faults(item, parse_problem(item, suite_id=None))


def _faults(item: Mapping[str, Any], problem: Problem) -> list[str]:
    shape = item_faults(item)
    if "voucher_not_an_object" in shape:
        return shape  # "missing" would say the same again
    return shape + voucher_faults(problem)


def title_embeddings(items: Iterable[Any]) -> dict[str, list[float]]:
    """The stored title vectors of several problems as one table, title -> floats; the first one of a title counts."""
    found: dict[str, list[float]] = {}
    for item in items:
        if isinstance(item, Mapping):
            for title, vector in title_embeddings_of(item).items():
                found.setdefault(title, vector)
    return found
