"""Paths to one batch: each file by its reader, what cannot be read told in notes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimtab.errors import RecordError, TrimtabError, nearest
from trimtab.records.dumps.columns import BY_COLUMNS, columns_reader
from trimtab.records.dumps.miles import MILES_DASHBOARD, MILES_LOSS
from trimtab.records.dumps.nemo_rl import NEMO_RL, NEMO_RL_FIRST
from trimtab.records.dumps.open_instruct import OPEN_INSTRUCT
from trimtab.records.dumps.own import OWN_RUN, RECORDED
from trimtab.records.dumps.prime_rl import PRIME_RL_EXPORT, PRIME_RL_TRACES, VERIFIERS
from trimtab.records.dumps.reader import DumpFile, DumpReader
from trimtab.records.dumps.roll import ROLL
from trimtab.records.dumps.room import REMEDY, Meter, RoomError
from trimtab.records.dumps.row import DumpRow, Gathering, without_fills
from trimtab.records.dumps.sglang import SGLANG
from trimtab.records.dumps.skyrl import SKYRL
from trimtab.records.dumps.slime import SLIME_RANKS, SLIME_ROLLOUT, SLIME_TRAIN
from trimtab.records.dumps.text_only import AREAL, MS_SWIFT, TRL
from trimtab.records.dumps.verl import VERL_PROTO, VERL_QUEUE, VERL_TEXT
from trimtab.records.saved import Origin, SavedBatch

READERS: tuple[DumpReader, ...] = (
    *(OWN_RUN, RECORDED, NEMO_RL, NEMO_RL_FIRST, PRIME_RL_TRACES, PRIME_RL_EXPORT, VERIFIERS, OPEN_INSTRUCT),
    *(SLIME_TRAIN, SLIME_RANKS, MILES_LOSS, SLIME_ROLLOUT, MILES_DASHBOARD, SKYRL, VERL_QUEUE, VERL_PROTO, VERL_TEXT),
    *(ROLL, AREAL, TRL, MS_SWIFT, SGLANG, BY_COLUMNS),
)
"""Every reader, in the order in which a file is tried; of one family the one that knows most comes first."""
DUMP_FRAMEWORKS = tuple(dict.fromkeys(reader.framework for reader in READERS))
DUMP_SUFFIXES = (".jsonl", ".parquet", ".pt", ".pkl", ".dp", ".npz", ".safetensors", ".gz", ".zst")
"""Files of a folder that are looked at."""
_SPOILT = (TrimtabError, KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError)


class Spoilt:
    """Records that could not be read: how many, and why the first could not."""

    def __init__(self) -> None:
        self.count, self.first = 0, ""

    def add(self, reason: str) -> None:
        """Count one."""
        self.first = self.first if self.count else reason
        self.count += 1


def load_batch(
    paths: Sequence[Path],
    framework: str | None = None,
    columns: Mapping[str, str] | None = None,
    *,
    most_tokens: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SavedBatch:
    """The sequences of all files as one batch.

    The framework is recognised by the file where it is not named. `columns` names the columns of any other file, ours to theirs.
    A file, line or sequence that cannot be read is a note of the batch's origin; a RecordError where nothing could be.
    Reading stops after `most_tokens`; `progress` is told sequences and tokens now and then.
    """
    refused: list[str] = []
    found = [pair for path in paths for pair in readers_of(Path(path), framework, columns, refused)]
    return batch_of(found, refused, most_tokens=most_tokens, progress=progress)


def batch_of(
    found: Sequence[tuple[DumpFile, DumpReader]],
    refused: Sequence[str] = (),
    *,
    most_tokens: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SavedBatch:
    """The sequences of files whose readers are known; `refused` says why others were left out."""
    kinds = list(dict.fromkeys(reader.framework for _, reader in found))
    if len(kinds) > 1:
        raise RecordError(
            f"A batch needs files of one framework, got {' and '.join(kinds)}. Give those of one, or name it with --from."
        )
    if not found:
        raise RecordError("An audit needs at least one file, got none.")
    gathering, notes = Gathering(), list(dict.fromkeys([*refused, *(note for _, each in found for note in each.notes)]))
    meter = Meter()
    for file, reader in found:
        notes += _gather(file, reader, gathering, meter, most_tokens, progress)
        if most_tokens is not None and gathering.tokens >= most_tokens:
            notes.append(f"Reading stopped after {gathering.tokens} tokens, as asked for.")
            break
    if gathering.copies:
        notes.append(
            f"{gathering.copies} sequences stood in several files, as ranks of one group write them, and count once."
        )
    if not len(gathering):
        raise RecordError(notes[-1])
    files = tuple(str(file.path) for file, _ in found)
    batch = without_fills(gathering.batch(Origin(framework=kinds[0], files=files, notes=tuple(notes))))
    lacking = {
        name: remedy for _, reader in found for name, remedy in reader.absent.items() if getattr(batch, name) is None
    }
    return replace(batch, origin=replace(batch.origin, absent=lacking))


def _gather(
    file: DumpFile,
    reader: DumpReader,
    gathering: Gathering,
    meter: Meter,
    most: int | None,
    progress: Callable[[int, int], None] | None,
) -> list[str]:
    """Take in the rows of a file; notes on what could not be read."""
    before, spoilt = len(gathering), Spoilt()
    notes: list[str] = []
    try:
        for row in _file_rows(file, reader, spoilt):
            if reader.copies and not gathering.is_new(row):
                continue
            meter.take(file.path, len(row.trained), len(row.text or ""))
            gathering.add(row)
            if progress is not None:
                progress(len(gathering), gathering.tokens)
            if most is not None and gathering.tokens >= most:
                break
    except RoomError:
        raise
    except MemoryError:
        raise RoomError(f"{file.path} needs more memory than is free here. {REMEDY}") from None
    except (TrimtabError, OSError) as error:
        notes.append(_sentence(error, file))
    file.release()
    if spoilt.count:
        records = "record" if spoilt.count == 1 else "records"
        notes.append(f"{file.path}: {spoilt.count} {records} could not be read, the first: {spoilt.first}.")
    if len(gathering) == before and not notes and not gathering.copies:
        notes.append(f"{file.path} needs sequences to judge, got none.")
    return notes


def _file_rows(file: DumpFile, reader: DumpReader, spoilt: Spoilt) -> Iterator[DumpRow]:
    for record in reader.records(file):
        if isinstance(record, RecordError):
            spoilt.add(str(record))
            continue
        try:
            rows = list(reader.rows(record, file))
        except RoomError:
            raise
        except _SPOILT as error:
            spoilt.add(_reason(error))
        else:
            yield from rows


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    return str(error).rstrip(".") or type(error).__name__


def _sentence(error: BaseException, file: DumpFile) -> str:
    text = str(error)
    return text if str(file.path) in text else f"{file.path}: {text}"


def readers_of(
    path: Path, framework: str | None, columns: Mapping[str, str] | None, refused: list[str]
) -> Iterator[tuple[DumpFile, DumpReader]]:
    """Each file of a path, a folder's too, with who reads it."""
    if framework is not None and framework not in DUMP_FRAMEWORKS:
        raise RecordError(
            f"--from needs a framework whose dumps are read, got {framework!r}. {nearest(framework, DUMP_FRAMEWORKS)}"
        )
    try:
        exists = path.exists()
    except OSError as error:  # a name that no file system takes
        raise RecordError(
            f"{str(path)[:80]} needs to be a path, got one that cannot be looked up: {error.strerror}."
        ) from None
    if not exists:
        raise RecordError(f"{path} needs to exist, got nothing there. Check the path.")
    given = [reader for reader in READERS if framework is None or reader.framework == framework]
    chosen = [columns_reader(columns)] if columns else given
    file = DumpFile(path)
    if file.kind != "folder":
        yield file, _reader_of(file, chosen, named=bool(columns))
        return
    known = [
        (each, reader)
        for each in _files_in(path)
        if (reader := _recognise(each, chosen, bool(columns), refused)) is not None
    ]
    if not known:
        why = f" One could not be read: {refused[0]}" if refused else ""
        raise RecordError(
            f"{path} needs a file that a framework saved, got none that is recognised. Name a file, or --columns.{why}"
        )
    yield from _first_of_families(known, refused)


