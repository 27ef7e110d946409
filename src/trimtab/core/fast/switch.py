"""Whether this process has the pass, and whether one call fits it."""

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
def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def has_pass() -> bool:
    """Whether tensors on a CPU have a pass in this process."""
    return _has_numba() and os.environ.get(VARIABLE) != "0"


def form_in_use() -> str:
    """Which form calls on a CPU take in this process, in words."""
    if has_pass():
        return "one pass over the tokens, by numba; the plain form where it does not fit"
    return "the plain form: numba is not installed" if not _has_numba() else f"the plain form: {VARIABLE}=0"


def pass_fits(rule: Correction, policies: tuple[Tensor, ...], mask: Tensor, layout: Layout) -> bool:
    """Whether a pass gives the numbers of the plain form for this call: a rule it can run, and tensors it can read, whole and eager."""
    if torch.compiler.is_compiling() or not has_pass():
        return False
    here = is_bare(mask) and mask.numel() > 0 and _is_whole(layout)
    return here and all(is_bare(each) and each.dtype == torch.float32 for each in policies) and misfit(rule) is None


def _is_whole(layout: Layout) -> bool:
    """Whether every sequence lies here from end to end."""
    return isinstance(layout, Padded | Packed) and layout.ranks.context is None


def is_bare(tensor: Tensor) -> bool:
    """Numbers in memory that stand where they seem to: no subclass, no transform of torch.func, nothing strided or conjugate."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
    own = type(tensor) in (Tensor, torch.nn.Parameter) and not wrapped
    return own and tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_neg()
