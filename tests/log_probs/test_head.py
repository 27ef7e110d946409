"""The head of the sampler's distribution, and log-probs over the ids that a sampler could have drawn."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trimtab.core.head import Head, HeadLogProbs
from trimtab.errors import ConfigError, InputError
from trimtab.log_probs import sparse_logits as pairs
from trimtab.log_probs.public import log_probs_of, selected_log_probs

FEW, MANY = 0, 1 << 40
"""What a single logit costs, in those of a tile: all are worked out one by one, or all picked out of tiles."""

RAGGED = Head(torch.tensor([4, 7, 9, 2]), offsets=torch.tensor([0, 3, 3, 4]))
PADDED = Head(torch.tensor([[4, 7, 9], [-1, -1, -1], [2, -1, -1]]))
BY_ROW = Head(torch.zeros(2, 3, 1, dtype=torch.long))
SCORED = Head(torch.tensor([[1, 2]]), torch.tensor([[-1.0, -2.0]]))


@pytest.mark.parametrize("head", [RAGGED, PADDED], ids=["ragged", "padded"])
def test_entries_know_their_token(head: Head):
    entries = head.entries()
    assert head.tokens == 3
    assert entries.token[entries.present].tolist() == [0, 0, 0, 2]
    assert entries.ids[entries.present].tolist() == [4, 7, 9, 2]


@pytest.mark.parametrize("head", [RAGGED, PADDED], ids=["ragged", "padded"])
def test_a_token_without_ids_contains_nothing(head: Head):
    assert head.contains(torch.tensor([7, 7, 2])).tolist() == [True, False, True]
    assert head.contains(torch.tensor([2, -1, 4])).tolist() == [False, False, False]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Head(torch.tensor([1.0])), "int32 or int64"),
        (lambda: Head(torch.tensor([1, 2])), "offsets beside them"),
        (lambda: Head(torch.tensor([[1, 2]]), offsets=torch.tensor([0, 2])), "one dimension"),
        (lambda: Head(torch.tensor([[1, 2]]), torch.zeros(1, 3)), "one log-prob per id"),
        (lambda: Head(torch.tensor([1]), offsets=torch.tensor([0, 1], device="meta")), "offsets need to be on cpu"),
        (lambda: PADDED.contains(torch.zeros(4, dtype=torch.long)), "one set of ids per token"),
        (lambda: RAGGED.contains(torch.zeros(4, dtype=torch.long)), "one set of ids per token"),
        (lambda: BY_ROW.contains(torch.zeros(3, 2, dtype=torch.long)), "one set of ids per token"),
        (lambda: HeadLogProbs(PADDED, torch.zeros(3, dtype=torch.long)), "a head with the sampler's log-probs"),
        (
            lambda: HeadLogProbs(SCORED, torch.zeros(1, dtype=torch.long), torch.zeros(2)),
            r"current in the shape of the ids \(1, 2\), got \(2,\)",
        ),
        (
            lambda: HeadLogProbs(SCORED, torch.zeros(1, dtype=torch.long), proximal=torch.zeros(1, 3)),
            "proximal in the shape of the ids",
        ),
    ],
)
def test_what_is_no_head_is_refused(make, said: str):
    with pytest.raises(InputError, match=said):
        make()


def test_log_probs_over_a_support_worked_by_hand():
    # Logits log 1, log 2, log 5. Over {1, 2} the second has 2 / 7, over all three 2 / 8. The entropy over {1, 2} is
    # −2/7 log 2/7 − 5/7 log 5/7.
    logits = torch.tensor([[1.0, 2.0, 5.0]]).log().expand(3, 3)
    support = Head(torch.tensor([[1, 2], [0, 2], [-1, -1]]))
    found = log_probs_of(logits, torch.tensor([1, 1, 1]), support=support, entropy=True)
    assert found.log_probs.exp().tolist() == pytest.approx([2 / 7, 2 / 8, 2 / 8])
    assert found.entropy is not None
    assert found.entropy[0].item() == pytest.approx(-2 / 7 * math.log(2 / 7) - 5 / 7 * math.log(5 / 7))
    assert found.in_support is not None
    assert found.in_support.tolist() == [True, False, False]


@st.composite
def supports(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Hidden states, a weight, targets, which ids each token may have, and a chunk."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    tokens, width, size = draw(st.integers(1, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 12))
    hidden = torch.randn(tokens, width, generator=generator, dtype=torch.float64)
    weight = torch.randn(size, width, generator=generator, dtype=torch.float64)
    targets = torch.randint(-1, size, (tokens,), generator=generator)
    allowed = torch.rand(tokens, size, generator=generator) < draw(st.sampled_from([0.0, 0.3, 0.9]))
    chunk = draw(st.sampled_from([1, 3, 7, 12, 40]))  # tiles of some tokens, and of all
    return hidden, weight, targets, allowed, chunk


def both_forms(allowed: Tensor) -> tuple[Head, Head]:
    ids = [row.nonzero().squeeze(1) for row in allowed]
    offsets = torch.tensor([0, *torch.tensor([len(each) for each in ids]).cumsum(0).tolist()])
    longest = max(1, *(len(each) for each in ids)) if len(ids) > 1 else max(1, len(ids[0]))
    padded = torch.full((len(ids), longest), -1)
    for row, each in zip(padded, ids, strict=True):
        row[: len(each)] = each
    return Head(padded.int()), Head(torch.cat(ids), offsets=offsets)


def plain(logits: Tensor, targets: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probs and entropy with every logit held, masked where a token's own id is among the allowed."""
    among = allowed.gather(1, targets.clamp(min=0).unsqueeze(1)).squeeze(1) & (targets >= 0)
    masked = logits.masked_fill(among.unsqueeze(1) & ~allowed, -torch.inf).log_softmax(-1)
    chosen = masked.gather(1, targets.clamp(min=0).unsqueeze(1)).squeeze(1)
    surprise = torch.where(masked.isinf(), 0.0, masked.exp() * masked.masked_fill(masked.isinf(), 0.0)).sum(-1)
    return chosen.masked_fill(targets < 0, 0.0), -surprise.masked_fill(targets < 0, 0.0)


