"""Build the wheel and try it as a user has it: every Python here, every extra, every command. `make wheels` runs it.

For each interpreter a fresh environment outside the tree gets the wheel without extras, then one extra after the other. After
each, the commands that it is for run in an empty folder, and every command without extras, with `train` and with all of them. A command
passes if it does its work, or, where its extra is not installed yet, if it says so in one line with exit code 2. Versions are not
pinned, but for what `--constraint` says. Without torch (`--without-torch`) only what needs none is installed and the commands that
need it must say so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("report", "check", "fast", "train", "lora", "ray", "tensorboard", "wandb", "trackio", "mlflow")
TINY = (
    *("steps=2", "backend=lockstep", "task.options.size=2", "model.warm_start=null", "evaluate.problems=4"),
    *("rollout.groups=2", "rollout.samples=2"),
    *("model.tiny.layers=1", "model.tiny.width=16", "model.tiny.heads=2", "model.tiny.mlp=24"),
)
RUN = """
from trimtab.config.training import Train
from trimtab.records.run import RunDirectory
with RunDirectory.create("run", Train().model_dump(mode="json")) as run:
    for step in range(3):
        run.log(step, {"eval/accuracy": 0.5, "drift/k3": 0.01, "kept_fraction": 1.0})
"""
"""Makes a run directory with what the extra `report` has."""
VERL = "algorithm:\n  rollout_correction:\n    rollout_is: token\n    rollout_is_threshold: 2.0\n"


@dataclass(frozen=True)
class Command:
    """A command line, and the extras of which it needs one; empty: none."""

    name: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    torch: bool = True
    again: tuple[str, ...] = ()
    """Extras that it can do without, after which it is run again, as they change what it does."""
    says: tuple[str, str] = ("", "")
    """An extra, and what the command says once that is installed."""


COMMANDS = (
    Command("--version", ("--version",), torch=False),
    Command("presets", ("presets",), torch=False),
    Command("explain", ("explain", "geo-rs+token-mis", "token_upper=2.0"), torch=False),
    Command("schema", ("schema", "train"), torch=False),
    Command("convert", ("convert", "--from", "verl", "verl.yaml", "--to", "areal"), torch=False),
    Command("compare", ("compare", "verl:verl.yaml", "verl:verl.yaml"), torch=False),
    Command("check", ("check", "trimtab", "--cases", "1"), again=("check", "fast")),
    Command("doctor", ("doctor",), again=("check", "fast"), says=("fast", "by numba")),
    Command("train", ("train", *TINY, "--out", "run"), ("train",)),
    Command("report", ("report", "run"), ("report", "train")),
    Command("lab", ("lab", "--steps", "2", "--seeds", "1", "--scenario", "stale", "--correction", "off", *TINY[2:]), ("train",)),
    Command("demo", ("demo", "--steps", "2"), ("train",)),
)  # fmt: skip
TRAININGS = (
    Command("train lora", ("train", *TINY, "learner.lora.rank=2", "--out", "run-lora"), ("lora",)),
    Command("train ray", ("train", *TINY, "backend=ray", "--out", "run-ray"), ("ray",)),
)
LOGGERS = tuple(
    Command(f"log {name}", ("train", *TINY, f"record.loggers=[{name}]", "--out", f"run-{name}"), (name,))
    for name in ("tensorboard", "wandb", "trackio", "mlflow")
)


@dataclass(frozen=True)
class Environment:
    """A virtual environment of one interpreter."""

    folder: Path

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin" / "python")

    def install(self, *what: str) -> None:
        """Install with pip; what it says is shown if it fails."""
        command = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{ran.stdout}{ran.stderr}")

    def outcome(self, command: Command, installed: set[str], place: Path, torch: bool) -> str:
        """`ok`, `says so` where an extra is missing and it is said in one line, or what went wrong."""
        (place / "verl.yaml").write_text(VERL)
        quiet = {"WANDB_MODE": "offline", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRACKIO_DIR": str(place)}
        ran = subprocess.run(
            [str(self.folder / "bin" / "trimtab"), *command.arguments],
            cwd=place,
            env={**os.environ, **quiet, "TRIMTAB_CACHE": str(place / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )
        missing = (command.torch and not torch) or (command.needs and not installed & set(command.needs))
        if not missing or (command.name == "doctor" and torch):
            extra, words = command.says
            if extra in installed and words not in ran.stdout:
                return f"FAILED: with {extra} it does not say {words!r}"
            return "ok" if ran.returncode == 0 else f"FAILED ({ran.returncode}): {_last(ran.stderr or ran.stdout)}"
        if command.name == "doctor":  # without torch much is broken, which is what it is for
            return "says so" if ran.returncode == 1 and "Broken: torch" in ran.stdout else f"FAILED ({ran.returncode})"
        if ran.returncode == 2 and ran.stderr.count("\n") == 1 and "pip install" in ran.stderr:
            return "says so"
        return f"FAILED ({ran.returncode}): {_last(ran.stderr)}"


def _last(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "said nothing"


def built(folder: Path) -> Path:
    """The wheel, made from the source distribution, as an installer without a wheel would."""
    environment = Environment(folder / "build")
    subprocess.run([sys.executable, "-m", "venv", environment.folder], check=True)
    environment.install("build")
    subprocess.run([environment.python, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


def interpreter(version: str) -> str | None:
    """Where Python of this version is: on PATH, or kept by pyenv."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return shutil.which(f"python{version}") if not kept else str(kept[-1])


