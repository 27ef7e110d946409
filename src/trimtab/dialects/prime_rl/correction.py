"""prime-rl (559b4477): `trainer.loss`, two policies only: current against behavior, gated by how far a probability moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Gate, Limit, Weight
from trimtab.dialects.keys import Dialect, Given, Key, Remark, choice, number
from trimtab.dialects.parts import Gates, ratio_gate, weighted
from trimtab.dialects.prime_rl import loss

SECTION = "trainer.loss"
KEYS = (
    Key(f"{SECTION}.type", choice("default", "ipo", "custom"), "default"),
    Key(f"{SECTION}.dppo_mask_low", number, 0.2),
    Key(f"{SECTION}.dppo_mask_high", number, 0.2),
    Key(f"{SECTION}.ipo_threshold", number, 0.1),
    Key(f"{SECTION}.adv_tau", number, 1.0, part="loss"),
    Key(f"{SECTION}.kl_tau", number, 1e-3, part="loss"),
    Key(f"{SECTION}.ratio_type", choice("token", "sequence"), "token", legacy=True),
    *(
        Key(f"{SECTION}.{name}", number, default, legacy=True)
        for name, default in (
            ("token_mask_low", 0.125),
            ("token_mask_high", 8.0),
            ("geo_mask_low", 0.1),
            ("geo_mask_high", 10.0),
            ("sequence_mask_low", 0.0),
            ("sequence_mask_high", 100.0),
            ("sequence_clip_high", 10.0),
        )
    ),
)


def correction(given: Given) -> Correction | None:
    """Which tokens' policy term survives; its ratio carries the gradient, so the weight is 1."""
    if given["type"] == "custom":
        return None
    if given.said(*loss.REMOVED):
        return _removed(given)
    if given["type"] == "ipo":
        gates = (Gate(metric="tv", upper=given["ipo_threshold"]),)
    else:
        rising = Gate(metric="prob_diff", upper=given["dppo_mask_high"], when="positive_advantage")
        falling = Gate(metric="prob_diff", lower=-given["dppo_mask_low"], when="nonpositive_advantage")
        gates = (rising, falling)
    return Correction(policies="bypass", gates=gates, weight=Weight(level="one"))


def _removed(given: Given) -> Correction:
    """Before 02bdca2e4: bounds on ratios, and a detached ratio in front of log current."""
    masks = (("token", "token_mask"), ("geometric", "geo_mask"), ("every", "sequence_mask"))
    gates: Gates = sum((ratio_gate(unit, given[f"{name}_low"], given[f"{name}_high"]) for unit, name in masks), ())
    if given["ratio_type"] == "sequence":
        weight = weighted("sequence", upper=given["sequence_clip_high"], limit=Limit(bound=10.0, at="gathered"))
    else:
        weight = Weight(level="token")
    return Correction(policies="bypass", gates=gates, weight=weight)


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Both kinds."""
    if len(rule.gates) == 1:
        yield {f"{SECTION}.type": "ipo", f"{SECTION}.ipo_threshold": rule.gates[0].upper}
    if len(rule.gates) == 2:
        bounds = {"dppo_mask_high": rule.gates[0].upper, "dppo_mask_low": -(rule.gates[1].lower or 0.0)}
        yield {f"{SECTION}.type": "default", **{f"{SECTION}.{name}": value for name, value in bounds.items()}}


def _is_removed(given: Given) -> bool:
    return given.said(*loss.REMOVED)


REMARKS = (
    Remark(
        "type",
        "note",
        "Tokens with advantage 0 leave the loss and its denominator; pass them masked to get the same number.",
        lambda given: given["type"] != "custom",
    ),
    Remark(
        "kl_tau",
        "note",
        "kl_tau·ℓ² has no ½ and runs over every trained token, dropped ones included; it is our k2 to behavior with twice the "
        "coefficient.",
        lambda given: given.set("kl_tau") and given["type"] != "custom" and not _is_removed(given),
    ),
    Remark(
        "type",
        "surprise",
        "The ratio of kept tokens is uncapped; the older ratio bounds (token_mask, geo_mask, sequence_clip) are gone.",
        lambda given: given["type"] != "custom" and not _is_removed(given),
    ),
    Remark(
        "type",
        "note",
        "A custom loss is a function of your own and cannot be read.",
        lambda given: given["type"] == "custom",
    ),
    Remark(
        "ratio_type",
        "note",
        "The ratio bounds were removed in 02bdca2e4 and are read as they were; today's loss drops tokens by how far their probability "
        "moved (dppo_mask_low, dppo_mask_high) and differentiates the ratio.",
        _is_removed,
    ),
    Remark(
        "ratio_type",
        "surprise",
        "With ratio_type sequence each sequence was divided by its own length before the sum; the reduction is not read: pass your own.",
        lambda given: _is_removed(given) and given["ratio_type"] == "sequence",
    ),
)

DIALECT = Dialect(
    name="prime-rl",
    title="prime-rl",
    version="559b4477",
    keys=(*KEYS, *loss.KEYS),
    correction=correction,
    descent=loss.descent,
    estimation=loss.estimation,
    is_loss=True,
    remarks=(*REMARKS, *loss.REMARKS),
    closed=(SECTION,),
    roots=("trainer", "orchestrator", "inference", "model", "log", "max_steps"),
    apart=("A dropped token whose ratio overflows gives 0 × inf = NaN; ours gives 0.",),
    candidates=candidates,
)
