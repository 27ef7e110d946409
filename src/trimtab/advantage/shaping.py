"""What a sequence is rewarded with: how it ended, and its reward as shaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.distributed import ProcessGroup

from trimtab.advantage.episodes import RawEpisodes, episodes, shaping_of
from trimtab.advantage.inputs import check_tokens
from trimtab.config.advantages import BASELINE, Baseline, Shaping
from trimtab.core.inputs import layout_of, takes_arrays
from trimtab.core.layout import last_trained
from trimtab.core.ranks import ALONE
from trimtab.core.ratio import indicator


@dataclass(frozen=True, eq=False)
class Shaped:
    """Rewards as an estimator should see them."""

    rewards: Tensor
    """Per sequence, or per token if they came so; 0 where a row gets no task reward."""
    votes: Bool[Tensor, " rows"]
    """The rows that count in means and deviations; pass it on as `votes`."""
    trained: Bool[Tensor, "*tokens"]
    """The mask less the rows that failed or were dropped."""


@takes_arrays()
@torch.no_grad()
def shaped(
    shaping: Shaping,
    rewards: Tensor,
    *,
    mask: Tensor,
    ended: Tensor | None = None,
    kept: Tensor | None = None,
    baseline: Baseline = BASELINE,
    group: Tensor | None = None,
    groups: int | None = None,
    cu_seqlens: Tensor | None = None,
    process_group: ProcessGroup | None = None,
) -> Shaped:
    """Rewards shaped as `advantages(..., shaping=…)` shapes them, to look at or to hand to something else.

    `advantages(..., rewards=found.rewards, mask=found.trained, votes=found.votes)` goes on from here. `kept` is read with baseline kept.
    """
    given = RawEpisodes(
        rewards=rewards,
        mask=mask,
        ended=ended,
        kept=kept,
        group=group,
        groups=groups,
        cu_seqlens=cu_seqlens,
        process_group=process_group,
    )
    batch = episodes(given, shaping_of(shaping), baseline)
    kind = batch.trained.dtype
    return Shaped(
        rewards=batch.reward.to(kind) if batch.per_token is None else batch.per_token,
        votes=batch.votes.bool(),
        trained=batch.trained.bool(),
    )


@takes_arrays()
@torch.no_grad()
def ended(
    tokens: Tensor, mask: Tensor, eos: int | Sequence[int], *, cu_seqlens: Tensor | None = None
) -> Bool[Tensor, " rows"]:
    """Whether the last trained token of each sequence is an EOS token, however long the sequence; False without one."""
    layout = layout_of(mask, cu_seqlens, ALONE)
    check_tokens("tokens", tokens, mask)
    trained = indicator(mask, torch.float32)
    names = torch.tensor([eos] if isinstance(eos, int) else list(eos), dtype=tokens.dtype, device=tokens.device)
    return layout.total(last_trained(layout, trained) * torch.isin(tokens, names).to(trained.dtype)).bool()
