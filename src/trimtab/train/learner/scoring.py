"""The learner's own log-probs of sampled tokens: a forward pass over prompt and response, the head only where it is needed."""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from trimtab.core.log_probs import SelectedLogProbs, log_probs_of, selected_log_probs
from trimtab.train.learner.rows import Rows, group_batches, micro_batches
from trimtab.train.learner.shared_prefix import SharedPrefix, shared_prefix


class Scorer(nn.Module):
    """A policy that says how likely responses are, at the temperature they were sampled with. Trunk and head lie in its forward."""

    def __init__(
        self, model: PreTrainedModel, temperature: float, plain_head: bool, fast: SharedPrefix | None = None
    ) -> None:
        """`plain_head`: whether the logits are the last hidden states times the head's weight, so that they need never be held whole.

        `fast`: the trunk that works out a group's prompt once, for models it knows.
        """
        super().__init__()
        self.model, self.temperature, self.plain_head, self.fast = model, temperature, plain_head, fast

    @classmethod
    def of(cls, model: PreTrainedModel, temperature: float) -> Scorer:
        """The scorer of a model; tries on a few tokens whether its head is a plain product and the fast trunk agrees."""
        plain = _has_plain_head(model)
        return cls(model, temperature, plain, shared_prefix(model) if plain else None)

    def forward(self, rows: Rows, *, entropy: bool = False) -> SelectedLogProbs:
        """Log-probs of the responses' tokens `[rows, width]`, with gradient where it is on; 0 beyond the mask.

        Padding lies to the right of a causal model, so no real token sees it and no attention mask is needed.
        """
        targets = torch.where(rows.mask, rows.tokens, -1)
        if not self.plain_head:
            logits = cast("Tensor", self.model(input_ids=rows.ids, use_cache=False).logits)
            logits = _gathered(logits, _predicting(rows))
            return log_probs_of(logits, targets, temperature=self.temperature, entropy=entropy)
        if self.fast is not None and bool(rows.lengths.any()):
            plan = self.fast.plan(rows)
            found = self._headed(self.fast(plan), targets[plan.own.real], entropy)
            spread = None if found.entropy is None else plan.own.padded(found.entropy)
            return SelectedLogProbs(plan.own.padded(found.log_probs), spread)
        hidden = cast("Tensor", _trunk(self.model)(input_ids=rows.ids, use_cache=False).last_hidden_state)
        return self._headed(_gathered(hidden, _predicting(rows)), targets, entropy)

    def batches(self, rows: Rows, most: int, index: Int[Tensor, " some"] | None = None) -> list[Int[Tensor, " few"]]:
        """The rows, or some of them, in batches of at most `most` tokens; groups together where their prompt is shared."""
        some = torch.arange(len(rows), device=rows.ids.device) if index is None else index
        if self.fast is None:
            return [some[few] for few in micro_batches(rows.sizes[some], most)]
        return [some[few] for few in group_batches(rows.prompts[some], rows.lengths[some], rows.group[some], most)]

    def _headed(self, hidden: Tensor, targets: Tensor, entropy: bool) -> SelectedLogProbs:
        head = cast("Any", self.model.get_output_embeddings())
        return selected_log_probs(
            hidden, head.weight, targets, temperature=self.temperature, bias=head.bias, entropy=entropy
        )

    @torch.no_grad()
    def all(self, rows: Rows, most: int, *, entropy: bool = False) -> SelectedLogProbs:
        """Log-probs of a whole batch, some tokens at a time, without gradient."""
        shape = rows.tokens.shape
        found = torch.zeros(shape, device=rows.ids.device)
        spread = torch.zeros(shape, device=rows.ids.device) if entropy else None
        for index in self.batches(rows, most):
            few = rows.part(index)
            width = few.tokens.shape[1]
            part = self(few, entropy=entropy)
            found[index, :width] = part.log_probs.float()
            if spread is not None and part.entropy is not None:
                spread[index, :width] = part.entropy.float()
        return SelectedLogProbs(found, spread)


def _predicting(rows: Rows) -> Int[Tensor, "rows width"]:
    """The position whose state predicts each response token: the one before it."""
    steps = torch.arange(rows.tokens.shape[1], device=rows.ids.device)
    return (rows.prompts.unsqueeze(1) - 1 + steps).clamp(max=rows.ids.shape[1] - 1)


def _gathered(states: Float[Tensor, "rows length size"], places: Int[Tensor, "rows width"]) -> Tensor:
    return states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


def _trunk(model: PreTrainedModel) -> nn.Module:
    return model.base_model


@torch.no_grad()
def _has_plain_head(model: PreTrainedModel) -> bool:
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear) or _trunk(model) is model:
        return False
    training, device = model.training, head.weight.device
    model.eval()
    ids = torch.arange(4, device=device).remainder(head.out_features).unsqueeze(0)
    logits = cast("Tensor", model(input_ids=ids, use_cache=False).logits)
    hidden = cast("Tensor", _trunk(model)(input_ids=ids, use_cache=False).last_hidden_state)
    model.train(training)
    return torch.allclose(linear(hidden, head.weight, head.bias).float(), logits.float(), rtol=1e-4, atol=1e-5)
