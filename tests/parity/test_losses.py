"""Our losses and gradients, read from a framework's settings, against the framework itself."""

from __future__ import annotations

import importlib.metadata
import math
from typing import Any

import peers
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import trimtab
from tests.dialects.scalars import same_scalars
from tests.parity.batches import Batch, batches, few, numbers, same_descent
from tests.parity.not_covered import NOT_RUN
from tests.parity.test_corrections import areal as areal_rejection
from tests.parity.test_corrections import skyrl as skyrl_correction
from trimtab import Denominator
from trimtab.dialects import Reading, read

Settings = dict[str, Any]
CLIP = st.fixed_dictionaries({"low": numbers(0.05, 0.4), "high": numbers(0.05, 0.6)})


def descended(reading: Reading, batch: Batch, current: Tensor, **more: Any) -> trimtab.PolicyLoss:
    assert reading.loss is not None
    assert reading.reduction is not None
    step = Denominator(batch.mask.sum(), len(batch.mask)) if reading.rows == "all" else None
    arguments: Settings = {"denominator": step, "advantages": batch.per_token, **more}
    return trimtab.policy_loss(
        reading.loss,
        current=current,
        proximal=batch.proximal,
        behavior=None if reading.correction is None else batch.behavior,
        reference=batch.reference if reading.kl is not None else None,
        mask=batch.mask,
        correction=reading.correction,
        reduction=reading.reduction,
        kl=reading.kl,
        **arguments,
    )


def agreed(reading: Reading, batch: Batch, their_leaf: Tensor, theirs: peers.Loss, **more: Any) -> None:
    """The framework's loss, gradient and scalars are ours."""
    leaf = batch.leaf()
    ours = descended(reading, batch, leaf, **more)
    same_descent(reading.framework, ours.loss, leaf, theirs[0], their_leaf, batch.mask)
    same_scalars(reading, ours.metrics, theirs[1], {"mask": batch.mask}, "live")


VERL = ["vanilla", "gspo", "sapo", "gpg", "geo_mean", "cispo", "dppo_tv", "dppo_kl", "dro", "bypass_mode"]
VERL += ["clip_cov", "kl_cov"]
MODES = ["token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum"]


@st.composite
def verl(draw: st.DrawFn) -> Settings:
    mode, clip = draw(st.sampled_from(VERL)), draw(CLIP)
    policy: Settings = {"loss_mode": mode, "dro_beta": draw(numbers(0.01, 1))}
    # every candidate is chosen: which are, when only some are, is left to chance
    policy |= {"clip_cov_ratio": 1.0, "clip_cov_lb": draw(numbers(-0.5, 0.5)), "clip_cov_ub": draw(numbers(0.6, 2))}
    policy |= {"kl_cov_ratio": draw(numbers(0.01, 0.5)), "ppo_kl_coef": draw(numbers(0.05, 1))}
    if mode == "bypass_mode":
        policy["rollout_correction"] = {
            "loss_type": draw(st.sampled_from(["ppo_clip", "reinforce"])),
            "rollout_is": draw(st.sampled_from([None, "token", "sequence"])),
            "rollout_is_threshold": draw(numbers(1.1, 4)),
            "rollout_rs": draw(st.sampled_from([None, "token_k2", "token_k3"])),
            "rollout_rs_threshold": draw(numbers(0.3, 2)),
        }
    return {
        "policy_loss": policy,
        "clip_ratio_low": clip["low"],
        "clip_ratio_high": clip["high"],
        "clip_ratio_c": draw(numbers(1.2, 5)),
        "tau_pos": draw(numbers(0.5, 2)),
        "tau_neg": draw(numbers(0.5, 2)),
        "loss_agg_mode": draw(st.sampled_from([*MODES, "seq-mean-token-sum-norm"])),
    }


