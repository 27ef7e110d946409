"""NeMo-RL: ClippedPGLoss and the GRPO baseline."""

from __future__ import annotations

from trimtab.config import losses as ours
from trimtab.config.advantages import Grpo, LeaveOneOut
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.keys import Given, Key, Remark, choice, flag, number
from trimtab.dialects.objectives.kinds import Descent, Estimation

F = "loss_fn"
KEYS = (
    Key(f"{F}.token_level_loss", flag, True, part="loss"),
    Key(f"{F}.force_on_policy_ratio", flag, False, part="loss"),
    Key(f"{F}.ratio_clip_min", number, 0.2, part="loss"),
    Key(f"{F}.ratio_clip_max", number, 0.2, part="loss"),
    Key(f"{F}.ratio_clip_c", number, part="loss"),
    Key(f"{F}.use_cispo", flag, False, part="loss"),
    Key(f"{F}.disable_ppo_ratio", flag, False, part="loss"),
    Key(f"{F}.reference_policy_kl_penalty", number, 0.0, part="loss"),
    Key(f"{F}.reference_policy_kl_type", choice("k1", "k2", "k3"), "k3", part="other"),
    Key(
        "grpo.adv_estimator.use_leave_one_out_baseline",
        flag,
        True,
        part="advantage",
        also=("grpo.use_leave_one_out_baseline",),
    ),
    Key("grpo.adv_estimator.normalize_rewards", flag, True, part="advantage", also=("grpo.normalize_rewards",)),
)


def descent(given: Given) -> Descent:
    """A token mean, or a mean per sequence; at sequence level GSPO."""
    penalty = given["reference_policy_kl_penalty"]
    kl = None
    if penalty:
        kl = KlPenalty(
            coefficient=penalty, estimator=given["reference_policy_kl_type"], input_limit=20.0, output_limit=10.0
        )
    mode = "token-mean" if given["token_level_loss"] else "seq-mean-token-mean"
    return Descent(loss=_loss(given), reduction=Reduction(mode=mode), kl=kl)


def _loss(given: Given) -> Objective:
    low, high = given["ratio_clip_min"], given["ratio_clip_max"]
    if given["disable_ppo_ratio"]:
        return ours.Reinforce()
    if given["use_cispo"]:
        return ours.Cispo(lower=1 - low, upper=1 + high)
    if given["sequence_level_importance_ratios"]:
        return ours.Gspo(low=low, high=high, dual=given["ratio_clip_c"])
    return ours.Clip(low=low, high=high, dual=given["ratio_clip_c"])


def estimation(given: Given) -> Estimation:
    """The mean, and the deviation, of the group or of the others in it."""
    kind = LeaveOneOut if given["use_leave_one_out_baseline"] else Grpo
    return Estimation(advantage=kind(std=given["normalize_rewards"], baseline="all"))


REMARKS = (
    Remark(
        "use_leave_one_out_baseline",
        "surprise",
        "Mean and deviation are both those of the others: rewards [1, 0, 0, 0] give [1, −0.58, −0.58, −0.58] where GRPO gives "
        "[1.5, −0.5, −0.5, −0.5], and groups of two are never divided.",
        lambda given: (
            given.speaks_of("advantage") and given["use_leave_one_out_baseline"] and given["normalize_rewards"]
        ),
    ),
    Remark(
        "force_on_policy_ratio",
        "surprise",
        "force_on_policy_ratio sets the PPO ratio to 1, so nothing is ever clipped; pass current as proximal to get the same.",
        lambda given: bool(given["force_on_policy_ratio"]),
    ),
)
