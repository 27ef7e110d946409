"""What users would otherwise not notice is said, and what they look for is named."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest
import torch
from torch import Tensor

import trimtab
from trimtab.config.advantages import ESTIMATORS
from trimtab.config.advantages import MEANT as ESTIMATOR_WORDS
from trimtab.config.losses import LOSSES
from trimtab.config.losses import MEANT as LOSS_WORDS
from trimtab.config.presets import MEANT as PRESET_WORDS
from trimtab.config.presets import preset_names
from trimtab.core import metrics as observe
from trimtab.errors import ConfigWarning, InputError, UnknownNameError


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "_SAID", set())


def drifted(rows: int = 20) -> dict[str, Tensor]:
    """Answers whose ratios all lie near 0.74, of which `geo-rs` keeps none."""
    draw = torch.Generator().manual_seed(rows)
    behavior = -torch.rand(rows, 8, generator=draw) - 0.1
    proximal = behavior - 0.3 + 0.05 * torch.randn(rows, 8, generator=draw)
    return {"behavior": behavior, "proximal": proximal, "mask": torch.ones(rows, 8, dtype=torch.bool)}


def named_bounds(text: str) -> dict[str, float]:
    return {side: float(value) for side, value in re.findall(r"(lower|upper) (-?[\d.e-]+)", text)}


def rejections(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was said of a rejected batch; where nothing is compiled yet, that is said as well."""
    return [each for each in caplog.records if "rejected every token" in each.message]


