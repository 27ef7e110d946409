"""Every recorded case of every framework through `read`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import trimtab
from tests.closeness import same_differences, same_products
from tests.dialects.recorded import Case, cases
from tests.dialects.scalars import same_scalars
from tests.dialects.way import way
from tests.parity.tally import count
from trimtab import Corrected, Correction, Denominator, Gae, Gdpo, Grpo, PolicyLoss, ReinforcePlusPlus, ReMax, Rloo
from trimtab.dialects import Reading, read, write


def named(family: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in cases(family)])


def mask_of(case: Case) -> Tensor:
    mask = case.inputs["mask"]
    return mask & case.inputs["sample_mask"][:, None] if "sample_mask" in case.inputs else mask


def corrected(case: Case, rule: Correction) -> Corrected:
    x = case.inputs
    return trimtab.correct(
        rule,
        behavior=x.get("behavior", x.get("proximal")),  # slime's sequence mask never looks at behavior
        proximal=x.get("proximal"),
        current=x.get("current"),
        advantages=x.get("advantages"),
        mask=mask_of(case),
        cu_seqlens=x.get("cu_seqlens"),
    )


@named("correction")
def test_a_correction_read_from_a_framework_gives_its_weights_its_mask_and_its_scalars(case: Case) -> None:
    reading = read(case.framework, case.config, version=case.release)
    assert reading.correction is not None
    out = corrected(case, reading.correction)
    assert torch.equal(out.kept, case.outputs["kept"])
    weight = case.outputs["weight"]
    assert torch.equal(out.weight == 0, weight == 0)
    same_products(out.weight, weight)
    count(case.framework, "correction", "recorded")
    same_scalars(reading, out.metrics, case.metrics, case.inputs, "recorded")


METRICS = [case for case in cases("metrics") if "current" not in case.inputs]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in METRICS])
def test_the_scalars_a_framework_logs_come_out_under_its_names(case: Case) -> None:
    reading = read(case.framework, case.config, version=case.release)
    assert reading.correction is not None
    same_scalars(reading, corrected(case, reading.correction).metrics, case.metrics, case.inputs, "recorded")


def step_of(case: Case, reading: Reading, mask: Tensor) -> Denominator | None:
    """The counts of the whole step, as the trainer hands them to the loss."""
    run = case.runtime
    info = run.get("global_batch_info", run)
    if "rl_scale" in run:
        return Denominator(run["rl_scale"], 1.0)
    if "num_items_in_batch" in run:
        return Denominator(run["num_items_in_batch"], len(mask))
    if "batch_num_tokens" in info:
        return Denominator(info["batch_num_tokens"], info["global_batch_size"], averaged_over=info["dp_size"])
    return Denominator(mask.sum(), len(mask)) if reading.rows == "all" else None


def groups_of(case: Case, reading: Reading, mask: Tensor) -> Tensor | None:
    """Prompts, or the micro-batches that SkyRL's legacy token mean averages over."""
    if reading.reduction is None or reading.reduction.mode != "prompt-mean":
        return None
    size = case.runtime.get("micro_train_batch_size_per_gpu")
    return case.inputs["group"] if size is None else torch.arange(len(mask)) // size


LOSSES = [case for case in [*cases("loss"), *cases("correction")] if "loss" in case.outputs]


def descended(case: Case, reading: Reading, current: Tensor) -> PolicyLoss:
    """The loss read from a case's settings on its batch."""
    x, mask = case.inputs, case.inputs["mask"]
    assert reading.loss is not None
    assert reading.reduction is not None
    correction: Correction | Corrected | None = reading.correction
    if "weight" in x:  # verl was handed the weight it computed before
        zeros = torch.zeros_like(x["weight"])
        correction = Corrected(weight=x["weight"], kept=mask, trained=mask, log_r=zeros, metrics={})
    group = groups_of(case, reading, mask)
    by_row = case.framework == "trl"  # one advantage per sequence
    return trimtab.policy_loss(
        reading.loss,
        current=current,
        proximal=x.get("proximal"),
        behavior=None if correction is None else x.get("behavior"),
        reference=x["behavior"] if reading.kl_to == "behavior" else x.get("reference"),
        advantages=(x["advantages"][:, 0] if by_row else x["advantages"]) * reading.advantage_scale,
        mask=mask,
        cu_seqlens=x.get("cu_seqlens"),
        correction=correction,
        reduction=reading.reduction,
        kl=reading.kl,
        group=group,
        denominator=None if group is not None else step_of(case, reading, mask),
    )


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.id}-loss") for case in LOSSES])
def test_a_loss_read_from_a_framework_gives_its_number_its_gradient_and_its_scalars(case: Case) -> None:
    reading = read(case.framework, case.config, width=case.inputs["mask"].shape[-1], version=case.release)
    current = case.inputs["current"].clone().requires_grad_()
    found = descended(case, reading, current)
    found.loss.backward()
    want = case.outputs["grad"]
    assert current.grad is not None
    assert torch.equal(current.grad == 0, want == 0), "a decision differs"
    same_products(current.grad, want)
    count(case.framework, "gradient", "recorded")
    same_products(found.loss.detach(), case.outputs["loss"].reshape(()))
    count(case.framework, "loss", "recorded")
    if case in cases("loss"):  # those of a correction were compared with it
        same_scalars(reading, found.metrics, case.metrics, case.inputs, "recorded")


