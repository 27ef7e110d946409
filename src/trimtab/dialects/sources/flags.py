"""Words of a command as settings: `--flag value`, `a.b=value`, and a JSON object of full names in one word."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

import yaml

from trimtab.config.safe_yaml import settings_of
from trimtab.dialects.sources.unknown import HOLE, Holes

FULL_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)+")
LOOSE = re.compile(rf"(?<=[:,\[\s])({HOLE.pattern.replace('(', '(?:')})(?=\s*[,\]}}])")
"""A hole where JSON needs a value: a number or a word that the file does not say."""
RUNTIME = "--runtime-env-json"
VARIABLE = re.compile(r'"([A-Za-z_]\w*)"\s*:\s*"([^"]*)"')
"""A name with a text, in JSON."""
LONGEST = 100_000
"""Characters of one object."""
KEY = re.compile(r"^(?:--?)?\+{0,2}([A-Za-z_][\w.-]*)$")
ARGUMENTS = re.compile(r"args|opts|options|flags|extra|overrides|params|cmd|command", re.IGNORECASE)
"""Names of variables that stand for words of their own."""


def flag_name(head: str) -> str:
    """The key that a flag sets."""
    return head.lstrip("-").replace("-", "_")


def scalar(text: str) -> Any:
    """A value as a flag has it: what YAML reads, else the text."""
    try:
        return settings_of(text)
    except (yaml.YAMLError, ValueError):
        return text


def keys_of(words: Iterable[str], holes: Holes) -> dict[str, Any]:
    """Words as settings: `--some-flag 0.5 5.0`, `--flag=value`, `a.b=value`; what is unknown by name."""
    found: dict[str, Any] = {}
    name: str | None = None
    for word in words:
        head, sign, tail = word.partition("=")
        if re.match(r"^--?[A-Za-z]", word) and not HOLE.search(head):
            name = flag_name(head)
            found[name] = _value(tail, holes) if sign else True
            found |= settings_within(tail, holes)
            name = None if sign else name
        elif sign and (key := KEY.match(head)):  # Hydra, OmegaConf
            found[key[1]] = _value(tail, holes)
            name = None
        elif name is not None and not adds_words(word, holes):
            earlier, value = found[name], _value(word, holes)
            listed = cast("list[Any]", earlier) if isinstance(earlier, list) else [earlier]
            found[name] = value if earlier is True else [*listed, value]
            found |= settings_within(word, holes)
        else:
            name = None
            unknown = holes.of(word) if HOLE.fullmatch(word) else None
            found |= dict.fromkeys(keys_of(unknown.maybe, holes), unknown) if unknown else {}
    return found


def adds_words(word: str, holes: Holes) -> bool:
    """Whether a word stands for arguments of its own rather than for one value."""
    unknown = holes.of(word) if HOLE.fullmatch(word) else None
    return unknown is not None and (unknown.several or bool(ARGUMENTS.search(unknown.name)))


def _value(text: str, holes: Holes) -> Any:
    unknown = holes.of(text)
    return scalar(text) if unknown is None else unknown


def settings_within(text: str, holes: Holes) -> dict[str, Any]:
    """The settings of such an object, each unknown by itself; none where the text is anything else."""
    if not text.lstrip().startswith("{") or len(text) > LONGEST:
        return {}
    try:
        found = json.loads(LOOSE.sub(r'"\1"', text))
    except (ValueError, RecursionError):
        return {}
    whole = cast("dict[str, Any]", found)
    if not whole or not all(FULL_NAME.fullmatch(name) for name in whole):
        return {}
    return dict(_flat(whole, holes))


def handed_by_ray(words: Sequence[str]) -> dict[str, str]:
    """The variables that `ray job submit --runtime-env-json=…` hands to a command, of a text that need not be sound JSON."""
    texts = [word.partition("=")[2] for word in words if word.startswith(f"{RUNTIME}=")]
    texts += [after for word, after in pairwise(words) if word == RUNTIME]
    return {found[1]: found[2] for text in texts for found in VARIABLE.finditer(text[:LONGEST])}


def _flat(section: dict[str, Any], holes: Holes) -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, dict) and value:
            below = _flat(cast("dict[str, Any]", value), holes)
            yield from ((f"{name}.{inner}", each) for inner, each in below)
        else:
            yield name, _known_part(value, holes)


def _known_part(value: Any, holes: Holes) -> Any:
    """A value as it stands, but for one with something unknown in it."""
    if isinstance(value, list):
        return [_known_part(each, holes) for each in cast("list[Any]", value)]
    unknown = holes.of(value) if isinstance(value, str) else None
    return value if unknown is None else unknown
