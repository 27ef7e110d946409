"""What there is to say about slime: each finding as data."""

from __future__ import annotations

from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.slime.advantage import CENTRED
from trimtab.dialects.slime.correction import MIS, function, has_recipe, is_mis, is_the_recipes_file, weighs

LOSS, RECIPE_CODE = "slime/backends/megatron_utils/loss.py", "examples/train_infer_mismatch_helper/mis.py"


def _normalizes(given: Given) -> bool:
    """Whether the recipe divides by the mean weight, which a file that is not here may have switched off."""
    is_known = given.has("tis_batch_normalize") or not given.builds_on_others
    return bool(given["use_tis"] and is_mis(given) and is_known and given["tis_batch_normalize"])


def _advantages(given: Given, *names: str) -> bool:
    return given.speaks_of("advantage") and given["advantage_estimator"] in names


REMARKS = (
    Remark(
        "use_score_centering",
        "note",
        "The objective is REINFORCE, weighed by the ratio of the policy being trained to the sampler, less its mean over the "
        "score_centering_top_k likeliest ids and a tail. Pass these ids with their log-probs as `head`.",
        lambda given: bool(given["use_score_centering"]) and given["rollout_top_p"] >= 1.0,
    ),
    Remark(
        "use_score_centering",
        "note",
        "The objective is REINFORCE, weighed by the ratio of the policy being trained to the sampler, less its mean over the ids that "
        "top-p kept, which is exact. Pass these with their log-probs as `head`.",
        lambda given: bool(given["use_score_centering"]) and given["rollout_top_p"] < 1.0,
    ),
    Remark(
        "rollout_top_p",
        "note",
        "Below 1 the ids that top-p kept are recorded, and the trainer's log-probs run over them alone; pass them as `support` to "
        "selected_log_probs. top-k is not replayed.",
        lambda given: given["rollout_top_p"] < 1.0,
    ),
    Remark(
        "custom_tis_function_path",
        "defect",
        "No function is named, so slime's own weighs, which holds r within tis_clip_low and tis_clip and reads no key of the mis recipe; "
        f"add --custom-tis-function-path {MIS}.",
        lambda given: (
            given["use_tis"]
            and given["custom_tis_function_path"] is None
            and has_recipe(given)
            and not is_the_recipes_file(given)
        ),
        source=f"{LOSS}:1074 policy_loss_function",
    ),
    Remark(
        "custom_tis_function_path",
        "note",
        "These are the keys of the recipe's own file, read as the recipe. It runs where the command also names its function, "
        f"--custom-tis-function-path {MIS}; without it slime's own weighs, min(r, tis_clip), and reads none of them.",
        lambda given: bool(given["use_tis"]) and is_the_recipes_file(given),
    ),
    Remark(
        "get_mismatch_metrics",
        "surprise",
        "get_mismatch_metrics calls the function that weighs, and {custom_tis_function_path} does not ask for use_tis: the loss is weighed "
        "though use_tis is off. Leave the function out of a run that is only to be measured, or switch use_tis on.",
        lambda given: weighs(given) and not given["use_tis"],
        source=f"{LOSS}:1049 policy_loss_function",
    ),
    Remark(
        "use_rs",
        "surprise",
        "Rejection needs use_tis: without it the recipe returns before it rejects anything; switch use_tis on.",
        lambda given: given["use_rs"] and not given["use_tis"] and function(given) == "mis",
        source=f"{RECIPE_CODE}:208 compute_mis_weights",
    ),
    Remark(
        "tis_batch_normalize",
        "surprise",
        "Documented as over the entire batch, it divides by the mean of one micro-batch, so the step depends on how the batch is "
        "split; ours takes the whole batch.",
        _normalizes,
        source=f"{RECIPE_CODE}:272-290 compute_mis_weights",
    ),
    Remark(
        "tis_batch_normalize",
        "surprise",
        "The mean of the sequences' weights counts an empty sequence as a weight of 0, so each one raises the weights of the others; "
        "ours leaves it out.",
        lambda given: _normalizes(given) and given["tis_level"] == "sequence",
        source=f"{RECIPE_CODE}:272-290 compute_mis_weights",
    ),
    Remark(
        "tis_lower_bound",
        "note",
        "null means 1/tis_upper_bound; AReaL and TRL leave that side open.",
        lambda given: (
            given.has("tis_lower_bound")
            and given["tis_lower_bound"] is None
            and given["tis_mode"] != "truncate"
            and is_mis(given)
        ),
    ),
    Remark(
        "rs_veto_threshold",
        "note",
        "The veto looks at the low side only and acts only with use_rs.",
        lambda given: given["use_tis"] and given["use_rs"] and given.is_on("rs_veto_threshold") and is_mis(given),
    ),
    Remark(
        "tis_level",
        "surprise",
        "`sequence` is the product over the tokens; AReaL, ms-swift and OpenRLHF mean the geometric mean, which is `geometric` here.",
        lambda given: given["use_tis"] and given["tis_level"] == "sequence" and is_mis(given),
        source=f"{RECIPE_CODE}:196 compute_mis_weights.compute_log_ratio",
    ),
    Remark(
        "opsm_delta",
        "surprise",
        "The sequence mask compares current with proximal and judges each token's advantage, with a delta of {opsm_delta}; "
        "TRL and ms-swift compare with behavior, so staleness itself is not seen here.",
        lambda given: given["use_opsm"] and not given["use_rollout_logprobs"],
        source="slime/utils/ppo_utils.py:54-92 compute_opsm_mask",
    ),
    Remark(
        "n_samples_per_prompt",
        "surprise",
        "Where the number of samples is not rollout_batch_size × n_samples_per_prompt, the whole batch is normalised as one group; "
        "ours groups by prompt.",
        lambda given: _advantages(given, *CENTRED) and bool(given["rewards_normalization"]),
        source="slime/ray/rollout.py:619-623 RolloutManager._post_process_rewards",
    ),
    Remark(
        "calculate_per_token_loss",
        "note",
        "A sequence without tokens counts as one token.",
        lambda given: bool(given["calculate_per_token_loss"]),
    ),
    Remark(
        "kl_coef",
        "surprise",
        "kl_coef {kl_coef} has no effect with {advantage_estimator}; use --use-kl-loss with --kl-loss-coef.",
        lambda given: _advantages(given, "grpo", "gspo", "cispo") and bool(given["kl_coef"]),
        source=f"{LOSS}:765 compute_advantages_and_returns",
    ),
    Remark(
        "kl_loss_coef",
        "surprise",
        "kl_loss_coef {kl_loss_coef} has no effect without --use-kl-loss: no KL is paid.",
        lambda given: given.is_on("kl_loss_coef") and not given["use_kl_loss"],
        source=f"{LOSS}:1110-1130 policy_loss_function",
    ),
    Remark(
        "advantage_estimator",
        "surprise",
        "ppo reads critic values and pays KL at masked positions too; zero both there to get our numbers.",
        lambda given: _advantages(given, "ppo"),
        source=f"{LOSS}:779 compute_advantages_and_returns",
    ),
    Remark(
        "advantage_estimator",
        "note",
        "Under context parallelism ppo adds the reward to the last token that the first rank holds. That is not the answer's last one "
        "where prompt and answer together have fewer than (2 · context_parallel_size)² tokens.",
        lambda given: _advantages(given, "ppo") and given["context_parallel_size"] > 1,
    ),
    Remark(
        "normalize_advantages",
        "note",
        "{advantage_estimator} is meant to be whitened, and the start demands it; switch --normalize-advantages on.",
        lambda given: (
            _advantages(given, "reinforce_plus_plus", "reinforce_plus_plus_baseline")
            and not given["normalize_advantages"]
        ),
    ),
)
