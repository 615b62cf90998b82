"""Metrics and comparisons as plain text or Markdown: tables for a terminal, a log or a card. No colours, no markup.

Third-party text (categories, reasons, ids) is escaped. A score never stands without its interval, its clusters and
the truncated share; what has no value is shown as a dash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajectory_platform.escaping import escaped
from trajectory_platform.evaluation.intervals import UNSEEN_NOTE
from trajectory_platform.evaluation.usage import MEASURES

_NAMED = 10  # missing attempts, reasons: so many are named, the rest is counted
_WIDTH = 60  # of third-party text in a cell
NOTHING = "-"
_MARKDOWN = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#!~$"})


def metrics_text(metrics: Mapping[str, Any], *, markdown: bool = False) -> str:
    """``metrics.task_metrics`` for people: scores, conduct and costs per category, then what to know about them."""
    blocks = {"all": metrics["overall"], **metrics["categories"]}
    scored = {name: entry for name, entry in blocks.items() if "success_rate" in entry}
    if not scored:
        return _lines(["no problem with a known reward was attempted: nothing to score", *_notes(metrics)], markdown)
    macro = metrics["macro"]
    parts = [
        _table("success (strict), 95 % intervals over leak clusters", _scores(scored), markdown),
        _lines(
            [f"macro (mean over {macro['categories']} categories): {_share(macro)}; clusters {macro['clusters']}"],
            markdown,
        ),
        _table("conduct", _conduct(scored), markdown),
        _table("cost", _costs(metrics["overall"]["usage"]), markdown),
        _lines(_notes(metrics), markdown),
    ]
    return "\n\n".join(part for part in parts if part)


def comparison_text(comparison: Mapping[str, Any], *, markdown: bool = False) -> str:
    """``comparison.compare`` for people: a table per category, then in words what can and cannot be concluded."""
    blocks = {"all": comparison["overall"], **comparison["categories"]}
    rows = [["category", "a", "b", "b - a", "95 % interval", "p (clusters)", "sees above", "problems", "clusters"]]
    for name, entry in blocks.items():
        difference, limit = entry["difference"], entry["smallest_detectable"]["value"]
        rows.append(
            [
                _shown(name),
                _percent(entry["a"]),
                _percent(entry["b"]),
                f"{100 * difference['value']:+.1f}",
                _interval(difference["interval"], scale="{:+.1f}"),
                f"{entry['tests']['mean_over_clusters']['p_value']:.3g}",
                NOTHING if limit is None else f"{100 * limit:.1f}",
                str(entry["problems"]),
                str(entry["clusters"]) + (" (thin)" if entry["state"] == "thin" else ""),
            ]
        )
    a, b = (_shown(str(comparison[side])) for side in ("a", "b"))
    dropped = ", ".join(f"{len(keys)} {reason.replace('_', ' ')}" for reason, keys in comparison["dropped"].items())
    lines = [*comparison["overall"]["words"], f"left out: {dropped}"]
    return "\n\n".join(
        [
            _table(f"a = {a}, b = {b}; success rates in %, differences in points", rows, markdown),
            _lines(lines, markdown),
        ]
    )


def _scores(blocks: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    ks = list(next(iter(blocks.values()))["pass_at_k"])
    rows = [
        [
            "category",
            "success",
            *(f"pass@{k}" for k in ks if k != "1"),
            "lenient",
            "cut",
            "solved",
            "attempts",
            "clusters",
        ]
    ]
    for name, entry in blocks.items():
        rows.append(
            [
                _shown(name),
                _share(entry["success_rate"]),
                *(_share(entry["pass_at_k"][k]) for k in ks if k != "1"),
                _percent(entry["lenient_success_rate"]["value"]),
                _percent(entry["truncated"]["value"]),
                f"{entry['solved_problems']}/{entry['problems']}",
                str(entry["attempts"]),
                str(entry["clusters"]) + (" (thin)" if entry["state"] == "thin" else ""),
            ]
        )
    return rows


def _conduct(blocks: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    rows = [
        ["category", "process", "conduct", "format", "length", "clean protocol", "hallucinated ids", "unviewed ids"]
    ]
    for name, entry in blocks.items():
        ids = [f"{_percent(entry[kind]['value'])} ({entry[kind]['ids']} ids)" for kind in ("hallucinated", "unviewed")]
        means = [_plain(entry[kind]["value"]) for kind in ("process_score", "conduct_score", "format", "length")]
        rows.append([_shown(name), *means, _percent(entry["discipline"]["clean"]["value"]), *ids])
    return rows


def _costs(usage: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    rows = [["", "per attempt", "per success", "per solved problem", "not reported by"]]
    for measure in MEASURES:
        values = usage[measure]
        bound = ">= " if values["unknown"] else ""
        cells = [_amount(values["per_attempt"])]
        for kind in ("per_success", "per_solved_problem"):
            cells.append(NOTHING if values[kind] is None else bound + _amount(values[kind]))
        rows.append([measure.replace("_", " "), *cells, str(values["unknown"])])
    return rows


def _notes(metrics: Mapping[str, Any]) -> list[str]:
    """What to know beside the numbers, one line each."""
    overall, lines = metrics["overall"], []
    lines.append(f"success is the {metrics['averages']['success_rate']}")
    if overall["state"] == "thin":
        lines.append(f"thin: only {overall['clusters']} clusters, too few for a firm interval")
    if any(_degenerate(entry) for entry in (overall, *metrics["categories"].values())):
        lines.append(f"* {UNSEEN_NOTE}")
    grounded = overall.get("process_score", {}).get("n", 0)
    if grounded < overall["problems"]:
        lines.append(f"process: {grounded} of {overall['problems']} problems have a reference (a strict success)")
    outcomes = overall.get("outcomes", {})
    if outcomes:
        lines.append("outcomes: " + ", ".join(f"{name} {count}" for name, count in outcomes.items()))
    violations = overall.get("discipline", {}).get("violations", {})
    if violations:
        named = (f"{_shown(name)} {_percent(value['share'])}" for name, value in violations.items())
        lines.append("protocol violations (share of attempts): " + ", ".join(named))
    reasons = sorted(overall.get("reasons", {}).items(), key=lambda item: (-item[1], item[0]))
    if reasons:
        more = f", and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
        lines.append("reasons: " + ", ".join(f"{_shown(name)} {count}" for name, count in reasons[:_NAMED]) + more)
    short = {k: one["short_problems"] for k, one in overall.get("pass_at_k", {}).items() if one["short_problems"]}
    if short:
        listed = ", ".join(f"pass@{k} by {count}" for k, count in short.items())
        lines.append(f"problems with fewer than k attempts are left out of {listed}")
    missing = metrics["missing"]
    if missing["attempts"]:
        keys = ", ".join(_shown(one["problem_key"][:12]) for one in missing["named"][:_NAMED])
        lines.append(f"planned and missing, counted as failures: {missing['attempts']} attempts (problems {keys} ...)")
    if metrics["no_reward"]["problems"]:
        lines.append(f"without a known reward, not scored: {metrics['no_reward']['problems']} problems")
    if metrics["pools"].get("train"):
        lines.append(f"WARNING: {metrics['pools']['train']} attempts are on problems of the train pool")
    return lines


def _degenerate(entry: Mapping[str, Any]) -> bool:
    """Whether any interval shown of these problems is a bound in place of a bootstrap."""
    shown = [entry["success_rate"], *entry["pass_at_k"].values()] if "success_rate" in entry else []
    return any((one["interval"] or {}).get("note") for one in shown)


def _table(title: str, rows: Sequence[Sequence[str]], markdown: bool) -> str:
    """The first row is the head, the first column is text, the others are numbers set to the right."""
    if markdown:
        lines = ["| " + " | ".join(cell.translate(_MARKDOWN) for cell in row) + " |" for row in rows]
        rule = "|" + "|".join(["---"] + ["---:"] * (len(rows[0]) - 1)) + "|"
        return "\n".join([f"**{title.translate(_MARKDOWN)}**", "", lines[0], rule, *lines[1:]])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _lines(lines: Sequence[str], markdown: bool) -> str:
    return "\n".join(f"- {line.translate(_MARKDOWN)}" if markdown else line for line in lines)


def _share(score: Mapping[str, Any]) -> str:
    if score["value"] is None:
        return NOTHING
    return f"{_percent(score['value'])} {_interval(score['interval'], scale='{:.1f}')}"


def _interval(interval: Mapping[str, Any] | None, *, scale: str) -> str:
    if interval is None:
        return "[no interval]"
    mark = "" if interval["note"] is None else "*"
    return f"[{scale.format(100 * interval['low'])}, {scale.format(100 * interval['high'])}]{mark}"


def _plain(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f} %"


def _amount(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"


def _shown(text: str) -> str:
    plain = escaped(text or "(none)")
    return plain if len(plain) <= _WIDTH else plain[: _WIDTH - 3] + "..."
