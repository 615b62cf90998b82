"""Two steps of each trainer at Qwen3-4B shape: memory estimated and measured, tokens per second (see gpu_check.sh).

    python benchmarks/gpu_check.py [--tiny] [--cpu] [--length 8192] [--full | --adapter] [--stages sft kto dr_grpo]

Each stage is a process of its own, so that one's peak is not another's. Weights are random and nothing is kept: the
losses mean nothing. Whole weights are trained where the estimate fits the device, else a LoRA adapter; ``--full`` and
``--adapter`` decide it. On a CPU the measured number is the growth of the process's memory, a rough one.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from trajectory_platform.training.estimate import DEVICES, GIB, Device, Shape, Work, hours, memory  # noqa: E402
from trajectory_platform.training.recipe import Recipe, parse_recipe  # noqa: E402

Json = dict[str, Any]
STAGES = ("sft", "kto", "dr_grpo")
QWEN3_4B = Shape(151_936, 2560, 36, 32, 8, 128, 9728)
TINY = Shape(2048, 32, 1, 2, 1, 16, 64)
RECIPE = """
name: gpu-check
hardware: {{profile: {profile}, threads: 2, precision: bf16, gradient_checkpointing: true}}
model: {{base: {base}, hidden: {shape.hidden}, layers: {shape.layers}, heads: {shape.heads},
         kv_heads: {shape.kv_heads}, head_dim: {shape.head_dim}, mlp: {shape.mlp}}}
context: {{max_length: {length}, reply_tokens: {reply}, max_result_chars: 2000}}
min_traces: 1
max_lost_share: 0.5
stages:
  sft:
    adapter: {adapter}
    amount: {{epochs: 4, max_steps: 2, batch: 1, micro_batch: 1, packing: true, sampling: uniform}}
    optimiser: {{learning_rate: 0.00005}}
  kto:
    adapter: {adapter}
    amount: {{epochs: 10, max_steps: 2, batch: 4, micro_batch: 2, sampling: uniform}}
    optimiser: {{learning_rate: 0.000001}}
  dr_grpo:
    adapter: {adapter}
    amount: {{max_steps: 2, batch: {batch}, micro_batch: 2}}
    optimiser: {{learning_rate: 0.000001, warmup_share: 0.0, schedule: constant}}
    group: {group}
    generation_batch: 8
    limits: {{max_steps: 5, reply_tokens: {reply}}}
    truncated: keep
    clipped_action: warn
    zero_variance_action: warn
