"""Commands are known by name before they are loaded, and what is said of them is what they say themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trimtab.cli.app import COMMANDS, load_command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_page_says_of_a_command_what_it_says_of_itself(name: str) -> None:
    assert load_command(name).help.splitlines()[0] == COMMANDS[name].summary


@pytest.mark.parametrize(
    ("arguments", "absent", "present"),
    [
        (["--help"], {"pydantic", "trimtab.config.algebra", "trimtab.cli.own"}, {"trimtab.cli.app"}),
        (["explain", "icepop"], {"trimtab.dialects", "trimtab.config.training"}, {"trimtab.cli.own", "pydantic"}),
    ],
)
def test_a_command_loads_what_it_needs_and_no_other(arguments: list[str], absent: set[str], present: set[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "trimtab", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert present <= loaded
    assert not absent & loaded
