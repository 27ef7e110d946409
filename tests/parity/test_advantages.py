"""Our advantages and normalisations, read from a framework's settings, against the framework itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import peers
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

import trimtab
from tests.closeness import same_differences
from tests.dialects.way import way
from tests.parity.batches import Batch, batches, few, numbers
from tests.parity.not_covered import NOT_RUN
from tests.parity.tally import count
from trimtab import Gae, Gdpo, ReinforcePlusPlus, ReMax
from trimtab.dialects import Reading, read, write

Settings = dict[str, Any]


@st.composite
def rewards(draw: st.DrawFn, rows: int = 6, columns: int = 0) -> Tensor:
    seed = draw(st.integers(0, 2**31))
    return torch.randn((rows, columns) if columns else (rows,), generator=torch.Generator().manual_seed(seed))


def agreed(framework: str, ours: Tensor | None, theirs: Tensor, family: str = "advantage") -> None:
    """The framework's numbers are ours."""
    assert ours is not None
    same_differences(ours, theirs.float())
    count(framework, family, "live")


def placed(batch: Batch, scores: Tensor) -> Tensor:
    """Each row's reward on its last trained token."""
    last = (batch.mask * torch.arange(1, batch.mask.shape[1] + 1)).argmax(1)
    return torch.zeros(batch.mask.shape).index_put((torch.arange(len(last)), last), scores[: len(last)])


def estimated(reading: Reading, batch: Batch, tokens: Tensor, **more: Any) -> trimtab.Advantages:
    assert reading.advantage is not None
    by_token = isinstance(reading.advantage, Gae | ReinforcePlusPlus | ReMax)
    given_rewards = tokens if by_token else tokens.sum(-1)
    return trimtab.advantages(reading.advantage, rewards=given_rewards, mask=batch.mask, group=batch.group, **more)


