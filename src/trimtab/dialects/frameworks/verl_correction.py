"""verl 0.9.1: `algorithm.rollout_correction`, the loss `bypass_mode` with a section of its own, and three predecessors.

ℓ = log proximal − log behavior. Weights and rejection both look at the original mask; options are joined by AND.

Two switches choose what is compared, `loss_mode: bypass_mode` of the loss and `bypass_mode: true` of algorithm.rollout_correction:
both: current with behavior, by policy_loss.rollout_correction. The second alone: the loss divides by behavior, and nothing else acts.
The first alone: rejection of the algorithm's section by proximal/behavior before the step, then of the loss's by current/proximal. Neither:
algorithm.rollout_correction, by proximal/behavior. Both trainers do so; `trainer.use_v1` decides what a token mean divides by.

The keys before today's: `tis_imp_ratio_cap` (#2953), level × mode × veto (#3694), ratio rejection (#3984). Read as that code computed: the
ratio itself was tested, its log limited after gathering.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

from trimtab.config.base import excerpt
from trimtab.config.correction import Correction, Gate, Limit, Weight
from trimtab.dialects.framework import Given, Key
from trimtab.dialects.parts import OFF, OPEN, Gates, limit, ratio_gate, refuse, weight_of
from trimtab.dialects.values import choice, flag, number, positive, raw, text
from trimtab.errors import ConfigError, UnknownNameError, nearest

SECTION = "algorithm.rollout_correction"
LOSS_SECTION = "actor_rollout_ref.actor.policy_loss.rollout_correction"
FIELDS = (
    ("rollout_is", raw, None),
    ("rollout_is_threshold", raw, 2.0),
    ("rollout_is_batch_normalize", flag, False),
    ("rollout_rs", text, None),
    ("rollout_rs_threshold", raw, None),
    ("bypass_mode", flag, False),
    ("loss_type", choice("ppo_clip", "reinforce"), "ppo_clip"),
)
OPTIONS = tuple(name for name, *_ in FIELDS)
A, P = "actor_rollout_ref.actor", "actor_rollout_ref.actor.policy_loss"
BYPASS = "bypass_mode"
FORCED = {"sapo": "seq-mean-token-mean", "geo_mean": "seq-mean-token-mean"}
"""Losses that choose their own reduction."""


# ── today's keys ──────────────────────────────────────────────────────────────────────────────────────────────────────


def is_threshold(value: Any) -> tuple[float | None, float]:
    """`2.0` or `"2.0"`: a cap. `"0.5_2.0"`: a band, 0 outside."""
    path = f"verl {SECTION}.rollout_is_threshold"
    if isinstance(value, str) and "_" in value:
        parts = value.split("_")
        if len(parts) != 2:
            raise ConfigError(f'{path} needs a number or "low_high", got {value!r}.')
        lower, upper = (number(path, part) for part in parts)
        if not 0 < lower <= upper:
            raise ConfigError(f'{path} needs 0 < low <= high in "low_high", got {value!r}.')
        return lower, upper
    return None, positive(path, value)


SAFETY = 20.0
FAR = math.log(OPEN)
"""The log of a ratio bound that stands for an open side."""
_LEVELS = {"token": {"level": "token"}} | {
    f"seq_{agg}": {"level": "sequence", "agg": agg} for agg in ("sum", "mean", "max")
}
REJECTIONS: dict[str, dict[str, Any]] = {
    f"{level}_{metric}": {"metric": metric, **shape}
    for level, shape in _LEVELS.items()
    for metric in ("k1", "k2", "k3")
    if f"{level}_{metric}" != "seq_max_k1"
} | {"binary_kl": {"metric": "binary_kl", "level": "token", "direction": "max"}}
"""Option of `rollout_rs` → gate. k1 and k3 as shipped run from behavior to proximal. `binary_kl` is verl #6800."""


def correction_of(given: Given) -> Correction:
    """The correction of the first generation of keys that is present, newest first."""
    before = removed_correction(given)
    if before is not None:
        return before
    if given["loss_mode"] == BYPASS:
        _look_at_copies(given)
        return _bypass(given, "loss.") if bypasses(given) else _by_proximal(given)
    if bypasses(given):
        return _bypass(given, "") if given.documented else OFF.but(policies="bypass")
    return Correction(
        gates=gates_read(given, ""),
        weight=_weight(given, "") or Weight(level="one"),
        normalize="batch" if _normalizes(given, "") else None,
        denominator=_denominator(given),
    )


def _look_at_copies(given: Given) -> None:
    """Options of the loss may be a copy, `rollout_correction: ${algorithm.rollout_correction}`, so that what is copied acts too."""
    for name in OPTIONS:
        if given.has(name) and given.values[name] == given.values.get(f"loss.{name}"):
            _ = given[name]


