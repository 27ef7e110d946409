"""Checkpoints: a run as it stood after a step, in folders that are whole or absent.

step-000040/
  model/                  Hugging Face layout: `AutoModelForCausalLM.from_pretrained` loads it; README.md in it is the model card
  optimizer.safetensors   the optimiser's tensors, by group, parameter and name
  optimizer.json          its hyper-parameters and the names of its parameters
  state.json              what the loop wants back
  arrays.safetensors      arrays it wants back
  manifest.json           size and SHA-256 of every other file but the card, which its reader may edit; written last
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from trimtab.config.safe_yaml import json_data
from trimtab.errors import CheckpointError
from trimtab.records.files import disk_error, sync_folder
from trimtab.train.learner.state_files import from_json, read_tensors, save_json, save_tensors
from trimtab.train.model_card import CARD

SCHEMA = 1
_SAVING, _REPLACED, _REMOVING = ".saving-", ".replaced-", ".removing-"
_NAME = re.compile(r"(\.replaced-)?step-(\d+)")
_FULL = ("os error 28", "code: 28", "StorageFull", "No space left", "os error 122", "code: 122")
_BLOCK = 1 << 22
_CARD = f"model/{CARD}"


@dataclass(frozen=True, eq=False)
class Saved:
    """What a checkpoint holds beside weights and optimiser."""

    step: int
    state: dict[str, Any]
    arrays: dict[str, NDArray[Any] | Tensor]
    """Each of the kind it was saved as: NumPy array or (CPU) tensor."""


def save(
    folder: Path,
    step: int,
    *,
    learner: Callable[[Path], None],
    tokenizer: Any,
    state: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any] | Tensor],
    keep: int,
    card: str = "",
) -> Path:
    """The checkpoint of that step, written; then, of the earlier ones, all but the newest `keep` - 1 are removed.

    `learner` writes its own part into the folder it is given: model and optimiser. `card` is the text beside the model; none if empty.

    A failure leaves every earlier checkpoint as it was and nothing half-written.
    """
    final = folder / f"step-{step:06d}"
    temporary = folder / f"{_SAVING}{final.name}"
    with _said(final, temporary):
        folder.mkdir(exist_ok=True)  # not what is above it: a run that was removed is not made again
        _clear_unfinished(folder)
        temporary.mkdir()
        learner(temporary)
        if tokenizer is not None:
            tokenizer.save_pretrained(temporary / "model")
        if card:
            (temporary / _CARD).parent.mkdir(exist_ok=True)
            (temporary / _CARD).write_bytes(card.encode())
        save_json(temporary / "state.json", state)
        _save_arrays(temporary / "arrays.safetensors", arrays)
        _seal(temporary, step)
        _put_in_place(temporary, final)
    _prune(folder, step, keep)
    return final


def latest(folder: Path, warn: Callable[[str], None]) -> Path | None:
    """The newest checkpoint that is whole and unharmed; each newer one that is not is warned of and left where it is."""
    if not folder.is_dir():
        return None
    for leftover in sorted(folder.glob(f"{_SAVING}*")):
        warn(f"{leftover} was not finished: the run ended while saving it. It is skipped.")
    for path in _candidates(folder):
        flaw = flaw_of(path)
        if flaw is None:
            return path
        warn(f"{path} is damaged and skipped for the checkpoint before it: {flaw}.")
    return None


def restore(path: Path, *, learner: Callable[[Path], None]) -> Saved:
    """What was saved: the learner takes its own part back from the folder it is given; the rest is returned."""
    flaw = flaw_of(path)
    if flaw is not None:
        raise CheckpointError(f"{path} needs to be a whole checkpoint, got a damaged one: {flaw}. Use an earlier one.")
    with _understood(path):
        state = from_json(json.loads((path / "state.json").read_bytes()))
        if not isinstance(state, dict):
            raise TypeError("state.json holds no object")
        step = int(json.loads((path / "manifest.json").read_bytes())["step"])
        arrays = _arrays(path / "arrays.safetensors")
        learner(path)
    return Saved(step, cast("dict[str, Any]", state), arrays)


def flaw_of(path: Path, *, sums: bool = True) -> str | None:
    """What is wrong with a checkpoint, None if nothing; without `sums` only names and sizes are looked at."""
    try:
        manifest = json_data((path / "manifest.json").read_bytes())
        schema, step, files = manifest["schema"], index(manifest["step"]), dict[str, Any](manifest["files"])
        expected = {str(name): (index(entry["bytes"]), str(entry["sha256"])) for name, entry in files.items()}
    except FileNotFoundError:
        return "manifest.json is missing"
    except (OSError, ValueError, KeyError, TypeError):
        return "manifest.json cannot be read"
    name = _NAME.fullmatch(path.name)
    if schema != SCHEMA:
        return f"manifest.json is of schema {schema!r}, not {SCHEMA}"
    if name is not None and int(name[2]) != step:
        return f"manifest.json is of step {step}"
    flaws = (_file_flaw(path, file, size, total, sums) for file, (size, total) in expected.items())
    return next((flaw for flaw in flaws if flaw), None)


def clear_leftovers(folder: Path) -> None:
    """Remove what killed saves left: half-written folders, half-removed ones, and replaced ones whose successor is whole."""
    _clear_unfinished(folder)
    for path in folder.glob(f"{_REPLACED}*"):
        if flaw_of(folder / path.name.removeprefix(_REPLACED)) is None:
            _remove(path)


def _clear_unfinished(folder: Path) -> None:
    for path in [*folder.glob(f"{_SAVING}*"), *folder.glob(f"{_REMOVING}*")]:
        shutil.rmtree(path)


def _remove(path: Path) -> None:
    """Take its name away, then the rest: a kill in between leaves what `clear_leftovers` finds."""
    doomed = path.with_name(f"{_REMOVING}{path.name.removeprefix('.')}")
    os.replace(path, doomed)
    shutil.rmtree(doomed)


@contextmanager
def _understood(path: Path) -> Generator[None]:
    """Whatever cannot be made sense of inside it is said in one sentence: bytes that are as written may still be no checkpoint."""
    try:
        yield
    except CheckpointError:
        raise
    except (Exception, RecursionError) as error:
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        raise CheckpointError(
            f"{path} needs to be a checkpoint of this run, got one that cannot be read: {type(error).__name__}: {reason}. "
            "Move it away to go on from the one before it."
        ) from error


def _candidates(folder: Path) -> list[Path]:
    """Checkpoints, newest first; one being replaced stands after its successor."""
    found = [(match, path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name)) and path.is_dir()]
    return [path for _, path in sorted(found, key=lambda pair: (-int(pair[0][2]), pair[0][1] is not None))]


def _file_flaw(path: Path, name: str, size: int, total: str, sums: bool) -> str | None:
    try:
        found = (path / name).stat().st_size
        if found != size:
            return f"{name} has {found} bytes, not {size}"
        return f"{name} has other bytes than were written" if sums and _sum(path / name) != total else None
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"


def _sum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while block := handle.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _said(final: Path, temporary: Path) -> Generator[None]:
    """Whatever goes wrong while saving: the half-written folder goes, and what the disk refused is said in our words."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise disk_error(final, error, CheckpointError) from error
        if any(sign in str(error) for sign in _FULL):  # safetensors and tokenizers have errors of their own for it
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise disk_error(final, full, CheckpointError) from error
        if isinstance(error, SafetensorError):
            raise CheckpointError(f"{final} cannot be written: {error}. Mend that, then resume the run.") from error
        raise


