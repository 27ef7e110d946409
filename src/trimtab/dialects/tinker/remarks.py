"""What there is to say about Tinker: each finding as data."""

from __future__ import annotations

from trimtab.dialects.dialect import Given, Remark
from trimtab.dialects.tinker.loss import REFUSED

CLIPPED = ("ppo", "cispo", "gspo")


def _is_policy_loss(given: Given) -> bool:
    return given["loss_fn"] not in REFUSED


def _without_bounds(given: Given) -> bool:
    return given["clip_low_threshold"] is None and given["clip_high_threshold"] is None


REMARKS = (
    Remark(
        "loss_fn",
        "surprise",
        "Losses are sums over the tokens of the batch, not means: the gradient grows with the number and the length of the answers. Divide "
        "the advantages yourself where a mean is meant.",
        _is_policy_loss,
    ),
    Remark(
        "loss_fn",
        "surprise",
        "ppo clips the ratio to the sampler, not to the start of the step: under staleness tokens arrive already clipped, and none of "
        "them is weighed.",
        lambda given: given["loss_fn"] == "ppo",
    ),
    Remark(
        "loss_fn",
        "surprise",
        "The ratio to the sampler is neither clipped nor cut: a single token that the sampler thought unlikely can be most of a step.",
        lambda given: given["loss_fn"] == "importance_sampling",
    ),
    Remark(
        "clip_low_threshold",
        "note",
        "The thresholds bound the ratio itself: 0.8 and 1.2 are a clip of 0.2 to either side. A width written in their place would clip "
        "every token that is on policy.",
        lambda given: given["loss_fn"] in CLIPPED and not _without_bounds(given),
    ),
    Remark(
        "clip_low_threshold",
        "surprise",
        "{loss_fn} has no clipping: clip_low_threshold and clip_high_threshold are keys of ppo, cispo and gspo.",
        lambda given: given["loss_fn"] in ("importance_sampling", "dro") and not _without_bounds(given),
    ),
    Remark(
        "beta",
        "surprise",
        "{loss_fn} has no beta {beta}: it is a key of dro.",
        lambda given: given["beta"] is not None and given["loss_fn"] not in ("dro", *REFUSED),
    ),
    Remark(
        "loss_fn",
        "defect",
        "The cookbook sends prompt and tool tokens with a sampler's log-prob of 0 and takes the mask away before dro sees it, so that "
        "its square pulls them too, to a probability of 1. Ours leaves them out; send only answer tokens, or take another loss.",
        lambda given: given["loss_fn"] == "dro",
    ),
    Remark(
        "loss_fn",
        "note",
        "The mean runs over the tokens that sequence_ratio_mask marks, which the cookbook's own loop does not send; ours takes the trained "
        "ones.",
        lambda given: given["loss_fn"] == "gspo",
    ),
    Remark(
        "kl_penalty_coef",
        "note",
        "Advantages are never divided by a deviation, and a group of one gets 0.",
        lambda given: given.speaks_of("advantage") and not given["kl_penalty_coef"],
    ),
)
