"""A device that is not there: tensors that claim another device, hold real numbers, and refuse to mix with those of the CPU.

What CUDA would refuse is refused here, so that code that forgets to move a tensor fails without a GPU; what would make the host wait
for a device is counted. The device is called `meta`, the only one beside `cpu` that every build of torch knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

FAR = torch.device("meta")
READS: Counter[str] = Counter()
"""How often the host waited for the device, by operation."""
CROSSING = {"_to_copy", "copy_"}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim"}


class FarTensor(Tensor):
    """A tensor of that device; `near` holds its numbers."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> FarTensor:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            near.shape,
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            layout=near.layout,
            device=FAR,
        )

    def __init__(self, near: Tensor) -> None:
        self.near = near

    def __repr__(self) -> str:  # type: ignore[override]
        return f"FarTensor({self.near})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class FarDevice(TorchDispatchMode):
    """While it is on, `device=FAR` makes tensors of that device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class FarData(TorchFunctionMode):
    """`torch.tensor(…, device=FAR)` makes its tensor without a word to the other mode, and would lose the numbers."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and str(given.get("device", "cpu")) == FAR.type:
            return func(*args, **given | {"device": "cpu"}).to(FAR)
        if func is Tensor.tolist and isinstance(args[0], FarTensor):  # torch has none for tensors of Python's
            READS["tolist"] += 1
            return args[0].near.tolist()
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], FarTensor):
            args = (args[0], _index(args[1]), *args[2:])
        return func(*args, **given)


def _index(index: Any) -> Any:
    """Lists as tensors of the device: torch would make them there itself, and lose the numbers."""
    parts = index if isinstance(index, tuple) else (index,)
    found = tuple(torch.tensor(each).to(FAR) if isinstance(each, list) else each for each in parts)
    return found if isinstance(index, tuple) else found[0]


@contextmanager
def far_device() -> Iterator[None]:
    """The device, for as long as this lasts."""
    with FarData(), FarDevice():
        yield


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on the numbers, its results on the device it belongs to."""
    name = func.__name__.partition(".")[0]
    flat = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
    far = [each for each in flat if isinstance(each, FarTensor)]
    asked = kwargs.get("device")
    target = None if asked is None else torch.device(asked)
    if far and name not in CROSSING:
        # CUDA takes whole numbers from the host as indices
        places = [id(each) for each in args[1]] if name in INDEXED else []
        strangers = [
            each
            for each in flat
            if not isinstance(each, FarTensor) and each.dim() > 0 and each.numel() and id(each) not in places
        ]
        if strangers:
            raise RuntimeError(
                f"{name}: expected all tensors on one device, found {FAR} and cpu of {strangers[0].shape}"
            )
    _count(name, args, far, target)
    inner = kwargs | ({"device": torch.device("cpu")} if target is not None and target.type == FAR.type else {})
    wrappers = {id(each.near): each for each in far}
    result = func(*_near(args), **_near(inner))
    is_far = target.type == FAR.type if target is not None else bool(far)
    if name == "copy_":
        is_far = isinstance(args[0], FarTensor)
    return tree_map(lambda each: _wrapped(each, wrappers) if is_far else each, result)


def _near(values: Any) -> Any:
    return tree_map(_numbers, values)


def _numbers(value: Any) -> Any:
    if isinstance(value, FarTensor):
        return value.near
    return value


def _wrapped(value: Any, wrappers: dict[int, FarTensor]) -> Any:
    """Results that are inputs, as of operations in place, keep the tensor they had."""
    if not isinstance(value, Tensor) or isinstance(value, FarTensor):
        return value
    return wrappers[id(value)] if id(value) in wrappers else FarTensor(value.resolve_conj().resolve_neg())


def _count(name: str, args: Any, far: list[FarTensor], target: torch.device | None) -> None:
    if not far:
        return
    masks = [each for each in tree_flatten(args[1:])[0] if isinstance(each, Tensor) and each.dtype == torch.bool]
    is_mask = name in INDEXED and bool(masks)
    home = name == "_to_copy" and target is not None and target.type == "cpu"
    home |= name == "copy_" and not isinstance(args[0], FarTensor)
    if name in WAITING or is_mask or home:
        READS[name] += 1
