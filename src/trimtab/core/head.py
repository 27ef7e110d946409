"""The head of the sampler's distribution: for each token some ids of the vocabulary, with the log-probs the sampler gave them.

Two tokens, the first with three ids, the second with one:

    padded   ids [[4, 7, 9], [2, -1, -1]]                    one row per token, -1 where it has fewer
    ragged   ids [4, 7, 9, 2], offsets [0, 3, 4]             as engines send them
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.core.checks import check_device
from trimtab.errors import InputError


@dataclass(frozen=True, eq=False)
class HeadEntries:
    """The ids of all tokens as one list; what fills up a padded row is not `present`."""

    token: Int[Tensor, " entries"]
    ids: Int[Tensor, " entries"]
    present: Bool[Tensor, " entries"]
    log_probs: Float[Tensor, " entries"] | None

    def contain(self, targets: Int[Tensor, " tokens"]) -> Bool[Tensor, " tokens"]:
        """Whether each token's id is among its own; False where it has none."""
        hits = (self.ids == targets.long().index_select(0, self.token)) & self.present
        found = torch.zeros(len(targets), dtype=torch.int32, device=self.ids.device)
        return found.index_add(0, self.token, hits.int()) > 0


@dataclass(frozen=True, eq=False)
class Head:
    """Ids that a sampler could have drawn for each token, or its likeliest ones, padded or ragged. No token need have any."""

    ids: Tensor
    """int32 or int64: `[*tokens, k]` with -1 where a token has fewer than k, or `[entries]` beside `offsets`."""
    log_probs: Tensor | None = None
    """Log-probs of the ids under the distribution that was sampled from; None for a bare set."""
    offsets: Tensor | None = None
    """Token i has `ids[offsets[i]:offsets[i + 1]]`; None where ids are padded."""

    def __post_init__(self) -> None:
        if self.ids.dtype not in (torch.int32, torch.int64):
            raise InputError(f"Head needs int32 or int64 ids, got {self.ids.dtype}.")
        if self.log_probs is not None and self.log_probs.shape != self.ids.shape:
            raise InputError(
                f"Head needs one log-prob per id {tuple(self.ids.shape)}, got {tuple(self.log_probs.shape)}."
            )
        if self.offsets is None and self.ids.ndim < 2:
            raise InputError(
                f"Head needs ids [*tokens, k], or offsets beside them, got ids {tuple(self.ids.shape)} alone."
            )
        if self.offsets is not None:
            self._check_ragged(self.offsets)

    def _check_ragged(self, offsets: Tensor) -> None:
        if self.ids.ndim != 1 or offsets.ndim != 1 or len(offsets) == 0:
            raise InputError(
                f"Head with offsets needs ids and offsets of one dimension, got {tuple(self.ids.shape)} and {tuple(offsets.shape)}."
            )
        check_device("offsets", offsets, self.ids.device, plural=True)

    @property
    def tokens(self) -> int:
        """How many tokens it is about."""
        return self.ids.shape[:-1].numel() if self.offsets is None else len(self.offsets) - 1

    def entries(self, dtype: torch.dtype = torch.int64) -> HeadEntries:
        """All ids, token after token, as numbers of a type."""
        flat = self.ids.reshape(-1).to(dtype)
        log_probs = None if self.log_probs is None else self.log_probs.reshape(-1)
        return HeadEntries(self._token(dtype), flat, flat >= 0, log_probs)

    def contains(self, targets: Int[Tensor, "*tokens"]) -> Bool[Tensor, "*tokens"]:
        """Whether each token's id is among its own; False where it has none."""
        self.check_tokens(targets)
        return self.entries().contain(targets.reshape(-1)).view(targets.shape)

    def check_tokens(self, targets: Tensor) -> None:
        """One head per target."""
        check_device("head", self.ids, targets.device)
        shaped = self.offsets is not None or self.ids.shape[:-1] in (targets.shape, targets.reshape(-1).shape)
        if self.tokens != targets.numel() or not shaped:
            raise InputError(
                f"Head needs one set of ids per token {tuple(targets.shape)}, got {self.tokens} of them "
                f"(ids {tuple(self.ids.shape)}). Cut it with the batch."
            )

    def _token(self, dtype: torch.dtype) -> Int[Tensor, " entries"]:
        """The token of each entry; nothing is read on the host."""
        if self.offsets is None:
            order = torch.arange(self.tokens, dtype=dtype, device=self.ids.device)
            return order.repeat_interleave(self.ids.shape[-1])
        return torch.repeat_interleave(self.offsets.diff().to(dtype), output_size=self.ids.numel())
