"""SkyRL: advantages are divided by the counts of the mini-batch first; each micro-batch then sums its loss."""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from torch import Tensor

from trimtab.check.frameworks.verl import outcome_advantages
from trimtab.check.subject import Asked, Setup, Subject
from trimtab.config.presets import preset


def skyrl_step(
    function: Any,
    *,
    behavior: Tensor,
    proximal: Tensor,
    current: Tensor,
    mask: Tensor,
    advantages: Tensor,
    split: list[list[int]],
    settings: dict[str, Any],
) -> dict[str, Any]:
    """`function` has the signature of ppo_policy_loss."""
    from skyrl.backends.skyrl_train.utils.ppo_utils import apply_loss_reduction_to_advantages_minibatch
    from skyrl.train.config.config import AlgorithmConfig, build_nested_dataclass

    config = build_nested_dataclass(AlgorithmConfig, {"policy_loss_type": "regular", "max_seq_len": 8, **settings})
    scaled = apply_loss_reduction_to_advantages_minibatch(
        advantages, mask.float(), config.loss_reduction, micro_batch_size=len(split[0]), max_seq_len=config.max_seq_len
    )
    leaf, total, metrics = current.clone().requires_grad_(), 0.0, {}
    for rows in split:
        loss, metrics = function(
            leaf[rows],
            proximal[rows],
            scaled[rows],
            config=config,
            loss_mask=mask[rows].float(),
            rollout_logprobs=behavior[rows],
        )
        loss.backward()
        total += loss.item()
    return {"loss": total, "gradient": leaf.grad, "metrics": metrics}


TOKEN = {
    "loss_reduction": "token_mean",
    "off_policy_correction": {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 2.0},
}
SEQUENCE = {
    "loss_reduction": "sequence_mean",
    "off_policy_correction": {"tis_ratio_type": "sequence", "sequence_tis_ratio_clip_high": 2.0},
}
GEOMETRIC = {
    "loss_reduction": "token_mean",
    "off_policy_correction": {"sequence_mask_metric": "geometric", "geo_mask_low": 0.7, "geo_mask_high": 1.4},
}

SUBJECT = Subject(
    name="skyrl",
    distribution="skyrl",
    tried=("0.3.0", "0.4.0"),
    packages=("skyrl", "skyrl_gym"),
    optional=("ray", "pandas"),
    typed_dicts=True,
    functions={
        "step": Asked(
            "skyrl.backends.skyrl_train.utils.ppo_utils:ppo_policy_loss",
            skyrl_step,
            (
                Setup("tis_ratio_type=token, token_mean", TOKEN, preset("token-tis", upper=2.0)),
                Setup("tis_ratio_type=sequence, sequence_mean", SEQUENCE, preset("seq-tis", upper=2.0)),
                Setup("sequence_mask_metric=geometric, token_mean", GEOMETRIC, rejects=True),
            ),
        ),
        "advantages": Asked(
            "skyrl.backends.skyrl_train.utils.ppo_utils:compute_grpo_outcome_advantage",
            outcome_advantages,
            (Setup("advantage_estimator=grpo", {}),),
        ),
    },
    not_asked={
        "ages": "staleness is counted inside its asynchronous trainer, not by a function of its own",
        "removed row": "it takes the response mask and never learns which rows are out of the loss; such a row votes",
    },
    known={
        "not-finite behavior": (
            "The loss is multiplied by the mask, and 0 · NaN is NaN. In a geometric gate the NaN of a masked "
            "token reaches its row's mean, and a row at NaN is kept."
        ),
        "not-finite proximal": "The loss is multiplied by the mask, and 0 · NaN is NaN.",
        "not-finite current": "The loss is multiplied by the mask, and 0 · NaN is NaN.",
        "not-finite advantages": "The loss is multiplied by the mask, and 0 · NaN is NaN.",
        "baseline": "A group of one is given mean 0 and deviation 1, so its advantage is its raw reward.",
        "padding rows": "`sequence_mean` divides by all rows it is given, those without a trained token included.",
        "metrics beside padding rows": (
            "is_ratio_std, _max and _min are taken over `is_ratio * loss_mask`, in which masked places are zeros."
        ),
        "metrics beside padding columns": (
            "is_ratio_std, _max and _min are taken over `is_ratio * loss_mask`, in which masked places are zeros."
        ),
        "missing log-prob": (
            "NaN stays in the weight, and the loss of the whole step is NaN. A geometric gate keeps the row and "
            "trains it."
        ),
    },
)
