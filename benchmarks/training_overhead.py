"""What our launch costs over a bare TRL script on the very same rows and steps, as a ratio.

    python benchmarks/training_overhead.py [--traces 120] [--epochs 2] [--repeat 3] [--threads 1] [--json]

Both start from the same base folder (a small Qwen3 with its tokenizer) and train the same rows in the same order:

* ``ours``: ``training.launch.train_checkpoint``: guard, rows file, a process of its own, the guard again, tokenising,
  preflight, ``SFTTrainer`` with points to resume at, checkpoint with digests, moving it into place, verifying it;
* ``ours*``: the same without the points to resume at, which names their part;
* ``bare``: a script of the shortest kind: load model and tokenizer, conversations to ``SFTTrainer`` with
  ``assistant_only_loss``, train, save. It knows no leak guard, cannot go on after a kill and checks nothing.

They are run by turns, as child processes, and timed from outside; all numbers are medians of ``--repeat``. On a busy
machine only the processor seconds (children included) say something. Equal weights at the end are checked, so all did
the same work; otherwise exit code 1. The parts of the difference are named; those inside the child are timed once
more on their own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]
DAY = "2026-05-02"
PARTS = ("parent: guard, rows file", "start, imports, rows to tokens, preflight", "training", "checkpoint, verifying")
CPU_PARTS = ("parent: guard, rows file, verifying", "child outside training", "child training")
ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=120)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare is not None:
        return bare(options.bare)
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(Path(scratch), options)
    print(json.dumps(found, indent=1) if options.json else table(found))
    return 0 if found["same_weights"] else 1


def measure(folder: Path, options: argparse.Namespace) -> Json:
    """Both by turns; medians and what they consist of."""
    from trajectory_platform.training.recipe import parse_recipe

    recipe_text = RECIPE.format(base=folder / "base", threads=options.threads, epochs=options.epochs)
    recipe = parse_recipe(recipe_text).resolved(0)
    inside = prepare(folder, recipe, options)
    endless = parse_recipe(recipe_text.replace("sft: {", "sft: {save_every: 1000000, ")).resolved(0)
    runs: dict[str, list[Json]] = {"ours": [], "ours*": [], "bare": []}
    for number in range(options.repeat):
        for name, given in (("ours", recipe), ("ours*", endless)):
            root = folder / f"{name}-{number}"
            runs[name].append(timed(lambda root=root, given=given: ours(root, given, options)))
        runs["bare"].append(timed(lambda: run_bare(folder, options)))
    middle = {
        name: {key: statistics.median(run[key] for run in group) for key in ("wall", "cpu")}
        | {
            kind: [statistics.median(run[kind][at] for run in group) for at in range(len(names))]
            for kind, names in (("parts", PARTS), ("cpu_parts", CPU_PARTS))
        }
        for name, group in runs.items()
    }
    digests = {run["weights"] for group in runs.values() for run in group}
    return {
        **inside,
        **middle,
        "wall_ratio": middle["ours"]["wall"] / middle["bare"]["wall"],
        "cpu_ratio": middle["ours"]["cpu"] / middle["bare"]["cpu"],
        "same_weights": len(digests) == 1,
        "repeat": options.repeat,
    }


RECIPE = """
name: overhead
hardware: {{profile: cpu, threads: {threads}}}
model: {{base: {base}, hidden: 128, layers: 2, heads: 4, kv_heads: 2, head_dim: 32, mlp: 384}}
context: {{max_length: 2048, reply_tokens: 128, max_result_chars: 400}}
min_traces: 1
stages:
  sft: {{optimiser: {{learning_rate: 0.002}}, amount: {{epochs: {epochs}, batch: 4, sampling: uniform}}}}
"""


def prepare(folder: Path, recipe: Any, options: argparse.Namespace) -> Json:
    """The base folder and the bare script's input: conversations in the order in which ours are trained."""
    from trajectory_platform.traces.rendering import chat_messages
    from trajectory_platform.training.arguments import plan_steps, trainer_arguments
    from trajectory_platform.training.datasets import TraceRow, build_examples, preflight
    from trajectory_platform.training.model import build_model
    from trajectory_platform.training.sampling import Item, plan_order
    from trajectory_platform.training.tokenizer import build_tokenizer
    from trajectory_platform_tests.training import shopping

    made = [shopping.record(number) for number in range(options.traces)]
    rows = [TraceRow(row["trace_id"], row["leak_cluster"], shopping.messages(at), shopping.TOOLS)
            for at, row in enumerate(made)]  # fmt: skip
    cap = recipe.context.max_result_chars
    chats = {row.trace_id: chat_messages(row.messages, max_result_chars=cap).messages for row in rows}
    tokenizer = build_tokenizer([(chats[row.trace_id], row.tools) for row in rows], recipe)
    build_model(recipe.model, tokenizer, max_length=recipe.context.max_length, seed=0).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    begun = time.perf_counter()
    built = build_examples(rows, tokenizer, recipe.context, max_lost_share=0)
    tokenised = time.perf_counter()
    preflight(built, rows, tokenizer, recipe.context)
    checked = time.perf_counter()
    lengths = {name: tuple(len(one.input_ids) for one in group) for name, group in built.examples.items()}
    part = recipe.stage("sft")
    order = plan_order([Item(name, 1.0, of) for name, of in lengths.items()], part.amount, 0).order
    steps = plan_steps(part.amount, recipe.hardware, len(order))
    given = trainer_arguments(recipe, part, folder=folder / "bare", steps=steps.steps, seed=0,
                              micro_batch=steps.micro_batch, accumulation=steps.accumulation)  # fmt: skip
    given |= {"save_strategy": "no", "train_sampling_strategy": "sequential", "max_length": None}
    (folder / "arguments.json").write_text(json.dumps(given))
    with (folder / "rows.jsonl").open("w") as stream:
        for name, _ in order:
            last = max(at for at, message in enumerate(chats[name]) if message["role"] == "assistant")
            row = {"messages": chats[name][: last + 1], "tools": json.dumps(shopping.TOOLS)}  # ours end there as well
            stream.write(json.dumps(row) + "\n")
    return {"traces": options.traces, "rows": len(order), "steps": steps.steps, "threads": options.threads,
            "tokens": sum(lengths[name][at] for name, at in order),
            "tokenising_s": tokenised - begun, "preflight_s": checked - tokenised}  # fmt: skip


