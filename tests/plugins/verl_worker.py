"""verl's own actor worker on a CPU: its YAML, its FSDP2 engine, its driver's steps in its order."""

from __future__ import annotations

import copy
import functools
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.plugins.tiny import Rollouts

os.environ |= {"VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cuda", "RAY_USAGE_STATS_ENABLED": "0"}

import verl
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf, open_dict
from verl import DataProto
from verl.models.transformers import monkey_patch

from tests.plugins import verl_cpu  # noqa: F401

# verl 0.9.1 wants a class that TRL has dropped since, if any TRL is installed; a user would keep the two apart.
monkey_patch.is_trl_available = lambda: False


def configuration(model: Path, *overrides: str) -> Any:
    """The same with further settings laid over it: composing takes seconds."""
    config = copy.deepcopy(composed(model))
    with open_dict(config):
        config.merge_with(OmegaConf.from_dotlist([each.lstrip("+") for each in overrides]))
    return config


@functools.cache
def composed(model: Path, *overrides: str) -> Any:
    """verl's own YAML with what makes it small, fp32, and one step of plain descent, so that a step shows its gradient."""
    small = [
        f"actor_rollout_ref.model.path={model}",
        "actor_rollout_ref.model.use_remove_padding=false",
        "+actor_rollout_ref.model.override_config.attn_implementation=eager",
        "actor_rollout_ref.model.enable_gradient_checkpointing=false",
        "actor_rollout_ref.actor.strategy=fsdp2",
        "actor_rollout_ref.actor.fsdp_config.strategy=fsdp2",
        "actor_rollout_ref.actor.fsdp_config.model_dtype=fp32",
        "actor_rollout_ref.actor.fsdp_config.dtype=float32",
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype=fp32",
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision.buffer_dtype=fp32",
        "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
        "actor_rollout_ref.actor.use_torch_compile=false",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.rollout.name=hf",
        "actor_rollout_ref.actor.optim.optimizer=SGD",
        "actor_rollout_ref.actor.optim.lr=1.0",
        "actor_rollout_ref.actor.optim.weight_decay=0.0",
        "actor_rollout_ref.actor.optim.clip_grad=1e9",
    ]
    folder = str(Path(verl.__file__).parent / "trainer" / "config")
    with initialize_config_dir(config_dir=folder, version_base=None):
        return compose("ppo_trainer", overrides=[*small, *overrides])


def start(rank: int, world: int, store: Path) -> None:
    """This process as one of verl's workers."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    if not dist.is_initialized():
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)


class Trainer:
    """verl's worker, and what its driver does around it."""

    def __init__(self, config: Any) -> None:
        from verl.workers.engine_workers import ActorRolloutRefWorker

        self.config = config
        self.worker = ActorRolloutRefWorker(config.actor_rollout_ref, "actor")
        self.worker.init_model()

    def weights(self) -> Tensor:
        module = self.worker.actor.engine.module
        return torch.cat([each.full_tensor().flatten().detach().clone() for each in module.parameters()])

    def batch(self, data: Rollouts) -> DataProto:
        width = data.mask.shape[1]
        position = (data.attention.cumsum(-1) - 1).clamp(min=0)
        rewards = torch.zeros(data.mask.shape)
        rewards[torch.arange(len(rewards)), data.mask.sum(-1) - 1] = data.rewards
        return DataProto.from_single_dict(
            {
                "input_ids": data.tokens,
                "responses": data.responses,
                "attention_mask": data.attention,
                "position_ids": position,
                "response_mask": data.mask.long(),
                "prompts": data.prompts,
                "advantages": data.advantages[:, None].expand(-1, width).contiguous(),
                "token_level_rewards": rewards,
                "noise": data.noise,
            }
        )

    def log_probs(self, batch: DataProto) -> Tensor:
        """The trainer's log-probs of the responses, as its driver asks for them."""
        from verl.utils import tensordict_utils as tu
        from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding

        data = left_right_2_no_padding(batch.to_tensordict())
        tu.assign_non_tensor(data, calculate_entropy=True, compute_loss=False, temperature=1.0)
        output = self.worker.compute_log_prob(data)
        return no_padding_2_padding(tu.get(output, "log_probs"), data).float()

    def correct(self, batch: DataProto) -> dict[str, Any]:
        """Rollout correction on the driver, by the name its trainers bind."""
        from verl.trainer.ppo import rollout_corr_helper

        settings = self.config.algorithm.rollout_correction
        return rollout_corr_helper.compute_rollout_correction_and_add_to_batch(batch, settings)[1]

    def update(self, batch: DataProto, v1: bool = True) -> dict[str, Any]:
        """`_update_actor`; v1 counts the tokens of the rollout, the legacy trainer those left in response_mask."""
        from verl.utils import tensordict_utils as tu
        from verl.workers.utils.padding import left_right_2_no_padding

        actor = self.config.actor_rollout_ref.actor
        trained = batch.batch["noise"].new_tensor(batch.batch["attention_mask"][:, batch.batch["prompts"].shape[1] :])
        data = left_right_2_no_padding(batch.to_tensordict())
        if v1:
            data["loss_mask"] = trained.long()
        tu.assign_non_tensor(
            data,
            calculate_entropy=False,
            distillation_use_topk=False,
            global_batch_size=actor.ppo_mini_batch_size,
            mini_batch_size=actor.ppo_mini_batch_size,
            epochs=1,
            seed=42,
            dataloader_kwargs={"shuffle": False},
            compute_loss=True,
            temperature=1.0,
        )
        output = self.worker.update_actor(data)
        return tu.get(output, "metrics") if output is not None else {}


def reset(trainer: Trainer, config: Any, before: dict[str, Tensor]) -> None:
    """Back to the first weights, with another configuration of the loss."""
    from functools import partial

    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils.losses import ppo_loss

    with open_dict(config), torch.no_grad():
        trainer.config = config
        for name, each in trainer.worker.actor.engine.module.named_parameters():
            each.copy_(before[name])
    trainer.worker.actor.set_loss_fn(partial(ppo_loss, config=omega_conf_to_dataclass(config.actor_rollout_ref.actor)))