@given(supports(), st.booleans(), st.sampled_from(["logits", FEW, MANY]))
@settings(deadline=None)
def test_a_support_is_a_mask_over_the_logits_in_value_and_gradient(drawn, with_temperature: bool, way: str | int):
    hidden, weight, targets, allowed, chunk = drawn
    temperature = torch.linspace(0.5, 2.0, len(targets), dtype=torch.float64) if with_temperature else 1.0
    wanted_leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    logits = wanted_leaves[0] @ wanted_leaves[1].T
    scaled = logits / temperature.unsqueeze(-1) if isinstance(temperature, Tensor) else logits
    wanted = plain(scaled, targets, allowed)
    (wanted[0].sum() + (wanted[1] * torch.arange(len(targets))).sum()).backward()
    for support in both_forms(allowed):
        leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
        if way == "logits":
            found = log_probs_of(
                leaves[0] @ leaves[1].T, targets, temperature=temperature, support=support, entropy=True, chunk=chunk
            )
        else:
            with mock.patch.object(pairs, "_DEARER_ON_CPU", way):
                found = selected_log_probs(
                    *leaves, targets, temperature=temperature, support=support, entropy=True, chunk=chunk
                )
        assert found.entropy is not None
        (found.log_probs.sum() + (found.entropy * torch.arange(len(targets))).sum()).backward()
        torch.testing.assert_close((found.log_probs, found.entropy), wanted)
        torch.testing.assert_close([each.grad for each in leaves], [each.grad for each in wanted_leaves])


def test_a_sliced_view_of_logits_keeps_its_supports():
    logits = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))[:, :-1]
    targets = torch.arange(12).view(3, 4) % 4
    allowed = torch.ones(12, 4, dtype=torch.bool).index_fill(1, torch.tensor([1]), False)
    support = both_forms(allowed)[1]
    found = log_probs_of(logits, targets, support=support, chunk=12)
    wanted = plain(logits.reshape(12, 4), targets.view(-1), allowed)[0].view(3, 4)
    torch.testing.assert_close(found.log_probs, wanted)


@pytest.mark.parametrize("dearer", [FEW, MANY], ids=["one by one", "out of tiles"])
@pytest.mark.parametrize("chunk", [1, 3, 7, 40])
def test_gradients_of_a_support_are_the_same_however_many_tokens_a_tile_holds(chunk: int, dearer: int):
    generator = torch.Generator().manual_seed(3)
    hidden, weight = (torch.randn(size, 3, generator=generator, dtype=torch.float64) for size in (6, 5))
    allowed = torch.rand(6, 5, generator=generator) < 0.5
    targets = torch.tensor([0, 1, 2, 3, 4, 0])
    allowed[range(4), targets[:4]] = True  # two tokens at least are drawn from the whole vocabulary
    allowed[range(4, 6), targets[4:]] = False
    leaves, others = ([each.clone().requires_grad_() for each in (hidden, weight)] for _ in range(2))
    chosen, entropy = plain(leaves[0] @ leaves[1].T, targets, allowed)
    (chosen.sum() + entropy.sum()).backward()
    with mock.patch.object(pairs, "_DEARER_ON_CPU", dearer):
        found = selected_log_probs(*others, targets, support=both_forms(allowed)[0], entropy=True, chunk=chunk)
        assert found.entropy is not None
        (found.log_probs.sum() + found.entropy.sum()).backward()
    for leaf, other in zip(leaves, others, strict=True):
        torch.testing.assert_close(other.grad, leaf.grad)


