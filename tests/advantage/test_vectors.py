"""Recorded advantages and normalisations of eight frameworks, each read as a value of ours by the table below."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from trimtab.advantage.estimate import Advantages, advantages
from trimtab.advantage.normalise import normalised
from trimtab.advantage.shaping import shaped
from trimtab.config.advantages import (
    Gae,
    Gdpo,
    Gpg,
    Grpo,
    LeaveOneOut,
    MaxRl,
    Normalise,
    Opo,
    Overlong,
    PassK,
    ReinforcePlusPlus,
    ReMax,
    Rloo,
    Shaping,
)

VECTORS = Path(__file__).parents[1] / "parity" / "vectors"

NOT_COVERED = {
    "skyrl-advantage-004": "its GAE reads the values of masked tokens between trained ones, which here can change nothing",
    "areal-normalise-032": "its tail rows belong to no group and are divided by eps; here a row without a group is not accepted",
    "areal-normalise-035": "with nothing valid it hands the input back; here what is masked is 0",
}


def _cases(framework: str, family: str) -> list[Any]:
    name = f"{framework}-{family}"
    with np.load(VECTORS / f"{name}.npz") as archive:
        arrays = {key: torch.from_numpy(archive[key]) for key in archive.files}
    found: list[Any] = []
    for line in (VECTORS / f"{name}.jsonl").read_text().splitlines():
        case = SimpleNamespace(**json.loads(line))
        case.inputs = {key: arrays[at] for key, at in case.inputs.items()}
        case.outputs = {key: arrays[at] for key, at in case.outputs.items()}
        if case.id not in NOT_COVERED:
            found.append(pytest.param(case, id=case.id))
    return found


def _agree(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)


# What the frameworks share: every row votes, also one without tokens, and a group of one keeps its reward.
ALL = {"baseline": "all"}
RAW = {"baseline": "all", "singleton": "raw"}
BIASED = Normalise(unbiased=False, eps=1e-8, eps_at="floor")  # OpenRLHF

VERL: dict[str, Callable[[Any], Any]] = {
    "gae": lambda c: Gae(gamma=c["gamma"], lam=c["lam"], **ALL),
    "grpo": lambda c: Grpo(std=c["norm_adv_by_std_in_grpo"], **RAW),
    "grpo_vectorized": lambda c: Grpo(std=c["norm_adv_by_std_in_grpo"], **RAW),
    "rloo": lambda c: Rloo(**RAW),
    "rloo_vectorized": lambda c: Rloo(**ALL),
    "reinforce_plus_plus": lambda c: ReinforcePlusPlus(gamma=c["gamma"], **ALL),
    "reinforce_plus_plus_baseline": lambda c: ReinforcePlusPlus(group_mean=True, **RAW),
    "remax": lambda c: ReMax(**ALL),
    "opo": lambda c: Opo(**RAW),
    "gpg": lambda c: Gpg(factor="nonzero", **RAW),
    "grpo_passk": lambda c: PassK(std=c["norm_adv_by_std_in_grpo"], **ALL),
    "gdpo": lambda c: Gdpo(weights=tuple(c["gdpo_reward_weights"]), normalise=Normalise(), **RAW),
}
SKYRL: dict[str, Callable[[Any], Any]] = {
    "grpo": lambda c: Grpo(std=c["grpo_norm_by_std"], **RAW),
    "rloo": lambda c: Rloo(**ALL),
    "gae": lambda c: Gae(gamma=c["gamma"], lam=c["lambd"], **ALL),
    "reinforce++": lambda c: ReinforcePlusPlus(gamma=c["gamma"], gaps="reset", **ALL),
    "maxrl": lambda c: MaxRl(**ALL),
}
OPENRLHF: dict[str, Callable[[Any], Any]] = {
    "gae": lambda c: Gae(
        gamma=c["algo.advantage.gamma"],
        lam=c["algo.advantage.lambd"],
        gaps="step",
        normalise=BIASED.but(std=None if c.get("algo.advantage.no_std_norm") else "batch"),
    ),
    "reinforce": lambda c: ReinforcePlusPlus(gamma=c["algo.advantage.gamma"], gaps="step", normalise=BIASED),
    "reinforce_baseline": lambda c: ReinforcePlusPlus(group_mean=True, gaps="step", normalise=BIASED),
    "flash_reinforce": lambda c: ReinforcePlusPlus(gaps="step", normalise=None),
    "rloo": lambda c: Rloo(),
    "group_norm": lambda c: Grpo(eps=1e-9),
    "dr_grpo": lambda c: Grpo(std=False),
}
SHAPES = {"flash_reinforce": Shaping(normalise=Normalise(mean="batch", std=None))}


@pytest.mark.parametrize("case", [*_cases("verl", "advantage"), *_cases("skyrl", "advantage")])
def test_verl_and_skyrl_agree(case: Any) -> None:
    table, key = (VERL, "adv_estimator") if case.framework == "verl" else (SKYRL, "advantage_estimator")
    estimator = table[case.config[key]](case.config)
    given = case.inputs
    rewards = given.get("rewards_per_func", given["rewards"])
    if isinstance(estimator, Grpo | Rloo | Opo | Gpg | PassK | MaxRl):
        rewards = rewards.sum(-1)  # these add up the whole row, masked or not
    found = advantages(
        estimator,
        rewards=rewards,
        mask=given["mask"],
        group=given.get("group"),
        values=given.get("values"),
        baselines=given.get("reward_baselines"),
    )
    _agree(found.advantages, case.outputs["advantages"])
    if isinstance(estimator, Gae | ReMax) or case.config[key] in ("reinforce_plus_plus", "reinforce++"):
        assert found.returns is not None
        _agree(found.returns, case.outputs["returns"])


@pytest.mark.parametrize("case", _cases("openrlhf", "advantage"))
def test_openrlhf_agrees(case: Any) -> None:
    name, given = case.config["algo.advantage.estimator"], case.inputs
    found = advantages(
        OPENRLHF[name](case.config),
        rewards=given["rewards"],
        mask=given["mask"],
        group=given["group"],
        values=given.get("values"),
        token_rewards=-case.config["algo.kl.init_coef"] * given["kl"],
        shaping=SHAPES.get(name),
    )
    _agree(found.advantages, case.outputs["advantages"])
    if name in ("gae", "reinforce", "reinforce_baseline", "flash_reinforce"):
        assert found.returns is not None
        _agree(found.returns, case.outputs["returns"])


ROW_WISE = Normalise(unit="sequence", eps=1e-4, eps_at="std")
SCALES = {"group": {"std": True}, "batch": {"std": True, "std_over": "batch"}, "none": {"std": False}}


def _trl(c: Any) -> Any:
    if "normalize_advantages" in c:
        return Rloo(normalise=ROW_WISE if c["normalize_advantages"] else None)
    if c.get("multi_objective_aggregation") == "normalize_then_sum":
        return Gdpo(weights=tuple(c["reward_weights"]), eps=1e-4, normalise=ROW_WISE)
    return Grpo(eps=1e-4, **SCALES[c["scale_rewards"]])


def _swift(c: Any) -> Any:
    if c["scale_rewards"] == "gdpo":
        return Gdpo(weights=tuple(c["reward_weights"]), eps=1e-4, normalise=ROW_WISE)
    scaled = ROW_WISE.but(mean=None) if c["scale_rewards"] == "batch" else None
    return {
        "grpo": lambda: Grpo(eps=1e-4, **SCALES[c["scale_rewards"]]),
        "rloo": lambda: Rloo(),
        "reinforce_plus_plus": lambda: Grpo(std=False, normalise=scaled),
    }[c["advantage_estimator"]]()


def _slime(c: Any) -> Any:
    return Grpo(std=c["advantage_estimator"] == "grpo" and c["grpo_std_normalization"])


def _nemo(c: Any) -> Any:
    return (LeaveOneOut if c["use_leave_one_out_baseline"] else Grpo)(std=c["normalize_rewards"])


ROW_TABLES = {"trl": _trl, "ms-swift": _swift, "slime": _slime, "nemo-rl": _nemo}


@pytest.mark.parametrize("case", [each for name in ROW_TABLES for each in _cases(name, "advantage")])
def test_frameworks_with_one_advantage_per_sequence_agree(case: Any) -> None:
    estimator = ROW_TABLES[case.framework](case.config)
    rewards = case.inputs.get("rewards_per_func", case.inputs.get("rewards"))
    if rewards.ndim == 2 and not isinstance(estimator, Gdpo):
        rewards = rewards @ torch.tensor(case.config["reward_weights"])
    found = advantages(estimator, rewards=rewards, mask=torch.ones(len(rewards), 1), group=case.inputs["group"])
    assert found.rows is not None
    _agree(found.rows, case.outputs["advantages"])


def _areal(c: Any) -> Normalise | None:
    """AReaL takes the deviation about what it subtracted, and its leave-one-out of a group of one is the raw value."""
    if c is None:
        return None
    alone = c.get("mean_leave1out", False)
    return Normalise(
        mean=c["mean_level"],
        std=c["std_level"],
        leave_one_out=alone,
        unbiased=c.get("std_unbiased", True),
        eps=c.get("eps", 1e-5),
        eps_at="std",
        about="subtracted",
        singleton="raw" if alone else "zero",
    )


NORMALISE = _cases("areal", "normalise")


@pytest.mark.parametrize("case", [each for each in NORMALISE if "x" in each.values[0].inputs])
def test_areal_normalisation_agrees(case: Any) -> None:
    norm = _areal(case.config)
    assert norm is not None
    found = normalised(norm, case.inputs["x"], mask=case.inputs.get("mask"), group=case.inputs.get("group"))
    _agree(found, case.outputs["normalised"])


KL = {"k1": lambda d: d, "k2": lambda d: d.square() / 2, "k3": lambda d: (-d).exp() - 1 + d}


def _areal_pipeline(case: Any, fixed: bool) -> Advantages:
    """AReaL's way from rewards to advantages, its `no EOS` (a row as wide as the batch) taken as given.

    As shipped, rows without EOS vote in the reward normalisation; fixed, they do not.
    """
    c, x = case.config, case.inputs
    mask, width = case.outputs["mask_rolled"], x["attention_mask"].shape[1]
    ended = x["attention_mask"].sum(1) < width
    overlong = None
    if c.get("overlong_reward_penalty"):
        overlong = Overlong(
            max_length=c["max_new_tokens"], buffer=c["overlong_tokens"], factor=c["overlong_penalty_factor"], cap=False
        )
    size = (c["reward_norm"] or {}).get("group_size", 1)
    group = torch.arange(len(mask)) // size
    shaping = Shaping(
        bias=c["reward_bias"],
        scale=c["reward_scaling"],
        lower=-c["reward_clip"],
        upper=c["reward_clip"],
        overlong=overlong,
        normalise=_areal(c["reward_norm"]),
        no_eos="bootstrap" if c["mask_no_eos_with_zero"] and fixed else "keep",
    )
    rewards = x["rewards"]
    if not fixed:
        rewards = shaped(shaping, rewards, mask=mask, group=group, baseline="all").rewards
        shaping = Shaping(no_eos="bootstrap" if c["mask_no_eos_with_zero"] else "keep")
    behavior = x["behavior"].roll(-1, -1)
    reference = x.get("reference", torch.zeros_like(behavior))
    penalty = -c["kl_ctl"] * KL[c.get("kl_estimator", "k1")](behavior - reference) * mask
    values = x.get("values", torch.zeros_like(behavior))
    return advantages(
        Gae(gamma=c["discount"], lam=c["gae_lambda"], normalise=None, baseline="all"),
        rewards=rewards,
        mask=mask,
        group=group,
        ended=ended,
        values=values,
        bootstrap=values[:, -1],
        token_rewards=penalty,
        shaping=shaping,
    )


PIPELINES = [each for each in NORMALISE if "attention_mask" in each.values[0].inputs]


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("case", PIPELINES)
def test_areal_pipeline_agrees(case: Any, fixed: bool) -> None:
    found, mask = _areal_pipeline(case, fixed), case.outputs["mask_rolled"]
    ours, norm = found.advantages, _areal(case.config["adv_norm"])
    if norm is not None:  # every row votes here, also one without a task reward; in `advantages` it would not
        ours = normalised(norm, ours, mask=mask)
    _agree(ours, case.outputs["advantages_fixed" if fixed else "advantages"] * mask)
    if not fixed:
        assert found.returns is not None
        _agree(found.returns, case.outputs["returns"] * mask)
