"""open-instruct (e6c3044a): `rho_*` of GRPOExperimentConfig. A bound of 0 is no bound; the mask never changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Gate, Limit
from trimtab.dialects.keys import Dialect, Given, Key, Remark, flag, number
from trimtab.dialects.parts import OFF, Gates, ratio_gate, weighted

SAFETY = Limit(bound=10.0, at="token")
KEYS = (
    Key("use_rho_correction", flag, True),
    Key("rho_clamp_lower_bound", number, 0.0),
    Key("rho_clamp_upper_bound", number, 2.0),
    Key("rho_mask_lower_bound", number, 0.0),
    Key("rho_mask_upper_bound", number, 0.0),
    Key("rho_mask_sequence_level", flag, False),
    Key("rho_mask_tv_divergence", flag, False),
    Key("use_vllm_logprobs", flag, False),
)


def correction(given: Given) -> Correction:
    """A clamped weight, and a gate that zeroes."""
    if given["use_vllm_logprobs"]:
        return OFF.but(policies="bypass")
    if not given["use_rho_correction"]:
        return OFF
    unit = "geometric" if given["rho_mask_sequence_level"] else "token"
    lower, upper = _bounds(given, "rho_clamp")
    return Correction(gates=_gates(given, unit), weight=weighted(unit, lower, upper, limit=SAFETY))


def _bounds(given: Given, begins: str) -> tuple[float | None, float | None]:
    return given[f"{begins}_lower_bound"] or None, given[f"{begins}_upper_bound"] or None


def _gates(given: Given, unit: str) -> Gates:
    lower, upper = _bounds(given, "rho_mask")
    if not given["rho_mask_tv_divergence"]:
        return ratio_gate(unit, lower, upper, action="zero", limit=SAFETY)
    if (lower, upper) == (None, None):
        return ()
    fields: dict[str, Any] = {"lower": lower, "upper": upper, "when": "moving_away", "action": "zero", "limit": SAFETY}
    return (Gate(metric="ratio_deviation", level="sequence", **fields),)


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """A weight and at most one gate."""
    weight = rule.weight
    if weight is None or weight.level == "one":
        yield {"use_vllm_logprobs": True} if rule.policies == "bypass" else {"use_rho_correction": False}
        return
    found: dict[str, Any] = {"use_rho_correction": True, "rho_mask_sequence_level": weight.level == "geometric"}
    zeroed = weight.outside == "zero"
    clamp = (0.0, 0.0) if zeroed else (weight.lower or 0.0, weight.upper or 0.0)
    mask = (weight.lower or 0.0, weight.upper or 0.0) if zeroed else (0.0, 0.0)
    for gate in rule.gates:
        mask = (gate.lower or 0.0, gate.upper or 0.0)
        found["rho_mask_tv_divergence"] = gate.metric == "ratio_deviation"
    for begins, (lower, upper) in (("rho_clamp", clamp), ("rho_mask", mask)):
        found |= {f"{begins}_lower_bound": lower, f"{begins}_upper_bound": upper}
    yield found


REMARKS = (
    Remark(
        "rho_mask_sequence_level",
        "defect",
        "Sequence statistics are taken per packed row and mix the responses in it; pack one response per row, or use token level. "
        "Ours judges each response.",
        lambda given: (
            given["use_rho_correction"]
            and (given["rho_mask_sequence_level"] or given["rho_mask_tv_divergence"])
            and not given.documented
        ),
    ),
    Remark(
        "rho_mask_sequence_level",
        "note",
        "`sequence` is the geometric mean; verl, TRL, SkyRL and slime mean the product by it.",
        lambda given: given["use_rho_correction"] and given["rho_mask_sequence_level"],
    ),
    Remark(
        "rho_mask_upper_bound",
        "note",
        "Masked tokens weigh 0 and stay in the denominator.",
        lambda given: (
            given["use_rho_correction"] and bool(given["rho_mask_upper_bound"] or given["rho_mask_lower_bound"])
        ),
    ),
    Remark(
        "rho_mask_lower_bound",
        "surprise",
        "With rho_mask_tv_divergence a lower bound drops tokens of sequences that are close to on-policy; leave it 0.",
        lambda given: (
            given["use_rho_correction"] and given["rho_mask_tv_divergence"] and given["rho_mask_lower_bound"] > 0
        ),
    ),
)

DIALECT = Dialect(
    name="open-instruct",
    title="open-instruct",
    version="e6c3044a",
    keys=KEYS,
    correction=correction,
    remarks=REMARKS,
    roots=("exp_name", "learning_rate", "model_name_or_path", "beta", "num_samples_per_prompt_rollout"),
    apart=("The log-ratio is held within ±10.",),
    candidates=candidates,
)
