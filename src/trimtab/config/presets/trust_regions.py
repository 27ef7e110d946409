"""Presets that bound how far the policies may part, most of them only where the advantage pushes on."""

from __future__ import annotations

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.presets.preset import Preset


def _opsm(delta: float = 1e-4) -> Correction:
    gate = Gate(
        metric="k1", level="sequence", upper=delta, when="negative_advantage", pair="current/behavior", action="zero"
    )
    return Correction(gates=(gate,))


def _m2po(tau: float = 0.04) -> Correction:
    return Correction(gates=(Gate(metric="second_moment", level="batch", agg="budget", upper=tau),))


def _dppo_tv(low: float | None = 0.2, high: float | None = 0.2) -> Correction:
    rising = Gate(metric="prob_diff", upper=high, when="positive_advantage", action="zero")
    falling = Gate(metric="prob_diff", lower=None if low is None else -low, when="negative_advantage", action="zero")
    return Correction(policies="bypass", gates=(rising, falling), weight=Weight(level="token"))


def _dppo_kl(delta: float = 0.05) -> Correction:
    gate = Gate(metric="binary_kl", direction="forward", upper=delta, when="moving_away", action="zero")
    return Correction(policies="bypass", gates=(gate,), weight=Weight(level="token"))


def _vaco(deviation: float = 0.1, upper: float | None = 2.0) -> Correction:
    gate = Gate(metric="ratio_deviation", level="sequence", upper=deviation, when="moving_away", action="zero")
    return Correction(gates=(gate,), weight=Weight(level="token", upper=upper))


def _seq_logprob_error(upper: float = 2.0) -> Correction:
    return Correction(gates=(Gate(metric="mult_prob_error", level="sequence", upper=upper),), denominator="kept")


TRUST_REGIONS = (
    Preset(
        "opsm",
        _opsm,
        "A sequence with negative advantage weighs 0 once the current policy has moved away from it by `delta` per token.",
        "DeepSeek-V3.2, arXiv 2512.02556",
        {
            "TRL": "off_policy_mask_threshold",
            "ms-swift": "off_policy_sequence_mask_delta (leaves the mask)",
            "slime": "--use-opsm (against proximal, per token)",
            "miles": "--use-opsm (against proximal, per token)",
        },
        numbers="`delta` is slime's default; TRL has none and its documentation takes 0.5",
        two_policies=False,
    ),
    Preset(
        "m2po",
        _m2po,
        "The tokens with the largest squared log-ratio go until the mean of the rest is at most `tau`.",
        "M2PO, arXiv 2510.01161",
        {"AReaL": "m2_threshold (per micro-batch)"},
        numbers="`tau` is that of AReaL's gsm8k_m2po.yaml",
        two_policies=False,
    ),
    Preset(
        "dppo-tv",
        _dppo_tv,
        "Tokens whose probability has already moved far in the direction of their advantage weigh 0.",
        "DPPO, arXiv 2602.04879; the default loss of prime-rl up to 559b4477",
        {
            "prime-rl": "dppo_mask_low/high (up to 559b4477)",
            "verl": "loss_mode: dppo_tv",
            "SkyRL": "policy_loss_type: dppo",
        },
        numbers="`low` and `high` are the defaults prime-rl had; the authors' verl script has 0.15",
        two_policies=False,
    ),
    Preset(
        "dppo-kl",
        _dppo_kl,
        "Tokens that move away and whose binary KL exceeds `delta` weigh 0.",
        "DPPO, arXiv 2602.04879",
        {"verl": "loss_mode: dppo_kl", "SkyRL": "policy_loss_type: dppo, binary_kl"},
        numbers="`delta` is that of the authors' verl script",
        two_policies=False,
    ),
    Preset(
        "vaco",
        _vaco,
        "In sequences whose mean |r − 1| exceeds `deviation`, tokens that push further away weigh 0.",
        "VACO, arXiv 2603.01365; open-instruct",
        {"open-instruct": "rho_mask_tv_divergence"},
        numbers="`deviation` is ours: open-instruct has no default; `upper` is its rho_clamp_upper_bound",
    ),
    Preset(
        "seq-logprob-error",
        _seq_logprob_error,
        "Sequences stay while their mean factor between the two probabilities is at most `upper`.",
        "NeMo-RL",
        {"NeMo-RL": "grpo.seq_logprob_error_threshold"},
        numbers="`upper` is that of NeMo-RL's recipes (nemotron-3-ultra); its default is null",
        two_policies=False,
    ),
)
