"""Single entries of the vocabulary, token by token, sorted by the tile of logits that they stand in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.core.head import HeadEntries


@dataclass(frozen=True, eq=False)
class Support:
    """The ids that each token's softmax runs over; a token that is not `restricted` has the whole vocabulary.

    A tile begins at a multiple of `height` tokens and of `width` entries. Sorting costs one read on the host per
    call: where each tile's entries begin.
    """

    restricted: Bool[Tensor, " tokens"]
    height: int
    width: int
    rows: Int[Tensor, " entries"]
    columns: Int[Tensor, " entries"]
    starts: list[int]
    """Where the entries of each tile begin, runs of the vocabulary first."""
    tall: int
    """Tiles per run of the vocabulary."""

    def restrict(self, first_row: int, first_column: int, tile: Float[Tensor, "tokens entries"]) -> None:
        """Set the logits outside the support to −inf, in place."""
        rows = self.restricted[first_row : first_row + len(tile)]
        run = first_column // self.width * self.tall
        last = run - (-(first_row + len(tile)) // self.height)
        inside = slice(self.starts[run + first_row // self.height], self.starts[last])
        places = (self.rows[inside] - first_row) * tile.shape[-1] + self.columns[inside]
        flat = tile.view(-1)
        values = flat.index_select(0, places)
        tile.masked_fill_(rows.unsqueeze(-1), -torch.inf)
        flat.index_copy_(0, places, values)


def support_by_tile(
    entries: HeadEntries, restricted: Bool[Tensor, " tokens"], size: int, *, height: int, width: int
) -> Support:
    """The entries of restricted tokens, sorted for tiles of `height` tokens by `width` of `size` entries."""
    tall, broad = -(-len(restricted) // height), -(-size // width)
    counted = entries.present & restricted[entries.token]
    last = tall * broad
    tile = entries.ids.div(width, rounding_mode="floor") * tall + entries.token.div(height, rounding_mode="floor")
    tile, order = torch.where(counted, tile, last).sort()
    starts = torch.searchsorted(tile, torch.arange(last + 1, device=tile.device)).tolist()
    return Support(
        restricted=restricted,
        height=height,
        width=width,
        rows=entries.token[order],
        columns=entries.ids[order] % width,
        starts=starts,
        tall=tall,
    )
