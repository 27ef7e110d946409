"""Presets that weigh, drop or center single tokens: each by its own ratio, or by those before it."""

from __future__ import annotations

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.presets.preset import Preset


def _off() -> Correction:
    return Correction(weight=Weight(level="one"))


def _token_tis(upper: float | None = 2.0, lower: float | None = None) -> Correction:
    return Correction(weight=Weight(level="token", lower=lower, upper=upper))


def _token_mis(upper: float | None = 2.0, lower: float | None = None) -> Correction:
    return Correction(gates=(Gate(metric="ratio", lower=lower, upper=upper),), weight=Weight(level="token"))


def _icepop(lower: float | None = 0.5, upper: float | None = 5.0) -> Correction:
    return Correction(weight=Weight(level="token", lower=lower, upper=upper, outside="zero"))


def _kpop(phi: float = 2.0) -> Correction:
    return Correction(gates=(Gate(metric="binary_kl", direction="max", upper=phi),))


TOKENS = (
    Preset(
        "off",
        _off,
        "No correction; every mismatch metric is still reported.",
        "the baseline",
        {
            "verl": "rollout_is: null, rollout_rs: null",
            "AReaL": "rejection_sampling: null",
            "TRL": "vllm_importance_sampling_correction: false",
        },
    ),
    Preset(
        "token-tis",
        _token_tis,
        "Each token is weighted by its ratio, truncated at `upper`.",
        "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training, 2025",
        {
            "verl": "rollout_is: token",
            "AReaL": "level: token, action: clamp",
            "SkyRL": "tis_ratio_type: token",
            "TRL": "vllm_importance_sampling_mode: token_truncate",
            "OpenRLHF": "--is_correction_level token --is_correction_mode clip",
            "ms-swift": "rollout_importance_sampling_mode: token_truncate",
            "slime": "--use-tis",
            "miles": "--use-tis",
            "tunix": "sampler_is: token",
            "NeMo-RL": "truncated_importance_sampling_type: tis",
            "ROLL": "is_weight: {weight_type: token}",
            "open-instruct": "rho_clamp_upper_bound",
        },
    ),
    Preset(
        "token-mis",
        _token_mis,
        "Tokens whose ratio leaves the bounds are dropped, the others weighted by it.",
        "AReaL #1088",
        {
            "AReaL": "level: token, action: mask, metric: ratio",
            "SkyRL": "token_mask_is_threshold_low/high",
            "slime": "mis.py tis_mode: mask",
            "miles": "mis.py tis_mode: mask",
        },
    ),
    Preset(
        "icepop",
        _icepop,
        "Each token is weighted by its ratio inside the band and by 0 outside; the denominator keeps it.",
        "Ring-1T, arXiv 2510.18855",
        {
            "verl": 'rollout_is_threshold: "0.5_5.0"',
            "TRL": "token_mask with clip_min and clip_max",
            "OpenRLHF": "--is_correction_level token --is_correction_mode mask",
            "slime": "icepop_function",
            "miles": "icepop_function",
            "NeMo-RL": "truncated_importance_sampling_type: icepop",
        },
    ),
    Preset(
        "kpop",
        _kpop,
        "Tokens stay while the binary KL, in both directions, is at most `phi`.",
        "KPop, Ring-2.6-1T 2026; verl #6800",
        {
            "verl": "rollout_rs: binary_kl (#6800)",
            "AReaL": "metric: binary_kl (documented; refused by its own validation)",
            "OpenRLHF": "--is_correction_gating binary_kl (one direction)",
        },
        numbers="`phi` is that of verl #6800 and of AReaL's gsm8k_kpop.yaml",
    ),
)


_PREFIX = "A Step Back: Prefix Importance Ratio Stabilizes Policy Optimization, arXiv 2601.22718"


def _prefix_tis(upper: float | None = 2.0, lower: float | None = None) -> Correction:
    return Correction(weight=Weight(level="prefix", lower=lower, upper=upper))


def _least_prefix(upper: float | None = 2.0, lower: float | None = None) -> Correction:
    return Correction(weight=Weight(level="least_prefix", lower=lower, upper=upper))


PREFIXES = (
    Preset(
        "prefix-tis",
        _prefix_tis,
        "Each token is weighted by the product of the ratios up to itself, truncated at `upper`: the exact per-decision weight.",
        _PREFIX,
        numbers="`upper` is that of token-tis; the paper has the product without a bound",
    ),
    Preset(
        "minpro",
        _least_prefix,
        "Each token is weighted by its ratio times the least ratio before it, truncated at `upper`.",
        _PREFIX,
        numbers="`upper` is that of token-tis",
    ),
)


_CENTERED = "Score Centering Stabilizes Off-policy Reinforcement Learning, arXiv 2609.20807"


def _score_centering() -> Correction:
    return Correction(weight=Weight(level="one"), centering="score")


def _score_centering_tis(upper: float | None = 2.0, lower: float | None = None) -> Correction:
    return Correction(weight=Weight(level="token", lower=lower, upper=upper), centering="score")


def _score_centering_icepop(lower: float | None = 0.5, upper: float | None = 5.0) -> Correction:
    return Correction(weight=Weight(level="token", lower=lower, upper=upper, outside="zero"), centering="score")


CENTERING = (
    Preset(
        "score-centering",
        _score_centering,
        "Each token's gradient less its mean under the sampler, over the head of its distribution; no weight.",
        _CENTERED,
        {"slime": "--use-score-centering", "prime-rl": "score_centering (with ipo)"},
    ),
    Preset(
        "score-centering+tis",
        _score_centering_tis,
        "Tokens weighted by their ratio, truncated at `upper`, and each gradient less its mean under the sampler.",
        _CENTERED,
        {"slime": "--use-score-centering --use-tis"},
        numbers="`upper` is slime's --tis-clip",
    ),
    Preset(
        "score-centering+icepop",
        _score_centering_icepop,
        "Tokens weighted by their ratio inside the band and by 0 outside, and each gradient less its mean under the sampler.",
        _CENTERED,
        {"slime": "--use-score-centering with icepop_function"},
        numbers="the band is that of icepop",
    ),
)
