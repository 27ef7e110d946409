"""Whether an engine really has the weights it was given: a short text scored on both sides.

weights ──transformers, nothing copied──► expected log-probs ─┐
   └──► the engine takes them over ──► its log-probs ─────────┴─► agree, or the run stops and says which weights it has

A status code cannot tell. An update can leave out a tied head, a packed copy or an adapter, and answer that all went well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from transformers import AutoModelForCausalLM, PretrainedConfig

from trimtab.errors import RunError
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

    def log_probs(self, weights: Mapping[str, Tensor], tokens: Ints) -> Floats:
        """Of each token but the first, given those before it."""
        rows = self.distributions(weights, tokens)
        drawn = torch.from_numpy(tokens[1:]).long().to(rows.device).unsqueeze(-1)
        return rows.gather(-1, drawn).squeeze(-1).cpu().numpy()

    @torch.no_grad()
    def distributions(self, weights: Mapping[str, Tensor], tokens: Ints) -> Float[Tensor, "tokens vocab"]:
        """Log-probs of the whole vocabulary at each token but the first, given those before it; on the device where the weights lie."""
        whole = self.with_ties(weights)
        lent = {name: weight.detach() for name, weight in whole.items() if name not in self.ties}
        device = next(iter(lent.values())).device
        lent |= {name: buffer.to(device) for name, buffer in self._model.named_buffers() if name not in lent}
        ids = torch.from_numpy(tokens).long().to(device)
        out: Any = functional_call(self._model, lent, (), {"input_ids": ids.unsqueeze(0), "use_cache": False})
        return out.logits[0, :-1].float().log_softmax(-1)


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


TOKENS = 24
"""Length of the text: enough for every layer and the head, little enough for every update."""
TOLERANCES = {"fp32": 1e-4, "bf16": 0.1}
"""Mean difference of log-probs, by the engine's precision. Measured: 1e-6 in fp32, up to 2e-2 in bf16; a head left behind: 0.3 and more."""


@dataclass(frozen=True, eq=False)
class Expected:
    """What an engine has to answer once it has the weights of a version."""

    version: int
    tokens: Ints
    log_probs: Floats
    """Of each token but the first."""
    before: Floats | None
    """What the weights probed before these make of the same tokens."""
    tolerance: float

    def compare(self, answer: Floats, engine: str) -> float:
        """The mean difference to what was expected. Raises where it is more than rounding."""
        off = mean_difference(answer, self.log_probs)
        if off <= self.tolerance:
            return off
        if self.before is not None and mean_difference(answer, self.before) <= self.tolerance:
            found = "it kept the weights of the version before"
        else:
            found = "some weights are old ones or were never loaded (a tied head, a packed copy, an adapter), or it computes otherwise"
        raise RunError(
            f"{engine} needs the weights of version {self.version} after they were sent, got log-probs of a probe that are off by "
            f"{off:.2g} on average (more than {self.tolerance:g}): {found}. What it samples now belongs to no version: the run stops."
        )


class Probe:
    """A fixed text of random tokens."""

    def __init__(self, skeleton: Skeleton, *, vocabulary: int, longest: int, tolerance: float) -> None:
        self._skeleton, self._tolerance = skeleton, tolerance
        length = max(2, min(TOKENS, longest - 1))
        self.tokens: Ints = np.random.default_rng(0).integers(0, vocabulary, length).astype(np.int32)
        self._before: Floats | None = None

    def expect(self, weights: Mapping[str, Tensor], version: int) -> Expected:
        """What an engine with these weights has to answer; they are read where they lie."""
        log_probs, before = self._skeleton.log_probs(weights, self.tokens), self._before
        self._before = log_probs
        return Expected(version, self.tokens, log_probs, before, self._tolerance)


def mean_difference(one: Floats, other: Floats) -> float:
    """Of log-probs; infinite where one is not a number."""
    off = np.abs(one.astype(np.float64) - other).mean()
    return float("inf") if np.isnan(off) else float(off)
