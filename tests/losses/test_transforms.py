"""`torch.compile(fullgraph=True)` traces losses and advantages whole, and `torch.func.grad` differentiates the losses."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from trimtab import preset
from trimtab.config.losses import LOSSES, EntropyBonus, KlPenalty
from trimtab.losses.policy import policy_loss

# In a process of its own: the run-time shape checker of the tests is not made to be traced.
BATCH = """
import torch
from trimtab import KlPenalty, Normalise, Shaping, preset
from trimtab.config import advantages as adv
from trimtab.config import losses as config
from trimtab.advantage.estimate import advantages
from trimtab.losses.policy import policy_loss

rows, width = 6, 8
generator = torch.Generator().manual_seed(0)
proximal = -torch.rand(rows, width, generator=generator)
current = proximal + 0.3 * torch.randn(rows, width, generator=generator)
mask = torch.rand(rows, width, generator=generator) < 0.8
score = torch.randn(rows, generator=generator)
group, bounds = torch.tensor([0, 0, 0, 1, 1, 1]), torch.arange(rows + 1) * width


def compiled(step, backend):
    torch.compiler.reset()
    return torch.compile(step, fullgraph=True, backend=backend)


def compare(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
"""

LOSS = """
rule, kl = preset("geo-rs+token-mis"), KlPenalty(coefficient=0.1)
kinds = (config.Clip, config.Gspo, config.Luspo, config.Cispo, config.Gmpo, config.KlCov, config.Vespo)
cases = [(kind(), {}) for kind in kinds]
for name in ("seq-mean-token-mean", "prompt-mean"):
    cases.append((config.Clip(dual=3.0), {"reduction": name, "group": group, "correction": None}))
for number, (loss, more) in enumerate(cases):
    packed = number % 2 == 1
    tensors = [each.flatten() if packed else each for each in (current, proximal, mask)]
    settings = {"correction": rule, "kl": kl, "cu_seqlens": bounds if packed else None} | more

    def step(now, before, mask):
        policies = {"current": now, "proximal": before, "behavior": before, "reference": before}
        out = policy_loss(loss, **policies, mask=mask, advantages=score, **settings)
        return out.loss, out.metrics["policy/ratio_mean"], out.metrics["advantage/missing_fraction"]

    def found(step):
        leaf = tensors[0].clone().requires_grad_()
        loss, *metrics = step(leaf, *tensors[1:])
        loss.backward()
        return loss.detach(), leaf.grad, *metrics

    compare(found(compiled(step, "aot_eager")), found(step))
    print(loss.kind)
"""

NAMES = """
asked = {
    "names": {"loss": "gspo", "correction": "token-tis", "kl": 0.05, "entropy_bonus": 0.02},
    "values": {
        "loss": config.Gspo(),
        "correction": preset("token-tis"),
        "kl": KlPenalty(coefficient=0.05),
        "entropy_bonus": config.EntropyBonus(coefficient=0.02),
    },
}
estimator, seen = {"names": "grpo", "values": adv.Grpo()}, []
for packed in (False, True):
    tensors = [each.flatten() if packed else each for each in (current, proximal, mask)]
    for name, settings in asked.items():

        def step(now, before, mask):
            policies = {"current": now, "proximal": before, "behavior": before + 0.2 * before.square(), "reference": before}
            worth = advantages(
                estimator[name],
                rewards=score, mask=mask, group=group, groups=2, cu_seqlens=bounds if packed else None,
            )
            out = policy_loss(
                **settings, **policies, entropy=now.square(), mask=mask, advantages=worth.advantages, cu_seqlens=bounds if packed else None
            )
            names = ("policy/kl", "policy/entropy", "weight/max", "positive_fraction")
            return out.loss, *(out.metrics[each] for each in names)

        def found(step):
            leaf = tensors[0].clone().requires_grad_()
            loss, *metrics = step(leaf, *tensors[1:])
            loss.backward()
            return loss.detach(), leaf.grad, *metrics

        seen.append(found(step))
        if name == "names":  # values are compiled one by one above
            compare(found(compiled(step, "aot_eager")), seen[-1])
            print(name)
    compare(seen[-1], seen[-2])  # a name is its value
assert seen[0][1].abs().max() > 0
"""

ADVANTAGE = """
estimators = [
    adv.Gae(), adv.Grpo(std_over="batch", normalise=Normalise()), adv.LeaveOneOut(), adv.Gpg(), adv.PassK(),
    adv.Gdpo(weights=(1.0, 0.5)), adv.MaxRl(), adv.ReinforcePlusPlus(group_mean=True),
]
for number, estimator in enumerate(estimators):
    packed = number % 2 == 1
    laid = (lambda each: each.flatten()) if packed else (lambda each: each)
    needs = {"gae": {"values": laid(current)}}.get(estimator.kind, {})
    shaping = Shaping(scale=2.0, normalise=Normalise()) if number % 3 == 1 and estimator.kind != "gdpo" else None
    rewards = torch.stack([score, score.square()], -1) if estimator.kind == "gdpo" else score

    def step(rewards, mask):
        out = advantages(
            estimator, rewards=rewards, mask=mask, group=group, groups=2, shaping=shaping, cu_seqlens=bounds if packed else None, **needs
        )
        return out.advantages, out.metrics["reward_mean"], out.metrics["groups"]

    compare(compiled(step, "eager")(rewards, laid(mask)), step(rewards, laid(mask)))
    print(estimator.kind)
"""


@pytest.mark.parametrize(
    ("script", "number"), [(LOSS, 9), (NAMES, 2), (ADVANTAGE, 8)], ids=["losses", "names", "advantages"]
)
def test_it_compiles_to_one_graph(script: str, number: int) -> None:
    run = subprocess.run([sys.executable, "-c", BATCH + script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert len(run.stdout.split()) == number


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_a_functional_gradient_is_the_gradient(kind: str, packed: bool) -> None:
    rows, width = 5, 6
    draw = torch.Generator().manual_seed(0)
    proximal = -torch.rand(rows, width, generator=draw)
    current = proximal + 0.3 * torch.randn(rows, width, generator=draw)
    mask = torch.rand(rows, width, generator=draw) < 0.8
    if packed:
        current, proximal, mask = current.flatten(), proximal.flatten(), mask.flatten()

    def loss(now: torch.Tensor) -> torch.Tensor:
        return policy_loss(
            LOSSES[kind](),
            current=now,
            proximal=proximal,
            behavior=proximal,
            reference=proximal - 0.1,
            entropy=now.square(),
            mask=mask,
            advantages=torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0]),
            cu_seqlens=torch.arange(rows + 1) * width if packed else None,
            correction=preset("geo-rs+token-mis"),
            kl=KlPenalty(coefficient=0.1),
            entropy_bonus=EntropyBonus(coefficient=0.1),
            generator=torch.Generator().manual_seed(0),
        ).loss

    leaf = current.clone().requires_grad_()
    loss(leaf).backward()
    assert leaf.grad is not None
    assert leaf.grad.any()
    torch.testing.assert_close(torch.func.grad(loss)(current), leaf.grad)
