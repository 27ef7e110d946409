from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as nnf

from tests.train.test_shared_prefix import MODELS, UNEVEN, gradients, rows_of, scorers
from trimtab.train.learner import row_attention
from trimtab.train.learner.row_attention import _attention, _Held  # pyright: ignore[reportPrivateUsage]


def drawn(heads: int, kv: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys over values and what is hidden of them, of three rows of four places and five columns."""
    draw = torch.Generator().manual_seed(seed)
    some = [
        torch.randn(*size, 6, dtype=torch.float64, generator=draw)
        for size in ((kv, 3, 4 * heads // kv), (2 * kv, 3, 5))
    ]
    hidden = torch.zeros(3, 4, 5, dtype=torch.float64)
    hidden[torch.rand(3, 4, 5, generator=draw) < 0.4] = -torch.inf
    hidden[..., 0] = 0.0
    return some[0].requires_grad_(), some[1].requires_grad_(), hidden


@pytest.mark.parametrize(("heads", "kv"), [(2, 2), (4, 2), (3, 1)])
def test_attention_that_holds_its_probabilities_is_torchs_own(heads: int, kv: int) -> None:
    queries, both, hidden = drawn(heads, kv)
    keys, values = both.split(kv)
    wide = hidden.repeat(1, heads // kv, 1)
    wanted = nnf.scaled_dot_product_attention(queries, keys, values, attn_mask=wide)
    found = _attention(queries, both, hidden)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    factor = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view_as(found)
    slopes = [torch.autograd.grad((made * factor).sum(), (queries, both)) for made in (found, wanted)]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_its_gradient_is_the_slope() -> None:
    queries, both, hidden = drawn(2, 2)
    assert torch.autograd.gradcheck(lambda *given: _Held.apply(*given, hidden), (queries, both))


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_longer_rows_take_the_attention_that_holds_nothing(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, (fast, _) = rows_of(UNEVEN), scorers(MODELS[family])
    held = gradients(fast, rows)
    calls: list[Any] = []
    own = nnf.scaled_dot_product_attention

    def watched(*given: Any, **more: Any) -> Tensor:
        calls.append(given)
        return own(*given, **more)

    monkeypatch.setattr(row_attention, "HELD", 0)
    monkeypatch.setattr(row_attention.nnf, "scaled_dot_product_attention", watched)
    streamed = gradients(fast, rows)
    assert calls
    for name, value in held.items():
        torch.testing.assert_close(streamed[name], value, rtol=1e-3, atol=1e-5)
