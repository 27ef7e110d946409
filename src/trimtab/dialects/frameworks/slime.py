"""slime: its keys and what is surprising about it. What it computes is in `slime_rules`."""

from __future__ import annotations

from trimtab.dialects.framework import Dialect, Given, Key, Version, defect, remark, surprise
from trimtab.dialects.frameworks.slime_rules import (
    BEFORE,
    CENTRED,
    DISTILLED,
    ESTIMATORS,
    MIS,
    RECIPE,
    EstimatorName,
    advantage_of,
    candidates,
    correction_of,
    function,
    has_recipe,
    is_mis,
    is_the_recipes_file,
    loss_of,
    weighs,
)
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import choice, flag, number, positive, raw, text, unsaid_or

KEYS = (
    Key("use_tis", flag, False),
    Key("tis_clip", number, 2.0),
    Key("tis_clip_low", number, 0.0),
    Key("custom_tis_function_path", text),
    Key("tis_binary_kl_threshold", positive, 5e-3),
    Key("use_rollout_logprobs", flag, False),
    Key("use_score_centering", flag, False),
    Key("use_opsm", flag, False),
    Key("opsm_delta", number, 1e-4),
    *RECIPE,
    Key("get_mismatch_metrics", flag, False, part="other"),
    Key("custom_config_path", text, part="other"),
    *(Key(name, raw, legacy=True) for name in BEFORE),
    Key("loss_type", text, "policy_loss", part="loss"),
    Key("pg_loss_type", choice("ppo", "reinforce"), part="loss"),
    Key("eps_clip", number, 0.2, part="loss"),
    Key("eps_clip_high", number, part="loss"),
    Key("eps_clip_c", number, part="loss"),
    Key("calculate_per_token_loss", flag, False, part="loss"),
    Key("custom_pg_loss_reducer_function_path", text, part="loss"),
    Key("custom_loss_function_path", text, part="loss"),
    Key("use_kl_loss", flag, False, part="loss", joint=("kl_loss_type", "use_unbiased_kl")),
    Key("kl_loss_coef", number, 0.0, part="loss", seed=0.1),
    Key("kl_loss_type", choice("k1", "k2", "k3", "low_var_kl"), "k1", part="other"),
    Key("use_unbiased_kl", flag, False, part="loss"),
    Key("entropy_coef", number, 0.0, part="loss"),
    Key("advantage_estimator", EstimatorName(ESTIMATORS), "grpo", part="advantage",
        options=unsaid_or((*ESTIMATORS, DISTILLED)), chooses=("loss",), joint=("grpo_std_normalization", "use_opd")),
    Key("rewards_normalization", flag, True, part="advantage"),
    Key("grpo_std_normalization", flag, True, part="advantage"),
    Key("normalize_advantages", flag, False, part="advantage"),
    Key("kl_coef", number, 0.0, part="advantage", toggle=True, joint=("kl_loss_type",)),
    Key("gamma", number, 1.0, part="advantage"),
    Key("lambd", number, 1.0, part="advantage"),
    Key("use_opd", flag, False, part="advantage"),
    Key("opd_kl_coef", number, 1.0, part="advantage"),
    Key("opd_type", text, part="advantage"),
    Key("use_mopd", flag, False, part="advantage"),
    Key("n_samples_per_prompt", number, 1.0, part="other"),
    Key("context_parallel_size", number, 1.0, part="other"),
    Key("rollout_top_p", number, 1.0, part="other"),
)  # fmt: skip


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LOSS, RECIPE_CODE = "slime/backends/megatron_utils/loss.py", "examples/train_infer_mismatch_helper/mis.py"


def _normalizes(given: Given) -> bool:
    """Whether the recipe divides by the mean weight, which a file that is not here may have switched off."""
    is_known = given.has("tis_batch_normalize") or not given.builds_on_others
    return bool(given["use_tis"] and is_mis(given) and is_known and given["tis_batch_normalize"])


def _advantages(given: Given, *names: str) -> bool:
    return given.speaks_of("advantage") and given["advantage_estimator"] in names


