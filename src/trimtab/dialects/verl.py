"""verl 0.9.1: `algorithm.rollout_correction`, and its three predecessors.

ℓ = log proximal − log behavior. Weights and rejection both look at the original mask; options are joined by AND.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

from trimtab.config.algebra import Correction, Gate, Limit, Weight
from trimtab.config.base import shown
from trimtab.dialects import verl_removed as removed
from trimtab.dialects.keys import Dialect, Given, Key, Remark, choice, flag, number, raw, text
from trimtab.dialects.objectives import verl
from trimtab.dialects.parts import OFF, Gates, limit, ratio_gate, weighted
from trimtab.errors import ConfigError, UnknownNameError, nearest

SECTION = "algorithm.rollout_correction"
LOSS_SECTION = "actor_rollout_ref.actor.policy_loss.rollout_correction"
SAFETY = 20.0
FAR = math.log(1e12)
"""The log of a ratio bound that stands for an open side."""

_OPTIONS = (
    ("rollout_is", raw, None),
    ("rollout_is_threshold", raw, 2.0),
    ("rollout_is_batch_normalize", flag, False),
    ("rollout_rs", text, None),
    ("rollout_rs_threshold", raw, None),
    ("bypass_mode", flag, False),
    ("loss_type", choice("ppo_clip", "reinforce"), "ppo_clip"),
)

KEYS = (
    *(
        Key(f"{SECTION}.{name}", kind, default, also=(f"algorithm.{name}",) if name.startswith("rollout_is") else ())
        for name, kind, default in _OPTIONS
    ),
    *(Key(f"{LOSS_SECTION}.{name}", kind, default, name=f"loss.{name}") for name, kind, default in _OPTIONS),
    Key("trainer.use_v1", flag, True),
    *removed.KEYS,
)

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


def correction(given: Given) -> Correction:
    """The correction of the first generation of keys that is present, newest first."""
    before = removed.correction(given)
    if before is not None:
        return before
    if given["loss_mode"] == "bypass_mode":
        return _bypass(given, "loss.")
    if _bypasses(given):
        return _bypass(given, "") if given.documented else OFF.but(policies="bypass")
    return Correction(
        gates=_gates(given, ""),
        weight=_weight(given, "") or Weight(level="one"),
        normalize="batch" if _normalizes(given, "") else None,
        denominator=_denominator(given),
    )


def _denominator(given: Given) -> Literal["trained", "kept"]:
    """Means within a sequence run over what is left of it; sums divide by rows, rejected ones included; a token mean counts
    before rejection in the v1 trainer and after it in the legacy one."""
    mode = verl.FORCED.get(given["loss_mode"]) or given["loss_agg_mode"]
    after = mode == "seq-mean-token-mean" or (mode == "token-mean" and not given["use_v1"])
    return "kept" if after and given["rollout_rs"] else "trained"


def _bypasses(given: Given) -> bool:
    return given.set("bypass_mode", "bypass_old_logprob_for_rollout")


def _bypass(given: Given, place: str) -> Correction:
    """Current against behavior; PPO-clip leaves the weight out, its own ratio is that weight."""
    reinforce = given[f"{place}loss_type"] == "reinforce" or given.set(
        "use_pure_rollout_correction", "use_policy_gradient"
    )
    weight = _weight(given, place) if reinforce else None
    return Correction(
        policies="bypass",
        gates=_gates(given, place),
        weight=weight or Weight(level="one"),
        normalize="batch" if weight and _normalizes(given, place) else None,
        denominator="kept" if given[f"{place}rollout_rs"] else "trained",
    )


def _normalizes(given: Given, place: str) -> bool:
    return bool(given[f"{place}rollout_is_batch_normalize"]) and given[f"{place}rollout_is"] is not None


def _weight(given: Given, place: str) -> Weight | None:
    level = given[f"{place}rollout_is"]
    if level is None or level is False:
        return None
    if level not in ("token", "sequence"):
        raise UnknownNameError(f"verl {SECTION}.rollout_is needs token, sequence or null, got {shown(level)}.")
    lower, upper = is_threshold(given[f"{place}rollout_is_threshold"])
    return weighted(level, lower, upper, zero=lower is not None, limit=limit(SAFETY, level))


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
    upper = number(path, value)
    if upper <= 0:
        raise ConfigError(f"{path} needs to be above 0, got {shown(value)}.")
    return None, upper


def _gates(given: Given, place: str) -> Gates:
    named, threshold = given[f"{place}rollout_rs"], given[f"{place}rollout_rs_threshold"]
    veto = given["rollout_token_veto_threshold"]
    vetoes = ratio_gate("every", veto, None) if veto and not place else ()
    if named is None:
        return vetoes
    if named in removed.REJECTIONS:
        return removed.gate(given, named) + vetoes
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


# ── writing ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Token or product weight, and one option per gate."""
    found: dict[str, Any] = {}
    weight = rule.weight
    if weight is not None and weight.level != "one":
        if weight.outside == "zero" and weight.lower is not None and weight.upper is not None:
            threshold: Any = f"{weight.lower!r}_{weight.upper!r}"
        else:
            threshold = weight.upper if weight.upper is not None else 1e12
        found |= {"rollout_is": weight.level, "rollout_is_threshold": threshold}
        if rule.normalize:
            found["rollout_is_batch_normalize"] = True
    options = [_written(gate) for gate in rule.gates]
    if options:
        found["rollout_rs"] = ",".join(name for name, _ in options)
        found["rollout_rs_threshold"] = ",".join(bound for _, bound in options)
    place = SECTION
    if rule.policies == "bypass":
        place = LOSS_SECTION
        found |= {"bypass_mode": True, "loss_type": "reinforce" if "rollout_is" in found else "ppo_clip"}
    full = {f"{place}.{name}": value for name, value in found.items()} or {f"{place}.rollout_is": None}
    if rule.policies == "bypass":
        full["actor_rollout_ref.actor.policy_loss.loss_mode"] = "bypass_mode"
    elif rule.denominator == "kept":
        full["trainer.use_v1"] = False
    yield full


