"""docs/frameworks.md says what the dialects say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.dialects.examples import EXAMPLES
from trimtab.dialects import DIALECTS, read

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "docs" / "frameworks.py", "--check"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", DIALECTS)
def test_every_accusation_stands_on_the_page_with_its_place(name: str) -> None:
    page = (ROOT / "docs/frameworks.md").read_text()
    section = page.partition(f"\n## {DIALECTS[name].title}\n")[2].partition("\n## ")[0]
    accused = [each for each in DIALECTS[name].remarks if each.level != "note"]
    assert accused
    for each in accused:
        row = f"| {each.level} | `{each.key}` | {each.text.partition('{')[0]}".replace("\n", " ")
        assert any(line.startswith(row.rstrip()) and each.source in line for line in section.splitlines()), row


@pytest.mark.parametrize("name", DIALECTS)
def test_every_example_reads(name: str) -> None:
    examples = EXAMPLES[name]
    assert examples.corrections
    for settings in [*examples.corrections.values(), *examples.objectives.values()]:
        reading = read(name, settings)
        assert (reading.correction, reading.loss, reading.advantage) != (None, None, None) or reading.defects


def test_trl_sequence_mask_can_be_looked_up() -> None:
    row = next(
        line
        for line in (ROOT / "docs/frameworks.md").read_text().splitlines()
        if "sampling_mode: sequence_mask`" in line
    )
    assert "e^(Σ ℓ over the sequence) ≤ 3" in row
