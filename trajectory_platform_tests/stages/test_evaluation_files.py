"""``evaluate`` and ``compare`` on plain files: what is written, what is refused, and that a cut run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.lake.tables import EVAL_SCORES, ROLLOUTS
from trajectory_platform.settings import Settings
from trajectory_platform.stages import evaluation_files
from trajectory_platform.stages.evaluations import compare_files, evaluate_files
from trajectory_platform_tests.stages.arena_days import DAYS, here, make_days, settings_for

SCRIPT = "script:search_and_check"


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_days(tmp_path_factory.mktemp("suites") / "days", days=1)


@pytest.fixture
def settings(days: Path, tmp_path: Path) -> Settings:
    return settings_for(days, tmp_path / "lake", pool_train=40, pool_dev=50, pool_sealed=10)


def run(settings: Settings, out: Path, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "suites": [Path(settings.data_root) / DAYS[0] / "suite.json"],
        "catalogue": Path(settings.data_root) / "catalogue" / "products.jsonl",
        "out": out,
        "day": DAYS[0],
        "runner": here,
    }
    chosen = {} if "checkpoint" in more else {"policy": SCRIPT}
    return evaluate_files(settings, **(given | chosen | more))


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_traces_scores_and_metrics_are_written_and_agree(settings: Settings, tmp_path: Path) -> None:
    done = run(settings, tmp_path / "out", problems=4, k=2)
    scores, traces = rows_of(tmp_path / "out" / "scores.jsonl"), rows_of(tmp_path / "out" / "rollouts.jsonl")
    scored = [row for row in scores if row["outcome"] != "no_reward"]
    assert len(scored) == len(traces) == 8 and {row["sample"] for row in scored} == {0, 1}
    assert set(scores[0]) == set(EVAL_SCORES.columns) and set(traces[0]) == set(ROLLOUTS.columns)
    assert {row["trace_id"] for row in traces} == {row["trace_id"] for row in scored}
    assert {row["pool"] for row in scored} == {"dev"} and {row["checkpoint_id"] for row in scores} == {SCRIPT + "@1"}
    assert traces[0]["messages"][0]["role"] == "user" and traces[0]["source_steps"][0]["extra_info"]["proxy_calls"]
    (metrics,) = rows_of(tmp_path / "out" / "metrics.json")
    assert (
        metrics == json.loads(json.dumps(done["metrics"]))
        and metrics["overall"]["problems"] == 4
        and metrics["pool"] == "dev"
    )
    assert metrics["overall"]["success_rate"]["value"] > 0.5 and "pass@2" in done["text"]


def test_references_of_a_file_ground_the_process_score(settings: Settings, tmp_path: Path) -> None:
    run(settings, tmp_path / "out", problems=3)
    assert rows_of(tmp_path / "out" / "metrics.json")[0]["process_references"]["without"] == {"no_references_given": 3}
    solved = {row["trace_id"] for row in rows_of(tmp_path / "out" / "scores.jsonl") if row["success"]}
    taught = [row for row in rows_of(tmp_path / "out" / "rollouts.jsonl") if row["trace_id"] in solved]
    accepted = tmp_path / "accepted.jsonl"
    accepted.write_text("".join(json.dumps(row) + "\n" for row in taught[:2]), "utf-8")
    run(settings, tmp_path / "again", problems=3, references=accepted)
    scores = {row["problem_key"]: row for row in rows_of(tmp_path / "again" / "scores.jsonl")}
    for row in taught[:2]:
        own = scores[row["problem_key"]]
        assert own["process_reference"] == row["trace_id"] and own["process_score"] > 0.7
    (metrics,) = rows_of(tmp_path / "again" / "metrics.json")
    assert metrics["process_references"] == {"problems": 2, "without": {"no_strict_success_known": 1}}
    accepted.write_text('{"problem_key": 1}\n', "utf-8")
    with pytest.raises(Abort, match="line 1 is no accepted row"):
        run(settings, tmp_path / "third", problems=3, references=accepted)


def test_our_own_traces_pass_through_the_readers_of_miners_traces(settings: Settings, tmp_path: Path) -> None:
    """Judge, filter and viewer work on them: read back, a trace gives the same messages, all calls emitted."""
    from trajectory_platform.curation.agency import decide
    from trajectory_platform.traces.sn15 import read_dialogue

    run(settings, tmp_path / "out", problems=3)
    for row in rows_of(tmp_path / "out" / "rollouts.jsonl"):
        read = read_dialogue(row["source_steps"], binding=None)
        assert read.messages == row["messages"] and read.content_hash == row["content_hash"]
        found = decide(read.messages, read.evidence)
        assert found.label == "A", found


def test_the_comparison_pairs_problems_and_says_what_it_could_see(settings: Settings, tmp_path: Path) -> None:
    for name, policy in (("a", "script:random_browser"), ("b", SCRIPT)):
        run(settings, tmp_path / name, policy=policy, problems=6)
    result = compare_files(tmp_path / "a" / "scores.jsonl", tmp_path / "b" / "scores.jsonl")
    assert result["overall"]["problems"] == 6 and result["overall"]["difference"]["value"] > 0
    assert result["dropped"]["only_in_a"] == result["dropped"]["only_in_b"] == []
    assert "b minus a" in result["text"] and "differences above" in result["text"]
    with pytest.raises(Abort, match="is no row of scores"):
        compare_files(tmp_path / "a" / "rollouts.jsonl", tmp_path / "b" / "scores.jsonl")


def test_a_finished_or_cut_run_is_never_overwritten_and_resumes(settings: Settings, tmp_path: Path) -> None:
    first = run(settings, tmp_path / "out", problems=3)
    with pytest.raises(Abort, match="holds an evaluation"):
        run(settings, tmp_path / "out", problems=3)
    log = tmp_path / "out" / evaluation_files.LOG
    log.write_bytes(log.read_bytes()[:-100])  # as after kill -9: the last attempt is cut
    again = run(settings, tmp_path / "out", problems=3, resume=True)
    assert (first["resumed"], again["resumed"], again["attempts"]) == (0, 2, 3)
    with pytest.raises(Abort, match="another evaluation"):
        run(settings, tmp_path / "out", problems=3, resume=True, policy="script:random_browser")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"k": 2, "temperature": 0.0}, "need a temperature above 0"),
        ({"policy": "script:nobody"}, "no script is named"),
        ({"policy": None}, "either a checkpoint folder or a policy"),
        ({"pool": "train"}, "choose one of"),
        ({"pool": "sealed"}, "only with a reason"),
        (
            {"suites": [Path("nowhere.json")]},
            "cannot read suite file nowhere.json: no such file; .*--pool benchmark:NAME",
        ),
        ({"checkpoint": Path("nowhere")}, "is no folder"),
        ({"catalogue": Path("nowhere.jsonl")}, "nowhere.jsonl"),
    ],
)
def test_wrong_use_is_one_line_and_attempts_nothing(
    settings: Settings, tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(Abort, match=words) as caught:
        run(settings, tmp_path / "out", problems=2, **({"runner": pytest.fail} | wrong))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "scores.jsonl").exists()


def test_the_sealed_pool_is_recorded_with_its_reason(settings: Settings, tmp_path: Path) -> None:
    run(settings, tmp_path / "out", pool="all", problems=30, sealed_reason="final numbers")
    ledger = (Path(settings.lake_uri) / "_sealed_reads.jsonl").read_text("utf-8")
    assert json.loads(ledger)["reason"] == "final numbers"
    assert "train pool" in run(settings, tmp_path / "more", pool="all", sealed_reason="final numbers")["text"]


def test_a_checkpoint_is_not_measured_on_what_it_was_trained_on(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a lake the trace list in the checkpoint's folder still says which problems fed it."""
    run(settings, tmp_path / "out", problems=3)
    (seen, *_) = {row["problem_id"] for row in rows_of(tmp_path / "out" / "scores.jsonl") if row["trace_id"]}
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "rows_report.json").write_text(json.dumps({"times": {f"some-run:{seen}": 1}}))
    known = evaluation_files._subject
    monkeypatch.setattr(evaluation_files, "_subject", lambda c, p, *more: (known(None, SCRIPT, *more)[0], c))
    with pytest.raises(FailPartition, match="leak: .* was trained on traces of"):
        run(settings, tmp_path / "leak", problems=3, checkpoint=folder)
    counted = run(settings, tmp_path / "all", problems=30, checkpoint=folder, pool="all", sealed_reason="x")
    assert counted["metrics"]["trained_on_problems"] == 1