def _written(gate: Gate) -> tuple[str, str]:
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
    return f"{math.exp(low):.15g}_{math.exp(high):.15g}"


# ── remarks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _options(given: Given, *, place: str = "") -> list[str]:
    return [part.strip() for part in (given[f"{place}rollout_rs"] or "").split(",") if part.strip()]


def _lopsided(given: Given) -> bool:
    """Whether a k1 band is not symmetric about 1, so that its inversion shows."""
    gates = [gate for gate in correction(given).gates if gate.metric == "k1"]
    return any(abs((gate.lower or 0) + (gate.upper or 0)) > 1e-9 for gate in gates)


def _mode(given: Given) -> str:
    """The reduction that is really used."""
    return verl.FORCED.get(given["loss_mode"]) or given["loss_agg_mode"]


def _has(given: Given, *endings: str) -> bool:
    return any(option.endswith(endings) for option in _options(given) + _options(given, place="loss."))


REMARKS = (
    Remark(
        "rollout_rs_threshold",
        "defect",
        "The bounds {rollout_rs_threshold} act on the inverse ratio: k1 tests −log r, so r is kept in [1/high, 1/low], not in "
        "[low, high] as documented; write the reciprocal bounds to get what the documentation says.",
        lambda given: not given.documented and _has(given, "k1") and not _bypasses(given) and _lopsided(given),
    ),
    Remark(
        "rollout_rs_threshold",
        "note",
        "k1 bounds act on the inverse ratio; these are reciprocal, so nothing changes, but asymmetric ones would turn over.",
        lambda given: not given.documented and _has(given, "k1") and not _bypasses(given) and not _lopsided(given),
    ),
    Remark(
        "bypass_mode",
        "defect",
        "Bypass settings never reach the loss: the workers hold a copy of the configuration made earlier, so rollout_is, "
        "rollout_rs and loss_type are ignored and plain PPO against the rollout log-probs is computed; also set "
        "actor_rollout_ref.actor.policy_loss.loss_mode=bypass_mode and policy_loss.rollout_correction.*.",
        lambda given: _bypasses(given) and given["loss_mode"] != "bypass_mode" and not given.documented,
    ),
    Remark(
        "loss.rollout_is",
        "note",
        "With loss_type ppo_clip the weight is only logged: the PPO ratio already is current/behavior; use loss_type reinforce "
        "to weigh by it.",
        lambda given: (
            given["loss_mode"] == "bypass_mode"
            and given["loss.loss_type"] == "ppo_clip"
            and given.set("loss.rollout_is")
        ),
    ),
    Remark(
        "loss.rollout_is",
        "surprise",
        "Left out under policy_loss it is `sequence` in the dataclass and null in the YAML of algorithm.rollout_correction; read "
        "here as null; write it down.",
        lambda given: (
            given["loss_mode"] == "bypass_mode"
            and given["loss.loss_type"] == "reinforce"
            and not given.said("loss.rollout_is")
        ),
    ),
    Remark(
        "rollout_is_batch_normalize",
        "surprise",
        "In bypass mode the mean is taken per micro-batch, so the step depends on how the batch is split; switch it off.",
        lambda given: given["loss_mode"] == "bypass_mode" and given.set("loss.rollout_is_batch_normalize"),
    ),
    Remark(
        "rollout_is_threshold",
        "surprise",
        "A sequence threshold of {rollout_is_threshold} bounds the product over the sequence; AReaL, ms-swift, OpenRLHF and "
        "open-instruct mean the geometric mean by `sequence`, which for long answers differs by orders of magnitude.",
        lambda given: given["rollout_is"] == "sequence" and not _bypasses(given),
    ),
    Remark(
        "rollout_rs",
        "surprise",
        "Token rejection runs before advantages: where it removes the last token, REINFORCE++, GAE, ReMax and OTB lose the whole "
        "reward of the sequence; use GRPO or RLOO, or reject by sequence.",
        lambda given: (
            any(option.startswith(("token", "binary")) for option in _options(given)) and not _bypasses(given)
        ),
    ),
    Remark(
        "rollout_rs",
        "note",
        "Rejected rows still vote in group baselines (GRPO, RLOO); ours leave them out unless baseline is all.",
        lambda given: bool(_options(given)) and not _bypasses(given),
    ),
    Remark(
        "use_v1",
        "surprise",
        "The legacy trainer divides by the tokens left after rejection, so rejected tokens raise the others' step; the v1 trainer "
        "and other frameworks count before rejection.",
        lambda given: not given["use_v1"] and bool(_options(given)),
    ),
    Remark(
        "rollout_rs",
        "note",
        "A mean per sequence runs over the tokens that rejection left of it, and is divided by ppo_mini_batch_size × n, rejected rows "
        "included; read as denominator kept: pass a Denominator with that number of rows.",
        lambda given: bool(_options(given)) and not _bypasses(given) and _mode(given) == "seq-mean-token-mean",
    ),
    Remark(
        "loss.rollout_rs",
        "note",
        "Bypass rejects inside the loss: a mean per sequence runs over what is left, while tokens and rows are counted before; read as "
        "denominator kept, which is exact where one call is the step: pass a Denominator with the counts before rejection otherwise.",
        lambda given: given["loss_mode"] == "bypass_mode" and bool(_options(given, place="loss.")),
    ),
    Remark(
        "rollout_rs",
        "note",
        "Rejected tokens leave the KL and entropy terms of the actor too, and the critic's loss; in bypass mode they do not.",
        lambda given: (
            bool(_options(given)) and not _bypasses(given) and (given["use_kl_loss"] or given["entropy_coeff"])
        ),
    ),
    Remark(
        "rollout_rs_threshold",
        "note",
        "One number bounds k1 below by its inverse; AReaL and TRL leave that side open.",
        lambda given: _has(given, "k1") and "_" not in str(given["rollout_rs_threshold"]) and not _bypasses(given),
    ),
    Remark(
        "rollout_is_threshold",
        "defect",
        "Where every weight falls outside the band {rollout_is_threshold}, the effective sample size divides by zero and the run stops; "
        "widen the band.",
        lambda given: given.set("rollout_is") and "_" in str(given["rollout_is_threshold"]) and not _bypasses(given),
    ),
    Remark(
        "loss_agg_mode",
        "surprise",
        "A NaN log-prob at padding makes a NaN weight there, and {loss_agg_mode} multiplies it by the mask, so the loss is NaN; "
        "token-mean is safe.",
        lambda given: given.set("rollout_is") and str(_mode(given)).startswith("seq-") and not _bypasses(given),
    ),
    Remark(
        "rollout_is",
        "note",
        "rollout_is_seq_*, perplexities and chi2_seq also average over rows without tokens.",
        lambda given: given["rollout_is"] == "sequence" and not _bypasses(given),
    ),
    Remark(
        "adv_estimator",
        "surprise",
        "With the v1 trainer, where the last row of a session of several trajectories is rejected, every row of the session gets "
        "advantage 0; reject by token, or use the legacy trainer.",
        lambda given: (
            given["use_v1"]
            and bool(_options(given))
            and given.said("adv_estimator")
            and given["adv_estimator"] == "grpo"
        ),
    ),
    Remark(
        "rollout_rs",
        "note",
        "binary_kl (#6800) is not in verl 0.9.1; it is read as proposed there: the larger of both directions, probabilities held "
        "within [1e-6, 1 − 1e-6].",
        lambda given: "binary_kl" in _options(given) + _options(given, place="loss."),
    ),
)


