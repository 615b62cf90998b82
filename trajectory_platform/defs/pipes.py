"""Training and evaluation processes started through Dagster Pipes: their log lines appear in the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from trajectory_platform.evaluation.child import Runner


def pipes_runner(context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient) -> Runner:
    """A runner for ``evaluation.child.run_job``: (command, extra environment) -> runs to the end or raises."""

    def run(command: Sequence[str], env: Mapping[str, str]) -> None:
        client.run(context=context, command=list(command), env=dict(env))

    return run
