"""What ``train`` shows while a stage runs: on stderr, with the time left, and never on stdout."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import run_job
from trajectory_platform.stages.progress import Step, Watch, step_of


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("step 20/100 loss 1.234", Step(20, 100, "1.234")),
        ("40 of 100 attempts in 12 s", Step(40, 100)),
        ("scored 8 of 64 turns", Step(8, 64)),
        ("100 attempts, 3 of them done before", None),
        ("0 of 0 attempts in 0 s", None),
        ("loading torch and trl", None),
    ],
)
def test_lines_of_processes_tell_how_far_they_are(line: str, step: Step | None) -> None:
    assert step_of(line) == step


def test_without_a_terminal_a_line_comes_now_and_then_with_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    watch = Watch(bar=False, clock=lambda: now)
    with watch.stage("sft_checkpoint"):
        watch.line("loading torch and trl")
        for done in range(1, 101):
            now = done * 0.5
            watch.line(f"step {done}/100 loss 1.5")
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "sft_checkpoint  loading torch and trl"
    assert lines[2] == "sft_checkpoint  step 11/100 loss 1.5, about 44 s left"
    assert lines[-1] == "sft_checkpoint  step 100/100 loss 1.5" and len(lines) == 12


def test_a_bar_is_drawn_on_stderr_and_hostile_text_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch(bar=True)
    with watch.stage("kto_checkpoint"):
        watch.line("going on [red]at[/red] \x1b[31mstep 3")
        watch.line("step 3/9 loss nan")
    said = capsys.readouterr()
    assert said.out == ""
    assert "[red]at[/red] \\x1b[31mstep 3" in said.err and "kto_checkpoint" in said.err


def test_lines_of_a_real_process_are_shown_and_its_last_ones_name_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "talks.py"
    module.write_text("print('step 1/2 loss 0.5', flush=True); print('out of memory'); raise SystemExit(3)")
    watch = Watch(bar=False)
    from trajectory_platform.evaluation.child import Start

    start = Start(prefix=(sys.executable,))
    with watch.stage("sft_checkpoint"), pytest.raises(FailPartition, match="exit code 3; it last printed: .*memory"):
        run_job(str(module), {}, tmp_path, threads=1, runner=watch.runner(), start=start)
    assert "sft_checkpoint  step 1/2 loss 0.5" in capsys.readouterr().err
