"""OpenRLHF 0.11.2: `--algo.advantage.is_correction_*`, the losses of `--actor.*` and `--algo.advantage.estimator`.

One gate, survivors weigh their own ratio, the mask stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Gae, Grpo, Normalise, Overlong, ReinforcePlusPlus, Rloo, Shaping
from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.losses import EntropyBonus, KlPenalty, Reduction
from trimtab.dialects.framework import Dialect, Given, Key, Version, defect, remark, surprise
from trimtab.dialects.parts import (
    ALL,
    OFF,
    OPEN,
    AdvantagePart,
    LossPart,
    Table,
    bonus,
    ratio_gate,
    reduction_of,
    refuse,
    row,
    weight_of,
)
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import choice, flag, number, numbers, text, unsaid_or, whole
from trimtab.errors import ConfigError

P = "algo.advantage.is_correction"
TYPES = choice("tis", "icepop", "seq-mask-tis")
V = "algo.advantage"
ESTIMATORS: Table = {
    "gae": lambda g: Gae(
        gamma=g["gamma"],
        lam=g["lambd"],
        gaps="step",
        normalise=BIASED.but(std=None if g["no_std_norm"] else "batch"),
        **ALL,
    ),
    "reinforce": lambda g: ReinforcePlusPlus(gamma=g["gamma"], gaps="step", normalise=_whitening(g), **ALL),
    "reinforce_baseline": lambda g: ReinforcePlusPlus(
        group_mean=True, gaps="step", normalise=_whitening(g), **_clip_bounds(g), **ALL
    ),
    "flash_reinforce": lambda g: ReinforcePlusPlus(gaps="step", normalise=None, **_clip_bounds(g), **ALL),
    "rloo": lambda g: Rloo(**_clip_bounds(g), **ALL),
    "group_norm": lambda g: Grpo(eps=1e-9, **_clip_bounds(g), **ALL),
    "dr_grpo": lambda g: Grpo(std=False, **_clip_bounds(g), **ALL),
}
"""gamma is read by gae and reinforce only; rewards are clipped after the baseline, before they are summed."""
KEYS = (
    Key(f"{P}_level", choice("off", "token", "seq"), "off"),
    Key(f"{P}_mode", choice("mask", "clip"), "mask"),
    Key(f"{P}_gating", choice("ratio", "binary_kl", "tv"), "ratio"),
    Key(f"{P}_threshold", numbers, (0.5, 5.0)),
    Key("algo.advantage.enable_vllm_is_correction", flag, False, legacy=True),
    Key("algo.advantage.vllm_is_truncated_threshold", numbers, (0.5, 5.0), legacy=True),
    Key("algo.advantage.vllm_is_correction_type", TYPES, "tis", legacy=True),
    Key("algo.advantage.use_icepop", flag, False, legacy=True),
    Key(f"{P}_enable", flag, False, legacy=True),
    Key(f"{P}_type", TYPES, "tis", legacy=True),
    Key("actor.policy_loss_type", choice("ppo", "gspo"), "ppo", part="loss"),
    Key("actor.eps_clip", number, 0.2, part="loss"),
    Key("actor.eps_clip_low_high", numbers, part="loss"),
    Key("actor.dual_clip", number, part="loss"),
    Key("actor.loss_agg_mode", choice("token-mean", "seq-mean-token-mean"), "token-mean", part="loss"),
    Key(f"{V}.estimator", text, "gae", part="advantage", also=("advantage_estimator",), options=unsaid_or(ESTIMATORS),
        joint=("no_std_norm",)),
    Key(f"{V}.gamma", number, 1.0, part="advantage"),
    Key(f"{V}.lambd", number, 1.0, part="advantage"),
    Key(f"{V}.no_std_norm", flag, False, part="advantage", also=("no_advantage_std_norm",)),
    Key("algo.kl.init_coef", number, 0.01, part="advantage", also=("init_kl_coef",), toggle=True, chooses=("loss",),
        joint=("use_loss", "kl.estimator", "unbiased_gradient")),
    Key("algo.kl.target", number, part="other", name="kl.target", also=("kl_target",)),
    Key("algo.kl.use_loss", flag, False, part="loss", also=("use_kl_loss",)),
    Key("algo.kl.unbiased_gradient", flag, False, part="other"),
    Key("algo.kl.estimator", choice("k1", "k2", "k3"), "k1", part="other", name="kl.estimator", also=("kl_estimator",)),
    Key("use_kl_estimator_k3", flag, False, part="other", legacy=True),
    Key("actor.entropy_coef", number, part="loss", also=("entropy_loss_coef",)),
    Key("reward.clip_range", numbers, (-10.0, 10.0), part="advantage", also=("reward_clip_range",)),
    Key("reward.overlong_buffer_len", whole, part="advantage", toggle=True),
    Key("reward.overlong_penalty_factor", number, 1.0, part="advantage"),
    Key("reward.stop_properly_penalty_coef", number, part="advantage"),
    Key("rollout.max_new_tokens", whole, part="other", also=("generate_max_len",)),
    Key("data.max_len", whole, 2048, part="other"),
    Key("rollout.n_samples_per_prompt", number, 1.0, part="other"),
)  # fmt: skip


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────

GATINGS: dict[str, dict[str, Any]] = {
    "binary_kl": {"metric": "binary_kl", "direction": "forward"},
    "tv": {"metric": "tv"},
}
REMOVED = {"tis": ("token", "clip"), "icepop": ("token", "mask"), "seq-mask-tis": ("seq", "mask")}
"""`vllm_is_correction_type` of 0.9.10 to 0.10.1, `is_correction_type` of 0.10.4 to 0.11.1 → level and mode."""


def correction_options(given: Given) -> tuple[str, str, str, float, float]:
    """Level, mode, gating and bounds, from today's flags, those of 0.10.4 to 0.11.1, or the ones before."""
    level, mode, gating = given["is_correction_level"], given["is_correction_mode"], given["is_correction_gating"]
    bounds = given["is_correction_threshold"]
    if given.is_on("enable_vllm_is_correction") and not given.has("is_correction_level"):
        level, mode = REMOVED["icepop" if given["use_icepop"] else given["vllm_is_correction_type"]]
        bounds = given["vllm_is_truncated_threshold"]
    elif given.is_on("is_correction_enable") and not given.has("is_correction_level"):
        level, mode = REMOVED[given["is_correction_type"]]
    if len(bounds) not in (1, 2):
        raise ConfigError(f"OpenRLHF is_correction_threshold needs one or two numbers, got {list(bounds)}.")
    lower, upper = (0.0, bounds[0]) if len(bounds) == 1 else bounds
    return level, mode, gating, lower, upper


