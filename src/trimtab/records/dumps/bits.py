"""Numbers that numpy has no type for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """bfloat16 as float32, of which it is the upper half."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
