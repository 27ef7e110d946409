from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.train.engines.models import (
    FAMILIES,
    FAST,
    VOCABULARY,
    finished,
    full,
    jobs_of,
    model_of,
    of_tokens,
    tensor,
)
from trimtab.config.training import KvCache
from trimtab.errors import ConfigError, InputError
from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.engines.hf.llama import LlamaDecoder
from trimtab.train.engines.hf.quantize import STATES
from trimtab.train.engines.hf.sampling import cut_log_probs
from trimtab.train.engines.table import Engine
from trimtab.train.messages import Group, Job, Sampling

RAGGED = (7, 1, 12, 3, 70, 3, 20, 2)  # the long one outgrows the first caches while others run


def same_tokens(one: dict[int, Group], other: dict[int, Group]) -> bool:
    pairs = [(one[key].samples, other[key].samples) for key in one]
    return one.keys() == other.keys() and all(
        np.array_equal(a.tokens, b.tokens) for left, right in pairs for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("slots", [4, 64])
def test_raw_log_probs_are_those_of_a_full_forward(family: str, slots: int) -> None:
    """With ragged prompts, groups that begin in pieces, refilled and freed slots."""
    model = model_of(family)
    engine = HfEngine(model, stop=[0, 1], slots=slots)
    groups = finished(engine, jobs_of(RAGGED))
    assert len(groups) == len(RAGGED)
    assert isinstance(engine.decoder, LlamaDecoder) == (family in FAST)
    for group in groups.values():
        assert len(group.samples) == 3
        for sample in group.samples:
            expected = of_tokens(full(model, group.job, sample).log_softmax(-1), sample)
            torch.testing.assert_close(tensor(sample.raw), expected, rtol=0, atol=1e-5)
            assert np.array_equal(sample.behavior, sample.raw)


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
def test_keys_and_values_of_prompts_and_answers_are_kept_in_fp8_where_that_is_asked_for(family: str) -> None:
    model, gaps = model_of(family), dict[KvCache, float]()
    for kind in ("auto", "fp8"):
        engine = HfEngine(model, stop=[0], slots=5, kv_cache=kind)
        groups = finished(engine, jobs_of(RAGGED))
        assert isinstance(engine.decoder, LlamaDecoder) == (family in FAST)
        kept = [engine.decoder.cache] if isinstance(engine.decoder, LlamaDecoder) else [*engine.decoder._buffers()]  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        assert all(torch.equal(each, STATES["fp8"](each)) for each in kept) == (kind == "fp8")
        pairs = [(group.job, sample) for group in groups.values() for sample in group.samples]
        gaps[kind] = max(
            float((tensor(sample.raw) - of_tokens(full(model, job, sample).log_softmax(-1), sample)).abs().max())
            for job, sample in pairs
        )
    assert gaps["auto"] < 1e-5
    assert 1e-4 < gaps["fp8"] < 1.0


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
@pytest.mark.parametrize("cut", [Sampling(0.7), Sampling(1.0, top_k=4), Sampling(1.2, top_k=10, top_p=0.6)])
def test_behavior_log_probs_are_those_of_the_distribution_drawn_from(family: str, cut: Sampling) -> None:
    model = model_of(family)
    engine = HfEngine(model, stop=[0], slots=5)
    for group in finished(engine, jobs_of(RAGGED, sampling=cut)).values():
        for sample in group.samples:
            plain = full(model, group.job, sample).log_softmax(-1)
            expected = of_tokens(cut_log_probs(plain, cut), sample)
            torch.testing.assert_close(tensor(sample.behavior), expected, rtol=0, atol=2e-5)
            torch.testing.assert_close(tensor(sample.raw), of_tokens(plain, sample), rtol=0, atol=1e-5)
            assert not np.array_equal(sample.behavior, sample.raw)


@pytest.mark.parametrize("family", FAMILIES)
def test_temperature_zero_is_greedy_generate(family: str) -> None:
    model = model_of(family)
    for job, group in zip(
        jobs := jobs_of((6, 1, 9), samples=2, sampling=Sampling(0.0)),
        finished(HfEngine(model, stop=[]), jobs).values(),
        strict=True,
    ):
        prompt = torch.from_numpy(job.prompt).long().unsqueeze(0)
        settings = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
        made = model.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)
        for sample in group.samples:
            assert sample.tokens.tolist() == made[0, len(job.prompt) :].tolist()
            assert not sample.behavior.any()


