"""The corrections a lab compares, by the names its tables use."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from trimtab.config.algebra import Correction
from trimtab.config.files import correction_from, is_file_name
from trimtab.dialects import DIALECTS, read
from trimtab.errors import ConfigError, ConfigWarning

TOKEN_MIS = "token-mis"
KPOP, K2_RS, SEQ_MAX_K3 = "kpop(phi=0.1)", "k2-rs(upper=0.02)", "seq-max-k3(upper=0.5)"
"""Bounds that act; the presets' own are their sources', with which these hardly ever do."""
GEO_WIDE = "geo-rs(lower=null,upper=2)"
GEO_WIDE_TOKEN_MIS = "geo-rs+token-mis(lower=null,upper=2)"

DEFAULTS = (
    "off",
    "token-tis",
    TOKEN_MIS,
    "icepop",
    KPOP,
    "seq-tis",
    "seq-mis",
    "geo-rs",
    "geo-rs(lower=0.9,upper=1.1)",
    GEO_WIDE,
    "geo-rs+token-mis",
    GEO_WIDE_TOKEN_MIS,
    "geo-rs+token-tis",
    K2_RS,
    "k3-rs",
    SEQ_MAX_K3,
    "veto",
    "m2po",
    "bypass-off",
)
"""Run where none is named."""

_CALL = re.compile(r"(?P<name>[^()]+)\((?P<numbers>[^()]*)\)")


@dataclass(frozen=True)
class Candidate:
    """A correction under the name it was asked for by."""

    label: str
    correction: Correction


def parse_candidates(given: tuple[str, ...] | list[str] = ()) -> list[Candidate]:
    """Those named, each once, or the defaults."""
    if given:
        return [parse_candidate(each) for each in dict.fromkeys(given)]
    with warnings.catch_warnings():  # that `upper=2` hardly acts is what the lab is to show
        warnings.simplefilter("ignore", ConfigWarning)
        return [parse_candidate(each) for each in DEFAULTS]


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
