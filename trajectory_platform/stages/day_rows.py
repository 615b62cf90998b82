"""Tables of a day's report, counted from rows of the lake: reasons with examples, miners, verdicts, outcomes, uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trajectory_platform.curation.uses import SITUATIONS
from trajectory_platform.lake import sealing, tables
from trajectory_platform.lineage import retractions
from trajectory_platform.reports.flow import MEANINGS, use_words
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.strategy_facts import short_names

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
_EXAMPLES = 3
_RESAMPLES = 1000


class Open:
    """Which traces of a day may be named: none of a sealed problem, none of a day that no clusters cover yet, none that
    was retracted.

    Attributes:
        closed: no trace of the day may be named.
        retracted: ids of the traces of the day that were retracted, by themselves, their run, miner or text.
    """

    def __init__(self, ctx: StageContext, day: str) -> None:
        self._lake = ctx.lake
        held = retractions.tombstones(ctx.lake)
        told = [
            held.rows_of(ctx.lake, table, [day], ["trace_id"]) for table in (tables.RAW_TRACES, tables.TRAJECTORIES)
        ]
        self.retracted = frozenset(row["trace_id"] for rows in told for row, _ in rows)
        self._seal = sealing.sealed(ctx.lake)
        self.closed = self._seal is not None and self._seal.closed(day)
        self._traces = (
            sealing.NO_TRACES if self._seal is None or self.closed else sealing.sealed_traces(ctx.lake, self._seal)
        )

    def rejected(self, day: str, columns: Sequence[str]) -> list[Row]:
        """The rejected rows of the day that may be shown; ``columns`` with the trace id."""
        if self.closed:
            return []
        hidden = self._hidden(tables.REJECTED_TRACES.name)
        table = self._lake.read(
            tables.REJECTED_TRACES, [day], columns=columns, filter=None if hidden is None else ~hidden
        )
        return [row for row in table.to_pylist() if row["trace_id"] not in self.retracted]

    def names(self, day: str) -> frozenset[str]:
        """The ids of the accepted rows of the day that may be shown."""
        if self.closed:
            return frozenset()
        hidden = self._hidden(tables.AXIS_A_CORPUS.name)
        chosen = None if hidden is None else ~hidden
        rows = self._lake.read(tables.AXIS_A_CORPUS, [day], columns=["trace_id"], filter=chosen, ordered=False)
        return frozenset(rows.column("trace_id").to_pylist()) - self.retracted

    def _hidden(self, table_name: str) -> Any:
        return None if self._seal is None else sealing.hidden(table_name, self._seal, self._traces)


def reason_rows(rejected: Sequence[Row], shown: Sequence[Row]) -> list[Row]:
    """Reasons, largest first, each with a few examples that may be named.

    Args:
        rejected: every rejected row: ``stage, reason``.
        shown: rows that may be shown, in the order of their ids: ``trace_id, stage, reason, detail``.
    """
    counts = Counter((row["stage"], row["reason"]) for row in rejected)
    examples: dict[tuple[str, str], list[Row]] = {}
    for row in shown:
        found = examples.setdefault((row["stage"], row["reason"]), [])
        if len(found) < _EXAMPLES:
            found.append({"trace_id": row["trace_id"], "detail": row["detail"]})
    return [
        {
            "stage": stage,
            "reason": reason,
            "count": count,
            "meaning": MEANINGS.get((stage, reason), ""),
            "examples": examples.get((stage, reason), []),
        }
        for (stage, reason), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def miner_rows(people: Mapping[str, Row], accepted: Sequence[Row], rejected: Sequence[Row]) -> list[Row]:
    """What became of the pairs of each miner, most pairs first.

    Args:
        people: trace id -> ``miner_hotkey, agent_version_id`` of every pair of the day.
    """
    found: dict[str, Row] = {}
    agents: dict[str, set[str]] = {}
    strategies: dict[str, set[str]] = {}
    for one in people.values():
        key = one["miner_hotkey"] or ""
        row = found.setdefault(key, dict.fromkeys(("pairs", "accepted", "not_a", "other", "won", "sft"), 0))
        row["pairs"] += 1
        agents.setdefault(key, set()).add(one["agent_version_id"] or "")
    for one in accepted:
        key = people[one["trace_id"]]["miner_hotkey"] or ""
        found[key]["accepted"] += 1
        found[key]["won"] += bool(one["outcome_success"])
        found[key]["sft"] += "sft" in one["uses"]
        strategies.setdefault(key, set()).add(one["strategy_cluster"])
    for one in rejected:
        key = people[one["trace_id"]]["miner_hotkey"] or ""
        found[key]["not_a" if one["stage"] == "axis" else "other"] += 1
    names = short_names(key or None for key in found)
    return [
        {
            **row,
            "miner": names[key or None],
            "success": row["won"] / row["accepted"] if row["accepted"] else None,
            "agents": len(agents[key] - {""}),
            "strategies": len(strategies.get(key, ())),
        }
        for key, row in sorted(found.items(), key=lambda item: (-item[1]["pairs"], item[0]))
    ]


def axis_share(day: str, people: Mapping[str, Row], labels: Mapping[str, str], *, seed: int) -> Row:
    """The share of axis A of the day, with an interval over agent versions.

    Args:
        labels: trace id -> axis label of every trace that could be read.
    """
    from trajectory_platform.evaluation.intervals import cluster_interval

    agents = {name: people[name]["agent_version_id"] or name for name in labels}
    values = [(agents[name], label == "A") for name, label in sorted(labels.items())]
    interval = cluster_interval(values, seed=seed, resamples=_RESAMPLES) or {}
    return {
        "day": day,
        "a": sum(hit for _, hit in values) / len(values) if values else None,
        "a_low": interval.get("low"),
        "a_high": interval.get("high"),
        "a_note": interval.get("note"),
        "n": len(values),
        "agents": len(set(agents.values())),
    }


def outcome_rows(judged: Sequence[Row], *, seed: int) -> list[Row]:
    """Success of the scored traces per category, the total first, with intervals over problems.

    Args:
        judged: rows with ``category, outcome, outcome_success, problem_key``.
    """
    from trajectory_platform.evaluation.intervals import cluster_interval

    groups: dict[str, list[Row]] = {"all": list(judged)}
    for row in judged:
        groups.setdefault(row["category"] or "(none)", []).append(row)
    found: list[Row] = []
    for name, rows in groups.items():
        scored = [row for row in rows if row["outcome_success"] is not None and row["outcome"] != "unscorable"]
        values = sorted((row["problem_key"] or "", bool(row["outcome_success"])) for row in scored)
        interval = cluster_interval(values, seed=seed, resamples=_RESAMPLES) or {}
        found.append(
            {
                "category": name,
                "traces": len(scored),
                "success": sum(hit for _, hit in values) / len(values) if values else None,
                "success_low": interval.get("low"),
                "success_high": interval.get("high"),
                "success_note": interval.get("note"),
                "problems": len({key for key, _ in values}),
                "unscorable": len(rows) - len(scored),
            }
        )
    return [found[0], *sorted(found[1:], key=lambda row: (-row["traces"], row["category"]))] if judged else []


def verdict_rows(verdicts: pa.Table, gates: Mapping[str, float]) -> list[Row]:
    """Verdicts per source and scale.

    Args:
        verdicts: VERDICTS rows.
        gates: scale -> gate; a scale without one has no share at the gate.
    """
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in verdicts.select(
        ["judge_kind", "judge_model", "score_regime", "reasoning_quality", "null_reason"]
    ).to_pylist():
        groups.setdefault((row["judge_kind"], row["judge_model"], row["score_regime"]), []).append(row)
    found = []
    for (kind, model, regime), rows in sorted(groups.items()):
        values = sorted(row["reasoning_quality"] for row in rows if row["reasoning_quality"] is not None)
        nulls = Counter(row["null_reason"] or "not told" for row in rows if row["reasoning_quality"] is None)
        gate = gates.get(regime)
        passed = None if gate is None or not values else sum(value >= gate - 1e-9 for value in values) / len(values)
        found.append(
            {
                "judge": f"{kind}: {model}",
                "regime": regime,
                "verdicts": len(rows),
                "values": len(values),
                "mean": f"{sum(values) / len(values):.2f}" if values else None,
                "passed": passed,
                "nulls": ", ".join(f"{reason} {count:,}" for reason, count in sorted(nulls.items())),
            }
        )
    return found


def situation_rows(accepted: Sequence[Row]) -> list[Row]:
    """The accepted by situation, in the order of the table of uses; a situation with other uses is another row."""
    counts = Counter((row["situation"], tuple(row["uses"])) for row in accepted)
    meanings = dict(SITUATIONS)
    order = {name: place for place, (name, _) in enumerate(reversed(SITUATIONS))}
    return [
        {
            "situation": situation,
            "meaning": meanings.get(situation, "").replace("`", ""),
            "uses": use_words(uses),
            "traces": count,
            "share": count / len(accepted),
        }
        for (situation, uses), count in sorted(counts.items(), key=lambda item: (order.get(item[0][0], 99), item[0]))
    ]
