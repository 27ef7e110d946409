"""TRL 1.16.0: GRPOConfig, RLOOConfig and AsyncGRPOConfig. Importance sampling against vLLM, the off-policy sequence mask, `loss_type`.

`sequence` means the product over the tokens. The mask never changes: what is masked weighs 0 and stays in the denominator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Estimator, Gdpo, Grpo, Normalise, Rloo, Shaping
from trimtab.config.correction import Correction, Weight
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Dialect, Given, Key, Part, Version, remark, surprise
from trimtab.dialects.parts import OFF, AdvantagePart, LossPart, alone, bonus, opsm, reduction_of, refuse, weight_of
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import UNSAID, choice, flag, number, numbers, raw, unsaid_or, whole
from trimtab.errors import ConfigError

MODES: dict[str, tuple[str, bool]] = {
    "token_truncate": ("token", False),
    "token_mask": ("token", True),
    "sequence_truncate": ("sequence", False),
    "sequence_mask": ("sequence", True),
}
"""Mode → what the ratio is gathered over, and whether it is zeroed outside the bounds."""
P = "vllm_importance_sampling"
LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
SCALES: dict[str, dict[str, Any]] = {
    "group": {"std": True},
    "batch": {"std": True, "std_over": "batch"},
    "none": {"std": False},
}
KEYS = (
    Key(f"{P}_correction", flag, True),
    Key(f"{P}_mode", choice(*MODES), "sequence_mask"),
    Key(f"{P}_clip_max", number, 3.0, null="open"),
    Key(f"{P}_clip_min", number),
    Key(f"{P}_cap", number, legacy=True),
    Key("use_vllm", flag, False),
    Key("off_policy_mask_threshold", number),
    Key("max_staleness", whole),
    Key("loss_type", choice(*LOSS_TYPES), "dapo", part="loss", joint=("importance_sampling_level",)),
    Key("epsilon", number, 0.2, part="loss"),
    Key("epsilon_high", number, part="loss", seed=5.0),
    Key("delta", number, part="loss"),
    Key("beta", number, 0.0, part="loss", toggle=True, joint=("use_bias_correction_kl",)),
    Key("use_bias_correction_kl", flag, True, part="loss"),
    Key("importance_sampling_level", choice("token", "sequence"), "token", part="loss"),
    Key("max_completion_length", number, 512.0, part="other", null="open"),
    Key("sapo_temperature_pos", number, 1.0, part="loss"),
    Key("sapo_temperature_neg", number, 1.05, part="loss"),
    *(
        Key(f"vespo_{name}_{sign}", number, default, part="loss")
        for name, sign, default in (
            ("k", "pos", 2.0),
            ("lambda", "pos", 3.0),
            ("k", "neg", 3.0),
            ("lambda", "neg", 2.0),
        )
    ),
    Key("top_entropy_quantile", number, 1.0, part="loss"),
    Key("entropy_coef", number, 0.0, part="loss", toggle=True),
    Key("use_adaptive_entropy", flag, False, part="loss"),
    Key("entropy_target", number, 0.2, part="other"),
    *(
        Key(f"entropy_coef_{name}", number, default, part="other")
        for name, default in (("min", 0.0), ("max", 1.0), ("delta", 0.005))
    ),
    Key("scale_rewards", raw, "group", part="advantage", options=unsaid_or(SCALES),
        joint=("multi_objective_aggregation", "normalize_advantages")),
    Key("multi_objective_aggregation", choice("sum_then_normalize", "normalize_then_sum"), "sum_then_normalize",
        part="advantage"),
    Key("reward_weights", numbers, part="other", seed=(1.0,)),
    Key("normalize_advantages", flag, False, part="advantage", options=(UNSAID, False, True)),
    Key("reward_clip_range", numbers, part="advantage"),
    Key("mask_truncated_completions", flag, False, part="loss"),
)  # fmt: skip
CONFIGS: dict[str, frozenset[str]] = {
    "RLOOConfig": frozenset(
        (
            *("use_vllm", "epsilon", "epsilon_high", "beta", "max_completion_length", "reward_weights"),
            *("normalize_advantages", "reward_clip_range", "mask_truncated_completions"),
        )
    ),
    "AsyncGRPOConfig": frozenset(("max_staleness", "epsilon", "epsilon_high", "max_completion_length")),
}
"""Of the configs beside GRPOConfig, the keys of ours that each has; both have keys that it has not, and are known by them."""


def is_rloo(given: Given) -> bool:
    """Whether these are settings of RLOOConfig, which alone has these keys."""
    return given.has("normalize_advantages", "reward_clip_range")


def is_async(given: Given) -> bool:
    """Whether these are settings of AsyncGRPOConfig, which alone has this key."""
    return given.has("max_staleness")


def refuse_absent(given: Given, part: Part) -> None:
    """A ConfigError that names the keys of a part that the user's config does not have."""
    name = "RLOOConfig" if is_rloo(given) else "AsyncGRPOConfig" if is_async(given) else ""
    if name:
        absent = [key for key in given.values if given.part_of(key) == part and key not in CONFIGS[name]]
        refuse(
            absent, f"TRL {name} with {', '.join(absent)}", f"{name} has no such key, and TRL stops on it. Leave it out"
        )


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────


