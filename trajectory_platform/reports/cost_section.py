"""The section on cost: what judges were asked and paid, what agents and attempts used, what is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.tables import Column, nothing, table


@dataclass(frozen=True)
class CostFacts:
    """Cost of a day or of several days; an empty part was free or not recorded.

    Attributes:
        judges: paid replies of LLM judges: ``day, model, calls, canaries, without_value, prompt_tokens,
            completion_tokens, usd, unknown`` (replies of unknown cost, booked at the worst case).
        rules_verdicts: verdicts that cost nothing.
        work: what training and attempts used: ``what, count, tokens, usd, seconds``; None where it was not recorded.
        agent_calls, agent_failures: model calls of the agents as their runs state them; None where none does.
        stored: ``what, bytes``.
    """

    judges: Sequence[Mapping[str, Any]] = ()
    rules_verdicts: int = 0
    agent_calls: int | None = None
    agent_failures: int = 0
    work: Sequence[Mapping[str, Any]] = ()
    stored: Sequence[Mapping[str, Any]] = ()


def cost_section(facts: CostFacts | None) -> str:
    """Judges, agents, attempts, storage."""
    if facts is None:
        return nothing("no cost was recorded")
    parts = [f"<p>{html_text(_sentence(facts))}</p>"]
    if facts.judges:
        parts.append(table(_judge_columns(facts.judges), facts.judges, _sum(facts.judges)))
        unknown = sum(row["unknown"] for row in facts.judges)
        if unknown:
            parts.append(
                f'<p class="muted">{unknown:,} replies came without token counts: booked at the worst case.</p>'
            )
    if facts.work:
        columns: list[Column] = [
            ("what", "work", "word"),
            ("count", "how many", "number"),
            ("tokens", "tokens", "number"),
            ("usd", "USD", "money"),
            ("seconds", "seconds", "number"),
        ]
        parts.append("<h3>Training and attempts</h3>" + table(columns, facts.work))
    if facts.stored:
        parts.append("<h3>Kept</h3>")
        stored = [{"what": row["what"], "size": size_words(row["bytes"])} for row in facts.stored]
        parts.append(table([("what", "what", "word"), ("size", "size", "word")], stored))
    return "".join(parts)


def size_words(count: int) -> str:
    """Bytes with a unit of powers of 1,000."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _sentence(facts: CostFacts) -> str:
    usd = sum(row["usd"] for row in facts.judges)
    calls = sum(row["calls"] for row in facts.judges)
    words = f"LLM judges: {calls:,} paid replies, {usd:,.2f} USD." if facts.judges else "No LLM judge was asked: 0 USD."
    if facts.rules_verdicts:
        words += f" {facts.rules_verdicts:,} verdicts of the rules cost nothing."
    if facts.agent_calls is not None:
        words += (
            f" The agents themselves made {facts.agent_calls:,} model calls ({facts.agent_failures:,} failed), paid by "
            "the subnet."
        )
    return words


def _judge_columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    columns: list[Column] = [
        ("day", "day", "word"),
        ("model", "judge", "word"),
        ("calls", "replies", "number"),
        ("canaries", "of them canaries", "number"),
        ("without_value", "without a value", "number"),
        ("prompt_tokens", "prompt tokens", "number"),
        ("completion_tokens", "reply tokens", "number"),
        ("usd", "USD", "money"),
    ]
    return columns if len({row["day"] for row in rows}) > 1 else columns[1:]


def _sum(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    if len(rows) < 2:
        return None
    counted = ("calls", "canaries", "without_value", "prompt_tokens", "completion_tokens", "usd")
    total: dict[str, Any] = {key: sum(row[key] or 0 for row in rows) for key in counted}
    return {"day": "all", "model": "all", **total}
