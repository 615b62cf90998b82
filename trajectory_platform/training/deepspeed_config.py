"""DeepSpeed's JSON for ZeRO 2 and 3, as Accelerate and the Hugging Face trainer read it.

Batch sizes, learning rate and clipping stay ``auto``: the trainer fills them from its own arguments, so that each
number of the recipe stands in one place.
"""

from __future__ import annotations

from typing import Any, Literal


def deepspeed_config(zero: Literal[2, 3], *, precision: Literal["fp32", "bf16"]) -> dict[str, Any]:
    """The configuration of one stage; sizes of buckets in elements, ``auto`` where the trainer decides.

    ZeRO 2 shards gradients and optimiser states, ZeRO 3 the weights too. ``gather_16bit_weights_on_model_save`` makes
    every rank's part of the weights arrive on rank 0, where the checkpoint is written.
    """
    stage: dict[str, Any] = {
        "stage": zero,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": 200_000_000,
    }
    if zero == 2:
        stage |= {"allgather_partitions": True, "allgather_bucket_size": 200_000_000, "reduce_scatter": True}
    else:
        stage |= {
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    return {
        "zero_optimization": stage,
        "bf16": {"enabled": precision == "bf16"},
        "fp16": {"enabled": False},
        "zero_allow_untested_optimizer": True,  # Muon is none that DeepSpeed knows
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "wall_clock_breakdown": False,
    }
