"""Verifiers as they might be written, some of which run the answer. Read by the search for evaluators, never called."""

import ast
import json
import os
import subprocess
from ast import literal_eval

import sympy
from sympy import parse_expr as parsed
from sympy import sympify


class Base:
    def score_answer(self, answer, entry):
        return float(answer == entry["answer"])

    def value(self, text):
        return eval(text)


class Parser:
    def __init__(self, text=None):
        self.text = text

    def read(self, text):
        return eval(text)


def cut(text, *, deep):
    return ast.unparse(ast.parse(text)) if deep else exec(text)


class Direct(Base):
    def score_answer(self, answer, entry):
        return eval(answer)


class Derived(Base):
    def score_answer(self, answer, entry):
        lines = [line.strip() for line in answer.splitlines()]
        total = 0
        for line in lines:
            total += eval(line or "0")
        return total


class ByMethod(Base):
    def score_answer(self, answer, entry):
        return self.value(answer)


class ByParent(Base):
    def score_answer(self, answer, entry):
        return super().value(answer)


class ByFunction(Base):
    def score_answer(self, answer, entry):
        return cut(deep=False, text=answer.strip())


class ByObject(Base):
    def score_answer(self, answer, entry):
        parser = Parser()
        return parser.read(answer)


class ByNestedFunction(Base):
    def score_answer(self, answer, entry):
        def run(code):
            return eval(code)

        return run(answer)


class ByAlias(Base):
    def score_answer(self, answer, entry):
        run = eval
        return run(answer)


class ByMap(Base):
    def score_answer(self, answer, entry):
        return sum(map(eval, answer.split()))


class ByList(Base):
    def score_answer(self, answer, entry):
        parts = []
        parts.append(answer)
        return eval(parts[0])


class ByCompile(Base):
    def score_answer(self, answer, entry):
        return compile(answer, "answer", "eval") is not None


class BySympify(Base):
    def score_answer(self, answer, entry):
        return sympify(answer) == 1


class ByParseExpr(Base):
    def score_answer(self, answer, entry):
        try:
            return parsed(answer, local_dict={}) == 1
        except Exception:
            return 0.0


class BySympysOther(Base):
    def score_answer(self, answer, entry):
        return sympy.simplify(f"({answer}) - 1") == 0


class ByShell(Base):
    def score_answer(self, answer, entry):
        return os.system(answer)


class ByProgram(Base):
    def score_answer(self, answer, entry):
        return subprocess.run(["python", "-c", answer], check=False).returncode


class Plain(Base):
    def score_answer(self, answer, entry):
        return float(answer.strip() == entry["answer"])


class Literal(Base):
    def score_answer(self, answer, entry):
        return literal_eval(answer) == json.loads(answer) == ast.literal_eval(answer)


class OfTheProblem(Base):
    """Evaluates its own text, not the model's."""

    def score_answer(self, answer, entry):
        target = eval(entry["problem"])
        return abs(float(answer) - target) < 1e-6


class OfNumbers(Base):
    """A number holds no code."""

    def score_answer(self, answer, entry):
        return sympy.isprime(int(answer))


class Inherited(Base):
    pass


RUNS = (
    Direct,
    Derived,
    ByMethod,
    ByParent,
    ByFunction,
    ByObject,
    ByNestedFunction,
    ByAlias,
    ByMap,
    ByList,
    ByCompile,
    BySympify,
    ByParseExpr,
    BySympysOther,
    ByShell,
    ByProgram,
)
RUNS_NOT = (Plain, Literal, OfTheProblem, OfNumbers, Inherited)
