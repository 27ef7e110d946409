"""What a run directory holds beside its rollouts: run.json, config.yaml, checkpoints by name, and which records it lacks."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from trimtab.config.base import excerpt
from trimtab.config.safe_yaml import RecordedLoader, json_data, opened, reason, text_of, yaml_data
from trimtab.errors import ConfigFileError, RecordError
from trimtab.records.files import TEMPORARY, strict_json, write_whole
from trimtab.records.schema import SCHEMA

_OURS = {"lock", "config.yaml", "rollouts", "checkpoints"}
"""What a run that was killed while being made may have left, before its run.json."""
_LOGS = ("samplers", "samplers/weights", "ranks")
"""Folders whose files are appended to, or written in place."""
_FILES = ("lock", "run.json", "config.yaml", "metrics.jsonl", "events.jsonl", "report.html")
_WRITTEN = ("rollouts", "checkpoints", *_LOGS, *_FILES)


def check_unused(path: Path) -> None:
    """An error where the folder holds a run, or anything else that is not ours."""
    names = {entry.name for entry in path.iterdir()}
    if "run.json" in names:
        raise RecordError(f"{path} needs to be new, got a folder that holds a run. Resume it, or choose another.")
    foreign = sorted(name for name in names - _OURS if not name.startswith(TEMPORARY))
    if foreign:
        raise RecordError(f"{path} needs to be a new or empty folder, got one that holds {foreign[0]}. Choose another.")


def check_no_links(path: Path) -> None:
    """An error where a link has a name that a run writes to: a directory from somebody else would have it write anywhere.

    The directory itself may be reached through one, and so may all above it.
    """
    logs = [each for name in _LOGS for each in (path / name).glob("*") if not (path / name).is_symlink()]
    for each in [*(path / name for name in _WRITTEN), *logs]:
        if each.is_symlink():
            raise RecordError(
                f"{path} needs files and folders of its own, got {each.relative_to(path)} as a link to {os.readlink(each)}. "
                "Put a copy of what it leads to in its place."
            )


def run_facts(path: Path) -> dict[str, Any]:
    """run.json, if this is a run whose schema we read."""
    if not os.path.isdir(path):  # which also answers for a name that no file can have
        there = "a file" if os.path.exists(path) else "nothing"
        raise RecordError(f"{path} needs to be a run directory, got {there} there.")
    try:
        with opened(path / "run.json") as file:
            facts = json_data(file.read())
        schema, by, _, _ = (facts[name] for name in ("schema", "trimtab", "created", "status"))
    except FileNotFoundError:
        if (path / "config.yaml").exists() or (path / "lock").exists():
            raise RecordError(f"{path} needs a run.json, got a half-made run. Start it again there.") from None
        raise RecordError(f"{path} needs to be a run directory, got a folder without run.json.") from None
    except OSError as error:
        raise RecordError(f"{path / 'run.json'} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError):
        raise RecordError(
            f"{path / 'run.json'} needs schema, trimtab, created and status, got a damaged file."
        ) from None
    if schema != SCHEMA:
        remedy = "Update trimtab" if isinstance(schema, int) and schema > SCHEMA else "Use the trimtab that wrote it"
        raise RecordError(f"{path} needs schema {SCHEMA}, got {schema!r}, by trimtab {by}. {remedy}.")
    return facts


def write_facts(path: Path, **facts: Any) -> None:
    """Write run.json, whole or not at all."""
    write_whole(path / "run.json", json.dumps(strict_json(facts), indent=2, ensure_ascii=False).encode() + b"\n")


def run_settings(path: Path) -> dict[str, Any]:
    """config.yaml, if it is one."""
    try:
        settings = yaml_data(text_of(path / "config.yaml"), RecordedLoader)
    except ConfigFileError as error:
        raise RecordError(f"{error} The run needs its settings.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise RecordError(f"{path / 'config.yaml'} needs to be YAML, got a damaged file: {reason(error)}.") from error
    if not isinstance(settings, dict):
        raise RecordError(f"{path / 'config.yaml'} needs `field: value` lines, got something else.")
    found = cast("dict[str, Any]", settings)
    record: object = found.get("record") or {}
    kept = [
        cast("dict[str, Any]", record).get(name, 1) if isinstance(record, dict) else None
        for name in ("every", "rollouts")
    ]
    if not all(isinstance(each, int | float) and abs(each) < 2**53 for each in kept):
        raise RecordError(f"{path / 'config.yaml'} needs numbers under record, got {excerpt(record)}.")
    return found


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Write config.yaml, whole or not at all."""
    text = yaml.safe_dump(settings_tree(settings), sort_keys=False, allow_unicode=True)
    write_whole(path / "config.yaml", text.encode())


def settings_tree(value: object) -> Any:
    """Settings as YAML holds them; numbers that are not finite have a form there."""
    if isinstance(value, Mapping):
        return {str(key): settings_tree(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [settings_tree(item) for item in cast("list[object]", value)]
    return value if isinstance(value, float) else strict_json(value)


def set_aside(checkpoint: Path) -> str:
    """The new name of a checkpoint that resuming must not find."""
    stem = f"aside-{checkpoint.name.removeprefix('.')}"
    name, number = stem, 1
    while (checkpoint.parent / name).exists():
        name, number = f"{stem}-{number}", number + 1
    checkpoint.rename(checkpoint.parent / name)
    return name


def checkpoint_step(path: Path) -> int:
    """The step of a checkpoint that resuming could find; -1 for anything else."""
    match = re.fullmatch(r"(?:\.replaced-)?step-(\d+)", path.name)
    return int(match[1]) if match else -1


def gaps_of(
    logged: Iterable[int], recorded: Counter[int], steps: Iterable[int], *, rows: int | None, per_step: int | None
) -> list[str]:
    """One sentence for each sort of record that lacks something of these steps; none where all is there.

    `logged`: the step of each line of metrics; `recorded`: rollouts that are there of each step. `rows`: rollouts recorded of all
    steps, None where that is not known; `per_step`: of each, where each has as many.
    """
    wanted, lines = sorted(steps), Counter(logged)
    absent = [step for step in wanted if not lines[step]]
    double = [step for step in wanted if lines[step] > 1]
    short = [step for step in wanted if recorded[step] < per_step] if per_step else []
    gaps: list[str] = []
    if absent:
        gaps.append(f"metrics.jsonl has no line of {_steps_text(absent)}.")
    if double:
        gaps.append(f"metrics.jsonl has more than one line of {_steps_text(double)}.")
    if short:
        gaps.append(f"Rollouts are missing of {_steps_text(short)}.")
    elif rows is not None and recorded.total() < rows:
        gaps.append(f"Rollouts are missing: {recorded.total()} of {rows} are there.")
    return gaps


def _steps_text(steps: list[int]) -> str:
    """Steps as text: runs of them by their ends, and of many runs the first few."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and runs[-1][1] == step - 1:
            runs[-1][1] = step
        else:
            runs.append([step, step])
    words = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    more = f" and {len(words) - 5} more stretches" if len(words) > 5 else ""
    return f"{'step' if len(steps) == 1 else 'steps'} {', '.join(words[:5])}{more}"
