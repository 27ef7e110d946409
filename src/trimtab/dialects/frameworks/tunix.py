"""Tunix 0.1.7: the sampler's log-probs as the anchor of the ratio, or `sampler_is`, a weight cut at a threshold.

PPO's clip on tokens or on the mean of a sequence, five reductions, KL to the reference; rewards within their group, or a critic's. What is
written is the agentic learner's section.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from trimtab.config import losses as ours
from trimtab.config.advantages import WHITEN, Estimator, Gae, Grpo, Rloo
from trimtab.config.correction import Correction, Weight
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Dialect, Given, Key, Part, Version, defect, remark, surprise
from trimtab.dialects.parts import (
    ALL,
    OFF,
    OPEN,
    AdvantagePart,
    LossPart,
    bonus,
    limit,
    reduction_of,
    refuse,
    weight_of,
)
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import UNSAID, Kind, choice, flag, nested, number, raw, text, unsaid_or
from trimtab.errors import ConfigError, UnknownNameError, nearest

AGENTIC, PLAIN, PPO = "agentic_grpo_config", "grpo_config", "ppo_config"
REDUCTIONS = {
    "token-mean": "token-mean",
    "sequence-mean-token-mean": "seq-mean-token-mean",
    "sequence-mean-token-scale": "seq-mean-token-sum-norm",
    "seq-mean-token-sum": "seq-mean-token-sum",
    "sequence-mean-token-sum-norm": "seq-mean-token-sum",
}
"""`loss_agg_mode` → ours. The last is documented as a norm of its own, which nothing hands to it: it divides by the rows."""
ESTIMATORS = {"kl": "k1", "mse_kl": "k2", "low_var_kl": "k3"}
GROUPED: dict[str, Estimator] = {
    "grpo": Grpo(std=True, eps=1e-6, **ALL),
    "drgrpo": Grpo(std=False, **ALL),
    "rloo": Rloo(**ALL),
}
PROPOSED = (
    "seq_logprob_error_threshold",
    "truncated_importance_sampling_type",
    "truncated_importance_sampling_ratio",
    "truncated_importance_sampling_ratio_min",
    "overlong_loss_masking",
    "score_centering",
)
"""Keep-bands of tunix#2129 and #2270 and score centering, which no release has."""


def _key(name: str, kind: Kind, default: Any = None, part: Part = "loss", **more: Any) -> Key:
    """A key of each of the three sections."""
    also = (f"{PLAIN}.{name}", f"{PPO}.{name}")
    return Key(f"{AGENTIC}.{name}", kind, default, part=part, also=also, **more)


KEYS = (
    _key("sampler_is", choice("token"), part="correction"),
    _key("sampler_is_threshold", number, 2.0, part="correction"),
    _key("use_rollout_logps", flag, True, part="correction"),
    *(_key(name, raw, part="correction") for name in PROPOSED),
    _key("policy_loss_fn", text, "grpo", options=(UNSAID,)),
    _key("loss_algo", choice("grpo", "gspo-token"), "grpo"),
    _key("loss_agg_mode", choice(*REDUCTIONS), "sequence-mean-token-mean"),
    _key("epsilon", number, 0.2),
    _key("epsilon_low", number),
    _key("epsilon_high", number),
    _key("epsilon_c", number),
    _key("beta", number, 0.04, null="open", toggle=True, joint=("kl_loss_mode",)),
    _key("kl_loss_mode", choice(*ESTIMATORS), "kl"),
    _key("kl_clamp_value", number, part="other"),
    _key("entropy_coef", number),
    _key("degenerate_group_masking", flag, False),
    _key("max_response_length", number, part="other", seed=1024.0),
    Key("rollout_config.total_generation_steps", number, part="other"),
    _key("advantage_estimator", text, "grpo", part="advantage", options=unsaid_or(GROUPED)),
    _key("num_generations", number, 2.0, part="advantage"),
    _key("gamma", number, 1.0, part="advantage"),
    _key("gae_lambda", number, 0.95, part="advantage"),
    _key("kl_method", choice(*ESTIMATORS), "low_var_kl", part="advantage", options=(UNSAID,)),
    _key("overlong_buffer", nested, part="advantage"),
    _key("num_iterations", number, 1.0, part="other"),
    _key("algo_variant", text, part="other"),
    Key("training_mode", choice("grpo", "agentic_grpo", "ppo"), "grpo", part="other", options=(UNSAID,)),
)


