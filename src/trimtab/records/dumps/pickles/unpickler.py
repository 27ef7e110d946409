"""The unpickler that runs a pickle's operations: Python's own, with only those that build plain data left in it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path
from typing import Any, cast

from trimtab.config.safe_yaml import opened
from trimtab.errors import RecordError
from trimtab.records.dumps.pickles.allow_list import ADMITTED
from trimtab.records.dumps.pickles.tensors import Husk, StandIn
from trimtab.records.dumps.room import REMEDY, RoomError, free_room

PersistentLoad = Callable[[Any], Any]

# The one in Python, not the one in C: that one allocates memory for any place in its memo that a file names.
_Machine: Any = pickle._Unpickler  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
_PLAIN = (
    *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"),
    *("GET", "BINGET", "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2"),
    *("LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "EMPTY_LIST", "APPEND", "APPENDS"),
    *("EMPTY_DICT", "GLOBAL", "STACK_GLOBAL", "BINPERSID"),
)
_KEYS = str | int | float | bool | bytes | None
_BROKEN = (
    *(EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError),
    pickle.PickleError,
)
A_VALUE = 40
"""Bytes that a value of plain Python takes in a list."""


class NotDataError(RecordError):
    """A pickle that asks for more than data."""


class PlainUnpickler(_Machine):
    """Builds numbers, text, lists, dictionaries and tensors; refuses the rest by name."""

    def __init__(self, file: BufferedIOBase, size: int, persistent: PersistentLoad | None = None) -> None:
        super().__init__(_Bounded(file, size), encoding="latin1")
        self._persistent = persistent
        most = free_room() // A_VALUE
        if size > most:  # every value takes a byte at least; a count for each costs time
            self.dispatch = _Counted(PlainUnpickler.dispatch, most)

    def find_class(self, module: str, name: str) -> StandIn:
        """The stand-in of a name; nothing is imported."""
        if (found := ADMITTED.get(f"{module}.{name}")) is None:
            asked = repr(f"{module}.{name}"[:100])
            raise NotDataError(f"it asks for {asked}, which is none of the containers and tensors that are admitted")
        return found

    def persistent_load(self, pid: Any) -> Any:
        """A storage of the archive that the pickle stands in."""
        if self._persistent is None:
            raise NotDataError("it asks for objects that stand outside the file")
        return self._persistent(pid)


def _reduce(machine: Any) -> None:
    arguments = machine.stack.pop()
    machine.stack[-1] = _call(machine.stack[-1], arguments)


def _new_named(machine: Any) -> None:
    named, arguments = machine.stack.pop(), machine.stack.pop()
    if named:
        raise NotDataError("it makes an object with named arguments")
    machine.stack[-1] = _call(machine.stack[-1], arguments)


def _build(machine: Any) -> None:
    state = machine.stack.pop()
    thing = machine.stack[-1]
    if isinstance(thing, Husk):
        thing.state = state
    elif not isinstance(thing, dict):  # a dictionary's attributes say nothing about its items
        raise NotDataError(f"it sets attributes of {_name_of(thing)}")


def _set_item(machine: Any) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _put(machine.stack[-1], [key, value])


def _set_items(machine: Any) -> None:
    items = machine.pop_mark()
    _put(machine.stack[-1], items)


def _dict(machine: Any) -> None:
    items = machine.pop_mark()
    dictionary: dict[Any, Any] = {}
    _put(dictionary, items)
    machine.append(dictionary)


def _add_items(machine: Any) -> None:
    items = machine.pop_mark()
    if not isinstance(machine.stack[-1], list):
        raise NotDataError(f"it adds items to {_name_of(machine.stack[-1])}")
    machine.stack[-1].extend(items)


def _set(machine: Any) -> None:
    machine.append([])


def _frozen_set(machine: Any) -> None:
    items = machine.pop_mark()
    machine.append(items)


def _byte_array(machine: Any) -> None:
    machine.append(bytearray(machine.read(int.from_bytes(machine.read(8), "little"))))  # Python's makes room first


def _refusal(name: str) -> Callable[[Any], None]:
    def refuse(machine: Any) -> None:
        raise NotDataError(f"it has the operation {name}, which plain data does not need")

    return refuse


def _dispatch() -> dict[int, Callable[[Any], None]]:
    """Python's operations on plain data, ours in place of those that call or set something, and a refusal for the rest."""
    ours: dict[str, Callable[[Any], None]] = {
        "REDUCE": _reduce,
        "NEWOBJ": _reduce,
        "NEWOBJ_EX": _new_named,
        "BUILD": _build,
        "SETITEM": _set_item,
        "SETITEMS": _set_items,
        "DICT": _dict,
        "EMPTY_SET": _set,
        "ADDITEMS": _add_items,
        "FROZENSET": _frozen_set,
        "BYTEARRAY8": _byte_array,
    }
    codes = {name: getattr(pickle, name)[0] for name in (*_PLAIN, *ours)}
    table = {code: _refusal(f"{code:#04x}") for code in range(256)}
    table |= {codes[name]: _Machine.dispatch[codes[name]] for name in _PLAIN}
    return table | {codes[name]: ours[name] for name in ours}


