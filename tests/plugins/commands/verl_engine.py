"""What verl needs on a CPU, loaded through VERL_USE_EXTERNAL_MODULES: a platform, and a rollout named `rounded` in the place of vLLM's."""

from __future__ import annotations

import os
from typing import Any

import ray
import torch
from verl.workers.rollout import base, replica

from tests.plugins import verl_cpu  # noqa: F401
from tests.plugins.commands.engine import RoundedEngine
from tests.plugins.commands.figures import keep_gradients

SERVER = "rounded_server_{}"


@ray.remote(num_cpus=0)
class Server:
    """What the agent loops ask for tokens."""

    def __init__(self, path: str, length: int) -> None:
        self.engine, self.length = RoundedEngine(path), length

    def load(self, weights: dict[str, torch.Tensor], step: int) -> None:
        self.engine.load(weights.items(), step)

    def generate(self, prompt_ids: list[int], **_: Any) -> replica.TokenOutput:
        tokens, log_probs = self.engine.sample(list(prompt_ids), self.length)
        found = {"global_steps": self.engine.version}
        return replica.TokenOutput(token_ids=tokens, log_probs=log_probs, stop_reason="completed", extra_fields=found)

    def nothing(self, *_: Any, **__: Any) -> None:
        """There is no memory to free."""

    wake_up = sleep = abort_all_requests = resume_generation = clear_kv_cache = nothing


class Replica(replica.RolloutReplica):
    """One such server beside the trainer's worker."""

    async def launch_servers(self) -> None:
        path, length = self.model_config.path, self.config.response_length
        server = Server.options(name=SERVER.format(self.replica_rank)).remote(path, length)
        self.servers, self._server_handle, self._server_address = [server], server, SERVER.format(self.replica_rank)


class Adapter(base.BaseRollout):
    """The worker's end: hands the server new weights."""

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        full = {name: each.detach().clone() for name, each in weights}
        await ray.get_actor(SERVER.format(0)).load.remote(full, global_steps or 0)

    async def resume(self, tags: list[str]) -> None:
        """There is no memory to take back."""

    async def release(self) -> None:
        """Nor to free."""


def on_cpu(backend: str | None = None, **settings: Any) -> None:
    """verl asks for gloo on the CPU and the platform's backend on its device, which torch refuses where that is the CPU too."""
    process_group("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **settings)


keep_gradients(os.environ["KEPT_GRADIENTS"])
process_group, torch.distributed.init_process_group = torch.distributed.init_process_group, on_cpu
replica.RolloutReplicaRegistry.register("rounded", lambda: Replica)
base._ROLLOUT_REGISTRY["rounded", "async"] = f"{__name__}.Adapter"
