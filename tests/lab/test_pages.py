"""Tables and pages, all from a book."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tests.lab import curves
from tests.lab.curves import book, entry
from trimtab.cli.app import app
from trimtab.lab.candidate import GEO_WIDE, GEO_WIDE_TOKEN_MIS, TOKEN_MIS
from trimtab.lab.markdown import lab_markdown, readme_text, write_lab_page
from trimtab.lab.page import lab_html
from trimtab.lab.panels import figure_name
from trimtab.lab.results import LabResults, read_results, write_results
from trimtab.lab.table import CAUTION, correction_rows, equal_rows, remarks, row_texts, time_taken

SEEDS = (0, 1, 2)
FELL = [(0, 0.3), (80, 0.7), (160, 0.4), (240, 0.2), (320, 0.12), (400, 0.1)]
LEVEL_DOWN = {"mismatch": (0.01, 0.5)}


def as_published() -> LabResults:
    """As AReaL #1218 has it: each rule alone falls, both together stand."""
    cells = [entry("control", "off", seed, curves.CONTROL) for seed in SEEDS]
    cells += [entry("stale", TOKEN_MIS, seed, FELL, level=LEVEL_DOWN) for seed in SEEDS]
    cells += [entry("stale", GEO_WIDE, seed, FELL, level=LEVEL_DOWN | {"grad_norm": (0.5, 40.0)}) for seed in SEEDS]
    cells += [entry("stale", GEO_WIDE_TOKEN_MIS, seed, curves.HEALTHY) for seed in SEEDS]
    return book(*cells)


def otherwise() -> LabResults:
    """The combination is Token-MIS alone, Geo-RS stands, one seed of Token-MIS stands."""
    cells = [entry("control", "off", seed, curves.CONTROL) for seed in SEEDS]
    for seed in SEEDS:
        fate = curves.HEALTHY if seed == 1 else FELL
        cells += [entry("stale", name, seed, fate, level=LEVEL_DOWN) for name in (TOKEN_MIS, GEO_WIDE_TOKEN_MIS)]
        cells += [entry("stale", GEO_WIDE, seed, curves.HEALTHY)]
    return book(*cells)


def test_corrections_that_gave_the_same_runs_are_named_and_others_are_not():
    said = equal_rows(otherwise(), "stale")
    assert said.startswith(f"The same run in every seed: {TOKEN_MIS} and {GEO_WIDE_TOKEN_MIS}. ")
    assert f"`{TOKEN_MIS}` and `{GEO_WIDE_TOKEN_MIS}`" in lab_markdown(otherwise())
    assert "The same run" in lab_html(otherwise())
    assert equal_rows(as_published(), "stale") == ""
    first = entry("stale", TOKEN_MIS, 0, FELL)
    louder = entry("stale", GEO_WIDE, 0, FELL, level={"grad_norm": 0.7})
    elsewhere = entry("stale", GEO_WIDE_TOKEN_MIS, 1, FELL)
    assert equal_rows(book(first, louder, elsewhere), "stale") == ""
    broken = [entry("stale", name, 0, FELL, status="failed", message="no") for name in (TOKEN_MIS, GEO_WIDE)]
    assert equal_rows(book(*broken), "stale") == ""


def test_rows_are_sorted_by_their_worst_seed_and_show_every_seed():
    made = book(
        *(entry("stale", "steady", seed, curves.DEGRADED) for seed in SEEDS),
        *(entry("stale", "gamble", seed, FELL if seed == 1 else curves.HEALTHY) for seed in SEEDS),
    )
    found = correction_rows(made, "stale")
    assert [row.correction for row in found] == ["steady", "gamble"]
    assert row_texts(found[1])[1] == "0.93  0.10  0.93"
    assert row_texts(found[1])[3].startswith("1 collapsed")


def test_a_row_says_what_it_keeps_of_right_and_of_wrong_answers():
    level = {"kept": 0.2, "kept_right": 0.1, "kept_wrong": 0.3}
    made = book(entry("stale", "picky", 0, curves.HEALTHY, level=level), entry("stale", "plain", 0, curves.HEALTHY))
    assert {row_texts(row)[0]: row_texts(row)[6] for row in correction_rows(made, "stale")} == {
        "picky": "20 %; 10 % / 30 %",
        "plain": "100 %; – / –",
    }


def test_time_counts_once_while_cells_run_side_by_side_and_not_while_none_does():
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    spans = [(0, 600), (300, 900), (400, 500), (4000, 4060)]  # 900 s, a pause, a minute
    made = book(
        *(
            entry("stale", "off", seed, curves.HEALTHY, ran=tuple(noon + timedelta(seconds=each) for each in span))
            for seed, span in enumerate(spans)
        )
    )
    assert made.elapsed == 960
    assert time_taken(made.but(machine="a desk")) == "4 cells in 16 min (a desk)"
    assert time_taken(book(entry("stale", "off", 0, curves.HEALTHY))) == "1 cell in 0 s"


def test_the_command_names_the_control_where_it_was_run_with_every_correction():
    least = as_published()
    assert "`trimtab lab --full --scenario stale`" in lab_markdown(least)
    more = least.but(entries=(*least.entries, entry("control", TOKEN_MIS, 0, curves.CONTROL)))
    assert "`trimtab lab --full --scenario control --scenario stale`" in lab_markdown(more)
    assert "(lab-control.svg)" in lab_markdown(more)


