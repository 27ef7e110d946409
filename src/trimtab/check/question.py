"""What a law asks of a function: two calls, and what of their results has to agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from torch import Tensor

from trimtab.check.draw import Inputs
from trimtab.check.subject import Kind, Setup, Subject


@dataclass(frozen=True, eq=False)
class Call:
    """Arguments of an adapter, besides the function and its settings."""

    tensors: Inputs
    split: list[list[int]] | None = None
    """Rows of each micro-batch; only of a step."""


@dataclass(frozen=True)
class View:
    """How the results of the other call lie over those of the first."""

    rows: int | None = None
    columns: int | None = None
    flip: Literal["rows", "columns"] | None = None

    def of(self, value: Tensor) -> Tensor:
        """The part of a result that the first call has too, in its order."""
        found = value[: self.rows]
        found = found[:, : self.columns] if found.dim() > 1 else found
        return found if self.flip is None else found.flip(0 if self.flip == "rows" else 1)

    def source(self, dimensions: int) -> str:
        """The same as Python."""
        cut = "" if self.rows is None and self.columns is None else f"[:{self.rows or ''}"
        if cut:
            cut += f", :{self.columns or ''}]" if dimensions > 1 else "]"
        return cut + ("" if self.flip is None else f".flip({0 if self.flip == 'rows' else 1})")


@dataclass(frozen=True, eq=False)
class Pair:
    """The first call, and what must give the same: other calls, of which one is enough, or numbers known beforehand."""

    first: Call
    others: tuple[Call, ...] = ()
    expected: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    view: View = View()
    rows: tuple[int, ...] | None = None
    """The rows compared; None: all."""
    labels: tuple[str, str] = ("first", "other")


@dataclass(frozen=True)
class Question:
    """One thing a law says of one kind of function."""

    name: str
    kind: Kind
    sentence: str
    draw: Callable[[Random, Subject], Inputs]
    pair: Callable[[Inputs, Setup], Pair | None]
    """The calls on a batch; None where that batch says nothing."""
    compared: tuple[str, ...] = ("loss", "gradient")
    refusable: bool = False
    """Whether an exception is an answer as good as agreement."""
    on_trial: bool = False
    """Whether already the first call is the unusual one. Otherwise a batch on which it is not finite says nothing here."""
    control: Callable[[Inputs], tuple[Call, Call]] | None = None
    """Two calls that must differ on some batch; otherwise the function does not look at what the question is about."""
    needs: Callable[[Subject, Setup], str | None] = lambda _subject, _setup: None
    """Why the question cannot be asked, if so."""


def drawn_rows(tensors: Mapping[str, Any]) -> int:
    """How many rows a batch has."""
    return int(tensors["mask"].shape[0])


def whole_batch(tensors: Inputs) -> Call:
    """A step in one micro-batch."""
    return Call(tensors, [list(range(drawn_rows(tensors)))])
