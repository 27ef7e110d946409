"""From a loss per token to one number, divided by the counts of the whole optimiser step.

    masks of every micro-batch, on every rank ──► Denominator (once per step) ──► share of each micro-batch ──► Σ = the loss

A micro-batch knows its own tokens; what it is divided by belongs to the step. So the shares of any split add up to the
same loss and the same gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor
from torch.distributed import ProcessGroup

from trimtab.config.losses import Reduction
from trimtab.core.batch import batch
from trimtab.core.inputs import check_all, check_group, checked_layout, takes_arrays
from trimtab.core.layout import Layout
from trimtab.core.ranks import Ranks, groups
from trimtab.core.ratio import indicator, is_finite
from trimtab.errors import InputError


@dataclass(frozen=True, eq=False)
class Prompts:
    """The tokens of each prompt, its rows wherever they lie: sorted ids, one entry per row, and the tokens of its prompt."""

    ids: Int[Tensor, " rows"]
    tokens: Float[Tensor, " rows"]
    number: Float[Tensor, ""]  # prompts with tokens

    def tokens_of(self, group: Int[Tensor, " some"]) -> Float[Tensor, " some"]:
        """The tokens, over the whole step, of each row's prompt."""
        if len(self.ids) == 0:
            return self.tokens.new_zeros(len(group))
        place = torch.searchsorted(self.ids, group.to(self.ids.dtype)).clamp(max=len(self.ids) - 1)
        rule = "group needs ids that the denominator counted"
        check_all(self.ids[place] == group, rule, lambda: "others. Count every row.")
        return self.tokens[place]


@dataclass(frozen=True, eq=False)
class Denominator:
    """What one optimiser step divides by. Made once per step, from its masks or from known counts; every micro-batch uses it."""

    tokens: Num[Tensor, ""] | float | int
    """Tokens counted in the whole step."""
    sequences: Num[Tensor, ""] | float | int
    """Sequences with tokens in the whole step."""
    prompts: Prompts | None = None
    """Tokens of each prompt, for prompt-mean."""
    averaged_over: int = 1
    """Ranks over which the trainer averages gradients (DDP and FSDP do); the loss is multiplied by it."""

    @classmethod
    @takes_arrays()
    def of(
        cls,
        masks: Tensor | Sequence[Tensor],
        *,
        cu_seqlens: Tensor | Sequence[Tensor] | None = None,
        group: Tensor | Sequence[Tensor] | None = None,
        process_group: ProcessGroup | None = None,
        context_group: ProcessGroup | None = None,
        gradients: Literal["averaged", "summed"] = "averaged",
        behavior: Tensor | Sequence[Tensor] | None = None,
        proximal: Tensor | Sequence[Tensor] | None = None,
        current: Tensor | Sequence[Tensor] | None = None,
        reference: Tensor | Sequence[Tensor] | None = None,
    ) -> Denominator:
        """Count the masks of every micro-batch of this rank, and of all ranks in `process_group`.

        Count what the correction names: its `trained` masks or, for denominator kept, its `kept` masks. A rank without rows
        passes a mask of none. `gradients`: what the trainer does with them over `process_group`; DDP and FSDP average.
        behavior, proximal, current, reference: log-probs that the calls will read and the masks know nothing of yet (without a
        correction all of them, with one the reference's): a token without one is not counted, as `policy_loss` does not train it.
        """
        policies = (behavior, proximal, current, reference)
        masks = _present(masks, [each for each in policies if each is not None])
        parts = list(zip(_as_list(masks), *(_match(each, masks) for each in (cu_seqlens, group)), strict=True))
        if not parts:
            raise InputError("Denominator needs a mask, got none. A rank without rows passes one of shape (0, width).")
        ranks = groups(process_group, context_group)
        laid = [(mask, checked_layout({}, mask, bounds, ranks)) for mask, bounds, _ in parts]
        found = [batch({}, (), mask, layout, advantages=None) for mask, layout in laid]
        for tokens, (_, _, ids) in zip(found, parts, strict=True):
            check_group(ids, len(tokens.lengths))
        lengths = torch.cat([tokens.lengths for tokens in found])
        ids = None if group is None else torch.cat([ids for _, _, ids in parts])
        return denominator_of(lengths, ids, ranks, gradients=gradients)


@torch.no_grad()
def denominator_of(
    lengths: Float[Tensor, " rows"],
    group: Int[Tensor, " rows"] | None,
    ranks: Ranks,
    *,
    gradients: Literal["averaged", "summed"] = "averaged",
) -> Denominator:
    """The denominator of rows with these numbers of tokens, over all ranks."""
    sums = torch.stack([lengths.sum(dtype=torch.float64), lengths.gt(0).sum(dtype=torch.float64)])
    tokens, sequences = ranks.total(sums.mul_(ranks.row_share)).unbind()
    prompts = None if group is None else _prompts(group, lengths * ranks.row_share, ranks)
    return Denominator(tokens, sequences, prompts, ranks.number if gradients == "averaged" else 1)


