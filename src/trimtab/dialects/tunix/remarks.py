"""What there is to say about Tunix: each finding as data."""

from __future__ import annotations

from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.tunix.keys import AGENTIC, has_keys_in, is_agentic, is_ppo


def _is_weighed(given: Given) -> bool:
    return is_agentic(given) and not is_ppo(given) and given["sampler_is"] == "token"


REMARKS = (
    Remark(
        "use_rollout_logps",
        "surprise",
        "The ratio that is clipped divides by the sampler's log-probs: mismatch and staleness use up the clip, and nothing is weighed. "
        "sampler_is: token compares with the trainer's instead.",
        lambda given: (
            is_agentic(given) and not is_ppo(given) and given["use_rollout_logps"] and given["sampler_is"] is None
        ),
        source="rl/agentic/agentic_grpo_learner.py:441 GRPOLearner._process_results",
    ),
    Remark(
        "sampler_is",
        "surprise",
        "sampler_is has no effect with use_rollout_logps false: the weights need the sampler's log-probs. Leave use_rollout_logps out.",
        lambda given: _is_weighed(given) and not given["use_rollout_logps"],
        source="rl/agentic/agentic_grpo_learner.py:661 GRPOLearner._process_results",
    ),
    Remark(
        "sampler_is",
        "note",
        "Called truncated, the weight is min(ratio, {sampler_is_threshold}) per token, the log-ratio held within ±20 before: small weights "
        "stay small.",
        lambda given: _is_weighed(given) and bool(given["use_rollout_logps"]),
    ),
    Remark(
        "training_mode",
        "surprise",
        "training_mode is not agentic_grpo, so that Tunix does not read agentic_grpo_config at all; it is read here.",
        lambda given: has_keys_in(given, AGENTIC) and given["training_mode"] != "agentic_grpo",
        source="cli/grpo_main.py:809 GrpoPipeline._run",
    ),
    Remark(
        "num_iterations",
        "surprise",
        "With one iteration no log-probs are kept: the ratio is 1, nothing is ever clipped, and what the sampler thought plays no part.",
        lambda given: (
            given.speaks_of("loss") and not is_agentic(given) and not is_ppo(given) and given["num_iterations"] <= 1
        ),
        source="rl/grpo/grpo_learner.py:302 GRPOLearner._generate_and_compute_advantage",
    ),
    Remark(
        "kl_loss_mode",
        "surprise",
        "kl is k1: its gradient is that of log current alone, which has mean 0 on policy, so that it pulls nowhere on average; use "
        "low_var_kl.",
        lambda given: (
            given.speaks_of("loss") and not is_ppo(given) and bool(given["beta"]) and given["kl_loss_mode"] == "kl"
        ),
        source="rl/common.py:152 compute_kl_divergence",
    ),
    Remark(
        "loss_agg_mode",
        "surprise",
        "{loss_agg_mode} divides by the number of answers, not by a norm: no caller hands it one.",
        lambda given: given["loss_agg_mode"] == "sequence-mean-token-sum-norm",
        source="rl/common.py:584 aggregate_loss",
    ),
    Remark(
        "loss_agg_mode",
        "note",
        "Each micro-batch has its own denominator and they are averaged, so the step depends on how the batch is split; ours counts "
        "over the whole step.",
        lambda given: given.speaks_of("loss") and given["loss_agg_mode"] != "seq-mean-token-sum",
    ),
    Remark(
        "degenerate_group_masking",
        "note",
        "Groups whose advantages are all 0 leave the loss and its denominator; pass them masked to get the same number.",
        lambda given: bool(given["degenerate_group_masking"]),
    ),
    Remark(
        "loss_algo",
        "note",
        "The log-ratio of a token is held within ±20 before the mean over the sequence; ours is not.",
        lambda given: given["loss_algo"] == "gspo-token",
    ),
    Remark(
        "algo_variant",
        "surprise",
        "algo_variant {algo_variant} is a name and changes nothing: estimator, clip and reduction are keys of their own.",
        lambda given: given.has("algo_variant") and given["algo_variant"] not in (None, "grpo", "agentic_grpo", "ppo"),
        source="rl/algorithm_config.py:50 AlgorithmConfig.__post_init__",
    ),
    Remark(
        "policy_loss_fn",
        "defect",
        "PPO writes the reward of an answer into an array of whole numbers: 0.7 becomes 0 and −1.6 becomes −1. Scale rewards to whole "
        "numbers; ours keeps them.",
        is_ppo,
        source="rl/ppo/ppo_learner.py:353 PPOLearner._generate_and_compute_advantage",
    ),
    Remark(
        "kl_method",
        "note",
        "PPO pays its KL in the rewards, between the log-probs at the start of the step and the reference; the loss has none.",
        lambda given: is_ppo(given) and bool(given["beta"]),
    ),
)
