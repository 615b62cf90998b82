"""What a checkpoint was made of and what became of a trace, asked of a real lake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.identity import digest_lines
from trajectory_platform.lake import tables
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lineage.questions import about_checkpoint, about_trace
from trajectory_platform.lineage.retraction_plan import plan
from trajectory_platform.lineage.retractions import retract, subject_of
from trajectory_platform.lineage.words import checkpoint_text, recipe_text, trace_text

FIRST, SECOND = "2026-05-01", "2026-05-02"
PARENT = f"sft-{FIRST}-aaaaaaaaaaaa"
CHILD = f"sft-{SECOND}-bbbbbbbbbbbb"
ESC = "\x1b[31m"


def filled(table: tables.Table, **values: Any) -> dict[str, Any]:
    """A row of a table: given values, null where allowed, else a plain value of the type."""
    plain = {"text": "x", "int": 0, "float": 0.0, "bool": False, "texts": []}
    row: dict[str, Any] = {}
    for name, kind in table.columns.items():
        row[name] = None if kind.endswith("?") else plain.get(kind)
        if name in table.values and not kind.endswith("?"):
            row[name] = table.values[name][0]
    unknown = set(values) - set(row)
    assert not unknown, unknown
    return {**row, **values}


def publish(
    lake: Lake, table: tables.Table, day: str, rows: list[dict[str, Any]], part: Mapping[str, str] | None = None
) -> Any:
    import pyarrow as pa

    data = pa.Table.from_pylist([filled(table, day=day, **row) for row in rows], schema=table.schema())
    return lake.publish(
        table, day, data, identity=f"{table.name}/{day}", inputs={}, code_version="1", settings={}, part=part
    )


def corpus_row(trace_id: str, miner: str, strategy: str, judge: str) -> dict[str, Any]:
    return {
        "trace_id": trace_id,
        "miner_hotkey": miner,
        "agent_version_id": f"agent-{miner}",
        "category": "product",
        "messages": "[]",
        "tools": "[]",
        "axis_label": "A",
        "axis_reason": "dispatches_and_final_emitted",
        "axis_share": 1.0,
        "uses": ["sft"],
        "strategy_cluster": strategy,
        "judge_kind": judge,
        "score_regime": "discrete",
        "outcome_source": "rule",
        "content_hash": f"hash-{trace_id}",
    }


def checkpoint(lake: Lake, name: str, day: str, parent: str | None, traces: list[tuple[str, str]], inputs: Any) -> None:
    digest = digest_lines(sorted(f"train:{trace_id}" for trace_id, _ in traces))
    manifest = {
        "inputs": inputs,
        "recipe": {"name": "smoke"},
        "seeds": {"training": 0},
        "code_version": "sft-1",
        "packages": {"trl": "1.16.0"},
        "rows": {},
        "metrics": {"last_loss": 1.0},
        "trace_list_digest": digest,
    }
    row = {"checkpoint_id": name, "stage": "sft", "parent": parent, "path": name, "manifest": json.dumps(manifest)}
    part = {"stage": "sft"}
    publish(lake, tables.CHECKPOINTS, day, [{**row, "trace_list_digest": digest, "traces": len(traces)}], part)
    fed = [
        {
            "checkpoint_id": name,
            "stage": "sft",
            "trace_id": trace_id,
            "role": "train",
            "weight": 2.0,
            "trace_day": trace_day,
            "problem_key": f"key-{trace_id}",
            "cluster_id": "c1",
        }
        for trace_id, trace_day in traces
    ]
    publish(lake, tables.CHECKPOINT_TRACES, day, fed, part)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    raw = [
        {
            "trace_id": "run1:good",
            "state": "trace",
            "folder_day": FIRST,
            "miner_hotkey": f"miner{ESC}",
            "artifact_uri": "u",
        },
        {"trace_id": "run1:bad", "state": "trace", "folder_day": FIRST, "miner_hotkey": "m1"},
        {"trace_id": "run1:none", "state": "no_trace", "state_reason": "empty_artifact", "folder_day": FIRST},
    ]
    publish(lake, tables.RAW_TRACES, FIRST, raw)
    repairs = json.dumps([{"reason": "alias_query", "where": "step 1", "count": 2}])
    readable = {"readable": True, "messages": "[]", "tools": "[]", "repairs": repairs, "content_hash": "h"}
    publish(
        lake,
        tables.TRAJECTORIES,
        FIRST,
        [{"trace_id": "run1:good", **readable}, {"trace_id": "run1:bad", **readable}],
    )
    judged = {"outcome": "success", "outcome_source": "rule", "score": "{}", "recommended_ids": ["7"]}
    publish(
        lake, tables.JUDGED_TRACES, FIRST, [{"trace_id": "run1:good", **judged}, {"trace_id": "run1:bad", **judged}]
    )
    verdict = {"trace_id": "run1:good", "judge_kind": "validator", "judge_model": "GLM", "reasoning_quality": 0.9}
    publish(lake, tables.VERDICTS, FIRST, [verdict])
    publish(lake, tables.AXIS_A_CORPUS, FIRST, [corpus_row("run1:good", f"miner{ESC}", "s1", "validator")])
    rejected = {"stage": "axis", "reason": "axis_b", "detail": "share 0.1"}
    publish(lake, tables.REJECTED_TRACES, FIRST, [{"trace_id": "run1:bad", **rejected}])
    publish(lake, tables.AXIS_A_CORPUS, SECOND, [corpus_row("run2:new", "m2", "s1", "rules")])
    split = {"cluster_id": "c1", "pool": "train", "uses": ["sft"], "problem_key": "k"}
    rows = [{"trace_id": "run1:good", "trace_day": FIRST, **split}]
    publish(lake, tables.LEAK_GUARDED_SPLITS, SECOND, rows)
    current = lake.manifest(tables.AXIS_A_CORPUS, FIRST)
    assert current is not None
    checkpoint(lake, PARENT, FIRST, None, [("run1:good", FIRST)], {})
    inputs = {
        f"axis_a_corpus/{FIRST}": {"content_digest": current.content_digest, "table_version": current.table_version},
        f"axis_a_corpus/{SECOND}": {"content_digest": "0" * 64, "table_version": 9},
    }
    used = [("run1:good", FIRST), ("run2:gone", SECOND), ("run2:new", SECOND)]
    checkpoint(lake, CHILD, SECOND, PARENT, used, inputs)
    return lake


def test_a_checkpoint_answers_what_it_was_made_of(lake: Lake) -> None:
    answer = about_checkpoint(lake, CHILD)
    assert answer is not None
    assert answer["parents"] == [PARENT] and answer["traces"] == 3 and answer["trace_list_holds"]
    assert answer["days"] == {SECOND: 2, FIRST: 1}
    assert answer["miners"] == {"m2": 1, f"miner{ESC}": 1} and answer["strategies"] == {"s1": 2}
    assert answer["verdict_sources"] == {"rules/discrete": 1, "validator/discrete": 1}
    assert json.loads(json.dumps(answer)) == answer


def test_a_retracted_trace_and_a_changed_partition_are_named(lake: Lake) -> None:
    answer = about_checkpoint(lake, CHILD)
    assert answer is not None
    assert answer["no_longer_in_corpus"] == ["run2:gone"]
    assert [change["input"] for change in answer["changed_inputs"]] == [f"axis_a_corpus/{SECOND}"]
    text = checkpoint_text(answer)
    assert "CHANGED since" in text and "run2:gone" in text and "\x1b" not in text and "\\x1b[31m" in text


def test_a_dropped_edge_shows_as_a_list_that_does_not_hold(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    checkpoint(lake, CHILD, SECOND, None, [("run1:good", FIRST), ("run1:other", FIRST)], {})
    publish(lake, tables.CHECKPOINT_TRACES, SECOND, [], {"stage": "sft"})
    answer = about_checkpoint(lake, CHILD)
    assert answer is not None and not answer["trace_list_holds"]
    assert "DOES NOT match" in checkpoint_text(answer)


def test_a_trace_answers_every_decision_and_where_it_went(lake: Lake) -> None:
    answer = about_trace(lake, "run1:good")
    assert answer is not None
    assert [(step["stage"], step["decision"]) for step in answer["steps"]] == [
        ("raw_traces", "trace"),
        ("trajectories", "readable"),
        ("judged_traces", "success"),
        ("verdict of validator", "reasoning 0.9"),
        ("axis_a_corpus", "accepted"),
        ("leak_guarded_splits", "train"),
    ]
    assert [row["checkpoint_id"] for row in answer["fed"]] == [PARENT, CHILD]
    text = trace_text(answer)
    assert "\x1b" not in text and "alias_query x2" in text and f"fed {CHILD} as train, used 2 times" in text


def test_a_rejected_trace_names_stage_and_reason_and_fed_nothing(lake: Lake) -> None:
    answer = about_trace(lake, "run1:bad")
    assert answer is not None
    assert answer["steps"][-1]["decision"] == "rejected" and answer["steps"][-1]["reason"] == "axis_b"
    assert "fed no checkpoint" in trace_text(answer)


def test_a_pair_without_a_trace_is_known_too(lake: Lake) -> None:
    answer = about_trace(lake, "run1:none")
    assert answer is not None
    assert [(step["decision"], step["reason"]) for step in answer["steps"]] == [("no_trace", "empty_artifact")]


@pytest.mark.parametrize("name", ["never:seen", "'; drop table x; --"])
def test_an_unknown_id_is_none(lake: Lake, name: str) -> None:
    assert about_trace(lake, name) is None and about_checkpoint(lake, name) is None


def test_training_traces_that_are_held_out_since_are_named(tmp_path: Path) -> None:
    """Clusters merge and hold-outs come after the training; the old checkpoint must not be scored on those problems."""
    lake = Lake(str(tmp_path / "lake"))
    publish(lake, tables.AXIS_A_CORPUS, FIRST, [corpus_row("run1:good", "m", "s", "rules")])
    checkpoint(lake, PARENT, FIRST, None, [("run1:good", FIRST), ("run1:kept", FIRST)], {})
    for day, pool in ((FIRST, "train"), (SECOND, "sealed")):
        rows = [{"problem_key": "key-run1:good", "pool": pool}, {"problem_key": "key-run1:kept", "pool": "train"}]
        publish(lake, tables.LEAK_CLUSTERS, day, rows)
        facts = about_checkpoint(lake, PARENT)
        assert facts is not None
        assert facts["held_out_since"] == ({} if pool == "train" else {"sealed": 1})
    assert facts is not None and "HELD OUT since" in checkpoint_text(facts)


def test_a_trace_judged_on_two_days_tells_both(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    for day, state, miner in ((FIRST, "trace", "old"), (SECOND, "run_unusable", "new")):
        row = {"trace_id": "run1:p", "state": state, "folder_day": day, "miner_hotkey": miner}
        publish(lake, tables.RAW_TRACES, day, [row])
    publish(lake, tables.AXIS_A_CORPUS, FIRST, [corpus_row("run1:p", "old", "s", "rules")])
    rejected = {"trace_id": "run1:p", "stage": "ingest", "reason": "run_unusable"}
    publish(lake, tables.REJECTED_TRACES, SECOND, [rejected])
    publish(
        lake, tables.SPLIT_EXCLUSIONS, SECOND, [{"trace_id": "run1:p", "trace_day": FIRST, "reason": "judged_again"}]
    )
    facts = about_trace(lake, "run1:p")
    assert facts is not None
    told = [(step["stage"], step["decision"]) for step in facts["steps"]]
    assert told == [
        ("raw_traces", "trace"),
        ("axis_a_corpus", "accepted"),
        ("raw_traces", "run_unusable"),
        ("axis_a_corpus", "rejected"),
        ("leak_guarded_splits", "excluded"),
    ]
    assert (facts["day"], facts["miner_hotkey"]) == (SECOND, "new")


def test_traces_of_our_own_checkpoints_that_came_back_are_told_apart(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    entry = {"state": "trace", "folder_day": FIRST, "miner_hotkey": "ours", "policy_checkpoint_id": PARENT}
    publish(lake, tables.RAW_TRACES, FIRST, [{"trace_id": "run1:own", **entry}])
    own = corpus_row("run1:own", "ours", "s", "rules") | {"policy_checkpoint_id": PARENT}
    publish(lake, tables.AXIS_A_CORPUS, FIRST, [own, corpus_row("run1:other", "m", "s", "rules")])
    checkpoint(lake, CHILD, SECOND, None, [("run1:own", FIRST), ("run1:other", FIRST)], {})
    facts = about_checkpoint(lake, CHILD)
    assert facts is not None and facts["own_traces"] == {PARENT: 1}
    assert f"back from the arena: {PARENT} 1" in checkpoint_text(facts)
    told = about_trace(lake, "run1:own")
    assert told is not None and told["policy_checkpoint_id"] == PARENT and told["retracted"] is None
    assert f"played by our own checkpoint {PARENT}" in trace_text(told)


def test_a_retraction_shows_in_every_answer_and_reaches_what_came_back_through_the_arena(tmp_path: Path) -> None:
    """CHILD was not fed the trace: it was fed what PARENT, which was, played in the arena."""
    lake = Lake(str(tmp_path / "lake"))
    row = {"state": "trace", "folder_day": FIRST, "miner_hotkey": "m"}
    publish(lake, tables.RAW_TRACES, FIRST, [{"trace_id": "run1:good", **row}, {"trace_id": "run2:own", **row}])
    own = corpus_row("run2:own", "ours", "s", "rules") | {"policy_checkpoint_id": PARENT}
    publish(lake, tables.AXIS_A_CORPUS, FIRST, [corpus_row("run1:good", "m", "s", "rules"), own])
    checkpoint(lake, PARENT, FIRST, None, [("run1:good", FIRST)], {})
    checkpoint(lake, CHILD, SECOND, None, [("run2:own", FIRST)], {})
    found = plan(lake, "run1:good")
    assert [(one["checkpoint_id"], one["why"], one["through"]) for one in found["checkpoints"]] == [
        (PARENT, "fed", []),
        (CHILD, "fed_by_one_of_these", [PARENT]),
    ]
    assert found["cost"]["everything"] == {"checkpoints": 2, "seconds": 0, "tokens": 0, "unknown": 2, "estimated": 0}
    hostile = f"asked for{ESC}"
    subject = subject_of(lake, "run1:good")
    retract(lake, subject, reason=hostile, who="me", at=datetime(2026, 6, 1, tzinfo=UTC), checkpoints=[PARENT])
    told = about_trace(lake, "run1:good")
    assert told is not None and told["retracted"]["reason"] == hostile and told["retracted"]["who"] == "me"
    assert "RETRACTED at 2026-06-01" in trace_text(told) and "\x1b" not in trace_text(told)
    facts = about_checkpoint(lake, PARENT)
    assert facts is not None and facts["retracted_rows"] == 1
    child = about_checkpoint(lake, CHILD)
    assert child is not None and child["retracted_rows"] == 0


def test_the_recipe_is_told_as_text(lake: Lake) -> None:
    answer = about_checkpoint(lake, CHILD)
    assert answer is not None and recipe_text(answer) == "name: smoke\n"
