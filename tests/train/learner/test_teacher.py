"""A run that follows a teacher: the learner's step, a run that is stopped and resumed, and what it learns."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

import trimtab
from tests.train.batches import batch, policy
from tests.train.small_runs import StopAt, lines, same, small, weights
from trimtab.config.training import Tiny, Train
from trimtab.errors import ConfigError
from trimtab.log_probs.public import SelectedLogProbs
from trimtab.records.run import RunDirectory
from trimtab.train.learner.learner import Learner
from trimtab.train.learner.rows import Rows
from trimtab.train.learner.scoring import Scorer
from trimtab.train.loop import train
from trimtab.train.policy.model import Pretrained
from trimtab.train.policy.tiny import tiny_policy
from trimtab.train.tasks import source

SETTINGS: dict[str, Any] = {
    "correction": "token-tis",
    "teacher": {},
    "learner": {"minibatches": 1, "warmup": 1, "lr": 1e-2, "clip_norm": None},
}


def learner(model: PreTrainedModel, teacher: PreTrainedModel, advantage: dict[str, Any], **changes: Any) -> Learner:
    config = Train.from_settings({**SETTINGS, "advantage": {"kind": "distillation"} | advantage, **changes})
    return Learner(config, copy.deepcopy(model), teacher=copy.deepcopy(teacher))


def opinion(model: PreTrainedModel, rows: Rows) -> Tensor:
    return Scorer.of(model, 1.0).all(rows, 10_000).log_probs.detach()


def gradient(of: Learner) -> Tensor:
    return torch.cat([each.grad.flatten() for each in of.model.parameters() if each.grad is not None])


@pytest.mark.parametrize("student", ["proximal", "current", "behavior"])
@pytest.mark.parametrize("base", [None, {"kind": "grpo"}])
def test_one_update_is_the_loss_with_the_teachers_log_ratio_written_out(student: str, base: Any) -> None:
    made, teacher = policy(), policy(1)
    rows = batch(made)
    mine = learner(made.model, teacher.model, {"student": student, "base": base, "coefficient": 0.5})
    found = mine.learn(rows)

    model = copy.deepcopy(made.model).eval()
    current = Scorer.of(model, 1.0)(rows).log_probs
    compared = rows.behavior if student == "behavior" else current.detach()
    worth = 0.5 * (opinion(teacher.model, rows) - compared)
    if base is not None:
        worth = worth + trimtab.advantages("grpo", rewards=rows.reward, mask=rows.mask, group=rows.group).advantages
    worth = torch.where(rows.mask, worth, 0.0)
    torch.testing.assert_close(found.advantages, worth, rtol=1e-5, atol=1e-5)
    loss = trimtab.policy_loss(
        trimtab.Clip(),
        current=current,
        proximal=current.detach(),
        behavior=rows.behavior,
        advantages=worth,
        mask=rows.mask,
        correction="token-tis",
    ).loss
    loss.backward()
    wanted = torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])
    torch.testing.assert_close(gradient(mine), wanted, rtol=1e-4, atol=1e-6)
    assert wanted.abs().max() > 1e-3


def test_a_teacher_that_is_the_policy_teaches_nothing() -> None:
    made = policy()
    rows = batch(made)
    still = learner(made.model, made.model, {})
    assert still.learn(rows).outcome == "no signal"
    moving = learner(made.model, made.model, {"student": "current"})
    moving.learn(rows)
    assert not gradient(moving).any()
    other = learner(made.model, policy(1).model, {})
    assert other.learn(rows).outcome == "updated"


def test_a_student_that_moves_is_asked_again_in_every_minibatch() -> None:
    made, teacher = policy(), policy(1)
    rows = batch(made)

    def after(student: str, minibatches: int) -> Tensor:
        settings = SETTINGS["learner"] | {"minibatches": minibatches}
        mine = learner(made.model, teacher.model, {"student": student}, learner=settings)
        mine.learn(rows)
        return torch.cat([each.detach().flatten() for each in mine.model.parameters()])

    assert torch.equal(after("proximal", 1), after("current", 1))
    assert not torch.equal(after("proximal", 4), after("current", 4))


def test_a_gate_on_the_advantage_sees_those_of_the_moment() -> None:
    """OPSM rejects where the advantage is negative: with a student that moves, that is judged as it moves."""
    made, teacher = policy(), policy(1)
    rows = batch(made, drift=0.5)
    settings = {"correction": "opsm", "learner": SETTINGS["learner"] | {"minibatches": 2}}
    for student in ("proximal", "current"):
        found = learner(made.model, teacher.model, {"student": student}, **settings).learn(rows)
        assert found.outcome == "updated"
        assert found.advantages.isfinite().all()


def test_no_pass_ahead_of_the_step_is_needed_where_the_student_moves() -> None:
    made, teacher = policy(), policy(1)
    rows = batch(made)
    settings = {
        "correction": "off",
        "loss": "importance-pg",
        "learner": SETTINGS["learner"] | {"proximal": "none"},
    }
    settings["correction"] = {"policies": "bypass", "weight": {"level": "one"}}
    found = learner(made.model, teacher.model, {"student": "current"}, **settings).learn(rows)
    expected = torch.where(rows.mask, opinion(teacher.model, rows) - opinion(made.model, rows), 0.0)
    torch.testing.assert_close(found.advantages, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ConfigError, match=r"student proximal needs learner\.proximal recompute, got none"):
        learner(made.model, teacher.model, {"student": "proximal"}, **settings)


class Forgetful:
    """A teacher's scorer that has nothing to say of one token."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def all(self, rows: Rows, most: int) -> SelectedLogProbs:
        found = self.scorer.all(rows, most)
        known = found.log_probs.clone()
        known[0, 0] = float("nan")
        return replace(found, log_probs=known)


