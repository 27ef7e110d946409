"""What a run takes from outside its directory, as digests: a resumed run says what is no longer what it was."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from trimtab.config.training import Train
from trimtab.train.policy.model import Pretrained
from trimtab.train.tasks import Source
from trimtab.train.tasks.file import File
from trimtab.train.tasks.functions import module_file

LIBRARIES = ("trimtab", "torch", "transformers", "tokenizers", "numpy")
_OF_THE_PLACE = ("_name_or_path", "transformers_version")

World = dict[str, str]
"""Digests and versions by what they are of."""


def world_of(config: Train, source: Source, start: Pretrained, teacher: PreTrainedModel | None = None) -> World:
    """What this run would begin with now; `start` has to be as it was loaded or made."""
    world = {f"version of {name}": _version(name) for name in LIBRARIES}
    world |= {f"rows of {path}": digest for path, digest in _rows(config, source)}
    world |= {f"code of reward {name}": digest for name, digest in _rewards(config)}
    world["weights"] = _digest(_weights(start.model))
    if teacher is not None:
        world["teacher"] = _digest(_weights(teacher))
    world["model settings"] = _digest([_plain(_settings(start))])
    world["tokenizer"] = _digest([_plain(dict(start.policy.tokenizer.get_vocab())), str(start.policy.stop).encode()])
    return world


def changes(before: Mapping[str, Any], now: World, *, kl: bool) -> list[str]:
    """A sentence for each thing that is not as it was; what either side does not know is passed over."""
    said: list[str] = []
    for name, value in now.items():
        known = before.get(name)
        if not isinstance(known, str) or known == value:
            continue
        got = f"{known} before, {value} now" if name.startswith("version of ") else "other ones than before"
        said.append(f"The run began with another state of the world: {name}: {got}. {_consequence(name, kl)}")
    return said


def _consequence(name: str, kl: bool) -> str:
    if name == "weights":
        return (
            "KL is measured from the new ones from here on."
            if kl
            else "The run goes on from its checkpoint; only a run that begins at step 0 takes them up."
        )
    if name == "teacher":
        return "Advantages to come follow the new one."
    if name.startswith("rows of "):
        return "Prompts and answers to come, and the held-out ones, are the new ones."
    if name.startswith("code of "):
        return "Rewards to come are those of the new code."
    if name.startswith("version of "):
        return "Numbers may differ in their last digits."
    return "What the checkpoint holds was made with the one before."


def _rows(config: Train, source: Source) -> Iterator[tuple[str, str]]:
    """A file by its bytes; a hub dataset, which may come in other bytes, by its prompts, answers and replies."""
    if not isinstance(source, File):
        return
    hub = False
    for path in filter(None, (config.task.path, config.task.held_out)):
        if Path(path).is_file():
            yield path, _digest(_blocks(Path(path)))
        elif not hub:
            hub = True
            texts = ((each.prompt, each.answer, *each.replies) for each in source.all())
            yield path, _digest(json.dumps(pair).encode() for pair in texts)


def _rewards(config: Train) -> Iterator[tuple[str, str]]:
    for reward in config.task.rewards:
        file = None if reward.function is None else module_file(reward.function.partition(":")[0])
        if file is not None:
            yield str(reward.function), _digest(_blocks(file))


def _weights(model: PreTrainedModel) -> Iterator[bytes | memoryview]:
    for name, tensor in sorted(model.state_dict().items()):
        yield f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode()
        if tensor.numel():
            yield memoryview(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())


def _settings(start: Pretrained) -> dict[str, Any]:
    found: dict[str, Any] = start.model.config.to_diff_dict()
    return {name: value for name, value in found.items() if name not in _OF_THE_PLACE}


def _plain(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, default=str).encode()


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as handle:
        while block := handle.read(1 << 22):
            yield block


def _digest(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
