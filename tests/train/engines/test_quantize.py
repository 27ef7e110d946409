from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.train.engines.models import model_of, weights_of
from trimtab.config.training import Precision
from trimtab.errors import InputError
from trimtab.train.engines.hf.quantize import STATES, Quantizer, output_axes, round_weight

ROUNDED: tuple[Precision, ...] = ("fp8", "int8", "int4")


def test_int4_rounds_to_sevenths_of_the_rows_largest_entry() -> None:
    # scales 7/7 = 1 and 3.5/7 = 0.5: entries go to the nearest multiple (halves to even)
    weight = torch.tensor([[7.0, 1.4, -2.6, 0.2], [3.5, 0.7, -1.3, 0.2]])
    assert round_weight(weight, "int4").tolist() == [[7.0, 1.0, -3.0, 0.0], [3.5, 0.5, -1.5, 0.0]]


def test_int8_rounds_to_127ths_of_the_rows_largest_entry() -> None:
    weight = torch.tensor([[127.0, 3.4, -126.6]])
    assert round_weight(weight, "int8").tolist() == [[127.0, 3.0, -127.0]]


def test_fp8_keeps_three_bits_of_fraction() -> None:
    # The largest entry becomes 448, so the scale is 1; between 16 and 32 e4m3 counts in twos, ties to even;
    # the smallest step is 2^-9 = 0.00195.
    weight = torch.tensor([[448.0, 17.5, 19.0, -30.9, 0.0009]])
    assert round_weight(weight, "fp8").tolist() == [[448.0, 18.0, 20.0, -30.0, 0.0]]


def test_a_cache_in_fp8_has_no_scale() -> None:
    # From 1 to 2 e4m3 counts in eighths, ties to even; beyond 448 it holds, below 2^-10 = 0.00098 there is nothing.
    states = torch.tensor([1.05, 1.07, -1.9375, 500.0, -1e9, 0.0009, 0.001])
    assert STATES["fp8"](states).tolist() == [1.0, 1.125, -2.0, 448.0, -448.0, 0.0, 2.0**-9]
    assert STATES["fp8"](states.bfloat16()).dtype == torch.bfloat16
    assert STATES["auto"](states) is states


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), size=st.floats(1e-6, 1e6))
def test_the_error_is_at_most_half_a_step_of_the_channel(seed: int, size: float) -> None:
    weight = torch.randn(5, 9, generator=torch.Generator().manual_seed(seed)) * size
    peak = weight.abs().amax(1, keepdim=True)
    for precision, step in (("int8", peak / 127), ("int4", peak / 7)):
        assert ((round_weight(weight, precision) - weight).abs() <= step * 0.5001).all()
    assert ((round_weight(weight, "fp8") - weight).abs() <= weight.abs() / 16 * 1.001 + peak / 448 * 2.0**-9).all()


@pytest.mark.parametrize("precision", ROUNDED)
def test_rounding_twice_is_rounding_once_and_signs_do_not_matter(precision: Precision) -> None:
    weight = torch.randn(6, 10)
    once = round_weight(weight, precision)
    torch.testing.assert_close(round_weight(once, precision), once, rtol=1e-6, atol=0)
    assert torch.equal(round_weight(-weight, precision), -once)


@pytest.mark.parametrize("precision", ROUNDED)
def test_a_channel_of_zeros_stays_zero_and_leaves_the_others(precision: Precision) -> None:
    weight = torch.randn(3, 8)
    whole = round_weight(weight, precision)
    weight[1] = 0
    result = round_weight(weight, precision)
    assert torch.equal(result[1], torch.zeros(8))
    assert torch.equal(result[::2], whole[::2])


def test_output_channels_are_columns_where_the_family_stores_them_so() -> None:
    model = model_of("gpt2")
    weight = dict(model.named_parameters())["transformer.h.0.attn.c_attn.weight"].detach()  # [in, out]
    assert output_axes(model)["transformer.h.0.attn.c_attn.weight"] == 1
    assert torch.equal(round_weight(weight, "int4", out=1), round_weight(weight.t(), "int4").t())


@pytest.mark.parametrize("family", ["qwen2", "qwen2 tied", "gpt2"])
def test_only_the_linears_of_the_blocks_are_rounded(family: str) -> None:
    model = model_of(family)
    changed = {
        name
        for name, weight in Quantizer(model, "int4")(weights_of(model))
        if not torch.equal(weight, model.state_dict()[name])
    }
    assert changed == {
        name for name, value in model.named_parameters() if value.ndim == 2 and (".layers." in name or ".h." in name)
    }


def test_weights_of_another_model_are_refused_by_name() -> None:
    model = model_of("qwen2")
    quantizer, weights = Quantizer(model, "fp32"), weights_of(model)
    with pytest.raises(InputError, match=r"Did you mean 'model\.norm\.weight'"):
        quantizer.check(weights | {"model.norm.weigth": weights["model.norm.weight"]})
    with pytest.raises(InputError, match=r"model\.norm\.weight needs shape \[32\], got \[31\]"):
        quantizer.check(weights | {"model.norm.weight": torch.ones(31)})
    del weights["model.norm.weight"]
    with pytest.raises(InputError, match=r"got none for model\.norm\.weight"):
        quantizer.check(weights)
