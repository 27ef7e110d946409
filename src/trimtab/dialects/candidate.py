"""A correction by the name it is asked for: a preset with its numbers, a file of ours, or a framework's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from trimtab.config.correction import Correction
from trimtab.config.files import correction_from, is_file_name
from trimtab.dialects import DIALECTS, read
from trimtab.errors import ConfigError

_CALL = re.compile(r"(?P<name>[^()]+)\((?P<numbers>[^()]*)\)")


@dataclass(frozen=True)
class Candidate:
    """A correction under the name it was asked for by."""

    label: str
    correction: Correction


def parse_candidate(text: str) -> Candidate:
    """`NAME`, `NAME(k=v,…)`, `FILE.yaml`, or `framework:FILE`, of which the correction is taken and the loss is not."""
    framework, sign, file = text.partition(":")
    if sign and framework in DIALECTS:
        reading = read(framework, Path(file))
        found = reading.correction
        if found is None:
            for each in reading.refused:
                if each.part == "correction":
                    raise ConfigError(f"{file}: {each.text}")
            raise ConfigError(
                f"{file} needs a correction in the keys of {framework}, got none. Take `off` if that is meant."
            )
        return Candidate(f"{framework}:{Path(file).stem}", found)
    if is_file_name(text):
        return Candidate(Path(text).stem, correction_from(text))
    call = _CALL.fullmatch(text)
    if call is None:
        return Candidate(text, correction_from(text))
    numbers = [each.strip() for each in call["numbers"].split(",") if each.strip()]
    return Candidate(f"{call['name']}({','.join(numbers)})", correction_from(call["name"], numbers))
