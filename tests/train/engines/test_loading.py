from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from tests.train.engines.models import FAMILIES, finished, full, jobs_of, model_of, of_tokens, tensor, weights_of
from trimtab.config.training import Precision
from trimtab.train.engines.hf import engine as hf
from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.engines.hf.llama import LlamaDecoder
from trimtab.train.engines.hf.quantize import Quantizer
from trimtab.train.messages import Group

SIZES = (7, 1, 12, 3)
WIDE = {"rtol": 0.0, "atol": 1e-5}


def across(engine: HfEngine, later: PreTrainedModel, steps: int = 5) -> dict[int, Group]:
    """Groups of which the first tokens were drawn by version 0, the others by `later` as version 3."""
    engine.submit(jobs_of(SIZES))
    early = {group.job.group: group for _ in range(steps) for group in engine.step()}
    engine.load(weights_of(later), 3)
    return early | finished(engine)


@pytest.mark.parametrize("family", FAMILIES)
def test_recomputed_caches_are_those_of_the_new_weights(family: str) -> None:
    early, later = model_of(family, 0), model_of(family, 1)
    for group in across(HfEngine(early, stop=[], slots=64, in_flight="recompute"), later).values():
        for sample in group.samples:
            assert sample.versions.tolist() == [0] * 5 + [3] * 7
            for model, part in ((early, slice(0, 5)), (later, slice(5, 12))):
                expected = of_tokens(full(model, group.job, sample).log_softmax(-1), sample)
                torch.testing.assert_close(tensor(sample.raw[part]), expected[part], **WIDE)


@pytest.mark.parametrize("family", FAMILIES)
def test_kept_caches_are_those_of_the_weights_that_made_them(family: str) -> None:
    """The expected log-probs: transformers' own cache, begun by the early model and carried on by the later one."""
    early, later = model_of(family, 0), model_of(family, 1)
    for group in across(HfEngine(early, stop=[], slots=64, in_flight="keep_cache"), later).values():
        for sample in group.samples:
            assert sample.versions.tolist() == [0] * 5 + [3] * 7
            sequence = torch.from_numpy(np.concatenate([group.job.prompt, sample.tokens])).long().unsqueeze(0)
            # Drawing token 5 takes in token 4: everything before it was taken in by the early weights.
            switch = len(group.job.prompt) + 4
            with torch.no_grad():
                begun = early(sequence[:, :switch], use_cache=True)
                rest = later(sequence[:, switch:-1], past_key_values=begun.past_key_values)
            logits = torch.cat([begun.logits[0, len(group.job.prompt) - 1 :], rest.logits[0]])
            torch.testing.assert_close(tensor(sample.raw), of_tokens(logits.log_softmax(-1), sample), **WIDE)


@pytest.mark.parametrize("slots", [3, 64])
def test_finish_lets_running_responses_end_before_it_changes_weights(slots: int) -> None:
    early, later = model_of("qwen2", 0), model_of("qwen2", 1)
    engine = HfEngine(early, stop=[], slots=slots, in_flight="finish")
    engine.submit(jobs_of(SIZES))
    engine.step()
    weights = {name: value.clone() for name, value in weights_of(later).items()}
    engine.load(weights, 3)
    for value in weights.values():
        value.fill_(torch.nan)  # shared memory that the learner writes again
    assert engine.version == 0
    groups = finished(engine)
    assert engine.version == 3
    begun_early = 0
    for group in groups.values():
        for sample in group.samples:
            assert len(set(sample.versions.tolist())) == 1
            model = early if sample.versions[0] == 0 else later
            begun_early += sample.versions[0] == 0
            expected = of_tokens(full(model, group.job, sample).log_softmax(-1), sample)
            torch.testing.assert_close(tensor(sample.raw), expected, **WIDE)
    assert begun_early == min(slots, 12)


def test_the_newest_of_several_waiting_weights_is_taken() -> None:
    engine = HfEngine(model_of("qwen2"), stop=[], in_flight="finish")
    engine.submit(jobs_of(SIZES))
    engine.step()
    for version in (1, 2):
        engine.load(weights_of(model_of("qwen2", version)), version)
    engine.abandon()
    assert engine.version == 2
    job, model = jobs_of((5,), first=9)[0], model_of("qwen2", 2)
    group = finished(engine, [job])[9]
    expected = of_tokens(full(model, job, group.samples[0]).log_softmax(-1), group.samples[0])
    torch.testing.assert_close(tensor(group.samples[0].raw), expected, **WIDE)


