"""slime (624b824a): `--use-tis`, the IcePop function, the `mis` recipe, and the off-policy sequence mask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Weight
from trimtab.dialects.keys import Dialect, Given, Key, Remark, choice, flag, number, positive, text
from trimtab.dialects.parts import Gates, alone, limit, opsm, ratio_gate, weighted
from trimtab.dialects.slime import loss
from trimtab.errors import ConfigError

SAFETY = 20.0
LEVELS = choice("token", "sequence", "geometric")
RECIPE = (
    Key("use_rs", flag, False),
    Key("tis_level", LEVELS, "token"),
    Key("rs_level", LEVELS, "token"),
    Key("tis_mode", choice("truncate", "clip", "mask"), "truncate"),
    Key("tis_lower_bound", number, 0.5, null="open"),
    Key("tis_upper_bound", positive, 2.0),
    Key("rs_lower_bound", number),
    Key("rs_upper_bound", number),
    Key("rs_veto_threshold", number, 1e-4, null="open"),
    Key("tis_batch_normalize", flag, True),
)
"""examples/train_infer_mismatch_helper/mis.yaml"""

KEYS = (
    Key("use_tis", flag, False),
    Key("tis_clip", number, 2.0),
    Key("tis_clip_low", number, 0.0),
    Key("custom_tis_function_path", text),
    Key("use_rollout_logprobs", flag, False),
    Key("use_opsm", flag, False),
    Key("opsm_delta", number, 1e-4),
    *RECIPE,
)


def correction(given: Given) -> Correction:
    """The weight of whichever function is configured, and the sequence mask."""
    gates = _opsm(given)
    if not given["use_tis"]:
        if given["use_rollout_logprobs"]:
            return Correction(policies="bypass", gates=gates, weight=Weight(level="one"))
        return alone(given, gates)
    if given["use_rollout_logprobs"]:
        raise ConfigError("slime --use-tis and --use-rollout-logprobs exclude each other. Drop one.")
    if _is_mis(given):
        return _mis(given, gates)
    return Correction(
        gates=gates, weight=weighted("token", given["tis_clip_low"], given["tis_clip"], zero=_is_icepop(given))
    )


def _is_mis(given: Given) -> bool:
    return (
        given.said(*(key.label for key in RECIPE))
        or "mis" in (given["custom_tis_function_path"] or "").rpartition(".")[2]
    )


def _is_icepop(given: Given) -> bool:
    named = given["custom_tis_function_path"]
    if named is None or named.endswith("vanilla_tis_function"):
        return False
    if named.endswith("icepop_function"):
        return True
    raise ConfigError(f"slime --custom-tis-function-path {named} is a function of your own and cannot be read.")


def _opsm(given: Given) -> Gates:
    """Per token, against the policy PPO compares with."""
    if not given["use_opsm"]:
        return ()
    pair = "current/behavior" if given["use_rollout_logprobs"] else "current/proximal"
    return (opsm(given["opsm_delta"], pair=pair, advantage_of="token"),)


def _mis(given: Given, gates: Gates) -> Correction:
    unit, mode = given["tis_level"], given["tis_mode"]
    upper = given["tis_upper_bound"]
    lower = given["tis_lower_bound"] if given["tis_lower_bound"] is not None else 1 / upper
    normalize = bool(given["tis_batch_normalize"])
    if normalize and unit == "geometric":
        raise ConfigError("slime tis_batch_normalize needs tis_level token or sequence, got geometric. Switch it off.")
    if mode == "mask":
        gates += ratio_gate(unit, lower, upper, limit=limit(SAFETY, unit))
    if given["use_rs"]:
        gates += _rejection(given, lower, upper)
    bounds = {"truncate": (None, upper), "clip": (lower, upper), "mask": (None, None)}[mode]
    weight = weighted(unit, *bounds, limit=limit(SAFETY, unit))
    return Correction(gates=gates, weight=weight, normalize="batch" if normalize else None)


def _rejection(given: Given, lower: float, upper: float) -> Gates:
    unit = given["rs_level"]
    low = given["rs_lower_bound"] if given["rs_lower_bound"] is not None else lower
    high = given["rs_upper_bound"] if given["rs_upper_bound"] is not None else upper
    vetoes = ratio_gate("every", given["rs_veto_threshold"], None) if given["rs_veto_threshold"] else ()
    return ratio_gate(unit, low, high, limit=limit(SAFETY, unit)) + vetoes


# ── writing ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """The plain flags first, then the recipe."""
    masks = [gate for gate in rule.gates if gate.when == "negative_advantage"]
    found: dict[str, Any] = {"use_opsm": True, "opsm_delta": masks[0].upper} if masks else {}
    if masks and masks[0].pair == "current/behavior":
        found["use_rollout_logprobs"] = True
    gates = [gate for gate in rule.gates if gate not in masks]
    weight = rule.weight
    if weight is None or weight.level == "one":
        behavior = {"use_rollout_logprobs": True} if rule.policies == "bypass" and not masks else {}
        yield {"use_tis": False, **behavior, **found}
        return
    plain = {"use_tis": True, "tis_clip_low": weight.lower or 0.0, "tis_clip": weight.upper or 1e12, **found}
    if weight.outside == "zero":
        plain["custom_tis_function_path"] = "slime.backends.megatron_utils.loss.icepop_function"
    yield plain
    bounds = {"tis_lower_bound": weight.lower, "tis_upper_bound": weight.upper or 1e12}
    recipe = {"use_tis": True, "tis_level": weight.level, "tis_batch_normalize": rule.normalize is not None}
    rejection = _written(gates)
    for mode in ("truncate", "clip"):
        yield {**recipe, "tis_mode": mode, **bounds, **rejection, **found}
    if gates and gates[0].level != "batch":
        tested = {
            "tis_mode": "mask",
            "tis_lower_bound": gates[0].lower or 1e-12,
            "tis_upper_bound": gates[0].upper or 1e12,
        }
        yield {**recipe, **tested, **_written(gates[1:]), **found}


def _written(gates: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"use_rs": bool(gates), "rs_veto_threshold": None}
    for gate in gates:
        if gate.agg == "every":
            found["rs_veto_threshold"] = gate.lower
        else:
            level = {None: "token", "mean": "geometric", "sum": "sequence"}.get(gate.agg, "token")
            found |= {"rs_level": level, "rs_lower_bound": gate.lower or 1e-12, "rs_upper_bound": gate.upper or 1e12}
    return found


REMARKS = (
    Remark(
        "use_rs",
        "surprise",
        "Rejection needs use_tis: without it the recipe returns before it rejects anything; switch use_tis on.",
        lambda given: given["use_rs"] and not given["use_tis"],
    ),
    Remark(
        "tis_batch_normalize",
        "surprise",
        "Documented as over the entire batch, it divides by the mean of one micro-batch, so the step depends on how the batch is "
        "split; ours takes the whole batch.",
        lambda given: given["use_tis"] and _is_mis(given) and given["tis_batch_normalize"],
    ),
    Remark(
        "tis_batch_normalize",
        "surprise",
        "The mean of the sequences' weights counts an empty sequence as a weight of 0, so each one raises the weights of the others; "
        "ours leaves it out.",
        lambda given: (
            given["use_tis"] and _is_mis(given) and given["tis_batch_normalize"] and given["tis_level"] == "sequence"
        ),
    ),
    Remark(
        "tis_lower_bound",
        "note",
        "null means 1/tis_upper_bound; AReaL and TRL leave that side open.",
        lambda given: (
            given.said("tis_lower_bound") and given["tis_lower_bound"] is None and given["tis_mode"] != "truncate"
        ),
    ),
    Remark(
        "rs_veto_threshold",
        "note",
        "The veto looks at the low side only and acts only with use_rs.",
        lambda given: given["use_tis"] and given["use_rs"] and given.set("rs_veto_threshold"),
    ),
    Remark(
        "tis_level",
        "surprise",
        "`sequence` is the product over the tokens; AReaL, ms-swift and OpenRLHF mean the geometric mean, which is `geometric` here.",
        lambda given: given["use_tis"] and given["tis_level"] == "sequence",
    ),
    Remark(
        "opsm_delta",
        "surprise",
        "The sequence mask compares current with proximal and judges each token's advantage, with a delta of {opsm_delta}; "
        "TRL and ms-swift compare with behavior, so staleness itself is not seen here.",
        lambda given: given["use_opsm"] and not given["use_rollout_logprobs"],
    ),
)

DIALECT = Dialect(
    name="slime",
    title="slime",
    version="624b824a",
    keys=(*KEYS, *loss.KEYS),
    correction=correction,
    descent=loss.descent,
    estimation=loss.estimation,
    remarks=(*REMARKS, *loss.REMARKS),
    roots=("rollout_batch_size", "n_samples_per_prompt", "hf_checkpoint", "advantage_estimator", "global_batch_size"),
    apart=("A NaN log-prob spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
)
