"""Files of a checkpoint: strict JSON that tells tuples from lists, and safetensors without shared memory."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers.utils import logging

from trimtab.errors import CheckpointError

TensorsByName = dict[str, Tensor]


def to_json(value: object) -> Any:
    """The value as strict JSON, told apart where JSON has one form for two: tuples, numbers that are not finite."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, tuple):
        return {"tuple": [to_json(item) for item in cast("tuple[object, ...]", value)]}
    if isinstance(value, list):
        return [to_json(item) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        if all(isinstance(key, str) for key in pairs):
            inner = {str(key): to_json(item) for key, item in pairs.items()}
            return {"dict": inner} if set(inner) in ({"float"}, {"tuple"}, {"dict"}) else inner
    raise CheckpointError(
        f"A checkpoint needs plain values (numbers, text, lists, dicts with text keys), got {type(value).__name__}. "
        "Put arrays and tensors into `arrays`."
    )


def from_json(value: Any) -> Any:
    """What `to_json` was given."""
    if isinstance(value, list):
        return [from_json(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    pairs = cast("dict[str, Any]", value)
    if set(pairs) == {"float"}:
        return float(pairs["float"])
    if set(pairs) == {"tuple"}:
        return tuple(from_json(item) for item in pairs["tuple"])
    inner = cast("dict[str, Any]", pairs["dict"]) if set(pairs) == {"dict"} else pairs
    return {key: from_json(item) for key, item in inner.items()}


@contextmanager
def without_progress_bars() -> Generator[None]:
    """No progress bars: they would run through the run's own."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def save_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write values as strict JSON."""
    path.write_text(json.dumps(to_json(value), indent=1, allow_nan=False), encoding="utf-8")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: dict[str, str] | None = None) -> None:
    """safetensors refuses memory that two tensors share, and parts of a larger one: those are copied."""
    seen: set[int] = set()
    own: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        memory = plain.untyped_storage()
        shared = memory.data_ptr() in seen or memory.nbytes() != plain.numel() * plain.element_size()
        seen.add(memory.data_ptr())
        own[name] = plain.clone() if shared else plain
    save_file(own, path, metadata={"format": "pt"} | (facts or {}))


def read_tensors(path: Path) -> TensorsByName:
    """Every tensor of a safetensors file."""
    with safe_open(path, "pt") as file:  # pyright: ignore[reportUnknownVariableType]
        return {str(name): cast("Tensor", file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
