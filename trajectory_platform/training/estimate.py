"""What a stage will need: bytes per device and hours, from the shape of the model and the number of tokens.

Arithmetic only, nothing is imported. Each formula says what it counts; the assumptions are returned with the numbers.
``benchmarks/gpu_check.sh`` prints the same estimate beside what a GPU measured.
"""

from __future__ import annotations

from typing import NamedTuple

from trajectory_platform.errors import Abort
from trajectory_platform.training.recipe import ModelSpec, Recipe
from trajectory_platform.training.stage_recipes import AnyStage, GrpoStage, KtoStage

GIB = 1 << 30
OVERHEAD_BYTES = 1.5 * GIB  # CUDA context, kernels, NCCL buffers
FRAGMENTATION = 0.10  # of everything else: what the allocator cannot use
START_S = 15.0  # of each process: importing torch and trl, opening the model and the rows
LOGIT_TOKENS = 4096  # rows of the chunked LM head of TRL (TOKEN_CHUNK_SIZE); full logits are never made


class Device(NamedTuple):
    """A device: memory in GiB (None: the machine's), dense bf16 TFLOP/s and GB/s of memory from its data sheet.

    ``used``: the share of the TFLOP/s that training reaches; ``decode``: the share of the bandwidth that generation
    reaches without vllm (with it: ``VLLM_DECODE``). Both are assumptions.
    """

    name: str
    memory_gib: float | None
    tflops: float
    gb_per_s: float
    used: float = 0.35
    decode: float = 0.15


VLLM_DECODE = 0.5
DEVICES = {
    device.name: device
    for device in (
        Device("a100-80", 80, 312, 2039),
        Device("h100-80", 80, 989, 3350),
        Device("h200-141", 141, 989, 4800),
        Device("l40s-48", 48, 362, 864),
        Device("rtx4090-24", 24, 165, 1008),
        # one core of the machine of docs: 4,700 trained tokens a second at 0.94 M parameters, fp32
        Device("cpu-core", None, 0.06, 10, used=0.45, decode=0.3),
    )
}


class Shape(NamedTuple):
    """Sizes of a Qwen3 with tied embeddings."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int

    @property
    def parameters(self) -> int:
        """All weights; the embedding counts once, it is the LM head too."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = 2 * self.hidden * queries + 2 * self.hidden * keys + 3 * self.hidden * self.mlp
        layer += 2 * self.hidden + 2 * self.head_dim
        return self.vocab * self.hidden + self.layers * layer + self.hidden

    def adapter(self, rank: int, targets: tuple[str, ...]) -> int:
        """Weights of a LoRA adapter: rank * (inputs + outputs) of each matrix it stands beside."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sizes = {
            "q_proj": self.hidden + queries,
            "k_proj": self.hidden + keys,
            "v_proj": self.hidden + keys,
            "o_proj": queries + self.hidden,
            "gate_proj": self.hidden + self.mlp,
            "up_proj": self.hidden + self.mlp,
            "down_proj": self.mlp + self.hidden,
        }
        unknown = sorted(set(targets) - set(sizes))
        if unknown:
            raise Abort(f"adapter.targets: no matrix {', '.join(unknown)} in a Qwen3 layer")
        return self.layers * rank * sum(sizes[name] for name in targets)

    def activations_per_token(self, layers: int) -> int:
        """Elements kept for the backward pass of ``layers`` whole layers, per token (attention is not quadratic)."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return layers * (5 * self.hidden + 3 * queries + 2 * keys + 4 * self.mlp)


class Memory(NamedTuple):
    """Bytes on each device, by what they are for."""

    weights: float
    gradients: float
    optimiser: float
    activations: float
    logits: float
    generation: float
    overhead: float

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self)


class Work(NamedTuple):
    """What a stage does, in tokens over all devices.

    Attributes:
        trained: tokens that pass forward and backward, padding included; ``length``: mean tokens of a row.
        generated, prompted: tokens of replies, and of the histories they are generated from (no cache between turns).
    """

    trained: int
    length: float
    generated: int = 0
    prompted: int = 0


