"""What there is to say about TRL: each finding as data."""

from __future__ import annotations

from trimtab.dialects.dialect import Remark
from trimtab.dialects.trl.correction import is_weighed, weight_bounds
from trimtab.dialects.trl.keys import MODES, P
from trimtab.dialects.trl.loss import is_rloo

REMARKS = (
    Remark(
        f"{P}_mode",
        "surprise",
        "`sequence` bounds the product over the tokens: a hundred tokens at ratio 1.02 make 7.2; AReaL, ms-swift, OpenRLHF and NeMo-RL "
        "test the geometric mean; use token_truncate for long answers.",
        lambda given: is_weighed(given) and MODES[given[f"{P}_mode"]][0] == "sequence",
    ),
    Remark(
        f"{P}_mode",
        "note",
        "Left out, the mode is sequence_mask, though the documentation names token_truncate; write it down.",
        lambda given: is_weighed(given) and not given.has(f"{P}_mode"),
    ),
    Remark(
        f"{P}_cap",
        "note",
        f"{P}_cap is deprecated; now {P}_clip_max.",
        lambda given: given.has(f"{P}_cap"),
    ),
    Remark(
        f"{P}_clip_max",
        "surprise",
        "Without clip_max the exponential of a summed log-ratio can overflow to infinity; set one.",
        lambda given: is_weighed(given) and weight_bounds(given)[1] is None,
    ),
    Remark(
        f"{P}_mode",
        "note",
        "Masked tokens weigh 0 and stay in the denominator; AReaL, SkyRL and verl take them out of the mask.",
        lambda given: is_weighed(given) and MODES[given[f"{P}_mode"]][1],
    ),
    Remark(
        "off_policy_mask_threshold",
        "note",
        "The sequence mask compares current with behavior and multiplies the policy term only; ms-swift also takes the tokens out "
        "of the mask, slime compares with proximal.",
        lambda given: given.is_on("off_policy_mask_threshold"),
    ),
    Remark(
        "max_staleness",
        "note",
        "AsyncGRPO has two policies: PPO's ratio divides by behavior, nothing bounds it below or above the clip, and samples older than "
        "max_staleness {max_staleness} are dropped.",
        lambda given: given.has("max_staleness"),
    ),
    Remark(
        "epsilon_high",
        "surprise",
        "With cispo epsilon_high {epsilon_high} bounds the ratio itself; verl, slime, NeMo-RL and ROLL mean 1 + epsilon_high.",
        lambda given: given["loss_type"] == "cispo" and given.has("loss_type"),
    ),
    Remark(
        "delta",
        "surprise",
        "delta caps the ratio of the unclipped branch for both signs of the advantage; dual clip elsewhere caps the loss where it is "
        "negative.",
        lambda given: given.is_on("delta"),
    ),
    Remark(
        "use_bias_correction_kl",
        "note",
        "By default the KL term is multiplied by the ratio, differentiated through both.",
        lambda given: given.is_on("beta") and given["use_bias_correction_kl"] and not is_rloo(given),
    ),
    Remark(
        "loss_type",
        "surprise",
        "{loss_type} averages each micro-batch by itself, so the step depends on how the batch is split; dapo divides by the tokens "
        "of the whole batch.",
        lambda given: given.has("loss_type") and given["loss_type"] in ("bnpo", "grpo", "dr_grpo", "sapo", "luspo"),
    ),
    Remark(
        "mask_truncated_completions",
        "note",
        "Truncated answers leave the mask and its counts but still vote in the baseline; pass their rows masked.",
        lambda given: bool(given["mask_truncated_completions"]),
    ),
    Remark(
        "scale_rewards",
        "note",
        "1e-4 is added to the deviation; verl and SkyRL add 1e-6, OpenRLHF 1e-9.",
        lambda given: given.has("scale_rewards") and given["scale_rewards"] in (True, "group", "batch"),
    ),
)
