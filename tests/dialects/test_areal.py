"""AReaL: what its releases do differently."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import trimtab
from trimtab.dialects import read

ALONE = {"mean_level": "group", "mean_leave1out": True}


@pytest.mark.parametrize(("version", "alone"), [("1.0.4", 0.7), ("2.0.0", 0.0)])
def test_leave_one_out_of_a_group_of_one_is_the_reward_and_nothing_since_2_0_0(version: str, alone: float) -> None:
    reading = read("areal", {"actor": {"reward_norm": {**ALONE, "std_level": None}}}, version=version)
    (shaping,) = reading.shaping
    assert reading.advantage is not None
    mask, rewards = torch.ones(3, 1, dtype=torch.bool), torch.tensor([0.7, 1.0, 0.0])
    found = trimtab.advantages(reading.advantage, rewards=rewards, mask=mask, group=[0, 1, 1], shaping=shaping)
    assert found.advantages[:, 0].tolist() == pytest.approx([alone, 1.0, -1.0])
    assert any("keeps its raw value" in each.text for each in reading.findings) == (version == "1.0.4")


@pytest.mark.parametrize("section", ["reward_norm", "adv_norm"])
@pytest.mark.parametrize(
    ("mean", "version", "is_said"),
    [("group", "1.0.4", True), ("group", "2.0.0", False), ("batch", "1.0.4", True), ("batch", "2.0.0", True)],
)
def test_a_lone_element_that_is_its_own_mean_is_divided_by_nothing(
    section: str, mean: str, version: str, is_said: bool
) -> None:
    norm: dict[str, Any] = {**ALONE, "mean_level": mean, "std_level": mean, "std_unbiased": False}
    found = read("areal", {"actor": {section: norm}}, version=version).findings
    assert any("divided by its own size" in each.text for each in found) == is_said