def correction_of(given: Given) -> Correction | None:
    """A weight where vLLM samples, and a gate where the sequence mask is on; RLOOConfig and AsyncGRPOConfig have neither."""
    refuse_absent(given, "correction")
    delta, pair = given["off_policy_mask_threshold"], "current/behavior" if samples(given) else "current/proximal"
    gates = (opsm(delta, pair=pair),) if delta is not None else ()
    if is_async(given):
        return OFF.but(policies="bypass")
    if is_rloo(given):
        return OFF
    if not is_weighed(given):
        return alone(given, gates)
    unit, zero = MODES[given[f"{P}_mode"]]
    if given["loss_type"] == "vespo" and unit == "sequence":
        raise ConfigError(
            f"TRL loss_type vespo needs a token mode, got {P}_mode {given[f'{P}_mode']}. Use token_truncate."
        )
    lower, upper = weight_bounds(given)
    if not zero and lower is None and upper is None:
        raise ConfigError(f"TRL {P}_mode {given[f'{P}_mode']} needs a clip_min or a clip_max, got neither.")
    return Correction(gates=gates, weight=weight_of(unit, lower, upper, zero=zero))


def samples(given: Given) -> bool:
    """Whether vLLM samples, whose log-probs are then known; taken for granted where nobody says so and this is not a whole run."""
    return bool(given["use_vllm"]) if given.has("use_vllm") or given.is_run else True


def is_weighed(given: Given) -> bool:
    """Whether vLLM samples and its ratio weighs."""
    if is_rloo(given) or is_async(given):
        return False
    speaks = given["use_vllm"] or given.has(
        *(f"{P}_{name}" for name in ("correction", "mode", "clip_max", "clip_min", "cap"))
    )
    return bool(speaks and given[f"{P}_correction"] and samples(given))


def weight_bounds(given: Given) -> tuple[float | None, float | None]:
    """The bounds of the weight, from the newest keys that say them."""
    upper = given[f"{P}_cap"] if given.is_on(f"{P}_cap") and not given.has(f"{P}_clip_max") else given[f"{P}_clip_max"]
    lower = given[f"{P}_clip_min"]
    if lower is not None and upper is not None and lower >= upper:
        raise ConfigError(f"TRL {P}_clip_min needs to be below clip_max, got [{lower:g}, {upper:g}].")
    return lower, upper


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """One weight, and the sequence mask."""
    found: dict[str, Any] = {}
    weight = rule.weight
    for gate in rule.gates:
        if gate.when == "negative_advantage":
            found["off_policy_mask_threshold"] = gate.upper
        elif gate.metric == "ratio" and gate.action == "zero" and gate.agg in (None, "sum"):
            unit = "token" if gate.level == "token" else "sequence"
            weight = Weight(level=unit, outside="zero", lower=gate.lower, upper=gate.upper)
    if rule.policies == "bypass" and not rule.gates and (weight is None or weight.level == "one"):
        yield {"max_staleness": 4}  # a key of AsyncGRPOConfig, whose ratio divides by behavior
    if weight is None or weight.level == "one":
        if any(gate.pair == "current/behavior" for gate in rule.gates):
            found |= {"use_vllm": True, f"{P}_correction": False}
        yield found or {f"{P}_correction": False}
        if not found:
            yield {"normalize_advantages": False, "use_vllm": False}  # RLOOConfig, which corrects nothing either way
        return
    for mode, (unit, zero) in MODES.items():
        if unit == weight.level and zero == (weight.outside == "zero" or (weight.lower, weight.upper) == (None, None)):
            clips = {f"{P}_mode": mode, f"{P}_clip_min": weight.lower, f"{P}_clip_max": weight.upper}
            yield {"use_vllm": True, f"{P}_correction": True, **clips, **found}


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────

REDUCTIONS = {
    "grpo": "seq-mean-token-mean",
    "sapo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
    "luspo": "seq-mean-token-sum",
} | dict.fromkeys(("bnpo", "dapo", "cispo", "vespo"), "token-mean")


def clip_bounds(given: Given) -> dict[str, Any]:
    """epsilon below, epsilon_high above, the first for both where the second is left out."""
    high = given["epsilon"] if given["epsilon_high"] is None else given["epsilon_high"]
    return {"low": given["epsilon"], "high": high}


