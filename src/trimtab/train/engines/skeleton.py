"""An architecture without weights of its own: which names its weights have, and what given weights make of a text."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import AutoModelForCausalLM, PretrainedConfig

from trimtab.train.messages import Floats, Ints


class Skeleton:
    """A model whose parameters have shapes and no memory; weights are lent to it for one forward pass."""

    def __init__(self, architecture: PretrainedConfig) -> None:
        with _parameters_nowhere():
            model: Any = AutoModelForCausalLM.from_config(architecture, trust_remote_code=False)
        model.tie_weights()
        self._model: nn.Module = model.requires_grad_(False).eval()
        first: dict[int, str] = {}
        self.ties: dict[str, str] = {}
        """Second names of tied weights, each with the name the weight is called by."""
        for name, parameter in self._model.named_parameters(remove_duplicate=False):
            known = first.setdefault(id(parameter), name)
            if known != name:
                self.ties[name] = known

    def with_ties(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same weights, tied ones under each of their names. vLLM keeps the head it has where no new one is named."""
        found = dict(weights)
        for name, known in self.ties.items():
            if known in found or name in found:
                one = found.get(known, found.get(name))
                assert one is not None
                found |= {known: one, name: one}
        return found

    @torch.no_grad()
    def log_probs(self, weights: Mapping[str, Tensor], tokens: Ints) -> Floats:
        """Of each token but the first, given those before it; on the device where the weights lie."""
        whole = self.with_ties(weights)
        lent = {name: weight.detach() for name, weight in whole.items() if name not in self.ties}
        device = next(iter(lent.values())).device
        lent |= {name: buffer.to(device) for name, buffer in self._model.named_buffers() if name not in lent}
        ids = torch.from_numpy(tokens).long().to(device)
        out: Any = functional_call(self._model, lent, (), {"input_ids": ids.unsqueeze(0), "use_cache": False})
        log_probs = out.logits[0, :-1].float().log_softmax(-1)
        return log_probs.gather(-1, ids[1:].unsqueeze(-1)).squeeze(-1).cpu().numpy()


@contextlib.contextmanager
def _parameters_nowhere() -> Generator[None]:
    """Parameters of modules built here have a shape and no memory; buffers, such as rotary frequencies, are real."""
    register = nn.Module.register_parameter

    def registered(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        register(self, name, None if param is None else nn.Parameter(param.to("meta"), param.requires_grad))

    nn.Module.register_parameter = registered
    try:
        yield
    finally:
        nn.Module.register_parameter = register
