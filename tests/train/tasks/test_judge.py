import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.train.tasks.judges import HERE, function, gone, judge, problem, python
from trimtab.config.training import Reward, Task
from trimtab.errors import ConfigError, UnknownNameError
from trimtab.train.messages import Score
from trimtab.train.tasks import Judge, source
from trimtab.train.tasks.builtin import Chain


def test_the_tasks_own_verifier_scores_where_no_reward_is_named():
    task = source(Task(), 0)
    first, second = task.problem(0), task.problem(1)
    wrong = second.answer[:-1] + str((int(second.answer[-1]) + 1) % 10)
    with Judge(Task(), task) as judged:
        assert judged.scores([(first, first.answer), (second, wrong)]) == [
            Score(1.0, True, {"chain": 1.0}),
            Score(0.0, False, {"chain": 0.0}),
        ]


def test_a_step_of_chain_is_judged_within_two_milliseconds():
    # In a process of its own: here every call is type-checked.
    script = """
        import timeit
        from trimtab.config.training import Task
        from trimtab.train.tasks import Judge, source
        task = source(Task(), 0)
        answers = [(each, each.answer) for each in map(task.problem, range(128))]
        judge = Judge(Task(), task)
        print(min(timeit.repeat(lambda: judge.scores(answers), number=1, repeat=20)))
    """
    with python(script, stdout=subprocess.PIPE) as process:
        said, _ = process.communicate(timeout=60)
    assert float(said) < 2e-3


def test_an_error_in_the_tasks_own_verifier_is_a_failed_sample():
    class Broken(Chain):
        def score(self, problem, response):
            raise KeyError("gone")

    judged = Judge(Task(), Broken(Task(), 0))
    assert judged.scores([(problem(), "1")]) == [Score(0.0, False, {}, "KeyError: 'gone'")]


def test_the_reward_is_the_weighted_sum_and_the_first_reward_says_what_is_correct():
    rewards = Reward(verifier="exact", weight=2.0), Reward(verifier="numeric", weight=-0.5, name="number")
    with judge(*rewards) as judged:
        # 2·1 − 0.5·1 = 1.5; 2·0 − 0.5·1 = −0.5; nothing
        assert judged.scores([(problem(), "42"), (problem(), "so 42"), (problem(), "so")]) == [
            Score(1.5, True, {"exact": 1.0, "number": 1.0}),
            Score(-0.5, False, {"exact": 0.0, "number": 1.0}),
            Score(0.0, False, {"exact": 0.0, "number": 0.0}),
        ]


def test_a_failed_reward_costs_the_sample_all_of_them():
    with judge(Reward(verifier="exact"), Reward(verifier="numeric")) as judged:
        (score,) = judged.scores([(problem("no digit"), "no digit")])
    assert (score.reward, score.correct, score.parts) == (0.0, False, {"exact": 1.0, "numeric": 0.0})
    assert score.failed == "ValueError: the answer holds no number: 'no digit' (numeric)"


def test_a_sum_that_overflows_is_a_failed_sample():
    with judge(Reward(verifier="exact", weight=1e308), Reward(verifier="numeric", weight=1e308)) as judged:
        (score,) = judged.scores([(problem(), "42")])
    assert (score.reward, score.correct, score.failed) == (0.0, False, "the weighted sum is not finite")


SCRIPT = {
    "not correct": (1.0, False, None),
    "far": (0.0, False, "too large for float32: 1e+308"),
    "word": (0.0, False, "TypeError: correct is True or False, got 'no'"),
    "right": (1.0, True, None),
    "half": (0.5, False, None),
    "true": (1.0, True, None),
    "numpy": (0.75, True, None),
    "dict": (0.2, True, None),
    "print": (1.0, True, None),
    "raise": (0.0, False, "ZeroDivisionError: division by zero"),
    "nan": (0.0, False, "not finite: nan"),
    "inf": (0.0, False, "not finite: -inf"),
    "none": (0.0, False, "TypeError: a reward is a number, got None"),
    "text": (0.0, False, "TypeError: a reward is a number, got '1'"),
    "empty dict": (0.0, False, "KeyError: 'reward'"),
    "exit": (0.0, False, "SystemExit: 0"),
    "interrupt": (0.0, False, "KeyboardInterrupt: "),
    "allocate": (0.0, False, "MemoryError: "),
    "recurse": (0.0, False, "RecursionError: maximum recursion depth exceeded"),
    "hang": (0.0, False, "timeout after 1.5 s"),
    "hang in C": (0.0, False, "timeout after 1.5 s"),
    "_exit": (0.0, False, "the verifier's process ended with exit code 3"),
    "segfault": (0.0, False, "the verifier's process was ended by signal 11"),
    "killed": (0.0, False, "the verifier's process was ended by signal 9"),
    "close": (0.0, False, "the verifier's process ended with exit code 1"),
}


@pytest.mark.parametrize("executes", [False, True])
def test_every_answer_has_one_score_in_order_whatever_the_function_does(executes):
    failing = [name for name in SCRIPT if SCRIPT[name][2]]
    order = [name for each in failing for name in (each, "half")] + [name for name in SCRIPT if name not in failing]
    with judge(function("scripted", name="f", executes=executes), timeout=1.5) as judged:
        scores = judged.scores([(problem(), name) for name in order])
    for name, score in zip(order, scores, strict=True):
        reward, correct, failed = SCRIPT[name]
        assert (score.reward, score.correct, score.parts) == (
            pytest.approx(reward),
            correct,
            {"f": pytest.approx(reward)},
        )
        assert (score.failed or "").startswith(failed or "")
        assert score.failed is None or score.failed.endswith(" (f)")
        assert (score.failed is None) == (failed is None)


