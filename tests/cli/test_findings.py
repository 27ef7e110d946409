"""Findings on a terminal: what accuses is whole, with its remedy; a note takes one line, and all of it for who asks."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.dialects.examples import EXAMPLES
from trimtab.cli.findings import Lines, from_findings, short_key, shorten
from trimtab.dialects import Finding, read
from trimtab.dialects.reading import Level

KEY = "algorithm.rollout_correction.rollout_rs_threshold"


def lines(findings: list[Finding], width: int, *, whole: bool = False, terminal: bool = True) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, color_system=None, highlight=False)
    console.print(Lines(from_findings(findings), whole))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_each_note_of_every_framework_takes_one_line_of_a_terminal(width: int) -> None:
    for name, examples in EXAMPLES.items():
        for settings in (*examples.corrections.values(), *examples.objectives.values()):
            found = [each for each in read(name, settings).findings if each.level == "note"]
            shown = lines(found, width)
            assert len(shown) - len(found) in (0, 1)  # and one that says where the rest is
            assert all(len(line) <= width for line in shown)


def test_the_worst_finding_stands_first() -> None:
    found = [Finding(KEY, level, "This is so.") for level in ("note", "defect", "surprise", "note")]  # pyright: ignore[reportArgumentType]
    assert [line.partition(":")[0] for line in lines(found, 80)] == ["defect", "surprise", "note", "note"]


def test_all_of_a_finding_is_there_for_who_asks_and_in_a_pipe() -> None:
    text = "The bounds act on the inverse ratio: " + "so r is kept elsewhere, " * 10
    found = [Finding(KEY, "note", text)]
    assert "--all" in lines(found, 80)[-1]
    assert " ".join("".join(lines(found, 80, whole=True)).split()).startswith(f"note: {KEY}: The bounds")
    (whole,) = lines(found, 10_000, terminal=False)
    assert whole == f"note: {KEY}: {text}"


@pytest.mark.parametrize("level", ["defect", "surprise"])
@pytest.mark.parametrize("width", [60, 100])
def test_an_accusation_is_whole_on_a_terminal_and_so_is_its_remedy(level: Level, width: int) -> None:
    text = "The bounds act on the inverse ratio; " * 6 + "write the reciprocal bounds."
    shown = lines([Finding(KEY, level, text, "verl 0.9.1")], width)
    assert len(shown) > 1
    assert " ".join(" ".join(shown).split()) == f"{level}: {KEY}: {text} (verl 0.9.1.)"


@given(st.text(alphabet="ab ,;:.", max_size=200), st.integers(3, 200))
def test_what_is_cut_fits_and_is_a_beginning(text: str, room: int) -> None:
    found = shorten(text, room)
    assert len(found) <= max(room, len(" …"))
    assert text.startswith(found.removesuffix(" …"))


def test_a_sentence_is_cut_after_a_clause_or_else_after_a_word() -> None:
    assert shorten("One clause here; and another one that is longer", 24) == "One clause here …"
    assert shorten("One clause here that is much longer", 24) == "One clause here that …"


def test_a_key_is_named_with_its_section_where_both_are_short() -> None:
    assert short_key("actor.reward_norm.group_size") == "reward_norm.group_size"
    assert short_key(KEY) == "rollout_rs_threshold"
    assert short_key("beta") == "beta"