def correction_of(given: Given) -> Correction:
    """A gate that zeroes, or a clamp; GSPO takes current/behavior as its ratio and ignores the rest."""
    level, mode, gating, lower, upper = correction_options(given)
    if level == "off":
        return OFF
    if given["policy_loss_type"] == "gspo":
        return OFF.but(policies="bypass")
    if mode == "clip":
        if (level, gating) != ("token", "ratio"):
            raise ConfigError("OpenRLHF is_correction_mode clip needs level token and gating ratio. Use mode mask.")
        return Correction(weight=weight_of("token", lower, upper))
    if gating == "ratio":
        if level == "token":
            return Correction(weight=weight_of("token", lower, upper, zero=True))
        return Correction(gates=ratio_gate("geometric", lower, upper, action="zero"), weight=Weight(level="token"))
    if lower > 0:
        raise ConfigError(
            f"OpenRLHF is_correction_threshold needs one number for {gating}, got a lower bound {lower:g}."
        )
    unit: dict[str, Any] = {"level": "token"} if level == "token" else {"level": "sequence", "agg": "mean"}
    gate = Gate(**GATINGS[gating], **unit, upper=upper, action="zero")
    return Correction(gates=(gate,), weight=Weight(level="token"))


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """One gate with token weights, or one bounded token weight."""
    weight = rule.weight
    if not rule.gates:
        if weight is None or weight.level == "one":
            gspo = rule.policies == "bypass"  # its ratio is current/behavior where a correction is on, and that is all
            yield {f"{P}_level": "token", "actor.policy_loss_type": "gspo"} if gspo else {f"{P}_level": "off"}
            return
        mode = "mask" if weight.outside == "zero" else "clip"
        bounds = [weight.lower or 0.0, weight.upper or OPEN]
        yield {f"{P}_level": "token", f"{P}_mode": mode, f"{P}_threshold": bounds}
        return
    gate = rule.gates[0]
    level = "token" if gate.level == "token" else "seq"
    gating = gate.metric
    bounds = [gate.lower or 0.0, gate.upper or OPEN] if gating == "ratio" else [gate.upper]
    yield {f"{P}_level": level, f"{P}_mode": "mask", f"{P}_gating": gating, f"{P}_threshold": bounds}


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def two_numbers(given: Given, label: str) -> tuple[float, float]:
    """A setting that holds two numbers."""
    if len(given[label]) != 2:
        raise ConfigError(f"OpenRLHF {given.path(label)} needs two numbers, got {list(given[label])}.")
    first, second = given[label]
    return first, second


