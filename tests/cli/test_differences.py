"""What is left out of a conversion, in numbers."""

from __future__ import annotations

import pytest

from trimtab import dialects
from trimtab.cli import differences


def test_two_rules_that_correct_nothing_are_told_apart_without_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """One compares with the sampler, the other with the start of the step; neither touches a token, so no batch could show it."""
    asked, there = dialects.read("prime-rl", {"type": "ppo"}), dialects.read("verl", {})
    assert asked.correction is not None
    assert asked.correction != there.correction
    monkeypatch.setattr(differences, "smallest_difference", lambda *rules, **more: pytest.fail("a batch was tried"))
    assert differences.sizes(asked, there, ["correction"]) == {}


def test_a_gate_that_is_left_out_is_shown_on_a_batch() -> None:
    asked, there = dialects.read("prime-rl", {"type": "icepop"}), dialects.read("verl", {})
    assert "correction" in differences.sizes(asked, there, ["correction"])
