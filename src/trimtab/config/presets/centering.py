"""Presets that take the mean under the sampler from each token's gradient."""

from __future__ import annotations

from trimtab.config.algebra import Correction, Weight
from trimtab.config.presets.preset import Preset

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
