"""`${a.b}` in settings: another setting of the same file. Nothing else is ever read because a file says so."""

from __future__ import annotations

import re
from typing import Any, cast

from trimtab.config.base import excerpt
from trimtab.config.safe_yaml import MOST_BYTES, MOST_LEVELS, MOST_VALUES
from trimtab.errors import ConfigFileError

Path = tuple[str | int, ...]

_PIECE = re.compile(r"\\\$\{|\$\{([^${}]*)\}|\$\{")
_TARGET = re.compile(r"(?P<up>\.*)(?P<path>[^\s.:\[\]]+(?:\.[^\s.:\[\]]+|\[[^\s.:\[\]]+\])*)")


def steps(key: str) -> list[str] | None:
    """The parts of a dotted key, `gates.0.upper` or `gates[0].upper`; None where it is none."""
    found = _TARGET.fullmatch(key)
    return None if found is None or found["up"] else re.findall(r"[^.\[\]]+", found["path"])


def step_into(value: object, step: str) -> tuple[str | int, Any]:
    """Where a step of a key leads inside a mapping or a list, and what stands there; a LookupError where nothing does."""
    if isinstance(value, list):
        place = int(step) if re.fullmatch(r"-?\d{1,9}", step) else None
        if place is None:
            raise KeyError(step)
        return place, cast("list[Any]", value)[place]
    if isinstance(value, dict):
        mapping = cast("dict[Any, Any]", value)
        name = next((key for key in mapping if str(key) == step), None) if step not in mapping else step
        if name is not None:
            return name, mapping[name]
    raise KeyError(step)


def without_references(tree: Any, origin: str) -> Any:
    """The tree with every `${a.b}` replaced by what it points at; `\\${` is a plain `${`."""
    try:
        return _Resolved(tree, origin).value(tree, (), ())
    except RecursionError:
        raise ConfigFileError(
            f"{origin} needs references that end, got some nested too deeply. Write the values."
        ) from None


def escape_references(tree: Any) -> Any:
    """The tree in the form that `without_references` gives back."""
    if isinstance(tree, dict):
        return {key: escape_references(value) for key, value in cast("dict[Any, Any]", tree).items()}
    if isinstance(tree, list):
        return [escape_references(value) for value in cast("list[Any]", tree)]
    return tree.replace("${", "\\${") if isinstance(tree, str) else tree


class _Resolved:
    """One tree while its references are followed; what that makes is bounded as the file itself is."""

    def __init__(self, tree: Any, origin: str) -> None:
        self.tree, self.origin = tree, origin
        self.values = self.letters = 0

    def value(self, given: Any, path: Path, trail: tuple[Path, ...]) -> Any:
        """A part of the tree without references; `trail` says through which ones it was reached."""
        self.values += 1
        if self.values > MOST_VALUES or self.letters > MOST_BYTES:
            raise self._problem(path, "references that make less", "more values than settings have")
        if isinstance(given, dict):
            inner = cast("dict[Any, Any]", given)
            return {key: self.value(each, (*path, key), trail) for key, each in inner.items()}
        if isinstance(given, list):
            return [self.value(each, (*path, at), trail) for at, each in enumerate(cast("list[Any]", given))]
        if not isinstance(given, str) or "${" not in given:
            self.letters += len(given) if isinstance(given, str) else 0
            return given
        return self._text(given, path, trail)

    def _text(self, given: str, path: Path, trail: tuple[Path, ...]) -> Any:
        if len(trail) >= MOST_LEVELS or path in trail:
            raise self._problem(path, "a reference that ends", f"{excerpt(given)}, which leads in a circle or too far")
        whole = _PIECE.fullmatch(given)
        if whole is not None and whole[1] is not None:
            return self._target(whole[1], given, path, trail)
        made: list[str] = []
        last = 0
        for piece in _PIECE.finditer(given):
            made += [given[last : piece.start()], self._insert(piece, given, path, trail)]
            last = piece.end()
            self.letters += len(made[-1])
            if self.letters > MOST_BYTES:
                raise self._problem(path, "references that make less", f"more than {MOST_BYTES} characters")
        return "".join([*made, given[last:]])

    def _insert(self, piece: re.Match[str], given: str, path: Path, trail: tuple[Path, ...]) -> str:
        if piece[0].startswith("\\"):
            return "${"
        found = self._target(piece[1], given, path, trail)
        if isinstance(found, dict | list):
            raise self._problem(
                path, "a reference to one value inside text", f"{excerpt(given)}, which holds a section"
            )
        return str(found)

    def _target(self, name: str | None, given: str, path: Path, trail: tuple[Path, ...]) -> Any:
        """What a reference points at, itself without references."""
        if name is not None and ":" in name:
            raise self._problem(
                path,
                "a value or a reference such as ${a.b}",
                f"the resolver {excerpt(given)}. Only the file itself is read",
            )
        found = None if name is None else _TARGET.fullmatch(name)
        if found is None:
            raise self._problem(path, "a reference such as ${a.b}", excerpt(given))
        up = len(found["up"])
        place: Path = path[: max(0, len(path) - up)] if up else ()
        at: Any = self._at(place)
        for step in re.findall(r"[^.\[\]]+", found["path"]):
            at = self.value(at, place, (*trail, path)) if isinstance(at, str) else at
            try:
                key, at = step_into(at, step)
            except LookupError:
                raise self._problem(path, "a reference to a setting that is there", excerpt(given)) from None
            place = (*place, key)
        return self.value(at, place, (*trail, path))

    def _at(self, place: Path) -> Any:
        at = self.tree
        for key in place:
            at = at[key]
        return at

    def _problem(self, path: Path, rule: str, got: str) -> ConfigFileError:
        name = ".".join(map(str, path))
        return ConfigFileError(f"{self.origin}: {name[:80] or 'the whole'} needs {rule}, got {got}.")
