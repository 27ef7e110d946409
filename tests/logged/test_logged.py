"""Laws of the scalars under frameworks' names; their numbers are held to the frameworks in tests/dialects and tests/parity."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import trimtab
from trimtab.dialects import Reading, read
from trimtab.errors import InputError
from trimtab.logged import logged

SETTINGS: dict[str, dict[str, Any]] = {
    "verl": {"rollout_is": "token", "rollout_rs": "token_k1,seq_mean_k3", "rollout_rs_threshold": "0.5_2.0,0.5"},
    "areal": {"eps_clip": 0.2, "rejection_sampling": {"level": "sequence", "metric": "ratio", "upper": 1.5}},
    "skyrl": {"policy_loss_type": "regular", "off_policy_correction": {"tis_ratio_type": "token"}},
    "trl": {
        "loss_type": "dapo",
        "vllm_importance_sampling_mode": "token_mask",
        "vllm_importance_sampling_clip_max": 2.0,
    },
    "ms-swift": {"loss_type": "grpo", "rollout_importance_sampling_mode": "token_truncate"},
    "openrlhf": {"policy_loss_type": "ppo", "is_correction_level": "token", "is_correction_threshold": [0.5, 2.0]},
    "slime": {"use_tis": True, "tis_clip": 2.0},
    "nemo-rl": {"use_importance_sampling_correction": True, "token_level_loss": True},
    "roll": {"is_weight": {"enabled": True}, "filters": [{"enabled": True}]},
    "open-instruct": {"use_rho_correction": True},
    "prime-rl": {"type": "default"},
    "miles": {"use_tis": True, "tis_clip": 2.0, "eps_clip": 0.2},
    "tinker": {"loss_fn": "ppo"},
    "tunix": {"agentic_grpo_config": {"sampler_is": "token", "epsilon": 0.2, "beta": 0.0}},
}
PADDING = ("is_ratio_std", "is_ratio_min", "n_tokens")
"""SkyRL lets padding into these."""


def batch() -> dict[str, Tensor]:
    make = torch.Generator().manual_seed(0)
    behavior = -torch.rand(4, 7, generator=make) * 3 - 0.1
    proximal = behavior + 0.3 * torch.randn(4, 7, generator=make)
    current = proximal + 0.2 * torch.randn(4, 7, generator=make)
    mask = torch.arange(7) < torch.tensor([[7], [4], [1], [5]])
    mask[0, 2] = False
    advantages = torch.tensor([1.0, -0.5, 0.3, -2.0])
    return {"behavior": behavior, "proximal": proximal, "current": current, "mask": mask, "advantages": advantages}


def scalars(name: str, given: dict[str, Tensor], **more: Tensor) -> dict[str, float]:
    reading = read(name, SETTINGS[name])
    assert reading.correction is not None
    out = trimtab.correct(reading.correction, **given, **more)
    found = logged(reading, out.metrics)
    if reading.loss is not None and reading.reduction is not None:
        step = trimtab.policy_loss(
            reading.loss, correction=reading.correction, reduction=reading.reduction, **given, **more
        )
        found |= logged(reading, step.metrics)
    return {key: float(value) for key, value in found.items()}


@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_under_a_false_mask_changes_a_scalar(name: str) -> None:
    given, dirty = batch(), batch()
    for place, rubbish in enumerate((math.nan, math.inf, 1e10)):
        for policy in ("behavior", "proximal", "current"):
            dirty[policy] = torch.where(given["mask"], dirty[policy], rubbish)
        assert scalars(name, dirty) == scalars(name, given), place


@pytest.mark.parametrize("name", SETTINGS)
def test_packed_rows_give_the_scalars_of_padded_ones(name: str) -> None:
    given = batch()
    ends = torch.tensor([0, 7, 11, 12, 17])
    inside = torch.arange(7) < (ends[1:] - ends[:-1])[:, None]
    packed = {key: value[inside] if value.ndim == 2 else value for key, value in given.items()}
    padded, found = scalars(name, given), scalars(name, packed, cu_seqlens=ends)
    assert found.keys() == padded.keys()
    for key in found.keys() - set(PADDING):
        assert found[key] == pytest.approx(padded[key], rel=1e-5, abs=1e-6), key


@pytest.mark.parametrize("name", SETTINGS)
def test_every_scalar_is_a_number_where_nothing_is_trained(name: str) -> None:
    given = batch()
    given["mask"] = torch.zeros_like(given["mask"])
    assert all(math.isfinite(value) for value in scalars(name, given).values())


def test_a_batch_without_rows_logs_nothing() -> None:
    empty = {key: value[:0] for key, value in batch().items()}
    reading = read("verl", SETTINGS["verl"])
    assert reading.correction is not None
    assert logged(reading, trimtab.correct(reading.correction, **empty).metrics) == {}


def test_metrics_that_were_copied_are_refused() -> None:
    with pytest.raises(InputError, match="Pass them as they came"):
        logged(Reading("verl"), {})


def test_the_former_name_of_the_package_still_leads_to_it():
    from trimtab.diagnostics.logged import logged as former

    assert former is logged
