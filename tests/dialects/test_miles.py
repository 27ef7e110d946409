"""miles' weights, losses and advantages against the same written out once more, answer by answer and from its sources."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import trimtab
from tests.dialects.test_objectives import REWARDS, advantages, batch, same
from trimtab.dialects import read
from trimtab.dialects.recognise import recognise

ICEPOP = "miles.backends.training_utils.loss.icepop_function"


def _clipped(now: Tensor, old: Tensor, worth: Tensor) -> Tensor:
    rho = (now - old).exp()
    loss = torch.maximum(-rho * worth, -rho.clamp(0.9, 1.2) * worth)
    return torch.where(worth < 0, torch.minimum(-1.3 * worth, loss), loss)


def _recipe(x: dict[str, Tensor], config: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """`compute_mis_weights`: the weight and the mask that is left."""
    weights, masks = torch.zeros_like(x["behavior"]), torch.zeros_like(x["behavior"])
    for row in range(len(weights)):
        mask = x["mask"][row].double()
        log = x["proximal"][row] - x["behavior"][row]
        gathered = {"token": log, "sequence": (log * mask).sum(), "geometric": (log * mask).sum() / mask.sum()}
        levels = {name: value.clamp(-20, 20).exp().expand_as(log) for name, value in gathered.items()}
        weight, left = levels[config["tis_level"]], mask.clone()
        low, high = config["tis_lower_bound"], config["tis_upper_bound"]
        if config["tis_mode"] == "mask":
            left = left * ((weight >= low) & (weight <= high))
        weight = {"truncate": weight.clamp(0, high), "clip": weight.clamp(low, high), "mask": weight}[
            config["tis_mode"]
        ]
        if config["use_rs"]:
            judged = levels[config["rs_level"]]
            left = left * ((judged >= config["rs_lower_bound"]) & (judged <= config["rs_upper_bound"]))
            if bool(((log < torch.tensor(config["rs_veto_threshold"]).log()) & x["mask"][row]).any()):
                left = left * 0
        weights[row], masks[row] = weight, left
    return weights, masks


PLAIN = {"advantage_estimator": "grpo", "eps_clip": 0.1, "eps_clip_high": 0.2, "eps_clip_c": 1.3}
PATHS: dict[str, dict[str, Any]] = {
    "tis": {"use_tis": True, "tis_clip": 1.2, "tis_clip_low": 0.9},
    "icepop": {"use_tis": True, "tis_clip": 1.2, "tis_clip_low": 0.9, "custom_tis_function_path": ICEPOP},
    "rollout": {"use_rollout_logprobs": True},
    "off": {"use_tis": False},
}


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("by_token", [False, True])
def test_three_policies_meet_in_the_loss_as_in_the_source(name: str, by_token: bool) -> None:
    x = batch(4)
    ratio = (x["proximal"] - x["behavior"]).exp()
    weight = {
        "tis": ratio.clamp(0.9, 1.2),
        "icepop": torch.where((ratio >= 0.9) & (ratio <= 1.2), ratio, 0.0),
        "rollout": torch.ones_like(ratio),
        "off": torch.ones_like(ratio),
    }[name]
    old = x["behavior"] if name == "rollout" else x["proximal"]

    def formula(now: Tensor) -> Tensor:
        loss = weight * _clipped(now, old, x["advantages"]) * x["mask"]
        return loss.sum() / x["mask"].sum() if by_token else (loss.sum(-1) / x["mask"].sum(-1)).mean()

    same(read("miles", {**PLAIN, **PATHS[name], "calculate_per_token_loss": by_token}), formula, x)


RECIPE = {
    "use_tis": True,
    "custom_tis_function_path": "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp",
    "tis_lower_bound": 0.8,
    "tis_upper_bound": 1.3,
    "rs_lower_bound": 0.85,
    "rs_upper_bound": 1.15,
    "rs_veto_threshold": 0.4,
}


@pytest.mark.parametrize("mode", ["truncate", "clip", "mask"])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("rejects", ["", "token", "sequence", "geometric"])
def test_the_recipe_weighs_and_rejects_as_in_the_source(mode: str, level: str, rejects: str) -> None:
    config = RECIPE | {"tis_mode": mode, "tis_level": level, "use_rs": bool(rejects), "rs_level": rejects or "token"}
    some = 0
    for seed in range(4):
        x = batch(seed, rows=6)
        weight, left = _recipe(x, config)
        some += int(((left > 0) != x["mask"]).sum())

        def formula(now: Tensor, x: dict[str, Tensor] = x, weight: Tensor = weight, left: Tensor = left) -> Tensor:
            loss = weight * _clipped(now, x["proximal"], x["advantages"]) * left
            return (loss.sum(-1) / x["mask"].sum(-1)).mean()

        same(read("miles", PLAIN | config), formula, x)
    assert (some > 0) == (bool(rejects) or mode == "mask")


def test_the_recipe_does_not_normalise_unless_told_to() -> None:
    settings = {"use_tis": True, "tis_mode": "truncate"}
    rules = [read(name, settings).correction for name in ("miles", "slime")]
    assert [rule.normalize if rule else "" for rule in rules] == [None, "batch"]


@pytest.mark.parametrize("name", ["grpo", "gspo", "reinforce_plus_plus_baseline"])
def test_rewards_are_centred_and_scaled_by_the_estimators_name(name: str) -> None:
    group = REWARDS.view(2, 4)
    centred = group - group.mean(1, keepdim=True)
    wanted = centred / (centred.std(1, keepdim=True) + 1e-6) if name != "reinforce_plus_plus_baseline" else centred
    found = advantages(read("miles", {"advantage_estimator": name}), REWARDS, group=torch.arange(8) // 4)
    torch.testing.assert_close(found, wanted.reshape(-1, 1))


def test_opsm_drops_what_moved_away_and_lost() -> None:
    x = batch(9)
    means = ((x["proximal"] - x["current"]) * x["mask"]).sum(-1, keepdim=True) / x["mask"].sum(-1, keepdim=True)
    off = (x["advantages"] < 0) & (means > 0.02)
    assert 0 < int((off & x["mask"]).sum()) < int(x["mask"].sum())

    def formula(now: Tensor) -> Tensor:
        loss = _clipped(now, x["proximal"], x["advantages"]) * ~off * x["mask"]
        return (loss.sum(-1) / x["mask"].sum(-1)).mean()

    same(read("miles", PLAIN | {"use_opsm": True, "opsm_delta": 0.02}), formula, x)


def test_tokens_of_earlier_weights_leave_the_mask_and_not_the_correction() -> None:
    config = {"use_tis": True, "partial_rollout": True, "mask_offpolicy_in_partial_rollout": True}
    reading = read("miles", PLAIN | config)
    assert "pass them masked" in " ".join(each.text for each in reading.findings)
    assert reading.correction == read("miles", PLAIN | {"use_tis": True}).correction


def test_a_file_that_both_could_have_is_slimes_and_one_key_of_its_own_makes_it_miles() -> None:
    shared = {"use_tis": True, "tis_clip": 2.0, "rollout_max_response_len": 8192, "hf_checkpoint": "m"}
    assert recognise(shared).framework == "slime"
    assert recognise(shared | {"use_miles_router": True}).framework == "miles"
    assert recognise({"use_tis": True, "eps_clip": 0.2}).framework == "slime"
    assert trimtab.dialects.read("miles", shared).correction == trimtab.dialects.read("slime", shared).correction
