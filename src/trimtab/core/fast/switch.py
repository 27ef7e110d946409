"""Which pass a device has in this process, and whether one call fits it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import warnings
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.fast.program import misfit
from trimtab.core.layout import Layout, Packed, Padded
from trimtab.errors import TrimtabError

Made = TypeVar("Made")

VARIABLE = "TRIMTAB_FAST"
"""Set to 0, every call takes the plain form; set to 1, passes that no device of their type has run yet are taken too."""
UNTRIED = {"triton"}
"""Passes that were written without their device: nobody gets them without asking."""
WRITTEN_IN = {"cpu": "numba", "cuda": "triton"}
"""What the pass of each type of device is written in; others have none."""
TAKES = {"numba": (torch.float32,), "triton": (torch.float32, torch.bfloat16, torch.float16)}
"""The types of log-probs that each reads."""
OLDEST_TRITON = (3, 4)
"""Arguments that are tuples of tuples came with it."""
FAILED: dict[str, str] = {}
"""What could not be started in this process, and why."""


@cache
def lacks(package: str) -> str | None:
    """What a pass lacks that is written in a package; None: nothing."""
    if importlib.util.find_spec(package) is None:
        return f"{package} is not installed"
    if package != "triton":
        return None
    version = importlib.metadata.version(package)
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    wanted = ".".join(map(str, OLDEST_TRITON))
    return None if number >= OLDEST_TRITON else f"triton {version} is older than {wanted}"


def has_pass(device: str) -> bool:
    """Whether tensors on a type of device have a pass in this process."""
    package = WRITTEN_IN.get(device)
    if package is None or lacks(package) is not None or package in FAILED:
        return False
    asked = os.environ.get(VARIABLE)
    return asked == "1" if package in UNTRIED else asked != "0"


def form_in_use(device: str = "cpu") -> str:
    """Which form calls take on a type of device in this process, in words."""
    package = WRITTEN_IN[device]
    if os.environ.get(VARIABLE) == "0":
        return f"the plain form: {VARIABLE}=0"
    missing = lacks(package) or FAILED.get(package)
    if missing is not None:
        return f"the plain form: {missing}"
    form = f"one pass over the tokens, by {package}; the plain form where it does not fit"
    if package not in UNTRIED:
        return form
    label = "tested under Triton's interpreter on a CPU, not run on a GPU"
    return (
        f"{form}. Its kernels are {label}"
        if has_pass(device)
        else f"the plain form. {VARIABLE}=1 takes kernels: {label}"
    )


def is_by_kernels(device: torch.device) -> bool:
    """Whether the pass of a device is made of kernels."""
    return WRITTEN_IN[device.type] == "triton"


def made_by_kernels(make: Callable[[], Made]) -> Made | None:
    """What kernels make. None, and one warning, where they cannot be started here, as without a C compiler: the plain form has to do."""
    try:
        return make()
    except (TrimtabError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # Triton fails in many ways, none of which may end a training run
        FAILED["triton"] = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
        warnings.warn(
            f"Kernels could not be started here ({FAILED['triton']}). Corrections and losses take the plain form; "
            f"{VARIABLE}=0 asks for it without this warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def pass_fits(rule: Correction, policies: tuple[Tensor, ...], mask: Tensor, layout: Layout) -> bool:
    """Whether a pass gives the numbers of the plain form for this call: a rule it can run, and tensors it can read, whole and eager."""
    device = mask.device.type
    if torch.compiler.is_compiling() or not has_pass(device):
        return False
    here = is_bare(mask, device) and mask.numel() > 0 and _is_whole(layout)
    types = TAKES[WRITTEN_IN[device]]
    return here and all(is_bare(each, device) and each.dtype in types for each in policies) and misfit(rule) is None


def _is_whole(layout: Layout) -> bool:
    """Whether every sequence lies here from end to end."""
    return isinstance(layout, Padded | Packed) and layout.ranks.context is None


def is_bare(tensor: Tensor, device: str) -> bool:
    """Numbers on a type of device that stand where they seem to: no subclass, no transform of torch.func, nothing strided or conjugate."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
    own = type(tensor) in (Tensor, torch.nn.Parameter) and not wrapped
    return own and tensor.device.type == device and tensor.is_contiguous() and not tensor.is_neg()
