"""Files built to exhaust a reader are refused within a second of processor time and a few megabytes."""

import os
import socket
import subprocess
import sys
import time

import pytest
import yaml

from trimtab.config.safe_yaml import (
    MOST_BYTES,
    MOST_LEVELS,
    MOST_VALUES,
    MarkedLoader,
    RecordedLoader,
    json_data,
    reason,
    settings_of,
    text_of,
    yaml_data,
)
from trimtab.dialects.sources.opening import open_file
from trimtab.dialects.sources.settings import documents, flat_settings
from trimtab.errors import ConfigFileError

ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))
REFERENCES = "a0: xxxxxxxx\n" + "".join(f"a{n}: '{f'${{a{n - 1}}}' * 9}'\n" for n in range(1, 40))
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from trimtab.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    "command", [("train", "--dry-run"), ("explain",), ("explain", "--from", "verl"), ("compare", "off")]
)
@pytest.mark.parametrize(
    "text", ["a: " + "[" * 30_000, "- " * 100_000, "{a: " * 30_000, ALIASES, REFERENCES], ids=["[", "-", "{", "&", "$"]
)  # fmt: skip
def test_a_file_that_would_end_or_fill_the_process_is_one_message(tmp_path, command, text):
    (tmp_path / "d.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, command[0], *command[1:], str(tmp_path / "d.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr[-2000:]
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


BEYOND = {
    "levels": "[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1),
    "levels by aliases": "".join(f"a{n}: &a{n} [{f'*a{n - 1}' if n else 1}]\n" for n in range(MOST_LEVELS + 1)),
    "values": "[" + "1," * MOST_VALUES + "]",
    "values by aliases": ALIASES,
    "values by merges": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 30)),
    "characters by aliases": f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 10)}]",
    "a circle": "a: &a {b: [*a]}",
    "a circle of keys": "? &a [*a]\n: 1",
}


@pytest.mark.parametrize("what", BEYOND)
def test_what_is_beyond_a_limit_is_refused_before_anything_is_built(what):
    class Untouched(yaml.SafeLoader):
        def get_single_data(self):
            raise AssertionError("it was built")

    begun = time.process_time()
    with pytest.raises(yaml.YAMLError) as refusal:
        yaml_data(BEYOND[what], Untouched)
    assert time.process_time() - begun < 1
    assert "at line" in reason(refusal.value)
    for read in (settings_of, documents, lambda text: yaml_data(text, RecordedLoader)):
        with pytest.raises((yaml.YAMLError, ConfigFileError)):
            read(BEYOND[what])


def test_what_is_within_every_limit_is_read():
    levels = MOST_LEVELS - 1
    text = f"deep: {'[' * levels}{']' * levels}\nwide: [{'1,' * (MOST_VALUES - levels - 100)}]\nlong: {'x' * 500_000}\n"
    found = settings_of(text)
    assert len(found["wide"]) == MOST_VALUES - levels - 100
    assert len(found["long"]) == 500_000


def test_an_anchor_may_be_repeated_and_merged():
    assert settings_of("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n") == {
        "a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": [{"x": 1}, {"x": 1}]
    }  # fmt: skip


SAID = {
    "!!int x": "'x' cannot be read as a whole number",
    "!!int ''": "cannot be read as a whole number",
    "!!int [1]": "a sequence cannot be read as a whole number",
    "!!float .": "'.' cannot be read as a number",
    "!!bool maybe": "cannot be read as true or false",
    "9" * 5000: "cannot be read as a whole number of at most 308 digits",
    "0x" + "f" * 300: "cannot be read as a whole number",
    "1" + ":59" * 100_000: "cannot be read as a whole number",
    "!!timestamp 2020-01-01": "could not determine a constructor",
    "!!binary aGk=": "could not determine a constructor",
    "!!set {a, b}": "could not determine a constructor",
    "!!python/object/apply:os.getcwd []": "could not determine a constructor",
}


@pytest.mark.parametrize("value", SAID)
@pytest.mark.parametrize("loader", [None, MarkedLoader, RecordedLoader])
def test_a_tag_or_a_number_that_is_none_is_refused_with_its_place(value, loader):
    with pytest.raises(yaml.YAMLError) as refusal:
        settings_of(f"a: {value}") if loader is None else yaml_data(f"a: {value}", loader)
    assert SAID[value] in reason(refusal.value)
    assert "at line 1, column 4" in reason(refusal.value)


@pytest.mark.parametrize("word", ["!!int x", "!!float .", "!!timestamp x", "9" * 5000, "[" * 30_000, "*a", "&a [*a]"])
def test_a_flag_that_is_no_value_is_its_text(word):
    assert flat_settings(["--some-flag", word, f"--other={word}", f"a.b={word}"]) == {
        "some_flag": word, "other": word, "a.b": word
    }  # fmt: skip


def test_a_launch_script_of_one_long_word_takes_no_time(tmp_path):
    (tmp_path / "a.sh").write_text("run --flag " + "x" * 900_000)
    begun = time.process_time()
    with pytest.raises(ConfigFileError, match="more than 300000 characters"):
        open_file(tmp_path / "a.sh")
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_file_of_settings(name):
    with pytest.raises(ConfigFileError, match=f"{name} cannot be read: it is a device, no ordinary file"):
        text_of(name)


def test_a_pipe_and_a_socket_are_refused_before_anybody_waits_for_them(tmp_path):
    os.mkfifo(tmp_path / "a.yaml")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "b.yaml"))
        for name, words in (("a.yaml", "it is a pipe, no ordinary file"), ("b.yaml", "cannot be read")):
            with pytest.raises(ConfigFileError, match=words):
                text_of(tmp_path / name)


def test_a_file_that_is_refused_is_closed(tmp_path):
    os.mkfifo(tmp_path / "a.yaml")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(ConfigFileError):
            text_of(tmp_path / "a.yaml")
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_largest_text_is_read(tmp_path):
    (tmp_path / "a").write_text("x" * MOST_BYTES)
    assert len(text_of(tmp_path / "a")) == MOST_BYTES


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "9" * 5000, "", "{", b"\xff"])
def test_json_that_cannot_be_read_is_a_value_error(text):
    with pytest.raises(ValueError, match=r".+"):
        json_data(text)
