"""The measure of src, as a whole and folder by folder. `make house` runs it; `--base REV` puts the figures of a revision beside today's.

Documentation is docstrings and lines that are only a comment. Complexity counts branches, loops, handlers, comprehensions and boolean
operators. "One user" counts modules that a single other module of src imports.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
from collections import defaultdict
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tests.test_one_meaning import several_constants, several_homes, several_stems  # noqa: E402

SRC = "src/trimtab/"
SMALL_FILE, MOST_PARAMETERS = 60, 6
COLUMNS = ("files", "lines", "<60", "one user", "import%", "docs%", "cc-p90", "cc-max", ">6 args")
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.comprehension, ast.match_case, ast.Assert)


def sources(revision: str | None) -> dict[str, str]:
    """Every module by its path below src/trimtab: of the working tree, or of a revision."""
    if revision is None:
        return {path.relative_to(ROOT / SRC).as_posix(): path.read_text() for path in (ROOT / SRC).rglob("*.py")}
    packed = subprocess.run(["git", "archive", revision, SRC], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [each for each in archive if each.isfile() and each.name.endswith(".py")]
        return {each.name.removeprefix(SRC): archive.extractfile(each).read().decode() for each in members}


def importers(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Who imports each module; packages are left out. `from package import module` imports the module."""
    modules = {path: f"trimtab.{path[:-3].replace('/', '.')}".removesuffix(".__init__") for path in trees}
    users: dict[str, set[str]] = {module: set() for module in modules.values()}
    for path, node in ((path, node) for path, tree in trees.items() for node in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names} & users.keys()
            for module in names or {str(node.module)} & users.keys():
                users[module].add(path)
    return {path: users[module] - {path} for path, module in modules.items() if not path.endswith("__init__.py")}


def complexity(function: ast.AST) -> int:
    """One way through, and one more for each branch."""
    operators = [len(node.values) - 1 for node in ast.walk(function) if isinstance(node, ast.BoolOp)]
    return 1 + sum(operators) + sum(isinstance(node, BRANCHES) for node in ast.walk(function))


def documentation(source: str, tree: ast.AST) -> int:
    """Lines of docstrings and of comments that stand alone."""
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    comments = [line for line in source.splitlines() if line.lstrip().startswith("#")]
    return len(comments) + sum(node.end_lineno - node.lineno + 1 for node in texts if isinstance(node.value.value, str))


def figures(files: dict[str, str], trees: dict[str, ast.Module], users: dict[str, set[str]]) -> list[float]:
    """The row of some files, as in COLUMNS."""
    sizes = [len(source.splitlines()) for source in files.values()]
    nodes = [node for path in files for node in ast.walk(trees[path])]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    ways = sorted(map(complexity, functions)) or [0]
    imports = sum(node.end_lineno - node.lineno + 1 for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    docs = sum(documentation(source, trees[path]) for path, source in files.items())
    small, alone = sum(size < SMALL_FILE for size in sizes), sum(len(users.get(path, ())) == 1 for path in files)
    named = [[arg.arg for arg in (*each.args.args, *each.args.kwonlyargs)] for each in functions]
    wide = sum(len(set(names) - {"self", "cls"}) > MOST_PARAMETERS for names in named)
    shares = [100 * part / max(sum(sizes), 1) for part in (imports, docs)]
    return [len(sizes), sum(sizes), small, alone, *shares, ways[len(ways) * 9 // 10], ways[-1], wide]


def bare_indices(trees: dict[str, ast.Module]) -> int:
    """Places that are numbers in the fast pass: `row[6]`, `limits[3, 0]`, but not `shape[0]`."""
    places = 0
    for node in (node for path, tree in trees.items() if path.startswith("core/fast/") for node in ast.walk(tree)):
        if isinstance(node, ast.Subscript) and not ast.unparse(node.value).endswith(".shape"):
            indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            places += any(isinstance(index, ast.Constant) and type(index.value) is int for index in indices)
    return places


def measure(revision: str | None) -> dict[str, list[float]]:
    """The whole and each folder by name, then what is one figure for all."""
    files = sources(revision)
    trees = {path: ast.parse(source) for path, source in files.items()}
    users, folders = importers(trees), defaultdict[str, dict[str, str]](dict)
    for path, source in files.items():
        folders[path.partition("/")[0] if "/" in path else "(root)"][path] = source
    rows = {name: figures(part, trees, users) for name, part in {"src": files, **dict(sorted(folders.items()))}.items()}
    meanings = {"names": several_homes, "file stems": several_stems, "constants": several_constants}
    counts = {f"{name} with several meanings": [len(count(files))] for name, count in meanings.items()}
    return rows | {"bare indices in core/fast": [bare_indices(trees)]} | counts


def main() -> None:
    """Print the table; with --base what was → what is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", metavar="REV", help="a revision to compare with")
    base = parser.parse_args().base
    after, before = measure(None), measure(base) if base else {}
    print(" " * 35 + "".join(f"{name:>{16 if base else 9}}" for name in COLUMNS))
    for name in {**after, **before}:
        values = [before.get(name, ()), after.get(name, ())][not base :]
        rows = [[f"{value:.1f}".removesuffix(".0") for value in row] for row in values]
        cells = [" → ".join(pair) for pair in zip_longest(*rows, fillvalue="-")]
        print(f"{name:35}" + "".join(f"{cell:>{16 if base else 9}}" for cell in cells))


if __name__ == "__main__":
    main()
