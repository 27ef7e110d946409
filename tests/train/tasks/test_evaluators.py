import contextlib
import importlib.metadata
import json
import os
import subprocess

import pytest

from tests.train.tasks import scored
from tests.train.tasks.evaluators import evaluator
from tests.train.tasks.judges import python
from trimtab.config.training import Reward, Task
from trimtab.errors import ConfigError
from trimtab.train.tasks import gym as tasks
from trimtab.train.tasks import source
from trimtab.train.tasks.gym import EVALUATING, READ_VERSION

gym = pytest.importorskip("reasoning_gym.factory")

UNUSABLE = {"composite"}


@pytest.mark.parametrize("verifier", scored.RUNS, ids=lambda verifier: verifier.__name__)
def test_a_verifier_that_runs_the_answer_is_found(verifier):
    assert "scored.py, line" in str(evaluator(verifier, "score_answer"))


@pytest.mark.parametrize("verifier", scored.RUNS_NOT, ids=lambda verifier: verifier.__name__)
def test_a_verifier_that_reads_the_answer_as_data_is_not(verifier):
    assert evaluator(verifier, "score_answer") is None


def test_a_verifier_whose_source_cannot_be_read_is_taken_for_one_that_runs_the_answer():
    made = {}
    exec("class Hidden:\n    def score_answer(self, answer, entry):\n        return 1.0", made)
    assert "source cannot be read" in str(evaluator(made["Hidden"], "score_answer"))


def test_the_table_holds_the_tasks_whose_source_runs_answers_and_where():
    assert importlib.metadata.version("reasoning-gym") == READ_VERSION, "read the verifiers of the new version"
    script = """
        import json
        from reasoning_gym.factory import DATASETS
        from tests.train.tasks.evaluators import evaluator
        print(json.dumps({name: evaluator(dataset, "score_answer") for name, (dataset, _) in DATASETS.items()}))
    """
    with python(script, stdout=subprocess.PIPE) as process:  # here every call is type-checked
        said, _ = process.communicate(timeout=300)
    read = {name: where for name, where in json.loads(said).items() if where is not None}
    assert {
        name: where.replace("sympy.parsing.sympy_parser.", "sympy's ") for name, where in read.items()
    } == EVALUATING


def test_a_version_that_nobody_has_read_and_a_task_of_another_package_need_leave(monkeypatch):
    class Registered:
        """A task that somebody added."""

    with monkeypatch.context() as changed:
        changed.setitem(gym.DATASETS, "chain_sum", (Registered, gym.DATASETS["chain_sum"][1]))
        assert "may run it as Python code" in str(tasks.evaluator("chain_sum"))
    assert tasks.evaluator("chain_sum") is None
    monkeypatch.setattr(importlib.metadata, "version", {"reasoning-gym": "0.1.26"}.__getitem__)
    with pytest.raises(
        ConfigError, match=r"allow_eval: true .* may run it .*this is version 0\.1\.26; the verifiers of 0\.1\.25"
    ):
        source(Task(name="gym:chain_sum"), 0)


MARK = "TRIMTAB_TEST_ANSWER_RAN"
SET = f"__import__('os').environ.__setitem__('{MARK}', '1')"
ATTEMPTS = (SET, f"[{SET}]", f"[[{SET}]]", f"({SET} or 1)+1", f"$${SET}$$", f"answer = {SET}", f"{{'a': {SET}}}")


@pytest.mark.filterwarnings("ignore")
def test_no_other_task_of_the_gym_runs_an_answer(monkeypatch):
    monkeypatch.delenv(MARK, raising=False)
    ran = set()
    for name in sorted(gym.DATASETS.keys() - UNUSABLE):
        dataset, configuration = gym.DATASETS[name]
        made = dataset(config=configuration(seed=1, size=2))
        for attempt in ATTEMPTS:
            with contextlib.suppress(Exception):
                made.score_answer(attempt, made[0])
            if os.environ.pop(MARK, None):
                ran.add(name)
    assert ran == EVALUATING.keys()  # so the attempts do run where they can


@pytest.mark.parametrize("name", sorted(EVALUATING))
def test_a_task_that_runs_responses_needs_leave(name):
    with pytest.raises(ConfigError, match=r"needs allow_eval: true .* runs it as Python code") as refused:
        source(Task(name=f"gym:{name}"), 0)
    assert f"{name}.py, line" in str(refused.value)
    assert source(Task(name=f"gym:{name}", allow_eval=True), 0).problem(0).prompt


def test_a_composite_of_a_task_that_runs_responses_needs_leave():
    options = {"datasets": [{"name": "chain_sum"}, {"name": "countdown"}]}
    with pytest.raises(ConfigError, match=r"allow_eval: true with 'gym:composite'.*verifier of countdown"):
        source(Task(name="gym:composite", options=options), 0)
    assert source(Task(name="gym:composite", options=options, allow_eval=True), 0)


def test_a_task_whose_own_verifier_has_no_say_needs_no_leave():
    assert source(Task(name="gym:countdown", rewards=(Reward(verifier="numeric"),)), 0).problem(0).prompt
    assert source(Task(name="gym:chain_sum"), 0)
