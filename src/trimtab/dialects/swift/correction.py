"""ms-swift 4.6.0: `rollout_importance_sampling_*` and the off-policy sequence mask.

`sequence` means the geometric mean. The weight multiplies the KL term too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Limit, Weight
from trimtab.dialects.keys import Dialect, Given, Key, Remark, choice, flag, number
from trimtab.dialects.parts import alone, opsm, ratio_gate, weighted
from trimtab.dialects.swift import loss

P = "rollout_importance_sampling"
SAFETY = Limit(bound=20.0, at="token")
MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
KEYS = (
    Key(f"{P}_mode", choice(*MODES)),
    Key(f"{P}_threshold", number, 2.0),
    Key("off_policy_sequence_mask_delta", number),
    Key("log_rollout_offpolicy_metrics", flag, False),
)


def correction(given: Given) -> Correction:
    """One mode, upper bound only, and the sequence mask, which rejects."""
    delta, mode, upper = given["off_policy_sequence_mask_delta"], given[f"{P}_mode"], given[f"{P}_threshold"]
    gates = (opsm(delta, action="reject"),) if delta is not None else ()
    shared: dict[str, Any] = {
        "denominator": "kept" if gates and given["loss_type"] == "bnpo" else "trained",
        "applies_to": "policy+kl",
    }
    if mode is None:
        return alone(given, gates).but(denominator=shared["denominator"])
    if mode == "sequence_mask":
        gates += ratio_gate("geometric", None, upper, action="zero", limit=SAFETY)
        return Correction(gates=gates, weight=Weight(level="token", limit=SAFETY), **shared)
    unit, _, action = mode.partition("_")
    level = {"token": "token", "sequence": "geometric"}[unit]
    return Correction(gates=gates, weight=weighted(level, upper=upper, zero=action == "mask", limit=SAFETY), **shared)


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Each mode, with the threshold that the weight or the gate has."""
    found: dict[str, Any] = {}
    upper = rule.weight.upper if rule.weight is not None else None
    for gate in rule.gates:
        if gate.when == "negative_advantage":
            found["off_policy_sequence_mask_delta"] = gate.upper
        else:
            upper = gate.upper
    if upper is None:
        yield found or {f"{P}_mode": None}
        return
    for mode in MODES:
        yield {f"{P}_mode": mode, f"{P}_threshold": upper, **found}


REMARKS = (
    Remark(
        f"{P}_mode",
        "surprise",
        "The weight multiplies the KL term too, so beta acts less where the ratio is small; no other framework does this.",
        lambda given: given.set(f"{P}_mode"),
    ),
    Remark(
        f"{P}_mode",
        "surprise",
        "sequence_mask tests the geometric mean and lets survivors keep their own token ratios, unbounded; TRL's option of the "
        "same name tests and weighs by the product.",
        lambda given: given[f"{P}_mode"] == "sequence_mask",
    ),
    Remark(
        f"{P}_mode",
        "surprise",
        "sequence_truncate caps the geometric mean at {"
        + P
        + "_threshold}; TRL's option of the same name caps the product.",
        lambda given: given[f"{P}_mode"] == "sequence_truncate",
    ),
    Remark(
        f"{P}_threshold",
        "note",
        "There is no lower bound: a token whose ratio fell to 0 is kept.",
        lambda given: given.set(f"{P}_mode"),
    ),
    Remark(
        "off_policy_sequence_mask_delta",
        "surprise",
        "Masked sequences leave the mask, so their KL term and, with loss_type bnpo, their place in the denominator go too; TRL "
        "multiplies the policy term only.",
        lambda given: given.set("off_policy_sequence_mask_delta"),
    ),
    Remark(
        "log_rollout_offpolicy_metrics",
        "note",
        "chi2_seq is computed from the geometric mean, not the product, and ess counts masked tokens as 1/threshold.",
        lambda given: given.set("log_rollout_offpolicy_metrics"),
    ),
)

DIALECT = Dialect(
    name="ms-swift",
    title="ms-swift",
    version="4.6.0",
    keys=(*KEYS, *loss.KEYS),
    correction=correction,
    descent=loss.descent,
    estimation=loss.estimation,
    remarks=(*REMARKS, *loss.REMARKS),
    roots=("model", "rlhf_type", "learning_rate", "output_dir", "num_generations", "beta"),
    apart=("A NaN log-prob spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
)
