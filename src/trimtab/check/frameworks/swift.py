"""ms-swift: the trainer's own loss method for each micro-batch, on an instance without its constructor; log-probs are handed in."""
# pyright: reportMissingImports=false, reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trimtab.check.subject import Asked, Setup, Subject
from trimtab.config.correction import Correction, Weight
from trimtab.config.presets import preset


def swift_step(
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
    """`function` is GRPOTrainer or a class derived from it."""
    from collections import defaultdict
    from types import SimpleNamespace

    from swift.rl_core.data import GRPOBatch
    from swift.rlhf_trainers.arguments import GRPOConfig

    alone: Any = {"output_dir": "/tmp", "use_cpu": True, "bf16": False, "report_to": "none", "beta": 0.0}
    config = GRPOConfig(**alone, num_generations=2, per_device_train_batch_size=2, **settings)
    trainer = object.__new__(function)
    trainer.__dict__.update(args=config, beta=config.beta, max_completion_length=config.max_completion_length)
    trainer.__dict__.update(num_generations=2, disable_rollout_importance_sampling=False, compute_entropy=False)
    trainer.__dict__.update(model_accepts_loss_kwargs=False, compute_loss_func=None, chord_sft_iterator=None)
    trainer.__dict__.update(_has_teacher=False, _metrics={"train": defaultdict(list)})
    trainer.current_gradient_accumulation_steps = len(split)
    trainer.model = SimpleNamespace(training=True)
    trainer.accelerator = SimpleNamespace(num_processes=1, gather_for_metrics=lambda x: x, gather=lambda x: x)
    trainer._prepare_algorithm_params()
    leaf, total = current.clone().requires_grad_(), 0.0
    for part in split:
        trainer._get_per_token_logps_and_entropies = lambda *_, found=leaf[part], **__: (found, None)
        batch = GRPOBatch(
            completion_mask=mask[part],
            truncated_mask=torch.zeros(len(part), dtype=torch.bool),
            seq_lengths=mask[part].sum(-1),
            old_per_token_logps=proximal[part],
            ref_per_token_logps=None,
            rollout_per_token_logps=behavior[part],
            advantages=advantages[part],
            num_items_in_batch=mask.sum(),
        )
        loss, metrics = trainer._compute_loss_and_metrics(None, {}, batch)
        trainer._update_metrics(metrics)
        loss = loss / len(split)  # as Trainer.training_step does
        loss.backward()
        total += loss.item()
    logged = {key: float(values[-1]) for key, values in trainer._metrics["train"].items()}
    return {"loss": total, "gradient": leaf.grad, "metrics": logged}


def swift_advantages(
    function: Any, *, rewards: Tensor, mask: Tensor, group: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """`function` has the signature of compute_advantages; a prompt's rows follow each other."""
    found, _ = function(rewards[:, None], torch.ones(1), int((group == group[0]).sum()), **settings)
    return {"advantages": found}


MODE, BOUND = "rollout_importance_sampling_mode", "rollout_importance_sampling_threshold"

SUBJECT = Subject(
    name="ms-swift",
    distribution="ms-swift",
    tried=("4.6.0",),
    packages=("swift", "trl"),
    optional=("modelscope", "datasets", "pandas", "pyarrow", "PIL", "peft", "aiohttp", "trl.experimental.ppo"),
    even_rows=True,
    by_place=True,
    functions={
        "step": Asked(
            "swift.rlhf_trainers.grpo_trainer:GRPOTrainer",
            swift_step,
            (
                Setup(
                    "loss_type=dapo, token_truncate",
                    {"loss_type": "dapo", MODE: "token_truncate", BOUND: 2.0},
                    preset("token-tis", upper=2.0),
                ),
                Setup(
                    "loss_type=grpo, sequence_truncate",
                    {"loss_type": "grpo", MODE: "sequence_truncate", BOUND: 2.0},
                    Correction(weight=Weight(level="geometric", upper=2.0)),
                ),
                Setup(
                    "loss_type=dapo, sequence_mask",
                    {"loss_type": "dapo", MODE: "sequence_mask", BOUND: 2.0},
                    rejects=True,
                ),
            ),
        ),
        "advantages": Asked(
            "swift.rl_core.advantage:compute_advantages", swift_advantages, (Setup("advantage_estimator=grpo", {}),)
        ),
    },
    not_asked={
        "ages": "it counts no staleness",
        "removed row": (
            "compute_advantages takes no mask and never learns which rows are out of the loss; such a row votes"
        ),
    },
    known={
        "not-finite behavior": "The loss is multiplied by the mask, and 0 · NaN is NaN.",
        "not-finite proximal": "The loss is multiplied by the mask, and 0 · NaN is NaN.",
        "not-finite current": "The loss is multiplied by the mask; forward or backward, 0 · NaN is NaN.",
        "not-finite advantages": "The loss is multiplied by the mask, and 0 · NaN is NaN.",
        "nothing to train on": (
            "`loss_type=dapo` divides by `num_items_in_batch`, which is 0. One empty micro-batch among others holds."
        ),
        "padding rows": (
            "`loss_type=grpo` averages over all rows, so that a row taken out by `overlong_filter` shrinks the "
            "step; dapo holds."
        ),
        "metrics beside padding rows": "Perplexities are averaged over all rows, at 1 for a row without a token.",
        "missing log-prob": "NaN stays in the weight, and the loss of the whole step is NaN.",
    },
)
