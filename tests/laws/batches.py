"""Batches and corrections for the laws: small, awkward, and the same in every layout."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from hypothesis import strategies as st
from torch import Tensor

from trimtab.config.correction import Correction, Gate, Limit, Weight, WeightLevel
from trimtab.config.divergences import DIVERGENCES, HEAD_METRICS
from trimtab.config.presets import preset, preset_names
from trimtab.core.correct import Corrected, correct
from trimtab.errors import ConfigError, ConfigWarning


@dataclass(frozen=True)
class Sample:
    """A padded batch; `lengths` says how much of each row is really there."""

    behavior: Tensor
    proximal: Tensor
    current: Tensor
    advantages: Tensor
    mask: Tensor
    lengths: tuple[int, ...]

    def tensors(self) -> dict[str, Tensor]:
        names = ("behavior", "proximal", "current", "advantages", "mask")
        return {name: getattr(self, name) for name in names}

    def with_tensors(self, **changes: Tensor) -> Sample:
        return replace(self, **changes)

    def packed(self) -> dict[str, Tensor]:
        """The same tokens end to end."""
        there = torch.arange(self.mask.shape[1])[None] < torch.tensor(self.lengths).reshape(-1, 1)
        bounds = torch.tensor([0, *torch.tensor(self.lengths, dtype=torch.int64).cumsum(0).tolist()])
        return {name: tensor[there] for name, tensor in self.tensors().items()} | {"cu_seqlens": bounds}

    def there(self) -> Tensor:
        return torch.arange(self.mask.shape[1])[None] < torch.tensor(self.lengths).reshape(-1, 1)


def run(rule: Correction, sample: Sample) -> Corrected:
    return correct(rule, **sample.tensors())


@st.composite
def samples(draw: st.DrawFn, rows: st.SearchStrategy[int] | None = None, spread: float | None = None) -> Sample:
    """Rows of 0 to 7 tokens with holes in the mask; log-ratios from tiny to huge, probability-1 tokens included."""
    number = draw(st.integers(1, 5) if rows is None else rows)
    lengths = tuple(draw(st.lists(st.integers(0, 7), min_size=number, max_size=number)))
    width = max(max(lengths, default=0), 1) + draw(st.integers(0, 2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    shape = (number, width)
    scale = draw(st.sampled_from([1e-3, 0.05, 0.5, 3.0, 30.0])) if spread is None else spread
    behavior = -torch.rand(shape, generator=generator) * 4
    behavior = torch.where(torch.rand(shape, generator=generator) < 0.1, 0.0, behavior)
    proximal = (behavior + scale * torch.randn(shape, generator=generator)).clamp(max=0.0)
    current = (proximal + 0.3 * scale * torch.randn(shape, generator=generator)).clamp(max=0.0)
    there = torch.arange(width)[None] < torch.tensor(lengths).reshape(-1, 1)
    holes = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.0, 0.3]))
    row = torch.randn(number, 1, generator=generator)
    advantages = row + draw(st.sampled_from([0.0, 1.0])) * torch.randn(shape, generator=generator)
    return Sample(behavior, proximal, current, advantages, there & ~holes, lengths)


def _bounds(draw: st.DrawFn, metric: str, need_upper: bool) -> dict[str, float]:
    facts = DIVERGENCES[metric]
    sizes = st.sampled_from([0.003, 0.02, 0.1, 0.5, 1.5])
    up, down = draw(sizes), draw(sizes)
    if metric in ("ratio", "mult_prob_error"):
        upper, lower = 1 + up, 1 / (1 + down)
    else:
        upper, lower = up, -down
    found = {"upper": upper} if need_upper or facts.least == facts.neutral or draw(st.booleans()) else {}
    if facts.least < facts.neutral and (not found or draw(st.booleans())):
        found["lower"] = lower
    return found


def _varying(draw: st.DrawFn, scale: str | None, keeps: tuple[str, ...] = ("keep",)) -> dict[str, Any] | None:
    """Bounds that are no constants, one time in five: a scale, or a share of the batch; None: numbers as they are."""
    kinds = ["none"] * 8 + ([scale] if scale else []) + list(keeps)
    kind = draw(st.sampled_from(kinds))
    if kind == "none":
        return None
    return {"bound_scale": kind} if kind == scale else {"bounds": {kind: draw(st.sampled_from([0.2, 0.5, 0.9, 1.0]))}}


@st.composite
def gates(draw: st.DrawFn) -> Gate:
    metric = draw(st.sampled_from(sorted(set(DIVERGENCES) - {*HEAD_METRICS, "age"})))
    level = draw(st.sampled_from(["token", "segment", "sequence", "batch"]))
    if level == "batch" and DIVERGENCES[metric].least < 0:
        level = "sequence"
    if level == "batch" and metric in ("ratio", "mult_prob_error"):
        level = "token"
    agg = draw(st.sampled_from(["mean", "sum", "max", "min", "every"])) if level in ("segment", "sequence") else None
    if agg == "sum" and metric == "mult_prob_error":
        agg = "mean"  # a sum of numbers that are at least 1 leaves any bound on-policy
    action = draw(st.sampled_from(["reject", "zero", "observe"]))
    directions = DIVERGENCES[metric].directions
    limits = [None, Limit(bound=0.05), Limit(bound=2.0), Limit(bound=20.0)]
    if agg is not None:
        limits.append(Limit(bound=0.3, at="gathered"))
    limit = draw(st.sampled_from(limits))
    scale = "one_minus_p" if level == "token" else "inv_sqrt_length" if agg == "mean" else None
    varying = None if level == "batch" else _varying(draw, scale)
    bounds: dict[str, Any] = (
        _bounds(draw, metric, level == "batch") if varying is None or "bounds" not in varying else {}
    )
    return Gate(
        metric=metric,
        level=level,
        agg=agg,
        action=action,
        direction=draw(st.sampled_from(directions)) if directions else None,
        when=draw(
            st.sampled_from(
                ["always", "negative_advantage", "nonpositive_advantage", "positive_advantage", "moving_away"]
            )
        ),
        advantage_of=draw(st.sampled_from(["unit", "token"])),
        pair=draw(st.sampled_from([None, "current/behavior", "current/proximal"])),
        scope=draw(st.sampled_from(["trained", "kept"])),
        limit=limit,
        strict=level == "batch" and draw(st.booleans()),
        **bounds,
        **(varying or {}),
    )


@st.composite
def weights(draw: st.DrawFn) -> Weight | None:
    level = draw(st.sampled_from([None, *get_args(WeightLevel)]))
    if level is None or level == "one":
        return None if level is None else Weight(level="one")
    scale = {"token": "one_minus_p", "geometric": "inv_sqrt_length", "segment": "inv_sqrt_length"}.get(level)
    varying = _varying(draw, scale, ("keep", "ess"))
    if varying is not None:
        both = {"lower": 0.5, "upper": 1.5} if "bound_scale" in varying else {}
        outside = "clamp" if "ess" in varying.get("bounds", {}) else draw(st.sampled_from(["clamp", "zero"]))
        return Weight(level=level, outside=outside, **both, **varying)
    lower, upper = draw(st.sampled_from([None, 0.3, 0.9])), draw(st.sampled_from([None, 1.1, 2.0]))
    outside = draw(st.sampled_from(["clamp", "zero"])) if (lower, upper) != (None, None) else "clamp"
    scope, limit = draw(st.sampled_from(["trained", "kept"])), draw(st.sampled_from([None, Limit(bound=0.05)]))
    return Weight(level=level, lower=lower, upper=upper, outside=outside, scope=scope, limit=limit)


OF_SAMPLED_TOKENS = [name for name in preset_names() if preset(name).centering is None]
"""Presets that ask for no more than the log-probs of sampled tokens."""


@st.composite
def corrections(draw: st.DrawFn) -> Correction:
    """Any preset, or any value of the algebra."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        if draw(st.booleans()):
            return preset(draw(st.sampled_from(OF_SAMPLED_TOKENS)))
        weight = draw(weights())
        weighted = weight is not None and weight.level != "one"
        chosen = draw(st.lists(gates(), max_size=3))
        if weighted and draw(st.booleans()):
            chosen.append(Gate(metric="ratio", level="sequence", agg="max", lower=0.8, upper=1.3, action="clamp"))
        try:
            return Correction(
                policies=draw(st.sampled_from(["decoupled", "bypass"])),
                gates=tuple(chosen),
                weight=weight,
                normalize=draw(st.sampled_from([None, "batch"])) if weighted else None,
            )
        except ConfigError as error:  # pragma: no cover - the strategy only builds what is possible
            raise AssertionError(f"the strategy built an impossible correction: {error}") from error
