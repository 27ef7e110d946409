"""The minibatches of one learner step: rows that can contribute, micro-batches, one denominator, one optimiser update each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trimtab.advantage.estimate import Advantages
from trimtab.config.training import Train
from trimtab.core.correct import Corrected, correct
from trimtab.core.reduce import Denominator
from trimtab.losses.policy import policy_loss
from trimtab.train.learner.rows import Rows, whole_groups
from trimtab.train.learner.scoring import Scorer
from trimtab.train.messages import Outcome


@dataclass(eq=False)
class Update:
    """What a step descends, and what it saw on the way."""

    config: Train
    scorer: Scorer
    optimizer: torch.optim.Optimizer
    version: int
    rows: Rows
    found: Advantages
    fixed: Corrected | None
    """The correction over the whole batch; None: it looks at the current policy and is judged as it moves."""
    proximal: Float[Tensor, "rows width"] | None
    reference: Float[Tensor, "rows width"] | None
    updates: int = 0
    trained: int = 0
    norms: list[float] = field(default_factory=list[float])
    sums: dict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))
    tokens: dict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))

    def __post_init__(self) -> None:
        self.mask = self.rows.mask & self.found.trained
        self.current = torch.full_like(self.rows.behavior, math.nan)
        """What the policy thought of each row when it was trained; NaN for rows that were not."""

    def run(self) -> Outcome:
        """Every minibatch in turn."""
        if not bool(self.mask.any()):
            return "no rows"
        if self.fixed is not None and not bool(self.fixed.kept.any()):
            return "all rejected"
        useful = self._useful()
        if not bool(useful.any()):
            return "no signal"
        finite = True
        for part in self._parts():
            index = part[useful[part]]
            if len(index):
                finite &= self._minibatch(part, index)
        return "updated" if self.updates else "no signal" if finite else "not finite"

    def _parts(self) -> Sequence[Int[Tensor, " some"]]:
        """The rows of each minibatch, drawn by the seed and the version alone."""
        settings = self.config.learner
        seed = torch.Generator().manual_seed(self.config.seed * 1_000_003 + self.version)
        if settings.minibatch_of == "groups":
            return whole_groups(self.rows.group, settings.minibatches, seed)
        return torch.randperm(len(self.rows), generator=seed).to(self.mask.device).tensor_split(settings.minibatches)

    def _useful(self) -> Bool[Tensor, " rows"]:
        """Rows that can have a gradient. Leaving out the others is exact: the denominator still counts them."""
        config, everything = self.config, self.mask.any(-1)
        if config.kl is not None or config.entropy_bonus is not None or config.loss.acts_without_advantage:
            return everything
        strength = self.found.advantages if self.fixed is None else self.found.advantages * self.fixed.weight
        return everything & ((strength != 0) & self.mask).any(-1)

    def _minibatch(self, part: Tensor, index: Tensor) -> bool:
        """One optimiser update; whether its gradient was finite."""
        config, settings = self.config, self.config.learner
        counted = self.mask[part]
        corrected = self.fixed
        if corrected is None and (config.correction.needs_whole_step or config.correction.denominator == "kept"):
            corrected = self._whole_correction(part)
        if corrected is not None:
            counted = (corrected.kept if config.correction.denominator == "kept" else corrected.trained)[part]
        group = self.rows.group[part] if config.reduction.mode == "prompt-mean" else None
        denominator = Denominator.of(counted, group=group)
        self.optimizer.zero_grad(set_to_none=True)
        for few in self.scorer.batches(self.rows, settings.micro_tokens, index):
            self._micro(few, corrected, denominator)
        norm = _clip_gradient(self.scorer.model, settings.clip_norm)
        self.norms.append(norm)
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            return False
        self.optimizer.step()
        self.updates += 1
        self.trained += len(index)
        return True

    def _micro(self, index: Tensor, corrected: Corrected | None, denominator: Denominator) -> None:
        config, rows = self.config, self.rows.part(index)
        width = rows.tokens.shape[1]
        cut = (index, slice(width))
        current = self.scorer(rows, entropy=config.entropy_bonus is not None)
        proximal = self._anchor(cut, rows, current.log_probs.detach())
        result = policy_loss(
            config.loss,
            current=current.log_probs,
            proximal=proximal,
            behavior=rows.behavior,
            reference=None if self.reference is None else self.reference[cut],
            entropy=current.entropy,
            advantages=self.found.advantages[cut],
            mask=self.mask[cut],
            correction=config.correction if corrected is None else corrected.part(cut),
            reduction=config.reduction,
            kl=config.kl,
            entropy_bonus=config.entropy_bonus,
            denominator=denominator,
            group=rows.group if config.reduction.mode == "prompt-mean" else None,
        )
        result.loss.backward()
        self.current[cut] = torch.where(rows.mask, current.log_probs.detach().float(), math.nan)
        own = {name: result.metrics[name] for name in result.metrics.sections}
        self._note(floats(own), self.mask[cut])

    def _anchor(self, cut: tuple[Tensor, slice], rows: Rows, current: Tensor) -> Tensor | None:
        if self.proximal is not None:
            return self.proximal[cut]
        if self.config.learner.proximal == "loglinear":
            return loglinear(rows.behavior, current, rows.versions, self.version)
        return None

    @torch.no_grad()
    def _whole_correction(self, part: Tensor) -> Corrected:
        """A rule that looks at the current policy and at the whole minibatch: one pass ahead of the gradient's."""
        config = self.config
        current = self.scorer.all(self.rows, config.learner.micro_tokens).log_probs
        inside = torch.zeros(len(self.rows), dtype=torch.bool, device=part.device)
        inside[part] = True
        proximal = self.proximal
        if proximal is None and config.learner.proximal == "loglinear":
            proximal = loglinear(self.rows.behavior, current, self.rows.versions, self.version)
        return correct(
            config.correction,
            proximal=proximal,
            current=current,
            behavior=self.rows.behavior,
            mask=self.mask & inside.unsqueeze(-1),
            advantages=self.found.advantages,
        )

    def _note(self, metrics: Mapping[str, float], mask: Tensor) -> None:
        tokens = float(mask.sum())
        for name, value in metrics.items():
            extreme = name.endswith(("_max", "_min"))
            if name == "policy/loss":
                self.sums[name] += value
            elif extreme:
                worst = max if name.endswith("_max") else min
                self.sums[name] = worst(self.sums[name], value) if name in self.sums else value
            else:
                self.sums[name] += value * tokens
                self.tokens[name] += tokens

    def metrics(self) -> dict[str, float]:
        """Means over the micro-batches by their tokens; the loss and the norm before clipping are means over the updates."""
        found = {name: value / self.tokens[name] if self.tokens[name] else value for name, value in self.sums.items()}
        loss = found.pop("policy/loss", 0.0) / max(self.updates, 1)
        norms = [norm for norm in self.norms if math.isfinite(norm)]
        return found | {
            "train/loss": loss,
            "train/grad_norm": sum(norms) / len(norms) if norms else math.nan if self.norms else 0.0,
            "train/grad_norm_max": max(norms, default=math.nan if self.norms else 0.0),
            "train/rows": float(self.trained),
            "train/not_finite": float(len(self.norms) - len(norms)),
        }