@few
@given(verl(), batches(empty=True))
def test_verl(settings: Settings, batch: Batch) -> None:
    by_trainer = {
        "algorithm": {"rollout_correction": {"bypass_mode": settings["policy_loss"]["loss_mode"] == "bypass_mode"}}
    }
    reading = read("verl", settings | by_trainer, width=batch.mask.shape[1])
    two = reading.correction is not None and reading.correction.policies == "bypass"
    leaf = batch.leaf()
    rest, policy = dict(settings), dict(settings["policy_loss"])
    rest.pop("policy_loss")
    anchor = batch.behavior if two else batch.proximal
    tokens, rows = int(batch.mask.sum()), len(batch.mask)
    counted = {
        "dp_size": 1,
        "batch_num_tokens": tokens,
        "global_batch_size": rows,
    }  # by its engine, before the loss is called
    theirs = peers.verl_loss(
        policy.pop("loss_mode"),
        leaf,
        anchor,
        batch.per_token,
        batch.mask,
        policy_loss=policy,
        global_batch_info=counted,
        **rest,
    )
    agreed(reading, batch, leaf, theirs, denominator=Denominator(tokens, rows))


@few
@given(st.sampled_from(["kl", "abs", "mse", "low_var_kl", "k3+"]), numbers(0.01, 1), st.sampled_from(MODES), batches())
def test_verl_kl_loss(kind: str, coefficient: float, mode: str, batch: Batch) -> None:
    """The term its worker adds to the policy loss."""
    settings = {"loss_agg_mode": mode, "use_kl_loss": True, "kl_loss_type": kind, "kl_loss_coef": coefficient}
    leaf = batch.leaf()
    loss, scalars = peers.verl_loss("vanilla", leaf, batch.proximal, batch.per_token, batch.mask, loss_agg_mode=mode)
    penalty = peers.verl_aggregate(peers.verl_kl(leaf, batch.reference, kind), batch.mask, mode)
    agreed(read("verl", settings), batch, leaf, (loss + coefficient * penalty, scalars))


@st.composite
def areal(draw: st.DrawFn) -> Settings:
    """PPO with or without rejection, M2PO, or SAPO."""
    level = draw(st.sampled_from(["token", "sequence"]))
    found: Settings = {"importance_sampling_level": level}
    kind = draw(st.sampled_from(["ppo", "rejection", "m2po", "sapo"]))
    if kind == "sapo":
        taus = {"sapo_tau_pos": draw(numbers(0.5, 2)), "sapo_tau_neg": draw(numbers(0.5, 2))}
        return found | {"use_sapo_loss": True, **taus}
    clip = draw(CLIP)
    found |= {"eps_clip": clip["low"], "eps_clip_higher": clip["high"], "c_clip": draw(st.none() | numbers(1.1, 4))}
    if kind == "rejection":
        found["rejection_sampling"] = draw(areal_rejection())
    if kind == "m2po":
        found["m2_threshold"] = draw(st.just(0.0) | numbers(0.001, 0.5))  # where no token fits, one is kept
    return found


@few
@given(areal(), batches(empty=True))
def test_areal(settings: Settings, batch: Batch) -> None:
    leaf = batch.leaf()
    sapo = settings.get("use_sapo_loss", False)
    behavior = batch.proximal if sapo else batch.behavior  # SAPO divides by what sampled; ours calls that proximal
    theirs = peers.areal_actor_loss(leaf, batch.proximal, batch.per_token, batch.mask, behavior, **settings)
    agreed(read("areal", settings), batch, leaf, theirs)


SKYRL_RELEASE = importlib.metadata.version("skyrl")
SKYRL = ["regular", "dual_clip", "gspo", "cispo", "sapo", "importance_sampling", "rollout_is", "dppo"]


@st.composite
def skyrl(draw: st.DrawFn) -> Settings:
    kind, clip = draw(st.sampled_from(SKYRL)), draw(CLIP)
    found: Settings = {
        "policy_loss_type": kind,
        "loss_reduction": draw(st.sampled_from(["token_mean", "sequence_mean", "seq_mean_token_sum_norm"])),
        "eps_clip_low": clip["low"],
        "eps_clip_high": clip["high"],
        "clip_ratio_c": draw(numbers(1.2, 4)),
        "max_seq_len": 32,
        "cispo": {"cispo_eps_clip_low": draw(numbers(0, 1)), "cispo_eps_clip_high": draw(numbers(0.05, 4))},
        "sapo": {"tau_pos": draw(numbers(0.5, 2)), "tau_neg": draw(numbers(0.5, 2))},
        "dppo": {
            "dppo_type": draw(st.sampled_from(["binary_tv", "binary_kl"])),
            "delta_low": draw(numbers(0.01, 0.3)),
            "delta_high": draw(numbers(0.01, 0.3)),
        },
    }
    if draw(st.booleans()):
        found["cispo"] = {}  # the defaults of the release
    if SKYRL_RELEASE != "0.3.0":
        found["cispo"]["cispo_anchor"] = draw(st.sampled_from(["old", "rollout"]))
    two = kind in ("rollout_is", "dppo") or (kind == "cispo" and found["cispo"].get("cispo_anchor") == "rollout")
    if kind != "importance_sampling" and draw(st.booleans()):
        correction = draw(skyrl_correction())
        if two:  # their ratio divides by behavior, a weight would compare with proximal
            correction.pop("tis_ratio_type", None)
        found["off_policy_correction"] = correction
    return found