@pytest.mark.parametrize("fast", ["1", "0"])
@pytest.mark.parametrize(
    "gate",
    [
        trimtab.Gate(metric="ratio", level="sequence", agg="mean", lower=0.99, upper=1.01),
        trimtab.Gate(metric="k3", level="sequence", agg="mean", upper=0.01),
        trimtab.Gate(metric="k1", level="token", upper=0.05),
        trimtab.Gate(metric="ratio", level="sequence", agg="every", lower=0.9, upper=1.1),
    ],
)
def test_a_batch_rejected_whole_is_said_once_with_bounds_that_keep_nine_tenths(
    gate: trimtab.Gate, fast: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", fast)
    rule, batch = trimtab.Correction(gates=(gate,)), drifted()
    with caplog.at_level(logging.WARNING, "trimtab"):
        out = trimtab.correct(rule, **batch)
        trimtab.correct(rule, **batch)
    assert not out.kept.any()
    assert [each.name for each in rejections(caplog)] == ["trimtab.rejected"]
    bounds = named_bounds(rejections(caplog)[0].message)
    wider = trimtab.Correction(gates=(trimtab.Gate(**gate.settings() | bounds),))
    kept = trimtab.correct(wider, **batch).kept
    share = (kept if gate.level == "token" else kept.any(-1)).float().mean().item()
    assert 0.8999 < share < 1.0


def test_a_loss_says_so_too_but_not_for_a_part_of_a_step_nor_for_one_answer(caplog: pytest.LogCaptureFixture) -> None:
    batch = drifted()
    step = {"advantages": torch.ones(20), "correction": "geo-rs", "current": batch["proximal"]}
    with caplog.at_level(logging.WARNING, "trimtab"):
        trimtab.policy_loss("clip", **batch, **step, denominator=trimtab.Denominator.of([batch["mask"]]))
        trimtab.correct("geo-rs", **{name: each[:1] for name, each in batch.items()})
        trimtab.correct("token-tis", **batch)
        assert not rejections(caplog)
        found = trimtab.policy_loss("clip", **batch, **step)
    assert found.loss == 0
    assert "rejected every token" in caplog.text


def test_rules_that_are_only_tried_are_not_spoken_of_and_are_when_they_are_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rule = trimtab.preset("geo-rs", lower=0.9979, upper=1.0)
    old = torch.full((2, 3), -2.0)
    arrays = {"behavior": old, "proximal": old - 1.0, "mask": torch.ones(2, 3, dtype=torch.bool)}
    with caplog.at_level(logging.WARNING, "trimtab"):
        with observe.rules_on_trial():
            trimtab.correct(rule, **arrays)
        assert not rejections(caplog)
        trimtab.correct(rule, **arrays)
    assert len(rejections(caplog)) == 1


def test_behavior_without_a_correction_is_a_warning() -> None:
    batch = drifted()
    step = {"advantages": torch.ones(20), "current": batch["proximal"]}
    with pytest.warns(ConfigWarning, match="behavior log-probs and no correction, so they change nothing"):
        trimtab.policy_loss("clip", **batch, **step)
    trimtab.policy_loss("clip", **batch, **step, correction="off")  # only measured: no warning


def test_metrics_show_their_names_and_answer_an_unknown_one_with_the_nearest() -> None:
    metrics = trimtab.correct("token-tis", **drifted()).metrics
    assert repr(metrics).startswith(f"{len(metrics)} metrics")
    assert "drift/: kl, kl_reverse" in repr(metrics)
    for name, near in {"kl": "drift/kl", "drift/kll": "drift/kl", "weight/es": "weight/ess"}.items():
        with pytest.raises(KeyError) as caught:
            metrics[name]
        assert str(caught.value) == f"There is no metric {name!r} here. Did you mean {near!r}?"
    assert "kl" not in metrics
    assert metrics.get("kl") is None


def test_the_whole_result_of_advantages_is_answered_with_its_field() -> None:
    batch = drifted(4)
    worth = trimtab.advantages("grpo", rewards=torch.arange(4.0), mask=batch["mask"], group=[0, 0, 1, 1])
    with pytest.raises(InputError, match="Pass the tensor in it: its field advantages"):
        trimtab.policy_loss(
            "clip", current=batch["proximal"], proximal=batch["proximal"], mask=batch["mask"], advantages=worth
        )


@pytest.mark.parametrize("group", [["a", "a", "b", "b"], np.array(["a", "a", "b", "b"])])
def test_text_ids_are_answered_with_how_to_number_them(group: object) -> None:
    given = {"rewards": torch.arange(4.0), "mask": torch.ones(4, 2, dtype=torch.bool)}
    with pytest.raises(InputError, match=r"group=numpy.unique\(group, return_inverse=True\)\[1\]"):
        trimtab.advantages("grpo", **given, group=group)
    numbered = trimtab.advantages("grpo", **given, group=np.unique(group, return_inverse=True)[1])
    assert torch.equal(numbered.advantages, trimtab.advantages("grpo", **given, group=[0, 0, 1, 1]).advantages)


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (lambda: trimtab.policy_loss("ppo", **LOSS), "ppo", "'clip'"),
        (lambda: trimtab.policy_loss("grpo", **LOSS), "grpo", "trimtab.advantages('grpo')"),
        (lambda: trimtab.policy_loss("clip_cov_", **LOSS), "clip_cov_", "'clip-cov'"),
        (lambda: trimtab.preset("tis"), "tis", "'token-tis'"),
        (lambda: trimtab.preset("token_tis"), "token_tis", "'token-tis'"),
        (lambda: trimtab.advantages("ppo", rewards=[1.0], mask=[[True]]), "ppo", "'gae'"),
    ],
)
def test_a_word_of_the_field_is_answered_with_what_it_means(make, name: str, says: str) -> None:
    with pytest.raises(UnknownNameError, match=re.escape(says)) as caught:
        make()
    assert repr(name) in str(caught.value)
    assert "dppo" not in str(caught.value)
    assert "gspo" not in str(caught.value)


LOSS = {"current": torch.zeros(1, 1), "advantages": torch.ones(1), "mask": torch.ones(1, 1, dtype=torch.bool)}


def test_words_that_are_explained_are_no_names_and_what_they_offer_is_one() -> None:
    known = {*LOSSES, *ESTIMATORS, *preset_names()}
    for words, own in ((LOSS_WORDS, LOSSES), (PRESET_WORDS, preset_names()), (ESTIMATOR_WORDS, ESTIMATORS)):
        assert not set(words) & set(own)
        for sentence in words.values():
            offered = re.findall(r"'([^']+)'", sentence)
            assert offered
            assert set(offered) <= known, sentence
