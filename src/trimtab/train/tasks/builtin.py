"""Tasks made of digits: chain, sort, reverse, arithmetic. Small enough for a tiny policy, with nothing to download."""

from __future__ import annotations

import operator
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
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
        total, sums = 0, ""
        for digit in row:
            total = (total + int(digit)) % 10
            sums += str(total)
        return sums

    def demonstration(self, problem: Problem, slips: float, rng: random.Random) -> str:
        """The running sums; a slip is a wrong sum, and the sums after it go on from there."""
        offset, sums = 0, ""
        for right in problem.answer:
            offset += rng.randrange(1, 10) if rng.random() < slips else 0
            sums += str((int(right) + offset) % 10)
        return sums

    def score(self, problem: Problem, response: str) -> Score:
        """1 where the length and the last sum are right."""
        right = len(response) == len(problem.answer) and response[-1] == problem.answer[-1]
        return binary(self.name, right)


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


def _smudged(answer: str, slips: float, rng: random.Random) -> str:
    """The answer with each digit replaced by another one with the chance `slips`."""
    return "".join(
        str((int(digit) + rng.randrange(1, 10)) % 10) if digit in DIGITS and rng.random() < slips else digit
        for digit in answer
    )
