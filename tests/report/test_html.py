"""Text from outside is shown, never obeyed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.report.html import escape_html, percent, script_json, short_number, with_decimals

anything = st.text(st.characters(), max_size=60)
HOSTILE = ("</script><script>alert(1)</script>", "<!--", "]]>", "\u2028\u2029", '" onload="x', "&lt;", "\ud800")


@settings(max_examples=50, deadline=None)
@given(anything | st.sampled_from(HOSTILE))
def test_escaped_text_holds_no_markup_and_can_be_written(text: str) -> None:
    shown = escape_html(text)
    assert not set("<>\"'") & set(shown)
    shown.encode()


@settings(max_examples=50, deadline=None)
@given(st.lists(anything | st.sampled_from(HOSTILE)))
def test_embedded_json_reads_back_and_cannot_end_its_element(texts: list[str]) -> None:
    held = script_json(texts)
    assert json.loads(held) == texts
    assert held.isascii()
    assert not set("<>&") & set(held)


def test_characters_that_reorder_or_hide_text_are_named() -> None:
    assert escape_html("a\u202eb\u200b\x00") == "a⟨U+202E⟩b⟨U+200B⟩⟨U+0000⟩"
    assert escape_html("a\tb\nc ü 漢 👍") == "a\tb\nc ü 漢 👍"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.9621, "0.962"), (12345.6, "12,346"), (1.2e-5, "1.2e−5"), (-0.5, "−0.5"), (3e9, "3e9"), (100.0, "100"),
     (0.965, "0.965"), (96.5, "96.5"), (0.0005, "5e−4"), (2.675, "2.68"), (100.5, "101"), (-0.1235, "−0.124"),
     (float("nan"), "NaN"), (float("-inf"), "−∞"), (0.001, "0.001")],
)  # fmt: skip
def test_a_number_for_a_reader(value: float, text: str) -> None:
    assert short_number(value) == text


def test_a_share_in_percent() -> None:
    assert (percent(0.034), percent(1.0), percent(0.9999), percent(0)) == ("3.4 %", "100 %", "100 %", "0 %")
    assert (percent(0.965), percent(0.125), percent(0.625)) == ("97 %", "13 %", "63 %")  # halves go up, as people round


def test_decimals_are_kept_and_halves_go_up() -> None:
    assert [with_decimals(value) for value in (0.125, 0.625, 0.965, 0.8, 1.0, 0.004)] == [
        "0.13",
        "0.63",
        "0.97",
        "0.80",
        "1.00",
        "0.00",
    ]
