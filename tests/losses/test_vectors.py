"""Recorded losses and gradients of verl, AReaL, SkyRL, TRL, OpenRLHF and prime-rl, reproduced from their own settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.losses.recorded import Case, areal, cases, openrlhf, prime_rl, skyrl, trl, verl
from trimtab.losses.policy import policy_loss

READERS: dict[str, Callable[[Case], dict[str, Any]]] = {
    "verl-loss": verl,
    "areal-loss": areal,
    "skyrl-loss": skyrl,
    "trl-loss": trl,
    "openrlhf-loss": openrlhf,
    "prime-rl-correction": prime_rl,
}
NOT_REPRODUCED: dict[str, str] = {}
RECORDED = [(read, case) for name, read in READERS.items() for case in cases(name)]


@pytest.mark.filterwarnings("ignore::trimtab.errors.ConfigWarning")
@pytest.mark.parametrize(("read", "case"), RECORDED, ids=[case.id for _, case in RECORDED])
def test_the_recorded_loss_and_gradient_come_out(read: Callable[[Case], dict[str, Any]], case: Case):
    if case.id in NOT_REPRODUCED:
        pytest.skip(NOT_REPRODUCED[case.id])
    arguments = read(case)
    current = arguments["current"].clone().requires_grad_()
    found = policy_loss(**(arguments | {"current": current}))
    found.loss.backward()
    want = case.outputs["grad"]
    assert current.grad is not None
    assert torch.equal(current.grad == 0, want == 0), "a decision differs"
    torch.testing.assert_close(current.grad, want, rtol=0, atol=1e-5 * float(want.abs().max()))
    torch.testing.assert_close(found.loss.detach(), case.outputs["loss"].reshape(()), rtol=1e-4, atol=1e-6)
