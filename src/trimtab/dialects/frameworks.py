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
from trimtab.dialects.keys import Dialect, Given
from trimtab.dialects.lookup import given
from trimtab.dialects.objectives.kinds import Descent, Estimation
from trimtab.dialects.parts import OFF
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


def read(framework: str, settings: Source, documented: bool = False, *, width: int | None = None) -> Reading:
    """What a framework computes under these settings, in our terms.

    `settings` are its users' own keys: a mapping, a YAML, TOML, JSON or shell file, or command-line words; a whole file or the
    section that matters. `documented`: what its documentation promises instead, where that differs. `width`: how wide the
    padded answers are, for the few reductions that divide by it.
    """
    speech = dialect(framework)
    found = flat(settings)
    where = f"{os.fspath(settings)}: " if isinstance(settings, str | os.PathLike) else ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)  # doubts become findings
        try:
            return _reading(speech, given(speech, found, documented=documented, width=width))
        except ConfigError as error:
            title = "" if str(error).startswith(speech.title) else f"{speech.title}: "
            raise type(error)(f"{where}{title}{error}") from None


def _reading(speech: Dialect, asked: Given) -> Reading:
    rule = speech.correction(asked)
    silent = asked.places and not asked.speaks_of("correction") and not asked.closed_section
    descent = speech.descent(asked) if speech.descent and (asked.speaks_of("loss") or speech.is_loss) else Descent()
    found = speech.estimation(asked) if speech.estimation and asked.speaks_of("advantage") else Estimation()
    return Reading(
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
        logged_kl=speech.logged_kl(asked),
        findings=(*_remarks(asked), *doubts(asked, rule)),
        said=tuple(asked.path(label) for label in asked.values),
    )


def _remarks(asked: Given) -> list[Finding]:
    return [remark.finding(asked) for remark in asked.dialect.remarks if remark.when(asked)]
