"""The page in a real browser: it draws, stays silent, asks for nothing and obeys nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.report import made
from tests.report.chromium import Chromium, Page, installed
from tests.report.test_page import HOSTILE
from trimtab.report import Run, html

BROWSER = installed()
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="needs a Chromium: `make browser` as root on Debian or Ubuntu, or install chromium"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    assert BROWSER is not None
    with Chromium(BROWSER) as running:
        yield running


def opened(browser: Chromium, run: Run, folder: Path) -> Page:
    path = folder / "report.html"
    path.write_bytes(html(run).encode())
    return browser.open(path)


@pytest.fixture(scope="module")
def page(browser: Chromium, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return opened(browser, made.run("collapsed", steps=120), tmp_path_factory.mktemp("report"))


def middle(page: Page, selector: str, across: float = 0.5) -> tuple[float, float]:
    """A place on an element, brought into view."""
    page.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
    box = page.value(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
    return box["left"] + across * box["width"], box["top"] + box["height"] / 2


def is_quiet(page: Page) -> None:
    assert page.console == []
    assert page.dialogs == []
    assert len(page.requests) == 1
    assert page.requests[0].startswith("file:")


def test_every_chart_is_drawn_with_a_curve_or_bars_and_the_page_is_quiet(page: Page) -> None:
    empty = """[...document.querySelectorAll("figure")].filter(figure => {
        const marks = [...figure.querySelectorAll("path.line, path.band, rect.bar")];
        return !marks.some(mark => { const box = mark.getBoundingClientRect(); return box.width + box.height > 2; });
    }).map(figure => figure.id)"""
    assert page.value("document.querySelectorAll('figure').length") > 25
    assert page.value(empty) == []
    is_quiet(page)


def test_text_is_not_wider_than_the_page_and_styles_hold(page: Page) -> None:
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    assert page.value("getComputedStyle(document.querySelector('.word')).color") == "rgb(255, 255, 255)"


def test_pointing_at_one_chart_reads_the_same_step_in_all(page: Page) -> None:
    page.move(*middle(page, "#mismatch svg", across=0.6))
    steps = page.value("[...document.querySelectorAll('figure:has(.cursor) .step')].map(e => e.textContent)")
    assert len(set(steps)) == 1
    step = int(steps[0].removeprefix("step "))
    # The plot runs from 50 to 450 of 460 units: 0.6 · 460 = 276, (276 − 50) / 400 · 119 = 67.2
    assert step == pytest.approx(67, abs=1)
    shown = page.value("document.querySelector('#mismatch .keys span:last-child var').textContent")
    assert float(shown.replace("−", "-")) == pytest.approx(
        made.run("collapsed", steps=120).series("drift/k3").values[step], rel=1e-3
    )
    page.move(2, 2)
    assert page.value("document.querySelector('#mismatch .step').textContent") == ""
    is_quiet(page)


def test_pointing_at_a_token_tells_its_numbers(page: Page) -> None:
    page.move(*middle(page, "span[data-t='3']"))
    tip = page.value("document.getElementById('tip').textContent")
    assert "token 3" in tip
    for word in ("ratio", "behavior", "proximal", "current", "weight", "version"):
        assert word in tip
    assert page.value("getComputedStyle(document.getElementById('tip')).display") == "block"


def test_rejected_tokens_are_struck_through_and_far_ones_coloured(page: Page) -> None:
    struck = "[...document.querySelectorAll('.response .rejected')].every(e => getComputedStyle(e).textDecorationLine === 'line-through')"
    assert page.value("document.querySelectorAll('.response .rejected').length") > 10
    assert page.value(struck)
    assert page.value("getComputedStyle(document.querySelector('.response .r5')).backgroundColor").startswith(
        "rgba(214, 69, 38"
    )


def test_hostile_text_is_shown_as_text(browser: Chromium, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = (
        HOSTILE,
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(2)>",
        "javascript:alert(3)",
        "</pre></body></html>",
    )
    gate = {"metric": HOSTILE, "level": "token", "upper": 1.0, "action": HOSTILE}
    hostile = Run(
        settings=made.settings(steps=30) | {HOSTILE: HOSTILE, "correction": {"gates": [gate]}},
        metrics=made.lines(
            30, {"eval/accuracy": lambda s: 0.5, HOSTILE: lambda s: 1.0, f"gate/0-{HOSTILE}-token/p50": lambda s: 1.0}
        ),
        events=[{"kind": HOSTILE, "message": text, "step": 3} for text in texts],
        rollouts=made.rollouts(rng, 30, text=lambda row: (texts[row % 5], texts[(row + 1) % 5])),
        name=f"run {HOSTILE}",
    )
    page = opened(browser, hostile, tmp_path)
    is_quiet(page)
    assert page.value("document.title").startswith("run </script><script>document.title='taken'")
    assert page.value("document.scripts.length") == 2
    assert page.value("document.images.length") == 0
    assert page.value("document.body.innerText.includes('<script>alert(1)</script>')")
    assert page.value(
        "[...document.querySelectorAll('.response')].some(e => e.textContent.includes('<img src=x onerror=alert(2)>'))"
    )


def test_the_policy_stops_a_script_that_gets_in(browser: Chromium, tmp_path: Path) -> None:
    """The second wall: were an element to slip through, it would not run."""
    page = html(made.run("healthy", steps=20))
    broken = page.replace("<footer>", "<script>document.title='taken'</script><img src=http://127.0.0.1:9/x><footer>")
    path = tmp_path / "report.html"
    path.write_text(broken)
    found = browser.open(path)
    assert found.value("document.title") == "chain-healthy · trimtab"
    assert any("Content Security Policy" in line for line in found.console)


def test_a_run_with_next_to_nothing_opens_quietly(browser: Chromium, tmp_path: Path) -> None:
    page = opened(browser, Run(settings={}, metrics=[{"step": 0, "train/loss": 1.0}]), tmp_path)
    is_quiet(page)
    assert page.value("document.querySelectorAll('figure').length") == 1
