"""Logs that are text: JSON Lines, trainer_state.json, and the consoles of verl, slime, miles and OpenRLHF."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from trimtab.config.safe_yaml import opened
from trimtab.records.logs.logged_curves import LONGEST_LINE, Log, LoggedCurve, LoggedRows, flat, logged_number

STEP_NAMES = (
    "step",
    "_step",
    "global_step",
    "train/step",
    "progress/batch",
    "training/global_step",
    "train/global_step",
    "global_step/max_steps",
    "iteration",
)
"""Under which name a row holds its step, the first that is there."""
MOST_STATE = 1_000_000_000
DECORATION = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|^\([^()]{1,120}?pid=\d+[^()]{0,120}\)\s?")
"""Colours, and what Ray writes before the lines of a worker."""
VERL = re.compile(r"(?:^|\s)step:(\d{1,15}) - (\S.*)")
DICT_LINE = re.compile(r"(?<![\w-])(Global step|step|rollout) (\d{1,15}): \{(.*)")
NUMBER = r"(?:np\.float\d+\(|np\.int\d+\(|tensor\()?(-?(?:\d[\d.]*(?:e[-+]?\d+)?|\.\d+|nan|inf))"
VERL_PAIR = re.compile(rf"(?:^| - )([^\s:][^\s]*):{NUMBER}\)?(?= - |\s*$)", re.IGNORECASE)
PYTHON_PAIR = re.compile(rf"['\"]([^'\"\\]{{1,200}})['\"]: {NUMBER}\b", re.IGNORECASE)
TOKEN = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[\[\]{}()]")
MOST_DICT = 1_000_000
"""Characters of the settings that verl prints at its start."""


def json_lines_log(path: Path) -> Log | None:
    """One mapping a line; None where the first lines are none."""
    rows, damaged, count = LoggedRows(), 0, 0
    with opened(path) as file:
        for line in _lines(file):
            row = _mapping(line)
            if row is None:
                if count == 0:
                    return None
                damaged += 1
                continue
            count += 1
            _add_row(rows, row, count)
    notes = (f"{damaged} damaged line{'' if damaged == 1 else 's'} passed over.",) if damaged else ()
    return Log(path, "JSON Lines", _without_steps(rows), notes=notes)


def _add_row(rows: LoggedRows, row: Mapping[str, object], count: int) -> None:
    inner = row.get("data")
    if isinstance(inner, Mapping):  # verl's file logger
        row = {"step": row.get("step"), **cast("Mapping[str, object]", inner)}
    if dict in map(type, row.values()):
        row = dict(flat(row))
    name = next((each for each in STEP_NAMES if each in row), None)
    step = None if name is None else _step(row[name])
    rows.add(count if step is None else step, row)


def _step(value: object) -> int | None:
    """A step as an integer; ms-swift writes `10/500`."""
    if type(value) is int and abs(value) < 2**53:
        return value
    found = logged_number(value.partition("/")[0] if isinstance(value, str) else value)
    if found is None and isinstance(value, str) and value.partition("/")[0].isdecimal():
        found = float(value.partition("/")[0][:15])
    return int(found) if found is not None and abs(found) < 2**53 else None


def _mapping(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines that are not blank; one that is too long is cut, and what is left of it passed over."""
    while line := file.readline(LONGEST_LINE):
        whole = line.endswith(b"\n")
        if line.strip():
            yield line.strip()
        while not whole and (rest := file.readline(LONGEST_LINE)):
            whole = rest.endswith(b"\n")


def trainer_state_log(path: Path) -> Log | None:
    """What Hugging Face's trainer saves with a checkpoint: `log_history`, a row per step that was logged."""
    with opened(path) as file:
        data = file.read(MOST_STATE)
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        return None
    history = cast("dict[str, Any]", state).get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        return None
    rows = LoggedRows()
    for count, row in enumerate(cast("list[object]", history), 1):
        if isinstance(row, dict):
            _add_row(rows, cast("dict[str, object]", row), count)
    return Log(path, "trainer_state.json", _without_steps(rows))


def _without_steps(rows: LoggedRows) -> dict[str, LoggedCurve]:
    return {name: curve for name, curve in rows.curves().items() if name not in STEP_NAMES}


def console_log(path: Path) -> Log | None:
    """The console of verl, slime, miles or OpenRLHF; None where no line of theirs is there."""
    rows, kinds = LoggedRows(), dict[str, int]()
    settings: dict[str, Any] = {}
    printed: list[str] | None = []  # the dict of settings, line by line; None once it is over
    with opened(path) as file:
        for raw in _lines(file):
            line = DECORATION.sub("", DECORATION.sub("", raw.decode(errors="replace").rstrip()))
            if read := _console_row(line):
                kind, step, row = read
                kinds[kind] = kinds.get(kind, 0) + 1
                rows.add(step, row)
            elif printed is not None and (printed or line.startswith("{'")):
                printed.append(line)
                settings = _printed_settings(printed) or settings
                printed = None if settings or sum(map(len, printed)) > MOST_DICT else printed
    if not kinds:
        return None
    return Log(path, f"{max(kinds, key=lambda kind: kinds[kind])}'s console", rows.curves(), settings)


def _console_row(line: str) -> tuple[str, int, dict[str, float]] | None:
    """Whose line it is, its step and its numbers."""
    if found := VERL.search(line):
        pairs = [(name, float(value)) for name, value in VERL_PAIR.findall(found[2])]
        return ("verl", int(found[1]), dict(pairs)) if pairs else None
    if found := DICT_LINE.search(line):
        pairs = [(name, float(value)) for name, value in PYTHON_PAIR.findall(found[3])]
        kind = "OpenRLHF" if found[1] == "Global step" else "slime or miles"
        return (kind, int(found[2]), dict(pairs)) if pairs else None
    return None


def _printed_settings(lines: list[str]) -> dict[str, Any]:
    """The dict that the lines hold, once its brackets are closed; empty before."""
    if not lines[-1].endswith("}"):
        return {}
    text = "\n".join(lines)
    depth = 0
    for token in TOKEN.findall(text):
        depth += {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}.get(token, 0)
    if depth:
        return {}
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return {}
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]
