"""The words of a command as docs/plugins.md has it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"


def words(framework: str) -> list[str]:
    """What follows `python -m MODULE` in the section of that framework."""
    section = PAGE.read_text().split(f"\n## {framework}\n")[1].split("\n## ")[0]
    command = re.search(r"^python -m [\w.]+ (.*?)\n```", section, re.DOTALL | re.MULTILINE)
    assert command is not None, f"no command under {framework}"
    return shlex.split(command[1].replace("\\\n", " "))
