"""What becomes of a folder of real files: read whole, in part, refused, no settings, broken.

    python benchmarks/real_files.py FOLDER           one folder per framework below it: FOLDER/verl/…, FOLDER/slime/…
    python benchmarks/real_files.py FOLDER --each    and a line for every file that is not read whole

Every file is opened twice: as `trimtab explain FILE` does, which recognises the framework, and with the framework that its folder
is named for. The second column of reasons counts the sentences with which files were refused or read in part. A traceback, a
framework taken for another, or a file that takes more than two seconds of processor time is `broken`; a file of a framework built
on another, in which nothing is its own, may be taken for that one.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from trimtab.dialects import read
from trimtab.dialects.recognise import recognise
from trimtab.dialects.registry import dialect_of
from trimtab.errors import NotSettingsError, TrimtabError, UnknownNameError

SUFFIXES = {".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml", ".toml", ".py"}
OUTCOMES = ("whole", "in part", "refused", "no settings", "broken")
LONGEST = 2.0
"""Seconds of processor time that one file may take."""


@dataclass(frozen=True)
class Outcome:
    """What became of one file."""

    framework: str
    path: Path
    kind: str
    reason: str = ""


def outcomes(folder: Path) -> Iterator[Outcome]:
    """Every file below a folder, in order."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in SUFFIXES:
            named = path.relative_to(folder).parts[0]
            began = time.process_time()
            found = outcome(_framework(named), path)
            took = time.process_time() - began
            yield found if took < LONGEST else Outcome(found.framework, path, "broken", f"took {took:.1f} s")


def _framework(folder: str) -> str | None:
    try:
        return dialect_of(folder).name
    except UnknownNameError:
        return None


def outcome(framework: str | None, path: Path) -> Outcome:
    """What becomes of one file, of the framework its folder is named for where it is."""
    shown = framework or "?"
    try:
        shown = recognise(path).framework
        if framework is not None and shown not in (framework, dialect_of(framework).signature.ancestor):
            return Outcome(framework, path, "broken", f"taken for {shown}")
        reading = read(shown, path)
    except NotSettingsError as error:
        return Outcome(framework or shown, path, "no settings", str(error))
    except TrimtabError as error:
        return _with_framework(framework, path, error) if framework else Outcome(shown, path, "refused", str(error))
    except Exception as error:  # any other is what this looks for
        return Outcome(framework or shown, path, "broken", f"{type(error).__name__}: {error}")
    if reading.refused:
        return Outcome(framework or shown, path, "in part", "; ".join(each.text for each in reading.refused))
    return Outcome(framework or shown, path, "whole")


def _with_framework(framework: str, path: Path, error: TrimtabError) -> Outcome:
    """A file that was refused, with its framework said: the better of the two counts, its reason too."""
    try:
        reading = read(framework, path)
    except TrimtabError:
        return Outcome(framework, path, "refused", str(error))
    kind = "in part" if reading.refused else "whole"
    return Outcome(framework, path, kind, f"needs --from: {error}")


def _reason(each: Outcome) -> str:
    """A reason without what differs from file to file."""
    text = each.reason.replace(str(each.path), "FILE").replace(str(each.path.parent), "FOLDER")
    return re.sub(r"\(line \d+\)|\d+(\.\d+)?", "N", text)[:150]


def table(found: list[Outcome]) -> Table:
    """One row for each framework."""
    shown = Table("framework", "files", *OUTCOMES, "opened")
    for name in (*sorted({each.framework for each in found}), "all"):
        rows = [each for each in found if name in (each.framework, "all")]
        count = Counter(each.kind for each in rows)
        settings = len(rows) - count["no settings"]
        opened = count["whole"] + count["in part"]
        share = f"{opened / settings:.1%}" if settings else "-"
        shown.add_row(name, str(len(rows)), *(str(count[kind]) for kind in OUTCOMES), share)
    return shown


def main() -> None:
    """Print the table, then the reasons, the commonest first."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--each", action="store_true", help="a line for every file that is not read whole")
    asked = options.parse_args()
    found = list(outcomes(asked.folder))
    console = Console(highlight=False)
    console.print(table(found))
    reasons = Counter((each.framework, each.kind, _reason(each)) for each in found if each.reason)
    for (framework, kind, reason), count in reasons.most_common():
        console.print(f"{count:4} {framework} {kind}: {reason}", markup=False, soft_wrap=True)
    for each in found if asked.each else ():
        if each.kind != "whole":
            console.print(f"{each.path}: {each.kind}: {each.reason}", markup=False, soft_wrap=True)
    sys.exit(1 if any(each.kind == "broken" for each in found) else 0)


if __name__ == "__main__":
    main()
