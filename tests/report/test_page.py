"""The page as text: what it holds, what it leaves out, what it survives, how large it grows."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest

from tests.report import made
from trimtab.report import Run, report_html
from trimtab.report.charts.classes import FACTORS, kept_shares
from trimtab.report.page import duration
from trimtab.report.rollouts import pieces, shade
from trimtab.report.tokens import by_age, tokens

HOSTILE = (
    "</script><script>document.title='taken'</script><!-- <img src=http://x.invalid/i onerror=alert(1)> "
    "\u2028\u202e\x00 ${x} ' \" &amp;"
)


class Skeleton(HTMLParser):
    """Elements, and ids by element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs

    @property
    def ids(self) -> list[str]:
        return [value or "" for name, value in self.attributes if name == "id"]


def embedded(page: str) -> dict[str, list[dict[str, object]]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture(scope="module")
def page() -> str:
    return report_html(made.run("collapsed", steps=120))


def test_every_chart_asked_for_is_there(page: str) -> None:
    asked = "accuracy reward mismatch gradient kept ratio ratios ages staleness ess selection entropy length throughput time"
    assert set(asked.split()) <= set(Skeleton(page).ids)


def test_every_link_of_a_finding_leads_somewhere(page: str) -> None:
    skeleton = Skeleton(page)
    links = [value[1:] for name, value in skeleton.attributes if name == "href" and value and value.startswith("#")]
    assert links
    assert set(links) <= set(skeleton.ids)
    assert len(set(skeleton.ids)) == len(skeleton.ids)


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    assert [value for name, value in Skeleton(page).attributes if name in ("src", "srcset", "action", "data")] == []
    links = [value for name, value in Skeleton(page).attributes if name == "href"]
    assert all(value == "data:," or (value or "").startswith("#") for value in links)
    assert "style=" not in page  # the policy forbids them: only the one style element counts


def test_the_policy_names_the_one_script_and_the_one_style(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert policy[1].count("sha256-") == 2
    assert "unsafe" not in policy[1]


def test_a_run_without_anything_still_has_a_page() -> None:
    bare = report_html(Run(settings={}, metrics=()))
    assert "Accuracy unknown" in bare
    assert "No rollouts recorded" in bare
    assert "Not recorded in this run" in bare


def test_the_line_under_the_title_names_the_weight_of_a_rule_that_has_only_gates() -> None:
    for correction, said in (("geo-rs", "weight one"), ("off", "weight one"), ("seq-tis", "weight sequence ≤ 2")):
        page = report_html(Run(made.settings(correction=correction), made.lines(3, {"train/loss": lambda s: 0.0})))
        assert f" · {said} · " in page
        assert "weight ?" not in page


def test_steps_are_counted_from_one_as_on_the_console() -> None:
    page = report_html(made.run("healthy", steps=60))
    assert "(steps 1–1)" in page  # the first of twelve steps with rollouts
    assert ">step 1 ·" in page
    assert ">step 0 ·" not in page
    assert "at the end (step 60)" in page


def test_the_accuracy_before_the_first_step_is_a_point_of_the_chart() -> None:
    start = {"kind": "start", "message": "Held-out accuracy 0.234 before the first step.", "accuracy": 0.234}
    metrics = made.lines(40, {"eval/accuracy": lambda s: 0.9, "train/loss": lambda s: 0.0}, {"eval/accuracy": 20})
    chart = embedded(report_html(Run(made.settings(), metrics, [start])))["charts"][0]
    line = chart["lines"][0]  # pyright: ignore[reportIndexIssue]
    assert (line["s"][0], line["v"][0]) == (0, 0.234)
    assert chart["x"][0] == 0  # pyright: ignore[reportIndexIssue]


def test_an_accuracy_keeps_its_third_digit() -> None:
    page = report_html(Run(made.settings(), made.lines(40, {"eval/accuracy": lambda s: 0.234 if s < 20 else 0.965})))
    assert "<b>0.234 → 0.965</b>" in page


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(2.34, "2.34 s"), (139.2, "139 s"), (599.4, "599 s"), (3000, "50 min"), (7260, "2 h 1 min"), (3599, "1 h 0 min")],
)
def test_time_is_counted_in_seconds_where_the_console_does(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_the_time_of_steps_is_not_called_wall_time() -> None:
    metrics = [{"step": step, "time/step": 2.0} for step in range(5)]
    page = report_html(Run({}, metrics))
    assert "<b>10 s</b><span>in steps, evaluation apart</span>" in page
    assert "wall time" not in page


def test_a_missing_metric_is_named_as_not_recorded_and_its_chart_left_out() -> None:
    whole = made.run("healthy", steps=60)
    less = [{name: value for name, value in line.items() if name != "policy/entropy"} for line in whole.metrics]
    page = report_html(made.run("healthy", steps=60, metrics=less))
    assert "entropy" not in Skeleton(page).ids
    assert "Not recorded in this run: Entropy" in page


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 1e300, 1e-300])
def test_any_number_can_stand_in_any_metric(value: float) -> None:
    names = made.run("healthy", steps=1).names
    odd = [{"step": step, **dict.fromkeys(names, value if step % 3 else 0.5)} for step in range(30)]
    page = report_html(made.run("healthy", steps=30, metrics=odd))
    assert not re.search(r'[ML" ](nan|inf)', page)
    embedded(page)


def test_one_step_and_one_rollout_are_enough() -> None:
    rng = np.random.default_rng(0)
    page = report_html(made.run("healthy", steps=1, rollouts=made.rollouts(rng, 1, per_step=1)))
    assert page.count("<article") == 1


