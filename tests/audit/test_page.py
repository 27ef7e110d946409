"""The page of an audit, as text and in a real browser: it draws, fits a phone, stays silent and obeys nobody."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.audit import made
from tests.report.chromium import Chromium, Page, installed
from tests.report.test_browser import is_quiet
from tests.report.test_page import HOSTILE
from trimtab.audit.audit import Audit, audit_batch
from trimtab.audit.charts import gap_charts
from trimtab.audit.gap import gap_of
from trimtab.audit.page import audit_html
from trimtab.audit.tables import NARROW, RULE_HEADS, json_of, markdown_of, rule_table
from trimtab.records.saved import Origin
from trimtab.report.draw.axis import Axis
from trimtab.report.draw.bars import bars_svg
from trimtab.report.html import short_number

BROWSER = installed()
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="needs a Chromium: `make browser` as root, or install chromium"
)


@pytest.fixture(scope="module")
def hostile() -> Audit:
    batch = made.batch(noise=0.2, sequences=16)
    origin = Origin(framework=HOSTILE, files=(HOSTILE,), notes=(HOSTILE,))
    return audit_batch(replace(batch, origin=origin, source=(HOSTILE, "b") * 8, text=(HOSTILE,) * 16))


def test_the_page_holds_causes_rules_charts_and_the_worst_sequences(hostile: Audit):
    page = audit_html(hostile)
    for step in hostile.steps:
        assert step.cause.title.replace("'", "&#x27;") in page
    for each in hostile.rules.outcomes:
        assert each.label in page
    for name in ("by-probability", "by-position", "by-age", "by-length", "by-source", "keeps-0"):
        assert f'<figure id="{name}"' in page
    assert page.count('class="rollout"') == 8


def test_nothing_of_a_file_is_markup_in_the_page_or_in_markdown(hostile: Audit):
    assert "<script>document" not in audit_html(hostile)
    assert "<img" not in audit_html(hostile)
    assert "<script" not in markdown_of(hostile).replace("\\<", "")
    assert json_of(hostile)["origin"]["framework"] == HOSTILE


def test_responses_of_one_length_are_one_band_of_that_length():
    by_length = next(each for each in gap_charts(gap_of(made.batch(noise=0.2))) if each.id == "by-length")
    assert list(by_length.classes) == ["40"]


def test_an_audit_of_a_clean_batch_has_a_page_too():
    page = audit_html(audit_batch(made.batch()))
    assert "no cause found" in page
    assert "No correction needed" in page


@pytest.fixture(scope="module")
def page(hostile: Audit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    assert BROWSER is not None
    path = tmp_path_factory.mktemp("audit") / "audit.html"
    path.write_bytes(audit_html(hostile).encode("utf-8", "replace"))
    with Chromium(BROWSER) as running:
        yield running.open(path)


@needs_browser
def test_the_browser_draws_every_chart_and_the_page_is_quiet(page: Page):
    assert page.value("document.title") == "trimtab audit"
    assert page.value("[...document.querySelectorAll('figure svg')].every(svg => svg.querySelector('rect.bar'))")
    assert page.value("document.querySelectorAll('.causes tr').length") == 16
    is_quiet(page)


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, False), (390, True)])
def test_nothing_is_wider_than_the_screen(page: Page, width: int, dark: bool):
    page.resize(width=width, dark=dark)
    assert page.value("document.documentElement.scrollWidth") <= width


@needs_browser
def test_pointing_at_a_token_shows_its_numbers(page: Page):
    page.resize(width=1440)
    page.value("document.querySelector('span[data-t]').scrollIntoView({block: 'center'})")
    box = page.value("[...document.querySelectorAll('pre.ids span[data-t]')][8].getBoundingClientRect().toJSON()")
    page.move(box["left"] + 2, box["top"] + 2)
    assert "behavior" in page.value("document.getElementById('tip').textContent")


# ── what a page leaves out, and what an axis says ──


def test_a_column_that_no_rule_has_a_value_for_is_left_out_everywhere():
    whole = made.batch(noise=0.02)
    bare = replace(whole, advantage=None, reward=None)
    full, few = audit_batch(whole), audit_batch(bare)
    gone = {"of right", "of wrong", "net advantage"}
    assert set(rule_table(full)[0]) - set(rule_table(few)[0]) == gone
    assert rule_table(full)[0] == list(RULE_HEADS)
    for shown in (audit_html(few), markdown_of(few)):
        assert not any(name in shown.partition("What each rule would do")[2].partition("agreement")[0] for name in gone)
    head, rows = rule_table(few)
    assert all(len(row) == len(head) for row in rows)
    assert rows[0][0] == few.rules.outcomes[0].label
    narrow = rule_table(few, few=True)
    assert narrow[0] == [name for name in head if name in NARROW]
    assert narrow[1][0] == [cell for name, cell in zip(head, rows[0], strict=True) if name in NARROW]


@pytest.mark.parametrize(
    ("low", "high"),
    [(2.1, 2.9), (2.1e-5, 2.2e-5), (1.1e-4, 1.9e-4), (5.5e-4, 9.4e-4), (0.9, 2.1), (1e-6, 1e-1), (3e-5, 4e-4)],
)
def test_every_axis_on_a_log_scale_has_ticks_within_it(low: float, high: float):
    axis = Axis(low, high, 100, 0, log=True)
    assert len(axis.ticks) > 1
    assert all(low * 0.999 <= tick <= high * 1.001 for tick in axis.ticks)
    assert len({short_number(tick) for tick in axis.ticks}) == len(axis.ticks)


def test_gaps_that_hardly_differ_by_position_still_have_numbers_on_their_axis():
    charts = {chart.id: bars_svg(chart) for chart in gap_charts(gap_of(made.batch(noise=0.02)))}
    for name in ("by-position", "by-length"):
        assert charts[name].count('class="tick y"') > 1