def timed(run: Any) -> Json:
    """Seconds on the wall and of the processor (this process and its ended children) around a run."""
    begun, used = time.perf_counter(), _cpu()
    found: Json = run()
    wall = time.perf_counter() - begun
    parent, child = (after - before for after, before in zip(_cpu(), used, strict=True))
    training = found.pop("training_cpu")
    return {**found, "wall": wall, "cpu": parent + child, "cpu_parts": [parent, child - training, training]}


def _cpu() -> tuple[float, float]:
    """Processor seconds of this process and of its ended children."""
    own, ended = (sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own, ended


def ours(root: Path, recipe: Any, options: argparse.Namespace) -> Json:
    """Train by the platform; times of its parts by what the child says and when."""
    from trajectory_platform.evaluation.child import plain_runner
    from trajectory_platform.training.launch import corpus_records, train_checkpoint, training_rows
    from trajectory_platform_tests.training import shopping

    splits, corpus = shopping.window(options.traces, 6, 2)
    marks: dict[str, float] = {"begin": time.perf_counter()}

    def hear(line: str) -> None:
        if line.startswith("trained "):
            marks["trained"] = time.perf_counter()

    def runner(command: Any, env: Any) -> None:
        marks["started"] = time.perf_counter()
        plain_runner(hear)(command, env)

    train, _ = training_rows(splits, "sft")
    result = train_checkpoint(day=DAY, stage="sft", recipe=recipe, seed=0, splits=splits,
                              rows=corpus_records(train, corpus), inputs=shopping.INPUTS, checkpoint_root=root,
                              runner=runner)  # fmt: skip
    end = time.perf_counter()
    assert result.path is not None
    run = json.loads((result.path / "rows_report.json").read_text("utf-8"))["run"]
    training = run["seconds"]
    parts = [marks["started"] - marks["begin"], marks["trained"] - training - marks["started"], training,
             end - marks["trained"]]  # fmt: skip
    return {"parts": parts, "training_cpu": run["cpu_seconds"], "weights": _digest(result.path)}


def run_bare(folder: Path, options: argparse.Namespace) -> Json:
    """The bare script as a child, with the same variables as ours."""
    from trajectory_platform.evaluation.child import child_env

    env = {**os.environ, **child_env(options.threads)}
    begun = time.perf_counter()
    command = [sys.executable, str(Path(__file__).resolve()), "--bare", str(folder)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    whole = time.perf_counter() - begun
    said = json.loads(done.stdout.strip().splitlines()[-1])
    parts = [0.0, said["before_s"], said["training_s"], whole - said["before_s"] - said["training_s"]]
    return {"parts": parts, "training_cpu": said["training_cpu"], "weights": _digest(folder / "out")}


def bare(folder: Path) -> int:
    """The script to compare with: nothing but TRL."""
    started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + _born()
    import torch
    from datasets import Dataset, Features, Json, List, Value
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    model = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    features = Features({"messages": List(Json()), "tools": Value("string")})
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows, features=features),
        args=SFTConfig(**json.loads((folder / "arguments.json").read_text()), assistant_only_loss=True),
    )
    begun, used = time.time(), time.process_time()
    trainer.train()
    ended, used = time.time(), time.process_time() - used
    model.save_pretrained(folder / "out")
    tokenizer.save_pretrained(folder / "out")
    print(json.dumps({"before_s": begun - started, "training_s": ended - begun, "training_cpu": used}))
    return 0


def _born() -> float:
    """When this process was started, in seconds since boot."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


def _digest(folder: Path) -> str:
    import hashlib

    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def table(found: Json) -> str:
    """The result for people."""
    ours_, plain, bare_ = found["ours"], found["ours*"], found["bare"]
    lines = [
        f"{found['rows']} rows of {found['traces']} traces, {found['tokens']:,} tokens, {found['steps']} steps, "
        f"{found['threads']} thread(s), median of {found['repeat']}; equal weights: {found['same_weights']}",
        f"{'':44}{'ours':>9}{'ours*':>9}{'bare TRL':>10}{'ours/bare':>11}",
        f"{'seconds':44}{ours_['wall']:>9.2f}{plain['wall']:>9.2f}{bare_['wall']:>10.2f}{found['wall_ratio']:>11.3f}",
        f"{'processor seconds':44}{ours_['cpu']:>9.2f}{plain['cpu']:>9.2f}{bare_['cpu']:>10.2f}"
        f"{found['cpu_ratio']:>11.3f}",
    ]
    for title, kind, names in (
        ("parts of the processor seconds:", "cpu_parts", CPU_PARTS),
        ("parts of the seconds:", "parts", PARTS),
    ):
        lines.append(f"{title:44}{'ours - bare':>39}")
        lines += [
            f"  {name:42}{first:>9.2f}{second:>9.2f}{third:>10.2f}{first - third:>+11.2f}"
            for name, first, second, third in zip(names, ours_[kind], plain[kind], bare_[kind], strict=True)
        ]
    lines.append(
        f"of ours, timed alone: rows to tokens {found['tokenising_s']:.2f} s, preflight {found['preflight_s']:.2f} s"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
