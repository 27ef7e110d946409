"""SkyRL's releases: 0.4.0, which is read where none is named, and 0.3.0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import trimtab
from trimtab.cli.app import app
from trimtab.config.losses import Cispo
from trimtab.dialects import Reading, read
from trimtab.errors import ConfigError

RELEASES = ("0.3.0", "0.4.0")
CISPO = {"policy_loss_type": "cispo"}
ROLLOUT = {**CISPO, "cispo": {"cispo_anchor": "rollout"}}


def algorithm(settings: dict[str, Any], version: str = "") -> Reading:
    return read("skyrl", {"trainer": {"algorithm": settings}}, version=version)


def levels(reading: Reading, words: str) -> list[str]:
    return [each.level for each in reading.findings if words in str(each)]


@pytest.mark.parametrize(("version", "bounds"), [("0.3.0", (1.0, 6.0)), ("0.4.0", (0.0, 5.0)), ("", (0.0, 5.0))])
def test_cispos_bounds_are_those_of_the_release(version: str, bounds: tuple[float, float]) -> None:
    found = algorithm(CISPO, version).loss
    assert isinstance(found, Cispo)
    assert (found.lower or 0.0, found.upper) == bounds


def test_the_lower_bound_of_1_is_a_defect_of_0_3_0_alone_and_a_surprise_where_it_is_written_for_0_4_0() -> None:
    assert levels(algorithm(CISPO, "0.3.0"), "(SkyRL 0.3.0; fixed in 0.4.0, #1928.)") == ["defect"]
    assert levels(algorithm(CISPO), "lower bound") == []
    assert levels(algorithm({**CISPO, "cispo": {"cispo_eps_clip_low": 0.0}}), "lower bound") == ["surprise"]


def test_cispo_anchored_at_the_rollout_divides_by_behavior_and_needs_no_proximal() -> None:
    """Current is twice behavior: within [0, 5] the slope of each of two tokens is 2·A/2."""
    reading = algorithm(ROLLOUT)
    assert reading.correction is not None
    assert reading.correction.policies == "bypass"
    assert set(reading.correction.needs) == {"behavior", "current"}
    assert reading.loss is not None
    behavior = torch.full((1, 2), -2.0)
    current = (behavior + torch.tensor(2.0).log()).requires_grad_()
    step = trimtab.policy_loss(
        reading.loss,
        current=current,
        behavior=behavior,
        mask=torch.ones(1, 2).bool(),
        advantages=torch.ones(1),
        correction=reading.correction,
        reduction="token-mean",
    )
    step.loss.backward()
    assert current.grad is not None
    assert (-current.grad).tolist() == [[pytest.approx(1.0), pytest.approx(1.0)]]


def test_the_anchor_is_not_known_to_0_3_0_which_is_said_and_changes_nothing_there() -> None:
    old, new = (algorithm(ROLLOUT, version) for version in RELEASES)
    assert levels(old, "cispo_anchor was added in SkyRL 0.4.0. Read as 0.3.0, which does not have it") == ["surprise"]
    assert old.correction is None or old.correction.policies == "decoupled"
    assert levels(new, "was added in SkyRL") == []


def test_a_weight_beside_that_anchor_is_refused_as_skyrl_does() -> None:
    reading = algorithm({**ROLLOUT, "off_policy_correction": {"tis_ratio_type": "token"}})
    assert [each.part for each in reading.refused] == ["correction"]
    assert "SkyRL stops with an error" in reading.refused[0].text
    weighed = algorithm({**CISPO, "off_policy_correction": {"tis_ratio_type": "token"}})
    assert weighed.refused == ()


SAMPLED = {
    "trainer.algorithm.eps_clip_low": 0.2,
    "generator.sampling_params.top_p": 0.9,
    "generator.sampling_params.top_k": 50,
}
REPLAYED = {
    "trainer.algorithm.enable_sample_support_replay": True,
    "generator.inference_engine.enable_return_sample_support_set": True,
}
CUT = "drawn from a part of the vocabulary"


def test_a_cut_off_vocabulary_is_a_surprise_unless_0_4_0_replays_it() -> None:
    assert levels(read("skyrl", SAMPLED), CUT) == ["surprise"]
    replayed = read("skyrl", SAMPLED | REPLAYED)
    assert levels(replayed, CUT) == []
    assert levels(replayed, "pass those ids as `support`") == ["note"]
    old = read("skyrl", SAMPLED | REPLAYED, version="0.3.0")
    assert levels(old, "0.3.0 hands no sampling mask to the trainer") == ["surprise"]
    assert levels(old, "which does not have it") == ["surprise", "surprise"]


@pytest.mark.parametrize(
    "spoilt",
    [
        {"generator.inference_engine.enable_return_sample_support_set": False},
        {"generator.sampling_params.top_k": -1},
        {"generator.sampling_params.temperature": 0.0},
        {"generator.sampling_params.repetition_penalty": 1.1},
    ],
)
def test_replay_that_skyrl_stops_at_is_said(spoilt: dict[str, Any]) -> None:
    words = "SkyRL stops before it starts: replay"
    assert levels(read("skyrl", SAMPLED | REPLAYED | spoilt), words) == ["surprise"]
    assert levels(read("skyrl", SAMPLED | REPLAYED), words) == []


def test_use_tis_overrides_the_key_that_replaced_it() -> None:
    """SkyRL's validation writes token and its cap over tis_ratio_type."""
    both = {"use_tis": True, "tis_imp_ratio_cap": 2.0, "off_policy_correction": {"tis_ratio_type": "sequence"}}
    plain = {"off_policy_correction": {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 2.0}}
    assert algorithm(both).correction == algorithm(plain).correction
    assert levels(algorithm(both), "use_tis overrides tis_ratio_type") == ["surprise"]
    same = {**both, "off_policy_correction": {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 2.0}}
    assert levels(algorithm(same), "use_tis overrides") == []


