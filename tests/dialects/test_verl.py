"""verl's two switches of bypass mode: what is read under each combination, and that no finding rests on what does not act."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import trimtab
from trimtab.dialects import Reading, read, write

ACTOR = "actor_rollout_ref.actor"
SECTION, LOSS = "algorithm.rollout_correction", f"{ACTOR}.policy_loss.rollout_correction"
BY_LOSS = {f"{ACTOR}.policy_loss.loss_mode": "bypass_mode"}
BYPASS = {f"{SECTION}.bypass_mode": True}
FIRST = {f"{SECTION}.rollout_rs": "token_k2", f"{SECTION}.rollout_rs_threshold": 0.5, f"{SECTION}.rollout_is": "token"}
SECOND = {f"{LOSS}.rollout_rs": "seq_mean_k3", f"{LOSS}.rollout_rs_threshold": 0.01, f"{LOSS}.rollout_is": "token"}
IDLE = "without effect under these settings"


def said(reading: Reading, *levels: str) -> list[str]:
    return [each.text for each in reading.findings if each.level in (levels or ("note", "surprise", "defect"))]


def gates(reading: Reading) -> list[tuple[str, str]]:
    """The metric of each gate, and the policies it compares."""
    rule = reading.correction
    assert rule is not None
    return [(gate.metric, gate.pair or rule.pair) for gate in rule.gates]


OLD, OWN, INSIDE = ("k2", "proximal/behavior"), ("k3", "current/behavior"), ("k3", "current/proximal")
TABLE = [
    # loss_mode, bypass_mode, the loss's section: policies, gates, weight, the first words of the accusation
    (False, False, False, "decoupled", [OLD], "token", None),
    (
        False,
        False,
        True,
        "decoupled",
        [OLD],
        "token",
        "policy_loss.rollout_correction is read by loss_mode bypass_mode",
    ),
    (False, True, False, "bypass", [], "one", "Bypass settings never reach the loss"),
    (False, True, True, "bypass", [], "one", "Bypass settings never reach the loss"),
    (True, False, False, "decoupled", [OLD], "one", "loss_mode bypass_mode takes the old log-probs"),
    (True, False, True, "decoupled", [OLD, INSIDE], "one", "loss_mode bypass_mode takes the old log-probs"),
    (True, True, False, "bypass", [], "one", "loss_mode bypass_mode reads policy_loss.rollout_correction"),
    (True, True, True, "bypass", [OWN], "one", "loss_mode bypass_mode reads policy_loss.rollout_correction"),
]


@pytest.mark.parametrize("v1", [True, False])
@pytest.mark.parametrize(("by_loss", "bypass", "second", "policies", "expected", "weight", "words"), TABLE)
def test_which_section_acts_between_which_policies(
    by_loss: bool,
    bypass: bool,
    second: bool,
    policies: str,
    expected: list[Any],
    weight: str,
    words: str | None,
    v1: bool,
) -> None:
    mode = {f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum"}  # a mode that counts rows, under either trainer
    switches = (BY_LOSS if by_loss else {}) | (BYPASS if bypass else {}) | (SECOND if second else {})
    reading = read("verl", {**FIRST, **mode, **switches, "trainer.use_v1": v1})
    assert reading.correction is not None
    assert reading.correction.policies == policies
    assert gates(reading) == expected
    assert reading.correction.weight is not None
    assert reading.correction.weight.level == weight
    assert isinstance(reading.loss, trimtab.Clip)
    accused = [text for text in said(reading, "surprise", "defect") if "bypass" in text.lower()]
    assert (
        all(text.startswith(words) for text in accused if "leaves out the weights" not in text)
        if words
        else not accused
    )
    assert bool(accused) == bool(words)


@pytest.mark.parametrize(
    ("mode", "v1", "first", "second", "denominator"),
    [
        ("token-mean", True, True, True, "trained"),
        ("token-mean", False, True, False, "kept"),  # the legacy trainer counts what the first rejection left
        ("token-mean", False, False, True, "trained"),  # and before the second, which is inside the loss
        ("seq-mean-token-mean", True, False, True, "kept"),
        ("seq-mean-token-sum", False, True, True, "trained"),
    ],
)
def test_what_a_mean_counts_where_the_loss_alone_is_in_bypass_mode(
    mode: str, v1: bool, first: bool, second: bool, denominator: str
) -> None:
    switches = (FIRST if first else {}) | (SECOND if second else {})
    rule = read("verl", {**BY_LOSS, **switches, f"{ACTOR}.loss_agg_mode": mode, "trainer.use_v1": v1}).correction
    assert rule is not None
    assert rule.denominator == denominator


def test_what_counts_after_one_rejection_and_before_another_is_refused() -> None:
    reading = read("verl", {**BY_LOSS, **FIRST, **SECOND, "trainer.use_v1": False})
    assert [each.part for each in reading.refused] == ["correction"]
    assert "Set algorithm.rollout_correction.bypass_mode=true" in reading.refused[0].text
    pays = read("verl", {**BY_LOSS, **FIRST, **SECOND, f"{ACTOR}.entropy_coeff": 0.01})
    assert [each.part for each in pays.refused] == ["loss"]
    assert read("verl", {**BY_LOSS, **FIRST, f"{ACTOR}.entropy_coeff": 0.01}).entropy == trimtab.EntropyBonus(
        coefficient=0.01, mask="kept"
    )
    assert read("verl", {**BY_LOSS, **SECOND, f"{ACTOR}.entropy_coeff": 0.01}).entropy == trimtab.EntropyBonus(
        coefficient=0.01, mask="trained"
    )


@pytest.mark.parametrize(
    ("options", "loss"),
    [
        ({}, trimtab.Reinforce()),
        ({"rollout_is": "token"}, trimtab.Cispo(upper=2.0, log_limit=20.0)),
        (
            {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"},
            trimtab.Cispo(lower=0.5, upper=5.0, outside="zero", log_limit=20.0),
        ),
        ({"rollout_is": "sequence"}, None),
        ({"rollout_is": "token", "rollout_is_batch_normalize": True}, None),
    ],
)
def test_reinforce_without_the_samplers_log_probs_weighs_by_current_over_proximal(
    options: dict[str, Any], loss: trimtab.config.losses.Objective | None
) -> None:
    reading = read(
        "verl", BY_LOSS | {f"{LOSS}.{name}": value for name, value in ({"loss_type": "reinforce"} | options).items()}
    )
    assert reading.loss == loss
    assert [each.part for each in reading.refused] == ([] if loss else ["loss"])


def test_the_switch_that_makes_the_loss_a_correction_is_never_called_idle() -> None:
    reading = read("verl", BY_LOSS | BYPASS | SECOND)
    assert [each.text for each in reading.findings if each.level != "note"] == []
    assert not any(IDLE in text for text in said(reading))
    copied = {key.replace(LOSS, SECTION): value for key, value in SECOND.items()}
    assert not any(IDLE in text for text in said(read("verl", BY_LOSS | BYPASS | SECOND | copied)))


MODES = ("vanilla", "bypass_mode", "gspo", "dppo_tv")
RULES = (None, ("token_k1", "0.5_4.0"), ("seq_mean_k3", 0.01), ("token_k1,seq_max_k2", "0.5_2.0,2.5"))
ACTS = (
    "Token rejection runs",
    "Rejected",
    "divides by the tokens left",
    "rejection left",
    "is rejected",
    "rejects inside",
)
BOUNDS = ("act on the inverse", "k1 bounds act", "One number bounds")


def test_no_finding_rests_on_a_rejection_that_does_not_take_place() -> None:
    """A walk through the settings: what is said of a section's rejection stands only where a gate of that section is read."""
    walked = 0
    for mode, bypass, first, second, estimator, v1 in itertools.product(
        MODES, (False, True), RULES, RULES, ("gae", "grpo"), (True, False)
    ):
        settings: dict[str, Any] = {
            f"{ACTOR}.policy_loss.loss_mode": mode,
            f"{SECTION}.bypass_mode": bypass,
            "algorithm.adv_estimator": estimator,
            "trainer.use_v1": v1,
            f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum",
        }
        for section, rule in ((SECTION, first), (LOSS, second)):
            if rule is not None:
                settings |= {f"{section}.rollout_rs": rule[0], f"{section}.rollout_rs_threshold": rule[1]}
        reading = read("verl", settings)
        found = gates(reading)
        counts = {SECTION: len([pair for _, pair in found if pair == "proximal/behavior"])}
        counts[LOSS] = len(found) - counts[SECTION]
        for each in reading.findings:
            if any(words in each.text for words in (*ACTS, *BOUNDS)):
                walked += 1
                assert counts[LOSS if each.key.startswith(LOSS) else SECTION], (settings, str(each))
    assert walked > 500


