"""What slime (624b824a) computes: `--use-tis` and the function that weighs, losses, and rewards to advantages.

The function is its own, IcePop's or the `mis` recipe's; beside it stands the off-policy sequence mask.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from trimtab.config import losses as ours
from trimtab.config.advantages import WHITEN, Distillation, Estimator, Gae, Grpo, Normalise, ReinforcePlusPlus
from trimtab.config.correction import Correction, Gate, Limit, Weight
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Given, Key
from trimtab.dialects.parts import (
    ALL,
    OPEN,
    AdvantagePart,
    Gates,
    LossPart,
    alone,
    bonus,
    limit,
    opsm,
    ratio_gate,
    refuse,
    weight_of,
)
from trimtab.dialects.values import Choice, choice, flag, number, positive
from trimtab.errors import ConfigError

LEVELS = choice("token", "sequence", "geometric")
RECIPE = (
    Key("use_rs", flag, False),
    Key("tis_level", LEVELS, "token"),
    Key("rs_level", LEVELS, "token"),
    Key("tis_mode", choice("truncate", "clip", "mask"), "truncate"),
    Key("tis_lower_bound", number, 0.5, null="open"),
    Key("tis_upper_bound", positive, 2.0),
    Key("rs_lower_bound", number),
    Key("rs_upper_bound", number),
    Key("rs_veto_threshold", number, 1e-4, null="open"),
    Key("tis_batch_normalize", flag, True),
)
"""examples/train_infer_mismatch_helper/mis.yaml"""
BEFORE = ("mis_level", "mis_mode", "mis_lower_bound", "mis_upper_bound", "mis_veto_threshold")
"""What that file held before it got use_rs."""
DISTILLED = "on_policy_distillation"
FLASH = "flash_reinforce"
ESTIMATORS = ("grpo", "gspo", "cispo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")


@dataclass(frozen=True)
class EstimatorName(Choice):
    """One of the estimators, a teacher's alone, which was one of them before --use-opd, or one against the mean of the batch."""

    def __call__(self, path: str, value: Any) -> str:
        """The name that was given."""
        return value if value in (DISTILLED, FLASH) else super().__call__(path, value)


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────

SAFETY = 20.0
PLACE = "slime.backends.megatron_utils.loss"
TRUST_REGION, TRUST_SAFETY = "binary_kl_trust_region_function", 30.0
MIS = "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp"
"""The function of the recipe, which the command names; a file of bounds does not."""
Function = Literal["vanilla", "icepop", "trust region", "mis"]
FUNCTIONS: dict[str, Function] = {
    "vanilla_tis_function": "vanilla",
    "icepop_function": "icepop",
    TRUST_REGION: "trust region",
    MIS.rpartition(".")[2]: "mis",
}
"""What weighs, by the last word of --custom-tis-function-path."""


def correction_of(given: Given) -> Correction:
    """The weight of whichever function is configured, and the sequence mask."""
    refuse(
        given.is_on("mis_level", "mis_mode", "mis_upper_bound", "mis_veto_threshold") and function(given) == "mis",
        f"{given.dialect.title} mis_level, mis_mode and their bounds",
        "they zeroed weights where today's recipe rejects. Write tis_level, tis_mode, tis_lower_bound, tis_upper_bound and "
        "rs_veto_threshold, as mis.yaml has it since it got use_rs",
    )
    if given["use_score_centering"]:
        return _centering(given)
    gates = _opsm(given)
    if not weighs(given):
        if given["use_rollout_logprobs"]:
            return Correction(policies="bypass", gates=gates, weight=Weight(level="one"))
        return alone(given, gates)
    if given["use_rollout_logprobs"]:
        raise ConfigError(
            f"{given.dialect.title} --use-rollout-logprobs and a weight, of --use-tis or of a function that --get-mismatch-metrics "
            "calls, exclude each other. Drop one."
        )
    kind = function(given)
    if kind == "mis":
        refuse(
            lacks_the_recipe(given),
            f"{given.dialect.title}'s mis recipe",
            "its levels and bounds stand in the file of --custom-config-path. Put that beside this one, or pass --set",
        )
        return _mis(given, gates)
    return _trust_region(given, gates) if kind == "trust region" else Correction(gates=gates, weight=_bounded(given))


