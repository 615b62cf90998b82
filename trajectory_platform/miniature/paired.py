"""What the filter is worth: the filtered and the unfiltered run on the same held-out problems, pair by pair.

Each way of decoding (greedy, temperature 1) is a comparison of its own, because a corpus of bad examples may hurt one
and spare the other. Differences are *filtered minus unfiltered*; intervals draw whole leak clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.comparison import compare

VERSION = "miniature-paired-1"  # raise it when the same scores would give another comparison
AIM = 0.10  # of success, filtered over unfiltered
PASS_K = 8

Rows = Sequence[Mapping[str, Any]]


class Decoding(NamedTuple):
    """The two runs under one way of decoding.

    Attributes:
        compared: ``evaluation.comparison.compare`` of unfiltered (a) and filtered (b).
        hallucinated: recommended ids that no result showed, as a share of attempts: (unfiltered, filtered).
        aim: ``shown`` where the whole interval is above the aim, ``reached`` where the difference is, else ``missed``.
    """

    name: str
    compared: dict[str, Any]
    hallucinated: tuple[float, float]
    aim: str


def control_comparison(
    filtered: Mapping[str, Rows],
    unfiltered: Mapping[str, Rows],
    *,
    seed: int,
    resamples: int,
    aim: float = AIM,
) -> list[Decoding]:
    """One comparison per way of decoding, in the order of ``filtered``.

    Args:
        filtered, unfiltered: name of the decoding -> ``eval_scores`` rows of the run's final checkpoint.

    Raises:
        Abort: the two were not decoded in the same ways, or not on the same problems: then nothing is paired.
    """
    if filtered.keys() != unfiltered.keys() or not filtered:
        raise Abort(f"the runs were decoded differently: {sorted(filtered)} and {sorted(unfiltered)}")
    found = []
    for name, ours in filtered.items():
        theirs = unfiltered[name]
        compared = compare(theirs, ours, ks=(1, PASS_K), seed=seed, resamples=resamples)
        apart = [key for side in ("only_in_a", "only_in_b") for key in compared["dropped"][side]]
        if apart:
            raise Abort(f"{name}: {len(apart)} problems were attempted by one run only, the first is {apart[0]}")
        found.append(
            Decoding(name, compared, (_hallucinated(theirs), _hallucinated(ours)), _aim(compared["overall"], aim))
        )
    return found


def control_text(
    decodings: Sequence[Decoding], *, names: tuple[str, str] = ("unfiltered", "filtered"), aim: bool = True
) -> str:
    """The comparison as a Markdown table with what it shows in words.

    Args:
        names: of the two sides, the reference first. ``aim``: whether the aim of the control concerns them.
    """
    head = (
        "decoding",
        *names,
        "difference (95 %)",
        f"pass@{PASS_K} difference",
        "hallucinated",
        "p",
        "problems (clusters)",
        *([f"aim {100 * AIM:+.0f}"] if aim else []),
    )
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for one in decodings:
        entry = one.compared["overall"]
        before, after = one.hallucinated
        cells = (
            one.name,
            f"{100 * entry['a']:.1f} %",
            f"{100 * entry['b']:.1f} %",
            _points(entry["difference"]),
            _points(entry["pass_at_k"][str(PASS_K)]),
            f"{100 * before:.1f} % to {100 * after:.1f} %",
            f"{entry['tests']['mean_over_clusters']['p_value']:.2g}",
            f"{entry['problems']} ({entry['clusters']})",
            *([one.aim] if aim else []),
        )
        lines.append("| " + " | ".join(cells) + " |")
    words = [f"{one.name}: {'; '.join(one.compared['overall']['words'])}." for one in decodings]
    return "\n".join([*lines, "", *words])


def _aim(entry: Mapping[str, Any], aim: float) -> str:
    difference = entry["difference"]
    interval = difference["interval"]
    if interval is not None and interval["low"] >= aim:
        return "shown"
    return "reached" if difference["value"] >= aim - 1e-9 else "missed"


def _hallucinated(rows: Rows) -> float:
    scored = [row for row in rows if row["outcome"] != "no_reward"]
    return sum(bool(row["hallucinated_ids"]) for row in scored) / len(scored) if scored else 0.0


def _points(score: Mapping[str, Any]) -> str:
    """A difference in percentage points; a dash where too few attempts were made."""
    if score.get("value") is None:
        return "-"
    text, interval = f"{100 * score['value']:+.1f}", score.get("interval")
    return text if interval is None else f"{text} ({100 * interval['low']:+.1f} to {100 * interval['high']:+.1f})"
