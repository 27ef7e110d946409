"""prime-rl: `trainer.loss` and `orchestrator.algo`.

Two policies only: current against behavior, gated by the ratio or by how far a probability moved. The loss is −τ·A·ρ through the ratio, PPO
or CISPO; before, a squared log-ratio stood beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Distillation, Estimator, Grpo, MaxRl, Opo
from trimtab.config.correction import Correction, Gate, Limit, Weight
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Dialect, Given, Key, Version, remark, surprise
from trimtab.dialects.parts import OPEN, AdvantagePart, Gates, LossPart, ratio_gate, refuse, weight_of
from trimtab.dialects.registry import ORCHESTRATOR, SIGNATURES
from trimtab.dialects.values import UNSAID, choice, flag, nested, number, text
from trimtab.errors import ConfigError, UnknownNameError, nearest

SECTION = "trainer.loss"
ALGO = "orchestrator.algo"
CAP = 1e4
"""Where the ratio of an accepted token is held, its gradient kept."""
KEYS = (
    Key(f"{SECTION}.type", choice("ipo", "icepop", "ppo", "cispo", "custom", "default"), "ipo"),
    Key(f"{SECTION}.eps", number),
    Key(f"{SECTION}.ratio_low", number, chooses=("loss",)),
    Key(f"{SECTION}.ratio_high", number, chooses=("loss",)),
    Key(f"{SECTION}.score_centering", flag, False),
    Key(f"{SECTION}.max_importance_ratio", number, CAP, part="loss"),
    Key(f"{SECTION}.adv_tau", number, 1.0, part="loss"),
    Key(f"{SECTION}.dppo_mask_low", number, 0.2),
    Key(f"{SECTION}.dppo_mask_high", number, 0.2),
    Key(f"{SECTION}.ipo_threshold", number, 0.1),
    Key(f"{SECTION}.kl_tau", number, 1e-3, part="loss", toggle=True),
    Key(f"{SECTION}.ratio_type", choice("token", "sequence"), "token", legacy=True),
    *(
        Key(f"{SECTION}.{name}", number, default, legacy=True)
        for name, default in (
            ("token_mask_low", 0.125),
            ("token_mask_high", 8.0),
            ("geo_mask_low", 0.1),
            ("geo_mask_high", 10.0),
            ("sequence_mask_low", 0.0),
            ("sequence_mask_high", 100.0),
            ("sequence_clip_high", 10.0),
        )
    ),
    *(Key(f"orchestrator.train.sampling.{name}", number, part="other") for name in ("top_p", "top_k")),
    Key(f"{ALGO}.type", text, "grpo", part="advantage", name="algo.type",
        also=("orchestrator.advantage.type", "algo.type", "advantage.type"), options=(UNSAID, "grpo", "max_rl", "opd"),
        joint=("length_weighted_baseline",)),
    Key(f"{ALGO}.length_penalty", nested, part="advantage",
        also=("orchestrator.advantage.length_penalty", "orchestrator.advantage.length_shaping", f"{ALGO}.length_shaping")),
    Key(f"{ALGO}.length_weighted_baseline", flag, False, part="advantage",
        also=("orchestrator.advantage.length_weighted_mean",)),
)  # fmt: skip
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


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────


def correction_of(given: Given) -> Correction | None:
    """Which tokens' policy term survives; its ratio carries the gradient, so the weight is 1."""
    if distils(given):
        gate = Gate(metric="prob_diff", lower=-OPD_FALL)
        return Correction(policies="bypass", gates=(gate,), weight=Weight(level="one"))
    if loss_kind(given) == "custom":
        return None
    centers = bool(given["score_centering"])
    refuse(
        centers and loss_kind(given) != "ipo",
        f"prime-rl score_centering with {loss_kind(given)}",
        "only ipo has it. Leave it out, or set type to ipo",
    )
    if given.has(*REMOVED):
        return _removed_correction(given)
    centering = "score" if centers else None
    return Correction(policies="bypass", gates=_gates(given), weight=Weight(level="one"), centering=centering)


