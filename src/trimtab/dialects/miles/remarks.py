"""What there is to say about miles: slime's findings that hold here too, and its own."""

from __future__ import annotations

from dataclasses import replace

from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.miles.keys import NOT_HERE, REPLAYED
from trimtab.dialects.slime.correction import is_mis
from trimtab.dialects.slime.remarks import REMARKS as SLIME


def _rejects(given: Given) -> bool:
    """Whether the recipe takes tokens out of the mask."""
    return bool(given["use_tis"]) and is_mis(given) and (given["tis_mode"] == "mask" or bool(given["use_rs"]))


LOSS = "miles/backends/training_utils/loss.py"
PLACES = {
    "custom_tis_function_path": f"{LOSS}:728 policy_loss_function",
    "get_mismatch_metrics": f"{LOSS}:702 policy_loss_function",
    "use_rs": "examples/train_infer_mismatch_helper/mis.py:210 compute_mis_weights",
    "tis_batch_normalize": "examples/train_infer_mismatch_helper/mis.py:274-292 compute_mis_weights",
    "tis_level": "examples/train_infer_mismatch_helper/mis.py:198 compute_mis_weights.compute_log_ratio",
    "opsm_delta": "miles/utils/ppo_utils.py:139 compute_opsm_mask",
    "n_samples_per_prompt": "miles/ray/rollout.py:651 RolloutManager._post_process_rewards",
    "kl_coef": f"{LOSS}:342 compute_advantages_and_returns",
    "kl_loss_coef": f"{LOSS}:783 policy_loss_function",
    "advantage_estimator": f"{LOSS}:356 compute_advantages_and_returns",
}
"""Where 0.0.2 does what slime does, by the key of slime's remark."""


REMARKS = (
    *(
        replace(each, source=PLACES[each.key] if each.level != "note" else "")
        for each in SLIME
        if each.key not in (*NOT_HERE, REPLAYED)
    ),
    Remark(
        "advantage_estimator",
        "defect",
        "Under context parallelism with --qkv-format bshd ppo adds the reward to the last token that the first rank holds, which is not "
        "the answer's last one where an answer ends before the last of the 2 · context_parallel_size parts of the longest; use thd, or "
        "another estimator.",
        lambda given: (
            given.speaks_of("advantage")
            and given["advantage_estimator"] == "ppo"
            and given["context_parallel_size"] > 1
            and given["qkv_format"] == "bshd"
        ),
        source=f"{LOSS}:353-354 compute_advantages_and_returns",
    ),
    Remark(
        REPLAYED,
        "surprise",
        "0.0.2 and the sources up to August 2026 do not replay what top-p kept: answers are drawn from a part of the vocabulary, and the "
        "trainer's log-probs run over all of it. Set it to 1, or record the ids and pass them as `support`.",
        lambda given: given["rollout_top_p"] < 1.0,
        source=f"{LOSS}:80 get_responses",
    ),
    Remark(
        "mask_offpolicy_in_partial_rollout",
        "note",
        "Tokens that earlier weights drew leave the mask before anything else and stay in the context; pass them masked to get the same "
        "numbers. An answer finished under earlier weights trains on nothing, and its reward still votes.",
        lambda given: given["mask_offpolicy_in_partial_rollout"] and given["partial_rollout"],
    ),
    Remark(
        "mask_offpolicy_in_partial_rollout",
        "surprise",
        "mask_offpolicy_in_partial_rollout has no effect without --partial-rollout.",
        lambda given: given["mask_offpolicy_in_partial_rollout"] and not given["partial_rollout"],
        source="miles/rollout/sglang_rollout.py:242 generate_and_rm",
    ),
    Remark(
        "recompute_logprobs_via_prefill",
        "note",
        "The sampler's log-probs are those of a second pass over the finished answer, not those that its tokens were drawn with; pass "
        "these as behavior.",
        lambda given: bool(given["recompute_logprobs_via_prefill"]),
    ),
    Remark(
        "skip_actor_forward_only",
        "note",
        "The trainer's log-probs are those of the step's own pass, detached: ρ is 1 and nothing is clipped. Pass current as proximal.",
        lambda given: bool(given["skip_actor_forward_only"]) and not given["use_rollout_logprobs"],
    ),
    Remark(
        "eps_clip_c",
        "surprise",
        "miles-rl 0.0.2 takes --eps-clip-c and never uses it; the sources after it do, and so does this reading.",
        lambda given: given["eps_clip_c"] is not None,
        source=f"{LOSS}:681 policy_loss_function",
    ),
    Remark(
        "use_rs",
        "surprise",
        "miles-rl 0.0.2 divides each answer by the tokens that rejection left, so that rejecting raises the step of the others; the "
        "sources after it divide by all of them, and so does this reading.",
        _rejects,
        source=f"{LOSS}:736 policy_loss_function",
    ),
)
