"""Change the code in small ways, one at a time, and see whether a test notices. `make mutants` runs it.

    once: which tests reach which line ──► a change in a copy of the tree ──► quick tests of its line, then others ──► killed or survived

What survives is a hole in the tests, or a change that means nothing. The latter stand in .ci/mutants.toml, each with its reason; any
other ends this with 1. Which changes are tried follows from seed and count. A stopped run goes on where it was; one of other code or
tests starts anew. Nothing is written outside build/mutants.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from changes import PARTS, ROOT, SOURCE, Change, all_changes, drawn, part_of

WORK, LISTED = ROOT / "build/mutants", ROOT / ".ci/mutants.toml"
TESTS = (
    "tests/core",
    "tests/log_probs",
    "tests/laws",
    "tests/losses",
    "tests/advantage",
    "tests/config",
    "tests/explain",
    "tests/logged",
    "tests/test_defaults.py",
)
FAST = "core/fast/"
"""Where loops are: numba compiles them, which takes a minute after each change. Here they run as the Python that they are."""
QUICK, LONG = 12.0, 90.0
"""Seconds of tests tried first on a change, and after them."""
EXAMPLES = 5
"""Examples that a law draws while it is found out what it reaches; its own number is about six times as many."""
MEMORY = 8 << 30
"""Bytes that a run of tests may take: a change can make a loop that never ends."""


class Reach:
    """A plug-in of pytest that writes down which tests reach which lines, and how long each takes."""

    def __init__(self, path: Path) -> None:
        self.path, self.root = path, str(Path.cwd() / SOURCE) + os.sep
        self.left: dict[CodeType, set[int]] = {}  # lines that the test has not reached
        self.seconds: dict[str, float] = defaultdict(float)
        self.lines: dict[str, set[str]] = defaultdict(set)
        self.broken: set[str] = set()

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code not in self.left:
            ours = code.co_filename.startswith(self.root)
            self.left[code] = {line for _, _, line in code.co_lines() if line} if ours else set()
            self.left[code].discard(code.co_firstlineno)
        return self._step if self.left[code] else None

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        left = self.left[frame.f_code]
        left.discard(frame.f_lineno)
        return self._step if left else None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """A test, and what it reached."""
        self.left, start = {}, sum(os.times()[:4])  # of this process and of those it starts: the same on a busy machine
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            test = item.nodeid.partition("[")[0]
            law = 6.0 if hasattr(getattr(item, "function", None), "hypothesis") else 1.0
            self.seconds[test] += (sum(os.times()[:4]) - start) * law
            for code, left in self.left.items():
                if code.co_filename.startswith(self.root):
                    file = code.co_filename.removeprefix(self.root)
                    for line in {line for _, _, line in code.co_lines() if line} - left:
                        self.lines[f"{file}:{line}"].add(test)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails on the code as it is says nothing."""
        if report.failed:
            self.broken.add(report.nodeid.partition("[")[0])

    def pytest_sessionfinish(self) -> None:
        """Write what was found."""
        lines = {line: sorted(tests - self.broken) for line, tests in self.lines.items()}
        self.path.write_text(json.dumps({"seconds": self.seconds, "broken": sorted(self.broken), "lines": lines}))


def pytest_configure(config: pytest.Config) -> None:
    """As a plug-in (`-p mutants`): what tests reach, with few examples for each law."""
    from hypothesis import settings

    settings.register_profile("reach", settings.get_profile("house"), max_examples=EXAMPLES)
    settings.load_profile("reach")
    config.pluginmanager.register(Reach(Path(os.environ["MUTANTS_REACH"])))