def loglinear(
    behavior: Float[Tensor, "*tokens"], current: Float[Tensor, "*tokens"], versions: Tensor, learner: int
) -> Float[Tensor, "*tokens"]:
    """A guess at the proximal log-probs between behavior and current by version, as AReaL makes it; no forward pass.

    behavior + α·(current − behavior), α = (v − 1 − v_b) / (v − v_b) for tokens of known, older version v_b; else behavior.
    """
    age = (learner - versions).to(current.dtype)
    share = torch.where((versions >= 0) & (age > 0), ((age - 1.0) / age.clamp(min=1.0)).clamp(0.0, 1.0), 0.0)
    return behavior + share * (current - behavior)


def _clip_gradient(model: nn.Module, limit: float | None) -> float:
    """The norm of the gradient, which is then at most `limit`; one within it is not touched."""
    trained = [each for each in model.parameters() if each.grad is not None]
    norm = nn.utils.get_total_norm([each.grad for each in trained if each.grad is not None])
    found = float(norm)
    if limit is not None and not found + 1e-6 <= limit:
        nn.utils.clip_grads_with_norm_(trained, limit, norm)
    return found


def floats(metrics: Mapping[str, Tensor]) -> dict[str, float]:
    """Every metric as a number, in one transfer."""
    names = list(metrics)
    if not names:
        return {}
    return dict(zip(names, torch.stack([metrics[name].float() for name in names]).tolist(), strict=True))
