"""The fuzz sees what it looks for: planted faults of every kind are found, each by its case."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator

import pytest
import typer

from tests.fuzz import runner
from tests.fuzz.cases import Case
from tests.fuzz.runner import CANARY, run
from trimtab.cli.app import app
from trimtab.errors import ConfigError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits and forks are those of Linux")


def spin() -> None:
    while True:
        pass


def spin_unheeding() -> None:
    """In C, where no handler of Python is called."""
    sum(range(10**12))


def fill() -> None:
    held = [bytes(1 << 28) for _ in range(64)]
    raise AssertionError(len(held))


def crash() -> None:
    ctypes.string_at(0)


def throw() -> None:
    raise TypeError("'NoneType' object is not iterable")


def start() -> None:
    os.system("true")


def tell() -> None:
    typer.echo(os.environ["TRIMTAB_CANARY"])


def leave() -> None:
    with open("canary-ran", "w"):
        pass


def colour() -> None:
    sys.stderr.write("note: \x1b[31mred\n")


def refuse() -> None:
    raise ConfigError("It needs to be refused, got nothing.")


def nothing() -> None:
    pass


PLANTED: dict[Callable[[], None], str] = {
    spin: "took more than",
    spin_unheeding: "SIGXCPU",
    fill: "MemoryError",
    crash: "SIGSEGV",
    throw: "TypeError at",
    start: "started os.system",
    tell: "the environment was told",
    leave: "the canary ran",
    colour: "a control reached stderr",
    refuse: "",
    nothing: "",
}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Commands with a fault each, and cases that call them."""
    known = list(app.registered_commands)
    names = [fault.__name__.replace("_", "-") for fault in PLANTED]
    for fault in PLANTED:
        app.command()(fault)
    monkeypatch.setattr(runner, "case", lambda _, number: Case(number, [names[number]]))
    monkeypatch.setattr(runner, "SECONDS", 0.3)
    monkeypatch.setattr(runner, "ENOUGH", 2)
    yield names
    app.registered_commands[:] = known


def test_a_planted_fault_is_found_by_its_case_and_the_cases_after_it_still_run(planted: list[str]) -> None:
    assert CANARY not in os.environ.values()
    found = sorted(run(0, range(len(planted)), workers=2, batch=4), key=lambda each: each.number)
    assert [each.number for each in found] == list(range(len(planted)))
    for each, expected in zip(found, PLANTED.values(), strict=True):
        assert expected in each.problem, planted[each.number]
        assert bool(expected) == bool(each.problem), (planted[each.number], each)
