"""What a pickle gets in place of the objects it names, tensors as arrays of numpy among them: every size is checked against the file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from trimtab.errors import RecordError


class StandIn:
    """In place of a function or class that a pickle names."""

    __slots__ = ("make", "name")

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self.name, self.make = name, make


class Husk:
    """An object of a foreign class: the class's name, and the state it would have had."""

    __slots__ = ("arguments", "name", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments = name, arguments
        self.state: Any = None


MOST_REPEATED = 1 << 28
"""Elements of a tensor that repeats its storage (stride 0); more is no batch but an attempt on the memory."""
_PLAIN = re.compile(r"[<>=|]?[biufSU]\d{1,4}|bool|u?int\d{1,2}|float\d{2}")
_WIDTHS = {
    **dict.fromkeys(("Double", "float64"), "f8"),
    **dict.fromkeys(("Float", "float32"), "f4"),
    **dict.fromkeys(("Half", "float16"), "f2"),
    **dict.fromkeys(("BFloat16", "bfloat16"), "bf16"),
    **dict.fromkeys(("Long", "int64"), "i8"),
    **dict.fromkeys(("Int", "int32"), "i4"),
    **dict.fromkeys(("Short", "int16"), "i2"),
    **dict.fromkeys(("Char", "int8"), "i1"),
    **dict.fromkeys(("Byte", "uint8", "Untyped"), "u1"),
    **dict.fromkeys(("Bool", "bool"), "?"),
    "uint16": "u2",
    "uint32": "u4",
    "uint64": "u8",
}
STORAGES = (
    *(f"{name}Storage" for name in _WIDTHS if name[0].isupper()),
    *(name for name in _WIDTHS if name[0].islower()),
)
"""What a pickle calls the types of tensors: `torch.FloatStorage` of a storage, `torch.uint16` of those that came later."""


def width(name: str) -> int:
    """Bytes of an element of a storage, by the name of its type."""
    return 2 if (code := _code(name)) == "bf16" else np.dtype(code).itemsize


def elements(data: NDArray[np.uint8], name: str) -> NDArray[Any]:
    """A storage's bytes as numbers of that type, bfloat16 as float32."""
    code = _code(name)
    if len(data) % width(name):
        raise RecordError(f"it has a storage of {len(data)} bytes for numbers of {width(name)}")
    if code == "bf16":
        return from_bfloat16(data.view("<u2"))
    return data != 0 if code == "?" else data.view(f"<{code}")


def tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> NDArray[Any]:
    """A view of a storage, if it lies inside."""
    if not isinstance(storage, np.ndarray):
        raise RecordError("it makes a tensor of something else than a storage")
    shape, steps = _whole(size), _whole(stride)
    count = math.prod(shape)
    last = int(offset) + sum((side - 1) * step for side, step in zip(shape, steps, strict=True))
    if offset < 0 or (count and last >= len(storage)) or count > max(len(storage), MOST_REPEATED):
        raise RecordError(f"it has a tensor of shape {shape} that its storage of {len(storage)} numbers does not hold")
    if not count:
        return np.empty(shape, storage.dtype)
    strides = [step * storage.itemsize for step in steps]
    return as_strided(storage[int(offset) :], shape, strides, writeable=False)


def retyped(
    storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, kind: Any, *_: Any
) -> NDArray[Any]:
    """A tensor of a type that came after the typed storages: its bytes, then the type."""
    if not isinstance(storage, np.ndarray) or storage.dtype != np.uint8 or not isinstance(kind, StandIn):
        raise RecordError("it makes a tensor of something else than a storage")
    return tensor(elements(storage, kind.name.removeprefix("torch.")), offset, size, stride)


def parameter(data: Any, *_: Any) -> Any:
    """The tensor of a parameter."""
    return data


def jagged(parts: Any) -> list[NDArray[Any]]:
    """A nested tensor as the list of its rows."""
    if not isinstance(parts, dict) or parts.get("_ragged_idx", 1) != 1:
        raise RecordError("it has a nested tensor that is ragged in another place than its second")
    values, offsets, lengths = parts["values"], parts["offsets"], parts.get("lengths")
    return ragged(values, offsets, lengths)


def ragged(values: Any, offsets: Any, lengths: Any = None) -> list[NDArray[Any]]:
    """Stretches of a row of values: from each offset to the next, or as many as `lengths` says."""
    ends = _whole(offsets)
    counts = np.diff(ends).tolist() if lengths is None else _whole(lengths)
    if any(start + count > len(values) or count < 0 for start, count in zip(ends, counts, strict=False)):
        raise RecordError("it has a nested tensor whose rows its values do not hold")
    return [values[start : start + count] for start, count in zip(ends, counts, strict=False)]


def consolidated(metadata: Any, storage: Any) -> dict[str, Any]:
    """A TensorDict whose tensors lie in one storage of bytes."""
    if not isinstance(storage, np.ndarray) or storage.dtype != np.uint8:
        raise RecordError("it has a TensorDict without its bytes")
    content: dict[str, Any] = {key: value[0] for key, value in metadata["non_tensors"].items()}
    values = lengths = None
    for key, (kind, shape, start, stop, _) in metadata["leaves"].items():
        leaf = _leaf(storage, str(kind).removeprefix("torch."), shape, int(start), int(stop))
        if key.startswith("<NJT_VALUES>"):
            values, lengths = leaf, None
        elif key.startswith("<NJT_LENGTHS>"):
            lengths = leaf
        elif key.startswith("<NJT_OFFSETS>"):
            content[key.removeprefix("<NJT_OFFSETS>")] = ragged(values, leaf, lengths)
        else:
            content[key] = leaf
    return content


def typed_bytes(data: Any, kind: Any, shape: Any) -> NDArray[Any]:
    """An array out of its bytes, its type's name in numpy or torch, and its shape."""
    sides = _whole(shape)
    name = str(kind).removeprefix("torch.")
    if name not in _WIDTHS and not _PLAIN.fullmatch(name):
        raise RecordError(f"it has numbers of type {name}")
    raw = np.frombuffer(data, np.uint8)
    values = elements(raw, name) if name in _WIDTHS else raw.view(np.dtype(name))
    if math.prod(sides) != len(values):
        raise RecordError(f"it has {len(values)} numbers for an array of shape {sides}")
    return values.reshape(sides)


class PickledType(Husk):
    """numpy's dtype: a code, and the order of its bytes as state."""

    __slots__ = ()

    def __init__(self, code: Any = "O", *_: Any) -> None:
        super().__init__("numpy.dtype", (code,))

    @property
    def code(self) -> str:
        """Such as `<f4`; O of an array of objects."""
        match self.state:
            case (_, "<" | ">" as order, *_):
                return f"{order}{self.arguments[0]}"
            case _:
                return str(self.arguments[0])


class PickledArray(Husk):
    """numpy's array: shape, dtype and bytes or objects as state."""

    __slots__ = ()

    def __init__(self, *_: Any) -> None:
        super().__init__("numpy.ndarray", ())

    @property
    def value(self) -> Any:
        """The array; of one of objects, their list."""
        match self.state:
            case (_, _, PickledType(), _, list() as objects):
                return cast("list[Any]", objects)
            case (_, shape, PickledType() as kind, fortran, bytes() as data):
                values = typed_bytes(data, kind.code, shape)
                return values.reshape(values.shape[::-1]).T if fortran else values
            case _:
                raise RecordError("it has an array without shape, type and bytes")


def from_buffer(data: Any, kind: Any, shape: Any, order: Any = "C", *_: Any) -> NDArray[Any]:
    """An array as protocol 5 has it, its bytes first."""
    if not isinstance(data, bytes | bytearray) or not isinstance(kind, PickledType):
        raise RecordError("it makes an array of something else than bytes")
    values = typed_bytes(data, kind.code, shape)
    return values.reshape(values.shape[::-1]).T if order == "F" else values


def numpy_number(kind: Any, data: Any = b"") -> Any:
    """A number of numpy's."""
    if not isinstance(kind, PickledType):
        raise RecordError("it has a number without a type")
    return typed_bytes(data, kind.code, ()).item() if isinstance(data, bytes) else data


def plain(value: Any) -> Any:
    """A value as arrays, lists and numbers, out of what stood in for it."""
    if isinstance(value, PickledArray):
        return value.value
    if isinstance(value, Husk):  # what is no tensor in a TensorDict
        match value.state:
            case {"non_tensordict": {"data": data}}:
                return data
            case _:
                return None
    return value


def _code(name: str) -> str:
    code = _WIDTHS.get(name.removesuffix("Storage"))
    if code is None:
        raise RecordError(f"it has numbers of type {name}")
    return code


def _whole(numbers: Any) -> list[int]:
    """Sizes, none below 0."""
    sides = [int(number) for number in numbers]
    if any(side < 0 for side in sides):
        raise RecordError("it has a tensor with a size below 0")
    return sides


def _leaf(storage: NDArray[Any], kind: str, shape: Sequence[int], start: int, stop: int) -> NDArray[Any]:
    sides = _whole(shape)
    size = math.prod(sides) * width(kind)
    if not 0 <= start <= start + size <= max(stop, 0) <= len(storage):
        raise RecordError(f"it has a tensor of shape {sides} that its storage of {len(storage)} bytes does not hold")
    return elements(storage[start : start + size], kind).reshape(sides)


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """bfloat16 as float32, of which it is the upper half."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