def function(given: Given) -> Function:
    """Which function weighs: the one that the command names, whatever keys stand beside it, and slime's own where it names none.

    A file of nothing but the recipe's keys is the one that the recipe reads.
    """
    path = given["custom_tis_function_path"]
    if path is None:
        return "mis" if is_the_recipes_file(given) else "vanilla"
    kind = FUNCTIONS.get(re.split(r"[.:]", path)[-1])
    if kind is None:
        raise ConfigError(
            f"{given.dialect.title} --custom-tis-function-path {path} is a function of your own and cannot be read."
        )
    return kind


def has_recipe(given: Given) -> bool:
    """Whether a key of the recipe is written."""
    return given.has(*(key.label for key in RECIPE), *BEFORE)


def is_the_recipes_file(given: Given) -> bool:
    """Whether these are the recipe's keys and no others, as its own file holds them."""
    others = set(given.places) - {"use_tis", *(key.label for key in RECIPE), *BEFORE}
    return has_recipe(given) and not others and all(key.startswith(("tis_", "rs_")) for key in given.unread_keys)


def lacks_the_recipe(given: Given) -> bool:
    """Whether the recipe's keys stand in a file that is not here."""
    return given.has("custom_config_path") and not has_recipe(given)


def is_mis(given: Given) -> bool:
    """Whether the weight is that of the `mis` recipe, with levels and bounds that are known."""
    return function(given) == "mis" and not lacks_the_recipe(given)


def weighs(given: Given) -> bool:
    """Whether a function weighs the loss. To log mismatch slime calls the same one, and two of them do not ask why."""
    is_logged = given["get_mismatch_metrics"] and given["custom_tis_function_path"] is not None
    return bool(given["use_tis"]) or (bool(is_logged) and function(given) in ("vanilla", "icepop"))


def _bounded(given: Given) -> Weight:
    """The token's ratio within the bounds: held there, or dropped outside."""
    return weight_of("token", given["tis_clip_low"], given["tis_clip"], zero=function(given) == "icepop")


def _centering(given: Given) -> Correction:
    """REINFORCE by the ratio of the policy being trained to the sampler, less its mean over the head; three policies are not compared."""
    refuse(
        given["use_opsm"] or (given["use_tis"] and function(given) in ("mis", "trust region")),
        f"{given.dialect.title} --use-score-centering with --use-opsm or a recipe of weights",
        "it goes with --use-tis and its icepop_function only. Leave one out",
    )
    weight = _bounded(given) if given["use_tis"] else Weight(level="one")
    return Correction(policies="bypass", weight=weight, centering="score")


def _trust_region(given: Given, gates: Gates) -> Correction:
    """Unclipped token ratios; a sequence whose mean binary KL(behavior ‖ proximal) is above the threshold weighs 0."""
    bound = given["tis_binary_kl_threshold"]
    if math.isfinite(bound):
        tested: dict[str, Any] = {"level": "sequence", "agg": "mean", "direction": "forward"}
        gates += (Gate(metric="binary_kl", upper=bound, action="zero", **tested),)
    return Correction(gates=gates, weight=Weight(level="token", limit=Limit(bound=TRUST_SAFETY, at="token")))


def _opsm(given: Given) -> Gates:
    """Per token, against the policy PPO compares with."""
    if not given["use_opsm"]:
        return ()
    pair = "current/behavior" if given["use_rollout_logprobs"] else "current/proximal"
    return (opsm(given["opsm_delta"], pair=pair, advantage_of="token"),)


def _mis(given: Given, gates: Gates) -> Correction:
    unit, mode = given["tis_level"], given["tis_mode"]
    upper = given["tis_upper_bound"]
    lower = given["tis_lower_bound"] if given["tis_lower_bound"] is not None else 1 / upper
    normalize = bool(given["tis_batch_normalize"])
    if normalize and unit == "geometric":
        raise ConfigError(
            f"{given.dialect.title} tis_batch_normalize needs tis_level token or sequence, got geometric. Switch it off."
        )
    if mode == "mask":
        gates += ratio_gate(unit, lower, upper, limit=limit(SAFETY, unit))
    if given["use_rs"]:
        gates += _rejection(given, lower, upper)
    bounds = {"truncate": (None, upper), "clip": (lower, upper), "mask": (None, None)}[mode]
    weight = weight_of(unit, *bounds, limit=limit(SAFETY, unit))
    return Correction(gates=gates, weight=weight, normalize="batch" if normalize else None)


