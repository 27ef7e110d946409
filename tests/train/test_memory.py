from __future__ import annotations

import gc
import platform
import weakref
from pathlib import Path

import pytest

from tests.train.small_runs import small
from trimtab.train.display import Silent
from trimtab.train.loop import train
from trimtab.train.memory import YOUNG, collect_step, keep_freed_memory, rare_collections


def test_the_c_library_takes_both_settings_where_it_knows_them():
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")


class Knot:
    """Holds itself."""

    def __init__(self) -> None:
        self.self = self


def test_cycles_of_a_step_stay_until_its_end_and_no_longer() -> None:
    with rare_collections():
        gone = weakref.ref(Knot())
        for _ in range(2000):
            Knot()  # more than Python's own limit
        assert gone() is not None
        collect_step()
        assert gone() is None


def test_the_collector_is_as_it_was_after_a_run_that_ends_and_one_that_fails(tmp_path: Path) -> None:
    before, seen = gc.get_threshold(), list[int]()

    class Looking(Silent):
        def step(self, step: int, metrics: object) -> None:
            seen.append(gc.get_threshold()[0])

    train(small(steps=1, evaluate=None), tmp_path / "run", display=Looking())
    assert seen == [YOUNG]
    assert gc.get_threshold() == before != (YOUNG, *before[1:])
    with pytest.raises(KeyError), rare_collections():
        raise KeyError
    assert gc.get_threshold() == before