@few
@given(skyrl(), batches(empty=True))
def test_skyrl(settings: Settings, batch: Batch) -> None:
    leaf = batch.leaf()
    rest = dict(settings)
    tensors = (leaf, batch.proximal, batch.per_token, batch.mask, batch.behavior)
    theirs = peers.skyrl_loss(rest.pop("policy_loss_type"), *tensors, **rest)
    agreed(read("skyrl", settings, version=SKYRL_RELEASE), batch, leaf, theirs)


def test_skyrls_cispo_divides_by_behavior_where_it_is_anchored_there_and_then_refuses_a_weight() -> None:
    if SKYRL_RELEASE == "0.3.0":
        with pytest.raises(ValueError, match="cispo_anchor"):  # a key that it does not know
            skyrl_cispo({"cispo_anchor": "rollout"}, None)
        return
    near, far = (skyrl_cispo({"cispo_anchor": anchor}, None)[1]["cispo/ratio_mean"] for anchor in ("old", "rollout"))
    assert near == pytest.approx(1.0)
    assert far == pytest.approx(2.0)
    skyrl_cispo({"cispo_anchor": "old"}, "token")
    with pytest.raises(ValueError, match="double-count"):
        skyrl_cispo({"cispo_anchor": "rollout"}, "token")


def skyrl_cispo(cispo: Settings, level: str | None) -> peers.Loss:
    """Current is proximal and twice behavior."""
    current = torch.full((2, 3), -1.0)
    tensors = (current, current, torch.ones(2, 3), torch.ones(2, 3).bool(), current - math.log(2))
    return peers.skyrl_loss("cispo", *tensors, cispo=cispo, off_policy_correction={"tis_ratio_type": level})