def _rejection(given: Given, lower: float, upper: float) -> Gates:
    unit = given["rs_level"]
    low = given["rs_lower_bound"] if given["rs_lower_bound"] is not None else lower
    high = given["rs_upper_bound"] if given["rs_upper_bound"] is not None else upper
    vetoes = ratio_gate("every", given["rs_veto_threshold"], None) if given["rs_veto_threshold"] else ()
    return ratio_gate(unit, low, high, limit=limit(SAFETY, unit)) + vetoes


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """The plain flags first, then the recipe."""
    masks = [gate for gate in rule.gates if gate.when == "negative_advantage"]
    found: dict[str, Any] = {"use_opsm": True, "opsm_delta": masks[0].upper} if masks else {}
    if masks and masks[0].pair == "current/behavior":
        found["use_rollout_logprobs"] = True
    gates = [gate for gate in rule.gates if gate not in masks]
    weight = rule.weight
    if rule.centering is not None:
        found["use_score_centering"] = True
        if weight is None or weight.level == "one":
            yield {"use_tis": False, **found}
            return
    if weight is None or weight.level == "one":
        behavior = {"use_rollout_logprobs": True} if rule.policies == "bypass" and not masks else {}
        yield {"use_tis": False, **behavior, **found}
        return
    plain = {"use_tis": True, "tis_clip_low": weight.lower or 0.0, "tis_clip": weight.upper or OPEN, **found}
    if weight.outside == "zero":
        plain["custom_tis_function_path"] = f"{PLACE}.icepop_function"
    yield plain
    if any(gate.metric == "binary_kl" for gate in gates):
        named = f"{PLACE}.{TRUST_REGION}"
        yield {"use_tis": True, "custom_tis_function_path": named, "tis_binary_kl_threshold": gates[0].upper, **found}
    bounds = {"tis_lower_bound": weight.lower, "tis_upper_bound": weight.upper or OPEN}
    recipe: dict[str, Any] = {"use_tis": True, "custom_tis_function_path": MIS}
    recipe |= {"tis_level": weight.level, "tis_batch_normalize": rule.normalize is not None}
    rejection = _recipe(gates)
    for mode in ("truncate", "clip"):
        yield {**recipe, "tis_mode": mode, **bounds, **rejection, **found}
    if gates and gates[0].level != "batch":
        tested = {
            "tis_mode": "mask",
            "tis_lower_bound": gates[0].lower or 1 / OPEN,
            "tis_upper_bound": gates[0].upper or OPEN,
        }
        yield {**recipe, **tested, **_recipe(gates[1:]), **found}


def _recipe(gates: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"use_rs": bool(gates), "rs_veto_threshold": None}
    for gate in gates:
        if gate.agg == "every":
            found["rs_veto_threshold"] = gate.lower
        else:
            level = {None: "token", "mean": "geometric", "sum": "sequence"}.get(gate.agg, "token")
            found |= {"rs_level": level, "rs_lower_bound": gate.lower or 1 / OPEN, "rs_upper_bound": gate.upper or OPEN}
    return found


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def loss_of(given: Given) -> LossPart:
    """PPO, GSPO or CISPO by the estimator's name; a mean per sample, or per token."""
    kind, title = given["loss_type"], given.dialect.title
    refuse(
        kind not in ("policy_loss", "custom_loss"),
        f"{title} --loss-type {kind}",
        "it is a loss of its own. Use policy_loss",
    )
    refuse(given["custom_loss_function_path"], f"{title} --custom-loss-function-path", "it is a function of your own")
    own = given["custom_pg_loss_reducer_function_path"]
    refuse(own, f"{title} --custom-pg-loss-reducer-function-path", "it is a function of your own")
    mode = "token-mean" if given["calculate_per_token_loss"] else "seq-mean-token-mean"
    return LossPart(
        loss=_loss(given),
        reduction=Reduction(mode=mode),
        kl=_kl(given) if given["use_kl_loss"] and given["kl_loss_coef"] else None,
        entropy=bonus(given["entropy_coef"], mask="kept"),
    )


def _loss(given: Given) -> Objective:
    if given["pg_loss_type"] == "reinforce" or (given["pg_loss_type"] is None and _is_reinforce(given)):
        return ours.Reinforce()
    low = given["eps_clip"]
    high = low if given["eps_clip_high"] is None else given["eps_clip_high"]
    if given["advantage_estimator"] == "cispo":
        return ours.Cispo(lower=1 - low, upper=1 + high)
    kind: Any = ours.Gspo if given["advantage_estimator"] == "gspo" else ours.Clip
    # the reducer is rebuilt with what is left, the ratio of a sequence is not
    scope: dict[str, Any] = {"scope": "trained"} if kind is ours.Gspo else {}
    return kind(low=low, high=high, dual=given["eps_clip_c"], **scope)


