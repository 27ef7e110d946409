"""What a sampler could draw from travels with its tokens, and the learner's log-probs are of the same distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.train.batches import batch, policy
from tests.train.engines.models import VOCABULARY, finished, model_of
from trimtab.config.correction import Correction
from trimtab.config.training import Train
from trimtab.errors import ConfigError
from trimtab.records.rollouts import Rollouts
from trimtab.records.schema import RolloutRow, rows_from
from trimtab.train.buffer import Buffer
from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.engines.hf.sampling import cut_log_probs, draw
from trimtab.train.engines.jobs import sample_of
from trimtab.train.engines.vllm import request
from trimtab.train.engines.vllm.requirements import check_run
from trimtab.train.engines.vllm.server import _listed
from trimtab.train.learner.learner import Learner
from trimtab.train.learner.rows import RowHeads, Rows, batch_rows
from trimtab.train.learner.scoring import Scorer
from trimtab.train.messages import Answer, Group, HeadKind, Job, Problem, Sample, SampledHead, Sampling, Score
from trimtab.train.policy.model import Pretrained
from trimtab.train.run_state import ArrayReader, KeptSample, head_flaw, pack_buffer, pack_samples, unpack_buffer

CUT = Sampling(temperature=0.8, top_k=9, top_p=0.8)


@given(st.integers(0, 10_000), st.sampled_from([CUT, Sampling(top_p=0.5), Sampling(top_k=3), Sampling(0.5, 2, 0.9)]))
def test_a_mask_holds_the_ids_of_the_cut_distribution_with_its_log_probs(seed: int, sampling: Sampling) -> None:
    logits = torch.randn(4, 30, generator=torch.Generator().manual_seed(seed)) * 3
    uniforms = torch.rand(4, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    drawn = draw(logits, uniforms, sampling, "mask")
    cut = cut_log_probs(logits.log_softmax(-1), sampling)
    whole = (logits / sampling.temperature).softmax(-1)
    for row, head in enumerate(drawn.heads):
        assert head is not None
        assert head.ids.tolist() == (cut[row] > -torch.inf).nonzero().squeeze(1).tolist()
        assert np.exp(head.log_probs).sum() == pytest.approx(1, abs=1e-5)
        assert np.exp(head.log_mass) == pytest.approx(float(whole[row, head.ids].sum()), rel=1e-4)
        place = head.ids.tolist().index(int(drawn.tokens[row]))
        assert head.log_probs[place] == drawn.behavior[row].numpy()


def test_the_likeliest_ids_come_first_and_a_distribution_that_is_not_cut_has_no_mask() -> None:
    logits = torch.log(torch.tensor([[0.1, 0.6, 0.3]]))
    half = torch.full((1,), 0.5, dtype=torch.float64)
    (head,) = draw(logits, half, Sampling(), "top-k", 2).heads
    assert head is not None
    assert head.ids.tolist() == [1, 2]
    np.testing.assert_allclose(np.exp(head.log_probs), [0.6, 0.3], rtol=1e-6)
    for sampling in (Sampling(), Sampling(0.5), Sampling(top_k=3), Sampling(top_p=1.0)):
        assert draw(logits, half, sampling, "mask").heads == ()


def _jobs(sampling: Sequence[Sampling], head: HeadKind) -> list[Job]:
    prompts = [np.arange(1, 4 + number, dtype=np.int32) for number in range(len(sampling))]
    return [
        Job(number, prompt, 5, number, 4 + number, each, head=head, head_size=6)
        for number, (prompt, each) in enumerate(zip(prompts, sampling, strict=True))
    ]


def test_the_learner_gives_sampled_tokens_the_probability_they_were_drawn_with() -> None:
    """Ratio 1 with the mask; without it the ratio is what the cut kept."""
    model = model_of("qwen2")
    engine = HfEngine(model, stop=(3,), slots=4)
    kinds = [CUT, CUT, Sampling(0.8, top_k=4), Sampling(0.8)]
    found = finished(engine, _jobs(kinds, "mask"))
    samples = [sample for number in sorted(found) for sample in found[number].samples]
    assert [sample.head is None for sample in samples] == [False] * 15 + [True] * 5
    rows = _rows(found)
    scorer = Scorer.of(model, 0.8)
    for form in (scorer, Scorer(model, 0.8, scorer.plain_head), Scorer(model, 0.8, plain_head=False)):
        ratio = (form.all(rows, 10_000).log_probs - rows.behavior).exp()
        torch.testing.assert_close(ratio[rows.mask], torch.ones(int(rows.mask.sum())), rtol=0, atol=2e-4)
        bare = (form.all(replace(rows, heads=None), 10_000).log_probs - rows.behavior).exp()
        mass = np.concatenate([np.zeros(len(s.tokens)) if s.head is None else s.head.log_mass for s in samples])
        torch.testing.assert_close(bare[rows.mask], torch.from_numpy(np.exp(mass)).float(), rtol=2e-4, atol=2e-4)
        assert float(bare[rows.mask].min()) < 0.95


def _rows(found: dict[int, Group]) -> Rows:
    answers = [
        Answer(number, place, found[number].job.prompt, sample, Score(float(place % 2), place % 2 == 1))
        for number in sorted(found)
        for place, sample in enumerate(found[number].samples)
    ]
    return batch_rows(answers)


def test_rows_of_one_batch_carry_their_own_heads_into_every_micro_batch() -> None:
    model = model_of("qwen2")
    rows = _rows(finished(HfEngine(model, stop=(3,), slots=4), _jobs([CUT, CUT, CUT], "mask")))
    scorer = Scorer.of(model, 0.8)
    whole, small = (scorer.all(rows, most, entropy=True) for most in (10_000, 24))
    torch.testing.assert_close(whole.log_probs, small.log_probs, rtol=0, atol=1e-5)
    assert whole.entropy is not None
    assert float(whole.entropy.max()) <= np.log(9) + 1e-5  # nine ids at most


def test_likeliest_ids_are_not_what_the_softmax_runs_over() -> None:
    model = model_of("qwen2")
    found = finished(HfEngine(model, stop=(3,), slots=4), _jobs([Sampling(0.8)], "top-k"))
    heads = RowHeads.of(found[0].samples, replayed=False)
    assert heads is not None
    assert heads.support(torch.zeros(5, 4, dtype=torch.long)) is None
    counts = np.concatenate([sample.head.counts for sample in found[0].samples if sample.head])
    assert set(counts.tolist()) == {6}


def test_metrics_say_what_the_cut_left_and_how_often_replay_fell_back() -> None:
    tokens = np.array([4, 5], np.int32)
    head = SampledHead(
        np.array([2, 1], np.int32), np.array([4, 7, 8], np.int32), None, np.log(np.array([0.8, 0.6], np.float32))
    )
    zeros = np.zeros(2, np.float32)
    heads = RowHeads.of([Sample(tokens, zeros, None, np.zeros(2, np.int32), "stop", head)], replayed=True)
    assert heads is not None
    found = heads.metrics(torch.tensor([[4, 5]]), torch.ones(1, 2, dtype=torch.bool))
    # Sizes 2 and 1; token 5 is not 8; 0.8 and 0.6 were left.
    assert {name: round(float(value), 6) for name, value in found.items()} == {
        "head/size": 1.5,
        "head/outside_fraction": 0.5,
        "head/kept_mass": 0.7,
    }


def _samples() -> list[Sample]:
    found = finished(HfEngine(model_of("qwen2"), stop=(3,), slots=4), _jobs([CUT, Sampling()], "mask"))
    return [sample for number in sorted(found) for sample in found[number].samples]


def _heads(arrays: dict[str, Any], samples: Sequence[Sample]) -> list[SampledHead | None]:
    """Those that a checkpoint gives back."""
    reader = ArrayReader(arrays)
    return [reader.sample(KeptSample(length=len(each.tokens), finish=each.finish)).head for each in samples]


def test_a_checkpoint_gives_heads_back_as_they_were() -> None:
    samples = _samples()
    lengths = [len(sample.tokens) for sample in samples]
    arrays = pack_samples(samples)
    assert head_flaw(arrays, sum(lengths), VOCABULARY) is None
    for sample, back in zip(samples, _heads(arrays, samples), strict=True):
        assert (sample.head is None) == (back is None)
        if sample.head is not None and back is not None:
            for name in ("counts", "ids", "log_probs", "log_mass"):
                np.testing.assert_array_equal(getattr(sample.head, name), getattr(back, name))


def test_without_heads_a_checkpoint_is_as_it_was_before_there_were_any() -> None:
    plain = [replace(sample, head=None) for sample in _samples()]
    arrays = pack_samples(plain)
    assert set(arrays) == {"tokens", "behavior", "raw", "versions"}
    assert _heads(arrays, plain) == [None] * len(plain)
    assert head_flaw(arrays, 5, VOCABULARY) is None


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("head_counts", np.array([-1, 4], np.int32), "head_counts in arrays.safetensors is not one row of 2 counts"),
        ("head_counts", np.array([9, 9], np.int32), "head_ids in arrays.safetensors is not one row of 18"),
        ("head_ids", np.array([0, 1, VOCABULARY], np.int32), "head_ids in arrays.safetensors holds a number outside"),
        ("head_log_probs", np.zeros(2, np.float32), "head_log_probs in arrays.safetensors is not one row of 3"),
        ("head_log_mass", np.zeros(2, np.float64), "head_log_mass in arrays.safetensors is not one row of 2"),
    ],
)
def test_heads_that_do_not_fit_their_tokens_are_refused(name: str, value: object, told: str) -> None:
    arrays = {
        "head_counts": np.array([2, 1], np.int32),
        "head_log_mass": np.zeros(2, np.float32),
        "head_ids": np.array([0, 1, 2], np.int32),
        "head_log_probs": np.zeros(3, np.float32),
    }
    assert head_flaw(arrays, 2, VOCABULARY) is None
    flaw = str(head_flaw(arrays | {name: value}, 2, VOCABULARY))
    assert flaw.startswith(told)


def test_a_buffer_saves_and_restores_heads() -> None:
    job = _jobs([CUT], "mask")[0]
    group = finished(HfEngine(model_of("qwen2"), stop=(3,), slots=4), [job])[0]
    buffer = Buffer()
    buffer.admit(Problem("a", "b", "c"), job)
    buffer.start([job.group], 0)
    buffer.sample(group)
    buffer.finish(group, [Score(1.0, True) for _ in group.samples])
    values, arrays = pack_buffer(buffer)
    restored = unpack_buffer(values, arrays)
    again = pack_buffer(restored)[1]
    assert {name for name in arrays if name.startswith("head_")} == {
        "head_counts",
        "head_ids",
        "head_log_mass",
        "head_log_probs",
    }
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, again[name])


def test_a_rollout_file_holds_heads_and_rows_without_them(tmp_path: Path) -> None:
    ones = np.ones(2, np.float32)
    plain = {
        "step": 0,
        "version": 0,
        "group": 0,
        "problem": "",
        "prompt": "",
        "response": "",
        "prompt_tokens": np.array([1], np.int32),
        "tokens": np.array([1, 2], np.int32),
        "mask": ones.astype(bool),
        "versions": ones.astype(np.int32),
        "kept": ones.astype(bool),
        "weight": ones,
        "advantage": ones,
        "reward": 1.0,
        "correct": True,
        "finish": "stop",
        "staleness": 0,
    }
    head = {
        "head_counts": np.array([2, 1], np.int32),
        "head_ids": np.array([4, 7, 8], np.int32),
        "head_log_probs": np.zeros(3, np.float32),
        "head_log_mass": ones,
    }
    files = Rollouts(tmp_path / "rollouts")
    files.add([RolloutRow(sample=0, **plain), RolloutRow(sample=1, **plain, **head)])
    files.flush()
    without, with_head = rows_from(files.table())
    assert without.head_ids is None
    for name, value in head.items():
        np.testing.assert_array_equal(getattr(with_head, name), value)
    with pytest.raises(ValueError, match=r"head_ids with as many values as head_counts adds up to \(3\), got 2"):
        RolloutRow(sample=0, **plain, **head | {"head_ids": np.array([4, 7], np.int32)})


def test_vllm_lists_the_head_beside_each_token() -> None:
    job = Job(0, np.ones(1, np.int32), 1, 0, 4, Sampling(top_k=2, top_p=0.9), head="mask")
    assert request.asked_of(job, (), longest=9, samples=1)["logprobs"] == 2
    told = [{7: -0.2, 9: -1.7}, {4: 0.0, 5: -9999.0}]
    made = sample_of([9, 4], [-1.7, 0.0], [(0, 0, 2)], "length", job, lambda count: request.head_of(told[:count], job))
    assert made.head is not None
    assert made.head.counts.tolist() == [2, 1]
    assert made.head.ids.tolist() == [7, 9, 4]
    assert made.head.log_mass is None
    plain = replace(job, head="none")
    assert request.asked_of(plain, (), longest=9, samples=1)["logprobs"] == 0
    assert request.head_of(told[:1], plain) is None
    likeliest = replace(job, head="top-k", head_size=1, sampling=Sampling())
    assert request.asked_of(likeliest, (), longest=9, samples=1)["logprobs"] == 2
    head = request.head_of([{9: -1.7, 7: -0.2}], likeliest)
    assert head is not None
    assert head.ids.tolist() == [7]  # the token drawn comes first, and is not of the head


def test_a_server_lists_ids_by_number() -> None:
    content = {
        "token_id": 9,
        "logprob": -1.7,
        "top_logprobs": [{"token_id": 9, "logprob": -1.7}, {"token_id": 7, "logprob": -0.2}],
    }
    assert _listed(content) == {9: -1.7, 7: -0.2}
    assert _listed({"token_id": 9, "logprob": -1.7}) == {}


def test_settings_that_would_leave_ratios_biased_are_refused() -> None:
    with pytest.raises(ConfigError, match="top-k needs sampling from the whole vocabulary"):
        Train(rollout={"head": "top-k", "top_p": 0.9})
    rollout = Train(rollout={"engine": "vllm", "top_p": 0.9}).rollout
    with pytest.raises(ConfigError, match=r"needs rollout\.top_k beside top_p 0\.9"):
        check_run(policy().policy.architecture, rollout)


def test_a_step_on_cut_samples_has_ratios_about_policies() -> None:
    """The learner's own metrics: on-policy samples drawn with top_p have ratio 1 with replay, and what was kept without it."""
    made = policy()
    rows = batch(made)
    engine = HfEngine(made.model, stop=made.policy.stop, slots=8)
    prompts = [rows.ids[row, : int(rows.prompts[row])].numpy().astype(np.int32) for row in (0, 4, 8)]
    jobs = [Job(n, prompt, 4, n, 8, Sampling(top_p=0.6), head="mask") for n, prompt in enumerate(prompts)]
    found = finished(engine, jobs)
    replayed = _rows(found)
    means = {}
    for name, given_rows in (("replay", replayed), ("without", replace(replayed, heads=None))):
        learner = Learner(Train(correction="token-tis"), made.model)
        metrics = learner.learn(given_rows).metrics
        means[name] = metrics["ratio/mean"]
        made = policy()
    assert means["replay"] == pytest.approx(1, abs=1e-4)
    assert means["without"] < 0.8


