"""Kernels on a CPU, under Triton's interpreter, in a process that was started with TRITON_INTERPRET=1.

The variable has to be set before Triton is imported, and nothing else that uses Triton should see it: so the files here that are not called
test_… are run in a process of their own, by `test_kernels.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton import language as tl
from triton.runtime import interpreter

from trimtab.core.fast import kernels, switch
from trimtab.core.fast.cuda import launch as starter

assert os.environ.get("TRITON_INTERPRET") == "1"


def patch_once(patch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The interpreter prepares Triton's language for each function called in a kernel: once will do, in a third of the time."""
    done: set[frozenset[int]] = set()

    def patched(function: Any) -> Any:
        names = frozenset(id(each) for each in function.__globals__.values() if each is tl or each is tl.core)
        if names in done:
            return None
        scope, outermost = patch(function), not done
        done.add(names)
        if outermost:
            restore = scope.restore

            def end() -> None:
                done.clear()
                restore()

            scope.restore = end
        return scope

    return patched


interpreter._patch_lang = patch_once(interpreter._patch_lang)


@contextmanager
def by_kernels(*, block: int = 8, run: int = 4, fast: bool = True) -> Generator[pytest.MonkeyPatch]:
    """Calls on a CPU take the kernels, or with `fast` False the plain form. Small blocks: most rows are looked at in several."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TRIMTAB_FAST", "1" if fast else "0")
        monkeypatch.setattr(switch, "WRITTEN_IN", {"cpu": "triton"})
        monkeypatch.setattr(kernels, "SHORT", block)
        monkeypatch.setattr(kernels, "BLOCK", block)
        monkeypatch.setattr(kernels, "RUN", run)
        monkeypatch.setattr(kernels, "TABLE", 2)
        yield monkeypatch


VIEWS = {
    "detach",
    "view",
    "select",
    "unbind",
    "expand",
    "unsqueeze",
    "alias",
    "_unsafe_view",
    "slice",
    "as_strided",
    "t",
}
"""Operators that start nothing on a device: they look at what is there."""
ROOM = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
READS = {"_local_scalar_dense", "item", "nonzero", "is_nonzero"}
"""Operators that wait for the device."""


class Dispatched(TorchDispatchMode):
    """What would be dispatched on a GPU: kernels of ours, and operators of torch that are more than a look at memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.kernels: list[str] = []
        self.operators: list[str] = []
        self.reads: list[str] = []
        launch = starter.launch

        def counted(kernel: Any, *given: Any, **settings: Any) -> None:
            self.kernels.append(kernel.__name__)
            with torch.utils._python_dispatch._disable_current_modes():  # the interpreter's own work is none of it
                launch(kernel, *given, **settings)

        monkeypatch.setattr(starter, "launch", counted)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__.split(".")[0]
        if name in READS:
            self.reads.append(name)
        elif name not in VIEWS | ROOM:
            self.operators.append(name)
        return function(*args, **(kwargs or {}))


def in_type(tensors: dict[str, Tensor], kind: torch.dtype) -> dict[str, Tensor]:
    """The same tensors with every number in a type."""
    return {name: each.to(kind) if each.is_floating_point() else each for name, each in tensors.items()}
