"""ms-swift 4.6.0: `rollout_importance_sampling_*`, the off-policy sequence mask, `loss_type` and `advantage_estimator`.

`sequence` means the geometric mean. The weight multiplies the KL term too. Losses and scaling have TRL's names, mostly with TRL's meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Distillation, Estimator, Gdpo, Grpo, Normalise, ReinforcePlusPlus, Rloo, Shaping
from trimtab.config.correction import Correction, Limit, Weight
from trimtab.config.losses import KlPenalty, Objective
from trimtab.dialects.framework import Dialect, Given, Key, remark, surprise
from trimtab.dialects.frameworks.trl import REDUCTIONS, SCALES, caps_below_the_clip, clip_bounds, scale
from trimtab.dialects.parts import AdvantagePart, LossPart, alone, opsm, ratio_gate, reduction_of, refuse, weight_of
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import UNSAID, choice, flag, number, numbers, raw, text, unsaid_or
from trimtab.errors import ConfigError

P = "rollout_importance_sampling"
TEACHER = "TEACHER"
"""Where a writing names a teacher it does not know."""
MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
KEYS = (
    Key(f"{P}_mode", choice(*MODES)),
    Key(f"{P}_threshold", number, 2.0),
    Key("off_policy_sequence_mask_delta", number),
    Key("use_vllm", flag, False, part="other"),
    Key("log_rollout_offpolicy_metrics", flag, False),
    Key("loss_type", choice("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "fipo", "real"), "grpo", part="loss",
        null="unsaid", joint=("importance_sampling_level",)),
    Key("epsilon", number, 0.2, part="loss"),
    Key("epsilon_high", number, part="loss", seed=5.0),
    Key("delta", number, part="loss"),
    Key("beta", number, 0.04, part="loss", null="unsaid", toggle=True),
    Key("importance_sampling_level", choice("token", "sequence", "sequence_token"), "token", part="loss"),
    Key("max_completion_length", number, 512.0, part="other"),
    Key("tau_pos", number, 1.0, part="loss"),
    Key("tau_neg", number, 1.05, part="loss"),
    Key("advantage_estimator", choice("grpo", "rloo", "reinforce_plus_plus"), "grpo", part="advantage",
        joint=("scale_rewards", "kl_in_reward", "teacher_model")),
    Key("scale_rewards", raw, part="advantage", options=(*unsaid_or(SCALES), "gdpo")),
    Key("reward_weights", numbers, part="other", seed=(1.0,)),
    Key("kl_in_reward", flag, part="advantage", options=(UNSAID, False, True)),
    Key("top_entropy_quantile", number, 1.0, part="loss"),
    Key("real_tau", number, 0.5, part="loss"),
    Key("fipo_decay_rate", number, 32.0, part="loss"),
    Key("fipo_clip_range", number, 0.2, part="loss", null="open"),
    Key("fipo_clip_high_only", flag, True, part="loss"),
    Key("fipo_safety_threshold", number, 4.0, part="loss", null="open"),
    Key("sdar_loss_coef", number, 0.0, part="loss"),
    Key("advantage_reweight", text, part="advantage"),
    Key("chord_sft_dataset", raw, part="loss"),
    Key("teacher_model", raw, part="advantage", options=(UNSAID, TEACHER)),
    Key("teacher_model_server", raw, part="advantage"),
    Key("teacher_kl_coef", number, 1.0, part="advantage"),
    Key("overlong_filter", flag, False, part="loss"),
)  # fmt: skip


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────

SAFETY = Limit(bound=20.0, at="token")


def correction_of(given: Given) -> Correction:
    """One mode, upper bound only, and the sequence mask, which rejects."""
    delta, mode, upper = given["off_policy_sequence_mask_delta"], given[f"{P}_mode"], given[f"{P}_threshold"]
    sampled = (
        bool(given["use_vllm"]) if given.has("use_vllm") or given.is_run else True
    )  # only vLLM's log-probs are kept
    pair = "current/behavior" if sampled else "current/proximal"
    gates = (opsm(delta, action="reject", pair=pair),) if delta is not None else ()
    shared: dict[str, Any] = {
        "denominator": "kept" if gates and given["loss_type"] == "bnpo" else "trained",
        "applies_to": "policy+kl",
    }
    if mode is None or not sampled:
        return alone(given, gates).but(denominator=shared["denominator"])
    if mode == "sequence_mask":
        gates += ratio_gate("geometric", None, upper, action="zero", limit=SAFETY)
        return Correction(gates=gates, weight=Weight(level="token", limit=SAFETY), **shared)
    unit, _, action = mode.partition("_")
    level = {"token": "token", "sequence": "geometric"}[unit]
    return Correction(gates=gates, weight=weight_of(level, upper=upper, zero=action == "mask", limit=SAFETY), **shared)


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Each mode, with the threshold that the weight or the gate has."""
    found: dict[str, Any] = {}
    upper = rule.weight.upper if rule.weight is not None else None
    for gate in rule.gates:
        if gate.when == "negative_advantage":
            found["off_policy_sequence_mask_delta"] = gate.upper
            found |= {"use_vllm": True} if gate.pair == "current/behavior" else {}
        else:
            upper = gate.upper
    if upper is None:
        yield found or {f"{P}_mode": None}
        return
    for mode in MODES:
        yield {f"{P}_mode": mode, f"{P}_threshold": upper, **found, "use_vllm": True}


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _surrogate(given: Given) -> Objective:
    """The surrogate of a loss_type."""
    name, level = given["loss_type"], given["importance_sampling_level"]
    refuse(name == "real", "ms-swift loss_type real", "its loss is one number per group, not one per token. Use grpo")
    refuse(
        name == "fipo" and level != "token",
        f"ms-swift loss_type fipo with importance_sampling_level {level}",
        "ours weighs the ratio of a token. Use token",
    )
    refuse(
        name == "sapo" and level == "sequence_token",
        "ms-swift loss_type sapo with importance_sampling_level sequence_token",
        "ours differentiates the mean. Use token or sequence",
    )
    unit: Any = "token" if level == "token" else "sequence"
    if name == "cispo":
        return ours.Cispo(upper=clip_bounds(given)["high"], level=unit)
    if name == "sapo":
        return ours.Sapo(tau_positive=given["tau_pos"], tau_negative=given["tau_neg"], level=unit)
    if name == "fipo":
        return _fipo(given)
    if level == "token":
        return ours.Clip(**clip_bounds(given), ratio_cap=given["delta"])
    kind: Any = {"sequence": "sequence", "sequence_token": "sequence-token"}[level]
    return ours.Gspo(**clip_bounds(given), level=kind, ratio_cap=given["delta"])


