"""What this processor can really do, tried in a child, because one that lies about its instructions ends the process that believes it."""

from __future__ import annotations

import os
import subprocess
import sys

SAFE_ISA = "AVX512_CORE_BF16"
"""The widest instructions below AMX, which some virtual machines advertise without switching it on."""
BF16_PRODUCT = "import torch; a = torch.ones(128, 128, dtype=torch.bfloat16); assert float((a @ a)[0, 0]) == 128.0"


def bf16_product(isa: str | None = None) -> int:
    """The exit code of a child that multiplies two bf16 matrices: negative if a signal ended it, as a processor that lies does."""
    environment = os.environ | ({"ONEDNN_MAX_CPU_ISA": isa} if isa else {})
    command = [sys.executable, "-c", BF16_PRODUCT]
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode
