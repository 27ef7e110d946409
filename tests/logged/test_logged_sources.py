"""What miles, Tinker's cookbook and Tunix log, against their sources written out once more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import trimtab
from tests.logged.test_logged import SETTINGS, batch, scalars
from trimtab.dialects import read
from trimtab.logged import logged


def _means(value: Tensor, mask: Tensor) -> Tensor:
    """The mean of each row, averaged over the rows."""
    return ((value * mask).sum(-1) / mask.sum(-1)).mean()


def test_miles_averages_each_answer_and_then_the_answers() -> None:
    x = batch()
    mask, ell = x["mask"], (x["proximal"] - x["behavior"]).double()
    ratio, rho = ell.exp(), (x["current"] - x["proximal"]).double().exp()
    worth = x["advantages"][:, None].double()
    plain, bound = -rho * worth, -rho.clamp(0.8, 1.2) * worth
    sums, squares = (rho * mask).sum(-1), (rho.square() * mask).sum(-1)
    wanted = {
        "tis": _means(ratio, mask),
        "tis_clipfrac": _means((ratio > 2.0).double(), mask),
        "tis_abs": _means((ratio - 1).abs(), mask),
        "train_rollout_logprob_abs_diff": _means(ell.abs(), mask),
        "train_rollout_kl": _means((ratio - 1 - ell).clamp(-10, 10), mask),
        "pg_clipfrac": _means((bound > plain).double(), mask),
        "ppo_kl": _means(-rho.log(), mask),
        "ess_ratio": (sums.square() / (mask.sum(-1) * squares)).mean(),
    }
    found = scalars("miles", x)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == pytest.approx(float(value), rel=1e-5, abs=1e-7), name


def test_the_cookbook_takes_means_over_the_answer_tokens() -> None:
    x = batch()
    off = (x["behavior"] - x["current"]).double()[x["mask"]]
    wanted = {
        "optim/kl_sample_train_v1": off.mean(),
        "optim/kl_sample_train_v2": 0.5 * off.square().mean(),
        "optim/entropy": -x["behavior"].double()[x["mask"]].mean(),
    }
    found = scalars("tinker", x)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == pytest.approx(float(value), rel=1e-5), name


def test_tunix_compares_sampler_and_trainer_and_counts_what_is_cut() -> None:
    x = batch()
    settings: dict[str, Any] = {**SETTINGS["tunix"]["agentic_grpo_config"], "sampler_is_threshold": 1.1}
    reading = read("tunix", {"agentic_grpo_config": settings})
    assert reading.loss is not None
    step = trimtab.policy_loss(reading.loss, correction=reading.correction, reduction=reading.reduction, **x)
    found = logged(reading, step.metrics)
    on = x["mask"]
    trainer, sampler = x["proximal"].double()[on], x["behavior"].double()[on]
    weight = (trainer - sampler).clamp(-20, 20).exp()
    log_rho = (x["current"] - x["proximal"]).double()[on]
    worth = x["advantages"][:, None].expand(4, 7).double()[on]
    plain, bound = -worth * log_rho.exp(), -worth * log_rho.exp().clamp(0.8, 1.2)
    wanted = {
        "sampler_trainer/logp_diff_mean": (trainer - sampler).abs().mean(),
        "sampler_trainer/logp_diff_max": (trainer - sampler).abs().max(),
        "sampler_trainer/prob_diff_mean": (trainer.exp() - sampler.exp()).abs().mean(),
        "sampler_trainer/prob_diff_max": (trainer.exp() - sampler.exp()).abs().max(),
        "sampler_trainer/probs_pearson_corr": torch.corrcoef(torch.stack([trainer.exp(), sampler.exp()]))[0, 1],
        "sampler_is/weight_mean": weight.clamp(max=1.1).mean(),
        "sampler_is/weight_max": weight.clamp(max=1.1).max(),
        "sampler_is/frac_clipped_at_threshold": (weight > 1.1).double().mean(),
        "pg_clipfrac": (bound > plain).double().mean(),
        "ppo_kl": -log_rho.mean(),
        "is_ratio/mean": log_rho.exp().mean(),
        "is_ratio/max": log_rho.exp().max(),
        "is_ratio/min": log_rho.exp().min(),
    }
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert float(found[name]) == pytest.approx(float(value), rel=1e-5), name
    assert 0 < float(wanted["sampler_is/frac_clipped_at_threshold"]) < 1