def _is_reinforce(given: Given) -> bool:
    """Whether the objective is REINFORCE where --pg-loss-type says nothing."""
    return bool(given["use_score_centering"]) or given["advantage_estimator"] == FLASH


def _kl(given: Given) -> KlPenalty:
    """Paid on what rejection left, times the ratio where it is to be unbiased; only low_var_kl is held."""
    named = given["kl_loss_type"]
    unbiased = bool(given["use_unbiased_kl"])
    refuse(
        unbiased and named == "low_var_kl",
        f"{given.dialect.title} --use-unbiased-kl with --kl-loss-type low_var_kl",
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


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────

CENTRED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
"""Estimators whose rewards are centred in their group."""


def advantage_of(given: Given) -> AdvantagePart:
    """What rewards say; under --use-opd the teacher's log-ratio on top of it, and both normalised together."""
    title = given.dialect.title
    refuse(given["use_mopd"], f"{title} --use-mopd", "teachers move the advantages, weighed by ratios of their own")
    refuse(
        given["use_opd"] and given["opd_type"] == "self",
        f"{title} --opd-type self",
        "the model is its own teacher, by a divergence over the vocabulary in place of loss and advantages",
    )
    whiten = WHITEN if given["normalize_advantages"] else None
    if given["advantage_estimator"] == DISTILLED:
        refuse(
            given["use_opd"], f"{title} --use-opd with advantage_estimator {DISTILLED}", "the teacher would count twice"
        )
        return AdvantagePart(advantage=Distillation(student=_student(given), normalise=whiten, **ALL))
    if not given["use_opd"]:
        return _from_rewards(given, whiten)
    found = _from_rewards(given, None)
    both: Any = Distillation(
        coefficient=given["opd_kl_coef"],
        student=_student(given),
        base=found.advantage,  # pyright: ignore[reportArgumentType]
        normalise=whiten,
        **ALL,
    )
    return replace(found, advantage=both)


def _student(given: Given) -> Any:
    """Whose log-probs are compared with the teacher's: the trainer's before the step, or those of the rollout."""
    return "behavior" if given["use_rollout_logprobs"] else "proximal"


def _from_rewards(given: Given, whiten: Normalise | None) -> AdvantagePart:
    """Rewards centred in their group and, for GRPO, divided by its deviation; returns for REINFORCE++ and PPO."""
    name, penalty = given["advantage_estimator"], given["kl_coef"]
    title = given.dialect.title
    refuse(
        name == FLASH, f"{title} advantage_estimator {name}", "its baseline is the mean over all prompts of the batch"
    )
    if name not in CENTRED:
        kl = KlPenalty(coefficient=penalty, estimator=_estimator(given)) if penalty else None
        return AdvantagePart(advantage=_returns(given, whiten), reward_kl=kl)
    if not given["rewards_normalization"]:
        raise ConfigError(
            f"{title} --disable-rewards-normalization with advantage_estimator {name} is not supported: rewards themselves become "
            "advantages. Use reinforce_plus_plus, or normalise."
        )
    refuse(
        name == "reinforce_plus_plus_baseline" and penalty,
        f"{title} --kl-coef with reinforce_plus_plus_baseline",
        "each token pays its own KL only, where ours pays the sum to come. Use --use-kl-loss",
    )
    scaled = name != "reinforce_plus_plus_baseline" and bool(given["grpo_std_normalization"])
    return AdvantagePart(advantage=Grpo(std=scaled, normalise=whiten, baseline="all"))


def _returns(given: Given, whiten: Normalise | None) -> Estimator:
    if given["advantage_estimator"] == "ppo":
        return Gae(gamma=given["gamma"], lam=given["lambd"], gaps="step", normalise=whiten, **ALL)
    return ReinforcePlusPlus(gamma=given["gamma"], gaps="step", normalise=whiten, **ALL)


def _estimator(given: Given) -> Any:
    named, title = given["kl_loss_type"], given.dialect.title
    refuse(
        named == "low_var_kl", f"{title} --kl-coef with --kl-loss-type low_var_kl", "use k3, which it holds within 10"
    )
    return named
