"""What attempts cost: tokens, calls, steps, seconds and money, per attempt and per solved problem.

Everything that was spent is counted, on failures too. Where nothing was solved the price of a solution is undefined
(null), not infinite. A value that an attempt did not report is not taken for 0: it is counted in ``unknown``, and then
the sums are lower bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trajectory_platform.evaluation.attempts import Attempted, Row

MEASURES = ("tokens", "prompt_tokens", "completion_tokens", "tool_calls", "steps", "seconds", "cost_usd")


def usage(problems: Sequence[Attempted]) -> dict[str, dict[str, Any]]:
    """Per measure ``{total, per_attempt, per_success, per_solved_problem, unknown}``.

    ``per_attempt`` is the mean over attempts that report the measure. ``per_success`` and ``per_solved_problem`` are
    the total over all attempts divided by successful attempts and by problems with at least one success; null where
    there is none or nothing was reported. ``unknown`` counts attempts without the value, missing ones included.
    """
    attempts = sum(problem.n for problem in problems)
    successes = sum(problem.c for problem in problems)
    solved = sum(problem.c > 0 for problem in problems)
    rows = [row for problem in problems for row in problem.rows]
    result = {}
    for measure in MEASURES:
        values = [value for row in rows if (value := _value(row, measure)) is not None]
        total = math.fsum(values) if values else None
        result[measure] = {
            "total": total,
            "per_attempt": None if total is None else total / len(values),
            "per_success": None if total is None or not successes else total / successes,
            "per_solved_problem": None if total is None or not solved else total / solved,
            "unknown": attempts - len(values),
        }
    return result


def _value(row: Row, measure: str) -> float | None:
    if measure != "tokens":
        value = row[measure]
        return None if value is None else float(value)
    prompt, completion = row["prompt_tokens"], row["completion_tokens"]
    return None if prompt is None or completion is None else float(prompt + completion)
