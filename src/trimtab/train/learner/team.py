"""The learner on several ranks: rank 0 runs the loop and tells the others what to do, and they do it with it.

rank 0   step(answers) ──order: rows──► learn   weights() ──order──► gather, name by name   save, load, close
others   follow:                        learn                        gather                 gather, take, end
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from trimtab.config.training import Train
from trimtab.train.learner.model_state import once_each, share_state
from trimtab.train.learner.ranks import LearnerRanks, put_whole
from trimtab.train.learner.rows import Rows, batch_rows
from trimtab.train.learner.single import SingleLearner
from trimtab.train.messages import Answer, Stepped


@dataclass(frozen=True, eq=False)
class RankOrder:
    """What rank 0 asks of the others."""

    kind: Literal["learn", "weights", "gather", "take", "end"]
    version: int = 0
    rows: Rows | None = None


class TeamLearner:
    """Rank 0's end. It owns its own share of the model, and nothing of what the others have."""

    def __init__(
        self,
        config: Train,
        model: PreTrainedModel,
        reference: PreTrainedModel | None,
        ranks: LearnerRanks,
        *,
        teacher: PreTrainedModel | None = None,
    ) -> None:
        """The others, which wait in `follow_orders`, get settings and weights from here."""
        self.ranks = ranks
        with ranks.watched():
            ranks.tell(config)
            ranks.place(config.learner)
            for each in (model, reference, teacher):
                _send_model(each, ranks)
            self._own = SingleLearner(config, model, reference, ranks, teacher=teacher)
        self.skipped: Counter[str] = self._own.skipped
        self._ended = False

    @property
    def version(self) -> int:
        """Steps made: the version of the weights."""
        return self._own.version

    @version.setter
    def version(self, steps: int) -> None:
        self._own.version = steps

    def step(self, answers: Sequence[Answer]) -> Stepped:
        """Train on a batch; afterwards the weights are one version newer, also where nothing could be learned."""
        with self.ranks.watched():
            rows = batch_rows(answers, replayed=self._own.config.rollout.head == "mask")
            self.ranks.tell(RankOrder("learn", self.version, rows))
            made = self._own.learn(rows.to(self.ranks.device))
            return made.message({(each.group, each.place): row for row, each in enumerate(answers)})

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The present weights: whole tensors by state-dict name, one at a time."""
        with self.ranks.watched():
            if self.ranks.shard == "fsdp":
                self.ranks.tell(RankOrder("weights"))
            yield from self._own.weights()

    def save(self, folder: Path) -> None:
        """Write model and optimiser into a folder, in the format of one process."""
        with self.ranks.watched():
            if self.ranks.shard == "fsdp":
                self.ranks.tell(RankOrder("gather"))
            self._own.save(folder)

    def load(self, folder: Path) -> None:
        """Take both back. Only rank 0 reads: the others need not see the folder."""
        state = self._own.read(folder)
        with self.ranks.watched():
            self.ranks.tell(RankOrder("take"))
            self._own.take(share_state(state, self.ranks))

    def close(self) -> None:
        """Let the other ranks go; those that are gone already are not missed."""
        if not self._ended:
            self._ended = True
            try:
                self.ranks.tell(RankOrder("end"))
            except RuntimeError:
                return


def follow_orders(ranks: LearnerRanks) -> None:
    """The life of every rank but the first: a learner like its own, moved by its orders. Ends when rank 0 does."""
    config: Train = ranks.tell()
    ranks.place(config.learner)
    torch.set_num_threads(config.threads)
    model, reference, teacher = (_receive_model(ranks) for _ in range(3))
    assert model is not None
    own = SingleLearner(config, model, reference, ranks, teacher=teacher)
    while True:
        order: RankOrder = ranks.tell()
        match order.kind:
            case "learn":
                assert order.rows is not None
                own.version = order.version
                own.learn(order.rows.to(ranks.device))
            case "weights":
                for _ in own.weights():
                    pass
            case "gather":
                own.gather()
            case "take":
                own.take(share_state(None, ranks))
            case "end":
                return


def _send_model(model: PreTrainedModel | None, ranks: LearnerRanks) -> None:
    """Architecture, then weights one by one; None: there is no such model."""
    described: Any = None
    if model is not None:
        described = (model.config, model.dtype, [(name, each.shape, each.dtype) for name, each in once_each(model)])
    ranks.tell(described)
    if model is not None:
        for _, tensor in once_each(model):
            ranks.share(tensor, tensor.shape, tensor.dtype)


def _receive_model(ranks: LearnerRanks) -> PreTrainedModel | None:
    described: tuple[PretrainedConfig, torch.dtype, list[tuple[str, torch.Size, torch.dtype]]] | None = ranks.tell()
    if described is None:
        return None
    architecture, dtype, kinds = described
    model: PreTrainedModel = AutoModelForCausalLM.from_config(architecture, dtype=dtype, trust_remote_code=False)
    own = model.state_dict()
    with torch.no_grad():
        for name, shape, kind in kinds:
            put_whole(own[name], ranks.share(None, shape, kind))
    return model