_geo = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.999_1.001"}
_k3 = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01}
_pg: dict[str, Any] = {"bypass_mode": True, "loss_type": "reinforce"}
PRESETS: dict[str, dict[str, Any]] = {
    "decoupled_token_is": {"rollout_is": "token", "rollout_is_threshold": 2.0},
    "decoupled_seq_is": {"rollout_is": "sequence", "rollout_is_threshold": 2.0},
    "decoupled_token_icepop": {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"},
    "decoupled_seq_is_rs": {
        "rollout_is": "sequence",
        "rollout_is_threshold": 2.0,
        "rollout_rs": "seq_sum_k1",
        "rollout_rs_threshold": "0.5_2.0",
    },
    "decoupled_geo_rs": _geo,
    "decoupled_geo_rs_seq_tis": {"rollout_is": "sequence", **_geo},
    "decoupled_geo_rs_token_tis": {"rollout_is": "token", **_geo},
    "decoupled_k3_rs": _k3,
    "decoupled_k3_rs_seq_tis": {"rollout_is": "sequence", **_k3},
    "decoupled_k3_rs_token_tis": {"rollout_is": "token", **_k3},
    "bypass_ppo_clip": {"bypass_mode": True, "loss_type": "ppo_clip"},
    "bypass_ppo_clip_geo_rs": {"bypass_mode": True, "loss_type": "ppo_clip", **_geo},
    "bypass_ppo_clip_k3_rs": {"bypass_mode": True, "loss_type": "ppo_clip", **_k3},
    "bypass_pg_is": {**_pg, "rollout_is": "sequence", "rollout_is_threshold": 2.0},
    "bypass_pg_token_icepop": {**_pg, "rollout_is": "token", "rollout_is_threshold": "0.5_5.0"},
    "bypass_pg_geo_rs": {**_pg, **_geo},
    "bypass_pg_geo_rs_seq_tis": {**_pg, "rollout_is": "sequence", "rollout_is_threshold": 2.0, **_geo},
    "bypass_pg_geo_rs_token_tis": {**_pg, "rollout_is": "token", "rollout_is_threshold": 2.0, **_geo},
    "disabled": {},
}

DIALECT = Dialect(
    name="verl",
    title="verl",
    version="0.9.1",
    keys=(*KEYS, *verl.KEYS),
    correction=correction,
    descent=verl.descent,
    estimation=verl.estimation,
    remarks=(*REMARKS, *removed.REMARKS, *verl.REMARKS),
    closed=(SECTION, LOSS_SECTION),
    roots=("actor_rollout_ref", "algorithm", "critic", "data", "reward_model", "trainer", "hydra", "ray_kwargs"),
    others=("rollout_is_fn",),
    apart=(
        "A NaN log-prob is rejected by rollout_rs and makes rollout_is NaN; ours takes the token as never trained.",
        "The mean over a sequence divides by length + 1e-8; ours by the length.",
    ),
    candidates=candidates,
    outdated=removed.is_said,
    presets=PRESETS,
)