@pytest.mark.parametrize("in_flight", ["keep_cache", "recompute"])
def test_samples_of_a_group_that_begin_after_a_change_are_wholly_the_new_weights(in_flight: str) -> None:
    early, later = model_of("qwen2", 0), model_of("qwen2", 1)
    engine = HfEngine(early, stop=[], slots=2, in_flight=in_flight)  # pyright: ignore[reportArgumentType]
    job = jobs_of((6,), samples=4)[0]
    engine.submit([job])
    engine.step()
    engine.load(weights_of(later), 1)
    group = finished(engine)[0]
    for sample in group.samples[2:]:
        expected = of_tokens(full(later, job, sample).log_softmax(-1), sample)
        torch.testing.assert_close(tensor(sample.raw), expected, **WIDE)
        assert set(sample.versions.tolist()) == {1}


@pytest.mark.parametrize("family", ["qwen2", "qwen2 tied", "gpt2"])
@pytest.mark.parametrize("in_flight", ["keep_cache", "finish", "recompute"])
def test_loaded_weights_are_copied_and_equal_those_built_in(family: str, in_flight: str) -> None:
    later = model_of(family, 1)
    weights = {name: value.clone() for name, value in weights_of(later).items()}
    engine = HfEngine(model_of(family, 0), stop=[], in_flight=in_flight)  # pyright: ignore[reportArgumentType]
    engine.load(weights, 1)
    for value in weights.values():
        value.zero_()
    loaded = finished(engine, jobs_of(SIZES))
    built = finished(HfEngine(later, stop=[]), jobs_of(SIZES))
    for key, group in loaded.items():
        for one, other in zip(group.samples, built[key].samples, strict=True):
            assert np.array_equal(one.tokens, other.tokens)
            assert np.array_equal(one.raw, other.raw)


@pytest.mark.parametrize("precision", ["fp8", "int8", "int4"])
@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
def test_a_rounded_copy_samples_from_the_rounded_model(precision: Precision, family: str) -> None:
    model, rounded = model_of(family), model_of(family)
    with torch.no_grad():
        for name, weight in Quantizer(model, precision)(weights_of(model)):
            dict(rounded.named_parameters())[name].copy_(weight)
    engine = HfEngine(model_of(family, 1), stop=[], precision=precision)
    engine.load(weights_of(model), 1)
    worst = 0.0
    for group in finished(engine, jobs_of(SIZES)).values():
        for sample in group.samples:
            expected = of_tokens(full(rounded, group.job, sample).log_softmax(-1), sample)
            torch.testing.assert_close(tensor(sample.raw), expected, **WIDE)
            exact = of_tokens(full(model, group.job, sample).log_softmax(-1), sample)
            worst = max(worst, float((exact - expected).abs().max()))
    assert worst > 1e-3  # the mismatch is real


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("family", ["qwen2", "llama", "gpt2"])
def test_a_bf16_copy_is_near_the_models_own_bf16(family: str) -> None:
    model = model_of(family)
    engine = HfEngine(model, stop=[], precision="bf16")
    half = model_of(family).to(torch.bfloat16)
    off, mismatch = [], []
    for group in finished(engine, jobs_of(SIZES)).values():
        for sample in group.samples:
            mine = tensor(sample.raw)
            off.append((mine - of_tokens(full(half, group.job, sample).log_softmax(-1), sample)).abs())
            mismatch.append((mine - of_tokens(full(model, group.job, sample).log_softmax(-1), sample)).abs())
    assert 1e-3 < torch.cat(mismatch).mean() < 0.1
    assert torch.cat(off).mean() < 1.5 * torch.cat(mismatch).mean()


@pytest.mark.usefixtures("bf16")
def test_a_bf16_learner_may_have_an_fp32_sampler() -> None:
    model = model_of("qwen2").to(torch.bfloat16)
    wide = copy.deepcopy(model).to(torch.float32)
    engine = HfEngine(model, stop=[])
    engine.load(weights_of(model), 1)
    group = finished(engine, jobs_of((5,)))[0]
    expected = of_tokens(full(wide, group.job, group.samples[0]).log_softmax(-1), group.samples[0])
    torch.testing.assert_close(tensor(group.samples[0].raw), expected, **WIDE)


def test_a_fast_path_that_computes_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(LlamaDecoder):
        def forward(self, tokens: np.ndarray, positions: np.ndarray) -> torch.Tensor:
            return super().forward(tokens, positions) * 1.01

    monkeypatch.setattr(hf.llama, "LlamaDecoder", Wrong)
    engine = HfEngine(model_of("qwen2"), stop=[])
    assert not isinstance(engine.decoder, LlamaDecoder)


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
def test_weights_that_are_not_finite_end_everything_and_the_next_ones_begin_anew(family: str) -> None:
    model = model_of(family)
    engine = HfEngine(model, stop=[], slots=5)
    engine.submit(jobs_of(SIZES))
    engine.step()
    engine.load({name: torch.full_like(value, torch.nan) for name, value in weights_of(model).items()}, 1)
    groups = finished(engine)
    assert {sample.finish for group in groups.values() for sample in group.samples} == {"error"}
    engine.load(weights_of(model), 2)
    again = finished(engine, jobs_of(SIZES))
    assert {sample.finish for group in again.values() for sample in group.samples} == {"length"}
