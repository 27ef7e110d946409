"""What ROLL (8eb27cc2) computes: `train_infer_correction`, the workers' losses, and rewards to advantages.

A weight and a list of filters, all judged on the base mask. `loss_agg_mode` is read as far as it looks at the mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from trimtab.config import losses as ours
from trimtab.config.advantages import WHITEN, Estimator, Gae, Normalise, ReinforcePlusPlus, Shaping
from trimtab.config.base import excerpt
from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import (
    ALL,
    OPEN,
    UNITS,
    AdvantagePart,
    Gates,
    LossPart,
    Table,
    bonus,
    ratio_gate,
    reduction_of,
    refuse,
    row,
    weight_of,
)
from trimtab.dialects.values import choice, flag, number
from trimtab.errors import ConfigError, UnknownNameError, nearest

SECTION = "train_infer_correction"
LEVELS = ("token", "segment", "geometric", "sequence")
NORM = "reward_normalization"
"""The section by which the agentic pipelines normalise rewards; RLVR's keys are at the top."""


def has_environments(given: Given) -> bool:
    """Whether the file is for the agentic pipelines, which have environments where RLVR has rewards."""
    sections = ("train_env_manager", "val_env_manager", "custom_envs", NORM)
    return any(map(given.has_section, sections)) or given["ratio_type"] == "segment"


def uses_variant(given: Given) -> bool:
    """Whether the worker looks at pg_variant: only the policy-gradient workers do, and neither pipeline takes one by default.

    What names no worker and is no whole file is read as meant.
    """
    worker = given["worker_cls"]
    if worker:
        return "_pg_worker" in worker or not worker.startswith("roll.")
    return given.builds_on_others or not (given.has_section("exp_name") or given.has_section("pretrain"))


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────

FILTER: dict[str, tuple[Any, Any]] = {
    "enabled": (flag, False),
    "agg_type": (choice(*LEVELS), "token"),
    "ratio_enabled": (flag, True),
    "ratio_low": (number, 0.8),
    "ratio_high": (number, 1.2),
    "diff_enabled": (flag, False),
    "diff_low": (number, -0.2),
    "diff_high": (number, 0.2),
}
"""Field of one filter → kind and default."""


def correction_of(given: Given) -> Correction:
    """The weight, and every enabled filter as one or two gates."""
    if given["enabled"] and not given["detach"]:
        raise ConfigError(
            f"ROLL {SECTION}.is_weight.detach false is not supported: a weight carries no gradient. Set it true."
        )
    gates: Gates = sum((_gates(each) for each in filters(given)), ())
    upper = given["upper_bound"]
    return Correction(
        gates=gates,
        weight=weight_of(given["weight_type"], upper=upper) if given["enabled"] else Weight(level="one"),
        denominator="kept" if gates and recomputes(given) else "trained",
    )


def recomputes(given: Given) -> bool:
    """Whether proximal log-probs are recomputed, as they also are where a KL coefficient is set."""
    paid = given.has("init_kl_coef") and given["init_kl_coef"] > 0
    return bool(not given["force_disable_old_logprobs_recompute"] and (given["enable_old_logprobs_recompute"] or paid))


def filters(given: Given) -> list[dict[str, Any]]:
    """The enabled filters with their defaults."""
    listed = given["filters"] or []
    if not isinstance(listed, list | tuple):
        raise ConfigError(f"ROLL {SECTION}.filters needs a list, got {excerpt(listed)}. Each item is one filter.")
    found: list[dict[str, Any]] = []
    for place, each in enumerate(cast("list[Any]", listed)):
        path = f"ROLL {SECTION}.filters.{place}"
        if not isinstance(each, dict):
            raise ConfigError(f"{path} needs a mapping, got {excerpt(each)}.")
        fields = cast("dict[str, Any]", each)
        for name in fields:
            if name not in FILTER:
                raise UnknownNameError(f"{path} has no key {name!r}. {nearest(name, FILTER)}")
        filled = {
            name: kind(f"{path}.{name}", fields[name]) if fields.get(name) is not None else default
            for name, (kind, default) in FILTER.items()
        }
        if filled["enabled"]:
            found.append(filled)
    return found


