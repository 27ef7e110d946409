"""Checkpoints that were changed and sealed anew: each refused in one sentence, before anything is trained."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.train.small_runs import small
from trimtab.errors import CheckpointError
from trimtab.train.loop import train

State = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose newest checkpoint has groups that wait and groups that are ready."""
    path = tmp_path_factory.mktemp("made") / "run"
    train(small(steps=2, checkpoint={"every": 2}, evaluate=None), path)
    buffer = json.loads((path / "checkpoints/step-000002/state.json").read_text())["buffer"]
    assert {entry["samples"] is None for entry in buffer["entries"]} == {False}
    return path


def sealed(folder: Path) -> None:
    """The manifest of what is there now."""
    files = {
        path.relative_to(folder).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"files": files}))


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """A change of what a JSON file holds."""

    def harm(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(change(value) or value))

    return harm


def tensors(name: str, change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    """A change of what a safetensors file holds."""

    def harm(folder: Path) -> None:
        from safetensors import safe_open

        with safe_open(folder / name, "pt") as file:
            facts = file.metadata()
        values = load_file(folder / name)
        change(values)
        save_file(values, folder / name, metadata=facts)

    return harm


def setting(*path: Any, to: Any) -> Callable[[Path], None]:
    def put(state: State) -> None:
        inner: Any = state
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = to

    return changed("state.json", put)


HARMS: dict[str, Callable[[Path], None]] = {
    "a negative version": setting("version", to=-1),
    "a version of another step": setting("version", to=7),
    "a version that is text": setting("version", to="2"),
    "no version": changed("state.json", lambda state: state.pop("version") and None),
    "a state that is a list": changed("state.json", lambda state: [state]),
    "a state that is no JSON": lambda folder: (folder / "state.json").write_text("{") and None,
    "a state nested too deep": lambda folder: (folder / "state.json").write_text("[" * 5000 + "]" * 5000) and None,
    "a number of another kind": setting("seconds", to={"float": []}),
    "accuracies that are text": setting("accuracies", to=["a"]),
    "no buffer": setting("buffer", to=None),
    "a negative count": setting("buffer", "admitted", to=-5),
    "a count too large": setting("buffer", "admitted", to=10**6),
    "groups trained that were not": setting("buffer", "trained", to=0),
    "a number used twice": setting("buffer", "entries", 0, "job", "group", to=9),
    "a next number that was used": setting("buffer", "next", to=1),
    "a prompt that is a number": setting("buffer", "entries", 0, "problem", "prompt", to=5),
    "a problem that is absent": changed(
        "state.json", lambda state: state["buffer"]["entries"][0].pop("problem") and None
    ),
    "a length beyond the tokens": setting("buffer", "entries", 0, "samples", 0, "length", to=10**9),
    "a negative length": setting("buffer", "entries", 0, "samples", 0, "length", to=-1),
    "an unknown finish": setting("buffer", "entries", 0, "samples", 0, "finish", to="maybe"),
    "a score too few": changed("state.json", lambda state: state["buffer"]["entries"][0]["scores"].pop() and None),
    "a reward that is not finite": setting("buffer", "entries", 0, "scores", 0, "reward", to={"float": "nan"}),
    "a watch of another shape": setting("watch", to=[]),
    "a skipped count of text": setting("skipped", to={"no signal": "many"}),
    "tokens beyond the vocabulary": tensors("arrays.safetensors", lambda found: found["tokens"].fill_(10**6)),
    "tokens below zero": tensors("arrays.safetensors", lambda found: found["tokens"].fill_(-1)),
    "tokens of another type": tensors(
        "arrays.safetensors", lambda found: found.update(tokens=found["tokens"].double())
    ),
    "no tokens": tensors("arrays.safetensors", lambda found: found.pop("tokens")),
    "versions of the future": tensors("arrays.safetensors", lambda found: found["versions"].fill_(50)),
    "arrays that are none": lambda folder: (folder / "arrays.safetensors").write_bytes(b"\0" * 64) and None,
    "an optimiser of another kind": changed("optimizer.json", lambda facts: facts | {"kind": "SGD"}),
    "an optimiser without groups": changed("optimizer.json", lambda facts: facts | {"groups": []}),
    "an optimiser without parameters": changed("optimizer.json", lambda facts: facts.pop("parameters") and None),
    "a learning rate of text": changed("optimizer.json", lambda facts: facts["groups"][0].update(lr="fast")),
    "betas of one number": changed("optimizer.json", lambda facts: facts["groups"][0].update(betas={"tuple": [0.9]})),
    "moments of another shape": tensors(
        "optimizer.safetensors", lambda found: found.update({"state.0.exp_avg": torch.zeros(3)})
    ),
    "moments of a parameter that is not there": tensors(
        "optimizer.safetensors", lambda found: found.update({"state.900.exp_avg": torch.zeros(3)})
    ),
    "moments under another name": tensors("optimizer.safetensors", lambda found: found.update(odd=torch.zeros(3))),
    "weights under foreign names": tensors(
        "model/model.safetensors",
        lambda found: [found.update({f"other.{name}": found.pop(name)}) for name in list(found)],
    ),
    "weights of another shape": tensors(
        "model/model.safetensors", lambda found: found.update({"model.norm.weight": torch.zeros(3)})
    ),
    "weights that are none": lambda folder: (folder / "model/model.safetensors").write_bytes(b"\0" * 64) and None,
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", HARMS)
def test_what_was_sealed_anew_is_refused_in_one_sentence(made: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(made, tmp_path / "run")
    folder = tmp_path / "run/checkpoints/step-000002"
    HARMS[name](folder)
    sealed(folder)
    with pytest.raises(CheckpointError, match=r"step-000002(/model)? needs ") as refused:
        train(small(steps=4, evaluate=None), tmp_path / "run", resume=True)
    assert "\n" not in str(refused.value)


def test_a_checkpoint_sealed_anew_without_a_change_goes_on(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "run")
    folder = tmp_path / "run/checkpoints/step-000002"
    changed("state.json", lambda state: state)(folder)
    sealed(folder)
    assert train(small(steps=4, evaluate=None), tmp_path / "run", resume=True).steps == 4


def test_a_checkpoint_of_before_rows_were_left_out_goes_on(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "run")

    def older(state: State) -> None:
        del state["owed"], state["rows"]
        for entry in state["buffer"]["entries"]:
            entry["problem"]["extra"] = {"level": 3}

    folder = tmp_path / "run/checkpoints/step-000002"
    changed("state.json", older)(folder)
    sealed(folder)
    assert train(small(steps=4, evaluate=None), tmp_path / "run", resume=True).steps == 4


def test_a_planted_pickle_is_never_opened(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(made, tmp_path / "run")
    folder = tmp_path / "run/checkpoints/step-000002"
    values = load_file(folder / "model/model.safetensors")
    torch.save(values, folder / "model/pytorch_model.bin")
    (folder / "model/model.safetensors").unlink()
    save_file({"other.name": torch.zeros(1)}, folder / "model/extra.safetensors", metadata={"format": "pt"})
    sealed(folder)

    def opened(*arguments: Any, **options: Any) -> None:
        raise AssertionError("torch.load was called")

    monkeypatch.setattr(torch, "load", opened)
    with pytest.raises(CheckpointError):
        train(small(steps=4, evaluate=None), tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    "manifest",
    [
        '{"schema": 1, "step": Infinity, "files": {}}',
        '{"schema": 1, "step": NaN, "files": {}}',
        '{"schema": 1, "step": "2", "files": {}}',
        '{"schema": 1, "step": 2, "files": {"state.json": {"bytes": Infinity, "sha256": ""}}}',
        '{"schema": 1, "step": ' + "[" * 100_000 + "]" * 100_000 + ', "files": {}}',
    ],
    ids=["infinite", "not a number", "text", "an infinite size", "nested deeply"],
)
def test_a_manifest_that_cannot_be_read_is_a_damaged_checkpoint(made: Path, tmp_path: Path, manifest: str) -> None:
    shutil.copytree(made, tmp_path / "run")
    (tmp_path / "run/checkpoints/step-000002/manifest.json").write_text(manifest)
    assert train(small(steps=1, evaluate=None, checkpoint={"every": 1}), tmp_path / "run", resume=True).steps == 1
    events = (tmp_path / "run/events.jsonl").read_text()
    assert "is damaged and skipped for the checkpoint before it: manifest.json cannot be read." in events
