"""Whether tensors fit a rule. What is on the host raises there; on a GPU the check stays on the GPU, and nothing waits for it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trimtab.errors import InputError


def check_device(name: str, tensor: Tensor, device: torch.device, *, plural: bool = False) -> None:
    """A tensor lies where the others do."""
    if tensor.device != device:
        need, it = ("need", "them") if plural else ("needs", "it")
        raise InputError(f"{name} {need} to be on {device}, got {tensor.device}. Move {it} with .to({str(device)!r}).")


def check_all(fits: Tensor, rule: str, got: Callable[[], str]) -> None:
    """Every element fits; `got` says on the host what does not, and what to do."""
    if torch.compiler.is_compiling():
        return
    if fits.device.type != "cpu":
        torch._assert_async(fits.all(), f"{rule}.")  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    elif not bool(fits.all()):
        raise InputError(f"{rule}, got {got()}")
