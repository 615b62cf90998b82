"""The miniature's results for people, as Markdown that also reads well in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajectory_platform.miniature.aims import Aim
from trajectory_platform.miniature.miners import PLAIN, SCAN
from trajectory_platform.miniature.rates import PASS_K
from trajectory_platform.miniature.results import ENDS, GREEDY, SAMPLED

Row = Mapping[str, Any]
WHOLE = "whole run"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table with columns of equal width."""
    widths = [max(len(line[place]) for line in (head, *lines)) for place in range(len(head))]

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([row(head), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(row, lines)])


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def ranged(found: Row | None, scale: float = 100, form: str = ".1f") -> str:
    """A value with its interval; a dash where there is none."""
    if found is None or found["value"] is None:
        return "-"
    text = f"{scale * found['value']:{form}}"
    if found["low"] is None:
        return text
    return f"{text} [{scale * found['low']:{form}}, {scale * found['high']:{form}}]"


def stage_table(stages: Sequence[Row], guess: Row) -> str:
    """The paper's table in miniature. After each bar stands the same figure of the policy that guesses a row."""
    head = (
        "stage",
        "greedy success, % / random row",
        "points over it",
        "points on the stage before",
        "the step",
        "pass@1 at T 1 / random row",
        f"pass@{PASS_K} / random row",
        "process score / random row",
        "hallucinated, greedy and T 1, % / random row",
    )
    lines = [_stage_cells(row, guess) for row in stages if "greedy" in row]
    lines.append(_random_cells(guess))
    text = table(head, lines)
    left = [f"{row['stage']}: nothing attempted ({row['state']})" for row in stages if "greedy" not in row]
    return "\n\n".join([text, *left])


def _stage_cells(row: Row, guess: Row) -> tuple[str, ...]:
    greedy, sampled, against = row["greedy"], row["sampled"], row["against"]
    step = None if against is None else against[GREEDY]
    many = None if sampled is None else sampled["pass_at"]
    hallucinated = percent(greedy["hallucinated"]["value"])
    hallucinated += f", {percent(sampled['hallucinated']['value'])}" if sampled else ""
    return (
        str(row["stage"]),
        f"{ranged(greedy['success'])} / {ranged_value(guess['greedy'])}",
        ranged(row["over_random"], form="+.1f"),
        "-" if step is None else ranged(step["difference"], form="+.1f"),
        "-" if step is None else str(step["shown"]),
        f"{ranged(many and many['1'])} / {ranged_value(guess['sampled'])}",
        f"{ranged(many and many[str(PASS_K)])} / {ranged_value(guess['pass_at'][str(PASS_K)])}",
        f"{ranged(greedy['process'], 1, '.2f')} / {ranged_value(guess['process'], 1, '.2f')}",
        f"{hallucinated} / {percent(guess['hallucinated'])}",
    )


def _random_cells(guess: Row) -> tuple[str, ...]:
    return (
        "random row",
        ranged(guess["greedy"]),
        "0",
        "-",
        "-",
        ranged(guess["sampled"]),
        ranged(guess["pass_at"][str(PASS_K)]),
        ranged(guess["process"], 1, ".2f"),
        percent(guess["hallucinated"]),
    )


def ranged_value(found: Row | None, scale: float = 100, form: str = ".1f") -> str:
    return "-" if found is None or found["value"] is None else f"{scale * found['value']:{form}}"


def notes(stages: Sequence[Row], guess: Row) -> list[str]:
    """What the table rests on and how its figures are to be read."""
    done = [row for row in stages if "greedy" in row]
    if not done:
        return ["nothing was attempted"]
    greedy, sampled = done[-1]["greedy"], done[-1]["sampled"]
    lines = [
        f"Greedy: {greedy['problems']} guarded dev problems in {greedy['clusters']} leak clusters, one attempt each, "
        "scored strictly. Brackets are 95 % intervals over clusters.",
    ]
    if sampled:
        lines.append(
            f"T 1: {sampled['attempts']} attempts at temperature 1 at {sampled['problems']} of these problems, another "
            "evaluation with seeds of its own; its attempts are in no greedy figure."
        )
    lines.append(
        "Random row: a policy that makes the perfect call and recommends any row it shows. Success and pass@k are "
        f"exact on the same problems; one that takes the first row gets {ranged(guess['first_row'])} %."
    )
    if guess["process"] is not None:
        random, good = (ranged_value(guess[name], 1, ".2f") for name in ("process", "good_process"))
        lines.append(
            f"The process score does not see which row is right: a random row gets {random} of it, the good miner "
            f"{good}. It tells searching from not searching, not choosing from guessing."
        )
    lines.append(
        "The step: paired with the stage before on the same problems; shown only where interval and randomisation test "
        "over clusters agree."
    )
    return lines


