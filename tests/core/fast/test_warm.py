"""The first call says that it compiles, and `trimtab doctor --warm` leaves nothing to be compiled."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("numba")

COMPILED = """
import numba.core.event as event
class Count(event.Listener):
    names = []
    def on_start(self, started): self.names.append(started.data["dispatcher"].py_func.__name__)
    def on_end(self, ended): pass
event.register("numba:compile", Count())
import torch, trimtab
for rule in ("off", "geo-rs+token-tis", "seq-tis", "veto", "kpop", "k3-rs", "geo-rs+token-mis"):
    for rows in (7, 120):
        behavior = -torch.rand(rows, 50) - 0.5
        current = (behavior + 0.05).requires_grad_()
        mask = torch.rand(rows, 50) > 0.1
        found = trimtab.policy_loss(
            "clip", current=current, proximal=behavior + 0.02, behavior=behavior, mask=mask, advantages=torch.randn(rows), correction=rule
        )
        found.loss.backward()
        assert all(bool(each.isfinite()) for each in found.metrics.values())
print(len(Count.names), *Count.names)
"""


def test_compiling_is_said_once_and_only_of_our_own_functions(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numba.core.event import start_event

    from trimtab.core.fast.loops import NOTICE

    monkeypatch.setattr(NOTICE, "said", False)

    def compiled(module: str) -> None:
        """As numba tells whoever has asked for it."""
        function = SimpleNamespace(py_func=SimpleNamespace(__module__=module))
        start_event("numba:compile", {"dispatcher": function})

    with caplog.at_level(logging.WARNING, "trimtab"):
        compiled("numba.misc.quicksort")
        assert not caplog.records
        for _ in range(3):
            compiled("trimtab.core.fast.stages")
    assert len(caplog.records) == 1
    assert "trimtab doctor --warm" in caplog.records[0].message


@pytest.mark.slow
def test_after_warming_up_nothing_is_compiled(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environment.pop("TRIMTAB_FAST", None)

    def ran(*command: str) -> str:
        return subprocess.run(
            [sys.executable, *command], env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert int(ran("-c", COMPILED).split()[0]) > 10  # the control: an empty cache
    for file in list(tmp_path.rglob("*.nb?")):
        file.unlink()
    assert "compiled and kept on disk" in ran("-m", "trimtab", "doctor", "--warm")
    assert ran("-c", COMPILED).strip() == "0"