def _by_proximal(given: Given) -> Correction:
    """The loss takes for the sampler's what the trainer worked out anew, so it rejects by current/proximal what is left by then.

    Rejection of sequences goes first: each option looks at the mask before the others.
    """
    before, own = gates_read(given, ""), gates_read(given, "loss.")
    scope = "kept" if before else "trained"
    own = tuple(gate.but(pair="current/proximal", scope=scope) for gate in sorted(own, key=lambda gate: gate.level))
    mode = _reduction(given)
    is_shrunk = mode == "token-mean" and not given["use_v1"]  # it counts between the two
    refuse(
        is_shrunk and before and own,
        "verl loss_mode bypass_mode without bypass_mode, with rollout_rs in both sections, token-mean and the legacy trainer",
        f"the mean counts after one rejection and before the other. Set {SECTION}.bypass_mode=true",
    )
    counted = before if is_shrunk else (*before, *own) if mode == "seq-mean-token-mean" else ()
    return Correction(gates=(*before, *own), weight=Weight(level="one"), denominator="kept" if counted else "trained")


def _denominator(given: Given) -> Literal["trained", "kept"]:
    """Means within a sequence run over what is left of it, and are divided by rows, rejected ones included; a token mean counts
    before rejection in the v1 trainer and after it in the legacy one."""
    after = counts_within(given, "") or (_reduction(given) == "token-mean" and not given["use_v1"])
    return "kept" if after and given["rollout_rs"] else "trained"


def counts_within(given: Given, place: str) -> bool:
    """Whether a mean within a sequence runs over fewer tokens than before; of whole sequences that are rejected nothing is left."""
    named = str(given[f"{place}rollout_rs"] or "")
    parts = not all(option.strip().startswith("seq") or option == "geometric" for option in named.split(","))
    return _reduction(given) == "seq-mean-token-mean" and parts


def _reduction(given: Given) -> str:
    return FORCED.get(given["loss_mode"]) or given["loss_agg_mode"]


def _bypass(given: Given, place: str) -> Correction:
    """Current against behavior; PPO-clip leaves the weight out, its own ratio is that weight.

    The engine counts tokens and rows before it calls the loss, which rejects: only a mean within a sequence runs over what is left.
    """
    reinforce = given[f"{place}loss_type"] == "reinforce" or given.is_on(
        "use_pure_rollout_correction", "use_policy_gradient"
    )
    weight = _weight(given, place) if reinforce else None
    return Correction(
        policies="bypass",
        gates=gates_read(given, place),
        weight=weight or Weight(level="one"),
        normalize="batch" if weight and _normalizes(given, place) else None,
        denominator="kept" if given[f"{place}rollout_rs"] and counts_within(given, place) else "trained",
    )


def _normalizes(given: Given, place: str) -> bool:
    return bool(given[f"{place}rollout_is_batch_normalize"]) and given[f"{place}rollout_is"] is not None


def _weight(given: Given, place: str) -> Weight | None:
    level = given[f"{place}rollout_is"]
    if level is None or level is False:
        return None
    if level not in ("token", "sequence"):
        raise UnknownNameError(f"verl {SECTION}.rollout_is needs token, sequence or null, got {excerpt(level)}.")
    lower, upper = is_threshold(given[f"{place}rollout_is_threshold"])
    return weight_of(level, lower, upper, zero=lower is not None, limit=limit(SAFETY, level))


def gates_read(given: Given, place: str) -> Gates:
    """The rejection that a section asks for: `place` is empty for algorithm's, `loss.` for that of the loss."""
    named, threshold = given[f"{place}rollout_rs"], given[f"{place}rollout_rs_threshold"]
    veto = given["rollout_token_veto_threshold"]
    vetoes = ratio_gate("every", veto, None) if veto and not place else ()
    if named is None:
        return vetoes
    if named in RATIO_REJECTIONS:
        return ratio_rejection(given, named) + vetoes
    options = list(dict.fromkeys(part.strip() for part in named.split(",") if part.strip()))
    for option in options:
        if option not in REJECTIONS:
            raise UnknownNameError(f"verl rollout_rs has no option {option!r}. {nearest(option, REJECTIONS)}")
    if threshold is None:
        raise ConfigError(f"verl rollout_rs_threshold needs a value for rollout_rs {named!r}, got nothing.")
    bounds = [part.strip() for part in str(threshold).split(",")]
    if len(bounds) not in (1, len(options)):
        raise ConfigError(
            f"verl rollout_rs_threshold needs one value, or one for each of {len(options)} options, got {threshold!r}."
        )
    bounds = bounds * len(options) if len(bounds) == 1 else bounds
    return tuple(_gate(option, bound, given.documented) for option, bound in zip(options, bounds, strict=True)) + vetoes


def _gate(option: str, bound: str, documented: bool) -> Gate:
    fields = dict(REJECTIONS[option])
    if fields["metric"] != "binary_kl":
        fields["limit"] = Limit(bound=SAFETY, at="token")
    lower, upper = rs_threshold(option, bound)
    if fields["metric"] == "k1":
        fields |= {"lower": math.log(lower), "direction": "reverse" if documented else "forward"}
        upper = math.log(upper)
    return Gate(**fields, upper=upper)


