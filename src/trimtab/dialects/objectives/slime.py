"""slime: clipping, reductions and reward normalisation."""

from __future__ import annotations

from trimtab.config import losses as ours
from trimtab.config.advantages import Grpo
from trimtab.config.losses import Reduction
from trimtab.dialects.keys import Given, Key, Remark, flag, number, text
from trimtab.dialects.objectives.kinds import Descent, Estimation
from trimtab.errors import ConfigError

KEYS = (
    Key("eps_clip", number, 0.2, part="loss"),
    Key("eps_clip_high", number, part="loss"),
    Key("eps_clip_c", number, part="loss"),
    Key("calculate_per_token_loss", flag, False, part="loss"),
    Key("advantage_estimator", text, "grpo", part="advantage"),
    Key("rewards_normalization", flag, True, part="advantage"),
    Key("grpo_std_normalization", flag, True, part="advantage"),
    Key("n_samples_per_prompt", number, 1.0, part="other"),
)
GROUPED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")


def descent(given: Given) -> Descent:
    """PPO or GSPO clip; a mean per sample, or per token."""
    high = given["eps_clip"] if given["eps_clip_high"] is None else given["eps_clip_high"]
    mode = "token-mean" if given["calculate_per_token_loss"] else "seq-mean-token-mean"
    if given["advantage_estimator"] == "gspo":
        return Descent(
            loss=ours.Gspo(low=given["eps_clip"], high=high, dual=given["eps_clip_c"]), reduction=Reduction(mode=mode)
        )
    loss = ours.Clip(low=given["eps_clip"], high=high, dual=given["eps_clip_c"])
    return Descent(loss=loss, reduction=Reduction(mode=mode))


def estimation(given: Given) -> Estimation:
    """Rewards centred in their group and, for GRPO, divided by its deviation."""
    name = given["advantage_estimator"]
    if name not in GROUPED or not given["rewards_normalization"]:
        raise ConfigError(
            f"slime advantage_estimator {name} cannot be said. Use grpo, gspo or reinforce_plus_plus_baseline."
        )
    scaled = name in ("grpo", "gspo", "cispo") and bool(given["grpo_std_normalization"])
    return Estimation(advantage=Grpo(std=scaled, baseline="all"))


REMARKS = (
    Remark(
        "n_samples_per_prompt",
        "surprise",
        "Where the number of samples is not rollout_batch_size × n_samples_per_prompt, the whole batch is normalised as one group; "
        "ours groups by prompt.",
        lambda given: given.speaks_of("advantage") and bool(given["rewards_normalization"]),
    ),
    Remark(
        "calculate_per_token_loss",
        "note",
        "A sequence without tokens counts as one token.",
        lambda given: bool(given["calculate_per_token_loss"]),
    ),
)
