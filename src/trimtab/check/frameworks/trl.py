"""TRL: GRPOTrainer scores the generation batch, then computes the loss of each micro-batch; both are methods of the trainer.

They are called on an instance that has its real methods and the attributes its constructor would copy from a real configuration,
and no model: log-probs are handed in.
"""
# pyright: reportMissingImports=false, reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trimtab.check.subject import Asked, Setup, Subject
from trimtab.config.presets import preset


def trl_step(
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

    from trl import GRPOConfig

    rows, width = mask.shape
    alone: Any = {"output_dir": "/tmp", "use_cpu": True, "bf16": False, "report_to": "none", "use_vllm": True}
    config = GRPOConfig(**alone, num_generations=2, per_device_train_batch_size=2, **settings)
    trainer = object.__new__(function)
    trainer.__dict__.update(vars(config))
    trainer.__dict__.update(args=config, epsilon_low=config.epsilon, epsilon_high=config.epsilon_high or config.epsilon)
    trainer.__dict__.update(aux_loss_enabled=False, _entropy_bonus_enabled=False, tools=None, environments=None)
    trainer.__dict__.update(environment_factories=None, _pending_extra_logs={}, _pending_metrics={})
    trainer.__dict__.update(num_generations=rows, _metrics={"train": defaultdict(list)})
    trainer.model = SimpleNamespace(training=True, is_gradient_checkpointing=False)
    trainer.accelerator = SimpleNamespace(
        device=torch.device("cpu"), num_processes=1, process_index=0, sync_gradients=True, is_main_process=True,
        gather=lambda x: x, gather_for_metrics=lambda x: x, pad_across_processes=lambda x, **_: x, reduce=lambda x, **_: x,
    )  # fmt: skip
    trainer._tokenizer = SimpleNamespace(pad_token_id=0)
    trainer.reward_funcs, trainer.reward_func_names, trainer.reward_weights = [None], ["reward"], torch.ones(1)
    trainer._logs = {"prompt": [], "completion": [], "advantages": [], "extra": {}, "rewards": defaultdict(list)}
    trainer._calculate_rewards = lambda *_: torch.zeros(rows, 1)
    ids = [[1] * width for _ in range(rows)]
    generated = ([[1]] * rows, ids, mask.long().tolist(), [""] * rows, behavior.tolist(), {}, None, None)
    trainer._generate = lambda *_: generated
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (proximal, None, None)
    batch = trainer._generate_and_score_completions([{"prompt": ""}] * rows)
    batch["advantages"] = advantages
    trainer.current_gradient_accumulation_steps, trainer.args.steps_per_generation = len(split), len(split)
    leaf, total = current.clone().requires_grad_(), 0.0
    for part in split:
        log_probs = leaf[part]
        entropy = torch.zeros_like(log_probs.detach())
        trainer._get_per_token_logps_and_entropies = lambda *_, found=(log_probs, entropy, None), **__: found
        own = {key: value[part] if torch.is_tensor(value) and value.dim() else value for key, value in batch.items()}
        loss = trainer._compute_loss(None, own)
        loss.backward()
        total += loss.item()
    logged = {
        key: float(values[-1])
        for key, values in trainer._metrics["train"].items()
        if "sampling" in key or "clip" in key
    }
    return {"loss": total, "gradient": leaf.grad, "weight": batch["importance_sampling_ratio"], "metrics": logged}


def trl_advantages(
    function: Any, *, rewards: Tensor, mask: Tensor, group: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """`function` is GRPOTrainer; a row without a trained token is one that was cut off, under mask_truncated_completions."""
    from collections import defaultdict
    from types import SimpleNamespace

    from trl import GRPOConfig

    rows, eos = len(mask), 2
    size = int((group == group[0]).sum())
    alone: Any = {"output_dir": "/tmp", "use_cpu": True, "bf16": False, "report_to": "none"}
    config = GRPOConfig(
        **alone, mask_truncated_completions=True, num_generations=size, per_device_train_batch_size=rows, **settings
    )
    trainer = object.__new__(function)
    trainer.__dict__.update(vars(config))
    trainer.__dict__.update(
        args=config, tools=None, environments=None, environment_factories=None, aux_loss_enabled=False
    )
    trainer.__dict__.update(_pending_extra_logs={}, _pending_metrics={}, _metrics={"train": defaultdict(list)})
    trainer.model = SimpleNamespace(training=True, is_gradient_checkpointing=False)
    trainer.accelerator = SimpleNamespace(
        device=torch.device("cpu"), num_processes=1, process_index=0, is_main_process=True, gather=lambda x: x,
        gather_for_metrics=lambda x: x, pad_across_processes=lambda x, **_: x, reduce=lambda x, **_: x,
    )  # fmt: skip
    trainer._tokenizer, trainer.eos_token_ids = SimpleNamespace(pad_token_id=0), [eos]
    trainer.reward_funcs, trainer.reward_func_names, trainer.reward_weights = [None], ["reward"], torch.ones(1)
    trainer._logs = {"prompt": [], "completion": [], "advantages": [], "extra": {}, "rewards": defaultdict(list)}
    trainer._calculate_rewards = lambda *_: rewards[:, None]
    ids = [[1, eos if row.any() else 1] for row in mask]  # a completion that does not end in EOS was cut off
    trainer._generate = lambda *_: ([[1]] * rows, ids, None, [""] * rows, None, {}, None, None)
    return {"advantages": trainer._generate_and_score_completions([{"prompt": ""}] * rows)["advantages"]}


IS = "vllm_importance_sampling"
TOKEN = {"loss_type": "dapo", f"{IS}_mode": "token_truncate", f"{IS}_clip_max": 2.0}
SEQUENCE = {"loss_type": "grpo", f"{IS}_mode": "sequence_truncate", f"{IS}_clip_max": 2.0}
MASK = {"loss_type": "dapo", f"{IS}_mode": "sequence_mask", f"{IS}_clip_max": 3.0}

SUBJECT = Subject(
    name="trl",
    distribution="trl",
    tried=("1.16.0",),
    packages=("trl",),
    optional=("datasets", "pandas", "pyarrow"),
    even_rows=True,
    by_place=True,
    functions={
        "step": Asked(
            "trl:GRPOTrainer",
            trl_step,
            (
                Setup("loss_type=dapo, token_truncate", TOKEN, preset("token-tis", upper=2.0)),
                Setup("loss_type=grpo, sequence_truncate", SEQUENCE, preset("seq-tis", upper=2.0)),
                Setup("loss_type=dapo, sequence_mask", MASK, rejects=True),
            ),
        ),
        "advantages": Asked("trl:GRPOTrainer", trl_advantages, (Setup("mask_truncated_completions=True", {}),)),
    },
    not_asked={"ages": "it counts no staleness"},
    known={
        "not-finite proximal": "The loss is multiplied by the mask, and 0 · NaN is NaN.",
        "not-finite current": "The loss is multiplied by the mask; forward or backward, 0 · NaN is NaN.",
        "not-finite advantages": "The loss is multiplied by the mask, and 0 · NaN is NaN.",
        "removed row": (
            "`mask_truncated_completions` takes a row out of the loss, as documented; its reward stays in the "
            "mean and deviation of its group."
        ),
        "padding rows": (
            "`loss_type=grpo` averages over all rows, so that a truncated row that is masked shrinks the step. "
            "The default, dapo, holds."
        ),
        "metrics beside padding rows": "The mean of sequence ratios counts a row without a token, at ratio 1.",
        "missing log-prob": (
            "By design, as its code says: a missing sampling log-prob gets ratio 1. The token is trained uncorrected."
        ),
    },
)
