import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.config.training import Task
from trimtab.errors import ConfigError, UnknownNameError
from trimtab.train.messages import Problem
from trimtab.train.tasks import Source, source
from trimtab.train.tasks.protocol import HELD_OUT_SHARE

NAMES = ["chain", "ledger", "sort", "reverse", "arithmetic"]
names = st.sampled_from(NAMES)
seeds = st.integers(0, 2**32)
indices = st.integers(0, 10**9)


def task(name="chain", seed=0, template=None, **options):
    return source(Task(name=name, options=options, template=template), seed)


def given_problem(answer):
    return Problem(id="p", prompt="", answer=answer)


@given(names, seeds, indices)
def test_a_problem_depends_on_seed_and_index_alone(name, seed, index):
    first, again = task(name, seed), task(name, seed)
    again.problem(index + 1)
    again.held_out(3)
    assert first.problem(index) == again.problem(index)
    assert first.problem(index) != first.problem(index + 1) or first.problem(index) != first.problem(index + 2)
    assert isinstance(first, Source)


@given(names, seeds, indices)
def test_the_right_answer_scores_one_and_fits_characters_and_length(name, seed, index):
    made = task(name, seed)
    problem = made.problem(index)
    score = made.score(problem, problem.answer)
    assert (score.reward, score.correct, score.failed, score.parts) == (1.0, True, None, {name: 1.0})
    turns = problem.answer.split("\n") if problem.replies else [problem.answer]  # a line break is no token
    assert len(turns) == len(problem.replies) + 1
    assert set("".join([problem.prompt, *problem.replies, *turns])) <= set(made.characters)
    assert sum(len(turn) + 1 for turn in turns) + sum(map(len, problem.replies)) <= made.max_tokens


@given(names, seeds, indices, st.text("0123456789=-", max_size=30))
def test_every_other_response_scores_nothing(name, seed, index, response):
    made = task(name, seed, **({} if name == "arithmetic" else {"size": 3}))
    problem = made.problem(index)
    last = name == "chain" and len(response) == 3 and response[-1] == problem.answer[-1]
    right = response == problem.answer or last
    assert made.score(problem, response).reward == float(right)


@given(names, seeds, indices, st.integers(0, 2**32))
def test_a_demonstration_without_slips_is_the_answer(name, seed, index, chance):
    made = task(name, seed)
    problem = made.problem(index)
    assert made.demonstration(problem, 0.0, random.Random(chance)) == problem.answer


@given(names, st.integers(0, 2**32))
def test_a_demonstration_with_slips_keeps_its_length_and_characters(name, chance):
    made = task(name)
    problem = made.problem(chance)
    shown = made.demonstration(problem, 0.5, random.Random(chance))
    assert [len(line) for line in shown.split("\n")] == [len(line) for line in problem.answer.split("\n")]
    assert set(shown) <= {*made.characters, "\n"}


def test_chain_answers_with_running_sums_of_which_the_last_is_checked():
    made = task(size=4)
    # 7, 7+7 = 14, 14+8 = 22, 22+8 = 30
    assert made.answered("7788") == "7420"
    problem = given_problem("7420")
    worth = {text: made.score(problem, text).reward for text in ("7420", "0000", "7421", "742", "74200", "", "0")}
    assert worth == {"7420": 1, "0000": 1, "7421": 0, "742": 0, "74200": 0, "": 0, "0": 0}


def test_ledger_brings_sums_forward_from_turn_to_turn_and_the_last_is_checked():
    made = task("ledger", size=2, turns=3)
    problem = made.problem(5)
    digits = [*problem.prompt[:-1], *"".join(problem.replies).replace("=", "")]
    sums = [sum(map(int, digits[: place + 1])) % 10 for place in range(6)]
    assert problem.answer == "0{}{}\n{}{}{}\n{}{}{}".format(*sums[:2], *sums[1:4], *sums[3:])
    assert (len(problem.prompt), [len(each) for each in problem.replies]) == (3, [3, 3])
    # three turns of three sums and a stop token, two replies of two digits and a sign
    assert made.max_tokens == 3 * (3 + 1) + 2 * 3
    # 7, 14; then 4, 22 and 30
    by_hand = given_problem("074\n420")
    made = task("ledger", size=2, turns=2)
    texts = ("074\n420", "999\n990", "074\n421", "0744\n20", "420", "074\n42", "074\n420\n", "074\n4200", "", "\n")
    assert [made.score(by_hand, text).reward for text in texts] == [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]


def test_ledger_of_one_turn_has_no_replies_and_two_ledgers_that_begin_alike_are_two_problems():
    made = task("ledger", size=3, turns=1)
    assert made.problem(0).replies == ()
    assert made.max_tokens == 5
    made = task("ledger", size=1, turns=4)
    problems = [made.problem(index) for index in range(60)]
    assert len({problem.prompt for problem in problems}) <= 10 < 50 < len({problem.id for problem in problems})


