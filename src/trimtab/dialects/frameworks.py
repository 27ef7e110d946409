"""`read`: a framework's settings as ours, with findings."""

from __future__ import annotations

import os
import warnings

from trimtab.dialects import (
    areal,
    nemo_rl,
    open_instruct,
    openrlhf,
    prime_rl,
    roll,
    skyrl,
    slime,
    swift,
    trl,
    verl,
)
from trimtab.dialects.doubts import doubts
from trimtab.dialects.keys import Dialect, Given, given
from trimtab.dialects.reading import Finding, Reading
from trimtab.dialects.settings import Source, flat
from trimtab.errors import ConfigError, ConfigWarning, UnknownNameError, nearest

DIALECTS: dict[str, Dialect] = {
    each.DIALECT.name: each.DIALECT
    for each in (verl, areal, skyrl, trl, openrlhf, swift, slime, nemo_rl, roll, prime_rl, open_instruct)
}
"""Every framework that can be read, by name."""


def dialect(framework: str) -> Dialect:
    """The framework of that name, however it is capitalised or joined."""
    plain = framework.lower().replace("_", "-")
    name = {"swift": "ms-swift", "nemo": "nemo-rl", "prime": "prime-rl"}.get(plain, plain)
    if name not in DIALECTS:
        raise UnknownNameError(f"There is no framework {framework!r}. {nearest(name, DIALECTS)}")
    return DIALECTS[name]


def read(framework: str, settings: Source, documented: bool = False) -> Reading:
    """What a framework computes under these settings, in our terms.

    `settings` are its users' own keys: a mapping, a YAML, TOML, JSON or shell file, or command-line words; a whole file or the
    section that matters. `documented`: what its documentation promises instead, where that differs.
    """
    speech = dialect(framework)
    asked = given(speech, flat(settings), documented=documented)
    where = f"{os.fspath(settings)}: " if isinstance(settings, str | os.PathLike) else ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)  # doubts become findings
        try:
            rule = speech.correction(asked) if _speaks_of_correction(asked) else None
        except ConfigError as error:
            raise type(error)(f"{where}{speech.title}: {error}") from None
        return Reading(
            framework=speech.name,
            correction=rule,
            findings=(*_remarks(asked), *doubts(asked, rule)),
            said=tuple(asked.path(label) for label in asked.values),
        )


def _speaks_of_correction(asked: Given) -> bool:
    """Some key of it was written, or nothing at all, which means the framework's defaults."""
    parts = [part for part in ("loss", "advantage") if asked.speaks_of(part)]
    return (
        asked.speaks_of("correction")
        or not parts
        or any(asked.section(path) is not False for path in asked.dialect.closed)
    )


def _remarks(asked: Given) -> list[Finding]:
    return [remark.finding(asked) for remark in asked.dialect.remarks if remark.when(asked)]