REMARKS = (
    remark("use_score_centering", lambda g: bool(g["use_score_centering"]) and g["rollout_top_p"] >= 1.0,
        "The objective is REINFORCE, weighed by the ratio of the policy being trained to the sampler, less its mean "
        "over the score_centering_top_k likeliest ids and a tail. Pass these ids with their log-probs as `head`."),
    remark("use_score_centering", lambda g: bool(g["use_score_centering"]) and g["rollout_top_p"] < 1.0,
        "The objective is REINFORCE, weighed by the ratio of the policy being trained to the sampler, less its mean "
        "over the ids that top-p kept, which is exact. Pass these with their log-probs as `head`."),
    remark("rollout_top_p", lambda g: g["rollout_top_p"] < 1.0,
        "Below 1 the ids that top-p kept are recorded, and the trainer's log-probs run over them alone; pass them as "
        "`support` to selected_log_probs. top-k is not replayed."),
    defect("custom_tis_function_path",
        lambda g: (g["use_tis"] and g["custom_tis_function_path"] is None and has_recipe(g)
            and not is_the_recipes_file(g)),
        "No function is named, so slime's own weighs, which holds r within tis_clip_low and tis_clip and reads no "
        f"key of the mis recipe; add --custom-tis-function-path {MIS}.",
        source=f"{LOSS}:1074 policy_loss_function"),
    remark("custom_tis_function_path", lambda g: bool(g["use_tis"]) and is_the_recipes_file(g),
        "These are the keys of the recipe's own file, read as the recipe. It runs where the command also names its "
        f"function, --custom-tis-function-path {MIS}; without it slime's own weighs, min(r, tis_clip), and reads "
        "none of them."),
    surprise("get_mismatch_metrics", lambda g: weighs(g) and not g["use_tis"],
        "get_mismatch_metrics calls the function that weighs, and {custom_tis_function_path} does not ask for "
        "use_tis: the loss is weighed though use_tis is off. Leave the function out of a run that is only to be "
        "measured, or switch use_tis on.",
        source=f"{LOSS}:1049 policy_loss_function"),
    surprise("use_rs", lambda g: g["use_rs"] and not g["use_tis"] and function(g) == "mis",
        "Rejection needs use_tis: without it the recipe returns before it rejects anything; switch use_tis on.",
        source=f"{RECIPE_CODE}:208 compute_mis_weights"),
    surprise("tis_batch_normalize", _normalizes,
        "Documented as over the entire batch, it divides by the mean of one micro-batch, so the step depends on how "
        "the batch is split; ours takes the whole batch.",
        source=f"{RECIPE_CODE}:272-290 compute_mis_weights"),
    surprise("tis_batch_normalize", lambda g: _normalizes(g) and g["tis_level"] == "sequence",
        "The mean of the sequences' weights counts an empty sequence as a weight of 0, so each one raises the "
        "weights of the others; ours leaves it out.",
        source=f"{RECIPE_CODE}:272-290 compute_mis_weights"),
    remark("tis_lower_bound",
        lambda g: (g.has("tis_lower_bound") and g["tis_lower_bound"] is None and g["tis_mode"] != "truncate"
            and is_mis(g)),
        "null means 1/tis_upper_bound; AReaL and TRL leave that side open."),
    remark("rs_veto_threshold", lambda g: g["use_tis"] and g["use_rs"] and g.is_on("rs_veto_threshold") and is_mis(g),
        "The veto looks at the low side only and acts only with use_rs."),
    surprise("tis_level", lambda g: g["use_tis"] and g["tis_level"] == "sequence" and is_mis(g),
        "`sequence` is the product over the tokens; AReaL, ms-swift and OpenRLHF mean the geometric mean, which is "
        "`geometric` here.",
        source=f"{RECIPE_CODE}:196 compute_mis_weights.compute_log_ratio"),
    surprise("opsm_delta", lambda g: g["use_opsm"] and not g["use_rollout_logprobs"],
        "The sequence mask compares current with proximal and judges each token's advantage, with a delta of "
        "{opsm_delta}; TRL and ms-swift compare with behavior, so staleness itself is not seen here.",
        source="slime/utils/ppo_utils.py:54-92 compute_opsm_mask"),
    surprise("n_samples_per_prompt", lambda g: _advantages(g, *CENTRED) and bool(g["rewards_normalization"]),
        "Where the number of samples is not rollout_batch_size × n_samples_per_prompt, the whole batch is normalised "
        "as one group; ours groups by prompt.",
        source="slime/ray/rollout.py:619-623 RolloutManager._post_process_rewards"),
    remark("calculate_per_token_loss", lambda g: bool(g["calculate_per_token_loss"]),
        "A sequence without tokens counts as one token."),
    surprise("kl_coef", lambda g: _advantages(g, "grpo", "gspo", "cispo") and bool(g["kl_coef"]),
        "kl_coef {kl_coef} has no effect with {advantage_estimator}; use --use-kl-loss with --kl-loss-coef.",
        source=f"{LOSS}:765 compute_advantages_and_returns"),
    surprise("kl_loss_coef", lambda g: g.is_on("kl_loss_coef") and not g["use_kl_loss"],
        "kl_loss_coef {kl_loss_coef} has no effect without --use-kl-loss: no KL is paid.",
        source=f"{LOSS}:1110-1130 policy_loss_function"),
    surprise("advantage_estimator", lambda g: _advantages(g, "ppo"),
        "ppo reads critic values and pays KL at masked positions too; zero both there to get our numbers.",
        source=f"{LOSS}:779 compute_advantages_and_returns"),
    remark("advantage_estimator", lambda g: _advantages(g, "ppo") and g["context_parallel_size"] > 1,
        "Under context parallelism ppo adds the reward to the last token that the first rank holds. That is not the "
        "answer's last one where prompt and answer together have fewer than (2 · context_parallel_size)² tokens."),
    remark("normalize_advantages",
        lambda g: (_advantages(g, "reinforce_plus_plus", "reinforce_plus_plus_baseline")
            and not g["normalize_advantages"]),
        "{advantage_estimator} is meant to be whitened, and the start demands it; switch --normalize-advantages on."),
)  # fmt: skip


DIALECT = Dialect(
    SIGNATURES["slime"],
    version="624b824a",
    versions=(
        Version("before use_rs", BEFORE),
        Version("after 624b824a, and vime", ("use_score_centering", "score_centering_top_k")),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    apart=("A NaN log-prob spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
)
