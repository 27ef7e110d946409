"""SkyRL 0.3.0: `trainer.algorithm.off_policy_correction`.

Stages run in a fixed order, each on the mask the one before left: veto, token mask, weight, sequence mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Weight
from trimtab.dialects.keys import Dialect, Given, Key, Remark, choice, flag, number
from trimtab.dialects.parts import Gates, limit, ratio_gate, weighted
from trimtab.dialects.skyrl import loss
from trimtab.errors import ConfigError

SECTION = "trainer.algorithm.off_policy_correction"
SAFETY = 20.0

KEYS = (
    Key(f"{SECTION}.tis_ratio_type", choice("token", "sequence")),
    Key(f"{SECTION}.token_tis_ratio_clip_high", number, 2.0),
    Key(f"{SECTION}.sequence_tis_ratio_clip_high", number, 5.0),
    Key(f"{SECTION}.sequence_mask_metric", choice("product", "geometric")),
    Key(f"{SECTION}.geo_mask_high", number, 1.01),
    Key(f"{SECTION}.geo_mask_low", number, 0.99),
    Key(f"{SECTION}.product_mask_high", number, 2.0),
    Key(f"{SECTION}.product_mask_low", number, 0.5),
    Key(f"{SECTION}.outlier_token_is_threshold_low", number),
    Key(f"{SECTION}.outlier_token_is_threshold_high", number),
    Key(f"{SECTION}.token_mask_is_threshold_low", number),
    Key(f"{SECTION}.token_mask_is_threshold_high", number),
    Key("trainer.algorithm.use_tis", flag, False, legacy=True),
    Key("trainer.algorithm.tis_imp_ratio_cap", number, -1.0, legacy=True),
)

CAPS = {"token": "token_tis_ratio_clip_high", "sequence": "sequence_tis_ratio_clip_high"}
MASKS = {"geometric": ("geometric", "geo_mask"), "product": ("sequence", "product_mask")}
"""`sequence_mask_metric` → what is gathered, and how its bounds begin."""
STAGES = {"sequence every": "outlier_token_is_threshold", "token None": "token_mask_is_threshold"}
"""Level and agg of a gate → the stage that can say it."""


def correction(given: Given) -> Correction | None:
    """Veto, token mask, weight, sequence mask. None where the cap turns every weight negative: nothing can say that."""
    level, cap = _tis(given)
    if level is not None and cap <= 0:
        return None
    two = loss.two_policies(given)
    if two and level is not None:
        raise ConfigError(
            f"SkyRL policy_loss_type {given['policy_loss_type']} with tis_ratio_type cannot be said: the ratio of the loss divides by "
            "behavior, the weight compares with proximal. Keep the masks, drop tis_ratio_type."
        )
    gates = _masks(given, "proximal/behavior" if two else None)
    if level is None:
        return Correction(policies="bypass" if two else "decoupled", gates=gates, weight=Weight(level="one"))
    return Correction(gates=gates, weight=weighted(level, upper=cap, scope="kept", limit=limit(SAFETY, level)))


def _masks(given: Given, pair: str | None) -> Gates:
    """The three stages that reject, in order; the pair is named where it is not that of the loss."""
    gates = _pair(given, "every", "outlier_token_is_threshold", pair)
    if _both(given):
        gates += _pair(given, "token", "token_mask_is_threshold", pair)
    if given["sequence_mask_metric"] is not None:
        gates += _pair(given, *MASKS[given["sequence_mask_metric"]], pair)
    return gates


def _tis(given: Given) -> tuple[str | None, float]:
    if given["use_tis"] and not given.set("tis_ratio_type"):
        return "token", given["tis_imp_ratio_cap"]
    level = given["tis_ratio_type"]
    return level, given[CAPS[level]] if level else 0.0


def _both(given: Given) -> bool:
    return given["token_mask_is_threshold_low"] is not None and given["token_mask_is_threshold_high"] is not None


def _pair(given: Given, unit: str, begins: str, pair: str | None) -> Gates:
    lower, upper = given[f"{begins}_low"], given[f"{begins}_high"]
    return ratio_gate(unit, lower, upper, scope="kept", limit=limit(SAFETY, unit), pair=pair)


# ── writing ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Every gate to its stage; the order of stages is checked by reading back."""
    found: dict[str, Any] = {}
    for gate in rule.gates:
        stage = STAGES.get(f"{gate.level} {gate.agg}")
        if gate.level == "sequence" and gate.agg in ("mean", "sum"):
            name = "geometric" if gate.agg == "mean" else "product"
            found["sequence_mask_metric"] = name
            stage = MASKS[name][1]
        if stage is None:
            return
        defaults = (1e-12, 1e12) if "outlier" not in stage else (None, None)
        found |= {f"{stage}_low": gate.lower or defaults[0], f"{stage}_high": gate.upper or defaults[1]}
    weight = rule.weight
    if weight is not None and weight.level in CAPS:
        found |= {"tis_ratio_type": weight.level, CAPS[weight.level]: weight.upper or 1e12}
    full = {f"{SECTION}.{name}": value for name, value in found.items() if value is not None}
    yield full or {f"{SECTION}.tis_ratio_type": None}


