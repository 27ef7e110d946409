"""Runs as processes of their own, started through the command line, watched and harmed from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from tests.train.small_runs import SMALL
from tests.waiting import LIMIT
from trimtab.records.run import RunDirectory

MARK = "PYTHON_TRIMTAB_TEST_RUN"  # of the names that a verifier's process gets too
ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], Any], what: str, run: Started | None = None) -> Any:
    """Wait for it; what it returned."""
    deadline = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {LIMIT:g} s for {what}. {run.errors if run else ''}"
        time.sleep(0.01)
    return found


@dataclass(eq=False)
class Started:
    """One `trimtab train`."""

    pid: int
    mark: str
    files: Path
    ended: Callable[[], int | None]
    path: Path | None = None
    """The run directory."""

    @property
    def output(self) -> str:
        """What it has printed on stdout."""
        return self.files.with_suffix(".out").read_text()

    @property
    def errors(self) -> str:
        """What it has printed on stderr."""
        return self.files.with_suffix(".err").read_text()

    def code(self) -> int:
        """Its exit code, once it has ended by itself, and all that it started with it."""

        def over() -> tuple[int] | None:
            code = self.ended()
            return None if code is None else (code,)

        code: int = until(over, "the end of the run", self)[0]
        until(lambda: not self.children(), "the end of what the run started", self)
        return code

    def children(self, name: str = "") -> list[int]:
        """Processes it started that live, in whatever session; those with `name` in their command line."""
        found: list[int] = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                marked = f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if marked and int(folder.name) != self.pid and command and name in command:
                found.append(int(folder.name))
        return sorted(found)

    @property
    def samplers(self) -> list[int]:
        """Its samplers, also those that are still starting."""
        return self.children("spawn_main")

    def send(self, number: signal.Signals) -> None:
        """A signal to the run's own process, as from `kill`."""
        os.kill(self.pid, number)

    def steps(self) -> int:
        """How many lines of metrics there are."""
        assert self.path is not None
        file = self.path / "metrics.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def after(self, steps: int) -> None:
        """Wait until so many steps are recorded."""
        until(lambda: self.steps() >= steps or self.ended() is not None, f"step {steps}", self)
        assert self.ended() is None, f"the run ended early with {self.ended()}: {self.errors}"


@dataclass(eq=False)
class Launcher:
    """Starts runs in a folder; by default in a fork of a process that has the imports behind it."""

    folder: Path
    forks: subprocess.Popen[str]
    runs: list[Started] = field(default_factory=list[Started])

    def train(self, *arguments: str, fresh: bool = False, streams: str | None = None, **environment: str) -> Started:
        """`trimtab train` with these arguments; `fresh`: as a user would start it, imports and all.

        `streams`: what stdout and stderr are instead of files: closed, broken (no reader), or a path.
        """
        mark = f"{self.folder.name}-{len(self.runs)}"
        files = self.folder / f"said-{len(self.runs)}"
        for suffix in (".out", ".err"):
            files.with_suffix(suffix).touch()
        given = {MARK: mark} | environment
        words = ["train", *arguments]
        run = self._fresh(words, mark, files, given) if fresh else self._forked(words, mark, files, given, streams)
        named = [word for flag, word in pairwise(words) if flag in ("--out", "--resume")]
        run.path = self.folder / named[0] if named else None
        self.runs.append(run)
        return run

    def settings(self, changes: dict[str, Any] | None = None) -> str:
        """A file of the small run's settings, some changed."""
        base = SMALL | {"learner": SMALL["learner"] | {"patience": 1_000_000}}
        merged = {name: _merged(base.get(name), value) for name, value in (base | (changes or {})).items()}
        file = self.folder / f"settings-{len(list(self.folder.glob('settings-*')))}.yaml"
        file.write_text(yaml.safe_dump(merged))
        return file.name

    def stop(self) -> None:
        """End what a failed test left."""
        for run in self.runs:
            for pid in [*([run.pid] if run.ended() is None else []), *run.children()]:
                os.kill(pid, signal.SIGKILL)

    def _forked(
        self, words: list[str], mark: str, files: Path, environment: dict[str, str], streams: str | None
    ) -> Started:
        code = files.with_suffix(".code")
        asked = {
            "arguments": words,
            "folder": str(self.folder),
            "environment": environment,
            "output": streams or str(files.with_suffix(".out")),
            "errors": streams or str(files.with_suffix(".err")),
            "code": str(code),
        }
        assert self.forks.stdin is not None
        assert self.forks.stdout is not None
        self.forks.stdin.write(json.dumps(asked) + "\n")
        self.forks.stdin.flush()
        pid = int(self.forks.stdout.readline())
        return Started(pid, mark, files, lambda: int(code.read_text()) if code.exists() else None)

    def _fresh(self, words: list[str], mark: str, files: Path, environment: dict[str, str]) -> Started:
        with files.with_suffix(".out").open("w") as output, files.with_suffix(".err").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "trimtab.cli", *words],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=surroundings(self.folder) | environment,
                start_new_session=True,
            )
        return Started(process.pid, mark, files, process.poll)


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a run: one thread, its own cache, no network."""
    paths = [str(ROOT / "src"), str(ROOT)]
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "TRIMTAB_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "200",
    }


def forks(folder: Path) -> subprocess.Popen[str]:
    """The process that forks; it has to be ended."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.train.forked"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=surroundings(folder),
    )


def check_records(path: Path, steps: int, *, staleness: int = 2, groups: int = 4) -> RunDirectory:
    """What holds of every run that got that far, whatever happened to it: no step twice, no group twice, none too old."""
    run = RunDirectory.read(path)
    assert [line["step"] for line in run.metrics()] == list(range(steps))
    table = run.rollout_table(columns=["step", "group", "sample", "staleness"]).to_pydict()
    rows = list(zip(table["group"], table["sample"], strict=True))
    assert len(rows) == len(set(rows)), "a response was trained twice"
    by_step = {(step, group) for step, group in zip(table["step"], table["group"], strict=True)}
    assert len(by_step) == len(set(table["group"])) == steps * groups, "a group was trained in two steps, or lost"
    assert max(table["staleness"], default=0) <= staleness
    assert max((line["staleness/oldest_max"] for line in run.metrics()), default=0) <= staleness
    return run


def kinds(run: RunDirectory) -> list[str]:
    """What sorts of things happened, in order."""
    return [event["kind"] for event in run.events()]


def _merged(base: Any, value: Any) -> Any:
    return base | value if isinstance(base, dict) and isinstance(value, dict) else value


ENDLESS = "steps=100000"


def done(path: Path) -> int:
    """The step of the newest checkpoint."""
    return int(max(path.glob("checkpoints/step-*")).name.removeprefix("step-"))


def said(run: Started, kind: str) -> list[str]:
    assert run.path is not None
    return [event["message"] for event in RunDirectory.read(run.path).events() if event["kind"] == kind]
