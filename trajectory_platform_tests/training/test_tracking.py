"""MLflow mirrors a run; when it is down or left in a lie, training does not notice and the mirror is repaired.

The cases H* of the public bug reports are here by their kind: a long value, many writers, a store that is moved.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.training import tracking
from trajectory_platform.training.tracking_store import EXPERIMENT, MODEL, Store, one_writer

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"
FACTS = tracking.Facts(
    checkpoint_id="sft-2026-05-02-0123456789ab",
    stage="sft",
    day="2026-05-02",
    identity="0123456789abcdef",
    parent=None,
    params={"seed": 7, "model.base": "/home/me/models/Qwen3-4B", "train_row_ids": ",".join(map(str, range(2000)))},
    inputs={"axis_a_corpus/2026-05-01": {"content_digest": "a" * 64, "table_version": 3, "rows": 12}},
    long={"recipe.yaml": "name: x\n" * 100},
)
HISTORY = [{"step": float(step), "loss": 1.0 / step, "grad_norm": 2.0} for step in range(1, 701)]


def case(name: str) -> dict[str, Any]:
    if not (CASES / f"{name}.json").is_file():
        pytest.skip(f"{CASES} is not there")
    found: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text("utf-8"))
    return found


def facts(name: str, day: str = "2026-05-02", **more: Any) -> tracking.Facts:
    return FACTS._replace(checkpoint_id=name, day=day, **more)


def mirror(
    uri: str | None, what: tracking.Facts = FACTS, done: Iterable[str] = (), lines: list[str] | None = None
) -> tracking.Mirror:
    return tracking.open_mirror(uri, what, finished=lambda: done, report=print if lines is None else lines.append)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    return f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}"


def client(uri: str) -> Any:
    return Store(uri)._client


def texts_in(database: Path) -> list[str]:
    with sqlite3.connect(database) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for table in tables for row in connection.execute(f'SELECT * FROM "{table}"')]
    return [value for row in rows for value in row if isinstance(value, str)]


def test_without_an_address_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def guarded(name: str, *rest: Any, **more: Any) -> Any:
        assert not name.startswith("mlflow")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", guarded)
    off = mirror(None)
    off.log(1, {"loss": 1.0})
    off.close(finished=True, history=HISTORY)
    assert off.run_id is None


def test_an_unusable_store_is_reported_once_and_training_goes_on() -> None:
    lines: list[str] = []
    down = mirror("http://127.0.0.1:9", lines=lines)  # the discard port: nobody listens
    down.log(1, {"loss": 1.0})
    down.close(finished=True, history=[{"step": 1, "loss": 1.0}])
    assert down.run_id is None and len(lines) == 1 and "training goes on" in lines[0]


@pytest.mark.parametrize(
    "uri",
    [
        "http://me:s3cret@127.0.0.1:9",
        "http://me:s3%40cr3t@nohost.invalid:5000/x?token=t0ken",
        "foo://me:s3@cr3t@h/db",
        "sqlite:////proc/nope/x.db?password=s3cret",
    ],
)
def test_no_password_of_an_address_is_in_what_is_reported(uri: str) -> None:
    lines: list[str] = []
    mirror(uri, lines=lines).close(finished=True)
    assert len(lines) == 1 and "training goes on" in lines[0]
    assert not any(secret in lines[0] for secret in ("s3", "cret", "cr3t", "t0ken"))


def test_words_of_an_address_are_kept_but_for_its_secrets() -> None:
    said = "OperationalError: could not connect to postgresql://me:p@ss@db:5432/runs as me with p@ss"
    told = tracking.without_secrets(said, "postgresql://me:p%40ss@db:5432/runs")
    assert told == "OperationalError: could not connect to postgresql://***@db:5432/runs as me with ***"


def test_a_database_that_is_down_costs_seconds_not_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow itself doubles its pauses up to a minute, at every write."""
    slept: list[float] = []
    from mlflow.store.db import utils

    monkeypatch.setattr(utils.time, "sleep", slept.append)
    monkeypatch.setattr(utils, "create_sqlalchemy_engine", lambda _uri: None)  # inspecting it fails, as a dead one's
    lines: list[str] = []
    mirror("mysql://127.0.0.1:9/runs", lines=lines).close(finished=True)
    assert len(lines) == 1 and sum(slept) < 1


