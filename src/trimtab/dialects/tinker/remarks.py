"""What there is to say about Tinker: each finding as data."""

from __future__ import annotations

from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.tinker.keys import NEWEST
from trimtab.dialects.tinker.loss import REFUSED, loss_name, runs_ahead

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
    Remark(
        "loss_fn",
        "surprise",
        "Losses are sums over the tokens of the batch, not means: the gradient grows with the number and the length of the answers. Divide "
        "the advantages yourself where a mean is meant.",
        _is_policy_loss,
        source=f"{SUMS} TrainingClient._run_custom_backward",
    ),
    Remark(
        "loss_fn",
        "surprise",
        "ppo clips the ratio to the sampler, not to the start of the step: under staleness tokens arrive already clipped, and none of "
        "them is weighed.",
        lambda given: loss_name(given) == "ppo",
        source="tinker_cookbook/rl/data_processing.py:250 trajectory_to_data",
    ),
    Remark(
        "loss_fn",
        "surprise",
        "The ratio to the sampler is neither clipped nor cut: a single token that the sampler thought unlikely can be most of a step.",
        lambda given: loss_name(given) == "importance_sampling",
        source="tinker_cookbook/rl/data_processing.py:250 trajectory_to_data",
    ),
    Remark(
        "clip_low_threshold",
        "note",
        "The thresholds bound the ratio itself: 0.8 and 1.2 are a clip of 0.2 to either side. A width written in their place would clip "
        "every token that is on policy.",
        lambda given: loss_name(given) in CLIPPED and not _without_bounds(given),
    ),
    Remark(
        "clip_low_threshold",
        "surprise",
        "This loss has no clipping: clip_low_threshold and clip_high_threshold are keys of ppo, cispo and gspo.",
        lambda given: loss_name(given) in ("importance_sampling", "dro") and not _without_bounds(given),
        source="tinker/types/datum.py:32",
    ),
    Remark(
        "beta",
        "surprise",
        "This loss has no beta {beta}: it is a key of dro.",
        lambda given: given["beta"] is not None and loss_name(given) not in ("dro", *REFUSED),
        source="tinker/types/datum.py:32",
    ),
    Remark(
        "loss_fn",
        "defect",
        "The cookbook sends prompt and tool tokens with a sampler's log-prob of 0 and takes the mask away before dro sees it, so that "
        "its square pulls them too, to a probability of 1. Ours leaves them out; send only answer tokens, or take another loss.",
        lambda given: loss_name(given) == "dro",
        source=f"{LOOP}:364 train_step",
    ),
    Remark(
        "loss_fn",
        "note",
        "The mean runs over the tokens that sequence_ratio_mask marks, which rl/train.py does not send; ours takes the trained ones.",
        lambda given: loss_name(given) == "gspo",
    ),
    Remark(
        "loss_fn",
        "surprise",
        "The run is asynchronous and trains with async_config.loss_fn, stable_reinforce where it is not written; this loss_fn has no "
        "effect.",
        lambda given: runs_ahead(given) and given.has("loss_fn") and loss_name(given) != given["loss_fn"],
        source=f"{LOOP}:620 Config.training_loss_fn",
        since=NEWEST,
    ),
    Remark(
        "loss_fn",
        "surprise",
        "The cookbook itself warns of this loss in asynchronous runs: it can become unstable on the older answers that these train on. "
        "Take stable_reinforce, or a clipped loss such as ppo.",
        lambda given: _may_be_old(given) and loss_name(given) in ("importance_sampling", "cispo"),
        source=f"{LOOP}:2518 main",
        since=NEWEST,
    ),
    Remark(
        "max_steps_off_policy",
        "surprise",
        "max_steps_off_policy bounds how many groups are on their way, groups_per_batch times one more than it, not "
        "how old an answer may be: a completed group is never discarded, so a slow one trains however many steps it is behind.",
        _may_be_old,
        source=f"{LOOP}:424-434 AsyncConfig",
        since=NEWEST,
    ),
    Remark(
        "kl_penalty_coef",
        "note",
        "Advantages are never divided by a deviation, and a group of one gets 0.",
        lambda given: given.speaks_of("advantage") and not given["kl_penalty_coef"],
    ),
)