def test_damaged_scores_are_one_line_that_names_the_place(settings: Settings, tmp_path: Path) -> None:
    run(settings, tmp_path / "out", problems=2)
    good = tmp_path / "out" / "scores.jsonl"
    lines = good.read_text("utf-8").splitlines()

    def refused(kind: type[Exception], *changed: str) -> str:
        bad = tmp_path / "bad.jsonl"
        bad.write_text("\n".join(changed), "utf-8")
        with pytest.raises(kind) as error:
            compare_files(bad, good)
        return str(error.value)

    def with_value(name: str, value: Any) -> str:
        return json.dumps(json.loads(lines[1]) | {name: value})

    assert "bad.jsonl line 2 is damaged (truncated_json)" in refused(FailPartition, lines[0], lines[1][:100])
    assert "line 2 is damaged" in refused(FailPartition, lines[0], with_value("seconds", float("nan")))
    assert "holds no scores" in refused(Abort, "")
    for name, value in {"problem_key": None, "checkpoint_id": 5, "hallucinated_ids": "12", "sample": True}.items():
        assert f"wrong_type: {name}" in refused(FailPartition, lines[0], with_value(name, value))
    for value in (10**400, 1e308):
        assert "number_out_of_range: seconds" in refused(FailPartition, lines[0], with_value("seconds", value))