def test_a_cap_of_0_is_refused_and_not_taken_for_no_correction() -> None:
    with pytest.raises(ConfigError, match="token_tis_ratio_clip_high 0 is not supported: no weight is above 0"):
        read("skyrl", {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 0.0})


@pytest.mark.parametrize("version", RELEASES)
def test_values_of_masked_places_cancel_under_lambd_1(version: str) -> None:
    words = "reads critic values at masked positions"
    assert levels(algorithm({"advantage_estimator": "gae", "lambd": 0.95}, version), words) == ["surprise"]
    assert levels(algorithm({"advantage_estimator": "gae"}, version), words) == []


ESTIMATORS = {"reinforce++": "starts anew", "maxrl": "flips signs where", "gae": "reads critic values"}


@pytest.mark.parametrize("name", [*ESTIMATORS, "grpo", "rloo"])
def test_an_estimator_is_accused_of_what_it_does_and_of_nothing_else(name: str) -> None:
    found = algorithm({"advantage_estimator": name, "lambd": 0.9})
    accused = [each.text for each in found.findings if each.level != "note"]
    assert len(accused) == (name in ESTIMATORS)
    assert all(ESTIMATORS[name] in text for text in accused)


def test_explain_names_the_release_and_how_to_choose_the_other(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("trainer: {algorithm: {policy_loss_type: cispo, use_kl_loss: false}}\n")
    words = ["explain", "--from", "skyrl", str(file)]
    new, old = (CliRunner().invoke(app, [*words, *more]) for more in ([], ["--version", "0.3.0"]))
    assert (new.exit_code, old.exit_code) == (0, 0)
    assert new.stdout.splitlines()[0] == "run.yaml, read as SkyRL 0.4.0; --version 0.3.0 reads it as that release"
    assert old.stdout.splitlines()[0] == "run.yaml, read as SkyRL 0.3.0; --version 0.4.0 reads it as that release"
    assert "fixed in 0.4.0, #1928" not in new.stdout
    assert "fixed in 0.4.0, #1928" in old.stdout
