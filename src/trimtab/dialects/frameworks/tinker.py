"""Tinker and its cookbook: policy losses on two policies, and rewards less the mean of their group.

A loss sees the sampler's log-probs and those of the model being trained; nothing is gated. Each is a sum over tokens of a function of
current/behavior.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from trimtab.config import losses as ours
from trimtab.config.advantages import Grpo
from trimtab.config.correction import Correction, Weight
from trimtab.config.losses import Objective, Reduction
from trimtab.dialects.framework import Dialect, Given, Key, defect, remark, surprise
from trimtab.dialects.parts import ALL, AdvantagePart, LossPart, refuse
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import choice, number
from trimtab.errors import ConfigError

SECTION = "loss_fn_config"
RELEASES = ("cookbook 0.5.8", "cookbook 0.6.1")
"""The first goes with Tinker 0.36.0, the second with 0.38.0; the names of the losses are the same."""
BEFORE, NEWEST = RELEASES
LOSSES = ("importance_sampling", "ppo", "cispo", "dro", "gspo", "stable_reinforce", "cross_entropy", "custom")
KEYS = (
    Key("loss_fn", choice(*LOSSES), "importance_sampling", chooses=("loss",)),
    Key("async_config.loss_fn", choice(*LOSSES), name="async_loss_fn", since=NEWEST),
    Key("async_config.max_steps_off_policy", number, part="other", name="max_steps_off_policy",
        also=("max_steps_off_policy",)),
    Key(f"{SECTION}.clip_low_threshold", number, part="loss", seed=0.8),
    Key(f"{SECTION}.clip_high_threshold", number, part="loss", seed=1.2),
    Key(f"{SECTION}.beta", number, part="loss", seed=0.05),
    Key("kl_penalty_coef", number, 0.0, part="advantage", toggle=True),
    Key("kl_discount_factor", number, 0.0, part="other"),
    Key("group_size", number, part="advantage"),
)  # fmt: skip


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────

TWO_POLICIES = Correction(policies="bypass", weight=Weight(level="one"))


def correction_of(given: Given) -> Correction | None:
    """The ratio of the loss is current/behavior and carries the whole correction."""
    return None if loss_name(given) in REFUSED else TWO_POLICIES


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """The losses, where nothing is gated or weighed beside them."""
    if not rule.gates and rule.centering is None and (rule.weight is None or rule.weight.level == "one"):
        yield from ({"loss_fn": name} for name in ("importance_sampling", "ppo", "cispo", "gspo", "dro"))


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────

PPO = (0.8, 1.2)
"""The bounds of ppo where none are written; those of the others are not documented."""
REFUSED = {
    "stable_reinforce": "it uses what the service records while sampling, and its formula is not published",
    "cross_entropy": "it is supervised and has no sampler",
    "custom": "it is a function of your own",
}
ASYNCHRONOUS = "stable_reinforce"
"""What an asynchronous run trains with where async_config says nothing else."""


def loss_of(given: Given) -> LossPart:
    """The loss of that name, summed over the tokens of every request of a step."""
    name = loss_name(given)
    if name == ASYNCHRONOUS and given["kl_penalty_coef"] and given["kl_discount_factor"] and given.since(NEWEST):
        raise ConfigError(
            f"Tinker kl_discount_factor {given['kl_discount_factor']:g} and a KL penalty exclude {name}, and the start fails. Set "
            "kl_discount_factor to 0, or name another loss."
        )
    by_default = " (the default of async_config, which loss_fn does not change)" if _is_overruled(given) else ""
    refuse(name in REFUSED, f"Tinker loss_fn {name}{by_default}", REFUSED.get(name, ""))
    return LossPart(loss=_loss(given), reduction=Reduction(mode="token-sum"))


def runs_ahead(given: Given) -> bool:
    """Whether answers are sampled while the model is trained."""
    return given["max_steps_off_policy"] is not None or given.has("async_loss_fn")


def loss_name(given: Given) -> str:
    """The loss a run trains with: that of async_config in an asynchronous one. A recipe's own loss_fn is handed to both."""
    name = given["loss_fn"]
    if not given.since(NEWEST) or not runs_ahead(given):
        return name
    in_section = given.has("async_loss_fn") or given.places.get("max_steps_off_policy") != "max_steps_off_policy"
    chosen = given["async_loss_fn"] or (name if given.has("loss_fn") and not in_section else ASYNCHRONOUS)
    if in_section and name not in ("importance_sampling", chosen):
        raise ConfigError(
            f"Tinker loss_fn {name} and async_config.loss_fn {chosen} exclude each other, and the start fails. Set the loss in "
            "async_config."
        )
    return chosen


def _is_overruled(given: Given) -> bool:
    """Whether an asynchronous run takes the default of async_config."""
    return (
        given.since(NEWEST)
        and runs_ahead(given)
        and not given.has("async_loss_fn")
        and loss_name(given) != given["loss_fn"]
    )


def _bounds(given: Given) -> tuple[float, float]:
    """The bounds of the ratio itself; refused where the loss has none that are known and none are written."""
    low, high = given["clip_low_threshold"], given["clip_high_threshold"]
    if loss_name(given) == "ppo":
        return PPO[0] if low is None else low, PPO[1] if high is None else high
    refuse(
        low is None or high is None,
        f"Tinker loss_fn {loss_name(given)} without both clip_low_threshold and clip_high_threshold",
        "its defaults stand on the service and are not documented; of services with the same interface one takes 0 and 4, another 0 and "
        "5. Write both in loss_fn_config",
    )
    return cast("tuple[float, float]", (low, high))


