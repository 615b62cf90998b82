"""Traces in MLflow: spans, times, tags and verdicts as the lake has them; each once; hostile texts as text.

The case H01 is here by its kind: nothing long is stored as if it were whole.
"""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.training import trace_log
from trajectory_platform.training.trace_log import EXPERIMENT, Logged, log_traces
from trajectory_platform.training.trace_spans import MAX_TAG, MAX_TEXT, capped, capped_value, trace_facts
from trajectory_platform_tests.reports.trace_samples import GOOD, HOSTILE, T0, find, view


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables: making them takes seconds, copying them does not."""
    file = tmp_path_factory.mktemp("empty") / "mlflow.db"
    log_traces(f"sqlite:///{file}", [])
    trace_log._Tracing(f"sqlite:///{file}")
    return file


@pytest.fixture
def uri(empty: Path, tmp_path: Path) -> str:
    file = tmp_path / "mlflow.db"
    with sqlite3.connect(empty) as source, sqlite3.connect(file) as target:
        source.backup(target)
    return f"sqlite:///{file}"


def stored(uri: str) -> list[Any]:
    """Every trace of the store, as MLflow reads it back."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    return list(client.search_traces(locations=[experiment.experiment_id], max_results=200))


def test_a_trace_is_stored_with_its_spans_in_order(uri: str) -> None:
    made = view(*GOOD)
    assert log_traces(uri, [made])[:3] == (1, 0, 0)
    (trace,) = stored(uri)
    spans = trace.data.spans
    assert [span.name for span in spans if span.span_type == "TOOL"] == [
        call["name"] for turn in made["turns"] for call in turn["calls"]
    ]
    assert [span.name for span in spans if span.span_type == "CHAT_MODEL"] == ["turn 1", "turn 2", "turn 3"]
    (root,) = (span for span in spans if span.parent_id is None)
    assert root.inputs == {"query": made["query"]}
    assert root.outputs["recommended"] == ["4779797803"] and root.outputs["outcome"] == "success"
    assert all(span.parent_id == root.span_id for span in spans if span is not root)
    tool = next(span for span in spans if span.name == "find_product")
    assert tool.inputs == {"q": "gray backpack", "price": "1271-2414"}
    assert [row["product_id"] for row in tool.outputs] == ["4779797803", "4888093778"]
    assert tool.attributes["emitted_by"] == "model"
    reply = next(span for span in spans if span.name == "turn 1")
    assert reply.inputs["messages"][0] == {"role": "user", "content": made["query"]}
    message = reply.outputs["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["name"] == "find_product"
    assert message["content"][0]["thinking"][0]["text"] == "Some words."


def test_times_are_those_of_the_trace(uri: str) -> None:
    log_traces(uri, [view(*GOOD)])
    (trace,) = stored(uri)
    turns = [span for span in trace.data.spans if span.span_type == "CHAT_MODEL"]
    assert [span.start_time_ns // 10**6 for span in turns] == [T0, T0 + 1000, T0 + 2000]
    assert [(span.end_time_ns - span.start_time_ns) // 10**6 for span in turns] == [900, 900, 900]
    assert trace.info.request_time == T0 and trace.info.execution_duration == 2900
    for span in trace.data.spans:
        assert span.start_time_ns <= span.end_time_ns
        assert trace.info.request_time * 10**6 <= span.start_time_ns


def test_a_trace_without_times_lies_on_its_day_in_order() -> None:
    made = view(*GOOD)
    for turn in made["turns"]:
        turn["start_ms"] = turn["end_ms"] = None
    spans = trace_facts(made).spans
    assert {span.start_ns for span in spans} == {1_777_680_000 * 10**9}  # 2026-05-02, 00:00 UTC
    assert all(span.attributes.get("times", "not known") == "not known" for span in spans)


def test_tags_and_verdicts_say_who_judged(uri: str) -> None:
    log_traces(uri, [view(*GOOD)])
    (trace,) = stored(uri)
    told = {"trace_id": "r1:p1", "day": "2026-05-02", "axis": "A", "decision": "rejected", "reason": "injection"}
    told |= {"pool": "train", "checkpoint": "sft-1", "leak_cluster": "lc-1", "rejected_at": "injection"}
    assert told.items() <= trace.info.tags.items()
    found = {one.name: one for one in trace.info.assessments}
    assert found["outcome"].value is True and found["outcome"].source.source_type == "CODE"
    validator = found["reasoning_validator"]
    assert (validator.value, validator.source.source_type) == (0.7, "LLM_JUDGE")
    assert validator.source.source_id.startswith("validator: ") and validator.rationale == "Some words."
    missing = found["reasoning_llm"]
    assert missing.value is None and missing.error.error_code == "TIMEOUT"
    assert all(one.source.source_type != "HUMAN" for one in found.values())


def test_token_usage_is_told_only_where_both_counts_are_known(uri: str) -> None:
    known = view(*GOOD, name="r2:p1", usage={"prompt_tokens": 600, "completion_tokens": 69})
    log_traces(uri, [view(*GOOD), known])
    usage = {trace.info.tags["trace_id"]: trace.info.token_usage for trace in stored(uri)}
    assert usage["r1:p1"] is None
    assert usage["r2:p1"] == {"input_tokens": 600, "output_tokens": 69, "total_tokens": 669}


def test_logging_again_changes_nothing(uri: str) -> None:
    views = [view(*GOOD, name=f"r{number}:p1") for number in range(40)]  # more than one batch
    assert log_traces(uri, views)[:3] == (40, 0, 0)
    before = dump(uri)
    assert log_traces(uri, reversed(views))[:3] == (0, 40, 0)
    assert dump(uri) == before
    assert len(stored(uri)) == 40


def test_changed_facts_replace_the_trace(uri: str) -> None:
    log_traces(uri, [view(*GOOD)])
    changed = view(*GOOD, pool="sealed")
    assert log_traces(uri, [changed])[:3] == (0, 0, 1)
    (trace,) = stored(uri)
    assert trace.info.tags["pool"] == "sealed"
    assert len(trace.data.spans) == 8 and len(trace.info.assessments) == 3


def test_a_trace_that_was_cut_short_is_written_whole(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracing.client import TracingClient

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TracingClient, "log_spans", killed)
        with pytest.raises(KeyboardInterrupt):
            log_traces(uri, [view(*GOOD)])
    assert log_traces(uri, [view(*GOOD)])[:3] == (0, 0, 1)
    (trace,) = stored(uri)
    assert len(trace.data.spans) == 8 and len(trace.info.assessments) == 3


def test_hostile_texts_are_stored_as_text_and_load_no_picture(uri: str) -> None:
    made = view(*GOOD, name="r\u202e1:p1", said=HOSTILE)
    log_traces(uri, [made])
    (trace,) = stored(uri)
    whole = json.dumps([span.to_dict() for span in trace.data.spans], ensure_ascii=False)
    assert "![p]" not in whole and "!\\\\\\\\[p]" in whole  # a backslash, twice in JSON inside JSON
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b\ud800-\udfff]", whole)
    assert "<script>document.title" in whole
    assert "![" not in json.dumps(trace.info.tags)
    assert trace.info.tags["trace_id"] == "r\\u202e1:p1"


def test_nothing_long_reads_as_if_it_were_whole(uri: str) -> None:
    """Case H01: what is cut says so, with its length and digest."""
    long = "x" * 100_000
    made = view([find("y")], decision={**view()["decision"], "reason": long}, query=long)
    made["turns"][0]["calls"][0]["result"] = json.dumps([{"product_id": "1", "title": long}])
    log_traces(uri, [made])
    (trace,) = stored(uri)
    for span in trace.data.spans:
        for value in (json.dumps(span.inputs), json.dumps(span.outputs)):
            assert len(value) < 3 * MAX_TEXT
            assert "x" * 1000 not in value or "[cut: the first" in value
    assert all(len(value) <= 4096 for value in trace.info.tags.values())
    reason = trace.info.tags["reason"]
    assert len(reason) <= MAX_TAG and "[cut, sha256" in reason


@pytest.mark.parametrize(
    "text", ["", "[" * 500, '{"a": NaN}', '{"a": 1e999}', "[1" + "0" * 400 + "]", "\ud800", '"\\ud800"', "{}" * 9],
    ids=["empty", "deep", "nan", "infinite", "long-integer", "surrogate", "escaped-surrogate", "two"],
)  # fmt: skip
def test_any_arguments_have_a_form(text: str) -> None:
    told = json.dumps(capped_value(text), allow_nan=False)
    assert told.encode()
    assert capped("a\ud800\n") == "a\\ud800\n"


def test_the_same_view_is_the_same_facts_and_another_trace_has_another_id() -> None:
    one = trace_facts(view(*GOOD))
    assert one == trace_facts(json.loads(json.dumps(view(*GOOD))))
    other = trace_facts(view(*GOOD, name="r2:p1"))
    assert one.request_id != other.request_id
    assert not {span.span_id for span in one.spans} & {span.span_id for span in other.spans}
    assert len({span.span_id for span in one.spans}) == len(one.spans)


def test_a_withheld_trace_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="withheld"):
        log_traces(uri, [view(withheld=True)])


def test_a_store_that_cannot_be_used_is_one_line_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(Abort) as caught:
        log_traces("http://user:hunter2@127.0.0.1:9", [view()])
    assert "hunter2" not in str(caught.value) and str(caught.value).startswith("mlflow: ")
    (tmp_path / "mlflow.db").write_bytes(b"no database at all, but a file" * 100)
    with pytest.raises(Abort, match="mlflow: "):
        log_traces(f"sqlite:///{tmp_path / 'mlflow.db'}", [view()])


def test_a_deleted_experiment_is_there_again(uri: str) -> None:
    """Or what is logged would be called written, and no page would show it."""
    from mlflow.tracking import MlflowClient

    log_traces(uri, [view(*GOOD)])
    client = MlflowClient(tracking_uri=uri)
    client.delete_experiment(client.get_experiment_by_name(EXPERIMENT).experiment_id)
    assert log_traces(uri, [view(*GOOD)])[:3] == (0, 1, 0)
    assert len(stored(uri)) == 1


def test_traces_are_removed_once(uri: str) -> None:
    made = view(*GOOD)
    log_traces(uri, [made])
    assert trace_log.forget_traces(uri, [made["trace_id"], *(f"r:{number}" for number in range(250))]) == 1
    assert stored(uri) == [] and trace_log.forget_traces(uri, [made["trace_id"]]) == 0


def test_nothing_to_log_opens_no_store() -> None:
    assert log_traces("http://127.0.0.1:9", []) == Logged()


def dump(uri: str) -> dict[str, list[Any]]:
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        names = ("trace_info", "trace_tags", "trace_request_metadata", "spans", "assessments")
        return {name: sorted(database.execute(f"select * from {name}"), key=repr) for name in names}