def test_a_slip_in_a_ledger_is_brought_forward():
    made, problem = task("ledger", size=2, turns=3), given_problem("012\n246\n680")
    for chance in range(100):
        lines = made.demonstration(problem, 0.4, random.Random(chance)).split("\n")
        assert lines[0][0] == "0"
        assert all(after[0] == before[-1] for before, after in itertools.pairwise(lines))
    always = "".join(line[1:] for line in made.demonstration(problem, 1.0, random.Random(0)).split("\n"))
    errors = [0] + [(int(a) - int(b)) % 10 for a, b in zip(always, "124680", strict=True)]
    assert all(a != b for a, b in itertools.pairwise(errors))


def test_sort_and_reverse_and_arithmetic_by_hand():
    assert task("sort").answered("7708") == "0778"
    assert task("reverse").answered("7708") == "8077"
    made = task("arithmetic", digits=1)
    for problem in map(made.problem, range(50)):
        assert problem.answer == str(eval(problem.prompt.rstrip("=")))


def test_a_slip_in_a_chain_is_carried_on():
    made, problem = task(size=6), given_problem("742042")
    slipped = 0
    for chance in range(200):
        shown = made.demonstration(problem, 0.2, random.Random(chance))
        errors = [(int(a) - int(b)) % 10 for a, b in zip(shown, problem.answer, strict=True)]
        changes = sum(b != a for a, b in zip([0, *errors], errors, strict=False))
        slipped += changes
    # 200 demonstrations of 6 steps at 0.2: 240 expected, standard deviation 14
    assert 180 < slipped < 300
    always = made.demonstration(problem, 1.0, random.Random(0))
    errors = [0] + [(int(a) - int(b)) % 10 for a, b in zip(always, problem.answer, strict=True)]
    assert all(a != b for a, b in itertools.pairwise(errors))


def test_a_slip_in_sorting_uses_another_digit_up():
    made, problem = task("sort", size=4), given_problem("0123")
    for chance in range(50):
        shown = made.demonstration(problem, 0.5, random.Random(chance))
        assert sorted(shown) == list("0123")
    assert made.demonstration(given_problem("777"), 1.0, random.Random(0)) == "777"
    assert made.demonstration(given_problem("01"), 1.0, random.Random(0)) == "10"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 2, None])
def test_no_trained_problem_is_held_out(name, size):
    option = "digits" if name == "arithmetic" else "size"
    options = ({} if size is None else {option: size}) | ({"turns": 1} if name == "ledger" and size is not None else {})
    trained = {task(name, seed, **options).problem(index).id for seed in (0, 1) for index in range(400)}
    kept = [problem.id for problem in task(name, 0, **options).held_out(256)]
    assert kept
    assert len(set(kept)) == len(kept)
    assert not trained & set(kept)
    if name != "arithmetic" and size is not None:  # a space of 10 or 100: all of it comes up on one side
        assert len(trained) + len(kept) == 10**size


@pytest.mark.parametrize("name", NAMES)
def test_held_out_problems_are_the_same_for_every_seed_and_begin_alike(name):
    assert task(name, 0).held_out(64) == task(name, 7).held_out(64) == task(name, 0).held_out(256)[:64]
    assert len(task(name).held_out(256)) == 256
    assert task(name).held_out(0) == []


def test_one_problem_in_four_is_held_out_and_digits_are_even():
    made = task(size=3)
    assert 0.8 < len(made.held_out(1000)) / (1000 / HELD_OUT_SHARE) < 1.2
    digits = Counter("".join(task().problem(index).prompt[:-1] for index in range(500)))
    assert all(1000 < digits[digit] < 1400 for digit in "0123456789")  # 1200 each, standard deviation 33


def test_a_template_stands_around_the_prompt_and_its_characters_count():
    plain, made = task(size=5), task(size=5, template="sum {prompt} {x}")
    assert made.problem(3).prompt == f"sum {plain.problem(3).prompt} {{x}}"
    assert made.problem(3).id == plain.problem(3).id
    assert set(made.problem(3).prompt) <= set(made.characters)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": {"sise": 3}}, "DigitOptions has no field 'sise'. Did you mean 'size'?"),
        ({"options": {"size": 0}}, "needs size to be at least 1, got 0"),
        ({"options": {"size": "3"}}, "needs size to be a whole number, got '3'"),
        ({"name": "arithmetic", "options": {"operations": "+/"}}, "needs operations among"),
        ({"name": "arithmetic", "options": {"operations": ""}}, "needs operations among"),
        ({"name": "arithmetic", "options": {"digit": 1}}, "Did you mean 'digits'?"),
        ({"name": "ledger", "options": {"turn": 3}}, "LedgerOptions has no field 'turn'. Did you mean 'turns'?"),
        ({"name": "ledger", "options": {"turns": 0}}, "needs turns to be at least 1, got 0"),
        ({"name": "chian"}, "Task has no name 'chian'. Did you mean 'chain'?"),
        ({"name": "gym"}, "Task has no name 'gym'"),
        ({"name": "chain:3"}, "Task has no name 'chain:3'"),
        ({"template": "no place"}, "Task needs {prompt} in template"),
        ({"path": "a.jsonl"}, "Task needs name file with path"),
    ],
)
def test_options_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ConfigError) as refused:
        source(Task(**settings), 0)
    assert message in str(refused.value)


def test_an_unknown_name_is_its_own_kind_of_error():
    with pytest.raises(UnknownNameError):
        source(Task(name="sorted"), 0)