def _gates(given: Given) -> Gates:
    kind = loss_kind(given)
    if kind == "ipo":
        return (Gate(metric="tv", upper=threshold(given)),)
    if kind == "icepop":
        return ratio_gate("token", *ratio_bounds(given))
    if kind == "default":
        rising = Gate(metric="prob_diff", upper=given["dppo_mask_high"], when="positive_advantage")
        return (rising, Gate(metric="prob_diff", lower=-given["dppo_mask_low"], when="nonpositive_advantage"))
    return ()  # ppo and cispo bound the ratio in the loss itself


def _removed_correction(given: Given) -> Correction:
    """Before 02bdca2e4: bounds on ratios, and a detached ratio in front of log current."""
    masks = (("token", "token_mask"), ("geometric", "geo_mask"), ("every", "sequence_mask"))
    gates: Gates = sum((ratio_gate(unit, given[f"{name}_low"], given[f"{name}_high"]) for unit, name in masks), ())
    if given["ratio_type"] == "sequence":
        weight = weight_of("sequence", upper=given["sequence_clip_high"], limit=Limit(bound=10.0, at="gathered"))
    else:
        weight = Weight(level="token")
    return Correction(policies="bypass", gates=gates, weight=weight)


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Today's losses, and the one that dropped tokens by the sign of their advantage, which today's have no word for."""
    if not rule.gates:
        yield from ({f"{SECTION}.type": name} for name in ("ppo", "cispo"))
    if len(rule.gates) == 1:
        low, high = rule.gates[0].lower, rule.gates[0].upper
        centered = {f"{SECTION}.score_centering": True} if rule.centering is not None else {}
        yield {f"{SECTION}.type": "ipo", f"{SECTION}.eps": high, **centered}
        yield {
            f"{SECTION}.type": "icepop",
            f"{SECTION}.ratio_low": low or 1 / OPEN,
            f"{SECTION}.ratio_high": high or OPEN,
        }
    if len(rule.gates) == 2:
        bounds = {"dppo_mask_high": rule.gates[0].upper, "dppo_mask_low": -(rule.gates[1].lower or 0.0)}
        yield {f"{SECTION}.type": "default", **{f"{SECTION}.{name}": value for name, value in bounds.items()}}


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def loss_of(given: Given) -> LossPart:
    """adv_tau scales the advantages; kl_tau·ℓ², where there still is one, is twice k2 to behavior on every trained token."""
    if distils(given):  # trainer.loss is another component's
        penalty = KlPenalty(coefficient=2 * OPD_TAU, estimator="k2")
        reduction = Reduction(mode="token-mean")
        return LossPart(loss=ours.ImportancePg(), reduction=reduction, kl=penalty, kl_to="behavior")
    if loss_kind(given) == "custom":
        return LossPart()
    if given.has(*REMOVED):
        return _removed_loss(given)
    penalty = given["kl_tau"] if is_replaced(given) else 0.0
    return LossPart(
        loss=_loss(given),
        reduction=Reduction(mode="token-mean"),
        kl=KlPenalty(coefficient=2 * penalty, estimator="k2") if penalty else None,
        kl_to="behavior",
        advantage_scale=given["adv_tau"],
    )


def _loss(given: Given) -> Objective:
    """A cap far below the usual one is said by its gradient, which is CISPO's."""
    kind, cap = loss_kind(given), given["max_importance_ratio"]
    if kind == "ppo":
        low, high = ratio_bounds(given)
        refuse(cap < CAP, f"prime-rl max_importance_ratio {cap:g} with ppo", "the capped side keeps its gradient")
        return ours.Clip(low=1 - low, high=high - 1)
    if kind == "cispo":
        low, high = ratio_bounds(given)
        return ours.Cispo(lower=low or None, upper=high)
    return ours.Cispo(lower=None, upper=cap) if kind == "ipo" and cap < CAP else ours.ImportancePg()


