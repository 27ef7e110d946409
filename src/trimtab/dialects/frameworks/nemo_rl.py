"""NeMo-RL (7ea279ab): `loss_fn` with its truncated importance sampling, and `grpo.adv_estimator`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from trimtab.config import losses as ours
from trimtab.config.advantages import (
    WHITEN,
    Distillation,
    Estimator,
    Gae,
    Gdpo,
    Grpo,
    LeaveOneOut,
    Normalise,
    ReinforcePlusPlus,
)
from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Dialect, Given, Key, remark, surprise
from trimtab.dialects.parts import ALL, OPEN, AdvantagePart, Gates, LossPart, ratio_gate, refuse, weight_of
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import choice, flag, nested, number, numbers, text
from trimtab.errors import ConfigError

T = "truncated_importance_sampling"
F, E = "loss_fn", "grpo.adv_estimator"
NAMES = ("grpo", "gdpo", "reinforce_plus_plus", "gae", "raw_reward", "opd")


def _estimator_key(name: str, kind: Any, default: Any = None, *also: str, label: str = "", **more: Any) -> Key:
    places = (f"ppo.adv_estimator.{name}", *also)
    return Key(f"{E}.{name}", kind, default, part="advantage", name=label, also=places, **more)


KEYS = (
    Key("loss_fn.use_importance_sampling_correction", flag, False),
    Key(f"loss_fn.{T}_type", choice("tis", "icepop", "seq-mask-tis")),
    Key(f"loss_fn.{T}_ratio", number),
    Key(f"loss_fn.{T}_ratio_min", number),
    Key("loss_fn.sequence_level_importance_ratios", flag, False, chooses=("loss",)),
    Key("grpo.seq_logprob_error_threshold", number),
    Key("policy.logprob_estimation", nested, part="other"),
    Key("policy.worker_cls_fqn", text, part="other"),
    Key(f"{F}.token_level_loss", flag, True, part="loss"),
    Key(f"{F}.force_on_policy_ratio", flag, False, part="loss"),
    Key(f"{F}.ratio_clip_min", number, 0.2, part="loss"),
    Key(f"{F}.ratio_clip_max", number, 0.2, part="loss"),
    Key(f"{F}.ratio_clip_c", number, part="loss"),
    Key(f"{F}.use_cispo", flag, False, part="loss"),
    Key(f"{F}.disable_ppo_ratio", flag, False, part="loss", joint=("use_cispo", "sequence_level_importance_ratios")),
    Key(f"{F}.positive_example_nll_weight", number, 0.0, part="loss"),
    Key(f"{F}.reference_policy_kl_penalty", number, 0.0, part="loss", toggle=True, chooses=("advantage",),
        joint=("reference_policy_kl_type", "use_kl_in_reward")),
    Key(f"{F}.reference_policy_kl_type", choice("k1", "k2", "k3"), "k3", part="other"),
    Key(f"{F}.kl_input_clamp_value", number, 20.0, part="other", null="open"),
    Key(f"{F}.kl_output_clamp_value", number, 10.0, part="other", null="open"),
    Key(f"{F}.use_on_policy_kl_approximation", flag, False, part="loss"),
    Key(f"{F}.use_kl_in_reward", flag, False, part="loss", chooses=("advantage",)),
    _estimator_key("name", choice(*NAMES), "grpo", label="adv_estimator.name",
        joint=("use_leave_one_out_baseline", "normalize_rewards")),
    _estimator_key("use_leave_one_out_baseline", flag, True, "grpo.use_leave_one_out_baseline"),
    _estimator_key("normalize_rewards", flag, True, "grpo.normalize_rewards"),
    _estimator_key("reward_weights", numbers, seed=(1.0,)),
    _estimator_key("minus_baseline", flag, True),
    _estimator_key("gae_lambda", number, 0.95),
    _estimator_key("gae_gamma", number, 1.0),
    _estimator_key("normalize_advantages", flag, True),
    _estimator_key("gae_lambda_value", number),
    _estimator_key("gae_lambda_policy", number),
    _estimator_key("length_adaptive_alpha", number, 0.0, toggle=True),
)  # fmt: skip


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────


def correction_of(given: Given) -> Correction:
    """The sequence-error gate, then a weight or a gate on the geometric mean."""
    error = given["seq_logprob_error_threshold"]
    gates: Gates = ()
    if error is not None:
        gates = (Gate(metric="mult_prob_error", level="sequence", upper=error),)
    gate, weight = _gates_and_weight(given)
    return Correction(gates=gates + gate, weight=weight, denominator="kept" if error is not None else "trained")


def _gates_and_weight(given: Given) -> tuple[Gates, Weight]:
    kind, upper, lower = given[f"{T}_type"], given[f"{T}_ratio"], given[f"{T}_ratio_min"]
    unit = "sequence" if given["sequence_level_importance_ratios"] else "token"
    if upper is not None and kind is None:
        raise ConfigError(
            f"NeMo-RL {T}_ratio needs a {T}_type, which may be in the file that this one builds on and that is not available. Put "
            f"it there, or pass --set loss_fn.{T}_type=VALUE."
            if given.builds_on_others
            else f"NeMo-RL {T}_ratio needs a {T}_type; without it the first loss call fails. Add tis."
        )
    if kind in ("icepop", "seq-mask-tis") and lower is None:
        raise ConfigError(f"NeMo-RL {T}_ratio_min needs a number for {kind}, got nothing.")
    if kind == "seq-mask-tis" and unit == "sequence":
        raise ConfigError("NeMo-RL seq-mask-tis and sequence_level_importance_ratios exclude each other. Drop one.")
    if not given["use_importance_sampling_correction"]:
        if kind is not None:
            raise ConfigError(
                f"NeMo-RL {T}_type {kind} needs use_importance_sampling_correction true, got false; without it the start fails. Switch it "
                "on, or leave the type out."
            )
        return (), Weight(level="one")
    if kind == "seq-mask-tis":
        return ratio_gate("geometric", lower, upper, action="zero"), Weight(level="token")
    return (), weight_of(unit, lower, upper, zero=kind == "icepop")


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """The error gate, and one kind of weight."""
    found: dict[str, Any] = {}
    weight, kind = rule.weight, None
    bounds = (weight.lower, weight.upper) if weight is not None else (None, None)
    for gate in rule.gates:
        if gate.metric == "mult_prob_error":
            found["grpo.seq_logprob_error_threshold"] = gate.upper
        else:
            kind, bounds = "seq-mask-tis", (gate.lower or 1 / OPEN, gate.upper or OPEN)
    if weight is None or weight.level == "one":
        yield {"loss_fn.use_importance_sampling_correction": False, **found}
        return
    if kind is None and bounds != (None, None):
        kind = "icepop" if weight.outside == "zero" else "tis"
        bounds = (bounds[0] if kind == "tis" else bounds[0] or 1 / OPEN, bounds[1] or OPEN)
    if weight.level == "sequence":
        found |= {"loss_fn.sequence_level_importance_ratios": True, "loss_fn.token_level_loss": False}
    clips = {f"loss_fn.{T}_type": kind, f"loss_fn.{T}_ratio": bounds[1], f"loss_fn.{T}_ratio_min": bounds[0]}
    yield {"loss_fn.use_importance_sampling_correction": True, **clips, **found}


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def loss_of(given: Given) -> LossPart:
    """A token mean, or a mean per sequence; at sequence level GSPO."""
    refuse(
        given["positive_example_nll_weight"],
        "NeMo-RL positive_example_nll_weight",
        "it adds the likelihood of rewarded answers to the loss. Leave it 0",
    )
    _check(given)
    mode = "token-mean" if given["token_level_loss"] else "seq-mean-token-mean"
    return LossPart(loss=_loss(given), reduction=Reduction(mode=mode), kl=_kl(given))


def _check(given: Given) -> None:
    """What NeMo-RL refuses itself."""
    if given["sequence_level_importance_ratios"] and given.has("token_level_loss") and given["token_level_loss"]:
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
        "value and gradient of the KL are weighed by current/behavior. Switch it off",
    )
    kind = given["reference_policy_kl_type"]
    refuse(
        kind != "k3",
        f"NeMo-RL reference_policy_kl_type {kind} in the loss",
        "its gradient also runs through the probability of the sample, which ours has for k3. Use k3, or pay the KL in the reward",
    )
    return KlPenalty(coefficient=penalty, gradient="unbiased", **kl_settings(given))


def kl_settings(given: Given) -> dict[str, Any]:
    """The estimate of the KL, and how it is held."""
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


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────

BIASED = Normalise(unbiased=False, eps=1e-8, eps_at="floor")


def advantage_of(given: Given) -> AdvantagePart:
    """The named estimator, and the KL penalty in the reward of those that sum it."""
    name = given["adv_estimator.name"]
    penalty = given["reference_policy_kl_penalty"] if given["use_kl_in_reward"] else 0.0
    refuse(
        penalty and name == "reinforce_plus_plus",
        "NeMo-RL use_kl_in_reward with reinforce_plus_plus",
        "each token pays its own KL only, where ours pays the sum to come. Use the KL loss",
    )
    kl = KlPenalty(coefficient=penalty, **kl_settings(given)) if penalty and name == "gae" else None
    return AdvantagePart(advantage=_advantage(given, name), reward_kl=kl)


def _advantage(given: Given, name: str) -> Estimator:
    if name == "gdpo":
        return _gdpo(given)
    if name == "opd":
        return Distillation(**ALL)
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
    split = given.is_on("gae_lambda_value", "gae_lambda_policy") or given["length_adaptive_alpha"] > 0
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


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LOSS = "nemo_rl/algorithms/loss/loss_functions.py"
CALL = "ClippedPGLossFn.__call__"


def _of_whole_answers(given: Given) -> bool:
    """Whether the estimate is one number for each answer; a file that builds on another may leave the type to it."""
    held = given["logprob_estimation"]
    return isinstance(held, Mapping) and "espo" in str(cast("Mapping[str, Any]", held).get("type", ""))


REMARKS = (
    remark("logprob_estimation", lambda g: g.is_on("logprob_estimation") and not _of_whole_answers(g),
        "The trainer's log-probs are estimates of a diffusion model's, from passes with masked answers, not those of "
        "the next token: pass them as current, proximal and reference and the formulas here hold, but a ratio to the "
        "sampler's compares two estimates."),
    remark("logprob_estimation", _of_whole_answers,
        "The trainer's log-probs are one number for each answer, a diffusion model's bound on its log-likelihood "
        "over the length: give it to every token of the answer as current, proximal and reference; ratios of single "
        "tokens do not exist here."),
    remark("worker_cls_fqn", lambda g: g.is_on("worker_cls_fqn"),
        "This class of its own takes the place of the policy's worker, which computes log-probs and hands them to "
        "the loss; what it changes is not shown."),
    surprise(f"{T}_ratio", lambda g: g["use_importance_sampling_correction"] and g[f"{T}_type"] == "tis",
        "A ratio that overflows weighs 0 instead of the cap; bound the log-probs, or use seq_logprob_error_threshold.",
        source=f"{LOSS}:582 {CALL}"),
    surprise(f"{T}_type", lambda g: g[f"{T}_type"] == "seq-mask-tis" and g["use_importance_sampling_correction"],
        "seq-mask-tis tests the geometric mean and lets survivors keep their own token ratios, unbounded, in spite "
        "of its name.",
        source=f"{LOSS}:637-664 {CALL}"),
    remark("use_importance_sampling_correction",
        lambda g: g["use_importance_sampling_correction"] and g[f"{T}_type"] is None and g[f"{T}_ratio"] is None,
        "Without a truncation type the weights are unbounded; add {T_} tis with a ratio.".replace("{T_}", f"{T}_type")),
    surprise("seq_logprob_error_threshold", lambda g: g.is_on("seq_logprob_error_threshold"),
        "Rejected sequences leave the denominator, so each one raises the step of the others, while zeroed ratios "
        "stay in it; slime, SkyRL and AReaL count before rejection.",
        source="nemo_rl/algorithms/grpo.py:2513-2640 compute_and_apply_seq_logprob_error_masking"),
    surprise("sequence_level_importance_ratios",
        lambda g: g["use_importance_sampling_correction"] and g["sequence_level_importance_ratios"],
        "The weight is the product over the sequence; AReaL, ms-swift and OpenRLHF mean the geometric mean by "
        "`sequence`.",
        source=f"{LOSS}:570 {CALL}"),
    surprise("use_leave_one_out_baseline",
        lambda g: (g.speaks_of("advantage") and g["adv_estimator.name"] in ("grpo", "gdpo")
            and g["use_leave_one_out_baseline"] and g["normalize_rewards"]),
        "Mean and deviation are both those of the others: rewards [1, 0, 0, 0] give [1, −0.58, −0.58, −0.58] where "
        "GRPO gives [1.5, −0.5, −0.5, −0.5], and groups of two are never divided.",
        source="nemo_rl/algorithms/utils.py:104 calculate_baseline_and_std_per_prompt"),
    surprise("force_on_policy_ratio", lambda g: bool(g["force_on_policy_ratio"]),
        "force_on_policy_ratio sets the PPO ratio to 1, so nothing is ever clipped; pass current as proximal to get "
        "the same.",
        source=f"{LOSS}:520 {CALL}"),
    remark("sequence_level_importance_ratios", lambda g: g["sequence_level_importance_ratios"] and g.speaks_of("loss"),
        "GSPO here differentiates the mean ratio and forces a mean per sequence; verl and SkyRL keep each token's "
        "own gradient."),
    remark("reference_policy_kl_penalty",
        lambda g: bool(g["reference_policy_kl_penalty"]) and not g["use_kl_in_reward"],
        "The gradient also runs through the probability of the sample, which makes that of k3 the gradient of the "
        "KL, d. Where a clamp holds d or the estimate NeMo-RL's is 0, ours still d."),
    remark("reference_policy_kl_penalty", lambda g: bool(g["use_kl_in_reward"]),
        "With use_kl_in_reward the KL is paid in the reward and not in the loss, and only reinforce_plus_plus and "
        "gae read it there."),
)  # fmt: skip

DIALECT = Dialect(
    SIGNATURES["nemo-rl"],
    version="7ea279ab",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    apart=("A non-finite ratio weighs 0 and stays in the denominator; ours takes the token as never trained.",),
    logged_kl=lambda given: given["reference_policy_kl_type"],
    candidates=candidates,
)
