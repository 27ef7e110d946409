"""Tasks made of digits: chain, ledger, sort, reverse, arithmetic. Small enough for a tiny policy, with nothing to download."""

from __future__ import annotations

import operator
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from trimtab.config.base import Config, excerpt
from trimtab.config.training import Task
from trimtab.errors import ConfigError
from trimtab.train.messages import Problem, Score
from trimtab.train.tasks.protocol import HELD_OUT_SHARE, binary, framed, is_held_out, stream

DIGITS = "0123456789"
OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_DRAWS = 1000  # by then a space of problems has shown its trainable ones, if it has any


class Generated(ABC):
    """Problems drawn at random: those whose text is held out never come up in training."""

    name: ClassVar[str]

    def __init__(self, characters: str, longest: int, template: str | None, seed: int) -> None:
        self.characters: str | None = "".join(sorted(set(characters + framed(template, ""))))
        self.max_tokens: int | None = longest + 1
        self._template = template
        self._seed = seed

    @abstractmethod
    def drawn(self, rng: random.Random) -> tuple[str, str]:
        """A prompt and its right answer."""

    @abstractmethod
    def demonstration(self, problem: Problem, slips: float, rng: random.Random) -> str:
        """A worked response, with a chance of `slips` at each step of going wrong."""

    def score(self, problem: Problem, response: str) -> Score:
        """1 for exactly the answer."""
        return binary(self.name, response == problem.answer)

    def problem(self, index: int) -> Problem:
        """Training problem number `index`."""
        rng = stream(self.name, self._seed, index)
        for _ in range(_DRAWS):
            prompt, answer = self.drawn(rng)
            if not is_held_out(prompt):
                return self._problem(prompt, answer)
        raise ConfigError(f"Task {self.name} needs more than a handful of problems. Raise its size.")

    def held_out(self, count: int) -> list[Problem]:
        """Up to `count` different problems never trained on; all there are where the task is small."""
        rng = stream(self.name, "held out")
        found: dict[str, str] = {}
        for _ in range(8 * HELD_OUT_SHARE * count + _DRAWS):
            if len(found) == count:
                break
            prompt, answer = self.drawn(rng)
            if is_held_out(prompt):
                found[prompt] = answer
        return [self._problem(prompt, answer) for prompt, answer in found.items()]

    def _problem(self, prompt: str, answer: str) -> Problem:
        return Problem(id=f"{self.name}:{prompt}", prompt=framed(self._template, prompt), answer=answer)


class DigitOptions(Config):
    """Options of the tasks chain, sort and reverse."""

    size: Annotated[int, Field(strict=True, ge=1, le=4096)] = Field(description="Digits in the prompt.")


class DigitRow(Generated):
    """A row of random digits and `=`; the answer is as long as the row."""

    default: ClassVar[int]

    def __init__(self, config: Task, seed: int) -> None:
        self.size = DigitOptions.from_settings({"size": self.default, **config.options}).size
        super().__init__(DIGITS + "=", self.size, config.template, seed)

    @abstractmethod
    def answered(self, row: str) -> str:
        """The right response to a row."""

    def drawn(self, rng: random.Random) -> tuple[str, str]:
        """A row and its right answer."""
        row = "".join(rng.choices(DIGITS, k=self.size))
        return f"{row}=", self.answered(row)

    def demonstration(self, problem: Problem, slips: float, rng: random.Random) -> str:
        """The answer, each digit wrong with the chance `slips`."""
        return _smudged(problem.answer, slips, rng)


class Chain(DigitRow):
    """Running sums modulo 10. Only the last is checked, so that what comes before it is thought, learnt or lost."""

    name, default = "chain", 24

    def answered(self, row: str) -> str:
        """The running sums."""
        return _running_sums(row)

    def demonstration(self, problem: Problem, slips: float, rng: random.Random) -> str:
        """The running sums; a slip is a wrong sum, and the sums after it go on from there."""
        return _slipped_sums(problem.answer, slips, rng)

    def score(self, problem: Problem, response: str) -> Score:
        """1 where the length and the last sum are right."""
        right = len(response) == len(problem.answer) and response[-1] == problem.answer[-1]
        return binary(self.name, right)


class LedgerOptions(Config):
    """Options of the task ledger."""

    size: Annotated[int, Field(strict=True, ge=1, le=4096)] = Field(default=5, description="Digits in each turn.")
    turns: Annotated[int, Field(strict=True, ge=1, le=256)] = Field(default=4, description="Turns of the policy.")