@pytest.mark.parametrize("name", ["bypass-token-tis", "bypass-geo-rs", "bypass-off"])
def test_a_bypass_rule_is_written_with_the_switch_of_the_trainer(name: str) -> None:
    rule = trimtab.preset(name)
    written = write("verl", rule)
    assert written.settings["algorithm"]["rollout_correction"] == {"bypass_mode": True}
    section = written.settings.get("actor_rollout_ref", {}).get("actor", {}).get("policy_loss", {})
    assert "bypass_mode" not in section.get("rollout_correction", {})
    reading = read("verl", written.settings)
    assert reading.correction is not None
    assert reading.correction.policies == "bypass"
    assert [gate.level for gate in reading.correction.gates] == [gate.level for gate in rule.gates]
    assert reading.correction.weighs == rule.weighs
    assert not [each for each in reading.defects if "bypass" in each.text]


def test_the_remedy_names_each_override_with_the_plus_that_hydra_asks_for() -> None:
    settings = {
        **BYPASS,
        f"{SECTION}.rollout_rs": "token_k1,seq_mean_k3",
        f"{SECTION}.rollout_rs_threshold": "0.5_2.0,0.01",
    }
    (defect,) = read("verl", settings).defects
    assert (
        f"also pass {ACTOR}.policy_loss.loss_mode=bypass_mode '+{LOSS}.rollout_rs=\"token_k1,seq_mean_k3\"'"
        in defect.text
    )
    assert f"'+{LOSS}.rollout_rs_threshold=\"0.5_2.0,0.01\"'" in defect.text
    (missing,) = read("verl", {**settings, **BY_LOSS}).defects
    assert "loss_mode=bypass_mode" not in missing.text
    assert f"'+{LOSS}.rollout_rs_threshold=\"0.5_2.0,0.01\"'" in missing.text


def test_as_documented_bypass_mode_chooses_the_loss_too() -> None:
    settings = {**BYPASS, f"{SECTION}.loss_type": "reinforce", f"{ACTOR}.clip_ratio_high": 0.28}
    assert isinstance(read("verl", settings).loss, trimtab.Clip)
    assert isinstance(read("verl", settings, documented=True).loss, trimtab.Reinforce)


@pytest.mark.parametrize(
    ("settings", "fires"),
    [
        ({"clip_ratio": 0.3}, True),
        ({"clip_ratio": 0.2}, False),  # what the two sides hold by default
        ({"clip_ratio": 0.3, "clip_ratio_low": 0.3, "clip_ratio_high": 0.3}, False),
        ({"clip_ratio": 0.3, "policy_loss.loss_mode": "gpg"}, False),  # it has no clip
        ({"clip_ratio": 0.3, "clip_ratio_low": None, "clip_ratio_high": None}, False),  # read, where the sides are null
    ],
)
def test_an_unread_clip_ratio_is_named_where_that_changes_the_clip(settings: dict[str, Any], fires: bool) -> None:
    reading = read("verl", {f"{ACTOR}.{name}": value for name, value in settings.items()})
    assert any("clip_ratio is not read" in text for text in said(reading)) == fires
