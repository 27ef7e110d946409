"""Losses recorded from frameworks, and what each framework's settings mean here.

Each function turns one recorded case into the arguments of `policy_loss`. Nothing here knows an expected number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimtab import Correction, Gate, Limit, Weight, preset
from trimtab.config import losses as config
from trimtab.config.losses import KlPenalty, Reduction
from trimtab.core.correct import Corrected
from trimtab.core.reduce import Denominator

VECTORS = Path(__file__).parent.parent / "parity" / "vectors"
BYPASS = preset("bypass-off")
TOKEN_20, GATHERED_20 = Limit(bound=20.0), Limit(bound=20.0, at="gathered")


@dataclass
class Case:
    id: str
    settings: dict[str, Any]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    metrics: dict[str, float]
    runtime: dict[str, Any]


def cases(name: str) -> Iterator[Case]:
    arrays = np.load(VECTORS / f"{name}.npz")
    for line in (VECTORS / f"{name}.jsonl").read_text().splitlines():
        record = json.loads(line)
        inputs, outputs = (
            {key: torch.from_numpy(arrays[place]) for key, place in record[side].items()}
            for side in ("inputs", "outputs")
        )
        yield Case(
            record["id"],
            record["config"],
            inputs,
            outputs,
            record.get("metrics") or {},
            record.get("runtime") or {},
        )


def arguments(case: Case, **chosen: Any) -> dict[str, Any]:
    """The tensors of a case, and what its settings mean."""
    names = ("current", "proximal", "behavior", "advantages", "mask", "cu_seqlens")
    return {name: case.inputs[name] for name in names if name in case.inputs} | chosen


def given(weight: Tensor, mask: Tensor) -> Corrected:
    """A weight worked out elsewhere, as a correction."""
    return Corrected(weight=weight, kept=mask, trained=mask, log_r=torch.zeros_like(weight), metrics={})


# --- verl ------------------------------------------------------------------------------------------------------------


def _verl_clip(s: dict[str, Any]) -> config.Objective:
    return config.Clip(low=s["clip_ratio_low"], high=s["clip_ratio_high"], dual=s["clip_ratio_c"], log_limit=20.0)


def _verl_dppo(kind: type[config.Objective]) -> Callable[[dict[str, Any]], config.Objective]:
    return lambda s: kind(
        low=s["clip_ratio_low"], high=s["clip_ratio_high"], ratio_cap=s["clip_ratio_c"], log_limit=20.0
    )


VERL: dict[str, Callable[[dict[str, Any]], config.Objective]] = {
    "vanilla": _verl_clip,
    "gspo": lambda s: config.Gspo(
        low=s["clip_ratio_low"], high=s["clip_ratio_high"], level="sequence-token", log_upper=10.0
    ),
    "sapo": lambda s: config.Sapo(tau_positive=s["tau_pos"], tau_negative=s["tau_neg"], log_limit=20.0),
    "gpg": lambda s: config.Reinforce(),
    "kl_cov": lambda s: config.KlCov(
        fraction=s["policy_loss"]["kl_cov_ratio"], coefficient=s["policy_loss"]["ppo_kl_coef"]
    ),
    "clip_cov": lambda s: config.ClipCov(
        low=s["clip_ratio_low"],
        high=s["clip_ratio_high"],
        fraction=s["policy_loss"]["clip_cov_ratio"],
        lower=s["policy_loss"]["clip_cov_lb"],
        upper=s["policy_loss"]["clip_cov_ub"],
    ),
    "geo_mean": lambda s: config.Gmpo(low=s["clip_ratio_low"], high=s["clip_ratio_high"], weights="geometric"),
    "cispo": lambda s: config.Cispo(lower=1 - s["clip_ratio_low"], upper=1 + s["clip_ratio_high"], log_limit=20.0),
    "dppo_tv": _verl_dppo(config.DppoTv),
    "dppo_kl": _verl_dppo(config.DppoKl),
    "dro": lambda s: config.Dro(beta=s["policy_loss"]["dro_beta"]),
}


def _verl_bypass(s: dict[str, Any]) -> tuple[config.Objective, Correction]:
    """Two policies. ppo_clip never weighs; k1 is −log r against the logarithms of the bounds."""
    rule = s["policy_loss"]["rollout_correction"]
    gates, weight = [], None
    if rule.get("rollout_rs") == "seq_mean_k1":
        low, high = (math.log(float(bound)) for bound in rule["rollout_rs_threshold"].split("_"))
        gates.append(Gate(metric="k1", level="sequence", lower=low, upper=high, limit=TOKEN_20))
    elif rule.get("rollout_rs") == "token_k3":
        gates.append(Gate(metric="k3", upper=float(rule["rollout_rs_threshold"]), limit=TOKEN_20))
    if rule["loss_type"] == "reinforce" and rule["rollout_is"] == "sequence":
        weight = Weight(level="sequence", upper=rule["rollout_is_threshold"], limit=GATHERED_20)
    elif rule["loss_type"] == "reinforce":
        low, high = (float(bound) for bound in rule["rollout_is_threshold"].split("_"))
        weight = Weight(level="token", lower=low, upper=high, outside="zero", limit=TOKEN_20)
    correction = Correction(
        policies="bypass", gates=tuple(gates), weight=weight or Weight(level="one"), denominator="kept"
    )
    return (config.Reinforce() if rule["loss_type"] == "reinforce" else _verl_clip(s)), correction


def verl(case: Case) -> dict[str, Any]:
    s, mask = case.settings, case.inputs["mask"]
    name = s["policy_loss"]["loss_mode"]
    mode = {"sapo": "seq-mean-token-mean", "geo_mean": "seq-mean-token-mean"}.get(name, s.get("loss_agg_mode"))
    correction: Correction | Corrected | None = None
    if name == "bypass_mode":
        loss, correction = _verl_bypass(s)
    else:
        loss = VERL[name](s)
    if "weight" in case.inputs:
        correction = given(case.inputs["weight"], mask)
    constant = s.get("loss_scale_factor", mask.shape[1]) if mode == "seq-mean-token-sum-norm" else None
    info = case.runtime["global_batch_info"]
    step = None
    if info:
        step = Denominator(info["batch_num_tokens"], info["global_batch_size"], averaged_over=info["dp_size"])
    if name == "geo_mean":  # the mean over rows, whatever they hold
        step = Denominator(mask.sum(), len(mask))
    return arguments(
        case, loss=loss, correction=correction, reduction=Reduction(mode=mode, constant=constant), denominator=step
    )


# --- AReaL -----------------------------------------------------------------------------------------------------------


def _areal_rule(s: dict[str, Any] | None) -> Correction | None:
    """One criterion; ratios at sequence level weigh the geometric mean, everything else the token's own ratio."""
    if s is None:
        return None
    bounds = {"lower": s.get("lower"), "upper": s["upper"]}
    by_sequence = s["level"] == "sequence"
    weight = Weight(level="geometric" if by_sequence and s["metric"] == "ratio" else "token")
    if s["action"] == "clamp" and not by_sequence:
        return Correction(weight=Weight(level="token", **bounds))
    metric = {"ratio": {}, "kl_k2": {}, "kl_k3": {"direction": "reverse"}}[s["metric"]]
    where = {"level": "sequence", "agg": s.get("agg", "mean")} if by_sequence else {}
    action = {"mask": "reject", "clamp": "clamp"}[s["action"]]
    gate = Gate(metric=s["metric"].removeprefix("kl_"), action=action, **metric, **where, **bounds)
    return Correction(gates=(gate,), weight=weight)


