"""What a call is given: arrays become tensors, and tensors are checked against each other, once.

What is on the host raises there; on a GPU the check stays on the GPU, and nothing waits for it. Within `checking` the data itself is looked
at too, and waited for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import signature
from itertools import pairwise
from numbers import Number
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from trimtab.core.layout import Layout, Packed, Padded
from trimtab.core.ranks import Ranks
from trimtab.errors import InputError

ROUNDING = 0.01
"""A log-prob of certainty that was rounded lies no further above 0; in 16 bits, 16 of their steps at 1."""

_CHECKING: ContextVar[bool] = ContextVar("trimtab_checking", default=False)


@contextmanager
def checking() -> Generator[None]:
    """Look at the data of every call made within: log-probs above 0 and masks of neither 0 nor 1 are errors there.

    Each call waits for the device, so it is for a first step and for tests. Compiled code is not looked at.
    """
    before = _CHECKING.set(True)
    try:
        yield
    finally:
        _CHECKING.reset(before)


def is_checking() -> bool:
    """Whether data is looked at."""
    return not torch.compiler.is_compiling() and _CHECKING.get()


def check_mask(mask: Tensor) -> None:
    """While checking: a token is trained or it is not."""
    if mask.dtype == torch.bool or not is_checking():
        return
    other = (mask != 0) & (mask != 1)
    if bool(other.any()):
        place = other.nonzero()[0].tolist()
        raise InputError(
            f"mask needs 0 or 1, got {mask[tuple(place)].item():g} at {place}. Multiply a weight per token into the advantages."
        )


def check_log_probs(name: str, log_probs: Tensor, mask: Tensor) -> None:
    """While checking: no token is more than certain. What is not finite is missing, as ever."""
    if not is_checking():
        return
    above = (log_probs.detach() > rounding(log_probs.dtype)) & log_probs.isfinite() & (mask != 0)
    if bool(above.any()):
        place = above.nonzero()[0].tolist()
        raise InputError(
            f"{name} needs log-probs of at most 0, got {log_probs[tuple(place)].item():g} at {place}. "
            "Pass log-probs: not probabilities, logits, or losses."
        )


def rounding(kind: torch.dtype) -> float:
    """How far above 0 rounding alone can take a log-prob of this type."""
    return max(ROUNDING, 16 * torch.finfo(kind).eps)


def check_device(name: str, tensor: Tensor, device: torch.device, *, plural: bool = False) -> None:
    """A tensor lies where the others do."""
    if tensor.device != device:
        need, it = ("need", "them") if plural else ("needs", "it")
        raise InputError(f"{name} {need} to be on {device}, got {tensor.device}. Move {it} with .to({str(device)!r}).")


def check_all(fits: Tensor | bool, rule: str, got: Callable[[], str]) -> None:
    """Every element fits; `got` says on the host what does not, and what to do."""
    if torch.compiler.is_compiling():
        return
    if isinstance(fits, bool):
        if not fits:
            raise InputError(f"{rule}, got {got()}")
    elif fits.device.type != "cpu":
        torch._assert_async(fits.all(), f"{rule}.")  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    elif not bool(fits.all()):
        raise InputError(f"{rule}, got {got()}")


def number_of_sequences(mask: Tensor, layout: Layout) -> int:
    """How many sequences lie in a mask; −1 where turns are the units."""
    return len(mask) if isinstance(layout, Padded) else len(layout.cu_seqlens) - 1 if isinstance(layout, Packed) else -1


def check_group(group: Tensor | None, rows: int) -> None:
    """A group id belongs to a row."""
    if group is None:
        return
    if group.shape != (rows,):
        raise InputError(
            f"group needs one id per row, shape ({rows},), got {tuple(group.shape)}. It is an id per sequence, not per token: "
            "pass the id of each sequence once."
        )
    if group.is_floating_point() or group.dtype == torch.bool:
        raise InputError(f"group needs integer ids, got {group.dtype}. Number the prompts.")


def checked_layout(policies: Mapping[str, Tensor], mask: Tensor, cu_seqlens: Tensor | None, ranks: Ranks) -> Layout:
    """Where sequences lie, with every tensor checked against the mask."""
    layout = layout_of(mask, cu_seqlens, ranks)
    for name, log_probs in policies.items():
        check_like(name, log_probs, mask)
        if not log_probs.is_floating_point():
            raise InputError(
                f"{name} needs floating-point log-probs, got {log_probs.dtype}. Pass log-probs, not token ids."
            )
        check_log_probs(name, log_probs, mask)
    return layout


def per_token(advantages: Tensor, mask: Tensor, layout: Layout) -> Tensor:
    """Advantages of the tokens as given, or one per sequence laid over its tokens (broadcasts against them); detached."""
    advantages = advantages.detach()
    rows = number_of_sequences(mask, layout)
    check_device("advantages", advantages, mask.device, plural=True)
    advantages = column_per_token(advantages, rows, mask, layout)
    if advantages.shape != mask.shape:
        if advantages.shape != (rows,):
            raise InputError(
                f"advantages need shape {tuple(mask.shape)} (per token) or ({rows},) (per sequence), got {tuple(advantages.shape)}."
            )
        advantages = layout.spread(advantages)
    return advantages


def column_per_token(value: Tensor, rows: int, mask: Tensor, layout: Layout) -> Tensor:
    """`[sequences, 1]` laid over the tokens: one per sequence in every layout, also where there are as many tokens as sequences."""
    return layout.spread(value.squeeze(-1)).expand(mask.shape) if value.shape == (rows, 1) else value


def layout_of(mask: Tensor, cu_seqlens: Tensor | None, ranks: Ranks) -> Layout:
    """Where the sequences of a mask lie, checked."""
    check_mask(mask)
    if cu_seqlens is None:
        if mask.ndim != 2:
            raise InputError(
                f"mask needs two dimensions [rows, width] without cu_seqlens, got {tuple(mask.shape)}. "
                "Pass cu_seqlens for packed tokens."
            )
        return Padded(ranks=ranks)
    if mask.ndim != 1:
        raise InputError(
            f"mask needs one dimension [tokens] with cu_seqlens, got {tuple(mask.shape)}. Drop cu_seqlens for padded rows."
        )
    if cu_seqlens.ndim != 1 or len(cu_seqlens) == 0 or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise InputError(
            f"cu_seqlens needs one dimension of int32 or int64 with a leading 0, got {cu_seqlens.dtype} {tuple(cu_seqlens.shape)}."
        )
    check_device("cu_seqlens", cu_seqlens, mask.device)
    _check_boundaries(cu_seqlens, mask.numel())
    return Packed(cu_seqlens=cu_seqlens, tokens=mask.numel(), ranks=ranks)


def _check_boundaries(cu_seqlens: Tensor, tokens: int) -> None:
    """Boundaries start at 0, never go back and end at the token count."""
    first, last = cu_seqlens[0], cu_seqlens[-1]
    on_host = cu_seqlens.device.type == "cpu" and not torch.compiler.is_compiling()
    check_all(
        int(first) == 0 and int(last) == tokens if on_host else (first == 0) & (last == tokens),
        f"cu_seqlens needs to start at 0 and end at the number of tokens ({tokens})",
        lambda: (
            f"{int(cu_seqlens[0])} … {int(cu_seqlens[-1])}. "
            "Leave padding tokens out, or give them a sequence of their own with a False mask."
        ),
    )
    check_all(
        cu_seqlens[1:] >= cu_seqlens[:-1],
        "cu_seqlens needs to be non-decreasing",
        lambda: _first_step_back(cu_seqlens.tolist()),
    )


def _first_step_back(bounds: list[int]) -> str:
    index, (here, there) = next((at, pair) for at, pair in enumerate(pairwise(bounds), 1) if pair[1] < pair[0])
    return f"{here} then {there} at index {index}. Pass cumulative lengths."


def check_like(name: str, tensor: Tensor, mask: Tensor, each: str = "One log-prob per token") -> None:
    """A tensor has the shape of the mask, and lies where it does."""
    if tensor.shape != mask.shape:
        raise InputError(
            f"{name} needs the shape of mask {tuple(mask.shape)}, got {tuple(tensor.shape)}. {each}, same index everywhere."
        )
    check_device(name, tensor, mask.device)


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
                f"{name} needs a torch tensor, got {_kind(value)}. It carries the gradient, so it cannot be an array."
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