"""


def main() -> int:
    options = arguments()
    if options.stage:
        print(json.dumps(measured(options)))
        return 0
    device = found_device(options)
    if device is None:
        print("NO CUDA DEVICE: nothing was measured. Run this on a machine with a GPU, or go through the code with")
        print("  benchmarks/gpu_check.sh --tiny --cpu")
        return 2
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        folder = Path(name)
        failed = check(folder, device, options)
    print(
        f"\n{time.perf_counter() - begun:.0f} s in all" + (", bf16 on a CPU: times mean nothing" if options.cpu else "")
    )
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a tiny shape, to go through the code")
    parser.add_argument("--cpu", action="store_true", help="without a GPU")
    parser.add_argument("--length", type=int, help="tokens of a packed SFT row and of a context (8192, tiny 1536)")
    parser.add_argument("--full", action="store_true", help="whole weights, whatever the estimate says")
    parser.add_argument("--adapter", action="store_true", help="a LoRA adapter")
    parser.add_argument("--stages", nargs="+", default=STAGES, choices=STAGES)
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.length = options.length or (1536 if options.tiny else 8192)
    return options


def found_device(options: argparse.Namespace) -> Device | None:
    """The device of this machine with the memory it really has; data-sheet speeds by its name."""
    if options.cpu:
        return DEVICES["cpu-core"]
    import torch

    if not torch.cuda.is_available():
        return None
    facts = torch.cuda.get_device_properties(0)
    words = facts.name.lower().replace(" ", "")
    known = next((one for key, one in DEVICES.items() if key.split("-")[0] in words), DEVICES["a100-80"])
    return known._replace(name=facts.name, memory_gib=facts.total_memory / GIB)


def check(folder: Path, device: Device, options: argparse.Namespace) -> list[str]:
    """Make the base folder, run the stages, print what was found; returns the stages that failed."""
    shape = TINY if options.tiny else QWEN3_4B
    full, whole = options.full, written_recipe(folder, shape, options, adapter=False)
    if not (options.full or options.adapter):
        need = max(memory(shape, whole, whole.stage(s), longest=options.length, micro_batch=1).total for s in STAGES)
        full = device.memory_gib is None or need < 0.92 * device.memory_gib * GIB
    recipe = written_recipe(folder, shape, options, adapter=not full)
    trained = "whole weights" if full else "a LoRA adapter"
    print(f"{device.name}: {shape.parameters / 1e9:.3f} B random parameters, {trained} trained")
    begun = time.perf_counter()
    make_base(folder / "base", shape, options)
    print(f"base folder made in {time.perf_counter() - begun:.0f} s", flush=True)
    head = ("stage", "tokens/step", "s/step", "tokens/s", "s/step est.", "GiB est.", "GiB alloc.", "GiB reserved")
    print("".join(f"{word:>13}" for word in head), flush=True)
    failed = []
    for stage in options.stages:
        done = child(stage, folder, options)
        if "error" in done:
            failed.append(stage)
            print(f"{stage:>13}  FAILED: {done['error']}", flush=True)
            continue
        part = recipe.stage(stage)
        need = memory(shape, recipe, part, longest=done["longest"], micro_batch=done["micro_batch"])
        work = Work(done["tokens"], done["mean"], done["generated"], done["prompted"])
        guess = hours(shape, recipe, part, work, device) * 3600
        speed = done["tokens"] / done["seconds"]
        row = [f"{done['tokens']:,}", f"{done['seconds']:.2f}", f"{speed:,.0f}", f"{guess:.2f}"]
        row += [f"{value / GIB:.2f}" for value in (need.total, done["allocated"], done["reserved"])]
        print(f"{stage:>13}" + "".join(f"{cell:>13}" for cell in row), flush=True)
        parts = ", ".join(f"{key} {value / GIB:.2f}" for key, value in need._asdict().items() if value)
        print(f"{'':>13}  estimate: {parts}; start and first step {done['first']:.0f} s", flush=True)
    return failed


def written_recipe(folder: Path, shape: Shape, options: argparse.Namespace, *, adapter: bool) -> Recipe:
    """The check's recipe, written for the children."""
    text = RECIPE.format(
        profile="cpu" if options.cpu else "gpu",
        base=json.dumps(str(folder / "base")),
        shape=shape,
        length=options.length,
        reply=64,
        batch=4 if options.tiny else 8,
        group=2 if options.tiny else 4,
        adapter="{rank: 64, alpha: 128}" if adapter else "null",
    )
    (folder / "recipe.yaml").write_text(text)
    return parse_recipe(text).resolved(7)


