import contextlib
import os
import subprocess

import pytest

from tests.train.tasks import scored
from tests.train.tasks.judges import python
from trimtab.config.training import Reward, Task
from trimtab.errors import ConfigError
from trimtab.train.tasks import source
from trimtab.train.tasks.evaluators import evaluator

gym = pytest.importorskip("reasoning_gym.factory")

KNOWN = {
    "binary_matrix",
    "countdown",
    "intermediate_integration",
    "n_queens",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
    "spiral_matrix",
    "string_insertion",
}
"""The tasks of reasoning-gym 0.1.25 that run answers, each read in its source."""
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


def test_the_tasks_of_the_installed_gym_that_run_answers_are_those_known():
    script = """
        from reasoning_gym.factory import DATASETS
        from trimtab.train.tasks.evaluators import evaluator
        print(*(name for name, (dataset, _) in DATASETS.items() if evaluator(dataset, "score_answer")))
    """
    with python(script, stdout=subprocess.PIPE) as process:  # here every call is type-checked
        said, _ = process.communicate(timeout=300)
    assert set(said.decode().split()) == KNOWN


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
    assert ran == KNOWN  # so the attempts do run where they can


@pytest.mark.parametrize("name", sorted(KNOWN))
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
