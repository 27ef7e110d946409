"""Devices: by their settings, the way there and back without waiting more often than needed, and what the processor can really do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import torch
import torch.distributed
from torch import Tensor

from trimtab.errors import ConfigError


def device_of(setting: str, *, place: int = 0, name: str = "learner.device") -> torch.device:
    """The device that a setting names. `auto` is the GPU where there is one; `cuda` is GPU number `place` of those visible here."""
    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if setting == "cpu" or (setting == "auto" and not visible):
        return torch.device("cpu")
    if not visible:
        raise ConfigError(f"{name} needs a GPU that torch can use, got {setting} and none here. Set {name}=cpu.")
    index = int(setting.partition(":")[2]) if ":" in setting else place % visible
    if index >= visible:
        raise ConfigError(
            f"{name} needs one of the {visible} GPUs visible here, got {setting}. They count from cuda:0."
        )
    return torch.device("cuda", index)


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor there. The host does not wait for a copy to a GPU: it goes out of memory that cannot be paged away."""
    target = torch.device(device)
    if target.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(target, non_blocking=True)
    return tensor.to(target)


def to_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """All of them on the CPU; from a GPU they travel together and are waited for once."""
    if not any(each.is_cuda for each in tensors):
        return [each.detach().cpu() for each in tensors]
    found = [torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in tensors]
    for target, source in zip(found, tensors, strict=True):
        target.copy_(source.detach(), non_blocking=True)
    torch.cuda.synchronize(next(each.device for each in tensors if each.is_cuda))
    return found


def sampler_gpu(number: int) -> str | None:
    """The GPU of a sampler, as CUDA_VISIBLE_DEVICES names it: first those behind the learner's own, then all in turn.

    None where there are not several to choose from.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < 2:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(each) for each in range(count)]
    learners = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    free = names[learners:] or names
    return free[number % len(free)]


SAFE_ISA = "AVX512_CORE_BF16"
"""The widest instructions below AMX, which some virtual machines advertise without switching it on."""
BF16_PRODUCT = "import torch; a = torch.ones(128, 128, dtype=torch.bfloat16); assert float((a @ a)[0, 0]) == 128.0"


def bf16_product(isa: str | None = None) -> int:
    """The exit code of a child that multiplies two bf16 matrices: negative if a signal ended it.

    In a child, because a processor that lies about its instructions ends the process that believes it.
    """
    environment = os.environ | ({"ONEDNN_MAX_CPU_ISA": isa} if isa else {})
    command = [sys.executable, "-c", BF16_PRODUCT]
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode
