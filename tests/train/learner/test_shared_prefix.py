from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as nnf
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from tests.train.engines.models import FAMILIES, FAST, SIZE, VOCABULARY, model_of
from trimtab.train.learner import row_attention
from trimtab.train.learner.batching import group_batches, whole_groups
from trimtab.train.learner.row_attention import _attention, _Held  # pyright: ignore[reportPrivateUsage]
from trimtab.train.learner.rows import Rows
from trimtab.train.learner.scoring import Scorer
from trimtab.train.learner.shared_prefix import SharedPrefix, shared_prefix

MODELS = {family: model_of(family) for family in FAST}
Group = tuple[int, list[int]]
"""Tokens of a prompt, and of each response to it."""
GROUPS = st.lists(
    st.tuples(st.integers(1, 9), st.lists(st.integers(1, 8), min_size=1, max_size=4)), min_size=1, max_size=4
)
UNEVEN: list[Group] = [(5, [3, 1, 8]), (1, [4]), (9, [2, 2]), (1, [1, 6])]


def rows_of(groups: list[Group], seed: int = 0) -> Rows:
    """Random tokens, also in the padding."""
    draw = torch.Generator().manual_seed(seed)
    width = max(prompt + max(lengths) for prompt, lengths in groups)
    ids: list[Tensor] = []
    for prompt, lengths in groups:
        begun = torch.randint(VOCABULARY, (prompt,), generator=draw)
        ids += [torch.cat([begun, torch.randint(VOCABULARY, (width - prompt,), generator=draw)]) for _ in lengths]
    prompts = torch.tensor([prompt for prompt, lengths in groups for _ in lengths])
    names = torch.tensor([7 * number for number, (_, lengths) in enumerate(groups) for _ in lengths])
    return Rows.bare(torch.stack(ids), prompts, torch.tensor([n for _, lengths in groups for n in lengths]), names)


def scorers(model: PreTrainedModel, temperature: float = 0.8) -> tuple[Scorer, Scorer]:
    """The fast one, and transformers' own forward."""
    fast = Scorer.of(model, temperature)
    assert isinstance(fast.fast, SharedPrefix)
    return fast, Scorer(model, temperature, fast.plain_head)


def gradients(scorer: Scorer, rows: Rows, entropy: bool = False) -> dict[str, Tensor]:
    """Of a sum with a factor of its own for every token."""
    found = scorer(rows, entropy=entropy)
    factor = torch.linspace(-1, 1, rows.mask.numel(), dtype=found.log_probs.dtype).view(rows.mask.shape)
    total = (found.log_probs * factor).sum()
    if found.entropy is not None:
        total = total + (found.entropy * factor.flip(0)).sum()
    named = dict(scorer.model.named_parameters())
    return dict(zip(named, torch.autograd.grad(total, list(named.values())), strict=True))


@pytest.mark.parametrize("family", FAST)
@settings(max_examples=15, deadline=None)
@given(groups=GROUPS, seed=st.integers(0, 3))
def test_log_probs_and_entropy_are_those_of_the_whole_forward(family: str, groups: list[Group], seed: int) -> None:
    rows = rows_of(groups, seed)
    with torch.no_grad():
        fast, plain = (scorer(rows, entropy=True) for scorer in scorers(MODELS[family]))
    torch.testing.assert_close(fast.log_probs, plain.log_probs, rtol=0, atol=1e-5)
    torch.testing.assert_close(fast.entropy, plain.entropy, rtol=0, atol=1e-5)
    assert bool((fast.log_probs[~rows.mask] == 0).all())