def _loss(given: Given) -> Objective:
    name = loss_name(given)
    if name == "importance_sampling":
        return ours.ImportancePg()
    if name == "dro":
        refuse(
            given["beta"] is None,
            "Tinker loss_fn dro without beta",
            "its default stands on the service and is not documented. Write it in loss_fn_config",
        )
        return ours.Dro(beta=given["beta"])
    low, high = _bounds(given)
    if name == "cispo":
        return ours.Cispo(lower=low or None, upper=high)
    if name == "gspo":
        return ours.Gspo(low=round(1 - low, 12), high=round(high - 1, 12), level="sequence-token", scope="trained")
    return ours.Clip(low=round(1 - low, 12), high=round(high - 1, 12))


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def advantage_of(given: Given) -> AdvantagePart:
    """The group's mean subtracted, never divided by a deviation."""
    refuse(
        given["kl_penalty_coef"],
        "Tinker kl_penalty_coef",
        "each token's advantage moves by the mean of log sampler − log reference over the batch less its own. Set it to 0, or pay the KL "
        "in your rewards",
    )
    return AdvantagePart(advantage=Grpo(std=False, **ALL))


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────

CLIPPED = ("ppo", "cispo", "gspo")
SUMS = "tinker/lib/public_interfaces/training_client.py:721"
LOOP = "tinker_cookbook/rl/train.py"


def _is_policy_loss(given: Given) -> bool:
    return loss_name(given) not in REFUSED


def _may_be_old(given: Given) -> bool:
    """Whether answers may come from earlier weights."""
    return bool(given["max_steps_off_policy"])


def _without_bounds(given: Given) -> bool:
    return given["clip_low_threshold"] is None and given["clip_high_threshold"] is None


REMARKS = (
    surprise("loss_fn", _is_policy_loss,
        "Losses are sums over the tokens of the batch, not means: the gradient grows with the number and the length "
        "of the answers. Divide the advantages yourself where a mean is meant.",
        source=f"{SUMS} TrainingClient._run_custom_backward"),
    surprise("loss_fn", lambda g: loss_name(g) == "ppo",
        "ppo clips the ratio to the sampler, not to the start of the step: under staleness tokens arrive already "
        "clipped, and none of them is weighed.",
        source="tinker_cookbook/rl/data_processing.py:250 trajectory_to_data"),
    surprise("loss_fn", lambda g: loss_name(g) == "importance_sampling",
        "The ratio to the sampler is neither clipped nor cut: a single token that the sampler thought unlikely can "
        "be most of a step.",
        source="tinker_cookbook/rl/data_processing.py:250 trajectory_to_data"),
    remark("clip_low_threshold", lambda g: loss_name(g) in CLIPPED and not _without_bounds(g),
        "The thresholds bound the ratio itself: 0.8 and 1.2 are a clip of 0.2 to either side. A width written in "
        "their place would clip every token that is on policy."),
    surprise("clip_low_threshold", lambda g: loss_name(g) in ("importance_sampling", "dro") and not _without_bounds(g),
        "This loss has no clipping: clip_low_threshold and clip_high_threshold are keys of ppo, cispo and gspo.",
        source="tinker/types/datum.py:32"),
    surprise("beta", lambda g: g["beta"] is not None and loss_name(g) not in ("dro", *REFUSED),
        "This loss has no beta {beta}: it is a key of dro.",
        source="tinker/types/datum.py:32"),
    defect("loss_fn", lambda g: loss_name(g) == "dro",
        "The cookbook sends prompt and tool tokens with a sampler's log-prob of 0 and takes the mask away before dro "
        "sees it, so that its square pulls them too, to a probability of 1. Ours leaves them out; send only answer "
        "tokens, or take another loss.",
        source=f"{LOOP}:364 train_step"),
    remark("loss_fn", lambda g: loss_name(g) == "gspo",
        "The mean runs over the tokens that sequence_ratio_mask marks, which rl/train.py does not send; ours takes "
        "the trained ones."),
    surprise("loss_fn", lambda g: runs_ahead(g) and g.has("loss_fn") and loss_name(g) != g["loss_fn"],
        "The run is asynchronous and trains with async_config.loss_fn, stable_reinforce where it is not written; "
        "this loss_fn has no effect.",
        source=f"{LOOP}:620 Config.training_loss_fn", since=NEWEST),
    surprise("loss_fn", lambda g: _may_be_old(g) and loss_name(g) in ("importance_sampling", "cispo"),
        "The cookbook itself warns of this loss in asynchronous runs: it can become unstable on the older answers "
        "that these train on. Take stable_reinforce, or a clipped loss such as ppo.",
        source=f"{LOOP}:2518 main", since=NEWEST),
    surprise("max_steps_off_policy", _may_be_old,
        "max_steps_off_policy bounds how many groups are on their way, groups_per_batch times one more than it, not "
        "how old an answer may be: a completed group is never discarded, so a slow one trains however many steps it "
        "is behind.",
        source=f"{LOOP}:424-434 AsyncConfig", since=NEWEST),
    remark("kl_penalty_coef", lambda g: g.speaks_of("advantage") and not g["kl_penalty_coef"],
        "Advantages are never divided by a deviation, and a group of one gets 0."),
)  # fmt: skip

DIALECT = Dialect(
    SIGNATURES["tinker"],
    version=NEWEST,
    releases=RELEASES,
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    others=("max_steps",),
    is_loss=True,
    remarks=REMARKS,
    closed=(SECTION,),
    entry_points=r"(?!.*/).*",
    implied=(
        (
            r"(.*/)?tinker_cookbook[./]recipes[./](math_rl[./]train|rubric[./](train|prometheus_experimental)|rl_loop)(\.py)?",
            {"loss_fn": ASYNCHRONOUS},
            NEWEST,
        ),
    ),
    apart=("A NaN log-prob of a sampler spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
    beside=lambda found: {} if found else {"kl_penalty_coef": 0.0},
)
