"""The page of a lab in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import curves
from tests.lab.curves import book, entry
from tests.report.chromium import Chromium, Page, installed
from tests.report.test_browser import is_quiet, middle
from tests.report.test_page import HOSTILE
from trimtab.lab.page import lab_html
from trimtab.report.draw.palette import contrast

BROWSER = installed()
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="needs a Chromium: `make browser` as root on Debian or Ubuntu, or install chromium"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Two corrections, one of them with a name that would be obeyed if it could."""
    made = book(
        *(entry("control", "off", seed, curves.CONTROL) for seed in range(3)),
        *(entry("stale", "token-mis", seed, curves.DEGRADED) for seed in range(3)),
        *(entry("stale", HOSTILE, seed, curves.HEALTHY, message=HOSTILE) for seed in range(3)),
    )
    path = tmp_path_factory.mktemp("lab") / "lab.html"
    path.write_text(lab_html(made, HOSTILE))
    assert BROWSER is not None
    with Chromium(BROWSER) as running:
        yield running.open(path)


def lines(style: str) -> str:
    """How many lines of a correction's colour in the shared charts have a class."""
    return f"document.querySelectorAll('section:first-of-type .charts:not(.small) .line.s{{}}.{style}').length"


def test_every_chart_has_a_curve_and_the_page_is_quiet(page: Page) -> None:
    flat = """[...document.querySelectorAll("figure")].filter(figure =>
        ![...figure.querySelectorAll("path.line")].some(line => line.getBoundingClientRect().width > 2)).length"""
    assert (
        page.value("document.querySelectorAll('figure').length") == 3 + 2 * 6
    )  # per correction; per metric of this book
    assert page.value(flat) == 0
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    assert page.value("document.querySelector('script[src], img, iframe') === null")
    is_quiet(page)


def test_a_row_pointed_at_picks_its_lines_and_a_box_hides_them(page: Page) -> None:
    colour = page.value("document.querySelector('section:first-of-type tr[data-s]').dataset.s")
    picked, off = (lines(style).format(colour) for style in ("picked", "off"))
    assert page.value(picked) == page.value(off) == 0
    page.move(*middle(page, f"section:first-of-type tr[data-s='{colour}'] td:nth-child(2)"))
    assert page.value(picked) > 0
    page.move(2, 2)
    assert page.value(picked) == 0
    page.value(f"document.querySelector('section:first-of-type input[data-s=\"{colour}\"]').click()")
    assert page.value(off) > 0
    page.value("document.querySelector('section:first-of-type button[data-all=\"1\"]').click()")
    assert page.value(off) == 0
    is_quiet(page)


def test_the_answer_comes_first_and_the_control_last(page: Page) -> None:
    order = page.value("[...document.querySelectorAll('h2')].map(e => e.id)")
    assert order[0] == "answer"
    assert order[1:] == ["stale", "control"]
    top = page.value("document.getElementById('answer').getBoundingClientRect().top + scrollY")
    assert top < page.value("document.querySelector('figure').getBoundingClientRect().top + scrollY")
    said = page.value("document.querySelector('.answers').innerText")
    assert "token-mis" in said
    assert "degraded" in said


@pytest.mark.parametrize("width", [400, 1280])
def test_the_verdict_of_every_row_can_be_seen_without_scrolling(page: Page, width: int) -> None:
    page.resize(width=width)
    assert page.value("document.querySelectorAll('table.cells .word').length") == 3
    ends = page.value("[...document.querySelectorAll('table.cells .word')].map(e => e.getBoundingClientRect().right)")
    assert max(ends) <= width
    assert page.value("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("dark", [False, True])
def test_every_line_stands_out_from_what_it_is_drawn_on(page: Page, dark: bool) -> None:
    page.resize(dark=dark)
    read = "(text) => text.match(/[0-9]+/g).slice(0, 3).map(Number)"
    card = page.value(f"({read})(getComputedStyle(document.querySelector('figure')).backgroundColor)")
    lines = page.value(
        f"[...document.querySelectorAll('.line:not(.s6)')].map(e => ({read})(getComputedStyle(e).stroke))"
    )
    assert len({tuple(line) for line in lines}) > 3
    assert min(contrast(tuple(line), tuple(card)) for line in lines) >= 3
