"""Attention of rows that go on from shared prompts: where their tokens stand, packed and padded, and how they look at one another.

packed [tokens, heads, size] ─► queries [kv, rows, places, size], keys over values [2 kv, rows, columns, size] ─► packed again
                             └► the same of the shared prompts, unless nobody looks at what they see
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as nnf

from trimtab.train.devices import to_device
from trimtab.train.learner.rows import Rows


@dataclass(frozen=True, eq=False)
class PackingPlan:
    """Where the tokens of a call stand: packed, the shared ones first; and padded, for attention."""

    tokens: Int[Tensor, " tokens"]
    positions: Int[Tensor, " tokens"]
    prefix: Padding
    own: Padding
    group: Int[Tensor, " rows"]
    """Which prefix each row goes on from."""
    visible: Int[Tensor, " places"]
    """The packed places of what a row's tokens may see: its prefix, then its own, each padded."""
    hidden: Float[Tensor, "rows width columns"]
    """Added to the scores: −inf for what a row's token does not see of them."""
    later: Float[Tensor, "1 common common"]
    """The same for the shared tokens among themselves."""
    own_columns: Int[Tensor, " own"]
    """Where a row's own tokens stand among what all rows may see."""

    reach: int
    """One past the last position."""

    @classmethod
    def of(cls, rows: Rows, dtype: torch.dtype) -> PackingPlan:
        """The plan of a batch, its shared prompts found by group. Sizes come from the host, so that nothing waits for the device."""
        device, extents = rows.ids.device, rows.extents
        first, group = _distinct(extents.prefix)
        shared = extents.prompts[first] - 1
        prefix = Padding.of(shared, int(shared.max()), device)
        own = Padding.of(extents.lengths, rows.tokens.shape[1], device)
        later = own.packed.view(len(group), -1) + prefix.number
        first, group, common = (to_device(each, device) for each in (first, group, shared))
        steps, begun = (torch.arange(each.width, device=device) for each in (own, prefix))
        places = (rows.prompts.unsqueeze(1) - 1 + steps).clamp(max=rows.ids.shape[1] - 1)
        shown = (begun < common[group].unsqueeze(1)).unsqueeze(1).expand(-1, own.width, -1)
        seen = torch.cat([shown, (steps <= steps.unsqueeze(1)).expand(len(group), -1, -1)], -1)
        columns = own.inside + prefix.width * (own.inside // own.width + 1)
        return cls(
            tokens=torch.cat([prefix.pick(rows.ids[first, : prefix.width]), own.pick(rows.ids.gather(1, places))]),
            positions=torch.cat([prefix.pick(begun.expand_as(prefix.real)), own.pick(places)]),
            prefix=prefix,
            own=own,
            group=group,
            visible=torch.cat([prefix.packed.view(len(first), -1)[group], later], 1).flatten(),
            hidden=torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf),
            later=torch.full((1, prefix.width, prefix.width), -torch.inf, dtype=dtype, device=device).triu_(1),
            own_columns=columns,
            reach=int(extents.sizes.max()),
        )


@dataclass(frozen=True, eq=False)
class Padding:
    """The way between packed tokens and padded rows."""

    real: Bool[Tensor, "rows width"]
    inside: Int[Tensor, " tokens"]
    """The padded place of each packed token."""
    packed: Int[Tensor, " places"]
    """The packed place of each padded one; padding holds another token's copy, which nobody looks at."""

    @classmethod
    def of(cls, lengths: Int[Tensor, " rows"], width: int, device: torch.device) -> Padding:
        """Rows of these lengths, which the host knows, padded on the right."""
        real = torch.arange(width) < lengths.unsqueeze(1)
        flat = real.flatten()
        parts = (real, flat.nonzero().squeeze(1), (flat.cumsum(0) - 1).clamp(min=0))
        return cls(*(to_device(each, device) for each in parts))

    @property
    def width(self) -> int:
        """Places of a row."""
        return self.real.shape[1]

    @property
    def number(self) -> int:
        """Packed tokens."""
        return len(self.inside)

    def pick(self, padded: Int[Tensor, "rows width"]) -> Int[Tensor, " tokens"]:
        """One number per token, without the padding."""
        return padded.flatten().index_select(0, self.inside)

    def padded(self, packed: Float[Tensor, " tokens"]) -> Float[Tensor, "rows width"]:
        """One number per token laid out in rows, 0 in the padding."""
        return packed.new_zeros(self.real.numel()).index_copy(0, self.inside, packed).view(self.real.shape)


