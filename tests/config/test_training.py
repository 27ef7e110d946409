"""What goes together in the settings of a run, beyond what each of them allows."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.config.training import Train
from trimtab.errors import ConfigError

CENTERED = {"weight": {"level": "token", "upper": 2.0}, "centering": "score"}


@pytest.mark.parametrize(
    ("rollout", "is_refused"),
    [({}, True), ({"head": "mask"}, True), ({"head": "mask", "top_p": 0.9}, False), ({"head": "top-k"}, False)],
)
def test_a_correction_that_looks_at_the_head_needs_a_rollout_that_records_it(
    rollout: dict[str, Any], is_refused: bool
) -> None:
    settings = {"correction": CENTERED, "rollout": rollout, "loss": {"kind": "reinforce"}}
    if not is_refused:
        assert Train.from_settings(settings).correction.centering is not None
        return
    with pytest.raises(ConfigError, match=r"needs the head of the sampler's distribution, got rollout\.head"):
        Train.from_settings(settings)
