"""One set of variables for several ways through a script."""

from __future__ import annotations

from trimtab.dialects.files.expansion import Scope

BRANCHES = "which branches of the script set differently"
REPEATED = "which a loop of the script changes"


def merge(scope: Scope, ways: list[Scope], line: int, why: str) -> None:
    """One scope for several ways through: what they agree on stays, what they set differently is unknown by name."""
    names = {name for way in ways for name in way.values}
    for name in names:
        first = ways[0].values.get(name)
        if all(way.values.get(name) == first for way in ways[1:]):
            if first is not None:
                scope.values[name] = first
            continue
        given = [way.values.get(name) for way in ways]
        if any(isinstance(each, list) for each in given):
            scope.values[name] = _common([each if isinstance(each, list) else [] for each in given], name, line, scope)
        else:
            scope.values[name] = scope.holes.hole(f"${name}", line, why)


def _common(lists: list[list[str]], name: str, line: int, scope: Scope) -> list[str]:
    """The words that several forms of an array begin with, and a hole for the rest."""
    shared: list[str] = []
    for each in zip(*lists, strict=False):
        if len(set(each)) > 1:
            break
        shared.append(each[0])
    rest = tuple(word for words in lists for word in words[len(shared) :])
    return [*shared, scope.holes.hole(f"${{{name}[@]}}", line, BRANCHES, several=True, maybe=rest)]
