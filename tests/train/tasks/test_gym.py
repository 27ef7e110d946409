import random

import pytest

from trimtab.config.training import Task
from trimtab.errors import ConfigError, UnknownNameError
from trimtab.train.tasks import Judge, source

gym = pytest.importorskip("reasoning_gym.factory")
# Every fourth of them, and those that make their problems at construction or have no single answer
SLOW = {"knight_swap", "composite"}
SAMPLE = sorted(({*sorted(gym.DATASETS)[::4], "acre", "gsm_symbolic", "boxnet", "list_functions"}) - SLOW)


def task(name, seed=0, template=None, **options):
    return source(Task(name=f"gym:{name}", options=options, template=template, allow_eval=True), seed)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_task_of_the_gym_gives_the_same_problems_again_and_scores_their_answers(name):
    made, again = task(name), task(name)
    problem = made.problem(501)
    assert again.problem(501) == problem
    assert problem.prompt
    if problem.extra["answer"] is not None:
        score = made.score(problem, f"I think.\n<answer>{problem.answer}</answer>")
        assert score.correct == (score.reward >= 1)
        assert score.reward >= 0.99
    if problem.answer not in ("True", "False"):  # some read whatever is not True as False
        assert made.score(problem, "zz").reward < 0.99


def test_seeds_and_chunks_share_no_problems():
    prompts = [task("chain_sum", seed).problem(index).prompt for seed in (0, 1) for index in (0, 1, 2, 500, 501, 502)]
    assert len(set(prompts)) == 12


def test_no_trained_problem_is_held_out_in_a_small_task():
    options = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    made = task("chain_sum", **options)
    kept = {problem.id for problem in made.held_out(64)}
    trained = {made.problem(index).id for index in range(600)}
    assert len(kept) > 10
    assert not kept & trained
    assert made.held_out(5) == task("chain_sum", 9, **options).held_out(5) == made.held_out(10)[:5]


def test_a_template_and_the_tags_of_an_answer():
    made = task("chain_sum", template="{prompt}\nAnswer in <answer></answer>.")
    problem = made.problem(0)
    assert problem.prompt == f"{problem.extra['question']}\nAnswer in <answer></answer>."
    assert made.score(problem, f"<answer>1</answer> no, <answer> {problem.answer} </answer>").correct
    assert not made.score(problem, f"<answer>{problem.answer}</answer> no, <answer>1x</answer>").correct
    assert made.score(problem, f"{problem.answer}\n").correct


def test_a_response_the_gym_would_evaluate_without_end_is_a_failed_sample():
    config = Task(name="gym:countdown", timeout=4.0, allow_eval=True)
    made = source(config, 0)
    problem = made.problem(0)
    with Judge(config, made) as judge:
        scores = judge.scores([(problem, problem.answer), (problem, "9**9**9**9**9"), (problem, problem.answer)])
    assert [(score.reward, score.failed) for score in scores] == [
        (1.0, None),
        (0.0, "timeout after 4 s (gym:countdown)"),
        (1.0, None),
    ]


def test_several_tasks_of_the_gym_make_one():
    parts = [{"name": "chain_sum", "weight": 3.0, "config": {"max_terms": 2}}, {"name": "gcd"}]
    made = task("composite", datasets=parts)
    problems = [made.problem(index) for index in range(40)]
    assert {problem.extra["metadata"]["source_dataset"] for problem in problems} == {"chain_sum", "gcd"}
    assert all(made.score(problem, problem.answer).correct for problem in problems)
    with pytest.raises(ConfigError, match="Must specify at least one dataset"):
        task("composite")
    with pytest.raises(ConfigError, match="Dataset 'gdc' not registered"):
        task("composite", datasets=[{"name": "gdc"}])


def test_what_the_gym_does_not_have_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'countdown'"):
        task("countdwon")
    with pytest.raises(
        UnknownNameError, match=r"Task gym:chain_sum has no option 'min_term'\. Did you mean 'min_terms'"
    ):
        task("chain_sum", min_term=3)
    with pytest.raises(UnknownNameError, match="has no option 'seed'"):
        source(Task(name="gym:chain_sum", options={"seed": 1}), 0)
    with pytest.raises(ConfigError, match="Task gym:chain_sum needs other options"):
        task("chain_sum", min_terms=0)
    with pytest.raises(ConfigError, match="warm start"):
        task("chain_sum").demonstration(task("chain_sum").problem(0), 0.1, random.Random(0))
