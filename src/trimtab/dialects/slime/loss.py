"""slime: clipping, reductions, the KL term, and its way from rewards to advantages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import WHITEN, Estimator, Gae, Grpo, Normalise, ReinforcePlusPlus
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.keys import Choice, Given, Key, Remark, choice, flag, number, text
from trimtab.dialects.objectives import ALL, Descent, Estimation, bonus, refuse
from trimtab.errors import ConfigError

DISTILLED = "on_policy_distillation"
ESTIMATORS = ("grpo", "gspo", "cispo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
CENTRED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
"""Estimators whose rewards are centred in their group."""


@dataclass(frozen=True)
class _Estimators(Choice):
    """One of the estimators, or a teacher's distillation, which only the advantages cannot say."""

    def __call__(self, path: str, value: Any) -> str:
        """The name that was given."""
        return DISTILLED if value == DISTILLED else super().__call__(path, value)


KEYS = (
    Key("eps_clip", number, 0.2, part="loss"),
    Key("eps_clip_high", number, part="loss"),
    Key("eps_clip_c", number, part="loss"),
    Key("calculate_per_token_loss", flag, False, part="loss"),
    Key("custom_pg_loss_reducer_function_path", text, part="loss"),
    Key("custom_loss_function_path", text, part="loss"),
    Key("use_kl_loss", flag, False, part="loss"),
    Key("kl_loss_coef", number, 0.0, part="loss"),
    Key("kl_loss_type", choice("k1", "k2", "k3", "low_var_kl"), "k1", part="other"),
    Key("use_unbiased_kl", flag, False, part="loss"),
    Key("entropy_coef", number, 0.0, part="loss"),
    Key("advantage_estimator", _Estimators(ESTIMATORS), "grpo", part="advantage"),
    Key("rewards_normalization", flag, True, part="advantage"),
    Key("grpo_std_normalization", flag, True, part="advantage"),
    Key("normalize_advantages", flag, False, part="advantage"),
    Key("kl_coef", number, 0.0, part="advantage"),
    Key("gamma", number, 1.0, part="advantage"),
    Key("lambd", number, 1.0, part="advantage"),
    Key("use_opd", flag, False, part="advantage"),
    Key("n_samples_per_prompt", number, 1.0, part="other"),
    Key("context_parallel_size", number, 1.0, part="other"),
)


def descent(given: Given) -> Descent:
    """PPO, GSPO or CISPO by the estimator's name; a mean per sample, or per token."""
    refuse(given["custom_loss_function_path"], "slime --custom-loss-function-path", "it is a function of your own")
    own = given["custom_pg_loss_reducer_function_path"]
    refuse(own, "slime --custom-pg-loss-reducer-function-path", "it is a function of your own")
    mode = "token-mean" if given["calculate_per_token_loss"] else "seq-mean-token-mean"
    return Descent(
        loss=_loss(given),
        reduction=Reduction(mode=mode),
        kl=_kl(given) if given["use_kl_loss"] and given["kl_loss_coef"] else None,
        entropy=bonus(given["entropy_coef"], mask="kept"),
    )


def _loss(given: Given) -> Objective:
    low = given["eps_clip"]
    high = low if given["eps_clip_high"] is None else given["eps_clip_high"]
    if given["advantage_estimator"] == "cispo":
        return ours.Cispo(lower=1 - low, upper=1 + high)
    kind: Any = ours.Gspo if given["advantage_estimator"] == "gspo" else ours.Clip
    # the reducer is rebuilt with what is left, the ratio of a sequence is not
    scope: dict[str, Any] = {"scope": "trained"} if kind is ours.Gspo else {}
    return kind(low=low, high=high, dual=given["eps_clip_c"], **scope)


def _kl(given: Given) -> KlPenalty:
    """Paid on what rejection left, times the ratio where it is to be unbiased; only low_var_kl is held."""
    named = given["kl_loss_type"]
    unbiased = bool(given["use_unbiased_kl"])
    refuse(
        unbiased and named == "low_var_kl",
        "slime --use-unbiased-kl with --kl-loss-type low_var_kl",
        "the limit bites after the ratio. Use k3",
    )
    estimator: Any = {"low_var_kl": "k3"}.get(named, named)
    return KlPenalty(
        coefficient=given["kl_loss_coef"],
        estimator=estimator,
        importance="full" if unbiased else "none",
        output_limit=10.0 if named == "low_var_kl" else None,
        mask="kept",
    )