VERL = ["gae", "grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "reinforce_plus_plus", "opo", "gpg", "grpo_passk"]
VERL += ["reinforce_plus_plus_baseline", "remax"]


@few
@given(st.sampled_from(VERL), numbers(0.9, 1), numbers(0.8, 1), st.booleans(), rewards(), rewards(), batches())
def test_verl(name: str, gamma: float, lam: float, by_std: bool, scores: Tensor, greedy: Tensor, batch: Batch) -> None:
    settings = {"adv_estimator": name, "gamma": gamma, "lam": lam, "norm_adv_by_std_in_grpo": by_std}
    tokens = placed(batch, scores)
    values = {"values": batch.behavior * batch.mask} if name == "gae" else {}
    greedy = greedy[: len(tokens)]
    rest = {key: value for key, value in settings.items() if key != "adv_estimator"}
    group = None if name in ("gae", "reinforce_plus_plus", "remax") else batch.group
    more = {"reward_baselines": greedy} if name == "remax" else {}
    theirs, _ = peers.verl_advantage(name, tokens, batch.mask, group=group, **values, **more, **rest)
    baselines = {"baselines": greedy} if name == "remax" else {}
    found = estimated(read("verl", settings), batch, tokens, **values, **baselines)
    agreed("verl", found.advantages, torch.where(batch.mask, theirs, 0.0))


OPTIMAL = ["optimal_token_baseline", "tir_optimal_token_baseline"]


@few
@given(st.sampled_from(OPTIMAL), st.booleans(), rewards(), batches())
def test_verl_optimal_token_baselines(name: str, weighted: bool, scores: Tensor, batch: Batch) -> None:
    if name == "optimal_token_baseline":  # it counts untrained tokens as steps: run without gaps
        lengths = batch.mask.sum(-1, keepdim=True)
        batch = replace(batch, mask=torch.arange(batch.mask.shape[1]) < lengths)
    tokens, squares = placed(batch, scores), (2 * batch.proximal).exp() + 0.05
    weight = (batch.proximal - batch.behavior).exp().clamp(max=2.0) if weighted else None
    theirs, _ = peers.verl_advantage(
        name,
        tokens,
        batch.mask,
        group=batch.group,
        old_log_probs=batch.proximal,
        sum_pi_squared=squares,
        rollout_is_weights=weight,
    )
    given = {"proximal": batch.proximal, "squares": squares, "weight": weight}
    reading = read("verl", {"adv_estimator": name})
    assert reading.advantage is not None
    found = trimtab.advantages(reading.advantage, rewards=tokens, mask=batch.mask, group=batch.group, **given)
    agreed("verl", found.advantages, torch.where(batch.mask, theirs, 0.0))


@few
@given(rewards(columns=2), numbers(0.2, 2), batches())
def test_verl_gdpo(scores: Tensor, weight: float, batch: Batch) -> None:
    settings: Settings = {"adv_estimator": "gdpo", "gdpo_reward_weights": [1.0, weight]}
    columns = scores[: len(batch.mask)]
    # Where two standardised rewards cancel, as in groups of two that they rank the other way round, rounding is all that is left to divide.
    assume(_spread(columns, batch.group, torch.tensor([1.0, weight])) > 0.05)
    rest: Settings = {"gdpo_reward_keys": ["right", "short"], "gdpo_reward_weights": [1.0, weight]}
    tokens = placed(batch, columns.sum(-1))
    theirs, _ = peers.verl_advantage("gdpo", tokens, batch.mask, group=batch.group, rewards_per_func=columns, **rest)
    reading = read("verl", settings)
    assert reading.advantage is not None
    found = trimtab.advantages(reading.advantage, rewards=columns, mask=batch.mask, group=batch.group)
    agreed("verl", found.advantages, torch.where(batch.mask, theirs, 0.0))


def _spread(columns: Tensor, group: Tensor, weights: Tensor) -> float:
    """The deviation of what GDPO divides by its deviation: the sum of rewards standardised in their groups."""
    parts = torch.zeros_like(columns)
    for each in group.unique():
        some = columns[group == each]
        parts[group == each] = (some - some.mean(0)) / (some.std(0) + 1e-6) if len(some) > 1 else some
    return float((parts * weights).sum(-1).std())


SKYRL = ["grpo", "rloo", "reinforce++", "maxrl", "gae"]


@few
@given(st.sampled_from(SKYRL), st.booleans(), numbers(0.9, 1), numbers(0.8, 1), rewards(), batches())
def test_skyrl(name: str, by_std: bool, gamma: float, lam: float, scores: Tensor, batch: Batch) -> None:
    settings: Settings = {"advantage_estimator": name, "grpo_norm_by_std": by_std, "gamma": gamma, "lambd": lam}
    values: Settings = {}
    if (
        name == "gae"
    ):  # it reads the values of masked tokens, which here can change nothing: no gaps, and 0 after the end
        whole = torch.arange(batch.mask.shape[1]) < batch.mask.sum(1, keepdim=True)
        batch = replace(batch, mask=whole)
        values = {"values": batch.behavior * whole}
    scores = scores.abs() + 0.1 if name == "maxrl" else scores  # it divides by the mean of the group
    tokens = placed(batch, scores)
    rest = {key: value for key, value in settings.items() if key != "advantage_estimator"}
    theirs, _ = peers.skyrl_advantage(name, tokens, batch.mask, group=batch.group, **values, **rest)
    found = estimated(read("skyrl", settings), batch, tokens, **values)
    agreed("skyrl", found.advantages, torch.where(batch.mask, theirs, 0.0))


@few
@given(st.sampled_from(["group", "batch", "none"]), rewards(columns=2), st.booleans())
def test_trl(scale: str, scores: Tensor, each: bool) -> None:
    settings: Settings = {"scale_rewards": scale, "num_generations": 3, "reward_weights": [1.0, 0.5]}
    if each:
        settings["multi_objective_aggregation"] = "normalize_then_sum"
    theirs = peers.trl_advantage(scores, **settings)
    agreed("trl", by_row(read("trl", settings), scores, settings), theirs)


def by_row(reading: Reading, scores: Tensor, settings: Settings) -> Tensor | None:
    """One advantage per row; rows of a prompt are consecutive."""
    assert reading.advantage is not None
    several = isinstance(reading.advantage, Gdpo)
    summed = scores if several else scores @ torch.tensor(settings["reward_weights"])
    group = torch.arange(len(scores)) // settings["num_generations"]
    return trimtab.advantages(
        reading.advantage,
        rewards=summed,
        mask=torch.ones(len(scores), 1).bool(),
        group=group,
        shaping=reading.shaping[-1] if reading.shaping else None,
    ).advantages[:, 0]


@few
@given(st.booleans(), rewards(columns=1))
def test_trl_rloo(normalize: bool, scores: Tensor) -> None:
    settings: Settings = {"normalize_advantages": normalize, "num_generations": 3}
    theirs = peers.trl_rloo_advantage(scores, **settings)
    agreed("trl", by_row(read("trl", settings), scores, settings | {"reward_weights": [1.0]}), theirs)


SWIFT = [
    *(("grpo", scale) for scale in ("group", "batch", "none", "gdpo")),
    *(("rloo", scale) for scale in ("group", "batch", "none")),
    *(("reinforce_plus_plus", scale) for scale in ("group", "batch", "none")),
]


@few
@given(st.sampled_from(SWIFT), rewards(columns=2))
def test_swift(kind: tuple[str, str], scores: Tensor) -> None:
    settings: Settings = {
        "advantage_estimator": kind[0],
        "scale_rewards": kind[1],
        "num_generations": 3,
        "reward_weights": [1.0, 0.5],
    }
    theirs = peers.swift_advantage(scores, **settings)
    agreed("ms-swift", by_row(read("ms-swift", settings), scores, settings), theirs)


@few
@given(numbers(0.0, 2), rewards(), batches())
def test_swift_with_a_teacher(coefficient: float, scores: Tensor, batch: Batch) -> None:
    base = scores[: len(batch.mask)]
    expand = peers.swift().advantage.expand_advantage_to_per_token
    theirs = expand(base, batch.mask, batch.reference, batch.proximal, coefficient)
    settings = {"advantage_estimator": "grpo", "teacher_model": "t", "teacher_kl_coef": coefficient}
    reading = read("ms-swift", settings)
    assert isinstance(reading.advantage, trimtab.Distillation)
    alone = reading.advantage.but(base=None)  # its own base is held to theirs above
    found = trimtab.advantages(alone, mask=batch.mask, teacher=batch.reference, proximal=batch.proximal)
    both = torch.where(batch.mask, found.advantages + base[:, None], 0.0)
    agreed("ms-swift", both, torch.where(batch.mask, theirs, 0.0))


OPENRLHF = ["gae", "reinforce", "reinforce_baseline", "flash_reinforce", "rloo", "group_norm", "dr_grpo"]


@few
@given(st.sampled_from(OPENRLHF), numbers(0.9, 1), st.booleans(), rewards(), batches())
def test_openrlhf(name: str, gamma: float, plain: bool, scores: Tensor, batch: Batch) -> None:
    gamma = gamma if name in ("gae", "reinforce") else 1.0
    settings = {"algo.advantage.estimator": name, "algo.advantage.gamma": gamma, "algo.advantage.no_std_norm": plain}
    values = {"values": batch.behavior * batch.mask} if name == "gae" else {}
    rows = len(batch.mask)
    theirs, _ = peers.openrlhf_advantage(
        name, scores[:rows], batch.mask, 2, kl=torch.zeros(batch.mask.shape), gamma=gamma, no_std_norm=plain, **values
    )
    reading = read("openrlhf", settings)
    assert reading.advantage is not None
    found = trimtab.advantages(
        reading.advantage,
        rewards=scores[:rows],
        mask=batch.mask,
        group=batch.group,
        shaping=reading.shaping[-1] if reading.shaping else None,
        **values,
    )
    agreed("openrlhf", found.advantages, torch.where(batch.mask, theirs, 0.0))


@few
@given(
    st.sampled_from(["batch", "group", None]),
    st.sampled_from(["batch", "group", None]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1e-5, 1e-3]),
    rewards(),
)
def test_areal_normalisation(
    mean: str | None, std: str | None, alone: bool, unbiased: bool, eps: float, scores: Tensor
) -> None:
    if (mean, std) == (None, None):
        return
    settings = {
        "mean_level": mean,
        "std_level": std,
        "mean_leave1out": alone and mean is not None,
        "std_unbiased": unbiased,
        "eps": eps,
        "group_size": 3,
    }
    reading = read("areal", {"actor": {"adv_norm": settings}})
    assert reading.advantage is not None
    norm = reading.advantage.normalise
    assert norm is not None
    ours = trimtab.normalised(norm, scores, group=torch.arange(6) // 3)
    agreed("areal", ours, peers.areal_normalise(scores, None, **settings), "normalise")
    if settings["mean_leave1out"] and not unbiased and std is not None:
        return  # a lone element is divided by its own size there, which is a finding
    lone = torch.tensor([True, True, True, False, True, False])  # one valid element in the second group
    ours = trimtab.normalised(norm, scores, mask=lone, group=torch.arange(6) // 3)
    agreed("areal", ours, peers.areal_normalise(scores, lone, **settings), "normalise")


NORM = st.fixed_dictionaries(
    {
        "mean_level": st.sampled_from(["batch", "group", None]),
        "std_level": st.sampled_from(["batch", "group"]),
        "std_unbiased": st.booleans(),
        "eps": st.sampled_from([1e-5, 1e-3]),
        "group_size": st.just(2),
    }
)


@st.composite
def pipelines(draw: st.DrawFn) -> Settings:
    """What AReaL does to rewards on their way to advantages."""
    found: Settings = {
        "reward_scaling": draw(numbers(0.5, 5)),
        "reward_bias": draw(numbers(-1, 1)),
        "reward_clip": draw(numbers(0.5, 5)),
        "kl_ctl": draw(st.sampled_from([0.0, 0.1])),
        "kl_estimator": draw(st.sampled_from(["k1", "k2", "k3"])),
        "mask_no_eos_with_zero": draw(st.booleans()),
        "discount": draw(st.just(1.0) | numbers(0.9, 1)),
        "gae_lambda": draw(st.just(1.0) | numbers(0.8, 1)),
        "reward_norm": draw(st.none() | NORM),
        "adv_norm": draw(
            st.none() | NORM.map(lambda norm: norm | {"group_size": 1, "mean_level": "batch", "std_level": "batch"})
        ),
    }
    if draw(st.booleans()):
        found |= {"overlong_reward_penalty": True, "max_new_tokens": 7, "overlong_tokens": draw(st.integers(1, 5))}
        found["overlong_penalty_factor"] = draw(numbers(0.2, 2))
    return found


@few
@given(pipelines(), st.booleans(), st.booleans(), rewards(), batches())
def test_areal(settings: Settings, learns: bool, compares: bool, scores: Tensor, batch: Batch) -> None:
    rows, width = batch.mask.shape
    place = torch.arange(width)
    lengths = batch.mask.sum(1, keepdim=True).clamp(min=3)
    lengths[0] = width  # cut off before it ended
    attention, loss_mask = place < lengths, (place > 0) & (place < lengths)
    given_tensors = {"reference": batch.reference} if compares else {}
    given_tensors |= {"values": batch.current} if learns else {}
    theirs = peers.areal_advantages(
        scores[:rows], attention, loss_mask, batch.behavior, use_decoupled_loss=True, **given_tensors, **settings
    )
    mask = loss_mask.roll(-1, -1)
    advantages, returns = way(
        read("areal", {**settings, **({"critic": {"is_critic": True}} if learns else {})}),
        rewards=scores[:rows],
        mask=mask,
        size=2,
        attention_mask=attention,
        behavior=batch.behavior,
        **given_tensors,
    )
    agreed("areal", advantages, theirs["advantages"] * mask)
    if returns is not None:
        same_differences(returns, theirs["returns"] * mask)


@few
@given(st.booleans(), st.booleans(), st.sampled_from([1e-5, 1e-3]), rewards(), batches())
def test_areal_s_main_recipe(by_std: bool, unbiased: bool, eps: float, scores: Tensor, batch: Batch) -> None:
    norm = {"mean_level": "group", "std_level": "group" if by_std else None, "std_unbiased": unbiased, "eps": eps}
    settings: Settings = {"kl_ctl": 0.0, "reward_norm": norm | {"group_size": 2}, "reward_clip": 20.0}
    reading = read("areal", settings)
    assert isinstance(reading.advantage, trimtab.Grpo)
    again = read("areal", write("areal", reading).settings)
    assert (again.advantage, again.shaping) == (reading.advantage, reading.shaping)
    rows, width = batch.mask.shape
    lengths = batch.mask.sum(1, keepdim=True).clamp(min=3)
    attention = torch.arange(width) < lengths
    loss_mask = attention & (torch.arange(width) > 0)
    theirs = peers.areal_advantages(
        scores[:rows], attention, loss_mask, batch.behavior, use_decoupled_loss=True, **settings
    )
    mask = loss_mask.roll(-1, -1)
    ours, _ = way(reading, rewards=scores[:rows], mask=mask, size=2, attention_mask=attention, behavior=batch.behavior)
    agreed("areal", ours, theirs["advantages"] * mask)


def test_every_registered_estimator_is_run_or_named_as_not_run() -> None:
    own = {"trimtab"}  # our plug-in registers itself
    assert set(peers.verl_advantages()) - own == {*VERL, *OPTIMAL, "gdpo", *NOT_RUN["verl advantage"]}
    assert set(peers.skyrl_advantages()) == {*SKYRL, *NOT_RUN["skyrl advantage"]}