def _gates(each: dict[str, Any]) -> Gates:
    unit = each["agg_type"]
    found: Gates = ratio_gate(unit, each["ratio_low"], each["ratio_high"]) if each["ratio_enabled"] else ()
    if each["diff_enabled"]:
        found += (Gate(metric="prob_diff", **UNITS[unit], lower=each["diff_low"], upper=each["diff_high"]),)
    return found


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """One filter per gate."""
    units = {tuple(sorted(shape.items())): unit for unit, shape in UNITS.items() if unit in LEVELS}
    found: dict[str, Any] = {}
    listed: list[dict[str, Any]] = []
    for gate in rule.gates:
        shape = {"level": gate.level} | ({"agg": gate.agg} if gate.agg else {})
        unit = units.get(tuple(sorted(shape.items())))
        if unit is None or gate.metric not in ("ratio", "prob_diff"):
            return
        kind = "ratio" if gate.metric == "ratio" else "diff"
        open_sides = (1 / OPEN, OPEN) if kind == "ratio" else (-OPEN, OPEN)
        low = gate.lower if gate.lower is not None else open_sides[0]
        high = gate.upper if gate.upper is not None else open_sides[1]
        listed.append(
            {
                "enabled": True,
                "agg_type": unit,
                "ratio_enabled": kind == "ratio",
                "diff_enabled": kind == "diff",
                f"{kind}_low": low,
                f"{kind}_high": high,
            }
        )
    if listed:
        found[f"{SECTION}.filters"] = listed
    weight = rule.weight
    if weight is not None and weight.level != "one":
        level = {"enabled": True, "weight_type": weight.level, "upper_bound": weight.upper}
        found |= {f"{SECTION}.is_weight.{name}": value for name, value in level.items()}
    if rule.denominator == "kept":
        found["enable_old_logprobs_recompute"] = True
    yield found or {f"{SECTION}.is_weight.enabled": False}


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────

