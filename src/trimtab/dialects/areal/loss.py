"""AReaL: the actor's loss, and its way from rewards to advantages."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Gae, Normalise, Overlong, Shaping
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.keys import Given, Key, Remark, choice, flag, number, raw, whole
from trimtab.dialects.objectives import Descent, Estimation, refuse
from trimtab.errors import ConfigError

NORM: dict[str, tuple[Any, Any]] = {
    "mean_level": (choice("batch", "group"), "batch"),
    "mean_leave1out": (flag, False),
    "std_level": (choice("batch", "group"), "batch"),
    "std_unbiased": (flag, True),
    "eps": (number, 1e-5),
    "group_size": (whole, 1),
}
KEYS = (
    Key("actor.eps_clip", number, 0.2, part="loss"),
    Key("actor.eps_clip_higher", number, part="loss"),
    Key("actor.c_clip", number, part="loss"),
    Key("actor.importance_sampling_level", choice("token", "sequence"), "token", part="loss"),
    Key("actor.use_sapo_loss", flag, False, part="loss"),
    Key("actor.sapo_tau_pos", number, 1.0, part="loss"),
    Key("actor.sapo_tau_neg", number, 1.05, part="loss"),
    Key("actor.use_cispo_loss", flag, False, part="loss"),
    *(
        Key(
            f"actor.{section}.{name}",
            kind,
            default,
            part="advantage",
            name=f"{section}.{name}",
            null="open" if name.endswith("level") else "refused",
        )
        for section in ("reward_norm", "adv_norm")
        for name, (kind, default) in NORM.items()
    ),
    Key("actor.kl_ctl", number, 0.1, part="advantage"),
    Key("actor.kl_estimator", choice("k1", "k2", "k3"), "k1", part="advantage"),
    Key("actor.mask_no_eos_with_zero", flag, False, part="advantage"),
    Key("actor.reward_scaling", number, 1.0, part="advantage"),
    Key("actor.reward_bias", number, 0.0, part="advantage"),
    Key("actor.reward_clip", number, 20.0, part="advantage"),
    Key("actor.overlong_reward_penalty", flag, False, part="advantage"),
    Key("actor.overlong_tokens", whole, part="advantage"),
    Key("actor.overlong_penalty_factor", number, part="advantage"),
    Key("actor.max_new_tokens", whole, 1024, part="advantage", also=("gconfig.max_new_tokens",)),
    Key("actor.discount", number, 1.0, part="advantage"),
    Key("actor.gae_lambda", raw, 1.0, part="advantage"),
    Key("actor.gae_timestep_unit", choice("token", "turn"), "token", part="advantage"),
)
CLOSED = ("actor.reward_norm", "actor.adv_norm")


def descent(given: Given) -> Descent:
    """PPO, GSPO with pooled advantages, or SAPO; always a token mean."""
    return Descent(loss=_loss(given), reduction=Reduction(mode="token-mean"))


def _loss(given: Given) -> Objective:
    by_sequence = given["importance_sampling_level"] == "sequence"
    _check(given, by_sequence)
    if given["use_cispo_loss"]:
        return ours.Cispo(lower=1 - given["eps_clip"], upper=1 + given["eps_clip_higher"])
    if given["use_sapo_loss"]:
        pooled: dict[str, Any] = {"level": "sequence", "advantage": "sequence"} if by_sequence else {}
        return ours.Sapo(tau_positive=given["sapo_tau_pos"], tau_negative=given["sapo_tau_neg"], **pooled)
    high = given["eps_clip"] if given["eps_clip_higher"] is None else given["eps_clip_higher"]
    clip: dict[str, Any] = {"low": given["eps_clip"], "high": high, "dual": given["c_clip"]}
    return ours.Gspo(**clip, advantage="sequence") if by_sequence else ours.Clip(**clip)


def _check(given: Given, by_sequence: bool) -> None:
    """What AReaL refuses itself."""
    if given["use_sapo_loss"] and given.said("use_decoupled_loss") and given["use_decoupled_loss"]:
        raise ConfigError("AReaL actor.use_sapo_loss and use_decoupled_loss exclude each other. Drop one.")
    if not given["use_cispo_loss"]:
        return
    if given["use_sapo_loss"] or by_sequence:
        raise ConfigError("AReaL actor.use_cispo_loss needs the token level and no use_sapo_loss. Drop one.")
    if not given["eps_clip_higher"]:
        raise ConfigError("AReaL actor.use_cispo_loss needs eps_clip_higher above 0, got nothing.")


def norm(given: Given, section: str) -> Normalise | None:
    """A NormConfig: the deviation is taken about what was subtracted, and leave-one-out of one keeps the raw value."""
    said = given.said(*(f"{section}.{name}" for name in NORM)) or given.section(f"actor.{section}") == {}
    if not said:
        return None
    field = {name: given[f"{section}.{name}"] for name in NORM}
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
        about="subtracted",
        singleton="raw" if alone or _undivided(field) else "zero",
    )


def _undivided(field: dict[str, Any]) -> bool:
    """Whether a lone valid element is divided by 1 and not by its own distance from the mean, which its level did not subtract."""
    return bool(field["std_unbiased"]) and field["std_level"] is not None and _mean_is_of_more(field)


def _mean_is_of_more(field: dict[str, Any]) -> bool:
    return field["mean_level"] is None or (field["mean_level"], field["std_level"]) == ("batch", "group")


def estimation(given: Given) -> Estimation:
    """Overlong, bias, scale, clip, normalise; then GAE; then the advantages are normalised, every row voting.

    As shipped a row without EOS votes in the reward normalisation though its reward is then dropped, so shaping takes two
    steps; documented, it does not vote.
    """
    refuse(
        isinstance(given["gae_lambda"], str) and not _is_number(given["gae_lambda"]),
        f"AReaL actor.gae_lambda {given['gae_lambda']}",
        "it is a function. Write a number, or use Gae(length_adaptive=…)",
    )
    refuse(given["gae_timestep_unit"] == "turn", "AReaL actor.gae_timestep_unit turn", "ours steps by token")
    masks, normalise = bool(given["mask_no_eos_with_zero"]), norm(given, "reward_norm")
    first = Shaping(
        bias=given["reward_bias"],
        scale=given["reward_scaling"],
        lower=-given["reward_clip"],
        upper=given["reward_clip"],
        overlong=_overlong(given),
        normalise=normalise,
    )
    second = Shaping(no_eos="bootstrap" if masks else "keep")
    shaping = (first.but(no_eos="bootstrap"),) if masks and (given.documented or normalise is None) else (first, second)
    penalty = given["kl_ctl"]
    return Estimation(
        advantage=Gae(
            gamma=given["discount"],
            lam=number("AReaL actor.gae_lambda", given["gae_lambda"]),
            normalise=None,
            baseline="all",
        ),
        shaping=(first,) if not masks else shaping,
        advantage_norm=norm(given, "adv_norm"),
        reward_kl=KlPenalty(coefficient=penalty, estimator=given["kl_estimator"], output_limit=10.0)
        if penalty
        else None,
    )


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


def _by_group(value: Normalise | None) -> bool:
    return value is not None and "group" in (value.mean, value.std)


def _tail(given: Given, section: str, level: str) -> bool:
    by_group = norm(given, section) is not None and given[f"{section}.{level}"] == "group"
    return by_group and given[f"{section}.group_size"] > 1


def _own_size(given: Given, section: str) -> bool:
    alone = norm(given, section) is not None and given[f"{section}.mean_leave1out"]
    return bool(alone) and given[f"{section}.std_level"] is not None and not given[f"{section}.std_unbiased"]


def _spoken(given: Given) -> bool:
    return given.speaks_of("advantage")


REMARKS = (
    Remark(
        "kl_ctl",
        "defect",
        "kl_ctl {kl_ctl} without a reference model takes its log-probs as 0, so every token is paid −{kl_ctl}·log-prob, a bonus on "
        "surprise; set kl_ctl: 0 or configure ref.",
        lambda given: _spoken(given) and bool(given["kl_ctl"]) and given.whole and not given.has_section("ref"),
    ),
    Remark(
        "mask_no_eos_with_zero",
        "defect",
        "Rows without EOS lose their reward but still vote in reward_norm, so a truncated outlier shifts everyone's advantage "
        "(#1351); read with documented=True to leave them out.",
        lambda given: (
            bool(given["mask_no_eos_with_zero"]) and norm(given, "reward_norm") is not None and not given.documented
        ),
    ),
    Remark(
        "mask_no_eos_with_zero",
        "defect",
        "`No EOS` is taken to be `as long as the batch is wide`, so the longest row of every batch loses its reward; pad one "
        "column more, or mark truncated rows yourself.",
        lambda given: bool(given["mask_no_eos_with_zero"]),
    ),
    *(
        Remark(
            f"{section}.group_size",
            "surprise",
            "Groups are blocks of group_size rows; where the batch is not a multiple of it the tail is divided by eps, 1e5 times too "
            "large.",
            lambda given, section=section: _tail(given, section, "std_level"),
        )
        for section in ("reward_norm", "adv_norm")
    ),
    *(
        Remark(
            f"{section}.group_size",
            "surprise",
            "Groups are blocks of group_size rows; where the batch is not a multiple of it nothing is subtracted from the tail.",
            lambda given, section=section: (
                _tail(given, section, "mean_level") and not _tail(given, section, "std_level")
            ),
        )
        for section in ("reward_norm", "adv_norm")
    ),
    *(
        Remark(
            f"{section}.std_unbiased",
            "surprise",
            "With mean_leave1out a lone valid element of a batch or group is divided by its own size, so it becomes 1 or −1; ours keeps "
            "its value. Set std_unbiased: true to have it divided by 1.",
            lambda given, section=section: _own_size(given, section),
        )
        for section in ("reward_norm", "adv_norm")
    ),
    Remark(
        "reward_norm.mean_leave1out",
        "note",
        "A group of one keeps its raw value in 1.0.4 and gets 0 in later versions; most frameworks give 0.",
        lambda given: any(
            norm(given, section) is not None and given[f"{section}.mean_leave1out"]
            for section in ("reward_norm", "adv_norm")
        ),
    ),
    Remark(
        "use_cispo_loss",
        "note",
        "use_cispo_loss is younger than 1.0.4; read as in v2.0.0.",
        lambda given: bool(given["use_cispo_loss"]),
    ),
    Remark(
        "reward_norm.group_size",
        "surprise",
        "Normalised by group with group_size 1 every row is its own group; set group_size to the number of samples per prompt.",
        lambda given: _by_group(norm(given, "reward_norm")) and given["reward_norm.group_size"] <= 1,
    ),
    Remark(
        "importance_sampling_level",
        "note",
        "At sequence level the token advantages are averaged per sequence and the loss stays a token mean; other frameworks keep "
        "token advantages or average per sequence.",
        lambda given: given["importance_sampling_level"] == "sequence",
    ),
    Remark(
        "overlong_reward_penalty",
        "note",
        "The penalty keeps growing beyond max_new_tokens; OpenRLHF holds it at the factor.",
        lambda given: bool(given["overlong_reward_penalty"]),
    ),
)
