"""How the command line prints: coloured and wrapped on a terminal, plain and never cut in a pipe or a file.

Every text passes `visible` on its way: names, settings and errors come from outside, and a terminal obeys what it is sent.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from trimtab.config.visible import visible
from trimtab.errors import TrimtabError

if TYPE_CHECKING:  # which would load every setting
    from trimtab.explain.words import Passage

READ_IN_PART = 3
"""A part of the settings could not be read and the rest was."""
WRITTEN_IN_PART = 4
"""Everything was read and the target can say only some of it."""
UNCUT = 10_000
"""Columns of a page that is not a terminal: wider than any line, so that nothing wraps."""


class Page(Console):
    """A stream on which text is shown and never obeyed; only rich's own controls act. It says when nobody reads any more."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of what is printed, each made visible."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(visible(piece.text), piece.style)

    def on_broken_pipe(self) -> None:
        """Raise what was raised, where rich would end the process."""
        raise  # noqa: PLE0704


def console(*, stderr: bool = False) -> Page:
    """The stream as rich sees it now; markup and emoji off, since formulas hold brackets and colons."""
    stream = sys.stderr if stderr else sys.stdout
    plain = Console(file=stream)
    return Page(
        file=stream,
        width=plain.width if plain.is_terminal else UNCUT,
        highlight=False,
        markup=False,
        emoji=False,
    )


def is_narrow() -> bool:
    """Whether stdout is a terminal too narrow for a wide table."""
    page = console()
    return page.is_terminal and page.width < 150


def put(*parts: RenderableType) -> None:
    """Print to stdout; a page that is not a terminal has no trailing blanks."""
    page = console()
    if page.is_terminal:
        page.print(*parts, sep="\n")
        return
    drawn = Page(file=io.StringIO(), width=UNCUT, highlight=False, markup=False, emoji=False)
    with drawn.capture() as captured:
        drawn.print(*parts, sep="\n")
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def put_raw(text: str) -> None:
    """Print text for machines as it is, and for a person visibly."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text.encode(errors="backslashreplace").decode())


def note(text: str) -> None:
    """A remark on stderr: what was done is legal and probably not meant."""
    console(stderr=True).print(Text(_indent(f"note: {text}"), style="yellow"))


def complain(text: str) -> None:
    """An error on stderr."""
    console(stderr=True).print(Text.assemble(("error: ", "bold red"), _indent(text)))


def _indent(text: str) -> str:
    """Further lines set in, so that no name with a line's end in it can pass for a message of ours."""
    return visible(text).replace("\n", "\n  ")


def with_style(text: str, style: str) -> Text:
    """A word in a colour."""
    return Text(text, style=style)


def heading(text: str) -> Text:
    """A title."""
    return Text(text, style="bold cyan")


def table(columns: Sequence[str], rows: Sequence[Sequence[RenderableType]], *, first_style: str = "bold") -> Table:
    """A table with its first column set off and never wrapped."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
    for place, column in enumerate(columns):
        grid.add_column(column, style=first_style if place == 0 else None, no_wrap=place == 0, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def lines(section: Passage, styles: Mapping[str, str] | None = None) -> list[RenderableType]:
    """A section under its title, labels in one column, each in its style; nothing for a section without lines."""
    if not section.lines:
        return []
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in section.lines:
        grid.add_row(Text(f"  {label}", style=(styles or {}).get(label, "dim")), text)
    return [Text(""), heading(section.title), grid]


def write_file(path: Path, text: str) -> None:
    """Write a file by way of a neighbour, so that a reader never sees half of it."""
    target = Path(os.path.realpath(path))
    neighbour = target.with_name(
        f".{target.name}.{secrets.token_hex(8)}.part"
    )  # a name that nobody can put a link at before
    try:
        if target.exists() and not target.is_file():  # a pipe or a device has nothing to replace
            path.write_text(text, encoding="utf-8")
            return
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
            with open(os.open(neighbour, flags, 0o666), "w", encoding="utf-8", newline="") as file:
                file.write(text)
            if target.exists():
                shutil.copymode(target, neighbour)
            neighbour.replace(target)
        finally:
            neighbour.unlink(missing_ok=True)
    except OSError as error:
        raise TrimtabError(
            f"{path} cannot be written: {error.strerror}. Check the folder and its permissions."
        ) from None
