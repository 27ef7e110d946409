"""SkyRL: `trainer.algorithm`, its `off_policy_correction`, losses, reductions, KL term and estimators.

The stages of the correction run in a fixed order, each on the mask the one before left: veto, token mask, weight, sequence mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config import advantages as adv
from trimtab.config import losses as ours
from trimtab.config.correction import Correction, Weight
from trimtab.config.losses import KlPenalty, Objective
from trimtab.dialects.framework import Dialect, Given, Key, Version, defect, remark, surprise
from trimtab.dialects.parts import (
    ALL,
    OPEN,
    RAW,
    AdvantagePart,
    Gates,
    LossPart,
    Table,
    bonus,
    limit,
    ratio_gate,
    reduction_of,
    refuse,
    row,
    weight_of,
)
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import choice, flag, nested, number, text, unsaid_or
from trimtab.errors import ConfigError

SECTION = "trainer.algorithm.off_policy_correction"
A = "trainer.algorithm"


def _dppo(given: Given) -> Objective:
    kind = {"binary_tv": ours.DppoTv, "binary_kl": ours.DppoKl}[given["dppo_type"]]
    return kind(low=given["delta_low"], high=given["delta_high"], gradient="ratio", log_limit=20.0)


LOSSES: Table = {
    "regular": lambda g: ours.Clip(**_clip(g), log_limit=20.0),
    "dual_clip": lambda g: ours.Clip(**_clip(g), dual=g["clip_ratio_c"], log_limit=20.0),
    "gspo": lambda g: ours.Gspo(**_clip(g), level="sequence-token", log_upper=10.0, scope="trained"),
    "cispo": lambda g: ours.Cispo(
        lower=1 - g["cispo_eps_clip_low"], upper=1 + g["cispo_eps_clip_high"], log_limit=20.0
    ),
    "sapo": lambda g: ours.Sapo(tau_positive=g["tau_pos"], tau_negative=g["tau_neg"], log_limit=20.0),
    "importance_sampling": lambda _: ours.ImportancePg(),
    "rollout_is": lambda g: ours.Cispo(
        lower=1 - g["eps_clip_low"], upper=1 + g["eps_clip_high"], outside="zero", log_limit=20.0
    ),
    "dppo": _dppo,
}
REDUCTIONS = {
    "token_mean": "token-mean",
    "token_mean_legacy": "prompt-mean",
    "sequence_mean": "seq-mean-token-mean",
    "seq_mean_token_sum_norm": "seq-mean-token-sum-norm",
    "prompt_mean": "prompt-mean",
}
ESTIMATORS: Table = {
    "grpo": lambda g: adv.Grpo(std=g["grpo_norm_by_std"], **RAW),
    "rloo": lambda _: adv.Rloo(**ALL),
    "gae": lambda g: adv.Gae(gamma=g["gamma"], lam=g["lambd"], **ALL),
    "reinforce++": lambda g: adv.ReinforcePlusPlus(gamma=g["gamma"], gaps="reset", **ALL),
    "maxrl": lambda _: adv.MaxRl(**ALL),
}
KEYS = (
    Key(f"{SECTION}.tis_ratio_type", choice("token", "sequence")),
    Key(f"{SECTION}.token_tis_ratio_clip_high", number, 2.0),
    Key(f"{SECTION}.sequence_tis_ratio_clip_high", number, 5.0),
    Key(f"{SECTION}.sequence_mask_metric", choice("product", "geometric")),
    Key(f"{SECTION}.geo_mask_high", number, 1.01),
    Key(f"{SECTION}.geo_mask_low", number, 0.99),
    Key(f"{SECTION}.product_mask_high", number, 2.0),
    Key(f"{SECTION}.product_mask_low", number, 0.5),
    Key(f"{SECTION}.outlier_token_is_threshold_low", number),
    Key(f"{SECTION}.outlier_token_is_threshold_high", number),
    Key(f"{SECTION}.token_mask_is_threshold_low", number),
    Key(f"{SECTION}.token_mask_is_threshold_high", number),
    Key("trainer.algorithm.use_tis", flag, False, legacy=True),
    Key("trainer.algorithm.tis_imp_ratio_cap", number, -1.0, legacy=True),
    Key(f"{A}.policy_loss_type", text, "regular", part="loss", options=unsaid_or(LOSSES), joint=("dppo_type",)),
    Key(f"{A}.loss_reduction", text, "token_mean", part="loss", options=unsaid_or(REDUCTIONS)),
    Key(f"{A}.eps_clip_low", number, 0.2, part="loss"),
    Key(f"{A}.eps_clip_high", number, 0.2, part="loss"),
    Key(f"{A}.clip_ratio_c", number, 3.0, part="loss"),
    Key(f"{A}.max_seq_len", number, part="loss", seed=1024.0),
    Key(f"{A}.cispo.cispo_eps_clip_low", number, 1.0, part="loss", was=("0.4.0", 0.0),
        seed=0.5),  # its default leaves the lower side open, which is no number
    Key(f"{A}.cispo.cispo_eps_clip_high", number, 4.0, part="loss", was=("0.4.0", 5.0)),
    Key(f"{A}.cispo.cispo_anchor", choice("old", "rollout"), "old", since="0.4.0"),
    Key(f"{A}.sapo.tau_pos", number, 1.0, part="loss", also=(f"{A}.tau_pos",)),
    Key(f"{A}.sapo.tau_neg", number, 1.05, part="loss", also=(f"{A}.tau_neg",)),
    Key(f"{A}.dppo.dppo_type", choice("binary_tv", "binary_kl"), "binary_tv", part="loss"),
    Key(f"{A}.dppo.delta_low", number, 0.2, part="loss"),
    Key(f"{A}.dppo.delta_high", number, 0.2, part="loss"),
    Key(f"{A}.use_kl_loss", flag, True, part="loss", options=(False, True), joint=("kl_estimator_type",)),
    Key(f"{A}.kl_loss_coef", number, 0.001, part="loss", chooses=("advantage",)),
    Key(f"{A}.kl_estimator_type", choice("k1", "abs", "k2", "k3"), "k3", part="loss", chooses=("advantage",)),
    Key(f"{A}.use_entropy_loss", flag, False, part="loss"),
    Key(f"{A}.entropy_loss_coef", number, 0.01, part="other"),
    *(Key(f"generator.sampling_params.{name}", number, part="other") for name in ("top_p", "top_k")),
    Key(f"{A}.enable_sample_support_replay", flag, False, part="other", since="0.4.0"),
    Key("generator.inference_engine.enable_return_sample_support_set", flag, False, part="other", since="0.4.0"),
    Key(f"{A}.score_centering", nested, also=(f"{SECTION}.score_centering",)),
    Key(f"{A}.use_kl_in_reward", flag, False, part="advantage", joint=("kl_estimator_type",)),
    Key(f"{A}.zero_variance_filter", flag, False, part="advantage"),
    Key(f"{A}.advantage_estimator", text, "grpo", part="advantage", options=unsaid_or(ESTIMATORS),
        joint=("grpo_norm_by_std",)),
    Key(f"{A}.grpo_norm_by_std", flag, True, part="advantage"),
    Key(f"{A}.gamma", number, 1.0, part="advantage"),
    Key(f"{A}.lambd", number, 1.0, part="advantage"),
    Key(f"{A}.advantage_batch_normalize", flag, False, part="advantage"),
)  # fmt: skip


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────

SAFETY = 20.0
CAPS = {"token": "token_tis_ratio_clip_high", "sequence": "sequence_tis_ratio_clip_high"}
MASKS = {"geometric": ("geometric", "geo_mask"), "product": ("sequence", "product_mask")}
"""`sequence_mask_metric` → what is gathered, and how its bounds begin."""
STAGES = {"sequence every": "outlier_token_is_threshold", "token None": "token_mask_is_threshold"}
"""Level and agg of a gate → the stage that can say it."""


def correction_of(given: Given) -> Correction | None:
    """Veto, token mask, weight, sequence mask. None where use_tis turns every weight negative, for which there is no rule here."""
    refuse(
        given["score_centering"] not in (None, False),
        "SkyRL score_centering",
        "SkyRL#2244 proposes it and no release has it. Leave it out",
    )
    level, cap = tis_level_and_cap(given)
    two = two_policies(given)
    if two and level is not None:
        _refuse_two_weights(given)
    if level is not None and cap <= 0:
        refuse(not given["use_tis"], f"SkyRL {CAPS[level]} {cap:g}", "no weight is above 0 then. Set a cap above 1")
        return None
    gates = _masks(given, "proximal/behavior" if two else None)
    if level is None:
        return Correction(policies="bypass" if two else "decoupled", gates=gates, weight=Weight(level="one"))
    return Correction(gates=gates, weight=weight_of(level, upper=cap, scope="kept", limit=limit(SAFETY, level)))


def _refuse_two_weights(given: Given) -> None:
    """A loss that divides by behavior beside a weight that compares proximal with behavior."""
    name = given["policy_loss_type"]
    if name == "cispo":
        why = "SkyRL stops with an error, since the ratio of the loss is the whole correction already"
    else:
        why = "the ratio of the loss divides by behavior, the weight compares with proximal"
    raise ConfigError(
        f"SkyRL policy_loss_type {name} with tis_ratio_type is not supported: {why}. Keep the masks, drop tis_ratio_type."
    )


def _masks(given: Given, pair: str | None) -> Gates:
    """The three stages that reject, in order; the pair is named where it is not that of the loss."""
    gates = _pair(given, "every", "outlier_token_is_threshold", pair)
    if masks_both_sides(given):
        gates += _pair(given, "token", "token_mask_is_threshold", pair)
    if given["sequence_mask_metric"] is not None:
        gates += _pair(given, *MASKS[given["sequence_mask_metric"]], pair)
    return gates


def tis_level_and_cap(given: Given) -> tuple[str | None, float]:
    """What the weight is gathered over, none where there is no weight, and its cap; use_tis overrides the keys that replaced it."""
    if given["use_tis"]:
        return "token", given["tis_imp_ratio_cap"]
    level = given["tis_ratio_type"]
    return level, given[CAPS[level]] if level else 0.0


def masks_both_sides(given: Given) -> bool:
    """Whether the token mask has both bounds."""
    return given["token_mask_is_threshold_low"] is not None and given["token_mask_is_threshold_high"] is not None


def _pair(given: Given, unit: str, begins: str, pair: str | None) -> Gates:
    lower, upper = given[f"{begins}_low"], given[f"{begins}_high"]
    return ratio_gate(unit, lower, upper, scope="kept", limit=limit(SAFETY, unit), pair=pair)


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Every gate to its stage; the order of stages is checked by reading back."""
    found: dict[str, Any] = {}
    for gate in rule.gates:
        stage = STAGES.get(f"{gate.level} {gate.agg}")
        if gate.level == "sequence" and gate.agg in ("mean", "sum"):
            name = "geometric" if gate.agg == "mean" else "product"
            found["sequence_mask_metric"] = name
            stage = MASKS[name][1]
        if stage is None:
            return
        defaults = (1 / OPEN, OPEN) if "outlier" not in stage else (None, None)
        found |= {f"{stage}_low": gate.lower or defaults[0], f"{stage}_high": gate.upper or defaults[1]}
    weight = rule.weight
    if weight is not None and weight.level in CAPS:
        found |= {"tis_ratio_type": weight.level, CAPS[weight.level]: weight.upper or OPEN}
    full = {f"{SECTION}.{name}": value for name, value in found.items() if value is not None}
    yield full or {f"{SECTION}.tis_ratio_type": None}
    if rule.policies == "bypass":
        yield full | {f"{A}.cispo.cispo_anchor": "rollout"}


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _clip(given: Given) -> dict[str, Any]:
    return {"low": given["eps_clip_low"], "high": given["eps_clip_high"]}