def test_a_response_ends_with_its_first_stop_token_or_at_the_limit() -> None:
    engine = HfEngine(model_of("qwen2"), stop=[3, 4], slots=6)
    seen: set[str] = set()
    for group in finished(engine, jobs_of(RAGGED, samples=5)).values():
        for sample in group.samples:
            seen.add(sample.finish)
            stops = np.isin(sample.tokens, [3, 4])
            assert not stops[:-1].any()
            assert (sample.finish == "stop") == stops[-1]
            assert stops[-1] or len(sample.tokens) == 12
            assert len(sample.tokens) == len(sample.behavior) == len(sample.raw) == len(sample.versions)
    assert seen == {"stop", "length"}


@settings(max_examples=15, deadline=None)
@given(
    slots=st.integers(1, 9),
    sizes=st.lists(st.integers(1, 14), min_size=1, max_size=5),
    samples=st.integers(1, 5),
    seed=st.integers(0, 3),
)
def test_slots_and_neighbours_do_not_change_a_response(slots: int, sizes: list[int], samples: int, seed: int) -> None:
    model = model_of("llama", seed)
    jobs = jobs_of(sizes, samples=samples, max_tokens=6)
    together = finished(HfEngine(model, stop=[0, 1, 2], slots=slots), jobs)
    alone = HfEngine(model, stop=[0, 1, 2], slots=1)
    apart = {job.group: finished(alone, [job])[job.group] for job in reversed(jobs)}
    assert same_tokens(together, apart)


def test_the_same_jobs_give_the_same_bits() -> None:
    model = model_of("qwen2")
    first, second = (finished(HfEngine(model, stop=[0], slots=5), jobs_of(RAGGED)) for _ in range(2))
    assert list(first) == list(second)
    for one, other in zip(first.values(), second.values(), strict=True):
        for a, b in zip(one.samples, other.samples, strict=True):
            assert np.array_equal(a.tokens, b.tokens)
            assert np.array_equal(a.raw, b.raw)


def test_seeds_and_samples_of_a_group_differ() -> None:
    prompt = np.array([5, 6, 7], np.int32)
    jobs = [Job(index, prompt, 6, seed, 12) for index, seed in enumerate((0, 1, 0, 2**63))]
    groups = finished(HfEngine(model_of("qwen2"), stop=[]), jobs)
    texts = [[tuple(sample.tokens.tolist()) for sample in groups[index].samples] for index in range(4)]
    assert texts[0] == texts[2]
    assert len({text for index in (0, 1, 3) for text in texts[index]}) == 18


