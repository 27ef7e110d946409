"""Rollouts and estimators for the laws of advantages: uneven groups, holes in the mask, rows without tokens."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from trimtab.advantage.estimate import Advantages, advantages
from trimtab.config.advantages import (
    ESTIMATORS,
    Distillation,
    Estimator,
    Gae,
    Gdpo,
    Grpo,
    LeaveOneOut,
    Normalise,
    OptimalToken,
    Overlong,
    PassK,
    ReinforcePlusPlus,
    ReMax,
    Rloo,
    Shaping,
)

FEW = settings(max_examples=25)  # each example runs a whole pipeline, two or three times, with shapes checked

PER_TOKEN = ("mask", "kept", "values", "token_rewards", "dense_rewards", "teacher", "proximal", "squares", "weight")
PER_ROW = ("rewards", "columns", "group", "bootstrap", "baselines", "ended")


@dataclass(frozen=True)
class Rollouts:
    """A padded batch with everything any estimator reads; `lengths` says how much of each row is really there."""

    mask: Tensor
    kept: Tensor
    values: Tensor
    token_rewards: Tensor
    dense_rewards: Tensor  # the task reward, token by token
    teacher: Tensor
    proximal: Tensor
    squares: Tensor
    weight: Tensor
    rewards: Tensor
    columns: Tensor  # two rewards per row
    group: Tensor
    bootstrap: Tensor
    baselines: Tensor
    ended: Tensor
    lengths: tuple[int, ...]

    def but(self, **changes: Tensor) -> Rollouts:
        return replace(self, **changes)

    def rows(self, chosen: list[int]) -> Rollouts:
        """Some of the rows, in this order."""
        tensors = {name: getattr(self, name)[chosen] for name in (*PER_TOKEN, *PER_ROW)}
        return replace(self, **tensors, lengths=tuple(self.lengths[row] for row in chosen))

    def there(self) -> Tensor:
        return torch.arange(self.mask.shape[1])[None] < torch.tensor(self.lengths).reshape(-1, 1)

    def packed(self) -> tuple[Rollouts, Tensor]:
        """The same tokens end to end, and their boundaries."""
        bounds = torch.tensor([0, *torch.tensor(self.lengths, dtype=torch.int64).cumsum(0).tolist()])
        return replace(self, **{name: getattr(self, name)[self.there()] for name in PER_TOKEN}), bounds

    def double(self) -> Rollouts:
        wide = {f.name: getattr(self, f.name) for f in fields(self)}
        return Rollouts(
            **{k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in wide.items()}
        )


@dataclass(frozen=True)
class Way:
    """How rollouts become advantages."""

    estimator: Estimator
    shaping: Shaping
    dense: bool = False  # the task reward per token
    extra: bool = False  # rewards per token besides

    def __call__(self, it: Rollouts, **more: Any) -> Advantages:
        kind = type(self.estimator)
        reads_critic = kind is Gae
        rewards = it.columns if kind is Gdpo else it.dense_rewards if self.dense else it.rewards
        inputs = {
            "kept": it.kept,
            "ended": it.ended,
            "group": it.group,
            "values": it.values if reads_critic else None,
            "bootstrap": it.bootstrap if reads_critic else None,
            "baselines": it.baselines if kind is ReMax else None,
            "token_rewards": it.token_rewards if self.extra else None,
            "teacher": it.teacher if kind is Distillation else None,
            "proximal": it.proximal if kind in (Distillation, OptimalToken) else None,
            "squares": it.squares if kind is OptimalToken else None,
            "weight": it.weight if kind is OptimalToken else None,
        } | more
        return advantages(self.estimator, rewards=rewards, mask=it.mask, shaping=self.shaping, **inputs)


@st.composite
def rollouts(draw: st.DrawFn, least: int = 1, most: int = 7, rejecting: bool = True) -> Rollouts:
    number = draw(st.integers(least, most))
    lengths = tuple(draw(st.lists(st.integers(0, 6), min_size=number, max_size=number)))
    width = max(*lengths, 1) + draw(st.integers(0, 2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    shape = (number, width)

    def noise(*size: int) -> Tensor:
        return torch.randn(size, generator=generator)

    there = torch.arange(width)[None] < torch.tensor(lengths).reshape(-1, 1)
    mask = there & (torch.rand(shape, generator=generator) >= draw(st.sampled_from([0.0, 0.3])))
    kept = mask.clone()
    if rejecting:
        kept &= torch.rand(shape, generator=generator) >= draw(st.sampled_from([0.0, 0.2]))
        kept &= torch.rand(number, 1, generator=generator) >= draw(st.sampled_from([0.0, 0.3]))
    # few values, so that groups agree now and then; offset, so that a mean can cost digits
    rewards = draw(st.sampled_from([0.0, 100.0])) + torch.randint(0, 3, (number,), generator=generator).float()
    last = mask & (mask.flip(-1).cumsum(-1).flip(-1) == 1)
    return Rollouts(
        mask=mask,
        kept=kept,
        values=noise(*shape),
        token_rewards=0.1 * noise(*shape),
        dense_rewards=last * rewards[:, None] + 0.1 * noise(*shape) * mask,
        teacher=-noise(*shape).abs(),
        proximal=-noise(*shape).abs(),
        squares=torch.rand(shape, generator=generator),
        weight=torch.rand(shape, generator=generator) + 0.5,
        rewards=rewards,
        columns=torch.stack([rewards, noise(number)], -1),
        group=torch.tensor(draw(st.lists(st.sampled_from([-4, 0, 7, 10**12]), min_size=number, max_size=number))),
        bootstrap=noise(number),
        baselines=noise(number),
        ended=torch.rand(number, generator=generator) >= draw(st.sampled_from([0.0, 0.4])),
        lengths=lengths,
    )


@st.composite
def normalisers(draw: st.DrawFn, token: bool = False) -> Normalise:
    mean, std = draw(
        st.sampled_from([(m, s) for m in ("batch", "group", None) for s in ("batch", "group", None) if m or s])
    )
    return Normalise(
        mean=mean,
        std=std,
        unit="token" if token else draw(st.sampled_from(["token", "sequence"])),
        leave_one_out=mean is not None and draw(st.booleans()),
        about=draw(st.sampled_from(["own", "subtracted"])),
        unbiased=draw(st.booleans()),
        eps=draw(st.sampled_from([1e-8, 1e-4])),
        eps_at=draw(st.sampled_from(["std", "variance", "floor"])),
        singleton=draw(st.sampled_from(["zero", "raw"])),
    )


@st.composite
def estimators(
    draw: st.DrawFn, baselines: tuple[str, ...] = ("kept", "all"), plain: bool = False, named: str | None = None
) -> Estimator:
    """Any estimator, or any of one kind; `plain`: without statistics beyond the group."""
    kind = ESTIMATORS[named or draw(st.sampled_from(sorted(ESTIMATORS)))]
    if kind is Distillation:
        return draw(_distillations(baselines, plain))
    by_token = kind in (Gae, ReinforcePlusPlus, ReMax, OptimalToken)
    chosen: dict[str, Any] = {"baseline": draw(st.sampled_from(baselines))}
    chosen["normalise"] = None if plain or draw(st.booleans()) else draw(normalisers(token=by_token))
    choices: dict[type, dict[str, list[Any]]] = {
        Gae: {"gamma": [1.0, 0.9], "value_lam": [None, 1.0], "gaps": ["skip", "step", "reset"]},
        ReinforcePlusPlus: {"gamma": [1.0, 0.9], "group_mean": [False, True], "gaps": ["skip", "step", "reset"]},
        # bounds: see Rloo; REINFORCE++ refuses them where rewards come per token
        Grpo: {"std": [True, False], "std_over": ["group"] if plain else ["group", "batch"]},
        LeaveOneOut: {"std": [True, False], "unbiased": [True, False]},
        PassK: {"k": [None, 2, 3], "std": [True, False]},
        Gdpo: {"weights": [(1.0, 0.5)], "unbiased": [True, False], "leave_one_out": [True, False]},
        Rloo: {"lower": [None, -0.3], "upper": [None, 0.3]},
        OptimalToken: {"tail": ["raw", "own"]},
    }
    chosen |= {name: draw(st.sampled_from(values)) for name, values in choices.get(kind, {}).items()}
    if kind is Gae:
        chosen |= draw(st.sampled_from([{"lam": 0.8}, {"lam": 1.0}, {"length_adaptive": 0.7}]))
    if "singleton" in kind.model_fields:
        chosen["singleton"] = draw(st.sampled_from(["zero", "raw"]))
    return kind(**chosen)


@st.composite
def _distillations(draw: st.DrawFn, baselines: tuple[str, ...], plain: bool) -> Distillation:
    """A teacher beside rewards; one alone has laws of its own."""
    base = draw(estimators(("all",), plain, draw(st.sampled_from(["grpo", "rloo", "reinforce++"]))))
    norm = None if plain or draw(st.booleans()) else draw(normalisers(token=True))
    limit = draw(st.sampled_from([None, 0.5]))
    own: dict[str, Any] = {
        "coefficient": draw(st.sampled_from([1.0, 0.3])),
        "baseline": draw(st.sampled_from(baselines)),
    }
    return Distillation(limit=limit, base=base, normalise=norm, **own)


@st.composite
def ways(
    draw: st.DrawFn,
    baselines: tuple[str, ...] = ("kept", "all"),
    plain: bool = False,
    no_eos: tuple[str, ...] = ("keep", "zero", "bootstrap", "drop"),
    named: str | None = None,
) -> Way:
    estimator = draw(estimators(baselines, plain, named))
    ending = draw(st.sampled_from([each for each in no_eos if each != "bootstrap" or isinstance(estimator, Gae)]))
    dense = not isinstance(estimator, Gdpo) and draw(st.booleans())
    shaping = Shaping(no_eos=ending)
    if not dense and not isinstance(estimator, Gdpo):
        shaping = Shaping(
            no_eos=ending,
            bias=draw(st.sampled_from([0.0, -1.0])),
            scale=draw(st.sampled_from([1.0, 0.5])),
            upper=draw(st.sampled_from([None, 1.5])),
            overlong=draw(st.sampled_from([None, Overlong(max_length=5, buffer=3)])),
            normalise=None if plain or draw(st.booleans()) else draw(normalisers()),
        )
    return Way(estimator, shaping, dense, extra=draw(st.booleans()))