def tried(version: str, wheel: Path, given: argparse.Namespace) -> dict[str, dict[str, str]]:
    """What each command did, by extra, on one interpreter."""
    with tempfile.TemporaryDirectory(prefix="trimtab-wheel-") as folder:
        environment = Environment(Path(folder) / "venv")
        subprocess.run([str(interpreter(version)), "-m", "venv", environment.folder], check=True)
        constraint = ["-c", given.constraint] if given.constraint else []
        if given.without_torch:
            environment.install("--no-deps", str(wheel))
            environment.install("pydantic>=2.10", "pyyaml>=6", "typer>=0.15", "rich>=13")
        else:
            environment.install(*constraint, str(wheel))
        found, installed = {}, set[str]()
        for extra in ("none", *(() if given.without_torch else EXTRAS)):
            if extra != "none":
                environment.install(*constraint, f"{wheel}[{extra}]")
                installed.add(extra)
            place = Path(folder) / f"with-{extra}"
            place.mkdir()
            if "report" in installed and "train" not in installed:  # nothing can make a run yet
                subprocess.run([environment.python, "-c", RUN], cwd=place, check=True)
            # Trainings and loggers need `train` too; before that their lines would say what the line of train says.
            known = COMMANDS + (TRAININGS + LOGGERS if "train" in installed else ())
            whole = extra in ("none", "train", EXTRAS[-1])
            commands = [each for each in known if whole or extra in each.needs + each.again]
            found[extra] = {
                each.name: environment.outcome(each, installed, place, not given.without_torch) for each in commands
            }
            print(
                f"{version} +{extra}: " + ", ".join(f"{name} {how}" for name, how in found[extra].items()), flush=True
            )
        return found


def main() -> int:
    """Try every interpreter that is here; exit code 1 if a command failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", default=PYTHONS, help="such as 3.11 3.13")
    parser.add_argument("--constraint", metavar="FILE", help="given to pip as -c")
    parser.add_argument("--without-torch", action="store_true", help="only what needs no torch")
    given = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="trimtab-dist-") as folder:
        wheel = built(Path(folder))
        for version in given.pythons:
            if interpreter(version) is None:
                print(f"{version}: not here, not tried")
                continue
            found = tried(version, wheel, given)
            failed |= any(how.startswith("FAILED") for row in found.values() for how in row.values())
            print(table(version, found), flush=True)
    return int(failed)


def table(version: str, found: dict[str, dict[str, str]]) -> str:
    """Commands down, extras across."""
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    head = f"| Python {version} | " + " | ".join(extra if extra == "none" else f"+{extra}" for extra in found) + " |"
    rows = [f"| {name} | " + " | ".join(row.get(name, "") for row in found.values()) + " |" for name in names]
    return "\n".join([head, "| --- |" + " --- |" * len(found), *rows, ""])


if __name__ == "__main__":
    sys.exit(main())