@pytest.mark.parametrize("student", ["proximal", "current"])
def test_a_token_the_teacher_cannot_score_is_not_trained_and_counted(student: str) -> None:
    made, teacher = policy(), policy(1)
    rows = batch(made)
    mine = learner(made.model, teacher.model, {"student": student})
    mine.teacher = cast("Any", Forgetful(cast("Scorer", mine.teacher)))
    found = mine.learn(rows)
    assert found.advantages[0, 0] == 0
    assert not found.corrected.trained[0, 0]
    assert found.metrics["advantage/unknown_fraction"] == pytest.approx(1 / float(rows.mask.sum()))
    assert found.advantages.isfinite().all()
    assert gradient(mine).isfinite().all()

    without = rows.mask.clone()
    without[0, 0] = False
    same_mask = learner(made.model, teacher.model, {"student": student})
    same_mask.learn(replace(rows, mask=without))
    torch.testing.assert_close(gradient(mine), gradient(same_mask))


# Runs


def folder_of(made: Pretrained, path: Path) -> str:
    made.model.save_pretrained(path)
    made.policy.tokenizer.save_pretrained(path)
    return str(path)


def teacher_of(config: Train, seed: int = 7) -> Pretrained:
    """A tiny policy of the run's own tokens with other weights."""
    characters = source(config.task, config.seed).characters
    assert characters is not None
    tiny = Tiny(layers=1, width=16, heads=2, mlp=24)
    return tiny_policy(tiny, characters, 64, seed)


@pytest.mark.parametrize("student", ["proximal", "current"])
def test_a_run_with_a_teacher_that_is_stopped_and_resumed_equals_one_that_was_not(tmp_path: Path, student: str) -> None:
    path = folder_of(teacher_of(small()), tmp_path / "teacher")
    advantage = {"kind": "distillation", "student": student, "base": {"kind": "grpo"}}
    config = small(advantage=advantage, teacher={"path": path})
    train(config, tmp_path / "whole")
    train(config, tmp_path / "halves", display=StopAt(4))
    train(config, tmp_path / "halves", resume=True)
    assert same(tmp_path / "whole", tmp_path / "halves")
    assert "teacher" in RunDirectory.read(tmp_path / "whole").facts["world"]


