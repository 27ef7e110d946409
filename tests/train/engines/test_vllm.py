"""vLLM in process against transformers in fp32: the same log-probs per token and version, whatever the weights do meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.train.engines.vllm_models import (
    CUT,
    LONGEST,
    VOCABULARY,
    differences,
    jobs,
    named,
    policy,
    rollout,
)
from trimtab.errors import ConfigError, InputError, RunError
from trimtab.train.engines.hf.sampling import cut_log_probs
from trimtab.train.engines.table import Engine
from trimtab.train.engines.vllm import requirements
from trimtab.train.messages import Group, Job, Sampling

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("vllm", reason="vLLM is not installed: make vllm-env sets it up")
from trimtab.train.engines.vllm.engine import VllmEngine  # noqa: E402

MEAN, MOST = 2e-6, 5e-5
"""What is asked of log-probs, in the mean and at the worst token."""


@pytest.fixture(scope="module", params=["untied", "tied"])
def models(request: pytest.FixtureRequest) -> list[Any]:
    return [policy(seed, tied=request.param == "tied") for seed in range(5)]


@pytest.fixture(scope="module")
def made(models: list[Any]) -> VllmEngine:
    return VllmEngine(models[0].config, rollout(), stop=[0])


@pytest.fixture
def engine(made: VllmEngine, models: list[Any]) -> Iterator[Callable[..., VllmEngine]]:
    """The engine with nothing submitted, the first weights and these settings."""

    def ready(**changes: Any) -> VllmEngine:
        made.abandon()
        made.rollout = rollout(**changes)
        made.load(named(models[0]), 0)
        made.differences.clear()
        return made

    yield ready
    made.abandon()


def finished(
    engine: Engine, wanted: Sequence[Job], updates: Mapping[int, tuple[Mapping[str, Tensor], int]] | None = None
) -> list[Group]:
    """Everything done, with weights loaded before the steps of these numbers."""
    engine.submit(wanted)
    groups: list[Group] = []
    for step in range(10_000):
        if not engine.pending:
            return sorted(groups, key=lambda group: group.job.group)
        if step in (updates or {}):
            engine.load(*(updates or {})[step])
        groups += engine.step()
    raise AssertionError("the engine does not come to an end")


@pytest.mark.parametrize("in_flight", ["keep_cache", "recompute", "finish"])
def test_every_log_prob_is_that_of_its_version_under_updates_in_flight(
    engine: Callable[..., VllmEngine], models: list[Any], in_flight: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks of the prefix cache filled, requests running and waiting, half of the groups under temperature, top-k and top-p."""
    ready = engine(in_flight=in_flight)
    updates = {6 * version: (named(models[version]), version) for version in (1, 2, 3)}
    groups = finished(ready, jobs(8), updates)
    off = differences(models, groups, keep_cache=in_flight == "keep_cache")
    with capsys.disabled():
        sys.stdout.write(
            f"\n{in_flight}: {len(off)} tokens, mean {off.mean():.1e}, most {off.max():.1e}; probes {max(ready.differences):.1e}\n"
        )
    assert off.mean() < MEAN
    assert off.max() < MOST
    mixed = [sample for group in groups for sample in group.samples if len(np.unique(sample.versions)) > 1]
    assert bool(mixed) == (in_flight != "finish")
    assert {int(version) for group in groups for sample in group.samples for version in sample.versions} >= {0, 3}
    assert len(ready.differences) == (1 if in_flight == "finish" else 3)  # two were overtaken while they waited
    # The control: by weights of another version they are far off.
    others = [models[(place + 1) % 4] for place in range(4)]
    assert differences(others, groups, keep_cache=in_flight == "keep_cache").mean() > 0.1


def test_the_mode_of_an_update_in_flight_can_be_told_from_the_log_probs(
    engine: Callable[..., VllmEngine], models: list[Any]
) -> None:
    """A control of the test above: keys that were kept are not those that would be made again."""
    groups = finished(engine(in_flight="keep_cache"), jobs(4), {8: (named(models[1]), 1)})
    assert differences(models, groups, keep_cache=False).mean() > 0.01


def test_a_prompt_seen_before_an_update_is_read_again_after_it(
    engine: Callable[..., VllmEngine], models: list[Any]
) -> None:
    """With running requests vLLM cannot empty its prefix cache: only the salt keeps old keys from new requests."""
    ready = engine()
    first, running = jobs(2, samples=2)
    again = Job(9, first.prompt, 2, 77, 24)
    ready.submit([first, running])
    groups: list[Group] = []
    for _ in range(6):
        groups += ready.step()
    ready.load(named(models[1]), 1)
    groups += finished(ready, [again])
    fresh = [group for group in groups if group.job.group == 9]
    assert {int(version) for sample in fresh[0].samples for version in sample.versions} == {1}
    assert differences(models, fresh, keep_cache=False).mean() < MEAN


