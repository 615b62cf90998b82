"""What the filter makes of the labelled days: axis confusion, stage and reason against every label, and why.

python benchmarks/filter_against_truth.py [--days ../shared/days]

Every row whose decision does not follow from its label alone is listed with the reason why it is right, or as
UNEXPLAINED; the exit status is 1 when there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trajectory_platform.curation.agency import decide
from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.curation.filter import curate_day
from trajectory_platform.judging.day import judge_day
from trajectory_platform.sandbox.problems import problem_rows
from trajectory_platform.sandbox.products import load_products
from trajectory_platform.sources.container import Limits
from trajectory_platform.sources.files import FileSource
from trajectory_platform.traces.inventory import inventory_folder
from trajectory_platform.traces.normalise import normalise_batches

Row = dict[str, Any]
AXES = ("A", "B", "mixed", "unknown")


def filtered_days(days: Path) -> list[Row]:
    """One row per raw row of the three days: its truth (or None), its axis and what the filter decided."""
    lines = map(json.loads, (days / "truth.jsonl").read_text("utf-8").splitlines())
    truths = {f"{row['eval_run_id']}:{row['problem_id']}": row for row in lines}
    source, rows = FileSource(str(days)), []
    for day in source.days():
        rows += _filtered_day(source, day, truths)
    return rows


def _filtered_day(source: FileSource, day: date, truths: Mapping[str, Row]) -> list[Row]:
    listing = source.open_day(day)
    raw = inventory_folder(source, day, Limits()).rows
    traces = raw.filter([state.as_py() == "trace" for state in raw.column("state")])
    batches = list(normalise_batches(traces, source, Limits(), 256, 1))
    products = load_products(source.read(listing.catalogue_uri or ""))
    judged, verdicts = judge_day(
        raw, iter(batches), problem_rows(listing), products, judge="rules", title_regime="normalised"
    )
    result = curate_day(raw, lambda: iter(batches), judged, verdicts, config=FilterConfig())
    decided: dict[str, Row] = {}
    for batch in result.accepted:
        for row in batch.to_pylist():
            decided[row["trace_id"]] = {"stage": "accepted", "reason": row["situation"], **row}
    for row in result.rejected.to_pylist():
        decided[row["trace_id"]] = row
    read = {row["trace_id"]: row for batch in batches for row in batch.to_pylist()}
    scored = {row["trace_id"]: row for row in judged.to_pylist()}
    print(f"{day}: {json.dumps(result.summary['strategies'])}")
    rows = []
    for name, row in sorted(decided.items()):
        trace = read.get(name)
        axis = decide(json.loads(trace["messages"]), json.loads(trace["evidence"])) if trace else None
        rows.append(
            {
                "name": name,
                "truth": truths.get(name),
                "axis": axis,
                "decided": row,
                "judged": scored.get(name) or {},
                "copy_of": truths.get(row.get("duplicate_of") or ""),
            }
        )
    return rows


def print_axis(rows: list[Row]) -> None:
    """Expected label down, decided label across, over everything that was read."""
    pairs = Counter((row["truth"]["axis"], row["axis"].label) for row in rows if row["truth"] and row["axis"])
    agreeing = sum(count for (expected, found), count in pairs.items() if expected == found)
    print(f"\naxis: {agreeing} of {sum(pairs.values())} agree")
    print(f"{'expected':>10} " + " ".join(f"{label:>8}" for label in AXES))
    for expected in AXES:
        print(f"{expected:>10} " + " ".join(f"{pairs[expected, found]:>8}" for found in AXES))


def print_cross(rows: list[Row], title: str, label: Callable[[Row], str]) -> None:
    """Stage and reason down, a label of the truth across."""
    pairs: Counter[tuple[tuple[str, str], str]] = Counter()
    for row in rows:
        where = (row["decided"]["stage"], row["decided"]["reason"])
        pairs[where, label(row["truth"]) if row["truth"] else "(no execution)"] += 1
    columns = sorted({column for _, column in pairs})
    print(f"\n{title}")
    if len(columns) > 8:
        for column in columns:
            found = [f"{' '.join(where)} {count}" for (where, told), count in sorted(pairs.items()) if told == column]
            print(f"{column:<28}{', '.join(found)}")
        return
    width = max(12, *(len(column) + 1 for column in columns))
    print(f"{'':<32}" + "".join(f"{column:>{width}}" for column in columns))
    for where in sorted({where for where, _ in pairs}):
        counts = "".join(f"{pairs[where, column] or '.':>{width}}" for column in columns)
        print(f"{' '.join(where):<32}{counts}")


# ---------------------------------------------------------------------------------------------- off the diagonal


def expected(truth: Row) -> str:
    """What the labels alone ask for: the stage that should reject, or ``accepted``."""
    if truth["run_status"] in ("PENDING", "RUNNING", "CLAIMED") or not truth["usable_run"] or not truth["artifact"]:
        return "ingest"
    if truth["outcome"] == "no_trace":
        return "ingest"
    if truth["malformed"] is not None:
        return "read"
    if truth["injection"]:
        return "injection"
    if truth["axis"] != "A":
        return "axis"
    return "outcome" if truth["outcome"] == "unscorable" else "accepted"


# Labels that say what is odd about a row that is readable all the same (days/README, "Conventions").
REPAIRED = {
    "tool_call_not_list": "one call instead of a list is one call, a counted repair (domain 6: 2)",
    "tool_call_text": "calls given as JSON text are parsed, a counted repair (domain 6: 3)",
    "tool_call_item_not_object": "calls given as JSON texts are parsed, a counted repair (domain 6: 3)",
    "parameters_not_object": "parameters given as JSON text are parsed, a counted repair (domain 6: 16)",
    "product_ids_missing": "the alias product_id is understood, a counted repair; the strict score is a failure (6: 5)",
    "product_ids_not_text": "ids as a list or number are joined, a counted repair; the strict score stays (6: 4, 5)",
    "non_finite_number": "a non-finite number becomes null, a counted repair (case A19)",
    "think_not_text": "a null thinking is none, a counted repair; the scorer raises on it",
    "timestamp_not_number": "only the format score looks at the step's time; flagged",
}


def explanation(row: Row) -> str | None:
    """Why a decision that is not the expected one is right; None where nothing explains it."""
    truth, decided, axis = row["truth"], row["decided"], row["axis"]
    stage, reason, wanted = decided["stage"], decided["reason"], expected(truth)
    if stage == "read":
        return f"cannot be read: {reason}; nothing later is asked (label {wanted})"
    if wanted == "read" and stage != "read":
        told = REPAIRED.get(truth["malformed"])
        return told and f"{told}; then {stage}/{reason}"
    if stage == "strategy":
        agents = f"agents {truth['agent_version_id'][:6]} and {row['copy_of']['agent_version_id'][:6]}"
        group = (
            "labelled group" if truth["strategy_group"] else "no labelled group: two agents that happen to do the same"
        )
        same = truth["agent_version_id"] != row["copy_of"]["agent_version_id"]
        return f"{decided['detail']} on one problem, {agents}; {group}" if same else None
    if stage == "copies":
        return "byte-identical dialogue of another run; the first judged one stays"
    if stage == "caps":
        return f"{reason}: {decided['detail']}"
    if stage == "injection" and not truth["injection"]:
        return None
    if stage == "injection":
        return "steering text comes before the axis in the order of the stages" if wanted != "injection" else None
    if wanted == "axis" and stage == "outcome" or wanted == "outcome" and stage == "axis":
        return f"both apply; the order of the stages names {stage}"
    if wanted == "outcome" and stage == "accepted" and row["judged"].get("reason") == "reward_hidden":
        return "hidden reward: the validator's verdict counts"
    if axis is not None and stage == "axis" and truth["axis"] == "A":
        return None
    return None


def print_rows(rows: list[Row]) -> int:
    """Lists every row whose stage is not the expected one; the number of unexplained ones."""
    unexplained, listed = 0, Counter[str]()
    print("\noff the diagonal")
    for row in rows:
        if row["truth"] is None or row["decided"]["stage"] == expected(row["truth"]):
            continue
        why = explanation(row)
        unexplained += why is None
        listed[expected(row["truth"]) + " -> " + row["decided"]["stage"]] += 1
        labels = ", ".join(
            f"{key}={row['truth'][key]}" for key in ("subkind", "malformed", "axis", "outcome") if row["truth"][key]
        )
        decided = f"{row['decided']['stage']}/{row['decided']['reason']}"
        name, wanted = f"{row['name'][:8]}..{row['name'][-8:]}", expected(row["truth"])
        print(f"  {name} {wanted} -> {decided} [{labels}]: {why or 'UNEXPLAINED'}")
    print(f"\n{sum(listed.values())} rows, {unexplained} unexplained: {dict(sorted(listed.items()))}")
    return unexplained


def print_uses(rows: list[Row]) -> int:
    """Accepted rows whose uses contradict a label of the truth; their number."""
    wrong = 0
    for row in rows:
        truth, decided = row["truth"], row["decided"]
        if truth is None or decided["stage"] != "accepted":
            continue
        told = truth["reported_score"] == 1.0 if decided["outcome_source"] == "validator" else truth["success"]
        bad = []
        if decided["outcome_success"] != told:
            bad.append("outcome")
        if "sft" in decided["uses"] and (not truth["success"] or truth["hallucinated_ids"] or truth["unviewed_ids"]):
            bad.append("sft")
        if bad:
            wrong += 1
            print(
                f"  {row['name']}: {', '.join(bad)} contradicts the truth: {decided['situation']}, {truth['outcome']}"
            )
    print(f"\naccepted rows whose outcome or uses contradict the truth: {wrong}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--days", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "days")
    days = parser.parse_args().days
    if not days.is_dir():
        print(f"skipped: no labelled days at {days}")
        return
    rows = filtered_days(days)
    print_axis(rows)
    for title, label in (
        ("malformed", lambda truth: str(truth["malformed"])),
        ("injection", lambda truth: ",".join(truth["injection_sources"]) if truth["injection"] else "none"),
        ("usable_run", lambda truth: str(truth["usable_run"])),
        ("hallucinated_ids", lambda truth: "some" if truth["hallucinated_ids"] else "none"),
        ("strategy_group", lambda truth: str(truth["strategy_group"])),
        ("outcome", lambda truth: truth["outcome"]),
    ):
        print_cross(rows, title, label)
    sys.exit(1 if print_rows(rows) + print_uses(rows) else 0)


if __name__ == "__main__":
    main()
