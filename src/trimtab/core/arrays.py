"""Numpy arrays and lists at the border: they become tensors once, before anything is checked or worked out."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from inspect import signature
from numbers import Number
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from trimtab.errors import InputError

Given = ParamSpec("Given")
Found = TypeVar("Found")

_NUMBER = re.compile(r"\b(float|int)\b")


def takes_arrays(*live: str) -> Callable[[Callable[Given, Found]], Callable[Given, Found]]:
    """Every argument annotated as a tensor may be an array or a list of numbers; it is copied to where the first tensor lies.

    `live` arguments carry a gradient, which no array does: they are refused unless they are tensors.
    """

    def at_the_border(function: Callable[Given, Found]) -> Callable[Given, Found]:
        asked = {name: str(each.annotation) for name, each in signature(function).parameters.items()}
        names = tuple(asked)
        tensors = {name: kind for name, kind in asked.items() if "Tensor" in kind}

        @wraps(function)
        def call(*given: Given.args, **named: Given.kwargs) -> Found:
            found: dict[str, Any] = {**dict(zip(names, given, strict=False)), **named}
            for name, value in found.items():
                if name in tensors and not (value is None or isinstance(value, Tensor)):
                    return _call_with_tensors(function, found, tensors, live)
            return function(*given, **named)

        return call

    return at_the_border


def _call_with_tensors(function: Any, found: dict[str, Any], tensors: dict[str, str], live: tuple[str, ...]) -> Any:
    device = next((each.device for each in found.values() if isinstance(each, Tensor)), None)
    for name, kind in tensors.items():
        value = found.get(name)
        if value is None or isinstance(value, Tensor) or (isinstance(value, Number) and _NUMBER.search(kind)):
            continue
        if name in live:
            raise InputError(
                f"{name} needs a torch tensor, got {_kind(value)}. Its gradient is what is trained on, and only a tensor has one."
            )
        if isinstance(value, list | tuple) and "Sequence[Tensor]" in kind:  # one for each micro-batch
            found[name] = [_tensor(name, each, device) for each in cast("list[Any]", value)]
        else:
            found[name] = _tensor(name, value, device)
    return function(**found)


def _tensor(name: str, value: object, device: torch.device | None) -> Tensor:
    """A tensor as it is; an array, or a list of numbers, arrays or tensors, as a new one."""
    if isinstance(value, Tensor):
        return value
    try:
        return _copy(value).to(device)
    except (AttributeError, RuntimeError, TypeError, ValueError, OverflowError):
        raise InputError(
            f"{name} needs a torch tensor, or numbers in rows of one length, got {_kind(value)}. {_remedy(name, value)}"
        ) from None


def _remedy(name: str, value: Any) -> str:
    """What to do: by what was passed."""
    if isinstance(getattr(value, name, None), Tensor):
        return f"Pass the tensor in it: its field {name}."
    first = next(iter(value), None) if isinstance(value, list | tuple) or hasattr(value, "__array__") else None
    if isinstance(first, str):
        return f"Ids need to be numbers: {name}=numpy.unique({name}, return_inverse=True)[1] numbers them."
    return "Pad the rows, and wrap them with torch.as_tensor."


def _copy(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    if not isinstance(value, list | tuple):
        return torch.from_numpy(
            value.__array__().copy()
        )  # torch reads neither a read-only nor a reversed array without a word
    parts = cast("list[Any]", value)
    if len(parts) and not isinstance(parts[0], Number | list | tuple):
        return torch.stack([_copy(part) for part in parts])
    return torch.tensor(parts)


def _kind(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
