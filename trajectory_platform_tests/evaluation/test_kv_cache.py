"""Reusing what a turn has computed changes no token, whoever shares a batch, and is bounded and forgotten on demand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from trajectory_platform.evaluation.context import ContextPolicy
from trajectory_platform.evaluation.generation import Generated, Wanted, generate
from trajectory_platform.evaluation.kv_cache import Prefix, PrefixStore, use_grouped_decode
from trajectory_platform.evaluation.policies import Sampling
from trajectory_platform.evaluation.policy_transformers import TransformersPolicy
from trajectory_platform_tests.evaluation.policy_requests import request, task
from trajectory_platform_tests.training import shopping

CONTEXT = ContextPolicy(max_length=3000, reply_tokens=24)


def make(tokenizer: Any, *, heads: int = 4, kv_heads: int = 2) -> Any:
    """A new model with large weights: what it says depends on all it is asked with."""
    import torch

    from trajectory_platform.training.model import build_model
    from trajectory_platform.training.recipe import ModelSpec

    spec = ModelSpec(hidden=32, layers=2, heads=heads, kv_heads=kv_heads, head_dim=16, mlp=64)
    made = build_model(spec, tokenizer, max_length=3000, seed=3).eval()
    with torch.no_grad():
        for name, weights in made.named_parameters():
            if "layers" in name and weights.dim() == 2:
                weights.mul_(12)
    return made


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return make(tokenizer)


def asked(model: Any, tokenizer: Any, rows: list[Wanted], store: PrefixStore | None, **how: Any) -> list[Generated]:
    ends = {"end": tokenizer.eos_token_id, "pad": tokenizer.pad_token_id}
    return generate(model, rows, **ends, **how, keep=None if store is None else store.keep)


def grown(prompt: list[int], reply: Generated, rng: random.Random) -> list[int]:
    """The next prompt of an attempt: the last one, its reply and an answer."""
    return [*prompt, *reply.ids, *(rng.randrange(40, 400) for _ in range(rng.randrange(3, 40)))]


@pytest.mark.parametrize("how", [{}, {"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.8}])
def test_turns_with_and_without_reuse_say_the_same_tokens(model: Any, tokenizer: Any, how: dict[str, Any]) -> None:
    rng, store = random.Random(1), PrefixStore(1 << 26)
    block = [rng.randrange(40, 400) for _ in range(120)]  # the same for all, like the tool block
    prompts = [[*block, *(rng.randrange(40, 400) for _ in range(rng.randrange(2, 30)))] for _ in range(7)]
    reused = 0
    for turn in range(4):
        rows = [Wanted(ids, 12, seed=100 * turn + row, owner=row) for row, ids in enumerate(prompts)]
        plain = asked(model, tokenizer, rows, None, **how)
        rows = [Wanted(one.ids, 12, one.seed, owner=one.owner, reuse=store.find(one.owner, one.ids)) for one in rows]
        reused += sum(len(one.ids) - one.new for one in rows)
        rng.shuffle(rows)  # company and order are others than without
        made = {
            one.owner: found
            for half in (rows[:3], rows[3:])
            for one, found in zip(half, asked(model, tokenizer, half, store, **how), strict=True)
        }
        assert [made[row].ids for row in range(7)] == [one.ids for one in plain]
        for row in range(7):
            assert made[row].logprobs == pytest.approx(plain[row].logprobs, abs=2e-3)
        prompts = [grown(ids, one, rng) for ids, one in zip(prompts, plain, strict=True)]
    assert reused > 0.6 * sum(map(len, prompts))


def test_a_history_that_was_written_otherwise_is_reused_as_far_as_it_is_equal(model: Any, tokenizer: Any) -> None:
    rng, store = random.Random(2), PrefixStore(1 << 26)
    first = [rng.randrange(40, 400) for _ in range(60)]
    asked(model, tokenizer, [Wanted(first, 8, owner="a")], store)
    changed = [*first[:31], 39, *first[32:], 50, 51]
    found = store.find("a", changed)
    assert found is not None and found.length == 31
    [with_it] = asked(model, tokenizer, [Wanted(changed, 8, owner="a", reuse=found)], None)
    [without] = asked(model, tokenizer, [Wanted(changed, 8)], None)
    assert with_it.ids == without.ids
    whole = store.find("a", first)
    assert whole is not None and whole.length == len(first) - 1, "one token is left to ask with"


def test_a_policy_reuses_its_attempts_and_forgets_when_told(model: Any, tokenizer: Any) -> None:
    def policy(reuse: int) -> TransformersPolicy:
        sampling = Sampling(temperature=1.0)
        return TransformersPolicy(
            model, tokenizer, CONTEXT, name="checkpoint:t", sampling=sampling, reuse_bytes=reuse, keep_tokens=True
        )

    plain, quick = policy(0), policy(1 << 26)
    turns = [place for place, message in enumerate(shopping.messages(2)) if message["role"] == "assistant"]
    for turn, place in enumerate(turns):
        history = shopping.messages(2)[:place]
        rows = [
            request(task(number), turn=turn, messages=history)._replace(tools=shopping.TOOLS) for number in range(3)
        ]
        expected, found = plain.reply_all(rows), quick.reply_all(rows)
        assert [one.extra["token_ids"] for one in found] == [one.extra["token_ids"] for one in expected]
        assert [one.extra["prompt_ids"] for one in found] == [one.extra["prompt_ids"] for one in expected]
    assert quick.counts["reused_tokens"] > 0.5 * quick.counts["prompt_tokens"] and plain.counts["reused_tokens"] == 0
    before = quick.counts["reused_tokens"]
    quick.forget()
    quick.reply_all(rows)
    assert quick.counts["reused_tokens"] == before


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (4, 1), (2, 2)])
def test_one_token_for_grouped_heads_is_the_usual_attention(tokenizer: Any, heads: int, kv_heads: int) -> None:
    usual, grouped = (make(tokenizer, heads=heads, kv_heads=kv_heads) for _ in range(2))
    use_grouped_decode(grouped)
    rng = random.Random(3)
    rows = [Wanted([rng.randrange(40, 400) for _ in range(length)], 16, owner=length) for length in (5, 40, 90)]
    for how in ({}, {"temperature": 1.0}):
        expected, found = asked(usual, tokenizer, rows, None, **how), asked(grouped, tokenizer, rows, None, **how)
        assert [one.ids for one in found] == [one.ids for one in expected]
        for one, other in zip(found, expected, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=2e-3)


def test_other_caches_of_transformers_stay_as_they_are(model: Any, tokenizer: Any) -> None:
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    asked(model, tokenizer, [Wanted([41, 42, 43], 2)], None)
    assert {type(layer) for layer in DynamicCache(config=model.config).layers} == {DynamicLayer}


def prefix(tokens: int) -> Prefix:
    import torch

    return Prefix(list(range(tokens)), [(torch.zeros(1, tokens, 8), torch.zeros(1, tokens, 8))])


def test_the_store_stays_within_its_bytes_and_drops_what_was_used_longest_ago() -> None:
    store = PrefixStore(3 * prefix(10).size)
    for owner in "abc":
        store.keep(owner, Prefix([ord(owner)] * 10, prefix(10).layers))
    assert store.find("a", [ord("a")] * 20) is not None
    store.keep("d", Prefix([ord("d")] * 10, prefix(10).layers))
    assert store.find("b", [ord("b")] * 20) is None
    assert store.find("a", [ord("a")] * 20) is not None and store.find("d", [ord("d")] * 20) is not None
    store.keep("a", Prefix([1] * 10, prefix(10).layers))  # replaces, counts once
    assert store.find("c", [ord("c")] * 20) is not None
    store.keep("huge", prefix(1000))
    assert store.find("huge", list(range(2000))) is None
    store.clear()
    assert store.find("a", [ord("a")] * 20) is None
