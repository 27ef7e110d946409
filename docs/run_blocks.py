"""Run the code of Markdown files: `python docs/run_blocks.py README.md docs/*.md`.

Every ```python block runs, those of one file in one namespace, with warnings as errors. In ```console blocks every line
`$ trimtab …` runs and must exit with 0, or with N where the line ends in `# exit N`. Commands run in an empty folder that
holds only `examples/`. Exit code 1 if anything fails.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(?P<kind>\w+)[^\n]*\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
EXPECTED = re.compile(r"#\s*exit\s+(\d+)\s*$")


@dataclass(frozen=True)
class Block:
    """A piece of code in a page, by the line it starts on."""

    page: Path
    line: int
    kind: str
    code: str

    @property
    def place(self) -> str:
        """Where to look."""
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The runnable blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        if found["kind"] in ("python", "console"):
            yield Block(page, text.count("\n", 0, found.start("code")) + 1, found["kind"], found["code"])


def python_problem(block: Block, namespace: dict[str, object], folder: str) -> str | None:
    """Run a block in a folder of its page's own; what went wrong, if anything."""
    printed = io.StringIO()
    # Padded with empty lines, so that a traceback names the line of the page.
    code = "\n" * (block.line - 1) + block.code
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed), contextlib.chdir(folder):
            warnings.simplefilter("error")
            exec(compile(code, str(block.page), "exec"), namespace)
    except Exception:
        return f"{printed.getvalue()}{traceback.format_exc(limit=-3)}"
    return None


def commands(block: Block) -> Iterator[tuple[list[str], int]]:
    """The `trimtab` lines of a console block with the exit code each should have."""
    for line in block.code.splitlines():
        if line.startswith("$ trimtab"):
            expected = EXPECTED.search(line)
            yield shlex.split(line, comments=True)[2:], int(expected[1]) if expected else 0


def console_problem(block: Block) -> str | None:
    """Run the commands of a block; what went wrong, if anything."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        for arguments, expected in commands(block):
            ran = subprocess.run(
                [sys.executable, "-m", "trimtab.cli", *arguments],
                cwd=folder,
                env=_environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            if ran.returncode != expected:
                return f"`trimtab {shlex.join(arguments)}` exited with {ran.returncode}, not {expected}.\n{ran.stderr}"
    return None


def _environment() -> dict[str, str]:
    """This process's environment with its import paths made absolute: the commands run in another folder."""
    paths = os.environ.get("PYTHONPATH")
    found = dict(os.environ)
    if paths:
        found["PYTHONPATH"] = os.pathsep.join(str(Path(path).resolve()) for path in paths.split(os.pathsep))
    return found


def failures(page: Path) -> tuple[int, list[str]]:
    """How many blocks a page has, and what went wrong in it."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    number, found = 0, list[str]()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        for block in blocks(page):
            number += 1
            is_python = block.kind == "python"
            problem = python_problem(block, namespace, folder) if is_python else console_problem(block)
            if problem is not None:
                found.append(f"{block.place}: {problem}")
    return number, found


def main(pages: list[str]) -> int:
    """Run every page and print a line for each."""
    failed = 0
    for name in pages:
        number, found = failures(Path(name))
        failed += len(found)
        print(f"{name}: {number} blocks, {len(found)} failed" if found else f"{name}: {number} blocks, all ran")
        for problem in found:
            print(problem, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
