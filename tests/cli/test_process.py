"""The command line as a process of its own: what CliRunner cannot see."""

import os
import pty
import resource
import select
import subprocess
import sys

from tests.waiting import LIMIT

COMMAND = [sys.executable, "-m", "trimtab.cli"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)


def on_a_terminal(*arguments: str, columns: int) -> str:
    """What a process prints when its output is a terminal of that width."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    printed = bytearray()
    while select.select([ours], [], [], LIMIT)[0]:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        printed += chunk
    process.wait(LIMIT)
    os.close(ours)
    return printed.decode()


def test_a_misspelt_key_is_one_message_without_a_traceback():
    ran = run("explain", "geo-rs+token-mis", "tokn_upper=2.0")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr == (
        "error: Preset 'geo-rs+token-mis' has no parameter 'tokn_upper'. Did you mean 'token_upper'?\n"
    )


def test_a_reader_that_stops_early_is_no_error():
    writer = subprocess.Popen([*COMMAND, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert writer.wait(LIMIT) == 141
    assert writer.stderr.read() == b""
    writer.stderr.close()


def test_a_terminal_gets_colour_and_lines_that_fit():
    printed = on_a_terminal("presets", columns=90)
    assert "\x1b[1" in printed
    plain = "".join(part.partition("m")[2] if place else part for place, part in enumerate(printed.split("\x1b[")))
    assert max(len(line.rstrip("\r\n")) for line in plain.splitlines()) <= 90
    assert "seq-logprob-error" in plain


def test_the_commands_load_no_torch():
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "presets"], capture_output=True, text=True, check=True
    )
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "trimtab.cli.app" in loaded
    assert not {"torch", "jaxtyping", "numpy"} & loaded


def test_the_commands_start_fast():
    """By processor time, since neighbours at work stretch the clock: about 0.25 s, where torch alone takes over 1.5 s."""
    best = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run("explain", "vaco")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert best < 1.2