def test_files_and_numbers_are_added_to_the_newest_finished_run_of_a_checkpoint(uri: str) -> None:
    name, lines = FACTS.checkpoint_id, list[str]()
    assert not tracking.add_to_run(uri, name, {"a.svg": b"<svg/>"}, lines.append)  # no run yet: nothing is made up
    first, second = mirror(uri), mirror(uri)
    first.close(finished=True)
    failed = mirror(uri)
    failed.close(finished=False)
    second.close(finished=True)
    for content in (b"<svg>old</svg>", b"<svg>\xc3\xa4</svg>"):
        files = {"figures/loss.svg": content, "all.html": b"<p>x"}
        assert tracking.add_to_run(uri, name, files, lines.append, numbers={"eval_success": 0.75})
    assert lines == [] and Store(uri).run_of(name) == second.run_id
    place = Path(uri.removeprefix("sqlite:///")).parent / "mlflow-artifacts"
    [kept] = place.rglob("loss.svg")
    assert kept.read_bytes() == b"<svg>\xc3\xa4</svg>" and str(second.run_id) in kept.parts
    assert client(uri).get_run(second.run_id).data.metrics["eval_success"] == 0.75
    assert not list(place.rglob("*.part"))


@pytest.mark.parametrize("name", ["x' or tags.stage = 'sft", "", "../up"])
def test_no_strange_name_gets_into_a_query_of_the_store(uri: str, name: str) -> None:
    lines: list[str] = []
    assert not tracking.add_to_run(uri, name, {"a": b""}, lines.append) and lines == []
    assert not tracking.add_to_run(None, FACTS.checkpoint_id, {"a": b""}, lines.append)


def test_adding_to_a_store_that_is_down_is_said_in_one_line_without_its_password() -> None:
    lines: list[str] = []
    where = "http://me:s3cret@127.0.0.1:9"
    assert not tracking.add_to_run(where, FACTS.checkpoint_id, {"a": b""}, lines.append)
    assert len(lines) == 1 and "nothing else depends on it" in lines[0] and "s3cret" not in lines[0]


@pytest.mark.slow
def test_a_run_is_mirrored_with_parameters_metrics_datasets_and_a_model_version(uri: str) -> None:
    lines: list[str] = []
    kept = mirror(uri, lines=lines)
    for entry in HISTORY[:300]:
        kept.log(int(entry["step"]), entry)
    kept.close(finished=True, history=HISTORY, numbers={"steps": 700, "note": None}, traces_digest="f" * 64)
    run = client(uri).get_run(kept.run_id)
    assert lines == [] and run.info.status == "FINISHED"
    assert run.data.params["seed"] == "7" and run.data.params["result.steps"] == "700"
    points = client(uri).get_metric_history(kept.run_id, "loss")
    assert sorted((point.step, point.value) for point in points) == [(step, 1.0 / step) for step in range(1, 701)]
    (dataset,) = run.inputs.dataset_inputs
    assert dataset.dataset.name == "axis_a_corpus/2026-05-01"
    assert json.loads(dataset.dataset.source)["content_digest"] == "a" * 64
    version = client(uri).get_model_version_by_alias(MODEL, "sft")
    assert version.source == f"checkpoint:{FACTS.checkpoint_id}" and version.run_id == kept.run_id
    assert version.tags["trace_list_digest"] == "f" * 64


@pytest.mark.slow
def test_an_alias_is_the_newest_day_and_a_checkpoint_has_one_version(uri: str) -> None:
    for name, day in (("sft-b", "2026-05-03"), ("sft-a", "2026-05-02"), ("sft-b", "2026-05-03")):
        mirror(uri, facts(name, day)).close(finished=True)
    assert client(uri).get_model_version_by_alias(MODEL, "sft").source == "checkpoint:sft-b"
    assert len(client(uri).search_model_versions(f"name = '{MODEL}'")) == 2


@pytest.mark.slow
def test_h01_a_long_value_is_an_artifact_and_its_digest_the_parameter(uri: str) -> None:
    given = case("H01")
    key, text = given["generate"]["param"], "7" * given["generate"]["chars"]
    kept = mirror(uri, FACTS._replace(params={key: text, "nested": {"a": 1}}))
    kept.close(finished=True)
    value = client(uri).get_run(kept.run_id).data.params[key]
    assert value == f"sha256:{hashlib.sha256(text.encode()).hexdigest()} params/{key}.txt"
    assert Store(uri).get_text(str(kept.run_id), value) == text
    with pytest.raises(ValueError, match="6001 characters"):
        Store(uri).log_params(str(kept.run_id), {"direct": text})


def log_alone(uri: str, number: int, points: int, failures: Any) -> None:
    lines: list[str] = []
    kept = tracking.open_mirror(
        uri, FACTS._replace(checkpoint_id=f"sft-{number}"), finished=lambda: [], report=lines.append
    )
    kept._pause = 0.0
    for step in range(1, points + 1):
        kept._next = 0.0 if step % 10 == 0 else float("inf")  # twenty flushes each, all in each other's way
        kept.log(step, {"loss": float(step)})
    kept.close(finished=True)
    failures.put(lines)