BROKEN = ("clip_cov", "kl_cov")
TWO_POLICIES = ("rollout_is", "dppo")
"""Losses whose ratio divides by behavior."""


def two_policies(given: Given) -> bool:
    """Whether the loss divides by behavior."""
    name = given["policy_loss_type"]
    return name in TWO_POLICIES or (name == "cispo" and given["cispo_anchor"] == "rollout")


def loss_of(given: Given) -> LossPart:
    """The registered loss; the reduction acts on the advantages of the whole mini-batch, which comes to the same."""
    name = given["policy_loss_type"]
    says_kl = given.has("use_kl_loss", "kl_loss_coef", "kl_estimator_type") and given["use_kl_loss"]
    kl = kl_of(given) if says_kl else None
    entropy = bonus(given["entropy_loss_coef"] if given["use_entropy_loss"] else None)
    if name in BROKEN:
        return LossPart(kl=kl, entropy=entropy)
    return LossPart(
        loss=row(LOSSES, "SkyRL policy_loss_type", name, given),
        reduction=reduction_of(REDUCTIONS, "SkyRL loss_reduction", given["loss_reduction"], given["max_seq_len"]),
        kl=kl,
        entropy=entropy,
        rows="all",
    )


def kl_of(given: Given) -> KlPenalty:
    """The KL term, and the one in the reward: only k3 is held."""
    limits: dict[str, Any] = {"input_limit": 20.0, "output_limit": 10.0} if given["kl_estimator_type"] == "k3" else {}
    return KlPenalty(coefficient=given["kl_loss_coef"], estimator=given["kl_estimator_type"], **limits)


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────

