"""ms-swift 4.6.0: `rollout_importance_sampling_*` and the off-policy sequence mask.

`sequence` means the geometric mean. The weight multiplies the KL term too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Limit, Weight
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import alone, opsm, ratio_gate, weight_of
from trimtab.dialects.swift.keys import MODES, P

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
