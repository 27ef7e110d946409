"""What AReaL 1.0.4 computes: `actor.rejection_sampling`, its predecessor, the unmerged second stage of #1218, losses and advantages.

ℓ = log proximal − log behavior. At sequence level with metric ratio the weight is the geometric mean, whatever `agg`;
with a KL metric it stays the token's own ratio. The loss is always a token mean. Rewards are shaped and normalised, then GAE, then the
advantages are normalised.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Estimator, Gae, Normalise, Overlong, ReinforcePlusPlus, Shaping
from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import OFF, AdvantagePart, LossPart, ratio_gate, refuse, weight_of
from trimtab.dialects.values import choice, flag, number, whole
from trimtab.errors import ConfigError

SECTION = "actor.rejection_sampling"
NORM: dict[str, tuple[Any, Any]] = {
    "mean_level": (choice("batch", "group"), "batch"),
    "mean_leave1out": (flag, False),
    "std_level": (choice("batch", "group"), "batch"),
    "std_unbiased": (flag, True),
    "eps": (number, 1e-5),
    "group_size": (whole, 1),
}


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────

METRICS: dict[str, dict[str, Any]] = {
    "kl_k1": {"metric": "k1", "direction": "reverse"},
    "kl_k2": {"metric": "k2"},
    "kl_k3": {"metric": "k3", "direction": "reverse"},
}
DOCUMENTED = METRICS | {
    "kl_k3": {"metric": "k3", "direction": "forward"},
    "binary_kl": {"metric": "binary_kl", "direction": "max"},
}
UNIT_OF = {"sum": "sequence", "mean": "geometric", "max": "max"}
DECOUPLED = "actor.use_decoupled_loss"


def correction_of(given: Given) -> Correction:
    """Rejection, or M2PO, or the weights of the predecessor, where the loss is decoupled; else the loss by itself."""
    if not is_decoupled(given) or given["use_sapo_loss"]:
        return OFF if given["recompute_logprob"] or not _says_its_loss(given) else OFF.but(policies="bypass")
    section = rejection_section(given)
    if given["m2_threshold"] is not None:
        return _m2po(given, section)
    return OFF if section is None else _rejection(given, section)


def is_decoupled(given: Given) -> bool:
    """Whether proximal and behavior are two policies. Otherwise both are the sampler, or the recomputed pass, and every ratio is 1.

    A section by itself is read as it acts where the loss is decoupled; a whole file has AReaL's default, which is not.
    """
    return bool(given["use_decoupled_loss"]) if _says_its_loss(given) else True


def _says_its_loss(given: Given) -> bool:
    """Whether the settings decide which log-probs are compared, by a key or because they are those of a whole run."""
    is_all = given.whole and not given.builds_on_others
    return is_all or given.has("use_decoupled_loss", "recompute_logprob")


def acting_section(given: Given) -> dict[str, Any] | None:
    """The fields of `rejection_sampling` where they act."""
    return rejection_section(given) if is_decoupled(given) and not given["use_sapo_loss"] else None


def rejection_section(given: Given) -> dict[str, Any] | None:
    """The fields of `rejection_sampling`, also where the older keys say them; None: no rejection."""
    names = ("level", "action", "metric", "agg", "upper", "lower", "token_action")
    if given.has(*names) or given.section(SECTION) == {}:
        return {name: given[name] for name in names}
    if not given.has("behave_imp_weight_cap", "behave_imp_weight_mode"):
        return None
    return rejection_of_mode(given["behave_imp_weight_mode"], given["behave_imp_weight_cap"])


def rejection_of_mode(mode: str, cap: float | None) -> dict[str, Any] | None:
    """`behave_imp_weight_mode` and `_cap` in today's fields."""
    if mode == "disabled" or cap is None:
        return None
    level, _, action = mode.partition("_")
    fields = {"level": level, "action": {"truncate": "clamp", "mask": "mask"}[action]}
    return {**fields, "metric": "ratio", "agg": "mean", "upper": cap, "lower": None, "token_action": None}


