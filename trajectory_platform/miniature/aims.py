"""The aims of the miniature and whether a run met them; an aim that was not measured says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform.miniature.paired import AIM as CONTROL_AIM
from trajectory_platform.miniature.rates import PASS_K
from trajectory_platform.miniature.results import BASE, GREEDY, SAMPLED, WORDS

OVER_RANDOM = {"sft": 0.10, "final": 0.18}
FINAL = 0.40
MINUTES = 45
MIN_CLUSTERS = 200
MET, MISSED, UNKNOWN = "met", "missed", "not measured"

Row = Mapping[str, Any]


class Aim(NamedTuple):
    """``verdict``: met | missed | not measured."""

    aim: str
    found: str
    verdict: str


def aims(stages: Sequence[Row], guess: Row, *, control: Row | None, minutes: float | None) -> list[Aim]:
    """The aims in the order of the task.

    Args:
        stages: of ``results.stage_results``; guess: of ``results.guess_figures``.
        control: ``{decoding: difference {value, low, high}}`` of filtered over unfiltered; None where it was not run.
        minutes: wall time of the run.
    """
    done = [row for row in stages if "greedy" in row]
    by_name = {row["stage"]: row for row in done}
    base, sft = by_name.get(BASE), by_name.get("sft")
    final = done[-1] if done and done[-1]["stage"] != BASE else None
    random = (guess.get("greedy") or {}).get("value")
    return [
        _clusters(done),
        _of_base(base, random),
        _over(sft, "sft", "SFT", random),
        _final(final),
        _over(final, "final", "the last stage", random),
        _pass_k(sft, final),
        *_control(control),
        _hallucinated(final),
        _steps(done),
        _time(minutes),
    ]


def _verdict(met: bool) -> str:
    return MET if met else MISSED


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _points(value: Mapping[str, Any]) -> str:
    if value["value"] is None:
        return "-"
    text = f"{100 * value['value']:+.1f} points"
    return text if value["low"] is None else f"{text} ({100 * value['low']:+.1f} to {100 * value['high']:+.1f})"


def _clusters(done: Sequence[Row]) -> Aim:
    least = min((row["greedy"]["clusters"] for row in done), default=0)
    return Aim(f"at least {MIN_CLUSTERS} guarded dev clusters", str(least), _verdict(least >= MIN_CLUSTERS))


def _of_base(base: Row | None, random: float | None) -> Aim:
    aim = "base under the random-row rate"
    if base is None or random is None:
        return Aim(aim, "-", UNKNOWN)
    value = base["greedy"]["success"]["value"]
    return Aim(aim, f"{_percent(value)} against {_percent(random)}", _verdict(value < random))


def _over(row: Row | None, name: str, words: str, random: float | None) -> Aim:
    least = OVER_RANDOM[name]
    aim = f"{words} at least {100 * least:.0f} points over a random row"
    if row is None or random is None:
        return Aim(aim, "-", UNKNOWN)
    found = row["over_random"]
    return Aim(aim, f"{row['stage']} {_points(found)}", _verdict(found["value"] >= least - 1e-9))


def _final(final: Row | None) -> Aim:
    aim = f"the last stage at least {100 * FINAL:.0f} % (greedy)"
    if final is None:
        return Aim(aim, "-", UNKNOWN)
    found = final["greedy"]["success"]
    text = f"{final['stage']} {_percent(found['value'])}"
    if found["low"] is not None:
        text += f" ({_percent(found['low'])} to {_percent(found['high'])})"
    return Aim(aim, text, _verdict(found["value"] >= FINAL - 1e-9))


def _pass_k(sft: Row | None, final: Row | None) -> Aim:
    aim = f"pass@{PASS_K} of the last stage not below SFT's"
    if sft is None or final is None or not sft["sampled"] or not final["sampled"]:
        return Aim(aim, "-", UNKNOWN)
    first, last = (row["sampled"]["pass_at"][str(PASS_K)]["value"] for row in (sft, final))
    if first is None or last is None:
        return Aim(aim, "-", UNKNOWN)
    return Aim(aim, f"{_percent(first)} to {_percent(last)}", _verdict(last >= first - 1e-9))


def _control(control: Row | None) -> list[Aim]:
    aim = f"filtered at least {100 * CONTROL_AIM:.0f} points over unfiltered"
    if control is None:
        return [Aim(aim, "make miniature-control", UNKNOWN)]
    return [
        Aim(f"{aim}, {name}", _points(value), _verdict(value["value"] >= CONTROL_AIM - 1e-9))
        for name, value in control.items()
    ]


def _hallucinated(final: Row | None) -> Aim:
    aim = "hallucinated ids to 0"
    if final is None:
        return Aim(aim, "-", UNKNOWN)
    parts = [(GREEDY, final["greedy"]), *([(SAMPLED, final["sampled"])] if final["sampled"] else [])]
    told = ", ".join(f"{_percent(part['hallucinated']['value'])} {name}" for name, part in parts)
    return Aim(aim, f"{final['stage']} {told}", _verdict(final["greedy"]["hallucinated"]["value"] == 0.0))


def _steps(done: Sequence[Row]) -> Aim:
    """Met where every stage says something about itself, whichever it is."""
    told = [_shown(row["stage"], row["against"]) for row in done if row["against"]]
    aim = f"each stage shown to help or not ({', '.join(WORDS.values())})"
    return Aim(aim, "; ".join(told) or "-", _verdict(bool(told)) if told else UNKNOWN)


def _shown(stage: str, against: Row) -> str:
    """What both ways of decoding say of a step."""
    said = [against[name]["shown"] for name in (GREEDY, SAMPLED) if name in against]
    return f"{stage} {said[0]}" if len(set(said)) == 1 else f"{stage} {said[0]} ({GREEDY}), {said[1]} ({SAMPLED})"


def _time(minutes: float | None) -> Aim:
    aim = f"at most {MINUTES} minutes on two cores"
    return Aim(aim, "-", UNKNOWN) if minutes is None else Aim(aim, f"{minutes:.1f}", _verdict(minutes <= MINUTES))
