"""What a loss saw, as 0-d tensors by name, worked out when read: the `policy/…` metrics beside those of the correction.

Fractions and means are over the kept tokens of the call, over all ranks; with process groups, ask on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from trimtab.core.divergence import k3
from trimtab.core.measures import doubtful_tokens, missing_advantages
from trimtab.core.metrics import LazyMetrics, Metrics, WeightMetrics, unknown_metric
from trimtab.core.ranks import Ranks
from trimtab.core.ratio import sum_of
from trimtab.core.sums import GAPS, LIMIT, MEANS, as_metric, means
from trimtab.losses.terms import Surrogate, Terms

Measured = Callable[[], dict[str, Tensor]]
CorrectionMetrics = Metrics | WeightMetrics | dict[str, Tensor]
"""The metrics of a correction: still to be worked out, or worked out elsewhere."""


class PolicyMetrics(LazyMetrics):
    """The metrics of one loss, and those of its correction under the names it does not use itself."""

    def __init__(
        self,
        sections: dict[str, Measured],
        correction: CorrectionMetrics,
        by_token: Callable[[], tuple[Terms, Surrogate]],
        *,
        by_pass: bool = False,
    ) -> None:
        super().__init__(sections)
        self.correction, self._by_token = correction, by_token
        self.by_pass = by_pass  # from the sums of a pass; what it holds of tokens is worked out when it is read

    @property
    def terms(self) -> Terms:
        """The tokens of the call, after the correction."""
        return self._by_token()[0]

    @property
    def surrogate(self) -> Surrogate:
        """The loss of each token."""
        return self._by_token()[1]

    def __getitem__(self, name: str) -> Tensor:
        if name in self.sections:
            return super().__getitem__(name)
        if name not in self.correction:
            raise unknown_metric(name, self)
        return self.correction[name]

    def __contains__(self, name: object) -> bool:
        return name in self.sections or name in self.correction

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self.correction if name not in self.sections)
        yield from self.sections

    def __len__(self) -> int:
        return len({*self.correction, *self.sections})


DRIFT = {
    "policy/k1": ("minus_log_rho", "kept"),
    "policy/k3": ("k3", "kept"),
    "policy/ratio_mean": ("rho", "kept"),
    "policy/ratio_min": ("min_rho", "some"),
    "policy/ratio_max": ("max_rho", "some"),
}
"""How far the current policy has moved from the anchor: a sum over a sum; `some` is 1 where tokens are kept."""
DOUBTFUL = {name: MEANS[name] for name in ("positive_fraction", "partial_fraction")}


def policy_metrics(
    terms: Terms,
    surrogate: Surrogate,
    *,
    loss: Tensor,
    averaged_over: int,
    correction: CorrectionMetrics,
    means: Mapping[str, tuple[Tensor, Tensor]],
) -> PolicyMetrics:
    """Every metric of one call. `means` are further values per token with the tokens they count on (entropy, KL)."""
    ranks, kept = terms.layout.ranks, terms.kept
    table: dict[str, Measured] = {"policy/loss": partial(_loss, loss.detach() / averaged_over, ranks)}
    never = {"clip_high": lambda: torch.zeros_like(kept), "clip_low": lambda: torch.zeros_like(kept)}
    for name, mark in (never | dict(surrogate.marks)).items():
        table[f"policy/{name}"] = partial(_fraction, f"policy/{name}", mark, kept, ranks)
    for name, (value, counted) in means.items():
        table[f"policy/{name}"] = partial(_mean, f"policy/{name}", value.detach(), counted, ranks)
    table |= dict.fromkeys(GAPS, partial(missing_advantages, terms.batch))
    table |= dict.fromkeys(DOUBTFUL, partial(doubtful_tokens, terms.batch))
    if terms.anchor != "current":
        table |= dict.fromkeys(DRIFT, partial(_drift, terms))
    return PolicyMetrics(table, correction, lambda: (terms, surrogate))


def _sums(ranks: Ranks, *values: Tensor) -> tuple[Tensor, ...]:
    return tuple(ranks.total(torch.stack([sum_of(value) for value in values])).unbind())


def _per(total: Tensor, number: Tensor) -> Tensor:
    return as_metric(total / number.clamp(min=1.0))


def _loss(share: Tensor, ranks: Ranks) -> dict[str, Tensor]:
    """The loss of this call over all ranks, however gradients are put together."""
    return {"policy/loss": as_metric(_sums(ranks, share)[0])}


def _fraction(name: str, mark: Callable[[], Tensor], kept: Tensor, ranks: Ranks) -> dict[str, Tensor]:
    return _mean(name, mark(), kept, ranks)


def _mean(name: str, value: Tensor, counted: Tensor, ranks: Ranks) -> dict[str, Tensor]:
    return {name: _per(*_sums(ranks, value * counted, counted))}


def _drift(terms: Terms) -> dict[str, Tensor]:
    """How far the current policy has moved from the anchor: KL(anchor ‖ current) two ways, and the ratio."""
    kept, ranks = terms.kept, terms.layout.ranks
    log_r = terms.batch.log_r[f"current/{terms.anchor}"] * kept
    limited = log_r.clamp(-LIMIT, LIMIT)
    number, first, third, rho = _sums(ranks, kept, log_r, k3(limited), limited.exp() * kept)
    outside = (kept - 1.0) * torch.finfo(kept.dtype).max
    ends = [limited.new_full((), -torch.inf)] * 2
    if limited.numel():
        ends = [(limited + outside).amax(), (outside - limited).amax()]
    high, low = ranks.greatest(torch.stack(ends)).unbind()
    some = number > 0
    sums = {"kept": number, "minus_log_rho": -first, "k3": third, "rho": rho, "some": some.to(number.dtype)}
    ends = {"min_rho": torch.where(some, (-low).exp(), 0.0), "max_rho": torch.where(some, high.exp(), 0.0)}
    return means(DRIFT, sums | ends)
