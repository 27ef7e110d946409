"""How texts, trees and words are spoilt."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import yaml

ALIASES = "x0: &x0 [1, 1]\n" + "".join(f"x{n}: &x{n} [*x{n - 1}, *x{n - 1}]\n" for n in range(1, 30))
REFERENCES = "y0: xxxxxxxxx\n" + "".join(f"y{n}: '${{y{n - 1}}}${{y{n - 1}}}'\n" for n in range(1, 50))
RUN = "touch canary-ran"
VALUES: tuple[Any, ...] = (
    None, True, False, "", " ", "x", "true", "null", "0", "1e-4", "-1", "0.5_5.0", "a,b", [], {}, [None], [[]], {"a": None},
    {"": 1}, {None: 1}, {1: 2}, [1, 2], ["token", 2.0], 0, -1, 1, 2, 10**15, 10**300, 10**309, -(10**400), 0.0, -0.0, 1e-320,
    1e308, -1e308, float("nan"), float("inf"), float("-inf"), "x" * 300, "x" * 20_000, "\x1b]0;x\x07", "\u202ex", "é漢👍",
    "${a.b}", "${oc.env:TRIMTAB_CANARY}", "x ${oc.env:TRIMTAB_CANARY}", "${", "${}", "${..a}", "\\${a}", "a\nb", "canary:reward",
    "2020-01-01", "1:30", "0x1f", "{}", "[1", "%", "`", "'", '"', "$(touch canary-ran)", f"`{RUN}`", ["x"] * 50, "off", "none",
    "../../etc/passwd", "/dev/null",
)  # fmt: skip
"""What any setting may turn into."""
SNIPPETS: tuple[str, ...] = (
    "null", "~", "!!int x", "!!float .", "!!bool z", "!!timestamp 2020-01-01", "!!binary aGk=", "!!set {a, b}", "!!omap [a: 1]",
    f'!!python/object/apply:os.system ["{RUN}"]', "!!python/name:os.system", "!mine 1", "&a [*a]", "*a", "&a 1", "<<: *a", "<<: 1",
    "9" * 400, "9" * 5000, "0x" + "f" * 300, "1" + ":59" * 2000, "1e999", "[" * 5000, "{" * 5000, "- " * 3000, "{a: " * 2000,
    "? [a]\n: 1", "---", "...", "%YAML 9.9", "\t", "\x00", "\ufeff", "\u2028", "\x85", '"\\ud800"', '"\\x1b"', "''", "'", '"', "|",
    ">", "#", ":", "=", "\\", "\r\n", "${oc.env:TRIMTAB_CANARY}", "${oc.decode:1}", "${" * 500, "${a}" * 300, "&" * 50, "!" * 50,
    ALIASES, REFERENCES, "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "; " + RUN, f"$({RUN})", "&& x", "<<EOF", "x" * 5000,
)  # fmt: skip
"""What any place in a text may gain."""


def spoilt_tree(tree: Any, rng: Random) -> Any:
    """The tree with one to three of its parts changed."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place, key = _place(tree, rng)
        if place is None:
            return rng.choice(VALUES)
        change = rng.randrange(6)
        if change < 3:
            place[key] = copy.deepcopy(rng.choice(VALUES))
        elif change == 3 and isinstance(place, dict):
            place[rng.choice(("x", "", 1, None, True, 1.5, "a.b", f"{key}x", str(key).upper()))] = place.pop(key)
        elif change == 4:
            place[key] = _wrapped(place[key], rng)
        else:
            del place[key]
    return tree


def _place(tree: Any, rng: Random) -> tuple[Any, Any]:
    """Somewhere in a tree; the deeper, the rarer."""
    found = [(None, None)]
    pending = [tree]
    while pending:
        at = pending.pop()
        keys = list(at) if isinstance(at, dict) else list(range(len(at))) if isinstance(at, list) else []
        found += [(at, key) for key in keys]
        pending += [at[key] for key in keys]
    return rng.choice(found[1:]) if len(found) > 1 else found[0]


def _wrapped(value: Any, rng: Random) -> Any:
    return rng.choice(([value], {"a": value}, [value] * 3, str(value), [[[[value]]]]))


def spoilt_text(text: str, rng: Random) -> bytes:
    """The text with one to four places changed, as bytes that may be no text any more."""
    data = text
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        change = rng.randrange(8)
        if change < 3:
            data = data[:at] + rng.choice(SNIPPETS) + data[at:]
        elif change == 3:
            data = data[:at]
        elif change == 4:
            lines = data.split("\n")
            line = rng.randrange(len(lines))
            lines[line:line] = [lines[rng.randrange(len(lines))]] * rng.choice((1, 3))
            data = "\n".join(lines)
        elif change == 5:
            data = data[:at] + data[at + rng.randrange(1, 9) :]
        elif change == 6:
            line = data.rfind("\n", 0, at) + 1
            data = data[:line] + rng.choice((" ", "  ", "\t", "- ", "# ")) + data[line:]
        else:
            data = data.replace(": ", f": {rng.choice(SNIPPETS)} ", rng.choice((1, 2)))
    found = data.encode("utf-8", "surrogatepass")
    for _ in range(rng.choice((0, 0, 0, 1, 5))):
        if found:
            at = rng.randrange(len(found))
            found = found[:at] + bytes([rng.randrange(256)]) + found[at + 1 :]
    return found


def yaml_text(tree: Any) -> str:
    """Any tree as YAML."""
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def json_text(tree: Any) -> str:
    """Any tree as JSON; keys become text."""
    return json.dumps(tree, skipkeys=True)


def toml_text(tree: Any) -> str:
    """A tree as TOML, as far as TOML can say it."""
    flat: list[str] = []
    pending = [("", tree)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, dict):
            inner = [
                (f"{name}.{json.dumps(str(key))}" if name else json.dumps(str(key)), each)
                for key, each in value.items()
            ]
            pending += reversed(inner)
        elif value is not None and name:
            flat.append(f"{name} = {json.dumps(value)}")
    return "\n".join(flat)


def flags_of(tree: Any) -> list[str]:
    """A tree as words of a command line, or the words it is."""
    if isinstance(tree, list):
        return [str(each) for each in tree]
    words: list[str] = []
    pending = [("", tree)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{name}.{key}" if name else str(key), each) for key, each in value.items()]
        else:
            words.append(f"{name}={value}")
    return words


def spoilt_words(words: list[str], rng: Random) -> list[str]:
    """Words with a few changed, swapped, repeated or gone."""
    words = list(words)
    for _ in range(rng.choice((1, 2, 3))):
        at = rng.randrange(len(words) + 1)
        change = rng.randrange(5)
        if change < 2 and words:
            head, sign, _ = words[at % len(words)].partition("=")
            words[at % len(words)] = f"{head}{sign or ''}{spoken(rng)}" if sign else spoken(rng)
        elif change == 2:
            words.insert(at, rng.choice((spoken(rng), f"--{spoken(rng)}", f"a.b={spoken(rng)}")))
        elif change == 3 and words:
            del words[at % len(words)]
        elif words:
            words.insert(at, words[at % len(words)])
    return words


def spoken(rng: Random) -> str:
    """Something hostile as an argument can hold it: any text but a zero byte."""
    value = rng.choice(VALUES) if rng.random() < 0.6 else rng.choice(SNIPPETS)
    return str(value).replace("\x00", "")[:20_000] + rng.choice(("", "", "", "\udcff"))
