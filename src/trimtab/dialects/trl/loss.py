"""TRL: GRPOConfig's `loss_type`, KL, and advantages; RLOOConfig's advantages."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Estimator, Gdpo, Grpo, Normalise, Rloo, Shaping
from trimtab.config.losses import KlPenalty, Objective
from trimtab.dialects.keys import Given, Key, Remark, choice, flag, number, numbers, raw
from trimtab.dialects.objectives import Descent, Estimation, reduced, refuse
from trimtab.errors import ConfigError

LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
KEYS = (
    Key("loss_type", choice(*LOSS_TYPES), "dapo", part="loss"),
    Key("epsilon", number, 0.2, part="loss"),
    Key("epsilon_high", number, part="loss"),
    Key("delta", number, part="loss"),
    Key("beta", number, 0.0, part="loss"),
    Key("use_bias_correction_kl", flag, True, part="loss"),
    Key("importance_sampling_level", choice("token", "sequence"), "token", part="loss"),
    Key("max_completion_length", number, 512.0, part="other", null="open"),
    Key("sapo_temperature_pos", number, 1.0, part="loss"),
    Key("sapo_temperature_neg", number, 1.05, part="loss"),
    *(
        Key(f"vespo_{name}_{sign}", number, default, part="loss")
        for name, sign, default in (
            ("k", "pos", 2.0),
            ("lambda", "pos", 3.0),
            ("k", "neg", 3.0),
            ("lambda", "neg", 2.0),
        )
    ),
    Key("top_entropy_quantile", number, 1.0, part="loss"),
    Key("scale_rewards", raw, "group", part="advantage"),
    Key(
        "multi_objective_aggregation",
        choice("sum_then_normalize", "normalize_then_sum"),
        "sum_then_normalize",
        part="advantage",
    ),
    Key("reward_weights", numbers, part="other"),
    Key("normalize_advantages", flag, False, part="advantage"),
    Key("reward_clip_range", numbers, part="advantage"),
    Key("mask_truncated_completions", flag, False, part="loss"),
)
MODES = {
    "grpo": "seq-mean-token-mean",
    "sapo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
    "luspo": "seq-mean-token-sum",
} | dict.fromkeys(("bnpo", "dapo", "cispo", "vespo"), "token-mean")
ROW_WISE = Normalise(unit="sequence", eps=1e-4, eps_at="std")
SCALES: dict[str, dict[str, Any]] = {
    "group": {"std": True},
    "batch": {"std": True, "std_over": "batch"},
    "none": {"std": False},
}


def clip_bounds(given: Given) -> dict[str, Any]:
    """epsilon below, epsilon_high above, the first for both where the second is left out."""
    high = given["epsilon"] if given["epsilon_high"] is None else given["epsilon_high"]
    return {"low": given["epsilon"], "high": high}


def loss(given: Given) -> Objective:
    """The surrogate of a loss_type."""
    name, level = given["loss_type"], given["importance_sampling_level"]
    if name == "cispo":
        return ours.Cispo(upper=clip_bounds(given)["high"], level=level)  # it bounds the ratio itself
    if name == "sapo":
        return ours.Sapo(
            tau_positive=given["sapo_temperature_pos"], tau_negative=given["sapo_temperature_neg"], level=level
        )
    if name == "vespo":
        sides = {"pos": "positive", "neg": "negative"}
        fields = {f"{k}_{side}": given[f"vespo_{k}_{sign}"] for k in ("k", "lambda") for sign, side in sides.items()}
        return ours.Vespo(**fields, weights="inside")
    if level == "token":
        return ours.Clip(**clip_bounds(given), ratio_cap=given["delta"])
    return (
        ours.Luspo(**clip_bounds(given))
        if name == "luspo"
        else ours.Gspo(**clip_bounds(given), ratio_cap=given["delta"])
    )


def descent(given: Given) -> Descent:
    """loss_type chooses surrogate and denominator at once."""
    if given["top_entropy_quantile"] not in (None, 1.0):
        raise ConfigError("TRL top_entropy_quantile below 1 cannot be said: the mask needs entropies. Leave it at 1.")
    name, level = given["loss_type"], given["importance_sampling_level"]
    mode = "grpo" if name == "luspo" and level == "sequence" else name  # our Luspo brings the length itself
    return Descent(
        loss=loss(given),
        reduction=reduced(MODES, "TRL loss_type", mode, given["max_completion_length"]),
        kl=_kl(given) if given["beta"] else None,
        rows="all",
    )


def _kl(given: Given) -> KlPenalty:
    full = bool(given["use_bias_correction_kl"])
    if full and given["importance_sampling_level"] == "sequence":
        raise ConfigError(
            "TRL beta with importance_sampling_level sequence and use_bias_correction_kl cannot be said: its KL is weighed by the ratio "
            "of the sequence. Switch the latter off."
        )
    return KlPenalty(coefficient=given["beta"], estimator="k3", importance="full" if full else "none")


def estimation(given: Given) -> Estimation:
    """GRPO's scaling, several rewards normalised each, or RLOO."""
    refuse(
        given.said("normalize_advantages") and given.said("beta") and given["beta"],
        "TRL RLOOConfig beta",
        "the summed KL of an answer is taken off its reward before the baseline. Take it off yourself and set beta to 0",
    )
    bounds = given["reward_clip_range"]
    if bounds is not None and len(bounds) != 2:
        raise ConfigError(f"TRL reward_clip_range needs two numbers, got {list(bounds)}.")
    shaping = () if bounds is None else (Shaping(lower=bounds[0], upper=bounds[1]),)
    return Estimation(advantage=_advantage(given), shaping=shaping)