def _fipo(given: Given) -> Objective:
    """A fipo_clip_range of 0 or null leaves the weight open; without fipo_clip_high_only it may fall as far as it may rise."""
    reach = given["fipo_clip_range"]
    bounds: dict[str, Any] = {"lower": None, "upper": None}
    if reach:
        bounds = {"lower": 1.0 if given["fipo_clip_high_only"] else 1 - reach, "upper": 1 + reach}
    return ours.Fipo(
        **clip_bounds(given),
        **bounds,
        ratio_cap=given["delta"],
        half_life=given["fipo_decay_rate"],
        safety=given["fipo_safety_threshold"],
    )


def loss_of(given: Given) -> LossPart:
    """As in TRL, loss_type chooses surrogate and denominator."""
    quantile = given["top_entropy_quantile"]
    refuse(
        quantile not in (None, 1.0), "ms-swift top_entropy_quantile below 1", "the mask needs entropies. Leave it at 1"
    )
    refuse(given["chord_sft_dataset"], "ms-swift chord_sft_dataset", "a supervised loss is mixed in. Leave it out")
    refuse(given["sdar_loss_coef"], "ms-swift sdar_loss_coef", "it adds a loss to a teacher. Leave it 0")
    kl = None
    if given.has("beta") and given["beta"] and not pays_kl_in_reward(given):
        kl = KlPenalty(coefficient=given["beta"], estimator="k3", input_limit=20.0, output_limit=10.0, mask="kept")
    return LossPart(
        loss=_surrogate(given),
        reduction=reduction_of(
            REDUCTIONS | {"fipo": "token-mean"},
            "ms-swift loss_type",
            given["loss_type"],
            given["max_completion_length"],
        ),
        kl=kl,
        rows="all",
    )


def pays_kl_in_reward(given: Given) -> bool:
    """By default it follows the estimator."""
    return given["advantage_estimator"] != "grpo" if given["kl_in_reward"] is None else bool(given["kl_in_reward"])


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────

ROW_WISE = Normalise(unit="sequence", eps=1e-4, eps_at="std")
TIED = {"grpo": "group", "rloo": "none", "reinforce_plus_plus": "batch"}
"""scale_rewards where it is left out."""


def advantage_of(given: Given) -> AdvantagePart:
    """GRPO, RLOO, REINFORCE++ over groups, or several rewards normalised each; a teacher's log-ratio on top, where there is one."""
    refuse(given["advantage_reweight"], "ms-swift advantage_reweight", "it needs a teacher's log-probs. Leave it out")
    refuse(
        pays_kl_in_reward(given) and given.has("beta") and given["beta"],
        "ms-swift beta with kl_in_reward",
        "the KL of an answer is taken off its reward before the baseline. Take it off yourself and set beta to 0",
    )
    others, found = _others(given), _estimator(given)
    if given["teacher_model"] or given["teacher_model_server"]:
        found = Distillation(coefficient=given["teacher_kl_coef"], base=found, baseline="all")  # pyright: ignore[reportArgumentType]
    return AdvantagePart(advantage=found, shaping=() if others is None else (Shaping(normalise=others),))


