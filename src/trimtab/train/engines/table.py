"""What every engine offers, the recipe a sampler makes its engine by, and engines by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from torch import Tensor
from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.train.devices import device_of
from trimtab.train.engines.hf.engine import hf_engine
from trimtab.train.messages import Group, Job
from trimtab.train.policy.policy import Policy


@runtime_checkable
class Engine(Protocol):
    """Samples groups, step by step. Every token carries the version of the weights that sampled it."""

    @property
    def pending(self) -> int:
        """Groups submitted and not yet finished."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs; they begin in this order as there is room for them, each with the sampling it asks for."""
        ...

    def step(self) -> list[Group]:
        """Make some progress with what was submitted; the groups that finished by it."""
        ...

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over weights by state-dict name; they are copied. A weight of two names comes under the first alone."""
        ...

    def abandon(self) -> None:
        """Forget everything submitted."""
        ...


class WithTexts:
    """An engine whose groups come with the texts of their responses."""

    def __init__(self, engine: Engine, policy: Policy) -> None:
        self._engine, self._policy = engine, policy

    @property
    def pending(self) -> int:
        """Groups submitted and not yet finished."""
        return self._engine.pending

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs."""
        self._engine.submit(jobs)

    def step(self) -> list[Group]:
        """Make some progress; those that finished, decoded."""
        return [replace(group, texts=self._policy.texts_of(group)) for group in self._engine.step()]

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over the weights."""
        self._engine.load(weights, version)

    def abandon(self) -> None:
        """Forget everything submitted."""
        self._engine.abandon()


class ExactBeside:
    """An engine of lower precision and an exact one beside it, which does the jobs that ask for it."""

    def __init__(self, rollouts: Engine, exact: Engine) -> None:
        self._rollouts, self._exact = rollouts, exact

    @property
    def pending(self) -> int:
        """Groups submitted and not yet finished."""
        return self._rollouts.pending + self._exact.pending

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs, each with the engine it asks for."""
        for engine, wanted in ((self._rollouts, False), (self._exact, True)):
            if share := [job for job in jobs if job.exact is wanted]:
                engine.submit(share)

    def step(self) -> list[Group]:
        """Make some progress with both."""
        return [group for engine in (self._rollouts, self._exact) if engine.pending for group in engine.step()]

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Have both take over the weights."""
        for engine in (self._rollouts, self._exact):
            engine.load(weights, version)

    def abandon(self) -> None:
        """Forget everything submitted."""
        for engine in (self._rollouts, self._exact):
            engine.abandon()


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
    from trimtab.train.engines.vllm.requirements import check_run

    check_run(recipe.architecture, recipe.rollout)


ENGINES: dict[str, EngineKind] = {
    "hf": EngineKind(_hf),
    "vllm": EngineKind(_vllm, _check_vllm),
}
