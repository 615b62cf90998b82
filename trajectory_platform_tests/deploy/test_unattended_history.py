"""A short history left to schedules and sensors of the compose stack, with every fault; the long one is a benchmark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trajectory_platform_tests.deploy.stack import REPOSITORY


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_history_left_alone_ends_complete_and_reconciled() -> None:
    """Backfill, daily schedule, late artifacts, killed services: the claim of benchmarks/unattended_history.py."""
    pytest.importorskip("time_machine")
    pytest.importorskip("moto.server")
    script = str(REPOSITORY / "benchmarks" / "unattended_history.py")
    command = [sys.executable, script, "--days", "4", "--traces", "10", "--scheduled", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2900, check=False)
    assert done.returncode == 0 and "complete and reconciled" in done.stdout, done.stdout[-5000:] + done.stderr[-3000:]