def test_another_teacher_is_told_when_a_run_is_resumed(tmp_path: Path) -> None:
    path = folder_of(teacher_of(small()), tmp_path / "teacher")
    config = small(advantage={"kind": "distillation"}, teacher={"path": path})
    train(config, tmp_path / "run", display=StopAt(2))
    folder_of(teacher_of(small(), 8), tmp_path / "teacher")
    train(config, tmp_path / "run", resume=True)
    said = [each["message"] for each in RunDirectory.read(tmp_path / "run").events()]
    assert any("teacher" in each and "follow the new one" in each for each in said)


def test_a_teacher_with_other_tokens_is_refused_before_anything_starts(tmp_path: Path) -> None:
    other = tiny_policy(Tiny(layers=1, width=16, heads=2, mlp=24), "abcdefghijklmnopqrstuvwxyz+-=", 64, 0)
    path = folder_of(other, tmp_path / "teacher")
    config = small(advantage={"kind": "distillation"}, teacher={"path": path})
    with pytest.raises(ConfigError, match=r"teacher\.path needs the policy's own tokens, got another id for"):
        train(config, tmp_path / "run")
    few = tiny_policy(Tiny(layers=1, width=16, heads=2, mlp=24), "0", 64, 0)
    config = small(advantage={"kind": "distillation"}, teacher={"path": folder_of(few, tmp_path / "few")})
    with pytest.raises(ConfigError, match="needs a model that knows the policy's"):
        train(config, tmp_path / "run")
    config = small(advantage={"kind": "distillation"}, teacher={"path": str(tmp_path / "nowhere")})
    with pytest.raises(ConfigError, match=r"teacher\.path needs a Hugging Face causal LM"):
        train(config, tmp_path / "run")


def test_a_teacher_nobody_follows_and_a_follower_without_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="teacher needs advantage distillation, got grpo"):
        small(teacher={})
    with pytest.raises(ConfigError, match="advantage distillation needs a teacher, got none"):
        small(advantage={"kind": "distillation"}).runnable()
    with pytest.raises(ConfigError, match="got gae, which needs a critic's values"):
        small(advantage={"kind": "distillation", "base": {"kind": "gae"}}, teacher={}).runnable()


def kl_to(teacher: PreTrainedModel, student: nn.Module, ids: Tensor) -> float:
    """KL(student ‖ teacher) over the whole vocabulary, a mean over the positions of these sequences."""
    with torch.no_grad():
        p, q = (cast("Any", each)(input_ids=ids).logits.log_softmax(-1) for each in (student, teacher))
    return float((p.exp() * (p - q)).sum(-1).mean())


def test_a_run_comes_nearer_to_its_teacher_on_stale_samples_and_one_without_does_not(tmp_path: Path) -> None:
    base = {"steps": 40, "learner": {"lr": 1e-2, "minibatches": 2, "patience": 50}, "evaluate": None}
    config = small(**base)
    teacher = teacher_of(config)
    path = folder_of(teacher, tmp_path / "teacher")
    followed = small(advantage={"kind": "distillation"}, teacher={"path": path}, **base)
    train(followed, tmp_path / "followed")
    train(config, tmp_path / "alone")
    seen = lines(tmp_path / "followed")
    assert seen[-1]["staleness/oldest_max"] == 2

    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, teacher.policy.vocabulary, (32, 8), generator=generator)
    begun = teacher_of(config, config.seed)
    far = {"begun": kl_to(teacher.model, begun.model, ids)}
    for name in ("followed", "alone"):
        newest = max((tmp_path / name).glob("checkpoints/step-*"))
        model = AutoModelForCausalLM.from_pretrained(newest / "model").eval()
        far[name] = kl_to(teacher.model, model, ids)
    assert far["followed"] < 0.5 * far["begun"]
    assert far["alone"] > 0.8 * far["begun"]
    on_policy = [each["advantage/teacher_k1"] for each in seen]
    assert sum(on_policy[-5:]) / 5 < 0.5 * sum(on_policy[:5]) / 5
    assert not torch.equal(weights(tmp_path / "followed"), weights(tmp_path / "alone"))
