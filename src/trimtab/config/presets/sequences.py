"""Presets that weigh or drop whole sequences, some with a second stage for the tokens of those that stay."""

from __future__ import annotations

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.presets.preset import Preset

_TWO_STAGE = "AReaL #1084, #1218"


def _geo(lower: float | None, upper: float | None) -> Gate:
    return Gate(metric="ratio", level="sequence", agg="mean", lower=lower, upper=upper)


def _seq_tis(upper: float | None = 2.0) -> Correction:
    return Correction(weight=Weight(level="sequence", upper=upper))


def _seq_mis(upper: float | None = 2.0, lower: float | None = None) -> Correction:
    gate = Gate(metric="ratio", level="sequence", agg="sum", lower=lower, upper=upper)
    return Correction(gates=(gate,), weight=Weight(level="sequence"))


def _geo_rs(lower: float | None = 0.99, upper: float | None = 1.01) -> Correction:
    return Correction(gates=(_geo(lower, upper),))


def _geo_rs_token_mis(
    lower: float | None = 0.99,
    upper: float | None = 1.01,
    token_lower: float | None = None,
    token_upper: float | None = 2.0,
) -> Correction:
    tokens = Gate(metric="ratio", lower=token_lower, upper=token_upper, scope="kept")
    return Correction(gates=(_geo(lower, upper), tokens), weight=Weight(level="token"))


def _geo_rs_token_tis(
    lower: float | None = 0.99,
    upper: float | None = 1.01,
    token_lower: float | None = None,
    token_upper: float | None = 2.0,
) -> Correction:
    return Correction(gates=(_geo(lower, upper),), weight=Weight(level="token", lower=token_lower, upper=token_upper))


def _geo_rs_seq_tis(
    lower: float | None = 0.99, upper: float | None = 1.01, seq_upper: float | None = 2.0
) -> Correction:
    return Correction(gates=(_geo(lower, upper),), weight=Weight(level="sequence", upper=seq_upper))


def _k2_rs(upper: float = 1.0) -> Correction:
    return Correction(gates=(Gate(metric="k2", level="sequence", upper=upper),), weight=Weight(level="token"))


def _k3_rs(upper: float = 0.01) -> Correction:
    return Correction(gates=(Gate(metric="k3", level="sequence", upper=upper),))


def _seq_max_k3(upper: float = 3.0) -> Correction:
    return Correction(gates=(Gate(metric="k3", level="sequence", agg="max", upper=upper),))


def _veto(lower: float | None = 1e-4, upper: float | None = 100.0) -> Correction:
    return Correction(gates=(Gate(metric="ratio", level="sequence", agg="every", lower=lower, upper=upper),))


SEQUENCES = (
    Preset(
        "seq-tis",
        _seq_tis,
        "Each sequence is weighted by the product of its ratios, truncated at `upper`.",
        "When Speed Kills Stability, 2025",
        {
            "verl": "rollout_is: sequence",
            "SkyRL": "tis_ratio_type: sequence",
            "TRL": "sequence_truncate",
            "slime": "mis.py tis_level: sequence",
            "miles": "mis.py tis_level: sequence",
        },
    ),
    Preset(
        "seq-mis",
        _seq_mis,
        "Sequences whose product of ratios leaves the bounds are dropped, the others weighted by it.",
        "When Speed Kills Stability, 2025",
        {"verl": "rollout_is: sequence + rollout_rs: seq_sum_k1", "TRL": "sequence_mask (its default)"},
    ),
    Preset(
        "geo-rs",
        _geo_rs,
        "Sequences whose geometric mean ratio leaves the bounds are dropped; the others weigh 1.",
        "When Speed Kills Stability, 2025; verl #3597",
        {
            "verl": "rollout_rs: seq_mean_k1",
            "SkyRL": "sequence_mask_metric: geometric",
            "AReaL": "level: sequence, agg: mean, metric: ratio (weights survivors by the mean)",
            "ROLL": "filters: [{agg_type: geometric}]",
        },
    ),
    Preset(
        "geo-rs+token-mis",
        _geo_rs_token_mis,
        "Sequences are dropped by their geometric mean ratio, then tokens by their own; survivors weigh their token ratio.",
        _TWO_STAGE,
        {
            "AReaL": "token_action: mask (#1218; one pair of bounds for both stages)",
            "SkyRL": "sequence_mask_metric: geometric + token_mask_is_threshold_low/high",
        },
    ),
    Preset(
        "geo-rs+token-tis",
        _geo_rs_token_tis,
        "Sequences are dropped by their geometric mean ratio; survivors weigh their truncated token ratio.",
        _TWO_STAGE,
        {
            "verl": "rollout_rs: seq_mean_k1 + rollout_is: token",
            "AReaL": "token_action: clamp (#1218)",
            "SkyRL": "sequence_mask_metric: geometric + tis_ratio_type: token",
        },
    ),
    Preset(
        "geo-rs+seq-tis",
        _geo_rs_seq_tis,
        "Sequences are dropped by their geometric mean ratio; survivors weigh their truncated product of ratios.",
        "verl decoupled_geo_rs_seq_tis",
        {"verl": "rollout_rs: seq_mean_k1 + rollout_is: sequence"},
    ),
    Preset(
        "k2-rs",
        _k2_rs,
        "Sequences stay while their mean k2 is at most `upper`; survivors weigh their token ratio.",
        "AReaL #1088",
        {"AReaL": "level: sequence, agg: mean, metric: kl_k2", "verl": "rollout_rs: seq_mean_k2 (weighs 1)"},
        numbers="`upper` is that of AReaL's documentation, which calls 0.5 to 2 typical",
    ),
    Preset(
        "k3-rs",
        _k3_rs,
        "Sequences stay while their mean k3 is at most `upper`.",
        "Trust Region Masking, arXiv 2512.23075",
        {"verl": "rollout_rs: seq_mean_k3", "AReaL": "metric: kl_k3 (in the other direction)"},
    ),
    Preset(
        "seq-max-k3",
        _seq_max_k3,
        "Sequences stay while no token's k3 exceeds `upper`.",
        "Trust Region Masking, arXiv 2512.23075",
        {"verl": "rollout_rs: seq_max_k3"},
        numbers="`upper` is that of the example in verl #6800",
    ),
    Preset(
        "veto",
        _veto,
        "One token whose ratio leaves the bounds condemns its whole sequence.",
        "SkyRL #849",
        {
            "SkyRL": "outlier_token_is_threshold_low/high",
            "slime": "mis.py rs_veto_threshold (low side)",
            "miles": "mis.py rs_veto_threshold (low side)",
            "verl": "rollout_is_veto_threshold (removed; low side)",
        },
    ),
)
