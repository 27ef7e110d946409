"""The source lines of logged names are those of the installed releases."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from trimtab.logged.names import SUFFIXES, logged_names

LATER = Path(__file__).parents[2] / ".venv-skyrl"
"""SkyRL 0.4.0, whose lines the page names, beside the 0.3.0 of this environment."""
LINED = [row for row in logged_names() if re.search(r":\d", row.source)]


@pytest.mark.parametrize("package", ["verl", "trl", "areal", "skyrl", "swift", "openrlhf"])
def test_the_last_part_of_a_name_stands_within_three_lines(package: str) -> None:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed here")
    root = LATER if package == "skyrl" else Path(spec.origin).parents[1]
    wrong, checked = list[str](), 0
    for row in (each for each in LINED if each.source.startswith(f"{package}/")):
        file, _, numbers = row.source.partition(":")
        text = (root / file).read_text(encoding="utf-8").split("\n")
        ends = (*SUFFIXES, "/min", "/max", "/*")
        bare = next((row.name.removesuffix(end) for end in ends if row.name.endswith(end)), row.name)
        last = bare.rpartition("/")[2].replace("rollout_rs_*_", "").replace("seq_*", "seq_mean").removeprefix("ppo_")
        wrong += [row.source for n in map(int, numbers.split(", ")) if last not in "".join(text[n - 4 : n + 3])]
        checked += 1
    assert wrong == []
    assert checked > 4
