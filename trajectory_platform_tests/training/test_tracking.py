"""MLflow mirrors a run; when it is down or left in a lie, training does not notice and the mirror is repaired."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.training import tracking


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def test_without_an_address_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def guarded(name: str, *rest: Any, **more: Any) -> Any:
        assert not name.startswith("mlflow")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", guarded)
    assert tracking.open_run(None, name="c", params={}, tags={}, report=print) is None
    tracking.close_run(None, None, history=[], finished=True, report=print)


def test_an_unusable_store_is_reported_and_training_goes_on() -> None:
    lines: list[str] = []
    uri = "http://127.0.0.1:9"  # the discard port: nobody listens
    assert tracking.open_run(uri, name="c", params={}, tags={}, report=lines.append) is None
    tracking.close_run(uri, "unknown", history=[{"step": 1, "loss": 1.0}], finished=True, report=lines.append)
    assert lines and all("training goes on" in line for line in lines)


@pytest.mark.slow
def test_a_run_is_mirrored_and_crashed_ones_are_repaired(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    lines: list[str] = []
    params = {"epochs": 2, "note": "x" * 6001}
    done = tracking.open_run(store, name="done", params=params, tags={"day": "d"}, report=lines.append)
    history = [{"step": float(step), "loss": 1.0 / step} for step in range(1, 701)]
    tracking.close_run(store, done, history=history, finished=True, report=lines.append)
    killed, published = (
        tracking.open_run(store, name=name, params={}, tags={}, report=lines.append) for name in ("killed", "published")
    )
    client = MlflowClient(store)
    assert lines == [] and done and killed and published
    run = client.get_run(done)
    assert run.info.status == "FINISHED" and run.data.params["epochs"] == "2"
    assert run.data.params["note"].startswith("sha256:")
    assert len(client.get_metric_history(done, "loss")) == 700
    assert client.get_run(killed).info.status == "RUNNING"  # a crashed run never reads as finished
    assert tracking.reconcile(store, ["published"], print) == {killed: "KILLED", published: "FINISHED"}
    assert tracking.reconcile(store, [], print) == {}