@dataclass
class Trees:
    """Copies of the tree with a run of tests in each."""

    running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    stopped: bool = False

    def copy(self, number: int) -> Path:
        """A fresh one, with the times of its files, by which compiled code is known."""
        tree = WORK / f"tree-{number}"
        shutil.rmtree(tree, ignore_errors=True)
        left_out = shutil.ignore_patterns(".git", ".venv*", "build", "runs", "labs", ".hypothesis")
        return shutil.copytree(ROOT, tree, ignore=left_out)

    def run(self, tree: Path, tests: list[str], seconds: float, *options: str, fast: bool, **env: str) -> int | None:
        """How pytest ends in a tree; None: not in so much of a core's time, which a busy machine does not use up, or far beyond it."""
        env |= {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{ROOT / '.ci'}", "PYTHONDONTWRITEBYTECODE": "1"}
        if fast:
            env["NUMBA_DISABLE_JIT"], options = "1", (*options, "-W", "ignore::RuntimeWarning")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        child = subprocess.Popen(command, cwd=tree, env={**os.environ, **env}, **quiet)
        self.running.add(child)
        with contextlib.suppress(ImportError, AttributeError, ProcessLookupError):  # Linux has it
            import resource

            resource.prlimit(child.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.prlimit(child.pid, resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
        try:
            ended = child.wait(10 * seconds)
            return None if ended == -signal.SIGXCPU else ended
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.end(child)

    def end(self, child: subprocess.Popen[bytes]) -> None:
        """End a run, with the processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        self.running.discard(child)

    def stop(self) -> None:
        """End every run."""
        self.stopped = True
        for child in list(self.running):
            self.end(child)


def measured(trees: Trees, jobs: int) -> dict[str, Any]:
    """Which tests reach which lines, and how long they take."""
    paths = [
        path
        for each in TESTS
        for path in ([ROOT / each] if each.endswith(".py") else sorted((ROOT / each).rglob("test_*.py")))
    ]
    files = [path.relative_to(ROOT).as_posix() for path in paths]
    lots = [(files[at::jobs], False) for at in range(jobs)]
    lots.append(([each for each in files if each.startswith(PARTS["core/fast"][1])], True))
    found: dict[str, Any] = {"seconds": {}, "fast seconds": {}, "broken": [], "lines": defaultdict(list)}

    def look(number: int) -> None:
        tests, fast = lots[number]
        path = WORK / f"reach-{number}.json"
        path.unlink(missing_ok=True)
        options = ("-p", "mutants", "--timeout=120")
        trees.run(WORK / f"tree-{number % jobs}", tests, 7200, *options, fast=fast, MUTANTS_REACH=str(path))

    for some in (range(jobs), [jobs]):
        threads = [threading.Thread(target=look, args=(number,), daemon=True) for number in some]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    for number, (_, fast) in enumerate(lots):
        reached = WORK / f"reach-{number}.json"
        if not reached.is_file():
            raise SystemExit("The run that measures what tests reach was ended early. Run `make mutants` again.")
        part = json.loads(reached.read_text())
        found["fast seconds" if fast else "seconds"] |= part["seconds"]
        found["broken"] += part["broken"]
        for line, tests in part["lines"].items():
            if line.startswith(FAST) == fast:
                found["lines"][line] += tests
    return found


def tests_of(change: Change, reach: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The tests to try first and those after them; what stands near comes in front, and what is quick."""
    near, fast = PARTS[part_of(change.file)][1], change.file.startswith(FAST)
    by_line = {
        int(line.rpartition(":")[2]): tests
        for line, tests in reach["lines"].items()
        if line.startswith(f"{change.file}:")
    }
    found: set[str] = set()
    for low, high in (*change.spans, (0, sys.maxsize)):  # the last: whatever reaches the file
        found = found or {test for line, tests in by_line.items() if low <= line <= high for test in tests}
    found = found or {each for each in reach["seconds"] if each.startswith(near)}
    if "rank" in change.text:  # what runs in processes of its own is not seen
        found |= {each for each in reach["seconds"] if "rank" in each and each.startswith(near)}
    seconds: dict[str, float] = reach["fast seconds" if fast else "seconds"]
    first: list[str] = []
    then: list[str] = []
    total = 0.0
    for test in sorted(found, key=lambda each: (not each.startswith(near), seconds.get(each, 1.0))):
        total += seconds.get(test, 1.0)
        if total <= QUICK or not first:
            first.append(test)
        elif total <= QUICK + LONG or not then:
            then.append(test)
    return first, then


def fate(change: Change, tree: Path, trees: Trees, reach: dict[str, Any]) -> str:
    """Killed, survived or timed out."""
    path = tree / SOURCE / change.file
    kept, times = path.read_bytes(), path.stat()
    path.write_bytes(change.made(kept))
    try:
        for tests, seconds in zip(tests_of(change, reach), (QUICK, LONG), strict=True):
            ended = trees.run(tree, tests, 3 * seconds + 60, "-x", fast=change.file.startswith(FAST)) if tests else 0
            if ended != 0:
                return "timed out" if ended is None else "killed"
        return "survived"
    finally:
        path.write_bytes(kept)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def digest() -> str:
    """A name for the code and the tests."""
    found = hashlib.sha256()
    for folder in (ROOT / SOURCE, ROOT / "tests"):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


def fates_of(chosen: list[Change], jobs: int, trees: Trees) -> dict[str, str]:
    """The fate of each change, by name. What an earlier run of the same code found is taken over."""
    WORK.mkdir(parents=True, exist_ok=True)
    reached, kept = (WORK / f"{name}-{digest()}.json" for name in ("reached", "fates"))
    fates: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    left = [each for each in chosen if each.name not in fates]
    if not left:
        return fates
    copies = [trees.copy(number) for number in range(jobs)]
    if not reached.exists():
        print("Finding out which tests reach which lines …", flush=True)
        reached.write_text(json.dumps(measured(trees, jobs)))
    reach, start = json.loads(reached.read_text()), time.monotonic()
    waiting: queue.SimpleQueue[Change] = queue.SimpleQueue()
    for each in left:
        waiting.put(each)
    lock, done = threading.Lock(), [0]

    def work(tree: Path) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                change = waiting.get_nowait()
                found = fate(change, tree, trees, reach)
                if trees.stopped:  # the run of its tests was ended and did not fail
                    return
                with lock:
                    fates[change.name], done[0] = found, done[0] + 1
                    part = kept.with_suffix(".part")
                    part.write_text(json.dumps(fates))
                    part.replace(kept)
                    minutes = (time.monotonic() - start) / 60 * (len(left) / done[0] - 1)
                    number = len(chosen) - len(left) + done[0]
                    print(f"{number:4}/{len(chosen)}  {found:9}  {change}   ({minutes:.0f} min left)", flush=True)

    workers = [threading.Thread(target=work, args=(tree,), daemon=True) for tree in copies]
    for each in workers:
        each.start()
    while any(each.is_alive() for each in workers):
        time.sleep(0.2)  # so that Ctrl-C is heard
    return fates


def asked_for() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="how many changes (100)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many side by side (one per core)")
    parser.add_argument("--at", nargs="*", metavar="FILE[:LINE]", help="every change there, such as core/gate.py:113")
    parser.add_argument("--list", action="store_true", help="print the changes and try none")
    return parser.parse_args()


def main(trees: Trees) -> int:
    """Try changes; 1 if one survived that is not listed, or if one is listed that cannot be made any more."""
    asked, known = asked_for(), all_changes()
    chosen = drawn(known, asked.count, asked.seed)
    if asked.at is not None:
        chosen = [each for each in known if {each.file, f"{each.file}:{each.line}"} & {*asked.at}]
    listed = {
        f"{each['file']} | {each['line']} | {each['change']}"
        for each in tomllib.loads(LISTED.read_text())["equivalent"]
    }
    stale = sorted(listed - {each.name for each in known})
    for name in stale:
        print(f".ci/mutants.toml lists what no longer stands in the code: {name}")
    if asked.list:
        print(*chosen, sep="\n")
        return bool(stale)
    tried = [each for each in chosen if each.name not in listed]
    fates = fates_of(tried, asked.jobs, trees)
    count = [f"{sum(fates[each.name] == how for each in tried)} {how}" for how in ("killed", "timed out", "survived")]
    print(", ".join([*count, f"{len(chosen) - len(tried)} listed as equivalent"]))
    survivors = [each for each in tried if fates[each.name] == "survived"]
    for each in survivors:
        print(f"survived: {each}\n          {each.text}")
    return bool(survivors or stale)


if __name__ == "__main__":
    own = Trees()
    for sign in (signal.SIGINT, signal.SIGTERM):  # a shell starts what runs in the background with interrupts ignored
        signal.signal(sign, signal.default_int_handler)
    try:
        sys.exit(main(own))
    except KeyboardInterrupt:
        sys.exit("Stopped; the same command goes on from here.")
    finally:
        own.stop()