# ── remarks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _masks_sequences(given: Given) -> bool:
    return given.set("sequence_mask_metric")


REMARKS = (
    Remark(
        "tis_imp_ratio_cap",
        "defect",
        "use_tis with cap {tis_imp_ratio_cap} makes every weight that number and flips the sign of the gradient; set "
        "tis_ratio_type: token and token_tis_ratio_clip_high: 2.0 instead.",
        lambda given: _tis(given)[0] is not None and _tis(given)[1] <= 0,
    ),
    Remark(
        "use_tis",
        "note",
        "use_tis and tis_imp_ratio_cap are deprecated; now off_policy_correction.tis_ratio_type: token and "
        "token_tis_ratio_clip_high.",
        lambda given: given.said("use_tis", "tis_imp_ratio_cap"),
    ),
    Remark(
        "token_mask_is_threshold_high",
        "surprise",
        "A token mask with one bound only is ignored; set both token_mask_is_threshold_low and _high.",
        lambda given: given.set("token_mask_is_threshold_low", "token_mask_is_threshold_high") and not _both(given),
    ),
    Remark(
        "policy_loss_type",
        "defect",
        "{policy_loss_type} receives advantages already divided by the number of tokens: clip_cov's covariance bounds are never "
        "met and kl_cov adds a plain sum; use it with another framework or a reduction of your own.",
        lambda given: given["policy_loss_type"] in ("clip_cov", "kl_cov"),
    ),
    Remark(
        "policy_loss_type",
        "surprise",
        "Outlier and token masks are silently not applied to {policy_loss_type}; use another loss.",
        lambda given: (
            given["policy_loss_type"] in ("clip_cov", "kl_cov")
            and given.set(
                "outlier_token_is_threshold_low", "outlier_token_is_threshold_high", "token_mask_is_threshold_low"
            )
        ),
    ),
    Remark(
        "sequence_tis_ratio_clip_high",
        "surprise",
        "The cap {sequence_tis_ratio_clip_high} bounds the product over the tokens that earlier stages left; AReaL, ms-swift and "
        "OpenRLHF mean the geometric mean by `sequence`.",
        lambda given: given["tis_ratio_type"] == "sequence",
    ),
    Remark(
        "sequence_mask_metric",
        "note",
        "Each stage sees the mask the one before left; verl and ROLL judge every stage on the original mask, so the same bounds "
        "keep other tokens there.",
        lambda given: _masks_sequences(given) and (_both(given) or given.set("outlier_token_is_threshold_low")),
    ),
    Remark(
        "tis_ratio_type",
        "note",
        "is_ratio_min, is_ratio_max and is_ratio_std are taken over padding too, so the least is 0 and the spread is not; look at ours.",
        lambda given: given.set("tis_ratio_type", "sequence_mask_metric") or _both(given),
    ),
    Remark(
        "outlier_token_is_threshold_low",
        "note",
        "Without tis_ratio_type or sequence_mask_metric these masks are not validated and silently skipped where the sampler "
        "returns no log-probs; set sampling logprobs.",
        lambda given: (
            given.set("outlier_token_is_threshold_low", "outlier_token_is_threshold_high")
            and not given.set("tis_ratio_type", "sequence_mask_metric")
        ),
    ),
)

DIALECT = Dialect(
    name="skyrl",
    title="SkyRL",
    version="0.3.0",
    keys=(*KEYS, *loss.KEYS),
    correction=correction,
    descent=loss.descent,
    estimation=loss.estimation,
    remarks=(*REMARKS, *loss.REMARKS),
    closed=(SECTION,),
    roots=("trainer", "generator", "data", "environment"),
    others=("token_mask_ratio",),
    apart=(
        "A NaN log-prob is kept by veto and sequence masks and dropped by the token mask; ours takes the token as never trained.",
    ),
    candidates=candidates,
)
