"""The Llama and Qwen2 family over groups of responses, with gradient: what a group's rows have in common is worked out once.

prompt less its last token, once per group ─► keys, values ──────────────┐
last prompt token + response less its last, per row ─► queries, keys, values ─► attention ─► hidden states, one per response token

A row's own tokens are those whose states predict its response, so every state that leaves the last layer is used, and the
shared tokens, which are there only to be seen, leave it as keys and values. Tokens are packed: padding exists inside
attention only. The weights are the model's own; nothing is kept between calls but the rotation of each position.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn import functional as nnf
from transformers import PreTrainedModel

from trimtab.train.engines.hf.rotary import fits, rotations
from trimtab.train.learner.packing import PackingPlan
from trimtab.train.learner.row_attention import seen
from trimtab.train.learner.rows import Rows
from trimtab.train.learner.token_passes import gated, normal, normed_linears


class SharedPrefix:
    """The trunk of such a model, as a function of rows."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.trunk = cast("Any", model.base_model)
        attention = self.trunk.layers[0].self_attn
        self.size = int(attention.head_dim)
        self.heads = attention.q_proj.out_features // self.size
        self.kv = attention.k_proj.out_features // self.size
        self.eps = float(self.trunk.norm.variance_epsilon)
        self.rotations: Tensor | None = None

    def __call__(self, plan: PackingPlan) -> Float[Tensor, "own size"]:
        """The state that predicts each response token, packed."""
        weight = self.trunk.embed_tokens.weight
        turn = self._rotations(plan.reach, weight)[plan.positions]
        stream = nnf.embedding(plan.tokens, weight)
        *inner, last = self.trunk.layers
        for layer in inner:
            stream = self._rest(layer, stream, seen(self._qkv(layer, stream), turn, plan, self.kv))
        own = seen(self._qkv(last, stream), turn, plan, self.kv, last=True)
        return normal(self._rest(last, stream[plan.prefix.number :], own), self.trunk.norm, self.eps)

    def plan(self, rows: Rows) -> PackingPlan:
        """Where the tokens of these rows go."""
        return PackingPlan.of(rows, self.trunk.embed_tokens.weight.dtype)

    def _qkv(self, layer: Any, stream: Tensor) -> Float[Tensor, "tokens heads size"]:
        """Queries, keys and values, one below the other; the channels of the first two in pairs."""
        attention, size = layer.self_attn, self.size
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        made = normed_linears(stream, layer.input_layernorm, self.eps, parts, (size, size, 0))
        return made.view(len(stream), -1, size)

    def _rest(self, layer: Any, stream: Tensor, inner: Tensor) -> Tensor:
        """What follows attention: its projection, then the gated MLP, each added to the stream."""
        mlp = layer.mlp
        stream = _added(stream, inner, layer.self_attn.o_proj)
        parts = (mlp.gate_proj, mlp.up_proj)
        both = normed_linears(stream, layer.post_attention_layernorm, self.eps, parts, (0, 0))
        return _added(stream, gated(both), mlp.down_proj)

    def _rotations(self, width: int, like: Tensor) -> Complex[Tensor, "width pairs"]:
        if self.rotations is None or len(self.rotations) < width or self.rotations.device != like.device:
            rope = self.trunk.rotary_emb
            made = rotations(rope.inv_freq.to(like.device), float(rope.attention_scaling), -(-width // 64) * 64)
            self.rotations = made.to(torch.complex128) if like.dtype == torch.float64 else made
        return self.rotations


def shared_prefix(model: PreTrainedModel) -> SharedPrefix | None:
    """The fast trunk of a model it knows and agrees with on a few tokens; None for any other."""
    config: Any = model.config
    checkpointing = any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    if not fits(model) or config.attention_dropout or checkpointing:
        return None
    linears = [module for name, module in model.base_model.named_modules() if name.endswith("_proj")]
    if any(type(each) is not nn.Linear for each in linears):  # adapters, quantised weights
        return None
    found = SharedPrefix(model)
    return found if _agrees(found, model) else None


@torch.no_grad()
def _agrees(fast: SharedPrefix, model: PreTrainedModel) -> bool:
    """Whether the states of two prompts, three responses, are those of the model itself."""
    device = fast.trunk.embed_tokens.weight.device
    ids = (torch.arange(3 * 9, device=device).view(3, 9) * 5) % int(model.config.vocab_size)
    ids[1, :4] = ids[0, :4]
    prompts, lengths = (torch.tensor(each, device=device) for each in ((4, 4, 1), (5, 2, 8)))
    rows = Rows.bare(ids, prompts, lengths, torch.tensor([0, 0, 1], device=device))
    training = model.training
    model.eval()
    whole = cast("Tensor", fast.trunk(input_ids=ids, use_cache=False).last_hidden_state).float()
    made = fast(fast.plan(rows)).float().split(lengths.tolist())
    model.train(training)
    share = 1e-4 if model.dtype in (torch.float32, torch.float64) else 0.1
    pairs = zip(made, whole, prompts.tolist(), lengths.tolist(), strict=True)
    return all(
        torch.allclose(one, other[prompt - 1 : prompt - 1 + length], rtol=0.0, atol=share * float(whole.std()))
        for one, other, prompt, length in pairs
    )


def _added(stream: Tensor, inner: Tensor, linear: nn.Linear) -> Tensor:
    """The stream plus a linear of `inner`."""
    result = torch.addmm(stream, inner, linear.weight.t())
    bias = cast("Tensor | None", linear.bias)
    return result if bias is None else result + bias
