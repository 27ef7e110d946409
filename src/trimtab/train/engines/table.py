"""Engines by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.train.devices import device_of
from trimtab.train.engines.exact import ExactBeside
from trimtab.train.engines.hf.engine import hf_engine
from trimtab.train.engines.protocol import Engine
from trimtab.train.engines.texts import WithTexts
from trimtab.train.policy.policy import Policy


@dataclass(frozen=True)
class EngineRecipe:
    """How a sampler makes its engine, in whichever process: architecture and settings; the weights come from the learner."""

    architecture: PretrainedConfig
    dtype: str
    rollout: Rollout
    stop: tuple[int, ...]
    evaluates: bool = False
    """Whether exact jobs will come; where rollouts are not exact, they have an engine of their own."""
    policy: Policy | None = None
    """Decodes responses where they are sampled; None: whoever takes them in does."""

    @classmethod
    def of(cls, policy: Policy, dtype: str, rollout: Rollout, *, evaluates: bool = False) -> EngineRecipe:
        """The engine a run asks for, if it can run this architecture."""
        recipe = cls(policy.architecture, dtype, rollout, policy.stop, evaluates)
        recipe = replace(recipe, policy=policy if policy.travels else None)
        if rollout.engine in ENGINES:  # servers are a back-end's, which checks them itself
            ENGINES[rollout.engine].check(recipe)
        return recipe

    def __call__(self) -> Engine:
        """An engine whose weights are still to be loaded."""
        engine = ENGINES[self.rollout.engine].build(self)
        if self.evaluates and (self.rollout.precision, self.rollout.kv_cache) != ("fp32", "auto"):
            exact = self.rollout.but(precision="fp32", kv_cache="auto")
            engine = ExactBeside(engine, _hf(replace(self, rollout=exact)))
        return engine if self.policy is None else WithTexts(engine, self.policy)


def _anything(recipe: EngineRecipe) -> None:
    """Nothing is refused before it was tried."""


@dataclass(frozen=True)
class EngineKind:
    """A row of the table. An engine of another package imports it inside `build`, so that a run without it needs it not."""

    build: Callable[[EngineRecipe], Engine]
    check: Callable[[EngineRecipe], None] = _anything
    """Raises ConfigError for an architecture or settings that it cannot run, before any sampler starts."""


def _hf(recipe: EngineRecipe) -> Engine:
    return hf_engine(
        recipe.architecture,
        recipe.dtype,
        stop=recipe.stop,
        precision=recipe.rollout.precision,
        kv_cache=recipe.rollout.kv_cache,
        in_flight=recipe.rollout.in_flight,
        slots=recipe.rollout.slots,
        device=device_of(recipe.rollout.device, name="rollout.device"),
    )


def _vllm(recipe: EngineRecipe) -> Engine:
    from trimtab.train.engines.vllm.engine import VllmEngine

    return VllmEngine(recipe.architecture, recipe.rollout, stop=recipe.stop)


def _check_vllm(recipe: EngineRecipe) -> None:
    from trimtab.train.engines.vllm.limits import check_run

    check_run(recipe.architecture, recipe.rollout)


ENGINES: dict[str, EngineKind] = {
    "hf": EngineKind(_hf),
    "vllm": EngineKind(_vllm, _check_vllm),
}
