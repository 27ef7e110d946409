"""Responses in turns: what the environment writes between two of them is read by the policy, and never trained or counted."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.train.batches import policy
from tests.train.engines.models import finished, full, jobs_of, model_of, of_tokens, tensor
from tests.train.small_runs import lines, saved_model, small, weights
from trimtab.config.training import Task, Train
from trimtab.errors import ConfigError, InputError
from trimtab.records.run import RunDirectory
from trimtab.report import report_html
from trimtab.report.run import read_run
from trimtab.train.display import Silent
from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.evaluate import Evaluation
from trimtab.train.learner.learner import Learner
from trimtab.train.learner.rows import batch_rows
from trimtab.train.loop import train
from trimtab.train.messages import NOBODY, Answer, Group, Job, Problem, Sample, Score
from trimtab.train.policy.warm_start import _demonstrations
from trimtab.train.tasks import check_replies, source

STOP = 1
REPLIES = (np.array([5, 6, 7], np.int32), np.array([8], np.int32))
LEDGER: dict[str, Any] = {
    "task": {"name": "ledger", "options": {"size": 1, "turns": 3}, "rewards": [{"verifier": "numeric"}]},
    # no warm start: a random policy seldom stops, so that turns need room
    "rollout": {"groups": 4, "samples": 4, "slots": 16, "max_tokens": 48},
    "entropy_bonus": 0.1,  # its answers are all wrong, and without a gradient two runs would be equal for nothing
}


def conversing(
    sizes: tuple[int, ...] = (4, 2, 6), replies: tuple[np.ndarray, ...] = REPLIES, **asked: Any
) -> list[Job]:
    """Jobs whose environment replies; a small vocabulary and a stop token that comes often."""
    return [replace(job, replies=replies) for job in jobs_of(sizes, max_tokens=60, **asked)]


def sampled(family: str = "qwen2", slots: int = 8, **asked: Any) -> tuple[Any, dict[int, Group]]:
    model = model_of(family)
    return model, finished(HfEngine(model, stop=[STOP, 2, 3, 4], slots=slots), conversing(**asked))


def spoken(sample: Sample) -> list[list[int]]:
    """What the environment wrote, reply by reply."""
    tokens = np.split(sample.tokens, np.flatnonzero(np.diff(sample.own)) + 1)
    flags = np.split(sample.own, np.flatnonzero(np.diff(sample.own)) + 1)
    return [part.tolist() for part, own in zip(tokens, flags, strict=True) if len(own) and not own[0]]


# ---- the engine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
@pytest.mark.parametrize("slots", [1, 3, 16])
def test_each_turn_but_the_last_is_followed_by_its_reply(family: str, slots: int) -> None:
    _, groups = sampled(family, slots)
    samples = [sample for group in groups.values() for sample in group.samples]
    whole = [sample for sample in samples if sample.finish == "stop"]
    assert whole
    for sample in samples:
        assert len(sample.tokens) <= 60
        said = spoken(sample)
        assert said == [reply.tolist() for reply in REPLIES][: len(said)] or sample.finish == "length"
    for sample in whole:
        assert spoken(sample) == [[5, 6, 7], [8]]
        turns = sample.turns
        assert len(turns) == 3
        for turn in turns:  # a stop token ends a turn, and stands nowhere else in it
            assert turn[-1] in (STOP, 2, 3, 4)
            assert not np.isin(turn[:-1], (STOP, 2, 3, 4)).any()


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
def test_log_probs_of_drawn_tokens_are_those_of_a_full_forward_and_written_ones_have_none(family: str) -> None:
    """The policy has read the replies, and each stood at its own position."""
    model, groups = sampled(family, slots=4)
    for group in groups.values():
        for sample in group.samples:
            own = torch.from_numpy(sample.own)
            known = of_tokens(full(model, group.job, sample).log_softmax(-1), sample)
            torch.testing.assert_close(tensor(sample.raw)[own], known[own], rtol=0, atol=2e-4)
            assert tensor(sample.raw)[~own].isnan().all()
            assert tensor(sample.behavior)[~own].isnan().all()
            assert set(sample.versions[~sample.own].tolist()) <= {NOBODY}


def test_slots_and_neighbours_do_not_change_a_response_in_turns() -> None:
    found = [sampled(slots=slots)[1] for slots in (1, 3, 16)]
    for number, group in found[0].items():
        for other in found[1:]:
            for one, two in zip(group.samples, other[number].samples, strict=True):
                assert one.tokens.tolist() == two.tokens.tolist()
                assert one.versions.tolist() == two.versions.tolist()


def test_a_job_without_replies_beside_one_with_is_sampled_as_ever() -> None:
    plain = jobs_of((3, 5), first=50, max_tokens=30)
    model = model_of("qwen2")
    alone = finished(HfEngine(model, stop=[STOP, 2], slots=4), plain)
    beside = finished(HfEngine(model, stop=[STOP, 2], slots=4), [*conversing(), *plain])
    for job in plain:
        for one, two in zip(alone[job.group].samples, beside[job.group].samples, strict=True):
            assert one.tokens.tolist() == two.tokens.tolist()
            assert two.own.all()


def test_the_limit_counts_replies_and_a_turn_without_end_is_cut() -> None:
    model = model_of("qwen2")
    engine = HfEngine(model, stop=range(1, 20), slots=4)  # almost every token ends a turn
    jobs = [replace(job, max_tokens=3) for job in conversing()]
    samples = [sample for group in finished(engine, jobs).values() for sample in group.samples]
    cut = [sample for sample in samples if len(sample.turns[0]) == 1]  # stop, 5, 6 and no room for the 7
    assert cut
    for sample in cut:
        assert (sample.finish, sample.tokens[1:].tolist(), sample.own.tolist()) == (
            "length",
            [5, 6],
            [True, False, False],
        )


def test_a_stop_token_in_a_reply_ends_nothing() -> None:
    model = model_of("qwen2")
    replies = (np.array([STOP, STOP], np.int32),)
    groups = finished(HfEngine(model, stop=[STOP, 2, 3, 4], slots=8), conversing(replies=replies))
    whole = [each for group in groups.values() for each in group.samples if each.finish == "stop"]
    assert whole
    assert all(spoken(each) == [[STOP, STOP]] and len(each.turns) == 2 for each in whole)


def test_heads_are_recorded_of_drawn_tokens_only() -> None:
    model = model_of("qwen2")
    jobs = [replace(job, head="top-k", head_size=5) for job in conversing()]
    for group in finished(HfEngine(model, stop=[STOP, 2, 3, 4], slots=8), jobs).values():
        for sample in group.samples:
            assert sample.head is not None
            assert sample.head.counts.tolist() == np.where(sample.own, 5, 0).tolist()


@pytest.mark.parametrize("in_flight", ["keep_cache", "recompute", "finish"])
def test_new_weights_in_the_middle_of_a_reply_leave_it_as_it_is(in_flight: Any) -> None:
    model, other = model_of("qwen2"), model_of("qwen2", seed=1)
    engine = HfEngine(model, stop=[STOP, 2, 3, 4], slots=16, in_flight=in_flight)
    engine.submit(conversing(samples=5))
    groups: list[Group] = []
    for step in range(200):
        groups += engine.step()
        if step in (3, 6, 9):
            engine.load(other.state_dict() if step % 2 else model.state_dict(), step)
    assert not engine.pending
    samples = [sample for group in groups for sample in group.samples]
    versions = {int(version) for each in samples for version in each.versions[each.own]}
    assert versions == ({0} if in_flight == "finish" else {0, 3, 6, 9})
    for sample in samples:
        said = spoken(sample)
        assert said == [reply.tolist() for reply in REPLIES][: len(said)] or sample.finish == "length"


def test_a_reply_that_no_policy_can_read_is_refused() -> None:
    engine = HfEngine(model_of("qwen2"), stop=[STOP])
    with pytest.raises(InputError, match="needs replies of at least one token each, got an empty one"):
        engine.submit(conversing(replies=(np.zeros(0, np.int32),)))
    with pytest.raises(InputError, match="needs token ids from 0 to"):
        engine.submit(conversing(replies=(np.array([10**6], np.int32),)))


# ---- what is made of a response -------------------------------------------------------------------------------------


def response(*parts: tuple[list[int], int], finish: Any = "stop") -> Sample:
    """Tokens and the version that drew them, part by part."""
    tokens = np.array([token for some, _ in parts for token in some], np.int32)
    versions = np.array([version for some, version in parts for _ in some], np.int32)
    floats = np.where(versions < 0, np.nan, -0.5).astype(np.float32)
    return Sample(tokens, floats, floats, versions, finish)


def test_turns_texts_and_ages_are_those_of_the_policy() -> None:
    made = policy().policy
    one, two, equals, stop = (
        made.tokenizer.convert_tokens_to_ids(each) for each in ("1", "2", "=", made.tokenizer.eos_token)
    )
    sample = response(([one, two, stop], 4), ([two, equals], NOBODY), ([stop], 3), ([equals], NOBODY), ([two], 5))
    job = Job(0, np.array([3], np.int32), 3, 0, 20)
    group = Group(job, (sample, response(([one, stop], 9)), response()))
    assert [turn.tolist() for turn in sample.turns] == [[one, two, stop], [stop], [two]]
    assert made.texts_of(group) == ("12\n\n2", "1", "")
    assert (sample.oldest, group.oldest, group.samples[2].oldest) == (3, 3, None)
    again: Group = pickle.loads(pickle.dumps(group))
    assert made.texts_of(again) == made.texts_of(group)
    assert again.samples[0].own.tolist() == sample.own.tolist()
    cut = response(([one, stop], 0), ([two], NOBODY), finish="length")
    assert made.texts_of(Group(job, (cut,))) == ("1",)
    only_own = Evaluation(5, {0: job})
    only_own.take(Group(job, (response(([one], 5), ([two], NOBODY), ([one], 5)),)))
    assert only_own.is_done


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6))
def test_turns_are_the_runs_of_own_tokens(parts: list[tuple[int, int]]) -> None:
    sample = response(*[pair for own, other in parts for pair in (([7] * own, 0), ([8] * other, NOBODY))])
    runs = "".join("7" if own else " " for own in sample.own).split()
    assert [len(turn) for turn in sample.turns] == [len(run) for run in runs] or not len(sample.tokens)
    assert all((turn == 7).all() for turn in sample.turns)


def answers(fill: int = 8, written: float = float("nan")) -> list[Answer]:
    """Two groups of two responses in two turns; what the environment wrote is `fill`."""
    rng = np.random.default_rng(0)
    found = []
    for row in range(4):
        sample = response(
            (rng.integers(3, 14, 3 + row).tolist(), 0), ([fill, fill], NOBODY), (rng.integers(3, 14, 2).tolist(), 0)
        )
        sample = replace(sample, behavior=np.where(sample.own, sample.behavior, written).astype(np.float32))
        found.append(
            Answer(row // 2, row % 2, np.array([3, 4], np.int32), sample, Score(float(row % 2), bool(row % 2)))
        )
    return found


def test_the_learner_trains_and_counts_own_tokens_only() -> None:
    rows = batch_rows(answers())
    assert rows.mask.sum(-1).tolist() == rows.drawn.tolist() == [5, 6, 7, 8]
    assert rows.lengths.tolist() == [7, 8, 9, 10]
    assert (rows.age(2)[~rows.mask] == -1).all()
    config = Train(correction="token-tis")
    stepped = Learner(config, policy().model).step(answers())
    # (5 + 6 + 7 + 8) / 4 tokens that the policy drew
    assert stepped.metrics["rollout/length"] == 6.5
    assert stepped.metrics["missing_fraction"] == 0
    assert stepped.metrics["staleness/coverage"] == 1
    assert not stepped.kept[~stepped.mask].any()


@pytest.mark.parametrize("proximal", ["recompute", "loglinear"])
def test_log_probs_of_written_tokens_reach_nothing(proximal: str) -> None:
    config = Train(correction="token-tis", learner={"proximal": proximal})
    made = [Learner(config, policy().model) for _ in range(2)]
    steps = [each.step(answers(written=value)) for each, value in zip(made, (float("nan"), -40.0), strict=True)]
    clocks = ("time", "throughput")
    plain = [{name: value for name, value in each.metrics.items() if not name.startswith(clocks)} for each in steps]
    assert repr(plain[0]) == repr(plain[1])
    states = [each.model.state_dict() for each in made]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    untouched = policy().model.state_dict()
    assert any(not torch.equal(states[0][name], untouched[name]) for name in untouched)


def test_a_segment_gate_drops_a_bad_turn_and_a_sequence_gate_the_whole_response() -> None:
    def kept(level: str) -> list[list[bool]]:
        gate = {"metric": "k3", "level": level, "agg": "mean", "upper": 0.1, "action": "reject"}
        learner = Learner(Train(correction={"gates": [gate], "weight": {"level": "one"}}), policy().model)
        given_answers = answers()
        # behavior as the learner has it, but for the second turn of row 0: there each token is off by 2 (k3 = e² − 3 = 4.4)
        rows = batch_rows(given_answers)
        own = learner.scorer.all(rows, 10_000).log_probs.numpy()
        for row, each in enumerate(given_answers):
            behavior = np.where(each.sample.own, own[row, : len(each.sample.tokens)], np.nan).astype(np.float32)
            behavior[-2:] -= 2.0 if row == 0 else 0.0
            given_answers[row] = replace(each, sample=replace(each.sample, behavior=behavior))
        return learner.step(given_answers).kept[:2, :8].tolist()

    yes, no = True, False
    assert kept("segment") == [[yes] * 3 + [no] * 5, [yes] * 4 + [no] * 2 + [yes] * 2]
    assert kept("sequence") == [[no] * 8, [yes] * 4 + [no] * 2 + [yes] * 2]


# ---- the task and the run -------------------------------------------------------------------------------------------


def test_a_demonstration_in_turns_teaches_own_tokens_only() -> None:
    task = Task(name="ledger", options={"size": 2, "turns": 2})
    made, problems = policy().policy, source(task, 0)
    ids, targets = _demonstrations(made, task, problems, range(3), 0.0, random.Random(0))
    stop = made.tokenizer.eos_token
    for row in range(3):
        problem = problems.problem(row)
        first, second = problem.answer.split("\n")
        said = f"{problem.prompt}{first}{stop}{problem.replies[0]}{second}{stop}"
        assert made.tokenizer.decode(ids[row]) == said
        # 3 of the prompt, 4 own, 3 of the reply, 4 own; a position predicts the token after it
        assert (targets[row] >= 0).tolist() == [False, False, *[True] * 4, *[False] * 3, *[True] * 4]
        assert torch.equal(targets[row][targets[row] >= 0], ids[row][1:][targets[row] >= 0])


@pytest.mark.parametrize("engine", ["vllm", "vllm-server"])
def test_engines_without_turns_refuse_such_a_task_before_anything_starts(engine: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        train(
            small(task={"name": "ledger", "options": {}}, rollout={"engine": engine}, backend="local"), tmp_path / "run"
        )
    assert str(refused.value) == (
        f"A task whose environment replies needs rollout.engine hf, got {engine}. Set it, or take a task of one turn."
    )
    assert not (tmp_path / "run/run.json").exists()


@pytest.mark.parametrize("engine", ["hf", "vllm", "vllm-server"])
def test_one_row_of_a_file_with_replies_is_enough_for_an_engine_without_turns(engine: str, tmp_path: Path) -> None:
    rows = [{"prompt": f"{number}=", "answer": "1"} for number in range(30)]
    for place in (3, 29):  # among those trained on, and among those held out
        said = [{**row, "replies": ["8="]} if number == place else row for number, row in enumerate(rows)]
        problems = source(Task(name="file", path=_written(tmp_path, said), prompt="prompt"), 0)
        if engine == "hf":
            check_replies(engine, problems)
            continue
        with pytest.raises(ConfigError, match=f"needs rollout.engine hf, got {engine}"):
            check_replies(engine, problems)
    check_replies(engine, source(Task(name="file", path=_written(tmp_path, rows), prompt="prompt"), 0))


def _written(folder: Path, rows: list[dict[str, Any]]) -> str:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "rows.jsonl")


def test_a_run_on_a_file_appends_the_replies_of_each_row(tmp_path: Path) -> None:
    saved_model(tmp_path / "model", "model.norm.weight", 1.0)
    replies = ["88=", "9="]
    rows = [{"q": f"{n % 7}=", "a": "1", "replies": replies if n % 2 else None} for n in range(19)] + [
        {"q": "9=", "a": "1"}
    ]
    task = {"name": "file", "path": _written(tmp_path, rows), "prompt": "q", "answer": "a", "options": {}}
    settings = small(
        steps=2, model={"path": str(tmp_path / "model")}, task=task, rollout={"max_tokens": 60}, evaluate=None
    )
    train(settings, tmp_path / "run")
    table = RunDirectory.read(tmp_path / "run").rollout_table().to_pydict()
    eight, nine, equals = 11, 12, 13  # as the tokenizer of the saved model numbers them
    whole = [eight, eight, equals, nine, equals]
    ended = {True: 0, False: 0}
    for row, finish in enumerate(table["finish"]):
        said = [each for each, own in zip(table["tokens"][row], table["mask"][row], strict=True) if not own]
        replied = rows[int(table["problem"][row].rpartition(":")[2]) - 1].get("replies") is not None
        assert said == (whole[: len(said)] if replied else [])
        if finish == "stop":
            ended[replied] += 1
            assert said == (whole if replied else [])
            assert table["response"][row].count("\n") == (len(replies) if replied else 0)
    assert min(ended.values()) > 3


def test_replies_and_a_chat_template_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Problem 'p' needs task.chat=false, got replies between turns"):
        policy().policy.replies(Task(chat=True), Problem("p", "1", "2", replies=("3",)))
    with pytest.raises(ConfigError, match="Problem 'p' needs replies with tokens, got an empty one"):
        policy().policy.replies(Task(), Problem("p", "1", "2", replies=("3", "")))
    assert policy().policy.replies(Task(chat=True), Problem("p", "1", "2")) == ()


class _StopAt(Silent):
    def step(self, step: int, metrics: dict[str, float]) -> None:
        if step == 4:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_in_turns_records_them_resumes_and_is_the_same_beside_samplers(tmp_path: Path) -> None:
    train(small(**LEDGER), tmp_path / "whole")
    table = RunDirectory.read(tmp_path / "whole").rollout_table().to_pydict()
    written = [[each < 0 for each in row] for row in table["versions"]]
    assert sum(map(sum, written)) > 100
    for row, flags in enumerate(written):
        assert all(np.isnan(value) for value, flag in zip(table["behavior"][row], flags, strict=True) if flag)
        assert [not flag for flag in flags] == table["mask"][row]
        assert table["response"][row].count("\n") <= 2
    assert {line["staleness/oldest_max"] for line in lines(tmp_path / "whole")} == {0, 1, 2}
    page = report_html(read_run(tmp_path / "whole"))
    assert " of them by the environment" in page
    assert "Tokens without a version" not in page
    train(small(**LEDGER), tmp_path / "halves", display=_StopAt())
    train(small(**LEDGER), tmp_path / "halves", resume=True)
    assert torch.equal(weights(tmp_path / "whole"), weights(tmp_path / "halves"))
    assert repr(lines(tmp_path / "whole")) == repr(lines(tmp_path / "halves"))
    again = RunDirectory.read(tmp_path / "halves").rollout_table().to_pydict()
    assert again["response"] == table["response"]
    both = LEDGER | {"rollout": LEDGER["rollout"] | {"max_staleness": 0}}
    train(small(**both), tmp_path / "lockstep")
    train(small(**both, backend="local"), tmp_path / "local")
    assert torch.equal(weights(tmp_path / "lockstep"), weights(tmp_path / "local"))
    assert not torch.equal(weights(tmp_path / "whole"), weights(tmp_path / "lockstep"))
