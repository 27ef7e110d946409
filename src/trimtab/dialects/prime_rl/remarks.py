"""What there is to say about prime-rl: each finding as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.prime_rl.keys import CAP
from trimtab.dialects.prime_rl.kinds import REMOVED, REPLACED, distils, is_orchestrator, is_replaced, loss_kind


def _is_removed(given: Given) -> bool:
    return given.has(*REMOVED)


def _is_custom(given: Given) -> bool:
    return loss_kind(given) == "custom"


def _is_unsaid(given: Given) -> bool:
    """Whether nothing says which version's default holds, and one does."""
    said = given.has("type", "eps", "ratio_low", "ratio_high", "max_importance_ratio", *REPLACED, *REMOVED)
    return not (said or distils(given) or is_orchestrator(given))


def _is_truncated(given: Given) -> bool:
    """Whether answers are drawn from a part of the vocabulary."""
    return (given["top_p"] is not None and given["top_p"] < 1) or (given["top_k"] is not None and given["top_k"] > 0)


LOSS, CONFIG = "src/prime_rl/trainer/rl/loss.py", "packages/prime-rl-configs/src/prime_rl/configs/trainer.py"
OTHER_COMPONENTS = ("opsd", "sft", "dataset_sft", "echo")
"""Algorithms that train tokens otherwise than by the policy's loss."""
_REMARKS = (
    Remark(
        "type",
        "surprise",
        "No loss is named, so today's default holds: `ipo`, tokens whose probability moved by more than 0.3 dropped, no KL. Up to "
        "559b4477 it was `default`: probabilities within 0.2 by the sign of the advantage, and kl_tau 0.001. "
        "--set trainer.loss.type=default reads that.",
        _is_unsaid,
        source=f"{CONFIG}:494-532",
    ),
    Remark(
        "type",
        "note",
        "Tokens with advantage 0 leave the loss and its denominator; pass them masked to get the same number.",
        lambda given: not _is_custom(given),
    ),
    Remark(
        "kl_tau",
        "note",
        "kl_tau·ℓ² has no ½ and runs over every trained token, dropped ones included; it is our k2 to behavior with twice the "
        "coefficient.",
        lambda given: is_replaced(given) and given.is_on("kl_tau") and not _is_removed(given),
    ),
    Remark(
        "kl_tau",
        "surprise",
        "{type} has no penalty: kl_tau {kl_tau} is a key of older losses, which prime-rl refuses beside it.",
        lambda given: (
            given.has("kl_tau") and not is_replaced(given) and not _is_removed(given) and not _is_custom(given)
        ),
        source=f"{CONFIG}:494-532",
    ),
    Remark(
        "type",
        "surprise",
        "The ratio of kept tokens is uncapped; the older ratio bounds (token_mask, geo_mask, sequence_clip) are gone.",
        lambda given: is_replaced(given) and not _is_removed(given),
        source=f"{LOSS}:109-161 default_loss_fn",
    ),
    Remark(
        "type",
        "note",
        "This loss stood in prime-rl up to 559b4477; today's are ipo, icepop, ppo and cispo, none with a KL.",
        lambda given: is_replaced(given) and not _is_removed(given),
    ),
    Remark(
        "max_importance_ratio",
        "note",
        "A ratio above {max_importance_ratio} is held there with its gradient kept; ours goes on, which differs beyond a log-ratio of "
        "9.2 only.",
        lambda given: (
            loss_kind(given) in ("ipo", "ppo") and not is_replaced(given) and given["max_importance_ratio"] >= CAP
        ),
    ),
    Remark(
        "max_importance_ratio",
        "surprise",
        "A ratio above {max_importance_ratio} is held there with its gradient kept; that is the gradient of CISPO, read as such: the "
        "value of the loss differs, its gradient does not.",
        lambda given: loss_kind(given) == "ipo" and not is_replaced(given) and given["max_importance_ratio"] < CAP,
        source=f"{LOSS}:165 _capped_importance_ratio",
    ),
    Remark(
        "type",
        "surprise",
        "ppo clips the ratio to the sampler, not to the start of the step: under staleness tokens arrive already clipped, and none of "
        "them is weighed.",
        lambda given: loss_kind(given) == "ppo",
        source=f"{LOSS}:279 PPOLoss.loss",
    ),
    Remark(
        "score_centering",
        "note",
        "Scores are centered over the sampling mask that vLLM returned, which is exact; a sample without one is not centered. "
        "Pass the mask with its log-probs as `head`.",
        lambda given: bool(given["score_centering"]),
    ),
    Remark(
        "top_p",
        "note",
        "Truncated sampling is replayed: the ids that vLLM kept are recorded, at most top_k of them (512 where none is said), and the "
        "trainer's log-probs run over them alone; where none came back, over all. Pass them as `support` to selected_log_probs.",
        _is_truncated,
    ),
    Remark("type", "note", "A custom loss is a function of your own and cannot be read.", _is_custom),
    Remark(
        "ratio_type",
        "note",
        "The ratio bounds were removed in 02bdca2e4 and are read as they were; the losses after it differentiate the ratio and drop "
        "tokens by how far their probability moved.",
        _is_removed,
    ),
    Remark(
        "ratio_type",
        "surprise",
        "With ratio_type sequence each sequence was divided by its own length before the sum; the reduction is not read: pass your own.",
        lambda given: _is_removed(given) and given["ratio_type"] == "sequence",
        source=f"{LOSS}:112 compute_loss",
    ),
    Remark(
        "algo.type",
        "surprise",
        "This algorithm trains tokens by a component of its own, beside or in place of trainer.loss; what that computes is not in this "
        "reading.",
        lambda given: given["algo.type"] in OTHER_COMPONENTS,
        source="src/prime_rl/trainer/rl/train.py:300-323",
    ),
    Remark(
        "algo.type",
        "surprise",
        "opd trains by its own component and passes trainer.loss by: −sg(log teacher − log p)·r where p − q is at least −0.2, the ratio r "
        "not bounded, and 0.001·(log r)² on every token. Pass the teacher's log-probs as `teacher`.",
        distils,
        source=f"{LOSS}:331 ref_kl_loss_fn",
    ),
    Remark(
        "algo.type",
        "note",
        "Advantages are never divided by a deviation, and a group of one gets 0.",
        lambda given: given.speaks_of("advantage") and not distils(given),
    ),
)


def _of_the_loss(when: Callable[[Given], bool]) -> Callable[[Given], bool]:
    """A remark on trainer.loss, where tokens are trained by it."""
    return lambda given: not distils(given) and when(given)


REMARKS = tuple(each if each.key == "algo.type" else replace(each, when=_of_the_loss(each.when)) for each in _REMARKS)
