"""AReaL 1.0.4: `actor.rejection_sampling`, its predecessor, and the unmerged second stage of #1218.

ℓ = log proximal − log behavior. At sequence level with metric ratio the weight is the geometric mean, whatever `agg`;
with a KL metric it stays the token's own ratio.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Gate, Weight
from trimtab.dialects.areal.keys import SECTION
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import OFF, ratio_gate, weight_of
from trimtab.errors import ConfigError

METRICS: dict[str, dict[str, Any]] = {
    "kl_k1": {"metric": "k1", "direction": "reverse"},
    "kl_k2": {"metric": "k2"},
    "kl_k3": {"metric": "k3", "direction": "reverse"},
}
DOCUMENTED = METRICS | {
    "kl_k3": {"metric": "k3", "direction": "forward"},
    "binary_kl": {"metric": "binary_kl", "direction": "max"},
}
UNIT_OF = {"sum": "sequence", "mean": "geometric", "max": "max"}
DECOUPLED = "actor.use_decoupled_loss"


def correction_of(given: Given) -> Correction:
    """Rejection, or M2PO, or the weights of the predecessor, where the loss is decoupled; else the loss by itself."""
    if not is_decoupled(given) or given["use_sapo_loss"]:
        return OFF if given["recompute_logprob"] or not _says_its_loss(given) else OFF.but(policies="bypass")
    section = rejection_section(given)
    if given["m2_threshold"] is not None:
        return _m2po(given, section)
    return OFF if section is None else _rejection(given, section)


def is_decoupled(given: Given) -> bool:
    """Whether proximal and behavior are two policies. Otherwise both are the sampler, or the recomputed pass, and every ratio is 1.

    A section by itself is read as it acts where the loss is decoupled; a whole file has AReaL's default, which is not.
    """
    return bool(given["use_decoupled_loss"]) if _says_its_loss(given) else True


def _says_its_loss(given: Given) -> bool:
    """Whether the settings decide which log-probs are compared, by a key or because they are those of a whole run."""
    is_all = given.whole and not given.builds_on_others
    return is_all or given.has("use_decoupled_loss", "recompute_logprob")


def acting_section(given: Given) -> dict[str, Any] | None:
    """The fields of `rejection_sampling` where they act."""
    return rejection_section(given) if is_decoupled(given) and not given["use_sapo_loss"] else None


def rejection_section(given: Given) -> dict[str, Any] | None:
    """The fields of `rejection_sampling`, also where the older keys say them; None: no rejection."""
    names = ("level", "action", "metric", "agg", "upper", "lower", "token_action")
    if given.has(*names) or given.section(SECTION) == {}:
        return {name: given[name] for name in names}
    if not given.has("behave_imp_weight_cap", "behave_imp_weight_mode"):
        return None
    return rejection_of_mode(given["behave_imp_weight_mode"], given["behave_imp_weight_cap"])


def rejection_of_mode(mode: str, cap: float | None) -> dict[str, Any] | None:
    """`behave_imp_weight_mode` and `_cap` in today's fields."""
    if mode == "disabled" or cap is None:
        return None
    level, _, action = mode.partition("_")
    fields = {"level": level, "action": {"truncate": "clamp", "mask": "mask"}[action]}
    return {**fields, "metric": "ratio", "agg": "mean", "upper": cap, "lower": None, "token_action": None}


def _rejection(given: Given, section: dict[str, Any]) -> Correction:
    _check(section, given.documented)
    level, metric, lower, upper = (section[name] for name in ("level", "metric", "lower", "upper"))
    action = {"mask": "reject", "clamp": "clamp"}[section["action"]]
    if metric != "ratio":
        shape: dict[str, Any] = {"level": level} if level == "token" else {"level": level, "agg": section["agg"]}
        fields = (DOCUMENTED if given.documented else METRICS)[metric]
        return Correction(gates=(Gate(**fields, **shape, lower=lower, upper=upper),), weight=Weight(level="token"))
    if level == "token":
        if action == "clamp":
            return Correction(weight=weight_of("token", lower, upper))
        return Correction(gates=ratio_gate("token", lower, upper), weight=Weight(level="token"))
    unit = UNIT_OF[section["agg"]]
    if section["token_action"] is not None:
        first = ratio_gate("geometric", lower, upper)
        if section["token_action"] == "clamp":
            return Correction(gates=first, weight=weight_of("token", lower, upper))
        second = ratio_gate("token", lower, upper, scope="kept")
        return Correction(gates=first + second, weight=Weight(level="token"))
    return Correction(gates=ratio_gate(unit, lower, upper, action=action), weight=Weight(level="geometric"))


