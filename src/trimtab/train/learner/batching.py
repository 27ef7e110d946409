"""Which rows a step trains on together: minibatches, an optimiser update each, and batches of rows by tokens, by group and by rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from trimtab.config.training import Train
from trimtab.train.learner.rows import Extents, Rows


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """One micro-batch, by row indices on the host."""

    rows: Int[Tensor, " rows"] | None
    """What the loss looks at; None: other ranks have one more than this."""
    own: Int[Tensor, " own"] | None
    """What this rank works out."""

    @property
    def is_own(self) -> bool:
        """Whether no other rank has a part in it."""
        return self.rows is self.own


def minibatches(config: Train, rows: Rows, version: int) -> Sequence[Int[Tensor, " some"]]:
    """The rows of each minibatch, drawn by the seed and the version alone; on the host."""
    settings = config.learner
    seed = torch.Generator().manual_seed(config.seed * 1_000_003 + version)
    if settings.minibatch_of == "groups":
        return whole_groups(rows.extents.group, settings.minibatches, seed)
    return torch.randperm(len(rows), generator=seed).tensor_split(settings.minibatches)


def micro_batches(sizes: Int[Tensor, " rows"], most: int) -> list[Int[Tensor, " some"]]:
    """Row indices in batches of at most `most` tokens, padding counted; rows of like length share one. A longer row goes alone."""
    order = torch.argsort(sizes, descending=True, stable=True)
    found: list[Tensor] = []
    begin, ordered = 0, sizes[order].tolist()
    while begin < len(ordered):
        room = max(most // max(ordered[begin], 1), 1)
        found.append(order[begin : begin + room])
        begin += room
    return found


def group_batches(
    prompts: Int[Tensor, " rows"], lengths: Int[Tensor, " rows"], group: Int[Tensor, " rows"], most: int
) -> list[Int[Tensor, " some"]]:
    """Row indices in batches of at most `most` tokens, padding counted and the prompt of a group once; groups stay whole if they fit."""
    if len(group) and len(group.unique()) * int(prompts.max()) + len(group) * int(lengths.max()) <= most:
        return [torch.arange(len(group), device=group.device)]
    found: list[list[int]] = []
    wide = long = prefixes = 0
    for rows, prompt, length in _pieces(prompts.tolist(), lengths.tolist(), group.tolist(), most):
        wider, longer = max(wide, prompt), max(long, length)
        if found and (prefixes + 1) * wider + (len(found[-1]) + len(rows)) * longer <= most:
            found[-1] += rows
            wide, long, prefixes = wider, longer, prefixes + 1
        else:
            found.append(rows)
            wide, long, prefixes = prompt, length, 1
    return [torch.tensor(rows, device=group.device) for rows in found]


def _pieces(prompts: list[int], lengths: list[int], group: list[int], most: int) -> list[tuple[list[int], int, int]]:
    """Rows that share a prompt, its length and that of their longest response; longest first, so that neighbours are alike."""
    members: dict[int, list[int]] = {}
    for row in sorted(range(len(group)), key=lambda row: -lengths[row]):
        members.setdefault(group[row], []).append(row)
    found: list[tuple[list[int], int, int]] = []
    for rows in members.values():
        prompt = max(prompts[row] for row in rows)
        begin = 0
        while begin < len(rows):
            room = max((most - prompt) // max(lengths[rows[begin]], 1), 1)
            found.append((rows[begin : begin + room], prompt, lengths[rows[begin]]))
            begin += room
    return sorted(found, key=lambda piece: -piece[1] - piece[2])


def token_shares(extents: Extents, index: Int[Tensor, " some"], number: int) -> list[Int[Tensor, " few"]]:
    """The rows in `number` shares of whole groups, the next largest always to the share with the fewest tokens."""
    if number == 1:
        return [index]
    sizes = extents.sizes.tolist()
    members: dict[int, list[int]] = {}
    for row in index.tolist():
        members.setdefault(int(extents.group[row]), []).append(row)
    shares: list[list[int]] = [[] for _ in range(number)]
    loads = [0] * number
    for rows in sorted(members.values(), key=lambda rows: -sum(sizes[row] for row in rows)):
        least = loads.index(min(loads))
        shares[least] += rows
        loads[least] += sum(sizes[row] for row in rows)
    return [torch.tensor(rows, dtype=torch.long) for rows in shares]


def whole_groups(group: Int[Tensor, " rows"], number: int, generator: torch.Generator) -> list[Int[Tensor, " some"]]:
    """Row indices in `number` parts of whole groups drawn at random, as equal in rows as these allow.

    With fewer groups than parts, parts are equal runs of rows, group after group.
    """
    names = group.tolist()
    members: dict[int, list[int]] = {}
    for row, name in enumerate(names):
        members.setdefault(name, []).append(row)
    groups = list(members.values())
    drawn = [groups[place] for place in torch.randperm(len(groups), generator=generator).tolist()]
    if len(drawn) < number:
        order = torch.tensor([row for rows in drawn for row in rows], dtype=torch.long, device=group.device)
        return list(order.tensor_split(number))
    parts: list[list[int]] = [[] for _ in range(number)]
    for rows in sorted(drawn, key=len, reverse=True):  # the largest first; among equals, as drawn
        min(parts, key=len).extend(rows)
    return [torch.tensor(rows, dtype=torch.long, device=group.device) for rows in parts]
