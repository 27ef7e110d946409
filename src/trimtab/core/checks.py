"""Whether tensors fit a rule. What is on the host raises there; on a GPU the check stays on the GPU, and nothing waits for it.

Within `checking` the data itself is looked at too, and waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from trimtab.errors import InputError

ROUNDING = 0.01
"""A log-prob of certainty that was rounded lies no further above 0; in 16 bits, 16 of their steps at 1."""

_CHECKING: ContextVar[bool] = ContextVar("trimtab_checking", default=False)


@contextmanager
def checking() -> Generator[None]:
    """Look at the data of every call made within: log-probs above 0 and masks of neither 0 nor 1 are errors there.

    Each call waits for the device, so it is for a first step and for tests. Compiled code is not looked at.
    """
    before = _CHECKING.set(True)
    try:
        yield
    finally:
        _CHECKING.reset(before)


def is_checking() -> bool:
    """Whether data is looked at."""
    return not torch.compiler.is_compiling() and _CHECKING.get()


def check_mask(mask: Tensor) -> None:
    """While checking: a token is trained or it is not."""
    if mask.dtype == torch.bool or not is_checking():
        return
    other = (mask != 0) & (mask != 1)
    if bool(other.any()):
        place = other.nonzero()[0].tolist()
        raise InputError(
            f"mask needs 0 or 1, got {mask[tuple(place)].item():g} at {place}. A weight per token belongs into the advantages."
        )


def check_log_probs(name: str, log_probs: Tensor, mask: Tensor) -> None:
    """While checking: no token is more than certain. What is not finite is missing, as ever."""
    if not is_checking():
        return
    above = (log_probs.detach() > rounding(log_probs.dtype)) & log_probs.isfinite() & (mask != 0)
    if bool(above.any()):
        place = above.nonzero()[0].tolist()
        raise InputError(
            f"{name} needs log-probs of at most 0, got {log_probs[tuple(place)].item():g} at {place}. "
            "Pass log-probs: not probabilities, logits, or losses."
        )


def rounding(kind: torch.dtype) -> float:
    """How far above 0 rounding alone can take a log-prob of this type."""
    return max(ROUNDING, 16 * torch.finfo(kind).eps)


def check_device(name: str, tensor: Tensor, device: torch.device, *, plural: bool = False) -> None:
    """A tensor lies where the others do."""
    if tensor.device != device:
        need, it = ("need", "them") if plural else ("needs", "it")
        raise InputError(f"{name} {need} to be on {device}, got {tensor.device}. Move {it} with .to({str(device)!r}).")


def check_all(fits: Tensor | bool, rule: str, got: Callable[[], str]) -> None:
    """Every element fits; `got` says on the host what does not, and what to do."""
    if torch.compiler.is_compiling():
        return
    if isinstance(fits, bool):
        if not fits:
            raise InputError(f"{rule}, got {got()}")
    elif fits.device.type != "cpu":
        torch._assert_async(fits.all(), f"{rule}.")  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    elif not bool(fits.all()):
        raise InputError(f"{rule}, got {got()}")