def _removed_loss(given: Given) -> LossPart:
    """−sg(ratio · (τA − kl_tau·ℓ)) · log current: REINFORCE by the ratio, and the gradient of k2 to behavior by the ratio."""
    penalty = given["kl_tau"] if given.has("kl_tau") else 0.0
    by_sequence = given["ratio_type"] == "sequence"
    refuse(
        penalty and by_sequence,
        "prime-rl kl_tau with ratio_type sequence",
        "the penalty is weighed by the product over the sequence. Set kl_tau to 0",
    )
    more: dict[str, Any] = {"importance": "gradient", "mask": "kept"}
    return LossPart(
        loss=ours.Reinforce(),
        reduction=None if by_sequence else Reduction(mode="token-mean"),
        kl=KlPenalty(coefficient=penalty, estimator="k2", **more) if penalty else None,
        kl_to="behavior",
        advantage_scale=given["adv_tau"],
    )


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────

WITHOUT_ESTIMATOR = {
    "rae": "its baseline is a running mean per agent",
    "hierarchical_grpo": "its groups are roles within a problem",
    "opsd": "it distils the policy itself and has no reward",
    "sft": "it has no advantage",
    "dataset_sft": "it has no advantage",
    "echo": "it also trains on observations",
    "custom": "it is a function of your own",
    "debug": "it is for debugging",
}
"""Algorithms without an estimator of ours, and why."""


def advantage_of(given: Given) -> AdvantagePart:
    """The group's mean subtracted, never divided by a deviation; or divided by that mean."""
    name = given["algo.type"]
    refuse(
        given["length_penalty"] not in (None, False, "off"),
        "prime-rl length_penalty",
        "rewards are shaped by lengths relative to the group. Shape them yourself and leave it out",
    )
    if name == "opd":
        return AdvantagePart(advantage=Distillation(student="current", baseline="all"))
    refuse(name in WITHOUT_ESTIMATOR, f"prime-rl algo.type {name}", WITHOUT_ESTIMATOR.get(name, ""))
    grpo: Estimator = Opo(baseline="all") if given["length_weighted_baseline"] else Grpo(std=False, baseline="all")
    kinds: dict[str, Estimator] = {"grpo": grpo, "default": grpo, "max_rl": MaxRl(eps=0.0, baseline="all")}
    if name not in kinds:
        raise UnknownNameError(f"prime-rl algo.type {name!r} is not supported. {nearest(name, kinds)}")
    return AdvantagePart(advantage=kinds[name])


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_removed(given: Given) -> bool:
    return given.has(*REMOVED)


def _is_custom(given: Given) -> bool:
    return loss_kind(given) == "custom"


def _is_unsaid(given: Given) -> bool:
    """Whether nothing says which version's default holds, and one does."""
    said = given.has("type", "eps", "ratio_low", "ratio_high", "max_importance_ratio", *REPLACED, *REMOVED)
    return not (said or distils(given) or is_orchestrator(given))


def _is_truncated(given: Given) -> bool:
    """Whether answers are drawn from a part of the vocabulary."""
    return (given["top_p"] is not None and given["top_p"] < 1) or (given["top_k"] is not None and given["top_k"] > 0)


def _of_the_loss(when: Callable[[Given], bool]) -> Callable[[Given], bool]:
    """Whether a remark on trainer.loss holds: where tokens are trained by it."""
    return lambda given: not distils(given) and when(given)