def has_keys_in(given: Given, section: str) -> bool:
    """Whether anything stands in a section; one of null or {} holds nothing."""
    return given.has_section(section) and given.value_of(section, True) not in (None, {})


def is_ppo(given: Given) -> bool:
    """Whether PPO with a critic is trained."""
    return given["policy_loss_fn"] == "ppo" or given["training_mode"] == "ppo" or has_keys_in(given, PPO)


def is_agentic(given: Given) -> bool:
    """Whether the agentic learner is meant, which alone compares with the sampler; refused where a file has both sections."""
    if has_keys_in(given, AGENTIC) and has_keys_in(given, PLAIN):
        raise ConfigError(
            f"Tunix reads {AGENTIC} or {PLAIN} by training_mode, got both. Leave out the one that is not trained with."
        )
    by_mode = given["training_mode"] == "agentic_grpo" or has_keys_in(given, AGENTIC)
    return by_mode or given.has("sampler_is", "sampler_is_threshold", "use_rollout_logps")


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────

SAFETY = 20.0


def correction_of(given: Given) -> Correction:
    """Of the agentic learner: three policies and a token's weight with sampler_is, two without; the others compare with nothing."""
    refuse(
        given.is_on(*PROPOSED),
        f"Tunix {', '.join(name for name in PROPOSED if given.is_on(name))}",
        "keep-bands (tunix#2129, #2270) and score centering are proposed and stand in no release. Leave them out",
    )
    if is_ppo(given) or not is_agentic(given) or not given["use_rollout_logps"]:
        return OFF
    if given["sampler_is"] is None:
        return Correction(policies="bypass", weight=Weight(level="one"))
    return Correction(weight=weight_of("token", upper=given["sampler_is_threshold"], limit=limit(SAFETY, "token")))


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Settings of the agentic learner."""
    found: dict[str, Any] = {"training_mode": "agentic_grpo"}
    if rule.gates or rule.centering is not None:
        return
    if rule.weight is not None and rule.weight.level == "token":
        bounds = {f"{AGENTIC}.sampler_is_threshold": rule.weight.upper or OPEN}
        yield {**found, f"{AGENTIC}.sampler_is": "token", **bounds}
        return
    yield {**found, f"{AGENTIC}.use_rollout_logps": rule.policies == "bypass"}


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LOG_UPPER = 10.0


def loss_of(given: Given) -> LossPart:
    """GRPO, GSPO-token or PPO; the sampler's weight multiplies each token after the clip, and the denominators stay."""
    own = given["policy_loss_fn"]
    refuse(own not in ("grpo", "ppo"), f"Tunix policy_loss_fn {own}", "it is a function that you registered")
    low, high = _bounds(given)
    if is_ppo(given):
        loss = ours.Clip(low=low, high=high, dual=given["epsilon_c"])
        return LossPart(loss=loss, reduction=Reduction(mode="token-mean"), entropy=bonus(given["entropy_coef"]))
    reduction = reduction_of(REDUCTIONS, "Tunix loss_agg_mode", given["loss_agg_mode"], _width(given))
    return LossPart(loss=_loss(given, low, high), reduction=reduction, kl=reference_kl(given, "kl_loss_mode"))


def _bounds(given: Given) -> tuple[float, float]:
    """How far the ratio may fall and rise; a bound of 0 counts as not written."""
    width = given["epsilon"]
    low = (given["epsilon_low"] or width) if is_ppo(given) else width
    high = given["epsilon_high"]
    return low, width if high is None or (is_ppo(given) and not high) else high