def test_the_remarks_say_what_the_numbers_cannot():
    full = " ".join(remarks(as_published()))
    assert CAUTION in full
    assert "Nothing is called healthy" not in full
    quick = book(entry("control", "off", 0, curves.UNDER_START), steps=160)
    said = " ".join(remarks(quick))
    assert "Nothing is called healthy before 400 steps" in said
    assert "1 of at least 3 seeds" in said
    assert "The control of seed 0 is itself collapsed" in said


def test_a_failed_cell_is_shown_as_failed():
    made = book(entry("stale", "off", 0, curves.HEALTHY, status="failed", message="It broke.", verdict=None))
    assert row_texts(correction_rows(made, "stale")[0])[1] == "failed"
    assert any("It broke." in each for each in remarks(made))
    assert "failed" in lab_html(made)


def test_a_book_is_written_and_read_back(tmp_path: Path):
    made = as_published()
    write_results(tmp_path, made)
    assert read_results(tmp_path) == made == read_results(tmp_path / "lab.json")


class Balanced(HTMLParser):
    """Fails where elements do not close in order; collects scripts that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.outside = list[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "input", "circle", "path", "rect"):
            self.open.append(tag)
        self.outside += [str(value) for name, value in attrs if name in ("src", "href") and value != "data:,"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_fetches_nothing_and_names_what_it_runs():
    made = as_published()
    text = lab_html(made, "a <b> lab")
    reader = Balanced()
    reader.feed(text)
    assert reader.open == []
    assert all(link.startswith("#") for link in reader.outside)
    assert "default-src 'none'; script-src 'sha256-" in text
    assert "a &lt;b&gt; lab" in text
    assert not re.search(r"style=\"", text)  # the policy would refuse it
    assert text.count('<tr data-s="') == 4
    assert CAUTION.split(";")[0] in text


def test_the_markdown_page_has_tables_and_its_figures_beside_it(tmp_path: Path):
    written = write_lab_page(as_published(), tmp_path / "lab.md")
    assert [each.name for each in written] == ["lab.md", "lab-stale.svg"]
    text = (tmp_path / "lab.md").read_text()
    assert "(lab-stale.svg)" in text
    assert "blue seed 0, orange seed 1, green seed 2; grey" in text
    ElementTree.fromstring((tmp_path / "lab-stale.svg").read_text())


def test_the_readme_table_has_a_row_per_correction_and_bold_failures():
    text = readme_text(otherwise())
    assert f"| `{TOKEN_MIS}` | **0.10**  0.93  **0.10** |" in text
    assert CAUTION in text


HOSTILE = "a\n# b <img src=x onerror=alert(1)> [c](http://d) ![e](http://f) `g` | \x1b]0;h\x07 \u202e \ud800"


def test_what_a_lab_is_told_stays_text_in_its_markdown(tmp_path: Path):
    failed = entry(HOSTILE, HOSTILE, 0, FELL, status="failed", message=HOSTILE)
    equal = [entry(HOSTILE, f"{HOSTILE}{n}", 0, FELL) for n in range(2)]
    found = book(entry("control", "off", 0, curves.CONTROL), failed, *equal).but(
        scenarios={"control": "", HOSTILE: HOSTILE}, machine=HOSTILE, trimtab=HOSTILE,
        base={"task": {"name": "chain", "system": "```\n<script>alert(1)</script>\n```"}},
    )  # fmt: skip
    whole, fence = lab_markdown(found).split("## Settings of every cell")
    for text in (readme_text(found), whole):
        text.encode()
        outside = re.sub(r"(?<!\\)`[^`\n]*`", "", text)
        assert not re.search(r"(?<!\\)<img|(?<!\\)\[c\]|(?<!\\)\[e\]|^# b", outside, re.MULTILINE)
        assert not {"\x1b", "\x07", "\u202e", "\ud800"} & set(text)
    assert "\n````yaml\n" in fence
    assert fence.rstrip().endswith("\n````")
    made = write_lab_page(found, tmp_path / "lab.md")
    assert {each.parent for each in made} == {tmp_path}
    assert all(each.exists() for each in made)


def test_a_name_cannot_lead_a_figure_elsewhere():
    assert figure_name("../../etc/x") == "lab-..-..-etc-x.svg"
    assert figure_name("stale") == "lab-stale.svg"


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, 1.7e308])
def test_a_lab_whose_numbers_have_no_end_is_still_told(value: float):
    cells = [entry("control", "off", 0, curves.CONTROL), entry("stale", "off", 0, FELL, level={"grad_norm": value})]
    found = book(*cells)
    assert lab_html(found)
    assert lab_markdown(found)
    without = [each.but(most={}) for each in found.entries]
    assert row_texts(correction_rows(found.but(entries=tuple(without)), "stale")[0])


def test_a_lab_of_numbers_that_no_lab_has_is_one_sentence(tmp_path: Path):
    write_results(tmp_path, book(entry("control", "off", 0, curves.CONTROL)))
    text = (tmp_path / "lab.json").read_text()
    (tmp_path / "lab.json").write_text(text.replace('"planned":1', f'"planned":1{"0" * 400}'))
    done = CliRunner().invoke(app, ["lab", "report", str(tmp_path)])
    assert done.exit_code in (0, 2), repr(done.exception)
    (tmp_path / "lab.json").write_text("[" * 100_000)
    done = CliRunner().invoke(app, ["lab", "report", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
