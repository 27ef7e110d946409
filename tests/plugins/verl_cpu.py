"""A machine without an accelerator as a platform of verl, which has none of its own; VERL_PLATFORM=cpu chooses it."""

from __future__ import annotations

import contextlib
import types
from typing import Any

from verl.plugin.platform import PlatformBase, PlatformRegistry


class _Cpu(types.ModuleType):
    """What verl asks of `torch.cuda`, of a machine without one."""

    mem_get_info = staticmethod(lambda *_: (1, 1))
    get_device_name = staticmethod(lambda *_: "none")

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: 0


@PlatformRegistry.register(platform="cpu")
class PlatformCpu(PlatformBase):
    """A machine without an accelerator, for which verl has no platform of its own."""

    device_name = "cpu"
    vendor_name = "none"
    device_module = _Cpu("cpu")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def ray_resource_name(self) -> str:
        return "GPU"  # what verl's pools count: Ray is told that there is one

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def nvtx_range(self, msg: str) -> Any:
        return contextlib.nullcontext()

    def nothing(self, *_: Any, **__: Any) -> None:
        return None

    set_device = synchronize = manual_seed = manual_seed_all = set_allocator_settings = empty_cache = nothing
    profiler_start = profiler_stop = cudart = nothing


PlatformCpu.__abstractmethods__ = frozenset()