def rs_threshold(option: str, bound: str) -> tuple[float, float]:
    """The bounds of one option: `low_high` or `high` (low = 1/high) for k1, one number elsewhere."""
    path = f"verl rollout_rs_threshold for {option}"
    parts = [number(path, part) for part in bound.split("_")]
    banded = REJECTIONS[option]["metric"] == "k1"
    if len(parts) > (2 if banded else 1) or min(parts) <= 0:
        raise ConfigError(
            f"{path} needs {'one number or low_high' if banded else 'one number'} above 0, got {bound!r}."
        )
    lower, upper = (parts[0], parts[1]) if len(parts) == 2 else (1 / parts[0], parts[0])
    if banded and lower > upper:
        raise ConfigError(f"{path} needs low <= high, got {bound!r}.")
    return lower, upper


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Token or product weight, and one option per gate."""
    found: dict[str, Any] = {}
    weight = rule.weight
    if weight is not None and weight.level != "one":
        if weight.outside == "zero" and weight.lower is not None and weight.upper is not None:
            threshold: Any = f"{weight.lower!r}_{weight.upper!r}"
        else:
            threshold = weight.upper if weight.upper is not None else OPEN
        found |= {"rollout_is": weight.level, "rollout_is_threshold": threshold}
        if rule.normalize:
            found["rollout_is_batch_normalize"] = True
    options = [_option(gate) for gate in rule.gates]
    if options:
        found["rollout_rs"] = ",".join(name for name, _ in options)
        found["rollout_rs_threshold"] = ",".join(bound for _, bound in options)
    place = SECTION
    if rule.policies == "bypass":
        place = LOSS_SECTION
        found |= {"loss_type": "reinforce" if "rollout_is" in found else "ppo_clip"}
    full = {f"{place}.{name}": value for name, value in found.items()} or {f"{place}.rollout_is": None}
    if rule.policies == "bypass":
        full |= {f"{SECTION}.bypass_mode": True, f"{P}.loss_mode": BYPASS}
    elif rule.denominator == "kept":
        full["trainer.use_v1"] = False
    yield full
    if rule.policies == "bypass" and found.keys() == {"loss_type"}:
        yield {f"{SECTION}.bypass_mode": True}  # beside any loss


def _option(gate: Gate) -> tuple[str, str]:
    """An option and its threshold; the bounds of a ratio turn over, since k1 is its negated log."""
    shape = {"level": gate.level} if gate.agg is None else {"level": gate.level, "agg": gate.agg}
    metric = "k1" if gate.metric == "ratio" else gate.metric
    for name, row in REJECTIONS.items():
        if row["metric"] == metric and {key: row[key] for key in ("level", "agg") if key in row} == shape:
            return name, _bound(gate)
    return "", ""


def _bound(gate: Gate) -> str:
    if gate.metric not in ("ratio", "k1"):
        return repr(gate.upper)
    log = math.log if gate.metric == "ratio" else float
    ends = [end if bound is None else log(bound) for bound, end in ((gate.lower, -FAR), (gate.upper, FAR))]
    turned = gate.metric == "ratio" or gate.direction == "reverse"
    low, high = (-ends[1], -ends[0]) if turned else ends
    return "_".join(
        f"{math.exp(end):.15g}" if abs(end) < FAR else f"1e{math.copysign(12, end):+g}" for end in (low, high)
    )


# ── the keys before ───────────────────────────────────────────────────────────────────────────────────────────────────

REMOVED_KEYS = (
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
RATIO_REJECTIONS = {"token": "token", "sequence": "sequence", "geometric": "geometric"}
"""`rollout_rs` before #4544 → unit whose ratio was tested."""
FIRST_KEYS = ("rollout_is_level", "rollout_is_mode", "rollout_is_threshold_lower", "rollout_is_veto_threshold")


def bypasses(given: Given) -> bool:
    """Whether bypass is asked for, by today's key or the one before."""
    return given.is_on("bypass_mode", "bypass_old_logprob_for_rollout")


def is_removed(given: Given) -> bool:
    """Whether a key or value that was removed is used."""
    return given.has(*(key.label for key in REMOVED_KEYS)) or given["rollout_rs"] in RATIO_REJECTIONS


def removed_correction(given: Given) -> Correction | None:
    """The correction of the two oldest generations; None where the settings are younger."""
    if given.has("tis_imp_ratio_cap") and not given.has("rollout_is", "rollout_rs"):
        cap = given["tis_imp_ratio_cap"]
        return Correction(weight=weight_of("token", upper=cap)) if cap > 0 else OFF
    return _first_generation(given) if given.has(*FIRST_KEYS) else None


def ratio_rejection(given: Given, named: str) -> Gates:
    """Before #4544 the ratio itself was tested, its log limited after gathering."""
    unit = RATIO_REJECTIONS[named]
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