def _distinct(prefix: Int[Tensor, " rows"]) -> tuple[Int[Tensor, " prefixes"], Int[Tensor, " rows"]]:
    """The first row of each distinct prompt, and which of them each row has."""
    names, group = torch.unique(prefix, return_inverse=True)
    order = torch.arange(len(prefix))
    return torch.full_like(names, len(prefix)).scatter_reduce_(0, group, order, "amin"), group


HELD = 1 << 22
"""Most scores that are held at once, 16 MB: short rows are faster so. Beyond it the attention that never holds them is used."""


def seen(
    qkv: Float[Tensor, "tokens heads size"],
    turn: Complex[Tensor, "tokens pairs"],
    plan: PackingPlan,
    kv: int,
    *,
    last: bool = False,
) -> Float[Tensor, "looking channels"]:
    """What every token sees; with `last`, every row's own. Queries and keys are rotated by `turn`."""
    queries, both, shared_queries, shared_both = _laid(qkv, turn, plan, kv, last or not plan.prefix.number)
    own = _attention(queries, both, plan.hidden)
    shared = None
    if shared_queries is not None and shared_both is not None:
        shared = _attention(shared_queries, shared_both, plan.later)
    return cast("Tensor", _Packed.apply(own, shared, plan, qkv.shape[1] - 2 * kv))


def _attention(
    queries: Float[Tensor, "kv rows places size"],
    both: Float[Tensor, "two_kv rows columns size"],
    hidden: Float[Tensor, "#rows width columns"],
) -> Float[Tensor, "kv rows places size"]:
    """softmax(queries · keysᵀ / √size + hidden) · values. Heads that share keys are places of one row, head after head."""
    kv, rows, places, _ = queries.shape
    share = places // hidden.shape[1]
    if share > 1:
        hidden = hidden.repeat(1, share, 1)
    small = kv * rows * places * both.shape[2] <= HELD
    if small and queries.device.type == "cpu" and queries.dtype in (torch.float32, torch.float64):
        return cast("Tensor", _Held.apply(queries, both, hidden))
    keys, values = both.split(kv)
    return nnf.scaled_dot_product_attention(queries, keys, values, attn_mask=hidden)