def test_a_longer_limit_continues_the_same_responses() -> None:
    model = model_of("qwen2")
    short, long = (finished(HfEngine(model, stop=[]), jobs_of((5,), max_tokens=limit))[0].samples for limit in (4, 12))
    for one, other in zip(short, long, strict=True):
        assert one.tokens.tolist() == other.tokens[:4].tolist()


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
def test_sampled_first_tokens_follow_the_models_probabilities(family: str) -> None:
    model = model_of(family)
    job = Job(0, np.array([3, 1, 4], np.int32), 4000, 7, 1)
    group = finished(HfEngine(model, stop=[], slots=700), [job])[0]
    counts = torch.bincount(
        torch.tensor([int(sample.tokens[0]) for sample in group.samples]), minlength=VOCABULARY
    ).double()
    expected = full(model, job, group.samples[0])[0].double().softmax(-1) * 4000
    common = expected > 5
    distance = ((counts - expected) ** 2 / expected)[common].sum()
    freedom = torch.tensor((int(common.sum()) - 1) / 2, dtype=torch.float64)
    assert torch.special.gammaincc(freedom, distance / 2) > 1e-4


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
def test_a_prompt_is_prefilled_once_per_group(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = HfEngine(model_of(family), stop=[], slots=3)
    seen: list[int] = []
    prefill = engine.decoder.prefill

    def counted(beginnings: list[np.ndarray]) -> list[object]:
        seen.extend(len(beginning) for beginning in beginnings)
        return prefill(beginnings)

    monkeypatch.setattr(engine.decoder, "prefill", counted)
    finished(engine, jobs_of((6, 9), samples=7))  # neither group fits into the slots
    assert seen == [5, 8]


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
def test_logits_that_are_not_finite_end_their_sample_only(family: str) -> None:
    """The embedding of token 13 is NaN: whoever draws it has no logits after it."""
    model = model_of(family)
    with torch.no_grad():
        untied = torch.nn.Linear(32, VOCABULARY, bias=False)
        untied.weight.copy_(model.get_output_embeddings().weight)
        model.set_output_embeddings(untied)
        model.config.tie_word_embeddings = False
        model.get_input_embeddings().weight[13] = torch.nan
    jobs = [job for job in jobs_of(range(2, 16), samples=4) if 13 not in job.prompt]
    engine = HfEngine(model, stop=[], slots=6)
    samples = [sample for group in finished(engine, jobs).values() for sample in group.samples]
    broken = [sample for sample in samples if sample.finish == "error"]
    whole = [sample for sample in samples if sample.finish == "length"]
    assert broken
    assert whole
    assert len(broken) + len(whole) == len(samples)
    for sample in broken:
        assert sample.tokens[-1] == 13
        assert np.isfinite(sample.raw).all()
    for sample in whole:
        assert 13 not in sample.tokens[:-1]
        assert np.isfinite(sample.raw).all()


def test_a_response_ends_where_the_model_has_no_more_positions() -> None:
    engine = HfEngine(model_of("gpt2"), stop=[])
    group = finished(engine, [Job(0, np.arange(94, dtype=np.int32) % VOCABULARY, 1, 0, 50)])[0]
    assert len(group.samples[0].tokens) == 2  # 94 + 2 = 96 positions
    assert group.samples[0].finish == "length"


def test_jobs_submitted_while_others_run_take_their_turn() -> None:
    model = model_of("qwen2")
    engine = HfEngine(model, stop=[0], slots=4)
    engine.submit(jobs_of((5, 6)))
    result = {group.job.group: group for _ in range(3) for group in engine.step()}
    result |= finished(engine, jobs_of((4, 30), first=2))
    expected = finished(HfEngine(model, stop=[0], slots=64), jobs_of((5, 6)) + jobs_of((4, 30), first=2))
    assert same_tokens(result, expected)


def test_abandoned_jobs_leave_no_trace() -> None:
    model = model_of("qwen2")
    engine = HfEngine(model, stop=[0], slots=4)
    engine.submit(jobs_of((5, 6, 7)))
    for _ in range(3):
        engine.step()
    engine.abandon()
    assert engine.pending == 0
    assert engine.step() == []
    again = finished(engine, jobs_of((5, 6, 7)))
    assert same_tokens(again, finished(HfEngine(model, stop=[0], slots=4), jobs_of((5, 6, 7))))


@pytest.mark.parametrize(
    ("prompt", "samples", "max_tokens", "said"),
    [
        ([], 1, 1, "start token"),
        ([1], 0, 1, "at least one sample"),
        ([1], 1, 0, "at least one token"),
        ([1] * 96, 1, 1, "96 positions, got 96 tokens"),
        ([VOCABULARY], 1, 1, "from 0 to 19, got 20"),
        ([-1], 1, 1, "tokenizer that belongs"),
    ],
)
def test_a_job_that_cannot_be_sampled_is_refused_and_none_is_taken(
    prompt: list[int], samples: int, max_tokens: int, said: str
) -> None:
    engine = HfEngine(model_of("qwen2"), stop=[])
    with pytest.raises(InputError, match=said):
        engine.submit([*jobs_of((4,)), Job(9, np.array(prompt, np.int32), samples, 0, max_tokens)])
    assert engine.pending == 0


def test_a_group_number_is_used_once() -> None:
    engine = HfEngine(model_of("qwen2"), stop=[])
    with pytest.raises(InputError, match="got 0 twice"):
        engine.submit(jobs_of((4,)) * 2)


def test_an_engine_that_cannot_work_is_refused() -> None:
    model = model_of("qwen2")
    with pytest.raises(InputError, match=r"stop needs token ids from 0 to 19, got \[20\]"):
        HfEngine(model, stop=[20])
    with pytest.raises(ConfigError, match="at least one slot"):
        HfEngine(model, stop=[], slots=0)


def test_it_is_an_engine_and_leaves_the_model_alone() -> None:
    model = model_of("qwen2").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    engine = HfEngine(model, stop=[], precision="int4", version=5)
    assert isinstance(engine, Engine)
    groups = finished(engine, jobs_of((4,)))
    assert model.training
    assert all(value.requires_grad for value in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert groups[0].oldest == 5
