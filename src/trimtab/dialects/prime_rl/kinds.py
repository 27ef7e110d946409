"""Which loss of prime-rl a file means: one of today's, or of those that stood in their place before."""

from __future__ import annotations

from trimtab.dialects.framework import Given
from trimtab.dialects.prime_rl import ORCHESTRATOR
from trimtab.errors import ConfigError

RATIOS = {"icepop": (0.2, 5.0), "ppo": (0.8, 1.2), "cispo": (0.0, 5.0)}
"""The bounds of the losses that bound the ratio."""
DPPO = ("dppo_mask_low", "dppo_mask_high")
REPLACED = (*DPPO, "ipo_threshold", "kl_tau")
"""Keys of 559b4477, which had `default` and `ipo` with a penalty each, and no other loss."""
REMOVED = (
    "ratio_type",
    "token_mask_low",
    "token_mask_high",
    "geo_mask_low",
    "geo_mask_high",
    "sequence_mask_low",
    "sequence_mask_high",
    "sequence_clip_high",
)
"""Keys of the loss before 02bdca2e4."""

OPD_FALL, OPD_TAU = 0.2, 1e-3
"""On-policy distillation, whatever trainer.loss says: a token whose probability fell by more is dropped; the weight of ℓ²."""


def distils(given: Given) -> bool:
    """Whether tokens are trained by the component of a teacher, and none by trainer.loss."""
    return given["algo.type"] == "opd"


def is_orchestrator(given: Given) -> bool:
    """Whether these are the settings of the orchestrator alone, whose keys stand at the top of a file of its own."""
    return any(given.value_of(key, None) is not None for key in ORCHESTRATOR) and not given.speaks_of("correction")


def loss_kind(given: Given) -> str:
    """The type of the loss; `default` where keys of its own, or its penalty, are said without one."""
    if is_orchestrator(given):
        raise ConfigError(
            "this is the orchestrator's own file, and the loss stands in the trainer's. Pass that one, or say it with "
            "--set trainer.loss.type=VALUE."
        )
    if given.has("type"):
        return given["type"]
    return "default" if given.has(*DPPO) or (given.has("kl_tau") and not given.has("eps", "ipo_threshold")) else "ipo"


def is_replaced(given: Given) -> bool:
    """Whether the loss is one of 559b4477."""
    return loss_kind(given) == "default" or (loss_kind(given) == "ipo" and given.has(*REPLACED))


def threshold(given: Given) -> float:
    """How far a probability may have moved under `ipo`: 0.3 today, 0.1 while it had a penalty."""
    said = next((given[name] for name in ("eps", "ipo_threshold") if given.has(name)), None)
    return said if said is not None else 0.1 if is_replaced(given) else 0.3


def ratio_bounds(given: Given) -> tuple[float, float]:
    """The bounds of the ratio, where the loss has some."""
    low, high = RATIOS[loss_kind(given)]
    return (
        given["ratio_low"] if given["ratio_low"] is not None else low,
        given["ratio_high"] if given["ratio_high"] is not None else high,
    )
