"""TRL 1.16.0, GRPOConfig: importance sampling against vLLM, and the off-policy sequence mask.

`sequence` means the product over the tokens. The mask never changes: what is masked weighs 0 and stays in the denominator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Weight
from trimtab.dialects.keys import Dialect, Given, Key, Remark, choice, flag, number
from trimtab.dialects.parts import OFF, alone, opsm, weighted
from trimtab.dialects.trl import loss
from trimtab.errors import ConfigError

MODES: dict[str, tuple[str, bool]] = {
    "token_truncate": ("token", False),
    "token_mask": ("token", True),
    "sequence_truncate": ("sequence", False),
    "sequence_mask": ("sequence", True),
}
"""Mode → what the ratio is gathered over, and whether it is zeroed outside the bounds."""

P = "vllm_importance_sampling"
KEYS = (
    Key(f"{P}_correction", flag, True),
    Key(f"{P}_mode", choice(*MODES), "sequence_mask"),
    Key(f"{P}_clip_max", number, 3.0, null="open"),
    Key(f"{P}_clip_min", number),
    Key(f"{P}_cap", number, legacy=True),
    Key("use_vllm", flag, False),
    Key("off_policy_mask_threshold", number),
    Key("max_staleness", number),
)


def correction(given: Given) -> Correction | None:
    """A weight where vLLM samples, and a gate where the sequence mask is on."""
    delta, sampled = given["off_policy_mask_threshold"], not given.said("use_vllm") or given["use_vllm"]
    gates = (opsm(delta, pair="current/behavior" if sampled else "current/proximal"),) if delta is not None else ()
    if given.said("max_staleness"):
        return OFF.but(policies="bypass")
    if not _weighs(given):
        return alone(given, gates)
    unit, zero = MODES[given[f"{P}_mode"]]
    if given["loss_type"] == "vespo" and unit == "sequence":
        raise ConfigError(
            f"TRL loss_type vespo needs a token mode, got {P}_mode {given[f'{P}_mode']}. Use token_truncate."
        )
    lower, upper = _bounds(given)
    if not zero and lower is None and upper is None:
        raise ConfigError(f"TRL {P}_mode {given[f'{P}_mode']} needs a clip_min or a clip_max, got neither.")
    return Correction(gates=gates, weight=weighted(unit, lower, upper, zero=zero))


def _weighs(given: Given) -> bool:
    speaks = given["use_vllm"] or given.said(
        *(f"{P}_{name}" for name in ("correction", "mode", "clip_max", "clip_min", "cap"))
    )
    return bool(speaks and given[f"{P}_correction"] and not (given.said("use_vllm") and not given["use_vllm"]))


def _bounds(given: Given) -> tuple[float | None, float | None]:
    upper = given[f"{P}_cap"] if given.set(f"{P}_cap") and not given.said(f"{P}_clip_max") else given[f"{P}_clip_max"]
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
    if weight is None or weight.level == "one":
        yield found or {f"{P}_correction": False}
        return
    for mode, (unit, zero) in MODES.items():
        if unit == weight.level and zero == (weight.outside == "zero" or (weight.lower, weight.upper) == (None, None)):
            clips = {f"{P}_mode": mode, f"{P}_clip_min": weight.lower, f"{P}_clip_max": weight.upper}
            yield {f"{P}_correction": True, **clips, **found}


REMARKS = (
    Remark(
        f"{P}_mode",
        "surprise",
        "`sequence` bounds the product over the tokens by {"
        + P
        + "_clip_max}: a hundred tokens at ratio 1.02 exceed 3; AReaL, "
        "ms-swift, OpenRLHF and NeMo-RL test the geometric mean; use token_truncate for long answers.",
        lambda given: _weighs(given) and MODES[given[f"{P}_mode"]][0] == "sequence",
    ),
    Remark(
        f"{P}_mode",
        "note",
        "Left out, the mode is sequence_mask, though the documentation names token_truncate; write it down.",
        lambda given: _weighs(given) and not given.said(f"{P}_mode"),
    ),
    Remark(
        f"{P}_cap",
        "note",
        f"{P}_cap is deprecated; now {P}_clip_max.",
        lambda given: given.said(f"{P}_cap"),
    ),
    Remark(
        f"{P}_clip_max",
        "surprise",
        "Without clip_max the exponential of a summed log-ratio can overflow to infinity; set one.",
        lambda given: _weighs(given) and _bounds(given)[1] is None,
    ),
    Remark(
        f"{P}_mode",
        "note",
        "Masked tokens weigh 0 and stay in the denominator; AReaL, SkyRL and verl take them out of the mask.",
        lambda given: _weighs(given) and MODES[given[f"{P}_mode"]][1],
    ),
    Remark(
        "off_policy_mask_threshold",
        "note",
        "The sequence mask compares current with behavior and multiplies the policy term only; ms-swift also takes the tokens out "
        "of the mask, slime compares with proximal.",
        lambda given: given.set("off_policy_mask_threshold"),
    ),
    Remark(
        "max_staleness",
        "note",
        "AsyncGRPO has two policies: PPO's ratio divides by behavior, nothing bounds it below or above the clip, and samples older than "
        "max_staleness {max_staleness} are dropped.",
        lambda given: given.said("max_staleness"),
    ),
)

DIALECT = Dialect(
    name="trl",
    title="TRL",
    version="1.16.0",
    keys=(*KEYS, *loss.KEYS),
    correction=correction,
    descent=loss.descent,
    estimation=loss.estimation,
    remarks=(*REMARKS, *loss.REMARKS),
    roots=("model_name_or_path", "learning_rate", "output_dir", "per_device_train_batch_size", "num_generations"),
    apart=("A NaN log-ratio counts as 0, so the token weighs 1; ours takes the token as never trained.",),
    candidates=candidates,
)
