"""Several runs on one page, and charts as files of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tests.report import made
from tests.report.test_directory import on_disk
from tests.report.test_page import HOSTILE, Skeleton, embedded
from trimtab.cli.app import app
from trimtab.config.presets import preset
from trimtab.config.training import Rollout
from trimtab.errors import TrimtabError
from trimtab.report import Run, findings_of, write_charts, write_comparison, write_report
from trimtab.report.compare import ROW, colour_of, compared_charts, comparison, differing_settings, share_band
from trimtab.report.draw.palette import CARDS, LEAST, colour, contrast
from trimtab.report.findings.table import gravest
from trimtab.report.run import settings_by_path
from trimtab.report.series import Series
from trimtab.report.write import file_names


def pair() -> list[Run]:
    tight = made.settings(steps=60, rollout=Rollout(max_staleness=2))
    return [
        made.run("healthy", steps=60, rollouts=None, name="first"),
        made.run("collapsed", steps=60, rollouts=None, name="second", settings=tight),
    ]


def test_a_comparison_has_every_curve_of_every_run() -> None:
    page = comparison(pair())
    assert {"accuracy", "mismatch", "kept", "gradient", "entropy"} <= set(Skeleton(page).ids)
    first, *others = embedded(page)["charts"]
    assert len(first["lines"]) == 4  # pyright: ignore[reportArgumentType]  # each accuracy with its interval
    for chart in others:
        assert len(chart["lines"]) == 2  # pyright: ignore[reportArgumentType]


def test_a_metric_that_no_run_has_has_no_chart_and_one_of_a_single_run_has_one() -> None:
    first, second = pair()
    less = [{name: value for name, value in line.items() if name != "policy/entropy"} for line in second.metrics]
    bare = Run(second.settings, less, name="bare")
    assert "entropy" in Skeleton(comparison([first, bare])).ids
    assert "entropy" not in Skeleton(comparison([bare, Run(bare.settings, less, name="other")])).ids


def test_verdicts_stand_side_by_side_each_with_its_gravest_finding() -> None:
    page = comparison(pair())
    assert page.count('<article class="run">') == 2
    assert '<span class="word collapsed">collapsed</span>' in page
    assert '<span class="word too-early-to-say">too early to say</span>' in page
    found = findings_of(pair()[1])
    assert gravest(found).level == "alarm"
    assert gravest(found).title in page
    calm = findings_of(made.run("healthy", steps=400, rollouts=None))
    assert gravest(calm) is calm[0]


def test_the_page_says_what_its_runs_are_of_and_that_one_seed_is_one_seed() -> None:
    page = comparison(pair())
    assert "<title>chain: first, second · trimtab</title>" in page
    assert "task chain · model tiny · seed 0 · held-out problems 256" in page
    assert "One seed: what another would do is not seen here." in page
    other = made.settings(steps=60, seed=3)
    assert "seed 0, 3" in comparison(
        [pair()[0], made.run("healthy", steps=60, rollouts=None, name="b", settings=other)]
    )


def test_code_of_a_reward_that_differs_is_shown() -> None:
    runs = [
        replace(run, facts={"world": {"code of reward mine:half": digest, "weights": "w"}})
        for run, digest in zip(pair(), ("1a", "2b"), strict=True)
    ]
    table = comparison(runs).partition("Settings that differ")[2]
    assert "run.json.code of reward mine:half" in table
    assert "run.json.weights" not in table
    assert "run.json" not in comparison(pair()).partition("Settings that differ")[2]


def test_a_card_links_to_the_report_of_its_run_from_where_the_page_lies(tmp_path: Path) -> None:
    one, two = on_disk(tmp_path / "one run", steps=20), on_disk(tmp_path / "two", steps=20)
    write_report(one)
    write_comparison([one, two], tmp_path / "pages.html")
    page = (tmp_path / "pages.html").read_text()
    assert '<a href="one%20run/first-try/report.html">' in page
    assert "two/first-try/report.html" not in page  # it has none


def test_rewards_are_compared_where_they_are_no_accuracies_and_stand_first_where_no_answer_is_right() -> None:
    same = [
        replace(run, metrics=[line | {"rollout/reward": line["rollout/accuracy"]} for line in run.metrics])
        for run in pair()
    ]
    assert "rollout-reward" not in Skeleton(comparison(same)).ids
    assert "rollout-reward" in Skeleton(comparison(pair())).ids
    none = {"eval/accuracy": 0.0, "rollout/accuracy": 0.0}
    graded = [replace(run, metrics=[line | none for line in run.metrics], name=run.name) for run in pair()]
    first = embedded(comparison(graded))["charts"][0]
    assert len(first["lines"]) == 2  # pyright: ignore[reportArgumentType]
    assert comparison(graded).index('id="rollout-reward"') < comparison(graded).index('id="accuracy"')


def test_the_interval_of_an_accuracy_by_hand() -> None:
    # Wilson, 0.5 of 256: (0.5 + 0.0075 ± 1.96 · √(0.25 / 256 + 0.96 / 65536)) / 1.015 = 0.4392 and 0.5608.
    low, high = share_band(Series.of([(1, 0.5), (2, 1.0)]), 256)
    assert (low.values[0], high.values[0]) == pytest.approx((0.4392, 0.5608), abs=1e-4)
    assert (low.values[1], high.values[1]) == pytest.approx((0.9852, 1.0), abs=1e-4)


def test_no_row_of_charts_is_left_half_empty() -> None:
    assert len(compared_charts(pair())) % ROW == 0


def test_settings_that_differ_are_shown_and_others_are_not() -> None:
    page = comparison(pair())
    table = page[page.index("Settings that differ") :]
    assert "rollout.max_staleness" in table
    assert "learner.lr" not in table
    assert "cannot say" not in table  # one setting differs: what it made of the run is seen
    other = made.settings(steps=60, seed=3, rollout=Rollout(max_staleness=2))
    several = comparison([pair()[0], made.run("healthy", steps=60, rollouts=None, name="b", settings=other)])
    assert "2 settings differ: which of them made the difference, these runs cannot say" in several
    assert "None: the same settings" in comparison([pair()[0], made.run("starved", steps=60, name="b", rollouts=None)])


def test_settings_go_by_the_path_they_are_typed_by_and_one_that_is_absent_shows_as_a_dash() -> None:
    assert dict(settings_by_path({"gates": [{"upper": 2}], "betas": [0.9, 0.95], "kl": None})) == {
        "gates.0.upper": 2,
        "betas": [0.9, 0.95],
        "kl": "null",
    }
    assert differing_settings([{"a": 1, "b": {"c": 2}}, {"a": 1}]) == [("b.c", [2, "–"])]


def test_corrections_that_are_built_differently_are_one_setting() -> None:
    resolved = {name: preset(name).model_dump(mode="json") for name in ("off", "k3-rs")}
    pair = [{"seed": 0, "correction": resolved["off"]}, {"seed": 0, "correction": resolved["k3-rs"]}]
    assert differing_settings(pair) == [("correction", ["off", "k3-rs"])]
    pair[1]["correction"] = preset("k3-rs", upper=0.5).model_dump(mode="json")
    [(path, (without, own))] = differing_settings(pair)
    assert (path, without) == ("correction", "off")
    assert '"metric": "k3"' in str(own)
    assert '"upper": 0.5' in str(own)
    assert "null" not in str(own)  # what it does not set is not shown
    # One bound that differs is one row of its own, and what is no correction stays as it was written.
    other = {"correction": preset("k3-rs", upper=0.5).model_dump(mode="json")}
    assert differing_settings([{"correction": resolved["k3-rs"]}, other]) == [("correction.gates.0.upper", [0.01, 0.5])]
    assert differing_settings([{"correction": {"odd": 1}}, {"correction": {"gates": "?"}}]) == [
        ("correction.odd", [1, "–"]),
        ("correction.gates", ["–", "?"]),
    ]


def test_hostile_names_add_no_element_to_a_comparison() -> None:
    pages = [
        comparison([made.run("healthy", steps=20, rollouts=None, name=f"{text}{each}") for each in "ab"])
        for text in ("x" * len(HOSTILE), HOSTILE)
    ]
    assert Skeleton(pages[0]).elements == Skeleton(pages[1]).elements
    assert pages[1].count("</script>") == 2


def test_a_comparison_of_many_runs_gives_each_its_colour() -> None:
    runs = [made.run("healthy", steps=10, rollouts=None, name=f"run {place}") for place in range(9)]
    colours = [colour_of(place) for place in range(9)]
    page = comparison(runs)
    assert len(set(colours)) == 9
    for each in colours[5:]:
        assert f".line.s{each}{{stroke:" in page


def test_every_colour_can_be_seen_on_light_and_on_dark() -> None:
    for scheme, card in CARDS.items():
        assert min(contrast(colour(place, scheme), card) for place in range(60)) >= LEAST
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    # hsl(0 65% 34%), a dark red, on the dark card: (143 / 255 → 0.27 · 0.2126 + 0.013 · 0.79 + 0.05) / 0.063 = 1.9
    assert contrast((143, 30, 30), CARDS["dark"]) < 3


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    first, second = (on_disk(tmp_path / name, steps=12) for name in "ab")
    return [first, second]


def test_run_directories_become_one_page_and_folders_called_the_same_are_told_apart(
    runs: list[Path], tmp_path: Path
) -> None:
    where = write_comparison(runs, tmp_path / "both.html")
    page = where.read_text(encoding="utf-8")
    assert str(runs[0]) in page  # both folders are called first-try
    assert str(runs[1]) in page


def test_a_run_is_not_compared_with_itself(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(TrimtabError, match="needs different runs"):
        write_comparison([runs[0], runs[0]], tmp_path / "both.html")
    assert not (tmp_path / "both.html").exists()


def test_charts_become_files_that_need_no_page(runs: list[Path], tmp_path: Path) -> None:
    written = write_charts(runs[:1], tmp_path / "figures")
    assert {"accuracy.svg", "mismatch.svg", "time.svg", "gate-0-k2-sequence.svg"} <= {path.name for path in written}
    for path in written:
        text = path.read_text(encoding="utf-8")
        tree = ElementTree.fromstring(text)
        assert tree.attrib["viewBox"].split()[2:] == [tree.attrib["width"], tree.attrib["height"]]
        assert not re.search(r"var\(--|<script|display: none", text)
        said = [
            element.text for element in tree.iter("{http://www.w3.org/2000/svg}text") if element.get("class") == "title"
        ]
        assert len(said) == 1
    assert {path.name for path in write_charts(runs, tmp_path / "both")} >= {"accuracy.svg", "kept.svg"}


def test_file_names_hold_nothing_but_letters_digits_dots_and_dashes_and_none_comes_twice() -> None:
    assert file_names(["gate/0-k2", "gate 0-k2", "../../x", "", "漢", "a" * 200]) == [
        "gate-0-k2.svg",
        "gate-0-k2-2.svg",
        "x.svg",
        "chart.svg",
        "chart-2.svg",
        "a" * 80 + ".svg",
    ]


def test_the_command_writes_one_report_or_a_comparison_and_charts_where_asked(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = CliRunner().invoke(app, ["report", str(runs[0])])
    assert one.exit_code == 0, one.output
    assert (runs[0] / "report.html").exists()
    assert not (tmp_path / "compare.html").exists()
    both = CliRunner().invoke(app, ["report", *map(str, runs), "--charts", "figures"])
    assert both.exit_code == 0, both.output
    assert "Settings that differ" in (tmp_path / "compare.html").read_text(encoding="utf-8")
    assert (tmp_path / "figures" / "mismatch.svg").exists()
    elsewhere = CliRunner().invoke(app, ["report", *map(str, runs), "-o", "other.html"])
    assert elsewhere.exit_code == 0
    assert (tmp_path / "other.html").exists()
    assert CliRunner().invoke(app, ["report"]).exit_code == 2


def test_one_run_is_written_as_before(runs: list[Path]) -> None:
    assert write_report(runs[0]) == runs[0] / "report.html"