def caps_below_the_clip(given: Given) -> bool:
    """Whether delta bounds the ratio below where the clip does; above that the two are a dual clip."""
    unclipped = given["loss_type"] in ("cispo", "sapo", "vespo", "real")
    return bool(given["delta"]) and not unclipped and given["delta"] < 1 + clip_bounds(given)["high"]


def _surrogate(given: Given) -> Objective:
    """The surrogate of a loss_type."""
    name, level = given["loss_type"], given["importance_sampling_level"]
    if name == "cispo":
        return ours.Cispo(upper=clip_bounds(given)["high"], level=level)  # it bounds the ratio itself
    if name == "sapo":
        return ours.Sapo(
            tau_positive=given["sapo_temperature_pos"], tau_negative=given["sapo_temperature_neg"], level=level
        )
    if name == "vespo":
        sides = {"pos": "positive", "neg": "negative"}
        fields = {f"{k}_{side}": given[f"vespo_{k}_{sign}"] for k in ("k", "lambda") for sign, side in sides.items()}
        return ours.Vespo(**fields, weights="inside")
    if level == "token":
        return ours.Clip(**clip_bounds(given), ratio_cap=given["delta"])
    return (
        ours.Luspo(**clip_bounds(given))
        if name == "luspo"
        else ours.Gspo(**clip_bounds(given), ratio_cap=given["delta"])
    )


def loss_of(given: Given) -> LossPart:
    """loss_type chooses surrogate and denominator at once; the entropy bonus is a token mean under each of them."""
    refuse_absent(given, "loss")
    if is_rloo(given):
        raise ConfigError(
            "TRL RLOOConfig's loss is not supported: it clips the product of the ratios over an answer. Use GRPOConfig with "
            "importance_sampling_level sequence, which clips the geometric mean."
        )
    if given["top_entropy_quantile"] not in (None, 1.0):
        raise ConfigError("TRL top_entropy_quantile below 1 is not supported: the mask needs entropies. Leave it at 1.")
    name, level = given["loss_type"], given["importance_sampling_level"]
    mode = "grpo" if name == "luspo" and level == "sequence" else name  # our Luspo brings the length itself
    return LossPart(
        loss=_surrogate(given),
        reduction=reduction_of(REDUCTIONS, "TRL loss_type", mode, given["max_completion_length"]),
        kl=_kl(given) if given["beta"] else None,
        entropy=bonus(given["entropy_coef"], reduction=Reduction(mode="token-mean")),
        rows="all",
    )


def _kl(given: Given) -> KlPenalty:
    full = bool(given["use_bias_correction_kl"])
    if full and given["importance_sampling_level"] == "sequence":
        raise ConfigError(
            "TRL beta with importance_sampling_level sequence and use_bias_correction_kl is not supported: its KL is weighed by the ratio "
            "of the sequence. Switch the latter off."
        )
    return KlPenalty(coefficient=given["beta"], estimator="k3", importance="full" if full else "none")


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────

ROW_WISE = Normalise(unit="sequence", eps=1e-4, eps_at="std")


def advantage_of(given: Given) -> AdvantagePart:
    """GRPO's scaling, several rewards normalised each, or RLOO."""
    refuse_absent(given, "advantage")
    refuse(
        is_rloo(given) and given.has("beta") and given["beta"],
        "TRL RLOOConfig beta",
        "the summed KL of an answer is taken off its reward before the baseline. Take it off yourself and set beta to 0",
    )
    bounds = given["reward_clip_range"]
    if bounds is not None and len(bounds) != 2:
        raise ConfigError(f"TRL reward_clip_range needs two numbers, got {list(bounds)}.")
    shaping = () if bounds is None else (Shaping(lower=bounds[0], upper=bounds[1]),)
    return AdvantagePart(advantage=_estimator(given), shaping=shaping)


def _estimator(given: Given) -> Estimator:
    if is_rloo(given):
        return Rloo(normalise=ROW_WISE if given["normalize_advantages"] else None, baseline="all")
    if given["multi_objective_aggregation"] == "normalize_then_sum":
        if not given["reward_weights"]:
            raise ConfigError("TRL normalize_then_sum needs reward_weights here, one number per reward function.")
        return Gdpo(weights=tuple(given["reward_weights"]), eps=1e-4, normalise=ROW_WISE, baseline="all")
    return Grpo(eps=1e-4, baseline="all", **SCALES[scale("TRL", given["scale_rewards"])])


def scale(title: str, value: Any) -> str:
    """group, batch or none; true and false are older spellings of the first and last."""
    name = {True: "group", False: "none"}.get(value, value) if isinstance(value, bool) else str(value)
    if name not in SCALES:
        raise ConfigError(f"{title} scale_rewards needs group, batch or none, got {value!r}.")
    return name


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────

