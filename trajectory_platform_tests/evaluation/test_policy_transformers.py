"""A checkpoint as a policy: the context of training, batches that change nothing, replies the parser reads."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation import policy_transformers
from trajectory_platform.evaluation.context import ContextPolicy, contexts_of, prompt_ids
from trajectory_platform.evaluation.environment import Reply, TurnRequest
from trajectory_platform.evaluation.generation import Wanted, generate
from trajectory_platform.evaluation.policies import Sampling, open_policy
from trajectory_platform.evaluation.policy_transformers import TransformersPolicy
from trajectory_platform.traces.toolcalls import parse_reply
from trajectory_platform_tests.evaluation.policy_requests import drive, request, task
from trajectory_platform_tests.training import shopping

CONTEXT = ContextPolicy(max_length=3000, reply_tokens=24)


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    """A new model with large weights: a usual one echoes its last token, whatever came before."""
    import torch

    from trajectory_platform.training.model import build_model
    from trajectory_platform.training.recipe import ModelSpec

    spec = ModelSpec(hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, mlp=64)
    made = build_model(spec, tokenizer, max_length=3000, seed=3).eval()
    with torch.no_grad():
        for name, weights in made.named_parameters():
            if "layers" in name and weights.dim() == 2:
                weights.mul_(12)
    return made


class Spelling:
    """A model that writes given texts: row by row, whatever it is asked with."""

    device = "cpu"

    def __init__(self, tokenizer: Any, *texts: str) -> None:
        self.replies = [tokenizer(text)["input_ids"] for text in texts]
        self.width, self.size = 0, len(tokenizer)

    def __call__(self, *, input_ids: Any, attention_mask: Any, past_key_values: Any, **_: Any) -> Any:
        import torch
        from transformers import DynamicCache
        from transformers.modeling_outputs import CausalLMOutputWithPast

        if past_key_values is None:
            self.width = input_ids.shape[1]
        at = attention_mask.shape[1] - self.width
        logits = torch.zeros((len(input_ids), 1, self.size))
        for row in range(len(input_ids)):
            logits[row, 0, self.replies[row][min(at, len(self.replies[row]) - 1)]] = 50.0
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values or DynamicCache())


def requests(count: int) -> list[TurnRequest]:
    """Turns of different length: the number of tool results in the history grows."""
    made = []
    for number in range(count):
        messages = shopping.messages(number)
        turns = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
        turn = number % len(turns)
        made.append(request(task(number), turn=turn, messages=messages[: turns[turn]])._replace(tools=shopping.TOOLS))
    return made


def policy(model: Any, tokenizer: Any, context: ContextPolicy = CONTEXT, **options: Any) -> TransformersPolicy:
    return TransformersPolicy(model, tokenizer, context, name="checkpoint:test", **options)


def text_of(replies: list[Reply]) -> list[tuple[str | None, str]]:
    assert all(reply.error is None for reply in replies)
    return [(reply.content, reply.finish_reason) for reply in replies]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0), Sampling(temperature=0.8, top_p=0.7)])
def test_a_reply_does_not_depend_on_its_company(model: Any, tokenizer: Any, sampling: Sampling) -> None:
    asked = requests(9)
    alone = text_of([policy(model, tokenizer, sampling=sampling).reply_now(one) for one in asked])
    for size in (2, 16):
        assert text_of(policy(model, tokenizer, sampling=sampling, max_batch=size).reply_all(asked)) == alone
    shuffled = asked[::-1]
    assert text_of(policy(model, tokenizer, sampling=sampling).reply_all(shuffled)) == alone[::-1]
    assert len({content for content, _ in alone}) > 1


def test_greedy_agrees_with_the_generation_of_transformers(model: Any, tokenizer: Any) -> None:
    import torch

    for one in requests(4):
        ids = prompt_ids(tokenizer, one.messages, one.tools, CONTEXT)
        assert ids is not None
        [made] = generate(model, [Wanted(ids, 24)], end=tokenizer.eos_token_id, pad=tokenizer.pad_token_id)
        with torch.inference_mode():
            reference = model.generate(
                input_ids=torch.tensor([ids]),
                attention_mask=torch.ones((1, len(ids)), dtype=torch.long),
                max_new_tokens=24,
                do_sample=False,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        assert made.ids == reference[0, len(ids) :].tolist()


def test_drawn_tokens_follow_the_model_s_distribution(model: Any, tokenizer: Any) -> None:
    """First tokens of many seeds against the softmax of the logits (chi-square bound), and top-p cuts the tail."""
    import torch

    ids = list(range(40, 60))
    ends = {"end": tokenizer.eos_token_id, "pad": tokenizer.pad_token_id}
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids]), logits_to_keep=1).logits[0, -1].float()
    temperature, n = 0.05, 3000  # a new model is nearly flat: cold enough to have few likely tokens
    shares = (logits / temperature).softmax(-1)
    drawn = generate(model, [Wanted(ids, 1, seed) for seed in range(n)], temperature=temperature, **ends)
    counts = torch.bincount(torch.tensor([one.ids[0] for one in drawn]), minlength=len(shares)).double()
    likely = shares * n >= 5
    expected = shares[likely].double() * n
    statistic = float(((counts[likely] - expected) ** 2 / expected).sum())
    freedom = int(likely.sum()) - 1
    assert freedom > 5
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5
    assert drawn[0].logprobs[0] == pytest.approx(float(shares[drawn[0].ids[0]].log()), abs=1e-4)
    best, order = shares.sort(descending=True)
    kept = set(order[: int((best.cumsum(0) - best < 0.3).sum())].tolist())
    cut = generate(model, [Wanted(ids, 1, seed) for seed in range(300)], temperature=temperature, top_p=0.3, **ends)
    assert {one.ids[0] for one in cut} <= kept and len(kept) < freedom


def test_other_seeds_draw_other_replies_and_equal_ones_repeat(model: Any, tokenizer: Any) -> None:
    hot = policy(model, tokenizer, sampling=Sampling(temperature=1.0))
    asked = [request(task(1)), request(task(1, sample=1)), request(task(1, seed=5)), request(task(1))]
    replies = text_of(hot.reply_all(asked))
    assert len(set(replies[:3])) == 3 and replies[0] == replies[3]
    other = policy(model, tokenizer, sampling=Sampling(temperature=1.0, seed=1))
    assert text_of([other.reply_now(asked[0])]) != replies[:1]
    assert hot.name != other.name != policy(model, tokenizer).name


def test_the_prompt_is_the_context_the_turn_was_trained_in(model: Any, tokenizer: Any) -> None:
    messages = shopping.messages(2)
    trained = contexts_of(tokenizer, messages, shopping.TOOLS, CONTEXT)
    turns = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    starts = {turn.number: context.input_ids[: turn.start] for context in trained.contexts for turn in context.turns}
    kept = policy(model, tokenizer, keep_tokens=True)
    for number, place in enumerate(turns):
        asked = request(turn=number, messages=messages[:place])._replace(tools=shopping.TOOLS)
        assert kept.reply_now(asked).extra["prompt_ids"] == starts[number]


@pytest.mark.parametrize("tool_calls", [1, 2])
def test_a_reply_is_read_as_the_training_text_is_written(tokenizer: Any, tool_calls: int) -> None:
    """The tokens of a training turn, generated, parse to its very thinking, text and calls; the end token is gone."""
    calls = [shopping.call(number, "find_product", q=f"té {number} </tool", page=1) for number in range(tool_calls)]
    turn = {"role": "assistant", "content": "I look.", "reasoning_content": "two\nlines < 3", "tool_calls": calls}
    messages = [{"role": "user", "content": "tea"}, turn]
    [context] = contexts_of(tokenizer, messages, shopping.TOOLS, CONTEXT).contexts
    [place] = context.turns
    text = tokenizer.decode(context.input_ids[place.start : place.stop])
    reply = policy(Spelling(tokenizer, text), tokenizer, ContextPolicy(max_length=3000, reply_tokens=400)).reply_now(
        request(messages=messages[:1])._replace(tools=shopping.TOOLS)
    )
    assert reply.finish_reason == "stop" and reply.content is not None and "<|im_end|>" not in reply.content
    parsed = parse_reply(reply.content)
    assert (parsed.think, parsed.rest, parsed.error) == ("two\nlines < 3", "I look.", None)
    assert [call.arguments for call in parsed.calls] == [json.loads(call["function"]["arguments"]) for call in calls]


def test_a_reply_without_an_end_is_cut_at_the_smallest_limit(tokenizer: Any) -> None:
    endless = policy(Spelling(tokenizer, "word " * 50), tokenizer, keep_tokens=True)
    for asked, tokens in ((request(), 24), (request(reply_tokens=5), 5)):
        reply = endless.reply_now(asked)
        assert (reply.finish_reason, reply.completion_tokens) == ("length", tokens)
        assert reply.extra["token_ids"] == endless._model.replies[0][:tokens]
    shorter = policy(Spelling(tokenizer, "word " * 50), tokenizer, sampling=Sampling(max_tokens=3))
    assert shorter.reply_now(request()).completion_tokens == 3


def test_rows_that_end_early_leave_the_others_alone(tokenizer: Any) -> None:
    texts = ["a<|im_end|>", "a b c d e f<|im_end|>", "a b<|im_end|>", "x " * 40]
    model = Spelling(tokenizer, *texts)
    ends = {"end": tokenizer.eos_token_id, "pad": tokenizer.pad_token_id}
    seen: list[int] = []

    class Shrinking:
        device = "cpu"
        rows = list(model.replies)

        def __call__(self, **asked: Any) -> Any:
            seen.append(len(asked["input_ids"]))
            at = 0 if asked["past_key_values"] is None else asked["attention_mask"].shape[1] - model.width
            model.replies = [row for row in self.rows if len(row) > at]
            return model(**asked)

    made = generate(Shrinking(), [Wanted([1, 2, 3], 20) for _ in texts], **ends)
    assert [one.ids for one in made] == [row[:20] for row in Shrinking.rows]
    assert [one.ended for one in made] == [True, True, True, False]
    assert seen[0] == 4 and seen[-1] == 1 and len(seen) == 20


def test_requests_that_wait_together_share_a_batch(model: Any, tokenizer: Any) -> None:
    served = policy(model, tokenizer, max_batch=4)
    asked = requests(8)

    async def run() -> list[Reply]:
        return list(await asyncio.gather(*(served.reply(one) for one in asked)))

    together = asyncio.run(run())
    assert served.counts["batches"] == 2 and served.counts["replies"] == 8
    assert text_of(together) == text_of([policy(model, tokenizer).reply_now(one) for one in asked])
    assert text_of(asyncio.run(run())) == text_of(together)  # in another event loop


def test_the_driver_fills_the_batches(model: Any, tokenizer: Any) -> None:
    served = policy(model, tokenizer)
    done = drive(served, [task(number) for number in range(12)], concurrency=6)
    assert len(done) == 12
    assert served.counts["replies"] >= 12 and served.counts["batches"] <= served.counts["replies"] / 3


def test_a_history_that_fits_nowhere(model: Any, tokenizer: Any) -> None:
    small = policy(model, tokenizer, ContextPolicy(max_length=64, reply_tokens=32))
    reply = small.reply_now(request(messages=[{"role": "user", "content": "mug " * 200}]))
    assert reply.error == "context_full" and reply.content is None
    [rollout] = drive(small, [task(query="mug " * 200)]).values()
    assert rollout.ending.reason == "token_limit"


def test_a_history_that_cannot_be_rendered_fails_alone(model: Any, tokenizer: Any) -> None:
    served = policy(model, tokenizer)
    good, bad = request(), request(messages=[{"role": "user", "content": "<|im_end|>"}])
    replies = served.reply_all([good, bad, good])
    assert replies[1].error is not None and replies[1].error.startswith("control_token_in_text")
    assert [reply.error for reply in replies[::2]] == [None, None]


def test_a_batch_that_does_not_fit_the_memory_fails_with_a_reason(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory: tried to allocate\nmany lines")

    monkeypatch.setattr(policy_transformers, "generate", full)
    reply = policy(model, tokenizer).reply_now(request())
    assert reply.error == "generation_failed: out of memory: tried to allocate"


def test_a_fault_of_ours_reaches_everybody_who_waits_and_ends_nothing(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = policy(model, tokenizer)

    async def run() -> list[Any]:
        return list(await asyncio.gather(*(served.reply(one) for one in requests(3)), return_exceptions=True))

    with monkeypatch.context() as patched:
        patched.setattr(policy_transformers, "generate", lambda *_, **__: 1 / 0)
        assert [type(outcome) for outcome in asyncio.run(run())] == [ZeroDivisionError] * 3
    assert all(isinstance(outcome, Reply) for outcome in asyncio.run(run()))


def test_a_reply_nobody_waits_for_costs_no_more_tokens(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two requests of a batch is cancelled while the batch runs: the other one goes on alone."""
    begun, go = threading.Event(), threading.Event()
    made: list[Any] = []

    def watched(*given: Any, **options: Any) -> Any:
        begun.set()
        assert go.wait(10)
        made.extend(generate(*given, **options))
        return made

    monkeypatch.setattr(policy_transformers, "generate", watched)
    served = policy(model, tokenizer)
    given_up, kept = requests(2)

    async def run() -> Reply:
        first, second = asyncio.ensure_future(served.reply(given_up)), asyncio.ensure_future(served.reply(kept))
        await asyncio.to_thread(begun.wait, 10)
        first.cancel()
        await asyncio.wait({first})
        go.set()
        return await second

    assert asyncio.run(run()).error is None
    assert sorted(len(one.ids) for one in made)[0] == 1


