"""Cases run in forked children with limits, so that a crash, a hang or a full memory is a finding and not the end.

cases ─batches─► child (limits of processor time and memory, audit hook, canaries) ─one line per case─► findings
                   └─ ended by a signal: the case it was at is the finding; the rest goes to the next child
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.fuzz.cases import Case, case
from trimtab.cli import show
from trimtab.cli.app import app
from trimtab.errors import TrimtabError

SECONDS = 2.0
"""Of processor time, for one case."""
ENOUGH = 15
"""Of processor time, after which a child that does not heed the first limit is ended."""
ROOM = 1 << 30
"""Of memory, over what a child begins with."""
MOST_OUTPUT = 20_000_000
CANARY = "canary-of-the-environment"
FORBIDDEN = (
    "os.system",
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "socket.connect",
    "pickle.find_class",
)


class TooSlowError(BaseException):
    """The processor time of a case is used up."""


class RanError(BaseException):
    """Something was started that no settings may start."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended; `problem` is empty where that was well."""

    number: int
    problem: str
    seconds: float = 0.0
    trace: str = ""


def run(seed: int, numbers: Sequence[int], *, workers: int, batch: int = 200) -> Iterator[Outcome]:
    """The outcome of every case, as they come."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as home:  # also of children that are ended
        yield from _run(seed, numbers, workers, batch, Path(home))


def _run(seed: int, numbers: Sequence[int], workers: int, batch: int, home: Path) -> Iterator[Outcome]:
    waiting = [list(numbers[at : at + batch]) for at in range(0, len(numbers), batch)]
    running: dict[int, tuple[int, list[int], bytes]] = {}
    warm_up()
    while waiting or running:
        while waiting and len(running) < workers:
            part = waiting.pop(0)
            reader, pid = _forked(seed, part, home)
            running[reader] = (pid, part, b"")
        for reader in select.select(list(running), [], [])[0]:
            pid, part, text = running[reader]
            chunk = os.read(reader, 1 << 20)
            if chunk:
                running[reader] = (pid, part, text + chunk)
                continue
            os.close(reader)
            del running[reader]
            outcomes, rest = _gathered(pid, part, text)
            yield from outcomes
            if rest:
                waiting.insert(0, rest)


def _gathered(pid: int, part: list[int], text: bytes) -> tuple[list[Outcome], list[int]]:
    """What a child that has ended told, and what it did not come to."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    told = [Outcome(**json.loads(line)) for line in text.splitlines()]
    left = part[len(told) :]
    if left and status != 0:
        name = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        return [*told, Outcome(left[0], f"ended the process: {name}")], left[1:]
    assert not left, f"a child went at case {left[0]} without a word"
    return told, []


def _forked(seed: int, part: list[int], home: Path) -> tuple[int, int]:
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads that wait hold nothing a child needs
        pid = os.fork()
    if pid:
        os.close(writer)
        return reader, pid
    code = 1
    try:
        os.close(reader)
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
        _limit()
        for number in part:
            found = outcome(case(seed, number), home)
            os.write(writer, json.dumps(vars(found)).encode() + b"\n")
        code = 0
    finally:
        os._exit(code)


def _limit() -> None:
    faulthandler.disable()  # a crash is told once, by its case
    sys.addaudithook(_watch)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["TRIMTAB_CANARY"] = CANARY
    os.environ["TRIMTAB_FAST"] = (
        "0"  # numba keeps what it compiled as a pickle of its own, which no settings file has a say in
    )


def _watch(event: str, _: Any) -> None:
    if event in FORBIDDEN:
        raise RanError(event)


def outcome(one: Case, home: Path) -> Outcome:
    """Run one case in a folder of its own."""
    folder = Path(tempfile.mkdtemp(dir=home))
    before = os.getcwd()
    try:
        _lay_out(folder, one)
        os.chdir(folder)
        return _called(one, folder)
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


def _lay_out(folder: Path, one: Case) -> None:
    (folder / "canary.py").write_text("open('canary-ran', 'w')\ndef reward(*_): return 1.0\n")
    for name, data in one.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
        if name.endswith("/run.json"):
            (folder / name).with_name("rollouts").mkdir(exist_ok=True)


def _called(one: Case, folder: Path) -> Outcome:
    begun = time.process_time()
    signal.signal(signal.SIGPROF, _too_slow)
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + ENOUGH
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    trace = ""
    try:
        problem, trace = _problem(one, folder)
    except TooSlowError:
        problem = f"took more than {SECONDS:g} s of processor time"
    except RanError as error:
        problem = f"started {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return Outcome(one.number, problem, round(time.process_time() - begun, 3), trace)


def _too_slow(*_: object) -> None:
    raise TooSlowError


def _problem(one: Case, folder: Path) -> tuple[str, str]:
    """What is wrong with how the call ended, and where it came from."""
    if one.words[:1] == ["(scenario)"]:
        return _scenario(one.words[1])
    done = CliRunner().invoke(app, one.words, prog_name="trimtab")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return _thrown(done.exception)
    said = done.stderr
    partly = (4,) if "convert" in one.words else ()  # what the target cannot say is listed, the rest is written
    if done.exit_code not in (0, 1, 2, 3, *partly):  # 3: a part could not be read, the rest is printed
        return f"exit code {done.exit_code}", ""
    if done.exit_code == 2 and sum(line.startswith(("error: ", "Error: ")) for line in said.splitlines()) != 1:
        return "exit code 2 without one error", said[-500:]
    if "Traceback (most recent call last)" in done.output:
        return "a traceback was printed", said[-500:]
    if CANARY in done.output or any(CANARY in each.read_text(errors="replace") for each in folder.glob("**/*.html")):
        return "the environment was told", ""
    if len(done.output) > MOST_OUTPUT:
        return f"{len(done.output)} characters were printed", ""
    if set("\x1b\x07\x9b\u202e") & set(said):
        return "a control reached stderr", said[-500:]
    return ("the canary ran", "") if (folder / "canary-ran").exists() else ("", "")


def _scenario(name: str) -> tuple[str, str]:
    from trimtab.lab.scenario import scenario

    try:
        scenario(name)
    except TrimtabError:
        return "", ""
    except Exception as error:
        return _thrown(error)
    return "", ""


def _thrown(error: BaseException) -> tuple[str, str]:
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "trimtab" in each.filename]
    at = frames[-1] if frames else None
    place = f"{at.filename.rpartition('trimtab/')[2]}:{at.lineno} {at.name}" if at else "outside"
    return f"{type(error).__name__} at {place}", str(error)[:300]


def warm_up() -> None:
    """Load what commands load lazily, once, before anything is forked and watched."""
    import torch

    torch.set_num_threads(1)
    import tokenizers  # noqa: F401

    from tests.fuzz import corpus

    show.is_narrow()
    for part in (corpus.frameworks, corpus.own, corpus.scenarios, corpus.run_files, corpus.lab):
        part()
    CliRunner().invoke(app, ["compare", "off", "token-mis"])