def step_table(stages: Sequence[Row]) -> str:
    """Each stage against the one before it, under both ways of decoding."""
    head = ("stage", "against", "decoding", "points", f"pass@{PASS_K} points", "p", "can see from", "the step")
    lines = []
    for row in stages:
        for name in (GREEDY, SAMPLED):
            step = (row.get("against") or {}).get(name)
            if step is not None:
                lines.append(
                    (
                        str(row["stage"]),
                        str(row["against"]["stage"]),
                        name,
                        ranged(step["difference"], form="+.1f"),
                        ranged(step[f"pass@{PASS_K}"], form="+.1f"),
                        f"{step['p_value']:.2g}",
                        "-" if step["detectable"] is None else f"{100 * step['detectable']:.1f}",
                        str(step["shown"]),
                    )
                )
    return table(head, lines)


def style_table(stages: Sequence[Row], guess: Row) -> str:
    """Success with and without the comparison in writing."""
    head = ("stage", "decoding", "with row scan", "success, %", "without", "success, %", "random row, %")
    lines = []
    for row in stages:
        for name, random in ((GREEDY, guess["greedy"]), (SAMPLED, guess["sampled"])):
            apart = row.get("styles", {}).get(name)
            if apart and (apart[SCAN]["attempts"] or apart[PLAIN]["attempts"]):
                cells = [cell for style in (SCAN, PLAIN) for cell in _style_cells(apart[style])]
                lines.append((str(row["stage"]), name, *cells, ranged_value(random)))
    return table(head, lines)


def _style_cells(one: Row) -> tuple[str, str]:
    return str(one["attempts"]), percent(one["success"])


def group_lines(groups: Row | None, guess: Row) -> list[str]:
    """Dr. GRPO's groups at either end."""
    if groups is None:
        return ["Dr. GRPO was not run."]
    lines = [f"Dr. GRPO, {groups['steps']} steps; means over the first and the last {ENDS}:"]
    for name in ("zero_variance", "same_outcome", "success", "hallucinated"):
        first, last = groups["first"].get(name), groups["last"].get(name)
        beside = f" (random row: {percent(guess['same_outcome'])} %)" if name == "same_outcome" else ""
        lines.append(f"- {name.replace('_', ' ')}: {percent(first)} % to {percent(last)} %{beside}")
    return lines


def aim_table(found: Sequence[Aim]) -> str:
    return table(("aim", "found", "verdict"), [(one.aim, one.found, one.verdict) for one in found])


def budget_table(parts: Mapping[str, Mapping[str, float]]) -> str:
    """Seconds per part of the run, in the order in which they ended; some ran side by side."""
    ordered = sorted(parts, key=lambda name: name == WHOLE)  # the sum, which is no part, comes last
    lines = [(name, f"{parts[name]['wall']:.0f}", f"{parts[name]['cpu']:.0f}") for name in ordered]
    return table(("part", "wall, s", "CPU, s"), lines)


def sealed_lines(sealed: Mapping[str, Row]) -> list[str]:
    """The one look at sealed problems."""
    lines = []
    for stage, one in sealed.items():
        lines.append(
            f"- {stage}: {ranged(one['success'])} % on {one['problems']} sealed problems in {one['clusters']} "
            f"clusters; random row {ranged(one['random'])} %; {ranged(one['over_random'], form='+.1f')} points over "
            f"it; hallucinated {percent(one['hallucinated']['value'])} %"
        )
    return lines


def results_text(facts: Row, found: Sequence[Aim]) -> str:
    """Everything a run found, as one page (``facts`` as ``results.json`` has them)."""
    stages, guess = facts["stages"], facts["guess"]
    blocks = [
        f"# {facts['title']}",
        "\n".join(f"- {line}" for line in facts["made_by"]),
        "## Stage by stage",
        stage_table(stages, guess),
        "\n".join(f"- {line}" for line in notes(stages, guess)),
        "## Each step",
        step_table(stages),
    ]
    if any(row["stage"] == "dr_grpo" for row in stages):
        blocks += ["## Groups of Dr. GRPO", "\n".join(group_lines(facts["groups"], guess))]
    blocks += ["## With and without the row scan in the thought", style_table(stages, guess)]
    if facts.get("compared"):
        blocks += ["## " + facts["compared_title"], facts["compared"]]
    if facts.get("sealed"):
        words = "Looked at once, at the end; nothing was tuned on them."
        blocks += ["## Sealed problems", words, "\n".join(sealed_lines(facts["sealed"]))]
    if found:
        blocks += ["## Aims", aim_table(found)]
    blocks += ["## Time", budget_table(facts["budget"])]
    return "\n\n".join(blocks) + "\n"
