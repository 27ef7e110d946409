"""Functions of the user's own, `module:function`, looked for without running anything of them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from trimtab.config.base import excerpt
from trimtab.errors import ConfigError, UnknownNameError, nearest


def module_file(name: str) -> Path | None:
    """The file of a module, found as an import from this folder would find it, without running anything of it."""
    spec = _spec(name)
    file = None if spec is None or spec.origin is None else Path(spec.origin)
    return file if file is not None and file.is_file() else None


def check_function(path: str) -> None:
    """Refuse a module that is not there, and a function that its file does not speak of; where that cannot be told, neither."""
    module, _, name = path.partition(":")
    if _spec(module) is None:
        if _may_appear(module):
            return
        raise ConfigError(
            f"Reward needs a module that can be imported, got {excerpt(path)}: there is no module {excerpt(module)}. "
            f"It is looked for in {Path.cwd()} and the Python path."
        )
    file = module_file(module)
    names = None if file is None or file.suffix != ".py" else names_in(file)
    if names is not None and name not in names:
        known = [each for each in names if each.isidentifier() and not each.startswith("_")]
        raise UnknownNameError(f"Module {module} has no function {excerpt(name)}. {nearest(name, known)}")


def _may_appear(module: str) -> bool:
    """Whether a module without a file may be found all the same: by another finder, or because its package makes it."""
    package = module.partition(".")[0]
    if _spec(package) is None:
        return any(finder.find_spec(package, None) is not None for finder in sys.meta_path)
    file = module_file(package)
    text = b"" if file is None else file.read_bytes()
    return b"__path__" in text or b"sys.modules" in text


def names_in(file: Path) -> set[str] | None:
    """Names that a module's file gives something to, at whatever depth; None where that cannot be told from its text."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the import will say why
    names = set(_named(tree))
    return None if "*" in names or "__getattr__" in names else names


def _named(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.alias():
                yield node.asname or node.name.partition(".")[0]
            case ast.Constant(value=str() as text):
                yield text  # globals()["name"] = …
            case _:
                pass


def _spec(name: str) -> ModuleSpec | None:
    """A module's place, found as an import from this folder would find it."""
    places: Iterable[str] | None = [str(Path.cwd()), *sys.path]
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        if places is None:
            return None
        spec = PathFinder.find_spec(".".join(parts[:count]), list(places))
        if spec is None:
            return None
        places = spec.submodule_search_locations
    return spec