def loss_of(given: Given) -> LossPart:
    """PPO with the configured mean; GSPO with a sequence mean, always."""
    both = given["eps_clip_low_high"] is not None
    low, high = two_numbers(given, "eps_clip_low_high") if both else (given["eps_clip"], given["eps_clip"])
    if given["policy_loss_type"] == "gspo":
        return LossPart(
            loss=ours.Gspo(low=low, high=high, dual=given["dual_clip"]),
            reduction=Reduction(mode="seq-mean-token-mean"),
            kl=_kl(given),
            entropy=_entropy(given),
        )
    modes = {name: name for name in ("token-mean", "seq-mean-token-mean")}
    loss = ours.Clip(low=low, high=high, dual=given["dual_clip"], log_limit=20.0)
    return LossPart(
        loss=loss,
        reduction=reduction_of(modes, "OpenRLHF loss_agg_mode", given["loss_agg_mode"]),
        kl=_kl(given),
        entropy=_entropy(given),
    )


def estimator_of_kl(given: Given) -> Any:
    """The estimator by its name today, or by the flag that stood for k3 before there were names."""
    return "k3" if given["use_kl_estimator_k3"] else given["kl.estimator"]


def _entropy(given: Given) -> EntropyBonus | None:
    return bonus(given["entropy_coef"], reduction=Reduction(mode="token-mean"))


def _kl(given: Given) -> KlPenalty | None:
    if not given["use_loss"] or not given["init_coef"]:
        return None
    straight: dict[str, Any] = {}
    if given["unbiased_gradient"]:
        straight = {"gradient": "unbiased", "importance": "gradient", "importance_cap": 10.0}
    return KlPenalty(
        coefficient=given["init_coef"],
        estimator=estimator_of_kl(given),
        output_limit=10.0,  # k3's input is held at −10 below, where its value is beyond this limit anyway
        reduction=Reduction(mode="token-mean"),
        **straight,
    )


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────

BIASED = Normalise(unbiased=False, eps=1e-8, eps_at="floor")


def _clip_bounds(given: Given) -> dict[str, float]:
    lower, upper = two_numbers(given, "clip_range")
    return {"lower": lower, "upper": upper}


