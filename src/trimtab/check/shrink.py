"""From a batch that breaks a law to the smallest one: fewer rows, fewer tokens, plainer numbers, as long as it still breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from trimtab.check.draw import Inputs

PLAIN_VALUES = {"behavior": -1.0, "proximal": -1.0, "current": -1.0, "advantages": 1.0, "rewards": 0.0}
"""The plainest number of each tensor."""
ALIKE = (("proximal", "behavior"), ("current", "proximal"))
"""Tensors that are plainest where they repeat another."""


def shrink(drawn: Inputs, breaks: Callable[[Inputs], bool], budget: int = 400) -> Inputs:
    """The smallest batch found that still breaks; at most `budget` are tried."""
    found, tried = drawn, 0
    moved = True
    while moved:
        moved = False
        for smaller in _smaller(found):
            tried += 1
            if tried > budget:
                return found
            if bool(smaller["mask"].any()) and breaks(smaller):
                found, moved = smaller, True
                break
    return found


def _smaller(drawn: Inputs) -> Iterator[Inputs]:
    """Batches one step simpler, the boldest first."""
    rows, width = drawn["mask"].shape
    if rows > 1:
        for row in range(rows):
            yield _without(drawn, row, 0)
    if width > 1:
        for token in range(width):
            yield _without(drawn, token, 1)
    for name, other in ALIKE:
        if name in drawn and not torch.equal(drawn[name], drawn[other]):
            yield drawn | {name: drawn[other].clone()}
    for name, plain in PLAIN_VALUES.items():
        if name in drawn and bool((drawn[name] != plain).any()):
            yield drawn | {name: torch.full_like(drawn[name], plain)}
    yield from _plainer(drawn)


def _without(drawn: Inputs, index: int, axis: int) -> Inputs:
    def cut(value: torch.Tensor) -> torch.Tensor:
        if value.dim() <= axis:
            return value
        keep = [place for place in range(value.shape[axis]) if place != index]
        return value.index_select(axis, torch.tensor(keep))

    return {name: cut(value) for name, value in drawn.items()}


def _plainer(drawn: Inputs) -> Iterator[Inputs]:
    """One number made plain at a time."""
    for name, plain in PLAIN_VALUES.items():
        if name not in drawn:
            continue
        for place in range(drawn[name].numel()):
            value = drawn[name].clone()
            if value.flatten()[place] != plain:
                value.view(-1)[place] = plain
                yield drawn | {name: value}