def test_columns_of_log_probs_may_be_null() -> None:
    table = made.run("healthy", steps=20).rollouts
    assert table is not None
    for name in ("proximal", "raw", "current"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pa.nulls(table.num_rows, made.COLUMNS[name]))
    page = report_html(made.run("healthy", steps=20, rollouts=table))
    assert "ratios" not in Skeleton(page).ids
    assert 'class="none' in page


def test_hostile_text_everywhere_adds_no_element() -> None:
    """The same run with harmless and with hostile text has the same elements in the same order."""
    pages: list[str] = []
    for text in ("a" * len(HOSTILE), HOSTILE):
        rng = np.random.default_rng(0)
        events = [{"kind": text, "message": text, "step": 5, text: text}]
        settings = made.settings(steps=20) | {text: {text: text}, "task": {"template": text}}
        settings["correction"] = {"gates": [{"metric": text, "level": text, "upper": 1.0, "action": text}]}
        gate = {f"gate/0-{text}-{text}/{part}": lambda s: 0.9 for part in ("rejected_tokens", "p01", "p50", "p99")}
        metrics = made.lines(20, {"eval/accuracy": lambda s: 0.5, **gate, text: lambda s: 1.0})
        table = made.rollouts(rng, 20, text=lambda row, text=text: (text, text))
        for column in ("problem", "finish", "failed"):
            place = table.schema.get_field_index(column)
            table = table.set_column(place, column, pa.array([text] * table.num_rows, pa.string()))
        pages.append(
            report_html(
                Run(settings, metrics, events, table, name=text, status=text, piece=lambda token, text=text: text)
            )
        )
    harmless, hostile = (Skeleton(page) for page in pages)
    assert hostile.elements == harmless.elements
    assert pages[1].count("</script>") == 2
    assert "\u202e" not in pages[1]
    assert "&lt;script&gt;document.title=" in pages[1]


def test_text_of_tokens_comes_from_the_tokenizer_or_from_single_characters() -> None:
    row = {"tokens": [5, 6, 7], "response": "ab", "finish": "stop"}
    assert pieces(row, lambda token: f"<{token}>") == ["<5>", "<6>", "<7>"]
    assert pieces(row, None) == ["a", "b", "⟨stop⟩"]
    assert pieces(row | {"finish": "length"}, None) is None
    assert pieces({"tokens": [5], "response": "long text"}, None) is None


def test_shades_grow_with_the_ratio_on_either_side() -> None:
    assert [shade(value) for value in (0.0, 0.1, 0.3, 0.8, 1.5, 9.0)] == ["r0", "r1", "r2", "r3", "r4", "r5"]
    assert [shade(value) for value in (-0.01, -0.1, -9.0)] == ["r0", "r-1", "r-5"]
    assert shade(None) == shade(float("nan")) == "none"


def small_table(log_r: list[list[float]], correct: list[bool]) -> pa.Table:
    zeros = [[0.0] * len(row) for row in log_r]
    columns = {
        "step": [0] * len(log_r), "version": [3] * len(log_r), "behavior": zeros, "proximal": log_r, "correct": correct,
        "mask": [[True] * len(row) for row in log_r], "versions": [[3 - min(place, 3) for place in range(len(row))] for row in log_r],
    }  # fmt: skip
    return pa.table({name: pa.array(values, made.COLUMNS[name]) for name, values in columns.items()})


def test_mismatch_by_age_is_the_mean_of_k3_at_each_age() -> None:
    found = tokens(Run({}, (), rollouts=small_table([[0.0, 0.5], [0.0, -0.5]], [True, False])))
    assert found is not None
    young, aged = by_age(found)
    assert (young.label, young.tokens, young.k3) == ("0", 2, 0.0)
    # e^0.5 − 1 − 0.5 = 0.14872, e^−0.5 − 1 + 0.5 = 0.10653; their mean 0.12763
    assert (aged.label, aged.tokens) == ("1", 2)
    assert aged.k3 == pytest.approx(0.12763, abs=1e-5)


def test_other_bounds_keep_what_lies_inside_them() -> None:
    # sequence means of k2: (0.2² / 2 + 0) / 2 = 0.01 right; 0.4² / 2 = 0.08 wrong
    found = tokens(Run({}, (), rollouts=small_table([[0.2, 0.0], [0.4, 0.4]], [True, False])))
    assert found is not None
    gate = {"metric": "k2", "level": "sequence", "upper": 0.02}
    kept = kept_shares(found, gate)
    at = FACTORS.index(1.0)
    assert (kept[True][at], kept[False][at]) == (1.0, 0.0)
    assert kept[True] == [float(0.02 * factor >= 0.01) for factor in FACTORS]
    assert kept[False] == [float(0.02 * factor >= 0.08) for factor in FACTORS]
    ratio = kept_shares(
        found, {"metric": "ratio", "level": "token", "upper": float(np.exp(0.3)), "lower": float(np.exp(-0.3))}
    )
    assert (ratio[True][at], ratio[False][at]) == (1.0, 0.0)


def test_a_large_run_stays_small_and_quick() -> None:
    steps, rows = 10_000, 100_000
    rng = np.random.default_rng(0)
    some = made.rollouts(rng, 100, per_step=10)
    many = pa.concat_tables([some] * (rows // some.num_rows)).set_column(0, "step", pa.array(np.arange(rows) // 10))
    names = made.run("healthy", steps=1).names
    values = rng.random((steps, len(names)))
    metrics = [{"step": step, **dict(zip(names, line, strict=True))} for step, line in enumerate(values.tolist())]
    large = Run(made.settings(steps=steps), metrics, rollouts=many)
    began = time.process_time()
    page = report_html(large)
    assert time.process_time() - began < 20
    assert len(page) < 15_000_000