def _seal(folder: Path, step: int) -> None:
    """The manifest, then everything on disk."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    mode = (folder / "state.json").stat().st_mode & 0o777  # by the umask; safetensors makes files for their owner alone
    for path in files:
        path.chmod(mode)
        _sync(path)
    named = {path.relative_to(folder).as_posix(): path for path in files}
    entries = {
        name: {"bytes": path.stat().st_size, "sha256": _sum(path)} for name, path in named.items() if name != _CARD
    }
    save_json(folder / "manifest.json", {"schema": SCHEMA, "step": step, "files": entries})
    _sync(folder / "manifest.json")
    for inner in [*(path for path in folder.rglob("*") if path.is_dir()), folder]:
        sync_folder(inner)


def _sync(path: Path) -> None:
    with path.open("rb+") as handle:
        os.fsync(handle.fileno())


def _put_in_place(temporary: Path, final: Path) -> None:
    """Give the folder its name. One that has it already steps aside first, found by `latest` until the new one stands."""
    if final.exists():
        aside = final.with_name(f"{_REPLACED}{final.name}")
        if aside.exists():  # the only whole one, where what has the name is damaged
            _remove(final if flaw_of(final) else aside)
        if final.exists():
            os.replace(final, aside)
    os.replace(temporary, final)
    sync_folder(final.parent)


def _prune(folder: Path, step: int, keep: int) -> None:
    """Remove what the newest make needless. Damaged ones do not count and stay: someone may want to look at them."""
    with suppress(OSError):  # the checkpoint stands; what cannot be removed now is removed after the next
        clear_leftovers(folder)
        earlier = [path for path in _candidates(folder) if int(path.name.rpartition("-")[2]) < step]
        for path in [path for path in earlier if flaw_of(path, sums=False) is None][max(keep, 1) - 1 :]:
            _remove(path)


def _save_arrays(path: Path, arrays: Mapping[str, NDArray[Any] | Tensor]) -> None:
    numpy = [name for name, array in arrays.items() if isinstance(array, np.ndarray)]
    try:
        tensors = {name: array if isinstance(array, Tensor) else torch.tensor(array) for name, array in arrays.items()}
    except TypeError as error:
        raise CheckpointError(f"A checkpoint needs arrays of numbers or booleans, got another kind: {error}") from error
    save_tensors(path, tensors, {"numpy": json.dumps(numpy)})


def _arrays(path: Path) -> dict[str, NDArray[Any] | Tensor]:
    with safe_open(path, "pt") as file:  # pyright: ignore[reportUnknownVariableType]
        numpy = set(json.loads(cast("dict[str, str]", file.metadata())["numpy"]))
    return {name: tensor.numpy() if name in numpy else tensor for name, tensor in read_tensors(path).items()}
