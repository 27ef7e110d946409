"""The page in a real browser: it draws, stays silent, asks for nothing and obeys nobody."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.report import made
from tests.report.chromium import Chromium, Page, installed
from tests.report.test_page import HOSTILE
from tests.waiting import until
from trimtab.report import Run, report_html
from trimtab.report.compare import comparison
from trimtab.report.html import asset, document

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
    path.write_bytes(report_html(run).encode())
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
    asked = [request for request in page.requests if not request.startswith("data:")]  # what is data asks nobody
    assert len(asked) == 1
    assert asked[0].startswith("file:")


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
    # The plot runs from 50 to 450 of 460 units: 0.6 · 460 = 276, 1 + (276 − 50) / 400 · 119 = 68.2
    assert step == pytest.approx(68, abs=1)
    shown = page.value("document.querySelector('#mismatch .keys span:last-child var').textContent")
    assert float(shown.replace("−", "-")) == pytest.approx(
        made.run("collapsed", steps=120).series("drift/k3").values[step - 1], rel=1e-3
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
    page = report_html(made.run("healthy", steps=20))
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


def saved(browser: Chromium, page: Page, figure: str, kind: str, folder: Path) -> bytes:
    """What a click on a chart's button downloads."""
    folder.mkdir()
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    page.value(f"document.querySelector('#{figure} button[data-save={kind}]').click()")
    until(lambda: [path for path in folder.iterdir() if path.suffix == f".{kind}" and path.stat().st_size])
    return next(folder.iterdir()).read_bytes()


def test_a_chart_is_saved_as_svg_with_its_title_keys_and_colours(browser: Chromium, page: Page, tmp_path: Path) -> None:
    text = saved(browser, page, "mismatch", "svg", tmp_path / "svg").decode()
    tree = ElementTree.fromstring(text)
    said = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert "Mismatch KL (k3)" in said
    assert "mismatch: target vs. behavior" in said
    assert "var(--" not in text
    assert "#1f6fb4" in text
    is_quiet(page)


def test_a_chart_is_saved_as_png_that_shows_its_curve(browser: Chromium, page: Page, tmp_path: Path) -> None:
    content = saved(browser, page, "mismatch", "png", tmp_path / "png")
    assert content.startswith(b"\x89PNG")
    width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
    assert width == 2 * (460 + 2 * 8)  # the chart and a margin, at twice its size
    encoded = base64.b64encode(content).decode()
    colours = page.value(f"""new Promise(done => {{ const image = new Image(); image.onload = () => {{
        const canvas = document.createElement('canvas'); canvas.width = {width}; canvas.height = {height};
        const context = canvas.getContext('2d'); context.drawImage(image, 0, 0);
        const data = context.getImageData(0, 0, {width}, {height}).data, found = {{}};
        for (let at = 0; at < data.length; at += 4) {{ const key = data.slice(at, at + 3).join(); found[key] = (found[key] || 0) + 1; }}
        done(found); }}; image.src = 'data:image/png;base64,{encoded}'; }})""")
    assert colours["31,111,180"] > 500  # the blue of the curve
    assert colours["255,255,255"] > 0.5 * width * height  # on white
    is_quiet(page)


def test_every_chart_can_be_saved(page: Page) -> None:
    charts = page.value("document.querySelectorAll('figure').length")
    assert charts == page.value("document.querySelectorAll('figure button[data-save=svg]').length")
    assert charts == page.value("document.querySelectorAll('figure button[data-save=png]').length")
    assert page.value(
        "[...document.querySelectorAll('figure .paper')].every(e => e.getBoundingClientRect().width === 0)"
    )


@pytest.mark.parametrize("width", [400, 700, 1000, 1280, 1440])
def test_nothing_is_wider_than_the_page_and_no_tile_stands_alone(page: Page, width: int) -> None:
    page.resize(width=width)
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    wide = page.value(
        "Math.max(...[...document.querySelectorAll('.scale, .scale span')].map(e => e.getBoundingClientRect().right))"
    )
    assert wide <= width
    tops = page.value("[...document.querySelectorAll('.tile')].map(e => e.getBoundingClientRect().top)")
    assert tops.count(max(tops)) > 1
    page.resize()


@pytest.mark.parametrize("many", range(2, 13))
def test_no_number_of_tiles_leaves_one_alone(browser: Chromium, many: int, tmp_path: Path) -> None:
    tile = '<div class="tile"><b>0.234 → 0.965</b><span>accuracy, start → end</span></div>'
    (tmp_path / "tiles.html").write_text(
        document("t", f'<div class="tiles">{tile * many}</div>', style=asset("page.css"), script="", data={})
    )
    opened_page = browser.open(tmp_path / "tiles.html")
    for width in (400, 1280):
        opened_page.resize(width=width)
        tops = opened_page.value("[...document.querySelectorAll('.tile')].map(e => e.getBoundingClientRect().top)")
        assert tops.count(max(tops)) > 1 or len(set(tops)) == 1


def test_a_comparison_opens_quietly_and_reads_every_run_at_one_step(browser: Chromium, tmp_path: Path) -> None:
    runs = [
        made.run(fate, steps=60, name=f"run {fate} {HOSTILE}{'x' * 90}") for fate in ("healthy", "collapsed", "starved")
    ]
    (tmp_path / "compare.html").write_bytes(comparison(runs).encode())
    page = browser.open(tmp_path / "compare.html")
    is_quiet(page)
    assert page.value("document.querySelectorAll('.run').length") == 3
    assert page.value(
        "[...document.querySelectorAll('#mismatch path.line')].every(e => e.getBoundingClientRect().width > 2)"
    )
    page.move(*middle(page, "#mismatch svg", across=0.6))
    assert "" not in page.value("[...document.querySelectorAll('#accuracy .keys var')].map(e => e.textContent)")
    for width in (400, 1280):
        page.resize(width=width)
        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        assert page.value("[...document.querySelectorAll('figure')].every(e => e.scrollWidth <= e.clientWidth)")
    is_quiet(page)