LATER = {"gdpo": "no release up to 0.4.0 has it; it normalises each reward by itself"}
"""Estimators of SkyRL that are in no release read here, and what they do."""


def advantage_of(given: Given) -> AdvantagePart:
    """The registered estimator."""
    name = given["advantage_estimator"]
    refuse(name in LATER, f"SkyRL advantage_estimator {name}", LATER.get(name, ""))
    normalises = given["advantage_batch_normalize"]
    refuse(
        normalises and not given.documented,
        "SkyRL advantage_batch_normalize",
        "it subtracts a mean over padding. Use an estimator that normalises, or documented=True for a mean over tokens",
    )
    in_reward = given["use_kl_in_reward"] and given["kl_loss_coef"]
    return AdvantagePart(
        advantage=row(ESTIMATORS, "SkyRL advantage_estimator", name, given),
        advantage_norm=adv.Normalise(unbiased=False, eps=1e-8, eps_at="floor") if normalises else None,
        reward_kl=kl_of(given) if in_reward else None,
    )


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _masks_sequences(given: Given) -> bool:
    return given.is_on("sequence_mask_metric")


def _is_truncated(given: Given) -> bool:
    """Whether answers are drawn from a part of the vocabulary."""
    return (given["top_p"] is not None and given["top_p"] < 1) or (given["top_k"] is not None and given["top_k"] > 0)


