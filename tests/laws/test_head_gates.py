"""Divergences over the head of the distributions: sampled tokens bound them from below, the whole vocabulary from above."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import trimtab
from trimtab.core.batch import batch
from trimtab.core.head import Head, HeadLogProbs
from trimtab.core.layout import Packed
from trimtab.errors import ConfigError, InputError

SIZE = 8
KINDS = [("head_tv", None), ("head_kl", "forward"), ("head_kl", "reverse"), ("head_kl", "max")]


def policies(seed: int, tokens: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs of proximal and behavior over a vocabulary, and what was sampled; float64."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, tokens, SIZE, generator=generator, dtype=torch.float64)
    q = logits[0].log_softmax(-1)
    return (
        (logits[0] + 0.5 * logits[1]).log_softmax(-1),
        q,
        torch.multinomial(q.exp(), 1, generator=generator).squeeze(1),
    )


def said_over(p: Tensor, q: Tensor, sampled: Tensor, size: int, *, complete: bool = False) -> HeadLogProbs:
    """The `size` likeliest ids of the sampler."""
    top = q.topk(size, -1)
    return HeadLogProbs(Head(top.indices, top.values), sampled, proximal=p.gather(-1, top.indices), complete=complete)


def divergence(metric: str, direction: str | None, p: Tensor, q: Tensor, sampled: Tensor, head: HeadLogProbs) -> Tensor:
    own = {"proximal": p.gather(-1, sampled[:, None])[:, 0], "behavior": q.gather(-1, sampled[:, None])[:, 0]}
    whole = torch.tensor([0, len(sampled)])
    made = batch(
        own,
        ("proximal/behavior",),
        torch.ones(len(sampled), dtype=torch.bool),
        Packed(cu_seqlens=whole, tokens=len(sampled)),
        advantages=None,
        head=head,
    )
    return made.over_head(metric, direction, "proximal/behavior")


def exact(metric: str, direction: str | None, p: Tensor, q: Tensor) -> Tensor:
    if metric == "head_tv":
        return (p.exp() - q.exp()).abs().sum(-1) / 2
    forward, reverse = (q.exp() * (q - p)).sum(-1), (p.exp() * (p - q)).sum(-1)
    return {"forward": forward, "reverse": reverse, "max": torch.maximum(forward, reverse)}[direction or ""]


@given(st.integers(0, 2**31), st.sampled_from(KINDS))
@settings(deadline=None, max_examples=60)
def test_a_divergence_grows_with_the_head_up_to_that_of_the_whole_vocabulary(seed: int, kind: tuple[str, Any]) -> None:
    p, q, sampled = policies(seed)
    found = [divergence(*kind, p, q, sampled, said_over(p, q, sampled, size)) for size in range(1, SIZE + 1)]
    for smaller, larger in itertools.pairwise(found):  # what is put together hides a difference, never makes one
        assert bool((smaller <= larger + 1e-9).all())
    torch.testing.assert_close(found[-1], exact(*kind, p, q), rtol=1e-4, atol=1e-5)
    whole = said_over(p, q, sampled, SIZE, complete=True)
    torch.testing.assert_close(divergence(*kind, p, q, sampled, whole), exact(*kind, p, q))


@given(st.integers(0, 2**31))
@settings(deadline=None, max_examples=30)
def test_the_sampled_token_alone_is_a_lower_bound(seed: int) -> None:
    p, q, sampled = policies(seed)
    none = HeadLogProbs(
        Head(torch.full((len(sampled), 1), -1), torch.zeros(len(sampled), 1)),
        sampled,
        proximal=torch.zeros(len(sampled), 1),
    )
    own_p, own_q = (each.gather(-1, sampled[:, None])[:, 0].exp() for each in (p, q))
    bare = divergence("head_tv", None, p, q, sampled, none)
    torch.testing.assert_close(bare, (own_p - own_q).abs(), rtol=1e-5, atol=1e-6)  # the metric tv
    for size in (1, 3, SIZE):
        assert bool((bare <= divergence("head_tv", None, p, q, sampled, said_over(p, q, sampled, size)) + 1e-9).all())


def test_a_divergence_worked_by_hand() -> None:
    # q = (0.5, 0.3, 0.1, 0.1), p = (0.4, 0.3, 0.2, 0.1); head {0}, sampled 2, so the tail is {1, 3}: 0.4 under both.
    q, p = (torch.tensor([each], dtype=torch.float64).log() for each in ([0.5, 0.3, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1]))
    sampled = torch.tensor([2])
    head = HeadLogProbs(Head(torch.tensor([[0]]), q[:, :1]), sampled, proximal=p[:, :1])
    assert divergence("head_tv", None, p, q, sampled, head).item() == pytest.approx(0.1)
    forward = 0.5 * math.log(5 / 4) + 0.1 * math.log(1 / 2)
    assert divergence("head_kl", "forward", p, q, sampled, head).item() == pytest.approx(forward)
    reverse = 0.4 * math.log(4 / 5) + 0.2 * math.log(2)
    assert divergence("head_kl", "reverse", p, q, sampled, head).item() == pytest.approx(reverse)
    assert divergence("head_kl", "max", p, q, sampled, head).item() == pytest.approx(max(forward, reverse))


@pytest.mark.parametrize("kind", KINDS)
def test_policies_that_agree_have_none_at_all(kind: tuple[str, Any]) -> None:
    _, q, sampled = policies(1)
    q = q.float()
    for size in (1, 4, SIZE):
        assert divergence(*kind, q, q, sampled, said_over(q, q, sampled, size)).tolist() == [0.0] * len(sampled)


def gated(gate: dict[str, Any], seed: int, *, packed: bool, mask: Tensor | None = None) -> trimtab.Corrected:
    """A gate on two rows of six tokens."""
    p, q, sampled = policies(seed, 12)
    head = said_over(p, q, sampled, 3)
    own = {name: each.gather(-1, sampled[:, None])[:, 0] for name, each in (("proximal", p), ("behavior", q))}
    mask = torch.ones(12, dtype=torch.bool) if mask is None else mask
    rule = trimtab.Correction(gates=[gate])
    if packed:
        return trimtab.correct(rule, **own, mask=mask, head=head, cu_seqlens=torch.tensor([0, 6, 12]))
    laid = {name: each.view(2, 6) for name, each in own.items()}
    wide = HeadLogProbs(
        Head(head.head.ids.view(2, 6, 3), head.head.log_probs.view(2, 6, 3)),  # pyright: ignore[reportOptionalMemberAccess]
        sampled.view(2, 6),
        proximal=head.of("proximal").view(2, 6, 3),
    )
    return trimtab.correct(rule, **laid, mask=mask.view(2, 6), head=wide)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("level", "agg"),
    [
        ("token", None),
        ("segment", "mean"),
        ("sequence", "mean"),
        ("sequence", "sum"),
        ("sequence", "max"),
        ("sequence", "min"),
        ("sequence", "every"),
        ("batch", "budget"),
    ],
)
def test_a_gate_judges_at_every_level(level: str, agg: str | None, packed: bool) -> None:
    p, q, sampled = policies(4, 12)
    value = divergence("head_tv", None, p, q, sampled, said_over(p, q, sampled, 3)).view(2, 6)
    by_row = {
        "mean": value.mean(1),
        "sum": value.sum(1),
        "max": value.amax(1),
        "min": value.amin(1),
        "every": value.amax(1),
    }
    tested = value if level in ("token", "batch") else by_row[agg or ""]
    upper = float(tested.flatten().sort().values[tested.numel() // 2 - 1]) + 1e-9  # half of them lie within
    found = gated({"metric": "head_tv", "level": level, "agg": agg, "upper": upper}, 4, packed=packed).kept.view(2, 6)
    if level == "batch":
        assert 0 < int(found.sum()) < 12
        assert float(value[found].mean()) <= upper
    else:
        expected = value <= upper if level == "token" else (tested <= upper).unsqueeze(1).expand(2, 6)
        assert found.tolist() == expected.tolist()


def test_what_a_masked_token_holds_changes_nothing() -> None:
    mask = torch.ones(12, dtype=torch.bool)
    mask[3] = False
    gate = {"metric": "head_kl", "level": "sequence", "agg": "mean", "upper": 0.05}
    before = gated(gate, 2, packed=True, mask=mask)
    p, q, sampled = policies(2, 12)
    head = said_over(p, q, sampled, 3)
    spoilt = torch.where(mask.unsqueeze(1), head.of("proximal").view(12, 3), math.nan)
    own = {
        name: torch.where(mask, each.gather(-1, sampled[:, None])[:, 0], math.nan)
        for name, each in (("proximal", p), ("behavior", q))
    }
    after = trimtab.correct(
        trimtab.Correction(gates=[gate]),
        **own,
        mask=mask,
        head=HeadLogProbs(head.head, sampled, proximal=spoilt),
        cu_seqlens=torch.tensor([0, 6, 12]),
    )
    assert before.kept.tolist() == after.kept.tolist()


def test_a_gate_over_the_head_needs_one() -> None:
    ones = torch.zeros(1, 2)
    rule = trimtab.Correction(gates=[{"metric": "head_tv", "upper": 0.1}])
    with pytest.raises(InputError, match=r"pass trimtab\.HeadLogProbs"):
        trimtab.correct(rule, proximal=ones, behavior=ones, mask=torch.ones(1, 2, dtype=torch.bool))
    with pytest.raises(ConfigError, match="needs no direction"):
        trimtab.Gate(metric="head_tv", direction="forward", upper=0.1)
    head = HeadLogProbs(Head(torch.zeros(3, 1, dtype=torch.long), torch.zeros(3, 1)), torch.zeros(3).long())
    with pytest.raises(InputError, match=r"targets in the shape of mask \(1, 2\)"):
        trimtab.correct(rule, proximal=ones, behavior=ones, mask=torch.ones(1, 2, dtype=torch.bool), head=head)
