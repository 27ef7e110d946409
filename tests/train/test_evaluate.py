"""Evaluation as jobs: which results belong to it, and by which engine they are sampled."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.train.batches import policy
from trimtab.config.training import Rollout, Task, Tiny
from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.engines.table import Engine, EngineRecipe, ExactBeside
from trimtab.train.evaluate import Evaluation, Evaluator
from trimtab.train.messages import Group, Job, Sample, Sampling
from trimtab.train.policy.tiny import tiny_policy
from trimtab.train.tasks import Judge, source

TASK = Task(name="chain", options={"size": 3})


def evaluator(problems: int = 6, temperature: float = 1.0) -> Evaluator:
    own = source(TASK, 0)
    made = tiny_policy(Tiny(width=16, heads=2, mlp=24), str(own.characters), 64, 0)
    judge = Judge(TASK, own)
    return Evaluator.of(made.policy, judge, TASK, own.held_out(problems), max_tokens=3, seed=0, temperature=temperature)


def result(job: Job, versions: list[int]) -> Group:
    floats = np.zeros(len(versions), np.float32)
    tokens = np.full(len(versions), 3, np.int32)
    return Group(job, (Sample(tokens, floats, floats, np.array(versions, np.int32), "stop"),))


def finished(engine: Engine, jobs: list[Job]) -> list[Group]:
    engine.submit(jobs)
    groups: list[Group] = []
    while engine.pending:
        groups += engine.step()
    return sorted(groups, key=lambda group: -group.job.group)


def test_held_out_jobs_are_exact_and_no_group_of_the_run() -> None:
    jobs = evaluator(temperature=0.5).jobs
    assert [job.group for job in jobs] == [-1, -2, -3, -4, -5, -6]
    assert all(job.exact and job.sampling == Sampling(0.5) for job in jobs)
    assert len({job.seed for job in jobs}) == 6


def test_only_results_of_the_version_evaluated_count_and_each_once() -> None:
    jobs = list(evaluator().jobs)
    evaluation = Evaluation(4, {job.group: job for job in jobs})
    evaluation.take(result(jobs[0], [3, 3]))  # of the evaluation before, from a sampler that was taken for dead
    evaluation.take(result(jobs[0], [3, 4]))
    assert len(evaluation.missing) == 6
    for job in (jobs[0], jobs[0], *jobs[1:]):
        evaluation.take(result(job, [4, 4]))
    assert evaluation.is_done
    assert len(evaluation.groups) == 6


def test_jobs_of_a_dead_sampler_are_given_again_unless_they_came_back() -> None:
    jobs = list(evaluator().jobs)
    evaluation = Evaluation(0, {job.group: job for job in jobs})
    evaluation.take(result(jobs[1], [0]))
    assert evaluation.lost([-1, -2, 7]) == [jobs[0]]


def test_the_order_in_which_results_come_does_not_matter() -> None:
    made = evaluator()
    right = source(TASK, 0).held_out(6)
    groups = []
    for job, problem in zip(made.jobs, right, strict=True):
        answer = problem.answer if job.group in (-2, -5) else "x"
        tokens = np.asarray(made.policy.tokenizer(answer).input_ids, np.int32)
        floats = np.zeros(len(tokens), np.float32)
        groups.append(Group(job, (Sample(tokens, floats, floats, np.zeros(len(tokens), np.int32), "length"),)))
    assert made.accuracy(groups) == made.accuracy(groups[::-1]) == pytest.approx(2 / 6)


@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_evaluation_is_sampled_in_the_learners_precision_whatever_rollouts_have(precision: str) -> None:
    made = tiny_policy(Tiny(width=16, heads=2, mlp=24), str(source(TASK, 0).characters), 64, 0)
    rollout = Rollout(precision=precision, slots=8)
    recipe = EngineRecipe.of(made.policy, "fp32", rollout, evaluates=True)
    engine = replace(recipe, policy=None)()
    assert isinstance(engine, ExactBeside) == (precision != "fp32")
    assert isinstance(engine, Engine)
    engine.load(dict(made.model.state_dict()), 3)
    alone = HfEngine(copy.deepcopy(made.model), stop=made.policy.stop, slots=8, version=3)
    jobs = list(evaluator().jobs)
    ours, theirs = finished(engine, jobs), finished(alone, jobs)
    rough = finished(engine, [replace(job, exact=False) for job in jobs])
    for one, other in zip(ours, theirs, strict=True):
        assert one.samples[0].tokens.tobytes() == other.samples[0].tokens.tobytes()
        assert one.samples[0].raw.tobytes() == other.samples[0].raw.tobytes()
        assert set(one.samples[0].versions.tolist()) == {3}
    same = [
        one.samples[0].raw.tobytes() == other.samples[0].raw.tobytes() for one, other in zip(rough, ours, strict=True)
    ]
    assert all(same) if precision == "fp32" else not any(same)


def test_responses_are_decoded_where_they_are_sampled_unless_the_tokenizer_came_with_its_own_code() -> None:
    made = tiny_policy(Tiny(width=16, heads=2, mlp=24), str(source(TASK, 0).characters), 64, 0)
    recipe = EngineRecipe.of(made.policy, "fp32", Rollout(slots=8), evaluates=True)
    recipe = pickle.loads(pickle.dumps(recipe))  # as it gets to a sampler
    ours, plain = recipe(), replace(recipe, policy=None)()
    jobs = list(evaluator().jobs)
    for engine in (ours, plain):
        assert isinstance(engine, Engine)
        engine.load(dict(made.model.state_dict()), 0)
    decoded, bare = finished(ours, jobs), finished(plain, jobs)
    assert [group.texts for group in bare] == [()] * 6
    assert [group.texts for group in decoded] == [made.policy.texts_of(group) for group in bare]
    assert len({group.texts for group in decoded}) > 1
    assert evaluator().accuracy(decoded) == evaluator().accuracy(bare)

    class Foreign(type(made.policy.tokenizer)):
        """As transformers loads one with `trust_remote_code`."""

    foreign = replace(made.policy, tokenizer=Foreign(tokenizer_object=made.policy.tokenizer.backend_tokenizer))
    assert made.policy.travels
    assert EngineRecipe.of(foreign, "fp32", Rollout(slots=8)).policy is None


def test_jobs_of_different_sampling_side_by_side_are_each_sampled_as_alone() -> None:
    made = policy()
    prompt = np.array([4, 5, 6], np.int32)
    kinds = [Sampling(), Sampling(0.0), Sampling(0.5, top_k=3), Sampling(1.3, top_p=0.7)]
    jobs = [Job(number, prompt, 3, seed=number, max_tokens=6, sampling=kinds[number % 4]) for number in range(8)]
    together = finished(HfEngine(made.model, stop=made.policy.stop, slots=10), jobs)
    for group in together:
        (alone,) = finished(HfEngine(made.model, stop=made.policy.stop, slots=10), [group.job])
        for one, other in zip(group.samples, alone.samples, strict=True):
            assert one.tokens.tolist() == other.tokens.tolist()
            torch.testing.assert_close(
                torch.from_numpy(one.behavior), torch.from_numpy(other.behavior), rtol=0, atol=1e-5
            )