def test_no_token_is_drawn_from_outside_the_cut(engine: Callable[..., VllmEngine], models: list[Any]) -> None:
    wanted = [Job(number, np.arange(1, 9, dtype=np.int32), 8, number, 16, CUT) for number in range(4)]
    seen = 0
    for group in finished(engine(), wanted):
        for sample in group.samples:
            whole = torch.from_numpy(np.concatenate([group.job.prompt, sample.tokens])).long().unsqueeze(0)
            with torch.no_grad():
                plain = models[0](whole).logits[0, len(group.job.prompt) - 1 : -1].log_softmax(-1)
            inside = cut_log_probs(plain, CUT).isfinite()
            assert inside.gather(-1, torch.from_numpy(sample.tokens).long().unsqueeze(-1)).all()
            assert sample.raw is None
            seen += int((~inside).sum())
    assert seen > 0


def test_plain_sampling_has_raw_log_probs_and_temperature_0_takes_the_likeliest(
    engine: Callable[..., VllmEngine], models: list[Any]
) -> None:
    prompt = np.arange(1, 9, dtype=np.int32)
    plain, greedy = finished(engine(), [Job(0, prompt, 2, 5, 12), Job(1, prompt, 2, 5, 12, Sampling(0.0))])
    assert all(np.array_equal(sample.raw, sample.behavior) for sample in plain.samples)
    made = models[0].generate(
        torch.from_numpy(prompt).long().unsqueeze(0), max_new_tokens=12, do_sample=False, pad_token_id=0, eos_token_id=0
    )
    for sample in greedy.samples:
        assert sample.tokens.tolist() == made[0, len(prompt) :].tolist()
        assert not sample.behavior.any()


def test_neighbours_and_slots_do_not_change_a_response(engine: Callable[..., VllmEngine]) -> None:
    together = finished(engine(), jobs(6, prompt=9, max_tokens=10))
    ready = engine(slots=3)
    for group in together:
        (alone,) = finished(ready, [group.job])
        for one, other in zip(group.samples, alone.samples, strict=True):
            assert np.array_equal(one.tokens, other.tokens)
    assert len({sample.tokens.tobytes() for sample in together[0].samples}) > 1


def test_a_response_ends_with_its_first_stop_token_or_at_the_limit(engine: Callable[..., VllmEngine]) -> None:
    long = Job(99, np.ones(LONGEST - 5, np.int32), 2, 3, 50)
    groups = finished(engine(), [*jobs(6, prompt=5, samples=8), long])
    seen: set[str] = set()
    for group in groups:
        limit = 5 if group.job is long else 24
        for sample in group.samples:
            seen.add(sample.finish)
            assert not (sample.tokens[:-1] == 0).any()
            assert (sample.finish == "stop") == (sample.tokens[-1] == 0)
            assert sample.finish == "stop" or len(sample.tokens) == limit
    assert seen == {"stop", "length"}


def test_what_was_abandoned_is_gone_and_numbers_are_taken_once(engine: Callable[..., VllmEngine]) -> None:
    ready = engine(slots=4)
    ready.submit(jobs(3))
    ready.step()
    with pytest.raises(InputError, match="got 0 twice"):
        ready.submit(jobs(1))
    with pytest.raises(InputError, match="shorter than the engine's 160 tokens"):
        ready.submit([Job(7, np.ones(LONGEST, np.int32), 1, 0, 1)])
    with pytest.raises(InputError, match=f"from 0 to {VOCABULARY - 1}"):
        ready.submit([Job(7, np.full(3, VOCABULARY, np.int32), 1, 0, 1)])
    assert ready.pending == 3
    ready.abandon()
    assert ready.pending == 0
    assert [group.job.group for group in finished(ready, jobs(1))] == [0]


def test_an_engine_that_keeps_the_version_before_stops_the_run(
    engine: Callable[..., VllmEngine], models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = engine()
    monkeypatch.setattr(ready, "_update", lambda weights: None)  # answers that all went well
    with pytest.raises(
        RunError, match=r"vLLM needs the weights of version 1 .* it kept the weights of the version before"
    ):
        ready.load(named(models[1]), 1)


def test_a_tied_head_that_is_not_updated_stops_the_run(
    engine: Callable[..., VllmEngine], models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real fault: without the head's own name vLLM reports success and keeps the head it had."""
    ready = engine()
    if not ready.skeleton.ties:
        ready.load(named(models[1]), 1)  # the control: where nothing is tied, nothing is left behind
        return
    monkeypatch.setattr(ready, "_update", lambda weights: _send(ready, weights))
    with pytest.raises(RunError, match=r"some weights are old ones or were never loaded .a tied head"):
        ready.load(named(models[1]), 1)


def _send(engine: VllmEngine, weights: Mapping[str, Tensor]) -> None:
    for call, given in (("start_weight_update", {}), ("update_weights", {"update_info": {"tensors": dict(weights)}})):
        engine._core.collective_rpc(call, kwargs=given)
    engine._core.collective_rpc("finish_weight_update")


def test_head_sizes_are_those_that_vllm_lists() -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    assert list(requirements.HEAD_SIZES) == CPUAttentionBackend.get_supported_head_sizes()


def test_a_head_size_that_vllm_has_no_kernel_for_is_refused_before_it_starts() -> None:
    model = policy(0, num_attention_heads=4, num_key_value_heads=4)
    with pytest.raises(ConfigError, match=r"got 16. For the tiny policy set model.tiny.heads=2"):
        VllmEngine(model.config, rollout(), stop=[0])