def _sampled(made: Pretrained, sampling: Sampling, head: HeadKind, size: int = 128) -> Rows:
    rows = batch(made)
    prompts = [rows.ids[row, : int(rows.prompts[row])].numpy().astype(np.int32) for row in (0, 4, 8)]
    jobs = [Job(n, prompt, 4, n, 8, sampling, head=head, head_size=size) for n, prompt in enumerate(prompts)]
    found = _rows(finished(HfEngine(made.model, stop=made.policy.stop, slots=8), jobs))
    assert found.heads is not None
    return replace(found, heads=replace(found.heads, replayed=head == "mask"))


@pytest.mark.parametrize(("sampling", "head"), [(Sampling(), "top-k"), (Sampling(top_p=0.7), "mask")])
@pytest.mark.parametrize("policies", ["decoupled", "bypass"])
def test_a_learner_centers_scores_by_micro_batches_as_it_does_at_once(
    sampling: Sampling, head: HeadKind, policies: str
) -> None:
    """The weights after a step, whole or in small micro-batches, and that they are not those without centering."""
    after = {}
    for name, centering, most in (("whole", "score", 10_000), ("small", "score", 24), ("plain", None, 10_000)):
        made = policy()
        rows = _sampled(made, sampling, head, 5)
        assert rows.heads is not None
        told = [
            replace(each, log_probs=each.log_probs + np.sin(each.ids, dtype=np.float32) / 5) for each in rows.heads.rows
        ]
        moved = replace(rows, heads=replace(rows.heads, rows=tuple(told)))
        rule = Correction(policies=policies, weight={"level": "token", "upper": 1.05}, centering=centering)
        config = Train(
            correction=rule,
            loss="reinforce" if policies == "bypass" else "clip",
            rollout={"head": head, "top_p": sampling.top_p, "head_size": 5},
            learner={"micro_tokens": most, "lr": 1e-2, "minibatches": 1},
        )
        found = Learner(config, made.model).learn(moved)
        assert ("policy/centering" in found.metrics) == (centering is not None)
        after[name] = torch.cat([each.detach().flatten() for each in made.model.parameters()])
    torch.testing.assert_close(after["whole"], after["small"], rtol=0, atol=2e-5)
    assert float((after["whole"] - after["plain"]).abs().max()) > 1e-3  # a step is 1e-2 at most


def test_a_gate_over_the_head_keeps_what_the_policies_agree_on() -> None:
    made = policy()
    rows = _sampled(made, Sampling(), "top-k", 5)
    for upper, kept in ((0.0, 0.0), (1e-4, 1.0)):
        gate = {"metric": "head_tv", "level": "sequence", "agg": "max", "upper": upper}
        config = Train(correction={"gates": [gate]}, rollout={"head": "top-k"})
        found = Learner(config, policy().model).learn(rows)
        assert found.metrics["kept_fraction"] == pytest.approx(kept, abs=0.2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rollout": {"head": "none"}}, "got rollout.head none without a cut"),
        ({}, "got rollout.head mask without a cut"),
        ({"rollout": {"head": "top-k"}, "learner": {"proximal": "loglinear"}}, "needs learner.proximal recompute"),
        ({"rollout": {"head": "top-k"}, "loss": "gspo"}, "got gspo as it is set"),
    ],
)
def test_runs_that_could_not_center_are_refused(settings: dict[str, object], said: str) -> None:
    rule = {"weight": {"level": "token"}, "centering": "score"}
    with pytest.raises(ConfigError, match=said):
        Train.from_settings({"correction": rule} | settings)
