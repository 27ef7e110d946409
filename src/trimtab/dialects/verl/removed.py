"""verl's keys before today's: `tis_imp_ratio_cap` (#2953), level × mode × veto (#3694), ratio rejection (#3984).

Read as that code computed: the ratio itself was tested, its log limited after gathering.
"""

from __future__ import annotations

from trimtab.config.algebra import Correction, Weight
from trimtab.dialects.framework import Given, Key, Remark
from trimtab.dialects.parts import OFF, Gates, limit, ratio_gate, weight_of
from trimtab.dialects.values import choice, flag, number, positive
from trimtab.errors import ConfigError

SECTION = "algorithm.rollout_correction"
SAFETY = 20.0

KEYS = (
    Key("actor_rollout_ref.actor.tis_imp_ratio_cap", number, -1.0, legacy=True),
    Key("algorithm.rollout_is_level", choice("token", "sequence", "geometric"), "token", legacy=True),
    Key("algorithm.rollout_is_mode", choice("truncate", "mask", "clip"), "truncate", legacy=True),
    Key("algorithm.rollout_is_threshold_lower", number, legacy=True),
    Key("algorithm.rollout_is_veto_threshold", number, 1e-4, legacy=True, null="open"),
    Key(f"{SECTION}.rollout_rs_threshold_lower", number, legacy=True),
    Key(f"{SECTION}.rollout_token_veto_threshold", number, legacy=True),
    Key(f"{SECTION}.bypass_old_logprob_for_rollout", flag, legacy=True),
    Key(f"{SECTION}.use_pure_rollout_correction", flag, legacy=True),
    Key(f"{SECTION}.use_policy_gradient", flag, legacy=True),
)

REJECTIONS = {"token": "token", "sequence": "sequence", "geometric": "geometric"}
"""`rollout_rs` before #4544 → unit whose ratio was tested."""

LEVELS = ("rollout_is_level", "rollout_is_mode", "rollout_is_threshold_lower", "rollout_is_veto_threshold")


def bypasses(given: Given) -> bool:
    """Whether bypass is asked for, by today's key or the one before."""
    return given.is_on("bypass_mode", "bypass_old_logprob_for_rollout")


def is_said(given: Given) -> bool:
    """Whether a key or value that was removed is used."""
    return given.has(*(key.label for key in KEYS)) or given["rollout_rs"] in REJECTIONS


def removed_correction(given: Given) -> Correction | None:
    """The correction of the two oldest generations; None where the settings are younger."""
    if given.has("tis_imp_ratio_cap") and not given.has("rollout_is", "rollout_rs"):
        cap = given["tis_imp_ratio_cap"]
        return Correction(weight=weight_of("token", upper=cap)) if cap > 0 else OFF
    return _first_generation(given) if given.has(*LEVELS) else None


def gate(given: Given, named: str) -> Gates:
    """Before #4544 the ratio itself was tested, its log limited after gathering."""
    unit = REJECTIONS[named]
    if given["rollout_rs_threshold"] is None:
        raise ConfigError(f"verl rollout_rs_threshold needs a value for rollout_rs {named!r}, got nothing.")
    upper = positive("verl rollout_rs_threshold", given["rollout_rs_threshold"])
    lower = given["rollout_rs_threshold_lower"] or 1 / upper
    return ratio_gate(unit, lower, upper, limit=limit(SAFETY, unit))


def _first_generation(given: Given) -> Correction:
    """#3694: level × mode, and a veto of sequences with one token far below."""
    unit, mode = given["rollout_is_level"], given["rollout_is_mode"]
    upper = positive("verl rollout_is_threshold", given["rollout_is_threshold"])
    lower = given["rollout_is_threshold_lower"] or 1 / upper
    held = limit(SAFETY, unit)
    gates = ratio_gate(unit, lower, upper, limit=held) if mode == "mask" else ()
    veto = given["rollout_is_veto_threshold"]
    gates += ratio_gate("every", veto, None) if veto else ()
    bounds = {"truncate": (None, upper), "clip": (lower, upper), "mask": (None, None)}[mode]
    applied = given["rollout_is"] not in (None, False)
    weight = weight_of(unit, *bounds, limit=held) if applied else Weight(level="one")
    return Correction(gates=gates, weight=weight)


REMARKS = (
    Remark(
        "rollout_rs",
        "note",
        "The option {rollout_rs} was removed in #4544, where it tested the ratio itself; its successor tests the inverse, so "
        "migrating keeps the meaning only with reciprocal bounds.",
        lambda given: given["rollout_rs"] in REJECTIONS,
    ),
    Remark(
        "rollout_token_veto_threshold",
        "note",
        "The veto was removed in #4544; seq_max_k2 with {rollout_token_veto_threshold} → ½·log² is the nearest option and also "
        "rejects on the high side.",
        lambda given: given.has("rollout_token_veto_threshold") and given.is_on("rollout_token_veto_threshold"),
    ),
    Remark(
        "rollout_is_level",
        "note",
        "rollout_is_level, rollout_is_mode and rollout_is_veto_threshold were removed in #3984; read as they were: now rollout_is, "
        "rollout_rs and their thresholds.",
        lambda given: given.has(
            "rollout_is_level", "rollout_is_mode", "rollout_is_threshold_lower", "rollout_is_veto_threshold"
        ),
    ),
    Remark(
        "tis_imp_ratio_cap",
        "note",
        "tis_imp_ratio_cap was removed in #3694; now rollout_is: token with rollout_is_threshold: {tis_imp_ratio_cap}.",
        lambda given: given.has("tis_imp_ratio_cap"),
    ),
)
