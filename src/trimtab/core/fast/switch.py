"""Whether the pass can run in this process, and whether one call fits it."""

from __future__ import annotations

import importlib.util
import os
from functools import cache

import torch
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.fast.program import misfit
from trimtab.core.layout import Layout, Packed, Padded

VARIABLE = "TRIMTAB_FAST"
"""Set to 0, every call takes the plain form."""


@cache
def has_compiler() -> bool:
    """Whether the extra [fast] is installed."""
    return importlib.util.find_spec("numba") is not None


def form_in_use() -> str:
    """Which form calls take in this process, in words."""
    if os.environ.get(VARIABLE) == "0":
        return f"the plain form: {VARIABLE}=0"
    if not has_compiler():
        return "the plain form: numba is not installed"
    return "one pass over the tokens, by numba; the plain form where it does not fit"


def pass_fits(rule: Correction, policies: tuple[Tensor, ...], mask: Tensor, layout: Layout) -> bool:
    """Whether the pass gives the numbers of the plain form for this call: a rule it can run, and float32 on a CPU, whole and eager."""
    if torch.compiler.is_compiling() or os.environ.get(VARIABLE) == "0" or not has_compiler():
        return False
    here = is_in_memory(mask) and mask.numel() > 0 and _is_whole(layout)
    return (
        here and all(is_in_memory(each) and each.dtype == torch.float32 for each in policies) and misfit(rule) is None
    )


def _is_whole(layout: Layout) -> bool:
    """Whether every sequence lies here from end to end."""
    return isinstance(layout, Padded | Packed) and layout.ranks.context is None


def is_in_memory(tensor: Tensor) -> bool:
    """Numbers on the host that stand where they seem to: no subclass, no transform of torch.func, nothing strided or conjugate."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
    own = type(tensor) in (Tensor, torch.nn.Parameter) and not wrapped
    return own and tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_neg()
