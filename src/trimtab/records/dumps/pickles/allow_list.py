"""The names a pickle may use, and what stands in for each: functions of ours that only ever build arrays and containers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimtab.errors import RecordError
from trimtab.records.dumps.pickles import tensors
from trimtab.records.dumps.pickles.tensors import Husk, StandIn


def _dict_of(items: Any = ()) -> dict[Any, Any]:
    if items:
        raise RecordError("it makes an OrderedDict of something else than its items")
    return {}


def _list_of(items: Any = ()) -> list[Any]:
    """A set as a list: nothing needs it to be one, and its items need not have a hash."""
    if not isinstance(items, list | tuple):
        raise RecordError("it makes a set of something else than a list")
    return list(items)  # pyright: ignore[reportUnknownArgumentType]


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise RecordError("it encodes something else than bytes")
    return text.encode("latin1")


def _bytes(data: Any = b"", *_: Any) -> bytes:
    if not isinstance(data, bytes | bytearray):  # a number would make as many bytes
        raise RecordError("it makes bytes of something else than bytes")
    return bytes(data)


def _size(sides: Any = ()) -> tuple[Any, ...]:
    return tuple(_list_of(sides))


def _place(*parts: Any) -> str:
    return ":".join(map(str, parts))


def _state(kind: Any, state: Any) -> Any:
    """What SkyRL's batch would set its state from."""
    return state


def _word(text: Any = "") -> str:
    """A member of an enumeration of words, such as how SkyRL saved a tensor."""
    if not isinstance(text, str):
        raise RecordError("it makes a word of something else than one")
    return text


def _tensor_of_subclass(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """A tensor of a subclass: how it is rebuilt is itself one of the stand-ins."""
    if not isinstance(function, StandIn) or not isinstance(arguments, tuple):
        raise RecordError("it rebuilds a tensor by something that is not admitted")
    return function.make(*arguments)


def _tensordict(kind: Any, state: Any) -> dict[str, Any]:
    return dict(state["_tensordict"])


def _refuse_call(*_: Any) -> Any:
    raise RecordError("it calls the type of a storage")


def _husk(name: str) -> StandIn:
    return StandIn(name, lambda *arguments: Husk(name, arguments))


def _functions() -> dict[str, Callable[..., Any]]:
    numpy_functions = {
        "multiarray._reconstruct": tensors.PickledArray,
        "multiarray.scalar": tensors.numpy_number,
        "numeric._frombuffer": tensors.from_buffer,
    }
    numpy = {
        f"numpy.{core}.{name}": function for core in ("core", "_core") for name, function in numpy_functions.items()
    }
    return numpy | {
        "collections.OrderedDict": _dict_of,
        "builtins.set": _list_of,
        "__builtin__.set": _list_of,
        "builtins.frozenset": _list_of,
        "__builtin__.frozenset": _list_of,
        "builtins.bytes": _bytes,
        "__builtin__.bytes": _bytes,
        "builtins.bytearray": _bytes,
        "__builtin__.bytearray": _bytes,
        "_codecs.encode": _encode,
        "numpy.dtype": tensors.PickledType,
        "torch.Size": _size,
        "torch.device": _place,
        "torch._utils._rebuild_tensor": tensors.tensor,
        "torch._utils._rebuild_tensor_v2": tensors.tensor,
        "torch._utils._rebuild_tensor_v3": tensors.retyped,
        "torch._utils._rebuild_parameter": tensors.parameter,
        "torch._tensor._rebuild_from_type_v2": _tensor_of_subclass,
        "torch.nested._internal.nested_tensor._rebuild_njt": tensors.jagged,
        "tensordict._reductions._make_td": _tensordict,
        "tensordict._reductions._rebuild_tensordict_files_consolidated": tensors.consolidated,
        "skyrl.backends.skyrl_train.training_batch._rebuild_tensor_batch": _state,
        "skyrl.backends.skyrl_train.training_batch.TensorFormat": _word,
        "skyrl_train.training_batch._rebuild_tensor_batch": _state,
    }


_CLASSES = (
    *(
        "numpy.ndarray",
        "torch.Tensor",
        "torch.nested._internal.nested_tensor.NestedTensor",
        "torch._dynamo.decorators._DimRange",
    ),
    *("tensordict._td.TensorDict", "tensordict._lazy.LazyStackedTensorDict"),
    *("tensordict.tensorclass.NonTensorData", "tensordict.tensorclass.NonTensorStack"),
    *("verl.protocol.DataProto", "roll.distributed.scheduler.protocol.DataProto", "_io.BytesIO"),
    *(
        f"{package}.training_batch.{name}"
        for package in ("skyrl.backends.skyrl_train", "skyrl_train")
        for name in ("TensorBatch", "TrainingInputBatch", "TrainingOutputBatch", "TensorList")
    ),
)

ADMITTED: dict[str, StandIn] = {
    **{name: StandIn(name, function) for name, function in _functions().items()},
    **{name: _husk(name) for name in _CLASSES},
    **{f"torch.{name}": StandIn(f"torch.{name}", _refuse_call) for name in tensors.STORAGES},
    "torch.storage.UntypedStorage": StandIn("torch.UntypedStorage", _refuse_call),
}
