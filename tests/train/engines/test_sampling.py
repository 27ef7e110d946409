from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import ConfigError
from trimtab.train.engines.hf.sampling import BLOCK, HEAD, cut_log_probs, draw, inverse_cdf, nucleus
from trimtab.train.messages import Sampling

LAST = 1 - 2.0**-53  # the largest uniform number below 1


def uniforms(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(rows, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_a_uniform_number_falls_on_the_token_whose_interval_holds_it() -> None:
    # cumulative: 0.25, 0.25, 0.75, 1.0; an interval is closed below and open above
    probs = torch.tensor([[0.25, 0.0, 0.5, 0.25]]).repeat(7, 1)
    at = torch.tensor([0.0, 0.2, 0.25, 0.5, 0.75, 0.9, LAST], dtype=torch.float64)
    assert inverse_cdf(probs, at).tolist() == [0, 0, 2, 2, 3, 3, 3]


@settings(max_examples=40, deadline=None)
@given(
    size=st.sampled_from([1, 2, 17, 4 * BLOCK, 4 * BLOCK + 1, 9 * BLOCK, 3001]),
    chance=st.sampled_from([0.0, 1e-300, 2.0**-24, 0.3, 0.999999, 1 - 2.0**-24, LAST]),
    seed=st.integers(0, 99),
)
def test_a_token_of_probability_zero_is_never_drawn(size: int, chance: float, seed: int) -> None:
    own = torch.Generator().manual_seed(seed)
    probs = torch.rand(4, size, generator=own) ** 8
    probs[torch.rand(4, size, generator=own) < 0.7] = 0
    probs[:, int(torch.randint(size, (), generator=own))] = 0.5
    probs /= probs.sum(-1, keepdim=True)
    tokens = inverse_cdf(probs, torch.full((4,), chance, dtype=torch.float64))
    assert (probs.gather(-1, tokens.unsqueeze(-1)) > 0).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), size=st.integers(4 * BLOCK + 1, 20 * BLOCK))
def test_the_search_by_blocks_finds_the_token_of_the_plain_sum(seed: int, size: int) -> None:
    # Sixteenths of 2^-20 add up without rounding in float32, so both must agree to the token.
    own = torch.Generator().manual_seed(seed)
    probs = torch.randint(0, 16, (8, size), generator=own).float() * 2.0**-20
    at = uniforms(8, seed)
    mass = probs.double().cumsum(-1)
    expected = (mass <= at.unsqueeze(-1) * mass[:, -1:]).sum(-1)
    assert torch.equal(inverse_cdf(probs, at), expected)


@pytest.mark.parametrize(
    "cut", [Sampling(), Sampling(0.7), Sampling(1.3, top_k=5), Sampling(top_p=0.8), Sampling(0.9, top_k=9, top_p=0.7)]
)
@pytest.mark.parametrize("size", [12, 4 * BLOCK + 100])
def test_frequencies_follow_the_distribution_the_log_probs_claim(cut: Sampling, size: int) -> None:
    count = 40_000 if size < 100 else 4_000
    logits = torch.randn(1, size, generator=torch.Generator().manual_seed(3)) * 2
    drawn = draw(logits.expand(count, -1), uniforms(count), cut)
    probs = cut_log_probs(logits.log_softmax(-1), cut)[0].double().exp()
    counts = torch.bincount(drawn.tokens, minlength=size).double()
    assert counts[probs == 0].sum() == 0
    rare = probs * count < 8  # chi-square needs some expected draws in every class
    observed = torch.cat([counts[~rare], counts[rare].sum().view(1)])
    expected = torch.cat([probs[~rare], probs[rare].sum().view(1)]) * count
    observed, expected = observed[expected > 0], expected[expected > 0]
    distance = ((observed - expected) ** 2 / expected).sum()
    freedom = torch.tensor((len(expected) - 1) / 2, dtype=torch.float64)
    assert torch.special.gammaincc(freedom, distance / 2) > 1e-4  # the chance of so large a chi-square


def test_both_log_probs_belong_to_the_token() -> None:
    # softmax of log(0.5), log(0.3), log(0.2); top-2 keeps 0.5 and 0.3: 0.5/0.8 and 0.3/0.8
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log().repeat(2, 1)
    drawn = draw(logits, torch.tensor([0.1, 0.9], dtype=torch.float64), Sampling(top_k=2))
    assert drawn.tokens.tolist() == [0, 1]
    assert drawn.raw.exp().tolist() == pytest.approx([0.5, 0.3])
    assert drawn.behavior.exp().tolist() == pytest.approx([0.625, 0.375])