def _stops_at_capture(given: Given) -> bool:
    """Whether SkyRL refuses to record, or to replay, the ids that answers were drawn from."""
    if not given.is_on("enable_return_sample_support_set"):
        return given.is_on("enable_sample_support_replay")
    sampling = "generator.sampling_params"
    is_sampled = given.value_of(f"{sampling}.temperature", 1.0) not in (0, 0.0)
    is_penalised = given.value_of(f"{sampling}.repetition_penalty", 1.0) not in (1, 1.0)
    return (given["top_k"] or 0) <= 1 or not is_sampled or is_penalised


def _is_overridden(given: Given) -> bool:
    """Whether use_tis puts other values in the place of the keys that replaced it."""
    level, cap = given["tis_ratio_type"], given["token_tis_ratio_clip_high"]
    is_said = given.has("tis_ratio_type", "token_tis_ratio_clip_high")
    return given["use_tis"] and is_said and (level not in (None, "token") or cap != given["tis_imp_ratio_cap"])


ALGORITHMS = "backends/skyrl_train/utils/ppo_utils.py"
CORRECTIONS = "backends/skyrl_train/utils/off_policy_correction_utils.py"
REMARKS = (
    surprise("top_p", _is_truncated,
        "0.3.0 hands no sampling mask to the trainer: answers are drawn from a part of the vocabulary, and the "
        "trainer's log-probs run over all of it. Sample with top_p 1 and top_k -1, or record the ids and pass them "
        "as `support`.",
        source="backends/skyrl_train/workers/model_wrapper.py:337 HFModelWrapper.forward", fixed="0.4.0, #2237"),
    surprise("top_p", lambda g: _is_truncated(g) and not g["enable_sample_support_replay"],
        "Answers are drawn from a part of the vocabulary, and the trainer's log-probs run over all of it, so the "
        "ratio is not that of what was sampled. Set enable_sample_support_replay and "
        "inference_engine.enable_return_sample_support_set with a top_k above 1, or sample with top_p 1 and top_k -1.",
        source="backends/skyrl_train/workers/model_wrapper.py:434 HFModelWrapper.forward", since="0.4.0"),
    remark("enable_sample_support_replay",
        lambda g: g.is_on("enable_sample_support_replay") and not _stops_at_capture(g),
        "The log-probs of sampler, trainer and reference all run over the ids that each token was drawn from: pass "
        "those ids as `support` to get the same numbers. The reference is scored at the sampling temperature then.",
        since="0.4.0"),
    surprise("enable_return_sample_support_set", _stops_at_capture,
        "SkyRL stops before it starts: replay needs enable_return_sample_support_set, and that a temperature above "
        "0, a top_k above 1 and a repetition_penalty of 1; set those, or leave both keys out.",
        source="train/config/config.py:1883 SkyRLTrainConfig.__post_init__", since="0.4.0"),
    defect("tis_imp_ratio_cap", lambda g: g["use_tis"] and g["tis_imp_ratio_cap"] < 0,
        "use_tis with cap {tis_imp_ratio_cap} makes every weight that number and flips the sign of the gradient; set "
        "tis_ratio_type: token and token_tis_ratio_clip_high: 2.0 instead.",
        source="train/utils/utils.py:515 validate_cfg"),
    surprise("use_tis", _is_overridden,
        "use_tis overrides tis_ratio_type and token_tis_ratio_clip_high with token and {tis_imp_ratio_cap}; leave it "
        "out.",
        source="train/utils/utils.py:514 validate_cfg"),
    remark("use_tis", lambda g: g.has("use_tis", "tis_imp_ratio_cap"),
        "use_tis and tis_imp_ratio_cap are deprecated; now off_policy_correction.tis_ratio_type: token and "
        "token_tis_ratio_clip_high."),
    surprise("token_mask_is_threshold_high",
        lambda g: g.is_on("token_mask_is_threshold_low", "token_mask_is_threshold_high") and not masks_both_sides(g),
        "A token mask with one bound only is ignored; set both token_mask_is_threshold_low and _high.",
        source=f"{CORRECTIONS}:298 compute_off_policy_correction"),
    defect("policy_loss_type", lambda g: g["policy_loss_type"] in BROKEN,
        "{policy_loss_type} receives advantages already divided by the counts of loss_reduction: clip_cov holds "
        "covariances that are as many times smaller to its bounds, and kl_cov adds a plain sum of its penalty, so no "
        "loss is shown here; use it with another framework or a reduction of your own.",
        source=f"{ALGORITHMS}:1181 apply_loss_reduction_to_advantages_minibatch"),
    surprise("policy_loss_type",
        lambda g: (g["policy_loss_type"] in BROKEN
            and (g.is_on("outlier_token_is_threshold_low", "outlier_token_is_threshold_high") or masks_both_sides(g))
            and not g.is_on("tis_ratio_type", "sequence_mask_metric", "use_tis")),  # which it refuses
        "Outlier and token masks are silently not applied to {policy_loss_type}; use another loss.",
        source=f"{ALGORITHMS}:996 compute_policy_loss_clip_cov"),
    surprise("policy_loss_type",
        lambda g: g["policy_loss_type"] in BROKEN and g.is_on("tis_ratio_type", "sequence_mask_metric", "use_tis"),
        "SkyRL stops before it starts: tis_ratio_type and sequence_mask_metric are not supported with "
        "{policy_loss_type}; drop them.",
        source="train/utils/utils.py:548 validate_cfg"),
    surprise("sequence_tis_ratio_clip_high", lambda g: tis_level_and_cap(g)[0] == "sequence",
        "The cap {sequence_tis_ratio_clip_high} bounds the product over the tokens that earlier stages left; AReaL, "
        "ms-swift and OpenRLHF mean the geometric mean by `sequence`.",
        source=f"{CORRECTIONS}:63 compute_tis_ratio"),
    remark("sequence_mask_metric",
        lambda g: _masks_sequences(g) and (masks_both_sides(g) or g.is_on("outlier_token_is_threshold_low")),
        "Each stage sees the mask the one before left; verl and ROLL judge every stage on the original mask, so the "
        "same bounds keep other tokens there."),
    remark("tis_ratio_type", lambda g: g.is_on("tis_ratio_type", "sequence_mask_metric") or masks_both_sides(g),
        "is_ratio_min, is_ratio_max and is_ratio_std are taken over padding too, so the least is 0 and the spread is "
        "not; look at ours."),
    remark("outlier_token_is_threshold_low",
        lambda g: (g.is_on("outlier_token_is_threshold_low", "outlier_token_is_threshold_high")
            and not g.is_on("tis_ratio_type", "sequence_mask_metric")),
        "Without tis_ratio_type or sequence_mask_metric these masks are not validated and silently skipped where the "
        "sampler returns no log-probs; set sampling logprobs."),
    defect("cispo_eps_clip_low", lambda g: g["policy_loss_type"] == "cispo" and g["cispo_eps_clip_low"] == 0,
        "With cispo_eps_clip_low {cispo_eps_clip_low} the lower bound is 1, so no token weighs less than 1; set it "
        "to 1.0 for an open lower side.",
        source="train/config/config.py:543 CISPOConfig", fixed="0.4.0, #1928"),
    surprise("cispo_eps_clip_low", lambda g: g["policy_loss_type"] == "cispo" and g["cispo_eps_clip_low"] == 0,
        "cispo_eps_clip_low 0, the default before 0.4.0, puts the lower bound at 1, so that no token weighs less "
        "than 1; leave it out for 1.0, an open lower side.",
        source=f"{ALGORITHMS}:783 compute_policy_loss_cispo", since="0.4.0"),
    surprise("policy_loss_type", lambda g: g["policy_loss_type"] == "rollout_is",
        "rollout_is zeroes the factor outside the band, and with it the gradient, though its documentation says the "
        "gradient is unchanged.",
        source=f"{ALGORITHMS}:851 rollout_is_policy_loss"),
    remark("advantage_estimator", lambda g: g["advantage_estimator"] == "grpo" and g.has("advantage_estimator"),
        "A group of one keeps its raw reward as advantage with grpo, and gets 0 with rloo; ours gives 0 by default."),
    remark("zero_variance_filter", lambda g: bool(g["zero_variance_filter"]),
        "Groups whose rewards agree leave the loss mask and its counts; pass their rows masked to get the same "
        "number."),
    remark("use_kl_loss",
        lambda g: ((g.speaks_of("loss") or g.whole)
            and not g.has("use_kl_loss", "kl_loss_coef", "kl_estimator_type", "use_kl_in_reward")),
        "By default a KL term of {kl_loss_coef} ({kl_estimator_type}) is added; set use_kl_loss to have it read."),
    remark("policy_loss_type", lambda g: g["policy_loss_type"] == "gspo",
        "gspo keeps each token's own gradient under the sequence ratio and uses the configured loss_reduction; "
        "OpenRLHF and NeMo-RL differentiate the mean and force a sequence mean."),
    surprise("loss_reduction", lambda g: g["loss_reduction"] == "token_mean_legacy",
        "token_mean_legacy is the mean over micro-batches of their token means; read as prompt-mean: pass the index "
        "of the micro-batch as group, or use token_mean.",
        source=f"{ALGORITHMS}:1193 apply_loss_reduction_to_advantages_minibatch"),
    remark("loss_reduction", lambda g: g["loss_reduction"] in ("sequence_mean", "seq_mean_token_sum_norm"),
        "Rows without tokens count in sequence means; ours leave them out unless the denominator says otherwise."),
    surprise("advantage_estimator", lambda g: g["advantage_estimator"] == "reinforce++",
        "reinforce++ starts anew after each observation, so tokens before it never see a later reward; verl carries "
        "it across.",
        source=f"{ALGORITHMS}:1251 compute_reinforce_plus_plus_outcome_advantage"),
    surprise("advantage_estimator", lambda g: g["advantage_estimator"] == "maxrl",
        "maxrl divides by the group's mean, so it flips signs where that is negative and explodes near 0; keep "
        "rewards positive. Ours gives 0 there.",
        source=f"{ALGORITHMS}:1423 compute_maxrl_advantage"),
    surprise("advantage_estimator", lambda g: g["advantage_estimator"] == "gae" and g["lambd"] != 1,
        "gae reads critic values at masked positions, also between turns and past the end; zero them to get our "
        "numbers. With lambd 1 they cancel.",
        source=f"{ALGORITHMS}:1332 compute_gae_advantage_return"),
)  # fmt: skip

DIALECT = Dialect(
    SIGNATURES["skyrl"],
    version="0.4.0",
    releases=("0.3.0", "0.4.0"),
    versions=(Version("before #849", ("use_tis", "tis_imp_ratio_cap")),),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    closed=(SECTION,),
    entry_points=r"skyrl.*|.*main_dapo\w*",
    others=("token_mask_ratio",),
    apart=(
        "A NaN log-prob is kept by veto and sequence masks and dropped by the token mask; ours takes the token as never trained.",
    ),
    candidates=candidates,
)
