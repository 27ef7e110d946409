"""The minibatches of one learner step: rows that can contribute, micro-batches, one denominator, one optimiser update each."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as nnf
from torch.nn.parallel import DistributedDataParallel

from trimtab.advantage.estimate import Advantages
from trimtab.config.correction import Correction
from trimtab.config.training import Train
from trimtab.core.correct import Corrected, correct
from trimtab.core.head import HeadLogProbs
from trimtab.core.reduce import Denominator
from trimtab.log_probs.public import SelectedLogProbs
from trimtab.losses.policy import policy_loss
from trimtab.train.devices import to_device
from trimtab.train.learner.advantages import MovingAdvantages
from trimtab.train.learner.batching import MicroBatch, minibatches
from trimtab.train.learner.ranks import whole_tensor
from trimtab.train.learner.rows import Rows
from trimtab.train.learner.scoring import Scorer, SharedPass
from trimtab.train.learner.step_metrics import GradientMemory, Note, Notes, effective_share, ess_sums, scaled_rate
from trimtab.train.messages import Outcome


@dataclass(eq=False)
class Update:
    """What a step descends, and what it saw on the way."""

    config: Train
    scorer: Scorer
    optimizer: torch.optim.Optimizer
    version: int
    rows: Rows
    advantages: Advantages
    corrected: Corrected | None
    """The correction over the whole batch; None: it looks at the current policy and is judged as it moves."""
    proximal: Float[Tensor, "rows width"] | None
    reference: Float[Tensor, "rows width"] | None
    moving_advantages: MovingAdvantages | None = None
    """Advantages that follow the policy; None: they are those of the start."""
    proximal_head: Float[Tensor, " entries"] | None = None
    """Of every id that the rows' heads hold, where the correction compares them."""
    memory: GradientMemory | None = None
    """The last gradient, where cosines are recorded."""
    shared_pass: SharedPass | None = None
    """What the pass ahead of the step has left for the first minibatch."""
    updates: int = 0
    trained: int = 0
    notes: Notes = field(default_factory=Notes)
    weights: list[Tensor] = field(default_factory=list[Tensor])
    """The sums of the weights of the minibatch at hand, one entry per micro-batch, where a rule is judged as the policy moves."""

    def __post_init__(self) -> None:
        self.mask = self.rows.mask & self.advantages.trained
        self.current = torch.zeros_like(self.rows.behavior)
        """What the policy thought of each row when it was trained; NaN for rows that were not."""
        self.generator: torch.Generator | None = None
        if self.config.loss.looks_at_call:  # Clip-Cov draws: the same on every rank, and again after a restart
            self.generator = torch.Generator(self.mask.device).manual_seed(self.config.seed * 1_000_003 + self.version)
        self.reached = torch.zeros(len(self.rows), dtype=torch.bool)
        """Rows that were part of a minibatch, on whichever rank."""

    def run(self) -> Outcome:
        """Every minibatch in turn; then what the ranks saw of them is put together."""
        outcome = self._descend()
        trained = to_device(self.reached, self.mask.device).unsqueeze(-1) & self.rows.mask
        self.current = torch.where(trained, self.scorer.ranks.sum(self.current), math.nan)
        self.notes.read(self.scorer.ranks)
        return outcome

    def _descend(self) -> Outcome:
        if not bool(self.mask.any()):
            return "no rows"
        if self.corrected is not None and not bool(self.corrected.kept.any()):
            return "all rejected"
        has_gradient = self._has_gradient().cpu()
        if not bool(has_gradient.any()):
            return "no signal"
        finite = True
        for part in minibatches(self.config, self.rows, self.version):
            index = part[has_gradient[part]]
            if len(index):
                finite &= self._minibatch(part, index)
            self.shared_pass = None
        return "updated" if self.updates else "no signal" if finite else "not finite"

    def _has_gradient(self) -> Bool[Tensor, " rows"]:
        """Rows that can have a gradient. Leaving out the others is exact: the denominator still counts them."""
        if self.corrected is None or self._every_row_counts:
            return self._has_advantage()
        weight = self.corrected.weight if self.corrected.centered is None else self.corrected.centered
        return self.mask.any(-1) & ((self.advantages.advantages * weight != 0) & self.mask).any(-1)

    @property
    def _every_row_counts(self) -> bool:
        """Whether a row without advantage has a gradient too. One that moves and is 0 now need not be after the first minibatch."""
        return self.moving_advantages is not None or trains_without_advantage(self.config)

    def _has_advantage(self) -> Bool[Tensor, " rows"]:
        """Rows that could have a gradient if nothing were rejected."""
        trained = self.mask.any(-1)
        if self._every_row_counts:
            return trained
        return trained & ((self.advantages.advantages != 0) & self.mask).any(-1)

    def _minibatch(self, part: Tensor, index: Tensor) -> bool:
        """One optimiser update; whether its gradient was finite."""
        config, settings, scorer = self.config, self.config.learner, self.scorer
        self.reached[index] = True
        self.weights = []
        part = to_device(part, self.mask.device)
        counted = self.mask[part]
        corrected = self.corrected
        if corrected is None and (config.correction.needs_whole_step or config.correction.denominator == "kept"):
            corrected = self._whole_correction(part)
        if corrected is not None:
            counted = (corrected.kept if config.correction.denominator == "kept" else corrected.trained)[part]
        group = self.rows.group[part] if config.reduction.mode == "prompt-mean" else None
        denominator = Denominator.of(counted, group=group)
        self.optimizer.zero_grad(set_to_none=True)
        calls = scorer.calls(config, self.rows, index)
        for number, call in enumerate(calls, 1):
            with gradients_kept(scorer.module) if number < len(calls) else nullcontext():
                # DDP and FSDP take the mean over ranks; each has a part of one sum, whose denominator counts all.
                (self._loss(call, corrected, denominator) * scorer.ranks.size).backward()
        norm = _clip_gradient(scorer.model, settings.clip_norm)
        self.notes.norms.append(norm)
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            return False
        if self.memory is not None and (cosine := self.memory.cosine(scorer.model.parameters())) is not None:
            self.notes.cosines.append(cosine)
        if settings.step_scale == "ess":
            self.notes.scales.append(self._effective_share(part, corrected))
            with scaled_rate(self.optimizer, self.notes.scales[-1]):
                self.optimizer.step()
        else:
            self.optimizer.step()
        self.updates += 1
        self.trained += len(index)
        return True

    def _effective_share(self, part: Tensor, corrected: Corrected | None) -> float:
        """That of the tokens with an advantage in a minibatch; on every rank the same."""
        if corrected is not None:
            rows = part[self._has_advantage()[part]]
            return effective_share(ess_sums(corrected.weight[rows], corrected.trained[rows] & self.mask[rows]))
        nothing = torch.zeros(3, dtype=torch.float64, device=self.mask.device)
        return effective_share(self.scorer.ranks.sum(torch.stack([nothing, *self.weights]).sum(0)))

    def _loss(self, call: MicroBatch, corrected: Corrected | None, denominator: Denominator) -> Tensor:
        """This rank's part of the loss, to be descended; 0, with a gradient of 0, where it has no row."""
        if call.own is None:
            idle = self.scorer.idle(self.rows).log_probs
            nothing = (idle * torch.zeros_like(idle)).sum()
            return nothing if call.rows is None else nothing + self._policy_loss(call, None, corrected, denominator)
        few = self.rows.part(call.own)
        own = self._current(call.own, few)
        return self._policy_loss(call, own, corrected, denominator, few if call.is_own else None)

    def _current(self, index: Tensor, few: Rows) -> SelectedLogProbs:
        """The log-probs of some rows by the policy as it is, with gradient."""
        if self.shared_pass is not None:
            scored = self.shared_pass.part(index, width=few.tokens.shape[1], entropy=self._wants_entropy)
            if scored is not None:
                return scored
        return self.scorer(few, entropy=self._wants_entropy, heads=looks_at_heads(self.config.correction))

    @property
    def _wants_entropy(self) -> bool:
        """Whether the entropy of the moving policy is looked at: by a bonus, or by a rule that is judged as it moves."""
        moving = self.corrected is None and self.config.correction.needs_entropy
        return moving or self.config.entropy_bonus is not None

    def _policy_loss(
        self,
        call: MicroBatch,
        own: SelectedLogProbs | None,
        corrected: Corrected | None,
        denominator: Denominator,
        few: Rows | None = None,
    ) -> Tensor:
        """`few`: the rows of the call, where they are cut out already."""
        assert call.rows is not None
        config, rows = self.config, self.rows.part(call.rows) if few is None else few
        cut = (to_device(call.rows, self.mask.device), slice(rows.tokens.shape[1]))
        current = own if own is not None and call.is_own else self._over_ranks(call, own, rows)
        result = policy_loss(
            config.loss,
            current=current.log_probs,
            proximal=self._anchor(cut, rows, current.log_probs.detach()),
            behavior=rows.behavior,
            reference=None if self.reference is None else self.reference[cut],
            entropy=current.entropy,
            advantages=self._advantages(cut, current.log_probs),
            mask=self.mask[cut],
            correction=config.correction if corrected is None else corrected.part(cut),
            reduction=config.reduction,
            kl=config.kl,
            entropy_bonus=config.entropy_bonus,
            denominator=denominator,
            group=rows.group if config.reduction.mode == "prompt-mean" else None,
            head=self._head(call, rows, current),
            age=rows.age(self.version),
            generator=self.generator,
        )
        if call.is_own or self.scorer.ranks.rank == 0:  # what all ranks worked out together is counted once
            self.current[cut] = current.log_probs.detach().float()
            self.notes.seen.append(Note.of(result.metrics, self.mask[cut]))
            if corrected is None and config.learner.step_scale == "ess":
                terms = result.metrics.terms
                self.weights.append(ess_sums(terms.weight.detach(), terms.batch.valid.bool()))
        return result.loss

    def _head(self, call: MicroBatch, rows: Rows, current: SelectedLogProbs) -> HeadLogProbs | None:
        """What the policies say of the ids in the heads of these rows."""
        if rows.heads is None or current.head is None or call.rows is None or self.rows.heads is None:
            return None
        proximal = None
        if self.proximal_head is not None:
            proximal = self.proximal_head[to_device(self.rows.heads.places(call.rows), self.mask.device)]
        return rows.heads.said(rows.tokens, rows.mask, current.head, proximal)

    def _over_ranks(self, call: MicroBatch, own: SelectedLogProbs | None, rows: Rows) -> SelectedLogProbs:
        """The log-probs of a micro-batch of all ranks; a gradient goes to this rank's own rows only."""
        assert call.rows is not None

        def spread(values: Tensor | None) -> Tensor:
            blank = torch.zeros_like(rows.behavior)
            if values is None or call.own is None:
                return self.scorer.ranks.sum(blank)
            order = {row: place for place, row in enumerate(call.rows.tolist())}  # pyright: ignore[reportOptionalMemberAccess]
            places = to_device(torch.tensor([order[row] for row in call.own.tolist()]), blank.device)
            wide = nnf.pad(values, (0, blank.shape[1] - values.shape[1])).to(blank.dtype)
            laid = blank.index_copy(0, places, wide)
            return self.scorer.ranks.sum(laid.detach().clone()) + (laid - laid.detach())

        entropy = None
        if self._wants_entropy:
            entropy = spread(None if own is None else own.entropy)
        return SelectedLogProbs(spread(None if own is None else own.log_probs), entropy)

    def _anchor(self, cut: tuple[Tensor, slice], rows: Rows, current: Tensor) -> Tensor | None:
        if self.proximal is not None:
            return self.proximal[cut]
        if self.config.learner.proximal == "loglinear":
            return loglinear(rows.behavior, current, rows.versions, self.version)
        return None

    @torch.no_grad()
    def _whole_correction(self, part: Tensor) -> Corrected:
        """A rule that looks at the current policy and at the whole minibatch: one pass ahead of the gradient's."""
        config, rule = self.config, self.config.correction
        scored = self.scorer.all(
            self.rows, config.learner.micro_tokens, entropy=rule.needs_entropy, heads=looks_at_heads(rule)
        )
        current, head = scored.log_probs, None
        if scored.head is not None and self.rows.heads is not None:
            head = self.rows.heads.said(self.rows.tokens, self.rows.mask, scored.head, self.proximal_head)
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
            advantages=self._advantages(slice(None), current),
            head=head,
            age=self.rows.age(self.version),
            entropy=scored.entropy,
            group=self.rows.group if rule.needs_group else None,
        )

    def _advantages(self, cut: tuple[Tensor, slice] | slice, current: Tensor) -> Tensor:
        """Advantages of some rows, to the policy as it is."""
        if self.moving_advantages is None:
            return self.advantages.advantages[cut]
        return self.moving_advantages.of(cut, current.detach())

    def metrics(self) -> dict[str, float]:
        """What the updates saw."""
        found = self.notes.metrics(self.updates) | {"train/rows": float(self.trained)}
        if self.memory is not None:
            found["train/grad_cosine"] = self.notes.cosine()
        if self.config.learner.step_scale != "none":
            found["train/step_scale"] = self.notes.scale()
        return found