LOSS, CONFIG = "src/prime_rl/trainer/rl/loss.py", "packages/prime-rl-configs/src/prime_rl/configs/trainer.py"
OTHER_COMPONENTS = ("opsd", "sft", "dataset_sft", "echo")
"""Algorithms that train tokens otherwise than by the policy's loss."""
_REMARKS = (
    surprise("type", _is_unsaid,
        "No loss is named, so today's default holds: `ipo`, tokens whose probability moved by more than 0.3 dropped, "
        "no KL. Up to 559b4477 it was `default`: probabilities within 0.2 by the sign of the advantage, and kl_tau "
        "0.001. --set trainer.loss.type=default reads that.",
        source=f"{CONFIG}:494-532"),
    remark("type", lambda g: not _is_custom(g),
        "Tokens with advantage 0 leave the loss and its denominator; pass them masked to get the same number."),
    remark("kl_tau", lambda g: is_replaced(g) and g.is_on("kl_tau") and not _is_removed(g),
        "kl_tau·ℓ² has no ½ and runs over every trained token, dropped ones included; it is our k2 to behavior with "
        "twice the coefficient."),
    surprise("kl_tau", lambda g: g.has("kl_tau") and not is_replaced(g) and not _is_removed(g) and not _is_custom(g),
        "{type} has no penalty: kl_tau {kl_tau} is a key of older losses, which prime-rl refuses beside it.",
        source=f"{CONFIG}:494-532"),
    surprise("type", lambda g: is_replaced(g) and not _is_removed(g),
        "The ratio of kept tokens is uncapped; the older ratio bounds (token_mask, geo_mask, sequence_clip) are gone.",
        source=f"{LOSS}:109-161 default_loss_fn"),
    remark("type", lambda g: is_replaced(g) and not _is_removed(g),
        "This loss was in prime-rl up to 559b4477; today's are ipo, icepop, ppo and cispo, none with a KL."),
    remark("max_importance_ratio",
        lambda g: loss_kind(g) in ("ipo", "ppo") and not is_replaced(g) and g["max_importance_ratio"] >= CAP,
        "A ratio above {max_importance_ratio} is held there with its gradient kept; ours goes on, which differs "
        "beyond a log-ratio of 9.2 only."),
    surprise("max_importance_ratio",
        lambda g: loss_kind(g) == "ipo" and not is_replaced(g) and g["max_importance_ratio"] < CAP,
        "A ratio above {max_importance_ratio} is held there with its gradient kept; that is the gradient of CISPO, "
        "read as such: the value of the loss differs, its gradient does not.",
        source=f"{LOSS}:165 _capped_importance_ratio"),
    surprise("type", lambda g: loss_kind(g) == "ppo",
        "ppo clips the ratio to the sampler, not to the start of the step: under staleness tokens arrive already "
        "clipped, and none of them is weighed.",
        source=f"{LOSS}:279 PPOLoss.loss"),
    remark("score_centering", lambda g: bool(g["score_centering"]),
        "Scores are centered over the sampling mask that vLLM returned, which is exact; a sample without one is not "
        "centered. Pass the mask with its log-probs as `head`."),
    remark("top_p", _is_truncated,
        "Truncated sampling is replayed: the ids that vLLM kept are recorded, at most top_k of them (512 by "
        "default), and the trainer's log-probs run over them alone; where none came back, over all. Pass them as "
        "`support` to selected_log_probs."),
    remark("type", _is_custom,
        "A custom loss is a function of your own and cannot be read."),
    remark("ratio_type", _is_removed,
        "The ratio bounds were removed in 02bdca2e4 and are read as they were; the losses after it differentiate the "
        "ratio and drop tokens by how far their probability moved."),
    surprise("ratio_type", lambda g: _is_removed(g) and g["ratio_type"] == "sequence",
        "With ratio_type sequence each sequence was divided by its own length before the sum; the reduction is not "
        "read: pass your own.",
        source=f"{LOSS}:112 compute_loss"),
    surprise("algo.type", lambda g: g["algo.type"] in OTHER_COMPONENTS,
        "This algorithm trains tokens by a component of its own, beside or in place of trainer.loss; what that "
        "computes is not shown.",
        source="src/prime_rl/trainer/rl/train.py:300-323"),
    surprise("algo.type", distils,
        "opd trains by its own component and passes trainer.loss by: −sg(log teacher − log p)·r where p − q is at "
        "least −0.2, the ratio r not bounded, and 0.001·(log r)² on every token. Pass the teacher's log-probs as "
        "`teacher`.",
        source=f"{LOSS}:331 ref_kl_loss_fn"),
    remark("algo.type", lambda g: g.speaks_of("advantage") and not distils(g),
        "Advantages are never divided by a deviation, and a group of one gets 0."),
)  # fmt: skip

REMARKS = tuple(each if each.key == "algo.type" else replace(each, when=_of_the_loss(each.when)) for each in _REMARKS)

DIALECT = Dialect(
    SIGNATURES["prime-rl"],
    version="2026-09",
    versions=(Version("before 02bdca2e4", REMOVED), Version("up to 559b4477", REPLACED)),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    is_loss=True,
    remarks=REMARKS,
    closed=(SECTION,),
    apart=("A dropped token whose ratio overflows gives 0 × inf = NaN; ours gives 0.",),
    candidates=candidates,
)