def _first_of_families(
    known: list[tuple[DumpFile, DumpReader]], refused: list[str]
) -> list[tuple[DumpFile, DumpReader]]:
    """Of files that may hold the same sequences, those of the reader that knows most."""
    first: dict[str, DumpReader] = {}
    for _, reader in known:
        name = reader.family or reader.framework
        first[name] = min(first.get(name, reader), reader, key=_place)
    taken = [(file, reader) for file, reader in known if reader is first[reader.family or reader.framework]]
    left = dict.fromkeys(reader.files for _, reader in known if reader is not first[reader.family or reader.framework])
    refused += [
        f"Left out, as they may hold the same sequences: {files}. Name them to read them instead." for files in left
    ]
    return taken


def _place(reader: DumpReader) -> int:
    return READERS.index(reader) if reader in READERS else len(READERS)


def _files_in(folder: Path) -> list[DumpFile]:
    files = [
        path for path in folder.rglob("*") if path.suffix in DUMP_SUFFIXES and path.is_file() and path.stat().st_size
    ]
    return [DumpFile(path) for path in sorted(files, key=_natural)]


def _natural(path: Path) -> tuple[Any, ...]:
    """Step 9 before step 10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path)))


def _recognise(file: DumpFile, readers: Sequence[DumpReader], named: bool, refused: list[str]) -> DumpReader | None:
    """Who reads a file of a folder, if anybody; a file that is damaged or refused is told and left out."""
    if named:
        return readers[0]
    try:
        return next((reader for reader in readers if reader.knows(file)), None)
    except RecordError as error:
        refused.append(str(error))
        return None
    finally:
        file.release()  # a folder may have hundreds, and each is read when its turn comes


def _reader_of(file: DumpFile, readers: Sequence[DumpReader], *, named: bool) -> DumpReader:
    if file.kind not in ("run", "folder") and not file.path.stat().st_size:
        raise RecordError(
            f"{file.path} needs sequences, got an empty file. Its writer may have been stopped before it wrote."
        )
    if named:
        return readers[0]
    reader = next((reader for reader in readers if reader.knows(file)), None)
    if reader is None:
        raise RecordError(_unknown(file, readers))
    return reader


def _unknown(file: DumpFile, readers: Sequence[DumpReader]) -> str:
    wanted = readers[0].files if len(readers) == 1 else "a dump of a framework that is read"
    found = f"columns {', '.join(file.names[:12])}" if file.names else f"a file of kind {file.kind}"
    return f"{file.path} needs to be {wanted}, got {found}. Name its columns with --columns behavior=…,proximal=…"
