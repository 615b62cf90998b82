"""A stage's process under Dagster: metrics become events and metadata, a cancelled run leaves no process behind."""

# No `from __future__ import annotations`: Dagster reads the context annotation of a body and refuses text.

import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from trajectory_platform.defs import pipes as pipes_module
from trajectory_platform.defs.pipes import pipes_runner
from trajectory_platform.evaluation.child import run_job
from trajectory_platform.evaluation.process_group import is_alive

CHILD = """
import sys, time
from pathlib import Path
from trajectory_platform.evaluation.child import report_metrics, run_child
from trajectory_platform.evaluation.process_group import this_process

def work(job, report):
    report("loading")
    for step in range(1, 4):
        report_metrics(report, step, {"loss": 1.0 / step})
    if "pid" in job:
        Path(job["pid"]).write_text(this_process())
        time.sleep(120)
    if "crash" in job:
        print("the last words", flush=True)
        raise RuntimeError("no")
    return {"steps": 3}

if __name__ == "__main__":
    sys.exit(run_child(sys.argv[1], work))
"""
PARTITIONS = dg.StaticPartitionsDefinition(["2026-05-02"])


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pipes_child.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    return tmp_path


def materialise(folder: Path, job: dict[str, Any], **more: Any) -> dg.ExecuteInProcessResult:
    @dg.asset(partitions_def=PARTITIONS)
    def checkpoint(context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient) -> dg.MaterializeResult[None]:
        result = run_job("pipes_child", job, folder, threads=1, runner=pipes_runner(context, pipes))
        return dg.MaterializeResult(metadata={"steps": result["steps"]})

    return dg.materialize(
        [checkpoint], resources={"pipes": dg.PipesSubprocessClient()}, partition_key="2026-05-02", **more
    )


def test_metrics_are_events_while_it_runs_and_a_table_at_its_end(child: Path) -> None:
    result = materialise(child, {})
    seen = [event.event_specific_data.asset_observation for event in result.all_events if event.is_asset_observation]
    assert [(o.partition, o.metadata["step"].value, o.metadata["loss"].value) for o in seen] == [
        ("2026-05-02", 1, 1.0),
        ("2026-05-02", 2, 0.5),
        ("2026-05-02", 3, pytest.approx(1 / 3)),
    ]
    (made,) = result.asset_materializations_for_node("checkpoint")
    assert made.metadata["last_loss"].value == 0.3333 and made.metadata["steps"].value == 3
    assert made.metadata["training_curve"].value.count("\n") == 4


def test_a_child_that_crashes_fails_the_run_with_its_last_words(child: Path) -> None:
    result = materialise(child, {"crash": True}, raise_on_error=False)
    assert not result.success
    (failure,) = result.get_step_failure_events()
    assert failure.step_failure_data.error is not None
    assert "RuntimeError: no" in failure.step_failure_data.error.to_string()


def test_a_cancelled_run_leaves_no_process(child: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = child / "pid"
    real = pipes_module.run_group

    def cancelled(*args: Any, on_idle: Any, **more: Any) -> int:
        def idle() -> None:
            on_idle()
            if pid.exists() and pid.read_text():
                raise DagsterExecutionInterruptedError

        return real(*args, on_idle=idle, grace_s=1.0, **more)

    monkeypatch.setattr(pipes_module, "run_group", cancelled)
    with pytest.raises(DagsterExecutionInterruptedError):
        materialise(child, {"pid": str(pid)})
    assert not is_alive(pid.read_text())


def test_the_platforms_process_never_loads_torch() -> None:
    """The code location with all its assets, and every module of the stages: no trainer, no MLflow, no model."""
    code = (
        "import importlib, pkgutil, sys\n"
        "import trajectory_platform.stages, trajectory_platform.defs, trajectory_platform.defs.definitions as d\n"
        "from datetime import date\n"
        "from trajectory_platform.settings import Settings\n"
        "built = d.build_definitions(Settings(first_day=date(2026, 5, 1)), date(2026, 5, 2))\n"
        "d.dg.Definitions.validate_loadable(built)\n"
        "for package in (trajectory_platform.stages, trajectory_platform.defs):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "from trajectory_platform.training import launch, launching\n"
        "print([n for n in ('torch', 'transformers', 'trl', 'peft', 'mlflow', 'litellm') if n in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr[-2000:]
