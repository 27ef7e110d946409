"""NeMo-RL (7ea279ab): the importance weights of `loss_fn` and `grpo.seq_logprob_error_threshold`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Gate, Weight
from trimtab.dialects.framework import Given
from trimtab.dialects.nemo_rl.keys import T
from trimtab.dialects.parts import Gates, ratio_gate, weight_of
from trimtab.errors import ConfigError


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
            f"NeMo-RL {T}_ratio needs a {T}_type, which may stand in the file that this one builds on and that is not beside it. Put "
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
            kind, bounds = "seq-mask-tis", (gate.lower or 1e-12, gate.upper or 1e12)
    if weight is None or weight.level == "one":
        yield {"loss_fn.use_importance_sampling_correction": False, **found}
        return
    if kind is None and bounds != (None, None):
        kind = "icepop" if weight.outside == "zero" else "tis"
        bounds = (bounds[0] if kind == "tis" else bounds[0] or 1e-12, bounds[1] or 1e12)
    if weight.level == "sequence":
        found |= {"loss_fn.sequence_level_importance_ratios": True, "loss_fn.token_level_loss": False}
    clips = {f"loss_fn.{T}_type": kind, f"loss_fn.{T}_ratio": bounds[1], f"loss_fn.{T}_ratio_min": bounds[0]}
    yield {"loss_fn.use_importance_sampling_correction": True, **clips, **found}
