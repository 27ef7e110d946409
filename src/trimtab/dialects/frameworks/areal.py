"""AReaL: its keys and what is surprising about it. What it computes is in `areal_rules`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.config.advantages import Normalise
from trimtab.dialects.framework import Dialect, Given, Key, Remark, Version, defect, remark, surprise
from trimtab.dialects.frameworks.areal_rules import (
    NORM,
    SECTION,
    acting_section,
    advantage_of,
    candidates,
    correction_of,
    has_critic,
    is_decoupled,
    is_first,
    loss_of,
    norm,
    rejection_section,
)
from trimtab.dialects.reading import Level
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import UNSAID, choice, flag, number, raw, whole

OLD_CAPS = ("actor.behav_imp_weight_cap", "ppo.behav_imp_weight_cap")
CLOSED = ("actor.reward_norm", "actor.adv_norm")


def _norm_keys(section: str, *joint: str) -> tuple[Key, ...]:
    """The keys of a NormConfig; what is subtracted, what divides and whether the row itself counts are chosen together, with `joint`."""
    together = (f"{section}.std_level", f"{section}.mean_leave1out", *joint)
    return tuple(
        Key(
            f"actor.{section}.{name}",
            kind,
            default,
            part="advantage",
            name=f"{section}.{name}",
            null="open" if name.endswith("level") else "refused",
            options=(UNSAID, "batch", "group", None) if name.endswith("level") else (),
            joint=together if name == "mean_level" else (),
        )
        for name, (kind, default) in NORM.items()
    )


KEYS = (
    Key(f"{SECTION}.level", choice("token", "sequence"), "token"),
    Key(f"{SECTION}.action", choice("mask", "clamp"), "mask"),
    Key(f"{SECTION}.metric", choice("ratio", "kl_k1", "kl_k2", "kl_k3", "binary_kl"), "ratio"),
    Key(f"{SECTION}.agg", choice("sum", "mean", "max"), "mean"),
    Key(f"{SECTION}.upper", number, 5.0, null="open"),
    Key(f"{SECTION}.lower", number),
    Key(f"{SECTION}.token_action", choice("mask", "clamp")),
    Key("actor.m2_threshold", number),
    Key("actor.use_decoupled_loss", flag, False, also=("ppo.use_decoupled_loss",)),
    Key("actor.recompute_logprob", flag, False, also=("ppo.recompute_logprob",)),
    Key("actor.prox_logp_method", choice("recompute", "loglinear", "metrics", "reuse_train_logp"), "recompute"),
    Key("actor.behave_imp_weight_cap", number, 5.0, legacy=True, null="open", also=OLD_CAPS),
    Key("actor.behave_imp_weight_mode",
        choice("token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "disabled"), "token_mask",
        legacy=True),
    Key("actor.eps_clip", number, 0.2, part="loss", also=("ppo.eps_clip",)),
    Key("actor.eps_clip_higher", number, part="loss", seed=0.2),
    Key("actor.c_clip", number, part="loss", also=("ppo.c_clip",)),
    Key("actor.importance_sampling_level", choice("token", "sequence"), "token", part="loss"),
    Key("actor.use_sapo_loss", flag, False, part="loss"),
    Key("actor.sapo_tau_pos", number, 1.0, part="loss"),
    Key("actor.sapo_tau_neg", number, 1.05, part="loss"),
    Key("actor.use_cispo_loss", flag, False, part="loss", since="2.0.0",
        joint=("use_sapo_loss", "importance_sampling_level")),
    *_norm_keys("reward_norm", "mask_no_eos_with_zero"),
    *_norm_keys("adv_norm"),
    Key("actor.group_adv_norm", flag, False, part="advantage", legacy=True),
    Key("actor.group_reward_norm", flag, False, part="advantage", legacy=True),
    Key("actor.kl_ctl", number, 0.1, part="advantage", toggle=True, joint=("kl_estimator",)),
    Key("actor.kl_estimator", choice("k1", "k2", "k3"), "k1", part="advantage"),
    Key("actor.mask_no_eos_with_zero", flag, False, part="advantage"),
    Key("actor.reward_scaling", number, 1.0, part="advantage"),
    Key("actor.reward_bias", number, 0.0, part="advantage"),
    Key("actor.reward_clip", number, 20.0, part="advantage"),
    Key("actor.overlong_reward_penalty", flag, False, part="advantage"),
    Key("actor.overlong_tokens", whole, part="advantage", seed=100),
    Key("actor.overlong_penalty_factor", number, part="advantage", seed=1.0),
    Key("actor.max_new_tokens", whole, 1024, part="other", also=("gconfig.max_new_tokens",)),
    Key("actor.discount", number, 1.0, part="advantage"),
    Key("actor.gae_lambda", raw, 1.0, part="advantage", holds=number),
    Key("actor.gae_timestep_unit", choice("token", "turn"), "token", part="advantage", since="2.0.0"),
    Key("critic.is_critic", flag, False, part="other"),
)  # fmt: skip


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rejects(given: Given, **fields: Any) -> bool:
    section = acting_section(given)
    return section is not None and all(section[name] == value for name, value in fields.items())


def _kl(given: Given) -> bool:
    section = acting_section(given)
    return section is not None and section["metric"] != "ratio"


def _is_ignored(given: Given) -> bool:
    """Whether a correction is written down and the loss is not decoupled."""
    asks = rejection_section(given) is not None or given["m2_threshold"] is not None
    return asks and not is_decoupled(given) and not given["use_sapo_loss"]


def _budgets(given: Given) -> bool:
    return given["m2_threshold"] is not None and is_decoupled(given)


def _interpolates(given: Given) -> bool:
    return given["prox_logp_method"] == "loglinear" and is_decoupled(given)


def _lacks_reference(given: Given) -> bool:
    """Whether a KL penalty is paid and the file configures no policy to measure it from."""
    asks = _speaks_of_advantage(given) and bool(given["kl_ctl"]) and given.whole
    return asks and not given.has_section("ref") and not given.builds_on_others


def _by_group(value: Normalise | None) -> bool:
    return value is not None and "group" in (value.mean, value.std)


def _tail(given: Given, section: str, level: str) -> bool:
    by_group = norm(given, section) is not None and given[f"{section}.{level}"] == "group"
    return by_group and given[f"{section}.group_size"] > 1


def _own_size(given: Given, section: str) -> bool:
    alone = norm(given, section) is not None and given[f"{section}.mean_leave1out"]
    if not alone or (given[f"{section}.mean_level"] == "group" and given.since("2.0.0")):  # its own mean since: 0
        return False
    return given[f"{section}.std_level"] is not None and not given[f"{section}.std_unbiased"]


def _speaks_of_advantage(given: Given) -> bool:
    return given.speaks_of("advantage")


_NOT_DECOUPLED: dict[Level, str] = {
    "defect": "which by default it is not",
    "surprise": "and here it is not",
}
"""Forgotten, or said so."""
REPLACED = (
    "were replaced by rejection_sampling in #1088 and are read as its equivalent; `trimtab convert --from areal --to areal` rewrites "
    "them. The removed code kept rejected tokens in the mask with weight 0."
)
REMARKS = (
    defect("metric", lambda g: _rejects(g, metric="kl_k3") and not g.documented,
        "kl_k3 runs in the other direction than documented: e^(−ℓ) − 1 + ℓ instead of r − 1 − log r, so a token "
        "whose ratio fell counts more than one whose ratio rose; verl's k3 is the documented one.",
        source="utils/data.py:1650 KLEstimator"),
    surprise("metric", lambda g: _kl(g) and _rejects(g, level="sequence"),
        "With level sequence and a KL metric the survivors keep their own token ratios as weights, unbounded; add "
        "metric ratio, or bound the weights elsewhere.",
        source="utils/functional/functional.py:252 apply_rejection_sampling"),
    remark("metric", lambda g: _rejects(g, metric="kl_k1"),
        "kl_k1 is +log(proximal/behavior), the opposite sign of verl's k1; one-sided or asymmetric bounds mean the "
        "mirror image there."),
    surprise("agg",
        lambda g: _rejects(g, level="sequence", metric="ratio", token_action=None) and not _rejects(g, agg="mean"),
        "agg {agg} is only what is tested: the weight of the survivors is the geometric mean of the sequence.",
        source="utils/functional/functional.py:356 apply_rejection_sampling"),
    surprise("level", lambda g: _rejects(g, level="sequence", metric="ratio", agg="mean"),
        "`sequence` gathers by agg mean, the geometric mean; verl, TRL, SkyRL and slime mean the product by it.",
        source="api/cli_args.py:1349 RejectionSamplingConfig"),
    remark("agg", lambda g: g.has("agg") and _rejects(g, level="token"),
        "agg has no effect at token level; drop it."),
    remark("lower", lambda g: _rejects(g, metric="ratio", lower=None, action="mask"),
        "By default the lower side is open; verl and slime take 1/upper there."),
    *(
        Remark("use_decoupled_loss",
            lambda g, level=level, recomputed=recomputed: (_is_ignored(g)
                and g.has("use_decoupled_loss") == (level == "surprise")
                and bool(g["recompute_logprob"]) == recomputed),
            f"rejection_sampling and m2_threshold do nothing unless the loss is decoupled, {state}: proximal and "
            f"behavior are the same log-probs, {whose}, and every ratio between them is 1; set use_decoupled_loss: "
            "true.",
            level=level, source="trainer/ppo/actor.py:178 PPOActor._compute_advantages")
        for level, state in _NOT_DECOUPLED.items()
        for recomputed, whose in ((False, "the sampler's"), (True, "those of the recomputed pass"))
    ),
    surprise("use_decoupled_loss",
        lambda g: bool(g["use_decoupled_loss"]) and rejection_section(g) is None and g["m2_threshold"] is None,
        "A decoupled loss without rejection_sampling carries no importance weight at all; set rejection_sampling.",
        source="utils/functional/functional.py:535 ppo_actor_loss_fn"),
    remark("token_action", lambda g: g.is_on("token_action"),
        "token_action is #1218, not merged; read as after its review: both stages share the bounds and survivors "
        "weigh their own token ratio."),
    remark("behave_imp_weight_cap", lambda g: g.has("behave_imp_weight_cap"),
        f"This and its mode {REPLACED}"),
    remark("behave_imp_weight_mode", lambda g: g.has("behave_imp_weight_mode") and not g.has("behave_imp_weight_cap"),
        f"This and its cap {REPLACED}"),
    remark("group_adv_norm", is_first,
        "group_adv_norm and group_reward_norm are switches of the first versions, which normalised advantages over "
        "the batch, or by group, unless adv_norm was false; now actor.adv_norm and actor.reward_norm with mean_level "
        "and std_level."),
    surprise("m2_threshold", lambda g: _budgets(g) and not g.documented,
        "M2PO divides the loss of a micro-batch by the tokens it leaves, and weighs micro-batches by the tokens "
        "before; rejection_sampling counts before in both.",
        source="trainer/ppo/actor.py:448 grpo_loss_fn"),
    remark("m2_threshold", _budgets,
        "The budget is kept per micro-batch, and of equal values at its edge some go and some stay; ours is kept "
        "over the whole batch and equal values go together."),
    surprise("prox_logp_method", _interpolates,
        "loglinear does not recompute proximal log-probs but interpolates them between behavior and current; pass "
        "those as proximal to get the same numbers.",
        source="trainer/ppo/actor.py:735 _resolve_proximal_logp"),
    defect("prox_logp_method", _interpolates,
        "Versions are not shifted by one like log-probs and mask, so the first token of an answer is never "
        "interpolated and one token per weight update has the wrong version; recompute instead.",
        source="trainer/ppo/actor.py:188 PPOActor._compute_advantages"),
    remark("prox_logp_method", lambda g: g["prox_logp_method"] == "reuse_train_logp",
        "reuse_train_logp, which came with 2.0.0, takes the log-probs of the first pass as proximal and forces one "
        "mini-batch; pass current, detached, as proximal."),
    surprise("use_sapo_loss", lambda g: bool(g["use_sapo_loss"]) and rejection_section(g) is not None,
        "The SAPO loss never reads rejection_sampling; use the PPO loss to reject.",
        source="trainer/ppo/actor.py:451 grpo_loss_fn"),
    *(
        defect("kl_ctl", lambda g, signed=signed: _lacks_reference(g) and (g["kl_estimator"] == "k1") == signed,
            f"kl_ctl {{kl_ctl}} without a reference model takes its log-probs as 0, so {what}; set kl_ctl: 0 or configure ref.",
            source="trainer/ppo/actor.py:194 PPOActor._compute_advantages")
        for signed, what in (
            (True, "every token is paid −{kl_ctl}·log-prob, a bonus on surprise"),
            (False, "every token pays for its own surprise, not for a distance"),
        )
    ),
    defect("mask_no_eos_with_zero",
        lambda g: bool(g["mask_no_eos_with_zero"]) and norm(g, "reward_norm") is not None and not g.documented,
        "Rows without EOS lose their reward but still vote in reward_norm, so a truncated outlier shifts everyone's "
        "advantage (#1351); read with documented=True to leave them out.",
        source="trainer/ppo/actor.py:173 PPOActor._compute_advantages"),
    defect("mask_no_eos_with_zero", lambda g: bool(g["mask_no_eos_with_zero"]),
        "`No EOS` is taken to be `as long as the batch is wide`, so the longest row of every batch loses its reward; "
        "pad one column more, or mark truncated rows yourself.",
        source="trainer/ppo/actor.py:201 PPOActor._compute_advantages"),
    *(
        surprise(f"{section}.group_size", lambda g, section=section: _tail(g, section, "std_level"),
            "Groups are blocks of group_size rows; where the batch is not a multiple of it the tail is divided by "
            "eps in place of a deviation, by default 1e5 times too large.",
            source="utils/data.py:1468 Normalization.__call__", fixed="2.0.0, #1454")
        for section in ("reward_norm", "adv_norm")
    ),
    *(
        surprise(f"{section}.group_size",
            lambda g, section=section: _tail(g, section, "mean_level") and not _tail(g, section, "std_level"),
            "Groups are blocks of group_size rows; where the batch is not a multiple of it nothing is subtracted "
            "from the tail.",
            source="utils/data.py:1424 Normalization.__call__", fixed="2.0.0, #1454")
        for section in ("reward_norm", "adv_norm")
    ),
    *(
        surprise(f"{section}.std_unbiased", lambda g, section=section: _own_size(g, section),
            "With mean_leave1out a lone valid element of a batch or group is divided by its own size, so it becomes "
            "1 or −1; ours keeps its value. Set std_unbiased: true to have it divided by 1.",
            source="utils/data.py:1595 Normalization._compute_std")
        for section in ("reward_norm", "adv_norm")
    ),
    remark("reward_norm.mean_leave1out",
        lambda g: any(
            norm(g, section) is not None and g[f"{section}.mean_leave1out"] for section in ("reward_norm", "adv_norm")
        ),
        "A group of one keeps its raw value; most frameworks give 0.",
        fixed="2.0.0"),
    surprise("reward_norm.group_size", lambda g: _by_group(norm(g, "reward_norm")) and g["reward_norm.group_size"] <= 1,
        "Normalised by group with group_size 1 every row is its own group; set group_size to the number of samples "
        "per prompt.",
        source="utils/data.py:1424 Normalization.__call__", fixed="2.0.0, #1454"),
    surprise("gae_lambda",
        lambda g: g.has("gae_lambda") and not has_critic(g) and number("gae_lambda", g["gae_lambda"]) < 1,
        "Without a critic section every value is 0, so gae_lambda {gae_lambda} only discounts the reward of early "
        "tokens; set it to 1, or configure critic.",
        source="trainer/ppo/actor.py:215 PPOActor._compute_advantages"),
    remark("importance_sampling_level", lambda g: g["importance_sampling_level"] == "sequence",
        "At sequence level the token advantages are averaged per sequence and the loss stays a token mean; other "
        "frameworks keep token advantages or average per sequence."),
    remark("overlong_reward_penalty", lambda g: bool(g["overlong_reward_penalty"]),
        "The penalty keeps growing beyond max_new_tokens; OpenRLHF holds it at the factor."),
)  # fmt: skip


def _group_sizes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """By default group_size is 1 and every row its own group: the number of answers stands under `gconfig`."""
    norms = ("reward_norm", "adv_norm")
    grouped = [
        name for name in norms if "group" in (settings.get(f"{name}.{level}_level") for level in ("mean", "std"))
    ]
    return {f"{name}.group_size": "${gconfig.n_samples}" for name in grouped}


DIALECT = Dialect(
    SIGNATURES["areal"],
    version="1.0.4",
    releases=("1.0.4", "2.0.0"),
    versions=(
        Version("before adv_norm became a section", ("group_adv_norm", "group_reward_norm")),
        Version("before #1088", ("behave_imp_weight_cap", "behave_imp_weight_mode", "behav_imp_weight_cap")),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    closed=(SECTION, *CLOSED),
    apart=(
        "A non-finite log-ratio counts as 0 (kept, weight 1) with metric ratio and is rejected with KL metrics; ours takes the "
        "token as never trained.",
        "Under mean_level batch and std_level group the only valid element of a whole batch becomes 0; ours keeps its value.",
    ),
    candidates=candidates,
    beside=_group_sizes,
)