def test_a_support_beside_a_vocabulary_or_outside_it_is_refused():
    hidden, weight, targets = torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([1])
    with pytest.raises(ConfigError, match="Pass one of the two"):
        selected_log_probs(hidden, weight, targets, vocabulary=targets, support=Head(torch.tensor([[1]])))
    with pytest.raises(InputError, match="ids below 3"):
        selected_log_probs(hidden, weight, targets, support=Head(torch.tensor([[3]])))


def _plain_head(
    logits: Tensor, targets: Tensor, allowed: Tensor, head: Head, cut: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs of targets, entropies and log-probs of a padded head, by softmax over everything."""
    own = allowed & (targets >= 0).unsqueeze(-1) & allowed.gather(1, targets.clamp(min=0).unsqueeze(-1))
    kept = torch.where(own.any(-1, keepdim=True), own, True) if cut else torch.ones_like(allowed)
    log_probs = logits.masked_fill(~kept, -torch.inf).log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs.masked_fill(~kept, 0.0)).sum(-1)
    counted = targets >= 0
    chosen = log_probs.gather(1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    of_head = log_probs.gather(1, head.ids.long().clamp(min=0)).masked_fill(head.ids < 0, -torch.inf)
    return chosen[counted], entropy[counted], of_head[counted]


@settings(max_examples=60, deadline=None)
@given(supports(), st.booleans(), st.booleans(), st.integers(0, 2**31))
def test_log_probs_of_a_head_and_their_gradients_are_those_of_the_whole_softmax(
    drawn, cut: bool, entropy: bool, seed: int
):
    hidden, weight, targets, allowed, chunk = drawn
    generator = torch.Generator().manual_seed(seed)
    asked = torch.rand(allowed.shape, generator=generator) < 0.5
    supported, wanted = both_forms(allowed), both_forms(asked)
    counted = targets >= 0

    def sums(chosen: Tensor, entropies: Tensor, of_head: Tensor) -> Tensor:
        """A number that looks at everything finite, each with a slope of its own."""
        slopes = torch.linspace(-1, 1, of_head.numel(), dtype=torch.float64).view(of_head.shape)
        finite = torch.where(of_head > -torch.inf, of_head, 0.0)
        return (chosen * torch.linspace(1, 2, len(chosen))).sum() + (finite * slopes).sum() + entropy * entropies.sum()

    leaves = [each.clone().requires_grad_() for each in (hidden, weight)]
    plain = _plain_head(leaves[0] @ leaves[1].t() / 0.7, targets, allowed, wanted[0], cut)
    expected = torch.autograd.grad(sums(*plain), leaves)
    for support, head in zip(supported, wanted, strict=True):
        again = [each.clone().requires_grad_() for each in (hidden, weight)]
        about = {"support": support if cut else None, "head": head, "entropy": True, "temperature": 0.7, "chunk": chunk}
        ways = [log_probs_of(again[0] @ again[1].t(), targets, **about)]
        for dearer in (FEW, MANY):
            with mock.patch.object(pairs, "_DEARER_ON_CPU", dearer):
                ways.append(selected_log_probs(*again, targets, **about))
        for found in ways:
            assert found.head is not None
            assert found.head.shape == head.ids.shape
            assert found.entropy is not None
            of_head = found.head
            if head.offsets is not None:  # laid out as the padded one
                of_head = torch.full(wanted[0].ids.shape, -torch.inf, dtype=torch.float64)
                of_head = of_head.index_put(tuple((wanted[0].ids >= 0).nonzero().unbind(1)), found.head)
            assert bool((of_head[~counted] == -torch.inf).all())
            parts = (found.log_probs[counted], found.entropy[counted], of_head[counted])
            for ours, theirs in zip(parts, plain, strict=True):
                torch.testing.assert_close(ours, theirs)
            gradients = torch.autograd.grad(sums(*parts), again, retain_graph=True)
            for ours, theirs in zip(gradients, expected, strict=True):
                torch.testing.assert_close(ours, theirs)


def test_a_head_whose_slopes_add_up_to_nothing_still_moves_its_entries():
    # d(log p_0 − log p_1) = (1, −1, 0): the softmax itself drops out.
    logits = torch.zeros(1, 3, requires_grad=True)
    found = log_probs_of(logits, torch.tensor([2]), head=Head(torch.tensor([[0, 1]])))
    assert found.head is not None
    (found.head[0, 0] - found.head[0, 1]).backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[1.0, -1.0, 0.0]]


@pytest.mark.parametrize("dearer", [FEW, MANY], ids=["few", "many"])
class TestEachWayToSingleLogits:
    """Logits of a support worked out one by one, or picked out of tiles."""

    @pytest.fixture(autouse=True)
    def _way(self, dearer: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pairs, "_DEARER_ON_CPU", dearer)

    def test_a_bias_and_a_temperature_receive_what_they_do_from_logits(self):
        generator = torch.Generator().manual_seed(0)
        made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((9, 3), (11, 3), (11,))]
        made[2][4] = -torch.inf  # an entry that no token can have
        made.append(torch.linspace(0.5, 2.0, 9, dtype=torch.float64))
        targets = torch.tensor([0, 1, 2, 3, 5, 6, 7, -1, 8])
        allowed = torch.rand(9, 11, generator=generator) < 0.5
        support = both_forms(allowed.scatter(1, targets[:6].clamp(min=0).unsqueeze(1), True))[1]
        gradients = []
        for from_logits in (True, False):
            hidden, weight, bias, temperature = leaves = [each.clone().requires_grad_() for each in made]
            about = {"temperature": temperature, "support": support, "entropy": True, "chunk": 20}
            if from_logits:
                found = log_probs_of(hidden @ weight.t() + bias, targets, **about)
            else:
                found = selected_log_probs(hidden, weight, targets, bias=bias, **about)
            assert found.in_support is not None
            assert 0 < int(found.in_support.sum()) < 8
            assert found.entropy is not None
            gradients.append(torch.autograd.grad(found.log_probs.sum() - found.entropy.square().sum(), leaves))
        torch.testing.assert_close(*gradients)

    def test_a_token_that_is_asked_nothing_of_may_hold_anything(self):
        hidden, weight = torch.randn(3, 2), torch.randn(5, 2)
        hidden[1] = torch.nan
        leaves = [hidden.requires_grad_(), weight.requires_grad_()]
        found = selected_log_probs(*leaves, torch.tensor([0, 1, 2]), support=Head(torch.arange(5).expand(3, 5)))
        torch.where(torch.tensor([True, False, True]), found.log_probs, 0.0).sum().backward()
        for leaf in leaves:
            assert leaf.grad is not None
            assert leaf.grad.isfinite().all()
            assert leaf.grad.any()

    def test_an_id_that_stands_twice_or_out_of_order_counts_once(self):
        logits = torch.tensor([[1.0, 2.0, 5.0]]).log()
        found = selected_log_probs(
            torch.ones(1, 1), logits.t(), torch.tensor([1]), support=Head(torch.tensor([[2, 1, 2]]))
        )
        assert found.log_probs.exp().tolist() == pytest.approx([2 / 7])

    def test_a_narrow_weight_receives_a_sum_that_was_rounded_once(self):
        # 600 tokens push the same entry by ½ each. Summed in bfloat16 it would stop at 128: the next number is 129.
        tokens = 600
        weight = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
        found = selected_log_probs(
            torch.ones(tokens, 1, dtype=torch.bfloat16),
            weight,
            torch.zeros(tokens, dtype=torch.long),
            support=Head(torch.tensor([0, 1]).expand(tokens, 2)),
        )
        found.log_probs.sum().backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [[300.0], [-300.0]]

    def test_few_need_no_product_with_the_whole_vocabulary(self, dearer: int, monkeypatch: pytest.MonkeyPatch):
        products: list[int] = []
        real = torch.mm
        monkeypatch.setattr(torch, "mm", lambda *given, **named: products.append(1) or real(*given, **named))
        hidden, weight = torch.ones(4, 2, requires_grad=True), torch.ones(50, 2, requires_grad=True)
        support = Head(torch.arange(8).view(4, 2))
        selected_log_probs(hidden, weight, torch.arange(0, 8, 2), support=support).log_probs.sum().backward()
        assert bool(products) is (dearer == MANY)


def test_a_mask_of_many_ids_is_picked_out_of_tiles_and_a_short_one_is_not():
    ids, tokens = torch.arange(32), torch.zeros(32, dtype=torch.long)
    made = {size: pairs.Pairs.of(tokens, ids, first=0, tokens=1, size=size) for size in (32, 1 << 20)}
    assert not made[32].few
    assert made[1 << 20].few


def test_an_id_that_is_all_of_its_support_receives_no_gradient_and_without_one_it_does():
    # Over {1} alone log p = 0 whatever the logits are; over all three d log p = 1[chosen] − p = (−1/8, 6/8, −5/8).
    for support, wanted in ((Head(torch.tensor([[1]])), [0.0, 0.0, 0.0]), (None, [-1 / 8, 6 / 8, -5 / 8])):
        logits = torch.tensor([[1.0, 2.0, 5.0]]).log().requires_grad_()
        log_probs_of(logits, torch.tensor([1]), support=support).log_probs.sum().backward()
        assert logits.grad is not None
        assert logits.grad.tolist()[0] == pytest.approx(wanted, abs=1e-7)
