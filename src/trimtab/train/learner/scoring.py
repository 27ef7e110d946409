"""The learner's own log-probs of sampled tokens: a forward pass over prompt and response, the head only where it is needed.

The first pass of a step is shared by two of its parts: until the first update nothing has moved, so its log-probs are the proximal ones.

proximal pass ─► rows of the first minibatch, their graph kept ─► the first update goes backward through it
             └─► all other rows, without gradient
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import linear
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from trimtab.config.training import LearnerSettings, Train
from trimtab.log_probs.public import SelectedLogProbs, log_probs_of, selected_log_probs
from trimtab.train.devices import to_device
from trimtab.train.learner.batching import MicroBatch, group_batches, micro_batches, minibatches, token_shares
from trimtab.train.learner.ranks import LearnerRanks
from trimtab.train.learner.rows import Rows
from trimtab.train.learner.shared_prefix import SharedPrefix, shared_prefix


class ScoringModel(nn.Module):
    """Trunk and head in one forward: FSDP gathers a module's weights while it is called, and at no other time."""

    def __init__(
        self, model: PreTrainedModel, temperature: float, plain_head: bool, fast: SharedPrefix | None, autocast: bool
    ) -> None:
        super().__init__()
        self.model, self.temperature, self.plain_head, self.fast = model, temperature, plain_head, fast
        self.autocast = autocast

    def forward(self, rows: Rows, entropy: bool, heads: bool = False) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Log-probs of the responses' tokens `[rows, width]`, and if asked for entropies and those of the rows' heads, one id after
        the other; a plain tuple, which FSDP sees into.

        Padding lies to the right of a causal model, so no real token sees it and no attention mask is needed.
        """
        targets = torch.where(rows.mask, rows.tokens, -1)
        if not self.plain_head:
            with self._narrow(rows.ids):
                logits = cast("Tensor", self.model(input_ids=rows.ids, use_cache=False).logits)
            logits = _gathered(logits, _predicting(rows))
            about = self._about(rows, targets, entropy, heads)
            found = log_probs_of(logits, targets, **about)
            return found.log_probs, found.entropy, found.head
        if self.fast is not None and bool(rows.extents.lengths.any()):
            plan = self.fast.plan(rows)
            picked = plan.own.pick(targets)
            found = self._headed(self.fast(plan), picked, self._about(rows, picked, entropy, heads))
            spread = None if found.entropy is None else plan.own.padded(found.entropy)
            return plan.own.padded(found.log_probs), spread, found.head
        with self._narrow(rows.ids):
            hidden = cast("Tensor", _trunk(self.model)(input_ids=rows.ids, use_cache=False).last_hidden_state)
        about = self._about(rows, targets, entropy, heads)
        found = self._headed(_gathered(hidden, _predicting(rows)), targets, about)
        # a view of another tensor would lose FSDP's hook if it were changed
        return found.log_probs.clone(), found.entropy, None if found.head is None else found.head.clone()

    def _about(self, rows: Rows, targets: Tensor, entropy: bool, heads: bool) -> dict[str, Any]:
        """How log-probs are asked for, padded or packed as the targets are. What a cut took from the sampler, it takes from the learner."""
        asked: dict[str, Any] = {"temperature": self.temperature, "entropy": entropy}
        if rows.heads is not None:
            asked |= {"support": rows.heads.support(targets), "head": rows.heads.head(targets) if heads else None}
        return asked

    def _headed(self, hidden: Tensor, targets: Tensor, about: dict[str, Any]) -> SelectedLogProbs:
        head = cast("Any", self.model.get_output_embeddings())
        return selected_log_probs(hidden, head.weight, targets, bias=head.bias, **about)

    def _narrow(self, like: Tensor) -> AbstractContextManager[object]:
        return torch.autocast(like.device.type, dtype=torch.bfloat16) if self.autocast else nullcontext()


class Scorer:
    """A policy that says how likely responses are, at the temperature they were sampled with."""

    def __init__(
        self,
        model: PreTrainedModel,
        temperature: float,
        plain_head: bool,
        fast: SharedPrefix | None = None,
        *,
        autocast: bool = False,
    ) -> None:
        """`plain_head`: whether the logits are the last hidden states times the head's weight, so that they need never be held whole.

        `fast`: the trunk that works out a group's prompt once, for models it knows. `autocast`: matrix products of the trunk in bf16.
        """
        self.model, self.plain_head, self.fast = model, plain_head, fast
        self.module: nn.Module = ScoringModel(model, temperature, plain_head, fast, autocast)
        """What is called; whoever shards or replicates the model puts its own around it."""
        self.ranks = LearnerRanks(model.device)

    @classmethod
    def of(cls, model: PreTrainedModel, temperature: float) -> Scorer:
        """The scorer of a model; tries on a few tokens whether its head is a plain product and the fast trunk agrees."""
        plain = has_plain_head(model)
        return cls(model, temperature, plain, shared_prefix(model) if plain else None)

    def __call__(self, rows: Rows, *, entropy: bool = False, heads: bool = False) -> SelectedLogProbs:
        """Log-probs of the responses' tokens, with gradient where it is on; 0 beyond the mask. `heads`: those of recorded ids too."""
        log_probs, entropies, head = self.module(rows, entropy, heads) if heads else self.module(rows, entropy)
        return SelectedLogProbs(log_probs, entropies, head=head)

    def batches(self, rows: Rows, most: int, index: Int[Tensor, " some"] | None = None) -> list[Int[Tensor, " few"]]:
        """The rows, or some of them, in batches of at most `most` tokens; groups together where their prompt is shared."""
        some = torch.arange(len(rows)) if index is None else index
        sizes = rows.extents.part(some)
        if self.fast is None:
            return [some[few] for few in micro_batches(sizes.sizes, most)]
        return [some[few] for few in group_batches(sizes.prompts, sizes.lengths, sizes.group, most)]

    def turns(
        self, rows: Rows, most: int, index: Int[Tensor, " some"] | None = None
    ) -> list[Int[Tensor, " few"] | None]:
        """The batches of this rank's share of the rows; None where only others have one more.

        Every rank makes as many forward passes as the others, since each of them gathers weights from all.
        """
        some = torch.arange(len(rows)) if index is None else index
        shares = token_shares(rows.extents, some, self.ranks.size)
        plans = [self.batches(rows, most, share) if len(share) else [] for share in shares]
        own = plans[self.ranks.rank]
        return [*own, *[None] * (max(map(len, plans)) - len(own))]

    def calls(self, config: Train, rows: Rows, index: Int[Tensor, " some"]) -> list[MicroBatch]:
        """The micro-batches of this rank, as many as every other rank has."""
        most, ranks = config.learner.micro_tokens, self.ranks
        if not config.loss.looks_at_call:
            return [MicroBatch(few, few) for few in self.turns(rows, most, index)]
        # A loss that compares the tokens of a micro-batch has one of all ranks, of which each works out its share.
        calls = [call.sort().values for call in self.batches(rows, most * ranks.size, index)]
        if ranks.size == 1:
            return [MicroBatch(call, call) for call in calls]
        shares = [token_shares(rows.extents, call, ranks.size)[ranks.rank] for call in calls]
        return [MicroBatch(call, own if len(own) else None) for call, own in zip(calls, shares, strict=True)]

    def idle(self, rows: Rows) -> SelectedLogProbs:
        """A pass that counts for nothing, over the shortest row: to be there when the other ranks gather."""
        shortest = rows.extents.sizes.argmin().view(1)
        return self(rows.part(shortest))

    @torch.no_grad()
    def all(
        self,
        rows: Rows,
        most: int,
        index: Int[Tensor, " some"] | None = None,
        *,
        entropy: bool = False,
        heads: bool = False,
    ) -> SelectedLogProbs:
        """Log-probs of a whole batch, some tokens at a time, without gradient; each rank works out its share.

        `index`: the rows that are worked out, where it is not all of them; the others are 0.
        """
        shape = rows.tokens.shape
        of_heads = None
        if heads and rows.heads is not None:
            of_heads = torch.zeros(sum(rows.heads.sizes), device=rows.ids.device)
        found = torch.zeros(shape, device=rows.ids.device)
        spread = torch.zeros(shape, device=rows.ids.device) if entropy else None
        for turn in self.turns(rows, most, index):
            if turn is None:
                self.idle(rows)
                continue
            few = rows.part(turn)
            width = few.tokens.shape[1]
            part = self(few, entropy=entropy, heads=of_heads is not None)
            there = to_device(turn, found.device)
            found[there, :width] = part.log_probs.float()
            if spread is not None and part.entropy is not None:
                spread[there, :width] = part.entropy.float()
            if of_heads is not None and part.head is not None and rows.heads is not None:
                of_heads[to_device(rows.heads.places(turn), found.device)] = part.head.float()
        entropies = None if spread is None else self.ranks.sum(spread)
        of_heads = None if of_heads is None else self.ranks.sum(of_heads)
        return SelectedLogProbs(self.ranks.sum(found), entropies, head=of_heads)