def test_tokens_and_their_probabilities_are_kept_where_asked(model: Any, tokenizer: Any) -> None:
    import torch

    temperature = 0.7
    kept = policy(model, tokenizer, keep_tokens=True, sampling=Sampling(temperature=temperature))
    assert policy(model, tokenizer).reply_now(request()).extra is None
    for reply in kept.reply_all(requests(3)):
        prompt, new = reply.extra["prompt_ids"], reply.extra["token_ids"]
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt + new])).logits[0, len(prompt) - 1 : -1].float()
        logprobs = (logits / temperature).log_softmax(-1).gather(-1, torch.tensor(new).unsqueeze(-1)).squeeze(-1)
        assert reply.extra["logprobs"] == pytest.approx(logprobs.tolist(), abs=1e-3)
        assert (reply.prompt_tokens, reply.completion_tokens) == (len(prompt), len(new))


@pytest.fixture(scope="module")
def folder(model: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(place, safe_serialization=True)
    tokenizer.save_pretrained(place)
    (place / "recipe.yaml").write_text("context: {max_length: 3000, reply_tokens: 24}\nthreads: 1\n", "utf-8")
    return place


def test_a_folder_is_opened_with_its_own_context_and_named_by_its_manifest(
    folder: Path, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    opened = open_policy(str(folder))
    assert isinstance(opened, TransformersPolicy)
    assert text_of([opened.reply_now(request())]) == text_of([policy(model, tokenizer).reply_now(request())])
    assert opened.name.startswith("checkpoint:folder-") and opened.name.endswith("|greedy")
    assert open_policy(f"checkpoint:{folder}").name == opened.name
    copied = tmp_path / "copy"
    copied.mkdir()
    for path in folder.iterdir():
        (copied / path.name).symlink_to(path)
    (copied / "manifest.json").write_text('{"checkpoint_id": "sft-2026-05-02-0123456789ab"}', "utf-8")
    assert open_policy(str(copied)).name == "checkpoint:sft-2026-05-02-0123456789ab|greedy"
    (copied / "manifest.json").write_text("[]", "utf-8")
    with pytest.raises(Abort, match=r"manifest\.json is damaged"):
        open_policy(str(copied))


def test_code_in_a_folder_is_not_run(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        if path.name != "config.json":
            (tmp_path / path.name).symlink_to(path)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    trap = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(trap)!r}, 'w').close()\n", "utf-8")
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(Abort, match="no model can be read"):
        open_policy(str(tmp_path))
    assert not trap.exists()


def test_no_template_no_policy(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        if path.name != "chat_template.jinja":
            (tmp_path / path.name).symlink_to(path)
    with pytest.raises(Abort, match="no chat template"):
        open_policy(str(tmp_path))