def areal(case: Case) -> dict[str, Any]:
    s = case.settings
    by_sequence = s["importance_sampling_level"] == "sequence"
    if s.get("use_sapo_loss"):
        pooled = {"level": "sequence", "advantage": "sequence"} if by_sequence else {}
        loss = config.Sapo(tau_positive=s["sapo_tau_pos"], tau_negative=s["sapo_tau_neg"], **pooled)
        return arguments(case, loss=loss)
    high = s["eps_clip"] if s["eps_clip_higher"] is None else s["eps_clip_higher"]
    clip = {"low": s["eps_clip"], "high": high, "dual": s["c_clip"]}
    loss = config.Gspo(**clip, advantage="sequence") if by_sequence else config.Clip(**clip)
    return arguments(case, loss=loss, correction=_areal_rule(s["rejection_sampling"]))


# --- SkyRL -----------------------------------------------------------------------------------------------------------


def _skyrl_dppo(s: dict[str, Any]) -> config.Objective:
    kind = {"binary_tv": config.DppoTv, "binary_kl": config.DppoKl}[s["dppo"]["dppo_type"]]
    return kind(low=s["dppo"]["delta_low"], high=s["dppo"]["delta_high"], gradient="ratio", log_limit=20.0)


SKYRL: dict[str, Callable[[dict[str, Any]], config.Objective]] = {
    "regular": lambda s: config.Clip(low=s["eps_clip_low"], high=s["eps_clip_high"], log_limit=20.0),
    "dual_clip": lambda s: config.Clip(
        low=s["eps_clip_low"], high=s["eps_clip_high"], dual=s["clip_ratio_c"], log_limit=20.0
    ),
    "gspo": lambda s: config.Gspo(
        low=s["eps_clip_low"], high=s["eps_clip_high"], level="sequence-token", log_upper=10.0, scope="trained"
    ),
    "cispo": lambda s: config.Cispo(
        lower=1 - s.get("cispo", {}).get("cispo_eps_clip_low", 1.0),  # 0.4.0's
        upper=1 + s.get("cispo", {}).get("cispo_eps_clip_high", 4.0),
        log_limit=20.0,
    ),
    "sapo": lambda s: config.Sapo(tau_positive=s["sapo"]["tau_pos"], tau_negative=s["sapo"]["tau_neg"], log_limit=20.0),
    "importance_sampling": lambda s: config.ImportancePg(),
    "rollout_is": lambda s: config.Cispo(
        lower=1 - s["eps_clip_low"], upper=1 + s["eps_clip_high"], outside="zero", log_limit=20.0
    ),
    "dppo": _skyrl_dppo,
}


