"""NeMo-RL: ClippedPGLoss and `adv_estimator`."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import WHITEN, Estimator, Gae, Gdpo, Grpo, LeaveOneOut, Normalise, ReinforcePlusPlus
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.keys import Given, Key, Remark, choice, flag, number, numbers
from trimtab.dialects.objectives import ALL, Descent, Estimation, refuse
from trimtab.errors import ConfigError

F, E = "loss_fn", "grpo.adv_estimator"
NAMES = ("grpo", "gdpo", "reinforce_plus_plus", "gae", "raw_reward", "opd")


def _estimator_key(name: str, kind: Any, default: Any = None, *also: str, label: str = "") -> Key:
    return Key(f"{E}.{name}", kind, default, part="advantage", name=label, also=(f"ppo.adv_estimator.{name}", *also))


KEYS = (
    Key(f"{F}.token_level_loss", flag, True, part="loss"),
    Key(f"{F}.force_on_policy_ratio", flag, False, part="loss"),
    Key(f"{F}.ratio_clip_min", number, 0.2, part="loss"),
    Key(f"{F}.ratio_clip_max", number, 0.2, part="loss"),
    Key(f"{F}.ratio_clip_c", number, part="loss"),
    Key(f"{F}.use_cispo", flag, False, part="loss"),
    Key(f"{F}.disable_ppo_ratio", flag, False, part="loss"),
    Key(f"{F}.positive_example_nll_weight", number, 0.0, part="loss"),
    Key(f"{F}.reference_policy_kl_penalty", number, 0.0, part="loss"),
    Key(f"{F}.reference_policy_kl_type", choice("k1", "k2", "k3"), "k3", part="other"),
    Key(f"{F}.kl_input_clamp_value", number, 20.0, part="other", null="open"),
    Key(f"{F}.kl_output_clamp_value", number, 10.0, part="other", null="open"),
    Key(f"{F}.use_on_policy_kl_approximation", flag, False, part="loss"),
    Key(f"{F}.use_kl_in_reward", flag, False, part="loss"),
    _estimator_key("name", choice(*NAMES), "grpo", label="adv_estimator.name"),
    _estimator_key("use_leave_one_out_baseline", flag, True, "grpo.use_leave_one_out_baseline"),
    _estimator_key("normalize_rewards", flag, True, "grpo.normalize_rewards"),
    _estimator_key("reward_weights", numbers),
    _estimator_key("minus_baseline", flag, True),
    _estimator_key("gae_lambda", number, 0.95),
    _estimator_key("gae_gamma", number, 1.0),
    _estimator_key("normalize_advantages", flag, True),
    _estimator_key("gae_lambda_value", number),
    _estimator_key("gae_lambda_policy", number),
    _estimator_key("length_adaptive_alpha", number, 0.0),
)
BIASED = Normalise(unbiased=False, eps=1e-8, eps_at="floor")


def descent(given: Given) -> Descent:
    """A token mean, or a mean per sequence; at sequence level GSPO."""
    refuse(
        given["positive_example_nll_weight"],
        "NeMo-RL positive_example_nll_weight",
        "it adds the likelihood of rewarded answers to the loss. Leave it 0",
    )
    _check(given)
    mode = "token-mean" if given["token_level_loss"] else "seq-mean-token-mean"
    return Descent(loss=_loss(given), reduction=Reduction(mode=mode), kl=_kl(given))


def _check(given: Given) -> None:
    """What NeMo-RL refuses itself."""
    if given["sequence_level_importance_ratios"] and given.said("token_level_loss") and given["token_level_loss"]:
        raise ConfigError("NeMo-RL sequence_level_importance_ratios needs token_level_loss false, got true.")
    if given["use_cispo"]:
        for label in ("disable_ppo_ratio", "force_on_policy_ratio", "sequence_level_importance_ratios", "ratio_clip_c"):
            if given[label]:
                raise ConfigError(f"NeMo-RL use_cispo and {label} exclude each other. Drop one.")


def _kl(given: Given) -> KlPenalty | None:
    penalty = given["reference_policy_kl_penalty"]
    if not penalty or given["use_kl_in_reward"]:
        return None
    refuse(
        given["use_on_policy_kl_approximation"],
        "NeMo-RL use_on_policy_kl_approximation",
        "value and gradient of the KL are weighed by current/behavior, detached. Switch it off",
    )
    return KlPenalty(coefficient=penalty, **_estimated(given))


def _estimated(given: Given) -> dict[str, Any]:
    return {
        "estimator": given["reference_policy_kl_type"],
        "input_limit": given["kl_input_clamp_value"],
        "output_limit": given["kl_output_clamp_value"],
    }


def _loss(given: Given) -> Objective:
    low, high = given["ratio_clip_min"], given["ratio_clip_max"]
    if given["disable_ppo_ratio"]:
        return ours.Reinforce()
    if given["use_cispo"]:
        return ours.Cispo(lower=1 - low, upper=1 + high)
    if given["sequence_level_importance_ratios"]:
        return ours.Gspo(low=low, high=high, dual=given["ratio_clip_c"])
    return ours.Clip(low=low, high=high, dual=given["ratio_clip_c"])


def estimation(given: Given) -> Estimation:
    """The named estimator, and the KL penalty in the reward of those that sum it."""
    name = given["adv_estimator.name"]
    refuse(name == "opd", "NeMo-RL adv_estimator opd", "it distils a teacher and has no reward")
    penalty = given["reference_policy_kl_penalty"] if given["use_kl_in_reward"] else 0.0
    refuse(
        penalty and name == "reinforce_plus_plus",
        "NeMo-RL use_kl_in_reward with reinforce_plus_plus",
        "each token pays its own KL only, where ours pays the sum to come. Use the KL loss",
    )
    kl = KlPenalty(coefficient=penalty, **_estimated(given)) if penalty and name == "gae" else None
    return Estimation(advantage=_advantage(given, name), reward_kl=kl)


def _advantage(given: Given, name: str) -> Estimator:
    if name == "gdpo":
        return _gdpo(given)
    if name == "reinforce_plus_plus":
        centred = bool(given["minus_baseline"])
        return Grpo(std=False, normalise=BIASED, **ALL) if centred else ReinforcePlusPlus(normalise=BIASED, **ALL)
    if name == "raw_reward":
        return ReinforcePlusPlus(normalise=BIASED if given["normalize_advantages"] else None, **ALL)
    if name == "gae":
        return _gae(given)
    kind = LeaveOneOut if given["use_leave_one_out_baseline"] else Grpo
    return kind(std=given["normalize_rewards"], baseline="all")


def _gdpo(given: Given) -> Estimator:
    """Each reward as GRPO has it, then their sum over its deviation, without an eps."""
    if not given["reward_weights"]:
        raise ConfigError(
            "NeMo-RL adv_estimator gdpo needs reward_weights here, one number per reward; 1 where left out."
        )
    return Gdpo(
        weights=tuple(given["reward_weights"]),
        std=given["normalize_rewards"],
        leave_one_out=given["use_leave_one_out_baseline"],
        normalise=Normalise(unit="sequence", eps=0.0, eps_at="std"),
        baseline="all",
    )


def _gae(given: Given) -> Estimator:
    """Separate λ for critic and policy; that of the policy may follow the length."""
    split = given.set("gae_lambda_value", "gae_lambda_policy") or given["length_adaptive_alpha"] > 0
    fields: dict[str, Any] = {
        "gamma": given["gae_gamma"],
        "normalise": WHITEN if given["normalize_advantages"] else None,
    }
    if split:
        value = given["gae_lambda_value"]
        fields["value_lam"] = given["gae_lambda"] if value is None else value
    if given["length_adaptive_alpha"] > 0:
        return Gae(length_adaptive=given["length_adaptive_alpha"], **fields, **ALL)
    policy = given["gae_lambda_policy"]
    return Gae(lam=given["gae_lambda"] if policy is None else policy, **fields, **ALL)


REMARKS = (
    Remark(
        "use_leave_one_out_baseline",
        "surprise",
        "Mean and deviation are both those of the others: rewards [1, 0, 0, 0] give [1, −0.58, −0.58, −0.58] where GRPO gives "
        "[1.5, −0.5, −0.5, −0.5], and groups of two are never divided.",
        lambda given: (
            given.speaks_of("advantage")
            and given["adv_estimator.name"] in ("grpo", "gdpo")
            and given["use_leave_one_out_baseline"]
            and given["normalize_rewards"]
        ),
    ),
    Remark(
        "force_on_policy_ratio",
        "surprise",
        "force_on_policy_ratio sets the PPO ratio to 1, so nothing is ever clipped; pass current as proximal to get the same.",
        lambda given: bool(given["force_on_policy_ratio"]),
    ),
    Remark(
        "sequence_level_importance_ratios",
        "note",
        "GSPO here differentiates the mean ratio and forces a mean per sequence; verl and SkyRL keep each token's own gradient.",
        lambda given: given["sequence_level_importance_ratios"] and given.speaks_of("loss"),
    ),
    Remark(
        "reference_policy_kl_penalty",
        "note",
        "With use_kl_in_reward the KL is paid in the reward and not in the loss, and only reinforce_plus_plus and gae read it there.",
        lambda given: bool(given["use_kl_in_reward"]),
    ),
)
