"""AReaL: rewards shaped and normalised, then GAE, then the advantages normalised."""

from __future__ import annotations

from typing import Any

from trimtab.config.advantages import Estimator, Gae, Normalise, Overlong, ReinforcePlusPlus, Shaping
from trimtab.config.losses import KlPenalty
from trimtab.dialects.areal.keys import NORM
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import AdvantagePart, refuse
from trimtab.dialects.values import number


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
