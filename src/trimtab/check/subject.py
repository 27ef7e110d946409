"""The contract of a function under test: what it takes, what it gives, and how its framework calls it.

Three kinds of function are asked:

step        log-probs of behavior, proximal and current, mask and advantages, all `[rows, width]`; a split of the rows into
            micro-batches ──► loss, gradient by `current`, metrics. An adapter calls the function once for each micro-batch, divides
            as its framework divides, and lets the gradients add up: what comes out is one optimiser step.
advantages  a reward and a group per row, mask `[rows, width]` ──► an advantage per row
ages        a version per token, mask `[rows, width]`, the learner's version ──► an age per row

An adapter is one function that needs nothing of its module and imports what it calls: its source text stands in a counterexample,
so that what a maintainer runs is what was run here.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab.config.correction import Correction

Kind = Literal["step", "advantages", "ages"]
KIND_NAMES: dict[Kind, str] = {
    "step": "a loss",
    "advantages": "an advantage estimator",
    "ages": "a function of staleness",
}
Adapter = Callable[..., dict[str, Any]]
"""`step(function, *, behavior, proximal, current, mask, advantages, split, settings)` and so on; a dictionary of results."""


@dataclass(frozen=True)
class Setup:
    """Settings under which a law is asked, in the framework's own keys."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rule: Correction | None = None
    """The correction these settings name, for the law on weights; None: none is asked about."""
    rejects: bool = False
    """Whether a gate of theirs takes tokens out of the loss."""


@dataclass(frozen=True)
class Asked:
    """One function of a subject: where it is, how it is called, under which settings."""

    target: str
    """MODULE:NAME."""
    adapter: Adapter
    setups: tuple[Setup, ...] = (Setup("defaults"),)

    @property
    def source(self) -> str:
        """The text of the adapter."""
        return textwrap.dedent(inspect.getsource(self.adapter))

    @property
    def import_lines(self) -> tuple[str, ...]:
        """Python that binds `function`."""
        module, _, name = self.target.partition(":")
        head, dot, rest = name.partition(".")
        bound = f"from {module} import {head}" + ("" if dot else " as function")
        return (bound, f"function = {head}.{rest}") if dot else (bound,)


@dataclass(frozen=True)
class Subject:
    """What is checked: a framework, or the functions of a user."""

    name: str
    functions: Mapping[Kind, Asked]
    distribution: str | None = None
    """The package whose version is named."""
    tried: tuple[str, ...] = ()
    """Versions the adapter was tried with."""
    packages: tuple[str, ...] = ()
    """Packages that may find a stand-in where they import `optional`."""
    optional: tuple[str, ...] = ()
    """Modules its arithmetic never touches, and which may be missing."""
    typed_dicts: bool = False
    """Whether its pydantic models hold a `typing.TypedDict`, which before Python 3.12 has to be that of typing_extensions."""
    even_rows: bool = False
    """Micro-batches hold equally many rows by contract."""
    by_place: bool = False
    """Groups are equally many consecutive rows by contract; nothing else tells them apart."""
    not_asked: Mapping[str, str] = field(default_factory=dict[str, str])
    """Questions that make no sense here, with the reason."""
    known: Mapping[str, str] = field(default_factory=dict[str, str])
    """For the questions that are known to break: what is so, in one sentence."""
