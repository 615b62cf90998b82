"""Kills trainings with SIGKILL at random times, lets them go on, and compares the weights to the last bit.

    python benchmarks/kill_and_resume.py [--stages sft kto dr_grpo] [--kills 3] [--seed 1] [--threads 1] [--json]

Each stage is trained once without interruption, which also says how long a step takes, and once more in another
folder, where its process group is killed a random moment after a random step, again and again, before it may finish.
Everything goes through ``training.launch.train_checkpoint`` as in production. Exit code 1 when a weight, a logged loss
or the order of the rows differs, or when no kill took place.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from trajectory_platform.errors import FailPartition  # noqa: E402
from trajectory_platform.training.launch import Parent, corpus_records, train_checkpoint, training_rows  # noqa: E402
from trajectory_platform.training.recipe import Recipe, parse_recipe  # noqa: E402

Json = dict[str, Any]
STAGES = ("sft", "kto", "dr_grpo")
RECIPE = """
name: kill-and-resume
hardware: {{threads: {threads}}}
model: {{hidden: 64, layers: 2, heads: 4, kv_heads: 2, head_dim: 16, mlp: 128}}
tokenizer: {{vocab: 800}}
context: {{max_length: 1024, reply_tokens: 96, max_result_chars: 200}}
min_traces: 2
stages:
  sft: {{optimiser: {{learning_rate: 0.005}}, amount: {{epochs: 6, batch: 2, sampling: uniform}}, save_every: 4}}
  kto:
    optimiser: {{learning_rate: 0.001}}
    amount: {{epochs: 4, batch: 4, sampling: uniform}}
    save_every: 3
"""


class Kill(threading.Thread):
    """Kills a process group after a number of seconds, unless told that it is over."""

    def __init__(self, group: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self.over, self.killed, self._group, self._seconds = threading.Event(), False, group, seconds

    def run(self) -> None:
        if not self.over.wait(self._seconds):
            self.killed = True
            os.killpg(self._group, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: list[Json] = []
    with tempfile.TemporaryDirectory(prefix="kill-and-resume-") as name:
        for stage in options.stages:
            found.append(one_stage(stage, Path(name), options))
            print(json.dumps(found[-1]) if options.json else row(found[-1], first=len(found) == 1), flush=True)
    equal = all(entry["weights_equal"] and entry["history_equal"] and entry["order_equal"] for entry in found)
    return 0 if equal and all(entry["killed_at"] for entry in found) else 1


def row(entry: Json, *, first: bool) -> str:
    """A line of the table, under its head for the first one."""
    names = ("stage", "steps", "whole s", "killed at step", "went on from", "weights", "history", "rows, order")
    words = {True: "equal", False: "DIFFER"}
    cells = (
        entry["stage"],
        str(entry["steps"]),
        f"{entry['seconds']:.0f}",
        " ".join(entry["killed_at"]) or "-",
        " ".join(map(str, entry["resumed_at"])) or "-",
        words[entry["weights_equal"]],
        words[entry["history_equal"]],
        words[entry["order_equal"]],
    )
    lines = ["".join(f"{name:<16}" for name in names)] if first else []
    return "\n".join([*lines, "".join(f"{cell:<16}" for cell in cells)])


def one_stage(stage: str, folder: Path, options: argparse.Namespace) -> Json:
    """Train whole, train with kills, compare."""
    train = trainer_of(stage, folder, options)
    steps: list[float] = []
    begun = time.perf_counter()
    whole = train(folder / f"{stage}-whole", plain(lambda line: is_step(line) and steps.append(time.perf_counter())))
    seconds = time.perf_counter() - begun
    each = (steps[-1] - steps[0]) / max(1, len(steps) - 1)
    draw = random.Random(f"{options.seed}:{stage}")
    killed_at: list[str] = []
    resumed: list[int] = []
    for _ in range(options.kills):
        count = draw.randint(1, max(1, len(steps) // (options.kills + 1)))
        try:
            train(folder / f"{stage}-killed", killing(count, draw.uniform(0, each), killed_at, resumed))
            break  # it ended before its kill
        except FailPartition as error:
            if "ended without a result" not in str(error):
                raise
    again = train(folder / f"{stage}-killed", plain(lambda line: note(line, resumed)))
    pair = [json.loads((result.path / "rows_report.json").read_text("utf-8")) for result in (whole, again)]
    return {
        "stage": stage,
        "steps": whole.manifest["metrics"]["steps"],
        "seconds": seconds,
        "killed_at": killed_at,
        "resumed_at": resumed,
        "weights_equal": whole.manifest["files"]["model.safetensors"] == again.manifest["files"]["model.safetensors"],
        "history_equal": pair[0]["history"] == pair[1]["history"],
        "order_equal": whole.manifest["metrics"]["order_digest"] == again.manifest["metrics"]["order_digest"]
        and pair[0]["traces"] == pair[1]["traces"],
    }


def plain(hear: Callable[[str], object]) -> Any:
    """The platform's own runner; ``hear`` gets every line."""
    from trajectory_platform.evaluation.child import plain_runner

    def report(line: str) -> None:
        hear(line)

    return plain_runner(report)


