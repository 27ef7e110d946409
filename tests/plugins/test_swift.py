"""trimtab inside ms-swift: the weight in its GRPO trainer's own loss, and the way its factory finds the trainer."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import peers
import pytest
import torch

import trimtab
from tests.plugins.comparison import Step, same_metrics, same_step
from tests.plugins.recording import RecordStandIn
from tests.plugins.tiny import rollouts
from trimtab.errors import ConfigError

peers.swift()
with peers.quiet():
    from trimtab.plugins import swift as plugin

DATA = rollouts(spread=0.5)
IS = "rollout_importance_sampling_"
CASES = {
    "token_truncate": {f"{IS}mode": "token_truncate", f"{IS}threshold": 1.1},
    "token_mask": {f"{IS}mode": "token_mask", f"{IS}threshold": 1.2},
    "sequence_truncate": {f"{IS}mode": "sequence_truncate", f"{IS}threshold": 1.2},
    "sequence_mask": {f"{IS}mode": "sequence_mask", f"{IS}threshold": 1.2},
}


def step(settings: dict[str, Any]) -> Step:
    make = torch.Generator().manual_seed(5)
    proximal = -torch.rand(DATA.mask.shape, generator=make) * 3 - 0.6
    current = (proximal + 0.2 * torch.randn(proximal.shape, generator=make)).requires_grad_()
    advantages = DATA.advantages[:, None].expand(proximal.shape).contiguous()
    loss, metrics = peers.swift_loss(
        current, proximal, advantages, DATA.mask, behavior=proximal + DATA.noise, **settings
    )
    loss.backward()
    assert current.grad is not None
    return Step(current.grad, loss.item(), {name: float(value) for name, value in metrics.items()})


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Any:
    def with_plan(plan: Any) -> None:
        monkeypatch.setattr(plugin.TrimtabGRPOTrainer, "plan", plugin.plan_of(plan))
        monkeypatch.setattr(peers.swift().trainer, "GRPOTrainer", plugin.TrimtabGRPOTrainer)

    return with_plan


@pytest.mark.parametrize("mode", CASES)
def test_the_loss_of_the_trainer_is_swifts(plugged: Any, mode: str):
    settings = CASES[mode]
    theirs, off = step(dict(settings)), step({})
    plugged(trimtab.dialects.read("ms-swift", settings).correction)
    ours = step(dict(settings))
    same_step("ms-swift", mode, theirs, ours, off)
    assert same_metrics(theirs.metrics, ours.metrics) > 3
    assert "trimtab/kept_fraction" in ours.metrics


def test_a_gate_that_swift_does_not_have(plugged: Any):
    off = step({})
    plugged({"preset": "geo-rs+token-tis", "lower": 0.9, "upper": 1.1})
    ours = step(dict(CASES["token_truncate"]))
    assert 0 < ours.metrics["trimtab/kept_fraction"] < 1
    assert (ours.gradient - off.gradient).abs().max() > 1e-3 * off.gradient.abs().max() > 0


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (None, "needs a correction and no term of a loss, got nothing"),
        ({"correction": "token-tis", "loss": "clip"}, "needs a plan without loss"),
        ({"correction": "token-tis", "kl": 0.1}, "got correction, kl"),
        ("bypass-token-tis", "without current log-probs"),
        ("m2po", "single sequences"),
        ({"correction": {"gates": [{"metric": "ratio", "upper": 1.1}], "denominator": "kept"}}, "denominator trained"),
    ],
)
def test_what_a_weight_cannot_honour_is_refused(plan: Any, words: str):
    with pytest.raises(ConfigError, match=words):
        plugin.plan_of(plan)


@pytest.mark.parametrize(
    ("beta", "mode", "words"),
    [
        (0.1, "token_mask", "needs applies_to policy\\+kl beside beta 0.1"),
        (0.0, None, "needs rollout_importance_sampling_mode set"),
    ],
)
def test_settings_of_swifts_beside_which_the_plan_would_not_act_are_refused(beta: float, mode: str | None, words: str):
    trainer = SimpleNamespace(plan=plugin.plan_of("token-tis"), beta=beta, rollout_importance_sampling_mode=mode)
    with pytest.raises(ConfigError, match=words):
        plugin.TrimtabGRPOTrainer.check_plan(trainer)


def test_a_record_is_the_micro_batch_with_both_log_probs(plugged: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    kept = RecordStandIn.put(monkeypatch)
    plugged({"correction": "token-tis", "record": str(tmp_path)})
    monkeypatch.setattr(plugin.TrimtabGRPOTrainer, "state", SimpleNamespace(global_step=4), raising=False)
    step(dict(CASES["token_truncate"]))
    (batch,) = kept
    assert torch.equal(batch["mask"].bool(), DATA.mask)
    torch.testing.assert_close(batch["behavior"] - batch["proximal"], DATA.noise)
    assert (batch["tokens"], batch["step"]) == (None, 4)


def test_swifts_factory_hands_out_the_trainer(monkeypatch: pytest.MonkeyPatch):
    from swift.trainers.trainer_factory import TrainerFactory

    monkeypatch.setattr(TrainerFactory, "TRAINER_MAPPING", dict(TrainerFactory.TRAINER_MAPPING))
    monkeypatch.setattr(plugin.TrimtabGRPOTrainer, "plan", plugin.TrimtabGRPOTrainer.plan)
    plugin.register_trainer("token-tis")
    assert TrainerFactory.get_trainer_cls(SimpleNamespace(rlhf_type="grpo")) is plugin.TrimtabGRPOTrainer


def test_the_private_method_still_looks_the_same():
    theirs = inspect.signature(peers.swift().trainer.GRPOTrainer._get_rollout_is_correction)
    assert list(theirs.parameters) == ["self", "old_per_token_logps", "rollout_per_token_logps", "completion_mask"]
    whole = inspect.signature(peers.swift().trainer.GRPOTrainer._compute_loss_and_metrics)
    assert list(whole.parameters) == ["self", "model", "model_inputs", "grpo_batch"]
