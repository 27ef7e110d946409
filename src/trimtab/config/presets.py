"""Named corrections: each a value, with where it comes from, what it means and what others call it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.config.algebra import Correction, Gate, Weight
from trimtab.config.base import excerpt, of_kind
from trimtab.errors import ConfigError, UnknownNameError, nearest

BYPASS = "bypass-"


@dataclass(frozen=True)
class Preset:
    """A function from a few numbers to a Correction, with its story."""

    name: str
    build: Callable[..., Correction]
    meaning: str
    source: str
    called: dict[str, str] = field(default_factory=dict[str, str])
    numbers: str = ""  # whose its default numbers are, where the source does not give them
    two_policies: bool = True  # whether it has a bypass form

    @property
    def parameters(self) -> dict[str, float | None]:
        """Name and default of each number it takes."""
        return {name: parameter.default for name, parameter in inspect.signature(self.build).parameters.items()}

    def __call__(self, /, **parameters: Any) -> Correction:
        """The correction with these numbers in place of the defaults."""
        for given in parameters:
            if given not in self.parameters:
                raise UnknownNameError(
                    f"Preset {self.name!r} has no parameter {given!r}. {self._owner(given) or nearest(given, self.parameters)}"
                )
        numbers = {name: self._number(name, value) for name, value in parameters.items()}
        try:
            return self.build(**numbers)
        except ConfigError as error:
            settings = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
            raise type(error)(f"Preset {self.name!r} with {settings}: {error}") from None

    def _number(self, parameter: str, value: object) -> float | None:
        may_be_open = "None" in str(inspect.signature(self.build).parameters[parameter].annotation)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if value is None and may_be_open:
            return None
        rule = "a number, or null to leave that side open" if may_be_open else "a number"
        raise ConfigError(f"Preset {self.name!r} needs {parameter} to be {rule}, got {excerpt(value)}.")

    def _owner(self, parameter: str) -> str:
        """Where a parameter belongs that this preset lacks and a sibling built on it has."""
        siblings = [
            name
            for name, other in PRESETS.items()
            if name.startswith(f"{self.name}+") and parameter in other.parameters
        ]
        return f"It belongs to {' and '.join(siblings)}, which add a second stage." if siblings else ""


def preset(name: str, **parameters: Any) -> Correction:
    """The correction of that name, its numbers changed by `parameters`; `bypass-NAME` compares current with behavior."""
    return preset_with(name, parameters)


def preset_with(name: object, parameters: Mapping[str, Any]) -> Correction:
    """The same with what a file or a command line says, where a name and a key may be anything."""
    if not isinstance(name, str):
        raise ConfigError(f"A preset needs a name, got {excerpt(name)}. `trimtab presets` lists them.")
    if name in PRESETS:
        return PRESETS[name](**parameters)
    plain = name.removeprefix(BYPASS)
    if name.startswith(BYPASS) and plain in PRESETS:
        if not PRESETS[plain].two_policies:
            raise ConfigError(f"Preset {plain!r} needs its own pair of policies, got {name!r}. It has no bypass form.")
        return PRESETS[plain](**parameters).but(policies="bypass")
    known = preset_names() if name.startswith(BYPASS) else PRESETS
    raise UnknownNameError(f"There is no preset {excerpt(name)}. {nearest(name, known)}")


def as_correction(value: object) -> Correction:
    """A correction as it is, or the one of that name."""
    if isinstance(value, str):
        return _NAMED[value] if value in _NAMED else preset(value)
    return of_kind(Correction, value, "A correction needs to be a Correction or a preset's name", '"seq-tis"')


def preset_names() -> list[str]:
    """Every name `preset` accepts, the bypass forms last."""
    return [*PRESETS, *(BYPASS + name for name, each in PRESETS.items() if each.two_policies)]


def _geo(lower: float | None, upper: float | None) -> Gate:
    return Gate(metric="ratio", level="sequence", agg="mean", lower=lower, upper=upper)


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


def _prefix_tis(upper: float | None = 2.0, lower: float | None = None) -> Correction:
    return Correction(weight=Weight(level="prefix", lower=lower, upper=upper))


def _least_prefix(upper: float | None = 2.0, lower: float | None = None) -> Correction:
    return Correction(weight=Weight(level="least_prefix", lower=lower, upper=upper))


def _score_centering() -> Correction:
    return Correction(weight=Weight(level="one"), centering="score")


def _score_centering_tis(upper: float | None = 2.0, lower: float | None = None) -> Correction:
    return Correction(weight=Weight(level="token", lower=lower, upper=upper), centering="score")


def _score_centering_icepop(lower: float | None = 0.5, upper: float | None = 5.0) -> Correction:
    return Correction(weight=Weight(level="token", lower=lower, upper=upper, outside="zero"), centering="score")


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


_TWO_STAGE = "AReaL #1084, #1218"
_CENTERED = "Score Centering Stabilizes Off-policy Reinforcement Learning, arXiv 2609.20807"
_PREFIX = "A Step Back: Prefix Importance Ratio Stabilizes Policy Optimization, arXiv 2601.22718"

PRESETS: dict[str, Preset] = {
    each.name: each
    for each in (
        Preset(
            "off",
            _off,
            "Nothing is corrected; every mismatch metric is still reported.",
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
}

_NAMED = {name: preset(name) for name in preset_names()}
"""Made beforehand: nothing is validated while a step is compiled."""
