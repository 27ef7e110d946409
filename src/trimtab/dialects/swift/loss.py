"""ms-swift: GRPO arguments; TRL's names, mostly with TRL's meaning."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Estimator, Gdpo, Grpo, Normalise, ReinforcePlusPlus, Rloo, Shaping
from trimtab.config.losses import KlPenalty, Objective
from trimtab.dialects.keys import Given, Key, Remark, choice, flag, number, numbers, raw, text
from trimtab.dialects.objectives import Descent, Estimation, reduced, refuse
from trimtab.dialects.trl.loss import MODES, SCALES, clip_bounds, scale
from trimtab.errors import ConfigError

KEYS = (
    Key(
        "loss_type",
        choice("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "fipo", "real"),
        "grpo",
        part="loss",
        null="unsaid",
    ),
    Key("epsilon", number, 0.2, part="loss"),
    Key("epsilon_high", number, part="loss"),
    Key("delta", number, part="loss"),
    Key("beta", number, 0.04, part="other", null="unsaid"),
    Key("importance_sampling_level", choice("token", "sequence", "sequence_token"), "token", part="loss"),
    Key("max_completion_length", number, 512.0, part="other"),
    Key("tau_pos", number, 1.0, part="loss"),
    Key("tau_neg", number, 1.05, part="loss"),
    Key("advantage_estimator", choice("grpo", "rloo", "reinforce_plus_plus"), "grpo", part="advantage"),
    Key("scale_rewards", raw, part="advantage"),
    Key("reward_weights", numbers, part="other"),
    Key("kl_in_reward", flag, part="advantage"),
    Key("top_entropy_quantile", number, 1.0, part="loss"),
    Key("real_tau", number, 0.5, part="loss"),
    Key("fipo_decay_rate", number, 32.0, part="loss"),
    Key("fipo_clip_range", number, 0.2, part="loss", null="open"),
    Key("fipo_clip_high_only", flag, True, part="loss"),
    Key("fipo_safety_threshold", number, 4.0, part="loss", null="open"),
    Key("sdar_loss_coef", number, 0.0, part="loss"),
    Key("advantage_reweight", text, part="advantage"),
    Key("overlong_filter", flag, False, part="loss"),
)
ROW_WISE = Normalise(unit="sequence", eps=1e-4, eps_at="std")
TIED = {"grpo": "group", "rloo": "none", "reinforce_plus_plus": "batch"}
"""scale_rewards where it is left out."""


def loss(given: Given) -> Objective:
    """The surrogate of a loss_type."""
    name, level = given["loss_type"], given["importance_sampling_level"]
    refuse(name == "real", "ms-swift loss_type real", "its loss is one number per group, not one per token. Use grpo")
    refuse(name == "fipo", "ms-swift loss_type fipo", "it weighs a token by the discounted drift after it. Use dapo")
    refuse(
        name == "sapo" and level == "sequence_token",
        "ms-swift loss_type sapo with importance_sampling_level sequence_token",
        "ours differentiates the mean. Use token or sequence",
    )
    unit: Any = "token" if level == "token" else "sequence"
    if name == "cispo":
        return ours.Cispo(upper=clip_bounds(given)["high"], level=unit)
    if name == "sapo":
        return ours.Sapo(tau_positive=given["tau_pos"], tau_negative=given["tau_neg"], level=unit)
    if level == "token":
        return ours.Clip(**clip_bounds(given), ratio_cap=given["delta"])
    kind: Any = {"sequence": "sequence", "sequence_token": "sequence-token"}[level]
    return ours.Gspo(**clip_bounds(given), level=kind, ratio_cap=given["delta"])


def descent(given: Given) -> Descent:
    """As in TRL, loss_type chooses surrogate and denominator."""
    quantile = given["top_entropy_quantile"]
    refuse(
        quantile not in (None, 1.0), "ms-swift top_entropy_quantile below 1", "the mask needs entropies. Leave it at 1"
    )
    refuse(given["sdar_loss_coef"], "ms-swift sdar_loss_coef", "it adds a loss to a teacher. Leave it 0")
    kl = None
    if given.said("beta") and given["beta"] and not _kl_in_reward(given):
        kl = KlPenalty(coefficient=given["beta"], estimator="k3", input_limit=20.0, output_limit=10.0, mask="kept")
    return Descent(
        loss=loss(given),
        reduction=reduced(MODES, "ms-swift loss_type", given["loss_type"], given["max_completion_length"]),
        kl=kl,
        rows="all",
    )


def estimation(given: Given) -> Estimation:
    """GRPO, RLOO, REINFORCE++ over groups, or several rewards normalised each."""
    refuse(given["advantage_reweight"], "ms-swift advantage_reweight", "it needs a teacher's log-probs. Leave it out")
    refuse(
        _kl_in_reward(given) and given.said("beta") and given["beta"],
        "ms-swift beta with kl_in_reward",
        "the KL of an answer is taken off its reward before the baseline. Take it off yourself and set beta to 0",
    )
    others = _others(given)
    return Estimation(advantage=_advantage(given), shaping=() if others is None else (Shaping(normalise=others),))


def _kl_in_reward(given: Given) -> bool:
    """Left out, it follows the estimator."""
    return given["advantage_estimator"] != "grpo" if given["kl_in_reward"] is None else bool(given["kl_in_reward"])


def _advantage(given: Given) -> Estimator:
    name = given["advantage_estimator"]
    scaling = given["scale_rewards"] if given["scale_rewards"] is not None else TIED[name]
    if scaling == "gdpo":
        if not given["reward_weights"]:
            raise ConfigError("ms-swift scale_rewards gdpo needs reward_weights here, one number per reward function.")
        return Gdpo(weights=tuple(given["reward_weights"]), eps=1e-8, normalise=ROW_WISE.but(eps=1e-8), baseline="all")
    scaling = scale("ms-swift", scaling)
    if name == "grpo" or (name, scaling) == ("reinforce_plus_plus", "group"):
        return Grpo(eps=1e-4, baseline="all", **SCALES[scaling])
    if name == "reinforce_plus_plus":
        return Grpo(std=False, normalise=ROW_WISE.but(mean=None) if scaling == "batch" else None, baseline="all")
    return Rloo(baseline="all") if scaling == "none" else ReinforcePlusPlus(normalise=None, baseline="all")


def _others(given: Given) -> Normalise | None:
    """rloo divided by the deviation of the rewards: what is left of the reward after that is the advantage."""
    scaling = given["scale_rewards"]
    if given["advantage_estimator"] != "rloo" or scaling not in ("group", "batch"):
        return None
    return Normalise(mean="group", std=scaling, leave_one_out=True, eps=1e-4, eps_at="std")


REMARKS = (
    Remark(
        "beta",
        "note",
        "Left out, beta is {beta}: a KL term is paid; write beta down to read it.",
        lambda given: given.speaks_of("loss") and not given.said("beta"),
    ),
    Remark(
        "kl_in_reward",
        "note",
        "With {advantage_estimator} the KL is paid in the reward by default, before the baseline, and not in the loss.",
        lambda given: given["advantage_estimator"] != "grpo" and given["kl_in_reward"] is None,
    ),
    Remark(
        "overlong_filter",
        "note",
        "Truncated answers leave the mask before the correction under transformers and after it under Megatron; pass their rows masked.",
        lambda given: bool(given["overlong_filter"]),
    ),
    Remark(
        "loss_type",
        "surprise",
        "{loss_type} averages each micro-batch by itself, so the step depends on how the batch is split; dapo divides by the tokens of "
        "the whole batch.",
        lambda given: given.said("loss_type") and given["loss_type"] in ("grpo", "dr_grpo", "sapo"),
    ),
    Remark(
        "epsilon_high",
        "surprise",
        "With cispo epsilon_high {epsilon_high} bounds the ratio itself; verl, slime, NeMo-RL and ROLL mean 1 + epsilon_high.",
        lambda given: given["loss_type"] == "cispo",
    ),
    Remark(
        "loss_type",
        "surprise",
        "bnpo divides by the tokens of one micro-batch here and by those of the global batch under Megatron.",
        lambda given: given["loss_type"] == "bnpo",
    ),
    Remark(
        "delta",
        "surprise",
        "delta caps the ratio of the unclipped branch for both signs of the advantage; dual clip elsewhere caps the loss where it is "
        "negative.",
        lambda given: given.set("delta"),
    ),
)
