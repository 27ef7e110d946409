"""miles, a descendant of slime: what it reads beside and apart from it, what it computes, what is surprising about it.

Its weights and its `mis` recipe are slime's, between the same three policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trimtab.config.correction import Correction
from trimtab.dialects.framework import Dialect, Given, Key, Version, defect, remark, surprise
from trimtab.dialects.frameworks import slime, slime_rules
from trimtab.dialects.frameworks.slime_rules import BEFORE, EstimatorName, is_mis
from trimtab.dialects.parts import AdvantagePart, LossPart, refuse
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import flag, text

ESTIMATORS = ("grpo", "gspo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
OTHERWISE: dict[str, dict[str, Any]] = {
    "advantage_estimator": {"kind": EstimatorName(ESTIMATORS)},
    "tis_batch_normalize": {"default": False},
}
"""What slime's keys are here: miles has no CISPO, and its recipe does not normalise unless it is told to."""
REPLAYED = "rollout_top_p"
"""slime replays what top-p kept; miles only proposes to (miles#2596)."""
NOT_HERE = ("use_score_centering", "pg_loss_type", "tis_binary_kl_threshold", "use_mopd")
"""Keys of slime that no release of miles has; read in order to be refused."""
KEYS = (
    *(replace(key, legacy=key.legacy or key.path in NOT_HERE, **OTHERWISE.get(key.path, {})) for key in slime.KEYS),
    Key("partial_rollout", flag, False, part="other"),
    Key("mask_offpolicy_in_partial_rollout", flag, False, part="other"),
    Key("recompute_logprobs_via_prefill", flag, False, part="other"),
    Key("skip_actor_forward_only", flag, False, part="other"),
    Key("qkv_format", text, "thd", part="other"),
)


# ── what it computes ──────────────────────────────────────────────────────────────────────────────────────────────────

PLACE = "miles.backends.training_utils.loss"


def correction_of(given: Given) -> Correction:
    """As slime, without what only slime has."""
    refuse_slimes(given)
    refuse(
        (given["custom_tis_function_path"] or "").endswith(slime_rules.TRUST_REGION),
        f"miles --custom-tis-function-path {given['custom_tis_function_path']}",
        "no release of miles has that function; slime's has. Use its icepop_function, or --from slime",
    )
    return slime_rules.correction_of(given)


def refuse_slimes(given: Given) -> None:
    """Refused where a key is written that only slime has."""
    for name in NOT_HERE:
        why = "miles#3317 proposes it and no release has it" if name == "use_score_centering" else "only slime has it"
        refuse(
            given.has(name) and given[name], f"miles {name}", f"{why}. Leave it out, or read the file with --from slime"
        )


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """slime's proposals, with the functions where miles has them."""
    for each in slime_rules.candidates(rule):
        if not any(name in each for name in NOT_HERE):
            path = each.get("custom_tis_function_path", "")
            own = {"custom_tis_function_path": path.replace(slime_rules.PLACE, PLACE)} if path else {}
            yield {**each, **own}


def loss_of(given: Given) -> LossPart:
    """As slime, without what only slime has."""
    refuse_slimes(given)
    return slime_rules.loss_of(given)


def advantage_of(given: Given) -> AdvantagePart:
    """What slime's rules say. A teacher alone is an estimator of 0.0.2; one beside rewards came later, and was not read."""
    refuse(given["use_opd"], "miles --use-opd", "a teacher moves the advantages in a way that was not read")
    return slime_rules.advantage_of(given)


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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
        for each in slime.REMARKS
        if each.key not in (*NOT_HERE, REPLAYED)
    ),
    defect("advantage_estimator",
        lambda g: (g.speaks_of("advantage") and g["advantage_estimator"] == "ppo" and g["context_parallel_size"] > 1
            and g["qkv_format"] == "bshd"),
        "Under context parallelism with --qkv-format bshd ppo adds the reward to the last token that the first rank "
        "holds, which is not the answer's last one where an answer ends before the last of the 2 · "
        "context_parallel_size parts of the longest; use thd, or another estimator.",
        source=f"{LOSS}:353-354 compute_advantages_and_returns"),
    surprise(REPLAYED, lambda g: g["rollout_top_p"] < 1.0,
        "0.0.2 and the sources up to August 2026 do not replay what top-p kept: answers are drawn from a part of the "
        "vocabulary, and the trainer's log-probs run over all of it. Set it to 1, or record the ids and pass them as "
        "`support`.",
        source=f"{LOSS}:80 get_responses"),
    remark("mask_offpolicy_in_partial_rollout",
        lambda g: g["mask_offpolicy_in_partial_rollout"] and g["partial_rollout"],
        "Tokens that earlier weights drew leave the mask before anything else and stay in the context; pass them "
        "masked to get the same numbers. An answer finished under earlier weights trains on nothing, and its reward "
        "still votes."),
    surprise("mask_offpolicy_in_partial_rollout",
        lambda g: g["mask_offpolicy_in_partial_rollout"] and not g["partial_rollout"],
        "mask_offpolicy_in_partial_rollout has no effect without --partial-rollout.",
        source="miles/rollout/sglang_rollout.py:242 generate_and_rm"),
    remark("recompute_logprobs_via_prefill", lambda g: bool(g["recompute_logprobs_via_prefill"]),
        "The sampler's log-probs are those of a second pass over the finished answer, not those that its tokens were "
        "drawn with; pass these as behavior."),
    remark("skip_actor_forward_only", lambda g: bool(g["skip_actor_forward_only"]) and not g["use_rollout_logprobs"],
        "The trainer's log-probs are those of the step's own pass, detached: ρ is 1 and nothing is clipped. Pass "
        "current as proximal."),
    surprise("eps_clip_c", lambda g: g["eps_clip_c"] is not None,
        "miles-rl 0.0.2 takes --eps-clip-c and never uses it; the sources after it do, and so does this reading.",
        source=f"{LOSS}:681 policy_loss_function"),
    surprise("use_rs", _rejects,
        "miles-rl 0.0.2 divides each answer by the tokens that rejection left, so that rejecting raises the step of "
        "the others; the sources after it divide by all of them, and so does this reading.",
        source=f"{LOSS}:736 policy_loss_function"),
)  # fmt: skip

DIALECT = Dialect(
    SIGNATURES["miles"],
    version="0.0.2 and later sources",
    versions=(
        Version("before use_rs", BEFORE),
        Version("after 0.0.2", ("skip_actor_forward_only", "observe_training_entropy", "use_opd", "opd_type")),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    apart=(
        "A NaN log-prob counts as a ratio of 1 in the clip and spreads to the loss where --use-tis weighs; ours takes the token as never "
        "trained.",
    ),
    candidates=candidates,
)
