"""Whether a test of a script holds, where what it compares is known."""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Callable

from trimtab.dialects.files.unknown import HOLE

NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def truth(words: list[str]) -> bool | None:
    """True, False, or None where it depends on something unknown: files, the environment, arguments."""
    for sign, join in (("||", any), ("-o", any), ("&&", all), ("-a", all)):
        if sign in words:
            place = words.index(sign)
            sides = [truth(words[:place]), truth(words[place + 1 :])]
            if (join is any and True in sides) or (join is all and False in sides):
                return join is any
            return None if None in sides else join(bool(side) for side in sides)
    if words[:1] == ["!"]:
        inner = truth(words[1:])
        return None if inner is None else not inner
    if any(HOLE.search(word) for word in words):
        return None
    return _plain(words)


def _plain(words: list[str]) -> bool | None:
    if len(words) == 1:
        return bool(words[0])
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return (words[1] == "") == (words[0] == "-z")
    if len(words) != 3:
        return None
    left, sign, right = words
    if sign in ("=", "==", "!="):
        return fnmatch.fnmatchcase(left, right) == (sign != "!=")
    if sign in NUMBERS:
        try:
            return NUMBERS[sign](int(left), int(right))
        except ValueError:
            return None
    return None
