"""Pages that trimtab itself writes, made for the site: a comparison of two runs, the report of one, the audit of its samples.

`python docs/site/live.py build/live` makes those that are not there yet; about a minute of processor time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 150


def made(folder: Path) -> dict[str, Path]:
    """The pages by name."""
    return {name: folder / f"{name}.html" for name in ("compare", "report", "audit")}


def make(folder: Path) -> None:
    """Train twice and write the pages."""
    with tempfile.TemporaryDirectory() as home:
        out = Path(home) / "demo"
        trimtab("demo", "--steps", str(STEPS), "--out", str(out))
        runs = sorted(path.parent for path in out.rglob("run.json"))
        trimtab("audit", str(runs[0]), "--html", str(Path(home) / "audit.html"))
        pages = {
            "compare": next(out.glob("*.html")),
            "report": runs[0] / "report.html",
            "audit": Path(home) / "audit.html",
        }
        if not pages["report"].is_file():
            trimtab("report", str(runs[0]))
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in pages.items():
            shutil.copyfile(path, made(folder)[name])


def trimtab(*words: str) -> None:
    """Run a command; a failure ends the build."""
    subprocess.run([sys.executable, "-m", "trimtab", *words], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if not all(path.is_file() for path in made(target).values()):
        make(target)
