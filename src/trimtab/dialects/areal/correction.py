"""AReaL 1.0.4: `actor.rejection_sampling`, its predecessor, and the unmerged second stage of #1218.

ℓ = log proximal − log behavior. At sequence level with metric ratio the weight is the geometric mean, whatever `agg`;
with a KL metric it stays the token's own ratio.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Gate, Weight
from trimtab.dialects.areal import loss
from trimtab.dialects.keys import Dialect, Given, Key, Remark, choice, flag, number
from trimtab.dialects.parts import OFF, ratio_gate, weighted
from trimtab.errors import ConfigError

SECTION = "actor.rejection_sampling"

KEYS = (
    Key(f"{SECTION}.level", choice("token", "sequence"), "token"),
    Key(f"{SECTION}.action", choice("mask", "clamp"), "mask"),
    Key(f"{SECTION}.metric", choice("ratio", "kl_k1", "kl_k2", "kl_k3", "binary_kl"), "ratio"),
    Key(f"{SECTION}.agg", choice("sum", "mean", "max"), "mean"),
    Key(f"{SECTION}.upper", number, 5.0, null="open"),
    Key(f"{SECTION}.lower", number),
    Key(f"{SECTION}.token_action", choice("mask", "clamp")),
    Key("actor.m2_threshold", number),
    Key("actor.use_decoupled_loss", flag, True),
    Key("actor.recompute_logprob", flag, False),
    Key("actor.prox_logp_method", choice("recompute", "loglinear", "metrics", "reuse_train_logp"), "recompute"),
    Key("actor.behave_imp_weight_cap", number, 5.0, legacy=True, null="open", also=("actor.behav_imp_weight_cap",)),
    Key(
        "actor.behave_imp_weight_mode",
        choice("token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "disabled"),
        "token_mask",
        legacy=True,
    ),
)

METRICS: dict[str, dict[str, Any]] = {
    "kl_k1": {"metric": "k1", "direction": "reverse"},
    "kl_k2": {"metric": "k2"},
    "kl_k3": {"metric": "k3", "direction": "reverse"},
}
DOCUMENTED = METRICS | {
    "kl_k3": {"metric": "k3", "direction": "forward"},
    "binary_kl": {"metric": "binary_kl", "direction": "max"},
}
UNITS = {"sum": "sequence", "mean": "geometric", "max": "max"}


def correction(given: Given) -> Correction:
    """Rejection, or M2PO, or the weights of the predecessor."""
    section = _section(given)
    if given["m2_threshold"] is not None:
        return _m2po(given, section)
    if section is None or _inert(given) or given["use_sapo_loss"]:
        return OFF
    return _rejection(given, section)


def _inert(given: Given) -> bool:
    """Without a decoupled loss or recomputed log-probs, proximal is behavior and every ratio is 1."""
    return given.said("use_decoupled_loss") and not given["use_decoupled_loss"] and not given["recompute_logprob"]


def _section(given: Given) -> dict[str, Any] | None:
    """The fields of `rejection_sampling`, also where the older keys say them; None: no rejection."""
    names = ("level", "action", "metric", "agg", "upper", "lower", "token_action")
    if given.said(*names) or given.section(SECTION) == {}:
        return {name: given[name] for name in names}
    if not given.said("behave_imp_weight_cap", "behave_imp_weight_mode"):
        return None
    return migrated(given["behave_imp_weight_mode"], given["behave_imp_weight_cap"])


def migrated(mode: str, cap: float | None) -> dict[str, Any] | None:
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
            return Correction(weight=weighted("token", lower, upper))
        return Correction(gates=ratio_gate("token", lower, upper), weight=Weight(level="token"))
    unit = UNITS[section["agg"]]
    if section["token_action"] is not None:
        first = ratio_gate("geometric", lower, upper)
        if section["token_action"] == "clamp":
            return Correction(gates=first, weight=weighted("token", lower, upper))
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
    if section is not None and not _inert(given):
        raise ConfigError(
            "AReaL actor.m2_threshold together with rejection_sampling cannot be said: the loss divides by the tokens that are "
            "left after the first and before the second. Use one of them."
        )
    gate = Gate(metric="second_moment", level="batch", upper=given["m2_threshold"], strict=True)
    return Correction(gates=(gate,), weight=Weight(level="one"), denominator="trained" if given.documented else "kept")


# ── writing ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Each way in which one gate and one weight can be said; reading it back decides."""
    weight = rule.weight
    if not rule.gates and (weight is None or weight.level == "one"):
        yield {SECTION: None}
    if not rule.gates and weight is not None:
        yield _fields(level="token", action="clamp", upper=weight.upper, lower=weight.lower)
        if weight.outside == "zero":
            yield _fields(level="token", action="mask", upper=weight.upper, lower=weight.lower)
    if len(rule.gates) == 1 and rule.gates[0].agg == "budget":
        yield {"actor.m2_threshold": rule.gates[0].upper}
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
    return {f"{SECTION}.{name}": value for name, value in fields.items() if value is not None}


# ── remarks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rejects(given: Given, **fields: Any) -> bool:
    section = _section(given)
    return section is not None and all(section[name] == value for name, value in fields.items())


def _kl(given: Given) -> bool:
    section = _section(given)
    return section is not None and section["metric"] != "ratio"