class Ledger(Generated):
    """Digits come in turns; the policy answers each with the sum brought forward and the running sums modulo 10 from there.

    Only the last sum of the last turn is checked. The digits of all turns but the first are replies of the environment.
    """

    name = "ledger"

    def __init__(self, config: Task, seed: int) -> None:
        self.options = LedgerOptions.from_settings(config.options)
        size, turns = self.options.size, self.options.turns
        replied, own = (turns - 1) * (size + 1), turns * (size + 2)  # `=`; the sum brought forward and the stop token
        super().__init__(DIGITS + "=", replied + own - 1, config.template, seed)

    def drawn(self, rng: random.Random) -> tuple[str, str]:
        """Such as `77=88=` in two turns of two digits, and of each a line: 0, then 7 and 14; 4, then 12 and 20."""
        row = "".join(rng.choices(DIGITS, k=self.options.size * self.options.turns))
        return "".join(f"{digits}=" for digits in self._by_turn(row)), self._lines(_running_sums(row))

    def demonstration(self, problem: Problem, slips: float, rng: random.Random) -> str:
        """The sums; a slip is a wrong one, which is brought forward."""
        sums = "".join(line[1:] for line in problem.answer.split("\n"))
        return self._lines(_slipped_sums(sums, slips, rng))

    def score(self, problem: Problem, response: str) -> Score:
        """1 where every turn has its length and the last sum is right."""
        lengths = [[len(turn) for turn in text.split("\n")] for text in (response, problem.answer)]
        return binary(self.name, lengths[0] == lengths[1] and response[-1] == problem.answer[-1])

    def _problem(self, prompt: str, answer: str) -> Problem:
        first, *rest = (f"{digits}=" for digits in prompt.removesuffix("=").split("="))
        return replace(super()._problem(prompt, answer), prompt=framed(self._template, first), replies=tuple(rest))

    def _lines(self, sums: str) -> str:
        """A line for each turn, led by the last sum of the one before; 0 before the first."""
        turns = self._by_turn(sums)
        return "\n".join(before[-1] + turn for before, turn in pairwise(["0", *turns]))

    def _by_turn(self, row: str) -> list[str]:
        size = self.options.size
        return [row[begin : begin + size] for begin in range(0, len(row), size)]


class Sort(DigitRow):
    """The digits in ascending order."""

    name, default = "sort", 12

    def answered(self, row: str) -> str:
        """The digits in ascending order."""
        return "".join(sorted(row))

    def demonstration(self, problem: Problem, slips: float, rng: random.Random) -> str:
        """The smallest digit left, again and again; a slip takes another one, which is then gone."""
        left, taken = list(problem.answer), ""
        while left:
            others = [digit for digit in left if digit != left[0]]
            slip = rng.random() < slips and others
            digit = rng.choice(others) if slip else left[0]
            left.remove(digit)
            taken += digit
        return taken


class Reverse(DigitRow):
    """The digits from the last to the first."""

    name, default = "reverse", 12

    def answered(self, row: str) -> str:
        """The digits from the last to the first."""
        return row[::-1]


class ArithmeticOptions(Config):
    """Options of the task arithmetic."""

    digits: Annotated[int, Field(strict=True, ge=1, le=1000)] = Field(
        default=2, description="Most digits of each number."
    )
    operations: str = Field(default="+-*", description="Which of + - * come up.")

    @field_validator("operations")
    @classmethod
    def _known(cls, given: str) -> str:
        if not given or set(given) - OPERATIONS.keys():
            raise ConfigError(
                f"ArithmeticOptions needs operations among + - *, got {excerpt(given)}. Write them in one word: '+-'."
            )
        return given


class Arithmetic(Generated):
    """Two numbers added, subtracted or multiplied."""

    name = "arithmetic"

    def __init__(self, config: Task, seed: int) -> None:
        self.options = ArithmeticOptions.from_settings(config.options)
        digits, operations = self.options.digits, self.options.operations
        longest = 2 * digits if "*" in operations else digits + 1  # a carry or a minus sign
        super().__init__(DIGITS + "-=" + operations, longest, config.template, seed)

    def drawn(self, rng: random.Random) -> tuple[str, str]:
        """Such as `12*3=` and `36`."""
        limit = 10**self.options.digits
        left, right, sign = rng.randrange(limit), rng.randrange(limit), rng.choice(self.options.operations)
        return f"{left}{sign}{right}=", str(OPERATIONS[sign](left, right))

    def demonstration(self, problem: Problem, slips: float, rng: random.Random) -> str:
        """The answer, each digit wrong with the chance `slips`."""
        return _smudged(problem.answer, slips, rng)


def _running_sums(row: str) -> str:
    """Of digits modulo 10: of 7788 they are 7, 14, 22 and 30, so 7420."""
    return "".join(str(total % 10) for total in accumulate(map(int, row)))


def _slipped_sums(sums: str, slips: float, rng: random.Random) -> str:
    """Running sums, each with a chance of `slips` of a mistake that all later ones carry on."""
    offset, found = 0, ""
    for right in sums:
        offset += rng.randrange(1, 10) if rng.random() < slips else 0
        found += str((int(right) + offset) % 10)
    return found


def _smudged(answer: str, slips: float, rng: random.Random) -> str:
    """The answer with each digit replaced by another one with the chance `slips`."""
    return "".join(
        str((int(digit) + rng.randrange(1, 10)) % 10) if digit in DIGITS and rng.random() < slips else digit
        for digit in answer
    )
