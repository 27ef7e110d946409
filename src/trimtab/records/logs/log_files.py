"""Which reader a file or folder belongs to: by what is in it, never by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from trimtab.config.safe_yaml import opened
from trimtab.errors import RecordError
from trimtab.records.logs.logged_curves import LARGEST_LOG, Log
from trimtab.records.logs.stores import SQLITE, mlflow_logs, tensorboard_log, trackio_logs
from trimtab.records.logs.text import console_log, json_lines_log, trainer_state_log
from trimtab.records.logs.wandb import MAGIC, wandb_log

READ = (
    "W&B's run-*.wandb, TensorBoard's event files, trainer_state.json, JSON Lines, trackio's database, MLflow's folders, "
    "and the consoles of verl, slime, miles and OpenRLHF"
)
EVENT_FILE = b"brain.Event:"
"""What the first record of an event file holds."""
MOST_FILES = 2000
TEXT: tuple[Callable[[Path], Log | None], ...] = (json_lines_log, trainer_state_log, console_log)


def read_log_files(path: Path) -> list[Log]:
    """Every run that a file or folder holds; an error where it is no log that can be read."""
    try:
        logs = _folder(path) if path.is_dir() else _file(path)
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}. Check the path.") from None
    logs = [log for log in logs if log.curves]
    if not logs:
        raise RecordError(f"{path} needs to be a run of ours or a log, got neither. Read are {READ}.")
    return logs


def _file(path: Path) -> list[Log]:
    with opened(path) as file:
        head = file.read(4096)
        size = file.seek(0, 2)
    if size > LARGEST_LOG:
        raise RecordError(
            f"{path} needs to be at most {LARGEST_LOG / 1e9:g} GB, got {size / 1e9:.1f} GB. Pass a part of it."
        )
    if head.startswith(MAGIC):
        return [wandb_log(path)]
    if head.startswith(SQLITE):
        return trackio_logs(path)
    if EVENT_FILE in head[:100]:
        return [tensorboard_log(path)]
    if not head.strip(b"\0 \r\n\t"):
        return []
    return _first(path, TEXT[:2] if head.lstrip().startswith(b"{") else ()) or _first(path, TEXT[2:])


def _first(path: Path, readers: Iterable[Callable[[Path], Log | None]]) -> list[Log]:
    for reader in readers:
        log = reader(path)
        if log is not None and log.curves:
            return [log]
    return []


def _folder(path: Path) -> list[Log]:
    """A folder of MLflow or TensorBoard, else the logs directly in it or, for W&B, one folder deeper."""
    if logs := mlflow_logs(path):
        return logs
    files = [each for each in islice(sorted(path.rglob("*")), MOST_FILES) if each.is_file()]
    heads = {each: _head(each) for each in files}
    folders = dict.fromkeys(each.parent for each, head in heads.items() if EVENT_FILE in head[:100])
    logs = [tensorboard_log(folder) for folder in folders]
    wandb = [each for each, head in heads.items() if head.startswith(MAGIC)]
    if logs or wandb:
        return [*logs, *(wandb_log(each) for each in wandb)]
    return [log for each in files if each.parent == path for log in _quietly(each)]


def _quietly(path: Path) -> list[Log]:
    """The runs of a file of a folder, in which other files may lie too."""
    try:
        return _file(path)
    except (RecordError, OSError):
        return []


def _head(path: Path) -> bytes:
    try:
        with opened(path) as file:
            return file.read(100)
    except OSError:
        return b""
