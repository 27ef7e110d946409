"""Messages between the judge and the process of its verifiers: JSON behind its length. What arrives is read, never unpickled."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

REPLY = 1 << 16
"""Most bytes of a reply: a verifier says a number or an error."""
REQUEST = 1 << 30
_LENGTH = struct.Struct(">I")

_TEXTS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "bytes": (bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    "seconds": (
        datetime.timedelta,
        lambda value: str(value // datetime.timedelta(microseconds=1)),
        lambda text: datetime.timedelta(microseconds=int(text)),
    ),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
}
_LISTS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}


class RubbishError(Exception):
    """Bytes that are no message."""


def send(to: socket.socket, value: object, until: float | None = None) -> None:
    """Send a message whole; TimeoutError where it is not taken in time. What JSON cannot say is a TypeError, before anything is sent."""
    message = json.dumps(encoded(value)).encode()
    to.settimeout(_left(until))
    to.sendall(_LENGTH.pack(len(message)) + message)


def receive(of: socket.socket, most: int, until: float | None = None) -> Any:
    """The next message. EOFError at the end, TimeoutError too late, RubbishError where it is none or is longer than `most` bytes."""
    (length,) = _LENGTH.unpack(_bytes(of, _LENGTH.size, until))
    if length > most:
        raise RubbishError(f"{length} bytes where at most {most} belong")
    message = _bytes(of, length, until)
    try:
        return decoded(json.loads(message))
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise RubbishError(f"{type(error).__name__}: {error}"[:200]) from None


def encoded(value: object) -> Any:
    """The value as JSON, told apart where JSON has one form for two, such as tuples and lists."""
    if value is None or isinstance(value, bool | int | str | float):
        return {"$": "float", "of": str(value)} if isinstance(value, float) and not math.isfinite(value) else value
    if isinstance(value, list):
        return [encoded(item) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        if all(isinstance(key, str) for key in pairs) and "$" not in pairs:
            return {str(key): encoded(item) for key, item in pairs.items()}
        return {"$": "dict", "of": [[encoded(key), encoded(item)] for key, item in pairs.items()]}
    for name, kind in _LISTS.items():
        if isinstance(value, kind):
            return {"$": name, "of": [encoded(item) for item in cast("Any", value)]}
    for name, (kind, text, _) in _TEXTS.items():
        if isinstance(value, kind):
            return {"$": name, "of": text(value)}
    if callable(getattr(value, "tolist", None)):  # of numpy
        return encoded(cast("Any", value).tolist())
    raise TypeError(f"a verifier's process takes numbers, text, dates, lists and dicts, got {type(value).__name__}")


def decoded(value: Any) -> Any:
    """What `encoded` was given."""
    if isinstance(value, list):
        return [decoded(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    pairs = cast("dict[str, Any]", value)
    if "$" not in pairs:
        return {key: decoded(item) for key, item in pairs.items()}
    kind, inner = pairs["$"], pairs["of"]
    if kind == "float":
        return float(inner)
    if kind == "dict":
        return {decoded(key): decoded(item) for key, item in inner}
    return _LISTS[kind](decoded(inner)) if kind in _LISTS else _TEXTS[kind][2](inner)


def _left(until: float | None) -> float | None:
    """Seconds left; never 0, which would mean not to wait at all."""
    return None if until is None else max(until - time.monotonic(), 1e-6)


def _bytes(of: socket.socket, number: int, until: float | None) -> bytes:
    found = bytearray()
    while len(found) < number:
        of.settimeout(_left(until))
        part = of.recv(min(number - len(found), 1 << 20))
        if not part:
            raise EOFError
        found += part
    return bytes(found)