@pytest.mark.parametrize("family", FAST)
@pytest.mark.parametrize("groups", [UNEVEN, [(1, [1])], [(1, [3, 2]), (1, [5])], [(6, [4, 4]), (6, [4, 4])]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_every_parameter_are_those_of_the_whole_forward(
    family: str, groups: list[Group], dtype: torch.dtype
) -> None:
    rows = rows_of(groups)
    fast, plain = (gradients(each, rows, True) for each in scorers(copy.deepcopy(MODELS[family]).to(dtype)))
    limit = 1e-4 if dtype == torch.float32 else 1e-6  # transformers norms in float32
    whole = max(float(value.norm()) for value in plain.values())
    for name, value in plain.items():
        assert float((fast[name] - value).norm()) <= limit * float(value.norm()) + limit / 100 * whole, name


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("family", FAST)
def test_bfloat16_rounds_as_much_as_the_whole_forward_does(family: str) -> None:
    exact = model_of(family)
    rows = rows_of(UNEVEN)
    fast, plain = scorers(copy.deepcopy(exact).bfloat16())
    with torch.no_grad():
        wanted = Scorer.of(exact.bfloat16().float(), 0.8)(rows).log_probs
        errors = [float((scorer(rows).log_probs - wanted).norm()) for scorer in (fast, plain)]
    assert errors[0] <= 1.5 * errors[1]
    exactly = gradients(Scorer(exact, 0.8, fast.plain_head, shared_prefix(exact)), rows)
    for name, value in gradients(fast, rows).items():
        torch.testing.assert_close(
            value.float(), exactly[name], rtol=0.2, atol=0.1 * float(exactly[name].abs().max()) + 1e-3
        )


def test_the_order_of_rows_does_not_matter() -> None:
    rows, (fast, _) = rows_of(UNEVEN), scorers(MODELS["llama"])
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(fast(rows.part(order)).log_probs, fast(rows).log_probs[order], rtol=0, atol=1e-6)


@pytest.mark.parametrize("most", [1, 12, 30, 10_000])
def test_a_row_alone_and_any_split_give_what_the_group_gives(most: int) -> None:
    rows, (fast, plain) = rows_of(UNEVEN), scorers(MODELS["qwen2 tied"])
    with torch.no_grad():
        torch.testing.assert_close(fast.all(rows, most).log_probs, plain(rows).log_probs, rtol=0, atol=1e-5)


def test_what_stands_in_the_padding_does_not_matter() -> None:
    rows, (fast, _) = rows_of(UNEVEN), scorers(MODELS["llama biased"])
    beyond = torch.arange(rows.ids.shape[1]) >= rows.sizes.unsqueeze(1)
    other = replace(rows, ids=torch.where(beyond, (rows.ids + 7) % VOCABULARY, rows.ids))
    assert torch.equal(fast(rows).log_probs, fast(other).log_probs)
    one, two = gradients(fast, rows), gradients(fast, other)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_last_response_token_is_predicted_and_never_read() -> None:
    rows, (fast, _) = rows_of(UNEVEN), scorers(MODELS["qwen2"])
    plan = fast.fast.plan(rows) if fast.fast else None
    # Prompts of 5, 1, 9 and 1 tokens: 4 + 0 + 8 + 0 shared; responses of 12 + 4 + 4 + 7 tokens.
    assert plan is not None
    assert (plan.prefix.number, plan.own.number, len(plan.tokens)) == (12, 27, 39)


def test_rows_of_a_group_with_different_prompts_share_nothing() -> None:
    rows, (fast, plain) = rows_of(UNEVEN), scorers(MODELS["qwen2"])
    rows.ids[1, 2] = (rows.ids[1, 2] + 1) % VOCABULARY
    rows = Rows.bare(rows.ids, rows.prompts, rows.lengths, rows.group)
    torch.testing.assert_close(fast(rows).log_probs, plain(rows).log_probs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("lengths", [[0, 3, 0], [0, 0, 0]])
def test_responses_without_a_token_are_passed_over(lengths: list[int]) -> None:
    rows, (fast, plain) = rows_of([(4, [5, 5, 5])]), scorers(MODELS["llama"])
    short = Rows.bare(rows.ids, rows.prompts, torch.tensor(lengths), rows.group)
    for most in (1, 100):
        found = fast.all(short, most).log_probs
        torch.testing.assert_close(found, plain.all(short, most).log_probs, rtol=0, atol=1e-5)
        assert bool(found.isfinite().all())
    wide = replace(rows, lengths=short.lengths, mask=rows.mask & (torch.arange(5) < short.lengths.unsqueeze(1)))
    assert fast(wide).log_probs.shape == (3, 5)


def test_the_weights_are_the_models_own() -> None:
    model = model_of("llama")
    (fast, plain), rows = scorers(model), rows_of(UNEVEN)
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(1.1)
    torch.testing.assert_close(fast(rows).log_probs, plain(rows).log_probs, rtol=0, atol=1e-5)


def refused(**changes: Any) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZE, num_key_value_heads=2, **changes)).eval()


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in FAST])
def test_other_families_keep_their_own_forward(family: str) -> None:
    assert Scorer.of(model_of(family), 1.0).fast is None


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_dropout": 0.1},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
    ],
    ids=str,
)
def test_what_it_does_not_know_keeps_its_own_forward(changes: dict[str, Any]) -> None:
    assert shared_prefix(refused(**changes)) is None