def _skyrl_rule(s: dict[str, Any], two: bool) -> Correction:
    """Stages in SkyRL's order, each on what the one before left; beside a loss anchored at the rollout they keep their pair."""
    gates: list[Gate] = []
    pair: dict[str, Any] = {"pair": "proximal/behavior"} if two else {}
    if "outlier_token_is_threshold_low" in s:
        low, high = s["outlier_token_is_threshold_low"], s["outlier_token_is_threshold_high"]
        gates.append(Gate(metric="ratio", level="sequence", agg="every", lower=low, upper=high, limit=TOKEN_20, **pair))
    if "token_mask_is_threshold_low" in s:
        low, high = s["token_mask_is_threshold_low"], s["token_mask_is_threshold_high"]
        gates.append(Gate(metric="ratio", lower=low, upper=high, scope="kept", limit=TOKEN_20, **pair))
    weight = {
        None: lambda: Weight(level="one"),
        "token": lambda: Weight(level="token", upper=s["token_tis_ratio_clip_high"], limit=TOKEN_20),
        "sequence": lambda: Weight(level="sequence", upper=s["sequence_tis_ratio_clip_high"], limit=GATHERED_20),
    }[s.get("tis_ratio_type")]()
    if s.get("sequence_mask_metric") == "geometric":
        bounds = {"lower": s["geo_mask_low"], "upper": s["geo_mask_high"]}
        gates.append(Gate(metric="ratio", level="sequence", scope="kept", limit=GATHERED_20, **bounds, **pair))
    return Correction(policies="bypass" if two else "decoupled", gates=tuple(gates), weight=weight)


def skyrl(case: Case) -> dict[str, Any]:
    s, mask = case.settings, case.inputs["mask"]
    name, rows = s["policy_loss_type"], len(mask)
    two = name in ("rollout_is", "dppo") or s.get("cispo", {}).get("cispo_anchor") == "rollout"
    correction: Correction | None = BYPASS if two else None
    if "off_policy_correction" in s:
        correction = _skyrl_rule(s["off_policy_correction"], two)
    mode, group = s["loss_reduction"], None
    if mode == "prompt_mean":
        group = case.inputs["group"]
    elif mode == "token_mean_legacy":  # the mean over micro-batches of their token means
        group = torch.arange(rows) // case.runtime["micro_train_batch_size_per_gpu"]
    ours = {
        "token_mean": "token-mean",
        "sequence_mean": "seq-mean-token-mean",
        "seq_mean_token_sum_norm": "seq-mean-token-sum-norm",
        "prompt_mean": "prompt-mean",
        "token_mean_legacy": "prompt-mean",
    }
    reduction = Reduction(mode=ours[mode], constant=s.get("max_seq_len"))
    step = None if group is not None else Denominator(mask.sum(), rows)  # rows without tokens count
    return arguments(
        case, loss=SKYRL[name](s), correction=correction, reduction=reduction, denominator=step, group=group
    )


# --- TRL -------------------------------------------------------------------------------------------------------------


def _trl_rule(s: dict[str, Any]) -> Correction | None:
    gates, weight = [], None
    if "off_policy_mask_threshold" in s:
        gates.append(preset("opsm", delta=s["off_policy_mask_threshold"]).gates[0])
    if "vllm_importance_sampling_mode" in s:
        level, outside = s["vllm_importance_sampling_mode"].split("_")
        weight = Weight(
            level=level,
            lower=s["vllm_importance_sampling_clip_min"],
            upper=s["vllm_importance_sampling_clip_max"],
            outside={"truncate": "clamp", "mask": "zero"}[outside],
        )
    return Correction(gates=tuple(gates), weight=weight) if gates or weight else None


