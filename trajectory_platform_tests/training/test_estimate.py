"""The arithmetic of an estimate against what can be counted without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.training.estimate import DEVICES, GIB, Shape, Work, device_of, hours, memory, shape_of
from trajectory_platform.training.recipe import ModelSpec, Recipe, load_recipe

QWEN3_4B = Shape(151_936, 2560, 36, 32, 8, 128, 9728)


def of(**hardware: Any) -> Recipe:
    stages = {"sft": {"amount": {"batch": 8, "micro_batch": 1}}, "kto": {}, "dr_grpo": {"amount": {"batch": 64}}}
    return Recipe.model_validate({"hardware": hardware, "stages": stages})


def test_the_parameters_of_qwen3_4b_are_the_published_ones() -> None:
    assert QWEN3_4B.parameters == 4_022_468_096
    assert shape_of(load_recipe("qwen3-4b").model, 151_936) == QWEN3_4B


@pytest.mark.slow
def test_parameters_and_adapter_are_those_of_the_real_model() -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3Config, Qwen3ForCausalLM

    spec = ModelSpec(hidden=48, layers=3, heads=4, kv_heads=2, head_dim=16, mlp=80)
    shape = shape_of(spec, 300)
    config = Qwen3Config(
        vocab_size=300,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config)
    assert shape.parameters == sum(weight.numel() for weight in model.parameters())
    targets = ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "gate_proj", "down_proj")
    adapted = get_peft_model(Qwen3ForCausalLM(config), LoraConfig(r=4, target_modules=list(targets)))
    trained = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)
    assert shape.adapter(4, targets) == trained


def test_an_unknown_matrix_or_device_is_named() -> None:
    with pytest.raises(Abort, match="no matrix lm_head"):
        QWEN3_4B.adapter(8, ("lm_head",))
    with pytest.raises(Abort, match=r"no device 'h300'.*a100-80"):
        device_of("h300")


def test_full_training_on_one_gpu_keeps_eighteen_bytes_a_weight() -> None:
    recipe = of(profile="gpu", precision="bf16", gradient_checkpointing=True)
    need = memory(QWEN3_4B, recipe, recipe.stage("sft"), longest=1024, micro_batch=1)
    assert need.weights + need.gradients + need.optimiser == 18 * QWEN3_4B.parameters  # 4 + 2 (autocast) + 4 + 8
    assert need.total > 72 * GIB


@pytest.mark.parametrize(("zero", "per_weight"), [(2, 2 + 14 / 8), (3, 16 / 8)])
def test_zero_divides_what_it_shards(zero: int, per_weight: float) -> None:
    recipe = of(profile="gpus", processes=8, precision="bf16", zero=zero)
    need = memory(QWEN3_4B, recipe, recipe.stage("sft"), longest=1024, micro_batch=1)
    assert need.weights + need.gradients + need.optimiser == pytest.approx(per_weight * QWEN3_4B.parameters)


def test_checkpointing_an_adapter_and_shorter_rows_need_less() -> None:
    plain, saving = (
        of(profile="gpu", precision="bf16"),
        of(profile="gpu", precision="bf16", gradient_checkpointing=True),
    )
    adapted = Recipe.model_validate(
        {**saving.model_dump(), "stages": {"sft": {"adapter": {}, "amount": {"batch": 8, "micro_batch": 1}}}}
    )
    totals = [
        memory(QWEN3_4B, recipe, recipe.stage("sft"), longest=longest, micro_batch=1).total
        for recipe, longest in ((plain, 20480), (saving, 20480), (saving, 4096), (adapted, 4096))
    ]
    assert totals == sorted(totals, reverse=True) and totals[-1] < 20 * GIB


def test_a_token_costs_six_operations_a_weight_and_more_with_what_a_stage_adds() -> None:
    recipe, device = of(profile="gpu", precision="bf16"), DEVICES["h100-80"]
    work = Work(trained=10**9, length=0.0)
    per_second = device.tflops * 1e12 * device.used
    sft, kto, grpo = (
        hours(QWEN3_4B, recipe, recipe.stage(name), work, device) * 3600 for name in ("sft", "kto", "dr_grpo")
    )
    assert sft == pytest.approx(6 * QWEN3_4B.parameters * 1e9 / per_second)
    assert kto == pytest.approx(2 * sft) and grpo == pytest.approx(sft * 4 / 3)
    longer = hours(QWEN3_4B, recipe, recipe.stage("sft"), work._replace(length=20480.0), device) * 3600
    assert 1.5 < longer / sft < 2.0  # attention at 20,480 tokens
    generated = hours(QWEN3_4B, recipe, recipe.stage("dr_grpo"), work._replace(generated=10**7), device) * 3600
    assert generated > grpo