def _advantage(given: Given) -> Estimator:
    if given.said("normalize_advantages"):
        return Rloo(normalise=ROW_WISE if given["normalize_advantages"] else None, baseline="all")
    if given["multi_objective_aggregation"] == "normalize_then_sum":
        if not given["reward_weights"]:
            raise ConfigError("TRL normalize_then_sum needs reward_weights here, one number per reward function.")
        return Gdpo(weights=tuple(given["reward_weights"]), eps=1e-4, normalise=ROW_WISE, baseline="all")
    return Grpo(eps=1e-4, baseline="all", **SCALES[scale("TRL", given["scale_rewards"])])


def scale(title: str, value: Any) -> str:
    """group, batch or none; true and false are older spellings of the first and last."""
    name = {True: "group", False: "none"}.get(value, value) if isinstance(value, bool) else str(value)
    if name not in SCALES:
        raise ConfigError(f"{title} scale_rewards needs group, batch or none, got {value!r}.")
    return name


REMARKS = (
    Remark(
        "epsilon_high",
        "surprise",
        "With cispo epsilon_high {epsilon_high} bounds the ratio itself; verl, slime, NeMo-RL and ROLL mean 1 + epsilon_high.",
        lambda given: given["loss_type"] == "cispo" and given.said("loss_type"),
    ),
    Remark(
        "delta",
        "surprise",
        "delta caps the ratio of the unclipped branch for both signs of the advantage; dual clip elsewhere caps the loss where it is "
        "negative.",
        lambda given: given.set("delta"),
    ),
    Remark(
        "use_bias_correction_kl",
        "note",
        "By default the KL term is multiplied by the ratio, differentiated through both.",
        lambda given: given.set("beta") and given["use_bias_correction_kl"],
    ),
    Remark(
        "loss_type",
        "surprise",
        "{loss_type} averages each micro-batch by itself, so the step depends on how the batch is split; dapo divides by the tokens "
        "of the whole batch.",
        lambda given: given.said("loss_type") and given["loss_type"] in ("bnpo", "grpo", "dr_grpo", "sapo", "luspo"),
    ),
    Remark(
        "mask_truncated_completions",
        "note",
        "Truncated answers leave the mask and its counts but still vote in the baseline; pass their rows masked.",
        lambda given: bool(given["mask_truncated_completions"]),
    ),
    Remark(
        "scale_rewards",
        "note",
        "1e-4 is added to the deviation; verl and SkyRL add 1e-6, OpenRLHF 1e-9.",
        lambda given: given.said("scale_rewards"),
    ),
)