class _Held(Function):
    """Attention that keeps its probabilities for the way back."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, both: Tensor, hidden: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        kv, rows, places, size = queries.shape
        asked = queries.flatten(0, 1) * size**-0.5
        keys, values = both.flatten(0, 1).split(kv * rows)
        scores = torch.bmm(asked, keys.transpose(1, 2))
        scores.view(kv, rows, places, -1).add_(hidden)
        shares = scores.softmax(-1)
        ctx.save_for_backward(asked, both, shares)
        return torch.bmm(shares, values).view_as(queries)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        asked, both, shares = ctx.saved_tensors
        keys, values = both.flatten(0, 1).split(len(asked))
        flat = gradient.flatten(0, 1)
        to_both = torch.empty_like(both)
        to_keys, to_values = to_both.flatten(0, 1).split(len(asked))
        torch.bmm(shares.transpose(1, 2), flat, out=to_values)
        to_scores = torch.bmm(flat, values.transpose(1, 2))
        to_scores = torch.ops.aten._softmax_backward_data(to_scores, shares, -1, shares.dtype)
        torch.bmm(to_scores.transpose(1, 2), asked, out=to_keys)
        return torch.bmm(to_scores, keys).mul_(gradient.shape[-1] ** -0.5).view_as(gradient), to_both, None


def _laid(
    qkv: Tensor, turn: Tensor, plan: PackingPlan, kv: int, last: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    return cast("tuple[Tensor, Tensor, Tensor | None, Tensor | None]", _Laid.apply(qkv, turn, plan, kv, last))


class _Laid(Function):
    """Packed queries, keys and values rotated and laid out; their gradients are put together in one buffer on the way back."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, qkv: Tensor, turn: Tensor, plan: PackingPlan, kv: int, last: bool
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Queries of the rows, keys and values they may see, and, unless `last`, both of the shared tokens."""
        ctx.plan, ctx.kv, ctx.shape = plan, kv, qkv.shape
        ctx.save_for_backward(turn)
        ctx.set_materialize_grads(False)
        heads, number = qkv.shape[1] - 2 * kv, plan.prefix.number
        turned = qkv.new_empty(qkv.shape[1], len(qkv), qkv.shape[2])
        _rotate(qkv.transpose(0, 1), turn, heads + kv, turned)
        queries = _in_rows(turned[:heads, number:], plan.own, kv)
        both = turned[heads:].index_select(1, plan.visible).unflatten(1, (len(plan.group), -1))
        if last:
            return queries, both, None, None
        shared_both = turned[heads:, :number].index_select(1, plan.prefix.packed).unflatten(1, plan.prefix.real.shape)
        return queries, both, _in_rows(turned[:heads, :number], plan.prefix, kv), shared_both

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, queries: Tensor, both: Tensor, shared_queries: Tensor | None, shared_both: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        plan, (turn,) = cast("PackingPlan", ctx.plan), ctx.saved_tensors
        heads, number, width = ctx.shape[1] - 2 * ctx.kv, plan.prefix.number, plan.prefix.width
        turned = queries.new_empty(ctx.shape[1], *ctx.shape[::2])
        turned[:heads, number:] = _in_heads(queries, plan.own).index_select(1, plan.own.inside)
        turned[heads:, number:] = both.flatten(1, 2).index_select(1, plan.own_columns)
        if number:
            groups = len(plan.prefix.real)
            common = both.new_zeros(len(both), groups, width, both.shape[-1])
            common.index_add_(1, plan.group, both[:, :, :width])
            if shared_queries is None or shared_both is None:
                turned[:heads, :number] = 0.0
            else:
                turned[:heads, :number] = _in_heads(shared_queries, plan.prefix).index_select(1, plan.prefix.inside)
                common += shared_both
            turned[heads:, :number] = common.flatten(1, 2).index_select(1, plan.prefix.inside)
        result = queries.new_empty(ctx.shape)
        _rotate(turned, turn.conj(), heads + ctx.kv, result.transpose(0, 1))
        return result, None, None, None, None


def _in_rows(packed: Float[Tensor, "heads tokens size"], padding: Padding, kv: int) -> Tensor:
    """Queries [kv, rows, heads of one key · width, size]."""
    laid = packed.index_select(1, padding.packed).unflatten(1, padding.real.shape)
    if len(packed) == kv:
        return laid
    return laid.unflatten(0, (kv, -1)).transpose(1, 2).flatten(2, 3)


def _in_heads(laid: Float[Tensor, "kv rows places size"], padding: Padding) -> Tensor:
    """[heads, rows · width, size] again."""
    share = laid.shape[2] // padding.width
    if share > 1:
        laid = laid.unflatten(2, (share, padding.width)).transpose(1, 2).flatten(0, 1)
    return laid.flatten(1, 2)


class _Packed(Function):
    """What was seen, packed; autograd would add the gradients up one by one where they can be put in place."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, own: Tensor, shared: Tensor | None, plan: PackingPlan, heads: int
    ) -> Tensor:
        ctx.plan, ctx.kv, ctx.heads, ctx.with_shared = plan, len(own), heads, shared is not None
        number = plan.prefix.number if shared is not None else 0
        result = own.new_empty(number + plan.own.number, heads, own.shape[-1])
        by_head = result.transpose(0, 1)
        by_head[:, number:] = _in_heads(own, plan.own).index_select(1, plan.own.inside)
        if shared is not None:
            by_head[:, :number] = _in_heads(shared, plan.prefix).index_select(1, plan.prefix.inside)
        return result.flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        plan = cast("PackingPlan", ctx.plan)
        number = plan.prefix.number if ctx.with_shared else 0
        by_head = gradient.unflatten(1, (ctx.heads, -1)).transpose(0, 1)
        own = _padded(by_head[:, number:], plan.own, ctx.kv)
        shared = _padded(by_head[:, :number], plan.prefix, ctx.kv) if ctx.with_shared else None
        return own, shared, None, None


def _padded(packed: Float[Tensor, "heads tokens size"], padding: Padding, kv: int) -> Tensor:
    """Gradients in rows; padding is some token's copy, and its gradient is not that token's."""
    found = packed.index_select(1, padding.packed)
    if padding.number < padding.real.numel():
        found.masked_fill_(~padding.real.view(1, -1, 1), 0.0)
    laid = found.unflatten(1, padding.real.shape)
    return laid if len(packed) == kv else laid.unflatten(0, (kv, -1)).transpose(1, 2).flatten(2, 3)


def _rotate(
    heads: Float[Tensor, "heads tokens size"], turn: Complex[Tensor, "tokens pairs"], number: int, result: Tensor
) -> None:
    """Write the heads to `result`, the first ones turned in pairs of channels."""
    wide = heads[:number].to(turn.real.dtype)
    if wide.dtype == heads.dtype:
        torch.mul(_complex(wide), turn, out=_complex(result[:number]))
    else:
        result[:number] = torch.view_as_real(_complex(wide) * turn).flatten(-2)
    result[number:] = heads[number:]


def _complex(channels: Float[Tensor, "*tokens size"]) -> Complex[Tensor, "*tokens pairs"]:
    return torch.view_as_complex(channels.unflatten(-1, (-1, 2)))