def shape_of(spec: ModelSpec, vocab: int) -> Shape:
    """The shape of a recipe's model with a vocabulary of this size."""
    return Shape(vocab, spec.hidden, spec.layers, spec.heads, spec.kv_heads, spec.head_dim, spec.mlp)


def device_of(name: str) -> Device:
    """A device by name; raises ``Abort`` with the known names."""
    if name not in DEVICES:
        raise Abort(f"no device {name!r}; known are {', '.join(sorted(DEVICES))}")
    return DEVICES[name]


def memory(shape: Shape, recipe: Recipe, part: AnyStage, *, longest: int, micro_batch: int) -> Memory:
    """Bytes per device at the peak of an optimiser step (generation and training do not overlap).

    Weights are as ``training.model`` loads them: float32 where they are trained without ZeRO (bf16 autocast then keeps
    a second copy of two bytes), bfloat16 where they are frozen or where DeepSpeed keeps the float32 ones. AdamW keeps
    two float32 numbers per trained weight, Muon one for matrices; under ZeRO a float32 copy too, all divided among the
    devices. Adapters leave the rest frozen: gradients and states only for the adapter.

    Args:
        longest: tokens of the longest row (``context.max_length`` where rows are packed).
    """
    hardware = recipe.hardware
    all_weights = shape.parameters
    adapter = shape.adapter(part.adapter.rank, part.adapter.targets) if part.adapter else 0
    trained = adapter or all_weights
    half = hardware.precision == "bf16"
    devices = hardware.processes if hardware.zero else 1
    per_weight = 2 if half and (adapter or hardware.zero) else 4
    cast = 2 * trained if half and not hardware.zero and not adapter else 0
    states = 4 if part.optimiser.kind == "muon" else 8
    weights = all_weights * per_weight / (devices if hardware.zero == 3 else 1) + adapter * 4 + cast
    gradients = trained * (2 if half and hardware.zero else 4) / devices
    optimiser = trained * (states + (4 if hardware.zero else 0)) / devices
    tokens = longest * micro_batch
    element = 2 if half else 4
    if hardware.gradient_checkpointing:
        kept = shape.layers * shape.hidden + shape.activations_per_token(1)
    else:
        kept = shape.activations_per_token(shape.layers)
    activations = float(tokens * kept * element)
    logits = float(min(tokens, LOGIT_TOKENS) * shape.vocab * (4 + element))
    generation = 0.0
    if isinstance(part, GrpoStage):
        generation = _generation(shape, recipe, part, element)
    peak = weights + gradients + optimiser + max(activations + logits, generation)
    overhead = FRAGMENTATION * peak + (OVERHEAD_BYTES if hardware.profile != "cpu" else 0)
    if activations + logits >= generation:
        generation = 0.0  # within what training needs anyway
    else:
        activations = logits = 0.0
    return Memory(weights, gradients, optimiser, activations, logits, generation, overhead)


def hours(shape: Shape, recipe: Recipe, part: AnyStage, work: Work, device: Device) -> float:
    """Hours of a stage: floating point operations of training over what the devices reach, and generation.

    A trained token costs 2 operations per weight forward and 4 backward (adapters: 2, no gradient of frozen weights),
    attention 4 * length * heads * head_dim per layer forward (half of it, for it is causal) and twice that backward,
    and one more forward pass under gradient checkpointing. KTO adds three forward passes (the KL completion, and the
    reference for both), Dr. GRPO one (the old log-probabilities). Generation reads the weights once per step of the
    batch of replies and each reply's own cache; a history is one forward pass.
    """
    hardware = recipe.hardware
    devices = hardware.processes if hardware.profile != "cpu" else hardware.processes * hardware.threads
    weights = shape.parameters
    attention = 2 * work.length * shape.heads * shape.head_dim * shape.layers
    forward = 2 * weights + attention
    backward = (forward if part.adapter else 2 * forward) + (forward if hardware.gradient_checkpointing else 0)
    extra = 3 if isinstance(part, KtoStage) else 1 if isinstance(part, GrpoStage) else 0
    operations = work.trained * (forward + backward + extra * forward) + work.prompted * forward
    seconds = operations / (devices * device.tflops * 1e12 * device.used)
    if work.generated:
        together = _together(part)
        element = 2 if hardware.precision == "bf16" else 4
        cache = 2 * shape.layers * shape.kv_heads * shape.head_dim * element * work.length
        share = _decode_share(recipe, part, device)
        step = (weights * element + together * cache) / (device.gb_per_s * 1e9 * share)
        generating = devices if isinstance(part, GrpoStage) else 1  # rollouts before a stage run on one device
        seconds += work.generated / generating / together * step
    return seconds / 3600