def _estimator(given: Given) -> Estimator:
    name = given["advantage_estimator"]
    scaling = given["scale_rewards"] if given["scale_rewards"] is not None else TIED[name]
    if scaling == "gdpo":
        if not given["reward_weights"]:
            raise ConfigError("ms-swift scale_rewards gdpo needs reward_weights here, one number per reward function.")
        return Gdpo(weights=tuple(given["reward_weights"]), eps=1e-8, normalise=ROW_WISE.but(eps=1e-8), baseline="all")
    scaling = scale("ms-swift", scaling)
    if name == "grpo" or (name, scaling) == ("reinforce_plus_plus", "group"):
        return Grpo(eps=1e-4, baseline="all", **SCALES[scaling])
    if name == "reinforce_plus_plus":
        return Grpo(std=False, normalise=ROW_WISE.but(mean=None) if scaling == "batch" else None, baseline="all")
    return Rloo(baseline="all") if scaling == "none" else ReinforcePlusPlus(normalise=None, baseline="all")


def _others(given: Given) -> Normalise | None:
    """rloo divided by the deviation of the rewards: what is left of the reward after that is the advantage."""
    scaling = given["scale_rewards"]
    if given["advantage_estimator"] != "rloo" or scaling not in ("group", "batch"):
        return None
    return Normalise(mean="group", std=scaling, leave_one_out=True, eps=1e-4, eps_at="std")


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────

REMARKS = (
    surprise(f"{P}_mode", lambda g: g.is_on(f"{P}_mode") and bool(g["beta"]) and not pays_kl_in_reward(g),
        "The weight multiplies the KL term too, so beta acts less where the ratio is small; no other framework does "
        "this.",
        source="rlhf_trainers/grpo_trainer.py:1067 GRPOTrainer._compute_loss_and_metrics"),
    surprise(f"{P}_mode", lambda g: g[f"{P}_mode"] == "sequence_mask",
        "sequence_mask tests the geometric mean and lets survivors keep their own token ratios, unbounded; TRL's "
        "option of the same name tests and weighs by the product.",
        source="rlhf_trainers/grpo_trainer.py:2386 GRPOTrainer._apply_rollout_importance_sampling"),
    surprise(f"{P}_mode", lambda g: g[f"{P}_mode"] == "sequence_truncate",
        "sequence_truncate caps the geometric mean at {" + P + "_threshold}; TRL's option of the same name caps the product.",
        source="rlhf_trainers/grpo_trainer.py:2381 GRPOTrainer._apply_rollout_importance_sampling"),
    remark(f"{P}_threshold", lambda g: g.is_on(f"{P}_mode"),
        "There is no lower bound: a token whose ratio fell to 0 is kept."),
    surprise("off_policy_sequence_mask_delta", lambda g: g.is_on("off_policy_sequence_mask_delta"),
        "Masked sequences leave the mask, so their KL term and, with loss_type bnpo, their place in the denominator "
        "go too; TRL multiplies the policy term only.",
        source="rlhf_trainers/grpo_trainer.py:1080 GRPOTrainer._compute_loss_and_metrics"),
    remark("log_rollout_offpolicy_metrics", lambda g: g.is_on("log_rollout_offpolicy_metrics"),
        "chi2_seq is computed from the geometric mean, not the product, and ess counts masked tokens as 1/threshold."),
    remark("beta", lambda g: (g.speaks_of("loss") or g.whole) and not g.has("beta"),
        "By default beta is {beta}: a KL term is added; set beta to have it read."),
    remark("kl_in_reward", lambda g: g["advantage_estimator"] != "grpo" and g["kl_in_reward"] is None,
        "With {advantage_estimator} the KL is paid in the reward by default, before the baseline, and not in the "
        "loss."),
    remark("overlong_filter", lambda g: bool(g["overlong_filter"]),
        "Truncated answers leave the mask before the correction under transformers and after it under Megatron; pass "
        "their rows masked."),
    surprise("epsilon_high", lambda g: g["loss_type"] == "cispo",
        "With cispo epsilon_high {epsilon_high} bounds the ratio itself; verl, slime, NeMo-RL and ROLL mean 1 + "
        "epsilon_high.",
        source="rlhf_trainers/grpo_trainer.py:1037 GRPOTrainer._compute_loss_and_metrics"),
    surprise("loss_type", lambda g: g["loss_type"] == "bnpo",
        "bnpo divides by the tokens of one micro-batch here and by those of the global batch under Megatron.",
        source="rlhf_trainers/grpo_trainer.py:1085 GRPOTrainer._compute_loss_and_metrics"),
    surprise("delta", caps_below_the_clip,
        "delta {delta} is below the clip's upper bound, and caps the ratio where the advantage is positive too; dual "
        "clip elsewhere acts where it is negative.",
        source="rlhf_trainers/grpo_trainer.py:1054 GRPOTrainer._compute_loss_and_metrics"),
    remark("teacher_model", lambda g: bool(g["teacher_model"] or g["teacher_model_server"]),
        "Each token's advantage gets teacher_kl_coef ({teacher_kl_coef}) times the teacher's log-ratio to the "
        "trainer's log-probs before the step, on top of what was normalised."),
    remark("teacher_model", lambda g: g["teacher_model"] == TEACHER,
        "TEACHER stands for a teacher these settings do not know; put its path there."),
)  # fmt: skip

DIALECT = Dialect(
    SIGNATURES["ms-swift"],
    version="4.6.0",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    apart=("A NaN log-prob spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
)