def test_temperature_comes_before_top_k_and_top_k_before_top_p() -> None:
    # temperature 0.5 squares and renormalises: 0.4², 0.3², 0.2², 0.1² = .16, .09, .04, .01 of .30;
    # top-3: .16, .09, .04 of .29 = .552, .310, .138; top-p 0.85 keeps .552 + .310 = .862: .16/.25, .09/.25
    plain = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    result = cut_log_probs(plain, Sampling(0.5, top_k=3, top_p=0.85)).exp()
    assert result[0].tolist() == pytest.approx([0.64, 0.36, 0.0, 0.0])
    # without top-k the first two hold only .25/.30 = .833, so the third stays
    assert (cut_log_probs(plain, Sampling(0.5, top_p=0.85)) > -torch.inf).sum() == 3


def test_top_p_keeps_the_token_that_crosses_the_share_and_one_at_least() -> None:
    probs = torch.tensor([[0.5, 0.25, 0.25]])
    assert nucleus(probs.log(), 0.4999).tolist() == [[True, False, False]]
    assert nucleus(probs.log(), 0.5001).sum() == 2
    assert nucleus(probs.log(), 0.0).tolist() == [[True, False, False]]


def test_a_flat_large_vocabulary_has_its_whole_nucleus_found() -> None:
    size = 3 * HEAD
    flat, sharp = torch.zeros(size), torch.zeros(size)
    sharp[7] = 20.0
    inside = nucleus(torch.stack([flat, sharp]).log_softmax(-1), 0.9)
    assert inside[0].sum() == pytest.approx(0.9 * size, abs=1)
    assert inside[1].nonzero().flatten().tolist() == [7]


def test_temperature_zero_is_the_likeliest_token_with_certainty() -> None:
    logits = torch.randn(5, 30)
    drawn = draw(logits, uniforms(5), Sampling(0.0, top_k=3, top_p=0.5))
    assert torch.equal(drawn.tokens, logits.argmax(-1))
    assert torch.equal(drawn.behavior, torch.zeros(5))
    assert torch.equal(drawn.raw, logits.log_softmax(-1).amax(-1))


@pytest.mark.parametrize("temperature", [1e-38, 1e-6, 50.0])
def test_extreme_temperatures_stay_finite(temperature: float) -> None:
    drawn = draw(torch.randn(4, 9) * 30, uniforms(4), Sampling(temperature))
    assert drawn.behavior.isfinite().all()
    assert (drawn.behavior <= 0).all()


@pytest.mark.parametrize("cut", [Sampling(), Sampling(0.0), Sampling(0.8, top_k=2, top_p=0.9)])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
@pytest.mark.parametrize("size", [6, 40, 5000])
def test_logits_without_a_distribution_spoil_their_row_only(cut: Sampling, wrong: float, size: int) -> None:
    logits = torch.randn(4, size)
    right = draw(logits, uniforms(4), cut)
    spoilt = logits.clone()
    spoilt[1, size // 2] = wrong
    spoilt[3] = -torch.inf
    drawn = draw(spoilt, uniforms(4), cut)
    assert drawn.sound.tolist() == [True, False, True, False]
    assert torch.equal(drawn.tokens[::2], right.tokens[::2])
    assert torch.equal(drawn.behavior[::2], right.behavior[::2])
    assert ((drawn.tokens >= 0) & (drawn.tokens < size)).all()


def test_a_token_the_model_forbids_is_no_error() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, 0.0]])
    drawn = draw(logits, torch.zeros(1, dtype=torch.float64), Sampling())
    assert drawn.sound.all()
    assert drawn.tokens.tolist() == [1]
    assert drawn.raw.exp().tolist() == pytest.approx([0.5])


def test_bfloat16_logits_are_summed_in_float32() -> None:
    logits = torch.zeros(1, 1000, dtype=torch.bfloat16)
    drawn = draw(logits, uniforms(1), Sampling())
    assert drawn.raw.dtype == torch.float32
    assert drawn.raw.item() == pytest.approx(-np.log(1000), abs=1e-6)


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": 0}, {"top_p": 1.5}, {"top_p": -0.1}]
)
def test_impossible_settings_do_not_construct(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="needs"):
        Sampling(**wrong)  # pyright: ignore[reportArgumentType]