def make_base(folder: Path, shape: Shape, options: argparse.Namespace) -> None:
    """A model of this shape with random bf16 weights and a tokenizer, on disk."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = a_tokenizer(options)
    config = Qwen3Config(
        vocab_size=max(shape.vocab, len(tokenizer)),
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype=torch.bfloat16,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cpu" if options.cpu else "cuda"):
        model = Qwen3ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    del model
    if not options.cpu:
        torch.cuda.empty_cache()


def a_tokenizer(options: argparse.Namespace) -> Any:
    """Qwen's own where its package is installed and the shape is Qwen's, else one trained on the rows."""
    from trajectory_platform.traces.rendering import chat_messages
    from trajectory_platform.training.qwen_vocabulary import merges_file, qwen_tokenizer
    from trajectory_platform.training.tokenizer import build_tokenizer, template_text
    from trajectory_platform_tests.training import shopping

    merges = None if options.tiny else merges_file()
    if merges is not None:
        return qwen_tokenizer(merges, template_text("qwen3_training"))
    chat = [(chat_messages(shopping.messages(number)).messages, shopping.TOOLS) for number in range(60)]
    return build_tokenizer(chat, parse_recipe("tokenizer: {vocab: 1500, constant_text: false}\n"))


def child(stage: str, folder: Path, options: argparse.Namespace) -> Json:
    """One stage in a process of its own; its last line is its result."""
    command = [sys.executable, __file__, "--stage", stage, "--folder", str(folder), "--length", str(options.length)]
    command += [f"--{name}" for name in ("tiny", "cpu") if getattr(options, name)]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        found: Json = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = [line for line in done.stderr.strip().splitlines() if line.strip()][-1:]
        return {"error": f"exit code {done.returncode}: {' '.join(last)[:300]}"}
    return found


def measured(options: argparse.Namespace) -> Json:
    """Train two steps of a stage here; seconds of the second, peak of memory, tokens."""
    import torch

    recipe = parse_recipe((options.folder / "recipe.yaml").read_text()).resolved(7)
    train, rows, files, module = a_stage(options.stage, options.folder, tiny=options.tiny)
    made = module.trainer_arguments
    module.trainer_arguments = lambda *given, **more: {**made(*given, **more), "save_strategy": "no"}
    marks: list[float] = []
    shapes = watched_shapes()

    def hear(line: str) -> None:
        print(line, file=sys.stderr)
        if line.startswith("step ") and "/" in line.split()[1]:
            if not options.cpu:
                torch.cuda.synchronize()
            marks.append(time.perf_counter())
            shapes.append(("step", 0, 0))

    place = options.folder / f"run-{options.stage}"
    place.mkdir()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    begun = time.perf_counter()
    train(rows, recipe, options.stage, parent=None, folder=place, files=files, report=hear)
    if options.cpu:
        allocated = reserved = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    else:
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {
        "seconds": marks[1] - marks[0],
        "first": marks[0] - begun,
        "allocated": allocated,
        "reserved": reserved,
        **tokens_of(shapes),
    }


def a_stage(stage: str, folder: Path, *, tiny: bool) -> tuple[Any, Any, Json, Any]:
    """(trainer, rows, files, the module whose trainer arguments count) of a stage."""
    from trajectory_platform.training.datasets import TraceRow
    from trajectory_platform.training.trained import Rows
    from trajectory_platform_tests.training import grpo_market, judged_traces, shopping

    if stage == "sft":
        from trajectory_platform.training import sft

        found = [
            TraceRow(f"run:{number:04d}", f"cluster-{number:04d}", shopping.messages(number), shopping.TOOLS)
            for number in range(60)
        ]
        return sft.train_sft, Rows(found, []), {}, sft
    if stage == "kto":
        from trajectory_platform.training import preference

        return preference.train_kto, Rows(judged_traces.mixed_rows(24), []), {}, preference
    from trajectory_platform.training import reinforcement

    speak_for_the_model(folder / "base", most=8 if tiny else None)
    world = grpo_market.world_folder(folder / "market")
    return reinforcement.train_dr_grpo, grpo_market.rows(2 if tiny else 4, world), {"world": world}, reinforcement


def speak_for_the_model(base: Path, *, most: int | None) -> None:
    """Random weights never call a tool: every reply is really generated, then a scripted one is put in its place.

    Half of the attempts take the teacher's path and half recommend something else, so there is a gradient.
    ``most`` limits the tokens that are really generated.
    """
    from transformers import AutoTokenizer

    from trajectory_platform.evaluation import policy_transformers
    from trajectory_platform_tests.training.grpo_market import Script, as_trained, straight

    def says(number: int, turn: int, seed: int) -> str:
        if seed % 2:
            return as_trained(straight(number)[turn])
        return as_trained(straight(number + 1)[2] if turn == 0 else straight(number)[3])

    generate, script = policy_transformers.generate, Script(AutoTokenizer.from_pretrained(base), says)

    def both(model: Any, wanted: Any, **more: Any) -> Any:
        asked = wanted if most is None else [replace(one, max_new=min(most, one.max_new)) for one in wanted]
        generate(model, asked, **{name: value for name, value in more.items() if name != "keep"})
        return script(model, wanted, **more)

    policy_transformers.generate = both


def watched_shapes() -> list[tuple[str, int, int]]:
    """A list that fills with (kind, rows, tokens per row) of every pass through a Qwen3, kind ``train`` or ``look``."""
    import torch
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Model

    seen: list[tuple[str, int, int]] = []
    forward = Qwen3Model.forward

    def watched(self: Any, *given: Any, **more: Any) -> Any:
        ids = more.get("input_ids", given[0] if given else None)
        ids = ids if ids is not None else more.get("inputs_embeds")
        if ids is not None:
            seen.append(("train" if torch.is_grad_enabled() and self.training else "look", ids.shape[0], ids.shape[1]))
        return forward(self, *given, **more)

    Qwen3Model.forward = watched
    return seen


def tokens_of(shapes: list[tuple[str, int, int]]) -> Json:
    """What passed through the model between the two marks, and the largest training pass of all."""
    ends = [at for at, (kind, _, _) in enumerate(shapes) if kind == "step"]
    between = shapes[ends[0] : ends[1]]
    trained = [(rows, length) for kind, rows, length in between if kind == "train"]
    looked = [(rows, length) for kind, rows, length in between if kind == "look"]
    longest = max(length for kind, _, length in shapes if kind == "train")
    return {
        "tokens": sum(rows * length for rows, length in trained),
        "mean": sum(length for _, length in trained) / max(1, len(trained)),
        "longest": longest,
        "micro_batch": max(rows for kind, rows, _ in shapes if kind == "train"),
        "generated": sum(rows for rows, length in looked if length == 1),
        "prompted": sum(rows * length for rows, length in looked if length > 1),
    }


if __name__ == "__main__":
    sys.exit(main())
