from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.config.training import Reward
from trimtab.train.tasks.verifiers import VERIFIERS, last_number


def verifier(name, pattern=None):
    return VERIFIERS[name](Reward(verifier=name, pattern=pattern))


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "so {}.", "= {} dollars", "\n#### {}", "**{}**", "({})"]))
def test_the_last_number_is_found_with_and_without_commas(number, text):
    assert last_number(f"from 3 and 4.5, {text.format(number)}") == number
    assert last_number(f"from 3 and 4.5, {text.format(f'{number:,}')}") == number


@given(st.decimals(-(10**6), 10**6, places=3))
def test_decimals_are_read_exactly(number):
    assert last_number(f"it is {number:f}.") == number


@given(st.text("0123456789,.-+$eE−x) \n", max_size=60))
def test_any_text_has_a_last_number_or_none(text):
    assert last_number(text) is None or last_number(text).is_finite()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She pays 48/2 = 24 clips.\n#### 72", "72"),
        ("#### 1,234,567", "1234567"),
        ("#### -5", "-5"),
        ("x = \N{MINUS SIGN}5", "-5"),
        ("10-5", "5"),
        ("f(x)-5", "5"),
        ("10 - 5", "5"),
        ("$42.", "42"),
        ("-$42.50", "-42.50"),
        ("$-42", "-42"),
        ("€3", "3"),
        ("50%", "50"),
        (".5", "0.5"),
        ("-.5", "-0.5"),
        ("+7", "7"),
        ("1e5", "100000"),
        ("2.5E-3", "0.0025"),
        ("1, 2, 3", "3"),
        ("1,2,3", "3"),
        ("1,2345", "2345"),
        ("007", "7"),
        ("42 (forty-two)", "42"),
        ("no number", None),
        ("", None),
    ],
)
def test_numbers_as_people_write_them(text, number):
    assert last_number(text) == (None if number is None else Decimal(number))


def test_numeric_compares_numbers_and_not_their_spelling():
    numeric = verifier("numeric")
    answer = "He has 40 + 2 = 42.\n#### 42"
    for response, score in {"42": 1, "$42.00": 1, "43, no, 42.": 1, "42 of 43": 0, "-42": 0, "": 0, "none": 0}.items():
        assert numeric(response, answer) == score
    assert numeric("0", "-0") == 1
    with pytest.raises(ValueError, match="holds no number"):
        numeric("42", "forty-two")


def test_long_texts_are_read_in_bounded_time():
    assert last_number("1" * 10**7 + " 5") == 5
    assert last_number("1," * 10**6 + "x") == 1
    assert last_number("9" * 10**6 + "e9") is not None


def test_exact_leaves_white_space_around_aside():
    exact = verifier("exact")
    assert [exact(response, "a b\n") for response in ("a b", " a b ", "a  b", "A b", "")] == [1, 1, 0, 0, 0]


def test_regex_compares_the_first_group_of_the_last_match():
    found = verifier("regex", r"answer: (\w+)( sure)?")
    cases = {"answer: x": 1, "answer: y. answer: x sure": 1, "answer: x. answer: y": 0, "x": 0, "": 0}
    assert {response: found(response, "x") for response in cases} == cases
    assert verifier("regex", r"\d+")("it is 42", "42") == 1
    assert verifier("regex", r"(a)?b")("b", "a") == 0  # a group that took no part
