"""Training and evaluation processes under Dagster Pipes: their lines and metrics appear in the run as they come.

Our own process group is used in place of ``PipesSubprocessClient.run``, which signals one process: a cancelled run
must not leave the ranks of a launcher behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from trajectory_platform.evaluation.child import KIND, Runner
from trajectory_platform.evaluation.process_group import run_group

_CURVE_POINTS = 40  # rows of the table of metrics in the metadata of a materialisation


def pipes_runner(context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient) -> Runner:
    """A runner for ``evaluation.child.run_job``: (command, extra environment) -> runs to the end or raises.

    Metrics that the child reports become ``AssetObservation`` events while it runs and a table in the metadata of the
    asset at its end. Lines of stdout go to the log of the process, those sent by Pipes to the log of the run.

    Raises:
        RuntimeError: the child ended with another code than 0; with what it last printed.
    """

    def run(command: Sequence[str], env: Mapping[str, str]) -> None:
        tail: list[str] = []

        def keep(line: str) -> None:
            print(line, flush=True)  # Dagster keeps it with the run's own output
            tail.append(line)
            del tail[:-5]

        with dg.open_pipes_session(context, client.context_injector, client.message_reader) as session:
            curve = _Curve(context)
            full_env = {**client.env, **env, **session.get_bootstrap_env_vars()}
            code = run_group(command, full_env, on_line=keep, on_idle=lambda: curve.take(session.get_custom_messages()))
        curve.take(session.get_custom_messages())
        curve.attach()
        if code != 0:
            raise RuntimeError(f"exit code {code}" + (f"; it last printed: {' | '.join(tail)}" if tail else ""))

    return run


class _Curve:
    """The metrics of one child, in the order of their arrival."""

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._context = context
        self._seen = 0
        self._rows: list[dict[str, Any]] = []
        keys = sorted(context.selected_asset_keys)
        self._key = keys[0] if keys else None

    def take(self, messages: Sequence[Any]) -> None:
        """Turn the messages that are new since the last call into events."""
        fresh, self._seen = messages[self._seen :], len(messages)
        for message in fresh:
            if not isinstance(message, dict) or message.get("kind") != KIND or self._key is None:
                continue
            row = {"step": int(message["step"]), **dict(sorted(message["values"].items()))}
            self._rows.append(row)
            partition = self._context.partition_key if self._context.has_partition_key else None
            metadata = {name: _metadata(value) for name, value in row.items()}
            self._context.log_event(dg.AssetObservation(self._key, metadata=metadata, partition=partition))

    def attach(self) -> None:
        """Add the last values and a thinned table of all of them to the asset's metadata."""
        if not self._rows or self._key is None:
            return
        every = -(-len(self._rows) // _CURVE_POINTS)
        thinned = [*self._rows[:-1:every], self._rows[-1]]
        last = {f"last_{name}": _metadata(_rounded(value)) for name, value in self._rows[-1].items()}
        table = dg.MetadataValue.md(_markdown(thinned))
        self._context.add_asset_metadata({**last, "training_curve": table}, asset_key=self._key)


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _metadata(value: Any) -> dg.MetadataValue[Any]:
    if isinstance(value, int):
        return dg.MetadataValue.int(value)
    return dg.MetadataValue.float(value) if isinstance(value, float) else dg.MetadataValue.text(str(value))


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))

    def cell(value: Any) -> str:
        return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    lines += ["| " + " | ".join(cell(row.get(name)) for name in names) + " |" for row in rows]
    return "\n".join(lines)