@dataclass(frozen=True, eq=False)
class Share:
    """What each token's loss is multiplied by: one factor, and where sequences differ one more per row."""

    factor: Float[Tensor, ""]
    rows: Float[Tensor, " rows"] | None

    def over(self, layout: Layout, weight: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
        """The weight of each token with its row's factor; the common one is left for the sum."""
        return weight if self.rows is None else weight * layout.spread(self.rows)


def share(
    reduction: Reduction, lengths: Float[Tensor, " rows"], denominator: Denominator, group: Int[Tensor, " rows"] | None
) -> Share:
    """The part of the step that these rows are."""
    divisor, rows = _DIVISORS[reduction.mode](lengths, denominator, group)
    scale = denominator.averaged_over / (reduction.constant or 1.0)
    divisor = torch.as_tensor(divisor, dtype=torch.float64, device=lengths.device)
    return Share((_inverse(divisor) * scale).to(lengths.dtype), rows)


def common_factor(reduction: Reduction, denominator: Denominator) -> float:
    """`Share.factor` of a reduction that treats all rows alike, as a number; on another device than the CPU its counts are waited for."""
    divisor, _ = _DIVISORS[reduction.mode](_NOTHING, denominator, None)
    count = float(divisor)
    return (1.0 / count if count > 0 else 0.0) * (denominator.averaged_over / (reduction.constant or 1.0))


Divisor = tuple[Tensor | float, Tensor | None]
_NOTHING = torch.zeros(0)


def _by_prompt(lengths: Tensor, step: Denominator, group: Tensor | None) -> Divisor:
    if group is None:
        raise InputError("Reduction prompt-mean needs group, got None. Pass one prompt id per row.")
    if step.prompts is None:
        raise InputError(
            "Reduction prompt-mean needs the tokens of each prompt, got a denominator without. Give it group."
        )
    return step.prompts.number, _inverse(step.prompts.tokens_of(group)).to(lengths.dtype)


_DIVISORS: dict[str, Callable[[Tensor, Denominator, Tensor | None], Divisor]] = {
    "token-mean": lambda lengths, step, group: (step.tokens, None),
    "token-sum": lambda lengths, step, group: (1.0, None),
    "seq-mean-token-mean": lambda lengths, step, group: (step.sequences, _inverse(lengths)),
    "seq-mean-token-sum": lambda lengths, step, group: (step.sequences, None),
    "seq-mean-token-sum-norm": lambda lengths, step, group: (step.sequences, None),
    "prompt-mean": _by_prompt,
}


def _inverse(count: Tensor) -> Tensor:
    """1 / count; 0 where nothing was counted, so that nothing divided by nothing is nothing."""
    return torch.where(count > 0, 1.0 / count.clamp(min=torch.finfo(count.dtype).tiny), 0.0)


def _prompts(group: Tensor, tokens: Tensor, ranks: Ranks) -> Prompts:
    """Equal ids become neighbours by sorting, and each run of them one total: no number is read on the host."""
    ids, tokens = group.to(torch.int64), tokens.double()
    (ids, tokens), _ = ranks.gather(ids, tokens)
    ids, order = ids.sort()
    opens = torch.ones_like(ids)
    opens[1:] = ids[1:] != ids[:-1]
    run = opens.cumsum(0) - 1
    totals = torch.zeros_like(tokens).index_add_(0, run, tokens[order])
    return Prompts(ids, totals[run], totals.gt(0).sum(dtype=torch.float64))


def _present(masks: Tensor | Sequence[Tensor], policies: list[Tensor | Sequence[Tensor]]) -> list[Tensor]:
    """The masks less the tokens whose log-probs are missing."""
    found = _as_list(masks)
    for policy in policies:
        for place, log_probs in enumerate(_match(policy, masks)):
            if log_probs.shape != found[place].shape:
                raise InputError(
                    f"Denominator needs log-probs of the shape of their mask {tuple(found[place].shape)}, got "
                    f"{tuple(log_probs.shape)}. One log-prob per token, same index everywhere."
                )
            found[place] = indicator(found[place], torch.float32) * is_finite(log_probs.detach()).float()
    return found


def _as_list(value: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


def _match(value: Tensor | Sequence[Tensor] | None, masks: Tensor | Sequence[Tensor]) -> list[Any]:
    number = len(_as_list(masks))
    found = [None] * number if value is None else _as_list(value)
    if len(found) != number:
        raise InputError(f"Denominator needs one tensor per mask, got {len(found)} for {number} masks.")
    return found
