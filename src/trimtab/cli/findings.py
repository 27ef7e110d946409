"""Findings as the command line lists them: the worst first and whole, since the remedy ends the sentence; notes on one line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from trimtab.dialects import Finding

WORST_FIRST = ("risk", "defect", "surprise", "note")
STYLES = {
    **dict.fromkeys(("not read", "correction", "loss", "advantage"), "bold red"),
    "left out": "bold red",
    "changed": "bold magenta",
    "in numbers": "magenta",
    "instead": "cyan",
    "risk": "bold red",
    "defect": "bold red",
    "surprise": "yellow",
    "note": "dim",
}
LONGEST_KEY = 26
"""A key is named with the section above it where both fit in this."""


@dataclass(frozen=True)
class RemarkLine:
    """A label in its colour, the key it is about, and a sentence."""

    label: str
    key: str
    text: str


def from_findings(findings: Iterable[Finding]) -> list[RemarkLine]:
    """Findings in the order in which they should be read."""
    ordered = sorted(findings, key=lambda each: WORST_FIRST.index(each.level))
    return [RemarkLine(each.level, each.key, each.sentence) for each in ordered]


@dataclass(frozen=True)
class Lines:
    """Remarks under one another. On a terminal a note takes one line, as wide as it is, unless all of it is wanted."""

    remarks: Sequence[RemarkLine]
    whole: bool = False
    indent: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One line each in a pipe; on a terminal, which is narrow, only notes are cut to one."""
        cut = False
        for each in self.remarks:
            if self.whole or not console.is_terminal or each.label != "note":
                yield self._line(each, each.key, each.text)
                continue
            short = self._line(each, short_key(each.key), "")
            room = options.max_width - short.cell_len
            text = shorten(each.text, room)
            cut = cut or text != each.text
            yield self._line(each, short_key(each.key), text)
        if cut:
            yield Text(f"{self.indent}…  --all prints the notes in full.", style="dim")

    def _line(self, remark: RemarkLine, key: str, text: str) -> Text:
        name = f"{key}: " if key else ""
        return Text.assemble(self.indent, (f"{remark.label}: ", STYLES[remark.label]), (name, "bold"), text)


def short_key(key: str) -> str:
    """The end of a full name: with the section above it where that is short."""
    parts = key.split(", ")[0].split(".")
    two = ".".join(parts[-2:])
    return two if len(two) <= LONGEST_KEY else parts[-1]


def shorten(text: str, room: int) -> str:
    """A sentence cut to fit: after a clause if most of the room is used so, else after a word."""
    if len(text) <= room:
        return text
    head = text[: max(room - 2, 0)]
    clause = max(head.rfind(mark) for mark in ("; ", ": ", ", so ", ". "))
    end = clause if clause > 0.6 * room else head.rfind(" ")
    return f"{head[: end if end > 0 else len(head)].rstrip(' ,;:.')} …"