PlainUnpickler.dispatch = _dispatch()


class _Counted(dict[int, Callable[[Any], None]]):
    """The operations, counted as they are looked up: more values than there is room for are refused."""

    def __init__(self, table: dict[int, Callable[[Any], None]], most: int) -> None:
        super().__init__(table)
        self.left = most

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        self.left -= 1
        if self.left < 0:
            raise RoomError(f"it holds more single values than there is memory for. {REMEDY.rstrip('.')}")
        return super().__getitem__(code)


class _Bounded:
    """A file that never makes room for more than it has."""

    def __init__(self, file: BufferedIOBase, size: int) -> None:
        self._file, self._left = file, size

    def read(self, count: int) -> bytes:
        if not 0 <= count <= self._left:
            raise EOFError("it was cut off")
        self._left -= count
        return self._file.read(count)

    def readline(self) -> bytes:
        line = self._file.readline(self._left)
        self._left -= len(line)
        return line


def unpickle(file: BufferedIOBase, size: int, path: Path, persistent: PersistentLoad | None = None) -> Any:
    """What a pickle of `size` bytes builds, with stand-ins for objects; one sentence where it cannot be read."""
    try:
        return PlainUnpickler(file, size, persistent).load()
    except RoomError as error:
        raise RoomError(f"{path} was not read to its end: {error}.") from None
    except MemoryError:
        raise RoomError(f"{path} needs more memory than is free here. {REMEDY}") from None
    except RecordError as error:
        raise NotDataError(
            f"{path} needs to hold data only and was not opened further: {error}. Nothing of it was run."
        ) from None
    except _BROKEN as error:
        raise RecordError(
            f"{path} needs to be a whole pickle, got one that is damaged or was cut off: {error}."
        ) from None


def pickle_content(path: Path) -> Any:
    """The data of a `.pkl` file."""
    with opened(path) as file:
        return unpickle(file, os.fstat(file.fileno()).st_size, path)


def _call(function: Any, arguments: Any) -> Any:
    if not isinstance(function, StandIn) or not isinstance(arguments, tuple):
        raise NotDataError(f"it calls {_name_of(function)}")
    return function.make(*cast("tuple[Any, ...]", arguments))


def _put(into: Any, items: list[Any]) -> None:
    """Keys and values in turn. Plain keys only: a key is hashed, and what is nested a million deep cannot be."""
    if not isinstance(into, dict):
        raise NotDataError(f"it sets items of {_name_of(into)}")
    dictionary = cast("dict[Any, Any]", into)
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, _KEYS):
            raise NotDataError(f"it has {_name_of(key)} as a key")
        dictionary[key] = value


def _name_of(thing: Any) -> str:
    return thing.name if isinstance(thing, StandIn | Husk) else f"a {type(thing).__name__}"