@pytest.mark.slow
def test_h02_many_writers_on_one_sqlite_store_lose_nothing(uri: str) -> None:
    given = case("H02")["input"]
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    workers = [
        context.Process(target=log_alone, args=(uri, number, given["points_each"], failures))
        for number in range(given["processes"])
    ]
    for worker in workers:
        worker.start()
    said = [failures.get(timeout=240) for _ in workers]
    for worker in workers:
        worker.join()
    store = client(uri)
    runs = store.search_runs([store.get_experiment_by_name(EXPERIMENT).experiment_id])
    assert [worker.exitcode for worker in workers] == [0] * given["processes"]
    assert [run.info.status for run in runs] == ["FINISHED"] * given["processes"]
    found = [point.step for run in runs for point in store.get_metric_history(run.info.run_id, "loss")]
    assert sorted(found) == sorted(list(range(1, given["points_each"] + 1)) * given["processes"])
    assert all("was busy" in line for lines in said for line in lines)  # heard, not lost


@pytest.mark.slow
def test_h04_a_moved_store_finds_its_artifacts_and_names_no_folder(uri: str, tmp_path: Path) -> None:
    case("H04")
    kept = mirror(uri)
    kept.close(finished=True)
    shutil.move(tmp_path / "store", tmp_path / "elsewhere")
    moved = f"sqlite:///{tmp_path / 'elsewhere' / 'mlflow.db'}"
    params = client(moved).get_run(kept.run_id).data.params
    assert Store(moved).get_text(str(kept.run_id), params["recipe.yaml"]) == FACTS.long["recipe.yaml"]
    assert Store(moved).get_text(str(kept.run_id), params["train_row_ids"]) == FACTS.params["train_row_ids"]
    here = [text for text in texts_in(tmp_path / "elsewhere" / "mlflow.db") if str(tmp_path) in text or "/home" in text]
    assert here == [] and params["model.base"] == "Qwen3-4B"


@pytest.mark.slow
def test_an_artifact_that_was_changed_is_not_believed(uri: str, tmp_path: Path) -> None:
    kept = mirror(uri)
    kept.close(finished=True)
    value = client(uri).get_run(kept.run_id).data.params["recipe.yaml"]
    (place,) = (tmp_path / "store").rglob("recipe.yaml")
    place.write_text("name: y\n")
    with pytest.raises(ValueError, match="differs from its digest"):
        Store(uri).get_text(str(kept.run_id), value)


def die_in_training(uri: str, name: str) -> None:
    kept = tracking.open_mirror(uri, facts(name), finished=lambda: [], report=print)
    kept.log(1, {"loss": 1.0})
    kept.flush(10.0)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_run_never_reads_as_finished_and_is_closed_by_the_next_start(uri: str) -> None:
    context = multiprocessing.get_context("spawn")
    for name in ("sft-killed", "sft-published"):
        worker = context.Process(target=die_in_training, args=(uri, name))
        worker.start()
        worker.join()
        assert worker.exitcode == -signal.SIGKILL
    alive = mirror(uri, facts("sft-alive"))
    store = client(uri)
    experiment = store.get_experiment_by_name(EXPERIMENT).experiment_id
    states = {run.info.run_name: run.info.status for run in store.search_runs([experiment])}
    assert states == {"sft-killed": "KILLED", "sft-published": "KILLED", "sft-alive": "RUNNING"}
    for run, name in ((run, run.info.run_name) for run in store.search_runs([experiment])):
        if name == "sft-published":
            store.update_run(run.info.run_id, status="RUNNING")
    mirror(uri, facts("sft-next"), done=["sft-published"])
    states = {run.info.run_name: run.info.status for run in store.search_runs([experiment])}
    assert states["sft-published"] == "FINISHED" and states["sft-alive"] == "RUNNING"
    assert store.get_model_version_by_alias(MODEL, "sft").source == "checkpoint:sft-published"
    alive.close(finished=False)
    assert store.get_run(alive.run_id).info.status == "FAILED"


@pytest.mark.slow
def test_what_could_not_be_written_in_between_is_written_at_the_end(uri: str) -> None:
    lines: list[str] = []
    kept = mirror(uri, lines=lines)
    with one_writer(uri, 0.0):
        kept._next = 0.0
        kept.log(1, {"loss": 1.0, "bad": float("nan")})
    kept.log(2, {"loss": 0.5})
    kept.close(finished=True)
    assert len(lines) == 1 and "was busy" in lines[0]
    assert [point.step for point in client(uri).get_metric_history(kept.run_id, "loss")] == [1, 2]