def note(line: str, resumed: list[int]) -> None:
    """Collect the step of ``going on from step N ...`` and ``going on at checkpoint-N``."""
    if line.startswith("going on"):
        resumed.append(int("".join(char for char in line.split(" of ")[0] if char.isdigit()) or 0))


def is_step(line: str) -> bool:
    """Whether a line is the trainer's ``step N/M loss ...``."""
    return line.startswith("step ") and "/" in line.split()[1]


def killing(count: int, later: float, killed_at: list[str], resumed: list[int]) -> Any:
    """A runner that kills the whole group of the training, a moment after it has logged so many steps."""

    def run(command: Sequence[str], env: Mapping[str, str]) -> None:
        seen: list[str] = []
        with subprocess.Popen(
            list(command),
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as process:
            kill = Kill(process.pid, later)
            assert process.stdout is not None
            for said in process.stdout:
                note(said, resumed)
                if is_step(said):
                    seen.append(said.split()[1].split("/")[0])
                    if len(seen) == count:
                        kill.start()
            process.wait()
            kill.over.set()
        if kill.killed:
            killed_at.append(seen[-1])

    return run


def trainer_of(stage: str, folder: Path, options: argparse.Namespace) -> Callable[[Path, Any], Any]:
    """Trains a stage into a checkpoint root with a runner; the same inputs every time."""
    from trajectory_platform_tests.training import judged_traces, shopping

    recipe = parse_recipe(RECIPE.format(threads=options.threads)).resolved(7)
    splits, corpus = shopping.window(24, 4, 2)
    given: Json = {"day": "2026-05-02", "seed": 7, "splits": splits, "inputs": shopping.INPUTS, "recipe": recipe}
    sft = list(corpus_records(training_rows(splits, "sft")[0], corpus))
    if stage == "sft":
        return lambda root, runner: train_checkpoint(
            stage="sft", rows=sft, checkpoint_root=root, runner=runner, **given
        )
    if stage == "kto":
        start = train_checkpoint(stage="sft", rows=sft, checkpoint_root=folder / "parent", runner=plain(len), **given)
        parent = Parent(str(start.checkpoint_id), start.path)
        rows = [record(one) for one in judged_traces.mixed_rows(24)]
        return lambda root, runner: train_checkpoint(
            stage="kto", rows=rows, parent=parent, checkpoint_root=root, runner=runner, **given
        )
    return grpo(folder, given, options)


def grpo(folder: Path, given: Json, options: argparse.Namespace) -> Callable[[Path, Any], Any]:
    """Dr. GRPO on a small market by a model with random weights; what counts is that nothing differs."""
    from trajectory_platform_tests.training import grpo_market

    world = grpo_market.world_folder(folder / "market")
    base = grpo_market.base_folder(folder, world)
    recipe: Recipe = grpo_market.recipe_of(base, max_steps=12, batch=8, micro_batch=4)
    part = recipe.stage("dr_grpo").model_copy(update={"save_every": 2})
    recipe = recipe.model_copy(update={"stages": recipe.stages.model_copy(update={"dr_grpo": part})})
    rows = [record(one) for one in grpo_market.rows(4, world).rows]
    return lambda root, runner: train_checkpoint(
        stage="dr_grpo",
        rows=rows,
        files={"world": world},
        checkpoint_root=root,
        runner=runner,
        **{**given, "recipe": recipe},
    )


def record(row: Any) -> Json:
    """A trainer's row as a record of ``train_checkpoint``."""
    return {
        "trace_id": row.trace_id,
        "role": row.role,
        "trace_day": row.trace_day or "2026-05-02",
        "problem_key": row.problem_key or f"key-{row.trace_id}",
        "cluster_id": row.leak_cluster,
        "weight": row.weight,
        "messages": json.dumps(row.messages),
        "tools": json.dumps(row.tools),
        "extra": json.dumps(row.extra),
    }


if __name__ == "__main__":
    sys.exit(main())