def trains_without_advantage(config: Train) -> bool:
    """Whether tokens without advantage have a gradient too."""
    return config.kl is not None or config.entropy_bonus is not None or config.loss.acts_without_advantage


def looks_at_heads(rule: Correction) -> bool:
    """Whether a correction asks for more than the log-probs of sampled tokens."""
    return rule.centering is not None or rule.needs_head


def loglinear(
    behavior: Float[Tensor, "*tokens"], current: Float[Tensor, "*tokens"], versions: Tensor, learner: int
) -> Float[Tensor, "*tokens"]:
    """A guess at the proximal log-probs between behavior and current by version, as AReaL makes it; no forward pass.

    behavior + α·(current − behavior), α = (v − 1 − v_b) / (v − v_b) for tokens of known, older version v_b; else behavior.
    """
    age = (learner - versions).to(current.dtype)
    share = torch.where((versions >= 0) & (age > 0), ((age - 1.0) / age.clamp(min=1.0)).clamp(0.0, 1.0), 0.0)
    return behavior + share * (current - behavior)


def gradients_kept(module: nn.Module) -> AbstractContextManager[None]:
    """Gradients of backward passes inside are not yet summed over replicas; those of shards always are, or they would not fit."""
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


def _clip_gradient(model: nn.Module, limit: float | None) -> float:
    """The norm of the gradient, which is then at most `limit`; one within it is not touched."""
    trained = [each for each in model.parameters() if each.grad is not None]
    norm = nn.utils.get_total_norm([each.grad for each in trained if each.grad is not None])
    found = float(whole_tensor(norm))
    if limit is not None and not found + 1e-6 <= limit:
        nn.utils.clip_grads_with_norm_(trained, limit, norm)
    return found