def reference_kl(given: Given, mode: str) -> KlPenalty | None:
    """beta times the estimate, held within ±kl_clamp_value."""
    if not given["beta"]:
        return None
    estimator: Any = ESTIMATORS[given[mode]]
    return KlPenalty(coefficient=given["beta"], estimator=estimator, output_limit=given["kl_clamp_value"])


def _loss(given: Given, low: float, high: float) -> Objective:
    if given["loss_algo"] == "gspo-token":
        shape: dict[str, Any] = {"level": "sequence-token", "scope": "trained", "log_upper": LOG_UPPER}
        return ours.Gspo(low=low, high=high, dual=given["epsilon_c"], **shape)
    return ours.Clip(low=low, high=high, dual=given["epsilon_c"], log_limit=SAFETY)


def _width(given: Given) -> float | None:
    """What sequence-mean-token-scale divides by: the width to which answers are padded."""
    own = given["max_response_length"] if is_agentic(given) else None
    return given.width or own or given["total_generation_steps"]


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def advantage_of(given: Given) -> AdvantagePart:
    """The group's mean subtracted and, for grpo, divided by its deviation; for PPO, GAE whitened over the tokens."""
    refuse(
        _is_enabled(given["overlong_buffer"]),
        "Tunix overlong_buffer",
        "it counts the characters of an answer where its documentation and ours count tokens. Set enable to false, or shape rewards "
        "yourself",
    )
    if is_ppo(given) or given["advantage_estimator"] == "gae":
        gae = Gae(gamma=given["gamma"], lam=given["gae_lambda"], gaps="skip", normalise=WHITEN, **ALL)
        return AdvantagePart(advantage=gae, reward_kl=reference_kl(given, "kl_method"))
    name = given["advantage_estimator"]
    if name not in GROUPED:
        raise UnknownNameError(f"Tunix advantage_estimator {name!r} is not supported. {nearest(name, GROUPED)}")
    return AdvantagePart(advantage=GROUPED[name])


def _is_enabled(buffer: Any) -> bool:
    """Whether answers are penalised by their length; a buffer that is written without `enable` is no buffer of Tunix."""
    return isinstance(buffer, dict) and bool(cast("dict[str, Any]", buffer).get("enable", True))


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_weighed(given: Given) -> bool:
    return is_agentic(given) and not is_ppo(given) and given["sampler_is"] == "token"


