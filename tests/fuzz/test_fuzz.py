"""Thousands of spoilt files, flags and overrides through every command and all frameworks: a result or one sentence, each time.

A case is a seed and a number. To look at one: `TRIMTAB_FUZZ_SEED=0 TRIMTAB_FUZZ_CASE=123 pytest -s tests/fuzz -k one_case`.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict

import pytest

from tests.fuzz.cases import case
from tests.fuzz.runner import Outcome, run
from tests.waiting import HEARD

SEED = int(os.environ.get("TRIMTAB_FUZZ_SEED", "0"))
SAMPLE = int(os.environ.get("TRIMTAB_FUZZ_SAMPLE", "300"))
CASES = int(os.environ.get("TRIMTAB_FUZZ_CASES", "20000"))
WORKERS = int(os.environ.get("TRIMTAB_FUZZ_WORKERS", "0")) or min(os.cpu_count() or 1, 8)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits and forks are those of Linux")


def told(seed: int, found: list[Outcome]) -> str:
    """Each kind of finding once, with the smallest case that shows it."""
    kinds: dict[str, list[Outcome]] = defaultdict(list)
    for each in found:
        kinds[each.problem].append(each)
    lines = [f"{len(found)} cases of seed {seed} ended badly, in {len(kinds)} ways:"]
    for problem, group in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
        least = min(group, key=lambda each: size(seed, each.number))
        one = case(seed, least.number)
        lines.append(f"\n{len(group)} × {problem}   {least.trace}")
        lines.append(f"  smallest: case {least.number}, trimtab {' '.join(map(shortened, one.words))}")
        lines += [
            f"  {name}: {shortened(data.decode('utf-8', 'backslashreplace'), 600)}" for name, data in one.files.items()
        ]
    return "\n".join(lines)


def size(seed: int, number: int) -> int:
    one = case(seed, number)
    return sum(map(len, one.words)) + sum(map(len, one.files.values()))


def shortened(text: str, most: int = 200) -> str:
    shown = repr(text)
    return shown if len(shown) <= most else f"{shown[:most]}… ({len(text)} characters)"


def fuzzed(seed: int, count: int) -> None:
    begun = time.monotonic()
    every: list[Outcome] = []
    for outcome in run(seed, range(count), workers=WORKERS):
        every.append(outcome)
        HEARD.set()
        if len(every) % 1000 == 0:
            sys.stderr.write(
                f"\rfuzz: {len(every)} of {count} cases, {sum(bool(each.problem) for each in every)} findings"
            )
    assert len(every) == count
    slowest = max(every, key=lambda each: each.seconds)
    sys.stderr.write(
        f"\nfuzz: seed {seed}, {count} cases in {time.monotonic() - begun:.0f} s, {sum(each.seconds for each in every):.0f} s of "
        f"processor time; slowest case {slowest.number} with {slowest.seconds:.2f} s\n"
    )
    bad = [each for each in every if each.problem]
    assert not bad, told(seed, bad)


def test_a_sample_of_spoilt_settings_ends_in_a_result_or_one_sentence() -> None:
    fuzzed(SEED, SAMPLE)


@pytest.mark.slow
@pytest.mark.timeout(14_400)
def test_thousands_of_spoilt_settings_end_in_a_result_or_one_sentence() -> None:
    fuzzed(SEED + 1, CASES)


def test_a_case_is_its_seed_and_number() -> None:
    assert [case(SEED, number) for number in range(50)] == [case(SEED, number) for number in range(50)]
    assert len({repr(case(SEED, number)) for number in range(200)}) > 190


@pytest.mark.skipif("TRIMTAB_FUZZ_CASE" not in os.environ, reason="names no case")
def test_one_case() -> None:
    number = int(os.environ["TRIMTAB_FUZZ_CASE"])
    found = list(run(SEED, [number], workers=1))
    assert not found[0].problem, told(SEED, found)
