"""The learner in one process, or as the first of several ranks. One step: from a batch of answers to several optimiser updates.

rows ─► proximal log-probs ─► gates ─► advantages over rows that stay ─► gates that look at them ─► weights
                                                                                                       │
   minibatch 1 … m ─► rows that can contribute ─► micro-batches ─► Σ shares of one denominator ─► clip ─► AdamW
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from trimtab.advantage.estimate import Advantages
from trimtab.config.correction import Correction, Weight
from trimtab.config.training import Train
from trimtab.core.correct import Corrected, correct
from trimtab.core.head import HeadLogProbs
from trimtab.log_probs.public import SelectedLogProbs
from trimtab.train.devices import device_of
from trimtab.train.learner.advantages import AdvantageRule, RewardAdvantages
from trimtab.train.learner.lora import add_adapters, merged_weights
from trimtab.train.learner.ranks import LearnerRanks, RankOrder, whole_tensor
from trimtab.train.learner.rows import Rows, batch_rows
from trimtab.train.learner.scoring import SharedPass, scorer_of
from trimtab.train.learner.state import ModelState, once_each, share_state
from trimtab.train.learner.step_metrics import (
    GradientMemory,
    LapClock,
    StepTensors,
    floats,
    row_metrics,
    selection_metrics,
)
from trimtab.train.learner.update import Update, loglinear, looks_at_heads, trains_without_advantage
from trimtab.train.messages import Answer, Stepped


class Learner:
    """Owns the model being trained, its optimiser, and what is saved of both.

    With several ranks this one speaks and the others follow (`team.follow_orders`): each has a learner like this one, moved by the
    parts of a verb (`learn`, `gathered`, `gather`, `take`). Alone, `ranks` says nothing to anybody.
    """

    def __init__(
        self,
        config: Train,
        model: PreTrainedModel,
        reference: PreTrainedModel | None = None,
        ranks: LearnerRanks | None = None,
        *,
        teacher: PreTrainedModel | None = None,
    ) -> None:
        """Takes over `model`; `reference`, which stays as it is, is what a KL penalty is measured from, `teacher` what is distilled.

        `ranks`: those this one trains with, all of which have to be given the same weights.
        """
        settings, temperature = config.learner, config.rollout.temperature
        self.ranks = ranks or LearnerRanks(device_of(settings.device))
        self.config, self.model = config, model
        if settings.lora is not None:
            add_adapters(model, settings.lora, config.seed)
        self.scorer = scorer_of(model, temperature, settings, self.ranks, trained=True)
        self.reference, self.teacher = (
            None if each is None else scorer_of(each, temperature, settings, self.ranks, trained=False)
            for each in (reference, teacher)
        )
        self.optimizer = torch.optim.AdamW(
            [each for each in model.parameters() if each.requires_grad],
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
        )
        self.memory = GradientMemory(self.ranks) if settings.gradient_cosine else None
        self.version = 0
        """Steps made: the version of the weights."""
        self.skipped: Counter[str] = Counter()
        """Steps without an update, by what came of them."""

    @property
    def device(self) -> torch.device:
        """Where batches are trained on."""
        return self.ranks.device

    def step(self, answers: Sequence[Answer]) -> Stepped:
        """Train on a batch; afterwards the weights are one version newer, also where nothing could be learned."""
        with self.ranks.watched():
            rows = batch_rows(answers, replayed=self.config.rollout.head == "mask")
            self.ranks.tell(RankOrder("learn", self.version, rows))
            made = self.learn(rows.to(self.device))
            return made.message({(each.group, each.place): row for row, each in enumerate(answers)})

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The present weights, to be published: whole tensors by state-dict name, one at a time; one of two names once, under its first."""
        with self.ranks.watched():
            self._tell_shards(RankOrder("weights"))
            yield from self.gathered()

    def save(self, folder: Path) -> None:
        """Write model and optimiser into a folder that is there, as one process would; `version` is kept by whoever keeps the folder."""
        with self.ranks.watched():
            self._tell_shards(RankOrder("gather"))
            self.gather().save(folder, self.model)

    def load(self, folder: Path) -> None:
        """Take both back, in place and bit for bit. The other ranks need not see the folder."""
        state = ModelState.read(folder, self.model, self.optimizer)
        with self.ranks.watched():
            self.ranks.tell(RankOrder("take"))
            self.take(share_state(state, self.ranks))

    def close(self) -> None:
        """Let the other ranks go; those that are gone already are not missed."""
        with suppress(RuntimeError):
            self.ranks.tell(RankOrder("end"))

    def _tell_shards(self, order: RankOrder) -> None:
        """To the ranks that hold parts of the weights; replicas hold all of them."""
        if self.ranks.shard == "fsdp":
            self.ranks.tell(order)

    # The parts that all ranks do together.

    def gathered(self) -> Iterator[tuple[str, Tensor]]:
        """The present weights."""
        if self.config.learner.lora is not None:
            yield from merged_weights(self.model, once_each(self.model))
            return
        for name, tensor in once_each(self.model):
            yield name, whole_tensor(tensor.detach())

    def gather(self) -> ModelState:
        """Model and optimiser as whole tensors on the host."""
        return ModelState.of(self.model, self.optimizer)

    def take(self, state: ModelState) -> None:
        """Take over model and optimiser; each rank keeps its own part."""
        state.put(self.model, self.optimizer)

    def learn(self, rows: Rows) -> StepTensors:
        """The step itself."""
        config, clock = self.config, LapClock()
        rule = config.correction
        reward_advantages = AdvantageRule(config).by_rewards(rows.without_missing(None))
        proximal_pass, shared_pass = self._proximal_pass(rows, reward_advantages)
        proximal = None if proximal_pass is None else proximal_pass.log_probs
        reference, teacher = (
            None if each is None else each.all(rows, config.learner.micro_tokens).log_probs
            for each in (self.reference, self.teacher)
        )
        clock.lap("proximal")
        valid = rows.without_missing(proximal)
        head = None
        if proximal_pass is not None and proximal_pass.head is not None and rows.heads is not None:
            head = rows.heads.said(rows.tokens, rows.mask, proximal_pass.head, proximal_pass.head)
        entropy = proximal_pass.entropy if proximal_pass is not None and rule.needs_entropy else None
        advantage_rule = AdvantageRule.of(config, valid, teacher, proximal)
        kept_early = self._gates_before_advantages(valid, proximal, head, entropy)
        if reward_advantages is not None and kept_early is None and torch.equal(valid.mask, reward_advantages.mask):
            advantages = reward_advantages.estimate
        else:
            advantages = advantage_rule.advantages(valid, kept_early)
        moving_advantages = advantage_rule.moving(valid, kept_early, advantages)
        # With baseline kept a rejected row has no advantage. A rule that has no use for advantages is shown those that rows would have
        # had: its metrics say by them what it selects.
        is_needed = rule.needs_advantages or not rule.gates
        shown = (advantages if is_needed else advantage_rule.advantages(valid, None)).advantages
        corrected = None
        if proximal is not None:
            corrected = self._correct(rows, proximal, proximal, advantages, shown, head, entropy)
        moves = "current" in rule.needs or (moving_advantages is not None and rule.needs_advantages)
        update = Update(
            config=config,
            scorer=self.scorer,
            optimizer=self.optimizer,
            version=self.version,
            rows=valid,
            advantages=advantages,
            corrected=None if moves else corrected,
            proximal=proximal,
            reference=reference,
            moving_advantages=moving_advantages,
            proximal_head=None if proximal_pass is None else proximal_pass.head,
            memory=self.memory,
            shared_pass=shared_pass,
        )
        rate = self._rate()
        outcome = update.run()
        trained = advantages.advantages
        if moving_advantages is not None:
            trained = shown = moving_advantages.as_trained(update.current, trained)
        if corrected is None:  # no pass ahead of the step: as it was while training
            guess = loglinear(rows.behavior, update.current, rows.versions, self.version)
            corrected = self._correct(rows, guess, update.current, advantages, shown)
        clock.lap("train")
        metrics = (
            floats(corrected.metrics)
            | selection_metrics(rows, corrected)
            | update.metrics()
            | row_metrics(rows, advantages, proximal_pass, self.version)
            | {"train/lr": rate, "train/updates": float(update.updates), "train/skipped": float(outcome != "updated")}
            | clock.laps
        )
        self.version += 1
        self.skipped[outcome] += outcome != "updated"
        return StepTensors(outcome, metrics, corrected, trained, proximal, update.current, rows)

    def _rate(self) -> float:
        """The learning rate of this step, which rises over the first ones."""
        settings = self.config.learner
        rate = settings.lr * min(1.0, (self.version + 1) / max(settings.warmup, 1))
        for each in self.optimizer.param_groups:
            each["lr"] = rate
        return rate

    def _proximal_pass(
        self, rows: Rows, reward_advantages: RewardAdvantages | None
    ) -> tuple[SelectedLogProbs | None, SharedPass | None]:
        """The pass ahead of the step, and the part of it that the first update goes on from."""
        config, heads = self.config, looks_at_heads(self.config.correction)
        if config.learner.proximal != "recompute":
            return None, None
        if reward_advantages is not None and not heads:
            counting = reward_advantages.mask.any(-1)
            if not trains_without_advantage(config):
                counting = reward_advantages.has_advantage
            shared_pass = SharedPass.of(config, self.scorer, rows, self.version, counting)
            if shared_pass is not None:
                return shared_pass.all(config, self.scorer, rows), shared_pass
        return self.scorer.all(rows, config.learner.micro_tokens, entropy=True, heads=heads), None

    def _gates_before_advantages(
        self, rows: Rows, proximal: Tensor | None, head: HeadLogProbs | None, entropy: Tensor | None
    ) -> Tensor | None:
        """What gates leave that judge before advantages are known, for baselines of kept rows; None: everything."""
        early = without_advantage(self.config.correction)
        if proximal is None or not early.gates:
            return None
        return correct(
            early,
            proximal=proximal,
            current=proximal,
            behavior=rows.behavior,
            mask=rows.mask,
            head=head,
            age=rows.age(self.version),
            entropy=entropy,
        ).kept

    def _correct(
        self,
        rows: Rows,
        proximal: Tensor,
        current: Tensor,
        advantages: Advantages,
        shown: Tensor,
        head: HeadLogProbs | None = None,
        entropy: Tensor | None = None,
    ) -> Corrected:
        """The correction over the whole batch; at the start of a step current and proximal are the same.

        `shown`: the advantages that the rule looks at.
        """
        rule = self.config.correction
        return correct(
            rule,
            proximal=proximal,
            current=current,
            behavior=rows.behavior,
            mask=rows.mask & (advantages.trained | ~rows.behavior.isfinite()) & ~current.isnan(),
            advantages=shown,
            head=head,
            age=rows.age(self.version),
            entropy=entropy,
            group=rows.group if rule.needs_group else None,
        )


def without_advantage(rule: Correction) -> Correction:
    """The gates that judge before advantages are known."""
    early = tuple(gate for gate in rule.gates if gate.when == "always" and gate.action == "reject")
    return Correction(policies=rule.policies, gates=early, weight=Weight(level="one"))