REMARKS = (
    Remark(
        "metric",
        "defect",
        "kl_k3 runs in the other direction than documented: e^(−ℓ) − 1 + ℓ instead of r − 1 − log r, so a token whose ratio fell "
        "counts more than one whose ratio rose; verl's k3 is the documented one.",
        lambda given: _rejects(given, metric="kl_k3") and not given.documented,
    ),
    Remark(
        "metric",
        "surprise",
        "With level sequence and a KL metric the survivors keep their own token ratios as weights, unbounded; add metric ratio, "
        "or bound the weights elsewhere.",
        lambda given: _kl(given) and _rejects(given, level="sequence"),
    ),
    Remark(
        "metric",
        "note",
        "kl_k1 is +log(proximal/behavior), the opposite sign of verl's k1; one-sided or asymmetric bounds mean the mirror image "
        "there.",
        lambda given: _rejects(given, metric="kl_k1"),
    ),
    Remark(
        "agg",
        "surprise",
        "agg {agg} is only what is tested: the weight of the survivors is the geometric mean of the sequence.",
        lambda given: (
            _rejects(given, level="sequence", metric="ratio", token_action=None) and not _rejects(given, agg="mean")
        ),
    ),
    Remark(
        "level",
        "surprise",
        "`sequence` gathers by agg mean, the geometric mean; verl, TRL, SkyRL and slime mean the product by it.",
        lambda given: _rejects(given, level="sequence", metric="ratio", agg="mean"),
    ),
    Remark(
        "agg",
        "note",
        "agg has no effect at token level; drop it.",
        lambda given: given.said("agg") and _rejects(given, level="token"),
    ),
    Remark(
        "lower",
        "note",
        "Left out, the lower side is open; verl and slime take 1/upper there.",
        lambda given: _rejects(given, metric="ratio", lower=None, action="mask"),
    ),
    Remark(
        "use_decoupled_loss",
        "surprise",
        "Without use_decoupled_loss (or recompute_logprob) proximal is behavior, every ratio is 1 and rejection_sampling does "
        "nothing; switch it on.",
        lambda given: _inert(given) and _section(given) is not None,
    ),
    Remark(
        "use_decoupled_loss",
        "surprise",
        "A decoupled loss without rejection_sampling carries no importance weight at all; set rejection_sampling.",
        lambda given: given.said("use_decoupled_loss") and given["use_decoupled_loss"] and _section(given) is None,
    ),
    Remark(
        "token_action",
        "note",
        "token_action is #1218, not merged; read as after its review: both stages share the bounds and survivors weigh their own "
        "token ratio.",
        lambda given: given.set("token_action"),
    ),
    Remark(
        "behave_imp_weight_mode",
        "note",
        "behave_imp_weight_cap and _mode were replaced by rejection_sampling in #1088 and are read as its equivalent; `trimtab "
        "convert --from areal --to areal` rewrites them. The removed code kept rejected tokens in the mask with weight 0.",
        lambda given: given.said("behave_imp_weight_cap", "behave_imp_weight_mode"),
    ),
    Remark(
        "m2_threshold",
        "defect",
        "M2PO divides the loss by the tokens it leaves while the micro-batches are weighed by the tokens before, so every dropped "
        "token raises the step of the others; ours can count before (denominator trained).",
        lambda given: given["m2_threshold"] is not None and not given.documented,
    ),
    Remark(
        "m2_threshold",
        "note",
        "The budget is kept per micro-batch, and of equal values at its edge some go and some stay; ours is kept over the whole "
        "batch and equal values go together.",
        lambda given: given["m2_threshold"] is not None,
    ),
    Remark(
        "prox_logp_method",
        "surprise",
        "loglinear does not recompute proximal log-probs but interpolates them between behavior and current; pass those as "
        "proximal to get the same numbers.",
        lambda given: given["prox_logp_method"] == "loglinear",
    ),
    Remark(
        "prox_logp_method",
        "defect",
        "Versions are not shifted by one like log-probs and mask, so the first token of an answer is never interpolated and one token "
        "per weight update has the wrong version; recompute instead.",
        lambda given: given["prox_logp_method"] == "loglinear",
    ),
    Remark(
        "prox_logp_method",
        "note",
        "reuse_train_logp takes the log-probs of the first pass as proximal and forces one mini-batch; pass current, detached, as "
        "proximal.",
        lambda given: given["prox_logp_method"] == "reuse_train_logp",
    ),
    Remark(
        "use_sapo_loss",
        "surprise",
        "The SAPO loss never reads rejection_sampling; use the PPO loss to reject.",
        lambda given: bool(given["use_sapo_loss"]) and _section(given) is not None,
    ),
)

DIALECT = Dialect(
    name="areal",
    title="AReaL",
    version="1.0.4",
    keys=(*KEYS, *loss.KEYS),
    correction=correction,
    descent=loss.descent,
    estimation=loss.estimation,
    remarks=(*REMARKS, *loss.REMARKS),
    closed=(SECTION, *loss.CLOSED),
    roots=(
        "actor",
        "ref",
        "critic",
        "rollout",
        "gconfig",
        "cluster",
        "train_dataset",
        "experiment_name",
        "saver",
        "evaluator",
    ),
    apart=(
        "A non-finite log-ratio counts as 0 (kept, weight 1) with metric ratio and is rejected with KL metrics; ours takes the "
        "token as never trained.",
        "Under mean_level batch and std_level group the only valid element of a whole batch becomes 0; ours keeps its value.",
    ),
    candidates=candidates,
)