REMARKS = (
    surprise(f"{P}_mode", lambda g: is_weighed(g) and MODES[g[f"{P}_mode"]][0] == "sequence",
        "`sequence` bounds the product over the tokens: a hundred tokens at ratio 1.02 make 7.2; AReaL, ms-swift, "
        "OpenRLHF and NeMo-RL test the geometric mean; use token_truncate for long answers.",
        source="trainer/grpo_trainer.py:2669 GRPOTrainer._generate_and_score_completions"),
    remark(f"{P}_mode", lambda g: is_weighed(g) and not g.has(f"{P}_mode"),
        "By default the mode is sequence_mask, though the documentation names token_truncate; write it down."),
    remark(f"{P}_cap", lambda g: g.has(f"{P}_cap"),
        f"{P}_cap is deprecated; now {P}_clip_max."),
    surprise(f"{P}_clip_max",
        lambda g: is_weighed(g) and weight_bounds(g)[1] is None and MODES[g[f"{P}_mode"]][0] == "sequence",
        "Without clip_max the exponential of a summed log-ratio can overflow to infinity; set one.",
        source="trainer/grpo_trainer.py:2674 GRPOTrainer._generate_and_score_completions"),
    remark(f"{P}_mode", lambda g: is_weighed(g) and MODES[g[f"{P}_mode"]][1],
        "Masked tokens weigh 0 and stay in the denominator; AReaL, SkyRL and verl take them out of the mask."),
    remark("off_policy_mask_threshold", lambda g: g.is_on("off_policy_mask_threshold"),
        "The sequence mask compares current with behavior and multiplies the policy term only; ms-swift also takes "
        "the tokens out of the mask, slime compares with proximal."),
    remark("max_staleness", is_async,
        "AsyncGRPO has two policies: PPO's ratio divides by behavior, nothing bounds it below or above the clip, and "
        "samples older than max_staleness {max_staleness} are dropped."),
    surprise("epsilon_high", lambda g: g["loss_type"] == "cispo" and g.has("loss_type"),
        "With cispo epsilon_high {epsilon_high} bounds the ratio itself; verl, slime, NeMo-RL and ROLL mean 1 + "
        "epsilon_high.",
        source="trainer/grpo_trainer.py:3110 GRPOTrainer._compute_loss"),
    surprise("delta", caps_below_the_clip,
        "delta {delta} is below the clip's upper bound, and caps the ratio where the advantage is positive too; dual "
        "clip elsewhere acts where it is negative.",
        source="trainer/grpo_trainer.py:3116 GRPOTrainer._compute_loss"),
    remark("use_bias_correction_kl", lambda g: g.is_on("beta") and g["use_bias_correction_kl"] and not is_rloo(g),
        "By default the KL term is multiplied by the ratio, differentiated through both."),
    surprise("loss_type", lambda g: g.has("loss_type") and g["loss_type"] == "bnpo",
        "{loss_type} divides by the tokens of one micro-batch, so the step depends on how the batch is split; dapo "
        "divides by those of the whole batch.",
        source="trainer/grpo_trainer.py:3158 GRPOTrainer._compute_loss"),
    remark("entropy_coef", lambda g: bool(g["entropy_coef"]),
        "The entropy is a mean over the tokens of one micro-batch under every loss_type; ours is one over the step."),
    remark("use_adaptive_entropy", lambda g: bool(g["use_adaptive_entropy"]),
        "entropy_coef {entropy_coef} is only where the coefficient starts: each step moves it by "
        "{entropy_coef_delta} within [{entropy_coef_min}, {entropy_coef_max}], up where the entropy is at most "
        "{entropy_target}, and it acts there only. That is not computed here."),
    remark("mask_truncated_completions", lambda g: bool(g["mask_truncated_completions"]),
        "Truncated answers leave the mask and its counts but still vote in the baseline; pass their rows masked."),
    remark("scale_rewards", lambda g: g.has("scale_rewards") and g["scale_rewards"] in (True, "group", "batch"),
        "1e-4 is added to the deviation; verl and SkyRL add 1e-6, OpenRLHF 1e-9."),
)  # fmt: skip

DIALECT = Dialect(
    SIGNATURES["trl"],
    version="1.16.0",
    versions=(Version("before clip_max", ("vllm_importance_sampling_cap",)),),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    entry_points=r"(?!.*\.py$).*|(.*/)?examples/scripts/\w+\.py",
    implied=(
        (r".*AsyncGRPO.*|(.*/)?async_grpo\w*\.py", {"max_staleness": 4}),
        (r".*RLOO.*|(.*/)?trl rloo|(.*/)?rloo\w*\.py", {"normalize_advantages": False, "beta": 0.05}),
    ),
    apart=("A NaN log-ratio counts as 0, so the token weighs 1; ours takes the token as never trained.",),
    candidates=candidates,
    contexts=({}, {"use_vllm": True}),
)
