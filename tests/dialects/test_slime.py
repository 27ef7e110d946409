"""slime and miles: the function that the command names decides what weighs, whatever keys stand beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimtab.config.correction import Weight
from trimtab.dialects import read, write
from trimtab.dialects.parts import OFF
from trimtab.dialects.reading import Reading
from trimtab.errors import ConfigError

FUNCTION = "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp"
PLACE = "slime.backends.megatron_utils.loss"
RECIPE = "use_tis: true\nuse_rs: true\nrs_level: geometric\ntis_mode: truncate\ntis_upper_bound: 3.0\nrs_veto_threshold: null\n"
BOTH = pytest.mark.parametrize("framework", ["slime", "miles"])


def run(folder: Path, flags: str, recipe: str | None = RECIPE) -> Path:
    """A launch script, with the recipe's file beside it."""
    if recipe is not None:
        (folder / "mis.yaml").write_text(recipe)
    path = folder / "run.sh"
    path.write_text(
        f"python3 train.py --hf-checkpoint m --advantage-estimator grpo --use-tis --custom-config-path mis.yaml {flags}\n"
    )
    return path


def keys(reading: Reading, words: str) -> list[str]:
    return [each.key for each in reading.findings if words in each.text]


@BOTH
def test_without_its_function_the_recipe_is_a_defect_and_the_ratio_is_held(framework: str, tmp_path: Path) -> None:
    reading = read(framework, run(tmp_path, ""))
    assert reading.correction is not None
    assert reading.correction.gates == ()
    assert reading.correction.weight == Weight(level="token", upper=2.0)
    (defect,) = [each for each in reading.defects if each.key == "custom_tis_function_path"]
    assert FUNCTION in defect.text
    assert not keys(reading, "one micro-batch")


@BOTH
@pytest.mark.parametrize(
    "name",
    [
        FUNCTION,
        "mine.mis.compute_mis_weights_with_cp",
        f"{FUNCTION.rpartition('.')[0]}.py:{FUNCTION.rpartition('.')[2]}",
    ],
)
def test_with_its_function_the_recipe_weighs_and_the_key_is_not_idle(framework: str, name: str, tmp_path: Path) -> None:
    reading = read(framework, run(tmp_path, f"--custom-tis-function-path {name}"))
    assert reading.correction is not None
    assert [gate.level for gate in reading.correction.gates] == ["sequence"]
    assert reading.correction.weight is not None
    assert reading.correction.weight.upper == 3.0
    assert not [key for key in keys(reading, "has no effect") if "custom_tis_function_path" in key]
    assert not reading.defects


@BOTH
def test_beside_another_function_the_recipes_keys_have_no_effect(framework: str, tmp_path: Path) -> None:
    place = PLACE if framework == "slime" else "miles.backends.training_utils.loss"
    reading = read(framework, run(tmp_path, f"--custom-tis-function-path {place}.icepop_function --tis-clip-low 0.5"))
    assert reading.correction is not None
    assert reading.correction.gates == ()
    assert reading.correction.weight == Weight(level="token", lower=0.5, upper=2.0, outside="zero")
    assert any("tis_upper_bound" in key for key in keys(reading, "has no effect"))


@BOTH
def test_a_function_of_ones_own_is_refused_by_its_name(framework: str, tmp_path: Path) -> None:
    reading = read(framework, run(tmp_path, "--custom-tis-function-path mine.mis.own_weights"))
    assert "mine.mis.own_weights is a function of your own" in reading.refused[0].text
    assert not reading.defects
    assert not keys(reading, "one micro-batch")


def test_the_recipes_own_file_is_read_as_the_recipe_and_accused_of_nothing(tmp_path: Path) -> None:
    run(tmp_path, "")
    reading = read("slime", tmp_path / "mis.yaml")
    assert reading.correction is not None
    assert reading.correction.gates
    assert not reading.defects
    assert keys(reading, "read as the recipe") == ["custom_tis_function_path"]


def test_nothing_is_said_of_a_recipe_that_is_not_beside_the_command(tmp_path: Path) -> None:
    reading = read("slime", run(tmp_path, f"--custom-tis-function-path {FUNCTION}", recipe=None))
    assert [each.part for each in reading.refused] == ["correction"]
    assert not keys(reading, "one micro-batch")
    settled = read("slime", tmp_path / "run.sh", overrides=["tis_mode=mask"])
    assert not keys(settled, "one micro-batch")
    told = read("slime", tmp_path / "run.sh", overrides=["tis_mode=mask", "tis_batch_normalize=true"])
    assert keys(told, "one micro-batch") == ["tis_batch_normalize"]


@pytest.mark.parametrize(
    ("name", "weighs"),
    [("icepop_function", True), ("vanilla_tis_function", True), ("binary_kl_trust_region_function", False)],
)
def test_a_function_called_to_measure_weighs_where_it_does_not_ask_why(name: str, weighs: bool) -> None:
    asked: dict[str, Any] = {
        "get_mismatch_metrics": True,
        "custom_tis_function_path": f"{PLACE}.{name}",
        "eps_clip": 0.2,
    }
    rule = read("slime", asked).correction
    assert (rule is not None and rule.weight is not None and rule.weight.level == "token") == weighs
    assert read("slime", {**asked, "get_mismatch_metrics": False}).correction == OFF
    if weighs:
        with pytest.raises(ConfigError, match="exclude each other"):
            read("slime", {"use_rollout_logprobs": True, **asked, "eps_clip": None})


@BOTH
def test_a_written_recipe_names_its_function(framework: str) -> None:
    rule = read(
        "slime", {"use_tis": True, "use_rs": True, "rs_level": "geometric", "tis_batch_normalize": False}
    ).correction
    assert rule is not None
    written = write(framework, rule).settings
    assert written["custom_tis_function_path"] == FUNCTION
    assert read(framework, {**written, "eps_clip": 0.2}).correction == rule
