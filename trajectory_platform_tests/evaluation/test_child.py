"""A process that dies is a failure, whatever it printed or returned."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.child import plain_runner, run_child, run_job

KILLED = "import os, signal; print('step 3', flush=True); os.kill(os.getpid(), signal.SIGKILL)"


def test_a_killed_process_fails_the_partition(tmp_path: Path) -> None:
    def runner(command: Sequence[str], env: Mapping[str, str]) -> None:
        plain_runner()([sys.executable, "-c", KILLED], env)

    with pytest.raises(FailPartition, match="ended without a result"):
        run_job("any.module", {}, tmp_path, threads=1, runner=runner)


def test_an_unknown_module_fails_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(FailPartition, match="No module named"):
        run_job("trajectory_platform.no_such_module", {}, tmp_path, threads=1, runner=None)


def test_a_runner_that_raises_is_no_result_either(tmp_path: Path) -> None:
    def runner(command: Sequence[str], env: Mapping[str, str]) -> None:
        raise RuntimeError("pipes broke")

    with pytest.raises(FailPartition, match="RuntimeError: pipes broke"):
        run_job("any.module", {}, tmp_path, threads=1, runner=runner)


@pytest.mark.parametrize("kind", [FailPartition, Abort])
def test_the_childs_error_is_raised_again_as_what_it_was(tmp_path: Path, kind: type[Exception]) -> None:
    def work(job: object, report: object) -> dict[str, object]:
        raise kind("row r1: nothing to train")

    def runner(command: Sequence[str], env: Mapping[str, str]) -> None:
        assert run_child(command[-1], work) == 1

    with pytest.raises(kind, match="row r1: nothing to train"):
        run_job("any.module", {"a": 1}, tmp_path, threads=1, runner=runner)


def test_job_and_result_pass_through_files(tmp_path: Path) -> None:
    def runner(command: Sequence[str], env: Mapping[str, str]) -> None:
        assert env["HF_HUB_OFFLINE"] == "1" and env["OMP_NUM_THREADS"] == "1"
        assert run_child(command[-1], lambda job, report: {"doubled": job["a"] * 2}) == 0

    assert run_job("any.module", {"a": 21}, tmp_path, threads=1, runner=runner)["doubled"] == 42
    assert json.loads((tmp_path / "job.json").read_text()) == {"a": 21}
