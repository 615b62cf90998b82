"""Batched generation with a KV cache: left-padded prompts, one row per reply, a row leaves when its reply is complete.

A loop of our own instead of ``model.generate``: every row draws with a generator of its own, so that a reply does not
depend on its company; finished rows stop costing; and the log probability of each drawn token is at hand.

What is left of the batch in a reply is rounding: the sums of a larger matrix product are taken in another order, which
moves a logit by about 1e-6. A token changes only where two candidates (greedy) or the drawn number and the edge of a
token's share (sampled) are closer than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from trajectory_platform.evaluation.kv_cache import Prefix, Reuse, fill, fresh_cache, taken

_FIRST_LOOK = 256  # tokens among which top-p nearly always ends


@dataclass(frozen=True)
class Wanted:
    """One reply to generate.

    Attributes:
        ids: prompt tokens, not empty.
        max_new: tokens of the reply at most, the end token included.
        seed: of this reply's draws.
        cancelled: asked before every token; a reply nobody waits for any more is given up.
        owner: whose turn it is; the next turn of the same owner begins with this one.
        reuse: the beginning of ``ids`` that need not go through the model again.
    """

    ids: Sequence[int]
    max_new: int
    seed: int = 0
    cancelled: Callable[[], bool] = lambda: False
    owner: Hashable = None
    reuse: Reuse | None = None

    @property
    def new(self) -> int:
        """Prompt tokens that go through the model."""
        return len(self.ids) - (self.reuse.length if self.reuse is not None else 0)


class Generated(NamedTuple):
    """Tokens of a reply, up to and with the end token if there is one.

    Attributes:
        logprobs: natural log of each token's probability at the given temperature (1 where greedy), before top-p.
        ended: False for a reply that the limit cut (or that was cancelled).
    """

    ids: list[int]
    logprobs: list[float]
    ended: bool


def generate(
    model: Any,
    wanted: Sequence[Wanted],
    *,
    end: int,
    pad: int,
    temperature: float = 0.0,
    top_p: float = 1.0,
    keep: Callable[[Hashable, Prefix], None] | None = None,
) -> list[Generated]:
    """Replies in the order of ``wanted``; the whole batch is one tensor, so its width is that of its longest prompt.

    Args:
        model: a causal language model of transformers, in evaluation mode.
        end, pad: token ids; generation of a row stops after ``end``.
        keep: takes the owner of every finished reply with the prefix for its next turn.
    """
    import torch

    with torch.inference_mode():
        rows = [_Row(one, torch.Generator().manual_seed(one.seed)) for one in wanted]
        alive = list(range(len(rows)))
        cache = fresh_cache(model)
        own_cache = cache is not None
        ids, mask = _padded(wanted, pad, model, cache)
        while alive:
            positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            out = model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = out.past_key_values
            draws = [rows[index].draw for index in alive]
            tokens, logprobs = _choose(out.logits[:, -1].float(), draws, temperature, top_p)
            going = []
            for place, (index, token, logprob) in enumerate(zip(alive, tokens, logprobs, strict=True)):
                if rows[index].take(token, logprob, end):
                    going.append(place)
                elif keep is not None and own_cache:
                    held = [*wanted[index].ids, *rows[index].ids[:-1]]  # the last token was drawn, never asked with
                    keep(wanted[index].owner, taken(cache, place, mask[place].nonzero().squeeze(-1), held))
            if len(going) < len(alive):
                staying = torch.tensor(going, dtype=torch.long, device=mask.device)
                alive = [alive[place] for place in going]
                if alive:
                    cache.batch_select_indices(staying)
                mask = mask[staying]
            ids = torch.tensor([[rows[index].ids[-1]] for index in alive], dtype=torch.long, device=mask.device)
            mask = torch.cat([mask, mask.new_ones((len(alive), 1))], dim=-1)
        return [Generated(row.ids, row.logprobs, row.ended) for row in rows]


class _Row:
    """A reply while it is generated."""

    def __init__(self, wanted: Wanted, generator: Any) -> None:
        self.wanted = wanted
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.ended = False
        self._generator = generator

    def draw(self) -> float:
        """The next uniform number in [0, 1) of this reply alone."""
        import torch

        return float(torch.rand((), generator=self._generator, dtype=torch.float64))

    def take(self, token: int, logprob: float, end: int) -> bool:
        """Append a token; whether the row goes on."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.ended = token == end
        return not self.ended and len(self.ids) < self.wanted.max_new and not self.wanted.cancelled()


def _padded(wanted: Sequence[Wanted], pad: int, model: Any, cache: Any) -> tuple[Any, Any]:
    """Prompt tokens and the mask of all columns; what is reused of the prompts goes into the cache, before the rest."""
    import torch

    if cache is None:  # nothing can be put into the model's own kind of cache
        wanted = [replace(one, reuse=None) for one in wanted]
    reused = [one.reuse for one in wanted]
    before = max((one.length for one in reused if one is not None), default=0)
    width = max(one.new for one in wanted)
    ids = torch.full((len(wanted), width), pad, dtype=torch.long)
    mask = torch.zeros((len(wanted), before + width), dtype=torch.long)
    for row, one in enumerate(wanted):
        ids[row, width - one.new :] = torch.tensor(one.ids[len(one.ids) - one.new :])
        mask[row, before + width - one.new :] = 1
        mask[row, before - (len(one.ids) - one.new) : before] = 1
    if before:
        fill(cache, reused, before, (model.dtype, model.device))
    return ids.to(model.device), mask.to(model.device)


def _choose(
    logits: Any, draws: Sequence[Callable[[], float]], temperature: float, top_p: float
) -> tuple[list[int], list[float]]:
    """(tokens, log probabilities) of one step; greedy, or by the inverse of the cumulated shares."""
    import torch

    logprobs = (logits if temperature == 0 else logits / temperature).log_softmax(-1)
    if temperature == 0:
        tokens = logprobs.argmax(-1)
    else:
        shares = logprobs.exp().double()
        if top_p < 1:
            shares = shares.masked_fill(shares < _least_share(shares, top_p), 0.0)
        # summed in the order of token ids: in that of shares, two like ones could change places by rounding
        sums = shares.cumsum(-1)
        drawn = torch.tensor([[draw()] for draw in draws], dtype=torch.float64).to(sums.device)
        places = torch.searchsorted(sums, drawn * sums[:, -1:], right=True)
        tokens = places.clamp(max=sums.shape[-1] - 1).squeeze(-1)
    chosen = logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return tokens.tolist(), chosen.tolist()


def _least_share(shares: Any, top_p: float) -> Any:
    """Per row the share a token needs to be drawn at all: that of the last one before which top-p is not reached.

    A full sort of a large vocabulary takes far longer than a step, so the largest are tried first.
    """
    size = shares.shape[-1]
    for few in (min(_FIRST_LOOK, size), size):
        largest = shares.topk(few, dim=-1).values
        sums = largest.cumsum(-1)
        if few == size or bool((sums[:, -1] >= top_p).all()):
            break
    return largest.masked_fill(sums - largest >= top_p, math.inf).amin(-1, keepdim=True)
