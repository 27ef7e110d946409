"""The changes that `make mutants` tries, and those that it is told mean nothing."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / ".ci"))

from changes import PARTS, Source, all_changes, drawn  # noqa: E402

TEXT = b"""
def held(value: float = 2.0) -> float:
    assert value > 0
    if value is None or len(names) > 3:
        return (low + value).clamp(-1, 1)
    if value == 7:
        raise ValueError(f"{value} of {7 + 1}")
    return np.clip(value, 0, "a" + "b") if known else value * 0.5
"""


def test_each_kind_of_change_stands_where_it_can_be_made():
    source = Source("core/held.py", TEXT)
    found = {str(each).partition("  ")[2]: each for each in source.changes(ast.parse(TEXT))}
    assert set(found) == {
        "change constant: 2.0 → 4.0",
        "return early: value is None or len(names) > 3 → True",
        "one branch: value is None or len(names) > 3 → False",
        "or by and: value is None or len(names) > 3 → value is None and len(names) > 3",
        "flip comparison: value is None → value is not None",
        "flip comparison: len(names) > 3 → len(names) >= 3",
        "off by one: len(names) → (len(names) - 1)",
        "change constant: 3 → 4",
        "drop clamp: (low + value).clamp(-1, 1) → (low + value)",
        "swap operator: low + value → low - value",
        "change constant: 1 → 2",
        "drop check: value == 7 → False",
        "flip comparison: value == 7 → value != 7",
        "change constant: 7 → 8",
        'drop clamp: np.clip(value, 0, "a" + "b") → (value)',
        "change constant: 0 → 1",
        "one branch: known → True",
        "one branch: known → False",
        "swap operator: value * 0.5 → value / 0.5",
        "change constant: 0.5 → 1.0",
    }
    for change in found.values():
        assert ast.dump(ast.parse(change.made(TEXT))) != ast.dump(ast.parse(TEXT)), change
    assert found["change constant: 3 → 4"].spans == ((4, 4), (4, 5), (2, 8))


def test_the_same_seed_draws_the_same_changes_by_the_shares_of_the_folders():
    known = all_changes()
    chosen = drawn(known, 40, seed=3)
    assert [str(each) for each in chosen] == [str(each) for each in drawn(all_changes(), 40, seed=3)]
    assert [str(each) for each in chosen] != [str(each) for each in drawn(known, 40, seed=4)]
    assert len(set(chosen)) == 40
    counted = {part: sum(each.file.startswith(f"{part}/") for each in chosen) for part in PARTS}
    assert counted == {
        "core/fast": 4,
        "core": 14,
        "log_probs": 4,
        "losses": 8,
        "advantage": 6,
        "config": 6,
        "explain": 2,
    }


def test_what_is_listed_as_meaning_nothing_still_stands_in_the_code_and_has_a_reason():
    known = {each.name for each in all_changes()}
    listed = tomllib.loads((ROOT / ".ci/mutants.toml").read_text())["equivalent"]
    names = [f"{each['file']} | {each['line']} | {each['change']}" for each in listed]
    assert sorted(set(names)) == sorted(names)
    assert set(names) <= known
    assert all(each["why"].endswith(".") for each in listed)
