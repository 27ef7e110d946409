"""Twenty made runs, each with a twin: what the page must say of the one it must not say of the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.report import made
from tests.report.test_findings import run as plain
from trimtab.report import Run, findings_of, report_html
from trimtab.report.findings.learning import verdict_word

Curve = made.Curve
RISE = made.rising(0.3, 0.92, 30)


def dipping(curve: Curve, first: int, last: int, to: float) -> Curve:
    """The curve, but `to` from one step to another."""
    return lambda step: to if first <= step <= last else curve(step)


def shaken(curve: Curve, spread: float, seed: int = 0) -> Curve:
    """The curve with the noise of an evaluation."""
    rng = np.random.default_rng(seed)
    return lambda step: float(np.clip(curve(step) + spread * rng.standard_normal(), 0, 1))


def run(steps: int = 300, settings: Mapping[str, Any] | None = None, **curves: Curve | float) -> Run:
    """A run with these metrics, evaluated every 10 steps."""
    found = plain(steps, settings=settings, **curves)
    lines = [
        {name: value for name, value in line.items() if name != "eval/reward" or line["step"] % 10 == 9}
        for line in found.metrics
    ]
    return Run(settings=found.settings, metrics=lines)


SPIKE: Curve = lambda s: 0.2 if 200 <= s < 208 else 0.004  # noqa: E731
KEPT = {"selection__kept_given_positive": 0.9, "selection__kept_given_negative": 0.9}
STALE = made.settings(steps=300, correction="off")
FAIR = made.settings(steps=300)


@dataclass(frozen=True)
class Pair:
    """A made run with the sentence its page must have, and a twin that must not have it."""

    name: str
    says: str
    of: Callable[[], Run]
    twin: Callable[[], Run]
    word: str
    """The verdict on the first in one word."""


PAIRS = (
    Pair(
        "a dip that comes back",
        "Held-out accuracy fell from 0.919 (step 201) to 0.7 (step 211) and was back at 0.92 at step 231.",
        lambda: run(eval__accuracy=dipping(RISE, 205, 225, 0.7)),
        lambda: run(eval__accuracy=dipping(RISE, 205, 225, 0.86)),
        "recovered",
    ),
    Pair(
        "a late fall",
        "and did not come back",
        lambda: run(eval__accuracy=dipping(RISE, 275, 299, 0.3)),
        lambda: run(eval__accuracy=dipping(RISE, 265, 285, 0.3)),
        "collapsed",
    ),
    Pair(
        "a fall under half that comes back late",
        "fell from 0.92 (step 261) to 0.3 (step 271) and was back at 0.92",
        lambda: run(eval__accuracy=dipping(RISE, 265, 285, 0.3)),
        lambda: run(eval__accuracy=dipping(RISE, 275, 299, 0.3)),
        "recovered",
    ),
    Pair(
        "a spike of mismatch that accuracy follows",
        "accuracy fell with it: 0.918 before, lowest 0.6 at step 211",
        lambda: run(eval__accuracy=dipping(RISE, 205, 225, 0.6), drift__k3=SPIKE),
        lambda: run(eval__accuracy=RISE, drift__k3=SPIKE),
        "recovered",
    ),
    Pair(
        "a spike of mismatch that accuracy does not notice",
        "Mismatch jumped and accuracy held",
        lambda: run(eval__accuracy=RISE, drift__k3=SPIKE),
        lambda: run(eval__accuracy=dipping(RISE, 205, 225, 0.6), drift__k3=SPIKE),
        "stable so far",
    ),
    Pair(
        "a spike of mismatch in a run that learnt nothing",
        "The held-out accuracy says nothing of it",
        lambda: run(eval__accuracy=0.0, rollout__reward=0.0, drift__k3=SPIKE),
        lambda: run(eval__accuracy=RISE, drift__k3=SPIKE),
        "flat",
    ),
    Pair(
        "flat at zero",
        "No answer was ever right, and no reward told one from another",
        lambda: run(eval__accuracy=0.0, rollout__reward=0.0),
        lambda: run(eval__accuracy=0.3),
        "flat",
    ),
    Pair(
        "flat at the start's accuracy",
        "No step is better than the start",
        lambda: run(eval__accuracy=0.3),
        lambda: run(eval__accuracy=0.97),
        "flat",
    ),
    Pair(
        "flat and fine",
        "There was little left to gain",
        lambda: run(eval__accuracy=0.97),
        lambda: run(eval__accuracy=0.6),
        "solved from the start",
    ),
    Pair(
        "starved",
        "The policy learns from a few sequences chosen by the gate",
        lambda: run(eval__accuracy=0.3, kept_fraction=0.01),
        lambda: run(eval__accuracy=RISE, kept_fraction=lambda s: 0.01 if s < 100 else 0.9),
        "starved",
    ),
    Pair(
        "starved for a while",
        "at the end 90 % are kept",
        lambda: run(eval__accuracy=RISE, kept_fraction=lambda s: 0.01 if s < 100 else 0.9),
        lambda: run(eval__accuracy=0.3, kept_fraction=0.01),
        "stable so far",
    ),
    Pair(
        "lengths that heal",
        "Responses hit the length limit for a while",
        lambda: run(eval__accuracy=RISE, rollout__truncated=lambda s: 0.56 if s < 40 else 0.004),
        lambda: run(eval__accuracy=RISE, rollout__truncated=lambda s: 0.004 if s < 200 else 0.4),
        "stable so far",
    ),
    Pair(
        "lengths that stay cut",
        "rollout.max_tokens=",
        lambda: run(eval__accuracy=RISE, rollout__length=20.0, rollout__truncated=lambda s: 0.004 if s < 200 else 0.4),
        lambda: run(eval__accuracy=RISE, rollout__length=20.0, rollout__truncated=lambda s: 0.56 if s < 40 else 0.004),
        "stable so far",
    ),
    Pair(
        "a graded reward that is evaluated and rises while no answer is right",
        "Held-out reward: −1.24 at the start",
        lambda: run(eval__accuracy=0.0, eval__reward=made.rising(-1.5, 0.4, 60), rollout__reward=-1.0),
        lambda: run(eval__accuracy=RISE, eval__reward=made.rising(-1.5, 0.4, 60), rollout__reward=-1.0),
        "stable so far",
    ),
    Pair(
        "a graded reward that only the rollouts have",
        "Reward of the rollouts: −1.47 at the start",
        lambda: run(eval__accuracy=0.0, rollout__reward=made.rising(-1.5, 0.4, 60)),
        lambda: run(eval__accuracy=0.0, rollout__reward=-1.5),
        "stable so far",
    ),
    Pair(
        "a graded reward that falls again",
        "under half of what it had gained",
        lambda: run(
            eval__accuracy=0.0,
            eval__reward=dipping(made.rising(-1.5, 0.4, 40), 230, 299, -1.4),
            rollout__reward=-1.0,
        ),
        lambda: run(eval__accuracy=0.0, eval__reward=made.rising(-1.5, 0.4, 40), rollout__reward=-1.0),
        "collapsed",
    ),
    Pair(
        "a reward that rises while accuracy falls",
        "what is rewarded is not what counts as right",
        lambda: run(
            eval__accuracy=dipping(RISE, 200, 299, 0.5),
            rollout__reward=lambda s: 0.5 + 0.003 * s,
        ),
        lambda: run(eval__accuracy=dipping(RISE, 200, 299, 0.5), rollout__reward=dipping(RISE, 200, 299, 0.5)),
        "degraded",
    ),
    Pair(
        "a slow decline",
        "It fell clearly below its best",
        lambda: run(eval__accuracy=lambda s: RISE(s) if s < 100 else 0.9 - 0.0012 * (s - 100), drift__k3=0.02),
        lambda: run(eval__accuracy=lambda s: RISE(s) if s < 100 else 0.9 - 0.0001 * (s - 100), drift__k3=0.02),
        "degraded",
    ),
    Pair(
        "a slow fall of an uncorrected run on stale data",
        "The data were up to 4 versions old and nothing corrects for it",
        lambda: run(settings=STALE, eval__accuracy=made.falling_at(RISE, 150, 0.1), drift__k3=0.02),
        lambda: run(settings=FAIR, eval__accuracy=made.falling_at(RISE, 150, 0.1), drift__k3=0.02),
        "collapsed",
    ),
    Pair(
        "nothing to say",
        "Nothing out of the ordinary in mismatch, gates, selection and gradients",
        lambda: run(eval__accuracy=RISE, drift__k3=0.004, kept_fraction=0.9, train__grad_norm=0.6, **KEPT),
        lambda: run(eval__accuracy=RISE, drift__k3=SPIKE, kept_fraction=0.9, train__grad_norm=0.6, **KEPT),
        "stable so far",
    ),
)


def said_of(run: Run) -> str:
    """Every sentence of the findings, with what to try."""
    findings = findings_of(run)
    return "\n".join(f"{one.title}. {one.sentence} {one.advice.setting if one.advice else ''}" for one in findings)


def test_there_are_twenty() -> None:
    assert len(PAIRS) == len({pair.name for pair in PAIRS}) == 20


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_the_run_gets_its_sentence_and_its_twin_does_not(pair: Pair) -> None:
    assert pair.says in said_of(pair.of())
    assert pair.says not in said_of(pair.twin())
    assert verdict_word(pair.of()) == pair.word


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_no_page_praises_beside_a_note_that_contradicts_it(pair: Pair) -> None:
    for each in (pair.of(), pair.twin()):
        findings = findings_of(each)
        praised = any(one.title == "No warning sign" for one in findings)
        noted = any("jumped" in one.title or "over 0." in one.title or "dipped" in one.title for one in findings)
        grave = any(one.level in ("alarm", "warning") for one in findings)
        assert not (praised and (noted or grave))
        assert not ("accuracy held" in said_of(each) and "dipped" in said_of(each))


@pytest.mark.parametrize("seed", range(12))
def test_a_noisy_evaluation_is_no_dip_and_a_dip_in_it_is_one(seed: int) -> None:
    """256 problems at 0.6 have a deviation of 0.03."""
    level: Curve = lambda s: 0.3 + 0.3 * min(1.0, s / 100)  # noqa: E731
    assert "dipped" not in said_of(run(eval__accuracy=shaken(level, 0.03, seed)))
    assert "Accuracy dipped" in said_of(run(eval__accuracy=shaken(dipping(level, 195, 225, 0.42), 0.025, seed)))


def test_the_tiles_and_the_chart_on_top_are_those_of_what_is_judged() -> None:
    graded = report_html(run(eval__accuracy=0.0, eval__reward=made.rising(-1.5, 0.4, 60), rollout__reward=-1.0))
    assert "reward, start → end" in graded
    assert "accuracy, start → end" not in graded
    assert graded.index('id="reward"') < graded.index('id="accuracy"')
    right = report_html(run(eval__accuracy=RISE, eval__reward=made.rising(-1.5, 0.4, 60)))
    assert "accuracy, start → end" in right
    assert "held-out reward, start → end" in right
    assert right.index('id="accuracy"') < right.index('id="reward"')
