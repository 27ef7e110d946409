"""What there is to say about AReaL: each finding as data."""

from __future__ import annotations

from typing import Any

from trimtab.config.advantages import Normalise
from trimtab.dialects.areal.advantage import has_critic, is_first, norm
from trimtab.dialects.areal.correction import acting_section, is_decoupled, rejection_section
from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.reading import Level
from trimtab.dialects.values import number


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
    Remark(
        "metric",
        "defect",
        "kl_k3 runs in the other direction than documented: e^(−ℓ) − 1 + ℓ instead of r − 1 − log r, so a token whose ratio fell "
        "counts more than one whose ratio rose; verl's k3 is the documented one.",
        lambda given: _rejects(given, metric="kl_k3") and not given.documented,
        source="utils/data.py:1650 KLEstimator",
    ),
    Remark(
        "metric",
        "surprise",
        "With level sequence and a KL metric the survivors keep their own token ratios as weights, unbounded; add metric ratio, "
        "or bound the weights elsewhere.",
        lambda given: _kl(given) and _rejects(given, level="sequence"),
        source="utils/functional/functional.py:252 apply_rejection_sampling",
    ),
    Remark(
        "metric",
        "note",
        "kl_k1 is +log(proximal/behavior), the opposite sign of verl's k1; one-sided or asymmetric bounds mean the mirror image "
        "there.",
        lambda given: _rejects(given, metric="kl_k1"),
    ),
    Remark(
        "agg",
        "surprise",
        "agg {agg} is only what is tested: the weight of the survivors is the geometric mean of the sequence.",
        lambda given: (
            _rejects(given, level="sequence", metric="ratio", token_action=None) and not _rejects(given, agg="mean")
        ),
        source="utils/functional/functional.py:356 apply_rejection_sampling",
    ),
    Remark(
        "level",
        "surprise",
        "`sequence` gathers by agg mean, the geometric mean; verl, TRL, SkyRL and slime mean the product by it.",
        lambda given: _rejects(given, level="sequence", metric="ratio", agg="mean"),
        source="api/cli_args.py:1349 RejectionSamplingConfig",
    ),
    Remark(
        "agg",
        "note",
        "agg has no effect at token level; drop it.",
        lambda given: given.has("agg") and _rejects(given, level="token"),
    ),
    Remark(
        "lower",
        "note",
        "Left out, the lower side is open; verl and slime take 1/upper there.",
        lambda given: _rejects(given, metric="ratio", lower=None, action="mask"),
    ),
    *(
        Remark(
            "use_decoupled_loss",
            level,
            f"rejection_sampling and m2_threshold do nothing unless the loss is decoupled, {state}: proximal and behavior are the same "
            f"log-probs, {whose}, and every ratio between them is 1; set use_decoupled_loss: true.",
            lambda given, level=level, recomputed=recomputed: (
                _is_ignored(given)
                and given.has("use_decoupled_loss") == (level == "surprise")
                and bool(given["recompute_logprob"]) == recomputed
            ),
            source="trainer/ppo/actor.py:178 PPOActor._compute_advantages",
        )
        for level, state in _NOT_DECOUPLED.items()
        for recomputed, whose in ((False, "the sampler's"), (True, "those of the recomputed pass"))
    ),
    Remark(
        "use_decoupled_loss",
        "surprise",
        "A decoupled loss without rejection_sampling carries no importance weight at all; set rejection_sampling.",
        lambda given: (
            bool(given["use_decoupled_loss"]) and rejection_section(given) is None and given["m2_threshold"] is None
        ),
        source="utils/functional/functional.py:535 ppo_actor_loss_fn",
    ),
    Remark(
        "token_action",
        "note",
        "token_action is #1218, not merged; read as after its review: both stages share the bounds and survivors weigh their own "
        "token ratio.",
        lambda given: given.is_on("token_action"),
    ),
    Remark(
        "behave_imp_weight_cap",
        "note",
        f"This and its mode {REPLACED}",
        lambda given: given.has("behave_imp_weight_cap"),
    ),
    Remark(
        "behave_imp_weight_mode",
        "note",
        f"This and its cap {REPLACED}",
        lambda given: given.has("behave_imp_weight_mode") and not given.has("behave_imp_weight_cap"),
    ),
    Remark(
        "group_adv_norm",
        "note",
        "group_adv_norm and group_reward_norm are switches of the first versions, which normalised advantages over the batch, or by "
        "group, unless adv_norm was false; now actor.adv_norm and actor.reward_norm with mean_level and std_level.",
        is_first,
    ),
    Remark(
        "m2_threshold",
        "surprise",
        "M2PO divides the loss of a micro-batch by the tokens it leaves, and weighs micro-batches by the tokens before; "
        "rejection_sampling counts before in both.",
        lambda given: _budgets(given) and not given.documented,
        source="trainer/ppo/actor.py:448 grpo_loss_fn",
    ),
    Remark(
        "m2_threshold",
        "note",
        "The budget is kept per micro-batch, and of equal values at its edge some go and some stay; ours is kept over the whole "
        "batch and equal values go together.",
        _budgets,
    ),
    Remark(
        "prox_logp_method",
        "surprise",
        "loglinear does not recompute proximal log-probs but interpolates them between behavior and current; pass those as "
        "proximal to get the same numbers.",
        _interpolates,
        source="trainer/ppo/actor.py:735 _resolve_proximal_logp",
    ),
    Remark(
        "prox_logp_method",
        "defect",
        "Versions are not shifted by one like log-probs and mask, so the first token of an answer is never interpolated and one token "
        "per weight update has the wrong version; recompute instead.",
        _interpolates,
        source="trainer/ppo/actor.py:188 PPOActor._compute_advantages",
    ),
    Remark(
        "prox_logp_method",
        "note",
        "reuse_train_logp, which came with 2.0.0, takes the log-probs of the first pass as proximal and forces one mini-batch; pass "
        "current, detached, as proximal.",
        lambda given: given["prox_logp_method"] == "reuse_train_logp",
    ),
    Remark(
        "use_sapo_loss",
        "surprise",
        "The SAPO loss never reads rejection_sampling; use the PPO loss to reject.",
        lambda given: bool(given["use_sapo_loss"]) and rejection_section(given) is not None,
        source="trainer/ppo/actor.py:451 grpo_loss_fn",
    ),
    *(
        Remark(
            "kl_ctl",
            "defect",
            f"kl_ctl {{kl_ctl}} without a reference model takes its log-probs as 0, so {what}; set kl_ctl: 0 or configure ref.",
            lambda given, signed=signed: _lacks_reference(given) and (given["kl_estimator"] == "k1") == signed,
            source="trainer/ppo/actor.py:194 PPOActor._compute_advantages",
        )
        for signed, what in (
            (True, "every token is paid −{kl_ctl}·log-prob, a bonus on surprise"),
            (False, "every token pays for its own surprise, not for a distance"),
        )
    ),
    Remark(
        "mask_no_eos_with_zero",
        "defect",
        "Rows without EOS lose their reward but still vote in reward_norm, so a truncated outlier shifts everyone's advantage "
        "(#1351); read with documented=True to leave them out.",
        lambda given: (
            bool(given["mask_no_eos_with_zero"]) and norm(given, "reward_norm") is not None and not given.documented
        ),
        source="trainer/ppo/actor.py:173 PPOActor._compute_advantages",
    ),
    Remark(
        "mask_no_eos_with_zero",
        "defect",
        "`No EOS` is taken to be `as long as the batch is wide`, so the longest row of every batch loses its reward; pad one "
        "column more, or mark truncated rows yourself.",
        lambda given: bool(given["mask_no_eos_with_zero"]),
        source="trainer/ppo/actor.py:201 PPOActor._compute_advantages",
    ),
    *(
        Remark(
            f"{section}.group_size",
            "surprise",
            "Groups are blocks of group_size rows; where the batch is not a multiple of it the tail is divided by eps in place of a "
            "deviation, by default 1e5 times too large.",
            lambda given, section=section: _tail(given, section, "std_level"),
            source="utils/data.py:1468 Normalization.__call__",
            fixed="2.0.0, #1454",
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
            source="utils/data.py:1424 Normalization.__call__",
            fixed="2.0.0, #1454",
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
            source="utils/data.py:1595 Normalization._compute_std",
        )
        for section in ("reward_norm", "adv_norm")
    ),
    Remark(
        "reward_norm.mean_leave1out",
        "note",
        "A group of one keeps its raw value; most frameworks give 0.",
        lambda given: any(
            norm(given, section) is not None and given[f"{section}.mean_leave1out"]
            for section in ("reward_norm", "adv_norm")
        ),
        fixed="2.0.0",
    ),
    Remark(
        "reward_norm.group_size",
        "surprise",
        "Normalised by group with group_size 1 every row is its own group; set group_size to the number of samples per prompt.",
        lambda given: _by_group(norm(given, "reward_norm")) and given["reward_norm.group_size"] <= 1,
        source="utils/data.py:1424 Normalization.__call__",
        fixed="2.0.0, #1454",
    ),
    Remark(
        "gae_lambda",
        "surprise",
        "Without a critic section every value is 0, so gae_lambda {gae_lambda} only discounts the reward of early tokens; set it to 1, or "
        "configure critic.",
        lambda given: (
            given.has("gae_lambda") and not has_critic(given) and number("gae_lambda", given["gae_lambda"]) < 1
        ),
        source="trainer/ppo/actor.py:215 PPOActor._compute_advantages",
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