def _check(section: dict[str, Any], documented: bool) -> None:
    """What AReaL refuses itself."""
    metric, lower, upper = section["metric"], section["lower"], section["upper"]
    if metric == "binary_kl" and not documented:
        raise ConfigError(
            f"AReaL {SECTION}.metric binary_kl is documented, but refused by AReaL's own validation (1.0.4 and HEAD). Use kl_k2 or "
            "kl_k3, or read with documented=True."
        )
    if upper is None:
        raise ConfigError(
            f"AReaL {SECTION}.upper needs a number, got null. Set rejection_sampling: null to switch it off."
        )
    if metric == "ratio" and (upper <= 1 or (lower is not None and lower <= 0 and section["action"] == "mask")):
        raise ConfigError(f"AReaL {SECTION} with metric ratio needs upper > 1 and lower > 0, got [{lower}, {upper}].")
    if metric in ("kl_k2", "kl_k3", "binary_kl") and upper <= 0:
        raise ConfigError(f"AReaL {SECTION}.upper needs to be above 0 for {metric}, got {upper:g}.")
    if section["action"] == "clamp" and metric != "ratio":
        raise ConfigError(f"AReaL {SECTION}.action clamp needs metric ratio, got {metric}. Use action mask.")
    if section["token_action"] is not None and (section["level"], metric, section["action"]) != (
        "sequence",
        "ratio",
        "mask",
    ):
        raise ConfigError(f"AReaL {SECTION}.token_action needs level sequence, metric ratio and action mask (#1218).")


def _m2po(given: Given, section: dict[str, Any] | None) -> Correction:
    if section is not None:
        raise ConfigError(
            "AReaL actor.m2_threshold together with rejection_sampling cannot be said: the loss divides by the tokens that are "
            "left after the first and before the second. Use one of them."
        )
    gate = Gate(metric="second_moment", level="batch", upper=given["m2_threshold"], strict=True)
    return Correction(gates=(gate,), weight=Weight(level="one"), denominator="trained" if given.documented else "kept")


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Each way in which one gate and one weight can be said; reading it back decides."""
    weight = rule.weight
    if not rule.gates and (weight is None or weight.level == "one"):
        if rule.policies == "bypass":
            yield {SECTION: None, DECOUPLED: False, "actor.recompute_logprob": False}
        yield {SECTION: None, "actor.recompute_logprob": True}
    if not rule.gates and weight is not None:
        yield _fields(level="token", action="clamp", upper=weight.upper, lower=weight.lower)
        if weight.outside == "zero":
            yield _fields(level="token", action="mask", upper=weight.upper, lower=weight.lower)
    if len(rule.gates) == 1 and rule.gates[0].agg == "budget":
        yield {"actor.m2_threshold": rule.gates[0].upper, DECOUPLED: True}
    if rule.gates:
        gate = rule.gates[0]
        metric = next((name for name, row in METRICS.items() if row["metric"] == gate.metric), "ratio")
        fields = {"level": gate.level, "metric": metric, "upper": gate.upper, "lower": gate.lower}
        if gate.level == "sequence":
            fields["agg"] = gate.agg
        for action in ("mask", "clamp"):
            yield _fields(**fields, action=action)
        for token_action in ("mask", "clamp"):
            yield _fields(**fields, action="mask", token_action=token_action)


def _fields(**fields: Any) -> dict[str, Any]:
    """The section, and the switch without which AReaL ignores it."""
    return {f"{SECTION}.{name}": value for name, value in fields.items() if value is not None} | {DECOUPLED: True}
