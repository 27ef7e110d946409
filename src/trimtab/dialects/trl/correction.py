"""TRL 1.16.0, GRPOConfig: importance sampling against vLLM, and the off-policy sequence mask.

`sequence` means the product over the tokens. The mask never changes: what is masked weighs 0 and stays in the denominator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Weight
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import OFF, alone, opsm, weight_of
from trimtab.dialects.trl.keys import MODES, P, is_async, is_rloo, refuse_absent
from trimtab.errors import ConfigError


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
