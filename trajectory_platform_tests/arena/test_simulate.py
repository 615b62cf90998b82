"""Simulated days: reproducible to the byte, complete, and true to their truth file."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.arena.miners import MINERS
from trajectory_platform.arena.plan import QUIRKS
from trajectory_platform.arena.simulate import simulate
from trajectory_platform.errors import Abort
from trajectory_platform.identity import utc_day
from trajectory_platform.sandbox.tools import call_tool
from trajectory_platform_tests.arena.conftest import Simulated, read_rows

VERSION_STATUS = ["state", "release_state"]  # fields of the API's AgentVersionStatus
ROOT = Path(__file__).resolve().parents[2]


def digests(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def dialogue(simulated: Simulated, row: dict[str, Any]) -> list[Any]:
    data = (simulated.root / row["artifact"]).read_bytes()
    return json.loads(gzip.decompress(data))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    for name, seed in (("one", 5), ("two", 5), ("other", 6)):
        simulate(tmp_path / name, days=2, traces_per_day=80, seed=seed)
    one, two, other = (digests(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two
    assert one != other and one["truth.jsonl"] != other["truth.jsonl"]


def test_it_refuses_to_overwrite_unless_told_and_then_leaves_other_files(tmp_path: Path) -> None:
    simulate(tmp_path, days=1, traces_per_day=40, seed=1)
    before = digests(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(Abort, match="exists already"):
        simulate(tmp_path, days=1, traces_per_day=40, seed=1)
    simulate(tmp_path, days=1, traces_per_day=40, seed=1, overwrite=True)
    assert digests(tmp_path) == before | {"notes.txt": hashlib.sha256(b"mine").hexdigest()}
    with pytest.raises(Abort):
        simulate(tmp_path, days=0, traces_per_day=40, seed=1, overwrite=True)


@pytest.mark.parametrize(
    ("first_day", "days"),
    [(date.max, 1), (date(9998, 12, 31), 2), (date.min, 1), (date(2026, 5, 2), 10**9)],
    ids=["end of time", "beyond it", "beginning of time", "a billion days"],
)
def test_days_that_no_calendar_has_are_refused_before_anything_is_written(
    tmp_path: Path, first_day: date, days: int
) -> None:
    with pytest.raises(Abort, match="days are from 1970 to 9998"):
        simulate(tmp_path / "out", days=days, traces_per_day=5, seed=1, first_day=first_day)
    assert not (tmp_path / "out").exists()


def test_progress_reaches_the_number_of_pairs(tmp_path: Path) -> None:
    calls: list[tuple[date, int, int]] = []
    simulate(tmp_path, days=2, traces_per_day=60, seed=1, progress=lambda *call: calls.append(call))
    assert calls[-1] == (date(2026, 5, 3), 60, 60)
    assert [done for day, done, _ in calls if day == date(2026, 5, 2)][-1] == 60


def test_each_day_names_exactly_the_asked_number_of_pairs(simulated: Simulated) -> None:
    for day in simulated.report.days:
        problems = read_rows(simulated.root / day.isoformat() / "problems.jsonl")
        pairs = [(entry["eval_run_id"], row["problem_id"]) for row in problems for entry in row["validator_results"]]
        assert len(pairs) == len(set(pairs)) == 600
        rows = [(row["agent_version_id"], row["problem_id"]) for row in problems]
        assert len(rows) == len(set(rows))


def test_every_executed_pair_has_one_truth_row_and_the_others_have_none(simulated: Simulated) -> None:
    reported = {
        (entry["eval_run_id"], row["problem_id"]): entry
        for row in simulated.rows("problems.jsonl")
        for entry in row["validator_results"]
    }
    truth = {(row["eval_run_id"], row["problem_id"]): row for row in simulated.truth}
    assert len(truth) == len(simulated.truth) == simulated.report.executed
    assert set(truth) <= set(reported)
    unfinished = {run["eval_run_id"]: run["status"] for run in simulated.rows("runs.jsonl")}
    ghosts = Counter(unfinished[run] for run, _ in set(reported) - set(truth))
    assert ghosts == {"STALE": 6, "TIMED_OUT": 4, "RUNNING": 4}
    for key, row in truth.items():
        entry = reported[key]
        assert (entry["status"], entry["score"], entry["reasoning_score"]) == (
            row["reported_status"],
            row["reported_score"],
            row["reasoning_score"],
        )
        assert utc_day(entry["updated_at"]) == date.fromisoformat(row["expected_utc_day"])


def test_reported_scores_are_the_true_ones_except_where_labelled(simulated: Simulated) -> None:
    scored = [row for row in simulated.truth if row["outcome"] in ("success", "failure")]
    differing = [row for row in scored if row["success"] != (row["reported_score"] == 1.0)]
    assert differing and all("score_flipped" in row["flags"] for row in differing)
    for row in simulated.truth:
        if row["run_status"] == "FAILED":  # the judge failed after scoring: the score is there, the trace is not
            assert row["outcome"] == "no_trace" and row["artifact"] is None and row["reasoning_score"] is None
        elif row["outcome"] == "no_trace" or (row["outcome"] == "unscorable" and row["axis_reason"] != "unreadable"):
            assert row["reported_score"] == 0.0 and row["reasoning_score"] is None


def test_the_artifacts_named_in_the_truth_are_the_ones_that_exist(simulated: Simulated) -> None:
    named = {row["artifact"] for row in simulated.truth if row["artifact"]}
    found = {
        path.relative_to(simulated.root).as_posix()
        for day in simulated.report.days
        for path in (simulated.root / day.isoformat() / "artifacts").rglob("*.gz")
    }
    assert named == found
    missing = [row for row in simulated.truth if row["artifact"] is None]
    assert {row["execution_status"] for row in missing if row["run_status"] == "SUCCESS"} == {"NO_LINE"}
    assert any(row["run_status"] == "FAILED" for row in missing)


def test_miners_act_only_through_the_sandbox(simulated: Simulated) -> None:
    """Every result in every trace is what the tool answers to the same arguments."""
    checked = 0
    for row in simulated.truth:
        if row["malformed"] or row["subkind"] in ("plain_array", "trailing_nuls") or row["artifact"] is None:
            continue
        for step in dialogue(simulated, row):
            for call in step["completion"]["message"].get("tool_call", []):
                asked = {{"query": "q"}.get(key, key): value for key, value in call["parameters"].items()}
                answer = call_tool(simulated.world, call["name"], asked)
                if row["kind"] == "a_composite" and answer == [] and "service" in asked:
                    lighter = {key: value for key, value in asked.items() if key != "service"}
                    answer = call_tool(simulated.world, call["name"], lighter)  # the reference agent's own retry
                assert call["result"] == answer
                checked += 1
    assert checked > 3_000


def test_every_kind_and_nearly_every_quirk_shows_up(simulated: Simulated) -> None:
    assert set(simulated.report.by_kind) == set(MINERS)
    assert set(simulated.report.by_axis) == {"A", "B", "mixed", "unknown"}
    assert set(simulated.report.by_outcome) == {"success", "failure", "no_trace", "unscorable"}
    quirks = {row["subkind"] for row in simulated.truth}
    assert len(set(QUIRKS) - quirks) <= len(QUIRKS) * 0.2
    assert {source for row in simulated.truth for source in row["injection_sources"]} == {
        "param",
        "product_text",
        "query",
        "think",
    }


def test_most_traces_are_honest_and_most_of_those_succeed(simulated: Simulated) -> None:
    kinds = ("a_native", "a_xml", "a_refine", "a_composite", "copycat")
    honest = [row for row in simulated.truth if row["kind"] in kinds and row["subkind"] is None]
    assert 0.5 <= len(honest) / len(simulated.truth) <= 0.7
    assert 0.5 <= sum(row["success"] for row in honest) / len(honest) <= 0.85
    assert {row["category"] for row in honest if row["success"]} == {"product", "shop", "voucher"}


def test_honest_traces_are_short_and_their_thoughts_name_data(simulated: Simulated) -> None:
    lengths, steps, sizes = [], [], []
    named = 0
    honest = [row for row in simulated.truth if row["kind"] in ("a_native", "a_xml") and row["subkind"] is None]
    for row in honest:
        if row["artifact"] is None:
            continue
        messages = [step["completion"]["message"] for step in dialogue(simulated, row)]
        thoughts = [message.get("think", "") for message in messages]
        named += any(picked in think for picked in row["recommended_ids"] for think in thoughts)
        lengths += [len(think) for think in thoughts]
        steps.append(len(messages))
        sizes.append(sum(len(json.dumps(message)) for message in messages))
    assert sum(lengths) / len(lengths) < 150 and max(lengths) < 450
    assert 3 <= sum(steps) / len(steps) <= 7
    assert 3_000 < sum(sizes) / len(sizes) < 8_000
    assert named / len(steps) > 0.9


def test_copied_agents_leave_equal_dialogues(simulated: Simulated) -> None:
    by_problem: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in simulated.truth:
        if row["strategy_group"] and row["artifact"]:
            messages = [step["completion"]["message"] for step in dialogue(simulated, row)]
            key = (row["strategy_group"], row["problem_id"], row["validator_hotkey"])
            by_problem.setdefault(key, {})[row["agent_version_id"]] = json.dumps(messages)
    copied = [texts for texts in by_problem.values() if len(texts) > 1]
    assert copied and all(len(set(texts.values())) == 1 for texts in copied)


def test_validators_disagree_about_some_agents(simulated: Simulated) -> None:
    results = [
        {entry["score"] for entry in row["validator_results"] if entry["score"] is not None}
        for row in simulated.rows("problems.jsonl")
        if len(row["validator_results"]) > 1
    ]
    assert {0.0, 1.0} in results and len(results) > 20


def test_late_judgments_and_run_states(simulated: Simulated) -> None:
    late = Counter(
        (date.fromisoformat(row["expected_utc_day"]) - date.fromisoformat(row["day"])).days for row in simulated.truth
    )
    assert set(late) == {0, 1, 2} and late[0] > 0.95 * len(simulated.truth)
    runs = simulated.rows("runs.jsonl")
    assert {"SUCCESS", "FAILED", "STALE", "TIMED_OUT", "RUNNING", "CANCELLED", "CLAIMED"} == {
        run["status"] for run in runs
    }
    assert any(run["invalidated_at"] for run in runs)
    assert any(run["status"] == "SUCCESS" and not run["is_included"] and not run["invalidated_at"] for run in runs)
    assert {run["phase"] for run in runs} == {"QUALIFYING", "RACE"}
    assert {row["usable_run"] for row in simulated.truth} == {True, False}


def test_scores_lie_on_the_grid_except_for_labelled_faults(simulated: Simulated) -> None:
    states = Counter(row["judge_state"] for row in simulated.truth)
    assert {"judged", "not_judged", "infrastructure_zero"} <= set(states)
    for row in simulated.truth:
        if row["judge_state"] == "judged":
            assert row["reasoning_score"] in (0.1, 0.3, 0.5, 0.7, 0.9)


def test_the_listing_files_have_the_fields_of_the_shared_days(simulated: Simulated, shared: Path) -> None:
    theirs, ours = shared / "days" / "2026-05-02", simulated.root / simulated.report.days[0].isoformat()
    for name, further in (("runs.jsonl", []), ("problems.jsonl", []), ("agent_versions.jsonl", VERSION_STATUS)):
        assert list(read_rows(ours / name)[0]) == list(read_rows(theirs / name)[0]) + further, name
    results = [read_rows(folder / "problems.jsonl")[0]["validator_results"][0] for folder in (ours, theirs)]
    assert list(results[0]) == list(results[1])
    suites = [json.loads((folder / "suite.json").read_text("utf-8")) for folder in (ours, theirs)]
    assert list(suites[0]["suite"]) == list(suites[1]["suite"])
    assert set(suites[0]["problems"][0]) == set(suites[1]["problems"][0])
    products = [read_rows(folder / "catalogue" / "products.jsonl")[0] for folder in (simulated.root, theirs)]
    assert set(products[0]) == set(products[1])
    missing = set(read_rows(shared / "days" / "truth.jsonl")[0]) - set(simulated.truth[0])
    assert missing == {
        "score",
        "score_error",
        "format_score",
        "not_in_catalogue_ids",
    }


@pytest.mark.parametrize(
    ("day", "log", "kinds", "form"),
    [
        ("2026-04-10", False, set(), "json_array_gzip"),
        ("2026-04-20", True, {None}, "json_array_gzip"),
        ("2026-04-28", True, {"summary"}, "whole_file_gzip"),
    ],
)
def test_earlier_eras_look_like_their_time(tmp_path: Path, day: str, log: bool, kinds: set[Any], form: str) -> None:
    simulate(tmp_path, days=1, traces_per_day=60, seed=2, first_day=date.fromisoformat(day))
    truth = read_rows(tmp_path / "truth.jsonl")
    forms = {row["artifact_form"] for row in truth if row["artifact_form"] not in (None, "json_array_plain")}
    assert forms == {form}
    found: set[Any] = set()
    for path in tmp_path.rglob("*.json.gz"):
        data = path.read_bytes()
        try:
            text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).rstrip(b"\x00").decode()
            records = [json.loads(line) for line in text.splitlines()]
        except (ValueError, EOFError):
            continue  # damaged on purpose
        if form == "whole_file_gzip":
            assert all(set(record) >= {"problem_id", "status", "dialogue", "inference_total"} for record in records)
        for record in records:
            for step in (record["dialogue"] or []) if isinstance(record, dict) else record:
                found |= {entry.get("kind") for entry in step["extra_info"].get("proxy_calls", [])}
    assert bool(found) is log and found == kinds
    if day == "2026-04-10":
        assert {row["reasoning_score"] for row in truth} == {None}
        assert {row["axis"] for row in truth} == {"unknown"}


def test_the_platform_s_own_scorer_and_axis_agree_with_the_truth(simulated: Simulated) -> None:
    """Independent of construction: the rule scorer and the evidence matcher see what the arena meant."""
    from trajectory_platform.curation.agency import decide
    from trajectory_platform.judging.outcome import score
    from trajectory_platform.sandbox.problems import parse_problem
    from trajectory_platform.sources.container import Limits, open_artifact
    from trajectory_platform.traces.normalise import read_record

    suite = {
        item["problem_id"]: parse_problem(item, suite_id=None)
        for day in simulated.report.days
        for item in json.loads((simulated.root / day.isoformat() / "suite.json").read_text("utf-8"))["problems"]
    }
    bindings = {
        (entry["eval_run_id"], row["problem_id"]): {
            "problem_status": entry["status"],
            "inference_total": entry["inference_total"],
        }
        for row in simulated.rows("problems.jsonl")
        for entry in row["validator_results"]
    }
    axes, outcomes = Counter(), Counter()
    for row in simulated.truth:
        if row["artifact"] is None or row["axis_reason"] in ("unreadable", "no_dialogue"):
            continue
        record = open_artifact((simulated.root / row["artifact"]).read_bytes(), Limits()).records[0]
        problem = suite.get(row["problem_id"])
        if problem is not None:
            outcome = score(record.steps or [], problem, simulated.world.catalogue)
            outcomes[outcome.outcome == row["outcome"]] += 1
            if row["malformed"] is None:
                assert outcome.recommended_ids == row["recommended_ids"]
                assert sorted(outcome.hallucinated_ids) == sorted(row["hallucinated_ids"])
                assert sorted(outcome.unviewed_ids) == sorted(row["unviewed_ids"])
        if row["malformed"] is None:
            trajectory = read_record(record, bindings[row["eval_run_id"], row["problem_id"]])
            axes[decide(trajectory.messages, trajectory.evidence).label == row["axis"]] += 1
    assert outcomes[False] == 0 and outcomes[True] > 800
    assert axes[True] / axes.total() >= 0.99


def test_problem_clusters_hold_what_shares_a_product(simulated: Simulated) -> None:
    clusters = read_rows(simulated.root / "problem_clusters.jsonl")
    assert len({row["problem_id"] for row in clusters}) == len(clusters) == simulated.report.problems
    of_problem = {row["problem_id"]: row["leak_cluster"] for row in clusters}
    of_product: dict[str, set[str]] = {}
    for day in simulated.report.days:
        for item in json.loads((simulated.root / day.isoformat() / "suite.json").read_text("utf-8"))["problems"]:
            reward = item["metadata"]["reward"]
            for entry in reward if isinstance(reward, list) else [reward]:
                of_product.setdefault(entry["product_id"], set()).add(of_problem[item["problem_id"]])
    assert all(len(found) == 1 for found in of_product.values())
    variants = [row for row in clusters if row["variant_of"]]
    assert len({row["variant_of"]["how"] for row in variants}) >= 4
    assert all(row["leak_cluster"] == of_problem[row["variant_of"]["problem_id"]] for row in variants)
    days = {row["problem_id"]: row["day"] for row in clusters}
    assert any(days[row["variant_of"]["problem_id"]] < row["day"] for row in variants)
    race = {row["problem_id"] for row in clusters if not row["in_suite_file"]}
    assert race and {row["phase"] for row in simulated.truth if row["problem_id"] in race} == {"RACE"}


def test_worker_processes_do_not_change_a_byte(tmp_path: Path) -> None:
    for workers in (1, 2):
        simulate(tmp_path / str(workers), days=1, traces_per_day=260, seed=8, workers=workers)
    assert digests(tmp_path / "1") == digests(tmp_path / "2")


def test_nothing_depends_on_the_hash_seed_of_the_process(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from trajectory_platform.arena.simulate import simulate; "
        "simulate(Path(sys.argv[1]), days=1, traces_per_day=60, seed=4)"
    )
    for name, hash_seed in (("one", "1"), ("two", "2")):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", script, str(tmp_path / name)], check=True, env=environment, cwd=ROOT)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