@st.composite
def trl(draw: st.DrawFn) -> Settings:
    kind = draw(st.sampled_from(["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]))
    clip = draw(CLIP)
    level = draw(st.sampled_from(["token", "sequence"])) if kind in ("grpo", "bnpo", "dapo", "luspo") else "token"
    found: Settings = {
        "loss_type": kind,
        "importance_sampling_level": level,
        "epsilon": clip["low"],
        "epsilon_high": draw(numbers(1.05, 5)) if kind == "cispo" else clip["high"],
        "beta": draw(st.sampled_from([0.0, 0.05])) if level == "token" else 0.0,
        "use_bias_correction_kl": draw(st.booleans()),
        "max_completion_length": 48,
    }
    if level == "token" and kind in ("grpo", "dapo"):
        found["delta"] = draw(st.none() | numbers(1.7, 4))
    if draw(st.booleans()):
        weights = draw(sampling(["token"] if kind == "vespo" else ["token", "sequence"]))
        found |= {f"{IMPORTANCE}_{name}": value for name, value in weights.items()}
    return found


IMPORTANCE = "vllm_importance_sampling"


@st.composite
def sampling(draw: st.DrawFn, levels: list[str]) -> Settings:
    """TRL's weights for what vLLM sampled."""
    modes = [f"{level}_{action}" for level in levels for action in ("truncate", "mask")]
    bounds = {"clip_min": draw(st.none() | numbers(0.2, 0.95)), "clip_max": draw(numbers(1.05, 5))}
    return {"mode": draw(st.sampled_from(modes)), **bounds}


@few
@given(trl(), st.none() | numbers(0.01, 0.2), batches(empty=True))
def test_trl(settings: Settings, delta: float | None, batch: Batch) -> None:
    settings = {**settings, "off_policy_mask_threshold": delta}
    leaf = batch.leaf()
    items = batch.mask.sum()
    weights = {name: value for name, value in settings.items() if name.startswith(IMPORTANCE)}
    weight, generated = None, {}
    if weights:
        weight, _, generated = peers.trl_correction(batch.proximal, batch.behavior, batch.mask, **weights)
    loss, scalars = peers.trl_loss(
        leaf,
        batch.proximal,
        batch.advantages,
        batch.mask,
        weight,
        behavior=batch.behavior,
        reference=batch.reference,
        num_items_in_batch=items,
        **settings,
    )
    theirs = (loss, generated | scalars)
    agreed(read("trl", settings), batch, leaf, theirs, advantages=batch.advantages)


@few
@given(
    st.sampled_from(["ppo", "gspo"]),
    CLIP,
    st.none() | numbers(1.2, 4),
    st.sampled_from(["token-mean", "seq-mean-token-mean"]),
    st.sampled_from(["off", "token", "seq"]),
    batches(),
)
def test_openrlhf(kind: str, clip: Settings, dual: float | None, mode: str, level: str, batch: Batch) -> None:
    correction = {"is_correction_level": level, "is_correction_threshold": [0.8, 1.3]}
    settings = {
        "policy_loss_type": kind,
        "eps_clip_low_high": [clip["low"], clip["high"]],
        "dual_clip": dual,
        "loss_agg_mode": mode,
        **correction,
    }
    leaf = batch.leaf()
    theirs = peers.openrlhf_loss(
        leaf,
        batch.proximal,
        batch.per_token,
        batch.mask,
        batch.behavior,
        batch_num_tokens=int(batch.mask.sum()),
        global_batch_size=len(batch.mask),
        policy_loss_type=kind,
        clip_eps_low=clip["low"],
        clip_eps_high=clip["high"],
        dual_clip=dual,
        token_level_loss=mode == "token-mean",
        **correction,
    )
    agreed(read("openrlhf", settings), batch, leaf, theirs)


@st.composite
def swift(draw: st.DrawFn) -> Settings:
    kind, clip = draw(st.sampled_from(["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "fipo"])), draw(CLIP)
    levels = ["token"] if kind in ("cispo", "sapo", "fipo") else ["token", "sequence", "sequence_token"]
    found: Settings = {
        "loss_type": kind,
        "epsilon": clip["low"],
        "epsilon_high": draw(numbers(1.05, 4)) if kind == "cispo" else clip["high"],
        "importance_sampling_level": draw(st.sampled_from(levels)),
        "beta": draw(st.sampled_from([0.0, 0.05])),
        "max_completion_length": 48,
    }
    if kind == "sapo":
        found |= {"tau_pos": draw(numbers(0.5, 2)), "tau_neg": draw(numbers(0.5, 2))}
    if kind == "fipo":
        found |= {"fipo_decay_rate": draw(numbers(1, 40)), "fipo_clip_high_only": draw(st.booleans())}
        found |= {
            "fipo_clip_range": draw(st.sampled_from([None, 0.2, 0.5])),
            "delta": draw(st.sampled_from([None, 1.5])),
        }
        found["fipo_safety_threshold"] = draw(st.sampled_from([None, 1.2, 4.0]))
    if draw(st.booleans()):
        modes = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
        found["rollout_importance_sampling_mode"] = draw(st.sampled_from(modes))
        found["rollout_importance_sampling_threshold"] = draw(numbers(1.02, 3))
    if draw(st.booleans()):
        found["off_policy_sequence_mask_delta"] = draw(numbers(0.01, 0.2))
    return found


@few
@given(swift(), batches(empty=True))
def test_swift(settings: Settings, batch: Batch) -> None:
    leaf = batch.leaf()
    theirs = peers.swift_loss(
        leaf,
        batch.proximal,
        batch.per_token,
        batch.mask,
        behavior=batch.behavior,
        reference=batch.reference,
        num_items_in_batch=batch.mask.sum(),
        **settings,
    )
    reading = read("ms-swift", settings)
    counted = {} if settings["loss_type"] != "bnpo" else {"denominator": None}  # local tokens, after the sequence mask
    agreed(reading, batch, leaf, theirs, advantages=batch.advantages, **counted)


def test_every_registered_loss_of_verl_is_run_or_named_as_not_run() -> None:
    own = {"trimtab"}  # our plug-in registers itself
    assert set(peers.verl_losses()) - own == {*VERL, *NOT_RUN["verl loss"]}


def test_every_registered_loss_of_skyrl_is_run_or_named_as_not_run() -> None:
    assert set(peers.skyrl_losses()) == {*SKYRL, *NOT_RUN["skyrl loss"]}