def test_a_model_that_computes_something_else_keeps_its_own_forward() -> None:
    model: Any = model_of("llama")
    assert shared_prefix(model) is not None
    model.model.layers[1].mlp.register_forward_hook(lambda *parts: parts[-1] * 1.01)
    assert shared_prefix(model) is None


def test_adapters_and_checkpointing_keep_their_own_forward() -> None:
    adapted: Any = model_of("llama")
    adapted.model.layers[0].mlp.up_proj = torch.nn.Sequential(adapted.model.layers[0].mlp.up_proj)
    assert shared_prefix(adapted) is None
    saving = model_of("llama")
    saving.gradient_checkpointing_enable()
    assert shared_prefix(saving) is None


@settings(max_examples=50, deadline=None)
@given(groups=GROUPS, most=st.integers(1, 80))
def test_batches_hold_every_row_once_and_keep_to_the_limit(groups: list[Group], most: int) -> None:
    rows = rows_of(groups)
    found = group_batches(rows.prompts, rows.lengths, rows.group, most)
    assert sorted(torch.cat(found).tolist()) == list(range(len(rows)))
    for index in found:
        prompts, lengths = rows.prompts[index], rows.lengths[index]
        tokens = len(rows.group[index].unique()) * int(prompts.max()) + len(index) * int(lengths.max())
        assert tokens <= most or len(index) == 1
    for name in rows.group.unique():
        alone = rows.group == name
        fits = int(rows.prompts[alone].max()) + int(alone.sum()) * int(rows.lengths[alone].max()) <= most
        parts = sum(bool((rows.group[index] == name).any()) for index in found)
        assert parts == 1 or not fits


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=9), number=st.integers(1, 5), seed=st.integers(0, 9))
def test_minibatches_are_whole_groups_of_nearly_equal_rows(sizes: list[int], number: int, seed: int) -> None:
    group = torch.cat([torch.full((size,), 3 * name) for name, size in enumerate(sizes)])
    parts = whole_groups(group, number, torch.Generator().manual_seed(seed))
    again = whole_groups(group, number, torch.Generator().manual_seed(seed))
    assert all(torch.equal(one, other) for one, other in zip(parts, again, strict=True))
    assert len(parts) == number
    assert sorted(torch.cat(parts).tolist()) == list(range(len(group)))
    counts = [len(part) for part in parts]
    if len(sizes) < number:
        assert max(counts) - min(counts) <= 1
    else:
        assert max(counts) - min(counts) <= max(sizes)
        assert all(
            len({number for number, part in enumerate(parts) if (group[part] == name).any()}) == 1 for name in group
        )


def test_other_seeds_draw_other_minibatches() -> None:
    group = torch.arange(16).repeat_interleave(8)
    found = {str(whole_groups(group, 4, torch.Generator().manual_seed(seed))[0].tolist()) for seed in range(5)}
    assert len(found) > 1


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
