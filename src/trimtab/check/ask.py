"""Asking a function what a law asks, over many batches; the first that breaks it is shrunk to the smallest.

draw ──► two calls ──► agree? ──► holds
                         └─ no ─► shrink ──► counterexample
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from torch import Tensor

from trimtab.check.compare import Disagreement, disagreement, is_usable, with_derived
from trimtab.check.draw import Inputs
from trimtab.check.laws import LAWS, Law
from trimtab.check.question import Call, Pair, Question
from trimtab.check.shrink import shrink
from trimtab.check.stand_ins import newer_typed_dicts, not_installed, without
from trimtab.check.subject import KIND_NAMES, Asked, Kind, Setup, Subject
from trimtab.errors import ConfigError

Word = Literal["holds", "broken", "does not apply"]


@dataclass(frozen=True, eq=False)
class Counterexample:
    """The smallest batch on which a question is answered wrongly."""

    pair: Pair
    difference: Disagreement | None
    """None where the call raised."""
    error: str | None = None

    @property
    def kind(self) -> tuple[bool, ...]:
        """Whether calls raise and which numbers are finite: what stays the same while a counterexample is made smaller."""
        if self.difference is None:
            return (False,)
        return True, math.isfinite(self.difference.first), math.isfinite(self.difference.other)

    @property
    def sentence(self) -> str:
        """What was seen, in numbers."""
        if self.difference is None:
            return f"{self.pair.labels[0]}: {self.error}"
        seen = self.difference
        return f"{seen.where}: {seen.first:.6g} {self.pair.labels[0]}, {seen.other:.6g} {self.pair.labels[1]}"


@dataclass(frozen=True, eq=False)
class Judgement:
    """What came of one question under one setup."""

    question: Question
    setup: Setup
    ruling: Word
    why: str
    asked: Asked | None = None
    counterexample: Counterexample | None = None


@dataclass(frozen=True, eq=False)
class Ruling:
    """What came of one law."""

    law: Law
    answers: tuple[Judgement, ...]

    @property
    def ruling(self) -> Word:
        """Broken if any answer is; holds if one holds and none is broken."""
        found = {answer.ruling for answer in self.answers}
        return "broken" if "broken" in found else "holds" if "holds" in found else "does not apply"

    @property
    def why(self) -> str:
        """In numbers if broken, the reason if it does not apply."""
        if self.ruling == "holds":
            return ""
        return next(answer.why for answer in self.answers if answer.ruling == self.ruling)

    @property
    def broken(self) -> list[Judgement]:
        """The broken answers."""
        return [answer for answer in self.answers if answer.ruling == "broken"]


@dataclass(frozen=True)
class Caller:
    """A function with its adapter, ready to be called under one setup."""

    asked: Asked
    function: Any
    settings: dict[str, Any]

    def __call__(self, call: Call) -> dict[str, Any]:
        """The results; each call gets tensors of its own."""
        tensors = {name: value.clone() for name, value in call.tensors.items()}
        split = {} if call.split is None else {"split": call.split}
        try:
            found = self.asked.adapter(self.function, **tensors, **split, settings=dict(self.settings))
        except SystemExit as error:  # of a function, an error like any other
            raise RuntimeError(f"it ended the program with {error.code!r}") from error
        return with_derived(found)


def check(
    subject: Subject,
    *,
    laws: Iterable[Law] | None = None,
    cases: int = 50,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Ruling]:
    """Every law, asked of a subject. `progress` is told each question as it is asked."""
    if subject.distribution is not None and version_named(subject) is None:
        tried = f"=={subject.tried[-1]}" if subject.tried else ""
        raise ConfigError(
            f"check {subject.name} needs the package {subject.distribution}, got an environment without it. "
            f"Install it: pip install {subject.distribution}{tried}"
        )
    missing = not_installed(subject.optional)
    with without(missing, subject.packages), newer_typed_dicts(subject.typed_dicts):
        loaded: dict[Kind, Any] = {kind: _load(asked) for kind, asked in subject.functions.items()}
        _probe(subject, loaded, seed)
        return [
            _rule(law, subject, loaded, functools.partial(_case, seed), cases, progress)
            for law in (LAWS.values() if laws is None else laws)
        ]


def version_named(subject: Subject) -> str | None:
    """The installed version of the subject's package."""
    if subject.distribution is None:
        return None
    try:
        return importlib.metadata.version(subject.distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _case(seed: int, question: Question, number: int) -> Random:
    return Random(f"{seed}-{question.name}-{number}")


def _load(asked: Asked) -> Any:
    """Import the function. What the user named is imported from the current folder too, as `python -m` does."""
    module, _, name = asked.target.partition(":")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # a script without a main guard ends the program
        raise ConfigError(
            f"check needs to import {asked.target}, got {type(error).__name__}: {error}. "
            "Write MODULE:NAME, of a module in this folder or of an installed package."
        ) from error
    finally:
        sys.path.remove(here)
    return found


def _probe(subject: Subject, loaded: Mapping[Kind, Any], seed: int) -> None:
    """One ordinary call of each function: where that fails, every law would only repeat it."""
    for kind, asked in subject.functions.items():
        question = next(q for law in LAWS.values() for q in law.questions if q.kind == kind and not q.refusable)
        for setup in asked.setups:
            pairs = (
                question.pair(question.draw(_case(seed, question, number), subject), setup) for number in range(50)
            )
            pair = next(each for each in pairs if each is not None)
            try:
                Caller(asked, loaded[kind], dict(setup.settings))(pair.first)
            except Exception as error:
                raise ConfigError(
                    f"check needs a function it can call like {subject.name}, got {type(error).__name__}: {error} from "
                    f"{asked.target} ({setup.name}). See `trimtab check --help` for the conventions."
                ) from error


def _rule(
    law: Law,
    subject: Subject,
    loaded: Mapping[Kind, Any],
    case: Callable[[Question, int], Random],
    cases: int,
    progress: Callable[[str], None],
) -> Ruling:
    answers: list[Judgement] = []
    for question in law.questions:
        asked = subject.functions.get(question.kind)
        if asked is None:
            reason = subject.not_asked.get(
                question.kind, f"{KIND_NAMES[question.kind]} is needed for this, and none was given"
            )
            answers.append(Judgement(question, Setup("none"), "does not apply", reason))
            continue
        if question.name in subject.not_asked:
            answers.append(
                Judgement(question, Setup("none"), "does not apply", subject.not_asked[question.name], asked)
            )
            continue
        for setup in asked.setups:
            progress(f"{law.name}: {question.name}")
            reason = question.needs(subject, setup)
            if reason is not None:
                answers.append(Judgement(question, setup, "does not apply", reason, asked))
                continue
            caller = Caller(asked, loaded[question.kind], dict(setup.settings))
            drawn = (question.draw(case(question, number), subject) for number in range(cases))
            answers.append(_answer(question, setup, caller, drawn))
    return Ruling(law, tuple(answers))


def _answer(question: Question, setup: Setup, caller: Caller, cases: Iterable[Inputs]) -> Judgement:
    spoke = moved = False
    drawn_cases = list(cases)
    if question.control is not None and not _differs(question, caller, drawn_cases):
        why = "its result does not depend on what this law is about"
        return Judgement(question, setup, "does not apply", why, caller.asked)
    for drawn in drawn_cases:
        pair = question.pair(drawn, setup)
        if pair is None:
            continue
        spoke = True
        found, result = _fault(question, pair, caller)
        moved = moved or question.on_trial or (result is not None and _moves(result))
        if found is not None:
            smallest = _smallest(question, setup, caller, drawn, found)
            return Judgement(question, setup, "broken", smallest.sentence, caller.asked, smallest)
    if not spoke or not moved:
        why = "its result was 0 on every batch drawn" if spoke else "no batch drawn could decide it"
        return Judgement(question, setup, "does not apply", why, caller.asked)
    return Judgement(question, setup, "holds", "", caller.asked)


def _differs(question: Question, caller: Caller, cases: list[Inputs]) -> bool:
    """Whether the control differs on some batch."""
    assert question.control is not None
    for drawn in cases:
        first, other = question.control(drawn)
        if disagreement(caller(first), caller(other), question.compared, Pair(first, (other,))) is not None:
            return True
    return False


def _moves(result: Mapping[str, Any]) -> bool:
    """Whether a result says anything: a function that returns zeros obeys every law."""
    value: Tensor = result.get("gradient", result.get("advantages", result.get("ages")))  # pyright: ignore[reportAssignmentType]
    return bool((value != 0).any())


def _fault(question: Question, pair: Pair, caller: Caller) -> tuple[Counterexample | None, dict[str, Any] | None]:
    """What is wrong with the answer on one batch, and the result of the first call."""
    try:
        first = caller(pair.first)
    except Exception as error:
        if question.refusable:
            return None, None
        return Counterexample(pair, None, f"{type(error).__name__}: {error}"), None
    if not question.on_trial and not is_usable(first):
        return None, first
    if not pair.others:
        found = disagreement(first, pair.expected, question.compared, pair)
        return (None if found is None else Counterexample(pair, found)), first
    worst: Counterexample | None = None
    for other in reversed(pair.others):  # the first is what is reported
        try:
            result = caller(other)
            if question.on_trial and not is_usable(result):
                return None, first
            found = disagreement(first, result, question.compared, pair)
        except Exception as error:
            swapped = Pair(other, (pair.first,), labels=(pair.labels[1], pair.labels[0]))
            worst = Counterexample(swapped, None, f"{type(error).__name__}: {error}")
            continue
        if found is None:
            return None, first
        worst = Counterexample(pair, found)
    return worst, first


def _smallest(question: Question, setup: Setup, caller: Caller, drawn: Inputs, found: Counterexample) -> Counterexample:
    """The counterexample shrunk; it stays one of the same kind: numbers that differ, or a call that raises."""
    best = [found]

    def breaks(smaller: Inputs) -> bool:
        try:
            pair = question.pair(smaller, setup)
        except Exception:
            return False
        if pair is None:
            return False
        seen, _ = _fault(question, pair, caller)
        if seen is None or seen.kind != found.kind:
            return False
        best[0] = seen
        return True

    shrink(drawn, breaks)
    return best[0]
