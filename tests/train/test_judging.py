"""Judging beside the learner: the same scores, in whichever order, and nobody waits for a verifier that takes its time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.train.simulated import group_of, job_of
from tests.train.small_runs import lines, small, weights
from tests.waiting import until
from trimtab.config.training import Reward, Task
from trimtab.errors import RunError
from trimtab.records.run import RunDirectory
from trimtab.train.buffer import Buffer, State
from trimtab.train.display import Silent
from trimtab.train.judging import JudgePool
from trimtab.train.loop import train
from trimtab.train.messages import Problem, Score
from trimtab.train.run_state import pack_buffer, unpack_buffer
from trimtab.train.tasks import GivenUpError, Judge, source

MINE = """
import time
from pathlib import Path

def length(response):
    time.sleep(0.002 * (len(response) % 3))  # ready in another order than asked
    return {{"reward": len(response) / 10, "correct": len(response) == 2}}

def meets(response):
    Path({folder!r}, "at " + response).touch()
    while len(list(Path({folder!r}).glob("at *"))) < 2:
        time.sleep(0.01)
    return 1.0

def hangs(response):
    Path({folder!r}, "hung").touch()
    time.sleep(3600)

def waits(prompt, response):
    if prompt == Path({folder!r}, "first").read_text():
        while not Path({folder!r}, "stepped").exists():
            time.sleep(0.01)
    return float(response.count("1"))
"""
PROBLEM = Problem("p", "question", "42")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Task]:
    (tmp_path / "mine_judged.py").write_text(MINE.format(folder=str(tmp_path)))
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name, workers=1, timeout=300.0: Task(
        rewards=(Reward(function=f"mine_judged:{name}"),), workers=workers, timeout=timeout
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_a_pool_gives_the_scores_of_a_judge(mine: Callable[..., Task], workers: int) -> None:
    task = mine("length", workers)
    texts = ["x" * number for number in range(14)]
    answers = [(PROBLEM, text) for text in texts]
    with Judge(task, source(task, 0)) as judge, JudgePool.of(task, source(task, 0)) as pool:
        assert pool.scores(answers) == judge.scores(answers)
        assert pool.scores([]) == []
        groups = [group_of(job_of(number), [0]) for number in range(7)]
        for number, group in enumerate(groups):
            pool.submit(group, PROBLEM, texts[2 * number : 2 * number + 2])
        assert pool.pending == 7
        found = {judged.group.job.group: judged for judged in pool.all_finished()}
        assert pool.pending == 0
        for number, group in enumerate(groups):
            own = texts[2 * number : 2 * number + 2]
            assert found[number].group is group
            assert found[number].texts == tuple(own)
            assert found[number].scores == judge.scores([(PROBLEM, text) for text in own])


def test_a_verifier_that_needs_no_process_is_called_at_once() -> None:
    task = Task(rewards=(Reward(verifier="exact"),), workers=4)
    with JudgePool.of(task, source(task, 0)) as pool:
        pool.submit(group_of(job_of(0), [0]), PROBLEM, ["42", "41"])
        (judged,) = pool.finished()
        assert [score.reward for score in judged.scores or []] == [1.0, 0.0]


def test_as_many_are_scored_at_once_as_there_are_workers(mine: Callable[..., Task]) -> None:
    """Each waits until the other was begun; one worker alone waits in vain, which is the control."""
    task = mine("meets", 2)
    with JudgePool.of(task, source(task, 0)) as pool:
        for number in range(2):
            pool.submit(group_of(job_of(number, 1), [0]), PROBLEM, [str(number)])
        assert all(judged.scores == [Score(1.0, True, {"meets": 1.0})] for judged in pool.all_finished())


def test_one_worker_scores_one_at_a_time(mine: Callable[..., Task]) -> None:
    task = mine("meets", 1, timeout=1.0)
    with JudgePool.of(task, source(task, 0)) as pool:
        pool.submit(group_of(job_of(0, 1), [0]), PROBLEM, ["0"])
        (judged,) = pool.all_finished()
        assert [score.failed for score in judged.scores or []] == ["timeout after 1 s (meets)"]


def test_a_pool_closes_beside_a_verifier_that_hangs_and_gives_up_when_asked(
    mine: Callable[..., Task], tmp_path: Path
) -> None:
    task = mine("hangs", 1, timeout=3600.0)
    with JudgePool.of(task, source(task, 0)) as pool:
        pool.submit(group_of(job_of(0), [0]), PROBLEM, ["a", "b"])
        until((tmp_path / "hung").exists, "the verifier")
        assert pool.finished() == []
    with JudgePool.of(task, source(task, 0), lambda: True) as pool:
        pool.submit(group_of(job_of(0), [0]), PROBLEM, ["a", "b"])
        (judged,) = pool.all_finished()
        assert judged.scores is None
        with pytest.raises(GivenUpError):
            pool.scores([(PROBLEM, "a")])


def test_a_sampled_group_is_scored_once_and_saved_as_waiting() -> None:
    buffer, result = Buffer(), group_of(job_of(0), [3])
    for number in range(2):
        buffer.admit(PROBLEM, job_of(number))
    buffer.start([0, 1])
    assert buffer.sample(result)
    assert not buffer.sample(result)
    assert not buffer.sample(group_of(job_of(9), [0]))
    assert buffer.ignored == 2
    buffer.lost([0, 1])  # its sampler may die: what it gave is here
    assert buffer.counts == {"waiting": 1, "running": 0, "sampled": 1, "ready": 0, "trained": 0, "dropped": 0}
    assert buffer.take(1, 3, 0) is None
    again = unpack_buffer(*pack_buffer(buffer))
    assert [job.group for job in again.waiting()] == [0, 1]
    assert buffer.finish(result, [Score(1.0, True)] * 2)
    assert [entry.job.group for entry in buffer.take(1, 3, 0) or []] == [0]
    assert buffer.entry(1) is not None
    buffer.start([1])
    buffer.lost([1])
    assert buffer.sample(group_of(job_of(1), [3]))  # of a sampler that was taken for dead
    entry = buffer.entry(1)
    assert entry is not None
    assert entry.state is State.SAMPLED
    with pytest.raises(RunError, match="needs to be waiting"):
        buffer.start([1])


def test_in_lockstep_a_batch_does_not_depend_on_which_verifier_is_quicker(
    mine: Callable[..., Task], tmp_path: Path
) -> None:
    for name, workers in (("one", 1), ("three", 3)):
        rewards = {"rewards": [{"function": "mine_judged:length"}], "workers": workers}
        train(small(task=rewards, evaluate={"every": 3}), tmp_path / name)
    assert torch.equal(weights(tmp_path / "one"), weights(tmp_path / "three"))
    assert repr(lines(tmp_path / "one")) == repr(lines(tmp_path / "three"))
    assert sum(line["train/updates"] for line in lines(tmp_path / "one")) > 2


class Stepped(Silent):
    """Leaves a file once a step is done."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def step(self, step: int, metrics: dict[str, float]) -> None:
        self.file.touch()


def test_the_learner_steps_while_a_verifier_takes_its_time(mine: Callable[..., Task], tmp_path: Path) -> None:
    """The verifier of the first group waits for the first step, which it is not part of."""
    rewards = {"rewards": [{"function": "mine_judged:waits"}], "workers": 2, "timeout": 300.0}
    config = small(backend="local", steps=3, task=rewards, evaluate=None)
    (tmp_path / "first").write_text(source(config.task, config.seed).problem(0).prompt)
    train(config, tmp_path / "run", display=Stepped(tmp_path / "stepped"))
    table = RunDirectory.read(tmp_path / "run").rollout_table(columns=["step", "group", "failed"]).to_pydict()
    assert not any(table["failed"])
    steps = dict(zip(table["group"], table["step"], strict=True))
    assert steps.get(0, 1) > 0
    assert set(range(1, 5)) <= {group for group, step in steps.items() if step == 0}