def _shaping(given: Given, name: str) -> Shaping:
    """Length first; then the batch's mean for flash_reinforce; where no baseline follows, the clip."""
    refuse(
        given["stop_properly_penalty_coef"] is not None,
        "OpenRLHF reward.stop_properly_penalty_coef",
        "it scales or replaces the reward of truncated answers. Shape them yourself",
    )
    fields: dict[str, Any] = {}
    if given["overlong_buffer_len"]:
        longest = given["max_new_tokens"] or given["max_len"]
        factor = given["overlong_penalty_factor"]
        fields["overlong"] = Overlong(max_length=longest, buffer=given["overlong_buffer_len"], factor=factor)
    if name == "flash_reinforce":
        fields["normalise"] = Normalise(mean="batch", std=None)
    if name in ("gae", "reinforce"):
        fields |= _clip_bounds(given)
    return Shaping(**fields)


def _whitening(given: Given) -> Normalise:
    return BIASED.but(std=None) if given["no_std_norm"] else BIASED


def advantage_of(given: Given) -> AdvantagePart:
    """The estimator, what it subtracts first, and the KL penalty in the reward."""
    name, coefficient = given["estimator"], given["init_coef"]
    in_reward = coefficient and not given["use_loss"] and given.has("init_coef")
    alone = given.has("n_samples_per_prompt") and given["n_samples_per_prompt"] < 2
    if alone and name in ("rloo", "reinforce_baseline", "group_norm", "dr_grpo"):
        raise ConfigError(
            f"OpenRLHF estimator {name} needs n_samples_per_prompt above 1: a group of one has no others."
        )
    shaping = _shaping(given, name)
    return AdvantagePart(
        advantage=row(ESTIMATORS, "OpenRLHF algo.advantage.estimator", name, given),
        shaping=() if shaping == Shaping() else (shaping,),
        reward_kl=KlPenalty(coefficient=coefficient, estimator=estimator_of_kl(given), output_limit=10.0)
        if in_reward
        else None,
    )


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _on(given: Given) -> bool:
    return correction_options(given)[0] != "off"


