"""Back-ends by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoModelForCausalLM, PretrainedConfig

from trimtab.config.training import Rollout, Train
from trimtab.train.backends.local import LocalBackend
from trimtab.train.backends.lockstep import Lockstep
from trimtab.train.backends.protocol import Backend
from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.engines.protocol import Engine
from trimtab.train.policy.policy import DTYPES, Policy


@dataclass(frozen=True)
class Sampler:
    """How a sampler makes its engine, in whichever process: architecture and settings; the weights come from the learner."""

    architecture: PretrainedConfig
    dtype: str
    rollout: Rollout
    stop: tuple[int, ...]

    def __call__(self) -> Engine:
        """An engine whose weights are still to be loaded."""
        rollout = self.rollout
        return HfEngine(
            AutoModelForCausalLM.from_config(self.architecture, dtype=DTYPES[self.dtype], trust_remote_code=False),
            stop=self.stop,
            temperature=rollout.temperature,
            top_k=rollout.top_k,
            top_p=rollout.top_p,
            precision=rollout.precision,
            in_flight=rollout.in_flight,
            slots=rollout.slots,
        )


def _lockstep(config: Train, policy: Policy, sampler: Sampler, folder: Path) -> Backend:
    return Lockstep(sampler(), policy.model.state_dict)


def _local(config: Train, policy: Policy, sampler: Sampler, folder: Path) -> Backend:
    rollout = config.rollout
    under_way = (rollout.max_staleness + 1) * rollout.groups
    return LocalBackend(
        policy.model,
        sampler,
        hold=max(
            rollout.groups, -(-under_way // rollout.samplers)
        ),  # all the rule admits: freed slots find the next group
        samplers=rollout.samplers,
        directory=folder / "samplers",
        threads=config.threads,
    )


BACKENDS: dict[str, Callable[[Train, Policy, Sampler, Path], Backend]] = {"lockstep": _lockstep, "local": _local}


def backend_of(config: Train, policy: Policy, folder: Path) -> Backend:
    """The back-end a run asks for; not begun."""
    sampler = Sampler(policy.model.config, config.model.dtype, config.rollout, policy.stop)
    return BACKENDS[config.backend](config, policy, sampler, folder)