REMARKS = (
    surprise("use_rollout_logps",
        lambda g: is_agentic(g) and not is_ppo(g) and g["use_rollout_logps"] and g["sampler_is"] is None,
        "The ratio that is clipped divides by the sampler's log-probs: mismatch and staleness use up the clip, and "
        "nothing is weighed. sampler_is: token compares with the trainer's instead.",
        source="rl/agentic/agentic_grpo_learner.py:441 GRPOLearner._process_results"),
    surprise("sampler_is", lambda g: _is_weighed(g) and not g["use_rollout_logps"],
        "sampler_is has no effect with use_rollout_logps false: the weights need the sampler's log-probs. Leave "
        "use_rollout_logps out.",
        source="rl/agentic/agentic_grpo_learner.py:661 GRPOLearner._process_results"),
    remark("sampler_is", lambda g: _is_weighed(g) and bool(g["use_rollout_logps"]),
        "Called truncated, the weight is min(ratio, {sampler_is_threshold}) per token, the log-ratio held within ±20 "
        "before: small weights stay small."),
    surprise("training_mode", lambda g: has_keys_in(g, AGENTIC) and g["training_mode"] != "agentic_grpo",
        "training_mode is not agentic_grpo, so that Tunix does not read agentic_grpo_config at all; it is read here.",
        source="cli/grpo_main.py:809 GrpoPipeline._run"),
    surprise("num_iterations",
        lambda g: g.speaks_of("loss") and not is_agentic(g) and not is_ppo(g) and g["num_iterations"] <= 1,
        "With one iteration no log-probs are kept: the ratio is 1, nothing is ever clipped, and what the sampler "
        "thought plays no part.",
        source="rl/grpo/grpo_learner.py:302 GRPOLearner._generate_and_compute_advantage"),
    surprise("kl_loss_mode",
        lambda g: g.speaks_of("loss") and not is_ppo(g) and bool(g["beta"]) and g["kl_loss_mode"] == "kl",
        "kl is k1: its gradient is that of log current alone, which has mean 0 on policy, so that it pulls nowhere "
        "on average; use low_var_kl.",
        source="rl/common.py:152 compute_kl_divergence"),
    surprise("loss_agg_mode", lambda g: g["loss_agg_mode"] == "sequence-mean-token-sum-norm",
        "{loss_agg_mode} divides by the number of answers, not by a norm: no caller hands it one.",
        source="rl/common.py:584 aggregate_loss"),
    remark("loss_agg_mode", lambda g: g.speaks_of("loss") and g["loss_agg_mode"] != "seq-mean-token-sum",
        "Each micro-batch has its own denominator and they are averaged, so the step depends on how the batch is "
        "split; ours counts over the whole step."),
    remark("degenerate_group_masking", lambda g: bool(g["degenerate_group_masking"]),
        "Groups whose advantages are all 0 leave the loss and its denominator; pass them masked to get the same "
        "number."),
    remark("loss_algo", lambda g: g["loss_algo"] == "gspo-token",
        "The log-ratio of a token is held within ±20 before the mean over the sequence; ours is not."),
    surprise("algo_variant",
        lambda g: g.has("algo_variant") and g["algo_variant"] not in (None, "grpo", "agentic_grpo", "ppo"),
        "algo_variant {algo_variant} is a name and changes nothing: estimator, clip and reduction are keys of their "
        "own.",
        source="rl/algorithm_config.py:50 AlgorithmConfig.__post_init__"),
    defect("policy_loss_fn", is_ppo,
        "PPO writes the reward of an answer into an array of whole numbers: 0.7 becomes 0 and −1.6 becomes −1. Scale "
        "rewards to whole numbers; ours keeps them.",
        source="rl/ppo/ppo_learner.py:353 PPOLearner._generate_and_compute_advantage"),
    remark("kl_method", lambda g: is_ppo(g) and bool(g["beta"]),
        "PPO pays its KL in the rewards, between the log-probs at the start of the step and the reference; the loss "
        "has none."),
)  # fmt: skip

DAPO = {
    "epsilon_high": 0.28,
    "beta": 0.0,
    "loss_agg_mode": "token-mean",
    "overlong_buffer": {"enable": True},
}
"""What a DAPOConfig holds unless it is told otherwise."""
DR_GRPO = {"advantage_estimator": "drgrpo", "loss_agg_mode": "sequence-mean-token-scale"}
PPO_LEARNER = {"policy_loss_fn": "ppo", "advantage_estimator": "gae"}
DIALECT = Dialect(
    SIGNATURES["tunix"],
    version="0.1.7",
    versions=(
        Version("as proposed after 0.1.7", PROPOSED),
        Version("after 0.1.7", ("sampler_is_length_buckets", "reward_num_workers"), is_read=False),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    implied=(
        (r"tunix\.rl\.agentic\..*", {"training_mode": "agentic_grpo"}),
        (r"tunix\.rl\.grpo\.(dapo_learner.*|.*DAPO.*)", DAPO),
        (r"tunix\.rl\.grpo\.(drgrpo_learner.*|.*DrGRPO.*)", DR_GRPO),
        (r"tunix\.rl\.ppo\..*", PPO_LEARNER),
    ),
    apart=(
        "A turn without log-probs is taken to have drawn each token with probability 1; ours leaves such tokens out.",
    ),
    candidates=candidates,
    beside=lambda _: {"training_mode": "agentic_grpo"},
)
