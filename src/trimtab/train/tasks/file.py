"""Problems from a file or a hub dataset: shuffled epochs of the rows, some rows held out."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import random
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from trimtab.config.base import Config, excerpt
from trimtab.config.training import Task
from trimtab.errors import ConfigError, ConfigFileError
from trimtab.records.files import utf8_text
from trimtab.train.messages import Problem, Score
from trimtab.train.tasks.protocol import binary, framed, stream


@dataclass(frozen=True)
class Row:
    """Fields by name, and where they stand: `file:line`."""

    place: str
    fields: Mapping[str, Any]


def check_path(path: str) -> None:
    """Refuse a name that neither a file nor, as far as it can be told from the name, a hub dataset has."""
    file = Path(path)
    if not os.path.isfile(file) and file.suffix.lower() in READERS:
        raise ConfigFileError(f"Task needs an existing file, got {excerpt(path)}. It is looked for in {Path.cwd()}.")
    if os.path.exists(file) and file.suffix.lower() not in READERS:
        raise ConfigFileError(f"Task needs a file ending in {', '.join(READERS)}, got {excerpt(path)}.")


def rows(path: str, split: str, subset: str | None) -> Iterator[Row]:
    """The rows of a file, or of a hub dataset (`owner/name` or `owner/name:split`) where no such file is."""
    check_path(path)
    file = Path(path)
    read = READERS.get(file.suffix.lower())
    if read is not None:
        try:
            yield from read(file)
        except (OSError, UnicodeError) as error:
            raise ConfigFileError(f"{path} needs to be readable, got {error}.") from None
    else:
        yield from _hub(path, split, subset)


def _jsonl(file: Path) -> Iterator[Row]:
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _row(f"{file}:{number}", _parsed(f"{file}:{number}", line))


def _json(file: Path) -> Iterator[Row]:
    values = _parsed(str(file), file.read_text(encoding="utf-8-sig"))
    if not isinstance(values, list):
        raise ConfigFileError(f"{file} needs a list of objects, got {excerpt(values)}. One object per line is .jsonl.")
    for number, value in enumerate(cast("list[object]", values), 1):
        yield _row(f"{file}:{number}", value)


def _csv(file: Path) -> Iterator[Row]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        try:
            for fields in reader:
                place = f"{file}:{reader.line_num}"
                if None in fields or None in fields.values():
                    raise ConfigFileError(
                        f"{place} needs as many cells as the header, got {excerpt(list(fields.values()))}."
                    )
                yield Row(place, fields)
        except csv.Error as error:
            raise ConfigFileError(f"{file}:{reader.line_num} needs valid CSV, got: {error}.") from None


def _parquet(file: Path) -> Iterator[Row]:
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError("Task needs the package pyarrow for a parquet file. `pip install pyarrow`.")
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as table:
            number = 0
            for batch in table.iter_batches():
                for fields in batch.to_pylist():
                    number += 1
                    yield Row(f"{file}:{number}", fields)
    except pyarrow.ArrowException as error:
        raise ConfigFileError(f"{file} needs to be a parquet file, got: {error}.") from None


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}


def _hub(name: str, split: str, subset: str | None) -> Iterator[Row]:
    if importlib.util.find_spec("datasets") is None:
        raise ConfigError(
            f"Task needs the package datasets for the hub dataset {excerpt(name)}. `pip install datasets`, or name a file."
        )
    name, _, own = name.partition(":")
    load: Callable[..., Any] = importlib.import_module("datasets").load_dataset
    try:
        table = load(name, subset, split=own or split)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(f"Task needs a hub dataset that can be loaded, got {excerpt(name)}. {why[:300]}") from error
    for number, fields in enumerate(table, 1):
        yield Row(f"{name}:{own or split}:{number}", fields)


def _parsed(place: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigFileError(f"{place} needs valid JSON, got: {error}.") from None


def _row(place: str, value: object) -> Row:
    if not isinstance(value, dict):
        raise ConfigFileError(f"{place} needs an object of fields, got {excerpt(value)}.")
    return Row(place, cast("dict[str, Any]", value))


REPLIES = "replies"
"""The field of a row with what the environment says after each turn but the last."""


class FileOptions(Config):
    """Options of the task file."""

    reserve: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None,
        description="Last rows held out, where there is no held_out file. If not set: a tenth, at most 1024.",
    )
    subset: str | None = Field(
        default=None, description="Configuration of a hub dataset, such as main of openai/gsm8k."
    )
    too_long: Literal["refuse", "skip"] = Field(
        default="refuse", description="What becomes of rows whose prompts leave the model no room for a response."
    )


class File:
    """Rows of a file in an order shuffled anew each epoch. Its own verifier: the response is the answer."""

    def __init__(self, config: Task, seed: int) -> None:
        self.characters: str | None = None
        self.max_tokens: int | None = None
        self._seed = seed
        if config.path is None:
            raise ConfigError("Task needs path with name file, got nothing. Name a file or a hub dataset.")
        options = FileOptions.from_settings(config.options)
        self.too_long: Literal["refuse", "skip"] = options.too_long
        """Whether rows may be left out."""
        given = _problems(config, config.path, options)
        if config.held_out is None:
            reserve = options.reserve or min(1024, max(1, len(given) // 10))
            if reserve >= len(given):
                raise ConfigError(
                    f"Task needs more rows in {config.path} than the {reserve} held out, got {len(given)}. Name a held_out file."
                )
            given, self._kept = given[:-reserve], given[-reserve:]
        else:
            self._kept = _problems(config, config.held_out, options)
        kept = {problem.prompt for problem in self._kept}
        self.trained = [problem for problem in given if problem.prompt not in kept]
        """The rows that are not held out, in the order of the file."""
        if not self.trained:
            raise ConfigError(f"Task needs prompts in {config.path} that are not held out, got none.")
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def problem(self, index: int) -> Problem:
        """Row number `index` of the epochs one after another."""
        epoch, place = divmod(index, len(self.trained))
        return self.trained[self._order(epoch)[place]]

    def leave_out(self, ids: Container[str]) -> None:
        """Do without these rows."""
        self._kept = [problem for problem in self._kept if problem.id not in ids]
        self.trained = [problem for problem in self.trained if problem.id not in ids]
        if not self.trained:
            raise ConfigError("Task needs rows whose prompts leave room for a response, got none. Shorten them.")
        self._order.cache_clear()

    def held_out(self, count: int) -> list[Problem]:
        """The first rows of the held-out file, or of those set aside at the end."""
        return self._kept[:count]

    def all(self) -> list[Problem]:
        """Every problem, those to be trained on first."""
        return [*self.trained, *self._kept]

    def demonstration(self, problem: Problem, slips: float, rng: random.Random) -> str:
        """None: a row holds the answer, not the way to it."""
        raise ConfigError("Task needs a built-in task for a warm start, got 'file'. Set model.warm_start to null.")

    def score(self, problem: Problem, response: str) -> Score:
        """1 for the answer itself, white space around it aside."""
        return binary("exact", response.strip() == problem.answer.strip())

    def _shuffled(self, epoch: int) -> list[int]:
        order = list(range(len(self.trained)))
        stream("file", self._seed, epoch).shuffle(order)
        return order


def _problems(config: Task, path: str, options: FileOptions) -> list[Problem]:
    found = [_problem(config, row) for row in rows(path, config.split, options.subset)]
    if not found:
        raise ConfigError(f"Task needs rows in {path}, got an empty file.")
    return found


def _problem(config: Task, row: Row) -> Problem:
    prompt, answer = _text(row, config.prompt), _text(row, config.answer, number=True)
    extra = {name: value for name, value in row.fields.items() if name not in (config.prompt, config.answer)}
    return Problem(
        id=utf8_text(row.place),
        prompt=framed(config.template, prompt),
        answer=answer,
        extra=extra,
        replies=_replies(row) if REPLIES in extra else (),
    )


def _replies(row: Row) -> tuple[str, ...]:
    """What the environment says between turns; null, as in a table some of whose rows have none, is nothing."""
    value: Any = row.fields[REPLIES]
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in cast("list[Any]", value)):
        raise ConfigError(f"{row.place} needs a list of texts in {excerpt(REPLIES)}, got {excerpt(value)}.")
    return tuple(utf8_text(each) for each in cast("list[str]", value))


def _text(row: Row, field: str, number: bool = False) -> str:
    """A field's text; a number will do where `number` says so."""
    if field not in row.fields:
        raise ConfigError(
            f"{row.place} needs the field {excerpt(field)}, got {excerpt(sorted(row.fields))}. Name it in the task."
        )
    value: Any = row.fields[field]
    if number and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{row.place} needs text in {excerpt(field)}, got {excerpt(value)}.")
    return utf8_text(value)