OF_THE_LOSS = [case for case in cases("metrics") if "current" in case.inputs]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in OF_THE_LOSS])
def test_the_scalars_a_loss_logs_come_out_under_its_names(case: Case) -> None:
    reading = read(case.framework, {"token_level_loss": True, **case.config}, version=case.release)
    same_scalars(
        reading, descended(case, reading, case.inputs["current"]).metrics, case.metrics, case.inputs, "recorded"
    )


NOT_REPRODUCED = {
    "skyrl-advantage-004": "its GAE reads the values of masked tokens between trained ones, which here can change nothing",
    "areal-normalise-032": "its tail rows belong to no group and are divided by eps; here a row without a group is refused",
    "areal-normalise-035": "with nothing valid it hands the input back; here what is masked is 0",
}


def rewards_of(case: Case, reading: Reading) -> Tensor:
    """Rewards as the estimator takes them: outcomes per row, several columns for GDPO, tokens for the rest."""
    estimator = reading.advantage
    if isinstance(estimator, Gdpo):
        return case.inputs["rewards_per_func"]
    if "rewards_per_func" in case.inputs:
        return case.inputs["rewards_per_func"] @ torch.tensor(case.config["reward_weights"])
    rewards = case.inputs["rewards"]
    by_token = isinstance(estimator, Gae | ReinforcePlusPlus | ReMax)
    return rewards.sum(-1) if rewards.ndim == 2 and not by_token else rewards  # verl adds up the row, masked or not


@named("advantage")
def test_an_advantage_read_from_a_framework_gives_its_numbers(case: Case) -> None:
    if case.id in NOT_REPRODUCED:
        pytest.skip(NOT_REPRODUCED[case.id])
    x, reading = case.inputs, read(case.framework, case.config, version=case.release)
    assert reading.advantage is not None
    rewards = rewards_of(case, reading)
    mask = x.get("mask", torch.ones(len(rewards), 1).bool())
    penalty = None if reading.reward_kl is None else -reading.reward_kl.coefficient * x["kl"]
    found = trimtab.advantages(
        reading.advantage,
        rewards=rewards,
        mask=mask,
        group=x.get("group"),
        values=x.get("values"),
        baselines=x.get("reward_baselines"),
        token_rewards=penalty,
        shaping=reading.shaping[-1] if reading.shaping else None,
    )
    want = case.outputs["advantages"]
    same_differences(found.advantages if want.ndim == 2 else found.rows, want)
    count(case.framework, "advantage", "recorded")
    learns = isinstance(reading.advantage, Gae | ReMax | ReinforcePlusPlus)
    if "returns" in case.outputs and learns and "baseline" not in str(case.config):
        same_differences(found.returns, case.outputs["returns"])


NORMALISE = [case for case in cases("normalise") if "x" in case.inputs]
PIPELINES = [case for case in cases("normalise") if "x" not in case.inputs]
BY_GROUP = [
    case
    for case in NORMALISE
    if case.config.get("mean_level") == "group"
    and "mask" not in case.inputs
    and case.id not in NOT_REPRODUCED
    and not (case.config.get("mean_leave1out") and case.config["std_level"])
    and case.config.get("std_level") != "batch"
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in NORMALISE])
def test_a_normalisation_read_from_areal_gives_its_numbers(case: Case) -> None:
    if case.id in NOT_REPRODUCED:
        pytest.skip(NOT_REPRODUCED[case.id])
    reading = read("areal", {"actor": {"adv_norm": case.config}})
    assert reading.advantage is not None
    norm = reading.advantage.normalise
    assert norm is not None
    x = case.inputs
    same_differences(
        trimtab.normalised(norm, x["x"], mask=x.get("mask"), group=x.get("group")),
        case.outputs["normalised"],
    )
    count(case.framework, "normalise", "recorded")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in BY_GROUP])
def test_a_reward_norm_of_groups_read_from_areal_is_an_estimator_with_its_numbers(case: Case) -> None:
    rewards, group = case.inputs["x"].float(), case.inputs["group"]
    actor = {"reward_norm": case.config, "kl_ctl": 0.0, "reward_clip": 1e12}
    reading = read("areal", {"actor": actor})
    assert isinstance(reading.advantage, Grpo | Rloo)
    again = read("areal", write("areal", reading).settings)
    assert again.advantage == reading.advantage
    found = trimtab.advantages(reading.advantage, rewards=rewards, mask=torch.ones(len(rewards), 3).bool(), group=group)
    assert found.rows is not None
    same_differences(found.rows, case.outputs["normalised"])
    count(case.framework, "advantage", "recorded")


def test_recorded_reward_norms_of_groups_are_among_those() -> None:
    assert len(BY_GROUP) >= 4


@pytest.mark.parametrize("documented", [False, True])
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in PIPELINES])
def test_the_way_from_rewards_to_advantages_read_from_areal_gives_its_numbers(case: Case, documented: bool) -> None:
    x, mask = case.inputs, case.outputs["mask_rolled"]
    critic = {"critic": {"is_critic": True}} if "values" in x else {}
    reading = read("areal", {**case.config, **critic}, documented=documented)
    size = (case.config["reward_norm"] or {}).get("group_size", 1)
    given = {name: x[name] for name in x if name != "loss_mask"}
    advantages, returns = way(reading, mask=mask, size=size, **given)
    same_differences(advantages, case.outputs["advantages_fixed" if documented else "advantages"] * mask)
    count(case.framework, "advantage", "recorded")
    if not documented and returns is not None:
        same_differences(returns, case.outputs["returns"] * mask)