def estimation(given: Given) -> Estimation:
    """Rewards centred in their group and, for GRPO, divided by its deviation; returns for REINFORCE++ and PPO."""
    refuse(given["use_opd"], "slime --use-opd", "advantages are moved by a teacher's log-probs. Leave it out")
    name, penalty = given["advantage_estimator"], given["kl_coef"]
    refuse(name == DISTILLED, f"slime advantage_estimator {name}", "advantages are a teacher's log-probs. Use grpo")
    whiten = WHITEN if given["normalize_advantages"] else None
    if name not in CENTRED:
        kl = KlPenalty(coefficient=penalty, estimator=_estimator(given)) if penalty else None
        return Estimation(advantage=_returns(given, whiten), reward_kl=kl)
    if not given["rewards_normalization"]:
        raise ConfigError(
            f"slime --disable-rewards-normalization with advantage_estimator {name} cannot be said: rewards themselves become "
            "advantages. Use reinforce_plus_plus, or normalise."
        )
    refuse(
        name == "reinforce_plus_plus_baseline" and penalty,
        "slime --kl-coef with reinforce_plus_plus_baseline",
        "each token pays its own KL only, where ours pays the sum to come. Use --use-kl-loss",
    )
    scaled = name != "reinforce_plus_plus_baseline" and bool(given["grpo_std_normalization"])
    return Estimation(advantage=Grpo(std=scaled, normalise=whiten, baseline="all"))


def _returns(given: Given, whiten: Normalise | None) -> Estimator:
    if given["advantage_estimator"] == "ppo":
        return Gae(gamma=given["gamma"], lam=given["lambd"], gaps="step", normalise=whiten, **ALL)
    return ReinforcePlusPlus(gamma=given["gamma"], gaps="step", normalise=whiten, **ALL)


def _estimator(given: Given) -> Any:
    named = given["kl_loss_type"]
    refuse(named == "low_var_kl", "slime --kl-coef with --kl-loss-type low_var_kl", "use k3, which it holds within 10")
    return named


def _advantages(given: Given, *names: str) -> bool:
    return given.speaks_of("advantage") and given["advantage_estimator"] in names


REMARKS = (
    Remark(
        "n_samples_per_prompt",
        "surprise",
        "Where the number of samples is not rollout_batch_size × n_samples_per_prompt, the whole batch is normalised as one group; "
        "ours groups by prompt.",
        lambda given: _advantages(given, *CENTRED) and bool(given["rewards_normalization"]),
    ),
    Remark(
        "calculate_per_token_loss",
        "note",
        "A sequence without tokens counts as one token.",
        lambda given: bool(given["calculate_per_token_loss"]),
    ),
    Remark(
        "kl_coef",
        "surprise",
        "kl_coef {kl_coef} has no effect with {advantage_estimator}; use --use-kl-loss with --kl-loss-coef.",
        lambda given: _advantages(given, "grpo", "gspo", "cispo") and bool(given["kl_coef"]),
    ),
    Remark(
        "advantage_estimator",
        "surprise",
        "ppo reads critic values and pays KL at masked positions too; zero both there to get our numbers.",
        lambda given: _advantages(given, "ppo"),
    ),
    Remark(
        "advantage_estimator",
        "defect",
        "Under context parallelism ppo places the reward on the last token of the first rank, which is the wrong one where its last "
        "chunk is empty; use another estimator.",
        lambda given: _advantages(given, "ppo") and given["context_parallel_size"] > 1,
    ),
    Remark(
        "normalize_advantages",
        "note",
        "{advantage_estimator} is meant to be whitened and slime demands it; switch --normalize-advantages on.",
        lambda given: (
            _advantages(given, "reinforce_plus_plus", "reinforce_plus_plus_baseline")
            and not given["normalize_advantages"]
        ),
    ),
)