def _predicting(rows: Rows) -> Int[Tensor, "rows width"]:
    """The position whose state predicts each response token: the one before it."""
    steps = torch.arange(rows.tokens.shape[1], device=rows.ids.device)
    return (rows.prompts.unsqueeze(1) - 1 + steps).clamp(max=rows.ids.shape[1] - 1)


def _gathered(states: Float[Tensor, "rows length size"], places: Int[Tensor, "rows width"]) -> Tensor:
    return states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


def _trunk(model: PreTrainedModel) -> nn.Module:
    return model.base_model


@torch.no_grad()
def has_plain_head(model: PreTrainedModel) -> bool:
    """Whether the logits are the last hidden states times the head's weight, tried on a few tokens."""
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


def scorer_of(
    model: PreTrainedModel, temperature: float, settings: LearnerSettings, ranks: LearnerRanks, *, trained: bool
) -> Scorer:
    """The scorer of a model that is taken over; without `trained` its weights are frozen.

    Dropout is off, which would make log-probs random.
    """
    model.eval().to(cast("Any", ranks.device))
    if trained:
        _train_every_row(model)
        if settings.gradient_checkpointing:
            given = cast("Any", model)
            enable = getattr(given, "activation_checkpointing_enable", None)  # its name from transformers 5.23 on
            (enable or given.gradient_checkpointing_enable)({"use_reentrant": False})
    else:
        model.requires_grad_(False)
    autocast = settings.autocast == "bf16"
    plain = has_plain_head(model)
    # The fast trunk reads weights past the modules that hold them: it knows neither shards nor casts, and is not what is compiled.
    is_fast = plain and not (autocast or settings.compile or ranks.shard == "fsdp")
    scorer = Scorer(model, temperature, plain, shared_prefix(model) if is_fast else None, autocast=autocast)
    scorer.ranks = ranks
    _checkpoint_layers(model)
    if settings.compile:
        for layer in decoder_layers(model):
            layer.compile(dynamic=True)
    if ranks.shard == "fsdp" and ranks.mesh is not None:
        for layer in decoder_layers(model):
            fully_shard(layer, mesh=ranks.mesh)
        fully_shard(scorer.module, mesh=ranks.mesh)
    elif ranks.shard == "ddp" and ranks.size > 1 and trained:
        scorer.module = DistributedDataParallel(scorer.module, broadcast_buffers=False, gradient_as_bucket_view=True)
    return scorer


def decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """The blocks that transformers says must stay whole."""
    names: set[str] = set(cast("Any", model)._no_split_modules or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def _train_every_row(model: PreTrainedModel) -> None:
    """A padding token that was sampled is a token like any other, and its row has a gradient; often it is the stop token too.

    transformers' embedding would leave it out. Padding itself is never looked up: it lies behind what a causal model sees.
    """
    embedding = cast("Any", model.get_input_embeddings())
    if isinstance(embedding, nn.Embedding):
        embedding.padding_idx = None


def _checkpoint_layers(model: PreTrainedModel) -> None:
    """Layers work their states out again on the way back, where that was asked for."""
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing:
            module.training = True  # transformers asks the layer itself; what lies in it stays without dropout


@dataclass(frozen=True, eq=False)
class SharedPass:
    """Log-probs of some rows with their graph, by weights that have not moved since."""

    index: Int[Tensor, " some"]
    """On the host."""
    scored: SelectedLogProbs

    @classmethod
    def of(cls, config: Train, scorer: Scorer, rows: Rows, version: int, counting: Tensor) -> SharedPass | None:
        """Of the `counting` rows of the first minibatch; None where it is not one pass of the model here, or not the same."""
        if scorer.fast is None or scorer.ranks.size > 1 or config.loss.looks_at_call:
            return None
        first = minibatches(config, rows, version)[0]
        index = first[counting.cpu()[first]]
        if not len(index) or len(scorer.calls(config, rows, index)) > 1:
            return None
        with torch.enable_grad():
            return cls(index, scorer(rows.part(index), entropy=True))

    def all(self, config: Train, scorer: Scorer, rows: Rows) -> SelectedLogProbs:
        """Log-probs and entropies of the whole batch, without gradient: these, and the others worked out now."""
        others = torch.ones(len(rows), dtype=torch.bool)
        others[self.index] = False
        result = scorer.all(rows, config.learner.micro_tokens, others.nonzero().squeeze(1), entropy=True)
        there = to_device(self.index, rows.ids.device)
        for whole, own in ((result.log_probs, self.scored.log_probs), (result.entropy, self.scored.entropy)):
            assert whole is not None
            assert own is not None
            whole[there, : own.shape[1]] = own.detach().float()
        return result

    def part(self, index: Int[Tensor, " few"], *, width: int, entropy: bool) -> SelectedLogProbs | None:
        """Those of rows among them, cut to a width; None where one is not."""
        place = {row: number for number, row in enumerate(self.index.tolist())}
        asked = index.tolist()
        if not place.keys() >= set(asked):
            return None
        parts = (self.scored.log_probs, self.scored.entropy if entropy else None)
        if asked != self.index.tolist():
            some = torch.tensor([place[row] for row in asked], device=self.scored.log_probs.device)
            parts = tuple(each if each is None else each.index_select(0, some)[:, :width] for each in parts)
        log_probs, spread = parts
        assert log_probs is not None
        return SelectedLogProbs(log_probs, spread)
