"""Single logits, one for each pair of a token and an id: worked out one by one if they are few, picked out of whole tiles if not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.core.cached import cached
from trimtab.log_probs.picked_logits import TileEntries

_DEARER_ON_CPU, _DEARER_ELSEWHERE = 64, 512
"""How many logits of a tile cost as much as a single one: that one reads a row of the weight for itself."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Which logits are wanted of the tokens from the `first` on: sorted by token, then by id, each once."""

    token: Int[Tensor, " pairs"]
    ids: Int[Tensor, " pairs"]
    keys: Int[Tensor, " pairs"]
    """One number for each, rising."""
    first: int
    tokens: int
    """Of all kinds."""
    size: int
    """Entries of the vocabulary."""
    few: bool
    """Whether they cost less one by one than all logits of their tokens do."""

    @classmethod
    def of(
        cls, token: Int[Tensor, " pairs"], ids: Int[Tensor, " pairs"], *, first: int, tokens: int, size: int
    ) -> Pairs:
        """These pairs, put in order if they are not, to be worked out in whichever way is cheaper."""
        keys = torch.add(ids, token, alpha=size)
        if not bool((keys[1:] > keys[:-1]).all()):  # engines send masks sorted, each id once
            keys = keys.unique()
            token, ids = keys.div(size, rounding_mode="floor"), keys % size
        return cls._sorted(token, ids, keys, first, tokens, size)

    @classmethod
    def _sorted(cls, token: Tensor, ids: Tensor, keys: Tensor, first: int, tokens: int, size: int) -> Pairs:
        dearer = _DEARER_ON_CPU if ids.device.type == "cpu" else _DEARER_ELSEWHERE
        return cls(token, ids, keys, first, tokens, size, len(ids) * dearer <= (tokens - first) * size)

    def only(self, some: Bool[Tensor, " tokens"], row: Int[Tensor, " tokens"], *, first: int, tokens: int) -> Pairs:
        """Those of some tokens, which become the last of so many; `row`: where each will stand, in the order of before."""
        kept = some.index_select(0, self.token)
        token, ids = row.to(self.token.dtype).index_select(0, self.token[kept]), self.ids[kept]
        return self._sorted(token, ids, torch.add(ids, token, alpha=self.size), first, tokens, self.size)

    def find(
        self, token: Int[Tensor, " some"], ids: Int[Tensor, " some"]
    ) -> tuple[Int[Tensor, " some"], Bool[Tensor, " some"]]:
        """Where some pairs stand, and whether they are there at all."""
        wanted = (token * self.size + ids).to(self.keys.dtype)
        if len(self.keys) == 0:
            return torch.zeros_like(wanted, dtype=torch.int64), torch.zeros_like(wanted, dtype=torch.bool)
        place = torch.searchsorted(self.keys, wanted).clamp(max=len(self.keys) - 1)
        return place, self.keys.index_select(0, place) == wanted

    @cached
    def numbers(self) -> Int[Tensor, " own"]:
        """How many pairs each token has that has any."""
        edges = torch.arange(self.first, self.tokens + 1, dtype=self.keys.dtype, device=self.keys.device) * self.size
        return torch.searchsorted(self.keys, edges).diff()

    def sums(self, values: Float[Tensor, " pairs"]) -> Float[Tensor, " own"]:
        """The sum over each token's pairs."""
        if len(values) == 0:
            return values.new_zeros(self.tokens - self.first)
        return torch.segment_reduce(values, "sum", lengths=self.numbers, unsafe=True)

    def greatest(self, values: Float[Tensor, " pairs"]) -> Float[Tensor, " own"]:
        """The greatest of each token's pairs."""
        if len(values) == 0:
            return values.new_zeros(self.tokens - self.first)
        return torch.segment_reduce(values, "max", lengths=self.numbers, unsafe=True)

    @property
    def own(self) -> Int[Tensor, " pairs"]:
        """The token of each, counted from the first that has any."""
        return self.token if self.first == 0 else self.token - self.first

    def by_tile(self, height: int, width: int) -> TileEntries:
        """Sorted for tiles of `height` tokens by `width` entries. What is in order needs no sort, only where each token's runs begin.

        It costs one read on the host, as `entries_by_tile` does.
        """
        device, count = self.ids.device, len(self.ids)
        narrow = torch.int32 if max(count, height * width) < 1 << 31 else torch.int64
        edges = torch.arange(0, self.size + width, width, device=device).clamp(max=self.size).unsqueeze(1)
        tokens = torch.arange(self.tokens, device=device)
        bounds = torch.searchsorted(self.keys, (tokens * self.size + edges).to(self.keys.dtype))  # [runs + 1, tokens]
        lengths, before, runs = bounds.diff(dim=0), bounds[:-1], len(bounds) - 1
        starts = (lengths.view(-1).cumsum(0) - lengths.view(-1)).view(runs, self.tokens)
        piece = torch.repeat_interleave(lengths.view(-1).to(narrow), output_size=count)  # the token and run of each

        def for_each(of: Int[Tensor, "#runs #tokens"]) -> Int[Tensor, " pairs"]:
            """What is said of a token and a run, for all pairs of these."""
            return of.to(narrow).expand(runs, self.tokens).reshape(-1).index_select(0, piece)

        order = for_each(before - starts).add_(torch.arange(count, dtype=narrow, device=device))
        return TileEntries(
            height=height,
            width=width,
            rows=for_each(tokens.unsqueeze(0)),
            columns=self.ids.index_select(0, order).to(narrow).sub_(for_each(edges[:-1])),
            order=order,
            counted=torch.ones_like(order, dtype=torch.bool),
            starts=[*starts[:, ::height].reshape(-1).tolist(), count],
            tall=-(-self.tokens // height),
        )


def pair_logits(
    hidden: Float[Tensor, "tokens width"],
    weight: Float[Tensor, "entries width"],
    bias: Float[Tensor, " entries"] | None,
    pairs: Pairs,
    chunk: int,
    dtype: torch.dtype,
) -> Float[Tensor, " pairs"]:
    """The logit of each pair."""
    found = hidden.new_empty(len(pairs.ids), dtype=dtype)
    for some in _runs(slice(0, len(found)), chunk, hidden.shape[-1]):
        rows = weight.index_select(0, pairs.ids[some]).to(dtype)
        found[some] = rows.mul_(hidden.index_select(0, pairs.token[some])).sum(-1)
    return found if bias is None else found.add_(bias[pairs.ids])


@dataclass(frozen=True, eq=False)
class PairSlopes:
    """What the loss asks of each of few pairs, sorted by the run of the vocabulary that they stand in."""

    entries: TileEntries
    slopes: Float[Tensor, " pairs"]
    chunk: int

    def add_to_tokens(
        self, first: int, hidden: Float[Tensor, "tokens width"], weight: Float[Tensor, "entries width"]
    ) -> None:
        """Add slope × weight to each pair's token, for the run of the vocabulary that begins there."""
        for some in self._inside(first, hidden):
            rows = weight.index_select(0, self.entries.columns[some] + first).to(hidden.dtype)
            hidden.index_add_(0, self.entries.rows[some], rows.mul_(self.slopes[some].unsqueeze(-1)))

    def add_to_entries(
        self, first: int, run: Float[Tensor, "entries width"], right: Float[Tensor, "tokens width"]
    ) -> None:
        """Add slope × right to each pair's id, for the run of the vocabulary that begins there."""
        for some in self._inside(first, right):
            rows = right.index_select(0, self.entries.rows[some]).to(run.dtype)
            run.index_add_(0, self.entries.columns[some], rows.mul_(self.slopes[some].unsqueeze(-1)))

    def _inside(self, first: int, tokens: Tensor) -> Iterator[slice]:
        return _runs(self.entries.inside(0, first, len(tokens)), self.chunk, tokens.shape[-1])


def _runs(of: slice, chunk: int, width: int) -> Iterator[slice]:
    """Some pairs at a time. Their rows, twice and with what becomes of them, stay within the `chunk` numbers of a tile."""
    step = max(1, chunk // (4 * max(1, width)))
    return (slice(start, min(start + step, of.stop)) for start in range(of.start, of.stop, step))
