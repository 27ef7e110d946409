"""trimtab inside OpenRLHF: the class that takes its loss's place, against the real one; and the launcher, its Ray stood in for."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import pytest
import torch
from peers import openrlhf, quiet

import trimtab
from tests.plugins.comparison import Step, same_metrics, same_step
from tests.plugins.tiny import Rollouts, rollouts
from trimtab.errors import ConfigError

openrlhf()  # imported without deepspeed, vLLM and flash-attention
with quiet():
    from trimtab.plugins import openrlhf as plugin

DATA = rollouts(spread=0.5)
NAMES = ("clip_ratio", "ppo_kl", "vllm_kl", "is_filter_ratio")
MASK = {"is_correction_level": "token", "is_correction_mode": "mask", "is_correction_threshold": [0.8, 1.25]}
CLIP = {"is_correction_level": "token", "is_correction_mode": "clip", "is_correction_threshold": [0.5, 1.1]}
SEQUENCE = {"is_correction_level": "seq", "is_correction_mode": "mask", "is_correction_threshold": [0.95, 1.05]}
KL = {"is_correction_level": "token", "is_correction_gating": "binary_kl", "is_correction_threshold": [0.0, 0.01]}


def batch(data: Rollouts) -> dict[str, torch.Tensor]:
    make = torch.Generator().manual_seed(4)
    old = -torch.rand(data.mask.shape, generator=make) * 3 - 0.6
    return {
        "current": (old + 0.2 * torch.randn(old.shape, generator=make)).clamp(max=-0.01),
        "old": old,
        "rollout": (old + data.noise).clamp(max=-0.01),
        "advantages": data.advantages[:, None].expand(old.shape).contiguous(),
    }


def step(loss: Any, splits: tuple[slice, ...] = (slice(None),), dp_size: int = 1) -> Step:
    """As its actor calls the loss, micro-batch by micro-batch, with the counts of the step."""
    x, total, logged = batch(DATA), 0.0, {}
    leaf = x["current"].clone().requires_grad_()
    for rows in splits:
        found, *scalars = loss(
            leaf[rows],
            x["old"][rows],
            x["advantages"][rows],
            action_mask=DATA.mask[rows],
            rollout_log_probs=x["rollout"][rows],
            dp_size=dp_size,
            batch_num_tokens=float(DATA.mask.sum()),
            global_batch_size=float(len(DATA.mask)),
        )
        found.backward()
        total += found.item()
        logged = {name: float(value) for name, value in zip(NAMES, scalars, strict=True) if value is not None}
    assert leaf.grad is not None
    return Step(leaf.grad, total, logged)


def ours(monkeypatch: pytest.MonkeyPatch, plan: Any, **settings: Any) -> Any:
    monkeypatch.setenv(plugin.VARIABLE, json.dumps(plan))
    return plugin.TrimtabPolicyLoss(**settings)


def read(settings: dict[str, Any]) -> Any:
    return trimtab.dialects.read(
        "openrlhf", {f"algo.advantage.{name}": value for name, value in settings.items()}
    ).correction


@pytest.mark.parametrize("by_token", [True, False], ids=["token-mean", "seq-mean"])
@pytest.mark.parametrize("own", [MASK, CLIP, SEQUENCE, KL], ids=["mask", "clip", "sequence", "binary_kl"])
def test_the_loss_is_openrlhfs(monkeypatch: pytest.MonkeyPatch, own: dict[str, Any], by_token: bool):
    shape = {"token_level_loss": by_token, "dual_clip": 3.0}
    theirs = step(openrlhf().loss.PolicyLoss(**own, **shape))
    off = step(openrlhf().loss.PolicyLoss(**shape))
    assert 0 < theirs.metrics["is_filter_ratio"] < 1, "the gate has to fire"
    for plan in ({}, {"correction": read(own).settings()}):
        found = step(ours(monkeypatch, plan, **own, **shape))
        same_step(
            "OpenRLHF",
            f"{' '.join(map(str, own.values()))} {'token' if by_token else 'seq'} plan={bool(plan)}",
            theirs,
            found,
            off,
        )
        assert same_metrics(theirs.metrics, found.metrics) == 4


def test_micro_batches_and_ranks_add_up(monkeypatch: pytest.MonkeyPatch):
    loss = ours(monkeypatch, {"correction": read(SEQUENCE).settings()}, **SEQUENCE)
    whole, split = step(loss), step(loss, (slice(0, 3), slice(3, 8)))
    torch.testing.assert_close(whole.gradient, split.gradient)
    torch.testing.assert_close(step(loss, dp_size=2).gradient, 2 * whole.gradient)


def test_a_rule_and_a_loss_that_openrlhf_does_not_have(monkeypatch: pytest.MonkeyPatch):
    off = step(openrlhf().loss.PolicyLoss())
    plan = {"correction": {"preset": "geo-rs+token-mis", "lower": 0.9, "upper": 1.1}, "loss": "cispo"}
    found = step(ours(monkeypatch, plan, **MASK))
    assert (found.gradient - off.gradient).abs().max() > 1e-3 * off.gradient.abs().max() > 0


@pytest.mark.parametrize(
    ("plan", "settings", "words"),
    [
        ({"correction": "token-tis"}, {}, "needs rollout log-probs"),
        ({"kl": 0.1}, {}, "needs a plan without kl"),
        ({"reduction": "token-sum"}, {}, "got reduction token-sum"),
        ({"correction": "m2po"}, MASK, "single sequences"),
        (
            {"correction": {"gates": [{"metric": "ratio", "upper": 1.1}], "denominator": "kept"}},
            MASK,
            "denominator trained",
        ),
        ({"record": "x"}, {}, "needs a plan without record"),
    ],
)
def test_what_cannot_be_honoured_is_refused_when_the_loss_is_made(
    monkeypatch: pytest.MonkeyPatch, plan: Any, settings: Any, words: str
):
    with pytest.raises(ConfigError, match=words):
        ours(monkeypatch, plan, **settings)


def test_the_launcher_starts_ray_with_the_hook_and_runs_the_program_with_its_own_arguments(
    monkeypatch: pytest.MonkeyPatch,
):
    import ray

    seen: dict[str, Any] = {}
    monkeypatch.setattr(ray, "init", lambda **given: seen.update(given))
    monkeypatch.setattr(plugin.runpy, "run_module", lambda name, **_: seen.update(program=name, words=list(sys.argv)))
    monkeypatch.setattr(sys, "argv", ["launcher", "--actor.lr", "1e-6", "--trimtab", "token-tis", "--x"])
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
    plugin.main()
    assert seen["runtime_env"]["worker_process_setup_hook"] == "trimtab.plugins.openrlhf.install"
    assert json.loads(seen["runtime_env"]["env_vars"][plugin.VARIABLE])["correction"]
    assert (seen["program"], seen["words"]) == (
        "openrlhf.cli.train_ppo_ray",
        ["openrlhf.cli.train_ppo_ray", "--actor.lr", "1e-6", "--x"],
    )
    with pytest.raises(ConfigError, match="needs --trimtab"):
        plugin.arguments(["--actor.lr", "1e-6"])


def test_the_class_stands_where_the_actor_imports_it(monkeypatch: pytest.MonkeyPatch):
    import openrlhf.models as models

    monkeypatch.setattr(models, "PolicyLoss", models.PolicyLoss)
    plugin.install()
    assert models.PolicyLoss is plugin.TrimtabPolicyLoss
    theirs, mine = (
        inspect.signature(each.forward).parameters for each in (openrlhf().loss.PolicyLoss, plugin.TrimtabPolicyLoss)
    )
    assert list(theirs) == list(mine)
