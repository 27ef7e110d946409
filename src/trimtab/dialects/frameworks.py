"""`read`: a framework's settings as ours, with findings."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

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
from trimtab.dialects.files.opening import Opened, opened, overridden
from trimtab.dialects.files.shape import refuse_foreign
from trimtab.dialects.keys import Dialect, Given, Remark
from trimtab.dialects.lookup import count, given
from trimtab.dialects.objectives import Descent, Estimation
from trimtab.dialects.parts import OFF
from trimtab.dialects.reading import Finding, Reading, Refusal
from trimtab.dialects.settings import Source
from trimtab.dialects.unread import unread
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


def read(
    framework: str,
    settings: Source,
    documented: bool = False,
    *,
    width: int | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
) -> Reading:
    """What a framework computes under these settings, in our terms.

    `settings` are its users' own keys: a mapping, a YAML, TOML, JSON, shell or Python file, or command-line words; a whole file
    or the section that matters. `documented`: what its documentation promises instead, where that differs. `width`: how wide the
    padded answers are, for the few reductions that divide by it. `overrides`: keys of the framework's on top of the file, as a
    mapping or as `KEY=VALUE` words.

    A part that cannot be said (`Reading.refused`) leaves the others standing; where nothing is left, that is an error, but for a
    whole file that leaves its correction off.
    """
    speech = dialect(framework)
    found = opened(settings, lambda keys: count(speech, keys))
    keys = overridden(found.keys, overrides)
    where = f"{os.fspath(settings)}: " if isinstance(settings, str | os.PathLike) else ""
    refuse_foreign(speech.name, found, where)
    asked = _asked(speech, keys, found, where, documented, width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)  # doubts become findings
        reading, errors = _reading(speech, asked)
    if errors and not _says(reading) and not (where and asked.whole and "correction" not in errors):
        first = next(iter(errors.values()))
        raise type(first)(f"{where}{_titled(speech, first)}")
    return replace(reading, findings=(*found.findings, *reading.findings, *unread(asked)))


def _asked(
    speech: Dialect, keys: Mapping[str, Any], found: Opened, where: str, documented: bool, width: int | None
) -> Given:
    try:
        return given(speech, keys, documented=documented, width=width, partial=True)
    except UnknownNameError:
        if found.parents and not count(speech, keys):
            raise ConfigError(
                f"{where}this starts {speech.title} with the settings of {', '.join(found.parents)}. Pass that file."
            ) from None
        raise


def _titled(speech: Dialect, error: ConfigError) -> str:
    return str(error) if str(error).startswith(speech.title) else f"{speech.title}: {error}"


def _says(reading: Reading) -> bool:
    """Whether any part was read."""
    parts = (reading.correction, reading.loss, reading.reduction, reading.kl, reading.entropy, reading.advantage)
    return any(part is not None for part in parts) or bool(reading.shaping)


def _reading(speech: Dialect, asked: Given) -> tuple[Reading, Mapping[Any, ConfigError]]:
    """What each part says, and why those that say nothing do not."""
    errors: dict[Literal["correction", "loss", "advantage"], ConfigError] = {}

    def part(name: Literal["correction", "loss", "advantage"], rule: Callable[[], Any], otherwise: Any) -> Any:
        try:
            for problem in asked.problems:
                if problem.part == name:
                    raise problem.error
            return rule()
        except ConfigError as error:
            errors[name] = error
            return otherwise

    rule = part("correction", lambda: speech.correction(asked), None)
    silent = asked.places and not asked.speaks_of("correction") and not asked.closed_section
    speaks = speech.descent and (asked.speaks_of("loss") or speech.is_loss)
    descent: Descent = part(
        "loss", lambda: speech.descent(asked) if speech.descent and speaks else Descent(), Descent()
    )
    counted = speech.estimation and asked.speaks_of("advantage")
    found: Estimation = part(
        "advantage", lambda: speech.estimation(asked) if speech.estimation and counted else Estimation(), Estimation()
    )
    reading = Reading(
        framework=speech.name,
        correction=None if silent and rule == OFF else rule,
        loss=descent.loss,
        reduction=descent.reduction,
        kl=descent.kl,
        kl_to=descent.kl_to,
        entropy=descent.entropy,
        advantage_scale=descent.advantage_scale,
        rows=descent.rows,
        advantage=found.advantage,
        shaping=found.shaping,
        advantage_norm=found.advantage_norm,
        reward_kl=found.reward_kl,
        advantage_clip=found.advantage_clip,
        logged_kl=speech.logged_kl(asked),
        findings=(*_remarks(asked), *doubts(asked, rule)),
        refused=tuple(Refusal(name, _titled(speech, error)) for name, error in errors.items()),
        said=tuple(asked.path(label) for label in asked.values),
    )
    return reading, errors


def _remarks(asked: Given) -> list[Finding]:
    return [remark.finding(asked) for remark in asked.dialect.remarks if _applies(remark, asked)]


def _applies(remark: Remark, asked: Given) -> bool:
    try:
        return remark.when(asked)
    except ConfigError:  # it looks at a value that is not known; the part that needs it says so
        return False