def _rejection(given: Given, section: dict[str, Any]) -> Correction:
    _check(section, given.documented)
    level, metric, lower, upper = (section[name] for name in ("level", "metric", "lower", "upper"))
    action = {"mask": "reject", "clamp": "clamp"}[section["action"]]
    if metric != "ratio":
        shape: dict[str, Any] = {"level": level} if level == "token" else {"level": level, "agg": section["agg"]}
        fields = (DOCUMENTED if given.documented else METRICS)[metric]
        return Correction(gates=(Gate(**fields, **shape, lower=lower, upper=upper),), weight=Weight(level="token"))
    if level == "token":
        if action == "clamp":
            return Correction(weight=weight_of("token", lower, upper))
        return Correction(gates=ratio_gate("token", lower, upper), weight=Weight(level="token"))
    unit = UNIT_OF[section["agg"]]
    if section["token_action"] is not None:
        first = ratio_gate("geometric", lower, upper)
        if section["token_action"] == "clamp":
            return Correction(gates=first, weight=weight_of("token", lower, upper))
        second = ratio_gate("token", lower, upper, scope="kept")
        return Correction(gates=first + second, weight=Weight(level="token"))
    return Correction(gates=ratio_gate(unit, lower, upper, action=action), weight=Weight(level="geometric"))


def _check(section: dict[str, Any], documented: bool) -> None:
    """What AReaL refuses itself."""
    metric, lower, upper = section["metric"], section["lower"], section["upper"]
    if metric == "binary_kl" and not documented:
        raise ConfigError(
            f"AReaL {SECTION}.metric binary_kl is documented, but refused by AReaL's own validation (1.0.4 and HEAD). Use kl_k2 or "
            "kl_k3, or read with documented=True."
        )
    if upper is None:
        raise ConfigError(
            f"AReaL {SECTION}.upper needs a number, got null. Set rejection_sampling: null to switch it off."
        )
    if metric == "ratio" and (upper <= 1 or (lower is not None and lower <= 0 and section["action"] == "mask")):
        raise ConfigError(f"AReaL {SECTION} with metric ratio needs upper > 1 and lower > 0, got [{lower}, {upper}].")
    if metric in ("kl_k2", "kl_k3", "binary_kl") and upper <= 0:
        raise ConfigError(f"AReaL {SECTION}.upper needs to be above 0 for {metric}, got {upper:g}.")
    if section["action"] == "clamp" and metric != "ratio":
        raise ConfigError(f"AReaL {SECTION}.action clamp needs metric ratio, got {metric}. Use action mask.")
    if section["token_action"] is not None and (section["level"], metric, section["action"]) != (
        "sequence",
        "ratio",
        "mask",
    ):
        raise ConfigError(f"AReaL {SECTION}.token_action needs level sequence, metric ratio and action mask (#1218).")


