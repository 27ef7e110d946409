"""Files of every framework written for every other: what comes out reads back to the same, or the difference is listed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.test_files import EXPECTED, FILES
from tests.dialects.whole_files import WHOLE
from trimtab import Correction, Gate, Weight
from trimtab.cli.compare import comparison_code, differences_of
from trimtab.cli.convert import as_yaml
from trimtab.cli.differences import sizes
from trimtab.dialects import DIALECTS, Reading, Writing, read, write
from trimtab.dialects.equivalence import agreement, with_idle_clip, with_plain_rewards
from trimtab.dialects.fields import differences, fields_of, goal_fields, heads, is_soft
from trimtab.dialects.reading import NOTHING
from trimtab.dialects.writing.messages import thing
from trimtab.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore::trimtab.errors.ConfigWarning")

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = [*EXPECTED, *(f"whole {name}" for name in WHOLE), "example verl", "example areal", "example skyrl"]
HARD = {
    "areal/first_version.yaml",
    "areal/launched.sh",
    "ms-swift/penalty_alone.sh",
    "nemo-rl/orphan_with_a_detail.yaml",
    "open-instruct/first_names.sh",
    "openrlhf/penalty_in_the_loss.sh",
    "skyrl/covariance.sh",
    "slime/arrays_for_another.sh",
    "slime/echoed_job.sh",
    "slime/job_in_a_file.sh",
    "trl/parsed_arguments.py",
    "trl/settings_from_a_mapping.py",
    "trl/somebodys_script.sh",
}
"""Written because a reader stumbled over their like, often with options few frameworks have: no sample of what is usual."""

UNWRITTEN = {
    "prime-rl/centred.toml": "its correction is refused, and prime-rl says a loss together with its gate",
    "tunix/ppo.yaml": "PPO has a section of its own, and what is written is the agentic learner's",
}
"""Files that do not go back to their own framework whole, and why."""


def is_empty(reading: Reading) -> bool:
    return (reading.correction, reading.loss, reading.reduction, reading.advantage) == (None,) * 4


@cache
def reading_of(name: str) -> Reading:
    kind, _, framework = name.partition(" ")
    if kind == "whole":
        return read(framework, WHOLE[framework])
    if kind == "example":
        return read(framework, EXAMPLES / f"{framework}.yaml")
    return read(name.partition("/")[0], FILES / name)


@cache
def written(name: str, target: str) -> Writing | None:
    try:
        return write(target, reading_of(name), strict=False)
    except ConfigError:
        return None


def idles(path: str, off: dict[str, Any]) -> bool:
    """Whether a field is about a division that is not there at all, which is listed for itself."""
    parent, _, name = path.rpartition(".")
    return name in ("unbiased", "std_over", "about") and f"{parent}.std" in off


def unlisted(asked: Reading, found: Writing) -> list[str]:
    """What reads back otherwise and stands in no omission."""
    back = read(found.framework, found.settings, whole=True)
    lost = {each.part for each in found.omissions if each.whole}
    listed = " ".join(each.text for each in found.omissions)
    missing: list[str] = []
    if asked.correction is not None and "correction" not in lost:
        assert back.correction is not None
        if not agreement(asked.correction, back.correction).weights:
            missing.append("correction")
    there = fields_of(back)
    for part, goal in goal_fields(asked).items():
        off = (
            {} if part in lost else {path: ends for path, ends in differences(goal, there).items() if not is_soft(path)}
        )
        missing += [path for path in heads(off) if thing(path) not in listed and not idles(path, off)]
    return missing


@pytest.mark.parametrize("name", SOURCES)
def test_a_conversion_reads_back_to_the_same_or_lists_the_difference(name: str, tmp_path: Path) -> None:
    asked = reading_of(name)
    if is_empty(asked):
        return
    for target in DIALECTS:
        found = written(name, target)
        if found is not None:
            ways = (asked, with_plain_rewards(asked), with_idle_clip(asked))
            assert any(not unlisted(way, found) for way in ways), (target, found, unlisted(asked, found))
            result = tmp_path / f"{target}.yaml"
            result.write_text(as_yaml(found.settings))
            there = read(target, result)
            agrees = comparison_code(asked, there) == 0
            off = [each for each in differences_of(asked, there) if each[2] == "differs"]
            assert agrees == (not found.omissions and not asked.refused), (target, found, off)


@pytest.mark.parametrize("name", SOURCES)
def test_a_file_goes_to_its_own_framework_whole(name: str) -> None:
    asked = reading_of(name)
    if not is_empty(asked) and name not in UNWRITTEN:
        assert not write(asked.framework, asked, strict=False).omissions


def test_most_conversions_between_verl_areal_and_skyrl_are_whole_and_few_are_refused() -> None:
    results = {
        (name, target): written(name, target)
        for name in EXPECTED
        if not is_empty(reading_of(name))
        for target in ("verl", "areal", "skyrl")
    }
    usual = [found for (name, _), found in results.items() if name not in HARD]
    whole = sum(found is not None and not found.omissions for found in usual)
    assert whole / len(usual) > 0.6
    assert sum(found is None for found in results.values()) / len(results) < 0.1


def test_a_verl_file_keeps_the_name_of_its_estimator() -> None:
    settings = {
        "algorithm": {
            "adv_estimator": "grpo",
            "rollout_correction": {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01},
        }
    }
    for name in ("grpo", "grpo_vectorized"):
        settings["algorithm"]["adv_estimator"] = name
        assert write("verl", read("verl", settings)).settings["algorithm"]["adv_estimator"] == name


def test_a_loss_that_the_target_has_is_not_said_to_be_missing() -> None:
    for name in SOURCES:
        for target in DIALECTS:
            found = None if is_empty(reading_of(name)) else written(name, target)
            for each in () if found is None else found.omissions:
                head, _, known = each.text.partition(", only ")
                kind = head.rpartition(" has no ")[2]
                assert not known or kind not in known.split(", "), each.text


PLAIN = {
    "algorithm": {"adv_estimator": "grpo"},
    "actor_rollout_ref": {"actor": {"policy_loss": {"loss_mode": "vanilla"}}},
}
TIS = {"rollout_is": "token", "rollout_is_threshold": 2.0}
TWO_POLICIES = ("prime-rl", "tinker")
"""Their losses compare the policy with the sampler, and no key says otherwise."""


def runs(target: str, asked: Reading) -> list[Reading]:
    """What is written, as a whole run of the target, and beside whatever else decides whether a correction acts."""
    settings = write(target, asked, strict=False).settings
    return [read(target, {**context, **settings}, whole=True) for context in DIALECTS[target].contexts]


@pytest.mark.parametrize("target", [name for name in DIALECTS if name not in TWO_POLICIES])
def test_a_source_without_a_correction_has_none_in_a_whole_run_of_any_target(target: str) -> None:
    asked = read("verl", PLAIN)
    assert asked.uncorrected
    for back in runs(target, asked):
        assert back.rule is not None
        assert agreement(NOTHING, back.rule).weights, back.rule


@pytest.mark.parametrize("target", [name for name in DIALECTS if name not in TWO_POLICIES])
def test_a_weight_acts_in_a_whole_run_of_every_target(target: str) -> None:
    asked = read("verl", {"algorithm": {**PLAIN["algorithm"], "rollout_correction": TIS}})
    assert asked.correction is not None
    for back in runs(target, asked):
        assert back.correction is not None
        assert agreement(asked.correction, back.correction).weights, back.correction


@pytest.mark.parametrize("target", TWO_POLICIES)
def test_a_target_of_two_policies_says_that_it_cannot_compare_with_proximal(target: str) -> None:
    found = write(target, read("verl", PLAIN), strict=False)
    assert any("current/behavior" in each.text or "has no clip" in each.text for each in found.omissions)


@pytest.mark.parametrize(
    ("target", "settings"),
    [
        ("areal", {"actor": {"rejection_sampling": {"action": "clamp", "upper": 2.0}}}),
        ("trl", {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 2.0}),
        ("ms-swift", {"rollout_importance_sampling_mode": "token_truncate"}),
        ("slime", {"use_tis": False, "tis_level": "token", "tis_upper_bound": 2.0}),
        ("roll", {"train_infer_correction": {"is_weight": {"weight_type": "token", "upper_bound": 2.0}}}),
    ],
)
def test_the_keys_of_a_correction_do_nothing_in_a_run_without_its_switch(target: str, settings: dict[str, Any]) -> None:
    rule = read(target, settings, whole=True).rule
    assert rule is not None
    assert not rule.gates
    assert not rule.weighs


def test_the_nearest_correction_is_the_first_that_the_refusal_offers() -> None:
    veto = Gate(metric="ratio", level="sequence", agg="every", lower=1e-4, upper=100.0)
    rule = Correction(gates=(veto,), weight=Weight(level="token", upper=2.0))
    with pytest.raises(ConfigError, match=r"--nearest writes .*rollout_rs seq_max_k2"):
        write("verl", rule)
    found = write("verl", rule, nearest=True)
    (taken,) = found.omissions
    assert "written instead: a gate on k2" in taken.text
    back = read("verl", found.settings).correction
    assert back is not None
    # log² / 2 of the wider side: 9.21² / 2
    assert back.gates[0].upper == pytest.approx(42.4152)
    assert back.weight is not None
    assert back.weight.upper == 2.0


def test_what_is_left_out_is_measured_on_a_batch() -> None:
    # rewards (1, 0, 0, 0): mean 0.25, deviation 0.5 over n − 1 and √(3/16) = 0.433 over n
    asked = read("skyrl", {"trainer": {"algorithm": {"advantage_estimator": "grpo"}}})
    found = write("open-instruct", asked, strict=False)
    assert [each.text for each in found.omissions] == ["the standard deviation becomes over n, was over n − 1"]
    assert found.omissions[0].key == "advantage_normalization_type"
    said = sizes(asked, read("open-instruct", found.settings), {"advantage"})
    assert said == {"advantage": "rewards 1, 0, 0, 0 give advantages 1.5 and −0.5, there 1.73 and −0.577"}


def test_a_measure_of_the_same_says_that_nothing_changes() -> None:
    for name in WHOLE:
        asked = read(name, WHOLE[name])
        said = sizes(asked, asked, {"correction", "loss", "advantage"})
        assert set(said.values()) <= {"rewards 1, 0, 0, 0 give the same advantages to 0.1 %"}, name


def test_a_lost_dual_clip_changes_the_gradient_where_a_bad_token_has_a_large_ratio() -> None:
    clip = {"actor_rollout_ref": {"actor": {"clip_ratio_c": 3.0, "policy_loss": {"loss_mode": "vanilla"}}}}
    asked = read("verl", clip)
    found = write("trl", asked, strict=False)
    (said,) = sizes(asked, read("trl", found.settings), {"loss"}).values()
    # the dual clip holds −A·r at −3·A, so beyond ratio 3 a bad token has no gradient; without it it has
    same = "the gradient is the same on 8 answers of 2 to 9 tokens with ratios 0.78 to 1.25"
    assert said == f"{same}; a token of ratio 4 and a negative advantage has none here and one there"


def test_a_wider_clip_changes_the_gradient_of_a_usual_step() -> None:
    asked = read("verl", {"actor_rollout_ref": {"actor": {"clip_ratio_high": 0.28}}})
    other = read("verl", {"actor_rollout_ref": {"actor": {"clip_ratio_high": 0.2}}})
    (said,) = sizes(asked, other, {"loss"}).values()
    assert said.startswith("the gradient changes by ")
    assert said.endswith("% on 8 answers of 2 to 9 tokens with ratios 0.78 to 1.25")
