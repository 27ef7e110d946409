"""NeMo-RL (7ea279ab): the importance weights of `loss_fn` and `grpo.seq_logprob_error_threshold`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Gate, Weight
from trimtab.dialects.keys import Dialect, Given, Key, Remark, choice, flag, number
from trimtab.dialects.nemo_rl import loss
from trimtab.dialects.parts import Gates, ratio_gate, weighted
from trimtab.errors import ConfigError

T = "truncated_importance_sampling"
KEYS = (
    Key("loss_fn.use_importance_sampling_correction", flag, False),
    Key(f"loss_fn.{T}_type", choice("tis", "icepop", "seq-mask-tis")),
    Key(f"loss_fn.{T}_ratio", number),
    Key(f"loss_fn.{T}_ratio_min", number),
    Key("loss_fn.sequence_level_importance_ratios", flag, False),
    Key("grpo.seq_logprob_error_threshold", number),
)


def correction(given: Given) -> Correction:
    """The sequence-error gate, then a weight or a gate on the geometric mean."""
    error = given["seq_logprob_error_threshold"]
    gates: Gates = ()
    if error is not None:
        gates = (Gate(metric="mult_prob_error", level="sequence", upper=error),)
    gate, weight = _weighed(given)
    return Correction(gates=gates + gate, weight=weight, denominator="kept" if error is not None else "trained")


def _weighed(given: Given) -> tuple[Gates, Weight]:
    kind, upper, lower = given[f"{T}_type"], given[f"{T}_ratio"], given[f"{T}_ratio_min"]
    unit = "sequence" if given["sequence_level_importance_ratios"] else "token"
    if upper is not None and kind is None:
        raise ConfigError(f"NeMo-RL {T}_ratio needs a {T}_type; without it the first loss call fails. Add tis.")
    if kind in ("icepop", "seq-mask-tis") and lower is None:
        raise ConfigError(f"NeMo-RL {T}_ratio_min needs a number for {kind}, got nothing.")
    if kind == "seq-mask-tis" and unit == "sequence":
        raise ConfigError("NeMo-RL seq-mask-tis and sequence_level_importance_ratios exclude each other. Drop one.")
    if not given["use_importance_sampling_correction"]:
        return (), Weight(level="one")
    if kind == "seq-mask-tis":
        return ratio_gate("geometric", lower, upper, action="zero"), Weight(level="token")
    return (), weighted(unit, lower, upper, zero=kind == "icepop")


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


REMARKS = (
    Remark(
        "use_importance_sampling_correction",
        "surprise",
        "The truncation is configured but use_importance_sampling_correction is off, so no weight is used; switch it on.",
        lambda given: given.set(f"{T}_type") and not given["use_importance_sampling_correction"],
    ),
    Remark(
        f"{T}_ratio",
        "surprise",
        "A ratio that overflows weighs 0 instead of the cap; bound the log-probs, or use seq_logprob_error_threshold.",
        lambda given: given["use_importance_sampling_correction"] and given[f"{T}_type"] == "tis",
    ),
    Remark(
        f"{T}_type",
        "surprise",
        "seq-mask-tis tests the geometric mean and lets survivors keep their own token ratios, unbounded, in spite of its name.",
        lambda given: given[f"{T}_type"] == "seq-mask-tis" and given["use_importance_sampling_correction"],
    ),
    Remark(
        "use_importance_sampling_correction",
        "note",
        "Without a truncation type the weights are unbounded; add {T_} tis with a ratio.".replace("{T_}", f"{T}_type"),
        lambda given: given["use_importance_sampling_correction"] and given[f"{T}_type"] is None,
    ),
    Remark(
        "seq_logprob_error_threshold",
        "surprise",
        "Rejected sequences leave the denominator, so each one raises the step of the others, while zeroed ratios stay in it; "
        "other frameworks count before rejection.",
        lambda given: given.set("seq_logprob_error_threshold"),
    ),
    Remark(
        "sequence_level_importance_ratios",
        "surprise",
        "The weight is the product over the sequence; AReaL, ms-swift and OpenRLHF mean the geometric mean by `sequence`.",
        lambda given: given["use_importance_sampling_correction"] and given["sequence_level_importance_ratios"],
    ),
)

DIALECT = Dialect(
    name="nemo-rl",
    title="NeMo-RL",
    version="7ea279ab",
    keys=(*KEYS, *loss.KEYS),
    correction=correction,
    descent=loss.descent,
    estimation=loss.estimation,
    remarks=(*REMARKS, *loss.REMARKS),
    roots=("grpo", "loss_fn", "policy", "data", "env", "logger", "cluster", "checkpointing"),
    apart=("A non-finite ratio weighs 0 and stays in the denominator; ours takes the token as never trained.",),
    logged_kl=lambda given: given["reference_policy_kl_type"],
    candidates=candidates,
)