REMARKS = (
    surprise("is_correction_level", lambda g: _on(g) and g["policy_loss_type"] == "gspo",
        "With policy_loss_type gspo only on or off is read: the ratio becomes current/behavior, and mode, gating and "
        "threshold are ignored; use ppo to apply them.",
        source="models/loss.py:192 PolicyLoss.forward"),
    surprise("is_correction_level",
        lambda g: correction_options(g)[:2] == ("seq", "mask") and g["policy_loss_type"] != "gspo",
        "At level seq the survivors keep their own token ratios as weights, unbounded; use level token with mode "
        "clip to bound them.",
        source="models/loss.py:239 PolicyLoss.forward"),
    surprise("is_correction_gating",
        lambda g: _on(g) and correction_options(g)[2] == "binary_kl" and g["policy_loss_type"] != "gspo",
        "binary_kl is one direction only, KL(behavior ‖ proximal), where KPop takes the larger of both, and at token "
        "level float32 rounding below 0 rejects tokens that are all but on policy; prefer level seq, or tv.",
        source="models/loss.py:229 PolicyLoss.forward"),
    remark("is_correction_threshold",
        lambda g: correction_options(g)[0] == "seq" and correction_options(g)[2:] == ("ratio", 0.5, 5.0),
        "The default band [0.5, 5] at level seq can hardly fire on a geometric mean; others use 0.99 to 1.01."),
    remark("is_correction_level", lambda g: correction_options(g)[0] == "seq",
        "A row without tokens counts as filtered in is_filter_ratio, and its mean is 0/0 there."),
    remark("vllm_is_correction_type", lambda g: g.is_on("enable_vllm_is_correction"),
        "enable_vllm_is_correction and vllm_is_* were renamed in 0.11.2; now is_correction_level, _mode and "
        "_threshold."),
    remark("use_kl_estimator_k3", lambda g: g.is_on("use_kl_estimator_k3"),
        "use_kl_estimator_k3 is the flag of older versions; now kl.estimator k3."),
    remark("is_correction_type", lambda g: g.is_on("is_correction_enable"),
        "is_correction_enable and is_correction_type are those of 0.10.4 to 0.11.1; now is_correction_level and "
        "_mode."),
    defect("is_correction_type", lambda g: g.has("is_correction_type") and not g.is_on("is_correction_enable"),
        "is_correction_type is a flag of 0.10.4 to 0.11.1, where it acts only with is_correction_enable: that is not "
        "set, so nothing is corrected there. 0.11.2 knows neither; write is_correction_level.",
        source="cli/train_ppo_ray.py:261"),
    defect("use_icepop", lambda g: g.is_on("use_icepop") and not g.is_on("enable_vllm_is_correction"),
        "use_icepop is a flag of versions before 0.9.10, where it acts only with enable_vllm_is_correction: that is "
        "not set, so nothing is corrected there. 0.11.2 knows neither; write is_correction_level.",
        source="cli/train_ppo_ray.py:261"),
    surprise("loss_agg_mode",
        lambda g: g["policy_loss_type"] == "gspo" and g.has("loss_agg_mode") and g["loss_agg_mode"] == "token-mean",
        "gspo forces a mean per sequence; loss_agg_mode {loss_agg_mode} is ignored.",
        source="models/loss.py:152 PolicyLoss.__init__"),
    remark("clip_range",
        lambda g: g.speaks_of("advantage") and g.has("clip_range") and g["estimator"] not in ("gae", "reinforce"),
        "Rewards are clipped to {clip_range} after the baseline is subtracted and divided by, not before."),
    surprise("gamma", lambda g: g["gamma"] != 1 and g["estimator"] not in ("gae", "reinforce"),
        "gamma {gamma} is set to 1 for {estimator}; only gae and reinforce read it.",
        source="trainer/ppo_utils/experience_maker.py:310 RemoteExperienceMaker.compute_advantages_and_returns"),
    remark("init_coef",
        lambda g: ((g.speaks_of("advantage") or (g.speaks_of("loss") and g.whole)) and not g.has("init_coef")
            and not g["use_loss"]),
        "By default a KL penalty of {init_coef} is paid in the reward; set --algo.kl.init_coef to have it read."),
    remark("lambd",
        lambda g: (g.speaks_of("advantage") and g["estimator"] == "gae" and not g.has("lambd")
            and g.written("init_kl_coef", "init_coef") == "init_kl_coef"),
        "By default lambd is {lambd}; before 0.7.0 it was 0.95, which --set lambd=0.95 reads."),
    remark("kl.target", lambda g: g.is_on("kl.target"),
        "With a target the coefficient follows the measured KL; init_coef is only where it starts."),
    remark("policy_loss_type", lambda g: g["policy_loss_type"] == "gspo",
        "GSPO here differentiates the mean ratio and forces a mean per sequence; verl and SkyRL keep each token's "
        "own gradient."),
    surprise("use_loss", lambda g: bool(g["use_loss"]) and g["loss_agg_mode"] != "token-mean",
        "The KL loss is a token mean whatever loss_agg_mode says.",
        source="trainer/ray/ppo_actor.py:331 ActorPPOTrainer.training_step"),
    remark("estimator", lambda g: g["estimator"] in ("gae", "reinforce", "reinforce_baseline") and g.has("estimator"),
        "Whitening divides by the biased variance, never below 1e-8."),
)  # fmt: skip

DIALECT = Dialect(
    SIGNATURES["openrlhf"],
    version="0.11.2",
    versions=(
        Version(
            "before 0.11.2",
            (
                "enable_vllm_is_correction",
                "vllm_is_truncated_threshold",
                "vllm_is_correction_type",
                "use_icepop",
                "is_correction_enable",
                "is_correction_type",
            ),
        ),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    apart=("A NaN log-prob gives coefficient 0 and a NaN loss; ours takes the token as never trained.",),
    candidates=candidates,
)
