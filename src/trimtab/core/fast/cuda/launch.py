"""How a kernel is started: on the device of its tensors, with arithmetic as it is written. Nothing waits for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

WARPS = 4


def launch(kernel: Any, programs: int, on: Tensor, *given: Any, **settings: Any) -> None:
    """Start a kernel on the device of a tensor, in so many programs. A product and a sum stay two roundings, as in the plain form."""
    with torch.cuda.device_of(on):
        kernel[(programs,)](*given, **settings, num_warps=WARPS, enable_fp_fusion=False)
