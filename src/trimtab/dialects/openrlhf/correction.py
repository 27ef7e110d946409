"""OpenRLHF 0.11.2, `--algo.advantage.is_correction_*`: one gate, survivors weigh their own ratio, the mask stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Gate, Weight
from trimtab.dialects.keys import Dialect, Given, Key, Remark, choice, flag, numbers
from trimtab.dialects.openrlhf import loss
from trimtab.dialects.parts import OFF, ratio_gate, weighted
from trimtab.errors import ConfigError

P = "algo.advantage.is_correction"
TYPES = choice("tis", "icepop", "seq-mask-tis")
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
)

GATINGS: dict[str, dict[str, Any]] = {
    "binary_kl": {"metric": "binary_kl", "direction": "forward"},
    "tv": {"metric": "tv"},
}
REMOVED = {"tis": ("token", "clip"), "icepop": ("token", "mask"), "seq-mask-tis": ("seq", "mask")}
"""`vllm_is_correction_type` of 0.9.10 to 0.10.1, `is_correction_type` of 0.10.4 to 0.11.1 → level and mode."""


def settled(given: Given) -> tuple[str, str, str, float, float]:
    """Level, mode, gating and bounds, from today's flags, those of 0.10.4 to 0.11.1, or the ones before."""
    level, mode, gating = given["is_correction_level"], given["is_correction_mode"], given["is_correction_gating"]
    bounds = given["is_correction_threshold"]
    if given.set("enable_vllm_is_correction") and not given.said("is_correction_level"):
        level, mode = REMOVED["icepop" if given["use_icepop"] else given["vllm_is_correction_type"]]
        bounds = given["vllm_is_truncated_threshold"]
    elif given.set("is_correction_enable") and not given.said("is_correction_level"):
        level, mode = REMOVED[given["is_correction_type"]]
    if len(bounds) not in (1, 2):
        raise ConfigError(f"OpenRLHF is_correction_threshold needs one or two numbers, got {list(bounds)}.")
    lower, upper = (0.0, bounds[0]) if len(bounds) == 1 else bounds
    return level, mode, gating, lower, upper


def correction(given: Given) -> Correction:
    """A gate that zeroes, or a clamp; GSPO takes current/behavior as its ratio and ignores the rest."""
    level, mode, gating, lower, upper = settled(given)
    if level == "off":
        return OFF
    if given["policy_loss_type"] == "gspo":
        return OFF.but(policies="bypass")
    if mode == "clip":
        if (level, gating) != ("token", "ratio"):
            raise ConfigError("OpenRLHF is_correction_mode clip needs level token and gating ratio. Use mode mask.")
        return Correction(weight=weighted("token", lower, upper))
    if gating == "ratio":
        if level == "token":
            return Correction(weight=weighted("token", lower, upper, zero=True))
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
        bounds = [weight.lower or 0.0, weight.upper or 1e12]
        yield {f"{P}_level": "token", f"{P}_mode": mode, f"{P}_threshold": bounds}
        return
    gate = rule.gates[0]
    level = "token" if gate.level == "token" else "seq"
    gating = gate.metric
    bounds = [gate.lower or 0.0, gate.upper or 1e12] if gating == "ratio" else [gate.upper]
    yield {f"{P}_level": level, f"{P}_mode": "mask", f"{P}_gating": gating, f"{P}_threshold": bounds}


def _on(given: Given) -> bool:
    return settled(given)[0] != "off"


REMARKS = (
    Remark(
        "is_correction_level",
        "surprise",
        "With policy_loss_type gspo only on or off is read: the ratio becomes current/behavior, and mode, gating and threshold "
        "are ignored; use ppo to apply them.",
        lambda given: _on(given) and given["policy_loss_type"] == "gspo",
    ),
    Remark(
        "is_correction_level",
        "surprise",
        "At level seq the survivors keep their own token ratios as weights, unbounded; use level token with mode clip to bound "
        "them.",
        lambda given: settled(given)[:2] == ("seq", "mask"),
    ),
    Remark(
        "is_correction_gating",
        "surprise",
        "binary_kl is one direction only, KL(behavior ‖ proximal), where KPop takes the larger of both, and at token level float32 "
        "rounding below 0 rejects on-policy tokens; prefer level seq, or tv.",
        lambda given: _on(given) and settled(given)[2] == "binary_kl",
    ),
    Remark(
        "is_correction_threshold",
        "note",
        "The default band [0.5, 5] at level seq can hardly fire on a geometric mean; others use 0.99 to 1.01.",
        lambda given: settled(given)[0] == "seq" and settled(given)[2:] == ("ratio", 0.5, 5.0),
    ),
    Remark(
        "is_correction_level",
        "note",
        "A row without tokens counts as filtered in is_filter_ratio, and its mean is 0/0 there.",
        lambda given: settled(given)[0] == "seq",
    ),
    Remark(
        "vllm_is_correction_type",
        "note",
        "enable_vllm_is_correction and vllm_is_* were renamed in 0.11.2; now is_correction_level, _mode and _threshold.",
        lambda given: given.set("enable_vllm_is_correction"),
    ),
    Remark(
        "is_correction_type",
        "note",
        "is_correction_enable and is_correction_type are those of 0.10.4 to 0.11.1; now is_correction_level and _mode.",
        lambda given: given.set("is_correction_enable"),
    ),
    Remark(
        "is_correction_type",
        "defect",
        "is_correction_type acts only with is_correction_enable, which is not set, so nothing is corrected; add it.",
        lambda given: given.said("is_correction_type") and not given.set("is_correction_enable"),
    ),
    Remark(
        "use_icepop",
        "defect",
        "use_icepop acts only with enable_vllm_is_correction, which is not set, so nothing is corrected; add it.",
        lambda given: given.set("use_icepop") and not given.set("enable_vllm_is_correction"),
    ),
)

DIALECT = Dialect(
    name="openrlhf",
    title="OpenRLHF",
    version="0.11.2",
    keys=(*KEYS, *loss.KEYS),
    correction=correction,
    descent=loss.descent,
    estimation=loss.estimation,
    remarks=(*REMARKS, *loss.REMARKS),
    roots=("actor", "algo", "critic", "data", "reward", "rollout", "train", "ref", "ckpt", "logger", "vllm"),
    apart=("A NaN log-prob gives coefficient 0 and a NaN loss; ours takes the token as never trained.",),
    candidates=candidates,
)