def _m2po(given: Given, section: dict[str, Any] | None) -> Correction:
    if section is not None:
        raise ConfigError(
            "AReaL actor.m2_threshold together with rejection_sampling is not supported: the loss divides by the tokens that are "
            "left after the first and before the second. Use one of them."
        )
    gate = Gate(metric="second_moment", level="batch", upper=given["m2_threshold"], strict=True)
    return Correction(gates=(gate,), weight=Weight(level="one"), denominator="trained" if given.documented else "kept")


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Each way in which one gate and one weight can be said; reading it back decides."""
    weight = rule.weight
    if not rule.gates and (weight is None or weight.level == "one"):
        if rule.policies == "bypass":
            yield {SECTION: None, DECOUPLED: False, "actor.recompute_logprob": False}
        yield {SECTION: None, "actor.recompute_logprob": True}
    if not rule.gates and weight is not None:
        yield _fields(level="token", action="clamp", upper=weight.upper, lower=weight.lower)
        if weight.outside == "zero":
            yield _fields(level="token", action="mask", upper=weight.upper, lower=weight.lower)
    if len(rule.gates) == 1 and rule.gates[0].agg == "budget":
        yield {"actor.m2_threshold": rule.gates[0].upper, DECOUPLED: True}
    if rule.gates:
        gate = rule.gates[0]
        metric = next((name for name, row in METRICS.items() if row["metric"] == gate.metric), "ratio")
        fields = {"level": gate.level, "metric": metric, "upper": gate.upper, "lower": gate.lower}
        if gate.level == "sequence":
            fields["agg"] = gate.agg
        for action in ("mask", "clamp"):
            yield _fields(**fields, action=action)
        for token_action in ("mask", "clamp"):
            yield _fields(**fields, action="mask", token_action=token_action)


def _fields(**fields: Any) -> dict[str, Any]:
    """The section, and the switch without which AReaL ignores it."""
    return {f"{SECTION}.{name}": value for name, value in fields.items() if value is not None} | {DECOUPLED: True}


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def loss_of(given: Given) -> LossPart:
    """PPO, GSPO with pooled advantages, or SAPO; always a token mean."""
    return LossPart(loss=_loss(given), reduction=Reduction(mode="token-mean"))


def _loss(given: Given) -> Objective:
    by_sequence = given["importance_sampling_level"] == "sequence"
    _check_loss(given, by_sequence)
    if given["use_cispo_loss"]:
        return ours.Cispo(lower=1 - given["eps_clip"], upper=1 + given["eps_clip_higher"])
    if given["use_sapo_loss"]:
        pooled: dict[str, Any] = {"level": "sequence", "advantage": "sequence"} if by_sequence else {}
        return ours.Sapo(tau_positive=given["sapo_tau_pos"], tau_negative=given["sapo_tau_neg"], **pooled)
    high = given["eps_clip"] if given["eps_clip_higher"] is None else given["eps_clip_higher"]
    clip: dict[str, Any] = {"low": given["eps_clip"], "high": high, "dual": given["c_clip"]}
    return ours.Gspo(**clip, advantage="sequence") if by_sequence else ours.Clip(**clip)


def _check_loss(given: Given, by_sequence: bool) -> None:
    """What AReaL refuses itself."""
    if given["use_sapo_loss"] and given["use_decoupled_loss"]:
        raise ConfigError("AReaL actor.use_sapo_loss and use_decoupled_loss exclude each other. Drop one.")
    if not given["use_cispo_loss"]:
        return
    if given["use_sapo_loss"] or by_sequence:
        raise ConfigError("AReaL actor.use_cispo_loss needs the token level and no use_sapo_loss. Drop one.")
    if not given["eps_clip_higher"]:
        raise ConfigError("AReaL actor.use_cispo_loss needs eps_clip_higher above 0, got nothing.")


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def norm(given: Given, section: str) -> Normalise | None:
    """A NormConfig: the deviation is taken about what was subtracted, and leave-one-out of one keeps the raw value."""
    said = given.has(*(f"{section}.{name}" for name in NORM)) or given.section(f"actor.{section}") == {}
    if not said:
        return first_norm(given, section)
    field = {name: given[f"{section}.{name}"] for name in NORM if name != "group_size"}
    if field["mean_level"] is None and field["std_level"] is None:
        return None
    alone = bool(field["mean_leave1out"]) and field["mean_level"] is not None
    return Normalise(
        mean=field["mean_level"],
        std=field["std_level"],
        leave_one_out=alone,
        unbiased=field["std_unbiased"],
        eps=field["eps"],
        eps_at="std",
        about="own" if field["mean_level"] == field["std_level"] and not alone else "subtracted",
        singleton="raw" if _keeps_one(given, field, alone) else "zero",
    )


def is_first(given: Given) -> bool:
    """Whether a file is of the first versions, whose norms were switches: group_adv_norm, group_reward_norm."""
    return given.has("group_adv_norm", "group_reward_norm")


def first_norm(given: Given, section: str) -> Normalise | None:
    """What the switches of the first versions did: advantages were normalised unless adv_norm was false, rewards never by default."""
    if not is_first(given):
        return None
    if section == "reward_norm":
        return Normalise(mean="group", std="group", eps=1e-9, eps_at="std") if given["group_reward_norm"] else None
    level = "group" if given["group_adv_norm"] else "batch"
    return Normalise(mean=level, std=level, unbiased=False, eps=1e-5, eps_at="std")


def _keeps_one(given: Given, field: dict[str, Any], alone: bool) -> bool:
    """Whether a group of one keeps its value: with leave-one-out it did until 2.0.0, which takes it for its own mean."""
    if alone:
        return field["mean_level"] != "group" or not given.since("2.0.0")
    return _is_undivided(field)


def _is_undivided(field: dict[str, Any]) -> bool:
    """Whether a lone valid element is divided by 1 and not by its own distance from the mean, which its level did not subtract."""
    return bool(field["std_unbiased"]) and field["std_level"] is not None and _mean_is_of_more(field)


def _mean_is_of_more(field: dict[str, Any]) -> bool:
    return field["mean_level"] is None or (field["mean_level"], field["std_level"]) == ("batch", "group")


def has_critic(given: Given) -> bool:
    """Whether there is a critic: AReaL makes one where its section is written, and takes every value as 0 otherwise."""
    written = given.has_section("critic") and given.value_of("critic") is not None
    return written or (given.has("is_critic") and bool(given["is_critic"]))


def advantage_of(given: Given) -> AdvantagePart:
    """Overlong, bias, scale, clip, normalise; then GAE; then the advantages are normalised, every row voting.

    As shipped a row without EOS votes in the reward normalisation though its reward is then dropped, so shaping takes two
    steps; documented, it does not vote. Such a row votes among the advantages either way.
    """
    refuse(
        isinstance(given["gae_lambda"], str) and not _is_number(given["gae_lambda"]),
        f"AReaL actor.gae_lambda {given['gae_lambda']}",
        "it is a function. Write a number, or use Gae(length_adaptive=…)",
    )
    refuse(given["gae_timestep_unit"] == "turn", "AReaL actor.gae_timestep_unit turn", "ours steps by token")
    masks, whiten, penalty = bool(given["mask_no_eos_with_zero"]), norm(given, "adv_norm"), given["kl_ctl"]
    return AdvantagePart(
        advantage=_estimator(given, None if masks else whiten),
        shaping=_shaping(given, masks),
        advantage_norm=whiten if masks else None,
        reward_kl=KlPenalty(coefficient=penalty, estimator=given["kl_estimator"], output_limit=10.0)
        if penalty
        else None,
    )


def _estimator(given: Given, whiten: Normalise | None) -> Estimator:
    """GAE; without a critic δ is the reward, so that what is left of it is Σ (γλ)ᵏ of the rewards to come."""
    gamma, lam = given["discount"], number("AReaL actor.gae_lambda", given["gae_lambda"])
    if has_critic(given):
        return Gae(gamma=gamma, lam=lam, normalise=whiten, baseline="all")
    return ReinforcePlusPlus(gamma=gamma * lam, normalise=whiten, baseline="all")


def _shaping(given: Given, masks: bool) -> tuple[Shaping, ...]:
    normalise = norm(given, "reward_norm")
    first = Shaping(
        bias=given["reward_bias"],
        scale=given["reward_scaling"],
        lower=-given["reward_clip"],
        upper=given["reward_clip"],
        overlong=_overlong(given),
        normalise=normalise,
    )
    no_eos = "bootstrap" if has_critic(given) else "zero"
    if not masks:
        return (first,)
    return (first.but(no_eos=no_eos),) if given.documented or normalise is None else (first, Shaping(no_eos=no_eos))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _overlong(given: Given) -> Overlong | None:
    if not given["overlong_reward_penalty"]:
        return None
    return Overlong(
        max_length=given["max_new_tokens"],
        buffer=given["overlong_tokens"],
        factor=given["overlong_penalty_factor"],
        cap=False,
    )