def answering_hours(shape: Shape, recipe: Recipe, work: Work, device: Device, *, together: int) -> float:
    """Hours of an evaluation, on one device and without vllm: histories forward, replies one token at a time.

    Args:
        work: ``generated``, ``prompted`` and the mean ``length`` of a trace. together: replies generated at a time.
    """
    hardware = recipe.hardware
    devices = 1 if hardware.profile != "cpu" else hardware.threads
    forward = 2 * shape.parameters + 2 * work.length * shape.heads * shape.head_dim * shape.layers
    seconds = work.prompted * forward / (devices * device.tflops * 1e12 * device.used)
    element = 2 if hardware.precision == "bf16" else 4
    cache = 2 * shape.layers * shape.kv_heads * shape.head_dim * element * work.length
    step = (shape.parameters * element + together * cache) / (device.gb_per_s * 1e9 * device.decode)
    return (seconds + work.generated / together * step) / 3600


def assumptions(device: Device) -> list[str]:
    """What the numbers rest on besides the formulas, for people."""
    rates = f"{device.tflops:g} TFLOP/s of dense bf16 and {device.gb_per_s:g} GB/s by its data sheet"
    if device.memory_gib is None:
        rates = f"{device.tflops:g} TFLOP/s in float32 and {device.gb_per_s:g} GB/s a core, measured on one machine"
    return [
        f"{device.name}: {rates}",
        f"training reaches {device.used:.0%} of the TFLOP/s, generation {device.decode:.0%} of the bandwidth "
        f"(in dr_grpo with vllm {VLLM_DECODE:.0%})",
        f"the allocator loses {FRAGMENTATION:.0%}; {OVERHEAD_BYTES / GIB:g} GiB for the CUDA context on a GPU",
        "attention without a matrix of length times length (SDPA), LM head in chunks (TRL)",
        "several devices: no time lost in communication",
        f"{START_S:g} s for each process of a stage or an evaluation before its first step",
        "an evaluation's attempts are as long as the corpus's traces; the teacher's own time is not counted",
        "in dr_grpo vLLM sleeps while the model is trained",
    ]


def _generation(shape: Shape, recipe: Recipe, part: GrpoStage, element: int) -> float:
    """The cache of the replies generated together; with vllm the share of the device that it is given."""
    if recipe.hardware.vllm == "colocate":
        return shape.parameters * element  # its own copy of the weights; the cache takes what is left of its share
    together = min(part.generation_batch, part.amount.batch // recipe.hardware.processes)
    per_token = 2 * shape.layers * shape.kv_heads * shape.head_dim * element
    return float(together * recipe.context.max_length * per_token)


def _decode_share(recipe: Recipe, part: AnyStage, device: Device) -> float:
    """Share of the bandwidth that generation reaches; only dr_grpo generates with vllm."""
    return VLLM_DECODE if isinstance(part, GrpoStage) and recipe.hardware.vllm != "off" else device.decode


def _together(part: AnyStage) -> int:
    """Replies generated at the same time on a device."""
    if isinstance(part, GrpoStage):
        return part.generation_batch
    rollouts = getattr(part, "rollouts", None)
    return int(rollouts.concurrency) if rollouts is not None else 1
