"""Keys and values of attention that are kept: while a reply grows, and from one turn of an attempt to the next.

An agent's next prompt is its last one, its reply and what the tools answered. Only the new end has to go through the
model; the rest is taken from the turn before, as far as the tokens are equal. A stored prefix is a shortcut and nothing
else: it gives the same numbers up to the rounding that a batch has anyway.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

_ROOM = 64  # tokens by which a cache grows at once
DECODE = "grouped_decode"


class Prefix(NamedTuple):
    """Tokens with what the layers made of them: per layer keys and values of shape (heads, tokens, head size)."""

    ids: list[int]
    layers: list[tuple[Tensor, Tensor]]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(part.numel() * part.element_size() for pair in self.layers for part in pair)


class Reuse(NamedTuple):
    """The first ``length`` tokens of a stored prefix."""

    prefix: Prefix
    length: int


class PrefixStore:
    """The newest prefix of each owner, and one that all share (the tool block), within a limit of bytes.

    Args:
        limit: bytes; the prefixes used longest ago go first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[Hashable, Prefix] = OrderedDict()
        self._root: Prefix | None = None
        self._bytes = 0

    def find(self, owner: Hashable, ids: Sequence[int]) -> Reuse | None:
        """The longest stored beginning of ``ids``, shorter than all of it: at least one token is left to ask with."""
        best: Reuse | None = None
        for prefix in (self._held.get(owner), self._root):
            if prefix is not None:
                length = min(_common(prefix.ids, ids), len(ids) - 1)
                if length > 0 and (best is None or length > best.length):
                    best = Reuse(prefix, length)
        if owner in self._held:
            self._held.move_to_end(owner)
        return best

    def keep(self, owner: Hashable, prefix: Prefix) -> None:
        """Replace what is held of this owner."""
        if self._root is None:
            self._root = prefix
        before = self._held.pop(owner, None)
        self._bytes += prefix.size - (before.size if before is not None else 0)
        self._held[owner] = prefix
        while self._bytes > self._limit and self._held:
            _, dropped = self._held.popitem(last=False)
            self._bytes -= dropped.size

    def clear(self) -> None:
        """Forget everything: the weights have changed."""
        self._held.clear()
        self._root, self._bytes = None, 0


def fresh_cache(model: Any) -> Any:
    """A cache for one batch that grows in steps; None for a model whose layers do not all attend to everything."""
    config = getattr(model, "config", None)
    if config is None:
        return None
    text = config.get_text_config(decoder=True)
    kinds = getattr(text, "layer_types", None)
    full = all(kind == "full_attention" for kind in kinds) if kinds else not getattr(text, "sliding_window", None)
    if not full or getattr(text, "num_hidden_layers", None) is None:
        return None
    from transformers.cache_utils import Cache

    return Cache(layers=[_layer_class()() for _ in range(text.num_hidden_layers)])


def fill(cache: Any, reuses: Sequence[Reuse | None], width: int, like: tuple[Any, Any]) -> None:
    """Put the prefixes of a batch's rows into an empty cache, each at the right edge of ``width`` columns.

    Args:
        like: (data type, device) of the model's layers, for rows without a prefix among others with one.
    """
    import torch

    some = next(one for one in reuses if one is not None)
    dtype, device = like
    for number, layer in enumerate(cache.layers):
        heads, _, size = some.prefix.layers[number][0].shape
        pair = [torch.zeros((len(reuses), heads, width, size), dtype=dtype, device=device) for _ in range(2)]
        for row, one in enumerate(reuses):
            if one is not None:
                for whole, part in zip(pair, one.prefix.layers[number], strict=True):
                    whole[row, :, width - one.length :] = part[:, : one.length]
        layer.update(*pair)


def taken(cache: Any, row: int, columns: Tensor, ids: list[int]) -> Prefix:
    """A copy of one row's keys and values at these columns, which hold ``ids``."""
    layers = [
        (layer.keys[row].index_select(1, columns), layer.values[row].index_select(1, columns)) for layer in cache.layers
    ]
    return Prefix(ids, layers)


@cache
def _layer_class() -> Any:
    import torch
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):  # type: ignore[misc]
        """Keys and values with room behind them, so that a token is written and not everything copied."""

        whole: Any = None
        keys: Any
        values: Any

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            before = self.get_seq_length()
            after = before + key_states.shape[-2]
            if self.whole is None or after > self.whole[0].shape[-2]:
                pair = (key_states, value_states)
                self.whole = tuple(one.new_empty((*one.shape[:2], after + _ROOM, one.shape[3])) for one in pair)
                if before:
                    for whole, held in zip(self.whole, (self.keys, self.values), strict=True):
                        whole[:, :, :before] = held
            self.whole[0][:, :, before:after] = key_states
            self.whole[1][:, :, before:after] = value_states
            self.keys, self.values = (whole[:, :, :after] for whole in self.whole)
            return self.keys, self.values

        def batch_select_indices(self, indices: Any) -> None:
            """Only these rows; the room stays."""
            after = self.get_seq_length()
            if self.whole is not None:
                self.whole = tuple(torch.index_select(whole, 0, indices) for whole in self.whole)
                self.keys, self.values = (whole[:, :, :after] for whole in self.whole)

    return GrowingLayer


def use_grouped_decode(model: Any) -> None:
    """Let a model on the processor attend without a copy of keys and values per query head when it asks for one token.

    The usual implementation repeats them for every head of a group at every step, which costs more than the step.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    if getattr(model.config, "_attn_implementation", None) != "sdpa":
        return
    AttentionInterface.register(DECODE, _grouped(sdpa_attention_forward))
    AttentionMaskInterface.register(DECODE, sdpa_mask)
    model.set_attn_implementation(DECODE)


def _grouped(usual: Any) -> Any:
    import torch

    def forward(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **more: Any) -> tuple[Any, None]:
        groups = getattr(module, "num_key_value_groups", 1)
        if query.shape[2] != 1 or groups == 1 or more.get("dropout") or more.get("position_bias") is not None:
            found: tuple[Any, None] = usual(module, query, key, value, attention_mask, **more)
            return found
        rows, heads, _, size = query.shape
        asked = query.view(rows, heads // groups, groups, size)  # the heads of a group ask the same keys
        out = torch.nn.functional.scaled_dot_product_attention(
            asked, key, value, attn_mask=attention_mask, scale=more.get("scaling")
        )
        return out.reshape(rows, 1, heads, size), None

    return forward


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    short = min(len(one), len(other))
    if list(one[:short]) == list(other[:short]):
        return short
    return next(place for place in range(short) if one[place] != other[place])
