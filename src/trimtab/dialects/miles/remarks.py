"""What there is to say about miles: slime's findings that hold here too, and its own."""

from __future__ import annotations

from trimtab.dialects.dialect import Given, Remark
from trimtab.dialects.miles.keys import NOT_HERE, REPLAYED
from trimtab.dialects.slime.correction import is_mis
from trimtab.dialects.slime.remarks import REMARKS as SLIME


def _rejects(given: Given) -> bool:
    """Whether the recipe takes tokens out of the mask."""
    return bool(given["use_tis"]) and is_mis(given) and (given["tis_mode"] == "mask" or bool(given["use_rs"]))


REMARKS = (
    *(each for each in SLIME if each.key not in (*NOT_HERE, REPLAYED)),
    Remark(
        REPLAYED,
        "surprise",
        "No release of miles replays what top-p kept: answers are drawn from a part of the vocabulary, and the trainer's log-probs run "
        "over all of it. Set it to 1, or record the ids and pass them as `support`.",
        lambda given: given["rollout_top_p"] < 1.0,
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
    ),
    Remark(
        "use_rs",
        "surprise",
        "miles-rl 0.0.2 divides each answer by the tokens that rejection left, so that rejecting raises the step of the others; the "
        "sources after it divide by all of them, and so does this reading.",
        _rejects,
    ),
)
