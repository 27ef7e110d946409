"""A model made ready to be trained or asked: on its device, replicated or sharded over the ranks, with what saves memory or time."""

from __future__ import annotations

from typing import Any, cast

from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from trimtab.config.training import LearnerSettings
from trimtab.train.learner.ranks import LearnerRanks
from trimtab.train.learner.scoring import Scorer, has_plain_head
from trimtab.train.learner.shared_prefix import shared_prefix


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
