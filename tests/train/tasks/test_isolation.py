"""What a verifier's process sees, what it can reach, and what is left of it."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.train.tasks.judges import HERE, function, gone, judge, problem, python
from trimtab.config.training import Reward, Task
from trimtab.errors import ConfigError
from trimtab.train.tasks import GivenUpError, Judge, source
from trimtab.train.tasks.isolation import process, wire
from trimtab.train.tasks.isolation.process import passed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces and /proc are Linux's")
LIMIT = 150.0


def written(path, process=None):
    """The number in a file, once it is there."""
    until = time.monotonic() + LIMIT
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < until
        assert process is None or process.poll() is None
        time.sleep(0.01)
    return int(path.read_text())


SECRETS = (
    "WANDB_API_KEY",
    "HF_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_PROFILE",
    "GITHUB_PAT",
    "LC_TOKEN",
    "PYTHON_SECRET",
)


@pytest.mark.parametrize("executes", [False, True])
def test_a_verifier_sees_no_secret_of_the_environment_and_what_python_needs(monkeypatch, executes):
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    seen = ("PATH", "PYTHONHASHSEED", "OMP_NUM_THREADS")
    with judge(function("known", executes=executes)) as judged:
        scores = judged.scores([(problem(), name) for name in (*SECRETS, *seen)])
    assert [score.reward for score in scores] == [0.0] * len(SECRETS) + [1.0] * len(seen)


def test_a_proxy_passes_unless_it_holds_a_password():
    given = {"https_proxy": "http://proxy:3128", "HTTP_PROXY": "http://me:secret@proxy:3128", "NO_PROXY": "localhost"}
    assert passed(given) == {"https_proxy": "http://proxy:3128", "NO_PROXY": "localhost"}


def test_an_error_for_want_of_a_variable_says_that_it_is_withheld(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIMTAB_TEST_API_KEY", "secret")
    with judge(function("needs_key")) as judged:
        (score,) = judged.scores([(problem(), "")])
    assert score.failed == (
        "KeyError: 'TRIMTAB_TEST_API_KEY'; the verifier's process is not given TRIMTAB_TEST_API_KEY of the environment; "
        "let it read a file (needs_key)"
    )
    monkeypatch.chdir(tmp_path)
    Path("needs_it_at_once.py").write_text("import os\nKEY = os.environ['TRIMTAB_TEST_API_KEY']")
    with pytest.raises(ConfigError, match="not given TRIMTAB_TEST_API_KEY of the environment"):
        judge(Reward(function="needs_it_at_once:f"))


def test_a_function_has_the_network_unless_it_executes_responses():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        with judge(function("connects")) as judged:
            assert judged.scores([(problem(port), "")])[0].reward == 1.0
        with judge(function("connects", executes=True)) as judged:
            if judged.notes:
                pytest.skip(judged.notes[0])
            (score,) = judged.scores([(problem(port), "")])
    assert "Network is unreachable" in str(score.failed)


def test_a_system_that_keeps_the_network_is_told_of_once_and_only_where_responses_are_run(monkeypatch):
    monkeypatch.setattr("trimtab.train.tasks.isolation.process._BOOT", _REFUSED)
    with judge(function("length", executes=True)) as judged:
        assert [score.reward for score in judged.scores([(problem(), "abc")])] == [3.0]
        assert judged.notes == [
            "Responses are run as code, and the system did not let their process leave the network: Operation not permitted."
        ]
    with judge(function("length"), Reward(verifier="regex", pattern="a")) as judged:
        assert not judged.notes


_REFUSED = """
import sys; sys.path[:] = {path!r}
from trimtab.train.tasks.isolation import guard
guard._unshared = lambda flags: 1
from trimtab.train.tasks.isolation.worker import run_verifiers; run_verifiers({pipe}, {parent})
"""


def test_without_a_call_that_waits_and_does_not_reap_all_is_scored_and_ended_alike(monkeypatch, tmp_path):
    monkeypatch.setattr("trimtab.train.tasks.isolation.process._BOOT", "import os; del os.waitid\n" + process._BOOT)
    monkeypatch.delattr(os, "waitid")
    responses = ("right", "_exit", "half", "hang", "right")
    for executes in (False, True):
        with judge(function("scripted", executes=executes), timeout=1.5) as judged:
            scores = judged.scores([(problem(), each) for each in responses])
            assert [score.reward for score in scores] == [1.0, 0.0, 0.5, 0.0, 1.0]
            crash, late = (score.failed for score in scores if score.failed)
            assert crash.startswith("the verifier's process ended")
            assert late.startswith("timeout after 1.5 s")
        with judge(function("leaves", executes=executes), timeout=60) as judged:
            (score,) = judged.scores([(problem(str(tmp_path / "pid")), "within crash")])
            assert score.failed == "the verifier's process ended with exit code 3 (leaves)"
            assert gone(written(tmp_path / "pid"), within=LIMIT)


def test_what_a_module_began_when_it_was_loaded_lives_through_calls_that_execute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("has_a_server.py").write_text(
        "import subprocess, sys\n"
        "begun = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "def f(response): return begun.pid\n"
    )
    with judge(Reward(function="has_a_server:f", executes=True)) as judged:
        (score, _) = judged.scores([(problem(), "")] * 2)
        assert not gone(int(score.reward), within=0.2)
    assert gone(int(score.reward), within=LIMIT)


def test_a_response_that_runs_cannot_look_into_the_learner():
    with judge(function("peeks"), function("peeks", executes=True, name="executing")) as judged:
        if judged.notes:
            pytest.skip(judged.notes[0])
        (score,) = judged.scores([(problem(str(os.getpid())), "")])
    assert score.parts["peeks"] > 0  # there is something to see
    assert "PermissionError" in str(score.failed)
    assert str(score.failed).endswith("(executing)")


def test_what_a_call_changes_lasts_only_where_nothing_is_executed():
    with judge(function("counted"), function("counted", executes=True, name="executing")) as judged:
        scores = judged.scores([(problem(), "")] * 3)
    assert [dict(score.parts) for score in scores] == [{"counted": n, "executing": 1.0} for n in (1.0, 2.0, 3.0)]


PATCH = (
    "__import__('builtins').exec('import os, reasoning_gym.games.countdown as c; "
    'c.CountdownDataset.score_answer = lambda *_: 1.0; open(os.environ["HOME"] + "/ran", "w").write(str(dict(os.environ)))\')'
)


def test_a_response_that_rewrites_the_verifier_of_the_gym_changes_no_later_reward(monkeypatch, tmp_path):
    pytest.importorskip("reasoning_gym")
    monkeypatch.setenv("WANDB_API_KEY", "a secret of the user")
    monkeypatch.setenv("HOME", str(tmp_path))
    config = Task(name="gym:countdown", allow_eval=True, timeout=60)
    made = source(config, 0)
    one = made.problem(0)
    with Judge(config, made) as judged:
        before, _, after = judged.scores([(one, "1"), (one, PATCH), (one, "1")])
    assert "PATH" in (tmp_path / "ran").read_text()  # it did run
    assert "a secret of the user" not in (tmp_path / "ran").read_text()
    assert before == after
    assert before.reward < 1


FORGED = b'{"reward": 1.0, "correct": true}'


@pytest.mark.parametrize(
    ("bytes_written", "executes", "first"),
    [
        (b"\x00\x00\x00\x04no!!", False, "sent no reply but"),
        (b"\x00\x00\x00\x04no!!", True, "sent no reply but"),
        (b"\x80\x05cposix\nsystem\n", False, "sent no reply but"),
        (b"\xff" * 100, True, "sent no reply but"),
        (2 * (len(FORGED).to_bytes(4, "big") + FORGED), False, "sent no reply but"),
        (
            2 * (len(FORGED).to_bytes(4, "big") + FORGED),
            True,
            None,
        ),  # its own score it can forge: it runs where it is scored
    ],
    ids=["words", "words executed", "pickle", "ones executed", "forged", "forged executed"],
)
def test_bytes_on_the_pipe_of_replies_cost_one_sample_at_most(bytes_written, executes, first):
    with judge(function("writes", executes=executes), timeout=60) as judged:
        scores = judged.scores([(problem(), bytes_written.hex()), (problem(), ""), (problem(), "")])
    assert (first or "") in (scores[0].failed or "")
    assert (scores[0].failed is None) == (first is None)
    assert [(score.reward, score.failed) for score in scores[1:]] == [(0.0, None)] * 2


def test_a_call_too_late_ends_and_the_process_that_forked_it_goes_on():
    with judge(function("parent", executes=True), timeout=2) as judged:
        before, late, after = judged.scores([(problem(), each) for each in ("", "hang", "")])
    assert late.failed == "timeout after 2 s (parent)"
    assert before.reward == after.reward


@pytest.mark.parametrize("executes", [False, True])
@pytest.mark.parametrize("how", ["within crash", "apart crash", "within hang", "apart hang", "within kill"])
def test_what_a_function_began_ends_with_it_however_it_ends(tmp_path, executes, how):
    with judge(function("leaves", executes=executes), timeout=1.5) as judged:
        (score,) = judged.scores([(problem(str(tmp_path / "pid")), how)])
        assert score.failed
        assert gone(written(tmp_path / "pid"), within=LIMIT)


@pytest.mark.parametrize("how", ["within", "apart"])
def test_what_a_function_began_ends_with_the_judge_and_with_a_call_that_executes(tmp_path, how):
    with judge(function("leaves"), timeout=60) as judged:
        judged.scores([(problem(str(tmp_path / "pid")), how)])
        begun = written(tmp_path / "pid")
        assert not gone(begun, within=0.2)  # it may be needed again
    assert gone(begun, within=LIMIT)
    with judge(function("leaves", executes=True), timeout=60) as judged:
        judged.scores([(problem(str(tmp_path / "pid")), how)])
        assert gone(written(tmp_path / "pid"), within=LIMIT)


@pytest.mark.parametrize("how", ["within", "apart"])
@pytest.mark.parametrize("executes", [False, True])
def test_killing_the_learner_ends_what_a_function_began(tmp_path, how, executes):
    script = f"""
        from trimtab.config.training import Reward, Task
        from trimtab.train.messages import Problem
        from trimtab.train.tasks import Judge, source
        config = Task(rewards=[Reward(function="{HERE}:leaves", executes={executes})], timeout=500)
        Judge(config, source(config, 0)).scores([(Problem("p", "q", {str(tmp_path / "pid")!r}), "{how} hang")])
    """
    learner = python(script)
    begun = written(tmp_path / "pid", learner)
    assert not gone(begun, within=0.1)
    learner.send_signal(signal.SIGKILL)
    learner.wait()
    assert gone(begun, within=LIMIT)


@pytest.mark.parametrize("executes", [False, True])
def test_a_child_that_comes_back_from_a_call_ends_and_answers_nothing(executes):
    with judge(function("forks", executes=executes), timeout=60) as judged:
        scores = judged.scores([(problem(), each) for each in ("exit", "return", "raise")])
        assert all(gone(int(score.reward), within=LIMIT) for score in scores)
    assert all(score.failed is None for score in scores)
    assert len({score.reward for score in scores}) == 3


def test_a_first_call_that_loads_something_may_take_longer_than_the_timeout():
    with judge(function("lazy"), timeout=3) as judged:
        scores = judged.scores([(problem(), each) for each in ("", "a", "b")])
    assert [score.failed for score in scores] == [None, None, None]


def test_a_judge_looks_at_the_wish_to_stop_before_each_response():
    left = iter([False, False, True])
    config = Task(rewards=(function("length"),))
    with Judge(config, source(config, 0), stop=lambda: next(left)) as judged, pytest.raises(GivenUpError):
        judged.scores([(problem(), "")] * 5)
    assert list(left) == []


def test_a_judge_that_needs_no_process_scores_to_the_end():
    judged = Judge(Task(rewards=(Reward(verifier="exact"),)), source(Task(), 0), stop=lambda: True)
    assert [score.reward for score in judged.scores([(problem(), "42")] * 2)] == [1.0, 1.0]


def test_a_request_and_a_reply_are_json_and_a_reply_is_checked():
    from trimtab.train.tasks.isolation.worker import Failure, reply_of

    assert reply_of({"reward": 1.0, "correct": True}) == (1.0, True)
    assert reply_of({"failed": "error", "why": "x" * 9000}) == Failure("error", "x" * 500)
    for message in (
        None,
        [],
        {"reward": "1", "correct": True},
        {"reward": 1.0},
        {"reward": 1.0, "correct": 1},
        {"reward": float("nan"), "correct": True},
        {"reward": 1e39, "correct": True},
        {"failed": "other", "why": ""},
        {"failed": "error", "why": 3},
    ):
        with pytest.raises(wire.RubbishError):
            reply_of(message)


LOUD = """
import os
import sys