def _trl_loss(s: dict[str, Any]) -> config.Objective:
    name, by_sequence = s["loss_type"], s["importance_sampling_level"] == "sequence"
    if name == "cispo":
        return config.Cispo(upper=s["epsilon_high"])  # epsilon_high bounds the ratio itself
    if name == "sapo":
        return config.Sapo(tau_positive=s["sapo_temperature_pos"], tau_negative=s["sapo_temperature_neg"])
    if name == "vespo":
        numbers = {
            f"{ours}_{sign}itive" if sign == "pos" else f"{ours}_{sign}ative": s[f"vespo_{ours}_{sign}"]
            for ours in ("k", "lambda")
            for sign in ("pos", "neg")
        }
        return config.Vespo(**numbers, weights="inside")
    bounds = {"low": s["epsilon"], "high": s.get("epsilon_high", s["epsilon"])}
    if not by_sequence:
        return config.Clip(**bounds, ratio_cap=s.get("delta"))
    return config.Luspo(**bounds) if name == "luspo" else config.Gspo(**bounds)


def trl(case: Case) -> dict[str, Any]:
    s, mask = case.settings, case.inputs["mask"]
    name, by_sequence = s["loss_type"], s["importance_sampling_level"] == "sequence"
    mode = {
        "grpo": "seq-mean-token-mean",
        "sapo": "seq-mean-token-mean",
        "dr_grpo": "seq-mean-token-sum-norm",
        "luspo": "seq-mean-token-mean" if by_sequence else "seq-mean-token-sum",
    }.get(name, "token-mean")
    kl = None
    if s["beta"]:
        importance = "full" if s["use_bias_correction_kl"] else "none"
        kl = KlPenalty(coefficient=s["beta"], estimator="k3", importance=importance)
    return arguments(
        case,
        loss=_trl_loss(s),
        advantages=case.inputs["advantages"][:, 0],
        correction=_trl_rule(s),
        reduction=Reduction(mode=mode, constant=s.get("max_completion_length")),
        kl=kl,
        reference=case.inputs.get("reference"),
        denominator=Denominator(case.runtime["num_items_in_batch"], len(mask)),
    )


# --- OpenRLHF --------------------------------------------------------------------------------------------------------


def openrlhf(case: Case) -> dict[str, Any]:
    s = {key.rpartition(".")[2]: value for key, value in case.settings.items()}
    low, high = s["eps_clip_low_high"]
    step = Denominator(case.runtime["batch_num_tokens"], case.runtime["global_batch_size"])
    corrected = s["is_correction_level"] != "off"
    if s["policy_loss_type"] == "gspo":  # forces the sequence mean; any correction means the rollout is the anchor
        return arguments(
            case,
            loss=config.Gspo(low=low, high=high),
            correction=BYPASS if corrected else None,
            reduction="seq-mean-token-mean",
            denominator=step,
        )
    rule = None
    if corrected:
        rule = _openrlhf_rule(s)
    loss = config.Clip(low=low, high=high, dual=s["dual_clip"], log_limit=20.0)
    return arguments(case, loss=loss, correction=rule, reduction=s["loss_agg_mode"], denominator=step)


def _openrlhf_rule(s: dict[str, Any]) -> Correction:
    bounds = s["is_correction_threshold"]
    low, high = bounds if len(bounds) == 2 else (None, bounds[0])
    if s["is_correction_mode"] == "clip":
        return Correction(weight=Weight(level="token", lower=low, upper=high))
    where = {"level": "sequence"} if s["is_correction_level"] == "seq" else {}
    gate = Gate(metric=s["is_correction_gating"], lower=low, upper=high, action="zero", **where)
    return Correction(gates=(gate,), weight=Weight(level="token"))


# --- prime-rl --------------------------------------------------------------------------------------------------------


def prime_rl(case: Case) -> dict[str, Any]:
    """Two policies; the squared log-ratio is twice k2 against behavior, on every trained token."""
    s = case.settings
    kl = KlPenalty(coefficient=2 * s["kl_tau"], estimator="k2") if s["kl_tau"] else None
    if s["type"] == "default":
        loss = config.DppoTv(low=s["dppo_mask_low"], high=s["dppo_mask_high"], gradient="ratio")
        correction = BYPASS
    else:
        loss = config.ImportancePg()
        gate = Gate(metric="tv", upper=s["ipo_threshold"], action="zero")
        correction = Correction(policies="bypass", gates=(gate,))
    return arguments(
        case,
        loss=loss,
        advantages=case.inputs["advantages"] * s["adv_tau"],
        correction=correction,
        kl=kl,
        reference=case.inputs["behavior"],
        denominator=Denominator(case.runtime["rl_scale"], 1.0),
    )
