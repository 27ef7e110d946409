"""verl: correction on the driver over the whole batch, then the policy loss for each micro-batch with the counts of the step."""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from torch import Tensor

from trimtab.check.subject import Asked, Setup, Subject
from trimtab.config.presets import preset


def verl_step(
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
    """`function` has the signature of compute_policy_loss_vanilla."""
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
    from verl.workers.config.actor import ActorConfig

    correction = {key: value for key, value in settings.items() if key.startswith("rollout_")}
    actor = {key: value for key, value in settings.items() if key not in correction}
    proto, kept, metrics = compute_rollout_correction_and_rejection_mask(proximal, behavior, mask.float(), **correction)
    weight = proto.batch["rollout_is_weights"] if proto else None
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **actor)
    # As the engine and the trainer fill it in: tokens left by the correction, rows of the mini-batch.
    config.global_batch_info.update(
        dp_size=1, batch_num_tokens=kept.sum().item(), global_batch_size=len(mask), loss_scale_factor=None
    )
    leaf, total = current.clone().requires_grad_(), 0.0
    for rows in split:
        loss, logged = function(
            old_log_prob=proximal[rows],
            log_prob=leaf[rows],
            advantages=advantages[rows],
            response_mask=kept[rows].bool(),
            loss_agg_mode=config.loss_agg_mode,
            config=config,
            rollout_is_weights=None if weight is None else weight[rows],
        )
        loss.backward()
        total += loss.item()
        metrics = {**metrics, **logged}
    return {"loss": total, "gradient": leaf.grad, "weight": weight, "kept": kept, "metrics": metrics}


TOKEN = {"rollout_is": "token", "rollout_is_threshold": 2.0, "loss_agg_mode": "token-mean"}
SEQUENCE = {"rollout_is": "sequence", "rollout_is_threshold": 2.0, "loss_agg_mode": "seq-mean-token-mean"}
GEOMETRIC = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.7_1.4", "loss_agg_mode": "token-mean"}


def outcome_advantages(
    function: Any, *, rewards: Tensor, mask: Tensor, group: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """`function` has the signature of compute_grpo_outcome_advantage; the reward stands on the first token."""
    token_rewards = mask.new_zeros(mask.shape, dtype=rewards.dtype)
    token_rewards[:, 0] = rewards
    found, _ = function(token_level_rewards=token_rewards, response_mask=mask.float(), index=group.numpy(), **settings)
    return {"advantages": (found * mask).sum(1) / mask.sum(1).clamp(min=1)}


SUBJECT = Subject(
    name="verl",
    distribution="verl",
    tried=("0.9.1",),
    packages=("verl",),
    optional=("ray",),
    functions={
        "step": Asked(
            "verl.trainer.ppo.core_algos:compute_policy_loss_vanilla",
            verl_step,
            (
                Setup("rollout_is=token, loss_agg_mode=token-mean", TOKEN, preset("token-tis", upper=2.0)),
                Setup("rollout_is=sequence, loss_agg_mode=seq-mean-token-mean", SEQUENCE, preset("seq-tis", upper=2.0)),
                Setup("rollout_rs=seq_mean_k1, loss_agg_mode=token-mean", GEOMETRIC, rejects=True),
            ),
        ),
        "advantages": Asked(
            "verl.trainer.ppo.core_algos:compute_grpo_outcome_advantage",
            outcome_advantages,
            (Setup("adv_estimator=grpo", {}),),
        ),
    },
    not_asked={
        "ages": "staleness is counted inside a method of its trainer, not by a function of its own",
    },
    known={
        "not-finite behavior": (
            "The weight of the masked token is NaN and multiplies its loss. `masked_sum` keeps the loss finite, "
            "the gradient of that token is NaN."
        ),
        "not-finite proximal": (
            "The seq-mean modes multiply by the mask (`loss_mat * loss_mask`), and 0 · NaN is NaN. token-mean "
            "selects, and holds."
        ),
        "not-finite current": (
            "The seq-mean modes multiply by the mask (`loss_mat * loss_mask`), and 0 · NaN is NaN. token-mean "
            "selects, and holds."
        ),
        "not-finite advantages": (
            "NaN reaches the gradient of the masked token in every mode, and the loss in the seq-mean modes."
        ),
        "removed row": (
            "The estimator is handed the mask after rejection and lets the row vote all the same (verl#6452)."
        ),
        "baseline": "A group of one is given mean 0 and deviation 1, so its advantage is its raw reward.",
        "everything rejected": "The step is divided by the tokens that rejection left: 0 / 0.",
        "padding rows": (
            "`agg_loss` leaves out rows without tokens, but the trainer hands it `global_batch_size`, which "
            "counts them: in the seq-mean modes every row that was rejected shrinks the step."
        ),
        "metrics beside padding rows": "Means over sequences count rows without a token.",
        "missing log-prob": (
            "NaN stays in the weight, and the loss of the whole step is NaN. A rejection option drops the row, "
            "and holds."
        ),
    },
)
