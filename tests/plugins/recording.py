"""In the place of a recorder's thread and files: what it was handed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from trimtab.plugins import record


class RecordStandIn:
    """Keeps what is added, and refuses what a recorder has no name for."""

    NAMES = frozenset(
        [
            *("step", "tokens", "mask", "attention", "cu_seqlens", "behavior", "proximal", "current", "reference"),
            *("advantages", "rewards", "groups", "finish", "versions", "learner_version"),
        ]
    )

    def __init__(self, kept: list[dict[str, Any]]) -> None:
        self.kept = kept

    def add(self, **given: Any) -> bool:
        assert given.keys() <= self.NAMES
        copied = {name: value.clone() if hasattr(value, "clone") else value for name, value in given.items()}
        self.kept.append(copied)
        return True

    @classmethod
    def put(cls, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
        kept: list[dict[str, Any]] = []
        module = ModuleType("recorded_elsewhere")
        module.__spec__ = type("Spec", (), {"name": module.__name__})()
        module.Recorder = lambda folder: cls(kept)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(record, "HOME", module.__name__)
        record._recorder.cache_clear()
        return kept
