"""Recorded losses and gradients of verl, AReaL, SkyRL, TRL, OpenRLHF and prime-rl, reproduced from their own settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.closeness import same_products
from tests.losses.recorded import Case, areal, cases, given, openrlhf, prime_rl, skyrl, trl, verl
from trimtab.config import losses as config
from trimtab.core.correct import Corrected
from trimtab.losses.policy import policy_loss

READERS: dict[str, Callable[[Case], dict[str, Any]]] = {
    "verl-loss": verl,
    "areal-loss": areal,
    "skyrl-loss": skyrl,
    "skyrl-0.4.0-loss": skyrl,
    "trl-loss": trl,
    "openrlhf-loss": openrlhf,
    "prime-rl-correction": prime_rl,
}
RECORDED = [(read, case) for name, read in READERS.items() for case in cases(name)]
PADDED = [(read, case) for read, case in RECORDED if "cu_seqlens" not in case.inputs]


@pytest.mark.filterwarnings("ignore::trimtab.errors.ConfigWarning")
@pytest.mark.parametrize(("read", "case"), RECORDED, ids=[case.id for _, case in RECORDED])
def test_the_recorded_loss_and_gradient_come_out(read: Callable[[Case], dict[str, Any]], case: Case):
    arguments = read(case)
    current = arguments["current"].clone().requires_grad_()
    found = policy_loss(**(arguments | {"current": current}))
    found.loss.backward()
    want = case.outputs["grad"]
    assert current.grad is not None
    assert torch.equal(current.grad == 0, want == 0), "a decision differs"
    same_products(current.grad, want)
    same_products(found.loss.detach(), case.outputs["loss"].reshape(()))


def test_no_recorded_loss_is_left_out() -> None:
    assert len(RECORDED) == 38 + 24 + 20 + 6 + 18 + 11 + 8


@pytest.mark.filterwarnings("ignore::trimtab.errors.ConfigWarning")
@pytest.mark.parametrize(("read", "case"), PADDED, ids=[case.id for _, case in PADDED])
def test_a_recorded_batch_packed_gives_the_same_loss_and_gradient(
    read: Callable[[Case], dict[str, Any]], case: Case
) -> None:
    arguments = read(case)
    rows, width = arguments["mask"].shape
    flat = {name: each.flatten() for name, each in arguments.items() if isinstance(each, Tensor) and each.ndim == 2}
    flat["cu_seqlens"] = torch.arange(0, rows * width + 1, width)
    if isinstance(arguments.get("correction"), Corrected):
        flat["correction"] = given(arguments["correction"].weight.flatten(), flat["mask"])
    current = flat["current"].clone().requires_grad_()
    found = policy_loss(**(arguments | flat | {"current": current}))
    found.loss.backward()
    assert current.grad is not None
    want = case.outputs["grad"]
    same_products(current.grad.reshape(rows, width), want)


CLIPPED = {"actor/pg_clipfrac", "clip_ratio", "ppo_clip_ratio", "clip_ratio/region_mean"}
DRIFT = {"actor/ppo_kl", "ppo_kl"}
BY_TOKEN = (config.Clip, config.Cispo, config.DppoTv, config.DppoKl)
COUNTED_ELSEWHERE = {
    "skyrl-loss-017": "before rejection",
    "skyrl-loss-019": "before rejection",
    "skyrl-0.4.0-loss-005": "before rejection",
    "openrlhf-loss-005": "drift from proximal, though its ratio divides by behavior",
    "verl-loss-017": "the mean of |log ρ|",
    "verl-loss-018": "the mean of |log ρ|",
    "verl-loss-035": "drift before rejection",
    "verl-loss-037": "drift before rejection",
}


@pytest.mark.filterwarnings("ignore::trimtab.errors.ConfigWarning")
def test_recorded_clip_fractions_and_drifts_come_out() -> None:
    compared = 0
    for read, case in RECORDED:
        arguments = read(case)
        found = policy_loss(**arguments).metrics
        ours = dict.fromkeys(DRIFT, found["policy/k1"]) if "policy/k1" in found else {}
        if isinstance(arguments["loss"], BY_TOKEN):
            clipped = found["policy/clip_high"] + found["policy/clip_low"]
            if case.id.startswith("areal"):  # over the tokens before rejection
                clipped = clipped * found.get("kept_fraction", torch.ones(()))
            ours |= dict.fromkeys(CLIPPED, clipped)
        if arguments.get("kl") is not None:
            ours["kl"] = found["policy/kl"]
        for name in set(ours) & set(case.metrics) if case.id not in COUNTED_ELSEWHERE else ():
            assert float(ours[name]) == pytest.approx(case.metrics[name], rel=1e-4, abs=1e-5), (case.id, name)
            compared += 1
    assert compared > 90