def test_any_whole_number_is_a_seed(settings: Settings, tmp_path: Path) -> None:
    run(settings, tmp_path / "out", problems=2, seed=-1)
    scores = tmp_path / "out" / "scores.jsonl"
    assert compare_files(scores, scores, seed=-7)["overall"]["difference"]["value"] == 0


def test_a_file_without_readable_problems_says_why(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "suite.jsonl").write_text('"text"\n5\n')
    with pytest.raises(Abort, match="rows that cannot be read: "):
        run(settings, tmp_path / "out", suites=[tmp_path / "suite.jsonl"])


def test_what_the_lake_sealed_is_sealed_in_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may hold a sealed problem without the variants that sealed it."""
    from trajectory_platform.lake import sealing
    from trajectory_platform.stages import evaluation_files
    from trajectory_platform.stages.context import StageContext

    suite = tmp_path / "own.jsonl"
    rows = [
        {
            "query": f"I want a red kettle number {number} please",
            "category": "product",
            "reward": {"product_id": str(9_000 + number), "title": [f"kettle number {number}"]},
        }
        for number in range(20)
    ]
    suite.write_text("\n".join(json.dumps(row) for row in rows))
    ctx = StageContext(Settings(lake_uri=str(tmp_path / "lake")))
    before = {one.problem.problem_key: one.pool for one in evaluation_files._of_files(ctx, [suite], "all")[0]}
    train = min(key for key, pool in before.items() if pool == "train")
    closed = sealing.Seal("2026-05-02", frozenset({train}), frozenset())
    monkeypatch.setattr(sealing, "sealed", lambda _: closed)
    after = {one.problem.problem_key: one.pool for one in evaluation_files._of_files(ctx, [suite], "all")[0]}
    assert after == {**before, train: "sealed"}


def test_what_an_ancestor_was_trained_on_counts_as_seen(settings: Settings, tmp_path: Path) -> None:
    """The folder of the ancestor lies beside that of the checkpoint; one that does not is named, not forgotten."""
    from trajectory_platform.evaluation.eval_problems import EvalProblem
    from trajectory_platform.stages.folder_lineage import trained_on
    from trajectory_platform_tests.splits.rows import public

    asked = [
        EvalProblem(public(name, f"a wish {name}", ["1"]), f"lc-{name}", "dev") for name in ("one", "two", "three")
    ]
    for name, ancestors, report in (
        ("kto-x", ["sft-x", "sft-gone"], {"times": {"run:one": 1.0}, "traces": []}),
        ("sft-x", [], {"times": {}, "traces": [{"problem_key": asked[1].problem.problem_key}]}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows_report.json").write_text(json.dumps(report))
        manifest = {"ancestors": [{"checkpoint_id": one} for one in ancestors]}
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest))
    found = trained_on(tmp_path / "kto-x", asked)
    assert found.problem_ids == ["one", "two"] and found.unknown_ancestors == ["sft-gone"]
    assert trained_on(None, asked).problem_ids == []