REDUCTIONS = {name: name for name in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")}


def _ppo(given: Given) -> Objective:
    ranged = given["use_pg_clip_range"]
    low, high = (given["pg_clip_low"], given["pg_clip_high"]) if ranged else (given["pg_clip"], given["pg_clip"])
    clip: dict[str, Any] = {"low": low, "high": high}
    if given["dual_clip_loss"]:
        clip["dual"] = 1 + 2 * given["pg_clip"]
    if given["ratio_type"] == "segment":
        return ours.Gspo(**clip, level="segment")
    return ours.Gspo(**clip) if given["importance_sampling"] == "seq" else ours.Clip(**clip)


def _topr(given: Given) -> Objective:
    """By the sign of the score. Ours goes by that of the advantage: the same where the advantage is the score times something positive."""
    moved = ("norm_mean_type", "whiten_advantages", "add_token_level_kl", "whiten_rewards", "add_len_reward")
    if given["adv_estimator"] != "reinforce" or given.is_on(*moved) or given["gamma"] <= 0:
        raise ConfigError(
            "ROLL pg_variant topr is not supported: it looks at the sign of the score, where ours looks at that of the advantage. Both "
            "agree with adv_estimator reinforce and nothing subtracted from rewards or advantages."
        )
    return ours.Topr(level="token", positive=given["topr_positive_weight"], negative=given["topr_negative_weight"])


LOSSES: Table = {
    "ppo": _ppo,
    "vanilla": lambda _: ours.Reinforce(),
    "tis": lambda _: ours.Cispo(lower=0.0, upper=1.0),
    "cispo": lambda _: ours.Cispo(lower=0.9, upper=1.1),
    "kimi15": lambda _: ours.Dro(beta=0.1),
    "topr": _topr,
}


def loss_of(given: Given) -> LossPart:
    """PPO of the default worker, or a variant of the policy-gradient worker; rl_loss_coef scales policy and KL terms."""
    for label, why in (
        ("postive_loss_coef", "it adds a second policy loss on rows with a positive score"),
        ("use_topr_neg_loss_coef", "it adds a second policy loss on rows without a positive score"),
        ("difficulty_loss_weight", "rows weigh by the difficulty of their prompt"),
        ("length_loss_weight", "rows weigh by their length relative to the batch"),
    ):
        refuse(given[label], f"ROLL {label}", f"{why}. Leave it out")
    name, scale = (given["pg_variant"] if uses_variant(given) else None) or "ppo", given["rl_loss_coef"]
    refuse(name == "kimi15" and scale != 1, "ROLL rl_loss_coef with kimi15", "its pull is no multiple of the advantage")
    if not given.speaks_of("loss"):
        return LossPart()
    return LossPart(
        loss=row(LOSSES, "ROLL pg_variant", name, given),
        reduction=_reduction(given),
        kl=_kl(given, scale) if given["use_kl_loss"] else None,
        entropy=bonus(given["entropy_loss_coef"] if given["entropy_loss_coef"] > 0 else None),
        advantage_scale=scale,
    )


def _reduction(given: Given) -> Reduction | None:
    """None where nothing of ours says it: filters under token-mean, and a width that is not known."""
    mode = given["loss_agg_mode"]
    if mode == "seq-mean-token-sum-norm":
        width = given.width or (given["sequence_length"] - 1 if given["sequence_length"] else None)
        return None if width is None else Reduction(mode="token-sum", constant=float(width))
    if mode == "token-mean" and filters(given):
        return None
    return reduction_of(REDUCTIONS, "ROLL loss_agg_mode", mode)


def _kl(given: Given, scale: float) -> KlPenalty:
    """k3 with the output held, paid on what the filters left."""
    return KlPenalty(coefficient=given["kl_loss_coef"] * scale, estimator="k3", output_limit=10.0, mask="kept")


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────

KL = {"kl": "k1", "abs": "abs", "mse": "k2", "k3": "k3"}


def advantage_of(given: Given) -> AdvantagePart:
    """Rewards normalised, then clipped, then summed to the end; GAE with a critic."""
    for label, why in (
        ("whiten_rewards", "rewards of tokens are whitened before they are summed"),
        ("use_reward_scaling", "rewards are divided by a running deviation"),
        ("add_len_reward", "a reward for length is added"),
    ):
        refuse(given[label], f"ROLL {label}", f"{why}. Leave it out")
    name, whiten = given["adv_estimator"], WHITEN if given["whiten_advantages"] else None
    if name == "gae":
        bounds, norm = _clip(given), _norm(given)
        refuse(bounds and norm, "ROLL reward_clip with norm_mean_type or norm_std_type under gae", "it clips after")
        gae = Gae(gamma=given["gamma"], lam=given["lambd"], gaps="step", normalise=whiten, **ALL)
        return _advantage_part(given, gae, Shaping(normalise=norm, **bounds))
    refuse(
        name in ("gigpo", "step_reinforce", "agentic_reinforce"),
        f"ROLL adv_estimator {name}",
        "it groups the steps of an environment. Use grpo, reinforce or gae",
    )
    if name not in ("grpo", "reinforce"):
        raise ConfigError(f"ROLL adv_estimator {name!r} is not supported. Use grpo, reinforce or gae.")
    found = ReinforcePlusPlus(gamma=given["gamma"], gaps="step", normalise=whiten, **_clip(given), **ALL)
    return _advantage_part(given, found, Shaping(normalise=_norm(given)))


def _advantage_part(given: Given, found: Estimator, shaping: Shaping) -> AdvantagePart:
    return AdvantagePart(
        advantage=found,
        shaping=() if shaping == Shaping() else (shaping,),
        reward_kl=_reward_kl(given),
        advantage_clip=given["advantage_clip"] or None,
    )


def _clip(given: Given) -> dict[str, Any]:
    most = given["reward_clip"]
    refuse(
        most and given["add_token_level_kl"],
        "ROLL reward_clip with add_token_level_kl",
        "each token's reward is clipped once more with its penalty. Leave one out",
    )
    return {"lower": -most, "upper": most} if most else {}


def _norm(given: Given) -> Normalise | None:
    mean, std = norm_types(given)
    refuse("running" in (mean, std), "ROLL norm_mean_type or norm_std_type running", "it depends on earlier batches")
    refuse(
        std == "group" and mean != "group",
        f"ROLL norm_mean_type {mean} with norm_std_type group",
        "its rewards come out as a table of groups times rows in RLVR, and as 0 in the agentic pipelines where a group agrees. Set "
        "norm_mean_type to group",
    )
    if mean is None and std is None:
        return None
    return Normalise(mean=mean, std=std, eps=1e-6, eps_at="std")


def norm_types(given: Given) -> tuple[Any, Any]:
    """Over what the mean and the deviation of the rewards are taken; None for neither."""
    if has_environments(given):
        return _agentic_types(given)
    if given["adv_estimator"] == "grpo":
        return "group", "group"
    return given["norm_mean_type"], given["norm_std_type"]


def _agentic_types(given: Given) -> tuple[Any, Any]:
    """What the section says; `method`, the older spelling, where the types are left out. The estimator plays no part."""
    grouping, method = given[f"{NORM}.grouping"], given[f"{NORM}.method"]
    unit = "batch" if grouping == "batch" else "group"
    mean = given[f"{NORM}.norm_mean_type"] or (unit if method in ("mean", "mean_std", "asym_clip") else None)
    std = given[f"{NORM}.norm_std_type"] or (unit if method in ("mean_std", "asym_clip") else None)
    if grouping == "batch":
        return mean and "batch", std and "batch"
    refuse(
        "group" in (mean, std) and grouping != "traj_group_id",
        f"ROLL {NORM}.grouping {grouping}",
        "it compares the answers of more than one prompt, or of the steps within one. Use traj_group_id or batch",
    )
    return mean, std


def _reward_kl(given: Given) -> KlPenalty | None:
    if not given["add_token_level_kl"] or not given["init_kl_coef"]:
        return None
    named = given["kl_penalty"]
    refuse(named == "full", "ROLL kl_penalty full", "it needs the whole distribution of each token")
    estimator: Any = KL[named]
    return KlPenalty(
        coefficient=given["init_kl_coef"], estimator=estimator, output_limit=10.0 if named == "k3" else None
    )