def reward(response):
    sys.stderr.write("\\x1b]0;pwned\\x07\\x1b[2J" + response + "\\r")
    os.write(2, b"\\xff" + b"x" * (1 << 20) * (response == "much"))
    return 1.0
"""


def test_what_a_verifier_prints_is_shown_and_not_obeyed(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    Path("loud.py").write_text(LOUD)
    with judge(Reward(function="loud:reward")) as judged:
        assert judged.scores([(problem(), "some words")])[0].reward == 1.0
    shown = capsys.readouterr().err
    assert shown == "⟨U+001B⟩]0;pwned⟨U+0007⟩⟨U+001B⟩[2Jsome words\n\ufffd"


def test_a_verifier_that_prints_without_end_is_heard_for_a_while_and_never_held_up(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    Path("loud.py").write_text(LOUD)
    with judge(Reward(function="loud:reward")) as judged:
        for _ in range(3):
            assert judged.scores([(problem(), "much")])[0].reward == 1.0
    shown = capsys.readouterr().err
    assert process.PRINTED <= len(shown) < process.PRINTED + 200
    assert shown.endswith(f"… what verifiers print beyond {process.PRINTED} characters is left out\n")


HUNGRY = """
import socket

from trimtab.train.messages import Problem
from trimtab.train.tasks.isolation.worker import forked_reply


def taken(problem, response):
    return float(len(bytearray(int(response)))), True


ours, theirs = socket.socketpair()
for size, memory in ((1 << 20, 1 << 28), (1 << 29, 1 << 28), (1 << 29, None)):
    print(forked_reply(taken, Problem("", "", ""), str(size), 60.0, theirs, memory))
"""


def test_code_of_a_response_has_so_much_memory_and_no_more():
    with python(HUNGRY, stdout=subprocess.PIPE, text=True) as process:
        printed, _ = process.communicate()
    little, much, unbound = printed.splitlines()
    assert little == f"({float(1 << 20)}, True)"
    assert much == "Failure(kind='error', why='MemoryError: ')"
    assert unbound == f"({float(1 << 29)}, True)"
