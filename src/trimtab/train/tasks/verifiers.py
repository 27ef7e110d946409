"""Verifiers by name: a response against an answer, worth 0 to 1."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Callable
from decimal import Decimal

from trimtab.config.base import excerpt
from trimtab.config.training import Reward
from trimtab.errors import ConfigError

Verifier = Callable[[str, str], float]
"""From a response and the answer to a score."""

INLINE = frozenset({"exact", "numeric"})
"""Those that end in bounded time whatever they are given; the others run in a process of their own."""

_TAIL = 2000  # characters in which the last number is looked for
_NUMBER = re.compile(
    r"(?P<sign>(?<![0-9A-Za-z_.)\]])[-+−])?"  # a minus after a digit or a bracket subtracts
    r"[$€£¥₹]?(?P<inner>(?<=[$€£¥₹])[-−])?"
    r"(?P<number>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?P<power>[eE][+-]?[0-9]{1,4}(?![0-9A-Za-z]))?"
)


def last_number(text: str) -> Decimal | None:
    """The last number of a text: thousands commas, sign, decimals, currency and a full stop after it understood."""
    numbers = list(_NUMBER.finditer(text[-_TAIL:]))
    if not numbers:
        return None
    last = numbers[-1]
    minus = any(last[group] in ("-", "−") for group in ("sign", "inner"))
    value = Decimal(last["number"].replace(",", "") + (last["power"] or ""))
    return -value if minus else value


def exact(reward: Reward) -> Verifier:
    """1 where the response is the answer, white space around both aside."""
    return lambda response, answer: float(response.strip() == answer.strip())


def numeric(reward: Reward) -> Verifier:
    """1 where the last numbers of response and answer are equal, as numbers: 42, 42.0 and $42. are."""

    def score(response: str, answer: str) -> float:
        right = last_number(answer)
        if right is None:
            raise ValueError(f"the answer holds no number: {excerpt(answer)}")
        return float(last_number(response) == right)

    return score


def regex(reward: Reward) -> Verifier:
    """1 where the first group of the last match is the answer; the whole match where the pattern has no group."""
    try:
        pattern = re.compile(str(reward.pattern))
    except re.error as error:
        raise ConfigError(
            f"Reward needs a regular expression as pattern, got {excerpt(reward.pattern)}: {error}."
        ) from None
    group = min(pattern.groups, 1)

    def score(response: str, answer: str) -> float:
        found = [match[group] for match in pattern.finditer(response)]
        return float(bool(found) and (found[-1] or "").strip() == answer.strip())

    return score


def mathematical(reward: Reward) -> Verifier:
    """1 where math-verify finds response and answer equal. Its alarms stay off: the judge's clock rules."""
    if importlib.util.find_spec("math_verify") is None:
        raise ConfigError("Reward needs the package math-verify with verifier math. `pip install math-verify`.")
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own timeout is off

    def score(response: str, answer: str) -> float:
        gold = answer.rpartition("####")[2].strip()
        # A bare \frac{1}{2} would be read as the number 2
        marked = gold if re.search(r"\$|\\boxed|\\\(|\\\[", gold) else f"\\boxed{{{gold}}}"
        right = parse(marked, parsing_timeout=None, raise_on_error=True)  # pyright: ignore[reportArgumentType]
        if not right:
            raise ValueError(f"math-verify reads nothing in the answer {excerpt(answer)}")
        given = parse(response, parsing_timeout=None)  # pyright: ignore[reportArgumentType]
        return float(verify(right, given, timeout_seconds=None))

    return score


VERIFIERS: dict[str, Callable[[Reward], Verifier]] = {
    "exact": exact,
    "numeric": numeric,
    "regex": regex,
    "math": mathematical,
}
