"""In the place of flash-attn, which SkyRL's model imports in every worker and a CPU has not; and there, a CPU in the place of CUDA.

SkyRL asks torch for CUDA by name. Devices are the CPU, the process group is gloo's; nothing else is changed.
"""

import functools
import os
import sys

import torch

from tests.plugins.commands.figures import keep_gradients

if not torch.cuda.is_available():
    for name in ("set_device", "synchronize", "empty_cache", "manual_seed_all"):
        setattr(torch.cuda, name, lambda *_, **__: None)
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.Tensor.cuda = lambda self, *_, **__: self
    mesh = torch.distributed.device_mesh.init_device_mesh
    group = torch.distributed.init_process_group

    @functools.wraps(mesh)
    def on_cpu(device_type, *args, **kwargs):
        return mesh("cpu", *args, **kwargs)

    torch.distributed.device_mesh.init_device_mesh = on_cpu
    torch.distributed.init_process_group = lambda backend=None, **kwargs: group(backend="gloo", **kwargs)
    for module in [each for name, each in sys.modules.items() if name.startswith("skyrl.")]:
        if getattr(module, "init_device_mesh", None) is mesh:
            module.init_device_mesh = on_cpu


keep_gradients(os.environ["KEPT_GRADIENTS"])


def pad_input(*_):
    raise NotImplementedError("packed rows need flash-attn: set trainer.remove_microbatch_padding=false")


unpad_input = pad_input