def test_a_function_is_given_the_fields_it_has_parameters_for():
    config = Task(rewards=(function("every_field", weight=0.0), function("length"), function("optional")))
    task = source(config, 0)
    with pytest.raises(UnknownNameError, match="needs 'ground_truth', which no problem has"):
        Judge(config.but(rewards=(function("needs_more"),)), task)
    with Judge(config, task) as judged:
        (score,) = judged.scores([(problem(note="abc"), "four")])
    assert score == Score(5.0, True, {"every_field": 3.0, "length": 4.0, "optional": 1.0})


def test_a_problem_that_cannot_leave_the_process_is_a_failed_sample():
    with judge(function("length")) as judged:
        scores = judged.scores([(problem(hook=lambda: None), "a"), (problem(), "ab")])
    assert [(score.reward, score.failed is None) for score in scores] == [(0.0, False), (2.0, True)]
    assert "TypeError" in (scores[0].failed or "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.such.module:f", "ModuleNotFoundError: No module named 'no'"),
        (f"{HERE}:lenght", f"Module {HERE} has no function 'lenght'. Did you mean 'length'?"),
        (f"{HERE}:not_a_function", "Reward needs a plain function"),
        (f"{HERE}:later", "Reward needs a plain function"),
        ("antigravity_of_ours:f", "ZeroDivisionError: division by zero"),
        ("leaves:f", "SystemExit: 4"),
        ("crashes:f", "ended with exit code 5"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_refused_before_training(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("antigravity_of_ours.py").write_text("1 / 0")
    Path("leaves.py").write_text("import sys; sys.exit(4)")
    Path("crashes.py").write_text("import os; os._exit(5)")
    with pytest.raises(ConfigError) as refused:
        judge(Reward(function=name))
    assert message in str(refused.value)


def test_a_function_is_found_beside_the_run_and_imported_in_no_process_but_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("beside_the_run.py").write_text("import os\ndef f(response): return os.getpid()")
    with judge(Reward(function="beside_the_run:f")) as judged:
        (score,) = judged.scores([(problem(), "")])
    assert score.reward != os.getpid()
    assert "beside_the_run" not in sys.modules


def test_rewards_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="rewards of different names"):
        judge(Reward(verifier="exact"), Reward(verifier="exact"))


def test_a_bad_pattern_is_refused_before_training():
    with pytest.raises(ConfigError, match="regular expression as pattern"):
        judge(Reward(verifier="regex", pattern="("))


def test_a_pattern_that_backtracks_without_end_times_out():
    with judge(Reward(verifier="regex", pattern="(a+)+$"), timeout=2.0) as judged:
        scores = judged.scores([(problem("aa"), "a" * 60 + "b"), (problem("aa"), "b aa")])
    assert [score.reward for score in scores] == [0.0, 1.0]
    assert [score.failed for score in scores] == ["timeout after 2 s (regex)", None]


def test_a_closed_judge_leaves_no_process_and_says_that_it_is_closed():
    judged = judge(function("pid"))
    (score,) = judged.scores([(problem(), "")])
    judged.close()
    judged.close()
    assert gone(int(score.reward), within=0.1)
    with pytest.raises(RuntimeError, match="closed"):
        judged.scores([(problem(), "")])


def test_a_timeout_ends_what_the_function_began_too(tmp_path):
    with judge(function("child"), timeout=1.5) as judged:
        (score,) = judged.scores([(problem(str(tmp_path / "pid")), "")])
        assert score.failed == "timeout after 1.5 s (child)"
        assert gone(int((tmp_path / "pid").read_text()))


def test_a_worker_that_ended_with_the_thread_that_began_it_costs_no_sample():
    made = []
    thread = threading.Thread(target=lambda: made.append(judge(function("length"))))
    thread.start()
    thread.join()
    time.sleep(0.1)
    with made[0] as judged:
        assert [(score.reward, score.failed) for score in judged.scores([(problem(), "abc")])] == [(3.0, None)]


@pytest.mark.skipif(sys.platform != "linux", reason="tied to the parent by a Linux call")
def test_killing_the_parent_ends_a_worker_in_the_midst_of_a_call(tmp_path):
    script = f"""
        from trimtab.config.training import Reward, Task
        from trimtab.train.messages import Problem
        from trimtab.train.tasks import Judge, source
        config = Task(rewards=[Reward(function="{HERE}:here")], timeout=500)
        Judge(config, source(config, 0)).scores([(Problem("p", "q", {str(tmp_path / "pid")!r}), "")])
    """
    parent = python(script)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert parent.poll() is None
        time.sleep(0.02)
    worker = int((tmp_path / "pid").read_text())
    assert not gone(worker, within=0.1)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert gone(worker)


def test_math_is_compared_as_mathematics():
    half = r"\frac{1}{2}"
    cases = [
        (half, "The answer is $0.5$.", 1.0),
        (half, r"\boxed{\frac{2}{4}}", 1.0),
        (half, "2", 0.0),
        ("$x^2 + 2x + 1$", "$(x+1)^2$", 1.0),
        ("3 + 4 = 7 so #### 7", r"Thus \boxed{7}", 1.0),
        ("7", "no idea", 0.0),
        ("7", "", 0.0),
    ]
    with judge(Reward(verifier="math"), timeout=60) as judged:
        scores = judged.scores([(problem(answer), response) for answer, response, _ in cases])
    assert [score.reward for score in scores] == [reward for *_, reward in cases]
    assert all(score.failed is None for score in scores)
