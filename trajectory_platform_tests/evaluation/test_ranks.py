"""A job of several ranks: the first alone reports and has the result, and one that dies fails it with its own words."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.child import Report, Reporter, Start, report_metrics, run_child, run_job
from trajectory_platform.training.launching import start_of
from trajectory_platform.training.recipe import Hardware, Recipe

TWO_CPUS = Recipe().model_copy(update={"hardware": Hardware().model_copy(update={"processes": 2})})
Work = Callable[[dict[str, Any], Reporter], dict[str, Any]]


def in_turn(
    works: Sequence[Work], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Sequence[str], Mapping[str, str]], None]:
    """A runner that plays the ranks one after the other in this process."""

    def run(command: Sequence[str], env: Mapping[str, str]) -> None:
        monkeypatch.setenv("WORLD_SIZE", str(len(works)))
        for number, work in enumerate(works):
            monkeypatch.setenv("RANK", str(number))
            try:
                run_child(command[-1], work)
            except RuntimeError:
                continue

    return run


def ranks_of(folder: Path, works: Sequence[Work], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    start = Start(ranks=len(works))
    return run_job("m", {}, folder, threads=1, runner=in_turn(works, monkeypatch), start=start)


def test_rank_0_has_the_result_and_the_others_are_mute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(job: dict[str, Any], report: Report) -> dict[str, Any]:
        report("trained")
        from trajectory_platform.evaluation.child import rank, ranks

        return {"who": f"{rank()} of {ranks()}"}

    assert ranks_of(tmp_path, [work] * 3, monkeypatch)["who"] == "0 of 3"
    assert capsys.readouterr().out.splitlines() == ["trained"]


@pytest.mark.parametrize("kind", [FailPartition, Abort])
def test_the_failed_rank_is_named_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fails(job: dict[str, Any], report: Report) -> dict[str, Any]:
        raise kind("the training loss is not finite")

    def hears_of_it(job: dict[str, Any], report: Report) -> dict[str, Any]:
        raise RuntimeError("Connection closed by peer")

    with pytest.raises(kind, match="rank 1 of 2: the training loss is not finite"):
        ranks_of(tmp_path, [hears_of_it, fails], monkeypatch)


def test_of_two_library_errors_the_first_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(job: dict[str, Any], report: Report) -> dict[str, Any]:
        raise RuntimeError("out of memory")

    def echo(job: dict[str, Any], report: Report) -> dict[str, Any]:
        raise RuntimeError("Connection closed by peer")

    with pytest.raises(FailPartition, match="rank 0 of 2: RuntimeError: out of memory"):
        ranks_of(tmp_path, [out_of_memory, echo], monkeypatch)


def test_what_a_run_before_left_in_the_folder_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"status": "ok", "old": True}))
    (tmp_path / "rank-1.json").write_text("{}")
    with pytest.raises(FailPartition, match="ended without a result"):
        run_job("m", {}, tmp_path, threads=1, runner=lambda command, env: None)


def test_numbers_reach_pipes_and_listeners_and_plain_functions_ignore_them() -> None:
    sent: list[dict[str, Any]] = []
    heard: list[tuple[int, Mapping[str, float]]] = []
    report = Reporter(lambda line: None, sent.append)
    report.listeners.append(lambda step, values: heard.append((step, values)))
    report_metrics(report, 3, {"loss": 0.5, "grad_norm": float("nan"), "kl": float("-inf")})
    report_metrics(print, 3, {"loss": 0.5})
    assert heard == [(3, {"loss": 0.5, "grad_norm": heard[0][1]["grad_norm"], "kl": float("-inf")})]
    assert json.loads(json.dumps(sent, allow_nan=False)) == [
        {"kind": "metrics", "step": 3, "values": {"loss": 0.5, "grad_norm": "nan", "kl": "-inf"}}
    ]


GLOO = """
import os, signal, sys
from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import rank, run_child, wait_for_ranks

def work(job, report):
    import torch.distributed as distributed
    distributed.init_process_group("gloo")
    report("together")
    if rank() == 1 and job["how"] == "words":
        raise FailPartition("rows of rank 1 are damaged")
    if rank() == 1 and job["how"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    wait_for_ranks()
    return {"rank": rank()}

if __name__ == "__main__":
    code = run_child(sys.argv[1], work)
    sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("none", None),
        ("words", "rank 1 of 2: rows of rank 1 are damaged"),
        ("kill", "rank 0 of 2: .*without a word ended: rank 1"),
    ],
)
def test_two_real_processes_over_gloo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, words: str | None
) -> None:
    (tmp_path / "gloo_work.py").write_text(GLOO)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    start = start_of(TWO_CPUS, tmp_path)
    assert start.prefix[0] == sys.executable and start.ranks == 2
    if words is None:
        assert run_job("gloo_work", {"how": how}, tmp_path, threads=1, runner=None, start=start)["rank"] == 0
        return
    with pytest.raises(FailPartition, match=words):
        run_job("gloo_work", {"how": how}, tmp_path, threads=1, runner=None, start=start)
