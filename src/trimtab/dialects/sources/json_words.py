"""Settings in one word of a command: a JSON object whose names are full names, as `{"trainer.algorithm.gamma": 1.0}`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

from trimtab.dialects.sources.unknown import HOLE, Holes

FULL_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)+")
LOOSE = re.compile(rf"(?<=[:,\[\s])({HOLE.pattern.replace('(', '(?:')})(?=\s*[,\]}}])")
"""A hole where JSON needs a value: a number or a word that the file does not say."""
RUNTIME = "--runtime-env-json"
VARIABLE = re.compile(r'"([A-Za-z_]\w*)"\s*:\s*"([^"]*)"')
"""A name with a text, in JSON."""
LONGEST = 100_000
"""Characters of one object."""


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
